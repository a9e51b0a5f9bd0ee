"""Linear layers with narrow weights, decoded by the product or in front of it, beside JAX: least of interleaved runs.

python benchmarks/linear_layers.py [--rows 1 16 512] [--size 4096] [--repeat 30] [--without-jax]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
from hlojit.cpu.backend import CpuBackend

FORMATS = ("f32", "f16", "int8", "f8E4M3FN", "mxfp8", "mxfp4")
DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "f8E4M3FN": ml_dtypes.float8_e4m3fn}
STEP = np.float32(1 / 30)
BLOCK = 32


def stored(weights: Any, name: str) -> tuple[Any, ...]:
    """Weights in a format: one array, or integers and a scale for each of their rows."""
    if name == "int8":
        return np.clip(np.rint(weights / STEP), -127, 127).astype(np.int8), np.full(len(weights), STEP)
    return (weights.astype(DTYPES[name]) if name in DTYPES else hlojit.Array.from_values(weights, name),)


def layer(x: Any, weights: Any, *scales: Any) -> Any:
    """Rows times the rows of a matrix."""
    numbers = weights.astype(np.float32)
    return x @ (numbers * scales[0][:, None] if scales else numbers).T


def jax_layer(arrays: tuple[Any, ...], name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The same by JAX; of blocks, elements and scales are operands of their own."""
    import jax
    import jax.numpy as jnp

    def blocks(x: Any, elements: Any, scales: Any) -> Any:
        split = elements.astype(jnp.float32).reshape(len(elements), -1, BLOCK)
        return x @ (split * scales[:, :, None]).reshape(elements.shape).T

    def plain(x: Any, weights: Any, *scales: Any) -> Any:
        numbers = weights.astype(jnp.float32)
        return x @ (numbers * scales[0][:, None] if scales else numbers).T

    if name.startswith("mx"):
        elements, scales = arrays[0].parts
        return jax.jit(blocks), (jnp.asarray(elements), jnp.asarray(scales.astype(np.float32)))
    return jax.jit(plain), tuple(jnp.asarray(each) for each in arrays)


def ways(name: str, x: Any, weights: Any, *, with_jax: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A call for each way to compute a layer."""
    arrays = stored(weights, name)
    limits = CpuBackend.fusion_limits
    for way, chosen in (("in the product", limits), ("before it", replace(limits, prologues=frozenset()))):
        CpuBackend.fusion_limits = chosen
        jitted = hlojit.jit(layer)
        jitted(x, *arrays)
        yield way, lambda jitted=jitted: jitted(x, *arrays)  # type: ignore[misc]
    CpuBackend.fusion_limits = limits
    if with_jax:
        function, given = jax_layer(arrays, name)
        function(x, *given).block_until_ready()
        yield "JAX", lambda: function(x, *given).block_until_ready()


def main() -> None:
    """Print milliseconds of each format and number of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 16, 512])
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--without-jax", action="store_true")
    given = parser.parse_args()
    random = np.random.default_rng(0)
    weights = random.normal(size=(given.size, given.size)).astype(np.float32)
    for rows in given.rows:
        x = random.normal(size=(rows, given.size)).astype(np.float32)
        calls = {
            (name, way): call
            for name in FORMATS
            for way, call in ways(name, x, weights, with_jax=not given.without_jax)
        }
        least = dict.fromkeys(calls, float("inf"))
        for _ in range(given.repeat if rows < 100 else max(3, given.repeat // 5)):
            for key, call in calls.items():
                start = time.perf_counter()
                call()
                least[key] = min(least[key], (time.perf_counter() - start) * 1e3)
        for name in FORMATS:
            found = ", ".join(f"{way} {least[key]:.2f}" for key in calls if key[0] == name for way in key[1:])
            print(f"{rows} rows, {name:9} ms: {found}", flush=True)


if __name__ == "__main__":
    main()
