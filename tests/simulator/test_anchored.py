"""Products and convolutions with what follows them as one kernel of threads: bit for bit what they give apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import hlojit
import numpy as np
import pytest
from hlojit.cuda.backend import CudaBackend

from ..anchored_programs import (
    PAIRS,
    Array,
    check_same_bits,
    convolution,
    followed,
    product,
    random_convolution,
    random_product,
)

LIMITS = CudaBackend.fusion_limits
APART = replace(LIMITS, anchors=frozenset())


@pytest.fixture
def limits() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def run(text: str, arrays: Sequence[Array], patch: pytest.MonkeyPatch, *, whole: bool) -> tuple[int, list[Array]]:
    """How many kernels there are, and what they compute."""
    patch.setattr(CudaBackend, "fusion_limits", LIMITS if whole else APART)
    executable = hlojit.compile(text, backend="cuda")
    found = executable(*arrays)
    launches = len(list(executable.spec.program.launches()))
    return launches, [np.asarray(each) for each in (found if isinstance(found, (tuple, list)) else (found,))]


def check(text: str, arrays: Sequence[Array], patch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The same bits whole and apart; gives the numbers of kernels."""
    count, found = run(text, arrays, patch, whole=True)
    before, expected = run(text, arrays, patch, whole=False)
    check_same_bits(found, expected, text)
    return count, before


@pytest.mark.parametrize("seed", range(60))
def test_random_products(seed: int, limits: pytest.MonkeyPatch) -> None:
    writer = random_product(seed, [*PAIRS, ("f8E4M3FN", "f8E5M2"), ("f8E5M2", "f32"), ("bf16", "f16")])
    check(writer.text(), writer.arrays(np.random.default_rng(seed)), limits)


@pytest.mark.parametrize("seed", range(20))
def test_random_convolutions(seed: int, limits: pytest.MonkeyPatch) -> None:
    writer = random_convolution(seed)
    check(writer.text(), writer.arrays(np.random.default_rng(seed)), limits)


WHOLE = {
    "matrix instructions": product((), 150, 70, 144, ("bf16", "bf16")),
    "matrix instructions, sums of f32": product((), 70, 64, 96, ("bf16", "f32")),
    "matrix instructions, rows that begin anywhere": product((2,), 40, 64, 77, ("f16", "f16"), (False, True)),
    "matrix instructions, bytes": product((), 33, 128, 65, ("i8", "i32")),
    "tiles": product((), 130, 40, 260, ("f32", "f32")),
    "tiles of f64": product((), 66, 40, 70, ("f64", "f64")),
    "rows, terms apart": product((), 3, 600, 130, ("f32", "f32")),
    "rows, terms beside each other": product((), 2, 600, 130, ("f32", "f32"), (False, True)),
    "a vector": product((), 130, 300, 1, ("bf16", "bf16")),
    "sums in parts": product((), 20, 4000, 24, ("f32", "f32")),
    "sums of matrix instructions in parts": product((), 20, 4000, 24, ("bf16", "bf16")),
    "few rows in parts": product((), 3, 30000, 5, ("f32", "f32")),
    "a convolution": convolution(1, 9, 16, 48, 3, 1, "b01f"),
    "features apart": convolution(1, 9, 16, 48, 3, 2, "bf01"),
    "a depthwise convolution": convolution(1, 9, 48, 48, 3, 1, "b01f", 48),
}


@pytest.mark.parametrize("name", WHOLE)
def test_forms(name: str, limits: pytest.MonkeyPatch) -> None:
    """Every form of the kernels."""
    writer = followed(WHOLE[name], ("bias", "residual", "root", "relu"))
    count, before = check(writer.text(), writer.arrays(np.random.default_rng(0)), limits)
    assert (count, before) == (1, 2)
