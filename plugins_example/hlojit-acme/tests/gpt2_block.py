"""A language model of one block in the shape of GPT-2's, as a function of NumPy arrays: the oracle, and what is traced."""

from __future__ import annotations

from typing import Any

import numpy as np

TOKENS, WIDTH, HEADS, VOCABULARY, BEST = 24, 64, 4, 100, 5

SHAPES = {
    "embedding": (VOCABULARY, WIDTH),
    "positions": (TOKENS, WIDTH),
    "gain1": (WIDTH,),
    "bias1": (WIDTH,),
    "attention": (WIDTH, 3 * WIDTH),
    "attention_bias": (3 * WIDTH,),
    "projection": (WIDTH, WIDTH),
    "projection_bias": (WIDTH,),
    "gain2": (WIDTH,),
    "bias2": (WIDTH,),
    "up": (WIDTH, 4 * WIDTH),
    "up_bias": (4 * WIDTH,),
    "down": (4 * WIDTH, WIDTH),
    "down_bias": (WIDTH,),
}


def weights() -> list[np.ndarray]:
    """Of the size that keeps activations near 1."""
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(shape, "f4") / np.float32(shape[0] ** 0.5 if len(shape) == 2 else 4)
        for shape in SHAPES.values()
    ]


def tokens() -> np.ndarray:
    """A text of 24 tokens."""
    return np.random.default_rng(1).integers(0, VOCABULARY, TOKENS, dtype="i4")


def normalized(x: Any, gain: Any, bias: Any) -> Any:
    """Layer norm."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + np.float32(1e-5)) * gain + bias


def softmax(x: Any) -> Any:
    """Of rows."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def heads(x: Any) -> Any:
    """[tokens, width] as [heads, tokens, width of a head]."""
    return np.transpose(x.reshape(TOKENS, HEADS, WIDTH // HEADS), (1, 0, 2))


def model(
    text: Any, embedding: Any, positions: Any, gain1: Any, bias1: Any, attention: Any, attention_bias: Any, projection: Any,
    projection_bias: Any, gain2: Any, bias2: Any, up: Any, up_bias: Any, down: Any, down_bias: Any,
) -> Any:  # fmt: skip
    """The hidden states, and the largest scores of the next token, largest first."""
    x = embedding[text] + positions
    mixed = normalized(x, gain1, bias1) @ attention + attention_bias
    queries, keys, values = (heads(mixed[:, i * WIDTH : (i + 1) * WIDTH]) for i in range(3))
    scores = queries @ np.transpose(keys, (0, 2, 1)) * np.float32((WIDTH // HEADS) ** -0.5)
    scores = np.where(np.tril(np.ones((TOKENS, TOKENS), bool)), scores, np.float32(-1e9))
    context = np.transpose(softmax(scores) @ values, (1, 0, 2)).reshape(TOKENS, WIDTH)
    x = x + context @ projection + projection_bias
    hidden = normalized(x, gain2, bias2) @ up + up_bias
    bent = np.tanh(np.float32(0.7978846) * (hidden + np.float32(0.044715) * hidden * hidden * hidden))
    x = x + (np.float32(0.5) * hidden * (1 + bent)) @ down + down_bias
    logits = x[-1] @ embedding.T
    return x, np.sort(logits)[::-1][:BEST]
