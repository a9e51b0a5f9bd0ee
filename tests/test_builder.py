"""The builder: inference, errors, and the methods that the op table gives it."""

from __future__ import annotations

import numpy as np
import pytest
from hlojit.ir.attributes import DotDimensionNumbers
from hlojit.ir.builder import Builder, build_function, dense_constant
from hlojit.ir.errors import HlojitError, TypeInferenceError
from hlojit.ir.graph import Function, Module
from hlojit.ir.location import FileLocation
from hlojit.ir.types import tensor

F32 = tensor((2, 3), "f32")


@pytest.fixture
def builder() -> Builder:
    return Builder(Function("main", [F32, F32], []).body)


def test_methods_infer_types(builder: Builder) -> None:
    x, y = builder.arguments
    assert builder.add(x, y).type is F32
    assert builder.compare(x, y, "LT").type is tensor((2, 3), "i1")
    assert builder.transpose(x, (1, 0)).type is tensor((3, 2), "f32")
    assert builder.transpose(x, permutation=[1, 0]).type is tensor((3, 2), "f32")
    assert builder.broadcast_in_dim(x, (4, 2, 3), (1, 2)).type is tensor((4, 2, 3), "f32")
    assert builder.reshape(x, (6,)).type is tensor((6,), "f32")
    assert builder.convert(x, "bf16").type is tensor((2, 3), "bf16")
    assert builder.iota(tensor((4,), "i32"), 0).type is tensor((4,), "i32")
    assert builder.erf(x).producer.name == "chlo.erf"
    assert builder.and_(*[builder.compare(x, y, "LT")] * 2).producer.name == "stablehlo.and"


def test_errors_name_op_and_label(builder: Builder) -> None:
    x, _ = builder.arguments
    with pytest.raises(TypeInferenceError) as caught:
        builder.transpose(x, (0, 0))
    assert str(caught.value).startswith("transpose (C2): permutation (0, 0)")
    assert caught.value.label == "C2"
    with pytest.raises(TypeInferenceError, match=r"^dot_general \(C10\): contracting dimension 1 of lhs has size 3"):
        builder.dot_general(x, x, DotDimensionNumbers(lhs_contracting=(1,), rhs_contracting=(0,)))
    with pytest.raises(TypeInferenceError, match=r"^add: takes 2 operands"):
        builder.add(x)
    with pytest.raises(TypeInferenceError, match=r"^transpose: attribute permutation is missing"):
        builder.transpose(x)
    with pytest.raises(TypeInferenceError, match=r"^negate: has no attribute speed"):
        builder.negate(x, speed=3)
    with pytest.raises(TypeInferenceError, match=r"^custom_call: .*give result_types"):
        builder.custom_call(x, call_target_name="f")
    with pytest.raises(AttributeError, match="no op 'frobnicate'"):
        builder.frobnicate(x)
    with pytest.raises(HlojitError, match="unknown op"):
        builder.create("frobnicate")
    assert len(builder.block) == 0, "nothing is left behind by a failed call"


def test_failed_calls_leave_no_users(builder: Builder) -> None:
    x, _ = builder.arguments
    with pytest.raises(TypeInferenceError):
        builder.transpose(x, (0, 0))
    assert not x.users


def test_inserts_in_front_and_inherits_the_location(builder: Builder) -> None:
    x, y = builder.arguments
    builder.location = FileLocation("f.py", 3, 1)
    last = builder.add(x, y).producer
    front = Builder.in_front_of(last)
    negated = front.negate(x).producer
    assert list(builder.block) == [negated, last]
    assert negated.location is last.location


def test_build_function_takes_its_results_from_the_return() -> None:
    module = Module()
    with build_function(module, "main", [F32]) as builder:
        builder.return_(builder.negate(builder.arguments[0]), builder.arguments[0])
    assert module.main.result_types == [F32, F32]
    assert len(module.main.result_attributes) == 2
    with pytest.raises(HlojitError, match="does not end in a return"), build_function(module, "other", []):
        pass


@pytest.mark.parametrize(
    ("value", "type", "expected"),
    [
        (1.5, F32, "tensor<2x3xf32>"),
        (np.ones((2, 3), np.float32), None, "tensor<2x3xf32>"),
        ([1, 2], "i8", "tensor<2xi8>"),
        (True, tensor((), "i1"), "tensor<i1>"),
        (1.1, tensor((4,), "f8E4M3FN"), "tensor<4xf8E4M3FN>"),
    ],
)
def test_constants(builder: Builder, value: object, type: object, expected: str) -> None:
    assert str(builder.constant(value, type).type) == expected  # type: ignore[arg-type]


def test_a_splat_is_stored_once() -> None:
    dense = dense_constant(2.0, tensor((1000, 1000, 1000), "f64"))
    assert dense.is_splat
    assert dense.splat_value == 2.0
    with pytest.raises(HlojitError, match="cannot have elements of shape"):
        dense_constant([1, 2, 3], tensor((2,), "f32"))


def test_lift_region_applies_scalar_code_to_tensors(builder: Builder) -> None:
    x, y = builder.arguments
    scalar = tensor((), "f32")
    region = builder.region([scalar] * 2, lambda b, p, q: b.add(b.multiply(p, q), b.constant(1.0, scalar)))
    (lifted,) = builder.lift_region(region, [x, y], F32.shape) or []
    assert lifted.type is F32
    assert [instruction.op.mnemonic for instruction in builder.block] == ["multiply", "constant", "add"]
    summed = builder.region([scalar] * 2, lambda b, p, q: b.reshape(p, (1,)))
    assert builder.lift_region(summed, [x, y], F32.shape) is None


def test_products_take_dimensions_as_the_text_has_them() -> None:
    module = Module()
    with build_function(module, "main", [tensor((2, 3, 4), "f32"), tensor((2, 4, 5), "f32")]) as builder:
        x, w = builder.arguments
        made = builder.dot_general(x, w, batching_dims=([0], [0]), contracting_dims=([2], np.array([1])))
        builder.return_(made)
    assert "batching_dims = [0] x [0], contracting_dims = [2] x [1]" in str(module)
    for wrong in (1, [1], ([1], 0), "[1] x [0]"):
        with pytest.raises(
            TypeInferenceError, match=r"contracting_dims is .*; it is a list of dimensions for each side"
        ):
            builder.dot_general(x, w, contracting_dims=wrong)
    with pytest.raises(TypeInferenceError, match=r"has no attribute contracting_dim; its attributes: dot_dimension_n"):
        builder.dot_general(x, w, contracting_dim=([2], [1]))
    missing = (
        r"dot_dimension_numbers is missing; it is a DotDimensionNumbers attribute of lhs_batching, rhs_batching, lhs_co"
    )
    with pytest.raises(TypeInferenceError, match=missing):
        builder.dot_general(x, w)
