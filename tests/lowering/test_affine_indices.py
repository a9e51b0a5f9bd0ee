"""Indices that a counter moves evenly: which are found, and that loops in two versions compute what one does, at every edge."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.cpu.backend import ENTRY
from hlojit.extensions.registration.registry import registry
from hlojit.ir import evaluate
from hlojit.llvm.loop_function import emit_program
from hlojit.lowering.affine_indices import LARGEST, AffineLoop, affine_loop
from hlojit.lowering.machine import GENERIC

# Sums elements of x by an index, and writes where it read; %w and %m do not change.
LOOP = """func.func @main(%x: tensor<{size}xi64>, %n: tensor<{type}>, %w: tensor<{type}>, %m: tensor<{type}>, %first: tensor<{type}>)
    -> (tensor<{size}xi64>, tensor<i64>, tensor<{type}>) {{
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %r:4 = stablehlo.while(%i = %first, %y = %x, %s = %zero, %kept = %m)
      : tensor<{type}>, tensor<{size}xi64>, tensor<i64>, tensor<{type}>
   cond {{
    %big = stablehlo.constant dense<100000> : tensor<i64>
    %a = stablehlo.compare {compare} : (tensor<{type}>, tensor<{type}>) -> tensor<i1>
    %b = stablehlo.compare LT, %s, %big : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %p = stablehlo.{join} %a, %b : tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %by = stablehlo.constant dense<{by}> : tensor<{type}>
    %j = stablehlo.add %i, %by : tensor<{type}>
    %c = stablehlo.constant dense<{constant}> : tensor<{type}>
{index}
    %e = stablehlo.dynamic_slice %y, %k, sizes = [{part}] : (tensor<{size}xi64>, tensor<{type}>) -> tensor<{part}xi64>
    %g = stablehlo.slice %e [0:1] : (tensor<{part}xi64>) -> tensor<1xi64>
    %v = stablehlo.reshape %g : (tensor<1xi64>) -> tensor<i64>
    %t = stablehlo.add %s, %v : tensor<i64>
    %f = stablehlo.add %e, %e : tensor<{part}xi64>
    %u = stablehlo.dynamic_update_slice %y, %f, %k : (tensor<{size}xi64>, tensor<{part}xi64>, tensor<{type}>) -> tensor<{size}xi64>
    stablehlo.return %j, %u, %t, %kept : tensor<{type}>, tensor<{size}xi64>, tensor<i64>, tensor<{type}>
  }}
  return %r#1, %r#2, %r#0 : tensor<{size}xi64>, tensor<i64>, tensor<{type}>
}}"""
PLAIN = {
    "type": "i64", "size": 9, "part": 1, "by": 1, "constant": 8, "compare": "LT, %i, %n", "join": "and",
    "index": ("    %k = stablehlo.subtract %c, %i : tensor<i64>",),
}  # fmt: skip
FROM_THE_END = (
    "    %z = stablehlo.constant dense<0> : tensor<{type}>",
    "    %q = stablehlo.subtract %i, %w : tensor<{type}>",
    "    %less = stablehlo.compare LT, %q, %z : (tensor<{type}>, tensor<{type}>) -> tensor<i1>",
    "    %other = stablehlo.add %q, %c : tensor<{type}>",
    "    %k = stablehlo.select %less, %other, %q : tensor<i1>, tensor<{type}>",
)


def text_of(**changes: Any) -> str:
    values = PLAIN | changes
    index = "\n".join(values["index"]).format(type=values["type"])
    return LOOP.format(**(values | {"index": index.replace("tensor<i64>", f"tensor<{values['type']}>")}))


def found(text: str, *, lowered: bool) -> AffineLoop[Any] | None:
    module = hlojit.lower(text).freeze() if lowered else hlojit.parse(text)
    (loop,) = [each for each in module.walk() if each.op.host_role == "loop"]
    return affine_loop(loop)


def lines(*names: str) -> tuple[str, ...]:
    """``"k = add c i"`` and the like as text."""
    made = []
    for each in names:
        result, _, operation, *operands = each.split()
        made.append(f"    %{result} = stablehlo.{operation} {', '.join(f'%{one}' for one in operands)} : tensor<i64>")
    return tuple(made)


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize(
    ("changes", "high"),
    [
        ({}, 8),
        ({"part": 3}, 6),
        ({"type": "i32"}, 8),
        ({"compare": "LE, %i, %n"}, 8),
        ({"compare": "GT, %n, %i"}, 8),
        ({"compare": "LT, %i, %kept"}, 8),
        ({"index": lines("q = add i w", "k = subtract c q")}, 8),
        ({"index": lines("q = multiply i m", "k = add w q")}, 8),
        ({"index": lines("q = multiply i kept", "k = add w q")}, 8),
        ({"index": FROM_THE_END, "constant": 9}, 8),
        ({"by": LARGEST}, None),
        ({"by": -1}, None),
        ({"by": -1, "compare": "GE, %i, %n"}, 8),
        ({"by": -2, "compare": "LT, %n, %i"}, 8),
        ({"by": 2, "compare": "GE, %i, %n"}, None),
        ({"by": -LARGEST, "compare": "GE, %i, %n"}, None),
        ({"by": 0}, None),
        ({"type": "ui32"}, None),
        ({"type": "i16"}, None),
        ({"join": "or"}, None),
        ({"compare": "NE, %i, %n"}, None),
        ({"index": lines("k = multiply i i")}, None),
        ({"index": lines("q = multiply i w", "k = multiply q m")}, None),
        ({"index": lines("q = add i s", "k = subtract c q")}, None),
        ({"index": lines("k = divide i m")}, None),
    ],
)
def test_what_is_found(changes: dict[str, Any], high: int | None, *, lowered: bool) -> None:
    affine = found(text_of(**changes), lowered=lowered)
    if high is None:
        assert affine is None
    else:
        assert affine is not None
        assert {index.high for index in affine.indices} == {high}


LIMITS = {"i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1)}


@pytest.mark.parametrize("kind", ["i32", "i64"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"part": 3, "by": 2},
        {"compare": "LE, %i, %n", "by": 3},
        {"index": lines("q = add i w", "k = subtract c q")},
        {"index": lines("q = multiply i m", "k = add w q")},
        {"index": lines("q = multiply i m", "p = subtract w q", "k = add p c"), "part": 2},
        {"index": FROM_THE_END, "constant": 9},
        {"by": LARGEST // 2},
        {"by": -1, "compare": "GE, %i, %n"},
        {"by": -2, "compare": "GT, %i, %n", "index": lines("q = multiply i m", "k = add w q")},
        {"by": -LARGEST // 2, "compare": "GE, %i, %n"},
    ],
)
def test_clamps_as_the_interpreter(changes: dict[str, Any], kind: str) -> None:
    """Indices inside in all rounds, outside in the first, in the last or in all, and integers at which sums wrap around."""
    module = hlojit.parse(text_of(**changes, type=kind))
    compiled = hlojit.compile(text_of(**changes, type=kind))
    dtype, (least, most) = np.dtype(kind.replace("i", "int")), LIMITS[kind]
    x = np.arange(1, 10)
    limits, firsts = [0, 1, 5, 9, 12], [0, 3, -2, -9]
    if changes.get("by", 1) < 0:
        limits, firsts = firsts, limits
    kept = [
        (0, 1),
        (3, 1),
        (2, -1),
        (-4, 2),
        (11, -3),
        (most, 1),
        (least, -1),
        (LARGEST, LARGEST),
        (5, most),
        (1, least),
    ]
    for n, first, (w, m) in itertools.product(limits, firsts, kept):
        arguments = [x, *(np.array(each, dtype) for each in (n, w, m, first))]
        for one, other in zip(compiled(*arguments), evaluate(module, *arguments), strict=True):
            np.testing.assert_array_equal(one, other)
    # Few rounds at the ends of the integers: what follows the last round wraps around, or comes close to it.
    for n, first in (
        (most, most - 2),
        (most - 1, most - 3),
        (least + 3, least),
        (LARGEST, LARGEST - 2),
        (-LARGEST + 2, -LARGEST),
    ):
        # From -1 - n downwards, if so.
        ends = (-1 - n, -1 - first) if changes.get("by", 1) < 0 else (n, first)
        arguments = [x, *(np.array(each, dtype) for each in (ends[0], 3, 1, ends[1]))]
        for one, other in zip(compiled(*arguments), evaluate(module, *arguments), strict=True):
            np.testing.assert_array_equal(one, other)


def shifted(x: Any, shift: int, n: int) -> Any:
    for k in range(n):
        x[k] = x[k] + x[k - shift]
    return x


def backwards(x: Any, weight: int, n: int) -> Any:
    for k in range(n):
        x[-1 - k] = max(x[len(x) - 1 - k], x[n - 1 - k - weight] + 3)
    return x


def strided(x: Any, step: int, n: int) -> Any:
    total = 0.0
    for k in range(n):
        total += x[k * step]
        x[step + k * step] = total
    return x, total


def table(x: Any, shift: int, n: int) -> Any:
    rows = np.zeros((6, 6))
    for length in range(1, n):
        for i in range(0, n - length):
            j = i + length
            for k in range(i, j):
                rows[i, j] = max(rows[i, j], rows[i, k] + rows[k + shift, j] + x[k])
    return rows


@pytest.mark.parametrize("function", [shifted, backwards, strided, table])
def test_as_python(function: Callable[..., Any]) -> None:
    """One program for all shifts: some count from the end, some are out of bounds in some round."""
    jitted = hlojit.jit(function)
    for shift, n in itertools.product(range(-7, 8), range(7)):
        mine, other = np.arange(1.0, 7.0), np.arange(1.0, 7.0)
        arguments = np.int64(shift), np.int64(n)
        try:
            expected = function(other, *arguments)
        except IndexError:
            with pytest.raises(IndexError):
                jitted(mine, *arguments)
            continue
        found = jitted(mine, *arguments)
        for one, another in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, another)
        np.testing.assert_array_equal(mine, other)


def test_two_versions_are_made() -> None:
    """One is compiled with what is assumed of its indices; a loop without such indices comes once, and as before."""
    program = registry().backend("cpu").program(hlojit.lower(text_of()).freeze())
    _, (loop,) = emit_program(program, ENTRY, GENERIC)
    assert loop.pipeline == "versions"
    inside, _, unknown = loop.ir.partition("\nunknown")
    assert "llvm.assume" in inside.partition("\ninside")[2]
    assert "call void @llvm.assume" not in unknown
    other = registry().backend("cpu").program(hlojit.lower(text_of(by=-1)).freeze())
    assert [each.pipeline for each in emit_program(other, ENTRY, GENERIC)[1]] == ["loops"]
