"""A long line in parts, one for each core: every input against NumPy's stable sort of keys made apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import hlojit
import numpy as np
import pytest
from hlojit.cpu.kernels import shared_sort
from hlojit.cpu.kernels.sort import emit_sort
from hlojit.cpu.processor import host_target

from .guarded import Array, kernel_instruction, run_guarded
from .test_key_sort import INTEGERS, NAN, TARGETS, bits_of, inputs, jax_body, jax_keys, total_keys
from .test_sort import compare, sort_text


def check(
    arrays: Sequence[Array], elements: Sequence[str], body: str, keys: Array, name: str = "host", cores: int = 4
) -> None:
    target = TARGETS[name]()
    target = replace(target, machine=replace(target.machine, cores=cores))
    order = np.argsort(keys, axis=-1, kind="stable")
    text = sort_text(arrays[0].shape, elements, arrays[0].ndim - 1, body)
    assert len(emit_sort(kernel_instruction(text), target, "k").phases) >= 4
    for actual, array in zip(run_guarded(text, *arrays, target=target), arrays, strict=True):
        assert actual.tobytes() == np.take_along_axis(array, order, -1).tobytes()


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_sort, "SMALLEST_PART", 500)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("element", ["i16", "ui16", "i32", "ui32", "i64", "ui64"])
def test_integers_whatever_they_are(element: str, name: str) -> None:
    for length in (4001, 4096):
        for kind, array in inputs(INTEGERS[element], length).items():
            if name == "host" or kind in ("random", "few", "pipe", "extreme", "largest"):
                check([array], [element], compare("LT", element), total_keys(array), name)


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_zeros_and_nans(element: str, direction: str) -> None:
    array = bits_of(element, 3333, 1)
    keys = jax_keys(array)
    check([array], [element], jax_body(element, direction), keys if direction == "LT" else ~keys)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("element", ["i16", "f32", "ui32"])
def test_payload(element: str, name: str) -> None:
    for kind in ("random", "few", "constant", "sorted"):
        if element in NAN:
            array = bits_of(element, 3001, 3)
            array = np.sort(array) if kind == "sorted" else array
            body, keys = jax_body(element, "LT"), jax_keys(array)
        else:
            array = inputs(INTEGERS[element], 3001)[kind]
            body, keys = compare("LT", element), total_keys(array)
        payload = np.random.default_rng(1).integers(0, 99, 3001).astype("i8")
        check([array, payload], [element, "i64"], body, keys, name)


@pytest.mark.parametrize(("shape", "cores"), [((3, 2000), 4), ((1, 1000), 2), ((2, 9000), 16), ((5000,), 9)])
def test_lines_and_cores(shape: tuple[int, ...], cores: int) -> None:
    array = np.random.default_rng(3).integers(-200, 200, shape).astype("i4")
    check([array], ["i32"], compare("LT", "i32"), total_keys(array), cores=cores)


def test_threads_make_no_difference() -> None:
    """As users run it: all phases, by one thread and by several."""
    array = np.random.default_rng(0).standard_normal(100_000).astype("f4")
    array[::50], array[1::60] = 0.0, -0.0
    text = sort_text((100_000,), ["f32"], 0, jax_body("f32", "LT"))
    expected = array[np.argsort(jax_keys(array), kind="stable")]
    program = hlojit.compile(text)
    for _ in range(5):
        assert np.asarray(program(array)).tobytes() == expected.tobytes()


def test_short_lines_are_sorted_by_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    target = replace(host_target(), machine=replace(host_target().machine, cores=64))
    text = sort_text((1 << 19,), ["i32"], 0, compare("LT", "i32"))
    assert len(emit_sort(kernel_instruction(text), target, "k").phases) == 1
    text = sort_text((1 << 20,), ["i32"], 0, compare("LT", "i32"))
    assert [phase.tasks for phase in emit_sort(kernel_instruction(text), target, "k").phases] == [2] * 5
