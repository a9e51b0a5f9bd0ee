"""How far results may be apart: a tolerance that nothing exceeds shows nothing."""

import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.formats import element_type
from hlojit.testing.comparison import INEXACT, Tolerance, differences


@pytest.mark.parametrize(("name", "dtype"), [
    ("f16", np.float16), ("bf16", ml_dtypes.bfloat16), ("f8E4M3FN", ml_dtypes.float8_e4m3fn), ("f8E5M2", ml_dtypes.float8_e5m2),
])  # fmt: skip
def test_the_tolerance_for_functions_is_exceeded_in_narrow_formats(name: str, dtype: type) -> None:
    """512 units of f16 are half of a number, and of f8 more than all of it."""
    expected = np.array([1, 2, 4], dtype)
    assert not differences(expected, expected, element_type(name), INEXACT).any()
    neighbours = np.nextafter(np.float32(1), np.float32(2)) * expected
    assert not differences(neighbours.astype(dtype), expected, element_type(name), INEXACT).any()
    assert differences(np.array([1, 2, 0], dtype), expected, element_type(name), INEXACT).tolist() == [
        False,
        False,
        True,
    ]


def test_units_of_f32_are_its_own() -> None:
    expected = np.array([1, 2], "f4")
    found = expected * np.float32(1 + 100 * 2.0**-23)
    assert not differences(found, expected, element_type("f32"), INEXACT).any()
    assert differences(found, expected, element_type("f32"), Tolerance(ulps=50)).all()


@pytest.mark.parametrize(
    "tolerance",
    [Tolerance(ulps=16), Tolerance(relative=1e-3), Tolerance(ulps=16, scaled=True), Tolerance(absolute=1.0)],
)
def test_an_infinity_is_no_number_whatever_the_tolerance(tolerance: Tolerance) -> None:
    infinity, largest = np.float32(np.inf), np.finfo("f4").max
    found = np.array([infinity, 1.0, infinity, -infinity, largest, infinity], "f4")
    expected = np.array([1.0, infinity, -infinity, infinity, infinity, infinity], "f4")
    assert differences(found, expected, element_type("f32"), tolerance).tolist() == [True] * 5 + [False]
