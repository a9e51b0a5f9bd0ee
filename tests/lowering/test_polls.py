"""Kernels whose tasks take long: their loops go in stretches, with a poll between two of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hlojit.llvm import polls


@pytest.fixture(autouse=True)
def polled(monkeypatch: pytest.MonkeyPatch) -> None:
    """All kernels poll, every few iterations."""
    monkeypatch.setattr(polls, "LONG_NANOSECONDS", -1.0)
    monkeypatch.setattr(polls, "_STRETCH", 8)
    monkeypatch.setattr(polls, "_UNKNOWN", 2)


def reduce(name: str, axes: tuple[int, ...]) -> Any:
    def build(b: Any, x: Any, init: Any) -> Any:
        return b.reduce([x], [init], b.combiner(name, x.tensor_type.element_type), dimensions=axes)

    return build


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("shape", [(1, 300007), (517, 333), (70001, 3), (3, 70001), (1, 1), (8, 64)], ids=str)
def test_reductions(lab: Any, random: np.random.Generator, shape: tuple[int, int], axes: tuple[int, ...]) -> None:
    x = random.integers(-1000, 1000, shape, "i4")
    lab.polls.clear()
    total = lab.run(reduce("add", axes), x, np.int32(3), kind="reduction")
    np.testing.assert_array_equal(total, x.sum(axis=axes, dtype="i4") + 3)
    largest = lab.run(reduce("maximum", axes), x, np.int32(-5000), kind="reduction")
    np.testing.assert_array_equal(largest, x.max(axis=axes))
    assert lab.polls or x.size < 1000


@pytest.mark.parametrize("shape", [(1, 300007), (517, 333), (70001, 3), (1, 7), (16, 16)], ids=str)
def test_elementwise_and_transposed(lab: Any, random: np.random.Generator, shape: tuple[int, int]) -> None:
    x = random.integers(-1000, 1000, shape, "i4")
    lab.polls.clear()
    found = lab.run(lambda b, x: b.add(x, x), x)
    np.testing.assert_array_equal(found, 2 * x)
    turned = lab.run(lambda b, x: b.transpose(b.add(x, x), permutation=(1, 0)), x)
    np.testing.assert_array_equal(turned, 2 * x.T)
    assert lab.polls or x.size < 1000
