"""rng: numbers of the right distributions, anew each time, the same from the same state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hlojit
import numpy as np
import pytest
from scipy import stats

BACKENDS = ("cpu", "reference")
COUNT = 20_000


def program(element: str, kind: str, count: int = COUNT) -> str:
    scalar, result = f"tensor<{element}>", f"tensor<{count}x{element}>"
    return (
        f"func.func @main(%a: {scalar}, %b: {scalar}) -> {result} {{\n"
        f"  %shape = stablehlo.constant dense<[{count}]> : tensor<1xi64>\n"
        f"  %r = stablehlo.rng %a, %b, %shape, distribution = {kind} : ({scalar}, {scalar}, tensor<1xi64>) -> {result}\n"
        f"  return %r : {result}\n}}"
    )


@pytest.fixture
def fixed() -> Iterator[None]:
    """The same states in every run."""
    numbers = np.random.default_rng(7)
    hlojit.channel("random").handle(receives=lambda: numbers.integers(0, 2**64, 2, np.uint64))
    yield
    hlojit.channel("random").handle()


def drawn(element: str, kind: str, low: Any, high: Any, backend: str = "cpu") -> Any:
    executable = hlojit.compile(program(element, kind), backend=backend)
    dtype = executable.input_types[0].element_type.dtype
    return executable(np.array(low).astype(dtype), np.array(high).astype(dtype))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 5), (1e30, 2e30)])
def test_uniform_floats(fixed: None, element: str, low: float, high: float, backend: str) -> None:
    found = drawn(element, "UNIFORM", low, high, backend).astype("f8")
    assert found.min() >= np.dtype("f4").type(low) and found.max() < high * (1 + 1e-6)
    assert stats.kstest((found - low) / (high - low), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("element", ["f16", "bf16", "f8E5M2"])
def test_narrow_uniform_floats_stay_below_the_end(fixed: None, element: str) -> None:
    found = drawn(element, "UNIFORM", 0, 1).astype("f4")
    assert found.min() >= 0 and found.max() < 1
    assert abs(found.mean() - 0.5) < (0.1 if element.startswith("f8") else 0.02)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("element", ["f32", "f64", "bf16"])
def test_normal_floats(fixed: None, element: str, backend: str) -> None:
    found = drawn(element, "NORMAL", 2, 3, backend).astype("f8")
    assert np.isfinite(found).all()
    if element != "bf16":
        assert stats.kstest((found - 2) / 3, "norm").pvalue > 1e-3
    assert abs(found.mean() - 2) < 0.1 and abs(found.std() - 3) < 0.1


@pytest.mark.parametrize(
    ("element", "low", "high"),
    [
        ("i32", -3, 4),
        ("i8", -128, 127),
        ("ui8", 0, 255),
        ("i64", -(2**62), 2**62),
        ("ui64", 2**63, 2**63 + 10),
        ("i32", 5, 6),
    ],
)
def test_uniform_integers(fixed: None, element: str, low: int, high: int) -> None:
    executable = hlojit.compile(program(element, "UNIFORM"))
    dtype = executable.input_types[0].element_type.storage
    found: Any = executable(np.array(low, dtype), np.array(high, dtype))
    numbers = [int(each) - low for each in found]
    assert min(numbers) >= 0 and max(numbers) < high - low
    cells = np.bincount([each * 7 // (high - low) for each in numbers], minlength=7)
    if high - low >= 100 or high - low == 7:
        expected = np.diff([-(-k * (high - low) // 7) for k in range(8)]).astype(float)
        assert stats.chisquare(cells, expected / expected.sum() * COUNT).pvalue > 1e-3


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_call_draws_anew_and_a_state_says_which(backend: str) -> None:
    first, second = (drawn("f32", "UNIFORM", 0, 1, backend) for _ in range(2))
    assert not np.array_equal(first, second)
    hlojit.channel("random").handle(receives=lambda: np.array([1, 2], "u8"))
    try:
        first, second = (drawn("f32", "UNIFORM", 0, 1, each) for each in BACKENDS)
    finally:
        hlojit.channel("random").handle()
    assert np.array_equal(first, second)


def test_two_rngs_of_a_program_are_not_one() -> None:
    text = program("f32", "UNIFORM", 4).replace(
        "  return %r : tensor<4xf32>",
        "  %q = stablehlo.rng %a, %b, %shape, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>\n"
        "  %d = stablehlo.subtract %r, %q : tensor<4xf32>\n  return %d : tensor<4xf32>",
    )
    assert np.any(np.asarray(hlojit.compile(text)(np.float32(0), np.float32(1))) != 0)
