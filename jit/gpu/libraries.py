"""Which of the products that a vendor's library could compute it does compute, in one program.

What a library *can* compute is said by a kernel's phases (``Phase.library``), which all programs share; what it *does*, is
chosen for a program, by shapes and types alone.
"""

from __future__ import annotations

from dataclasses import replace

from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.library_product import LibraryProduct


def with_libraries(code: KernelCode, libraries: str) -> KernelCode:
    """The kernel with the calls that a program makes: ``off`` none, ``require`` all, anything else those that are worth it."""
    if libraries == "require" or not any(phase.library for phase in code.phases):
        return code
    return replace(code, phases=tuple(_chosen(phase, libraries) for phase in code.phases))


def _chosen(phase: Phase, libraries: str) -> Phase:
    if not phase.library or (libraries != "off" and LibraryProduct.of_text(phase.library).is_worthwhile):
        return phase
    return replace(phase, library="")
