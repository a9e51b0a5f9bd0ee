"""What a collective moves: pieces of the participants' sources, each to its place in a target.

    moves = moves_of(CollectiveKind.ALL_GATHER, ((0, 2), (1, 3)), 3, source_bytes=8, target_bytes=16)
    moves.partners        # (1, 3): who has to be there
    moves.pieces          # (Piece(giver=1, source=0, target=0, nbytes=8), Piece(giver=3, source=0, target=8, nbytes=8))

Every participant fetches its own pieces: no two write the same memory, and each works for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from hlojit.lowering.program import CollectiveKind

Groups: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """``nbytes`` from an offset of the giver's source to an offset of the target."""

    giver: int
    source: int
    target: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Moves:
    """One participant's part: who takes part together with it (in order, itself included), and what it fetches.

    ``zeros`` are (offset, bytes) of the target that nobody gives.
    """

    partners: tuple[int, ...]
    pieces: tuple[Piece, ...]
    zeros: tuple[tuple[int, int], ...] = ()


@lru_cache(maxsize=1024)
def moves_of(kind: CollectiveKind, groups: Groups, participant: int, source_bytes: int, target_bytes: int) -> Moves:
    """The part of one participant; -1 in groups is nobody."""
    if kind is CollectiveKind.PERMUTE:
        return _permuted(groups, participant, target_bytes)
    group = next((group for group in groups if participant in group), ())
    group = tuple(member for member in group if member != -1)
    if not group:
        return Moves((participant,), (), ((0, target_bytes),))
    partners = tuple(sorted(group))
    if kind is CollectiveKind.BROADCAST:
        return Moves(partners, (Piece(group[0], 0, 0, target_bytes),))
    if kind is CollectiveKind.ALL_GATHER:
        nbytes, source = source_bytes, 0
    else:
        nbytes = source_bytes // max(map(len, groups))
        source = group.index(participant) * nbytes
    pieces = tuple(Piece(giver, source, position * nbytes, nbytes) for position, giver in enumerate(group))
    filled = len(group) * nbytes
    return Moves(partners, pieces, ((filled, target_bytes - filled),) if filled < target_bytes else ())


def _permuted(pairs: Groups, participant: int, nbytes: int) -> Moves:
    partners = _connected(pairs, participant)
    giver = next((source for source, target in pairs if target == participant), None)
    if giver is None:
        return Moves(partners, (), ((0, nbytes),))
    return Moves(partners, (Piece(giver, 0, 0, nbytes),))


def _connected(pairs: Sequence[Sequence[int]], participant: int) -> tuple[int, ...]:
    """Everybody whom pairs connect with a participant, over any number of steps."""
    neighbours: dict[int, list[int]] = {}
    for source, target in pairs:
        neighbours.setdefault(source, []).append(target)
        neighbours.setdefault(target, []).append(source)
    found, pending = {participant}, [participant]
    while pending:
        for each in neighbours.get(pending.pop(), ()):
            if each not in found:
                found.add(each)
                pending.append(each)
    return tuple(sorted(found))
