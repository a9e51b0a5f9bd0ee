"""JAX's functions as programs of ours, differentiated and batched by the rules of the ops, against JAX's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hlojit
import numpy as np
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Function, Module
from hlojit.ir.interpreter import evaluate
from hlojit.ir.ops.batching.kinds import Lane
from hlojit.ir.passes.call_inliner import CallInliner
from hlojit.ir.transforms.differentiation import pull_block, push_block
from hlojit.ir.transforms.sweep import sweep
from hlojit.ir.transforms.vectorization import Vectorizing, vectorize_block

Arrays = Sequence[np.ndarray[Any, Any]]

_RNG = np.random.default_rng(5)


def _real(*shape: int) -> np.ndarray[Any, Any]:
    return np.asarray(_RNG.standard_normal(shape))


def _complex(*shape: int) -> np.ndarray[Any, Any]:
    return _real(*shape) + 1j * _real(*shape)


def numbers(like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Random ones of the shape and kind of an array."""
    return _complex(*like.shape) if like.dtype.kind == "c" else _real(*like.shape)


def _programs() -> dict[str, tuple[Callable[..., Any], Arrays]]:
    import jax
    from jax import lax
    from jax import numpy as jnp

    A, R, C = _real(3, 4), _real, _complex
    return {
        "add": (lambda x, y: x + y * x, [A, R(3, 4)]),
        "dot": (lambda x, y: jnp.einsum("bij,bkj->bik", x, y), [R(2, 3, 4), R(2, 5, 4)]),
        "dot2": (lambda x, y: lax.dot_general(x, y, (((1, 3), (0, 2)), ((0,), (3,)))), [R(2, 3, 4, 5), R(3, 6, 5, 2)]),
        "tanh": (lambda x: jnp.tanh(x).sum(), [A]),
        "max": (lambda x: x.max(axis=1), [A]),
        "prod": (lambda x: x.prod(axis=0), [A]),
        "sort": (lambda x: jnp.sort(x, axis=0), [A]),
        "cumsum": (lambda x: jnp.cumsum(x, axis=1), [A]),
        "cummax": (lambda x: lax.cummax(x, axis=1), [A]),
        "cumprod": (lambda x: jnp.cumprod(x, axis=1), [A]),
        "pool": (lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 2), "SAME"), [R(5, 6)]),
        "avg": (
            lambda x: lax.reduce_window(
                x, 0.0, lax.add, (2, 3), (2, 1), ((1, 0), (1, 2)), base_dilation=(2, 1), window_dilation=(1, 2)
            ),
            [R(5, 6)],
        ),
        "index": (lambda x: x[jnp.array([0, 2, 2])][:, 1:3], [A]),
        "set": (lambda x, y: x.at[jnp.array([0, 2, 2, 7])].set(y), [A, R(4, 4)]),
        "addat": (lambda x, y: x.at[jnp.array([0, 2, 2, 7])].add(y), [A, R(4, 4)]),
        "mulat": (lambda x, y: x.at[jnp.array([0, 2])].multiply(y, unique_indices=True), [A, R(2, 4)]),
        "pad": (lambda x, p: lax.pad(x, p, ((1, 2, 1), (-1, 0, 2))), [A, R()]),
        "concat": (lambda x, y: jnp.concatenate([x, y, x], 1), [A, R(3, 2)]),
        "rev": (lambda x: lax.rev(x, (0,)).T.reshape(2, 6)[:, ::2], [A]),
        "dslice": (lambda x: lax.dynamic_slice(x, (1, 2), (2, 2)), [A]),
        "dus": (lambda x, y: lax.dynamic_update_slice(x, y, (1, 2)), [A, R(2, 2)]),
        "conv": (
            lambda x, w: lax.conv_general_dilated(
                x, w, (2, 1), ((1, 2), (0, 1)), lhs_dilation=(1, 2), rhs_dilation=(2, 1)
            ),
            [R(2, 3, 5, 6), R(4, 3, 2, 3)],
        ),
        "convg": (
            lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME", feature_group_count=2),
            [R(2, 4, 5), R(6, 2, 3)],
        ),
        "convb": (
            lambda x, w: lax.conv_general_dilated(x, w, (1,), "VALID", batch_group_count=2),
            [R(4, 3, 5), R(6, 3, 3)],
        ),
        "where": (lambda x, y: jnp.where(x > 0, x, y * 2), [A, R(3, 4)]),
        "clamp": (lambda x: jnp.clip(x, -0.5, 0.5), [A]),
        "fft": (lambda x: jnp.fft.fft2(x), [C(3, 4)]),
        "rfft": (lambda x: jnp.fft.rfft2(x), [R(3, 5)]),
        "irfft": (lambda x: jnp.fft.irfftn(x, s=(3, 6)), [C(3, 4)]),
        "cplx": (lambda z: jnp.exp(z) * jnp.conj(z) + jnp.abs(z) * jnp.real(z) - 1j * jnp.imag(z) / z, [C(4)]),
        "pow": (lambda x, y: x**y + x**3, [np.abs(A), R(3, 4)]),
        "scan": (lambda x, w: lax.scan(lambda c, a: (jnp.tanh(c @ w + a), c.sum()), x[0], x), [R(5, 3), R(3, 3)]),
        "fori": (lambda x: lax.fori_loop(0, 5, lambda i, s: jnp.sin(s) * x + i, x), [R(3)]),
        "cond": (lambda x, y: lax.cond(x[0] > 0, lambda: x * y, lambda: jnp.sin(x)), [R(3), R(3)]),
        "switch": (lambda x, y: lax.switch(1, [lambda a: a * y, lambda a: a + y.sum(), lambda a: a], x), [R(3), R(3)]),
        "lse": (lambda x: jax.nn.logsumexp(x, axis=1), [A]),
        "softmax": (lambda x: jax.nn.softmax(x) @ x.T, [A]),
        "atan2": (lambda x, y: jnp.arctan2(x, y), [A, R(3, 4)]),
        "minmax": (lambda x, y: jnp.maximum(x, y) + jnp.minimum(x, 2.0), [A, R(3, 4)]),
        "var": (lambda x: jnp.var(x, axis=0), [A]),
        "top": (lambda x: lax.top_k(x, 2)[0], [A]),
        "special": (
            lambda x: (
                jax.scipy.special.erf(x)
                + jax.scipy.special.gammaln(abs(x) + 1)
                + jax.scipy.special.digamma(abs(x) + 1)
                + jnp.arcsinh(x)
                + jnp.cbrt(x)
                + jnp.expm1(x)
                + jnp.log1p(abs(x))
            ),
            [A],
        ),
        "unit": (
            lambda x: (
                jnp.arcsin(x)
                + jnp.arccos(x)
                + jnp.arctanh(x)
                + jnp.arctan(x)
                + jnp.arccosh(x + 2)
                + lax.erf_inv(x)
                + jnp.tan(x)
                + jnp.sinh(x) * jnp.cosh(x)
            ),
            [np.linspace(-0.8, 0.8, 5)],
        ),
        "custom_reduce": (lambda x: lax.reduce(x, 0.0, lambda a, b: a * b + a + b, (1,)), [A]),
    }


PROGRAMS = _programs()


def program_of(function: Callable[..., Any], arguments: Arrays) -> Function:
    """What JAX traces a function to."""
    import jax

    with jax.enable_x64(True):
        text = jax.jit(function).lower(*arguments).as_text()
    module = hlojit.parse(text)
    CallInliner().run(module)
    return module.main


def _finished(function: Function, builder: Builder, values: Sequence[Any]) -> Module:
    builder.return_(*values)
    function.result_types[:] = [value.type for value in values]
    function.result_attributes[:] = [{} for _ in values]
    sweep(function.body)
    module = Module("derivative")
    module.add_function(function)
    hlojit.verify(module)
    return module


def run(module: Module, arguments: Arrays) -> list[np.ndarray[Any, Any]]:
    """Evaluate by the reference."""
    return [np.asarray(each) for each in evaluate(module, *arguments)]


def pulled(function: Function, wanted: Sequence[bool]) -> Module:
    """The program of cotangents: arguments, then cotangents of the results."""
    types = [argument.type for argument in function.body.arguments]
    made = Function("main", [*types, *function.result_types], ())
    builder = Builder(made.body)
    own, given = made.body.arguments[: len(types)], made.body.arguments[len(types) :]
    _, found = pull_block(builder, function.body, own, wanted, lambda results: given)
    values = [
        b if b is not None else builder.constant(0.0, v.type)
        for b, v, w in zip(found, [v for v, w in zip(own, wanted) if w], wanted)
    ]
    return _finished(made, builder, values)


def pushed(function: Function, moving: Sequence[bool]) -> Module:
    """The program of tangents: arguments, then tangents of those that move."""
    types = [argument.type for argument in function.body.arguments]
    made = Function("main", [*types, *(t for t, m in zip(types, moving) if m)], ())
    builder = Builder(made.body)
    own, given = made.body.arguments[: len(types)], iter(made.body.arguments[len(types) :])
    values, found = push_block(builder, function.body, own, [next(given) if m else None for m in moving])
    return _finished(
        made, builder, [t if t is not None else builder.constant(0.0, v.type) for t, v in zip(found, values)]
    )


def vectorized(function: Function, batched: Sequence[bool], size: int) -> Module:
    """The program for a batch: arguments with a batch where they have one, results all with one."""
    types = [argument.tensor_type for argument in function.body.arguments]
    made = Function("main", [t.with_shape((size, *t.shape)) if b else t for t, b in zip(types, batched)], ())
    builder = Builder(made.body)
    lanes = vectorize_block(builder, function.body, list(map(Lane, made.body.arguments, batched)), size)
    work = Vectorizing(builder, size)
    return _finished(made, builder, [work.spread(lane) for lane in lanes])
