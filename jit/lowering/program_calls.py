"""Calls from one program into another: what the caller provides for the callee.

    step = call(caller, callee, "callee_entry", [x], [y])
    caller.steps.append(step)

The callee's temporaries lie in the caller's arena and its constants become the caller's, so that one executable holds
everything that both need.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.lowering.program import Buffer, BufferKind, Call, Program, ProgramError
from hlojit.lowering.storage import Storage


def call(caller: Program, callee: Program, entry: str, arguments: Sequence[Buffer], results: Sequence[Buffer]) -> Call:
    """The step that runs ``callee``, whose entry function is called ``entry``; adds its constants to ``caller``.

    Raises ``ProgramError`` where arguments or results are not of the sizes that the callee takes and gives.
    """
    arguments, results = tuple(arguments), tuple(results)
    pairs = (("argument", arguments, callee.inputs), ("result", results, callee.outputs))
    for kind, given, expected in pairs:
        if [buffer.nbytes for buffer in given] != [buffer.nbytes for buffer in expected]:
            raise ProgramError(f"{caller.name}: {kind}s of other sizes or of another number than {callee.name} takes")
    taken = [buffer for buffer in callee.inputs if buffer.storage.donated]
    if taken or callee.aliases:
        raise ProgramError(f"{caller.name}: {callee.name} takes its arguments' memory; it must leave them as they are")
    arena = None
    if callee.arena_bytes:
        arena = Buffer(BufferKind.TEMPORARY, Storage.raw(callee.arena_bytes), len(caller.temporaries))
        caller.temporaries.append(arena)
    constants = []
    for array in callee.constants:
        constants.append(Buffer(BufferKind.CONSTANT, Storage.raw(array.nbytes), len(caller.constants)))
        caller.constants.append(array)
    return Call(entry, arguments, results, arena, tuple(constants))
