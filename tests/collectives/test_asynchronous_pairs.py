"""Asynchronous pairs: what is begun runs beside the program, in memory that stays, and fails with it."""

from __future__ import annotations

import _thread
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.cpu import asynchronous
from hlojit.ir.errors import ExecutionError
from hlojit.lowering.program import Begin, Wait

from .pairs import LARGE, SMALL, WIDE, all_reduce, done, infeed, main, pair, random_rows, scheduled, together

SECONDS = 10
"""After which what does not end is taken for a hang."""


@pytest.fixture(autouse=True)
def channels() -> Iterator[None]:
    yield
    for process in range(2):
        for name in ("infeed", "outfeed"):
            hlojit.channel(name, process).clear()
            hlojit.channel(name, process).handle()


OVERLAP = main(
    "\n  %t = stablehlo.create_token : !stablehlo.token"
    + infeed("before", "t")
    + pair("f", "%x", all_reduce(SMALL), SMALL, SMALL)
    + infeed("between", "tbefore")
    + done("y", "f", SMALL)
    + f'\n  %u = "stablehlo.outfeed"(%y, %tbetween) : ({SMALL}, !stablehlo.token) -> !stablehlo.token',
    SMALL,
    "%y",
    SMALL,
)


ZERO = np.zeros((), "f4")


def in_turn(*steps: Any) -> Any:
    """A handler that does one step each time it is asked."""
    left = iter(steps)

    def receives() -> Any:
        next(left)()
        return ZERO

    return receives


def in_time(event: threading.Event) -> Any:
    """A step that waits for an event."""

    def step() -> None:
        assert event.wait(SECONDS), "nobody goes on"

    return step


def nothing() -> None:
    """A step that does nothing."""


def rows_of(count: int, shape: Any = 4) -> list[list[Any]]:
    return [[np.full(shape, number + 1, "f4")] for number in range(count)]


def test_the_program_goes_on_while_its_body_waits_for_others(virtual: str) -> None:
    """Process 1 begins only when process 0 is behind its start, and process 0 goes on only when process 1 has the sum."""
    is_behind, has_sum = threading.Event(), threading.Event()
    both = lambda: (is_behind.set(), in_time(has_sum)())  # noqa: E731
    hlojit.channel("infeed", 0).handle(receives=in_turn(nothing, both))
    hlojit.channel("infeed", 1).handle(receives=in_turn(in_time(is_behind), nothing))
    for process, sends in enumerate([lambda *_: None, lambda *_: has_sum.set()]):
        hlojit.channel("outfeed", process).handle(sends=sends)
    for (result,) in together(rows_of(2), OVERLAP):
        np.testing.assert_array_equal(result, np.full(4, 3))


def test_a_process_that_fails_behind_its_start_frees_the_others_with_its_error(virtual: str) -> None:
    def fails() -> None:
        raise ValueError("the host has nothing")

    hlojit.channel("infeed", 0).handle(receives=in_turn(nothing, fails))
    hlojit.channel("infeed", 1).handle(receives=in_turn(nothing, nothing))
    for process in range(2):
        hlojit.channel("outfeed", process).handle(sends=lambda *_: None)
    executable = hlojit.compile(OVERLAP, num_replicas=2)
    results = executable.execute(rows_of(2))
    for (result,) in results:
        with pytest.raises(ExecutionError, match="the host has nothing"):
            result.wait(SECONDS)


def test_a_body_that_waits_too_long_names_who_is_missing(virtual: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_COLLECTIVE_TIMEOUT", "1")
    is_over = threading.Event()
    hlojit.channel("infeed", 0).handle(receives=in_turn(nothing, nothing))
    hlojit.channel("infeed", 1).handle(receives=in_turn(in_time(is_over), nothing))
    executable = hlojit.compile(OVERLAP, num_replicas=2)
    (first,), (second,) = executable.execute(rows_of(2))
    message = "process 0 on cpu:0 waited 1 s at all_reduce at .* for process 1 on cpu:1, which has not come"
    try:
        # All have ended only when the one that is late has.
        time = threading.Timer(2.5, is_over.set)
        time.start()
        for result in (first, second):
            with pytest.raises(ExecutionError, match=message):
                result.wait(SECONDS)
    finally:
        is_over.set()


def test_ctrl_c_frees_bodies_that_wait(virtual: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_COLLECTIVE_TIMEOUT", "1000")
    is_over = threading.Event()
    hlojit.channel("infeed", 0).handle(receives=in_turn(nothing, lambda: _thread.interrupt_main()))
    hlojit.channel("infeed", 1).handle(receives=in_turn(in_time(is_over), nothing))
    executable = hlojit.compile(OVERLAP, num_replicas=2)
    with pytest.raises(KeyboardInterrupt):
        executable(rows_of(2))
    # The other process is still on its way to its start.
    xs = random_rows(12)
    pending = hlojit.compile(MANY, num_replicas=2).execute([[x] for x in xs])
    is_over.set()
    check_many([[np.asarray(each) for each in row] for row in pending], xs)


DIFFERENT = main(
    "\n  %z = stablehlo.constant dense<0.0> : tensor<4xf32>"
    "\n  %i = stablehlo.replica_id : tensor<ui32>"
    "\n  %c = stablehlo.convert %i : (tensor<ui32>) -> tensor<i1>"
    '\n  %b = "stablehlo.if"(%c) ({\n'
    "    stablehlo.return %x : tensor<4xf32>\n  }, {"
    + pair("f", "%x", all_reduce(SMALL), SMALL, SMALL)
    + "\n    %e = stablehlo.exponential %x : tensor<4xf32>"
    + done("y", "f", SMALL)
    + "\n    %m = stablehlo.add %y, %e : tensor<4xf32>"
    "\n    stablehlo.return %m : tensor<4xf32>\n  }) : (tensor<i1>) -> tensor<4xf32>",
    SMALL,
    "%b",
    SMALL,
)


def test_a_body_whose_partner_has_ended_is_told_at_once(virtual: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_COLLECTIVE_TIMEOUT", "1000")
    with pytest.raises(
        ExecutionError, match=r"process 0 .* waits at all_reduce at .* for process 1 .* which has ended"
    ):
        together(rows_of(2), DIFFERENT)


# what is computed


def model_of_many(xs: list[Any]) -> list[Any]:
    """What ``MANY`` computes."""
    total = np.add.reduce(xs)
    gathered = np.concatenate(xs)
    return [[-(x + 1) + total, gathered, gathered[:2] * 2, total[::-1] + x] for x in xs]


MANY = main(
    "\n  %one = stablehlo.constant dense<1.0> : tensor<96x100xf32>\n  %two = stablehlo.constant dense<2.0> : tensor<2x100xf32>"
    "\n  %x1 = stablehlo.add %x, %one : tensor<96x100xf32>"
    + pair("f", "%x", all_reduce(LARGE), LARGE, LARGE)
    + pair(
        "g",
        "%x",
        '"stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}'
        f" : ({LARGE}) -> {WIDE}",
        LARGE,
        WIDE,
    )
    # On the process's own thread, among the same group.
    + f"\n  %direct = {all_reduce(LARGE).replace('%a)', '%x)')}"
    + "\n  %t = stablehlo.negate %x1 : tensor<96x100xf32>"
    + done("gathered", "g", WIDE)
    + done("total", "f", LARGE)
    + "\n  %r0 = stablehlo.add %t, %total : tensor<96x100xf32>"
    "\n  %s = stablehlo.slice %gathered [0:2, 0:100] : (tensor<192x100xf32>) -> tensor<2x100xf32>"
    "\n  %r2 = stablehlo.multiply %s, %two : tensor<2x100xf32>"
    "\n  %back = stablehlo.reverse %direct, dims = [0] : tensor<96x100xf32>"
    "\n  %r3 = stablehlo.add %back, %x : tensor<96x100xf32>",
    LARGE,
    "%r0, %gathered, %r2, %r3",
    f"{LARGE}, {WIDE}, tensor<2x100xf32>, {LARGE}",
)


def check_many(found: Any, xs: list[Any]) -> None:
    for results, expected in zip(found, model_of_many(xs), strict=True):
        for one, other in zip(results, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_several_bodies_and_the_program_s_own_collective(every: str) -> None:
    xs = random_rows()
    check_many(hlojit.compile(MANY, backend=every, num_replicas=2)([[x] for x in xs]), xs)


def test_the_record_of_several_bodies() -> None:
    program = scheduled(MANY)
    begun = [step.event for step in program.steps if isinstance(step, Begin)]
    awaited = [step.event for step in program.steps if isinstance(step, Wait)]
    assert sorted(begun) == sorted(awaited) == [0, 1]
    assert "begin event 0" in str(program)


def test_saved_programs_and_those_of_the_cache(virtual: str, tmp_path: Any) -> None:
    xs = random_rows(1)
    hlojit.compile(MANY, num_replicas=2).save(tmp_path / "many.hlojit")
    check_many(hlojit.load(tmp_path / "many.hlojit")([[x] for x in xs]), xs)


def test_calls_of_several_threads_and_many_in_flight(virtual: str) -> None:
    executable = hlojit.compile(MANY, num_replicas=2)
    rows = [random_rows(number) for number in range(6)]
    with ThreadPoolExecutor(3) as threads:
        for xs, found in zip(rows, threads.map(lambda xs: executable([[x] for x in xs]), rows)):
            check_many(found, xs)
    pending = [executable.execute([[x] for x in xs]) for xs in rows]
    for xs, results in zip(rows, pending):
        check_many([[np.asarray(each) for each in row] for row in results], xs)


def test_in_a_child_made_by_fork(virtual: str) -> None:
    executable = hlojit.compile(MANY, num_replicas=2)
    xs = random_rows(2)
    check_many(executable([[x] for x in xs]), xs)
    child = os.fork()
    if not child:
        # No pytest here.
        try:
            check_many(executable([[x] for x in xs]), xs)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


LOOPED = (
    "func.func @main(%x: tensor<96x100xf32>) -> tensor<96x100xf32> {\n"
    "  %c0 = stablehlo.constant dense<0> : tensor<i32>\n  %c1 = stablehlo.constant dense<1> : tensor<i32>\n"
    "  %c9 = stablehlo.constant dense<5> : tensor<i32>\n  %half = stablehlo.constant dense<0.25> : tensor<96x100xf32>\n"
    "  %0:2 = stablehlo.while(%i = %c0, %v = %x) : tensor<i32>, tensor<96x100xf32>\n"
    "   cond { %p = stablehlo.compare LT, %i, %c9 : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
    "          stablehlo.return %p : tensor<i1> }\n   do {\n     %j = stablehlo.add %i, %c1 : tensor<i32>"
    + pair("f", "%v", all_reduce(LARGE), LARGE, LARGE)
    + "\n     %w = stablehlo.multiply %v, %half : tensor<96x100xf32>"
    "\n     %w1 = stablehlo.tanh %w : tensor<96x100xf32>"
    "\n     %d = stablehlo.transpose %w1, dims = [1, 0] : (tensor<96x100xf32>) -> tensor<100x96xf32>"
    "\n     %k = stablehlo.dot_general %w1, %d, contracting_dims = [1] x [0]"
    " : (tensor<96x100xf32>, tensor<100x96xf32>) -> tensor<96x96xf32>"
    "\n     %l = stablehlo.dot_general %k, %v, contracting_dims = [1] x [0]"
    " : (tensor<96x96xf32>, tensor<96x100xf32>) -> tensor<96x100xf32>"
    + done("y", "f", LARGE)
    + "\n     %h = stablehlo.multiply %y, %half : tensor<96x100xf32>"
    "\n     %n = stablehlo.tanh %l : tensor<96x100xf32>"
    "\n     %m = stablehlo.add %h, %n : tensor<96x100xf32>"
    "\n     stablehlo.return %j, %m : tensor<i32>, tensor<96x100xf32> }\n"
    "  return %0#1 : tensor<96x100xf32>\n}"
)


def test_in_loops(every: str) -> None:
    xs = [x / 8 for x in random_rows(3)]
    expected = [x.astype("f8") for x in xs]
    for _ in range(5):
        total = np.add.reduce(expected)
        inner = [np.tanh(v / 4) for v in expected]
        expected = [total / 4 + np.tanh(w @ w.T @ v) for w, v in zip(inner, expected)]
    found = hlojit.compile(LOOPED, backend=every, num_replicas=2)([[x] for x in xs])
    for (result,), one in zip(found, expected):
        np.testing.assert_allclose(result, one, atol=2e-4)
    program = scheduled(LOOPED)
    assert any(isinstance(step, Begin) for step in program.walk())


def test_donated_arguments_stay_until_they_are_waited_for(virtual: str) -> None:
    donated = MANY.replace("%x: tensor<96x100xf32>)", "%x: tensor<96x100xf32> {jax.buffer_donor = true})", 1)
    xs = random_rows(4)
    executable = hlojit.compile(donated, num_replicas=2)
    for _ in range(3):
        placed = [[hlojit.put(x, f"cpu:{number}")] for number, x in enumerate(xs)]
        check_many([[np.asarray(each) for each in row] for row in executable(placed)], xs)


def test_in_branches(every: str) -> None:
    text = DIFFERENT.replace(
        "%c = stablehlo.convert %i : (tensor<ui32>) -> tensor<i1>", "%c = stablehlo.constant dense<false> : tensor<i1>"
    )
    xs = rows_of(2)
    for (result,), (x,) in zip(hlojit.compile(text, backend=every, num_replicas=2)(xs), xs):
        np.testing.assert_allclose(result, 3 + np.exp(x), rtol=1e-6)


# what is done where it stands


@pytest.mark.parametrize("between", ["", "\n  %e = stablehlo.negate %x : tensor<96x100xf32>"])
def test_a_pair_with_nothing_to_do_meanwhile_is_done_at_once(virtual: str, between: str) -> None:
    results, types = ("%y", LARGE) if not between else ("%y, %e", f"{LARGE}, {LARGE}")
    text = main(
        pair("f", "%x", all_reduce(LARGE), LARGE, LARGE) + done("y", "f", LARGE) + between, LARGE, results, types
    )
    begun = [step for step in scheduled(text).walk() if isinstance(step, (Begin, Wait))]
    # The wait goes down to where the result is read.
    assert len(begun) == (2 if between else 0)
    xs = random_rows(9)
    for results in together([[x] for x in xs], text):
        np.testing.assert_allclose(results[0], xs[0] + xs[1], rtol=1e-6)


def test_a_future_that_two_wait_for(every: str) -> None:
    text = main(
        pair("f", "%x", all_reduce(LARGE), LARGE, LARGE) + done("y", "f", LARGE) + done("z", "f", LARGE),
        LARGE,
        "%y, %z",
        f"{LARGE}, {LARGE}",
    )
    xs = random_rows(10)
    for one, other in hlojit.compile(text, backend=every, num_replicas=2)([[x] for x in xs]):
        np.testing.assert_array_equal(one, other)


def test_a_call_leaves_nothing_behind(virtual: str) -> None:
    executable = hlojit.compile(MANY, num_replicas=2)
    xs = random_rows(11)
    executable([[x] for x in xs])
    assert not asynchronous._bodies
    released = weakref.ref(executable)
    del executable
    gc.collect()
    assert released() is None
