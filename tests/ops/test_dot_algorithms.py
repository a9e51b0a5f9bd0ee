"""Dot algorithms of one operation and of several, on every back end, against products in f64 with a bound for each element.

A precision of p bits leaves at most 2^-p of a number when it is rounded, and 2^-np when n components stand for it.  What an
algorithm of several operations leaves out are those remainders and the products of small components.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.formats import element_type

BACKENDS = ["cpu", "reference", "cuda"]
BITS = {"bf16": 8, "tf32": 11, "f16": 11, "f32": 24, "f64": 53}
SUMS = 2.0**-20
"""Of twenty roundings to f32, with room: six sums of nine terms."""


@pytest.fixture(autouse=True)
def simulator(request: pytest.FixtureRequest) -> Iterator[None]:
    """The back end ``cuda`` runs on the simulator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HLOJIT_CUDA", "simulator")
        yield


def program(
    lhs: str, rhs: str, result: str, precision: str, operations: int, sums: str = "f32", batching: str = ""
) -> str:
    return f"""
    func.func @main(%a: tensor<{lhs}>, %b: tensor<{rhs}>) -> tensor<{result}> {{
      %0 = stablehlo.dot_general %a, %b, {batching}, algorithm = <lhs_precision_type = {precision},
        rhs_precision_type = {precision}, accumulation_type = {sums}, lhs_component_count = 1, rhs_component_count = 1,
        num_primitive_operations = {operations}, allow_imprecise_accumulation = false>
        : (tensor<{lhs}>, tensor<{rhs}>) -> tensor<{result}>
      return %0 : tensor<{result}>
    }}"""


PLAIN = "contracting_dims = [1] x [0]"


def drawn(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Numbers of many sizes, none of which is one of bf16."""
    generator = np.random.default_rng(seed)
    return (generator.standard_normal(shape) * 2.0 ** generator.integers(-6, 6, shape)).astype("f4")


def left_out(precision: str, operations: int) -> float:
    """A bound on what an algorithm leaves out of a product, relative to it."""
    unit = 2.0 ** -BITS[precision]
    if operations == 1:
        return 2 * unit + unit**2
    if operations == 3:
        return 2 * unit**2 + unit**2 + 3 * unit**3  # two remainders, and the product of the small components
    return 2 * unit**3 + (2 * unit**3 + unit**4 if operations == 6 else 0) + 3 * unit**4


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("precision", "operations"),
    [("bf16", 1), ("bf16", 3), ("bf16", 6), ("bf16", 9), ("tf32", 1), ("tf32", 3), ("f16", 1), ("f32", 1)],
)
def test_algorithm_is_as_exact_as_its_operations(backend: str, precision: str, operations: int) -> None:
    a, b = drawn((20, 9), 1), drawn((9, 24), 2)
    found = hlojit.compile(
        program("20x9xf32", "9x24xf32", "20x24xf32", precision, operations, batching=PLAIN), backend=backend
    )(a, b)
    wide = a.astype("f8") @ b.astype("f8")
    size = np.abs(a).astype("f8") @ np.abs(b).astype("f8")
    errors = np.abs(found - wide) / size
    assert errors.max() <= left_out(precision, operations) + SUMS
    fewer = {3: 1, 6: 3, 9: 3}.get(operations)
    if fewer is not None:
        assert errors.max() < left_out(precision, fewer) / 8
    elif operations == 1 and precision != "f32":
        assert errors.max() > left_out(precision, 1) / 64  # the operands are rounded, indeed


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("operations", [1, 3, 6, 9])
def test_single_product_is_the_sum_of_the_components_products(backend: str, operations: int) -> None:
    """One term, components written down as fractions: what is not multiplied is known exactly."""
    parts = Fraction(1), Fraction(3, 2**10), Fraction(5, 2**20)
    number = np.full((1, 1), float(sum(parts)), "f4")
    assert Fraction(float(number[0, 0])) == sum(parts)
    pairs = {
        1: [(0, 0)], 3: [(0, 0), (0, 1), (1, 0)], 6: [(i, j) for i in range(3) for j in range(3) if i + j < 3],
        9: [(i, j) for i in range(3) for j in range(3)],
    }[operations]  # fmt: skip
    wanted = sum(parts[i] * parts[j] for i, j in pairs)
    compiled = hlojit.compile(
        program("1x1xf32", "1x1xf32", "1x1xf32", "bf16", operations, batching=PLAIN), backend=backend
    )
    found = Fraction(float(compiled(number, number)[0, 0]))
    assert abs(found - wanted) <= Fraction(2, 2**24)
    if operations < 6:
        assert abs(found - sum(parts) ** 2) > Fraction(1, 2**18)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("precision", "operations"), [("bf16", 3), ("bf16", 6), ("bf16", 9), ("tf32", 3)])
def test_infinite_numbers_and_nan_are_those_of_the_largest_components(
    backend: str, precision: str, operations: int
) -> None:
    lhs = np.array(
        [[np.inf, 1.1], [-np.inf, 1.1], [np.nan, 1.1], [1e38, 3e38], [1.1, -0.0], [0, 0], [3e-39, 1e-40]], "f4"
    )
    rhs = np.array([[1.1, 0.0, -1.1, 100], [1.1, 1.3, np.inf, 100]], "f4")
    text = program("7x2xf32", "2x4xf32", "7x4xf32", precision, operations, batching=PLAIN)
    found = hlojit.compile(text, backend=backend)(lhs, rhs)
    with np.errstate(all="ignore"):
        wide = (lhs[:, :, None].astype("f8") * rhs[None].astype("f8")).sum(1).astype("f4")
    special = ~np.isfinite(wide)
    np.testing.assert_array_equal(found[special], wide[special])
    np.testing.assert_allclose(
        found[~special], wide[~special], rtol=2.0**-15, atol=200 * 2.0**-134
    )  # the last bit of bf16 is worth 2^-133


@pytest.mark.parametrize("backend", BACKENDS)
def test_batched_products_and_other_storage_types(backend: str) -> None:
    batching = "batching_dims = [1] x [0], contracting_dims = [2] x [2]"
    a, b = drawn((5, 3, 8), 3), drawn((3, 4, 8), 4)
    for element, operations in (("f32", 3), ("f32", 6), ("bf16", 3), ("f16", 3), ("f64", 6)):
        result = "f64" if element == "f64" else "f32"
        text = program(f"5x3x8x{element}", f"3x4x8x{element}", f"3x5x4x{result}", "bf16", operations, batching=batching)
        x, y = (side.astype(element_type(element).dtype) for side in (a, b))
        found = hlojit.compile(text, backend=backend)(x, y)
        wide, size = (
            np.einsum("bma,mna->mbn", p, q)
            for p, q in ((x.astype("f8"), y.astype("f8")), (np.abs(x.astype("f8")), np.abs(y.astype("f8"))))
        )
        assert found.dtype == np.dtype(f"f{element_type(result).bits // 8}")
        bound = 0 if element == "bf16" else left_out("bf16", operations)
        assert (np.abs(found - wide) / size).max() <= bound + SUMS


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("precision", "operations"), [("bf16", 1), ("bf16", 3), ("tf32", 3)])
@pytest.mark.parametrize("terms", [3, 9])
def test_parts_of_complex_numbers_are_rounded(backend: str, precision: str, operations: int, terms: int) -> None:
    a = drawn((4, terms), 5) + 1j * drawn((4, terms), 6)
    b = drawn((terms, 6), 7) + 1j * drawn((terms, 6), 8)
    text = program(
        f"4x{terms}xcomplex<f32>", f"{terms}x6xcomplex<f32>", "4x6xcomplex<f32>", precision, operations, batching=PLAIN
    )
    found = hlojit.compile(text, backend=backend)(a, b)
    size = np.abs(a).astype("f8") @ np.abs(b).astype("f8")
    error = (np.abs(found - a.astype("c16") @ b.astype("c16")) / size).max()
    if operations == 1:
        assert error > left_out(precision, 1) / 64  # the parts are rounded, indeed
    assert error <= 2 * left_out(precision, operations) + SUMS


@pytest.mark.parametrize("backend", BACKENDS)
def test_sums_of_an_algorithm_with_wide_sums_are_wide(backend: str) -> None:
    a = np.array([[1e8, 1.0, -1e8]], "f4")
    b = np.ones((3, 1), "f4")
    text = program("1x3xf32", "3x1xf32", "1x1xf32", "f64", 1, "f64", PLAIN)
    assert hlojit.compile(text, backend=backend)(a, b).tolist() == [[1.0]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_integers_have_no_precision_to_lose(backend: str) -> None:
    a = np.full((1, 1), 257, "i4")
    text = program("1x1xi32", "1x1xi32", "1x1xi32", "bf16", 3, batching=PLAIN)
    assert hlojit.compile(text, backend=backend)(a, a).tolist() == [[257 * 257]]


def test_one_operation_rounds_to_what_ml_dtypes_rounds_to() -> None:
    a = drawn((3, 5), 9)
    one = np.eye(5, dtype="f4")
    for precision, dtype in (("bf16", ml_dtypes.bfloat16), ("f16", np.float16)):
        text = program("3x5xf32", "5x5xf32", "3x5xf32", precision, 1, batching=PLAIN)
        for backend in BACKENDS:
            np.testing.assert_array_equal(hlojit.compile(text, backend=backend)(a, one), a.astype(dtype).astype("f4"))
