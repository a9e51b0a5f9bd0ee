"""Every op that expands into others computes, expanded, what its own reference says."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hlojit.ir.attributes import FloatAttr
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Block, Module
from hlojit.ir.interpreter import evaluate
from hlojit.ir.ops.definition import Expand, ops
from hlojit.ir.types import tensor
from hlojit.ir.verifier import verify

from .calls import CALLS, Call, Constant, combiner

LT = {"comparison_direction": "LT"}
BROADCAST = ("2x1xf32", "3xf32")
INTEGERS = ("2x1xi32", "3xi32")


def binary(name: str, operands: Any, element: str, **attributes: Any) -> Call:
    return Call(f"chlo.broadcast_{name}", operands, (f"2x3x{element}",), attributes)


def reshaping_region() -> Any:
    block = Block([tensor((), "f32")])
    builder = Builder(block)
    builder.return_(builder.reshape(builder.reshape(block.arguments[0], (1,)), ()))
    return block


def running_difference() -> Any:
    block = Block([tensor((3,), "f32")] * 2)
    builder = Builder(block)
    left = builder.subtract(block.arguments[1], block.arguments[0])
    builder.return_(left, left)
    return block


DIVISORS = Constant([3, -2, 5], "3xi32")
EXPANSIONS: list[Call] = [
    *(binary(name, BROADCAST, "f32") for name in ("add", "atan2", "divide", "maximum", "minimum", "multiply")),
    *(binary(name, BROADCAST, "f32") for name in ("power", "remainder", "subtract", "next_after")),
    *(binary(name, INTEGERS, "i32") for name in ("and", "or", "xor", "shift_left")),
    *(binary(name, INTEGERS, "i32") for name in ("shift_right_arithmetic", "shift_right_logical")),
    binary("compare", BROADCAST, "i1", **LT),
    binary("complex", BROADCAST, "complex<f32>"),
    Call("chlo.broadcast_add", ("2xf32", "2x3xf32"), ("2x3xf32",), {"broadcast_dimensions": (0,)}),
    Call("chlo.broadcast_select", ("2x1xi1", "3xf32", "f32"), ("2x3xf32",)),
    Call("chlo.broadcast_polygamma", BROADCAST, ("2x3xf32",)),
    Call("chlo.broadcast_zeta", BROADCAST, ("2x3xf32",)),
    *(Call(f"chlo.{name}", ("9xf32",), ("9xf32",)) for name in ("conj", "square", "tan")),
    Call("chlo.conj", ("4xcomplex<f32>",), ("4xcomplex<f32>",)),
    *(Call(f"chlo.{name}", ("9xf32",), ("9xi1",)) for name in ("is_inf", "is_neg_inf", "is_pos_inf")),
    *(Call("chlo.next_after", (f"9x{e}",) * 2, (f"9x{e}",)) for e in ("f16", "bf16", "f32", "f64", "f8E5M2")),
    *(Call("chlo.mulhi", (f"9x{e}",) * 2, (f"9x{e}",)) for e in ("i8", "ui8", "i32", "ui32")),
    Call("chlo.constant_like", ("2x3xf32",), ("2x3xf32",), {"value": FloatAttr(1.5, "f32")}),
    Call("chlo.top_k", ("2x9xf32",), ("2x4xf32", "2x4xi32"), {"k": 4}),
    Call("chlo.top_k", ("9xi32",), ("0xi32", "0xi32"), {"k": 0}),
    *(
        Call(
            "chlo.scan", ("5x3xf32", "3xf32"), ("5x3xf32", "3xf32"), {"dimension": 0, **reverse}, (running_difference,)
        )
        for reverse in ({}, {"is_reverse": True})
    ),
    Call("dot", ("2x3xf32", "3x4xf32"), ("2x4xf32",)),
    Call("dot", ("3xf32", "3xf32"), ("f32",)),
    Call("einsum", ("2x3x4xf32", "4x2x5xf32"), ("5x2x3xf32",), {"einsum_config": "bij,jbk->kbi"}),
    Call("unary_einsum", ("2x3x4xf32",), ("4x2xf32",), {"einsum_config": "ijk->ki"}),
    Call("broadcast", ("3xf32",), ("2x4x3xf32",), {"broadcast_sizes": (2, 4)}),
    Call("torch_index_select", ("2x3x4xf32", "5xi32"), ("2x5x4xf32",), {"dim": 1, "batch_dims": 0}),
    Call("torch_index_select", ("2x3x4x5xf32", "2x6xi32"), ("2x3x6x5xf32",), {"dim": 2, "batch_dims": 1}),
    *(
        CALLS["rng_bit_generator"].but(at={0: state}, results=[state, result], rng_algorithm=algorithm)
        for algorithm, state in (
            ("THREE_FRY", "2xui64"),
            ("PHILOX", "2xui64"),
            ("PHILOX", "3xui64"),
            ("DEFAULT", "2xui64"),
        )
        for result in ("ui32", "3x5xui32", "4x3xui64", "5xui8", "7xi16")
    ),
    CALLS["map"],
    CALLS["map"].but(operands=["2x3xf32"] * 2, regions=[combiner()]),
    CALLS["batch_norm_inference"].but(epsilon=0.5),
    CALLS["batch_norm_training"].but(epsilon=0.5),
    CALLS["batch_norm_grad"].but(epsilon=0.5),
    CALLS["dynamic_broadcast_in_dim"].but(at={1: Constant([2, 4, 3], "3xi64")}, results=["2x4x3xf32"]),
    CALLS["dynamic_broadcast_in_dim"].but(at={1: Constant([2, 4, 3], "3xi64")}),
    CALLS["dynamic_reshape"].but(at={1: Constant([6], "1xi64")}),
    CALLS["dynamic_iota"].but(at={0: Constant([4, 2], "2xi64")}),
    CALLS["dynamic_pad"],
    CALLS["dynamic_gather"],
    CALLS["dynamic_conv"].but(at={2: Constant([[1, 2], [0, 1]], "2x2xi64")}),
    Call(
        "real_dynamic_slice",
        ("5x6xf32", Constant([1, 0], "2xi64"), Constant([4, 6], "2xi64"), Constant([1, 2], "2xi64")),
        ("?x?xf32",),
    ),
    Call("set_dimension_size", ("5x6xf32", Constant(6, "i32")), ("5x6xf32",), {"dimension": 1}),
    CALLS["select_and_scatter"],
    *(Call(f"arith.{name}", ("9xf32",) * 2, ("9xf32",)) for name in "addf subf mulf divf maximumf minimumf".split()),
    *(Call(f"arith.{name}", ("8xi32",) * 2, ("8xi32",)) for name in "addi subi muli andi ori xori".split()),
    *(Call(f"arith.{name}", ("8xi32",) * 2, ("8xi32",)) for name in "maxsi maxui minsi minui".split()),
    *(Call(f"arith.{name}", ("3xi32", DIVISORS), ("3xi32",)) for name in "divsi divui remsi remui".split()),
    *(Call("arith.cmpi", ("8xi32",) * 2, ("8xi1",), {"predicate": name}) for name in ("eq", "slt", "uge")),
    Call("arith.select", ("8xi1", "8xf32", "8xf32"), ("8xf32",)),
    Call("arith.extsi", ("8xi8",), ("8xi32",)),
    Call("arith.extui", ("8xi8",), ("8xi32",)),
    Call("arith.index_castui", ("8xi32",), ("8xi64",)),
    Call("arith.trunci", ("8xi32",), ("8xi8",)),
    Call("arith.index_cast", ("8xi32",), ("8xi64",)),
    Call("arith.sitofp", ("8xi32",), ("8xf32",)),
    Call("arith.fptosi", ("8xf32",), ("8xi32",)),
    Call("tensor.cast", ("8xf32",), ("8xf32",)),
    Call("hlojit.derivative_of", ("3xf32",) * 2, ("3xf32",) * 2, {"rule": "anything"}, (running_difference,)),
]


def expand(module: Module) -> Module:
    """Replace every instruction that expands, until none is left."""
    changed = True
    while changed:
        changed = False
        for instruction in tuple(module.main.body):
            if isinstance(instruction.op.lowering, Expand):
                values = instruction.op.lowering.rule(Builder.in_front_of(instruction), instruction)
                assert values is not None, f"{instruction.name} does not expand"
                instruction.replace_with(values)
                changed = True
    return module


def arguments_of(module: Module) -> list[Any]:
    rng = np.random.default_rng(11)
    arrays = []
    for type in module.main.type.inputs:
        values = rng.normal(size=type.shape) * 3  # type: ignore[attr-defined]
        if np.size(values) == 9:
            values = values.copy()
            values.flat[:5] = [0.0, -0.0, np.inf, -np.inf, np.nan]
        storage = type.element_type.storage  # type: ignore[attr-defined]
        if type.element_type.name == "ui64":  # type: ignore[attr-defined]
            values = rng.integers(2**64 - 3, 2**64, np.shape(values), dtype=np.uint64, endpoint=False)
        elif storage.kind in "iu":
            values = rng.integers(0, 5, np.shape(values)) - (2 if storage.kind == "i" else 0)
        arrays.append(np.asarray(values).astype(storage))
    return arrays


@pytest.mark.parametrize("call", EXPANSIONS, ids=[f"{number}-{call.op}" for number, call in enumerate(EXPANSIONS)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_expansion_computes_what_the_reference_says(call: Call) -> None:
    module = call.build()
    verify(module)
    arrays = arguments_of(module)
    polygamma = call.op in ("chlo.broadcast_polygamma", "chlo.broadcast_zeta")
    expanded = expand(call.build())
    verify(expanded)
    for got, want in zip(evaluate(expanded, *arrays), evaluate(module, *arrays), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        exact = got.dtype.kind in "iub" or polygamma
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(
            got.astype(wide), want.astype(wide), rtol=0 if exact else 2e-5, atol=0 if exact else 2e-5
        )


AMONG_PROCESSES = (
    "all_gather all_reduce all_to_all async_done async_start collective_broadcast collective_permute collective_reduce "
    "cross-replica-sum partition_id reduce_scatter replica_id infeed outfeed send recv"
).split()
"""Tested with processes and their hosts, in ``tests/collectives``."""


ELSEWHERE = {
    "chlo.ragged_dot",
    "stablehlo.fft",
    "stablehlo.rng",
    "builtin.unrealized_conversion_cast",
    "func.call_indirect",
    "hlojit.elided_constant",
}
"""Tested in other files: ``test_ragged_dot``, ``tests/cpu/test_fourier.py``, ``test_random_distribution``,
``tests/text/test_dialects.py``, ``test_functions_as_values``, ``tests/text/test_syntax.py``.
"""


def test_every_expansion_is_tested() -> None:
    tested = {call.op if "." in call.op else f"stablehlo.{call.op}" for call in EXPANSIONS} | {"stablehlo.composite"}
    tested |= {f"stablehlo.{name}" for name in AMONG_PROCESSES} | ELSEWHERE
    assert {record.name for record in ops() if isinstance(record.lowering, Expand)} <= tested


@pytest.mark.parametrize(
    "call",
    [
        CALLS["dynamic_pad"].but(at={4: "2xi64"}),
        CALLS["dynamic_conv"],
        CALLS["dynamic_iota"],
        CALLS["dynamic_gather"].but(at={2: "3xi64"}, results=["?x?x?x?xi32"]),
        CALLS["map"].but(operands=["2x?xf32"], results=["2x?xf32"], regions=[reshaping_region]),
    ],
    ids=operator.attrgetter("op"),
)
def test_expansion_declines_without_building_anything(call: Call) -> None:
    module = call.build()
    (instruction,) = (i for i in module.main.body if isinstance(i.op.lowering, Expand))
    count = len(module.main.body)
    assert instruction.op.lowering.rule(Builder.in_front_of(instruction), instruction) is None  # type: ignore[union-attr]
    assert len(module.main.body) == count
