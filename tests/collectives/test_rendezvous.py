"""Meetings of host threads: what they exchange, and how they are freed when somebody does not come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hlojit.extensions.devices.events import Event
from hlojit.extensions.devices.rendezvous import Meeting, Participant, current_participant
from hlojit.ir.errors import ExecutionError


def together(meeting: Meeting, *work: Callable[[Participant], Any]) -> list[Any]:
    """Run every process on a thread; returns what they return, or raise."""
    found: list[Any] = [None] * len(work)

    def run(number: int) -> None:
        try:
            found[number] = work[number](meeting.participant(number))
        except ExecutionError as error:
            found[number] = error
        finally:
            meeting.leave(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(work))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
        assert not each.is_alive()
    return found


def meeting(count: int, seconds: float = 30) -> Meeting:
    return Meeting("main", [f"process {number} on test:{number}" for number in range(count)], seconds)


def test_everybody_gets_what_everybody_brought() -> None:
    def work(participant: Participant) -> list[dict[int, Any]]:
        return [dict(participant.exchange((0, 1, 2), "here", (round_, participant.process))) for round_ in range(50)]

    found = together(meeting(3), work, work, work)
    assert found == [[{n: (round_, n) for n in range(3)} for round_ in range(50)]] * 3


def test_groups_meet_on_their_own() -> None:
    def work(participant: Participant) -> list[Any]:
        own = (0, 2) if participant.process in (0, 2) else (1, 3)
        return [
            sorted(participant.exchange(own, "group", None)),
            sorted(participant.exchange((0, 1, 2, 3), "all", None)),
        ]

    assert together(meeting(4), work, work, work, work) == [
        [[0, 2], [0, 1, 2, 3]],
        [[1, 3], [0, 1, 2, 3]],
        [[0, 2], [0, 1, 2, 3]],
        [[1, 3], [0, 1, 2, 3]],
    ]


def test_one_alone_waits_for_nobody() -> None:
    assert meeting(2).participant(1).exchange((1,), "alone", 5) == {1: 5}


def test_different_places_are_an_error_for_all() -> None:
    found = together(
        meeting(3),
        lambda p: p.exchange((0, 1), "all_gather at a.mlir:3", None),
        lambda p: p.exchange((0, 1), "all_reduce at a.mlir:7", None),
        lambda p: p.exchange((0, 1, 2), "the end", None),
    )
    text = (
        "main: processes are at different collectives: process 0 on test:0 is at all_gather at a.mlir:3; "
        "process 1 on test:1 is at all_reduce at a.mlir:7"
    )
    assert {str(each) for each in found[:2]} == {text}
    assert isinstance(found[2], ExecutionError)


def test_who_has_ended_is_not_waited_for() -> None:
    found = together(meeting(2), lambda p: p.exchange((0, 1), "broadcast", None), lambda p: "done")
    assert str(found[0]) == "main: process 0 on test:0 waits at broadcast for process 1 on test:1, which has ended"
    assert found[1] == "done"


def test_a_circle_of_waits_is_found_at_once() -> None:
    found = together(
        meeting(3),
        lambda p: p.exchange((0, 1), "one", None),
        lambda p: p.exchange((1, 2), "two", None),
        lambda p: p.exchange((0, 2), "three", None),
    )
    assert all("waits at" in str(each) and ", which is at" in str(each) for each in found)
    assert len({str(each) for each in found}) == 1


def test_who_does_not_come_in_time_is_named() -> None:
    gate = threading.Event()
    found = together(
        meeting(3, 0.05),
        lambda p: p.exchange((0, 1, 2), "all_to_all at a.mlir:9", None),
        lambda p: gate.wait(0.3),
        lambda p: p.exchange((0, 1, 2), "all_to_all at a.mlir:9", None),
    )
    assert str(found[0]) == str(found[2])
    assert "waited 0.05 s at all_to_all at a.mlir:9 for process 1 on test:1, which has not come" in str(found[0])
    assert "HLOJIT_COLLECTIVE_TIMEOUT" in str(found[0])


def test_a_failure_frees_those_who_wait_and_those_who_come() -> None:
    made = meeting(3)

    def failing(participant: Participant) -> None:
        made.fail(ExecutionError("main on test:1: an index is out of range"))

    found = together(
        made,
        lambda p: p.exchange((0, 1, 2), "here", None),
        failing,
        lambda p: p.exchange((0, 1, 2), "here", None),
    )
    assert [str(found[0]), str(found[2])] == ["main on test:1: an index is out of range"] * 2
    with pytest.raises(ExecutionError, match="an index is out of range"):
        made.participant(1).exchange((0, 1, 2), "later", None)


def test_who_fails_waits_until_others_have_given_back_what_it_lent() -> None:
    made, order = meeting(3), list[str]()
    lent, failed = threading.Event(), threading.Event()

    def lender(participant: Participant) -> None:
        loan = participant.lend((0, 1), "here", "memory")
        lent.set()
        assert failed.wait(30)
        try:
            participant.check()
        finally:
            loan.give_back("of 0")
            order.append("0 goes on")

    def user(participant: Participant) -> Any:
        loan = participant.lend((0, 1), "here", None)
        assert failed.wait(30) and loan.theirs[0] == "memory"
        # As long as one that does not wait for its partner would take to go on.
        threading.Event().wait(0.1)
        order.append("1 used it")
        words = loan.give_back("of 1")
        participant.check()
        return words

    def failing(participant: Participant) -> None:
        assert lent.wait(30)
        made.fail(ExecutionError("lost"))
        failed.set()

    found = together(made, lender, user, failing)
    assert [str(each) for each in found[:2]] == ["lost", "lost"]
    assert order == ["1 used it", "0 goes on"]


def test_what_is_given_back_comes_with_a_word_of_everybody() -> None:
    def work(participant: Participant) -> Any:
        loan = participant.lend((0, 1), "here", participant.process)
        return dict(loan.theirs), dict(loan.give_back(10 * participant.process))

    assert together(meeting(2), work, work) == [({0: 0, 1: 1}, {0: 0, 1: 10})] * 2
    alone = meeting(2).participant(1).lend((1,), "alone", 5)
    assert (alone.theirs, alone.give_back(7)) == ({1: 5}, {1: 7})


def test_who_is_late_while_the_last_one_comes_is_lent_it_all_the_same() -> None:
    """The time of one is up when the last one has come: either both go on, or neither does."""
    for _ in range(50):
        work = (
            (lambda p: p.lend((0, 1), "here", None).give_back(1)),
            lambda p: p.lend((0, 1), "here", None).give_back(2),
        )
        first, second = together(meeting(2, 0.0005), *work)
        assert (first == second == {0: 1, 1: 2}) or (str(first) == str(second) and "waited" in str(first))


def test_listeners_hear_of_a_failure_once() -> None:
    made, heard = meeting(2), list[str]()
    made.participant(0).when_failed(lambda error: heard.append(f"first: {error}"))
    made.fail(ExecutionError("lost"))
    made.fail(ExecutionError("another one"))
    made.participant(1).when_failed(lambda error: heard.append(f"second: {error}"))
    assert heard == ["first: lost", "second: lost"]


def test_a_thread_knows_which_process_it_runs() -> None:
    participant = meeting(2).participant(1)
    assert current_participant() is None
    with participant.here():
        assert current_participant() is participant
        with meeting(1).participant(0).here():
            assert current_participant() is not participant
        assert current_participant() is participant
    assert current_participant() is None and participant.processes == 2


def test_the_switch_says_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Meeting("main", ["one"]).seconds == 300
    monkeypatch.setenv("HLOJIT_COLLECTIVE_TIMEOUT", "7")
    assert Meeting("main", ["one"]).seconds == 7


# beside a process's own thread


def beside(participant: Participant, members: tuple[int, ...], what: str, value: Any) -> tuple[Any, Event, list[Any]]:
    """Exchange on a thread of its own."""
    work, done, found = participant.beside(), Event(), list[Any]()

    def run() -> None:
        try:
            found.append(dict(work.participant.exchange(members, what, value)))
        except ExecutionError as error:
            found.append(error)
        finally:
            work.end()
            done.complete()

    threading.Thread(target=run).start()
    return work, done, found


def test_what_is_beside_meets_what_is_beside() -> None:
    """In whatever order the two threads of a process come."""

    def first(participant: Participant) -> Any:
        work, done, found = beside(participant, (0, 1), "beside", "a")
        own = dict(participant.exchange((0, 1), "own", 0))
        work.wait(done)
        return own, found

    def second(participant: Participant) -> Any:
        own = dict(participant.exchange((0, 1), "own", 1))
        work, done, found = beside(participant, (0, 1), "beside", "b")
        work.wait(done)
        return own, found

    expected = ({0: 0, 1: 1}, [{0: "a", 1: "b"}])
    assert together(meeting(2), first, second) == [expected, expected]


def test_who_waits_for_what_is_beside_it_is_stuck_with_it() -> None:
    def first(participant: Participant) -> Any:
        work, done, found = beside(participant, (0, 1), "beside", None)
        work.wait(done)
        return found

    def second(participant: Participant) -> Any:
        return participant.exchange((0, 1), "own", None)

    (found,), error = together(meeting(2), first, second)
    assert "waits at beside for process 1 on test:1, which is at own" in str(found) or "waits at own" in str(found)
    assert str(error) == str(found)


def test_who_still_works_beside_is_not_stuck() -> None:
    def first(participant: Participant) -> Any:
        work, done = participant.beside(), Event()

        def run() -> None:
            threading.Event().wait(0.2)
            work.participant.exchange((0, 1), "beside", None)
            work.end()
            done.complete()

        threading.Thread(target=run).start()
        work.wait(done)
        return "done"

    def second(participant: Participant) -> Any:
        work, done, found = beside(participant, (0, 1), "beside", None)
        work.wait(done)
        return found

    assert together(meeting(2), first, second) == ["done", [{0: None, 1: None}]]


def test_what_is_called_off_waits_for_nobody_and_the_first_error_stays() -> None:
    made = meeting(2)

    def first(participant: Participant) -> Any:
        work, done, found = beside(participant, (0, 1), "beside", "memory")
        threading.Event().wait(0.2)
        work.call_off()
        assert done.wait(30)
        made.fail(ExecutionError("main on test:0: the reason"))
        return found

    def second(participant: Participant) -> Any:
        return participant.exchange((0, 1), "own", None)

    (found,), error = together(made, first, second)
    assert str(found) == "the process has failed meanwhile"
    assert str(error) == "main on test:0: the reason"
