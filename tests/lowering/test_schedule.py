"""What happens at run time, step by step: no copies where values can be made in place, none lost where they cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import hlojit
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlojit.lowering.program import Copy, Launch, Loop, Program, Step, Swap

VECTOR = np.linspace(0.0, 1.0, 1000, dtype="f4")
LARGE = 1000
"""Bytes from which a copy counts."""


def compiled(function: Callable[..., Any], *arguments: Any) -> Program:
    """The program of a JAX function, after comparing its results with JAX's."""
    jitted = jax.jit(function, keep_unused=True)
    executable = hlojit.compile(jitted.lower(*arguments).as_text())
    actual = executable(*jax.tree.leaves(arguments))
    for ours, theirs in zip(actual if isinstance(actual, tuple) else (actual,), jax.tree.leaves(jitted(*arguments))):
        np.testing.assert_allclose(ours, np.asarray(theirs), rtol=2e-5, atol=1e-5)
    program = executable.spec.program
    assert isinstance(program, Program)
    return program


def only_loop(program: Program) -> Loop:
    (loop,) = [step for step in program.walk() if isinstance(step, Loop)]
    return loop


def copies(steps: Sequence[Step]) -> list[Copy]:
    """Copies of more than a few bytes."""
    return [step for step in steps if isinstance(step, Copy) and step.target.nbytes >= LARGE]


def test_scan_writes_its_stacked_output_in_place() -> None:
    loop = only_loop(compiled(lambda x: jax.lax.scan(lambda c, _: (c * 0.5 + 1, c), x, None, length=10), VECTOR))
    assert copies(loop.body) == [] and len([step for step in loop.body if isinstance(step, Swap)]) == 1


def test_stencil_exchanges_two_buffers() -> None:
    loop = only_loop(compiled(
        lambda x: jax.lax.fori_loop(0, 9, lambda i, u: u + 0.1 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)), x), VECTOR
    ))  # fmt: skip
    assert copies(loop.body) == [] and len([step for step in loop.body if isinstance(step, Swap)]) == 1


def test_elementwise_state_is_updated_where_it_lies() -> None:
    loop = only_loop(compiled(lambda x: jax.lax.fori_loop(0, 9, lambda i, u: u * 0.5 + 1, x), VECTOR))
    assert copies(loop.body) == [] and not any(isinstance(step, Swap) for step in loop.body)


def test_chain_of_updates_happens_in_the_state() -> None:
    loop = only_loop(compiled(
        lambda x: jax.lax.fori_loop(0, 9, lambda i, u: u.at[i].set(1.0).at[i + 2].add(2.0), x), VECTOR
    ))  # fmt: skip
    assert copies(loop.body) == []


def test_update_after_the_old_value_was_read_needs_no_copy() -> None:
    loop = only_loop(compiled(
        lambda x: jax.lax.fori_loop(0, 9, lambda i, u: u.at[i].set(u[i + 1] + u.sum()), x), VECTOR
    ))  # fmt: skip
    assert copies(loop.body) == []


def test_exchanged_states_step_aside_once() -> None:
    """(a, b) = (b, 2 a): one computes into the spare buffer, the other is copied."""
    loop = only_loop(compiled(lambda x, y: jax.lax.fori_loop(0, 5, lambda i, s: (s[1], s[0] * 2), (x, y)), VECTOR,
                              VECTOR + 1))  # fmt: skip
    assert len(copies(loop.body)) <= 1


def test_chain_of_elementwise_ops_takes_bounded_memory() -> None:
    """Products and elementwise ops in turn: buffers are used again, however long the chain."""

    def chain(length: int) -> Callable[[Any], Any]:
        def function(x: Any) -> Any:
            for _ in range(length):
                x = jnp.tanh(x @ x) + 0.1
            return x

        return function

    square = np.full((32, 32), 0.01, "f4")
    assert (
        compiled(chain(24), square).arena_bytes == compiled(chain(6), square).arena_bytes <= 4 * square.nbytes + 65536
    )


ROTATIONS: dict[str, Callable[..., Any]] = {
    "swap": lambda s: (s[1], s[0], s[2]),
    "rotate": lambda s: (s[1], s[2], s[0]),
    "shift": lambda s: (s[1] + 1, s[0], s[1]),
    "duplicate": lambda s: (s[0] + s[1], s[0], s[0]),
    "both_from_one": lambda s: (s[2], s[2] + 1, s[0] * 0.5),
    "constant": lambda s: (jnp.ones_like(s[0]), s[0], s[1] + s[2]),
    "reversed": lambda s: (s[0][::-1], s[0], s[1][::-1] + s[2]),
    "updates": lambda s: (s[0].at[1].set(s[1][0]), s[1].at[2].add(s[0][3]), s[0]),
    "nested": lambda s: (jax.lax.fori_loop(0, 2, lambda i, u: u[::-1] + s[0], s[1]), s[2], s[1]),
    "branch": lambda s: (jax.lax.cond(s[0][0] > 1, lambda: s[1], lambda: s[2] + s[0]), s[0], s[2]),
}


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("name", ROTATIONS)
def test_states_that_change_places(name: str, size: int) -> None:
    if size < 5 and name == "updates":
        size = 4
    states = [np.arange(size, dtype="f4") + k for k in range(3)]
    step = ROTATIONS[name]
    compiled(lambda *s: jax.lax.fori_loop(0, 5, lambda i, t: step(t), s), *states)
    # One value in all places when the loop begins.
    compiled(lambda x: jax.lax.fori_loop(0, 3, lambda i, t: step(t), (x * 2,) * 3), states[0])


BRANCHES: dict[str, Callable[[Any, Any], Any]] = {
    "update_or_nothing": lambda i, x: jax.lax.cond(x[i] > 0.5, lambda: x.at[i].add(-0.25), lambda: x),
    "two_updates": lambda i, x: jax.lax.cond(x[i] > 0.5, lambda: x.at[i].set(x[i + 1]), lambda: x.at[i + 1].set(x[i])),
    "updates_in_a_chain": lambda i, x: jax.lax.cond(
        x[i] > 0.5, lambda: x.at[i].set(0.0).at[i + 1].add(1.0), lambda: x.at[i].set(x[0]).at[0].set(x[i])
    ),
    "switch_within_a_branch": lambda i, x: jax.lax.cond(
        x[i] > 0.5,
        lambda: jax.lax.switch(i % 3, [lambda: x.at[i].set(2.0), lambda: x, lambda: x.at[0].set(x[i])]),
        lambda: x,
    ),
    "loop_within_a_branch": lambda i, x: jax.lax.cond(
        x[i] > 0.5, lambda: jax.lax.fori_loop(0, 3, lambda k, y: y.at[k].add(y[k + i]), x), lambda: x
    ),
    "elementwise": lambda i, x: jax.lax.cond(x[i] > 0.5, lambda: x * 0.5, lambda: x + 0.25),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_branches_update_a_state_where_it_lies(name: str) -> None:
    step = BRANCHES[name]
    program = compiled(lambda x: jax.lax.fori_loop(0, 20, step, x), VECTOR)
    loop = next(step for step in program.walk() if isinstance(step, Loop))
    inner = Program.walk(replace(program, steps=(loop,)))
    assert copies(list(inner)) == []


KEPT: dict[str, Callable[[Any, Any], Any]] = {
    "read_behind_the_branch": lambda i, s: (
        jax.lax.cond(i % 2 > 0, lambda: s[0].at[i].set(9.0), lambda: s[0]),
        s[1] + s[0],
    ),
    "read_behind_the_update": lambda i, s: jax.lax.cond(
        i % 2 > 0, lambda: (s[0].at[i].set(9.0), s[0] * 2 + s[1]), lambda: (s[0], s[1])
    ),
    "returned_twice": lambda i, s: jax.lax.cond(
        i % 2 > 0, lambda: (s[0].at[i].set(9.0), s[0]), lambda: (s[0] + s[1], s[1].at[i].set(s[0][i]))
    ),
    "exchanged": lambda i, s: jax.lax.cond(i % 2 > 0, lambda: (s[1].at[i].set(9.0), s[0]), lambda: (s[1], s[0])),
    "of_the_other": lambda i, s: jax.lax.cond(
        i % 2 > 0, lambda: (s[1].at[i].set(9.0), s[1]), lambda: (s[0].at[i].add(s[1][i + 1]), s[1])
    ),
    "read_by_an_inner_loop": lambda i, s: jax.lax.cond(
        i % 2 > 0,
        lambda: (jax.lax.fori_loop(0, 3, lambda k, y: y.at[k].add(s[0][k + i]), s[0]), s[1]),
        lambda: s,
    ),
    "in_another_order": lambda i, s: jax.lax.cond(i % 2 > 0, lambda: (s[0][::-1], s[1]), lambda: (s[0] + 1, s[1])),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_a_branch_still_reads_is_not_overwritten(name: str) -> None:
    step = KEPT[name]
    compiled(lambda x, y: jax.lax.fori_loop(0, 7, step, (x, y)), VECTOR, VECTOR[::-1].copy())
    compiled(lambda x: jax.lax.fori_loop(0, 4, step, (x, x)), VECTOR)


EXCHANGED: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda i, s: (s[1].at[i].set(s[0][i + 1] * 0.5), s[0]),
    "the_other_way": lambda i, s: (s[1], s[0].at[i].add(s[1][i + 2])),
    "inner_loop": lambda i, s: (
        jax.lax.fori_loop(1, 9, lambda k, y: y.at[k].set(s[0][k + 1] + s[0][k - 1]), s[1]),
        s[0],
    ),
    "two_inner_loops": lambda i, s: (
        jax.lax.fori_loop(
            1, 4, lambda j, z: jax.lax.fori_loop(1, 9, lambda k, y: y.at[k + j].set(s[0][k + j + 1] - y[k]), z), s[1]
        ),
        s[0],
    ),
}


@pytest.mark.parametrize("name", EXCHANGED)
def test_states_that_a_loop_exchanges_are_not_copied(name: str) -> None:
    step = EXCHANGED[name]
    for rounds in (1, 4, 7):
        repeated = partial(jax.lax.fori_loop, 0, rounds, step)
        program = compiled(lambda x, y, repeated=repeated: repeated((x, y)), VECTOR, VECTOR[::-1].copy())
    (outer,) = [each for each in program.steps if isinstance(each, Loop)]
    assert sum(isinstance(each, Swap) for each in outer.body) == 1
    assert not any(isinstance(each, Copy) and each.source.nbytes >= LARGE for each in outer.body)
    compiled(lambda x: jax.lax.fori_loop(0, 3, step, (x, x)), VECTOR)
    compiled(lambda x: jax.lax.fori_loop(0, 3, step, (x, x * 2))[1], VECTOR)

    def within(i: Any, s: Any) -> Any:
        return jax.lax.fori_loop(0, 3, step, s)

    compiled(lambda x, y: jax.lax.fori_loop(0, 3, within, (x, y)), VECTOR, VECTOR[::-1].copy())


EXCHANGED_AND_READ: dict[str, Callable[[Any, Any], Any]] = {
    "old_one_read_later": lambda i, s: (s[1].at[i].set(9.0), s[0], s[2] + s[1]),
    "old_one_kept": lambda i, s: (s[1].at[i].set(9.0), s[0], s[1]),
    "returned_twice": lambda i, s: (s[1].at[i].set(9.0), s[0], s[0]),
    "new_one_twice": lambda i, s: (s[1].at[i].set(s[2][i]), s[0], s[1].at[i].set(s[2][i])),
    "ring_of_three": lambda i, s: (s[2].at[i].set(s[1][i] * 0.5), s[0], s[1]),
    "of_an_earlier_one": lambda i, s: (s[1].at[i].set(s[0][i]), s[0], s[2].at[i].add(s[0][i] + s[1][i])),
}


@pytest.mark.parametrize("name", EXCHANGED_AND_READ)
def test_what_is_read_beside_an_exchange_is_not_overwritten(name: str) -> None:
    step = EXCHANGED_AND_READ[name]
    compiled(lambda x, y: jax.lax.fori_loop(0, 5, step, (x, y, x + y)), VECTOR, VECTOR[::-1].copy())
    compiled(lambda x: jax.lax.fori_loop(0, 4, step, (x, x, x)), VECTOR)


def random_step(generator: np.random.Generator, depth: int) -> Callable[[Any, Any], Any]:
    """A function of a number and two vectors that updates, exchanges, branches and loops."""
    kind = generator.choice(["update", "add", "swap", "mix", "both", "branch", "branch", "loop", "chain", "chain"])
    one, other = (int(each) for each in generator.permutation(2))
    place, shift = (int(each) for each in generator.integers(0, 5, 2))

    def with_one(s: Any, made: Any) -> Any:
        return (made, s[1]) if one == 0 else (s[0], made)

    if kind == "update" or (depth == 0 and kind in ("branch", "loop", "chain")):
        return lambda i, s: with_one(s, s[one].at[i + place].set(s[other][i + shift] * 0.5))
    if kind == "add":
        return lambda i, s: with_one(s, s[one] + 0.25)
    if kind == "swap":
        return lambda i, s: (s[1], s[0])
    if kind == "mix":
        return lambda i, s: with_one(s, s[one] * 0.5 + s[other])
    if kind == "both":
        return lambda i, s: (s[one], s[one])
    first, second = random_step(generator, depth - 1), random_step(generator, depth - 1)
    if kind == "branch":
        return lambda i, s: jax.lax.cond(s[one][place] > s[other][shift], lambda: first(i, s), lambda: second(i, s))
    if kind == "loop":
        return lambda i, s: jax.lax.fori_loop(0, 2, lambda k, t: first(k, t), s)
    return lambda i, s: second(i, first(i, s))


@pytest.mark.parametrize("seed", range(12))
def test_random_branches_in_loops(seed: int) -> None:
    step = random_step(np.random.default_rng(seed), 4)
    x = np.random.default_rng(seed).normal(size=300).astype("f4")
    compiled(lambda x, y: jax.lax.fori_loop(0, 5, step, (x, y)), x, x[::-1].copy())


def invariant_text(tail: str) -> str:
    type = "tensor<20x20xi32>"
    return f"""
    func.func public @main(%a: {type}, %n: tensor<i32>) -> ({type}, {type}, {type}) {{
      %x = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : ({type}, {type}) -> {type}
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %r:3 = stablehlo.while(%p = %x, %q = %x, %i = %zero) : {type}, {type}, tensor<i32>
        cond {{
          %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        }} do {{
          %one = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.add %i, %one : tensor<i32>
          stablehlo.return %p, %q, %j : {type}, {type}, tensor<i32>
        }}
      {tail}
      %f = stablehlo.dot_general %d, %r#1, contracting_dims = [1] x [0] : ({type}, {type}) -> {type}
      %g = stablehlo.dot_general %d, %x, contracting_dims = [1] x [0] : ({type}, {type}) -> {type}
      return %d, %f, %g : {type}, {type}, {type}
    }}"""


def test_names_of_one_value_do_not_overwrite_each_other() -> None:
    """Two results of a loop and a value before it are one piece of memory."""
    type = "tensor<20x20xi32>"
    text = invariant_text(f"""
      %e = stablehlo.add %r#0, %a : {type}
      %d = stablehlo.dot_general %e, %a, contracting_dims = [1] x [0] : ({type}, {type}) -> {type}""")
    a = np.arange(400, dtype="i4").reshape(20, 20) % 3
    d = (a @ a + a) @ a
    executable = hlojit.compile(text, options={"disable_passes": ("while-loop-simplifier",)})
    for ours, theirs in zip(executable(a, np.int32(2)), (d, d @ (a @ a), d @ (a @ a))):
        np.testing.assert_array_equal(ours, theirs)


def test_alias_that_is_read_in_another_order_prevents_overwriting() -> None:
    type = "tensor<20x20xi32>"
    text = f"""
    func.func public @main(%a: {type}) -> {type} {{
      %x = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : ({type}, {type}) -> {type}
      %y = stablehlo.optimization_barrier %x : {type}
      %t = stablehlo.transpose %y, dims = [1, 0] : ({type}) -> {type}
      %z = stablehlo.subtract %x, %t : {type}
      %r = stablehlo.dot_general %z, %a, contracting_dims = [1] x [0] : ({type}, {type}) -> {type}
      return %r : {type}
    }}"""
    a = np.arange(400, dtype="i4").reshape(20, 20) % 7
    np.testing.assert_array_equal(hlojit.compile(text)(a), (a @ a - (a @ a).T) @ a)


def test_condition_leaves_the_state_alone() -> None:
    """The condition updates its argument in place, the body does not read it: the result is still the state."""
    text = """
    func.func public @main(%x0: tensor<500xi32>) -> tensor<500xi32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%x = %x0, %i = %zero) : tensor<500xi32>, tensor<i32>
      cond {
        %k = stablehlo.constant dense<77> : tensor<1xi32>
        %five = stablehlo.constant dense<80> : tensor<i32>
        %u = stablehlo.dynamic_update_slice %x, %k, %i : (tensor<500xi32>, tensor<1xi32>, tensor<i32>) -> tensor<500xi32>
        %s = stablehlo.dynamic_slice %u, %i, sizes = [1] : (tensor<500xi32>, tensor<i32>) -> tensor<1xi32>
        %e = stablehlo.reshape %s : (tensor<1xi32>) -> tensor<i32>
        %w = stablehlo.add %e, %i : tensor<i32>
        %c = stablehlo.compare LT, %w, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %j = stablehlo.add %i, %one : tensor<i32>
        %b = stablehlo.broadcast_in_dim %i, dims = [] : (tensor<i32>) -> tensor<500xi32>
        stablehlo.return %b, %j : tensor<500xi32>, tensor<i32>
      }
      %reversed = stablehlo.reverse %r#0, dims = [0] : tensor<500xi32>
      return %reversed : tensor<500xi32>
    }"""
    np.testing.assert_array_equal(hlojit.compile(text)(np.zeros(500, "i4")), np.full(500, 2, "i4"))


def test_equal_layers_share_one_kernel() -> None:
    def layers(x: Any, weights: Any) -> Any:
        for k in range(12):
            x = jnp.tanh(x @ weights[k]) * 0.5
        return x

    program = compiled(layers, np.ones((8, 16), "f4"), [np.full((16, 16), 0.1 * k, "f4") for k in range(12)])
    launches = [step for step in program.walk() if isinstance(step, Launch)]
    assert len(launches) >= 12 and len({launch.kernel.phases[0].symbol for launch in launches}) <= 3
