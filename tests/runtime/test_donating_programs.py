"""Donation in programs of every kind, and the ways in which it is asked for."""

from __future__ import annotations

from typing import Any

import hlojit
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlojit.ir.errors import ExecutionError, HlojitError
from hlojit.lowering.program import Copy

from .donations import ADD, ONES, Array, T, X, Y, address, compiled, numbers

# ------------------------------------------------------------------------------------------- programs of every kind


def checked(function: Any, *arguments: Array, donate: tuple[int, ...], taken: int) -> Any:
    """Compare with JAX; ``taken`` results lie in donated memory."""
    executable = compiled(function, *arguments, donate=donate)
    expected = jax.tree.leaves(jax.jit(function)(*arguments))
    given = [argument.copy() for argument in arguments]
    places = {address(each) for each in given}
    results = executable(*given)
    results = results if isinstance(results, tuple) else (results,)
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert sum(address(result) in places for result in results) == taken
    assert len({address(result) for result in results}) == len(results)
    for number, each in enumerate(given):
        if number not in donate:
            np.testing.assert_array_equal(each, arguments[number])
    return executable.spec.program


def test_outputs_that_are_inputs() -> None:
    checked(lambda x: x, X, donate=(0,), taken=1)
    checked(lambda x: (x, x), X, donate=(0,), taken=1)
    checked(lambda x, y: (y, x), X, Y, donate=(0, 1), taken=2)
    checked(lambda x, y: (y, x), X, Y, donate=(0,), taken=1)
    checked(lambda x, y: (x, x + y), X, Y, donate=(0,), taken=1)
    checked(lambda x, y: (x * 2, x + y), X, Y, donate=(0, 1), taken=2)


def test_an_input_that_is_read_later_is_not_overwritten() -> None:
    checked(lambda x, y: jnp.flip(jnp.sin(x)) @ jnp.outer(x, y), X[:50], Y[:50], donate=(0,), taken=1)
    checked(lambda x, y: (x + 1, jnp.flip(x), x.sum()), X, Y, donate=(0, 1), taken=1)
    checked(lambda x, y: (jnp.flip(x), x.sum() + y), X, Y, donate=(0,), taken=1)
    checked(lambda x, y: (jnp.flip(x), jnp.flip(x) * y), X, Y, donate=(0,), taken=0)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_the_state_of_a_loop_lies_in_the_donated_argument(steps: int) -> None:
    program = checked(lambda x, y: jax.lax.fori_loop(0, steps, lambda i, s: s * 0.5 + y, x), X, Y, donate=(0,), taken=1)
    if steps > 1:
        assert not [step for step in program.walk() if isinstance(step, Copy) and step.target.nbytes > 100]
    checked(
        lambda x, y: jax.lax.fori_loop(0, steps, lambda i, s: s + 0.1 * (jnp.roll(s, 1) - s), x),
        X,
        Y,
        donate=(0,),
        taken=int(steps != 1),
    )
    checked(
        lambda x, y: jax.lax.fori_loop(0, steps, lambda i, s: (s[1], s[0] * 2), (x, y)), X, Y, donate=(0, 1), taken=2
    )
    checked(lambda x, y: jax.lax.fori_loop(0, steps, lambda i, s: s.at[i].set(y[i]), x), X, Y, donate=(0,), taken=1)


def test_updates_happen_in_the_donated_memory() -> None:
    """A key-value cache: one row is written, nothing is copied."""
    cache = np.zeros((128, 64), "f4")
    row = np.ones((1, 64), "f4")
    executable = compiled(
        lambda c, r, i: jax.lax.dynamic_update_slice(c, r, (i, 0)), cache, row, np.int32(0), donate=(0,)
    )
    assert not [step for step in executable.spec.program.walk() if isinstance(step, Copy)]
    state = cache.copy()
    place = address(state)
    for position in range(128):
        state = executable(state, row * position, np.int32(position))
    assert address(state) == place
    np.testing.assert_array_equal(state, np.arange(128)[:, None] * np.ones(64, "f4"))


def test_a_branch_makes_its_result_in_the_donated_memory_or_beside_it() -> None:
    for flag in (True, False):
        executable = compiled(
            lambda p, x, y: jax.lax.cond(p, lambda: x + y, lambda: jnp.flip(x) * y), np.bool_(0), X, Y, donate=(1,)
        )
        expected = X + Y if flag else X[::-1] * Y
        np.testing.assert_allclose(executable(np.bool_(flag), X.copy(), Y), expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_donated_memory_without_an_output_holds_temporaries() -> None:
    program = checked(lambda x, y: (jnp.flip(jnp.sort(jnp.sin(x) * y))[:7],), X, Y, donate=(0,), taken=0)
    assert program.donated in ((), ((0, -1),))


# --------------------------------------------------------------------------------------------- how it is asked for


def test_compile_takes_argument_numbers() -> None:
    plain = ADD.replace("{tf.aliasing_output = 0 : i32}", "")
    executable = hlojit.compile(plain, donate=(1,))
    x, y = numbers(), numbers() * 2
    place = address(y)
    result = executable(x, y)
    assert address(result) == place and x.flags.writeable
    module = hlojit.parse(plain)
    hlojit.compile(module, donate=(0,))
    assert module.main.argument_attributes == [{}, {}]
    with pytest.raises(HlojitError, match="@main has 2 arguments; there is no argument 2 to donate"):
        hlojit.compile(plain, donate=(2,))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("{tf.aliasing_output = 1 : i32}", "argument 0: tf.aliasing_output = 1, but the function has 1 results"),
        ("{tf.aliasing_output = -1 : i32}", "argument 0: tf.aliasing_output = -1, but"),
    ],
)
def test_outputs_that_do_not_exist_are_refused(attributes: str, message: str) -> None:
    with pytest.raises(HlojitError, match=message):
        hlojit.compile(ADD.replace("{tf.aliasing_output = 0 : i32}", attributes))


def test_outputs_of_another_size_or_of_two_arguments_are_refused() -> None:
    other = f"""func.func public @main(%x: {T}, %y: tensor<3xf32> {{tf.aliasing_output = 0 : i32}}) -> {T} {{
      return %x : {T} }}"""
    with pytest.raises(
        HlojitError, match="argument 1: .* the result is tensor<1000xf32> and the argument tensor<3xf32>"
    ):
        hlojit.compile(other)
    with pytest.raises(HlojitError, match="which is another argument's, too"):
        hlojit.compile(ADD.replace(f"%y: {T}", f"%y: {T} {{tf.aliasing_output = 0 : i32}}"))


def test_jit_donates_parameters_by_number_and_name() -> None:
    def step(state: Any, gradient: Any, *, rate: Any = 0.5) -> Any:
        return {name: value - rate * gradient[name] for name, value in state.items()}

    for options in ({"donate_argnums": 0}, {"donate_argnames": "state"}, {"donate_argnums": (-2,)},
                    {"donate_argnums": (0,), "static_argnames": "rate"}):  # fmt: skip
        function = hlojit.jit(**options)(step)
        state = {"a": numbers(dtype="f8"), "b": np.ones((7, 10))}
        gradient = {name: np.ones_like(value) for name, value in state.items()}
        places = [address(value) for value in state.values()]
        for _ in range(3):
            state = function(state, gradient)
        assert [address(value) for value in state.values()] == places
        np.testing.assert_array_equal(state["a"], numbers() - 1.5)
        assert all(value.flags.writeable for value in gradient.values())
        assert "jax.buffer_donor" in str(function.lower(state, gradient))


def test_jit_donates_of_variable_arguments() -> None:
    first = hlojit.jit(donate_argnums=(1,))(lambda *xs, **named: [x + 1 for x in (*xs, *named.values())])
    arrays = [numbers(), numbers(), numbers()]
    first(arrays[0], arrays[1], extra=arrays[2])
    assert [array.flags.writeable for array in arrays] == [True, False, True]
    second = hlojit.jit(donate_argnames=("extra",))(lambda *xs, **named: [x + 1 for x in (*xs, *named.values())])
    arrays = [numbers(), numbers()]
    second(arrays[0], extra=arrays[1])
    assert [array.flags.writeable for array in arrays] == [True, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"donate_argnums": 2}, "donate_argnums holds 2, but step has the parameters x, n"),
        ({"donate_argnums": -3}, "donate_argnums holds -3"),
        ({"donate_argnames": "y"}, "donate_argnames names y, but step has the parameters x, n"),
        ({"donate_argnums": 1, "static_argnames": "n"}, "n of step: static arguments cannot be donated"),
    ],
)
def test_jit_refuses_parameters_that_are_none(options: dict[str, Any], message: str) -> None:
    def step(x: Any, n: Any) -> Any:
        return x

    with pytest.raises(HlojitError, match=message):
        hlojit.jit(**options)(step)


def test_arrays_on_a_device_are_given_up(add: Any) -> None:
    device = add.devices[0]
    x = hlojit.put(numbers(), device)
    result = add(x, hlojit.put(ONES, device))
    np.testing.assert_array_equal(np.asarray(result), numbers() + 1)
    with pytest.raises(ExecutionError, match="donated to main"):
        np.asarray(x)
    pending = add.execute(result, ONES)
    np.testing.assert_array_equal(np.asarray(pending), numbers() + 2)


def test_without_known_object_layouts_donated_arrays_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    from hlojit.runtime import objects

    monkeypatch.setattr(objects, "measure", lambda: None)
    executable = hlojit.compile(ADD)
    x = numbers()
    np.testing.assert_array_equal(executable(x, ONES), numbers() + 1)
    np.testing.assert_array_equal(x, numbers())
