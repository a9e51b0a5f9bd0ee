"""Custom calls inside comparators, combiners, maps, loops and branches, against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest

Array = np.ndarray[Any, Any]
KEYS = np.random.default_rng(3).permutation(64).astype("f4")


def look_up(x: float) -> float:
    return KEYS[int(x)]


CALLS = [
    ext.ElementwiseCall("test.key", function=look_up),
    ext.ElementwiseCall("test.gamma", function=lambda x: math.gamma(x + 1)),
    ext.ElementwiseCall("test.larger", function=lambda x, y: x if x > y else y),
    ext.ElementwiseCall("test.before", function=lambda x, y: x % 10 < y % 10),
    ext.ElementwiseCall("test.scaled", function=lambda x: math.ldexp(x, 3) - math.frexp(x)[0]),
]
PLUGIN = SimpleNamespace(__name__="test", hlojit_custom_calls=ext.hookimpl(lambda: CALLS))
S = "tensor<f32>"
KEY = f"%p = stablehlo.custom_call @test.key(%a) : ({S}) -> {S}\n%q = stablehlo.custom_call @test.key(%b) : ({S}) -> {S}\n"


def program(body: str, result: str = "40xf32") -> str:
    return f"func.func @main(%x: tensor<40xf32>) -> tensor<{result}> {{\n{body}\nreturn %r : tensor<{result}>\n}}"


def region(code: str, kind: str = S) -> str:
    return f"({{\n^bb0(%a: {S}, %b: {S}):\n{code}\nstablehlo.return %s : {kind}\n}})"


LESS = f"%s = stablehlo.compare LT, %p, %q : ({S}, {S}) -> tensor<i1>"
LARGER = f"%s = stablehlo.custom_call @test.larger(%a, %b) : ({S}, {S}) -> {S}"
ZERO = f"%z = stablehlo.constant dense<0.0> : {S}\n"


def by_key(x: Array) -> Array:
    return x[np.argsort(KEYS[x.astype(int)], kind="stable")]


def gamma(x: Array) -> Array:
    return np.array([math.gamma(each + 1) for each in x.tolist()], "f4")


PROGRAMS: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "sort by a key": (program(f'%r = "stablehlo.sort"(%x) {region(KEY + LESS, "tensor<i1>")} {{dimension = 0 : i64, is_stable = true}} : (tensor<40xf32>) -> tensor<40xf32>'), by_key),
    "sort by a call": (program(
        f'%r = "stablehlo.sort"(%x) {region(f"%s = stablehlo.custom_call @test.before(%a, %b) : ({S}, {S}) -> tensor<i1>", "tensor<i1>")} '
        "{dimension = 0 : i64, is_stable = true} : (tensor<40xf32>) -> tensor<40xf32>"),
        lambda x: x[np.argsort(x % 10, kind="stable")]),
    "scatter": (program(
        "%i = stablehlo.constant dense<[[3], [1], [3], [7]]> : tensor<4x1xi32>\n%u = stablehlo.constant dense<[50.0, 60.0, 70.0, 1.0]> : tensor<4xf32>\n"
        f'%r = "stablehlo.scatter"(%x, %i, %u) {region(LARGER)} {{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], '
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : (tensor<40xf32>, tensor<4x1xi32>, tensor<4xf32>) -> tensor<40xf32>"),
        lambda x: np.array([70 if k == 3 else 60 if k == 1 else max(v, 1) if k == 7 else v for k, v in enumerate(x)], "f4")),
    "map": (program(f'%r = "stablehlo.map"(%x) ({{\n^bb0(%a: {S}):\n%s = stablehlo.custom_call @test.key(%a) : ({S}) -> {S}\nstablehlo.return %s : {S}\n}}) '
                    "{dimensions = array<i64: 0>} : (tensor<40xf32>) -> tensor<40xf32>"), lambda x: KEYS[x.astype(int)]),
    "map with two calls": (program(
        f'%r = "stablehlo.map"(%x, %x) {region(f"%p = stablehlo.custom_call @test.gamma(%a) : ({S}) -> {S}{chr(10)}%s = stablehlo.custom_call @test.larger(%p, %b) : ({S}, {S}) -> {S}")} '
        "{dimensions = array<i64: 0>} : (tensor<40xf32>, tensor<40xf32>) -> tensor<40xf32>"), lambda x: np.maximum(gamma(x), x)),
    "reduce": (program(f'{ZERO}%r = "stablehlo.reduce"(%x, %z) {region(LARGER)} {{dimensions = array<i64: 0>}} : (tensor<40xf32>, {S}) -> {S}', "f32"), lambda x: x.max()),
    "reduce_window": (program(
        f'{ZERO}%r = "stablehlo.reduce_window"(%x, %z) {region(LARGER)} {{window_dimensions = array<i64: 2>, padding = dense<[[1, 0]]> : tensor<1x2xi64>}} '
        f": (tensor<40xf32>, {S}) -> tensor<40xf32>"), lambda x: np.maximum(x, np.concatenate([[0], x[:-1]]))),
    "while": (program(
        "%zero = stablehlo.constant dense<0> : tensor<i32>\n%w:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<40xf32>\n"
        "cond {\n%n = stablehlo.constant dense<2> : tensor<i32>\n%t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "stablehlo.return %t : tensor<i1>\n} do {\n%one = stablehlo.constant dense<1> : tensor<i32>\n%j = stablehlo.add %i, %one : tensor<i32>\n"
        "%u = stablehlo.custom_call @test.key(%v) : (tensor<40xf32>) -> tensor<40xf32>\nstablehlo.return %j, %u : tensor<i32>, tensor<40xf32>\n}\n"
        "%r = stablehlo.abs %w#1 : tensor<40xf32>"), lambda x: KEYS[KEYS[x.astype(int)].astype(int)]),
    "case": (program(
        '%n = stablehlo.constant dense<1> : tensor<i32>\n%b = stablehlo.optimization_barrier %n : tensor<i32>\n%r = "stablehlo.case"(%b) ({\nstablehlo.return %x : tensor<40xf32>\n}, {\n'
        "%u = stablehlo.custom_call @test.key(%x) : (tensor<40xf32>) -> tensor<40xf32>\nstablehlo.return %u : tensor<40xf32>\n}) : (tensor<i32>) -> tensor<40xf32>"),
        lambda x: KEYS[x.astype(int)]),
    "gamma": (program("%r = stablehlo.custom_call @test.gamma(%x) : (tensor<40xf32>) -> tensor<40xf32>"), gamma),
    "ldexp and frexp": (program("%r = stablehlo.custom_call @test.scaled(%x) : (tensor<40xf32>) -> tensor<40xf32>"),
                        lambda x: np.ldexp(x, 3) - np.frexp(x)[0]),
    "of a constant": (program(
        "%c = stablehlo.constant dense<5.0> : tensor<40xf32>\n%u = stablehlo.custom_call @test.key(%c) : (tensor<40xf32>) -> tensor<40xf32>\n"
        "%r = stablehlo.add %u, %x : tensor<40xf32>"), lambda x: KEYS[5] + x),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_call_in_a_region(name: str, backend: str) -> None:
    text, oracle = PROGRAMS[name]
    with ext.using(PLUGIN):
        executable = hlojit.compile(text, backend=backend)
        x = (np.random.default_rng(0).permutation(40) % 32).astype("f4")
        np.testing.assert_allclose(executable(x), oracle(x), rtol=2e-6)


@pytest.mark.parametrize(
    "name", [name for name, (text, _) in PROGRAMS.items() if "test.key" in text and "constant dense<5" not in text]
)
def test_failure_in_a_region_is_reported(name: str) -> None:
    text, _ = PROGRAMS[name]
    with ext.using(PLUGIN):
        executable = hlojit.compile(text)
    with pytest.raises(hlojit.ExecutionError, match=r"test\.key.*an index is out of range in look_up"):
        executable(np.full(40, 1e6, "f4"))


def test_failure_of_a_constant_is_reported_when_it_runs() -> None:
    text = program(
        "%c = stablehlo.constant dense<99.0> : tensor<40xf32>\n%u = stablehlo.custom_call @test.key(%c) : (tensor<40xf32>) -> tensor<40xf32>\n"
        "%r = stablehlo.add %u, %x : tensor<40xf32>"
    )
    with ext.using(PLUGIN):
        executable = hlojit.compile(text)
    with pytest.raises(hlojit.ExecutionError, match="an index is out of range in look_up"):
        executable(np.ones(40, "f4"))
