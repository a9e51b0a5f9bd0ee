"""Corners: nothing in a dimension, sizes that the run tells, complex numbers beside blocks, parts that no encoder makes."""

from __future__ import annotations

from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.errors import VerificationError

BACKENDS = ("cpu", "reference")


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "mxfp4_t"])
@pytest.mark.parametrize("shape", [(0, 32), (4, 0), (0, 0), (1, 1), (3, 33)])
def test_sizes_of_nothing_and_of_one(name: str, shape: tuple[int, ...]) -> None:
    numbers = np.ones(shape, np.float32)
    x = hlojit.Array.from_values(numbers, name)
    assert x.shape == shape and x.to_values().shape == shape
    depth = f"{shape[0]}x{shape[0]}"
    kind = f"tensor<{shape[0]}x{shape[1]}x{name}>"
    text = f"""func.func @main(%x: {kind}) -> ({kind}, tensor<{depth}xf32>) {{
      %0 = stablehlo.add %x, %x : {kind}
      %1 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : ({kind}, {kind}) -> tensor<{depth}xf32>
      return %0, %1 : {kind}, tensor<{depth}xf32>
    }}"""
    for backend in BACKENDS:
        doubled, product = hlojit.compile(text, backend=backend)(x)
        np.testing.assert_array_equal(doubled, 2 * numbers)
        np.testing.assert_array_equal(product, numbers @ numbers.T)


@pytest.mark.parametrize("mode", ["specialize", "symbolic"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_in_blocks_beside_sizes_that_are_open(backend: str, mode: str) -> None:
    text = """func.func @main(%x: tensor<?x64xf32>, %w: tensor<8x64xmxfp8>) -> tensor<?x8xf32> {
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : (tensor<?x64xf32>, tensor<8x64xmxfp8>) -> tensor<?x8xf32>
      return %0 : tensor<?x8xf32>
    }"""
    random = np.random.default_rng(1)
    weights = hlojit.Array.from_values(random.normal(size=(8, 64)), "mxfp8")
    executable = hlojit.compile(text, backend=backend, options={"dynamic_shapes": mode})
    for rows in (1, 5, 9):
        x = random.normal(size=(rows, 64)).astype(np.float32)
        np.testing.assert_allclose(executable(x, weights), x @ weights.to_values().T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_complex_numbers_are_reached_by_way_of_f32(backend: str) -> None:
    x = hlojit.Array.from_values(np.arange(64.0).reshape(2, 32), "mxfp8")

    def both(x: Any) -> Any:
        z = x.astype(np.complex64)
        return z * 1j, z.astype("mxfp8")

    turned, again = hlojit.jit(both, backend=backend)(x)
    np.testing.assert_array_equal(turned, x.to_values() * np.complex64(1j))
    np.testing.assert_array_equal(again, x)
    text = "func.func @main(%x: tensor<32xmxfp8>) -> tensor<32xcomplex<f32>> {\n%0 = stablehlo.convert %x : (tensor<32xmxfp8>) -> tensor<32xcomplex<f32>>\nreturn %0 : tensor<32xcomplex<f32>>\n}"
    with pytest.raises(VerificationError, match="beside numbers in blocks; convert to f32 in between"):
        hlojit.compile(text, backend=backend)


SPECIAL: dict[str, Any] = {
    "NaN of elements and scales": (
        "mxfp8",
        [np.nan, 448, -0.0, 1],
        [[1, 2.0**-127], [2.0**127, np.nan], [1, 1], [1, 1]],
    ),
    "infinite elements": ("mxfp8_e5m2", [np.inf, -np.inf, np.nan, 57344], [[1, 1]] * 4),
    "scales of zero and below": ("nvfp4", [6, -6, 0.5, 1], [[0] * 4, [-1] * 4, [np.nan] * 4, [2.0**-9] * 4]),
}
ROWS = {"mxfp8": ml_dtypes.float8_e4m3fn, "mxfp8_e5m2": ml_dtypes.float8_e5m2, "nvfp4": ml_dtypes.float4_e2m1fn}


TENSOR_SCALES = (1.0, 0.0, np.nan, np.inf, -1.0, 1e38, 1e-40)


@pytest.mark.parametrize(
    ("case", "overall"),
    [(case, scale) for case in SPECIAL for scale in TENSOR_SCALES if SPECIAL[case][0] == "nvfp4" or scale == 1],
)
def test_parts_that_no_encoder_makes(case: str, overall: float) -> None:
    name, rows, scales = SPECIAL[case]
    scale = ml_dtypes.float8_e4m3fn if name == "nvfp4" else ml_dtypes.float8_e8m0fnu
    elements = np.repeat(np.array(rows, np.float32)[:, None], 64, 1).astype(ROWS[name])
    parts = (elements, np.array(scales, np.float32).astype(scale), np.float32(overall))[: 3 if name == "nvfp4" else 2]
    x = hlojit.Array.from_parts(parts, name)
    found = [hlojit.jit(lambda x: (x.to_values(), (x * 2).astype(name)), backend=backend)(x) for backend in BACKENDS]
    for numbers, again in found:
        np.testing.assert_array_equal(numbers, x.to_values())
        assert [np.asarray(part).tobytes() for part in again.parts] == [
            np.asarray(part).tobytes() for part in found[1][1].parts
        ]
