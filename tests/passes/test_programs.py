"""Programs as JAX writes them keep their meaning through the default passes, fusion included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hlojit.ir.graph import Module
from hlojit.ir.interpreter import evaluate
from hlojit.ir.ops.definition import Indexed, Pointwise, Reduction
from hlojit.ir.passes.graph_facts import program_blocks
from hlojit.ir.passes.pass_manager import order_passes
from hlojit.ir.passes.registry import default_passes
from hlojit.ir.passes.rewriting import Effect, Rewriter, observe_rules, rule_table
from hlojit.ir.passes.rewriting import Rule as RewriteRule
from hlojit.ir.text.parser import parse_module
from hlojit.ir.text.printer import print_module

from .golden import assert_same_bits, assert_same_results

jax = pytest.importorskip("jax")
jnp = jax.numpy


def attention(x: Any, w: Any) -> Any:
    q, k, v = jnp.split(x @ w, 3, axis=-1)
    q, k, v = (t.reshape(8, 2, 4).transpose(1, 0, 2) for t in (q, k, v))
    scores = jnp.where(jnp.tril(jnp.ones((8, 8), bool)), q @ k.transpose(0, 2, 1) / 2.0, -1e9)
    out = (jax.nn.softmax(scores, axis=-1) @ v).transpose(1, 0, 2).reshape(8, 8)
    return x + out


def layer_norm_gelu(x: Any, w: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    centered = x - mean
    scaled = centered / jnp.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    return jax.nn.gelu(scaled), x.var(0), scaled.max()


def training_step(x: Any, w: Any) -> Any:
    def loss(w: Any) -> Any:
        return jnp.mean(jnp.tanh(x @ w) ** 2)

    value, gradient = jax.value_and_grad(loss)(w)
    return value, w - 0.1 * gradient


def indexing(x: Any, w: Any) -> Any:
    i = jnp.argmax(w[0, :8])
    return x[i], x.at[1:3, 2:4].set(1.0), jnp.take(x, jnp.array([3, 1, 9]), axis=0), x[::-1, ::2], jnp.cumsum(x, 0)


def loops(x: Any, w: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        carry = jnp.tanh(carry + row * w[0, :8])
        return carry, carry.sum()

    last, sums = jax.lax.scan(step, x[0], x)
    return jax.lax.fori_loop(0, 3, lambda i, y: y.at[i].add(1.0), x), last, sums


def branches(x: Any, w: Any) -> Any:
    return jax.lax.cond(x[0, 0] > 0, lambda y: jnp.sin(y) + w[0, 0], lambda y: y * 2, x), jnp.sort(x, axis=1)


PROGRAMS: list[Callable[..., Any]] = [attention, layer_norm_gelu, training_step, indexing, loops, branches]


def lowered(function: Callable[..., Any]) -> tuple[str, list[Any]]:
    generator = np.random.default_rng(3)
    arguments = [generator.normal(size=(8, 8)).astype("f4"), generator.normal(size=(8, 24)).astype("f4")]
    if function is training_step:
        arguments[1] = arguments[1][:, :8]
    # keep_unused: the program takes the arguments that this test has.
    return str(jax.jit(function, keep_unused=True).lower(*arguments).as_text()), arguments


def optimized(text: str) -> tuple[Module, set[Effect]]:
    module = parse_module(text)
    fired: list[RewriteRule] = []
    with observe_rules(lambda rule, instruction: fired.append(rule)):
        order_passes(default_passes()).run(module, verify="always")
    return module, {rule.effect for rule in fired}


@pytest.mark.parametrize("function", PROGRAMS)
def test_program_keeps_its_meaning(function: Callable[..., Any]) -> None:
    text, arguments = lowered(function)
    module, effects = optimized(text)
    expected, found = evaluate(parse_module(text), *arguments), evaluate(module, *arguments)
    for one, other in zip(expected, found, strict=True):
        if effects <= {Effect.EXACT}:
            assert_same_bits(one, other)
        else:
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", PROGRAMS)
def test_everything_fusible_is_fused(function: Callable[..., Any]) -> None:
    module, _ = optimized(lowered(function)[0])
    for block in program_blocks(module.main):
        for instruction in block:
            fusible = isinstance(instruction.op.lowering, (Pointwise, Indexed, Reduction))
            assert not fusible or instruction.op.name == "stablehlo.reshape", instruction


@pytest.mark.parametrize("function", PROGRAMS)
def test_optimized_text_reads_back(function: Callable[..., Any]) -> None:
    text = print_module(optimized(lowered(function)[0])[0])
    assert print_module(parse_module(text)) == text


def test_the_harness_sees_a_wrong_sign_of_zero() -> None:
    """X + 0.0 -> x is wrong for x = -0.0: the comparison of golden cases must notice."""

    def add_any_zero(rewriter: Rewriter, add: Any) -> Any:
        return add.operands[0]

    text = """
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %c = stablehlo.constant dense<0.0> : tensor<4xf32>
      %0 = stablehlo.add %x, %c : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    """
    after = parse_module(text)
    rule = RewriteRule("add_any_zero", ("stablehlo.add",), Effect.EXACT, add_any_zero)
    Rewriter(after, rule_table([rule], frozenset(Effect))).run()
    with pytest.raises(AssertionError, match="became"):
        assert_same_results(parse_module(text), after, {Effect.EXACT})
