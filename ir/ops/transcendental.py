"""Exponentials, logarithms, roots and trigonometry; their code is in ``hlojit.ir.scalar.functions``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hlojit.ir.formats import ComplexType
from hlojit.ir.ops import complex_arrays
from hlojit.ir.ops.accuracy import with_accuracy
from hlojit.ir.ops.complex_functions import function_of_parts, logarithm
from hlojit.ir.ops.definition import Array, Cost, OpDefinition, define
from hlojit.ir.ops.parts import PartsRule
from hlojit.ir.ops.pointwise import ACCURACY, ACCURACY_RULE, COMPLEX, FLOAT, QUANTIZED, binary, by_type, unary, widened
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder

_KINDS = (FLOAT, COMPLEX, QUANTIZED)


def by_name(function: str) -> Callable[..., Any]:
    """The rule of this name in ``hlojit.ir.scalar.functions``, which is loaded when code is first emitted."""

    def rule(b: ScalarBuilder, *scalars: Scalar) -> Scalar:
        from hlojit.ir.scalar import functions

        emitted: Scalar = getattr(functions, function)(b, *scalars)
        return emitted

    return rule


_UNITS = {"f32": 2.0, "f64": 2.0, "complex<f32>": 1.0, "complex<f64>": 3.0}
_UNITS_BUT_AT_ZEROS = {"f32": 2.0, "f64": 2.0, "complex<f32>": 1.0}
"""Of complex functions whose parts have zeros on curves, near which what is left of a cancellation counts."""


def _function(
    mnemonic: str,
    rule: Callable[..., Any],
    reference: Callable[..., Any],
    summary: str,
    parts: PartsRule,
    *,
    units: Mapping[str, float] = _UNITS,
    largest: float = math.inf,
) -> OpDefinition:
    lowering = by_type(real=rule)
    return define(
        dataclasses.replace(
            unary(
                mnemonic,
                _KINDS,
                lowering,
                widened(reference),
                attributes=ACCURACY,
                further=(ACCURACY_RULE,),
                cost=Cost.EXPENSIVE,
                parts={ComplexType: with_accuracy(parts)},
                summary=summary,
            ),
            units=units,
            largest=largest,
        )
    )


def _cube_root(x: Array) -> Array:
    return np.asarray(np.power(x, 1 / 3) if x.dtype.kind == "c" else np.cbrt(x))


def _logistic(x: Array) -> Array:
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small / (1 + small), 1 / (1 + small))


def _atan2(y: Array, x: Array) -> Array:
    if y.dtype.kind == "c":
        return np.asarray(-1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y)))
    return np.asarray(np.arctan2(y, x))


CBRT = _function("cbrt", by_name("cbrt"), _cube_root, "Cube root.", function_of_parts("cbrt"))
COSINE = _function("cosine", by_name("cos"), np.cos, "Cosine.", function_of_parts("cos"), largest=1.0)
EXPONENTIAL = _function(
    "exponential",
    by_name("exp"),
    complex_arrays.of_complex(np.exp, complex_arrays.exponential),
    "e to the power of the operand.",
    function_of_parts("exp"),
)
EXPONENTIAL_MINUS_ONE = _function(
    "exponential_minus_one",
    by_name("expm1"),
    complex_arrays.of_complex(np.expm1, complex_arrays.exponential_minus_one),
    "exp(x) - 1.",
    function_of_parts("expm1"),
    units=_UNITS_BUT_AT_ZEROS,
)
LOG = _function("log", by_name("log"), np.log, "Natural logarithm.", logarithm)
LOG_PLUS_ONE = _function(
    "log_plus_one",
    by_name("log1p"),
    complex_arrays.of_complex(np.log1p, complex_arrays.log_plus_one),
    "log(1 + x).",
    function_of_parts("log1p"),
)
LOGISTIC = _function(
    "logistic",
    by_name("logistic"),
    _logistic,
    "1 / (1 + exp(-x)).",
    function_of_parts("logistic"),
    units=_UNITS_BUT_AT_ZEROS,
    largest=1.0,
)
RSQRT = _function("rsqrt", by_name("rsqrt"), lambda x: 1 / np.sqrt(x), "1 / sqrt(x).", function_of_parts("rsqrt"))
SINE = _function("sine", by_name("sin"), np.sin, "Sine.", function_of_parts("sin"), largest=1.0)
SQRT = _function("sqrt", lambda b, x: b.sqrt(x), np.sqrt, "Square root.", function_of_parts("sqrt"))
TAN = _function("tan", by_name("tan"), np.tan, "Tangent.", function_of_parts("tan"))
TANH = _function("tanh", by_name("tanh"), np.tanh, "Hyperbolic tangent.", function_of_parts("tanh"), largest=1.0)


ATAN2 = define(
    binary(
        "atan2",
        _KINDS,
        by_type(real=by_name("atan2")),
        widened(_atan2),
        cost=Cost.EXPENSIVE,
        parts={ComplexType: function_of_parts("atan2")},
        summary="The angle of the point (rhs, lhs), in [-pi, pi].",
    )
)
