"""Every kind of op on registered formats, with constants other than zero: splats, scalars, lists, folded ones.

The oracle knows nothing of hlojit: a format is the list of its numbers (``listed_formats.py``); an operation is NumPy's on
f64, and its result the nearest number of the list, ties to the even code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest

from .listed_formats import FORMATS, PLAIN, POSIT, Array, Numbers

CALLS = [ext.ElementwiseCall("matrix.mix", function=lambda x, y: x * 2.0 - y)]
PLUGIN = SimpleNamespace(
    __name__="matrix",
    hlojit_formats=ext.hookimpl(lambda: [PLAIN.row, POSIT.row]),
    hlojit_custom_calls=ext.hookimpl(lambda: CALLS),
)

# ---------------------------------------------------------------------- cases

X = "tensor<5x7xF>"


@dataclass(frozen=True)
class Case:
    """A program on arguments %x, %y, ... and what its results are; ``F`` stands for the format's name.

    ``oracle`` takes the arguments as f64 and returns the results; those of the format's type are rounded afterwards.
    ``slack`` is the relative error that a function may have before its result is rounded.
    """

    body: str
    results: Sequence[str]
    oracle: Callable[..., Any]
    arguments: Sequence[str] = (X,)
    slack: float = 0.0
    small: bool = False
    """Arguments are small integers, so that sums are exact in whatever order and precision they are made."""
    backends: Sequence[str] = ("cpu", "reference")
    formats: Sequence[str] = ("parametric", "codec")
    """A bitcast to ui8 wants 8 bits."""

    def text(self, name: str) -> str:
        """The program."""
        names = ", ".join(f"%{letter}: {type}" for letter, type in zip("xyz", self.arguments))
        values = ", ".join(f"%r{k}" for k in range(len(self.results)))
        types = ", ".join(self.results)
        return (
            f"func.func @main({names}) -> ({types}) {{\n{self.body}\nreturn {values} : {types}\n}}"
        ).replace("xF>", f"x{name}>").replace("<F>", f"<{name}>")  # fmt: skip


def number(value: float, name: str, type: str = X) -> str:
    """A constant splat."""
    return f"%{name} = stablehlo.constant dense<{value}> : {type}\n"


LIST = [1.5, -2.0, 0.25, 4.0, -0.5, 3.0, 1.0]


def operands() -> str:
    """Constants in all forms: %splat (-3), %scalar (0.5) spread as %spread, %list (a row) spread as %rows."""
    row = "[" + ", ".join(map(str, LIST)) + "]"
    return (
        number(-3.0, "splat") + number(0.5, "scalar", "tensor<F>") + number(1.5, "other")
        + f"%spread = stablehlo.broadcast_in_dim %scalar, dims = [] : (tensor<F>) -> {X}\n"
        + f"%list = stablehlo.constant dense<{row}> : tensor<7xF>\n"
        + f"%rows = stablehlo.broadcast_in_dim %list, dims = [1] : (tensor<7xF>) -> {X}\n"
    )  # fmt: skip


def binary(op: str, function: Callable[[Any, Any], Any], slack: float = 0.0) -> Case:
    """An op with constants on either side, and with constants only."""
    pairs = (("x", "splat"), ("splat", "x"), ("x", "spread"), ("rows", "x"), ("splat", "other"), ("x", "x"))
    body = operands() + "".join(f"%r{k} = stablehlo.{op} %{a}, %{b} : {X}\n" for k, (a, b) in enumerate(pairs))

    def oracle(x: Array) -> list[Array]:
        rows = np.broadcast_to(np.array(LIST), x.shape)
        known = {"x": x, "splat": np.full_like(x, -3), "spread": np.full_like(x, 0.5), "rows": rows,
                 "other": np.full_like(x, 1.5)}  # fmt: skip
        return [function(known[a], known[b]) for a, b in pairs]

    return Case(body, [X] * len(pairs), oracle, slack=slack)


def unary(op: str, function: Callable[[Any], Any], slack: float = 0.0) -> Case:
    """An op of the argument and of constants."""
    body = operands() + "".join(
        f"%r{k} = stablehlo.{op} %{a} : {X}\n" for k, a in enumerate(("x", "other", "spread", "rows"))
    )

    def oracle(x: Array) -> list[Array]:
        rows = np.broadcast_to(np.array(LIST), x.shape)
        return [function(each) for each in (x, np.full_like(x, 1.5), np.full_like(x, 0.5), rows)]

    return Case(body, [X] * 4, oracle, slack=slack)


def comparison(direction: str, function: Callable[[Any, Any], Any]) -> Case:
    """A comparison with constants."""
    body = operands() + "".join(
        f"%r{k} = stablehlo.compare {direction}, %x, %{b} : ({X}, {X}) -> tensor<5x7xi1>\n"
        for k, b in enumerate(("other", "spread", "rows"))
    )
    return Case(
        body, ["tensor<5x7xi1>"] * 3,
        lambda x: [function(x, 1.5), function(x, 0.5), function(x, np.broadcast_to(np.array(LIST), x.shape))],
    )  # fmt: skip


def region(op: str, tail: str, kind: str = "tensor<F>", body: str = "") -> str:
    """A generic op with a region of two scalars, %a and %b, whose result is %s."""
    return f"({{\n^bb0(%a: {kind}, %b: {kind}):\n{body or f'%s = stablehlo.{op} %a, %b : {kind}'}\nstablehlo.return %s : {kind}\n}}) {tail}"


def reduction(op: str, function: Callable[[Array], Array], initial: float, dimension: int) -> Case:
    """A reduction with an init that is not the identity."""
    result = "tensor<5xF>" if dimension else "tensor<7xF>"
    return Case(
        number(initial, "i", "tensor<F>")
        + f"%r0 = stablehlo.reduce(%x init: %i) applies stablehlo.{op} across dimensions = [{dimension}] : ({X}, tensor<F>) -> {result}",
        [result], function, small=True,
    )  # fmt: skip


def window_sum(x: Array) -> Array:
    padded = np.pad(x, ((0, 0), (1, 1)), constant_values=2.0)
    return 2.0 + padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]


def cumulative(x: Array) -> Array:
    return np.maximum(np.maximum.accumulate(x, 1), 0.5)


def scattered(x: Array) -> Array:
    result = x.copy()
    for row in (4, 1, 4):
        result[row] = result[row] + np.array(LIST).astype(int)
    return result


def sorted_by_product(x: Array) -> Array:
    return np.take_along_axis(x, np.argsort(x * -1.0, axis=1, kind="stable"), 1)


def pooled(x: Array) -> Array:
    result = np.full_like(x, 1.0)
    for row in range(5):
        for first in range(0, 6, 2):
            result[row, first + int(np.argmax(x[row, first : first + 2]))] += 3.0
    return result


def looped(x: Array) -> Array:
    for _ in range(3):
        x = x * -0.5 + 0.0
    return x


def batch_normalized(x: Array) -> Array:
    return (x - 0.5) * 2.0 + 1.0


GATHER = "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1"
SCATTER = (
    "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
)
ROWS = "%at = stablehlo.constant dense<[[4], [1], [4]]> : tensor<3x1xi32>\n"
ROUND = 2.0**-20

CASES: dict[str, Case] = {
    "add": binary("add", np.add), "subtract": binary("subtract", np.subtract), "multiply": binary("multiply", np.multiply),
    "divide": binary("divide", np.divide), "maximum": binary("maximum", np.maximum),
    "minimum": binary("minimum", np.minimum), "remainder": binary("remainder", np.fmod),
    "power": binary("power", np.power, ROUND), "atan2": binary("atan2", np.arctan2, ROUND),
    "abs": unary("abs", np.abs), "negate": unary("negate", np.negative), "sign": unary("sign", np.sign),
    "floor": unary("floor", np.floor), "ceil": unary("ceil", np.ceil),
    "round_nearest_even": unary("round_nearest_even", np.rint),
    "round_nearest_afz": unary("round_nearest_afz", lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
    "sqrt": unary("sqrt", np.sqrt, ROUND), "rsqrt": unary("rsqrt", lambda x: 1 / np.sqrt(x), ROUND),
    "cbrt": unary("cbrt", np.cbrt, ROUND), "exponential": unary("exponential", np.exp, ROUND),
    "exponential_minus_one": unary("exponential_minus_one", np.expm1, ROUND), "log": unary("log", np.log, ROUND),
    "log_plus_one": unary("log_plus_one", np.log1p, ROUND),
    "logistic": unary("logistic", lambda x: 1 / (1 + np.exp(-x)), ROUND), "tanh": unary("tanh", np.tanh, ROUND),
    "sine": unary("sine", np.sin, ROUND), "cosine": unary("cosine", np.cos, ROUND), "tan": unary("tan", np.tan, ROUND),
    "compare-lt": comparison("LT", np.less), "compare-ge": comparison("GE", np.greater_equal),
    "compare-eq": comparison("EQ", np.equal), "compare-ne": comparison("NE", np.not_equal),
    "is_finite": Case(
        operands() + f"%r0 = stablehlo.is_finite %x : ({X}) -> tensor<5x7xi1>\n"
        f"%r1 = stablehlo.is_finite %rows : ({X}) -> tensor<5x7xi1>",
        ["tensor<5x7xi1>"] * 2, lambda x: [np.isfinite(x), np.ones(x.shape, bool)]),
    "constant": Case(
        number(-3.0, "r0") + number(0.5, "r1", "tensor<F>") + f"%r2 = stablehlo.constant dense<{LIST}> : tensor<7xF>",
        [X, "tensor<F>", "tensor<7xF>"], lambda x: [np.full(x.shape, -3.0), np.array(0.5), np.array(LIST)]),
    "select": Case(
        operands() + f"%p = stablehlo.compare GT, %x, %other : ({X}, {X}) -> tensor<5x7xi1>\n"
        f"%r0 = stablehlo.select %p, %splat, %rows : tensor<5x7xi1>, {X}\n"
        f"%r1 = stablehlo.select %p, %x, %spread : tensor<5x7xi1>, {X}",
        [X, X], lambda x: [np.where(x > 1.5, -3.0, np.broadcast_to(np.array(LIST), x.shape)), np.where(x > 1.5, x, 0.5)]),
    "clamp": Case(
        operands() + number(2.0, "high", "tensor<F>")
        + f"%r0 = stablehlo.clamp %scalar, %x, %high : (tensor<F>, {X}, tensor<F>) -> {X}\n"
        f"%r1 = stablehlo.clamp %splat, %x, %other : {X}",
        [X, X], lambda x: [np.clip(x, 0.5, 2.0), np.clip(x, -3.0, 1.5)]),
    "convert-out": Case(
        operands() + f"%k = stablehlo.multiply %x, %splat : {X}\n"
        + "".join(f"%r{k} = stablehlo.convert %{name} : ({X}) -> tensor<5x7x{type}>\n" for k, (name, type) in enumerate(
            (("k", "f32"), ("rows", "f64"), ("splat", "i8"), ("rows", "i32"), ("rows", "i1"), ("x", "f16")))),
        [f"tensor<5x7x{type}>" for type in ("f32", "f64", "i8", "i32", "i1", "f16")],
        lambda x: [("round", x * -3), np.broadcast_to(np.array(LIST), x.shape), np.full(x.shape, -3),
                   np.broadcast_to(np.trunc(LIST), x.shape), np.ones(x.shape, bool), x]),
    "convert-in": Case(
        "".join(f"%c{k} = stablehlo.constant dense<{value}> : tensor<5x7x{type}>\n"
                f"%r{k} = stablehlo.convert %c{k} : (tensor<5x7x{type}>) -> {X}\n"
                for k, (value, type) in enumerate((("2.6", "f32"), ("-3", "i8"), ("5", "ui8"), ("true", "i1"), ("-1.3", "f64")))),
        [X] * 5, lambda x: [np.full(x.shape, np.float32(2.6)), np.full(x.shape, -3.0), np.full(x.shape, 5.0),
                            np.ones(x.shape), np.full(x.shape, -1.3)]),
    "convert-of-arguments": Case(
        "%r0 = stablehlo.convert %x : (tensor<9xi8>) -> tensor<9xF>\n%r1 = stablehlo.convert %y : (tensor<9xf32>) -> tensor<9xF>",
        ["tensor<9xF>"] * 2, lambda x, y: [x, y], ("tensor<9xi8>", "tensor<9xf32>")),
    "iota": Case(
        operands() + f"%i = stablehlo.iota dim = 1 : {X}\n%r0 = stablehlo.add %i, %spread : {X}\n%r1 = stablehlo.iota dim = 0 : {X}",
        [X, X], lambda x: [np.broadcast_to(np.arange(7.0), x.shape) + 0.5, np.broadcast_to(np.arange(5.0)[:, None], x.shape)]),
    "pad": Case(
        operands() + f"%r0 = stablehlo.pad %x, %scalar, low = [1, 0], high = [0, 2], interior = [0, 1] : ({X}, tensor<F>) -> tensor<6x15xF>\n"
        f"%r1 = stablehlo.pad %list, %scalar, low = [2], high = [-1], interior = [0] : (tensor<7xF>, tensor<F>) -> tensor<8xF>",
        ["tensor<6x15xF>", "tensor<8xF>"],
        lambda x: [np.pad(np.insert(x, range(1, 7), 0.5, 1), ((1, 0), (0, 2)), constant_values=0.5), [0.5, 0.5, *LIST[:-1]]]),
    "concatenate": Case(
        operands() + f"%r0 = stablehlo.concatenate %x, %splat, %rows, dim = 0 : ({X}, {X}, {X}) -> tensor<15x7xF>",
        ["tensor<15x7xF>"], lambda x: [np.concatenate([x, np.full(x.shape, -3.0), np.broadcast_to(np.array(LIST), x.shape)])]),
    "reverse": Case(
        operands() + f"%s = stablehlo.add %x, %rows : {X}\n%r0 = stablehlo.reverse %s, dims = [0, 1] : {X}\n"
        "%r1 = stablehlo.reverse %list, dims = [0] : tensor<7xF>",
        [X, "tensor<7xF>"], lambda x: [(x + LIST)[::-1, ::-1], LIST[::-1]]),
    "transpose": Case(
        operands() + f"%s = stablehlo.subtract %rows, %x : {X}\n%r0 = stablehlo.transpose %s, dims = [1, 0] : ({X}) -> tensor<7x5xF>",
        ["tensor<7x5xF>"], lambda x: [(LIST - x).T]),
    "reshape": Case(
        operands() + f"%s = stablehlo.subtract %splat, %x : {X}\n%r0 = stablehlo.reshape %s : ({X}) -> tensor<35xF>",
        ["tensor<35xF>"], lambda x: [(-3.0 - x).ravel()]),
    "slice": Case(
        operands() + f"%s = stablehlo.multiply %other, %x : {X}\n%r0 = stablehlo.slice %s [1:4, 0:7:2] : ({X}) -> tensor<3x4xF>\n"
        "%r1 = stablehlo.slice %list [1:6:2] : (tensor<7xF>) -> tensor<3xF>",
        ["tensor<3x4xF>", "tensor<3xF>"], lambda x: [(1.5 * x)[1:4, ::2], LIST[1:6:2]]),
    "dynamic_slice": Case(
        operands() + "%k = stablehlo.constant dense<2> : tensor<i32>\n"
        "%r0 = stablehlo.dynamic_slice %list, %y, sizes = [3] : (tensor<7xF>, tensor<i32>) -> tensor<3xF>\n"
        f"%r1 = stablehlo.dynamic_slice %x, %y, %k, sizes = [2, 3] : ({X}, tensor<i32>, tensor<i32>) -> tensor<2x3xF>",
        ["tensor<3xF>", "tensor<2x3xF>"], lambda x, y: [LIST[1:4], x[1:3, 2:5]], (X, "tensor<i32>")),
    "dynamic_update_slice": Case(
        operands() + "%k = stablehlo.constant dense<0> : tensor<i32>\n%one = stablehlo.reshape %list : (tensor<7xF>) -> tensor<1x7xF>\n"
        f"%r0 = stablehlo.dynamic_update_slice %x, %one, %y, %k : ({X}, tensor<1x7xF>, tensor<i32>, tensor<i32>) -> {X}",
        [X], lambda x, y: [np.concatenate([x[:1], [LIST], x[2:]])], (X, "tensor<i32>")),
    "gather": Case(
        operands() + ROWS + f"%s = stablehlo.add %rows, %x : {X}\n"
        f'%r0 = "stablehlo.gather"(%s, %at) <{{dimension_numbers = #stablehlo.gather<{GATHER}>, slice_sizes = array<i64: 1, 7>}}> '
        f": ({X}, tensor<3x1xi32>) -> tensor<3x7xF>\n"
        '%r1 = "stablehlo.gather"(%list, %y) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], '
        "index_vector_dim = 1>, slice_sizes = array<i64: 1>}> : (tensor<7xF>, tensor<4xi32>) -> tensor<4xF>",
        ["tensor<3x7xF>", "tensor<4xF>"], lambda x, y: [(x + LIST)[[4, 1, 4]], np.array(LIST)[y.astype(int)]], (X, "tensor<4xi32>")),
    "scatter": Case(
        ROWS + "%u = stablehlo.constant dense<" + str([[float(int(v)) for v in LIST]] * 3) + "> : tensor<3x7xF>\n"
        '%r0 = "stablehlo.scatter"(%x, %at, %u) '
        + region("add", f"{{scatter_dimension_numbers = #stablehlo.scatter<{SCATTER}>}} : ({X}, tensor<3x1xi32>, tensor<3x7xF>) -> {X}"),
        [X], lambda x: [scattered(x)], small=True),
    "scatter-with-constants": Case(
        ROWS + "%u = stablehlo.constant dense<2.0> : tensor<3x7xF>\n%r0 = \"stablehlo.scatter\"(%x, %at, %u) "
        + region("", f"{{scatter_dimension_numbers = #stablehlo.scatter<{SCATTER}>}} : ({X}, tensor<3x1xi32>, tensor<3x7xF>) -> {X}",
                 body="%k = stablehlo.constant dense<-1.0> : tensor<F>\n%t = stablehlo.multiply %a, %k : tensor<F>\n"
                      "%s = stablehlo.add %t, %b : tensor<F>"),
        [X], lambda x: [np.stack([x[0], 2 - x[1], x[2], x[3], x[4]])], small=True),
    "sort": Case(
        '%r0 = "stablehlo.sort"(%x) ({\n^bb0(%a: tensor<F>, %b: tensor<F>):\n%s = stablehlo.compare LT, %a, %b : '
        f"(tensor<F>, tensor<F>) -> tensor<i1>\nstablehlo.return %s : tensor<i1>\n}}) {{dimension = 1 : i64}} : ({X}) -> {X}",
        [X], lambda x: [np.sort(x, 1)]),
    "sort-with-constants": Case(
        '%r0 = "stablehlo.sort"(%x) ({\n^bb0(%a: tensor<F>, %b: tensor<F>):\n%k = stablehlo.constant dense<-1.0> : tensor<F>\n'
        "%p = stablehlo.multiply %a, %k : tensor<F>\n%q = stablehlo.multiply %b, %k : tensor<F>\n"
        "%s = stablehlo.compare LT, %p, %q : (tensor<F>, tensor<F>) -> tensor<i1>\nstablehlo.return %s : tensor<i1>\n}) "
        f"{{dimension = 1 : i64, is_stable = true}} : ({X}) -> {X}",
        [X], lambda x: [sorted_by_product(x)]),
    "reduce-add-rows": reduction("add", lambda x: 3.0 + x.sum(1), 3.0, 1),
    "reduce-add-columns": reduction("add", lambda x: 3.0 + x.sum(0), 3.0, 0),
    "reduce-maximum": reduction("maximum", lambda x: np.maximum(x.max(1), 0.5), 0.5, 1),
    "reduce-minimum": reduction("minimum", lambda x: np.minimum(x.min(0), -0.5), -0.5, 0),
    "reduce-multiply": reduction("multiply", lambda x: -2.0 * x.prod(1), -2.0, 1),
    "reduce-with-constants": Case(
        number(1.0, "i", "tensor<F>") + '%r0 = "stablehlo.reduce"(%x, %i) '
        + region("", f"{{dimensions = array<i64: 1>}} : ({X}, tensor<F>) -> tensor<5xF>",
                 body="%k = stablehlo.constant dense<2.0> : tensor<F>\n%t = stablehlo.minimum %b, %k : tensor<F>\n"
                      "%s = stablehlo.maximum %a, %t : tensor<F>"),
        ["tensor<5xF>"], lambda x: [np.maximum(1.0, np.minimum(x, 2.0).max(1))], small=True),
    "reduce_window": Case(
        number(2.0, "i", "tensor<F>") + '%r0 = "stablehlo.reduce_window"(%x, %i) '
        + region("add", "{window_dimensions = array<i64: 1, 3>, padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>} "
                 f": ({X}, tensor<F>) -> {X}"),
        [X], lambda x: [window_sum(x)], small=True),
    "reduce_window-scan": Case(
        number(0.5, "i", "tensor<F>") + '%r0 = "stablehlo.reduce_window"(%x, %i) '
        + region("maximum", "{window_dimensions = array<i64: 1, 7>, padding = dense<[[0, 0], [6, 0]]> : tensor<2x2xi64>} "
                 f": ({X}, tensor<F>) -> {X}"),
        [X], lambda x: [cumulative(x)]),
    "reduce_window-sum-scan": Case(
        number(1.0, "i", "tensor<F>") + '%r0 = "stablehlo.reduce_window"(%x, %i) '
        + region("multiply", "{window_dimensions = array<i64: 1, 7>, padding = dense<[[0, 0], [6, 0]]> : tensor<2x2xi64>} "
                 f": ({X}, tensor<F>) -> {X}"),
        [X], lambda x: [np.cumprod(x, 1)], small=True),
    "select_and_scatter": Case(
        number(3.0, "u", "tensor<5x3xF>") + number(1.0, "i", "tensor<F>") + '%r0 = "stablehlo.select_and_scatter"(%x, %u, %i) ({\n'
        "^bb0(%a: tensor<F>, %b: tensor<F>):\n%s = stablehlo.compare GE, %a, %b : (tensor<F>, tensor<F>) -> tensor<i1>\n"
        "stablehlo.return %s : tensor<i1>\n}, {\n^bb0(%a: tensor<F>, %b: tensor<F>):\n%s = stablehlo.add %a, %b : tensor<F>\n"
        "stablehlo.return %s : tensor<F>\n}) {window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>} "
        f": ({X}, tensor<5x3xF>, tensor<F>) -> {X}",
        [X], lambda x: [pooled(x)], small=True),
    "dot_general": Case(
        number(2.0, "k", "tensor<7x4xF>")
        + f"%r0 = stablehlo.dot_general %x, %k, contracting_dims = [1] x [0] : ({X}, tensor<7x4xF>) -> tensor<5x4xF>\n"
        "%c = stablehlo.constant dense<[[1.0], [2.0], [-1.0], [0.0], [1.0], [-2.0], [3.0]]> : tensor<7x1xF>\n"
        f"%r1 = stablehlo.dot_general %x, %c, contracting_dims = [1] x [0] : ({X}, tensor<7x1xF>) -> tensor<5x1xF>",
        ["tensor<5x4xF>", "tensor<5x1xF>"],
        lambda x: [x @ np.full((7, 4), 2.0), x @ np.array([[1.0], [2.0], [-1.0], [0.0], [1.0], [-2.0], [3.0]])], small=True),
    "convolution": Case(
        number(2.0, "k", "tensor<2x1x1xF>") + f"%s = stablehlo.reshape %x : ({X}) -> tensor<5x7x1xF>\n"
        "%t = stablehlo.convolution(%s, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[0, 1]]} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<5x7x1xF>, tensor<2x1x1xF>) -> tensor<5x7x1xF>\n"
        f"%r0 = stablehlo.reshape %t : (tensor<5x7x1xF>) -> {X}",
        [X], lambda x: [2 * (x + np.pad(x, ((0, 0), (0, 1)))[:, 1:])], small=True),
    "while": Case(
        operands() + "%zero = stablehlo.constant dense<0> : tensor<i32>\n"
        f"%w:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, {X}\ncond {{\n%n = stablehlo.constant dense<3> : tensor<i32>\n"
        "%p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\nstablehlo.return %p : tensor<i1>\n} do {\n"
        f"%half = stablehlo.constant dense<-0.5> : {X}\n%one = stablehlo.constant dense<1> : tensor<i32>\n"
        f"%j = stablehlo.add %i, %one : tensor<i32>\n%u = stablehlo.multiply %v, %half : {X}\nstablehlo.return %j, %u : tensor<i32>, {X}\n}}\n"
        f"%z = stablehlo.constant dense<0.0> : {X}\n%r0 = stablehlo.add %w#1, %z : {X}",
        [X], lambda x: [("loop", x)]),
    "case": Case(
        operands() + f'%r0 = "stablehlo.case"(%y) ({{\nstablehlo.return %splat : {X}\n}}, {{\n%s = stablehlo.add %x, %spread : {X}\n'
        f"stablehlo.return %s : {X}\n}}) : (tensor<i32>) -> {X}",
        [X], lambda x, y: [x + 0.5], (X, "tensor<i32>")),
    "map": Case(
        '%r0 = "stablehlo.map"(%x) ({\n^bb0(%a: tensor<F>):\n%k = stablehlo.constant dense<-3.0> : tensor<F>\n'
        f"%s = stablehlo.multiply %a, %k : tensor<F>\nstablehlo.return %s : tensor<F>\n}}) {{dimensions = array<i64: 0, 1>}} : ({X}) -> {X}",
        [X], lambda x: [x * -3]),
    "custom_call": Case(
        operands() + f"%r0 = stablehlo.custom_call @matrix.mix(%x, %splat) : ({X}, {X}) -> {X}\n"
        f"%r1 = stablehlo.custom_call @matrix.mix(%splat, %other) : ({X}, {X}) -> {X}",
        [X, X], lambda x: [x * 2 + 3, np.full(x.shape, -7.5)]),
    "optimization_barrier": Case(
        operands() + f"%b:2 = stablehlo.optimization_barrier %x, %splat : {X}, {X}\n%r0 = stablehlo.add %b#0, %b#1 : {X}",
        [X], lambda x: [x - 3]),
    "batch_norm_inference": Case(
        number(1.0, "scale", "tensor<7xF>") + number(1.0, "offset", "tensor<7xF>") + number(0.5, "mean", "tensor<7xF>")
        + number(0.25, "variance", "tensor<7xF>")
        + '%r0 = "stablehlo.batch_norm_inference"(%x, %scale, %offset, %mean, %variance) '
        f"{{epsilon = 0.0 : f32, feature_index = 1 : i64}} : ({X}, tensor<7xF>, tensor<7xF>, tensor<7xF>, tensor<7xF>) -> {X}",
        [X], lambda x: [batch_normalized(x)], small=True),
    "bitcast_convert": Case(
        operands() + f"%s = stablehlo.add %x, %splat : {X}\n%b = stablehlo.bitcast_convert %s : ({X}) -> tensor<5x7xui8>\n"
        f"%r0 = stablehlo.bitcast_convert %b : (tensor<5x7xui8>) -> {X}\n"
        f"%c = stablehlo.bitcast_convert %rows : ({X}) -> tensor<5x7xui8>\n%r1 = stablehlo.bitcast_convert %c : (tensor<5x7xui8>) -> {X}",
        [X, X], lambda x: [x - 3, np.broadcast_to(np.array(LIST), x.shape)], formats=("codec",)),
}  # fmt: skip


def argument(type: str, numbers: Numbers, small: bool, random: np.random.Generator) -> tuple[Any, Array]:
    """An argument of a type and its numbers as f64."""
    *extents, element = type.removeprefix("tensor<").removesuffix(">").split("x")
    shape = tuple(map(int, extents))
    if element != "F":
        values = np.asarray(random.integers(-9, 9, shape) if shape != () and len(shape) == 1 and shape[0] == 9 else 1)
        if shape == (4,):
            values = np.array([6, 0, 3, 2])
        return values.astype({"i8": "i1", "i32": "i4", "f32": "f4"}[element]), values.astype("f8")
    if small:
        wanted = random.integers(-1, 2, shape).astype("f8")
        encoded = hlojit.Array.from_values(wanted, numbers.row)
        return encoded, wanted
    codes = random.integers(0, 1 << numbers.row.bits, shape).astype("u1")
    values = numbers.values(codes)
    codes[np.isnan(values)] = 1
    return hlojit.Array(codes, numbers.row), numbers.values(codes)


def check(ours: Any, expected: Any, type: str, numbers: Numbers, slack: float) -> None:
    if isinstance(expected, tuple):
        kind, values = expected
        if kind == "loop":
            for _ in range(3):
                values = numbers.all_rounded(values * -0.5)
        expected = numbers.all_rounded(values)
    if not type.endswith("F>"):
        np.testing.assert_array_equal(np.asarray(ours).astype("f8"), np.asarray(expected).astype("f8"))
        return
    codes = ours.storage
    assert codes.dtype == np.uint8 and codes.max() < 1 << numbers.row.bits
    found, exact = numbers.values(codes), np.asarray(expected, "f8")
    room = np.where(np.isfinite(exact), np.abs(exact) * slack, 0.0)
    low, high = numbers.all_rounded(exact - room), numbers.all_rounded(exact + room)
    fine = (found >= np.minimum(low, high)) & (found <= np.maximum(low, high)) | (np.isnan(found) & np.isnan(exact))
    if not fine.all():
        np.testing.assert_array_equal(found, low)
        raise AssertionError("between")


@pytest.fixture(scope="module", autouse=True)
def formats() -> Any:
    with ext.using(PLUGIN):
        yield


RUNS = [(name, kind, back) for name, case in CASES.items() for kind in case.formats for back in case.backends]


@pytest.mark.parametrize(("name", "kind", "backend"), RUNS, ids=["-".join(run) for run in RUNS])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_op_with_constants(name: str, kind: str, backend: str) -> None:
    case, numbers = CASES[name], FORMATS[kind]
    random = np.random.default_rng(7)
    made = [argument(type, numbers, case.small, random) for type in case.arguments]
    executable = hlojit.compile(case.text(numbers.row.name), backend=backend)
    results = executable(*(encoded for encoded, _ in made))
    expected = case.oracle(*(values for _, values in made))
    if not isinstance(expected, list):
        expected = [expected]
    for ours, theirs, type in zip(results if len(expected) > 1 else (results,), expected, case.results, strict=True):
        check(ours, theirs, type, numbers, case.slack)
