"""What is done around calls of LAPACK: matrices that are not finite are refused, packed eigenvectors become complex ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hlojit.cpu.kernels.library_calls import Batch
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.region import Variable, while_loop

FLOATS: Final = {"s": "f32", "d": "f64"}
NOT_FINITE: Final = -4
"""What a call is said to have ended with that was not made: its fourth parameter, the matrix, is no good."""


def finite_or_refused(batch: Batch, letter: str, matrix: int, count: int) -> Batch:
    """Make the call only if the ``count`` reals of parameter ``matrix`` are finite: QR iterations may not end otherwise."""
    kind = FLOATS[letter]

    def before(b: LlvmBuilder, addresses: list[Val]) -> Val:
        zero = b.constant(kind, 0.0)
        loop = b.begin_loop(b.constant("i64", 0), b.constant("i64", count), carried=[zero])
        value = b.load(kind, b.element_pointer(addresses[matrix], kind, loop.index))
        # Not a number from the first value that is not finite on.
        (total,) = b.end_loop(loop, [b.fadd(loop.carried[0], b.fsub(value, value))])
        is_finite = b.fcmp("oeq", total, zero)
        b.store(b.select(is_finite, b.constant("i32", 0), b.constant("i32", NOT_FINITE)), addresses[-1])
        return is_finite

    return replace(batch, before=before)


def vectors_joined(batch: Batch, letter: str, order: int, imaginary: int, packed: Sequence[int]) -> Batch:
    """Behind the call, make complex vectors of packed ones, of which conjugate pairs share two columns.

    ``packed`` are numbers of parameters, ``imaginary`` is that of the eigenvalues' imaginary parts; the places beside are
    where the vectors go.
    """

    def after(b: LlvmBuilder, addresses: list[Val]) -> None:
        targets = addresses[len(addresses) - len(packed) :]
        for number, target in zip(packed, targets):
            _join(b, FLOATS[letter], order, addresses[imaginary], addresses[number], target)

    return replace(batch, after=after)


def _join(b: LlvmBuilder, kind: str, order: int, imaginary: Val, packed: Val, target: Val) -> None:
    one, count = b.constant("i64", 1), b.constant("i64", order)
    column = Variable(b, "i64", b.constant("i64", 0))

    def join_column() -> None:
        here = column.get()
        following = b.add(here, one)
        part = b.load(kind, b.element_pointer(imaginary, kind, here))
        is_pair = b.and_(b.fcmp("une", part, b.constant(kind, 0.0)), b.icmp("slt", following, count))
        other = b.select(is_pair, following, here)
        first, second = (b.mul(each, count) for each in (here, other))
        loop = b.begin_loop(b.constant("i64", 0), count)
        real = b.load(kind, b.element_pointer(packed, kind, b.add(first, loop.index)))
        stored = b.load(kind, b.element_pointer(packed, kind, b.add(second, loop.index)))
        rest = b.select(is_pair, stored, b.constant(kind, 0.0))
        # The second one of a pair first: where there is no pair, it is the same column.
        for start, value in ((second, b.fneg(rest)), (first, rest)):
            place = b.add(b.add(start, loop.index), b.add(start, loop.index))
            b.store(real, b.element_pointer(target, kind, place))
            b.store(value, b.element_pointer(target, kind, b.add(place, one)))
        b.end_loop(loop)
        column.set(b.add(following, b.zext(is_pair, "i64")))

    while_loop(b, lambda: b.icmp("slt", column.get(), count), join_column)
