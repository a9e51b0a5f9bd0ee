"""Where the processes of one program meet: host threads that hand each other values, and fail together.

    meeting = Meeting("main", ["process 0 on cpu:0", "process 1 on cpu:1"])
    theirs = meeting.participant(0).exchange((0, 1), "all_gather at model.mlir:3", value)     # {0: value, 1: ...}

A run of a program for several devices has one ``Meeting``, and every device is given its ``Participant``
(``Device.execute_among``), on whose behalf one host thread exchanges: addresses, marks of streams, whatever the device's
collectives need to know of each other.  That thread is one of the device's own, never a worker that other work waits for.

Who waits goes on when all partners have come.  It gets an error when one of them never will: it has ended, failed, stands at
another collective, or does not come in time (``HLOJIT_COLLECTIVE_TIMEOUT``).  The first error is everybody's.

Addresses of memory are not just exchanged, they are lent (``Participant.lend``): the memory stays until all who have its address
have given it back, whether the run fails or not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, final

from hlojit.extensions.events import Event
from hlojit.ir.errors import ExecutionError
from hlojit.ir.switches import COLLECTIVE_TIMEOUT

DEFAULT_SECONDS: Final = 300
LONGEST_SECONDS: Final = 1_000_000

_local = threading.local()


@final
@dataclass(eq=False, slots=True)
class _Round:
    """One exchange of one group: who has come, with what."""

    members: tuple[int, ...]
    what: dict[int, str] = field(default_factory=dict)
    values: dict[int, Any] = field(default_factory=dict)
    complete: Event = field(default_factory=Event)
    is_closed: bool = False
    """Whether all have come to the same: then all of them get the values."""
    words: dict[int, Any] = field(default_factory=dict)
    """Of those who have given back what they were lent."""
    returned: Event = field(default_factory=Event)


@final
class Meeting:
    """The exchanges of one run; see the module's docstring."""

    def __init__(self, program: str, who: Sequence[str], seconds: float | None = None):
        """``who`` names the processes in messages; ``seconds`` is how long one waits, by default as the switch says."""
        self.program: Final = program
        self.who: Final = tuple(who)
        self.seconds: Final = timeout_seconds() if seconds is None else seconds
        self.error: BaseException | None = None
        # Reentrant: the collector runs destructors within any section.
        self._lock: Final = threading.RLock()
        self._rounds: dict[tuple[int, ...], list[_Round]] = {}
        self._waiting: dict[int, _Round] = {}
        self._gone: set[int] = set()
        self._listeners: dict[Callable[[BaseException], object], None] = {}

    def participant(self, process: int) -> Participant:
        """The part of one process."""
        return Participant(self, process)

    def fail(self, error: BaseException) -> None:
        """Free everybody who waits for others to come, and everybody who comes, with an error; the first one counts."""
        self._fail_unless_closed(error, None)

    def _fail_unless_closed(self, error: BaseException, late: _Round | None) -> bool:
        with self._lock:
            if late is not None and late.is_closed:
                return False
            if self.error is None:
                self.error = error
            waiting = list(dict.fromkeys(self._waiting.values()))
            self._waiting.clear()
            self._rounds.clear()
            listeners, self._listeners = self._listeners, {}
        for listener in listeners:
            listener(self.error)
        for each in waiting:
            each.complete.complete(self.error)
        return True

    def when_failed(self, listener: Callable[[BaseException], object]) -> None:
        """Have ``listener(error)`` called if the run fails: at once if it has, or by whoever says so; equal ones once."""
        with self._lock:
            error = self.error
            if error is None:
                self._listeners[listener] = None
        if error is not None:
            listener(error)

    def leave(self, process: int) -> None:
        """A process has ended: who waits for it would wait for ever."""
        with self._lock:
            self._gone.add(process)
            stuck = self._stuck()
        if stuck:
            self.fail(stuck)

    def check(self) -> None:
        """Raise what the run failed of, if it has."""
        if self.error is not None:
            raise self._again()

    def exchange(self, process: int, members: tuple[int, ...], what: str, value: Any) -> _Round:
        """Wait until all ``members`` have come with the same ``what``; the round has what each of them brought."""
        with self._lock:
            if self.error is not None:
                raise self._again()
            mine = self._round_of(process, members)
            mine.what[process], mine.values[process] = what, value
            is_last = len(mine.values) == len(members)
            error: BaseException | None = None
            if is_last:
                error = self._close(mine)
            else:
                self._waiting[process] = mine
                error = self._stuck()
        if error is not None:
            self.fail(error)
            raise self._again()
        if is_last:
            mine.complete.complete()
        elif not mine.complete.wait(self.seconds) and self._fail_unless_closed(self._missing(process, mine), mine):
            raise self._again()
        return mine

    def give_back(self, process: int, lent: _Round, word: Any) -> None:
        """Say that a process uses nothing any more of what it was lent, and wait until no other one does."""
        with self._lock:
            lent.words[process] = word
            is_last = len(lent.words) == len(lent.members)
        if is_last:
            lent.returned.complete()
        else:
            # Nobody who uses memory waits for others meanwhile: this ends whatever becomes of the run.
            lent.returned.wait()

    def _round_of(self, process: int, members: tuple[int, ...]) -> _Round:
        """The first round of the group in which this process has not been."""
        rounds = self._rounds.setdefault(members, [])
        for each in rounds:
            if process not in each.values:
                return each
        rounds.append(_Round(members))
        return rounds[-1]

    def _close(self, complete: _Round) -> BaseException | None:
        """All have come: nobody waits any more, if they have come to the same."""
        if len(set(complete.what.values())) > 1:
            places = "; ".join(f"{self.who[each]} is at {what}" for each, what in sorted(complete.what.items()))
            return ExecutionError(f"{self.program}: processes are at different collectives: {places}")
        complete.is_closed = True
        self._rounds[complete.members].remove(complete)
        for each in complete.members:
            self._waiting.pop(each, None)
        return None

    def _stuck(self) -> BaseException | None:
        """The error if nobody can go on: every process waits or has ended."""
        if not self._waiting or len(self._gone | self._waiting.keys()) < len(self.who):
            return None
        process, first = next(iter(self._waiting.items()))
        return ExecutionError(
            f"{self.program}: {self.who[process]} waits at {first.what[process]} for {self._absent(first)}"
        )

    def _missing(self, process: int, late: _Round) -> BaseException:
        with self._lock:
            absent = self._absent(late)
        return ExecutionError(
            f"{self.program}: {self.who[process]} waited {self.seconds:g} s at {late.what[process]} for {absent} "
            "(HLOJIT_COLLECTIVE_TIMEOUT says how long)"
        )

    def _absent(self, incomplete: _Round) -> str:
        return ", ".join(
            f"{self.who[each]}, {self._whereabouts(each)}"
            for each in incomplete.members
            if each not in incomplete.values
        )

    def _whereabouts(self, process: int) -> str:
        if process in self._gone:
            return "which has ended"
        waiting = self._waiting.get(process)
        return f"which is at {waiting.what[process]}" if waiting is not None else "which has not come"

    def _again(self) -> ExecutionError:
        # A new exception each time: one that is raised in several threads would collect their tracebacks.
        made = ExecutionError(str(self.error) or repr(self.error))
        made.__cause__ = self.error
        return made


@final
class Loan:
    """What the members of a group have lent each other (``Participant.lend``), until all of them have given it back."""

    __slots__ = ("_meeting", "_process", "_round")

    def __init__(self, meeting: Meeting, process: int, round: _Round):
        self._meeting = meeting
        self._process = process
        self._round = round

    @property
    def theirs(self) -> Mapping[int, Any]:
        """What each member lends."""
        return self._round.values

    def give_back(self, word: Any = None) -> Mapping[int, Any]:
        """Use nothing of it from now on, and wait until nobody does; returns what each member had to say.

        To be called once, after errors as well, and without a wait for another member before it.  It raises nothing if the
        run has failed: the words are needed then, too (``Participant.check``).
        """
        self._meeting.give_back(self._process, self._round, word)
        return self._round.words


@final
class Participant:
    """One process's part in a run."""

    __slots__ = ("_meeting", "error", "process")

    def __init__(self, meeting: Meeting, process: int):
        self._meeting = meeting
        self.process: Final = process
        self.error: ExecutionError | None = None
        """What ended an exchange, for those whose code cannot carry exceptions."""

    @property
    def processes(self) -> int:
        """How many there are."""
        return len(self._meeting.who)

    def when_failed(self, listener: Callable[[BaseException], object]) -> None:
        """Have ``listener(error)`` called, from any thread, if the run fails before it has ended; equal ones are called once."""
        self._meeting.when_failed(listener)

    def exchange(self, members: tuple[int, ...], what: str, value: Any) -> Mapping[int, Any]:
        """Wait until all ``members``, given in ascending order and this one among them, have come to ``what``.

        Returns what each of them brought.  Raises ``ExecutionError`` when that will not be; see the module's docstring.
        """
        if members == (self.process,):
            return {self.process: value}
        with self._noting():
            return self._meeting.exchange(self.process, members, what, value).values

    def lend(self, members: tuple[int, ...], what: str, value: Any) -> Loan:
        """``exchange`` what others may use until they give it back: who was lent something must do so, and keeps his own."""
        if members == (self.process,):
            return Loan(self._meeting, self.process, _Round(members, values={self.process: value}))
        with self._noting():
            return Loan(self._meeting, self.process, self._meeting.exchange(self.process, members, what, value))

    def fail(self, error: BaseException) -> None:
        """The run fails of this; for a process that has been lent something, before it gives that back: the others look then."""
        self._meeting.fail(error)

    def check(self) -> None:
        """Raise ``ExecutionError`` if the run has failed."""
        with self._noting():
            self._meeting.check()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except ExecutionError as error:
            self.error = error
            raise

    @contextmanager
    def here(self) -> Iterator[None]:
        """The block's thread runs this process: ``current_participant`` finds it there."""
        before = current_participant()
        _local.participant = self
        try:
            yield
        finally:
            _local.participant = before


def current_participant() -> Participant | None:
    """The process that this thread runs (``Participant.here``), if it runs one."""
    found: Participant | None = getattr(_local, "participant", None)
    return found


def timeout_seconds() -> int:
    """How long a process waits for others, as the switch says."""
    return COLLECTIVE_TIMEOUT.count(DEFAULT_SECONDS, most=LONGEST_SECONDS)
