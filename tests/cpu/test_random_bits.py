"""``rng_bit_generator`` compiled: against the op's reference on every element type, and against JAX bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlojit.ir import evaluate

from .guarded import Array, spell

ELEMENTS = ("i4", "ui4", "i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64", "f16", "bf16", "f32", "f64",
            "f8E4M3FN", "f8E5M2", "f4E2M1FN")  # fmt: skip
TOP = 2**64 - 1


def generator_text(algorithm: str, state: str, shape: tuple[int, ...], element: str) -> str:
    type = spell(shape, element)
    return f"""
    func.func public @main(%state: {state}) -> ({state}, {type}) {{
      %new, %bits = stablehlo.rng_bit_generator %state, algorithm = {algorithm} : ({state}) -> ({state}, {type})
      return %new, %bits : {state}, {type}
    }}"""


def check(algorithm: str, state: Array, shape: tuple[int, ...], element: str) -> tuple[Array, Array]:
    """Compare the compiled program with the op's reference semantics."""
    text = generator_text(algorithm, spell(state.shape, f"ui{8 * state.itemsize}"), shape, element)
    expected = evaluate(hlojit.parse(text), state)
    actual = hlojit.compile(text)(state)
    assert isinstance(actual, tuple)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        assert ours.tobytes() == np.ascontiguousarray(theirs).tobytes()
    return actual


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("algorithm", ["THREE_FRY", "PHILOX", "DEFAULT"])
def test_rng_bit_generator_element_types(algorithm: str, element: str) -> None:
    _, bits = check(algorithm, np.array([0x0123456789ABCDEF, 0xFEDCBA9876543210], "u8"), (5, 7), element)
    assert len({each.tobytes() for each in bits.ravel()}) > 1


@pytest.mark.parametrize("algorithm", ["THREE_FRY", "PHILOX", "DEFAULT"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (4,), (3, 5), (7, 3, 5), (2, 0, 3)])
def test_rng_bit_generator_shapes(algorithm: str, shape: tuple[int, ...]) -> None:
    for element in ("ui32", "ui64"):
        check(algorithm, np.array([77, 10**12], "u8"), shape, element)


@pytest.mark.parametrize("algorithm", ["THREE_FRY", "PHILOX", "DEFAULT"])
@pytest.mark.parametrize("counter", [TOP, TOP - 3, 2**32 - 2])
@pytest.mark.parametrize("element", ["ui32", "ui64"])
def test_rng_bit_generator_counter_wraps(algorithm: str, counter: int, element: str) -> None:
    """The counter is 64 bits wide and goes round; Philox carries into its upper half."""
    state, _ = check(algorithm, np.array([TOP, counter], "u8"), (40,), element)
    assert int(state[1]) != counter and int(state[0]) == TOP
    if algorithm != "THREE_FRY":
        state, _ = check(algorithm, np.array([5, counter, 9], "u8"), (40,), element)
        assert int(state[2]) == 9 + (counter > TOP - 10)
        check(algorithm, np.array([5, counter, TOP], "u8"), (40,), element)


@pytest.mark.parametrize(("algorithm", "size"), [("THREE_FRY", 4), ("PHILOX", 4), ("PHILOX", 6), ("DEFAULT", 6)])
def test_rng_bit_generator_state_of_32_bits(algorithm: str, size: int) -> None:
    """Two words of 32 bits are one of 64, the low one first."""
    narrow = np.array([1, 2, 0xFFFFFFFF, 0xFFFFFFFF, 7, 0][:size], "u4")
    actual = check(algorithm, narrow, (33,), "ui32")
    wide = check(algorithm, narrow.view("u8"), (33,), "ui32")
    np.testing.assert_array_equal(actual[0].view("u8"), wide[0])
    np.testing.assert_array_equal(actual[1], wide[1])


@pytest.mark.parametrize("kind", ["THREE_FRY", "PHILOX", "DEFAULT"])
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(jnp.uint32, (3, 5)), (jnp.uint32, (3, 4)), (jnp.uint32, (7, 9, 3)), (jnp.uint32, ()), (jnp.uint16, (5,)),
     (jnp.uint8, (6,))],
)  # fmt: skip
def test_rng_bit_generator_as_jax(kind: str, dtype: Any, shape: tuple[int, ...]) -> None:
    algorithm = {"THREE_FRY": jax.lax.RandomAlgorithm.RNG_THREE_FRY, "PHILOX": jax.lax.RandomAlgorithm.RNG_PHILOX,
                 "DEFAULT": jax.lax.RandomAlgorithm.RNG_DEFAULT}[kind]  # fmt: skip
    function = jax.jit(lambda key: jax.lax.rng_bit_generator(key, shape, dtype, algorithm))
    executable = hlojit.compile(function.lower(np.zeros(4, "u4")).as_text())
    for key in ([1, 2, 3, 4], [2**32 - 1] * 4):
        state = np.array(key, "u4")
        for ours, theirs in zip(executable(state), function(state), strict=True):
            np.testing.assert_array_equal(ours, np.asarray(theirs))


JAX_DRAWS: dict[str, Callable[[Any], Any]] = {
    "uniform": lambda key: jax.random.uniform(key, (3, 50)),
    "bits": lambda key: jax.random.bits(key, (101,)),
    "randint": lambda key: jax.random.randint(key, (64,), -5, 100),
    "permutation": lambda key: jax.random.permutation(key, 100),
    "split": lambda key: jax.random.key_data(jax.random.split(key, 3)),
}


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("draw", JAX_DRAWS)
def test_random_programs_as_jax(implementation: str, draw: str) -> None:
    function = jax.jit(lambda data: JAX_DRAWS[draw](jax.random.wrap_key_data(data, impl=implementation)))
    data = np.asarray(jax.random.key_data(jax.random.key(42, impl=implementation)))
    actual = hlojit.compile(function.lower(data).as_text())(data)
    np.testing.assert_array_equal(actual, np.asarray(function(data)))
