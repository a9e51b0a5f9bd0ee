"""Programs over several devices run like any other: side by side, with arguments and results anywhere, of all kinds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import YES, Capability
from hlojit.ir import element_type

from .test_placement import SORTED, X, Y, refusing
from .vendor import NAMES, OwnMemoryBackend, everything, expected

Register = Callable[..., None]


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
