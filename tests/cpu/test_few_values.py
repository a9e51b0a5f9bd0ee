"""Lines of few different elements are counted, and lines that only seem to be such are sorted all the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hlojit.cpu.kernels import few_elements, shared_sort
from hlojit.lowering.target import Target

from .guarded import Array, run_guarded
from .test_key_sort import FLOATS, INTEGERS, NAN, TARGETS, jax_body, jax_keys, total_keys
from .test_sort import compare, sort_text

ELEMENTS = ("i16", "ui16", "i32", "ui32", "i64", "ui64", "f16", "f32", "f64")


def of_cores(name: str, cores: int) -> Target:
    target = TARGETS[name]()
    return replace(target, machine=replace(target.machine, cores=cores))


def lines(element: str, length: int) -> Iterator[tuple[str, Array]]:
    """Of one to nine different elements, the ends of the range among them; one or two are rare, or come last."""
    generator = np.random.default_rng(length)
    dtype = np.dtype(INTEGERS.get(element) or FLOATS[element])
    if element in INTEGERS:
        limits = np.iinfo(dtype)
        drawn = generator.integers(limits.min, limits.max, 7, dtype, endpoint=True)
        pool = np.concatenate([drawn, np.array([limits.min, limits.max], dtype)])
    else:
        pool = np.array([-np.inf, -3.5, -1, 0.0, 1e-3, 2, 7, np.inf, 9]).astype(dtype)
    for count in (1, 2, 3, 8, 9):
        yield f"{count} values", generator.permutation(pool)[generator.integers(0, count, length)]
    array = pool[generator.integers(2, 5, length)]
    yield "a block of one", np.where(np.arange(length) < length // 2, pool[0], array)
    for place in (0, length // 3, length - 1):
        rare = array.copy()
        rare[place] = pool[7]
        yield f"another one at {place}", rare
    if element not in INTEGERS:
        for some in ([0.0, -0.0], [-0.0], [np.nan, 1, -np.nan], [-np.nan], [0.0, 1, 2, -0.0, np.nan]):
            yield str(some), np.array(some, dtype)[generator.integers(0, len(some), length)]


def check(element: str, length: int, target: Target, direction: str = "LT") -> None:
    body = jax_body(element, direction) if element in NAN else compare(direction, element)
    text = sort_text((length,), [element], 0, body)
    for kind, array in lines(element, length):
        keys = jax_keys(array) if element in NAN else total_keys(array)
        order = np.argsort(keys if direction == "LT" else ~keys, kind="stable")
        (actual,) = run_guarded(text, array, target=target)
        assert actual.tobytes() == array[order].tobytes(), f"{kind} {length}"


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_runs_in_a_quicksort(element: str, name: str) -> None:
    for length in (1100, 4099):
        check(element, length, of_cores(name, 1))


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_lines_before_words_are_made(element: str, name: str, direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_elements, "LEAST_LENGTH", 64)
    for length in (64, 100, 2501):
        check(element, length, of_cores(name, 1), direction)


@pytest.mark.parametrize("cores", [2, 9])
@pytest.mark.parametrize("element", ELEMENTS)
def test_lines_of_several_parts(element: str, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_sort, "SMALLEST_PART", 500)
    check(element, 4501, of_cores("host", cores))
