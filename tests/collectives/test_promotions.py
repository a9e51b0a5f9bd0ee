"""Collectives whose computations take elements in a wider type than operands have."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest

BODY = """({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %s = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %s : tensor<i32>
  })"""


@pytest.mark.parametrize(
    ("op", "attributes", "rows"),
    [("all_reduce", "", 4), ("reduce_scatter", "scatter_dimension = 0 : i64, ", 2)],
)
def test_sums_are_those_of_the_wider_type(op: str, attributes: str, rows: int, every: str) -> None:
    groups = f"{attributes}replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"
    text = f"""func.func @main(%x: tensor<4xi8>) -> tensor<{rows}xi32> {{
      %0 = "stablehlo.{op}"(%x) {BODY} {{{groups}}} : (tensor<4xi8>) -> tensor<{rows}xi32>
      return %0 : tensor<{rows}xi32>
    }}"""
    given = [np.array([100, 1, 2, 3], np.int8), np.array([100, 5, 6, 7], np.int8)]
    total = np.sum(np.array(given, np.int32), axis=0)
    found = hlojit.compile(text, backend=every, num_replicas=2)([[each] for each in given])
    for process, (result,) in enumerate(found):
        np.testing.assert_array_equal(result, total if op == "all_reduce" else np.split(total, 2)[process])
