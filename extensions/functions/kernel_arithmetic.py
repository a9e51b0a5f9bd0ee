"""Arithmetic in numba functions that become parts of kernels: defined for all numbers; everybody else's stays numba's.

numba lets ``-2**63 // -1`` be 0, NumPy and the reference interpreter -2**63.  Of ``int(x)`` of a float that the integers do
not hold, LLVM says nothing at all, not even of the code around it; here it is the nearest integer, and 0 for NaN, as
``stablehlo.convert`` has it.  Nor of shifts by their width or more: they give 0, or the sign, as in NumPy and StableHLO; so
do those by less than 0.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final


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


def _saturating(instruction: str, own: Callable[..., Any]) -> Callable[..., Any]:
    """A method of LLVM's builder that converts floats to the nearest integers, on the thread that asks for it."""
    thread = threading.get_ident()

    def convert(builder: Any, value: Any, kind: Any, name: str = "") -> Any:
        if threading.get_ident() != thread:  # somebody who builds code without numba
            return own(builder, value, kind, name=name)
        from llvmlite import ir

        symbol = f"llvm.{instruction}.sat.i{kind.width}.{_FLOATS[str(value.type)]}"
        known = builder.module.globals.get(symbol)
        function = known or ir.Function(builder.module, ir.FunctionType(kind, [value.type]), name=symbol)
        return builder.call(function, [value], name=name)

    return convert


def _shifting(instruction: str, own: Callable[..., Any]) -> Callable[..., Any]:
    """A method of LLVM's builder that shifts by any count, on the thread that asks for it."""
    thread = threading.get_ident()

    def shift(builder: Any, value: Any, count: Any, name: str = "", flags: Sequence[str] = ()) -> Any:
        if threading.get_ident() != thread:
            return own(builder, value, count, name=name, flags=flags)
        width, written = count.type.width, getattr(count, "constant", None)
        if isinstance(written, int) and 0 <= written < width:
            return own(builder, value, count, name=name, flags=flags)
        fits = builder.icmp_unsigned("<", count, count.type(width))
        if instruction == "ashr":
            return own(builder, value, builder.select(fits, count, count.type(width - 1)), name=name, flags=flags)
        # What the shift itself gives for such a count is never chosen.
        return builder.select(fits, own(builder, value, count, flags=flags), value.type(0), name=name)

    return shift


_FLOATS: Final = {"half": "f16", "float": "f32", "double": "f64"}


@contextmanager
def arithmetic_of_kernels() -> Iterator[None]:
    """What numba compiles on this thread computes so; others, who wait for numba's lock meanwhile, are not concerned."""
    from llvmlite.ir import IRBuilder
    from numba.core.compiler_lock import global_compiler_lock
    from numba.cpython import numbers

    with global_compiler_lock, ExitStack() as undo:
        places: list[tuple[Any, str, Any]] = [(numbers, "int_divmod_signed", _divided)]
        places += [(IRBuilder, name, _saturating(name, getattr(IRBuilder, name))) for name in ("fptosi", "fptoui")]
        places += [(IRBuilder, name, _shifting(name, getattr(IRBuilder, name))) for name in ("shl", "lshr", "ashr")]
        for owner, name, mine in places:
            undo.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, mine)
        yield
