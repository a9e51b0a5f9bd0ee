"""Elements of a run to two places: those up to a pivot to one, in order, those above it to the other.

    count = partition(b, form, source, below, above, n, pivot)

What is below may be written over the source, or what is above: no more is ever written than was read.  Both places hold ``n``
elements, since whole vectors are written.  How a vector's chosen lanes come together is the processor's affair:

* ``COMPRESS``: an instruction that does it (AVX-512; from register to register: into memory it is slow on some processors);
* ``TABLE``: a permutation for every mask of up to eight lanes (AVX2);
* ``SCALAR``: element by element, to both places at once, of which one moves on.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from hlojit.cpu.kernels.addresses import ZERO, literal
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.lowering.target import KIND_BITS, Target

UNROLLED = 4
"""Vectors of one turn of the loop."""


class Form(enum.Enum):
    """How the chosen lanes of a vector come together."""

    COMPRESS = "an instruction"
    TABLE = "a permutation out of a table"
    SCALAR = "element by element"


@dataclass(frozen=True)
class VectorForm:
    """Integers of ``kind`` in vectors of ``lanes``."""

    form: Form
    kind: str
    lanes: int

    @staticmethod
    def of(kind: str, target: Target) -> VectorForm:
        """The best that a processor offers, by its features."""
        lanes = max(2, target.native_lanes(kind))
        if target.is_x86 and target.has_masks and (KIND_BITS[kind] >= 32 or target.has_feature("avx512vbmi2")):
            return VectorForm(Form.COMPRESS, kind, lanes)
        if target.is_x86 and target.has_feature("avx2") and KIND_BITS[kind] >= 32:
            return VectorForm(Form.TABLE, kind, 256 // KIND_BITS[kind])
        return VectorForm(Form.SCALAR, kind, lanes)

    @property
    def has_masks(self) -> bool:
        """Whether parts of vectors can be loaded and stored."""
        return self.form is not Form.SCALAR

    def compress(self, b: LlvmBuilder, vector: Val, mask: Val) -> Val:
        """The lanes whose mask is 1, in their order, before lanes that hold anything."""
        type, lanes = b.type_of(vector), vector.lanes
        if self.form is Form.COMPRESS:
            symbol = f"llvm.x86.avx512.mask.compress.v{lanes}{vector.kind}"
            b.declare(symbol, f"declare {type} @{symbol}({type}, {type}, <{lanes} x i1>)")
            text = f"call {type} @{symbol}({type} {vector.text}, {type} poison, <{lanes} x i1> {mask.text})"
            return b.emit(vector.kind, lanes, text)
        assert self.form is Form.TABLE
        bits = b.emit(f"i{lanes}", 1, f"bitcast <{lanes} x i1> {mask.text} to i{lanes}")
        number = b.emit("i64", 1, f"zext i{lanes} {bits.text} to i64")
        row = b.element_pointer(b.constant_table("i8", _permutations(lanes)), "i8", b.mul(number, literal(8)))
        places = b.zext(b.emit("i8", 8, f"load <8 x i8>, ptr {row.text}, align 8"), "i32")
        words = b.emit("i32", 8, f"bitcast {type} {vector.text} to <8 x i32>")
        symbol = "llvm.x86.avx2.permd"
        b.declare(symbol, f"declare <8 x i32> @{symbol}(<8 x i32>, <8 x i32>)")
        moved = b.emit("i32", 8, f"call <8 x i32> @{symbol}(<8 x i32> {words.text}, <8 x i32> {places.text})")
        return b.emit(vector.kind, lanes, f"bitcast <8 x i32> {moved.text} to {type}")


def _permutations(lanes: int) -> tuple[int, ...]:
    """For every mask the eight 32-bit words of the chosen lanes, then those of the others."""
    table: list[int] = []
    words = 8 // lanes
    for mask in range(1 << lanes):
        chosen = sorted(range(lanes), key=lambda lane: not mask >> lane & 1)
        table += [words * lane + word for lane in chosen for word in range(words)]
    return tuple(table)


def mask_count(b: LlvmBuilder, mask: Val) -> Val:
    """How many lanes of a mask are 1, an i64."""
    bits = f"i{mask.lanes}"
    number = b.emit(bits, 1, f"bitcast <{mask.lanes} x i1> {mask.text} to {bits}")
    symbol = f"llvm.ctpop.{bits}"
    b.declare(symbol, f"declare {bits} @{symbol}({bits})")
    counted = b.emit(bits, 1, f"call {bits} @{symbol}({bits} {number.text})")
    return counted if bits == "i64" else b.emit("i64", 1, f"zext {bits} {counted.text} to i64")


def first_lanes(b: LlvmBuilder, count: Val, lanes: int, kind: str) -> Val:
    """The mask of the first ``count`` (an i64, which may be negative or large) of ``lanes`` lanes."""
    bounded = b.intrinsic("smin", b.intrinsic("smax", count, ZERO), literal(lanes))
    numbers = Val("<" + ", ".join(f"{kind} {lane}" for lane in range(lanes)) + ">", kind, lanes)
    limit = bounded if kind == "i64" else b.trunc(bounded, kind)
    return b.icmp("slt", numbers, b.splat(limit, lanes))


def load_vector(b: LlvmBuilder, pointer: Val, kind: str, lanes: int) -> Val:
    """Consecutive elements."""
    align = KIND_BITS[kind] // 8
    return b.emit(kind, lanes, f"load {b.type(kind, lanes)}, ptr {pointer.text}, align {align}")


def partition(b: LlvmBuilder, form: VectorForm, source: Val, below: Val, above: Val, n: Val, pivot: Val) -> Val:
    """Emit the loops; returns how many elements are not above the pivot (i64)."""
    if form.form is Form.SCALAR:
        return _partition_scalars(b, form.kind, source, below, above, n, pivot)
    kind, lanes = form.kind, form.lanes
    limit = b.splat(pivot, lanes)

    def vectors(index: Val, places: tuple[Val, ...], count: int) -> tuple[Val, Val]:
        left, right = places
        found = [load_vector(b, _place(b, source, kind, index, n * lanes), kind, lanes) for n in range(count)]
        for vector in found:
            above_mask = b.icmp("sgt", vector, limit)
            below_mask = b.icmp("sle", vector, limit)
            b.store(form.compress(b, vector, below_mask), b.element_pointer(below, kind, left))
            b.store(form.compress(b, vector, above_mask), b.element_pointer(above, kind, right))
            taken = mask_count(b, below_mask)
            left, right = b.add(left, taken), b.add(right, b.sub(literal(lanes), taken))
        return left, right

    group = UNROLLED * lanes
    whole = b.sub(n, b.urem(n, literal(group)))
    loop = b.begin_loop(ZERO, whole, step=group, carried=(ZERO, ZERO))
    left, right = b.end_loop(loop, vectors(loop.index, loop.carried, UNROLLED))
    single = b.sub(n, b.urem(n, literal(lanes)))
    loop = b.begin_loop(whole, single, step=lanes, carried=(left, right))
    left, right = b.end_loop(loop, vectors(loop.index, loop.carried, 1))
    rest = b.sub(n, single)
    valid = first_lanes(b, rest, lanes, kind)
    vector = b.masked_load(kind, b.element_pointer(source, kind, single), valid)
    for target, place, predicate in ((above, right, "sgt"), (below, left, "sle")):
        mask = b.and_(b.icmp(predicate, vector, limit), valid)
        taken = mask_count(b, mask)
        b.masked_store(
            form.compress(b, vector, mask), b.element_pointer(target, kind, place), first_lanes(b, taken, lanes, kind)
        )
    return b.add(left, taken)


def _place(b: LlvmBuilder, base: Val, kind: str, index: Val, offset: int) -> Val:
    return b.element_pointer(base, kind, index if not offset else b.add(index, literal(offset)))


def _partition_scalars(b: LlvmBuilder, kind: str, source: Val, below: Val, above: Val, n: Val, pivot: Val) -> Val:
    loop = b.begin_loop(ZERO, n, carried=(ZERO,))
    (left,) = loop.carried
    value = b.load(kind, b.element_pointer(source, kind, loop.index))
    b.store(value, b.element_pointer(below, kind, left))
    b.store(value, b.element_pointer(above, kind, b.sub(loop.index, left)))
    (left,) = b.end_loop(loop, (b.add(left, b.zext(b.icmp("sle", value, pivot), "i64")),))
    return left
