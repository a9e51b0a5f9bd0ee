"""Jitted functions as modules hold them, for tests that pickle them and for processes that read the pickles."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np


@hlojit.jit
def doubled(x: Any) -> Any:
    """Twice."""
    return x * 2


@hlojit.jit(static_argnums=-1)
def powered(x: Any, n: int = 2) -> Any:
    return x**n


def plain(x: Any, n: Any) -> Any:
    return (x * n).sum()


class Scale:
    def __init__(self, factor: float):
        self.factor = factor

    @hlojit.jit(static_argnames="self")
    def scaled(self, x: Any) -> Any:
        """Scaled."""
        return x * self.factor

    @classmethod
    @hlojit.jit(static_argnames="cls")
    def of_class(cls, x: Any) -> Any:
        return x + 1

    @staticmethod
    @hlojit.jit
    def alone(x: Any) -> Any:
        return x - 1

    def __call__(self, x: Any) -> Any:
        return x * self.factor

    class Inner:
        @hlojit.jit
        def plus(self, x: Any) -> Any:
            return x + 1


@hlojit.custom_jvp
def cubed(x: Any) -> Any:
    return x**3


@cubed.defjvp
def _cubed_jvp(primals: Any, tangents: Any) -> Any:
    return primals[0] ** 3, 10 * tangents[0]


@hlojit.grad
def slope(x: Any) -> Any:
    return (x * x).sum()


def _unruled(x: Any) -> Any:
    return x**2


unruled = hlojit.custom_jvp(_unruled)
unruled.defjvp(_cubed_jvp)

jitted_plain = hlojit.jit(plain, static_argnames="n", check_indices=False)

MADE: dict[str, Callable[[Any], Any]] = {
    "decorated": doubled,
    "with options": powered,
    "nested class": functools.partial(Scale.Inner.plus, None),
    "method": Scale(3.0).scaled,
    "static method": Scale.alone,
    "partial": functools.partial(powered, n=3),
    "jitted apart": functools.partial(jitted_plain, n=2),
    "jitted twice": hlojit.jit(doubled),
    "jitted object": hlojit.jit(Scale(0.5)),
    "jitted method": hlojit.jit(Scale(0.5).__call__),
    "jitted partial": hlojit.jit(functools.partial(plain, n=3)),
    "grad": hlojit.grad(functools.partial(jitted_plain, n=2)),
    "decorated with grad": slope,
    "value_and_grad": hlojit.value_and_grad(plain, argnums=0),
    "vmap": hlojit.vmap(doubled),
    "vmap with axes": hlojit.vmap(plain, in_axes=(0, None)),
    "vmap of grad": hlojit.vmap(hlojit.grad(cubed)),
    "grad of a rule apart": hlojit.vmap(hlojit.grad(unruled)),
    "hessian": hlojit.hessian(functools.partial(plain, n=2.0)),
    "checkpoint": hlojit.checkpoint(doubled),
    "custom_jvp": cubed,
}
"""One of each kind."""


def value(name: str) -> Any:
    """What the function of that name makes of three numbers."""
    return called(MADE[name], name)


def called(function: Callable[..., Any], name: str) -> Any:
    """A function's results for three numbers."""
    x = np.array([1.0, 2.0, 3.0])
    result = function(x, 2.0) if name in ("value_and_grad", "vmap with axes") else function(x)
    return np.append(*result) if name == "value_and_grad" else result
