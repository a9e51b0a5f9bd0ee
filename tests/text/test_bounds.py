"""Upper bounds of sizes that are not known: they come through inference, and what is beyond them is a fault."""

from __future__ import annotations

import pytest
from hlojit.ir.ops.definition import InferenceRequest, op
from hlojit.ir.text.parser import parse_module
from hlojit.ir.types import TensorType, Type
from hlojit.ir.verifier import collect_faults


def typed(text: str) -> TensorType:
    (found,) = parse_module(f"func.func private @f({text})").functions["f"].type.inputs
    assert isinstance(found, TensorType)
    return found


def inferred(name: str, operands: list[str], **attributes: object) -> Type:
    infer = op(name).infer
    assert infer is not None
    (found,) = infer(InferenceRequest(tuple(map(typed, operands)), attributes))
    return found


B34 = "tensor<?x?xf32, #stablehlo.bounds<3, 4>>"


@pytest.mark.parametrize(
    ("name", "operands", "attributes", "expected"),
    [
        ("add", [B34, "tensor<?x?xf32, #stablehlo.bounds<5, 2>>"], {}, "tensor<?x?xf32, #stablehlo.bounds<3, 2>>"),
        ("add", [B34, "tensor<2x?xf32>"], {}, "tensor<2x?xf32, #stablehlo.bounds<?, 4>>"),
        ("add", [B34, "tensor<2x1xf32>"], {}, "tensor<2x1xf32>"),
        ("transpose", [B34], {"permutation": (1, 0)}, "tensor<?x?xf32, #stablehlo.bounds<4, 3>>"),
        ("concatenate", [B34, "tensor<5x?xf32>"], {"dimension": 0}, "tensor<?x?xf32, #stablehlo.bounds<8, 4>>"),
        ("concatenate", [B34, "tensor<?x2xf32>"], {"dimension": 0}, "tensor<?x2xf32>"),
        (
            "pad",
            [B34, "tensor<f32>"],
            {"edge_padding_low": (1, 0), "edge_padding_high": (0, -1), "interior_padding": (1, 0)},
            "tensor<?x?xf32, #stablehlo.bounds<6, 3>>",
        ),
    ],
)
def test_bounds_of_results(name: str, operands: list[str], attributes: dict[str, object], expected: str) -> None:
    assert inferred(name, operands, **attributes) is typed(expected)


REDUCE = """func.func @main(%a: tensor<?x?xf32, #stablehlo.bounds<3, 4>>, %b: tensor<f32>) {
  %0 = "stablehlo.reduce"(%a, %b) ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) {dimensions = array<i64: 0>} : (tensor<?x?xf32, #stablehlo.bounds<3, 4>>, tensor<f32>) -> tensor<SIZExf32>
  return
}"""


def test_bounds_of_reductions() -> None:
    assert collect_faults(parse_module(REDUCE.replace("SIZE", "4"))) == []
    (fault, *_) = collect_faults(parse_module(REDUCE.replace("SIZE", "5")))
    assert fault.label in ("C7", "C8") and "tensor<5xf32>" in fault.message


@pytest.mark.parametrize(
    ("line", "label"),
    [
        (
            '"stablehlo.slice"(%a) {start_indices = array<i64: 0, 0>, limit_indices = array<i64: 3, 5>, '
            "strides = array<i64: 1, 1>} : (B34) -> tensor<3x5xf32>",
            "C3",
        ),
        (
            '"stablehlo.pad"(%a, %b) {edge_padding_low = array<i64: 0, -5>, edge_padding_high = array<i64: 0, 0>, '
            "interior_padding = array<i64: 0, 0>} : (B34, tensor<f32>) -> tensor<?x?xf32>",
            "C4",
        ),
    ],
)
def test_what_is_beyond_a_bound(line: str, label: str) -> None:
    text = f"func.func @main(%a: B34, %b: tensor<f32>) {{\n  %0 = {line}\n  return\n}}".replace("B34", B34)
    (fault,) = collect_faults(parse_module(text))
    assert fault.label == label
