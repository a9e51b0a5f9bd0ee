"""Plugins that are registered again: modules, functions, arrays and types that were made before."""

from __future__ import annotations

import dataclasses
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir import evaluate
from hlojit.ir.environment import tables
from hlojit.ir.ops.definition import Pointwise, Trait
from hlojit.ir.resolution import resolved

from .test_scopes import (
    BACKENDS,
    NEGATE,
    SCALE,
    STEPPED,
    X,
    left_as_found,
    opposite,
    plugin,
    stepped,
    stepped_result,
)

unchanged = pytest.fixture(autouse=True)(left_as_found)
TWICE = opposite(lambda call, x: x + x, lambda b, call, x: b.fadd(x, x))
OP = """
func.func @main(%x: tensor<50xf32>) -> tensor<50xf32> {
  %0 = "test.op"(%x) : (tensor<50xf32>) -> tensor<50xf32>
  return %0 : tensor<50xf32>
}
"""


@BACKENDS
def test_a_format_that_differs_in_its_codec_only(backend: str) -> None:
    executables = []
    for step in (0.25, 0.5, 0.25):
        ext.register(plugin(formats=[stepped(step)]))
        executables.append(hlojit.compile(STEPPED, backend=backend))
        np.testing.assert_array_equal(executables[-1](X), stepped_result(step))
    for step, executable in zip((0.25, 0.5, 0.25), executables):
        np.testing.assert_array_equal(executable(X), stepped_result(step), "what is compiled keeps running")


@BACKENDS
def test_a_module_parsed_before_a_format_changed(backend: str) -> None:
    ext.register(plugin(formats=[stepped(0.25)]))
    module = hlojit.parse(STEPPED)
    ext.register(plugin(formats=[stepped(0.5)]))
    np.testing.assert_array_equal(hlojit.compile(module, backend=backend)(X), stepped_result(0.5))
    np.testing.assert_array_equal(evaluate(module, X)[0], stepped_result(0.5))
    np.testing.assert_array_equal(hlojit.compile(STEPPED, backend=backend)(X), stepped_result(0.5))


def test_a_format_that_stands_in_an_attribute_alone() -> None:
    """Of a kind of attribute that types are in: of the module, of a constant's dictionary, of a list."""
    text = """
    module attributes {vendor.format = tensor<2xacme8>} {
      func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }
    }
    """
    ext.register(plugin(formats=[stepped(0.25)]))
    plain = text.replace("tensor<2xacme8>}", "1 : i64}")
    texts = [
        text,
        text.replace("tensor<2xacme8>}", "[{inner = dense<1.5> : tensor<2xacme8>}]}"),
        plain.replace("-> tensor<2xf32> {", "-> tensor<2xf32> attributes {vendor.format = tensor<2xacme8>} {"),
    ]
    modules = [hlojit.parse(each) for each in texts]
    assert all(resolved(module, tables()) is module for module in modules)
    ext.register(plugin(formats=[stepped(0.5)]))
    for module in modules:
        fresh = resolved(module, tables())
        assert fresh is not module
        assert resolved(fresh, tables()) is fresh


def test_the_default_back_end_and_the_options_of_a_jitted_function(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"fold_limit": 1}
    f = hlojit.jit(options=options)(lambda x: x + 1)
    f(X)
    options["fold_limit"] = "changed"  # type: ignore[assignment]
    monkeypatch.setenv("HLOJIT_BACKEND", "reference")
    np.testing.assert_array_equal(f(X), X + 1)
    assert [compiled.executable.spec.compiled is not None for compiled in dict.fromkeys(f._compiled.values())] == [
        True,
        False,
    ]


@BACKENDS
def test_a_constant_of_a_module_parsed_before_a_format_changed(backend: str) -> None:
    text = """
    func.func @main() -> (tensor<3xf32>, tensor<2x2xf32>) {
      %c = stablehlo.constant dense<[1.0, -2.5, 0.25]> : tensor<3xacme8>
      %s = stablehlo.constant dense<1.5> : tensor<2x2xacme8>
      %0 = stablehlo.convert %c : (tensor<3xacme8>) -> tensor<3xf32>
      %1 = stablehlo.convert %s : (tensor<2x2xacme8>) -> tensor<2x2xf32>
      return %0, %1 : tensor<3xf32>, tensor<2x2xf32>
    }
    """
    ext.register(plugin(formats=[stepped(0.25)]))
    module = hlojit.parse(text)
    ext.register(plugin(formats=[stepped(0.5)]))
    for results in (hlojit.compile(module, backend=backend)(), evaluate(module)):
        np.testing.assert_array_equal(results[0], [1.0, -2.5, 0.5])
        np.testing.assert_array_equal(results[1], np.full((2, 2), 1.5))


@BACKENDS
def test_a_module_parsed_before_an_op_was_replaced(backend: str) -> None:
    ext.register(plugin(ops=[NEGATE]))
    module = hlojit.parse(OP)
    old = hlojit.compile(module, backend=backend)
    ext.register(plugin(ops=[TWICE]))
    np.testing.assert_array_equal(hlojit.compile(module, backend=backend)(X), X + X)
    np.testing.assert_array_equal(evaluate(module, X)[0], X + X)
    np.testing.assert_array_equal(hlojit.compile(OP, backend=backend)(X), X + X, "later programs get no old code")
    np.testing.assert_array_equal(old(X), -X)


def test_an_op_that_fuses_since_it_was_registered_again() -> None:
    text = OP.replace("%0 =", "%a = stablehlo.abs %x : tensor<50xf32>\n  %0 =").replace("(%x) :", "(%a) :")
    launches = []
    for traits in (frozenset({Trait.EFFECT}), frozenset[Trait]()):
        ext.register(plugin(ops=[dataclasses.replace(NEGATE, traits=traits)]))
        executable = hlojit.compile(text)
        np.testing.assert_array_equal(executable(X), -np.abs(X))
        launches.append(len(executable.spec.program.launches()))
    assert launches == [2, 1]


FACTOR = 2.0


def scaled_by_global(x: float) -> float:
    return x * FACTOR


@BACKENDS
def test_a_function_whose_captured_global_has_changed(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for factor in (2.0, 3.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        ext.register(plugin(custom_calls=[ext.ElementwiseCall("test.scale", function=scaled_by_global)]))
        np.testing.assert_array_equal(hlojit.compile(SCALE, backend=backend)(X), X * np.float32(factor))


def test_a_jitted_function_is_compiled_again() -> None:
    seen = []

    class Noting(ext.Backend):
        name = "noting"

        def __init__(self, number: int):
            self.number = number

        def capability(self, instruction: Any) -> Any:
            return ext.YES

        def compile(self, module: Any, options: Any) -> Any:
            seen.append(self.number)
            return lambda *arrays: evaluate(module, *arrays)

    f = hlojit.jit(backend="noting")(lambda x: x + 1)
    for number in (1, 2):
        ext.register(plugin(backends=[Noting(number)]))
        for _ in range(2):
            np.testing.assert_array_equal(f(X), X + 1)
    assert seen == [1, 2]


def test_arrays_of_a_format_that_was_registered_again() -> None:
    text = "func.func @main(%x: tensor<2xacme8>) -> tensor<2xacme8> { %0 = stablehlo.add %x, %x : tensor<2xacme8> return %0 : tensor<2xacme8> }"
    ext.register(plugin(formats=[stepped(0.25)]))
    array = hlojit.Array.from_values([1.0, -0.5], "acme8")
    ext.register(plugin(formats=[stepped(0.25)]))
    np.testing.assert_array_equal(hlojit.compile(text)(array).to_values(), [2, -1])
    ext.register(plugin(formats=[stepped(0.5)]))
    with pytest.raises(hlojit.ArgumentError, match="registered again"):
        hlojit.compile(text)(array)


def test_nothing_interned_outlives_its_plugin() -> None:
    def use() -> Any:
        row = stepped(0.25)
        rule = lambda b, call, x: b.fneg(x)  # noqa: E731
        with ext.using(plugin(formats=[row], ops=[dataclasses.replace(NEGATE, lowering=Pointwise(rule))])):
            for backend in ("cpu", "reference"):
                hlojit.compile(STEPPED, backend=backend)(X)
                print(hlojit.compile(OP, backend=backend)(X), hlojit.parse(OP))
        return weakref.ref(row.decode), weakref.ref(rule)

    references = use()
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_interned_types_are_given_back() -> None:
    from hlojit.ir import types

    gc.collect()
    before = types.interned_count()
    for extent in range(1000):
        types.function_type([types.tensor((extent, 7, 12345), "f32")], [types.tuple_type([types.TOKEN])])
    gc.collect()
    assert types.interned_count() < before + 50


def test_a_type_is_one_object_for_all_threads() -> None:
    from hlojit.ir.types import tensor

    barrier = threading.Barrier(8)

    def make(_: int) -> list[Any]:
        barrier.wait(30)
        return [tensor((extent, 54321), "f32") for extent in range(300)]

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make, range(8)))
    for types in zip(*made):
        assert len(set(map(id, types))) == 1


def test_a_module_is_printed_built_and_rewritten_in_its_own_scope() -> None:
    from hlojit.ir.builder import build_function
    from hlojit.ir.passes.pass_manager import PassPipeline
    from hlojit.ir.types import tensor

    @dataclass(frozen=True)
    class Doubling(ext.Pass):
        name: ClassVar[str] = "doubling"

        def run(self, module: Any) -> bool:
            from hlojit.ir import Builder

            returned = module.main.body.terminator
            builder = Builder.in_front_of(returned)
            returned.operands = [builder.create("test.op", returned.operands).result]
            return True

    with ext.using(plugin(ops=[TWICE], formats=[stepped(0.25)])):
        module = hlojit.Module("m")
    with build_function(module, "main", [tensor((50,), "f32")]) as builder:
        builder.return_(builder.create("test.op", builder.arguments).result)
    PassPipeline((Doubling(),)).run(module)
    np.testing.assert_array_equal(hlojit.compile(module)(X), 4 * X)
    assert str(module).count("test.op") == 2
