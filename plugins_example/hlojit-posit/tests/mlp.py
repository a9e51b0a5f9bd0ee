"""A small network trained in posits: python tests/mlp.py prints the losses beside those of f32 and the 8-bit floats."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np

STEPS = 400
RATE = 0.25


def task() -> tuple[np.ndarray, np.ndarray]:
    """256 points of the plane, and which of two spirals each belongs to (-1 or 1)."""
    rng = np.random.default_rng(0)
    way = rng.uniform(0.3, 1, 256)
    side = rng.choice([-1.0, 1.0], 256)
    angle = 4 * way + (side > 0) * np.pi
    points = np.stack([way * np.cos(angle), way * np.sin(angle)], 1) * 2 + rng.normal(0, 0.05, (256, 2))
    return points.astype("f4"), side[:, None].astype("f4")


def parameters() -> list[np.ndarray]:
    """Weights and biases of 2 - 32 - 1 neurons."""
    rng = np.random.default_rng(1)
    first, second = rng.normal(0, 1, (2, 32)), rng.normal(0, 0.2, (32, 1))
    return [each.astype("f4") for each in (first, rng.normal(0, 0.5, 32), second, np.zeros(1))]


def trainer(computed: str, kept: str) -> Any:
    """One step of gradient descent: everything computed in one format, the weights kept in another."""

    @hlojit.jit
    def step(w1, b1, w2, b2, x, y):  # type: ignore[no-untyped-def]
        v1, c1, v2, c2, inputs, wanted = (each.astype(computed) for each in (w1, b1, w2, b2, x, y))
        hidden = np.tanh(inputs @ v1 + c1)
        error = np.tanh(hidden @ v2 + c2) - wanted
        loss = (error.astype("f4") ** 2).mean()
        back = error * (1 - (error + wanted) ** 2)
        before = (back @ v2.T) * (1 - hidden * hidden)
        rate = np.float32(RATE / len(x))
        gradients = (inputs.T @ before, before.sum(axis=0), hidden.T @ back, back.sum(axis=0))
        moved = [
            weights - (gradient.astype("f4") * rate).astype(kept)
            for weights, gradient in zip((w1, b1, w2, b2), gradients, strict=True)
        ]
        return loss, *moved

    return step


def train(computed: str, kept: str, steps: int = STEPS) -> list[float]:
    """The loss before each step."""
    x, y = task()
    cast = hlojit.jit(lambda *each: tuple(one.astype(kept) for one in each))
    weights = cast(*parameters())
    step = trainer(computed, kept)
    losses = []
    for _ in range(steps):
        loss, *weights = step(*weights, x, y)
        losses.append(float(loss))
    return losses


if __name__ == "__main__":
    for computed, kept in (
        ("f4", "f4"),
        ("f2", "f4"),
        ("posit32", "posit32"),
        ("posit16", "posit16"),
        ("posit8", "posit16"),
        ("posit8", "posit8"),
    ):
        losses = train(computed, kept)
        print(f"| {computed} | {kept} | {losses[0]:.3f} | {losses[99]:.3f} | {losses[-1]:.4f} |")
