"""Ops of MLIR's own dialects that exports mix in: read, printed, checked, and evaluated by the reference."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.ir.interpreter import Interpreter
from hlojit.ir.text.parser import parse_module
from hlojit.ir.text.printer import print_module
from hlojit.ir.verifier import collect_faults

SIZES = """
func.func @main(%x: tensor<?x3xf32>) -> tensor<2xi32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %rows = tensor.dim %x, %c0 : tensor<?x3xf32>
  %double = arith.muli %rows, %c2 : index
  %shape = tensor.from_elements %double, %c2 : tensor<2xindex>
  %cast = arith.index_cast %shape : tensor<2xindex> to tensor<2xi32>
  return %cast : tensor<2xi32>
}
"""
SHAPES = """
func.func @main(%x: tensor<?x1xf32>, %y: tensor<1x4xf32>) -> tensor<i64> {
  %a = shape.shape_of %x : tensor<?x1xf32> -> tensor<2xindex>
  %b = shape.shape_of %y : tensor<1x4xf32> -> tensor<2xindex>
  %w = shape.cstr_broadcastable %a, %b : tensor<2xindex>, tensor<2xindex>
  %c = shape.broadcast %a, %b : tensor<2xindex>, tensor<2xindex> -> tensor<2xindex>
  %written = shape.const_shape [1, 1] : tensor<2xindex>
  %d = shape.broadcast %c, %written : tensor<2xindex>, tensor<2xindex> -> tensor<2xindex>
  %n = shape.num_elements %d : tensor<2xindex> -> index
  %c1 = arith.constant 1 : index
  %last = tensor.extract %d[%c1] : tensor<2xindex>
  %more = arith.cmpi sgt, %n, %last : index
  %chosen = arith.select %more, %n, %last : index
  %i = arith.index_cast %chosen : index to i64
  %r = tensor.from_elements %i : tensor<i64>
  return %r : tensor<i64>
}
"""
TENSORS = """
func.func @main(%x: tensor<3xi32>, %y: tensor<3xi32>) -> (tensor<3xi32>, tensor<3xi32>, tensor<3xi1>, tensor<3xf32>) {
  %c = arith.constant dense<[1, -2, 3]> : tensor<3xi32>
  %0 = arith.addi %x, %c : tensor<3xi32>
  %1 = arith.divui %0, %y : tensor<3xi32>
  %2 = arith.cmpi ult, %0, %y : tensor<3xi32>
  %3 = arith.select %2, %1, %0 : tensor<3xi1>, tensor<3xi32>
  %4 = arith.sitofp %3 : tensor<3xi32> to tensor<3xf32>
  %5 = arith.mulf %4, %4 : tensor<3xf32>
  return %1, %3, %2, %5 : tensor<3xi32>, tensor<3xi32>, tensor<3xi1>, tensor<3xf32>
}
"""
OTHERS = """
func.func private @callee(%a: tensor<2xf32>) -> tensor<2xf32> {
  return %a : tensor<2xf32>
}
func.func @main(%x: tensor<2xf32>, %u: tensor<*xf32>) -> tensor<2xf32> {
  %f = func.constant @callee : (tensor<2xf32>) -> tensor<2xf32>
  %r = call_indirect %f(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %t = tensor.cast %u : tensor<*xf32> to tensor<?xf32>
  %b = chlo.broadcast_add %u, %x : (tensor<*xf32>, tensor<2xf32>) -> tensor<*xf32>
  %e = chlo.erf %u : tensor<*xf32> -> tensor<*xf32>
  %k:2 = chlo.top_k(%u, k = 3) : tensor<*xf32> -> (tensor<*xf32>, tensor<*xi32>)
  %h = builtin.unrealized_conversion_cast %x : tensor<2xf32> to tensor<?xf32>
  %s = shape.shape_of %u : tensor<*xf32> -> !shape.shape
  %n = shape.num_elements %s : !shape.shape -> !shape.size
  return %r : tensor<2xf32>
}
"""


def evaluate(text: str, *arguments: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(Interpreter(parse_module(text)).call("main", arguments))


@pytest.mark.parametrize("text", [SIZES, SHAPES, TENSORS, OTHERS], ids=["sizes", "shapes", "tensors", "others"])
@pytest.mark.parametrize("generic", [False, True])
def test_read_again_is_the_same_program(text: str, generic: bool) -> None:
    module = parse_module(text)
    assert collect_faults(module) == []
    spelled = print_module(module, generic=generic)
    assert generic or "arith.cmpi sgt, " in spelled or text is not SHAPES
    again = parse_module(spelled)
    assert print_module(again) == print_module(module)
    assert collect_faults(again) == []


def test_sizes_of_arguments_are_computed() -> None:
    (found,) = evaluate(SIZES, np.zeros((5, 3), np.float32))
    assert np.asarray(found).tolist() == [10, 2]


def test_shapes_are_computed() -> None:
    (found,) = evaluate(SHAPES, np.zeros((3, 1), np.float32), np.zeros((1, 4), np.float32))
    assert int(found) == 12


def test_shapes_that_do_not_fit_are_refused() -> None:
    text = SHAPES.replace("tensor<1x4xf32>", "tensor<2x4xf32>")
    with pytest.raises(hlojit.HlojitError, match="cstr_broadcastable"):
        evaluate(text, np.zeros((3, 1), np.float32), np.zeros((2, 4), np.float32))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_tensors_are_computed(backend: str) -> None:
    x, y = np.array([7, 1, -4], np.int32), np.array([2, 5, 9], np.int32)
    total = x + np.array([1, -2, 3], np.int32)
    quotient = (total.view(np.uint32) // y.view(np.uint32)).view(np.int32)
    less = total.view(np.uint32) < y.view(np.uint32)
    chosen = np.where(less, quotient, total)
    found = hlojit.compile(TENSORS, backend=backend)(x, y)
    for one, expected in zip(found, (quotient, chosen, less, chosen.astype(np.float32) ** 2)):
        np.testing.assert_array_equal(np.asarray(one), expected)


def test_stablehlo_takes_no_tensors_without_rank() -> None:
    text = "func.func @main(%a: tensor<*xf32>) { %0 = stablehlo.abs %a : tensor<*xf32> func.return }"
    (fault,) = collect_faults(parse_module(text))
    assert fault.label == "rank" and "tensor<*xf32> has no rank" in fault.message


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("tensor<?x2xf32, #stablehlo.type_extensions<bounds = [3, ?]>>", "tensor<?x2xf32, #stablehlo.bounds<3, ?>>"),
        ("tensor<?xf32, #stablehlo.bounds<4>>", "tensor<?xf32, #stablehlo.bounds<4>>"),
        ("!stablehlo.future<tensor<2xf32>, tensor<i32>>", "!stablehlo.future<tensor<2xf32>, tensor<i32>>"),
        ("memref<2x?xf32>", "memref<2x?xf32>"),
        ("memref<2xf32, strided<[1], offset: 3>, 1>", "memref<2xf32, strided<[1], offset: 3>, 1>"),
        ("memref<*xf32>", "memref<*xf32>"),
        ("tensor<*xcomplex<f32>>", "tensor<*xcomplex<f32>>"),
    ],
)
def test_types(text: str, spelled: str) -> None:
    module = parse_module(f"func.func private @f({text}) -> {text}")
    assert f"@f({spelled}) -> {spelled}" in print_module(module)
    assert print_module(parse_module(print_module(module))) == print_module(module)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensor<?x?xf32, #stablehlo.bounds<3>>", "there are 1 bounds, expected 2"),
        ("tensor<3xf32, #stablehlo.bounds<3>>", "dimension 0 of size 3 must have no bound"),
        ("tensor<?xf32, #stablehlo.bounds<x>>", "expected a size or '?'"),
        ("!stablehlo.future<f32>", "a future holds tensors of known rank, found f32"),
        ("!stablehlo.future<>", "expected a tensor type"),
        ("!stablehlo.novel", "unknown type !stablehlo.novel of StableHLO"),
    ],
)
def test_types_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(hlojit.ParseError, match=message.replace("?", r"\?")):
        parse_module(f"func.func private @f({text})")


def test_sizes_beyond_a_bound_do_not_fit() -> None:
    text = """func.func @main(%a: tensor<?xf32, #stablehlo.bounds<4>>, %b: tensor<?xf32, #stablehlo.bounds<7>>) {
      %0 = "stablehlo.add"(%a, %b) : (tensor<?xf32, #stablehlo.bounds<4>>, tensor<?xf32, #stablehlo.bounds<7>>) -> tensor<SIZExf32>
      func.return
    }"""
    assert collect_faults(parse_module(text.replace("SIZE", "4"))) == []
    (fault,) = collect_faults(parse_module(text.replace("SIZE", "5")))
    assert "expected tensor<?xf32, #stablehlo.bounds<4>>" in fault.message


def test_types_that_go_on_in_the_next_line() -> None:
    text = """func.func @main(%a: tensor<i32>, %b: tensor<i32>) -> (tensor<i32>, tensor<i32>, tensor<i32>) {
      return %a, %b, %a : tensor<i32>, tensor<i32>,
                          tensor<i32>
    }"""
    assert len(parse_module(text).main.result_types) == 3
