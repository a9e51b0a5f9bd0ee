"""A kind of GPU as a back end sees it: what code is made for, who assembles it, and which of them are here."""

from __future__ import annotations

from dataclasses import dataclass

from hlojit.codegen.kernel_cache import Assembler
from hlojit.gpu.driver import Driver
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect


@dataclass(frozen=True)
class Platform:
    """What a ``GpuBackend`` compiles for and runs on.

    ``software`` names everything besides hlojit that images depend on, with versions.  ``drivers`` are the GPUs, none of
    them opened.
    """

    target: Target
    dialect: Dialect
    assemble: Assembler
    drivers: tuple[Driver, ...]
    software: str = ""
    needs: str = ""
    """Identity of what images need to run besides the target's GPU."""
