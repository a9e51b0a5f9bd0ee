"""What a vendor's record says of its op is believed as what hlojit's own say: cost, combiners, ranges, broadcasts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.ops.definition import Cost, Indexed, OpDefinition, Operand, Pointwise, Trait
from hlojit.ir.ops.pointwise import like_operands
from hlojit.ir.passes.graph_facts import splat_of

ANY_ORDER = frozenset({Trait.COMMUTATIVE, Trait.ASSOCIATIVE})


@pytest.fixture(autouse=True)
def _unchanged() -> Iterator[None]:
    before = set(ext.registry().load().records)
    yield
    for name in set(ext.registry().records) - before:
        ext.unregister(name)


def registered(*records: OpDefinition) -> None:
    ext.register(SimpleNamespace(__name__="test", hlojit_ops=ext.hookimpl(lambda: list(records))))


def unary(name: str, **fields: Any) -> OpDefinition:
    return OpDefinition(
        f"test.{name}", operands=(Operand("operand"),), infer=like_operands, syntax="pretty-same-type", **fields
    )


def launches(text: str) -> list[Any]:
    found: list[Any] = hlojit.compile(text).spec.program.launches()
    return found


# combiners


def joined(**fields: Any) -> OpDefinition:
    """(1 + x)(1 + y) - 1 on integers: commutative and associative, with 0 as its identity."""
    return OpDefinition(
        "test.join",
        operands=(Operand("lhs"), Operand("rhs")),
        infer=like_operands,
        reference=lambda call, x, y: x + y + x * y,
        lowering=Pointwise(lambda b, call, x, y: b.add(b.add(x, y), b.mul(x, y))),
        **fields,
    )


JOIN = """
func.func @main(%x: tensor<70x1000xi32>, %init: tensor<i32>) -> tensor<70xi32> {
  %0 = "stablehlo.reduce"(%x, %init) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %1 = "test.join"(%a, %b) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    stablehlo.return %1 : tensor<i32>
  }) {dimensions = array<i64: 1>} : (tensor<70x1000xi32>, tensor<i32>) -> tensor<70xi32>
  return %0 : tensor<70xi32>
}
"""


@pytest.mark.parametrize(
    ("fields", "recognized"),
    [
        ({"traits": ANY_ORDER, "identity": lambda element: 0}, True),
        ({"traits": ANY_ORDER}, False),
        ({"identity": lambda element: 0}, False),
        ({"traits": ANY_ORDER | {Trait.IDEMPOTENT}}, True),
    ],
)
def test_a_combiner_is_recognized_by_its_fields(fields: dict[str, Any], recognized: bool) -> None:
    registered(joined(**fields))
    (reduction, _) = hlojit.parse(JOIN).main.body
    assert (combiner_of(reduction.regions[0]) is not None) == recognized


def test_a_recognized_combiner_is_taken_apart_into_lanes_and_gives_the_same_numbers() -> None:
    x = np.random.default_rng(1).integers(-9, 9, (70, 1000)).astype("i4")
    init = np.int32(5)
    expected = np.array([reduce(lambda a, b: (a + b + a * b) & 0xFFFFFFFF, [5, *row.tolist()]) for row in x])
    results, vectors = [], []
    for fields in ({}, {"traits": ANY_ORDER, "identity": lambda element: 0}):
        registered(joined(**fields))
        executable = hlojit.compile(JOIN)
        results.append(executable(x, init))
        vectors.append("mul <" in executable.spec.program.launches()[0].kernel.ir)
        ext.unregister("test")
    for result in results:
        np.testing.assert_array_equal(result.astype("u4"), expected.astype("u4"))
    assert vectors[1], "the order is free: several elements of a row at a time"


ARGMAX = """
func.func @main(%x: tensor<70x40xf32>, %i: tensor<70x40xi32>, %low: tensor<f32>, %none: tensor<i32>) -> tensor<70xi32> {
  %0:2 = "stablehlo.reduce"(%x, %i, %low, %none) ({
  ^bb0(%a: tensor<f32>, %ai: tensor<i32>, %b: tensor<f32>, %bi: tensor<i32>):
    %1 = stablehlo.compare GT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %2 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %3 = stablehlo.or %1, %2 : tensor<i1>
    %4 = stablehlo.compare EQ, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %5 = stablehlo.compare LT, %ai, %bi, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %6 = stablehlo.and %4, %5 : tensor<i1>
    %7 = stablehlo.or %3, %6 : tensor<i1>
    %8 = "test.pick"(%3, %a, %b) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
    %9 = "test.pick"(%7, %ai, %bi) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
    stablehlo.return %8, %9 : tensor<f32>, tensor<i32>
  }) {dimensions = array<i64: 1>} : (tensor<70x40xf32>, tensor<70x40xi32>, tensor<f32>, tensor<i32>) -> (tensor<70xf32>, tensor<70xi32>)
  return %0#1 : tensor<70xi32>
}
"""


@pytest.mark.parametrize("traits", [frozenset({Trait.SELECTION}), frozenset()])
def test_an_extremum_with_index_is_recognized_by_its_ops_traits(traits: frozenset[Trait]) -> None:
    pick = OpDefinition(
        "test.pick",
        operands=(Operand("pred"), Operand("on_true"), Operand("on_false")),
        reference=lambda call, pred, x, y: np.where(pred, x, y),
        lowering=Pointwise(lambda b, call, pred, x, y: b.select(pred, x, y), exact=True),
        traits=traits,
    )
    registered(pick)
    (reduction, _) = hlojit.parse(ARGMAX).main.body
    assert (combiner_of(reduction.regions[0]) is not None) == bool(traits)
    x = np.random.default_rng(4).integers(-9, 9, (70, 40)).astype("f4")
    found = hlojit.compile(ARGMAX)(x, np.tile(np.arange(40, dtype="i4"), (70, 1)), np.float32(-np.inf), np.int32(0))
    np.testing.assert_array_equal(found, x.argmax(1))


# cost

TWICE = """
func.func @main(%x: tensor<512x640xf32>) -> (tensor<512xf32>, tensor<640xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = test.half %x : tensor<512x640xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<512x640xf32>, tensor<f32>) -> tensor<512xf32>
  %2 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<512x640xf32>, tensor<f32>) -> tensor<640xf32>
  return %1, %2 : tensor<512xf32>, tensor<640xf32>
}
"""


@pytest.mark.parametrize(("cost", "kept"), [(Cost.CHEAP, 0), (Cost.EXPENSIVE, 1), (None, 1)])
def test_a_cheap_op_is_computed_again_and_an_expensive_one_is_kept(cost: Cost | None, kept: int) -> None:
    half = Pointwise(lambda b, call, x: b.fmul(x, b.constant(x.kind, 0.5)))
    registered(unary("half", reference=lambda call, x: x * np.float32(0.5), lowering=half, cost=cost))
    executable = hlojit.compile(TWICE)
    large = [each for each in executable.spec.program.temporaries if each.nbytes >= 4 * 512 * 640]
    assert len(large) == kept, "values in memory that both reductions read"
    x = np.random.default_rng(2).integers(-8, 8, (512, 640)).astype("f4")
    rows, columns = executable(x)
    np.testing.assert_array_equal(rows, (x / 2).sum(1))
    np.testing.assert_array_equal(columns, (x / 2).sum(0))


# ranges


def test_a_range_decides_a_comparison() -> None:
    low_bits = Pointwise(lambda b, call, x: b.and_(x, b.constant(x.kind, 7)))
    fields = {"reference": lambda call, x: x & 7, "lowering": low_bits}
    text = """
    func.func @main(%x: tensor<8xi32>) -> tensor<8xi1> {
      %eight = stablehlo.constant dense<8> : tensor<8xi32>
      %0 = test.low %x : tensor<8xi32>
      %1 = stablehlo.compare LT, %0, %eight : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
      return %1 : tensor<8xi1>
    }
    """
    for value_range, decided in ((None, False), (lambda instruction, range_of: (0, 7), True)):
        registered(unary("low", value_range=value_range, **fields))
        module = hlojit.parse(text)
        simplified(module)
        assert (splat_of(module.main.body.returned[0]) is not None) == decided
        ext.unregister("test")


def simplified(module: Any) -> None:
    from hlojit.ir.passes.algebraic_simplifier import AlgebraicSimplifier

    AlgebraicSimplifier().run(module)


# broadcasts

CENTERED = """
func.func @main(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x256xf32>, tensor<f32>) -> tensor<64xf32>
  %1 = "test.rows"(%0) : (tensor<64xf32>) -> tensor<64x256xf32>
  %2 = stablehlo.subtract %x, %1 : tensor<64x256xf32>
  return %2 : tensor<64x256xf32>
}
"""


@pytest.mark.parametrize(("broadcasts", "kernels"), [(lambda instruction: (0,), 1), (None, 2)])
def test_a_row_kernel_reads_its_reduction_through_a_vendors_broadcast(broadcasts: Any, kernels: int) -> None:
    rows = OpDefinition(
        "test.rows",
        operands=(Operand("operand"),),
        reference=lambda call, x: np.broadcast_to(x[:, None], (64, 256)),
        lowering=Indexed(lambda emitter, instruction, index: emitter.operand(0, index[:1]), broadcasts=broadcasts),
    )
    registered(rows)
    assert len(launches(CENTERED)) == kernels
    x = np.random.default_rng(3).integers(-8, 8, (64, 256)).astype("f4")
    np.testing.assert_array_equal(hlojit.compile(CENTERED)(x), x - x.sum(1, keepdims=True))
