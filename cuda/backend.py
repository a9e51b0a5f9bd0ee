"""The NVIDIA back end: its GPUs, or the simulator in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, final

from hlojit.extensions.kernels.forms import CudaKernel
from hlojit.gpu.backend import GpuBackend
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Instruction
from hlojit.ir.switches import CUDA, CUDA_ASSEMBLER, bytes_of
from hlojit.lowering.structure import isolated

if TYPE_CHECKING:
    from hlojit.gpu.platforms import Platform

MAXIMUM_DEVICES: Final = 64
SIMULATOR: Final = "simulator"


@final
class CudaBackend(GpuBackend):
    """One machine's NVIDIA GPUs."""

    name = "cuda"
    machine = "GPU"
    kernel_forms = (CudaKernel,)

    def unavailable(self) -> str | None:
        """Why there is no GPU to run on; the simulator is always there."""
        if CUDA.text():
            return None
        from hlojit.cuda.nvidia_platform import reason_against

        reason = reason_against()
        return f"{reason}; {CUDA.name}={SIMULATOR} runs programs on the host's processor instead" if reason else None

    def platform(self) -> Platform:
        """What ``HLOJIT_CUDA`` says."""
        return _platform(CUDA.text(), CUDA_ASSEMBLER.text())

    def registers(self, instruction: Instruction) -> Mapping[str, int]:
        """As NVIDIA's assembler says, where it is installed; for the simulator those of the GPU that it stands for."""
        from hlojit.cuda.assemblers import cubin
        from hlojit.cuda.assemblers.assembler import entry_name
        from hlojit.cuda.assemblers.choice import chosen_assembler
        from hlojit.cuda.nvptx import SM_90, NvptxDialect
        from hlojit.simt.kernels import emit_kernel

        if cubin.unavailable():
            return {}
        target = SM_90 if CUDA.text() else self.platform().target
        symbol = self.kernel_source().kernel(instruction).symbol
        code = emit_kernel(isolated(instruction), target, NvptxDialect(), symbol)
        usages = cubin.cubin_of(chosen_assembler().ptx(code, target), target).usages
        found = {phase.symbol: usages.get(entry_name(phase.symbol)) for phase in code.phases}
        return {name: usage.registers for name, usage in found.items() if usage is not None}


# The second argument: who assembles is decided when the platform is made.
@cache
def _platform(text: str, assembler: str) -> Platform:
    if text:
        return _simulated(text)
    from hlojit.cuda.nvidia_platform import nvidia_platform

    return nvidia_platform()


def _simulated(text: str) -> Platform:
    kind, *words = text.split()
    options: dict[str, int] = {}
    for word in words:
        name, _, value = word.partition("=")
        read = _OPTIONS.get(name)
        if read is None:
            raise HlojitError(f"{CUDA.name}={text!r}: unknown option {word!r}; known: {', '.join(_OPTIONS)}")
        options[name] = read(value)
    if kind != SIMULATOR:
        raise HlojitError(f"{CUDA.name}={text!r} names nothing; there is {SIMULATOR!r}, and nothing for the GPUs")
    from hlojit.cuda.nvptx import SM_90
    from hlojit.gpu.simulated_platform import simulated_platform

    assert SM_90.grid is not None
    return simulated_platform(SM_90.grid, "simulated H200", **options)


def _devices(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAXIMUM_DEVICES:
        raise HlojitError(f"{CUDA.name}: devices={text!r} is not a number from 1 to {MAXIMUM_DEVICES}")
    return int(text)


def _memory(text: str) -> int:
    return bytes_of(f"{CUDA.name}: memory", text)


_OPTIONS: Final[Mapping[str, Callable[[str], int]]] = {"devices": _devices, "memory": _memory}
