"""Division of signed integers in numba functions, with NumPy's meaning where the quotient overflows.

numba lets ``-2**63 // -1`` be 0, NumPy and the reference interpreter -2**63.  Functions that become parts of kernels are
compiled with this division; everybody else's keep numba's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def _divided(context: Any, builder: Any, kind: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Emit quotient and remainder, rounded down; ``y`` is not 0."""
    zero, one, minus_one = y.type(0), y.type(1), y.type(-1)
    # What divides by -1 divides by 1 here, which never overflows, and is negated below: without a branch.
    negates = builder.icmp_signed("==", y, minus_one)
    divisor = builder.select(negates, one, y)
    quotient, rest = builder.sdiv(x, divisor), builder.srem(x, divisor)
    has_other_sign = builder.icmp_signed("<", builder.xor(rest, divisor), zero)
    is_rounded_up = builder.and_(builder.icmp_signed("!=", rest, zero), has_other_sign)
    quotient = builder.select(is_rounded_up, builder.sub(quotient, one), quotient)
    rest = builder.select(is_rounded_up, builder.add(rest, divisor), rest)
    return builder.select(negates, builder.sub(zero, quotient), quotient), rest


@contextmanager
def division_of_numpy() -> Iterator[None]:
    """What numba compiles on this thread divides so; others, who wait for numba's lock meanwhile, are not concerned."""
    from numba.core.compiler_lock import global_compiler_lock
    from numba.cpython import numbers

    with global_compiler_lock:
        own = numbers.int_divmod_signed
        numbers.int_divmod_signed = _divided
        try:
            yield
        finally:
            numbers.int_divmod_signed = own
