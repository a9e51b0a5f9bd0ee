"""Everything that Acme brings to hlojit; it uses the public interface only."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlojit.extensions import (
    Backend,
    CustomCall,
    ElementwiseCall,
    FloatFormat,
    Kernel,
    NanEncoding,
    Overflow,
    Pass,
    hookimpl,
)

from hlojit_acme.backend import AcmeBackend
from hlojit_acme.division import DivisionByConstant
from hlojit_acme.products import Tile
from hlojit_acme.softmax import SOFTMAX

hlojit_api = (1, 2)
"""The version of hlojit's hooks that this package is written for."""

hlojit_cases = "hlojit_acme.cases"
"""What the conformance kit is told."""

ACME8 = FloatFormat(
    "acme8",
    exponent_bits=4,
    mantissa_bits=3,
    bias=9,
    has_infinity=False,
    nan=NanEncoding.ALL_ONES,
    overflow=Overflow.SATURATE,
)


def softplus(x: float) -> float:
    """log(1 + exp(x)) without overflow; compiled by numba and inlined."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@hookimpl
def hlojit_formats() -> Sequence[FloatFormat]:
    """Acme's 8-bit float."""
    return [ACME8]


@hookimpl
def hlojit_passes() -> Sequence[Pass]:
    """For everybody, and for the matrix unit."""
    return [DivisionByConstant(), Tile()]


@hookimpl
def hlojit_custom_calls() -> Sequence[CustomCall]:
    """Acme's activation function."""
    return [ElementwiseCall("acme.softplus", function=softplus)]


@hookimpl
def hlojit_kernels() -> Sequence[Kernel]:
    """The softmax of the vector unit."""
    return [SOFTMAX]


@hookimpl
def hlojit_backends() -> Sequence[Backend]:
    """Acme's device."""
    return [AcmeBackend()]
