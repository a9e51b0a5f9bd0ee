"""How elements of a buffer are read into, and written from, the registers of a product.

A product multiplies and adds in one *compute kind*: ``f32`` or ``f64`` for floats, ``i32`` or ``i64`` for integers
(whose low bits are the result's, whatever the width; of booleans it counts the pairs that are both true).  ``Elements``
decodes and encodes between a buffer's element type and that kind, one element or a vector at a time.

    compute = compute_kind(lhs, rhs, result)
    value = Elements(lhs, compute).load(b, pointer, lanes=16)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from hlojit.ir.attributes import DotAlgorithm
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import BooleanType, ElementType, FloatFormat, IntegerType
from hlojit.ir.ops.dot_algorithms import rounded_format
from hlojit.ir.scalar import formats
from hlojit.llvm.builder import LlvmBuilder, Val, scalars
from hlojit.lowering.target import KIND_BITS


def storage_kind(element: ElementType) -> str:
    """Kind of the memory of one element: ``f32 f64`` for the native floats, otherwise the integer of its width."""
    if isinstance(element, FloatFormat) and element.is_native:
        return element.name
    return f"i{8 * element.itemsize}"


def compute_kind(lhs: ElementType, rhs: ElementType, result: ElementType) -> str:
    """The kind in which a product of these types is computed."""
    if isinstance(result, (BooleanType, IntegerType)):
        return "i64" if result.bits > 32 else "i32"
    if isinstance(result, FloatFormat):
        floats = [element for element in (lhs, rhs, result) if isinstance(element, FloatFormat)]
        wide = any(element.compute == "f64" or element.accumulator == "f64" for element in floats)
        return "f64" if wide else "f32"
    raise HlojitError(f"no product of {lhs} and {rhs} into {result}")


def constant_mask(count: int, lanes: int) -> Val | None:
    """The literal mask of the first ``count`` of ``lanes`` lanes; None when all are on."""
    if count >= lanes:
        return None
    bits = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes))
    return Val(f"<{bits}>", "i1", lanes)


def at(b: LlvmBuilder, pointer: Val, offset: int | Val) -> Val:
    """The address ``offset`` bytes behind ``pointer``."""
    if isinstance(offset, int):
        if offset == 0:
            return pointer
        return b.emit("ptr", 1, f"getelementptr inbounds i8, ptr {pointer.text}, i64 {offset}")
    return b.emit("ptr", 1, f"getelementptr inbounds i8, ptr {pointer.text}, i64 {offset.text}")


def scaled(b: LlvmBuilder, index: Val, factor: int) -> Val:
    """``index * factor`` for an i64 index."""
    if factor == 0:
        return Val("0", "i64")
    if factor == 1:
        return index
    if index.is_literal:
        return Val(str(int(index.text) * factor), "i64")
    return b.emit("i64", 1, f"mul nsw i64 {index.text}, {factor}")


def load_kind(b: LlvmBuilder, kind: str, pointer: Val, lanes: int = 1, mask: Val | None = None) -> Val:
    """Load consecutive values of a native kind; lanes that the mask leaves out are not read."""
    if mask is not None:
        return b.masked_load(kind, pointer, mask)
    return b.emit(kind, lanes, f"load {b.type(kind, lanes)}, ptr {pointer.text}, align {KIND_BITS[kind] // 8}")


def store_kind(b: LlvmBuilder, value: Val, pointer: Val, mask: Val | None = None) -> None:
    """Store consecutive values of a native kind."""
    if mask is not None:
        b.masked_store(value, pointer, mask)
    else:
        b.store(value, pointer)


def prefetch(b: LlvmBuilder, pointer: Val, *, level: int) -> None:
    """Ask for the cache line at an address, which need not exist, into a level of cache (1 is the first)."""
    b.declare("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    b.line(f"call void @llvm.prefetch.p0(ptr {pointer.text}, i32 0, i32 {4 - level}, i32 1)")


@dataclass(frozen=True, slots=True)
class Elements:
    """Buffer elements of type ``element`` seen as values of kind ``compute``."""

    element: ElementType
    compute: str
    rounded_to: FloatFormat | None = None
    """A narrower format into which elements are rounded when they are read (``dot_algorithm``)."""

    @property
    def size(self) -> int:
        """Bytes between neighbouring elements."""
        return self.element.itemsize

    @property
    def rows(self) -> Sequence[int]:
        """Where, in bytes, the lines of memory begin that a vector of elements is put together from."""
        return (0,)

    @property
    def is_native(self) -> bool:
        """Whether memory holds the compute kind itself, or would hold it if elements were not computed."""
        if self.rounded_to is not None or isinstance(self.element, BooleanType):
            return False
        return storage_kind(self.element) == self.compute

    @property
    def is_computed(self) -> bool:
        """Whether elements are computed where they are read, from several operands, say."""
        return False

    @property
    def nanoseconds(self) -> float:
        """Estimated time in which one element is computed; conversions of a single one are not counted."""
        return 0.0

    def widest(self, lanes: int) -> int:
        """Of how many elements, a multiple of ``lanes``, loading all at once saves work."""
        return lanes

    @property
    def parameters(self) -> Sequence[tuple[str, str]]:
        """What functions that read elements are given besides a pointer to them."""
        return ()

    def arguments(self, b: LlvmBuilder, buffers: Val) -> Sequence[Val]:
        """``parameters`` in the product's kernel, from its table of buffers."""
        return ()

    def begin(self, b: LlvmBuilder, sources: Sequence[Val]) -> None:
        """Begin a function that reads elements, given its ``parameters``."""

    def load(self, b: LlvmBuilder, pointer: Val, lanes: int = 1, mask: Val | None = None) -> Val:
        """Read ``lanes`` consecutive elements; those that the mask leaves out are not read and are 0."""
        return self.decode(b, load_kind(b, storage_kind(self.element), pointer, lanes, mask))

    def line_of(self, b: LlvmBuilder, pointer: Val) -> Val:
        """The number of the line that begins at a pointer, where ``load_in_line`` wants it; lines are along neighbours."""
        return Val("0", "i64")

    def lines(self, nbytes: int) -> int:
        """How many lines further an element lies so many bytes further, which are whole lines."""
        return 0

    def load_in_line(
        self, b: LlvmBuilder, pointer: Val, line: Val, position: Val, lanes: int = 1, mask: Val | None = None
    ) -> Val:
        """``load`` where it is known in which line and where in it elements lie."""
        return self.load(b, pointer, lanes, mask)

    def store(self, b: LlvmBuilder, value: Val, pointer: Val, mask: Val | None = None) -> None:
        """Round values into the element type and write them."""
        store_kind(b, self.encode(b, value), pointer, mask)

    def decode(self, b: LlvmBuilder, value: Val) -> Val:
        """From storage to the compute kind."""
        element = self.element
        if isinstance(element, FloatFormat):
            value = cast(Val, formats.decode(scalars(b), value, element))
            if self.rounded_to is not None:
                value = cast(Val, formats.round_to_format(scalars(b), value, self.rounded_to))
            return cast(Val, formats.float_resized(scalars(b), value, self.compute))
        signed = isinstance(element, IntegerType) and element.signed
        if self.compute in ("f32", "f64"):
            return b.sitofp(value, self.compute) if signed else b.uitofp(value, self.compute)
        if KIND_BITS[value.kind] > KIND_BITS[self.compute]:
            return b.trunc(value, self.compute)
        return b.sext(value, self.compute) if signed else b.zext(value, self.compute)

    def encode(self, b: LlvmBuilder, value: Val) -> Val:
        """From the compute kind to storage, rounded once."""
        element = self.element
        if isinstance(element, FloatFormat):
            return cast(Val, formats.encode(scalars(b), value, element))
        if isinstance(element, BooleanType):
            return b.zext(b.icmp("ne", value, b.constant(value.kind, 0)), "i8")
        kind = storage_kind(element)
        value = b.trunc(value, kind) if KIND_BITS[value.kind] > KIND_BITS[kind] else value
        return cast(Val, formats.wrap_integer(scalars(b), value, element))


def algorithm_elements(
    lhs: ElementType, rhs: ElementType, result: ElementType, algorithm: DotAlgorithm | None
) -> tuple[Elements, Elements, Elements]:
    """How a product's operands and result are seen; a dot algorithm of one operation rounds the operands, or widens the sums."""
    kind = compute_kind(lhs, rhs, result)
    if algorithm is None or not isinstance(result, FloatFormat):
        return Elements(lhs, kind), Elements(rhs, kind), Elements(result, kind)
    wide = "f64" if algorithm.accumulation_type == "f64" else kind
    return (
        Elements(lhs, wide, rounded_format(lhs, algorithm.lhs_precision_type)),
        Elements(rhs, wide, rounded_format(rhs, algorithm.rhs_precision_type)),
        Elements(result, wide),
    )


def passed(values: Sequence[Val]) -> str:
    """Pointers as the last arguments of a call."""
    return "".join(f", ptr {value.text}" for value in values)
