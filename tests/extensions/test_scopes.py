"""Plugins in scopes: threads, contexts, registering again, what is built in, plugins that failed to load."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir import evaluate
from hlojit.ir.formats import find_element_type
from hlojit.ir.ops.definition import OpDefinition, Operand, Pointwise, find_op

X = np.linspace(-2, 2, 50, dtype="f4")
BACKENDS = pytest.mark.parametrize("backend", ["cpu", "reference"])


def plugin(name: str = "test", **hooks: Any) -> Any:
    """An object whose hooks return what is given: ``plugin(custom_calls=[...])``."""

    def hook(items: Any) -> Any:
        return ext.hookimpl(lambda: items)

    return SimpleNamespace(__name__=name, **{f"hlojit_{kind}": hook(items) for kind, items in hooks.items()})


def left_as_found() -> Iterator[None]:
    """Every test leaves the process's environment as it found it."""
    before = set(ext.registry().load().records)
    yield
    for name in set(ext.registry().records) - before:
        ext.unregister(name)


unchanged = pytest.fixture(autouse=True)(left_as_found)


def scaling(factor: float, target: str = "test.scale") -> ext.ElementwiseCall:
    return ext.ElementwiseCall(target, function=lambda x: x * factor)


SCALE = """
func.func @main(%x: tensor<50xf32>) -> tensor<50xf32> {
  %0 = stablehlo.custom_call @test.scale(%x) : (tensor<50xf32>) -> tensor<50xf32>
  return %0 : tensor<50xf32>
}
"""
ABS = "func.func @main(%x: tensor<50xf32>) -> tensor<50xf32> { %0 = stablehlo.abs %x : tensor<50xf32> return %0 : tensor<50xf32> }"
STEPPED = """
func.func @main(%x: tensor<50xf32>) -> tensor<50xf32> {
  %0 = stablehlo.convert %x : (tensor<50xf32>) -> tensor<50xacme8>
  %1 = stablehlo.add %0, %0 : tensor<50xacme8>
  %2 = stablehlo.convert %1 : (tensor<50xacme8>) -> tensor<50xf32>
  return %2 : tensor<50xf32>
}
"""


def stepped(step: float) -> ext.FloatFormat:
    """A fixed-point format of 8 bits, made of a codec alone: code 128 is 0, a code more is ``step`` more."""

    def decode(code: int) -> float:
        return ((code & 255) - 128) * step

    def encode(value: float) -> int:
        return int(min(max(math.floor(value / step + 0.5) + 128.0, 0.0), 255.0))

    return ext.FloatFormat("acme8", bits=8, decode=decode, encode=encode, has_infinity=False, nan=ext.NanEncoding.NONE)


def quantized(values: Any, step: float) -> Any:
    return np.clip(np.floor(np.float32(values) / np.float32(step) + np.float32(0.5)), -128, 127) * step


def stepped_result(step: float) -> Any:
    """What STEPPED gives for X, with numbers alone (steps are powers of two, so that everything is exact)."""
    return quantized(2 * quantized(X, step), step)


def opposite(reference: Callable[..., Any], rule: Callable[..., Any]) -> OpDefinition:
    return OpDefinition(
        "test.op",
        operands=(Operand("x"),),
        infer=lambda request: [request.operand_types[0]],
        reference=reference,
        lowering=Pointwise(rule),
    )


NEGATE = opposite(lambda call, x: -x, lambda b, call, x: b.fneg(x))


def in_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


# ------------------------------------------------------------------------------------------------------ threads, contexts


def test_using_is_invisible_to_other_threads() -> None:
    with ext.using(plugin(custom_calls=[scaling(3)], ops=[NEGATE], formats=[stepped(0.25)])):
        assert find_op("test.op") is not None and find_element_type("acme8") is not None
        np.testing.assert_array_equal(hlojit.compile(SCALE)(X), X * 3)
        assert in_thread(lambda: (find_op("test.op"), find_element_type("acme8"))) == (None, None)
        with pytest.raises(hlojit.UnsupportedError, match=r"test\.scale"):
            in_thread(lambda: hlojit.compile(SCALE))
    assert find_op("test.op") is None


def test_plugins_of_a_jitted_function_are_invisible_to_other_threads() -> None:
    inside, looked = threading.Event(), threading.Event()

    @hlojit.jit(plugins=[plugin(custom_calls=[scaling(3)])])
    def f(x: Any) -> Any:
        inside.set()
        looked.wait(30)
        return x + 1

    def other() -> Any:
        inside.wait(30)
        try:
            return ext.registry().custom_call("test.scale")
        finally:
            looked.set()

    with ThreadPoolExecutor(2) as pool:
        seen, result = pool.submit(other), pool.submit(f, X)
        assert seen.result() is None
        np.testing.assert_array_equal(result.result(), X + 1)


def test_overlapping_uses_of_one_plugin_leave_nothing_behind() -> None:
    shared = plugin(custom_calls=[scaling(3)])
    barrier = threading.Barrier(2)

    def use(last: bool) -> bool:
        with ext.using(shared):
            barrier.wait(30)
            if last:
                barrier.wait(30)
            found = ext.registry().custom_call("test.scale") is not None
        if not last:
            barrier.wait(30)
        return found

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(use, (False, True))) == [True, True]
    assert ext.registry().custom_call("test.scale") is None


def test_uses_that_end_in_another_order_than_they_began() -> None:
    first, second = ExitStack(), ExitStack()
    first.enter_context(ext.using(plugin("first", custom_calls=[scaling(2, "test.first")])))
    second.enter_context(ext.using(plugin("second", custom_calls=[scaling(3, "test.second")])))
    first.close()
    assert ext.registry().custom_call("test.first") is None and ext.registry().custom_call("test.second") is not None
    second.close()
    assert ext.registry().custom_call("test.second") is None


def test_two_threads_with_two_formats_of_one_name() -> None:
    barrier = threading.Barrier(2)

    def work(step: float) -> list[Any]:
        with ext.using(plugin(f"vendor{step}", formats=[stepped(step)])):
            barrier.wait(30)
            results = []
            for backend in ("cpu", "reference"):
                executable = hlojit.compile(STEPPED, backend=backend)
                barrier.wait(60)
                results.append(executable(X))
            return results

    with ThreadPoolExecutor(2) as pool:
        for step, results in zip((0.25, 0.5), pool.map(work, (0.25, 0.5))):
            for result in results:
                np.testing.assert_array_equal(result, stepped_result(step))


def test_types_of_two_formats_of_one_name_are_two() -> None:
    types = []
    for step in (0.25, 0.5):
        with ext.using(plugin(formats=[stepped(step)])):
            types.append(hlojit.ir.tensor((2, 3), "acme8"))
    assert types[0] is not types[1] and types[0].element_type != types[1].element_type


def test_an_environment_is_handed_to_another_thread() -> None:
    environment = ext.scope(plugin(custom_calls=[scaling(3)]))
    assert ext.registry().custom_call("test.scale") is None

    def work() -> Any:
        with environment.activate():
            return hlojit.compile(SCALE)(X)

    np.testing.assert_array_equal(in_thread(work), X * 3)
    with environment.activate():
        context = contextvars.copy_context()
    np.testing.assert_array_equal(in_thread(lambda: context.run(hlojit.compile, SCALE))(X), X * 3)


def test_tasks_have_scopes_of_their_own() -> None:
    async def work(factor: float) -> Any:
        with ext.using(plugin(custom_calls=[scaling(factor)])):
            await asyncio.sleep(0)
            executable = hlojit.compile(SCALE, backend="reference")
            await asyncio.sleep(0)
            return executable(X), await asyncio.to_thread(ext.registry().custom_call, "test.scale")

    async def both() -> Any:
        return await asyncio.gather(work(2), work(3))

    for factor, (result, inherited) in zip((2, 3), asyncio.run(both())):
        np.testing.assert_array_equal(result, X * np.float32(factor))
        assert inherited is not None


def test_a_scope_sees_what_the_process_registers_later() -> None:
    with ext.using(plugin("inner", custom_calls=[scaling(3)])):
        ext.register(plugin("outer", custom_calls=[scaling(5, "test.outer")]))
        assert ext.registry().custom_call("test.outer") is not None
    assert ext.registry().custom_call("test.outer") is not None, "register is for the process"
    assert in_thread(lambda: ext.registry().custom_call("test.outer")) is not None


def test_a_jitted_function_uses_the_environment_of_the_call() -> None:
    class Negating(ext.Backend):
        name = "negating"

        def capability(self, instruction: Any) -> Any:
            return ext.YES

        def compile(self, module: Any, options: Any) -> Any:
            return lambda *arrays: [-each for each in evaluate(module, *arrays)]

    @hlojit.jit(backend="negating")
    def f(x: Any) -> Any:
        return x + 1

    with ext.using(plugin(backends=[Negating()])):
        np.testing.assert_array_equal(f(X), -(X + 1))
        with pytest.raises(hlojit.HlojitError, match="unknown back end 'negating'"):
            in_thread(lambda: f(X))
    with pytest.raises(hlojit.HlojitError, match="unknown back end 'negating'"):
        f(X)


def test_using_the_same_plugin_again_compiles_nothing_again() -> None:
    traced = []

    @hlojit.jit
    def f(x: Any) -> Any:
        traced.append(1)
        return x + 1

    for _ in range(3):
        with ext.using(plugin(custom_calls=[scaling(3)])):
            f(X)
        f(X)
    assert len(traced) == 2


def test_a_module_keeps_the_scope_in_which_it_was_made() -> None:
    with ext.using(plugin(formats=[stepped(0.25)], custom_calls=[scaling(3)])):
        module, call = hlojit.parse(STEPPED), hlojit.parse(SCALE)
    assert find_element_type("acme8") is None
    for backend in ("cpu", "reference"):
        np.testing.assert_array_equal(hlojit.compile(module, backend=backend)(X), stepped_result(0.25))
        np.testing.assert_array_equal(in_thread(lambda: hlojit.compile(call, backend=backend))(X), X * 3)  # noqa: B023


def test_a_module_of_one_scope_is_compiled_in_another() -> None:
    with ext.using(plugin("formats", formats=[stepped(0.25)])):
        module = hlojit.parse(
            STEPPED.replace(
                "return %2",
                "%3 = stablehlo.custom_call @test.scale(%2) : (tensor<50xf32>) -> tensor<50xf32>\nreturn %3",
            )
        )
    with ext.using(plugin("calls", custom_calls=[scaling(2)])):
        np.testing.assert_array_equal(hlojit.compile(module)(X), stepped_result(0.25) * 2)


def test_a_lowered_function_keeps_its_plugins() -> None:
    f = hlojit.jit(plugins=[plugin(custom_calls=[scaling(3)])])(lambda x: x + 1)
    module = f.lower(X)
    assert module.environment.snapshot().table("custom call target")["test.scale"]
