"""Single ops that JAX does not print for CPUs, as functions of one op each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hlojit.ir.builder import Builder
from hlojit.ir.formats import element_type_of
from hlojit.ir.graph import Function, Module
from hlojit.ir.types import tensor

from tests.transforms.jax_programs import Arrays, numbers

_R = np.zeros
_GRID = np.linspace(-0.8, 0.8, 5)


def _c(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, complex)


def _solve(left: bool, lower: bool, unit: bool, transpose: str) -> Callable[..., Any]:
    attributes = {"left_side": left, "lower": lower, "unit_diagonal": unit, "transpose_a": transpose}

    def build(b: Any, a: Any, right: Any) -> Any:
        eye = b.constant(np.broadcast_to(3 * np.eye(3), (2, 3, 3)).astype(a.tensor_type.element_type.dtype))
        return b.create("triangular_solve", [b.add(a, eye), right], attributes=attributes).result

    return build


def _cholesky(lower: bool) -> Callable[..., Any]:
    def build(b: Any, a: Any) -> Any:
        """Of a matrix times its adjoint, so that changes are symmetric."""
        conj = b.conj(a) if a.tensor_type.element_type.name.startswith("c") else a
        product = b.dot_general(a, conj, contracting_dims=((2,), (2,)), batching_dims=((0,), (0,)))
        eye = b.constant(np.broadcast_to(3 * np.eye(3), (2, 3, 3)).astype(a.tensor_type.element_type.dtype))
        return b.create("cholesky", [b.add(product, eye)], attributes={"lower": lower}).result

    return build


def _unary(name: str, shift: float = 0.0) -> Callable[..., Any]:
    def build(b: Any, x: Any) -> Any:
        return getattr(b, name)(b.add(x, b.constant(shift, x.type)) if shift else x)

    return build


_COMPLEX_FUNCTIONS = (
    "exponential exponential_minus_one log log_plus_one logistic sqrt rsqrt cbrt sine cosine tan tanh sinh cosh asin acos atan "
    "asinh acosh atanh square conj negate abs sign real imag"
).split()
_REAL_FUNCTIONS = [
    name for name in _COMPLEX_FUNCTIONS if name not in ("log", "sqrt", "rsqrt", "acosh", "real", "imag", "conj")
]
_POSITIVE = "log sqrt rsqrt acosh lgamma digamma log_plus_one".split()

GRAPHS: dict[str, tuple[Callable[..., Any], Arrays]] = (
    {f"{name}-complex": (_unary(name), [_GRID[:4] + 1j * (_GRID[1:] + 0.1)]) for name in _COMPLEX_FUNCTIONS}
    | {name: (_unary(name), [_GRID[:2]]) for name in [*_REAL_FUNCTIONS, "erf", "erfc", "erf_inv"]}
    | {f"{name}-positive": (_unary(name, 2.5), [_GRID]) for name in _POSITIVE}
    | {
        "zeta": (lambda b, x: b.zeta(b.constant(2.5, x.type), b.add(x, b.constant(2.0, x.type))), [_GRID]),
        "gamma": (
            lambda b, x: b.create("hlojit.gamma", [b.add(x, b.constant(2.5, x.type))], result_types=[x.type]).result,
            [_GRID],
        ),
        "complex": (lambda b, x, y: b.complex(x, y), [_GRID, _GRID]),
        "solve": (_solve(True, True, False, "NO_TRANSPOSE"), [_R((2, 3, 3)), _R((2, 3, 2))]),
        "solve-transposed": (_solve(True, False, False, "TRANSPOSE"), [_R((2, 3, 3)), _R((2, 3, 2))]),
        "solve-right-unit": (_solve(False, True, True, "NO_TRANSPOSE"), [_R((2, 3, 3)), _R((2, 2, 3))]),
        "solve-adjoint": (_solve(True, True, False, "ADJOINT"), [_c(2, 3, 3), _c(2, 3, 2)]),
        "cholesky": (_cholesky(True), [_R((2, 3, 3))]),
        "cholesky-upper": (_cholesky(False), [_R((2, 3, 3))]),
        "cholesky-complex": (_cholesky(True), [_c(2, 3, 3)]),
    }
)
"""What builds the result, and arguments; those that are all zero stand for random numbers."""


def graph(name: str) -> tuple[Function, Arrays]:
    """The function of a name, and arguments."""
    build, arguments = GRAPHS[name]
    arguments = [x if x.any() else numbers(x) for x in arguments]
    function = Function("main", [tensor(x.shape, element_type_of(x.dtype)) for x in arguments], ())
    builder = Builder(function.body)
    result = build(builder, *builder.arguments)
    builder.return_(result)
    function.result_types[:] = [result.type]
    function.result_attributes[:] = [{}]
    Module("op").add_function(function)
    return function, arguments
