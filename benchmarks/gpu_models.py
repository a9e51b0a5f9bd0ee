"""GPT-2-small in bf16 as it is trained on GPUs: a batch of sequences, sums and weights in f32, Adam."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from benchmarks.programs import CONTEXT, LAYERS, VOCABULARY, WIDTH, Program

BATCH, LENGTH = 8, 512
BLOCK = (1 << 20) - 3


def _weights(layers: int, width: int, vocabulary: int, dtype: Any) -> dict[str, Any]:
    """Random weights: a repeated block, which is made in no time."""
    block = (np.random.default_rng(5).standard_normal(BLOCK, np.float32) * np.float32(0.02)).astype(dtype)
    taken = 0

    def drawn(*shape: int) -> np.ndarray[Any, Any]:
        nonlocal taken
        taken += 977
        return np.resize(np.roll(block, taken), shape)

    def norm() -> tuple[Any, Any]:
        return np.ones(width, dtype), np.zeros(width, dtype)

    def layer() -> dict[str, Any]:
        return {
            "ln1": norm(),
            "qkv": (drawn(width, 3 * width), drawn(3 * width)),
            "out": (drawn(width, width), drawn(width)),
            "ln2": norm(),
            "up": (drawn(width, 4 * width), drawn(4 * width)),
            "down": (drawn(4 * width, width), drawn(width)),
        }

    return {
        "tokens": drawn(vocabulary, width),
        "positions": drawn(CONTEXT, width),
        "layers": [layer() for _ in range(layers)],
        "ln": norm(),
    }


def _norm(x: Any, scale: Any, shift: Any) -> Any:
    """In f32, as usual; the result has the type of its argument."""
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = ((wide - mean) ** 2).mean(-1, keepdims=True)
    return ((wide - mean) * lax.rsqrt(variance + 1e-5)).astype(x.dtype) * scale + shift


def _forward(weights: dict[str, Any], tokens: Any, heads: int) -> Any:
    batch, length = tokens.shape
    x = weights["tokens"][tokens] + weights["positions"][:length]
    mask = jnp.tril(jnp.ones((length, length), bool))
    for layer in weights["layers"]:
        h = _norm(x, *layer["ln1"])
        q, k, v = jnp.split(h @ layer["qkv"][0] + layer["qkv"][1], 3, axis=-1)
        q, k, v = (part.reshape(batch, length, heads, -1) for part in (q, k, v))
        scores = jnp.einsum("bthd,bshd->bhts", q, k, preferred_element_type=jnp.float32)
        scores = jnp.where(mask, scores / np.float32(np.sqrt(q.shape[-1])), np.float32(-1e9))
        attention = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
        mixed = jnp.einsum("bhts,bshd->bthd", attention, v).reshape(batch, length, -1)
        x = x + mixed @ layer["out"][0] + layer["out"][1]
        h = jax.nn.gelu(_norm(x, *layer["ln2"]) @ layer["up"][0] + layer["up"][1])
        x = x + h @ layer["down"][0] + layer["down"][1]
    return _norm(x, *weights["ln"]) @ weights["tokens"].T


def _loss(weights: dict[str, Any], tokens: Any, targets: Any, heads: int) -> Any:
    """Cross entropy of the next token; the weights are f32 and rounded to bf16 for the products."""
    rounded = jax.tree.map(lambda each: each.astype(jnp.bfloat16), weights)
    logits = _forward(rounded, tokens, heads).astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - chosen).mean()


def _step(state: Any, tokens: Any, targets: Any, heads: int) -> Any:
    weights, first, second, step = state
    loss, gradient = jax.value_and_grad(_loss)(weights, tokens, targets, heads)
    step = step + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)

    def update(weight: Any, m: Any, v: Any) -> Any:
        return weight - 1e-4 * (m / (1 - 0.9**step)) / (jnp.sqrt(v / (1 - 0.999**step)) + 1e-8)

    return (jax.tree.map(update, weights, first, second), first, second, step), loss


def gpt2_batched_forward(
    layers: int = LAYERS, width: int = WIDTH, vocabulary: int = VOCABULARY, batch: int = BATCH, length: int = LENGTH
) -> Program:
    """The forward pass over a batch of sequences, all in bf16 but sums, norms and softmax."""
    tokens = np.random.default_rng(1).integers(0, vocabulary, (batch, length)).astype("i4")
    weights = _weights(layers, width, vocabulary, ml_dtypes.bfloat16)
    return Program("gpt2_forward_bf16", lambda w, t: _forward(w, t, width // 64), (weights, tokens), 6e-2)


def gpt2_training_step(
    layers: int = LAYERS, width: int = WIDTH, vocabulary: int = VOCABULARY, batch: int = BATCH, length: int = LENGTH
) -> Program:
    """A training step: loss and gradient (``jax.value_and_grad``), then Adam, whose state is f32 like the weights."""
    tokens, targets = np.random.default_rng(1).integers(0, vocabulary, (2, batch, length)).astype("i4")
    weights = _weights(layers, width, vocabulary, np.float32)
    zeros = jax.tree.map(np.zeros_like, weights)
    # Adam's first step divides a gradient by its own magnitude: a second moment keeps it from amplifying rounding errors.
    second = jax.tree.map(lambda each: np.full_like(each, 1e-4), weights)
    state = (weights, zeros, second, np.float32(0))
    return Program("gpt2_training_step", lambda s, x, y: _step(s, x, y, width // 64), (state, tokens, targets), 6e-2)
