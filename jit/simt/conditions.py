"""The kernels of one thread that say what a graph does next, where graphs have loops and branches of their own.

    for code in condition_kernels(dialect):
        ...                                   # LOOP, CASE, PREDICATE; none where the dialect's machine has no such graphs

A node of a graph that runs a part of it again and again, or one of several parts, has a *handle*, a number by which
kernels set its condition: whether to go on, or which part it is to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.text import Val
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Dialect, Memory

LOOP: Final = "hlojit_condition_loop"
"""``(predicate, stop, handle)``: 1 if the predicate's byte is not 0 and the stop word is, otherwise 0."""
CASE: Final = "hlojit_condition_case"
"""``(index, cases, handle)``: the i32 at ``index`` if it is a case's number, otherwise that of the last one."""
PREDICATE: Final = "hlojit_condition_predicate"
"""``(predicate, handle)``: 0 if the predicate's byte is not 0, otherwise 1."""

_BYTE: Final = Memory("the predicate", 1)
_INDEX: Final = Memory("the index", 4, 4)
_STOP: Final = Memory("the stop word", 4, 4)


KINDS: Final = (LOOP, CASE, PREDICATE)


def condition_kernels(dialect: Dialect) -> tuple[KernelCode, ...]:
    """The three kernels, or none where the dialect sets no conditions; grids of one block of one thread."""
    return tuple(code for kind in KINDS if (code := condition_kernel(kind, dialect, kind)) is not None)


def condition_kernel(kind: str, dialect: Dialect, symbol: str) -> KernelCode | None:
    """One of them, under a name; None where the dialect sets no conditions."""
    memories, value = _RULES[kind]
    b = SimtBuilder(dialect)
    with b.kernel(symbol, memories, 1) as addresses:
        condition = value(b, addresses)
        if not b.dialect.set_condition(b, b.number(), condition):
            return None
    return kernel_code(b, [Phase(symbol, 1, 0.0, 1)])


_Value = Callable[[SimtBuilder, Sequence[Val]], Val]


def _goes_on(b: SimtBuilder, addresses: Sequence[Val]) -> Val:
    predicate, stop = b.load("i8", addresses[0]), b.load("i32", addresses[1])
    holds, stopped = b.icmp("ne", predicate, b.constant("i8", 0)), b.icmp("ne", stop, b.constant("i32", 0))
    return b.select(stopped, b.constant("i32", 0), b.zext(holds, "i32"))


def _case(b: SimtBuilder, addresses: Sequence[Val]) -> Val:
    last = b.sub(b.trunc(b.number(), "i32"), b.constant("i32", 1))
    index = b.load("i32", addresses[0])
    # Without a sign, negative ones are beyond the last one, too.
    return b.select(b.icmp("ult", index, last), index, last)


def _first_if_true(b: SimtBuilder, addresses: Sequence[Val]) -> Val:
    holds = b.icmp("ne", b.load("i8", addresses[0]), b.constant("i8", 0))
    return b.select(holds, b.constant("i32", 0), b.constant("i32", 1))


_RULES: Final[dict[str, tuple[Sequence[Memory], _Value]]] = {
    LOOP: ((_BYTE, _STOP), _goes_on),
    CASE: ((_INDEX,), _case),
    PREDICATE: ((_BYTE,), _first_if_true),
}
