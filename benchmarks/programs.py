"""The real programs that tests and benchmarks share, as JAX functions with example arguments.

Each is a ``Program``: the function, its arguments (random weights, fixed seed), and the relative tolerance within which
two correct compilers may differ (float sums in another order).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


@dataclass(frozen=True)
class Program:
    """A JAX function with arguments; ``tolerance`` is relative to the largest element of each result."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    tolerance: float = 1e-5
    x64: bool = False

    def text(self) -> str:
        """StableHLO text as JAX lowers it."""
        with jax.enable_x64(self.x64):
            return str(jax.jit(self.function).lower(*self.arguments).as_text())

    def flat_arguments(self) -> list[np.ndarray[Any, Any]]:
        """The arguments as the lowered program takes them."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self.arguments)]

    def expected(self) -> list[np.ndarray[Any, Any]]:
        """JAX's own results."""
        with jax.enable_x64(self.x64):
            return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(self.function)(*self.arguments))]


def _random(*shape: int, scale: float = 0.02, seed: int = 0, dtype: str = "f4") -> np.ndarray[Any, Any]:
    values = np.random.default_rng([seed, *shape]).standard_normal(shape) * scale
    return values.astype(dtype)


# ------------------------------------------------------------------------------------------------------------ GPT-2

WIDTH, HEADS, LAYERS, VOCABULARY, CONTEXT = 768, 12, 12, 50257, 1024


def _gpt2_weights(layers: int, width: int, vocabulary: int, context: int) -> dict[str, Any]:
    def layer(seed: int) -> dict[str, Any]:
        return {
            "ln1": (np.ones(width, "f4"), np.zeros(width, "f4")),
            "qkv": (_random(width, 3 * width, seed=seed), _random(3 * width, seed=seed)),
            "out": (_random(width, width, seed=seed), _random(width, seed=seed)),
            "ln2": (np.ones(width, "f4"), np.zeros(width, "f4")),
            "up": (_random(width, 4 * width, seed=seed), _random(4 * width, seed=seed)),
            "down": (_random(4 * width, width, seed=seed), _random(width, seed=seed)),
        }

    return {
        "tokens": _random(vocabulary, width, seed=100),
        "positions": _random(context, width, seed=101),
        "layers": [layer(index) for index in range(layers)],
        "ln": (np.ones(width, "f4"), np.zeros(width, "f4")),
    }


def _layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift


def _gpt2_forward(weights: dict[str, Any], tokens: Any, *, heads: int) -> Any:
    length = tokens.shape[0]
    x = weights["tokens"][tokens] + weights["positions"][:length]
    mask = jnp.tril(jnp.ones((length, length), bool))
    for layer in weights["layers"]:
        h = _layer_norm(x, *layer["ln1"])
        q, k, v = jnp.split(h @ layer["qkv"][0] + layer["qkv"][1], 3, axis=-1)
        q, k, v = (part.reshape(length, heads, -1) for part in (q, k, v))
        scores = jnp.einsum("thd,shd->hts", q, k) / np.float32(np.sqrt(q.shape[-1]))
        attention = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
        x = x + jnp.einsum("hts,shd->thd", attention, v).reshape(length, -1) @ layer["out"][0] + layer["out"][1]
        h = jax.nn.gelu(_layer_norm(x, *layer["ln2"]) @ layer["up"][0] + layer["up"][1])
        x = x + h @ layer["down"][0] + layer["down"][1]
    return _layer_norm(x, *weights["ln"]) @ weights["tokens"].T


def _gpt2_decode(weights: dict[str, Any], cache: Any, token: Any, position: Any, *, heads: int) -> Any:
    x = weights["tokens"][token] + weights["positions"][position]
    context = cache.shape[3]
    visible = jnp.arange(context) <= position
    new_cache = cache
    for index, layer in enumerate(weights["layers"]):
        h = _layer_norm(x, *layer["ln1"])
        q, k, v = jnp.split(h @ layer["qkv"][0] + layer["qkv"][1], 3, axis=-1)
        q, k, v = (part.reshape(heads, -1) for part in (q, k, v))
        new_cache = lax.dynamic_update_slice(new_cache, k[None, None, :, None], (index, 0, 0, position, 0))
        new_cache = lax.dynamic_update_slice(new_cache, v[None, None, :, None], (index, 1, 0, position, 0))
        keys, values = new_cache[index, 0], new_cache[index, 1]
        scores = jnp.einsum("hd,hsd->hs", q, keys) / np.float32(np.sqrt(q.shape[-1]))
        attention = jax.nn.softmax(jnp.where(visible, scores, -1e9), axis=-1)
        x = x + jnp.einsum("hs,hsd->hd", attention, values).reshape(-1) @ layer["out"][0] + layer["out"][1]
        h = jax.nn.gelu(_layer_norm(x, *layer["ln2"]) @ layer["up"][0] + layer["up"][1])
        x = x + h @ layer["down"][0] + layer["down"][1]
    return _layer_norm(x, *weights["ln"]) @ weights["tokens"].T, new_cache


def gpt2_forward(layers: int = LAYERS, width: int = WIDTH, vocabulary: int = VOCABULARY, length: int = 128) -> Program:
    """A GPT-2-small-shaped transformer's forward pass over one sequence."""
    heads = width // 64
    tokens = np.random.default_rng(1).integers(0, vocabulary, length).astype("i4")
    weights = _gpt2_weights(layers, width, vocabulary, CONTEXT)
    return Program("gpt2_forward", lambda w, t: _gpt2_forward(w, t, heads=heads), (weights, tokens), 2e-4)


def gpt2_decode(layers: int = LAYERS, width: int = WIDTH, vocabulary: int = VOCABULARY, length: int = 128) -> Program:
    """The single-token decode step of the same network, with its cache of keys and values."""
    heads = width // 64
    weights = _gpt2_weights(layers, width, vocabulary, CONTEXT)
    cache = _random(layers, 2, heads, length, 64, seed=7, scale=0.5)
    function = lambda w, c, t, p: _gpt2_decode(w, c, t, p, heads=heads)  # noqa: E731
    return Program("gpt2_decode", function, (weights, cache, np.int32(17), np.int32(77)), 2e-4)


# --------------------------------------------------------------------------------------------------------- ResNet-50


def _convolve(x: Any, kernel: Any, stride: int = 1) -> Any:
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _batch_norm(x: Any, scale: Any, shift: Any, mean: Any, variance: Any) -> Any:
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift


def _norm_weights(channels: int, seed: int) -> tuple[Any, ...]:
    return (
        1 + _random(channels, seed=seed),
        _random(channels, seed=seed + 1),
        _random(channels, seed=seed + 2),
        1 + np.abs(_random(channels, seed=seed + 3)),
    )


def _resnet_weights(blocks: tuple[int, ...]) -> dict[str, Any]:
    def conv(size: int, fan_in: int, fan_out: int, seed: int) -> tuple[Any, ...]:
        kernel = _random(size, size, fan_in, fan_out, scale=float(np.sqrt(2 / (size * size * fan_in))), seed=seed)
        return (kernel, *_norm_weights(fan_out, seed))

    weights: dict[str, Any] = {"stem": conv(7, 3, 64, 1), "stages": []}
    channels, seed = 64, 2
    for stage, count in enumerate(blocks):
        width = 64 << stage
        members = []
        for index in range(count):
            seed += 10
            block = {
                "a": conv(1, channels, width, seed),
                "b": conv(3, width, width, seed + 1),
                "c": conv(1, width, 4 * width, seed + 2),
            }
            if index == 0:
                block["skip"] = conv(1, channels, 4 * width, seed + 3)
            channels = 4 * width
            members.append(block)
        weights["stages"].append(members)
    weights["head"] = (_random(channels, 1000, seed=9), _random(1000, seed=9))
    return weights


def _resnet(weights: dict[str, Any], x: Any) -> Any:
    def unit(x: Any, conv: tuple[Any, ...], stride: int = 1) -> Any:
        return _batch_norm(_convolve(x, conv[0], stride), *conv[1:])

    x = jax.nn.relu(unit(x, weights["stem"], 2))
    x = lax.reduce_window(x, -np.float32(np.inf), lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for stage, members in enumerate(weights["stages"]):
        for index, block in enumerate(members):
            stride = 2 if stage and index == 0 else 1
            skip = unit(x, block["skip"], stride) if "skip" in block else x
            h = jax.nn.relu(unit(x, block["a"]))
            h = jax.nn.relu(unit(h, block["b"], stride))
            x = jax.nn.relu(unit(h, block["c"]) + skip)
    return x.mean((1, 2)) @ weights["head"][0] + weights["head"][1]


def resnet50(size: int = 224, blocks: tuple[int, ...] = (3, 4, 6, 3)) -> Program:
    """ResNet-50 on one image, batch norm in inference form."""
    return Program("resnet50", _resnet, (_resnet_weights(blocks), _random(1, size, size, 3, scale=1.0)), 1e-3)


# ------------------------------------------------------------------------------------------------- training and loops


def _mlp_loss(weights: Any, x: Any, labels: Any) -> Any:
    for kernel, bias in weights[:-1]:
        x = jnp.tanh(x @ kernel + bias)
    logits = x @ weights[-1][0] + weights[-1][1]
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, logits.shape[-1]), -1))


def _adam_step(state: Any, x: Any, labels: Any) -> Any:
    weights, first, second, step = state
    loss, gradient = jax.value_and_grad(_mlp_loss)(weights, x, labels)
    step = step + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)

    def update(weight: Any, m: Any, v: Any) -> Any:
        return weight - 1e-3 * (m / (1 - 0.9**step)) / (jnp.sqrt(v / (1 - 0.999**step)) + 1e-8)

    return (jax.tree.map(update, weights, first, second), first, second, step), loss


def mlp_adam(batch: int = 128, sizes: tuple[int, ...] = (784, 512, 256, 10)) -> Program:
    """One training step of a multilayer perceptron with Adam."""
    weights = [
        (_random(fan_in, fan_out, scale=fan_in**-0.5, seed=fan_in), np.zeros(fan_out, "f4"))
        for fan_in, fan_out in zip(sizes, sizes[1:])
    ]
    zeros = jax.tree.map(np.zeros_like, weights)
    labels = np.random.default_rng(3).integers(0, sizes[-1], batch).astype("i4")
    state = (weights, zeros, zeros, np.float32(0))
    # Adam divides a gradient by its own magnitude: where it is nearly 0, its rounding error is as large as the step, 1e-3.
    return Program("mlp_adam", _adam_step, (state, _random(batch, sizes[0], scale=1.0), labels), 1e-3)


def scan_rnn(steps: int = 64, batch: int = 16, width: int = 256) -> Program:
    """A recurrent network over a sequence, by ``lax.scan``."""

    def run(weights: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(x @ weights[0] + h @ weights[1] + weights[2])
            return h, h

        return lax.scan(step, jnp.zeros((batch, width), "f4"), xs)

    weights = (_random(width, width, scale=0.06), _random(width, width, scale=0.06, seed=1), _random(width))
    return Program("scan_rnn", run, (weights, _random(steps, batch, width, scale=1.0)), 1e-4)


def heat_equation(size: int = 512, steps: int = 200) -> Program:
    """Explicit finite differences of the two-dimensional heat equation, by ``lax.fori_loop``."""

    def run(u: Any) -> Any:
        def step(_: Any, u: Any) -> Any:
            inner = u[1:-1, 1:-1]
            laplacian = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * inner
            return u.at[1:-1, 1:-1].set(inner + 0.1 * laplacian)

        return lax.fori_loop(0, steps, step, u)

    return Program("heat_equation", run, (_random(size, size, scale=1.0),), 1e-5)


def n_body(bodies: int = 512, steps: int = 4) -> Program:
    """Leapfrog steps of a gravitational N-body system in f64."""

    def run(position: Any, velocity: Any, mass: Any) -> Any:
        def acceleration(position: Any) -> Any:
            difference = position[None] - position[:, None]
            inverse = lax.rsqrt((difference**2).sum(-1) + 1e-4)
            return (difference * (mass[None, :, None] * (inverse**3)[..., None])).sum(1)

        def step(_: Any, state: Any) -> Any:
            position, velocity = state
            velocity = velocity + 0.005 * acceleration(position)
            position = position + 0.01 * velocity
            return position, velocity + 0.005 * acceleration(position)

        return lax.fori_loop(0, steps, step, (position, velocity))

    arguments = (
        _random(bodies, 3, scale=1.0, dtype="f8"),
        _random(bodies, 3, scale=0.1, seed=1, dtype="f8"),
        np.abs(_random(bodies, scale=1.0, seed=2, dtype="f8")),
    )
    return Program("n_body", run, arguments, 1e-10, x64=True)


REAL_PROGRAMS: dict[str, Callable[..., Program]] = {
    "gpt2_forward": gpt2_forward,
    "gpt2_decode": gpt2_decode,
    "resnet50": resnet50,
    "mlp_adam": mlp_adam,
    "scan_rnn": scan_rnn,
    "heat_equation": heat_equation,
    "n_body": n_body,
}
