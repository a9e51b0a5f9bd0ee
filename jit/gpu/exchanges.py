"""Collectives among GPUs: every one fetches its pieces from the others' memory, on its own stream.

Host threads meet twice (``hlojit.extensions.devices.rendezvous``), and nothing waits for the devices: first they lend each other
their sources, with marks that these are filled, for the streams to wait for; then they give them back, with marks that all has
been fetched, so that no stream goes on to write over what another one still reads, or to free it, after a failure as well.  A
stream that met a fault hands it on with its marks.

With a library that moves (``Driver.communicator``), streams wait for each other in it, and host threads meet to know that all
of them are there and that all have put it on their streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from hlojit.extensions.devices.rendezvous import Loan, Participant
from hlojit.gpu.driver import Communicator, DeviceFault, Driver, DriverError, Mark, Message, Stream
from hlojit.gpu.operations import Exchange
from hlojit.ir.errors import ExecutionError
from hlojit.lowering.collective_moves import Moves, moves_of
from hlojit.lowering.program import CollectiveKind


class _Offer(NamedTuple):
    """What a participant hands the others."""

    driver: Driver
    source: int
    filled: Mark


def moves_for(operation: Exchange, process: int) -> Moves:
    """What a process fetches."""
    return moves_of(operation.kind, operation.groups, process, operation.source_bytes, operation.target_bytes)


@final
@dataclass(frozen=True)
class Exchanger:
    """One participant's part in one collective, to be put on its stream; ``zeros`` is where as many are as nobody gives."""

    operation: Exchange
    source: int
    target: int
    zeros: int
    driver: Driver
    stream: Stream
    participant: Participant

    def run(self) -> None:
        """Meet the others, and put it there."""
        operation, participant = self.operation, self.participant
        moves = moves_for(operation, participant.process)
        offer = _Offer(self.driver, self.source, self.driver.record(self.stream))
        loan = participant.lend(moves.partners, operation.what, offer)
        communicator: Communicator | None = None
        try:
            communicator = self._communicator([loan.theirs[each].driver for each in moves.partners])
            if communicator is None:
                self._fetch(moves, loan.theirs)
            else:
                self._communicate(moves, communicator)
        except BaseException as error:
            # Before the meeting: of those that have put it on their streams, too.
            _abort(communicator)
            participant.fail(error)
            raise
        finally:
            self._give_back(loan, waits=communicator is None)
        try:
            participant.check()
        except ExecutionError:
            _abort(communicator)
            raise

    def _communicator(self, group: Sequence[Driver]) -> Communicator | None:
        return self.driver.communicator(group) if len(group) > 1 else None

    def _give_back(self, loan: Loan, *, waits: bool) -> None:
        """Meet again; the stream ``waits`` until the others' have fetched, if no library sees to that."""
        for process, mark in loan.give_back(self._reached() if waits else None).items():
            if waits and mark is not None and process != self.participant.process:
                self.driver.wait_for(self.stream, mark)

    def _reached(self) -> Mark | None:
        """Where the stream has used what it was lent; None of a GPU that is lost, whose stream uses nothing any more."""
        try:
            return self.driver.record(self.stream)
        except DriverError:
            return None

    def _fetch(self, moves: Moves, offers: Mapping[int, _Offer]) -> None:
        driver, stream, own = self.driver, self.stream, self.participant.process
        for process, offer in offers.items():
            if process != own:
                driver.wait_for(stream, offer.filled)
        for piece in moves.pieces:
            if piece.giver != own:
                offer = offers[piece.giver]
                driver.copy_from(
                    offer.driver, self.target + piece.target, offer.source + piece.source, piece.nbytes, stream
                )
        self._own(moves)

    def _own(self, moves: Moves) -> None:
        """What comes from nobody else."""
        for piece in moves.pieces:
            if piece.giver == self.participant.process:
                place, there = self.target + piece.target, self.source + piece.source
                self.driver.copy(place, there, piece.nbytes, self.stream)
        for offset, nbytes in moves.zeros:
            self.driver.copy(self.target + offset, self.zeros, nbytes, self.stream)

    def _communicate(self, moves: Moves, communicator: Communicator) -> None:
        operation, number = self.operation, self.driver.number(self.stream)
        # A GPU that is lost never comes: the others' streams wait for it on the device.
        self.participant.when_failed(_GiveUp(communicator))
        if operation.kind is CollectiveKind.ALL_GATHER and operation.in_order(moves.partners):
            communicator.all_gather(self.source, self.target, operation.source_bytes, number)
        else:
            communicator.move(*self._messages(moves), number)
            self._own(moves)

    def _messages(self, moves: Moves) -> tuple[list[Message], list[Message]]:
        own, places = self.participant.process, {process: place for place, process in enumerate(moves.partners)}
        sends = [
            Message(places[process], self.source + piece.source, piece.nbytes)
            for process in moves.partners
            if process != own
            for piece in moves_for(self.operation, process).pieces
            if piece.giver == own
        ]
        receives = [
            Message(places[piece.giver], self.target + piece.target, piece.nbytes)
            for piece in moves.pieces
            if piece.giver != own
        ]
        return sends, receives


def _abort(communicator: Communicator | None) -> None:
    if communicator is not None:
        communicator.abort()


@final
@dataclass(frozen=True)
class _GiveUp:
    """Of a fault of a device, abort; after other failures everything on the streams comes to its end."""

    communicator: Communicator

    def __call__(self, error: BaseException | None) -> None:
        while error is not None and not isinstance(error, DeviceFault):
            error = error.__cause__
        if error is not None:
            self.communicator.abort()
