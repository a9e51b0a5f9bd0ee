"""Collectives among GPUs: every one fetches its pieces from the others' memory, on its own stream.

Host threads meet twice (``hlojit.extensions.rendezvous``), and nothing waits for the devices: first they hand each other the
addresses of sources with marks that these are filled, for the streams to wait for; then marks that all has been fetched, so that
no stream goes on to write over what another one still reads.  A stream that met a fault hands it on with its marks.
"""

from __future__ import annotations

from typing import NamedTuple

from hlojit.extensions.rendezvous import Participant
from hlojit.gpu.driver import Driver, Mark, Stream
from hlojit.gpu.operations import Exchange
from hlojit.lowering.collective_moves import Moves, moves_of


class _Offer(NamedTuple):
    """What a participant hands the others."""

    driver: Driver
    source: int
    filled: Mark


def moves_for(operation: Exchange, process: int) -> Moves:
    """What a process fetches."""
    return moves_of(operation.kind, operation.groups, process, operation.source_bytes, operation.target_bytes)


def exchange(
    operation: Exchange, source: int, target: int, zeros: int, driver: Driver, stream: Stream, participant: Participant
) -> None:
    """Put one participant's part on its stream; ``zeros`` is the address of as many zeros as nobody gives."""
    moves = moves_for(operation, participant.process)
    own = participant.process
    offers = participant.exchange(moves.partners, operation.what, _Offer(driver, source, driver.record(stream)))
    for process, offer in offers.items():
        if process != own:
            driver.wait_for(stream, offer.filled)
    for piece in moves.pieces:
        offer = offers[piece.giver]
        place, there = target + piece.target, offer.source + piece.source
        if piece.giver == own:
            driver.copy(place, there, piece.nbytes, stream)
        else:
            driver.copy_from(offer.driver, place, there, piece.nbytes, stream)
    for offset, nbytes in moves.zeros:
        driver.copy(target + offset, zeros, nbytes, stream)
    fetched = participant.exchange(moves.partners, f"the end of {operation.what}", driver.record(stream))
    for process, mark in fetched.items():
        if process != own:
            driver.wait_for(stream, mark)
