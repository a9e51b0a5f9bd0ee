"""Exponentials, logarithms, roots and trigonometry; their code is in ``hlojit.ir.scalar.functions``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hlojit.ir.formats import ComplexType
from hlojit.ir.ops import complex_references
from hlojit.ir.ops.accuracy import with_accuracy
from hlojit.ir.ops.complex_arrays import of_complex
from hlojit.ir.ops.complex_functions import function_of_parts, logarithm
from hlojit.ir.ops.definition import Array, Cost, OpDefinition, define
from hlojit.ir.ops.derivatives import pointwise as derivatives
from hlojit.ir.ops.derivatives.kinds import Derivative
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
    derivative: Derivative,
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
                derivative=derivative,
                summary=summary,
            ),
            units=units,
            largest=largest,
        )
    )


def _logistic(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small / (1 + small), 1 / (1 + small))


CBRT = _function(
    "cbrt",
    by_name("cbrt"),
    of_complex(np.cbrt, complex_references.cbrt),
    "Cube root.",
    function_of_parts("cbrt"),
    derivative=derivatives.CBRT,
)
COSINE = _function(
    "cosine",
    by_name("cos"),
    of_complex(np.cos, complex_references.cos),
    "Cosine.",
    function_of_parts("cos"),
    largest=1.0,
    derivative=derivatives.COSINE,
)
EXPONENTIAL = _function(
    "exponential",
    by_name("exp"),
    of_complex(np.exp, complex_references.exp),
    "e to the power of the operand.",
    function_of_parts("exp"),
    derivative=derivatives.EXPONENTIAL,
)
EXPONENTIAL_MINUS_ONE = _function(
    "exponential_minus_one",
    by_name("expm1"),
    of_complex(np.expm1, complex_references.expm1),
    "exp(x) - 1.",
    function_of_parts("expm1"),
    units=_UNITS_BUT_AT_ZEROS,
    derivative=derivatives.EXPONENTIAL_MINUS_ONE,
)
LOG = _function(
    "log",
    by_name("log"),
    of_complex(np.log, complex_references.log),
    "Natural logarithm.",
    logarithm,
    derivative=derivatives.LOG,
)
LOG_PLUS_ONE = _function(
    "log_plus_one",
    by_name("log1p"),
    of_complex(np.log1p, complex_references.log1p),
    "log(1 + x).",
    function_of_parts("log1p"),
    derivative=derivatives.LOG_PLUS_ONE,
)
LOGISTIC = _function(
    "logistic",
    by_name("logistic"),
    of_complex(_logistic, complex_references.logistic),
    "1 / (1 + exp(-x)).",
    function_of_parts("logistic"),
    units=_UNITS_BUT_AT_ZEROS,
    largest=1.0,
    derivative=derivatives.LOGISTIC,
)
RSQRT = _function(
    "rsqrt",
    by_name("rsqrt"),
    of_complex(lambda x: 1 / np.sqrt(x), complex_references.rsqrt),
    "1 / sqrt(x).",
    function_of_parts("rsqrt"),
    derivative=derivatives.RSQRT,
)
SINE = _function(
    "sine",
    by_name("sin"),
    of_complex(np.sin, complex_references.sin),
    "Sine.",
    function_of_parts("sin"),
    largest=1.0,
    derivative=derivatives.SINE,
)
SQRT = _function(
    "sqrt",
    lambda b, x: b.sqrt(x),
    of_complex(np.sqrt, complex_references.sqrt),
    "Square root.",
    function_of_parts("sqrt"),
    derivative=derivatives.SQRT,
)
TAN = _function(
    "tan",
    by_name("tan"),
    of_complex(np.tan, complex_references.tan),
    "Tangent.",
    function_of_parts("tan"),
    derivative=derivatives.TAN,
)
TANH = _function(
    "tanh",
    by_name("tanh"),
    of_complex(np.tanh, complex_references.tanh),
    "Hyperbolic tangent.",
    function_of_parts("tanh"),
    largest=1.0,
    derivative=derivatives.TANH,
)


ATAN2 = define(
    binary(
        "atan2",
        _KINDS,
        by_type(real=by_name("atan2")),
        widened(of_complex(np.arctan2, complex_references.atan2)),
        cost=Cost.EXPENSIVE,
        parts={ComplexType: function_of_parts("atan2")},
        derivative=derivatives.ATAN2,
        summary="The angle of the point (rhs, lhs), in [-pi, pi].",
    )
)
