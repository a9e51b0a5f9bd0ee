"""The interface of what makes PTX of kernels (``choice.py`` says who does)."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Final

from hlojit.cuda.nvptx import NvptxDialect
from hlojit.ir.errors import HlojitError
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target
from hlojit.simt.intrinsics import check_intrinsics

_UNDEFINED: Final = re.compile(r"^\.extern \.func\s+(?:\([^)]*\)\s*)?([\w$]+)", re.MULTILINE)


def entry_name(symbol: str) -> str:
    """What a phase is called in PTX, which knows no dots in names."""
    return symbol.replace(".", "$")


class Assembler(ABC):
    """From kernels in the ``nvptx`` dialect to PTX.

    What would end the process, or call what nobody defines, is an error: names are looked at before, the result after.
    """

    name: str
    dialect: Final = NvptxDialect()

    def unavailable(self) -> str:
        """Why it cannot be used here, or an empty string."""
        return ""

    def ptx(self, code: KernelCode, target: Target) -> str:
        """PTX of all phases of a kernel, its entries called ``entry_name(phase.symbol)``; raises ``HlojitError``."""
        check_intrinsics(code, self.dialect, target.cpu)
        text = self._assembled(_renamed(code), target)
        for undefined in _UNDEFINED.findall(text):
            if undefined not in self.dialect.externs:
                raise HlojitError(f"kernel {code.symbol} calls {undefined}, which nobody defines for {target.cpu}")
        return text

    @abstractmethod
    def _assembled(self, code: KernelCode, target: Target) -> str:
        """PTX of a kernel whose names were looked at."""


def _renamed(code: KernelCode) -> KernelCode:
    text, phases = code.ir, []
    for phase in code.phases:
        name = entry_name(phase.symbol)
        text = re.sub(rf"@{re.escape(phase.symbol)}(?=\()", f"@{name}", text)
        phases.append(replace(phase, symbol=name))
    return replace(code, ir=text, phases=tuple(phases))
