"""Parts of arrays at places that only the run tells, transposed: tiles are planned for places that are known."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest


@pytest.mark.parametrize("places", [("%i", "%j"), ("%i", "%i")])
@pytest.mark.parametrize(("shape", "part"), [((33, 31), (21, 15)), ((64, 64), (32, 32)), ((9, 70), (8, 64))])
@pytest.mark.parametrize("starts", [(3, 1), (-5, 100)])
def test_a_transposed_slice(
    places: tuple[str, str], shape: tuple[int, int], part: tuple[int, int], starts: tuple[int, int]
) -> None:
    (n, m), (rows, columns) = shape, part
    text = f"""
    func.func public @main(%x: tensor<{n}x{m}xf32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<{columns}x{rows}xf32> {{
      %0 = stablehlo.dynamic_slice %x, {", ".join(places)}, sizes = [{rows}, {columns}]
        : (tensor<{n}x{m}xf32>, tensor<i32>, tensor<i32>) -> tensor<{rows}x{columns}xf32>
      %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<{rows}x{columns}xf32>) -> tensor<{columns}x{rows}xf32>
      return %1 : tensor<{columns}x{rows}xf32>
    }}"""
    x = np.arange(n * m, dtype="f4").reshape(shape)
    at = [starts["%i %j".split().index(place)] for place in places]
    row, column = (min(max(start, 0), size - length) for start, size, length in zip(at, shape, part))
    found = hlojit.compile(text)(x, np.array(starts[0], "i4"), np.array(starts[1], "i4"))
    np.testing.assert_array_equal(found, x[row : row + rows, column : column + columns].T)


def test_gathered_rows_transposed() -> None:
    text = """
    func.func public @main(%x: tensor<40x24xf32>, %i: tensor<16x1xi32>) -> tensor<24x16xf32> {
      %0 = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1],
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 24>}
        : (tensor<40x24xf32>, tensor<16x1xi32>) -> tensor<16x24xf32>
      %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<16x24xf32>) -> tensor<24x16xf32>
      return %1 : tensor<24x16xf32>
    }"""
    x, places = np.arange(960, dtype="f4").reshape(40, 24), np.arange(16, dtype="i4")[:, None] * 7 % 40
    found = hlojit.compile(text)(x, places)
    np.testing.assert_array_equal(found, x[places[:, 0]].T)
