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
from hlojit.compiler import lower
from hlojit.cpu import asynchronous
from hlojit.cpu.backend import CpuBackend
from hlojit.extensions import registry
from hlojit.extensions.backend import CompileOptions
from hlojit.ir.errors import ExecutionError
from hlojit.ir.process_grid import ProcessGrid, state_grid
from hlojit.lowering.program import Begin, Program, Wait
from hlojit.lowering.program_check import check
from hlojit.lowering.program_interpreter import run_together

from ..lowering.test_program_record import native_launch

SECONDS = 10
"""After which what does not end is taken for a hang."""


@pytest.fixture(autouse=True)
def channels() -> Iterator[None]:
    yield
    for process in range(2):
        for name in ("infeed", "outfeed"):
            hlojit.channel(name, process).clear()
            hlojit.channel(name, process).handle()


def pair(name: str, operand: str, body: str, type: str, result: str) -> str:
    """A pair's start, whose body computes ``%r`` of ``%a``."""
    return f"""
  %{name} = "stablehlo.async_start"({operand}) ({{
    ^bb0(%a: {type}):
      %r = {body}
      stablehlo.return %r : {result}
  }}) : ({type}) -> !stablehlo.future<{result}>"""


def done(name: str, future: str, result: str) -> str:
    return f'\n  %{name} = "stablehlo.async_done"(%{future}) : (!stablehlo.future<{result}>) -> {result}'


def all_reduce(type: str, groups: str = "[[0, 1]]") -> str:
    return f""""stablehlo.all_reduce"(%a) ({{
        ^bb0(%p: tensor<f32>, %q: tensor<f32>):
          %s = stablehlo.add %p, %q : tensor<f32>
          stablehlo.return %s : tensor<f32>
      }}) {{replica_groups = dense<{groups}> : tensor<1x2xi64>}} : ({type}) -> {type}"""


def infeed(name: str, token: str) -> str:
    return (
        f'\n  %{name}, %t{name} = "stablehlo.infeed"(%{token}) : (!stablehlo.token) -> (tensor<f32>, !stablehlo.token)'
    )


def scheduled(text: str, processes: int = 2) -> Program:
    """The program record of the CPU, checked."""
    module = hlojit.parse(text)
    state_grid(module, ProcessGrid(processes, 1))
    backend = registry().backend("cpu")
    assert isinstance(backend, CpuBackend)
    program = backend.program(lower(module, backend, CompileOptions()))
    check(program)
    return program


def main(body: str, type: str, results: str, types: str) -> str:
    return f"func.func @main(%x: {type}) -> ({types}) {{{body}\n  return {results} : {types}\n}}"


def together(rows: Any, text: str) -> Any:
    return hlojit.compile(text, num_replicas=len(rows))(rows)


SMALL = "tensor<4xf32>"
LARGE = "tensor<96x100xf32>"

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


WIDE = "tensor<192x100xf32>"
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


def random_rows(seed: int = 0) -> list[Any]:
    return list(np.random.default_rng(seed).standard_normal((2, 96, 100)).astype("f4"))


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


# every op that may be a body

GROUPS = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"
BODIES = {
    "all_reduce": (all_reduce(LARGE), LARGE, lambda xs, n: xs[0] + xs[1]),
    "all_gather": (
        f'"stablehlo.all_gather"(%a) {{all_gather_dim = 0 : i64, {GROUPS}}} : ({LARGE}) -> {WIDE}',
        WIDE,
        lambda xs, n: np.concatenate(xs),
    ),
    "all_to_all": (
        '"stablehlo.all_to_all"(%a) {split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 2 : i64, '
        f"{GROUPS}}} : ({LARGE}) -> tensor<48x200xf32>",
        "tensor<48x200xf32>",
        lambda xs, n: np.concatenate([np.split(x, 2)[n] for x in xs], 1),
    ),
    "collective_permute": (
        '"stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}'
        f" : ({LARGE}) -> {LARGE}",
        LARGE,
        lambda xs, n: xs[0] * n,
    ),
    "reduce_scatter": (
        all_reduce(LARGE)
        .replace("all_reduce", "reduce_scatter")
        .replace("{replica_groups", "{scatter_dimension = 0 : i64, replica_groups")
        .replace(f"-> {LARGE}", "-> tensor<48x100xf32>"),
        "tensor<48x100xf32>",
        lambda xs, n: np.split(xs[0] + xs[1], 2)[n],
    ),
    "collective_broadcast": (
        f'"stablehlo.collective_broadcast"(%a) {{replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>}} : ({LARGE}) -> {LARGE}',
        LARGE,
        lambda xs, n: xs[1],
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_collectives(every: str, name: str) -> None:
    body, result, model = BODIES[name]
    text = main(
        pair("f", "%x", body, LARGE, result)
        + "\n  %e = stablehlo.negate %x : tensor<96x100xf32>"
        + done("y", "f", result),
        LARGE,
        "%y, %e",
        f"{result}, {LARGE}",
    )
    xs = random_rows(5)
    found = hlojit.compile(text, backend=every, num_replicas=2)([[x] for x in xs])
    for number, (one, other) in enumerate(found):
        np.testing.assert_allclose(one, model(xs, number), rtol=1e-6)
        np.testing.assert_array_equal(other, -xs[number])


BIG = "tensor<512x300xf32>"
PART = "tensor<400x300xf32>"


@pytest.mark.parametrize("processes", [1, 2])
def test_bodies_that_are_slices(every: str, processes: int) -> None:
    text = f"""
func.func @main(%x: {BIG}, %n: tensor<i32>, %u: {PART}) -> ({PART}, {PART}, {BIG}, {BIG}) {{
  %z = stablehlo.constant dense<0> : tensor<i32>
  %f = "stablehlo.async_start"(%x) ({{
    ^bb0(%a: {BIG}):
      %r = stablehlo.slice %a [3:403, 0:300] : ({BIG}) -> {PART}
      stablehlo.return %r : {PART}
  }}) : ({BIG}) -> !stablehlo.future<{PART}>
  %g = "stablehlo.async_start"(%x, %n, %z) ({{
    ^bb0(%a: {BIG}, %i: tensor<i32>, %j: tensor<i32>):
      %r = stablehlo.dynamic_slice %a, %i, %j, sizes = [400, 300] : ({BIG}, tensor<i32>, tensor<i32>) -> {PART}
      stablehlo.return %r : {PART}
  }}) : ({BIG}, tensor<i32>, tensor<i32>) -> !stablehlo.future<{PART}>
  %h = "stablehlo.async_start"(%x, %u, %n, %z) ({{
    ^bb0(%a: {BIG}, %b: {PART}, %i: tensor<i32>, %j: tensor<i32>):
      %r = stablehlo.dynamic_update_slice %a, %b, %i, %j : ({BIG}, {PART}, tensor<i32>, tensor<i32>) -> {BIG}
      stablehlo.return %r : {BIG}
  }}) : ({BIG}, {PART}, tensor<i32>, tensor<i32>) -> !stablehlo.future<{BIG}>
  %e = stablehlo.negate %x : {BIG}
  %0 = "stablehlo.async_done"(%f) : (!stablehlo.future<{PART}>) -> {PART}
  %1 = "stablehlo.async_done"(%g) : (!stablehlo.future<{PART}>) -> {PART}
  %2 = "stablehlo.async_done"(%h) : (!stablehlo.future<{BIG}>) -> {BIG}
  return %0, %1, %2, %e : {PART}, {PART}, {BIG}, {BIG}
}}"""
    random = np.random.default_rng(6)
    rows = [
        [
            random.standard_normal((512, 300)).astype("f4"),
            np.int32(7 * n),
            random.standard_normal((400, 300)).astype("f4"),
        ]
        for n in range(1, processes + 1)
    ]
    executable = hlojit.compile(text, backend=every, num_replicas=processes)
    found = executable(rows) if processes > 1 else [executable(*rows[0])]
    for (x, n, u), (one, two, three, four) in zip(rows, found):
        updated = x.copy()
        updated[n : n + 400] = u
        for result, expected in ((one, x[3:403]), (two, x[n : n + 400]), (three, updated), (four, -x)):
            np.testing.assert_array_equal(result, expected)
    begun = [step for step in scheduled(text, processes).walk() if isinstance(step, Begin)]
    assert len(begun) == (3 if processes > 1 else 0)


def test_complex_numbers(every: str) -> None:
    type = LARGE.replace("f32", "complex<f32>")
    body = BODIES["all_gather"][0].replace("xf32", "xcomplex<f32>")
    wide = WIDE.replace("f32", "complex<f32>")
    text = main(
        pair("f", "%x", body, type, wide) + f"\n  %e = stablehlo.multiply %x, %x : {type}" + done("y", "f", wide),
        type,
        "%y, %e",
        f"{wide}, {type}",
    )
    xs = [a + 1j * b for a, b in (random_rows(7), random_rows(8))]
    for (one, other), x in zip(hlojit.compile(text, backend=every, num_replicas=2)([[x] for x in xs]), xs):
        np.testing.assert_array_equal(one, np.concatenate(xs))
        np.testing.assert_allclose(other, x * x, rtol=1e-5, atol=1e-5)


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


# where values lie


def random_program(random: np.random.Generator) -> tuple[str, Any]:
    """A program of sums, products, updates, the program's own collectives and pairs; and what it computes, of all processes."""
    type = "tensor<24x10xi32>"
    lines, models, pending = [""], [lambda xs: xs], list[Any]()
    names = ["%x"]

    def add(text: str, model: Any) -> None:
        names.append(f"%v{len(names)}")
        lines.append(text.replace("RESULT", names[-1][1:]))
        models.append(model)

    for number in range(14):
        one, other = (int(each) for each in random.integers(0, len(names), 2))
        kind = random.choice(["add", "multiply", "update", "reverse", "sum", "start", "start", "done"])
        if kind in ("add", "multiply"):
            ufunc = getattr(np, kind)
            add(
                f"\n  %RESULT = stablehlo.{kind} {names[one]}, {names[other]} : {type}",
                lambda xs, a=models[one], b=models[other], u=ufunc: [u(p, q) for p, q in zip(a(xs), b(xs))],
            )
        elif kind == "reverse":
            add(
                f"\n  %RESULT = stablehlo.reverse {names[one]}, dims = [0] : {type}",
                lambda xs, a=models[one]: [p[::-1] for p in a(xs)],
            )
        elif kind == "update":
            add(
                f"\n  %c{number} = stablehlo.constant dense<0> : tensor<i32>"
                f"\n  %s{number} = stablehlo.slice {names[other]} [4:8, 0:10] : ({type}) -> tensor<4x10xi32>"
                f"\n  %RESULT = stablehlo.dynamic_update_slice {names[one]}, %s{number}, %c{number}, %c{number} :"
                f" ({type}, tensor<4x10xi32>, tensor<i32>, tensor<i32>) -> {type}",
                lambda xs, a=models[one], b=models[other]: [
                    np.concatenate([q[4:8], p[4:]]) for p, q in zip(a(xs), b(xs))
                ],
            )
        elif kind == "sum":
            add(
                f"\n  %RESULT = {all_reduce(type).replace('%a)', names[one] + ')').replace('<f32>', '<i32>')}",
                lambda xs, a=models[one]: [sum(a(xs))] * 2,
            )
        elif kind == "start":
            body = all_reduce(type).replace("<f32>", "<i32>")
            lines.append(pair(f"f{number}", names[one], body, type, type))
            pending.append((number, one))
        elif pending:
            begun, one = pending.pop(int(random.integers(0, len(pending))))
            add(done("RESULT", f"f{begun}", type), lambda xs, a=models[one]: [sum(a(xs))] * 2)
    for number, one in pending:
        add(done("RESULT", f"f{number}", type), lambda xs, a=models[one]: [sum(a(xs))] * 2)
    chosen = [len(names) - 1, *(int(each) for each in random.integers(0, len(names), 2))]
    results = ", ".join(names[each] for each in chosen)
    text = main("".join(lines), type, results, ", ".join([type] * 3))
    return text, lambda xs: list(zip(*(models[each](xs) for each in chosen)))


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(virtual: str, seed: int) -> None:
    """In the interpreter of records nothing of a body is there before it is waited for, and its operands must last."""
    random = np.random.default_rng(seed)
    text, model = random_program(random)
    xs = [random.integers(-9, 9, (24, 10)).astype("i4") for _ in range(2)]
    with np.errstate(over="ignore"):
        expected = model(xs)
    program = scheduled(text)
    interpreted = run_together(program, [[x] for x in xs], native_launch(program))
    for found in (interpreted, together([[x] for x in xs], text)):
        for row, other in zip(found, expected, strict=True):
            for one, two in zip(row, other, strict=True):
                np.testing.assert_array_equal(one, two)
