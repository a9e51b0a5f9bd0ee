"""The same bits from every builder and vector width, and the guarded slow path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import vector_function
from hlojit.ir.scalar import functions
from hlojit.ir.scalar.expression import Term, rare
from hlojit.ir.scalar.numpy_builder import NumpyBuilder
from vector_function import DTYPES, VectorFunction

BINARY = ("atan2", "polygamma", "pow", "zeta")
UNARY = [name for name in functions.__all__ if name not in BINARY]


def samples(kind: str) -> np.ndarray[Any, Any]:
    """Ordinary and exceptional values, so placed that single lanes of a vector are exceptional."""
    random = np.random.default_rng(5)
    unsigned = np.uint32 if kind == "f32" else np.uint64
    bits = random.integers(0, np.iinfo(unsigned).max, 130, dtype=unsigned).view(DTYPES[kind])
    ordinary = random.uniform(-12, 12, 3 * 130).astype(DTYPES[kind])
    return np.concatenate([ordinary.reshape(130, 3), bits[:, None]], axis=1).ravel()


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", functions.__all__)
def test_all_builders_and_widths_agree_bit_for_bit(name: str, kind: str) -> None:
    operands = [samples(kind)] if name in UNARY else [samples(kind), samples(kind)[::-1].copy()]
    b = NumpyBuilder()
    with np.errstate(all="ignore"):
        expected = getattr(functions, name)(b, *(b.value(kind, operand) for operand in operands)).array
    for lanes in (1, 4, 32):
        result = VectorFunction(name, kind, lanes, len(operands))(*operands)
        np.testing.assert_array_equal(result, expected)


def _square_where_negative(b: Any, x: Any) -> Any:
    term = Term(b, x)
    return rare(term < 0.0, lambda builder, value: builder.fmul(value, value), [term], term).value


@pytest.mark.parametrize("lanes", [1, 2, 8, 16, 64, 128])
def test_rare_runs_the_slow_rule_in_its_lanes_only(monkeypatch: pytest.MonkeyPatch, lanes: int) -> None:
    monkeypatch.setattr(functions, "square_where_negative", _square_where_negative, raising=False)
    compiled = vector_function.VectorFunction("square_where_negative", "f32", lanes)
    for negative in (0, 1, lanes - 1, lanes):
        x = np.arange(1, 2 * lanes + 1, dtype=np.float32)
        x[:negative] *= -1
        np.testing.assert_array_equal(compiled(x), np.where(x < 0, x * x, x))


def test_rare_does_not_run_the_slow_rule_without_need() -> None:
    def slow(b: Any, x: Any) -> Any:
        raise AssertionError("not needed")

    b = NumpyBuilder()
    term = Term(b, b.value("f32", [1.0, 2.0]))
    result = rare(term < 0.0, slow, [term], term)
    np.testing.assert_array_equal(b.array(result.value), [1.0, 2.0])  # type: ignore[arg-type]
