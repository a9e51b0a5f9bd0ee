"""A layer of a decoder like GPT-2's, whose weights may be in blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import hlojit
import numpy as np


@dataclass(frozen=True)
class Weights:
    """What a layer of width ``d`` has learned: matrices of shape (outputs, inputs), vectors of ``d`` numbers."""

    attention: Any  # (3 * d, d): queries, keys and values
    projection: Any  # (d, d)
    up: Any  # (4 * d, d)
    down: Any  # (d, 4 * d)
    gain: Any  # (2, d): of the two normalizations
    bias: Any  # (2, d)


def random_weights(width: int, seed: int = 0) -> Weights:
    """Weights in f32 of the size that trained ones have; inputs keep their variance."""
    rng = np.random.default_rng(seed)

    def matrix(outputs: int, inputs: int) -> Any:
        return (rng.standard_normal((outputs, inputs)) / math.sqrt(inputs)).astype(np.float32)

    return Weights(
        matrix(3 * width, width),
        matrix(width, width),
        matrix(4 * width, width),
        matrix(width, 4 * width),
        (1 + 0.1 * rng.standard_normal((2, width))).astype(np.float32),
        (0.1 * rng.standard_normal((2, width))).astype(np.float32),
    )


def matrices(weights: Weights) -> tuple[Any, Any, Any, Any]:
    """Those that are worth a narrow format, in the order of the layer."""
    return weights.attention, weights.projection, weights.up, weights.down


def quantized(weights: Weights, name: str) -> Weights:
    """The same weights with matrices in the format called ``name``; blocks lie along the inputs."""
    narrow = (hlojit.Array.from_values(matrix, name) for matrix in matrices(weights))
    return Weights(*narrow, weights.gain, weights.bias)


def arguments(x: Any, weights: Weights) -> tuple[Any, ...]:
    """What a program of ``layer_text`` takes."""
    vectors = ((weights.gain[k], weights.bias[k]) for k in (0, 1))
    return (x, *matrices(weights), *(vector for pair in vectors for vector in pair))


def normalized(x: Any, gain: Any, bias: Any) -> Any:
    """Rows with mean 0 and variance 1, scaled."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(1e-5)) * gain + bias


@hlojit.jit(static_argnames=("heads", "activations"))
def layer(x: Any, weights: Weights, heads: int, activations: str = "f4") -> Any:
    """The layer of rows ``x`` (tokens, width), each of which sees itself and those before.

    ``activations`` is the format into which the inputs of the four products are rounded.
    """
    tokens, width = x.shape
    size = width // heads

    def product(a: Any, w: Any) -> Any:
        return a.astype(activations).astype("f4") @ w.astype("f4").T

    parts = product(normalized(x, weights.gain[0], weights.bias[0]), weights.attention)
    query, key, value = parts.reshape(tokens, 3, heads, size).transpose(1, 2, 0, 3)
    scores = query @ key.transpose(0, 2, 1) / np.float32(math.sqrt(size))
    scores = np.where(np.tril(np.ones((tokens, tokens), bool)), scores, np.float32(-1e9))
    weight = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = (weight / weight.sum(axis=-1, keepdims=True)) @ value
    x = x + product(mixed.transpose(1, 0, 2).reshape(tokens, width), weights.projection)
    hidden = product(normalized(x, weights.gain[1], weights.bias[1]), weights.up)
    gelu = hidden / 2 * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (hidden + np.float32(0.044715) * hidden**3)))
    return x + product(gelu, weights.down)
