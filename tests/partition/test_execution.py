"""Programs over several devices run like any other."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import YES, Backend, Capability, no
from hlojit.ir import Instruction, element_type

from .test_placement import SORTED, X, Y, refusing
from .vendor import OwnMemoryBackend, everything

Register = Callable[..., None]


@pytest.fixture
def nova(registered: Register) -> OwnMemoryBackend:
    """Takes everything but sines; ``last`` everything, at a high cost."""
    made = OwnMemoryBackend("nova", refusing("stablehlo.sine", "stablehlo.sort"))
    registered(made, OwnMemoryBackend("last", everything(1e6)))
    return made


NAMES = ["nova", "last"]


def expected(text: str, *arguments: Any) -> Any:
    return hlojit.compile(text, backend="reference")(*arguments)


# ------------------------------------------------------------------------------------------------ side by side


def test_independent_parts_run_side_by_side(registered: Register) -> None:
    """Neither device's program ends before the other one's has begun."""
    meeting = threading.Barrier(2)
    one = OwnMemoryBackend("one", refusing("stablehlo.sine"))
    other = OwnMemoryBackend("other", refusing("stablehlo.cosine"))
    last = OwnMemoryBackend("last", everything(1e6))
    for each in (one, other):
        each.devices()[0].before = lambda program: meeting.wait(20) and None
    registered(one, other, last)
    text = """
    func.func @main(%x: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
      %0 = stablehlo.sine %x : tensor<64xf32>
      %1 = stablehlo.cosine %x : tensor<64xf32>
      return %0, %1 : tensor<64xf32>, tensor<64xf32>
    }
    """
    executable = hlojit.compile(text, backend=["one", "other", "last"])
    for found, right in zip(executable(X), expected(text, X)):
        np.testing.assert_array_equal(found, right)


def test_instances_run_side_by_side(registered: Register) -> None:
    meeting = threading.Barrier(2)
    nova = OwnMemoryBackend("nova", lambda instruction: Capability(YES.support, cost=1e6), devices=2)
    for device in nova.devices():
        device.before = lambda program: meeting.wait(20) and None
    registered(nova)
    text = """
    func.func @main(%x: tensor<64xf32>, %y: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
      %0 = stablehlo.sine %x : tensor<64xf32>
      %1 = stablehlo.cosine %y : tensor<64xf32>
      return %0, %1 : tensor<64xf32>, tensor<64xf32>
    }
    """
    executable = hlojit.compile(text, backend=["nova:0", "nova:1"])
    for found, right in zip(executable(X, Y), expected(text, X, Y)):
        np.testing.assert_array_equal(found, right)


def test_execute_returns_before_anything_has_run(nova: OwnMemoryBackend) -> None:
    gate = threading.Event()
    nova.devices()[0].before = lambda program: gate.wait(20) and None
    executable = hlojit.compile(SORTED, backend=NAMES)
    x, y = X.copy(), Y.copy()
    pending = executable.execute(x, y)
    following = executable.execute(pending, y)
    x[:] = y[:] = 7  # they have been read
    assert not pending.is_ready and str(pending.device) == "nova:0"
    gate.set()
    once = expected(SORTED, X, Y)
    np.testing.assert_array_equal(hlojit.get(pending), once)
    np.testing.assert_array_equal(hlojit.get(following), expected(SORTED, once, Y))


def test_a_pending_result_goes_into_other_programs(nova: OwnMemoryBackend) -> None:
    executable = hlojit.compile(SORTED, backend=NAMES)
    doubled = "func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> { %0 = stablehlo.add %x, %x : tensor<64xf32>\nreturn %0 : tensor<64xf32> }"
    double = hlojit.compile(doubled, backend="nova")
    found = double.execute(executable.execute(X, Y))
    np.testing.assert_array_equal(hlojit.get(found), 2 * expected(SORTED, X, Y))


def test_several_threads(nova: OwnMemoryBackend) -> None:
    executable = hlojit.compile(SORTED, backend=NAMES)
    inputs = [(X + number, Y) for number in range(16)]
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda pair: executable(*pair), inputs))
    for found, pair in zip(results, inputs):
        np.testing.assert_array_equal(found, expected(SORTED, *pair))


def test_only_so_many_runs_are_pending(nova: OwnMemoryBackend) -> None:
    executable = hlojit.compile(SORTED, backend=NAMES)
    last = [executable.execute(X, Y) for _ in range(200)][-1]
    np.testing.assert_array_equal(hlojit.get(last), expected(SORTED, X, Y))


def test_segments_are_found_in_the_disk_cache(nova: OwnMemoryBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of back ends that have one."""
    from hlojit.cpu.backend import CpuBackend

    nova.answers = refusing("stablehlo.sort")
    text = SORTED.replace("64x", "61x")
    hlojit.compile(text, backend=["nova", "cpu"])
    monkeypatch.setattr(CpuBackend, "compile", lambda *given: pytest.fail("compiled again"))
    again = hlojit.compile(text, backend=["nova", "cpu"])
    np.testing.assert_allclose(again(X[:61], Y[:61]), expected(text, X[:61], Y[:61]), rtol=1e-5)


def test_gpus_and_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the simulator."""
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    executable = hlojit.compile(SORTED, backend=["cuda", "cpu"])
    np.testing.assert_allclose(executable(X, Y), expected(SORTED, X, Y), rtol=1e-5)
    assert {str(device) for device in executable.devices} == {"cuda:0", "cpu:0"}


# -------------------------------------------------------------------------------------------- loops and branches

LOOP = """
func.func @main(%n: tensor<i32>, %x: tensor<16xf32>, %w: tensor<16xf32>) -> (tensor<i32>, tensor<16xf32>, tensor<16xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %a = %x, %b = %x) : tensor<i32>, tensor<16xf32>, tensor<16xf32>
   cond {
    %t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %s = stablehlo.OP %a : tensor<16xf32>
    %c = stablehlo.multiply %s, %w : tensor<16xf32>
    %two = stablehlo.constant dense<2> : tensor<i32>
    %m = stablehlo.remainder %i, %two : tensor<i32>
    %z = stablehlo.constant dense<0> : tensor<i32>
    %p = stablehlo.compare EQ, %m, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %d = "stablehlo.if"(%p) ({
      %e = stablehlo.OP %b : tensor<16xf32>
      stablehlo.return %e : tensor<16xf32>
    }, {
      %e = stablehlo.add %b, %w : tensor<16xf32>
      stablehlo.return %e : tensor<16xf32>
    }) : (tensor<i1>) -> tensor<16xf32>
    stablehlo.return %j, %c, %d : tensor<i32>, tensor<16xf32>, tensor<16xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<i32>, tensor<16xf32>, tensor<16xf32>
}
"""
W = np.linspace(0.5, 1.5, 16, dtype="f4")


def test_a_loop_lies_on_a_device_whole(nova: OwnMemoryBackend) -> None:
    text = LOOP.replace("OP", "cosine")
    executable = hlojit.compile(text, backend=NAMES)
    assert [str(each.place) for each in executable.segments] == ["nova:0"]
    for found, right in zip(executable(np.int32(5), X[:16], W), expected(text, np.int32(5), X[:16], W)):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_loop_is_split_where_a_device_does_not_take_all_of_it(registered: Register, trips: int) -> None:
    """``last`` takes sines only: no device has the whole loop."""
    only = "stablehlo.sine"

    def sines(instruction: Instruction) -> Capability:
        is_mine = instruction.name == only or instruction.op.is_terminator
        return YES if is_mine else no("it computes sines")

    registered(OwnMemoryBackend("nova", refusing(only)), OwnMemoryBackend("last", sines))
    text = LOOP.replace("OP", "sine")
    executable = hlojit.compile(text, backend=NAMES)
    rows = executable.placement().rows
    assert {row.device for row in rows} == {"nova:0", "last:0", "host"}
    split = [row.why for row in rows if row.segment is None and row.instruction.startswith("stablehlo.while")]
    assert split == [
        "split, the host runs it (nova: stablehlo.sine in it: there is no sine unit; last: it computes sines)"
    ]
    x = X[:16].copy()
    for mode in (executable, executable.execute):
        results = mode(np.int32(trips), x, W)
        for found, right in zip(results, expected(text, np.int32(trips), x, W)):
            np.testing.assert_array_equal(hlojit.get(found), right)
            assert not np.shares_memory(hlojit.get(found), x)


def test_a_loop_is_split_where_that_costs_less(registered: Register) -> None:
    """One device takes all of it, at a high cost; the other all but one op."""
    registered(OwnMemoryBackend("nova", refusing("stablehlo.sine")), OwnMemoryBackend("last", everything(1e6)))
    rows = hlojit.compile(LOOP.replace("OP", "sine"), backend=NAMES).placement().rows
    assert {row.device for row in rows if row.segment is not None} == {"nova:0", "last:0"}
    registered(OwnMemoryBackend("cheap", everything(10.0)))
    rows = hlojit.compile(LOOP.replace("OP", "sine"), backend=["nova", "cheap"]).placement().rows
    assert {row.device for row in rows if row.segment is not None} == {"cheap:0"}


def test_a_case_with_any_index(registered: Register) -> None:
    registered(
        OwnMemoryBackend("nova", refusing("stablehlo.sine", "stablehlo.case")),
        OwnMemoryBackend("last", refusing("stablehlo.case")),
    )
    text = """
    func.func @main(%i: tensor<i32>, %x: tensor<16xf32>) -> tensor<16xf32> {
      %r = "stablehlo.case"(%i) ({
        %a = stablehlo.sine %x : tensor<16xf32>
        stablehlo.return %a : tensor<16xf32>
      }, {
        stablehlo.return %x : tensor<16xf32>
      }, {
        %a = stablehlo.cosine %x : tensor<16xf32>
        %b = stablehlo.sine %a : tensor<16xf32>
        stablehlo.return %b : tensor<16xf32>
      }) : (tensor<i32>) -> tensor<16xf32>
      return %r : tensor<16xf32>
    }
    """
    # Neither takes the construct itself: the host runs it.
    with pytest.raises(hlojit.UnsupportedError, match="nova: there is no case unit; last: there is no case unit"):
        hlojit.compile(text, backend=NAMES)
    registered(OwnMemoryBackend("other", refusing("stablehlo.sine")), OwnMemoryBackend("dear", everything(1e6)))
    executable = hlojit.compile(text, backend=["other", "dear"])
    assert "host" in {row.device for row in executable.placement().rows}
    for index in (-1, 0, 1, 2, 7):
        np.testing.assert_array_equal(executable(np.int32(index), W), expected(text, np.int32(index), W))


# --------------------------------------------------------------------------------------- arguments and results


def test_arguments_may_be_anywhere(nova: OwnMemoryBackend) -> None:
    executable = hlojit.compile(SORTED, backend=NAMES)
    right = expected(SORTED, X, Y)
    for one in ("nova", "last", None):
        for other in ("nova", "last", None):
            arguments = [X if one is None else hlojit.put(X, one), Y if other is None else hlojit.put(Y, other)]
            found = executable(*arguments)
            assert isinstance(found, hlojit.Array) == (one is not None or other is not None)
            np.testing.assert_array_equal(hlojit.get(found), right)
    with pytest.raises(
        hlojit.ArgumentError, match=r"argument 1 is on cpu:0, the program is compiled for nova:0, last:0"
    ):
        executable(X, hlojit.put(Y, "cpu"))
    with pytest.raises(hlojit.ArgumentError, match=r"main takes 2 arguments, not 1"):
        executable(X)
    with pytest.raises(hlojit.ArgumentError, match=r"argument 0: expected tensor<64xf32>"):
        executable(X[:3], Y)
    with pytest.raises(hlojit.ArgumentError, match=r"takes its arguments by position"):
        executable(x=X, y=Y)


def test_results_are_the_callers_own(nova: OwnMemoryBackend) -> None:
    """An argument, a constant and one value twice."""
    text = """
    func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
      %c = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
      %0 = stablehlo.add %x, %c : tensor<4xf32>
      return %x, %c, %0, %0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
    }
    """
    executable = hlojit.compile(text, backend=NAMES)
    x = X[:4].copy()
    for _ in range(2):
        results = executable(x)
        for found, right in zip(results, expected(text, x)):
            np.testing.assert_array_equal(found, right)
        for number, found in enumerate(results):
            assert not any(np.shares_memory(found, other) for other in (x, *results[:number]))
            found[:] = -1
    on_device = executable(hlojit.put(x, "nova"))
    for number, found in enumerate(on_device):
        found.delete()
        for other, right in zip(on_device[number + 1 :], expected(text, x)[number + 1 :]):
            np.testing.assert_array_equal(hlojit.get(other), right)


def test_a_program_that_computes_nothing(nova: OwnMemoryBackend) -> None:
    text = "func.func @main(%x: tensor<4xf32>, %y: tensor<i32>) -> tensor<i32> { return %y : tensor<i32> }"
    executable = hlojit.compile(text, backend=NAMES)
    assert executable.segments == () and executable.placement().rows == ()
    assert executable(X[:4], np.int32(3)) == 3
    empty = "func.func @main() { return }"
    assert hlojit.compile(empty, backend=NAMES)() == ()


def test_tuples_and_open_sizes(nova: OwnMemoryBackend) -> None:
    text = """
    func.func @main(%p: tuple<tensor<4xf32>, tensor<4xf32>>) -> tuple<tensor<4xf32>, tensor<4xf32>> {
      %a = stablehlo.get_tuple_element %p[0] : (tuple<tensor<4xf32>, tensor<4xf32>>) -> tensor<4xf32>
      %0 = stablehlo.sine %a : tensor<4xf32>
      %1 = stablehlo.cosine %0 : tensor<4xf32>
      %t = stablehlo.tuple %1, %0 : tuple<tensor<4xf32>, tensor<4xf32>>
      return %t : tuple<tensor<4xf32>, tensor<4xf32>>
    }
    """
    executable = hlojit.compile(text, backend=NAMES)
    one, _ = executable((X[:4], Y[:4]))
    np.testing.assert_array_equal(one, expected(text, (X[:4], Y[:4]))[0])
    assert executable.placement().devices == {"nova:0": 1, "last:0": 1}
    opened = SORTED.replace("64x", "?x")
    sized = hlojit.compile(opened, backend=NAMES)
    for size in (3, 64, 0):
        np.testing.assert_array_equal(sized(X[:size], Y[:size]), expected(opened, X[:size], Y[:size]))


def test_a_vendors_format_crosses_devices(nova: OwnMemoryBackend, registered: Register) -> None:
    from hlojit.extensions import FloatFormat, hookimpl, registry

    class Formats:
        @hookimpl
        def hlojit_formats(self) -> list[FloatFormat]:
            return [FloatFormat("acme7", exponent_bits=3, mantissa_bits=3)]

    text = """
    func.func @main(%x: tensor<4xacme7>) -> tensor<4xacme7> {
      %0 = stablehlo.add %x, %x : tensor<4xacme7>
      %1 = stablehlo.sine %0 : tensor<4xacme7>
      %2 = stablehlo.multiply %1, %x : tensor<4xacme7>
      return %2 : tensor<4xacme7>
    }
    """
    with registry().using(Formats()):
        x = hlojit.Array.from_values([0.5, 1.0, -1.5, 2.0], "acme7")
        executable = hlojit.compile(text, backend=NAMES)
        assert [str(each.place) for each in executable.segments] == ["nova:0", "last:0", "nova:0"]
        np.testing.assert_array_equal(executable(x).storage, hlojit.compile(text)(x).storage)
        np.testing.assert_array_equal(hlojit.get(executable(hlojit.put(x, "last"))).storage, executable(x).storage)


def test_donated_arguments_are_gone(nova: OwnMemoryBackend) -> None:
    """The one that a segment reads alone, and the one that several read."""
    executable = hlojit.compile(SORTED, backend=NAMES, donate=(0, 1))
    x, y = hlojit.put(X, "nova"), hlojit.put(Y, "last")
    np.testing.assert_array_equal(hlojit.get(executable(x, y)), expected(SORTED, X, Y))
    for each in (x, y):
        with pytest.raises(hlojit.ExecutionError, match="was donated to main"):
            executable(each, Y)
    same = hlojit.put(X, "nova")
    with pytest.raises(hlojit.ArgumentError, match="argument 0 is donated and given as another argument, too"):
        executable(same, same)
    host = X.copy()
    executable(host, Y)
    np.testing.assert_array_equal(host, X)


def test_memory_is_given_back(nova: OwnMemoryBackend) -> None:
    """When what was passed between segments is read by nobody, and nobody has the results."""
    cells: list[Any] = []
    device = nova.devices()[0]
    transfer_in = device.transfer_in
    device.transfer_in = lambda *given: cells.append(found := transfer_in(*given)) or found  # type: ignore[func-returns-value, method-assign]
    executable = hlojit.compile(SORTED, backend=NAMES)
    executable(X, Y)
    assert len(cells) == 3 and all(cell.freed for cell, _ in cells)


def test_jitted_functions(nova: OwnMemoryBackend) -> None:
    @hlojit.jit(backend=NAMES)
    def f(x: Any) -> Any:
        return np.sort(np.cos(x) + 1), x * 2

    found, doubled = f(X)
    np.testing.assert_allclose(found, np.sort(np.cos(X) + 1), rtol=1e-6)
    pending = f.execute(hlojit.put(X, "nova"))
    np.testing.assert_array_equal(hlojit.get(pending[1]), doubled)


# ------------------------------------------------------------------------------------------------------- errors


def test_an_error_names_device_and_place(nova: OwnMemoryBackend) -> None:
    def fail(program: Any) -> None:
        raise ValueError("overheated")

    executable = hlojit.compile(SORTED, backend=NAMES)
    nova.devices()[0].before = fail
    message = r"main\.0 \(stablehlo.add at <string>:3:3 and 1 more\) on nova:0: the back end 'nova' raised ValueError\('overheated'\)"
    with pytest.raises(hlojit.ExecutionError, match=message):
        executable(X, Y)
    pending = executable.execute(X, Y)
    with pytest.raises(hlojit.ExecutionError, match=message):
        hlojit.get(pending)
    with pytest.raises(hlojit.ExecutionError, match=message):
        hlojit.get(executable.execute(pending, Y))
    nova.devices()[0].before = lambda program: None
    np.testing.assert_array_equal(executable(X, Y), expected(SORTED, X, Y))


def test_a_back_end_that_fails_to_compile_its_part(registered: Register) -> None:
    class Broken(OwnMemoryBackend):
        def compile(self, module: Any, options: Any) -> Any:
            raise ValueError("no compiler today")

    registered(Broken("nova", refusing("stablehlo.sort")), OwnMemoryBackend("last", everything(1e6)))
    with pytest.raises(
        hlojit.PluginError, match=r"the back end 'nova' \(plugin .*\): compile raised ValueError.* for @main\.\d"
    ):
        hlojit.compile(SORTED, backend=NAMES)


def test_a_list_may_be_a_text(nova: OwnMemoryBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ("nova:0", "last:0")
    assert tuple(map(str, hlojit.compile(SORTED, backend="nova,last").devices)) == right
    monkeypatch.setenv("HLOJIT_BACKEND", "nova:0,last")
    assert tuple(map(str, hlojit.compile(SORTED).devices)) == right
    assert str(hlojit.put(X).device) == "nova:0"
    np.testing.assert_allclose(hlojit.jit(lambda x: np.sin(x))(X), np.sin(X), rtol=1e-6)


def test_a_call_can_be_interrupted(nova: OwnMemoryBackend) -> None:
    """While it waits for a device, which goes on."""
    gate = threading.Event()
    has_begun = threading.Event()

    def hang(program: Any) -> None:
        has_begun.set()
        gate.wait(20)

    nova.devices()[0].before = hang
    executable = hlojit.compile(SORTED, backend=NAMES)

    def interrupt() -> None:
        has_begun.wait(20)
        _thread.interrupt_main()

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        executable(X, Y)
    helper.join()
    gate.set()
    np.testing.assert_array_equal(executable(X, Y), expected(SORTED, X, Y))


# ------------------------------------------------------------------------------------------------ kinds of numbers


def test_formats_in_blocks_cross_devices(nova: OwnMemoryBackend) -> None:
    nova.answers = refusing("stablehlo.tanh")
    source = np.random.default_rng(0)
    weights, x = (
        hlojit.Array.from_values(source.normal(size=(32, 64)), "mxfp8"),
        source.normal(size=(8, 64)).astype("f4"),
    )

    def layer(x: Any, weights: Any) -> Any:
        return np.tanh(x @ weights.T), x.astype("mxfp8")

    found, quantized = hlojit.jit(backend=["nova", "cpu"])(layer)(x, weights)
    right, quantized_right = hlojit.jit(layer)(x, weights)
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(quantized.to_values(), quantized_right.to_values())


@pytest.mark.parametrize(
    ("kind", "x"),
    [
        ("i4", np.array([1, -2, 3, 7], "i1")),
        ("i1", np.array([True, False, True, True])),
        ("!quant.uniform<i8:f32, 0.1:-3>", np.array([5, -7, 0, 100], "i1")),
    ],
)
def test_small_and_quantized_numbers(nova: OwnMemoryBackend, kind: str, x: Any) -> None:
    nova.answers = refusing("stablehlo.not", "stablehlo.negate")
    last = "not" if kind == "i1" else "negate"
    both = "and" if kind == "i1" else "add"
    text = f"""
    func.func @main(%x: tensor<4x{kind}>) -> tensor<4x{kind}> {{
      %0 = stablehlo.{both} %x, %x : tensor<4x{kind}>
      %1 = stablehlo.{last} %0 : tensor<4x{kind}>
      return %1 : tensor<4x{kind}>
    }}
    """
    argument = x.astype(element_type(kind).dtype) if kind == "i4" else x
    executable = hlojit.compile(text, backend=NAMES)
    np.testing.assert_array_equal(executable(argument), expected(text, argument))
    np.testing.assert_array_equal(hlojit.get(executable.execute(argument)), expected(text, argument))


# ------------------------------------------------------------------------------------------------------- passes


def test_who_sees_the_whole_program_and_who_a_segment(nova: OwnMemoryBackend) -> None:
    """A pass for all targets the program until it is split, one that names a back end that one's segments."""
    from hlojit.extensions import Pass, hookimpl, registry

    seen: list[tuple[str, int]] = []

    def counting(of: str, in_phase: str, for_targets: tuple[str, ...]) -> Pass:
        class Counting(Pass):
            name = of
            phase = in_phase
            targets = for_targets

            def run(self, module: Any) -> bool:
                seen.append((of, sum(not each.op.is_terminator for each in module.main.body)))
                return False

        return Counting()

    class Passes:
        @hookimpl
        def hlojit_passes(self) -> list[Pass]:
            return [
                counting("early", "simplify", ()),
                counting("late", "after-fusion", ()),
                counting("own", "simplify", ("nova",)),
            ]

    with registry().using(Passes()):
        hlojit.compile(SORTED, backend=NAMES)
    assert [each for each in seen if each[0] == "early"] == [("early", 5)]
    assert sorted(each for each in seen if each[0] == "late") == [("late", 1), ("late", 2), ("late", 2)]
    assert [each for each in seen if each[0] == "own"] == [("own", 2), ("own", 2)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "names no back end"),
        (["cpu", 3], "holds names of back ends or devices"),
        (["cpu", "cpu:0"], "names the device cpu:0 twice"),
        (["cpu", "gpt"], "unknown back end 'gpt'"),
        (["nova:7", "cpu"], "there is no device 'nova:7'"),
    ],
)
def test_lists_that_are_refused(nova: OwnMemoryBackend, names: Any, message: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=message):
        hlojit.compile(SORTED, backend=names)


def test_what_is_refused_by_name(nova: OwnMemoryBackend, tmp_path: Any) -> None:
    executable = hlojit.compile(SORTED, backend=NAMES)
    with pytest.raises(hlojit.HlojitError, match="compiled for nova:0, last:0 and cannot be saved"):
        executable.save(tmp_path / "program")
    with pytest.raises(hlojit.ArgumentError, match="it is not moved to cpu by execute"):
        executable.execute(X, Y, device="cpu")
    with pytest.raises(hlojit.UnsupportedError, match="2 processes run together .* is compiled for one back end"):
        hlojit.compile(SORTED, backend=NAMES, num_replicas=2)
    assert "// last:0, segment 1" in executable.as_text()


def test_effects_keep_the_programs_order(registered: Register) -> None:
    """What one back end takes in and another gives out."""
    registered(OwnMemoryBackend("nova", refusing("stablehlo.infeed", "stablehlo.outfeed", "stablehlo.create_token")))
    text = """
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %t0 = stablehlo.create_token : !stablehlo.token
      %a, %t1 = "stablehlo.infeed"(%t0) : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
      %0 = stablehlo.sine %a : tensor<2xf32>
      %t2 = "stablehlo.outfeed"(%0, %t1) : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
      %b, %t3 = "stablehlo.infeed"(%t2) : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
      %1 = stablehlo.add %0, %b : tensor<2xf32>
      return %1 : tensor<2xf32>
    }
    """
    executable = hlojit.compile(text, backend=["nova", "cpu"])
    for number in (1.0, 2.0):
        hlojit.channel("infeed").put(np.full(2, number, "f4"))
    np.testing.assert_allclose(executable(np.zeros(2, "f4")), np.sin(1) + np.full(2, 2, "f4"), rtol=1e-6)
    np.testing.assert_allclose(hlojit.channel("outfeed").get(timeout=5)[0], np.sin(np.ones(2, "f4")), rtol=1e-6)


def test_a_back_end_of_version_1_0_takes_part(registered: Register) -> None:
    """Asked when all is expanded; its program is a Python function over arrays."""
    from hlojit.ir import evaluate

    class Old(Backend):
        name = "old"

        def capability(self, instruction: Instruction) -> Capability:
            return no("no sorter") if instruction.name == "stablehlo.sort" else Capability(YES.support, "", 1.0)

        def compile(self, module: Any, options: Any) -> Any:
            return lambda *arrays: evaluate(module, *arrays)

    class Plugin:
        def hlojit_backends(self) -> list[Backend]:
            return [Old()]

    from hlojit.extensions import hookimpl, registry

    Plugin.hlojit_backends = hookimpl(Plugin.hlojit_backends)  # type: ignore[method-assign]
    registered(OwnMemoryBackend("last", everything(1e6)))
    with registry().using(Plugin()):
        executable = hlojit.compile(SORTED, backend=["old", "last"])
        assert executable.placement().devices == {"old:0": 4, "last:0": 1}
        np.testing.assert_array_equal(executable(X, Y), expected(SORTED, X, Y))
