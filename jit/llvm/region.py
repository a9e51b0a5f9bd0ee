"""What library kernels are written with: regions inlined on scalars, mutable locals, loops, numbers of elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from hlojit.ir.formats import ElementType, IntegerType
from hlojit.ir.graph import Block
from hlojit.ir.scalar import formats
from hlojit.llvm.builder import LlvmBuilder, Val, scalars
from hlojit.lowering.scalar_regions import region_elements


def inline_region(b: LlvmBuilder, block: Block, arguments: Sequence[Val]) -> tuple[Val, ...]:
    """Emit a block of scalars on arguments in compute form; returns its results in compute form."""
    results: tuple[Any, ...] = region_elements(scalars(b)).inline(block, arguments)
    return results


def updated(b: LlvmBuilder, block: Block, old: Sequence[Val], new: Sequence[Val]) -> tuple[Val, ...]:
    """Emit a combiner of old and new elements, all in memory form: what it only hands on keeps its bits."""
    elements = region_elements(scalars(b))
    results: tuple[Any, ...] = elements.inline(block, [*old, *new], frozenset(range(len(old))))
    return results


def load_stored(b: LlvmBuilder, element: ElementType, base: Val, index: Val) -> Val:
    """One element of an array in memory form."""
    kind = formats.storage_kind(element)
    return b.load(kind, b.element_pointer(base, kind, index))


def load_element(b: LlvmBuilder, element: ElementType, base: Val, index: Val) -> Val:
    """One element of an array in compute form."""
    return cast(Val, formats.decode(scalars(b), load_stored(b, element, base, index), element))


def store_stored(b: LlvmBuilder, base: Val, index: Val, stored: Val) -> None:
    """Store one element that is in memory form."""
    b.store(stored, b.element_pointer(base, stored.kind, index))


class Variable:
    """A mutable local (an ``alloca`` that LLVM turns into registers), for loops with several exits."""

    def __init__(self, b: LlvmBuilder, kind: str, initial: Val):
        self.b = b
        self.kind = kind
        # In the entry block: an alloca inside a loop would take new stack in every iteration.
        self.address = b.local(kind)
        self.set(initial)

    def get(self) -> Val:
        """The current value."""
        return self.b.load(self.kind, self.address)

    def set(self, value: Val) -> None:
        """Assign."""
        self.b.store(value, self.address)


def while_loop(b: LlvmBuilder, condition: Callable[[], Val], body: Callable[[], None]) -> None:
    """Emit ``while condition(): body()``."""
    head, inside, end = (b.fresh_label(stem) for stem in ("head", "inside", "end"))
    b.branch(head)
    b.begin_block(head)
    b.branch_if(condition(), inside, end)
    b.begin_block(inside)
    body()
    b.branch(head)
    b.begin_block(end)


def delinearize(b: LlvmBuilder, index: Val, shape: tuple[int, ...]) -> list[Val]:
    """The multi-dimensional index of a row-major linear one."""
    parts: list[Val] = []
    for extent in reversed(shape[1:]):
        parts.append(b.urem(index, b.constant("i64", extent)))
        index = b.udiv(index, b.constant("i64", extent))
    return [*([index] if shape else []), *reversed(parts)]


def wide_index(b: LlvmBuilder, element: IntegerType, value: Val) -> Val:
    """An integer of any type as an i64; an unsigned one beyond i64 becomes the largest i64."""
    if value.kind == "i64":
        if element.signed:
            return value
        negative = b.icmp("slt", value, b.constant("i64", 0))
        return b.select(negative, b.constant("i64", (1 << 63) - 1), value)
    return b.sext(value, "i64") if element.signed else b.zext(value, "i64")


def clamp(b: LlvmBuilder, value: Val, low: int, high: int) -> Val:
    """``value`` limited to ``low <= value <= high``."""
    lower, upper = b.constant("i64", low), b.constant("i64", high)
    value = b.select(b.icmp("slt", value, lower), lower, value)
    return b.select(b.icmp("sgt", value, upper), upper, value)
