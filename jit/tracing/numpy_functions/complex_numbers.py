"""Complex numbers on tracers: their parts, angles, and tests of what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from hlojit.ir.formats import ComplexType
from hlojit.tracing.arrays.views import part
from hlojit.tracing.numpy_functions.rules import Rules, implements
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer

RULES: Rules = {}
"""Rules of this module, by NumPy's function."""


def is_complex(operand: Tracer) -> bool:
    """Whether a traced array has complex elements."""
    return isinstance(operand.element_type, ComplexType)


def squared_size(operand: Tracer) -> Any:
    """The square of the absolute value, which is real."""
    if not is_complex(operand):
        return operand * operand
    return operand.real * operand.real + operand.imag * operand.imag


@implements(RULES, np.real)
def real(ops: Operations, val: Any) -> Tracer:
    operand = ops.tracer(val)
    return part(ops, operand, is_real=True) if is_complex(operand) else operand


@implements(RULES, np.imag)
def imag(ops: Operations, val: Any) -> Tracer:
    operand = ops.tracer(val)
    if is_complex(operand):
        return part(ops, operand, is_real=False)
    zeros = ops.wrap(ops.full(0, operand.kind, operand.shape))
    zeros.window.is_writable = False
    zeros.is_scalar = operand.is_scalar
    return zeros


@implements(RULES, np.angle)
def angle(ops: Operations, z: Any, deg: bool = False) -> Tracer:
    operand = ops.tracer(z)
    radians: Any = np.arctan2(operand.imag, operand.real) if is_complex(operand) else np.arctan2(0, operand)
    return ops.tracer(radians * (180 / np.pi) if deg else radians)


@implements(RULES, np.iscomplexobj)
def iscomplexobj(ops: Operations, x: Any) -> bool:
    return is_complex(ops.tracer(x))


@implements(RULES, np.isrealobj)
def isrealobj(ops: Operations, x: Any) -> bool:
    return not is_complex(ops.tracer(x))


@implements(RULES, np.isreal)
def isreal(ops: Operations, x: Any) -> Tracer:
    return ops.tracer(ops.tracer(x).imag == 0)


@implements(RULES, np.iscomplex)
def iscomplex(ops: Operations, x: Any) -> Tracer:
    return ops.tracer(ops.tracer(x).imag != 0)
