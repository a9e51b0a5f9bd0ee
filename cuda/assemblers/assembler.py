"""The interface of what makes PTX of kernels (``choice.py`` says who does)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target


class Assembler(ABC):
    """From kernels in the ``nvptx`` dialect to PTX."""

    name: str

    def unavailable(self) -> str:
        """Why it cannot be used here, or an empty string."""
        return ""

    @abstractmethod
    def ptx(self, code: KernelCode, target: Target) -> str:
        """PTX of all phases of a kernel, its entries named as the phases; raises ``HlojitError``."""
