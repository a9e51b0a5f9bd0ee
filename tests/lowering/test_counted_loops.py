"""Which integers loops count, and between what: only what the condition, the beginning and the step together say."""

from __future__ import annotations

import dataclasses

import hlojit
import numpy as np
import pytest
from hlojit.ir import evaluate
from hlojit.ir.ops.definition import Trait
from hlojit.lowering.affine_indices import affine_loop
from hlojit.lowering.counted_loops import Counter, counters_of

LOOP = """func.func @main(%%n: tensor<{type}>, %%x: tensor<10xf32>) -> (tensor<{type}>, tensor<f32>) {{
  %%first = stablehlo.constant dense<{first}> : tensor<{type}>
  %%zero = stablehlo.constant dense<0.0> : tensor<f32>
  %%r:2 = stablehlo.while(%%i = {begin}, %%s = %%zero) : tensor<{type}>, tensor<f32>
   cond {{
    %%limit = stablehlo.constant dense<{limit}> : tensor<{type}>
    %%large = stablehlo.constant dense<100.0> : tensor<f32>
    %%a = stablehlo.compare {compare} : (tensor<{type}>, tensor<{type}>) -> tensor<i1>
    %%b = stablehlo.compare LT, %%s, %%large : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %%p = stablehlo.{join} %%a, %%b : tensor<i1>
    stablehlo.return %%p : tensor<i1>
  }} do {{
    %%by = stablehlo.constant dense<{by}> : tensor<{type}>
    %%j = stablehlo.{step} : tensor<{type}>
    %%e = stablehlo.dynamic_slice %%x, %%i, sizes = [1] : (tensor<10xf32>, tensor<{type}>) -> tensor<1xf32>
    %%v = stablehlo.reshape %%e : (tensor<1xf32>) -> tensor<f32>
    %%t = stablehlo.add %%s, %%v : tensor<f32>
    stablehlo.return %%j, %%t : tensor<{type}>, tensor<f32>
  }}
  return %%r#0, %%r#1 : tensor<{type}>, tensor<f32>
}}""".replace("%%", "%")
PLAIN = {
    "type": "i32",
    "first": "2",
    "begin": "%first",
    "limit": "9",
    "compare": "LT, %i, %limit",
    "join": "and",
    "by": "3",
    "step": "add %i, %by",
}


def found(text: str, *, lowered: bool) -> tuple[Counter, ...]:
    module = hlojit.lower(text).freeze() if lowered else hlojit.parse(text)
    (loop,) = [each for each in module.walk() if each.op.host_role == "loop"]
    return counters_of(loop)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (2, 8, 3)),
        ({"compare": "LE, %i, %limit"}, (2, 9, 3)),
        ({"compare": "GT, %limit, %i"}, (2, 8, 3)),
        ({"compare": "GE, %limit, %i"}, (2, 9, 3)),
        ({"step": "add %by, %i"}, (2, 8, 3)),
        ({"type": "ui8", "limit": "250"}, (2, 249, 3)),
        ({"first": "-4"}, (-4, 8, 3)),
        ({"first": "20"}, (20, 20, 3)),
        ({"compare": "LT, %i, %n"}, None),
        ({"compare": "GT, %i, %limit"}, None),
        ({"compare": "NE, %i, %limit"}, None),
        ({"join": "or"}, None),
        ({"begin": "%n"}, None),
        ({"by": "-1"}, None),
        ({"by": "0"}, None),
        ({"step": "subtract %i, %by"}, None),
        ({"step": "multiply %i, %by"}, None),
        ({"step": "add %by, %by"}, None),
        ({"limit": "2147483646"}, None),
        ({"type": "ui8", "limit": "254", "compare": "LE, %i, %limit"}, None),
        ({"type": "ui8", "limit": "253"}, (2, 252, 3)),
        ({"type": "ui8", "limit": "254"}, None),
    ],
)
def test_counters(changes: dict[str, str], expected: tuple[int, int, int] | None) -> None:
    text = LOOP.format(**{**PLAIN, **changes})
    wanted = () if expected is None else (Counter(0, *expected),)
    assert found(text, lowered=False) == wanted
    if expected != (20, 20, 3) and changes.get("by") != "0":
        # Fused, the same is found; or the counter was simplified.
        assert found(text, lowered=True) in (wanted, ())


def test_counters_are_found_in_fusions() -> None:
    assert found(LOOP.format(**PLAIN), lowered=True) == (Counter(0, 2, 8, 3),)


def test_rounds() -> None:
    assert [Counter(0, 2, high, 3).rounds for high in (1, 2, 4, 5, 8)] == [1, 1, 1, 2, 3]


@pytest.mark.parametrize(
    "changes", [{}, {"first": "-4"}, {"first": "20"}, {"limit": "40"}, {"type": "ui8", "limit": "250"}]
)
def test_indices_outside_are_clamped_as_before(changes: dict[str, str]) -> None:
    text = LOOP.format(**{**PLAIN, **changes})
    x, n = np.arange(10, dtype=np.float32), np.array(5, np.uint8 if "type" in changes else np.int32)
    for given, expected in zip(hlojit.compile(text)(n, x), evaluate(hlojit.parse(text), n, x)):
        np.testing.assert_array_equal(given, expected)


def test_what_plugins_say_of_their_ops_counts_for_nothing() -> None:
    """LLVM leaves out clamps for what is found here: a record that says it adds, or what its results are between, may be wrong."""
    module = hlojit.parse(LOOP.format(**PLAIN))
    (loop,) = [each for each in module.walk() if each.op.host_role == "loop"]
    assert counters_of(loop)
    for kind in (Trait.ADDS, Trait.COMPARISON, Trait.CONJUNCTION):
        marked = [each for each in module.walk() if kind in each.op.traits]
        own = [each.op for each in marked]
        for each in marked:
            each.op = dataclasses.replace(each.op)
        assert not counters_of(loop)
        assert affine_loop(loop) is None
        for each, record in zip(marked, own, strict=True):
            each.op = record
    assert counters_of(loop)
