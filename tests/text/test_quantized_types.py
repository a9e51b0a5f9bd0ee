"""Quantized types: spelling, the rules of the types themselves, and which ops take which of them."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.ir.compare import structurally_equal
from hlojit.ir.errors import ParseError, VerificationError
from hlojit.ir.formats import QuantizedType, element_type
from hlojit.ir.graph import Function, Instruction, Module
from hlojit.ir.ops.definition import op
from hlojit.ir.quantized import positive_range, quantized_type, tensor_complaint
from hlojit.ir.text.printer import print_module
from hlojit.ir.types import TensorType, tensor
from hlojit.ir.verifier import collect_faults


def identity(type: str) -> str:
    return f"func.func @main(%arg0: {type}) -> {type} {{\n  return %arg0 : {type}\n}}"


def element_of(type: str) -> QuantizedType:
    found = hlojit.parse(identity(type)).main.body.arguments[0].type
    assert isinstance(found, TensorType) and isinstance(found.element_type, QuantizedType)
    return found.element_type


SPELLINGS = {
    "tensor<4x!quant.uniform<i8:f32, 0.5:3>>": "!quant.uniform<i8:f32, 5.000000e-01:3>",
    "tensor<4x!quant.uniform<u8:f32, 0.1>>": "!quant.uniform<u8:f32, 1.000000e-01>",
    "tensor<4x!quant.uniform<ui8:f64, 34.0:16>>": "!quant.uniform<u8:f64, 3.400000e+01:16>",
    "tensor<4x!quant.uniform<i8<-128:127>:f32, 2.0:-1>>": "!quant.uniform<i8:f32, 2.000000e+00:-1>",
    "tensor<4x!quant.uniform<i8<-127:127>:f32, 2.0>>": "!quant.uniform<i8<-127:127>:f32, 2.000000e+00>",
    "tensor<4x!quant.uniform<i4:f16, 0.25:-8>>": "!quant.uniform<i4:f16, 2.500000e-01:-8>",
    "tensor<4x!quant.uniform<i32:bf16, 1.5:7>>": "!quant.uniform<i32:bf16, 1.500000e+00:7>",
    "tensor<2x3x!quant.uniform<i16:f32:1, {1.0:1, 2.0, 0.5:-3}>>": (
        "!quant.uniform<i16:f32:1, {1.000000e+00:1,2.000000e+00,5.000000e-01:-3}>"
    ),
    "tensor<?x!quant.uniform<i8:f32:0, {0.5, 0.25}>>": "!quant.uniform<i8:f32:0, {5.000000e-01,2.500000e-01}>",
    "tensor<2x4x!quant.uniform<i8:f32:{0:1, 1:2}, {{2.0:10, 3.0:20}, {3.5:30, 4.0}}>>": (
        "!quant.uniform<i8:f32:{0:1, 1:2}, {{2.000000e+00:10, 3.000000e+00:20}, {3.500000e+00:30, 4.000000e+00}}>"
    ),
    "tensor<4x3x!quant.uniform<u4<0:9>:f32:{0:2}, {{2.0:1}, {3.0:9}}>>": (
        "!quant.uniform<u4<0:9>:f32:{0:2}, {{2.000000e+00:1}, {3.000000e+00:9}}>"
    ),
}


@pytest.mark.parametrize("type", SPELLINGS)
def test_spelling_and_round_trip(type: str) -> None:
    """As MLIR prints it (jaxlib's has no quant dialect to ask); what is printed is read as the same type."""
    module = hlojit.parse(identity(type))
    hlojit.verify(module)
    assert element_of(type).name == SPELLINGS[type]
    assert structurally_equal(hlojit.parse(print_module(module)), module)


def test_fields() -> None:
    element = element_of("tensor<2x4x!quant.uniform<u4<1:14>:bf16:{0:1, 1:2}, {{2.0:10, 3.0:5}, {3.5:3, 4.0:1}}>>")
    assert (element.storage_element.name, element.expressed_element.name) == ("ui4", "bf16")
    assert (element.minimum, element.maximum, element.bits) == (1, 14, 4)
    assert (element.blocks, element.grid) == (((0, 1), (1, 2)), (2, 2))
    assert element.scales == (2.0, 3.0, 3.5, 4.0) and element.zero_points == (10, 5, 3, 1)
    assert element.dtype == element_type("ui4").dtype and not element.is_per_tensor


BAD_TYPES = {
    "tensor<4x!quant.uniform<si8:f32, 1.0>>": "'si8' is no storage type",
    "tensor<4x!quant.uniform<f32:f32, 1.0>>": "'f32' is no storage type",
    "tensor<4x!quant.uniform<i8:i32, 1.0>>": "expressed type of a quantized type must be a float, found i32",
    "tensor<4x!quant.uniform<i8:nothing, 1.0>>": "expressed type of a quantized type must be a float, found nothing",
    "tensor<4x!quant.uniform<i8<-129:127>:f32, 1.0>>": r"\(C3\): the storage range \[-129, 127\]",
    "tensor<4x!quant.uniform<i8<5:5>:f32, 1.0:5>>": r"\(C3\): the storage range \[5, 5\]",
    "tensor<4x!quant.uniform<i4:f16, 1.0e5>>": r"\(C4\): the scale 100000.0 .* out of the range of f16",
    "tensor<4x!quant.uniform<i4:f16, 4.9e-8>>": r"\(C4\): the scale 4.9e-08 .* out of the range of f16",
    "tensor<4x!quant.uniform<i8:f32, -1.0>>": r"\(C5\): the scale -1.0",
    "tensor<4x!quant.uniform<i8:f32, 0.0>>": r"\(C5\): the scale 0.0",
    "tensor<4x!quant.uniform<i8:f32, 1.0e999>>": r"\(C6\): the scale inf",
    "tensor<4x!quant.uniform<i8:f32, 1.0:300>>": r"\(C7\): the zero point 300",
    "tensor<4x!quant.uniform<i8<0:9>:f32, 1.0:-1>>": r"\(C7\): the zero point -1",
    "tensor<4x!quant.uniform<i8:f32, 0x10>>": "expected a decimal number for a scale",
    "tensor<4x!quant.uniform<i8:f32, 1.0:99999999999999999999>>": "out of range",
    "tensor<4x!quant.uniform<i8:f32:-1, {1.0}>>": "out of range",
    "tensor<4x!quant.uniform<i8:f32:{}, {1.0}>>": "expected a quantized dimension",
    "tensor<4x!quant.uniform<i8:f32:{0:0}, {1.0}>>": "out of range",
    "tensor<4x!quant.uniform<i8:f32:{0:2, 0:2}, {1.0, 2.0}>>": "must be different ones",
    "tensor<4x4x!quant.uniform<i8:f32:{0:2, 1:2}, {{1.0, 2.0}, {1.0}}>>": "lists of scales of one level must have one size",
    "tensor<4x4x!quant.uniform<i8:f32:{0:2, 1:2}, {{1.0, 2.0}, 1.0}>>": "lists of scales of one level must have one size",
}


@pytest.mark.parametrize("type", BAD_TYPES)
def test_bad_element_types_are_refused_where_they_stand(type: str) -> None:
    with pytest.raises(ParseError, match=BAD_TYPES[type]):
        hlojit.parse(identity(type))


BAD_TENSORS = {
    "tensor<4x!quant.uniform<i8:f32:1, {1.0}>>": ("C12", "has no dimension 1"),
    "tensor<4x!quant.uniform<i8:f32:0, {1.0, 2.0}>>": ("C13", "dimension 0 of tensor<4x.*> must have the size 2"),
    "tensor<4x!quant.uniform<i8:f32:0, {}>>": ("C13", "must have the size 0"),
    "tensor<4x!quant.uniform<i8:f32:{0:3}, {1.0, 2.0}>>": ("", "must be 2 blocks of 3 elements"),
    "tensor<4x4x!quant.uniform<i8:f32:{0:2}, {1.0, 2.0}>>": ("", "has 2 dimensions, its scales 1"),
    "tensor<4x4x!quant.uniform<i8:f32:{0:2}, {{1.0, 2.0}, {1.0, 2.0}}>>": ("", "must have the size 1 in dimension 1"),
}


@pytest.mark.parametrize("type", BAD_TENSORS)
def test_bad_tensor_types_are_reported_under_their_label(type: str) -> None:
    label, message = BAD_TENSORS[type]
    with pytest.raises(VerificationError, match=message) as caught:
        hlojit.verify(hlojit.parse(identity(type)))
    assert [fault.label for fault in caught.value.faults] == [label]


def test_types_made_by_hand_are_verified_too() -> None:
    """The parser refuses them; a module that was built has no text."""
    bad = tensor((2,), quantized_type("i8", "f32", (1.0, 2.0), (0,), 0))
    assert tensor_complaint(bad) == ("C9", f"{bad.element_type} has 2 scales and 1 zero points")
    unscaled = tensor((2,), quantized_type("i8", "f32", (), ()))
    assert tensor_complaint(unscaled) is not None and tensor_complaint(unscaled)[0] == "C10"


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2", "f8E8M0FNU", "f4E2M1FN", "f8E3M4"])
def test_range_of_scales(name: str) -> None:
    """The positive numbers of every format lie between the ends, which are two of them."""
    import ml_dtypes

    row = element_type(name)
    assert row.dtype is not None
    info = ml_dtypes.finfo(row.dtype)
    smallest = info.smallest_normal if name == "f8E8M0FNU" else info.smallest_subnormal
    assert positive_range(row) == (float(smallest), float(info.max))


# which ops take what

Q = quantized_type("i8", "f32", (0.5,), (3,))
FINER = quantized_type("i8", "f32", (0.25,), (3,))
MOVED = quantized_type("i8", "f32", (0.5,), (4,))
NARROW = quantized_type("i8", "f32", (0.5,), (3,), storage_min=-127, storage_max=127)
AXIS = {axis: quantized_type("i8", "f32", (0.5, 0.25), (3, 4), axis) for axis in range(3)}
ONE = quantized_type("i8", "f32", (0.5,), (3,), 0)
SPREAD = quantized_type("i8", "f32", (0.5, 0.5), (3, 3), 1)


def t(element: QuantizedType | str, *shape: int) -> TensorType:
    return tensor(shape, element)


CASES = [
    # name, operand types, result types, attributes, label of the broken rule ("": none is)
    ("add", (t(Q, 2), t(FINER, 2)), (t(MOVED, 2),), {}, ""),
    ("add", (t(AXIS[0], 2), t(Q, 2)), (t(AXIS[0], 2),), {}, ""),
    ("add", (t(Q, 2), t("f32", 2)), (t(Q, 2),), {}, "C1"),
    ("multiply", (t(Q, 2), t(FINER, 2)), (t(MOVED, 2),), {}, ""),
    ("multiply", (t(Q, 2), t(NARROW, 2)), (t(Q, 2),), {}, "C1"),
    ("multiply", (t(AXIS[0], 2), t(AXIS[0], 2)), (t(AXIS[0], 2),), {}, "I1"),
    ("abs", (t(Q, 2),), (t(FINER, 2),), {}, ""),
    ("abs", (t(Q, 2),), (t(NARROW, 2),), {}, "C2"),
    ("tanh", (t(Q, 2),), (t(FINER, 2),), {}, ""),
    ("maximum", (t(Q, 2), t(FINER, 2)), (t(MOVED, 2),), {}, ""),
    ("clamp", (t(Q), t(FINER, 2), t(MOVED)), (t(Q, 2),), {}, ""),
    ("select", (t("i1", 2), t(Q, 2), t(FINER, 2)), (t(MOVED, 2),), {}, ""),
    ("compare", (t(Q, 2), t(FINER, 2)), (t("i1", 2),), {"comparison_direction": "LT"}, ""),
    ("reshape", (t(Q, 4),), (t(Q, 2, 2),), {}, ""),
    ("reshape", (t(Q, 4),), (t(FINER, 2, 2),), {}, "C1"),
    ("reshape", (t(Q, 4),), (t(MOVED, 2, 2),), {}, "C1"),
    ("reshape", (t(AXIS[0], 2, 6),), (t(AXIS[0], 2, 2, 3),), {}, ""),
    ("reshape", (t(AXIS[1], 3, 2),), (t(AXIS[2], 3, 1, 2),), {}, ""),
    ("reshape", (t(AXIS[0], 2, 6),), (t(AXIS[1], 6, 2),), {}, "C3"),
    ("reshape", (t(Q, 2, 6),), (t(AXIS[0], 2, 6),), {}, "C1"),
    ("transpose", (t(AXIS[0], 2, 3),), (t(AXIS[1], 3, 2),), {"permutation": (1, 0)}, ""),
    ("transpose", (t(AXIS[0], 2, 2),), (t(AXIS[0], 2, 2),), {"permutation": (1, 0)}, "C4"),
    ("transpose", (t(Q, 2, 3),), (t(FINER, 3, 2),), {"permutation": (1, 0)}, "C1"),
    ("broadcast_in_dim", (t(AXIS[0], 2),), (t(AXIS[1], 3, 2),), {"broadcast_dimensions": (1,)}, ""),
    ("broadcast_in_dim", (t(ONE, 1),), (t(SPREAD, 3, 2),), {"broadcast_dimensions": (1,)}, ""),
    ("broadcast_in_dim", (t(ONE, 1),), (t(AXIS[1], 3, 2),), {"broadcast_dimensions": (1,)}, "C6"),
    ("broadcast_in_dim", (t(AXIS[0], 2),), (t(AXIS[0], 2, 2),), {"broadcast_dimensions": (1,)}, "C6"),
    ("broadcast_in_dim", (t(Q, 2),), (t(FINER, 3, 2),), {"broadcast_dimensions": (1,)}, "C1"),
    ("concatenate", (t(Q, 2), t(Q, 3)), (t(Q, 5),), {"dimension": 0}, ""),
    ("concatenate", (t(Q, 2), t(FINER, 3)), (t(Q, 5),), {"dimension": 0}, "C1"),
    ("concatenate", (t(Q, 2), t(Q, 3)), (t(FINER, 5),), {"dimension": 0}, "C5"),
    ("reverse", (t(Q, 2),), (t(FINER, 2),), {"dimensions": (0,)}, "C1"),
    ("reverse", (t(AXIS[0], 2),), (t(AXIS[0], 2),), {"dimensions": (0,)}, "I1"),
    ("optimization_barrier", (t(AXIS[0], 2),), (t(AXIS[0], 2),), {}, "I1"),
    ("uniform_quantize", (t(AXIS[0], 2, 2),), (t(AXIS[1], 2, 2),), {}, ""),
    ("uniform_quantize", (t("f32", 2),), (t("f32", 2),), {}, "C2"),
    ("uniform_dequantize", (t("i8", 2),), (t("f32", 2),), {}, "I1"),
    ("uniform_dequantize", (t(AXIS[1], 2, 2),), (t("f32", 2, 2),), {}, ""),
    ("bitcast_convert", (t(AXIS[0], 2),), (t("i8", 2),), {}, ""),
    ("convert", (t(Q, 2),), (t("f32", 2),), {}, "I1"),
]


@pytest.mark.parametrize(
    ("name", "operands", "results", "attributes", "label"),
    CASES,
    ids=[f"{case[0]}-{n}" for n, case in enumerate(CASES)],
)
def test_quantized_operands(name: str, operands: tuple, results: tuple, attributes: dict, label: str) -> None:
    module = Module()
    function = module.add_function(Function("main", operands, ()))
    function.body.append(Instruction(op(name), function.body.arguments, results, attributes))
    function.body.append(Instruction(op("func.return"), (), ()))
    faults = collect_faults(module)
    if label:
        assert label in {fault.label for fault in faults}, faults
        assert not any("cannot be checked" in fault.message for fault in faults), faults
    else:
        assert faults == []


def test_functions_and_loops_keep_scales() -> None:
    """What a call, a return or a loop hands on is of one type, its scales included."""
    text = identity("tensor<2x!quant.uniform<i8:f32, 0.5>>").replace("-> tensor<2x!quant.uniform<i8:f32, 0.5>>", "-> X")
    wrong = text.replace("X", "tensor<2x!quant.uniform<i8:f32, 0.25>>")
    with pytest.raises((ParseError, VerificationError), match="returns"):
        hlojit.verify(hlojit.parse(wrong))


def test_constants_are_written_by_their_stored_integers() -> None:
    """In the generic form of MLIR, in its custom one, and in that of the specification."""
    type = "tensor<2x!quant.uniform<i8:f32, 5.000000e-01:3>>"
    forms = [
        f'"stablehlo.constant"() <{{value = dense<[1, 2]> : tensor<2xi8>}}> : () -> {type}',
        f"stablehlo.constant() {{value = dense<[1, 2]> : tensor<2xi8>}} : () -> {type}",
        f"stablehlo.constant dense<[1, 2]> : {type}",
    ]
    printed = set()
    for form in forms:
        module = hlojit.parse(f"func.func @main() -> {type} {{\n  %0 = {form}\n  return %0 : {type}\n}}")
        hlojit.verify(module)
        constant = module.main.body.first
        assert constant is not None
        np.testing.assert_array_equal(constant.attributes["value"].array, np.array([1, 2], np.int8))
        printed.add(print_module(module))
        assert structurally_equal(hlojit.parse(print_module(module)), module)
    assert len(printed) == 1 and forms[0] in printed.pop()
    wrong = forms[0].replace("tensor<2xi8>", "tensor<2xui8>")
    with pytest.raises(VerificationError, match="result types are"):
        hlojit.verify(hlojit.parse(f"func.func @main() -> {type} {{\n  %0 = {wrong}\n  return %0 : {type}\n}}"))
