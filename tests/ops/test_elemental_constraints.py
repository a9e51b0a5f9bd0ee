"""Every constraint that the specification states of elementwise, movement and constant ops has a call that breaks it.

A row is label, op, operand types, result type, attributes, and text of the fault that the verifier must report.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hlojit.ir.attributes import Dense
from hlojit.ir.errors import TypeInferenceError
from hlojit.ir.formats import ElementType, QuantizedType
from hlojit.ir.graph import Function, Instruction, Module
from hlojit.ir.ops.definition import InferenceRequest, op
from hlojit.ir.quantized import quantized_type
from hlojit.ir.types import TOKEN, Type, tensor
from hlojit.ir.verifier import collect_faults

LABELS = {
    "abs": 2, "add": 7, "and": 1, "atan2": 1, "bitcast_convert": 2, "broadcast_in_dim": 6, "cbrt": 1, "ceil": 1,
    "clamp": 4, "compare": 3, "complex": 3, "concatenate": 6, "constant": 1, "convert": 1, "cosine": 1,
    "count_leading_zeros": 1, "divide": 1, "dynamic_slice": 5, "exponential": 1, "exponential_minus_one": 1,
    "floor": 1, "get_dimension_size": 1, "imag": 2, "iota": 1, "is_finite": 1, "log": 1, "log_plus_one": 1,
    "logistic": 1, "maximum": 1, "minimum": 1, "multiply": 1, "negate": 1, "not": 1, "or": 1, "pad": 4, "popcnt": 1,
    "power": 1, "real": 2, "reduce_precision": 3, "remainder": 1, "reshape": 3, "reverse": 3, "round_nearest_afz": 1,
    "round_nearest_even": 1, "rsqrt": 1, "select": 2, "shift_left": 1, "shift_right_arithmetic": 1,
    "shift_right_logical": 1, "sign": 1, "sine": 1, "slice": 5, "sqrt": 1, "subtract": 1, "tan": 1, "tanh": 1,
    "transpose": 4, "xor": 1,
}  # fmt: skip
"""Number of constraints (C1, C2, ...) of each op in the specification."""


def quantized(storage: str = "i8", expressed: str = "f32", axis: int | None = None, count: int = 1) -> QuantizedType:
    return quantized_type(storage, expressed, (0.5,) * count, (0,) * count, axis)


Q8 = quantized()
Q16 = quantized("i16")
QF16 = quantized(expressed="f16")
AXIS0 = quantized(axis=0, count=2)
AXIS1 = quantized(axis=1, count=2)


def shaped(*shape: int, of: ElementType | str = "f32") -> Type:
    return tensor(shape, of)


F2, F3, I2 = shaped(2), shaped(3), shaped(2, of="i32")
TWO_ZEROS = Dense(tensor((2,), "f32"), np.zeros(2, np.float32))
F23, F32 = shaped(2, 3), shaped(3, 2)
I0 = shaped(of="i32")


class Row(NamedTuple):
    label: str
    op: str
    operands: tuple[Type, ...]
    result: Type
    attributes: dict[str, Any]
    expected: str


ROWS = [
    Row("I1", "abs", (shaped(2, of="ui8"),), shaped(2, of="ui8"), {}, "operand must be a tensor of signed integer"),
    Row("C1", "abs", (F2,), F3, {}, "expected shape (2,)"),
    Row("C2", "abs", (shaped(2, of="complex<f32>"),), shaped(2, of="complex<f32>"), {}, "expected element type f32"),
    Row("C1", "add", (F2, F3), F2, {}, "lhs and rhs have different types: (tensor<2xf32>, tensor<3xf32>)"),
    Row("C1", "add", (F2, F2), F3, {}, "result types are tensor<3xf32>, expected tensor<2xf32>"),
    Row("I1", "add", (TOKEN, TOKEN), TOKEN, {}, "lhs must be a tensor"),
    Row("C2", "add", (shaped(2, of=Q8), shaped(2, of=Q8)), F2, {}, "either all or none"),
    Row("C3", "add", (shaped(2, of=Q8), shaped(2, of=Q16)), shaped(2, of=Q8), {}, "storage types differ"),
    Row("C4", "add", (shaped(2, of=Q8), shaped(2, of=QF16)), shaped(2, of=Q8), {}, "expressed types differ"),
    Row("C5", "add", (shaped(2, 2, of=AXIS0), shaped(2, 2, of=Q8)), shaped(2, 2, of=Q8), {}, "quantized per axis"),
    Row("C6", "add", (shaped(2, 2, of=AXIS0), shaped(2, 2, of=Q8)), shaped(2, 2, of=AXIS1), {}, "of lhs is 0"),
    Row("C7", "add", (shaped(2, 2, of=Q8), shaped(2, 2, of=AXIS1)), shaped(2, 2, of=AXIS0), {}, "of rhs is 1"),
    Row("I1", "bitcast_convert", (TOKEN,), I2, {}, "operand must be a tensor"),
    Row("C1", "bitcast_convert", (F2,), shaped(3, of="i32"), {}, "different shapes"),
    Row("C1", "bitcast_convert", (F2,), shaped(2, 3, of="i16"), {}, "needs a last dimension of 2"),
    Row("C1", "bitcast_convert", (shaped(2, 3, of="i16"),), F2, {}, "needs a last dimension of 2"),
    Row("C2", "bitcast_convert", (shaped(2, of="i64"),), shaped(2, of="complex<f32>"), {}, "must be complex"),
    Row("C1", "broadcast_in_dim", (F2,), shaped(2, of="i32"), {"broadcast_dimensions": (0,)}, "different element"),
    Row("C2", "broadcast_in_dim", (F2,), F23, {"broadcast_dimensions": (0, 1)}, "has 2 elements, expected 1"),
    Row("C3", "broadcast_in_dim", (F2,), F23, {"broadcast_dimensions": (2,)}, "must lie in [0, 2)"),
    Row("C4", "broadcast_in_dim", (shaped(2, 2),), shaped(2, 2), {"broadcast_dimensions": (0, 0)}, "repeats"),
    Row("C5", "broadcast_in_dim", (F2,), F23, {"broadcast_dimensions": (1,)}, "size 2, dimension 1 of the result 3"),
    Row(
        "C6",
        "broadcast_in_dim",
        (shaped(2, 2, of=AXIS0),),
        shaped(2, 2, of=AXIS0),
        {"broadcast_dimensions": (1, 0)},
        "quantization dimension 0 becomes 1",
    ),
    Row("I2", "clamp", (F2, shaped(2, of=AXIS0), F2), F2, {}, "operand must be a tensor"),
    Row("C1", "clamp", (F3, F2, F2), F2, {}, "min must be a scalar or have the shape of operand"),
    Row("C2", "clamp", (F2, F2, F3), F2, {}, "max must be a scalar or have the shape of operand"),
    Row("C3", "clamp", (F2, F2, I2), F2, {}, "different element types"),
    Row("C4", "clamp", (F2, F2, F2), F3, {}, "expected tensor<2xf32>"),
    Row("C1", "compare", (F2, I2), shaped(2, of="i1"), {"comparison_direction": "LT"}, "different element types"),
    Row("C2", "compare", (F2, F3), shaped(2, of="i1"), {"comparison_direction": "LT"}, "different shapes"),
    Row("C2", "compare", (F2, F2), shaped(3, of="i1"), {"comparison_direction": "LT"}, "expected shape (2,)"),
    Row("O1", "compare", (F2, F2), F2, {"comparison_direction": "LT"}, "expected element type i1"),
    Row(
        "C3",
        "compare",
        (I2, I2),
        shaped(2, of="i1"),
        {"comparison_direction": "LT", "compare_type": "FLOAT"},
        "compare_type of i32 elements must be SIGNED or UNSIGNED, found FLOAT",
    ),
    Row("I1", "complex", (I2, I2), shaped(2, of="complex<f32>"), {}, "lhs must be a tensor of f32 or f64"),
    Row("C1", "complex", (F2, shaped(2, of="f64")), shaped(2, of="complex<f32>"), {}, "different types"),
    Row("C2", "complex", (F2, F2), shaped(3, of="complex<f32>"), {}, "expected shape (2,)"),
    Row("C3", "complex", (F2, F2), shaped(2, of="complex<f64>"), {}, "expected element type complex<f32>"),
    Row("C1", "concatenate", (F2, I2), shaped(4), {"dimension": 0}, "inputs have different element types"),
    Row("C2", "concatenate", (F23, F32), shaped(5, 3), {"dimension": 0}, "differ in more than dimension 0"),
    Row("C3", "concatenate", (), F2, {"dimension": 0}, "at least one input"),
    Row("C4", "concatenate", (F2, F2), shaped(4), {"dimension": 1}, "dimension (1,) must lie in [0, 1)"),
    Row("C5", "concatenate", (F2, F2), shaped(4, of="i32"), {"dimension": 0}, "expected element type f32"),
    Row("C6", "concatenate", (F2, F2), shaped(5), {"dimension": 0}, "expected tensor<4xf32>"),
    Row("C1", "constant", (), F3, {"value": TWO_ZEROS}, "expected tensor<2xf32>"),
    Row("I1", "convert", (shaped(2, of=Q8),), F2, {}, "operand must be a tensor of boolean"),
    Row("C1", "convert", (F2,), shaped(3, of="i32"), {}, "operand and result have different shapes"),
    Row("C1", "dynamic_slice", (F2, I0), shaped(1, of="i32"), {"slice_sizes": (1,)}, "expected element type f32"),
    Row("C2", "dynamic_slice", (F23, I0), shaped(1, 1), {"slice_sizes": (1, 1)}, "takes 2 start indices"),
    Row("C2", "dynamic_slice", (F2, I0), shaped(1), {"slice_sizes": (1, 1)}, "slice_sizes has 2 elements"),
    Row(
        "C3",
        "dynamic_slice",
        (F23, I0, shaped(of="i64")),
        shaped(1, 1),
        {"slice_sizes": (1, 1)},
        "start_indices have different element types",
    ),
    Row("I2", "dynamic_slice", (F2, shaped()), shaped(1), {"slice_sizes": (1,)}, "scalars of integer type"),
    Row("C4", "dynamic_slice", (F2, I0), F3, {"slice_sizes": (3,)}, "0 <= slice size 3 <= size 2"),
    Row("C5", "dynamic_slice", (F2, I0), F2, {"slice_sizes": (1,)}, "expected tensor<1xf32>"),
    Row("C1", "get_dimension_size", (F2,), I0, {"dimension": 1}, "must lie in [0, 1)"),
    Row("O1", "get_dimension_size", (F2,), shaped(of="i64"), {"dimension": 0}, "expected tensor<i32>"),
    Row("C1", "imag", (F2,), F3, {}, "expected shape (2,)"),
    Row("C2", "imag", (shaped(2, of="complex<f64>"),), F2, {}, "expected element type f64"),
    Row("C1", "real", (F2,), F3, {}, "expected shape (2,)"),
    Row("C2", "real", (shaped(2, of="complex<f64>"),), F2, {}, "expected element type f64"),
    Row("C1", "iota", (), F2, {"iota_dimension": 1}, "iota_dimension (1,) must lie in [0, 1)"),
    Row("C1", "iota", (), shaped(2, of="i1"), {"iota_dimension": 0}, "tensor of numbers"),
    Row("I1", "is_finite", (I2,), shaped(2, of="i1"), {}, "x must be a tensor of floating-point"),
    Row("C1", "is_finite", (F2,), shaped(3, of="i1"), {}, "expected shape (2,)"),
    Row(
        "C1",
        "pad",
        (F2, I0),
        F2,
        {"edge_padding_low": (0,), "edge_padding_high": (0,), "interior_padding": (0,)},
        "operand and padding_value have different element types",
    ),
    Row(
        "C2",
        "pad",
        (F2, shaped()),
        F2,
        {"edge_padding_low": (0,), "edge_padding_high": (0, 0), "interior_padding": (0,)},
        "edge_padding_high has 2 elements",
    ),
    Row(
        "C3",
        "pad",
        (F2, shaped()),
        F2,
        {"edge_padding_low": (0,), "edge_padding_high": (0,), "interior_padding": (-1,)},
        "interior_padding (-1,) must not be negative",
    ),
    Row(
        "C4",
        "pad",
        (F2, shaped()),
        F2,
        {"edge_padding_low": (1,), "edge_padding_high": (0,), "interior_padding": (2,)},
        "expected tensor<5xf32>",
    ),
    Row(
        "C4",
        "pad",
        (F2, shaped()),
        F2,
        {"edge_padding_low": (-3,), "edge_padding_high": (0,), "interior_padding": (0,)},
        "less than nothing",
    ),
    Row("C1", "reduce_precision", (F2,), F3, {"exponent_bits": 5, "mantissa_bits": 2}, "expected tensor<2xf32>"),
    Row("C2", "reduce_precision", (F2,), F2, {"exponent_bits": 0, "mantissa_bits": 2}, "at least 1, found 0"),
    Row("C3", "reduce_precision", (F2,), F2, {"exponent_bits": 5, "mantissa_bits": -1}, "at least 0, found -1"),
    Row("C1", "reshape", (F23,), shaped(6, of="i32"), {}, "different element types"),
    Row("C2", "reshape", (F23,), shaped(5), {}, "operand has 6 elements, result 5"),
    Row("C3", "reshape", (shaped(2, 3, of=AXIS0),), shaped(3, 2, of=AXIS0), {}, "before, at and after"),
    Row("C1", "reverse", (F2,), F3, {"dimensions": (0,)}, "expected tensor<2xf32>"),
    Row("C2", "reverse", (F23,), F23, {"dimensions": (0, 0)}, "dimensions (0, 0) repeats a value"),
    Row("C3", "reverse", (F23,), F23, {"dimensions": (2,)}, "must lie in [0, 2)"),
    Row("I1", "select", (F2, F2, F2), F2, {}, "pred must be a tensor of boolean type"),
    Row("C1", "select", (shaped(3, of="i1"), F2, F2), F2, {}, "pred must be a scalar or have the shape of on_true"),
    Row("C2", "select", (shaped(2, of="i1"), F2, I2), F2, {}, "on_true and on_false have different types"),
    Row("C2", "select", (shaped(2, of="i1"), F2, F2), F3, {}, "expected tensor<2xf32>"),
    Row(
        "C1",
        "slice",
        (F3,),
        shaped(1, of="i32"),
        {"start_indices": (0,), "limit_indices": (1,), "strides": (1,)},
        "expected element type f32",
    ),
    Row(
        "C2",
        "slice",
        (F3,),
        F2,
        {"start_indices": (0, 0), "limit_indices": (1,), "strides": (1,)},
        "start_indices has 2 elements, expected 1",
    ),
    Row(
        "C3",
        "slice",
        (F3,),
        F2,
        {"start_indices": (2,), "limit_indices": (4,), "strides": (1,)},
        "0 <= start 2 <= limit 4 <= size 3 does not hold in dimension 0",
    ),
    Row(
        "C4",
        "slice",
        (F3,),
        F2,
        {"start_indices": (0,), "limit_indices": (2,), "strides": (0,)},
        "strides (0,) must be positive",
    ),
    Row(
        "C5",
        "slice",
        (F3,),
        F3,
        {"start_indices": (0,), "limit_indices": (3,), "strides": (2,)},
        "expected tensor<2xf32>",
    ),
    Row("C1", "transpose", (F23,), shaped(3, 2, of="i32"), {"permutation": (1, 0)}, "different element types"),
    Row("C2", "transpose", (F23,), F23, {"permutation": (0, 0)}, "permutation (0, 0) is not a permutation of range(2)"),
    Row("C3", "transpose", (F23,), F23, {"permutation": (1, 0)}, "expected shape (3, 2)"),
    Row(
        "C4",
        "transpose",
        (shaped(2, 2, of=AXIS0),),
        shaped(2, 2, of=AXIS0),
        {"permutation": (1, 0)},
        "dimension 0 of the result, its quantization dimension, is 1, not 0",
    ),
]

UNARY_FLOAT = {
    name
    for name, count in LABELS.items()
    if count == 1 and [operand.name for operand in op(name).operands] == ["operand"]
} - {"count_leading_zeros", "popcnt", "not", "convert", "get_dimension_size"}
for name in sorted(UNARY_FLOAT):
    ROWS.append(Row("C1", name, (F2,), F3, {}, "result types are tensor<3xf32>, expected tensor<2xf32>"))
    ROWS.append(Row("I1", name, (shaped(2, of="i1"),), shaped(2, of="i1"), {}, "operand must be a tensor of"))
for name in ("count_leading_zeros", "popcnt", "not"):
    ROWS.append(Row("C1", name, (I2,), shaped(3, of="i32"), {}, "result types are tensor<3xi32>"))
    ROWS.append(Row("I1", name, (F2,), F2, {}, "operand must be a tensor of"))
for name in ["and", "or", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical"]:
    ROWS.append(Row("C1", name, (I2, shaped(2, of="i8")), I2, {}, "lhs and rhs have different types"))
    ROWS.append(Row("I1", name, (F2, F2), F2, {}, "lhs must be a tensor of"))
for name in ["atan2", "divide", "maximum", "minimum", "multiply", "power", "remainder", "subtract"]:
    ROWS.append(Row("C1", name, (F2, F3), F2, {}, "lhs and rhs have different types"))
    ROWS.append(Row("I2", name, (F2, TOKEN), F2, {}, "rhs must be a tensor of"))


def faults_of(row: Row) -> list[Any]:
    module = Module()
    function = module.add_function(Function("main", row.operands, ()))
    function.body.append(Instruction(op(row.op), function.body.arguments, (row.result,), row.attributes))
    function.body.append(Instruction(op("func.return"), (), ()))
    return collect_faults(module)


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.op}_{row.label}_{n}" for n, row in enumerate(ROWS)])
def test_bad_call_is_reported_under_its_label(row: Row) -> None:
    found = [(fault.op, fault.label, fault.message) for fault in faults_of(row)]
    assert any(name == row.op and label == row.label and row.expected in text for name, label, text in found), found


def test_every_label_of_the_specification_has_a_row() -> None:
    wanted = {(name, f"C{number + 1}") for name, count in LABELS.items() for number in range(count)}
    assert wanted - {(row.op, row.label) for row in ROWS} == set()


@pytest.mark.parametrize("name", sorted(LABELS))
def test_records_declare_every_label(name: str) -> None:
    declared = {constraint.label for constraint in op(name).constraints}
    assert {f"C{number + 1}" for number in range(LABELS[name])} <= declared


INFERRED = [
    ("add", (shaped(-1, 3), shaped(2, -1)), {}, shaped(2, 3)),
    ("abs", (shaped(-1, of="complex<f64>"),), {}, shaped(-1, of="f64")),
    ("compare", (shaped(-1), F2), {"comparison_direction": "EQ"}, shaped(2, of="i1")),
    ("select", (shaped(2, of="i1"), shaped(-1), shaped(-1)), {}, F2),
    ("clamp", (shaped(), shaped(2), shaped()), {}, F2),
    ("transpose", (shaped(-1, 3, 2),), {"permutation": (2, 0, 1)}, shaped(2, -1, 3)),
    ("slice", (shaped(7),), {"start_indices": (1,), "limit_indices": (7,), "strides": (4,)}, F2),
    ("concatenate", (shaped(2, -1), shaped(3, 4)), {"dimension": 0}, shaped(5, 4)),
    ("concatenate", (shaped(-1), shaped(3)), {"dimension": 0}, shaped(-1)),
    (
        "pad",
        (shaped(3, -1), shaped()),
        {"edge_padding_low": (-1, 0), "edge_padding_high": (2, 0), "interior_padding": (1, 1)},
        shaped(6, -1),
    ),
    (
        "pad",
        (shaped(0), shaped()),
        {"edge_padding_low": (1,), "edge_padding_high": (1,), "interior_padding": (5,)},
        F2,
    ),
    ("dynamic_slice", (shaped(-1), I0), {"slice_sizes": (2,)}, F2),
    ("complex", (F2, F2), {}, shaped(2, of="complex<f32>")),
    ("get_dimension_size", (F2,), {"dimension": 0}, I0),
]


@pytest.mark.parametrize(("name", "operands", "attributes", "expected"), INFERRED)
def test_infer_merges_what_is_known(name: str, operands: Any, attributes: Any, expected: Type) -> None:
    infer = op(name).infer
    assert infer is not None
    assert tuple(infer(InferenceRequest(operands, attributes))) == (expected,)


def test_infer_cites_the_label() -> None:
    infer = op("transpose").infer
    assert infer is not None
    with pytest.raises(TypeInferenceError, match=r"\(C2\): permutation \(1,\) is not a permutation of range\(2\)"):
        infer(InferenceRequest((F23,), {"permutation": (1,)}))
