"""Last step of scheduling: numbers, lives and places of temporaries.

A temporary that no step touches disappears; the others get their first and last position (``liveness``) and a place in
the arena of their memory space, where dead ones give their memory to later ones (``arena``).
"""

from __future__ import annotations

from hlojit.lowering.arena import ALIGNMENT, assign_offsets
from hlojit.lowering.liveness import Liveness
from hlojit.lowering.program import Buffer, BufferKind, Program


def assign_buffers(program: Program, alignment: int = ALIGNMENT) -> None:
    """Fill in ``program.temporaries`` and ``program.arenas`` from the steps."""
    temporaries: list[Buffer] = []
    for buffer, life in Liveness(program).lives.items():
        if buffer.kind is BufferKind.TEMPORARY:
            buffer.index = len(temporaries)
            buffer.start, buffer.end = life.start, life.end
            temporaries.append(buffer)
    program.temporaries = temporaries
    for space in dict.fromkeys(buffer.space for buffer in temporaries):
        program.arenas[space] = assign_offsets([buffer for buffer in temporaries if buffer.space == space], alignment)
