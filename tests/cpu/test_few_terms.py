"""Sums of up to four products are what the plain formula gives, bit for bit: products and sums rounded, in order."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest

Array = np.ndarray[Any, Any]
NAMES = {"f4": "f32", "f8": "f64"}


def plain(lhs: Array, rhs: Array) -> Array:
    """``lhs @ rhs`` of matrices in the types' arithmetic, in the order of k."""
    total = lhs[:, :1] * rhs[:1, :]
    for k in range(1, lhs.shape[1]):
        total = total + lhs[:, k : k + 1] * rhs[k : k + 1, :]
    return total


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("terms", [1, 3, 4])
@pytest.mark.parametrize("rows, columns", [(4, 6), (1, 40), (33, 65)])
def test_products_of_few_terms(dtype: str, terms: int, rows: int, columns: int) -> None:
    random = np.random.default_rng(terms)
    lhs = random.standard_normal((rows, terms)).astype(dtype)
    rhs = random.standard_normal((terms, columns)).astype(dtype)
    name = NAMES[dtype]
    for left, right in ((0, 0), (1, 1)):
        shapes = [(terms, rows) if left else (rows, terms), (columns, terms) if right else (terms, columns)]
        types = [f"tensor<{a}x{b}x{name}>" for a, b in shapes]
        executable = hlojit.compile(f"""
          func.func @main(%a: {types[0]}, %b: {types[1]}) -> tensor<{rows}x{columns}x{name}> {{
            %0 = stablehlo.dot_general %a, %b, contracting_dims = [{1 - left}] x [{right}]
              : ({types[0]}, {types[1]}) -> tensor<{rows}x{columns}x{name}>
            return %0 : tensor<{rows}x{columns}x{name}>
          }}""")
        given = [np.ascontiguousarray(lhs.T if left else lhs), np.ascontiguousarray(rhs.T if right else rhs)]
        np.testing.assert_array_equal(executable(*given), plain(lhs, rhs), strict=True)


@pytest.mark.parametrize("groups, features", [(3, 12), (48, 48), (1, 5)])
@pytest.mark.parametrize("taps, dilation", [(3, 2), (4, 1)])
def test_convolutions_of_few_terms(groups: int, features: int, taps: int, dilation: int) -> None:
    random = np.random.default_rng(groups + taps)
    x = random.standard_normal((2, groups, 9)).astype("f4")
    kernel = random.standard_normal((features, 1, taps)).astype("f4")
    length = 9 - dilation * (taps - 1)
    executable = hlojit.compile(f"""
      func.func @main(%a: tensor<2x{groups}x9xf32>, %b: tensor<{features}x1x{taps}xf32>) -> tensor<2x{features}x{length}xf32> {{
        %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {{rhs_dilate = [{dilation}]}}
          {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}}
          : (tensor<2x{groups}x9xf32>, tensor<{features}x1x{taps}xf32>) -> tensor<2x{features}x{length}xf32>
        return %0 : tensor<2x{features}x{length}xf32>
      }}""")
    spread = np.repeat(x, features // groups, axis=1)
    terms = [spread[:, :, t * dilation : t * dilation + length] * kernel[None, :, 0, t, None] for t in range(taps)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    np.testing.assert_array_equal(executable(x, kernel), total, strict=True)
