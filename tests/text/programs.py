# mypy: disable-error-code="no-untyped-call"
"""Programs that JAX lowers to StableHLO text, between them most of the forms that it prints."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
SQUARE = np.eye(4, dtype=np.float32) * 2


def _scan(x: Any) -> Any:
    return lax.scan(lambda carry, _: (jnp.tanh(carry) + 1, carry.sum()), x, None, length=3)


def _control(x: Any) -> Any:
    y = lax.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, x)
    count, z = lax.while_loop(lambda s: s[0] < 10, lambda s: (s[0] + 1, s[1] * 2), (0, y))
    branches = [lambda v: v, lambda v: v * 2, lambda v: v + 3]
    return lax.switch(count, branches, z), lax.fori_loop(0, 5, lambda i, v: v + i, x)


def _indexing(x: Any) -> Any:
    rows = jnp.argmax(x, axis=1)
    added = x.at[rows].add(1.0)
    return x[rows], added, x[1:3, ::2], jnp.flip(x), lax.dynamic_slice(x, (1, 2), (2, 2)), jnp.pad(x, 1)


def _ordering(x: Any) -> Any:
    return jnp.sort(x), jnp.argsort(x, axis=0), lax.top_k(x, 2), jnp.cumsum(x, 0), jnp.median(x)


def _random(x: Any) -> Any:
    key = jax.random.key(0)
    bits = lax.rng_bit_generator(np.zeros(4, np.uint32), (3,))
    return jax.random.normal(key, (4,)), jax.random.randint(key, (3,), 0, 9), bits


def _windows(x: Any) -> Any:
    pooled = lax.reduce_window(x, -np.inf, lax.max, (2, 2), (2, 2), "VALID")
    return pooled, lax.associative_scan(jnp.add, x), lax.map(lambda row: row.sum(), x)


def _elementwise(x: Any) -> Any:
    narrow = x.astype(jnp.bfloat16)
    tests = jnp.isfinite(x) & (x < 0.5)
    return (
        jax.nn.gelu(x), jax.scipy.special.gammaln(x), lax.clamp(0.0, x, 1.0), narrow + 1, tests, lax.complex(x, x).real,
        lax.bitcast_convert_type(x, jnp.int32), lax.reduce_precision(x, 5, 10), lax.optimization_barrier((x, narrow)),
        jnp.where(tests, x, 0), jax.scipy.special.erf(x), jax.scipy.special.zeta(x, x), x.astype(jnp.float8_e4m3fn),
    )  # fmt: skip


def _products(x: Any) -> Any:
    batched = jnp.stack([x, x])
    highest = lax.dot_general(x, x, (((1,), (1,)), ((), ())), precision="highest", preferred_element_type=jnp.float32)
    return x @ x.T, jnp.einsum("bij,bkj->bik", batched, batched), highest, jnp.fft.fft(x)


def _constants(x: Any) -> Any:
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4e38, 0.1], np.float32)
    pairs = np.array([1 + 2j, complex(np.nan, -0.0)], np.complex64)
    many = np.arange(300, dtype=np.int32).reshape(3, 100)
    halves = jnp.asarray([0.1, np.nan, 2.5], jnp.bfloat16)
    return (
        x + 1,
        special,
        pairs,
        many,
        halves,
        np.array([True, False]),
        np.array([-128, 127], np.int8),
        jnp.int4(3),
        np.uint8(200),
    )


def _linear_algebra(x: Any) -> Any:
    return jnp.linalg.cholesky(x), jnp.linalg.svd(x), jnp.linalg.eigh(x), jnp.linalg.solve(x, x)


def _convolution(image: Any, kernel: Any) -> Any:
    return jax.grad(lambda i, k: lax.conv_general_dilated(i, k, (1, 1), "SAME").sum(), argnums=(0, 1))(image, kernel)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "scan": (_scan, (X,)),
    "control": (_control, (X,)),
    "indexing": (_indexing, (X,)),
    "ordering": (_ordering, (X,)),
    "random": (_random, (X,)),
    "windows": (_windows, (X,)),
    "elementwise": (_elementwise, (X,)),
    "products": (_products, (X,)),
    "constants": (_constants, (X,)),
    "linear_algebra": (_linear_algebra, (SQUARE,)),
    "convolution": (_convolution, (np.ones((1, 3, 8, 8), np.float32), np.ones((4, 3, 3, 3), np.float32))),
    "grad": (jax.grad(lambda x: sum(y.sum() for y in _scan(x))), (X,)),
}


def _exported() -> str:
    shape = export.symbolic_shape("a, b")
    lowered = export.export(jax.jit(lambda x: (x @ x.T, jnp.sin(x))))(jax.ShapeDtypeStruct(shape, jnp.float32))
    return str(lowered.mlir_module())


def _mesh() -> Any:
    return jax.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))


def _sharded() -> str:
    sharding = NamedSharding(_mesh(), PartitionSpec("x"))
    function = jax.jit(lambda x: lax.with_sharding_constraint(x * 2, sharding), in_shardings=sharding)
    return str(function.lower(X).as_text())


def _collective() -> str:
    body = jax.shard_map(
        lambda x: lax.psum(x, "x"), mesh=_mesh(), in_specs=PartitionSpec("x"), out_specs=PartitionSpec()
    )
    return str(jax.jit(body).lower(X).as_text())


OTHERS: dict[str, Callable[[], str]] = {"exported": _exported, "sharded": _sharded, "collective": _collective}

NAMES = (*PROGRAMS, *OTHERS, "control with locations", "grad with locations")


@cache
def text_of(name: str) -> str:
    """The text of a program."""
    if name in OTHERS:
        return OTHERS[name]()
    base, _, locations = name.partition(" with ")
    function, arguments = PROGRAMS[base]
    return str(jax.jit(function).lower(*arguments).as_text(debug_info=bool(locations)))
