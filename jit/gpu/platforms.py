"""A kind of GPU as a back end sees it: what code is made for, who assembles it, and which of them are here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from hlojit.codegen.kernel_cache import Assembler
from hlojit.gpu.driver import Driver
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import DeviceFunction
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target
from hlojit.simt.dialect import Dialect

FunctionEmitter: TypeAlias = Callable[[Instruction, DeviceFunction, Target, str], KernelCode]
"""From a call of a plugin's kernel to its code, whose text the assembler takes as it is."""


@dataclass(frozen=True)
class Platform:
    """What a ``GpuBackend`` compiles for and runs on.

    ``software`` names everything besides hlojit that images depend on, with versions.  ``drivers`` are the GPUs, none of
    them opened.
    """

    hlojit_runtime: ClassVar[tuple[str, ...]] = ("drivers",)

    target: Target
    dialect: Dialect
    assemble: Assembler
    drivers: tuple[Driver, ...]
    software: str = ""
    needs: str = ""
    """Identity of what images need to run besides the target's GPU."""
    device_function: FunctionEmitter | None = None
    """How kernels that plugins have written for the back end become code; None: it takes none."""
    calls_host: bool = False
    """Whether functions of arrays that run on the host can be called: device memory is the host's."""
    library: Callable[[], tuple[str, str]] = lambda: ("", "there is no library for it")
    """The library that computes products (``Driver.library``), with its version, and why it cannot be used; one is empty."""
    driver_version: str = ""
    """What the speed of images depends on besides the GPU and the target."""

    def __post_init__(self) -> None:
        planned = self.target.grid
        if planned is None:
            raise HlojitError(
                f"the platform's target {self.target.triple!r} has no grid: it is no machine with threads"
            )
        if planned.warp != self.dialect.warp:
            raise HlojitError(
                f"plans are for warps of {planned.warp} lanes (the target's machine), and the dialect "
                f"{self.dialect.name!r} has warps of {self.dialect.warp}"
            )
