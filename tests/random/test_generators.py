"""The generators bit for bit: Random123's known answers, JAX's keys and bits, XLA's Philox; and NumPy's, which has the same design."""

from __future__ import annotations

from typing import Any

import hlojit
import jax
import ml_dtypes
import numpy as np
import pytest
from hlojit import random
from hlojit.ir.ops.random_bits import philox_bits

SHAPES = ((), (3, 4))
SEEDS = (42, -1, 2**64 - 5)
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        (PI[2:], PI[:2], (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_has_the_known_answers(key: Any, counter: Any, expected: Any) -> None:
    """kat_vectors of Random123: threefry2x32 with 20 rounds."""
    made = random.fold_in(np.array(key, np.uint32), (counter[0] << 32) | counter[1])
    assert made.tolist() == list(expected)


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        ((0xA4093822, 0x299F31D0), PI, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
def test_philox_has_the_known_answers(key: Any, counter: Any, expected: Any) -> None:
    """kat_vectors of Random123: philox4x32 with 10 rounds; by the same code as the keys and bits of this module."""
    text = """
    func.func public @main(%state: tensor<3xui64>) -> tensor<4xui32> {
      %new, %bits = stablehlo.rng_bit_generator %state, algorithm = PHILOX : (tensor<3xui64>) -> (tensor<3xui64>, tensor<4xui32>)
      return %bits : tensor<4xui32>
    }"""
    state = np.array([*key, *counter], np.uint32).view(np.uint64)
    found: Any = hlojit.compile(text)(state)
    assert found.tolist() == list(expected)


def words_of(key: Any) -> Any:
    """The words of one of JAX's Philox keys, as ours."""
    return np.ascontiguousarray(np.asarray(jax.random.key_data(key))).view(np.uint64)


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_are_those_of_jax(seed: int) -> None:
    with jax.enable_x64(True):
        theirs = np.uint64(seed) if seed >= 2**63 else seed
        key, philox = random.key(seed), random.key(seed, "philox")
        fry, four = jax.random.key(theirs), jax.random.key(theirs, impl="philox4x32")
        for ours, of_jax, data in ((key, fry, jax.random.key_data), (philox, four, words_of)):
            assert (ours == np.asarray(data(of_jax))).all()
            assert (random.split(ours, 3) == np.asarray(data(jax.random.split(of_jax, 3)))).all()
            assert (random.split(ours, (2, 2)) == np.asarray(data(jax.random.split(of_jax, (2, 2))))).all()
            assert (random.fold_in(ours, 7) == np.asarray(data(jax.random.fold_in(of_jax, 7)))).all()
            assert (random.fold_in(ours, 2) == random.split(ours, 3)[2]).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_bits_of_threefry_are_those_of_jax(dtype: Any) -> None:
    with jax.enable_x64(True):
        for shape in SHAPES:
            ours = np.asarray(random.bits(random.key(3), shape, dtype))
            theirs = np.asarray(jax.random.bits(jax.random.key(3), shape, dtype))
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and (ours == theirs).all()


@pytest.mark.parametrize("size", [1, 4, 1001])
def test_bits_of_philox_are_those_of_xla(size: int) -> None:
    """``rng_bit_generator`` with the state (key, 2^63, 0), whose semantics are tested against XLA's: all words of each counter."""
    key = random.key(11, "philox")
    state = np.array([key[0], 2**63, 0], np.uint64)
    for dtype in (np.uint32, np.uint64):
        _, expected = philox_bits(state, (size,), 8 * np.dtype(dtype).itemsize)
        assert (random.bits(key, (size,), dtype) == expected).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_uniform_floats_are_those_of_jax(dtype: Any) -> None:
    with jax.enable_x64(True):
        ours = random.uniform(random.key(5), (40, 5), dtype)
        theirs = np.asarray(jax.random.uniform(jax.random.key(5), (40, 5), dtype))
        assert ours.dtype == theirs.dtype and (ours == theirs).all()


ONE_NUMBER = ["normal", "exponential", "laplace", "gumbel", "logistic", "cauchy"]


@pytest.mark.parametrize("name", ONE_NUMBER)
def test_distributions_of_one_uniform_number_are_those_of_jax(name: str) -> None:
    dtype = (np.float32, np.float64)[ONE_NUMBER.index(name) % 2]
    with jax.enable_x64(True):
        ours = getattr(random, name)(random.key(8), (1000,), dtype)
        theirs = np.asarray(getattr(jax.random, name)(jax.random.key(8), (1000,), dtype))
        near = {np.float32: 4e-6, np.float64: 1e-13}[dtype]
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, theirs, rtol=near, atol=near)


def test_orders_and_choices_are_those_of_jax() -> None:
    key, theirs = random.key(9), jax.random.key(9)
    with jax.enable_x64(True):
        rows = np.arange(12).reshape(3, 4)
        for count in (1, 3000):
            assert (random.permutation(key, count) == np.asarray(jax.random.permutation(theirs, count))).all()
        for axis, apart in ((1, False), (1, True)):
            expected = jax.random.permutation(theirs, rows, axis, apart)
            assert (random.permutation(key, rows, axis, apart) == np.asarray(expected)).all()
        p = np.array([0.1, 0.2, 0.3, 0.4])
        for options in ({"replace": False, "p": p}, {"p": p}):
            expected = jax.random.choice(theirs, 4, (3,), **options)
            assert (random.choice(key, 4, (3,), **options) == np.asarray(expected)).all()
        logits = np.log([[0.1, 0.9], [0.5, 0.5]])
        expected = jax.random.categorical(theirs, logits, shape=(20, 2))
        assert (random.categorical(key, logits, shape=(20, 2)) == np.asarray(expected)).all()
