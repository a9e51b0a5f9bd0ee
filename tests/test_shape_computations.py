"""Programs in which exports compute shapes by ops of ``shape``, ``tensor`` and ``arith``."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.interpreter import evaluate
from hlojit.ir.passes.pipeline_text import parse_pipeline

X, Y = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones(4, np.float32)

BROADCAST = """
func.func @main(%x: tensor<?x4xf32>, %y: tensor<4xf32>) -> (tensor<?x4xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %four = arith.constant 4 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %m = arith.muli %n, %four : index
  %s = tensor.from_elements %m : tensor<1xindex>
  %r = stablehlo.dynamic_reshape %x, %s : (tensor<?x4xf32>, tensor<1xindex>) -> tensor<?xf32>
  %sx = shape.shape_of %x : tensor<?x4xf32> -> tensor<2xindex>
  %sy = shape.shape_of %y : tensor<4xf32> -> tensor<1xindex>
  %sb = shape.broadcast %sx, %sy : tensor<2xindex>, tensor<1xindex> -> tensor<2xindex>
  %b = stablehlo.dynamic_broadcast_in_dim %y, %sb, dims = [1] : (tensor<4xf32>, tensor<2xindex>) -> tensor<?x4xf32>
  %z = stablehlo.add %x, %b : tensor<?x4xf32>
  return %z, %r : tensor<?x4xf32>, tensor<?xf32>
}
"""

NUMBERS = """
func.func @main(%x: tensor<?x4xf32>, %y: tensor<4xf32>) -> (tensor<?x?xf32>, tensor<?xf32>) {
  %c1 = arith.constant 1 : index
  %shape = shape.shape_of %x : tensor<?x4xf32> -> tensor<2xindex>
  %total = shape.num_elements %shape : tensor<2xindex> -> index
  %columns = tensor.extract %shape[%c1] : tensor<2xindex>
  %rows = arith.divui %total, %columns : index
  %i = arith.index_cast %rows : index to i32
  %two = arith.constant 2 : i32
  %half = arith.divsi %i, %two : i32
  %small = arith.cmpi slt, %half, %two : i32
  %k = arith.select %small, %two, %half : i32
  %least = arith.maxsi %k, %two : i32
  %rest = arith.remsi %least, %two : i32
  %sum = arith.addi %rest, %least : i32
  %t = tensor.from_elements %sum, %two : tensor<2xi32>
  %c = stablehlo.constant dense<7.0> : tensor<f32>
  %w = stablehlo.dynamic_broadcast_in_dim %c, %t, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x?xf32>
  %known = tensor.cast %y : tensor<4xf32> to tensor<?xf32>
  %written = shape.const_shape [4] : tensor<1xindex>
  %v = stablehlo.dynamic_reshape %known, %written : (tensor<?xf32>, tensor<1xindex>) -> tensor<?xf32>
  return %w, %v : tensor<?x?xf32>, tensor<?xf32>
}
"""

SIZES_OF_ONE = """
func.func @main(%x: tensor<?x1xf32>, %y: tensor<1x?xf32>) -> tensor<?x?xf32> {
  %a = shape.shape_of %x : tensor<?x1xf32> -> tensor<2xindex>
  %b = shape.shape_of %y : tensor<1x?xf32> -> tensor<2xindex>
  %s = shape.broadcast %a, %b : tensor<2xindex>, tensor<2xindex> -> tensor<2xindex>
  %0 = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [0, 1] : (tensor<?x1xf32>, tensor<2xindex>) -> tensor<?x?xf32>
  %1 = stablehlo.dynamic_broadcast_in_dim %y, %s, dims = [0, 1] : (tensor<1x?xf32>, tensor<2xindex>) -> tensor<?x?xf32>
  %2 = stablehlo.add %0, %1 : tensor<?x?xf32>
  return %2 : tensor<?x?xf32>
}
"""

CASES: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "broadcast": (BROADCAST, [(X, Y), (X[:1], Y), (X[:0], Y)]),
    "numbers": (NUMBERS, [(X, Y), (np.repeat(X, 5, 0), Y)]),
    "sizes of one": (SIZES_OF_ONE, [(X[:, :1], X[:1]), (X[:0, :1], X[:1]), (X[:1, :1], X[:1, :0])]),
}


@pytest.mark.parametrize("how", ["specialize", "symbolic"])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", CASES)
def test_shapes_that_other_dialects_compute(name: str, backend: str, how: str) -> None:
    text, calls = CASES[name]
    executable = hlojit.compile(text, backend=backend, options={"dynamic_shapes": how})
    for arguments in calls:
        results = executable(*arguments)
        results = results if isinstance(results, tuple) else (results,)
        for result, expected in zip(results, evaluate(hlojit.parse(text), *arguments), strict=True):
            assert result.shape == expected.shape
            np.testing.assert_array_equal(result, expected)
    if backend == "cpu" and name != "sizes of one":
        assert executable.dynamic_shapes == how, executable.why


@pytest.mark.parametrize("name", CASES)
def test_the_pass_alone_leaves_stablehlo(name: str) -> None:
    module = hlojit.parse(CASES[name][0])
    parse_pipeline("shape-legalizer").run(module, verify="always")
    assert {instruction.op.name.partition(".")[0] for instruction in module.walk()} == {"stablehlo", "func"}
    assert "index" not in str(module).replace("index_", "")


def test_signatures_have_tensors_instead() -> None:
    text = """
    func.func @main(%n: index) -> tensor<?xi64> {
      %s = tensor.from_elements %n : tensor<1xindex>
      %0 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xindex>) -> tensor<?xi64>
      return %0 : tensor<?xi64>
    }
    """
    np.testing.assert_array_equal(hlojit.compile(text)(5), np.arange(5))


def test_what_has_no_form_in_stablehlo_is_refused_with_its_place() -> None:
    text = """
    func.func @main(%x: tensor<?xf32>) -> tensor<1xindex> {
      %c3 = arith.constant 3 : index
      %n = tensor.dim %x, %c3 : tensor<?xf32>
      %s = tensor.from_elements %n : tensor<1xindex>
      return %s : tensor<1xindex>
    }
    """
    with pytest.raises(
        hlojit.UnsupportedError, match=r"(?s)tensor.dim.*dimension 3 is not one of tensor<\?xf32>.*:4:7"
    ):
        hlojit.compile(text)
