"""Where the processes of one program meet: host threads that hand each other values, and fail together.

    meeting = Meeting("main", ["process 0 on cpu:0", "process 1 on cpu:1"])
    theirs = meeting.participant(0).exchange((0, 1), "all_gather at model.mlir:3", value)     # {0: value, 1: ...}

A run of a program for several devices has one ``Meeting``, and every device is given its ``Participant``
(``Device.execute_among``), on whose behalf one host thread exchanges: addresses, marks of streams, whatever the device's
collectives need to know of each other.  That thread is one of the device's own, never a worker that other work waits for.

Who waits goes on when all partners have come.  It gets an error when one of them never will: it has ended, failed, stands at
another collective, or does not come in time (``HLOJIT_COLLECTIVE_TIMEOUT``).  The first error is everybody's.

A process may have work done *beside* its own thread, on another one of its device's (``Participant.beside``).  Such work meets
that of other processes, and a process's own thread the others' own threads: it does not matter which of the two comes first.

Addresses of memory are not just exchanged, they are lent (``Participant.lend``): the memory stays until all who have its address
have given it back, whether the run fails or not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, final

from hlojit.extensions.devices.events import Event
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
    is_closed: bool = False
    """Whether all have come to the same: then all of them get the values."""
    words: dict[int, Any] = field(default_factory=dict)
    """Of those who have given back what they were lent."""
    returned: Event = field(default_factory=Event)


@final
@dataclass(eq=False, slots=True)
class _Waiter:
    """A thread that waits for others to come."""

    round: _Round
    complete: Event = field(default_factory=Event)


_OWN: Final = 0
"""The line of work that is a process's own thread."""
_BESIDE: Final = 1
"""That of the thread beside it."""


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
        self._rounds: dict[tuple[int, tuple[int, ...]], list[_Round]] = {}
        """By line of work and group."""
        self._waiting: dict[tuple[int, int], _Waiter] = {}
        """By process and line of work."""
        self._gone: set[int] = set()
        self._beside: dict[int, list[Beside]] = {}
        """What has begun beside each process and not ended."""
        self._joining: dict[int, Beside] = {}
        """For which of it a process's own thread waits."""
        self._called_off: set[int] = set()
        """Processes that no longer want what is done beside them."""
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
            waiting = list(self._waiting.values())
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

    def exchange(self, process: int, members: tuple[int, ...], what: str, value: Any, line: int = _OWN) -> _Round:
        """Wait until all ``members`` have come with the same ``what``; the round has what each of them brought."""
        waiter: _Waiter | None = None
        released: list[_Waiter] = []
        error: BaseException | None = None
        with self._lock:
            if self.error is not None:
                raise self._again()
            if line == _BESIDE and process in self._called_off:
                raise _called_off()
            mine = self._round_of(process, members, line)
            mine.what[process], mine.values[process] = what, value
            if len(mine.values) == len(members):
                error = self._close(mine, line, released)
            else:
                waiter = self._waiting[process, line] = _Waiter(mine)
                error = self._stuck()
        if error is not None:
            self.fail(error)
            raise self._again()
        for each in released:
            each.complete.complete()
        if (
            waiter is not None
            and not waiter.complete.wait(self.seconds)
            and self._fail_unless_closed(self._missing(process, mine), mine)
        ):
            raise self._again()
        return mine

    def begin_beside(self, work: Beside) -> None:
        """A process has something done beside its own thread."""
        with self._lock:
            self._beside.setdefault(work.process, []).append(work)

    def end_beside(self, work: Beside) -> None:
        """It has been done, or will not be."""
        with self._lock:
            self._beside[work.process].remove(work)
            if self._joining.get(work.process) is work:
                # Who waits for it goes on from now on, whenever the system lets him.
                del self._joining[work.process]
            stuck = self._stuck()
        if stuck:
            self.fail(stuck)

    def join(self, work: Beside) -> None:
        """A process's own thread waits for what is done beside it from now on."""
        with self._lock:
            if work not in self._beside.get(work.process, ()):
                return
            self._joining[work.process] = work
            stuck = self._stuck()
        if stuck:
            self.fail(stuck)

    def call_off(self, process: int) -> None:
        """A process has failed, and will say of what: nothing beside it waits for others from now on."""
        with self._lock:
            self._called_off.add(process)
            waiter = self._waiting.pop((process, _BESIDE), None)
            if waiter is not None:
                # Nobody is to get what it brought.
                del waiter.round.values[process], waiter.round.what[process]
        if waiter is not None:
            waiter.complete.complete(_called_off())

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

    def _round_of(self, process: int, members: tuple[int, ...], line: int) -> _Round:
        """The first round of the group in which this process has not been."""
        rounds = self._rounds.setdefault((line, members), [])
        for each in rounds:
            if process not in each.values:
                return each
        rounds.append(_Round(members))
        return rounds[-1]

    def _close(self, complete: _Round, line: int, released: list[_Waiter]) -> BaseException | None:
        """All have come: nobody waits any more, if they have come to the same."""
        if len(set(complete.what.values())) > 1:
            places = "; ".join(f"{self.who[each]} is at {what}" for each, what in sorted(complete.what.items()))
            return ExecutionError(f"{self.program}: processes are at different collectives: {places}")
        complete.is_closed = True
        self._rounds[line, complete.members].remove(complete)
        released += (self._waiting.pop((each, line)) for each in complete.members if (each, line) in self._waiting)
        return None

    def _stuck(self) -> BaseException | None:
        """The error if nobody can go on: every process waits or has ended."""
        if not self._waiting or not all(map(self._is_stuck, range(len(self.who)))):
            return None
        (process, _), first = next(iter(self._waiting.items()))
        absent = self._absent(first.round)
        return ExecutionError(f"{self.program}: {self.who[process]} waits at {first.round.what[process]} for {absent}")

    def _is_stuck(self, process: int) -> bool:
        """Whether a process waits for others or has ended, and what is done beside it waits or there is none."""
        own = process in self._gone or process in self._joining or (process, _OWN) in self._waiting
        return own and (not self._beside.get(process) or (process, _BESIDE) in self._waiting)

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
        waiting = self._waiting.get((process, _OWN)) or self._waiting.get((process, _BESIDE))
        return f"which is at {waiting.round.what[process]}" if waiting is not None else "which has not come"

    def _again(self) -> ExecutionError:
        # A new exception each time: one that is raised in several threads would collect their tracebacks.
        made = ExecutionError(str(self.error) or repr(self.error))
        made.__cause__ = self.error
        return made


def _called_off() -> ExecutionError:
    return ExecutionError("the process has failed meanwhile")


@final
class Beside:
    """Work of a process beside its own thread, from ``Participant.beside`` until ``end``.

    A process has one thread beside its own, which does such work in the order in which it began.
    """

    __slots__ = ("_meeting", "participant", "process")

    def __init__(self, meeting: Meeting, process: int):
        self._meeting = meeting
        self.process: Final = process
        self.participant: Final = Participant(meeting, process, _BESIDE)
        """The process's part, for the thread that does the work."""
        meeting.begin_beside(self)

    def end(self) -> None:
        """Say that it has been done, well or not; to be called once, by the thread that did it."""
        self._meeting.end_beside(self)

    def wait(self, done: Event) -> None:
        """Wait on the process's own thread for the event that it has been done; raises what that raises."""
        self._meeting.join(self)
        done.wait()

    def call_off(self) -> None:
        """Have it, and all else beside the process, wait for nobody any more: the process has failed."""
        self._meeting.call_off(self.process)


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

    __slots__ = ("_line", "_meeting", "error", "process")

    def __init__(self, meeting: Meeting, process: int, line: int = _OWN):
        self._meeting = meeting
        self._line = line
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
            return self._meeting.exchange(self.process, members, what, value, self._line).values

    def lend(self, members: tuple[int, ...], what: str, value: Any) -> Loan:
        """``exchange`` what others may use until they give it back: who was lent something must do so, and keeps his own."""
        if members == (self.process,):
            return Loan(self._meeting, self.process, _Round(members, values={self.process: value}))
        with self._noting():
            lent = self._meeting.exchange(self.process, members, what, value, self._line)
            return Loan(self._meeting, self.process, lent)

    def beside(self) -> Beside:
        """Begin with work beside the process's own thread, which is this one."""
        return Beside(self._meeting, self.process)

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
