"""Gradients beside JAX's: ``python -m benchmarks.gradients [NAME ...] [--seconds 2] [--output FILE]``.

Each program is written as users of each system would: NumPy with Python's loops for hlojit, ``jax.numpy`` and ``lax.scan`` for
JAX.  Value and gradient are compared, then both are timed turn by turn in one process, each with its own threads, calls of
Python included.  A ratio is JAX's median divided by hlojit's: above 1, hlojit is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.__main__ import geometric_mean
from benchmarks.__main__ import machine as described

_RNG = np.random.default_rng(0)


def _normal(*shape: int, scale: float = 1.0) -> np.ndarray[Any, Any]:
    return (_RNG.standard_normal(shape) * scale).astype(np.float32)


class Problem(NamedTuple):
    """A loss as users of NumPy and of JAX write it; the gradient is that for the first argument."""

    numpy: Callable[..., Any]
    jax: Callable[..., Any]
    arguments: tuple[Any, ...]


def _both(loss: Callable[..., Any], arguments: tuple[Any, ...]) -> Problem:
    """A loss without loops; its first argument is NumPy, or JAX's."""
    from jax import numpy as jnp

    return Problem(lambda *a: loss(np, *a), lambda *a: loss(jnp, *a), arguments)


def _mlp_loss(xp: Any, layers: Any, x: Any, y: Any) -> Any:
    for w, b in layers[:-1]:
        x = xp.maximum(x @ w + b, 0)
    w, b = layers[-1]
    z = x @ w + b
    z = z - z.max(axis=1, keepdims=True)
    return -xp.mean(xp.sum(y * (z - xp.log(xp.sum(xp.exp(z), axis=1, keepdims=True))), axis=1))


def mlp() -> Problem:
    """784-512-256-10, a batch of 128."""
    sizes = [784, 512, 256, 10]
    layers = [(_normal(a, b, scale=a**-0.5), np.zeros(b, np.float32)) for a, b in zip(sizes, sizes[1:])]
    labels = np.eye(10, dtype=np.float32)[_RNG.integers(0, 10, 128)]
    return _both(_mlp_loss, (layers, _normal(128, 784), labels))


def _cell(xp: Any, w: Any, b: Any, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
    i, f, o, g = xp.split(xp.concatenate([x, h], axis=1) @ w + b, 4, axis=1)
    c = c / (1 + xp.exp(-f)) + xp.tanh(g) / (1 + xp.exp(-i))
    return xp.tanh(c) / (1 + xp.exp(-o)), c


def lstm() -> Problem:
    """100 steps of 32 sequences, 64 units."""
    import jax
    from jax import numpy as jnp

    def own(p: Any, x: Any) -> Any:
        w, b, v = p
        h = np.zeros((32, 64), np.float32)
        c = np.zeros((32, 64), np.float32)
        for t in range(x.shape[0]):
            h, c = _cell(np, w, b, x[t], h, c)
        return np.mean((h @ v) ** 2)

    def peer(p: Any, x: Any) -> Any:
        w, b, v = p
        start = jnp.zeros((32, 64), jnp.float32)
        (h, _), _ = jax.lax.scan(lambda s, xt: (_cell(jnp, w, b, xt, *s), None), (start, start), x)
        return jnp.mean((h @ v) ** 2)

    parameters = (_normal(96, 256, scale=0.1), np.zeros(256, np.float32), _normal(64))
    return Problem(own, peer, (parameters, _normal(100, 32, 32)))


def _filter_step(xp: Any, a: Any, q: Any, r: Any, m: Any, p: Any, y: Any) -> tuple[Any, Any, Any]:
    m, p = a @ m, a @ p @ a.T + q
    s, e = p[0, 0] + r, y - m[0]
    gain = p[:, 0] / s
    return m + gain * e, p - xp.outer(gain, p[0]), -0.5 * (xp.log(2 * np.pi * s) + e * e / s)


def kalman() -> Problem:
    """The likelihood of 500 observations by a filter of two states, f8."""
    import jax
    from jax import numpy as jnp

    def own(p: Any, observed: Any) -> Any:
        a, q, r = np.array([[1.0, 0.1], [0.0, 1.0]]) * p[0], np.diag(p[1:3] ** 2), p[3] ** 2
        m, covariance, total = np.zeros(2), np.eye(2), 0.0
        for k in range(observed.shape[0]):
            m, covariance, more = _filter_step(np, a, q, r, m, covariance, observed[k])
            total = total + more
        return -total

    def peer(p: Any, observed: Any) -> Any:
        a, q, r = jnp.array([[1.0, 0.1], [0.0, 1.0]]) * p[0], jnp.diag(p[1:3] ** 2), p[3] ** 2

        def step(state: Any, y: Any) -> Any:
            m, covariance, more = _filter_step(jnp, a, q, r, *state, y)
            return (m, covariance), more

        _, likelihoods = jax.lax.scan(step, (jnp.zeros(2), jnp.eye(2)), observed)
        return -jnp.sum(likelihoods)

    return Problem(own, peer, (np.array([0.99, 0.1, 0.2, 0.3]), _RNG.standard_normal(500)))


def _normalized(xp: Any, x: Any, scale: Any, shift: Any) -> Any:
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) / xp.sqrt(v + np.float32(1e-5)) * scale + shift


def _block_loss(xp: Any, p: Any, x: Any) -> Any:
    batch, length, width = x.shape
    heads, own = 4, width // 4
    f4 = np.float32
    qkv = _normalized(xp, x, p["g1"], p["b1"]) @ p["qkv"]
    q, k, v = (xp.swapaxes(each.reshape(batch, length, heads, own), 1, 2) for each in xp.split(qkv, 3, axis=-1))
    s = q @ xp.swapaxes(k, -1, -2) * f4(own**-0.5)
    s = xp.where(np.tril(np.ones((length, length), bool)), s, f4(-1e9))
    e = xp.exp(s - s.max(-1, keepdims=True))
    x = x + xp.swapaxes(e / e.sum(-1, keepdims=True) @ v, 1, 2).reshape(x.shape) @ p["out"]
    h = _normalized(xp, x, p["g2"], p["b2"]) @ p["up"]
    h = f4(0.5) * h * (1 + xp.tanh(f4(0.79788456) * (h + f4(0.044715) * h * h * h)))
    return xp.mean((x + h @ p["down"]) ** 2)


def gpt2_block() -> Problem:
    """One block of GPT-2's, width 256, four heads, 8 sequences of 64."""
    d = 256
    ones, zeros = np.ones(d, np.float32), np.zeros(d, np.float32)
    matrices = {"qkv": (d, 3 * d), "out": (d, d), "up": (d, 4 * d), "down": (4 * d, d)}
    parameters = {"g1": ones, "b1": zeros, "g2": ones, "b2": zeros}
    parameters |= {name: _normal(*shape, scale=shape[0] ** -0.5) for name, shape in matrices.items()}
    return _both(_block_loss, (parameters, _normal(8, 64, d)))


PROBLEMS: dict[str, Callable[[], Problem]] = {"mlp": mlp, "lstm": lstm, "kalman": kalman, "gpt2_block": gpt2_block}


def measure(name: str, seconds: float) -> dict[str, Any]:
    """Compile, compare and time one program."""
    import hlojit
    import jax

    problem = PROBLEMS[name]()
    peer = jax.jit(jax.value_and_grad(problem.jax))
    given = jax.tree.map(jax.numpy.asarray, problem.arguments)
    own = hlojit.value_and_grad(problem.numpy)
    systems: dict[str, Callable[[], Any]] = {
        "hlojit": lambda: own(*problem.arguments),
        "jax": lambda: jax.block_until_ready(peer(*given)),
    }
    first: dict[str, float] = {}
    results: dict[str, Any] = {}
    for system, run in systems.items():
        begun = time.perf_counter()
        results[system] = jax.tree.leaves(run())
        first[system] = time.perf_counter() - begun
    for mine, right in zip(results["hlojit"], results["jax"], strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-3, atol=1e-4 * float(np.abs(right).max()), err_msg=name)
    taken: dict[str, list[float]] = {system: [] for system in systems}
    end = time.perf_counter() + seconds
    while len(taken["jax"]) < 5 or time.perf_counter() < end:
        for system, run in systems.items():
            begun = time.perf_counter()
            run()
            taken[system].append(time.perf_counter() - begun)
    medians = {system: statistics.median(each) for system, each in taken.items()}
    return {"name": name, "seconds": medians, "first_call": first}


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help="names of programs; all without")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each program")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if os.environ.get("JAX_ENABLE_X64") != "1":
        # JAX reads it when it is loaded.
        arguments = [sys.executable, "-m", "benchmarks.gradients", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"})
    rows = []
    for name in options.programs or PROBLEMS:
        rows.append(measure(name, options.seconds))
        own, peer = rows[-1]["seconds"]["hlojit"], rows[-1]["seconds"]["jax"]
        calls = " ".join(f"{system} {seconds:.2f}" for system, seconds in rows[-1]["first_call"].items())
        print(
            f"{name:12} hlojit {own * 1e3:9.3f} ms  jax {peer * 1e3:9.3f} ms {peer / own:6.2f}x  first call, s: {calls}"
        )
    ratios = [row["seconds"]["jax"] / row["seconds"]["hlojit"] for row in rows]
    print(f"geometric mean of jax / hlojit: {geometric_mean(ratios):.2f}, least {min(ratios):.2f}")
    if options.output:
        options.output.write_text(json.dumps({"machine": described(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
