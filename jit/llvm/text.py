"""Lines of LLVM IR, values in them, and vectors of lanes: what every emitter of the CPUs' dialect stands on.

Text is three to nine times faster to make than llvmlite's IR objects.  Every value is either uniform (one lane, the same
for all) or has the builder's lanes; mixed operands are splatted, so that what does not depend on the vectorized index is
computed once.  ``LlvmArithmetic`` adds the scalar instructions, ``LlvmBuilder`` functions, loops and memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

LLVM_TYPE = {
    "i1": "i1",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
    "f32": "float",
    "f64": "double",
    "ptr": "ptr",
}
TYPE_SUFFIX = {"f32": "f32", "f64": "f64"} | {kind: kind for kind in ("i1", "i8", "i16", "i32", "i64")}


class Val(NamedTuple):
    """An SSA value or literal: its text, its kind, its lanes (1 = uniform)."""

    text: str
    kind: str
    lanes: int = 1

    @property
    def is_literal(self) -> bool:
        """Whether the text is a constant."""
        return self.text[0] != "%"


def float_literal(kind: str, value: float) -> str:
    """LLVM's exact spelling of a float constant (always the bits of a double, as LLVM wants it)."""
    if kind == "f32":
        if value == value and abs(value) != float("inf"):
            try:
                value = struct.unpack("<f", struct.pack("<f", value))[0]
            except OverflowError:
                value = float("inf") if value > 0 else float("-inf")
        elif value != value:
            return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class LlvmText:
    """A module's lines, declarations and constants; basic blocks; vectors.  Base of ``LlvmBuilder``."""

    def __init__(self, lanes: int = 1):
        self.lanes = lanes
        self.lines: list[str] = []
        self._next = 0
        self._label = "entry"
        self._declarations: dict[str, str] = {}
        self._globals: dict[str, str] = {}
        self._entry_line = 0

    # ---------------------------------------------------------------- text

    def declare(self, symbol: str, declaration: str) -> None:
        """Remember a ``declare`` line, once per symbol."""
        self._declarations.setdefault(symbol, declaration)

    def line(self, text: str) -> None:
        """Append one instruction as it is."""
        self.lines.append(f"  {text}")

    def name(self) -> str:
        """A fresh SSA name."""
        self._next += 1
        return f"%v{self._next}"

    def type_of(self, value: Val) -> str:
        """LLVM type of a value."""
        return self.type(value.kind, value.lanes)

    @staticmethod
    def type(kind: str, lanes: int = 1) -> str:
        """LLVM type of ``lanes`` lanes of ``kind``."""
        return LLVM_TYPE[kind] if lanes == 1 else f"<{lanes} x {LLVM_TYPE[kind]}>"

    def emit(self, kind: str, lanes: int, text: str) -> Val:
        """Append ``%name = text`` and return the value."""
        self._next += 1
        name = f"%v{self._next}"
        self.lines.append(f"  {name} = {text}")
        return Val(name, kind, lanes)

    # ---------------------------------------------------------- basic blocks

    def at_entry(self, *instructions: str) -> None:
        """Put instructions into the entry block of the function under construction."""
        self.lines[self._entry_line] += "".join(f"  {text}\n" for text in instructions)

    def begin_block(self, label: str) -> None:
        """Start a basic block."""
        self.lines.append(f"{label}:")
        self._label = label

    def fresh_label(self, stem: str = "b") -> str:
        """A label that no other block of the builder has."""
        self._next += 1
        return f"{stem}{self._next}"

    @property
    def label(self) -> str:
        """The block that is being emitted."""
        return self._label

    def branch(self, label: str) -> None:
        """Unconditional branch."""
        self.line(f"br label %{label}")

    def branch_if(self, condition: Val, then: str, otherwise: str) -> None:
        """Conditional branch on a uniform i1."""
        self.line(f"br i1 {condition.text}, label %{then}, label %{otherwise}")

    def phi(self, kind: str, lanes: int, incoming: Sequence[tuple[Val, str]]) -> Val:
        """A phi over (value, label) pairs."""
        pairs = ", ".join(f"[ {self.splat(v, lanes).text}, %{label} ]" for v, label in incoming)
        return self.emit(kind, lanes, f"phi {self.type(kind, lanes)} {pairs}")

    # --------------------------------------------------------------- vectors

    def splat(self, value: Val, lanes: int | None = None) -> Val:
        """The value in ``lanes`` lanes (default: the builder's)."""
        lanes = self.lanes if lanes is None else lanes
        if value.lanes == lanes:
            return value
        assert value.lanes == 1, (value, lanes)
        if value.is_literal:
            return Val(f"splat ({LLVM_TYPE[value.kind]} {value.text})", value.kind, lanes)
        element, vector = LLVM_TYPE[value.kind], self.type(value.kind, lanes)
        first = self.emit(value.kind, lanes, f"insertelement {vector} poison, {element} {value.text}, i64 0")
        return self.emit(
            value.kind, lanes, f"shufflevector {vector} {first.text}, {vector} poison, <{lanes} x i32> zeroinitializer"
        )

    def lane_indices(self, kind: str = "i64") -> Val:
        """The vector 0, 1, 2, ... of the builder's lanes."""
        if self.lanes == 1:
            return Val("0", kind)
        values = ", ".join(f"{LLVM_TYPE[kind]} {lane}" for lane in range(self.lanes))
        return Val(f"<{values}>", kind, self.lanes)

    def extract(self, vector: Val, lane: int) -> Val:
        """One lane of a vector."""
        if vector.lanes == 1:
            return vector
        return self.emit(vector.kind, 1, f"extractelement {self.type_of(vector)} {vector.text}, i64 {lane}")

    @contextmanager
    def of_lanes(self, count: int) -> Iterator[None]:
        """Inside, vectors have so many lanes."""
        outer, self.lanes = self.lanes, count
        try:
            yield
        finally:
            self.lanes = outer

    def shuffled(self, x: Val, y: Val, order: Sequence[int]) -> Val:
        """Lanes of two vectors: those of the second one count from behind those of the first."""
        type, lanes = self.type_of(x), ", ".join(f"i32 {lane}" for lane in order)
        text = f"shufflevector {type} {x.text}, {type} {y.text}, <{len(order)} x i32> <{lanes}>"
        return self.emit(x.kind, len(order), text)

    def insert(self, vector: Val, lane: int, value: Val) -> Val:
        """The vector with one lane replaced."""
        return self.emit(
            vector.kind,
            vector.lanes,
            f"insertelement {self.type_of(vector)} {vector.text}, {LLVM_TYPE[value.kind]} {value.text}, i64 {lane}",
        )

    def halves(self, vector: Val) -> tuple[Val, Val]:
        """Lower and upper half of the lanes."""
        half = vector.lanes // 2
        kind = self.type_of(vector)
        parts = []
        for start in (0, half):
            mask = ", ".join(f"i32 {lane}" for lane in range(start, start + half))
            text = f"shufflevector {kind} {vector.text}, {kind} poison, <{half} x i32> <{mask}>"
            parts.append(
                self.extract_single(self.emit(vector.kind, half, text))
                if half == 1
                else self.emit(vector.kind, half, text)
            )
        return parts[0], parts[1]

    def extract_single(self, vector: Val) -> Val:
        """The only lane of a ``<1 x T>`` vector."""
        return self.emit(vector.kind, 1, f"extractelement <1 x {LLVM_TYPE[vector.kind]}> {vector.text}, i64 0")
