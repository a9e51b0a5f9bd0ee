"""Collectives of host programs: called by generated code, on the thread that runs one of the processes.

Each process fetches its own pieces from the memory of the others (``collective_moves``), while they stand still: all come
before anything is fetched, and nobody goes on, with an error neither, before all have fetched.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from hlojit.extensions.devices.rendezvous import Participant, current_participant
from hlojit.ir.errors import ExecutionError
from hlojit.ir.once import Once
from hlojit.lowering.abi import Status
from hlojit.lowering.collective_moves import Moves, moves_of
from hlojit.lowering.program import CollectiveKind

SYMBOL: Final = "hlojit_collective"
_Function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)


def collective_symbols() -> Mapping[str, int]:
    """What host programs with collectives are linked with."""
    address = ctypes.cast(_entry(), ctypes.c_void_p).value
    assert address is not None
    return {SYMBOL: address}


_entry: Final = Once(lambda: _Function(_called), lambda _: None)
"""Lives as long as the process: programs hold its address."""


def _called(description: int, length: int, source: int | None, target: int) -> int:
    participant = current_participant()
    assert participant is not None, "programs with collectives run on devices"
    try:
        _collective(participant, _read(ctypes.string_at(description, length)), source, target)
    except ExecutionError:
        return Status.PROGRAM_ERROR  # the participant knows why
    except BaseException as error:
        participant.error = ExecutionError(f"a collective failed: {error!r}")
        return Status.PROGRAM_ERROR
    return Status.OK


@lru_cache(maxsize=4096)
def _read(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    if found:
        found["kind"] = CollectiveKind[found["kind"]]
        found["groups"] = tuple(map(tuple, found["groups"]))
    return found


def _collective(participant: Participant, step: Mapping[str, Any], source: int | None, target: int) -> None:
    if not step:
        ctypes.c_uint32.from_address(target).value = participant.process
        return
    moves = moves_of(step["kind"], step["groups"], participant.process, step["source"], step["target"])
    loan = participant.lend(moves.partners, step["what"], source)
    try:
        _fetch(moves, loan.theirs, target)
    finally:
        loan.give_back()
    participant.check()


def _fetch(moves: Moves, sources: Mapping[int, int], target: int) -> None:
    for piece in moves.pieces:
        ctypes.memmove(target + piece.target, sources[piece.giver] + piece.source, piece.nbytes)
    for offset, nbytes in moves.zeros:
        ctypes.memset(target + offset, 0, nbytes)
