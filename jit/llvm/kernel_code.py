"""The end of every emitter: what a builder holds, as the record of one kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hlojit.llvm.builder import LlvmBuilder
from hlojit.llvm.foreign_calls import UNBOUNDED_NANOSECONDS
from hlojit.llvm.polls import add_polls
from hlojit.lowering.kernel import KernelCode, Phase


def kernel_code(
    builder: LlvmBuilder,
    phases: Iterable[Phase],
    workspace_bytes: int = 0,
    *,
    widened: bool = True,
    finished: bool = False,
    in_place: tuple[tuple[int, int], ...] = (),
    updates: bool = False,
    parts: tuple[KernelCode, ...] = (),
) -> KernelCode:
    """What a builder emitted, with the foreign functions that it calls.

    ``parts`` hold what it calls and many kernels share.
    ``widened``: its vectors are explicit; ``finished``: LLVM's passes over the text would change nothing.
    """
    phases = tuple(phases)
    add_polls(builder, phases)
    linked = tuple(builder.foreign.linked.items())
    if builder.foreign.has_loops:
        phases = tuple(replace(phase, cost=max(phase.cost, UNBOUNDED_NANOSECONDS)) for phase in phases)
    pipeline = "vectorize" if not widened else "inline" if linked else "plain" if finished else "lean"
    return KernelCode(
        builder.module_text(),
        phases,
        workspace_bytes,
        pipeline,
        linked,
        in_place,
        updates,
        builder.foreign.unkeyable,
        parts=parts,
        imports=tuple(builder.foreign.imports.items()),
    )
