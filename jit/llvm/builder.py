"""LLVM IR as text: the ``ScalarBuilder`` of the CPU, with explicit vectors and structured loops.

Text is three to nine times faster to make than llvmlite's IR objects.  A builder has a lane count; every value is either
uniform (one lane, the same for all) or has that many lanes, and mixed operands are splatted, so that what does not
depend on the vectorized index is computed once.

    b = LlvmBuilder(lanes=16)
    with b.function("kernel", [("ptr", "x"), ("i64", "n")]) as (x, n):
        loop = b.begin_loop(b.constant("i64", 0), n, step=16)
        value = b.load("f32", b.element_pointer(x, "f32", loop.index), vector=True)
        b.store(b.fmul(value, value), b.element_pointer(x, "f32", loop.index))
        b.end_loop(loop)
    text = b.module_text()
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from hlojit.ir.scalar.calls import FunctionTable, plain_kind
from hlojit.llvm.foreign_calls import ForeignCalls
from hlojit.llvm.rare_path import emit_rare
from hlojit.lowering.target import KIND_BITS

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
_SUFFIX = {"f32": "f32", "f64": "f64"} | {kind: kind for kind in ("i1", "i8", "i16", "i32", "i64")}


class Val(NamedTuple):
    """An SSA value or literal: its text, its kind, its lanes (1 = uniform)."""

    text: str
    kind: str
    lanes: int = 1

    @property
    def is_literal(self) -> bool:
        """Whether the text is a constant."""
        return self.text[0] != "%"


@dataclass(slots=True)
class Loop:
    """An open loop: its index and the values it carries, as seen inside the body."""

    index: Val
    carried: tuple[Val, ...]
    label: str
    preheader: str
    phi_line: int
    start: Val
    end: Val
    step: int
    initial: tuple[Val, ...]
    guarded: bool


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


class LlvmBuilder:
    """Emits functions as LLVM IR text; see the module's docstring.  Implements ``ScalarBuilder``."""

    def __init__(self, lanes: int = 1):
        self.lanes = lanes
        self.mask: Val | None = None
        """Lanes that take part in the code being emitted; None means all."""
        self.lines: list[str] = []
        self._next = 0
        self._label = "entry"
        self._declarations: dict[str, str] = {}
        self._globals: dict[str, str] = {}
        self._entry_line = 0
        self._scratch: dict[tuple[int, str, int], Val] = {}
        self.foreign = ForeignCalls(self)
        self._functions = FunctionTable()

    # ---------------------------------------------------------------- text

    def module_text(self) -> str:
        """Declarations, constants and all functions emitted so far."""
        functions = self.foreign.with_context("\n".join(self.lines))
        return "\n".join([*self._globals.values(), *self._declarations.values(), functions, ""])

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

    # ------------------------------------------------------------ functions

    @contextmanager
    def function(
        self,
        symbol: str,
        parameters: Sequence[tuple[str, str]],
        *,
        result: str = "void",
        attributes: str = "nounwind",
        linkage: str = "",
        outer: bool = False,
    ) -> Iterator[list[Val]]:
        """Emit a function; the parameters are given as (kind or ``ptr``, name).  ``ret`` is the caller's for non-void.

        ``linkage="internal"`` keeps a helper function private to its module.  ``outer`` says that the time is spent in
        the functions that it calls: LLVM does not optimize it, which saves most of what compiling it costs.
        """
        if outer:
            attributes = "nounwind noinline optnone"
        signature = ", ".join(
            f"{LLVM_TYPE.get(kind, kind)}{' noundef' if kind == 'ptr' else ''} %{name}" for kind, name in parameters
        )
        self.lines.append(f"define {linkage and linkage + ' '}{result} @{symbol}({signature}) {attributes} {{")
        self.begin_block("entry")
        self._entry_line = len(self.lines)
        self.lines.append("")
        self._scratch = {}
        self.foreign.begin(symbol, is_helper=linkage == "internal")
        yield [Val(f"%{name}", kind) for kind, name in parameters]
        if result == "void":
            self.foreign.end()
            self.line("ret void")
        self.lines.append("}")

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

    def begin_loop(
        self, start: Val, end: Val, step: int = 1, carried: Sequence[Val] = (), *, guarded: bool | None = None
    ) -> Loop:
        """Open ``for index in range(start, end, step)`` carrying values; vector values to carry must be splatted.

        ``guarded=False`` promises at least one iteration; by default that is known only for literal bounds.
        """
        if guarded is None:
            literal = start.is_literal and end.is_literal
            guarded = not (literal and int(start.text) < int(end.text))
        label = self.fresh_label("loop")
        preheader = self._label
        if guarded:
            condition = self.icmp("slt", start, end)
            self.branch_if(condition, label, f"{label}.end")
        else:
            self.branch(label)
        self.begin_block(label)
        phi_line = len(self.lines)
        index = Val(f"%{label}.i", "i64")
        inside = []
        self.lines.append("")
        for value in carried:
            self._next += 1
            inside.append(Val(f"%v{self._next}", value.kind, value.lanes))
            self.lines.append("")
        return Loop(index, tuple(inside), label, preheader, phi_line, start, end, step, tuple(carried), guarded)

    def end_loop(self, loop: Loop, values: Sequence[Val] = ()) -> tuple[Val, ...]:
        """Close the loop, giving the carried values' next state; return their state after the loop."""
        assert len(values) == len(loop.carried)
        values = [self.splat(value, inside.lanes) for value, inside in zip(values, loop.carried)]
        latch = self._label
        following = self.emit("i64", 1, f"add nsw i64 {loop.index.text}, {loop.step}")
        self.lines[loop.phi_line] = (
            f"  {loop.index.text} = phi i64 [ {loop.start.text}, %{loop.preheader} ], [ {following.text}, %{latch} ]"
        )
        for offset, (inside, initial, value) in enumerate(zip(loop.carried, loop.initial, values)):
            kind = self.type_of(inside)
            self.lines[loop.phi_line + 1 + offset] = (
                f"  {inside.text} = phi {kind} [ {self.splat(initial, inside.lanes).text}, %{loop.preheader} ], "
                f"[ {value.text}, %{latch} ]"
            )
        again = self.icmp("slt", following, loop.end)
        self.branch_if(again, loop.label, f"{loop.label}.end")
        self.begin_block(f"{loop.label}.end")
        if not loop.guarded:
            return tuple(values)
        return tuple(
            self.phi(inside.kind, inside.lanes, [(initial, loop.preheader), (value, latch)])
            for inside, initial, value in zip(loop.carried, loop.initial, values)
        )

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

    # ---------------------------------------------------------------- memory

    def element_pointer(self, base: Val, kind: str, index: Val) -> Val:
        """Address of element ``index`` (i64) of an array of ``kind`` (i1 arrays hold bytes)."""
        element = "i8" if kind == "i1" else LLVM_TYPE[kind]
        if index.lanes == 1:
            return self.emit("ptr", 1, f"getelementptr inbounds {element}, ptr {base.text}, i64 {index.text}")
        return self.emit(
            "ptr", index.lanes, f"getelementptr inbounds {element}, ptr {base.text}, {self.type_of(index)} {index.text}"
        )

    def load(self, kind: str, pointer: Val, *, vector: bool = False, flags: str = "") -> Val:
        """Load one element, or (``vector``) the builder's lanes of consecutive ones.  i1 is loaded from bytes."""
        lanes = self.lanes if vector else 1
        memory = "i8" if kind == "i1" else kind
        align = max(1, KIND_BITS[memory] // 8)
        value = self.emit(memory, lanes, f"load {self.type(memory, lanes)}, ptr {pointer.text}, align {align}{flags}")
        return self.icmp("ne", value, Val("0", "i8")) if kind == "i1" else value

    def store(self, value: Val, pointer: Val, *, flags: str = "") -> None:
        """Store a value (all its lanes, consecutively)."""
        if value.kind == "i1":
            value = self.zext(value, "i8")
        align = max(1, KIND_BITS[value.kind] // 8)
        self.line(f"store {self.type_of(value)} {value.text}, ptr {pointer.text}, align {align}{flags}")

    def gather(self, kind: str, pointers: Val, mask: Val | None = None) -> Val:
        """Load from a vector of addresses; lanes whose mask is 0 are not read and give 0."""
        memory = "i8" if kind == "i1" else kind
        lanes = pointers.lanes
        vector = self.type(memory, lanes)
        align = max(1, KIND_BITS[memory] // 8)
        mask_text = "splat (i1 true)" if mask is None else self.splat(mask, lanes).text
        symbol = f"llvm.masked.gather.v{lanes}{_SUFFIX[memory]}.v{lanes}p0"
        self.declare(symbol, f"declare {vector} @{symbol}(<{lanes} x ptr>, <{lanes} x i1>, {vector})")
        value = self.emit(
            memory,
            lanes,
            f"call {vector} @{symbol}(<{lanes} x ptr> align {align} {pointers.text}, <{lanes} x i1> {mask_text}, "
            f"{vector} zeroinitializer)",
        )
        return self.icmp("ne", value, Val("0", "i8")) if kind == "i1" else value

    def scatter(self, value: Val, pointers: Val, mask: Val | None = None) -> None:
        """Store to a vector of addresses where the mask is 1."""
        if value.kind == "i1":
            value = self.zext(value, "i8")
        lanes = pointers.lanes
        value = self.splat(value, lanes)
        vector = self.type_of(value)
        align = max(1, KIND_BITS[value.kind] // 8)
        mask_text = "splat (i1 true)" if mask is None else self.splat(mask, lanes).text
        symbol = f"llvm.masked.scatter.v{lanes}{_SUFFIX[value.kind]}.v{lanes}p0"
        self.declare(symbol, f"declare void @{symbol}({vector}, <{lanes} x ptr>, <{lanes} x i1>)")
        self.line(
            f"call void @{symbol}({vector} {value.text}, <{lanes} x ptr> align {align} {pointers.text}, "
            f"<{lanes} x i1> {mask_text})"
        )

    def masked_load(self, kind: str, pointer: Val, mask: Val) -> Val:
        """Load consecutive elements; lanes whose mask is 0 are not read and give 0."""
        memory = "i8" if kind == "i1" else kind
        vector = self.type(memory, mask.lanes)
        align = max(1, KIND_BITS[memory] // 8)
        symbol = f"llvm.masked.load.v{mask.lanes}{_SUFFIX[memory]}.p0"
        self.declare(symbol, f"declare {vector} @{symbol}(ptr, <{mask.lanes} x i1>, {vector})")
        value = self.emit(
            memory,
            mask.lanes,
            f"call {vector} @{symbol}(ptr align {align} {pointer.text}, <{mask.lanes} x i1> {mask.text}, "
            f"{vector} zeroinitializer)",
        )
        return self.icmp("ne", value, Val("0", "i8")) if kind == "i1" else value

    def masked_store(self, value: Val, pointer: Val, mask: Val) -> None:
        """Store consecutive elements where the mask is 1."""
        if value.kind == "i1":
            value = self.zext(value, "i8")
        value = self.splat(value, mask.lanes)
        vector = self.type_of(value)
        align = max(1, KIND_BITS[value.kind] // 8)
        symbol = f"llvm.masked.store.v{mask.lanes}{_SUFFIX[value.kind]}.p0"
        self.declare(symbol, f"declare void @{symbol}({vector}, ptr, <{mask.lanes} x i1>)")
        self.line(
            f"call void @{symbol}({vector} {value.text}, ptr align {align} {pointer.text}, "
            f"<{mask.lanes} x i1> {mask.text})"
        )

    # --------------------------------------------------------- ScalarBuilder

    def constant(self, kind: str, value: int | float) -> Val:
        if kind in ("f32", "f64"):
            return Val(float_literal(kind, float(value)), kind)
        if kind == "i1":
            return Val("true" if value else "false", kind)
        bits = KIND_BITS[kind]
        wrapped = int(value) & ((1 << bits) - 1)
        return Val(str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped), kind)

    def _together(self, *values: Val) -> tuple[int, list[Val]]:
        lanes = max(value.lanes for value in values)
        return lanes, [value if value.lanes == lanes else self.splat(value, lanes) for value in values]

    def _binary(self, instruction: str, a: Val, b: Val) -> Val:
        assert a.kind == b.kind, (instruction, a, b)
        if a.lanes != b.lanes:
            _, (a, b) = self._together(a, b)
        return self.emit(a.kind, a.lanes, f"{instruction} {self.type_of(a)} {a.text}, {b.text}")

    def add(self, a: Val, b: Val) -> Val:
        return self._binary("add", a, b)

    def sub(self, a: Val, b: Val) -> Val:
        return self._binary("sub", a, b)

    def mul(self, a: Val, b: Val) -> Val:
        return self._binary("mul", a, b)

    def sdiv(self, a: Val, b: Val) -> Val:
        return self._binary("sdiv", a, b)

    def udiv(self, a: Val, b: Val) -> Val:
        return self._binary("udiv", a, b)

    def srem(self, a: Val, b: Val) -> Val:
        return self._binary("srem", a, b)

    def urem(self, a: Val, b: Val) -> Val:
        return self._binary("urem", a, b)

    def and_(self, a: Val, b: Val) -> Val:
        return self._binary("and", a, b)

    def or_(self, a: Val, b: Val) -> Val:
        return self._binary("or", a, b)

    def xor(self, a: Val, b: Val) -> Val:
        return self._binary("xor", a, b)

    def shl(self, a: Val, b: Val) -> Val:
        return self._binary("shl", a, b)

    def lshr(self, a: Val, b: Val) -> Val:
        return self._binary("lshr", a, b)

    def ashr(self, a: Val, b: Val) -> Val:
        return self._binary("ashr", a, b)

    def fadd(self, a: Val, b: Val) -> Val:
        return self._binary("fadd", a, b)

    def fsub(self, a: Val, b: Val) -> Val:
        return self._binary("fsub", a, b)

    def fmul(self, a: Val, b: Val) -> Val:
        return self._binary("fmul", a, b)

    def fdiv(self, a: Val, b: Val) -> Val:
        return self._binary("fdiv", a, b)

    def fneg(self, a: Val) -> Val:
        return self.emit(a.kind, a.lanes, f"fneg {self.type_of(a)} {a.text}")

    def intrinsic(self, stem: str, *arguments: Val, extra: str = "", extra_type: str = "") -> Val:
        """Call ``llvm.<stem>.<type>``; ``extra`` is a trailing literal argument (``i1 false``)."""
        lanes, values = self._together(*arguments)
        kind = values[0].kind
        vector = self.type(kind, lanes)
        suffix = _SUFFIX[kind] if lanes == 1 else f"v{lanes}{_SUFFIX[kind]}"
        symbol = f"llvm.{stem}.{suffix}"
        types = ", ".join([vector] * len(values) + ([extra_type] if extra_type else []))
        self.declare(symbol, f"declare {vector} @{symbol}({types})")
        text = ", ".join([f"{vector} {value.text}" for value in values] + ([extra] if extra else []))
        return self.emit(kind, lanes, f"call {vector} @{symbol}({text})")

    def fma(self, a: Val, b: Val, c: Val) -> Val:
        return self.intrinsic("fma", a, b, c)

    def fabs(self, a: Val) -> Val:
        return self.intrinsic("fabs", a)

    def sqrt(self, a: Val) -> Val:
        return self.intrinsic("sqrt", a)

    def floor(self, a: Val) -> Val:
        return self.intrinsic("floor", a)

    def ceil(self, a: Val) -> Val:
        return self.intrinsic("ceil", a)

    def truncate(self, a: Val) -> Val:
        return self.intrinsic("trunc", a)

    def round_even(self, a: Val) -> Val:
        return self.intrinsic("roundeven", a)

    def copysign(self, magnitude: Val, sign: Val) -> Val:
        return self.intrinsic("copysign", magnitude, sign)

    def population_count(self, a: Val) -> Val:
        return self.intrinsic("ctpop", a)

    def count_leading_zeros(self, a: Val) -> Val:
        return self.intrinsic("ctlz", a, extra="i1 false", extra_type="i1")

    def _compare(self, instruction: str, predicate: str, a: Val, b: Val) -> Val:
        assert a.kind == b.kind, (predicate, a, b)
        lanes, (a, b) = self._together(a, b)
        return self.emit("i1", lanes, f"{instruction} {predicate} {self.type_of(a)} {a.text}, {b.text}")

    def icmp(self, predicate: str, a: Val, b: Val) -> Val:
        return self._compare("icmp", predicate, a, b)

    def fcmp(self, predicate: str, a: Val, b: Val) -> Val:
        return self._compare("fcmp", predicate, a, b)

    def _cast(self, instruction: str, a: Val, kind: str) -> Val:
        if a.kind == kind:
            return a
        return self.emit(kind, a.lanes, f"{instruction} {self.type_of(a)} {a.text} to {self.type(kind, a.lanes)}")

    def bitcast(self, a: Val, kind: str) -> Val:
        return self._cast("bitcast", a, kind)

    def sext(self, a: Val, kind: str) -> Val:
        return self._cast("sext", a, kind)

    def zext(self, a: Val, kind: str) -> Val:
        return self._cast("zext", a, kind)

    def trunc(self, a: Val, kind: str) -> Val:
        return self._cast("trunc", a, kind)

    def sitofp(self, a: Val, kind: str) -> Val:
        return self._cast("sitofp", a, kind)

    def uitofp(self, a: Val, kind: str) -> Val:
        return self._cast("uitofp", a, kind)

    def fpext(self, a: Val) -> Val:
        return self._cast("fpext", a, "f64")

    def fptrunc(self, a: Val) -> Val:
        return self._cast("fptrunc", a, "f32")

    def _saturating(self, stem: str, a: Val, kind: str) -> Val:
        source, result = self.type_of(a), self.type(kind, a.lanes)
        vector = f"v{a.lanes}" if a.lanes > 1 else ""
        symbol = f"llvm.{stem}.sat.{vector}{kind}.{vector}{_SUFFIX[a.kind]}"
        self.declare(symbol, f"declare {result} @{symbol}({source})")
        return self.emit(kind, a.lanes, f"call {result} @{symbol}({source} {a.text})")

    def fptosi(self, a: Val, kind: str) -> Val:
        return self._saturating("fptosi", a, kind)

    def fptoui(self, a: Val, kind: str) -> Val:
        return self._saturating("fptoui", a, kind)

    def half_to_float(self, bits: Val) -> Val:
        half = "half" if bits.lanes == 1 else f"<{bits.lanes} x half>"
        as_half = self.emit("i16", bits.lanes, f"bitcast {self.type_of(bits)} {bits.text} to {half}")
        return self.emit("f32", bits.lanes, f"fpext {half} {as_half.text} to {self.type('f32', bits.lanes)}")

    def float_to_half(self, a: Val) -> Val:
        half = "half" if a.lanes == 1 else f"<{a.lanes} x half>"
        as_half = self.emit("i16", a.lanes, f"fptrunc {self.type_of(a)} {a.text} to {half}")
        return self.emit("i16", a.lanes, f"bitcast {half} {as_half.text} to {self.type('i16', a.lanes)}")

    def select(self, condition: Val, a: Val, b: Val) -> Val:
        assert a.kind == b.kind, (a, b)
        if condition.lanes == 1 and a.lanes == b.lanes == 1:
            return self.emit(
                a.kind, 1, f"select i1 {condition.text}, {self.type_of(a)} {a.text}, {self.type_of(b)} {b.text}"
            )
        lanes, (condition, a, b) = self._together(condition, a, b)
        return self.emit(
            a.kind,
            lanes,
            f"select {self.type_of(condition)} {condition.text}, {self.type_of(a)} {a.text}, {self.type_of(b)} {b.text}",
        )

    def constant_bytes(self, content: bytes) -> Val:
        """A private constant of bytes; returns its address."""
        text = "".join(f"\\{byte:02X}" for byte in content)
        symbol = f"@.bytes.{len(self._globals)}"
        self._globals[symbol] = f'{symbol} = private unnamed_addr constant [{len(content)} x i8] c"{text}"'
        return Val(symbol, "ptr")

    def lookup(self, kind: str, table: tuple[int | float, ...], index: Val) -> Val:
        base = self.constant_table(kind, table)
        wide = self.zext(index, "i64")
        pointers = self.element_pointer(base, kind, wide)
        if wide.lanes == 1:
            return self.load(kind, pointers)
        # Lanes that do not take part may have an index beyond the table.
        return self.gather(kind, pointers, self.mask if self.mask and self.mask.lanes == wide.lanes else None)

    def rare(self, condition: Val, slow: Callable[..., Val], arguments: Sequence[Val], fast: Val) -> Val:
        """``slow(builder, *arguments)`` where the condition holds, run only if some lane needs it; else ``fast``."""
        return emit_rare(self, condition, slow, arguments, fast)

    def scratch(self, number: int, kind: str, lanes: int) -> Val:
        """Stack memory for one vector, the same for the same arguments in one function."""
        key = (number, kind, lanes)
        if key not in self._scratch:
            address = Val(self.name(), "ptr")
            self.lines[self._entry_line] += f"  {address.text} = alloca {self.type(kind, lanes)}, align 64\n"
            self._scratch[key] = address
        return self._scratch[key]

    def array(self, kind: str, count: int) -> Val:
        """Stack memory for ``count`` elements, aligned to a cache line; allocated in the entry block."""
        address = Val(self.name(), "ptr")
        element = "i8" if kind == "i1" else LLVM_TYPE[kind]
        self.lines[self._entry_line] += f"  {address.text} = alloca [{count} x {element}], align 64\n"
        return address

    def local(self, kind: str) -> Val:
        """Stack memory for one value (LLVM turns it into a register); allocated in the entry block."""
        address = Val(self.name(), "ptr")
        self.lines[self._entry_line] += f"  {address.text} = alloca {self.type(kind)}\n"
        return address

    def constant_table(self, kind: str, table: tuple[int | float, ...]) -> Val:
        """A private constant array; returns its address."""
        element = LLVM_TYPE[kind]
        values = ", ".join(f"{element} {self.constant(kind, value).text}" for value in table)
        body = f"[{len(table)} x {element}] [{values}]"
        symbol = f"@.table.{len(self._globals)}"
        for known, text in self._globals.items():
            if text.endswith(f"{body}, align 64"):
                return Val(known, "ptr")
        self._globals[symbol] = f"{symbol} = private unnamed_addr constant {body}, align 64"
        return Val(symbol, "ptr")

    def call(
        self,
        function: Callable[..., Any],
        kinds: tuple[str, ...],
        result_kind: str,
        arguments: tuple[Val, ...],
        user: str,
    ) -> Val:
        """A plugin's function, lane by lane: in kernels that call one, LLVM does the widening."""
        compiled, kind = self._functions.get(function, kinds, result_kind, user), plain_kind(result_kind)
        lanes = max((argument.lanes for argument in arguments), default=1)
        if lanes == 1:
            return self.foreign.call(compiled, kind, arguments)
        value = Val("poison", kind, lanes)
        vectors = [self.splat(argument, lanes) for argument in arguments]
        for lane in range(lanes):
            scalars = [self.extract(vector, lane) for vector in vectors]
            value = self.insert(value, lane, self.foreign.call(compiled, kind, scalars))
        return value
