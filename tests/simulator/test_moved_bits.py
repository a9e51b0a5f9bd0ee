"""Elements that are only moved keep their bits, NaN payloads and all, in every float format and on every back end.

The oracle is NumPy on the codes: integers of the format's width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import ml_dtypes
import numpy as np
import pytest

Array = np.ndarray[Any, Any]
SEEN: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3": ml_dtypes.float8_e4m3,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "f8E3M4": ml_dtypes.float8_e3m4,
    "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
}
"""NumPy's types of StableHLO's floats."""


def decoded(code: int) -> float:
    """A format of a plugin: half of its codes are one number or another NaN."""
    return float(code & 15) if code < 200 else float("nan")


def encoded(number: float) -> int:
    return int(number) & 15 if number == number else 255


ACME = [
    ext.FloatFormat("acme_rows", exponent_bits=4, mantissa_bits=2, bias=7, nan=ext.NanEncoding.IEEE, has_infinity=True),
    ext.FloatFormat("acme_codes", exponent_bits=4, mantissa_bits=3, bias=7, decode=decoded, encode=encoded),
]


@dataclass(frozen=True)
class Move:
    """``lines`` of a program over x, y: tensor<8x32xT>, p: tensor<8x32xi1>, i: tensor<i32>; ``moved`` is NumPy's for it."""

    result: str
    lines: str
    moved: Callable[[Array, Array, Array, int], Array]


def swapped(x: Array, y: Array, p: Array, times: int) -> Array:
    return y if times % 2 else x


def by_rows(x: Array, y: Array, p: Array, i: int) -> Array:
    """The element of each row at its last true predicate, or the first of y."""
    return np.array([line[chosen.nonzero()[0][-1]] if chosen.any() else y[0, 0] for line, chosen in zip(x, p)])


MOVES = {
    "select": Move("8x32xT", "%r = stablehlo.select %p, %x, %y : tensor<8x32xi1>, tensor<8x32xT>",
                   lambda x, y, p, i: np.where(p, x, y)),
    "selects": Move("8x32xT", """
        %s = stablehlo.select %p, %x, %y : tensor<8x32xi1>, tensor<8x32xT>
        %t = stablehlo.reverse %s, dims = [0] : tensor<8x32xT>
        %r = stablehlo.select %p, %t, %s : tensor<8x32xi1>, tensor<8x32xT>""",
                   lambda x, y, p, i: np.where(p, np.where(p, x, y)[::-1], np.where(p, x, y))),
    "select_scalar": Move("8x32xT", """
        %0 = stablehlo.slice %p [0:1, 0:1] : (tensor<8x32xi1>) -> tensor<1x1xi1>
        %1 = stablehlo.reshape %0 : (tensor<1x1xi1>) -> tensor<i1>
        %r = stablehlo.select %1, %x, %y : tensor<i1>, tensor<8x32xT>""",
                   lambda x, y, p, i: x if p[0, 0] else y),
    "broadcast": Move("8x32x3xT",
                      "%r = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<8x32xT>) -> tensor<8x32x3xT>",
                      lambda x, y, p, i: np.broadcast_to(x[:, :, None], (8, 32, 3))),
    "reverse": Move("8x32xT", "%r = stablehlo.reverse %x, dims = [0, 1] : tensor<8x32xT>", lambda x, y, p, i: x[::-1, ::-1]),
    "transpose": Move("32x8xT", "%r = stablehlo.transpose %x, dims = [1, 0] : (tensor<8x32xT>) -> tensor<32x8xT>",
                      lambda x, y, p, i: x.T),
    "slice": Move("4x11xT", "%r = stablehlo.slice %x [0:8:2, 0:31:3] : (tensor<8x32xT>) -> tensor<4x11xT>",
                  lambda x, y, p, i: x[::2, 0:31:3]),
    "concatenate": Move("16x32xT",
                        "%r = stablehlo.concatenate %x, %y, dim = 0 : (tensor<8x32xT>, tensor<8x32xT>) -> tensor<16x32xT>",
                        lambda x, y, p, i: np.concatenate([x, y])),
    "concatenate_lines": Move("8x64xT", """
        %0 = stablehlo.select %p, %x, %y : tensor<8x32xi1>, tensor<8x32xT>
        %r = stablehlo.concatenate %x, %0, dim = 1 : (tensor<8x32xT>, tensor<8x32xT>) -> tensor<8x64xT>""",
                              lambda x, y, p, i: np.concatenate([x, np.where(p, x, y)], 1)),
    "pad": Move("10x67xT", """
        %0 = stablehlo.slice %y [0:1, 0:1] : (tensor<8x32xT>) -> tensor<1x1xT>
        %1 = stablehlo.reshape %0 : (tensor<1x1xT>) -> tensor<T>
        %r = stablehlo.pad %x, %1, low = [1, 2], high = [1, 2], interior = [0, 1]
            : (tensor<8x32xT>, tensor<T>) -> tensor<10x67xT>""",
                lambda x, y, p, i: padded(x, y)),
    "gather": Move("3x32xT", """
        %0 = stablehlo.constant dense<[[5], [0], [7]]> : tensor<3x1xi32>
        %1 = stablehlo.broadcast_in_dim %i, dims = [] : (tensor<i32>) -> tensor<3x1xi32>
        %2 = stablehlo.subtract %0, %1 : tensor<3x1xi32>
        %r = "stablehlo.gather"(%x, %2) {dimension_numbers = #stablehlo.gather<offset_dims = [1],
            collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 32>}
            : (tensor<8x32xT>, tensor<3x1xi32>) -> tensor<3x32xT>""",
                   lambda x, y, p, i: x[np.clip(np.array([5, 0, 7]) - i, 0, 7)]),
    "dynamic_slice": Move("3x32xT", """
        %0 = stablehlo.constant dense<0> : tensor<i32>
        %r = stablehlo.dynamic_slice %x, %i, %0, sizes = [3, 32]
            : (tensor<8x32xT>, tensor<i32>, tensor<i32>) -> tensor<3x32xT>""",
                          lambda x, y, p, i: x[i : i + 3]),
    "dynamic_update_slice": Move("8x32xT", """
        %0 = stablehlo.constant dense<0> : tensor<i32>
        %1 = stablehlo.slice %y [0:3, 0:32] : (tensor<8x32xT>) -> tensor<3x32xT>
        %r = stablehlo.dynamic_update_slice %x, %1, %i, %0
            : (tensor<8x32xT>, tensor<3x32xT>, tensor<i32>, tensor<i32>) -> tensor<8x32xT>""",
                                 lambda x, y, p, i: np.concatenate([x[:i], y[:3], x[i + 3 :]])),
    "sort": Move("8x32xT", """
        %0 = stablehlo.iota dim = 1 : tensor<8x32xi32>
        %k, %r = "stablehlo.sort"(%0, %x) ({
        ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<T>, %d: tensor<T>):
          %s = stablehlo.compare GT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %s : tensor<i1>
        }) {dimension = 1 : i64} : (tensor<8x32xi32>, tensor<8x32xT>) -> (tensor<8x32xi32>, tensor<8x32xT>)""",
                 lambda x, y, p, i: x[:, ::-1]),
    "while": Move("8x32xT", """
        %z = stablehlo.constant dense<0> : tensor<i32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %q:3 = stablehlo.while(%n = %z, %a = %x, %b = %y) : tensor<i32>, tensor<8x32xT>, tensor<8x32xT>
        cond {
          %s = stablehlo.compare LT, %n, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %s : tensor<i1>
        } do {
          %m = stablehlo.add %n, %one : tensor<i32>
          stablehlo.return %m, %b, %a : tensor<i32>, tensor<8x32xT>, tensor<8x32xT>
        }
        %r = stablehlo.reverse %q#1, dims = [1] : tensor<8x32xT>""",
                  lambda x, y, p, i: swapped(x, y, p, i)[:, ::-1]),
    "scatter": Move("8x32xT", """
        %0 = stablehlo.constant dense<[[5], [0], [6]]> : tensor<3x1xi32>
        %1 = stablehlo.slice %y [0:3, 0:32] : (tensor<8x32xT>) -> tensor<3x32xT>
        %r = "stablehlo.scatter"(%x, %0, %1) ({
        ^bb0(%a: tensor<T>, %b: tensor<T>):
          stablehlo.return %b : tensor<T>
        }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
            scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
            : (tensor<8x32xT>, tensor<3x1xi32>, tensor<3x32xT>) -> tensor<8x32xT>""",
                    lambda x, y, p, i: np.array([y[{5: 0, 0: 1, 6: 2}[n]] if n in (5, 0, 6) else x[n] for n in range(8)])),
    "reduce": Move("8xT", """
        %0 = stablehlo.slice %y [0:1, 0:1] : (tensor<8x32xT>) -> tensor<1x1xT>
        %1 = stablehlo.reshape %0 : (tensor<1x1xT>) -> tensor<T>
        %f = stablehlo.constant dense<false> : tensor<i1>
        %s, %r = stablehlo.reduce(%p init: %f), (%x init: %1) across dimensions = [1]
            : (tensor<8x32xi1>, tensor<8x32xT>, tensor<i1>, tensor<T>) -> (tensor<8xi1>, tensor<8xT>)
        reducer(%a: tensor<i1>, %c: tensor<i1>) (%b: tensor<T>, %d: tensor<T>) {
          %t = stablehlo.or %a, %c : tensor<i1>
          %u = stablehlo.select %c, %d, %b : tensor<i1>, tensor<T>
          stablehlo.return %t, %u : tensor<i1>, tensor<T>
        }""", by_rows),
    "reduce_columns": Move("32xT", """
        %0 = stablehlo.slice %y [0:1, 0:1] : (tensor<8x32xT>) -> tensor<1x1xT>
        %1 = stablehlo.reshape %0 : (tensor<1x1xT>) -> tensor<T>
        %f = stablehlo.constant dense<false> : tensor<i1>
        %s, %r = stablehlo.reduce(%p init: %f), (%x init: %1) across dimensions = [0]
            : (tensor<8x32xi1>, tensor<8x32xT>, tensor<i1>, tensor<T>) -> (tensor<32xi1>, tensor<32xT>)
        reducer(%a: tensor<i1>, %c: tensor<i1>) (%b: tensor<T>, %d: tensor<T>) {
          %t = stablehlo.or %a, %c : tensor<i1>
          %u = stablehlo.select %c, %d, %b : tensor<i1>, tensor<T>
          stablehlo.return %t, %u : tensor<i1>, tensor<T>
        }""", lambda x, y, p, i: by_rows(x.T, y, p.T, i)),
    "constant": Move("8x32xT", """
        %0 = stablehlo.constant dense<C> : tensor<T>
        %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<T>) -> tensor<8x32xT>
        %r = stablehlo.select %p, %1, %x : tensor<8x32xi1>, tensor<8x32xT>""",
                     lambda x, y, p, i: np.where(p, constant_code(x), x)),
}  # fmt: skip


def padded(x: Array, y: Array) -> Array:
    result = np.full((10, 67), y[0, 0], x.dtype)
    result[1:9, 2:65:2] = x
    return result


def constant_code(x: Array) -> int:
    """All bits of a code set but one: a NaN in most formats."""
    return (1 << int(x.max()).bit_length()) - 3


def codes(bits: int) -> Array:
    """All patterns of 8 bits; of more, every exponent with NaNs of many payloads, quiet and signalling."""
    if bits <= 8:
        return (np.arange(256) % (1 << bits)).astype("u1").reshape(8, 32)
    unsigned, random = np.dtype(f"u{bits // 8}"), np.random.default_rng(bits)
    anything = random.integers(0, 1 << bits, 256, dtype=unsigned)
    infinity = {"u2": 0x7F80, "u4": 0x7F800000, "u8": 0x7FF << 52}[unsigned.str[1:]]
    # Of bf16, f32 and f64; f16's NaNs are among the first, whose exponent ends in ones as well.
    anything[::2] |= unsigned.type(infinity)
    return anything.reshape(8, 32)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("name", [*SEEN, *(row.name for row in ACME)])
@pytest.mark.parametrize("move", MOVES)
def test_moved(move: str, name: str, backend: str) -> None:
    case = MOVES[move]
    plugin = SimpleNamespace(__name__="acme", hlojit_formats=ext.hookimpl(lambda: ACME))
    with ext.using(plugin):
        bits = next((row.bits for row in ACME if row.name == name), 0) or 8 * np.dtype(SEEN[name]).itemsize
        x = codes(bits)
        y = np.roll(x.reshape(-1)[::-1], 77).reshape(8, 32)
        p = np.random.default_rng(1).random((8, 32)) < 0.3
        constant = f"0x{constant_code(x):0{x.dtype.itemsize * 2}X}"
        text = f"""
        func.func @main(%x: tensor<8x32xT>, %y: tensor<8x32xT>, %p: tensor<8x32xi1>, %i: tensor<i32>) -> tensor<{case.result}> {{
          {case.lines.replace("dense<C>", f"dense<{constant}>")}
          return %r : tensor<{case.result}>
        }}""".replace("xT", f"x{name}").replace("<T>", f"<{name}>")
        arguments = [each.view(SEEN[name]) if name in SEEN else hlojit.Array(each, name) for each in (x, y)]
        result: Any = hlojit.compile(text, backend=backend)(*arguments, p, np.int32(3))
        expected = case.moved(x, y, p, 3)
        actual = np.asarray(result if name in SEEN else result.storage).view(x.dtype)
        np.testing.assert_array_equal(actual, expected)
