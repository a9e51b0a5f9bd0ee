"""Which of the products that a vendor's library could compute it does compute, in one program.

What a library *can* compute is said by a kernel's phases (``Phase.library``), which all programs share; what it *does*, is
chosen for a program, by shapes and types alone.  A product with what follows it is one kernel, of which a library computes a
part: where it is to do that, the kernel is another one, in which what follows is a launch of its own.
"""

from __future__ import annotations

from dataclasses import replace

from hlojit.ir.graph import Instruction
from hlojit.ir.ops.internal import is_anchored
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.library_product import LibraryProduct
from hlojit.lowering.target import Target
from hlojit.simt.kernels import library_call


def with_libraries(code: KernelCode, libraries: str) -> KernelCode:
    """The kernel with the calls that a program makes: ``off`` none, ``require`` all, anything else those that are worth it."""
    if libraries == "require" or not any(phase.library for phase in code.phases):
        return code
    return replace(code, phases=tuple(_chosen(phase, libraries) for phase in code.phases))


def is_for_library(instruction: Instruction, target: Target, libraries: str) -> bool:
    """Whether a program has a library compute the product of a group, if there is one."""
    if libraries == "off" or not is_anchored(instruction):
        return False
    call = library_call(instruction, target)
    return call is not None and (libraries == "require" or call.is_worthwhile)


def _chosen(phase: Phase, libraries: str) -> Phase:
    if not phase.library or (libraries != "off" and LibraryProduct.of_text(phase.library).is_worthwhile):
        return phase
    return replace(phase, library="")
