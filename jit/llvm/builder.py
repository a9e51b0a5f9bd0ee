"""LLVM IR as text: the ``ScalarBuilder`` of the CPU, with explicit vectors and structured loops.

    b = LlvmBuilder(lanes=16)
    with b.function("kernel", [("ptr", "x"), ("i64", "n")]) as (x, n):
        loop = b.begin_loop(b.constant("i64", 0), n, step=16)
        value = b.load("f32", b.element_pointer(x, "f32", loop.index), vector=True)
        b.store(b.fmul(value, value), b.element_pointer(x, "f32", loop.index))
        b.end_loop(loop)
    text = b.module_text()

Lines, values and vectors are in ``text.py``, the scalar instructions in ``arithmetic.py``; here are functions, loops,
memory, tables and calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
from hlojit.ir.scalar.builder import ScalarBuilder
from hlojit.ir.scalar.calls import FunctionTable, ScalarFunction, code_bits, plain_kind
from hlojit.ir.scalar.conversions import as_result
from hlojit.llvm.arithmetic import LlvmArithmetic
from hlojit.llvm.foreign_calls import ForeignCalls, HostCalls
from hlojit.llvm.rare_path import emit_rare
from hlojit.llvm.text import LLVM_TYPE, TYPE_SUFFIX, Val
from hlojit.lowering.target import KIND_BITS

__all__ = ["LLVM_TYPE", "LlvmBuilder", "Loop", "Val"]


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


@dataclass(frozen=True, slots=True)
class EmittedLoop:
    """A closed loop: where its text is, for ``hlojit.llvm.polls``."""

    loop: Loop
    following: Val
    """The next index."""
    latch: str
    test_line: int
    """The line that asks whether to go on; the branch follows."""
    last_line: int
    """Behind what belongs to the loop's end."""
    can_poll: bool
    """Whether the function is a kernel, which has a context and can be left anywhere."""


class LlvmBuilder(LlvmArithmetic):
    """Emits functions as LLVM IR text; see the module's docstring.  Implements ``ScalarBuilder``."""

    def __init__(self, lanes: int = 1):
        super().__init__(lanes)
        self.mask: Val | None = None
        """Lanes that take part in the code being emitted; None means all."""
        self._scratch: dict[tuple[int, str, int], Val] = {}
        self.foreign: ForeignCalls = HostCalls(self)
        self.emitted_loops: list[EmittedLoop] = []
        self._functions = FunctionTable()
        self._arrays: dict[str, tuple[np.ndarray[Any, Any], Val]] = {}
        self.codecs: dict[Any, Any] = {}
        """Tables of formats, see ``hlojit.ir.scalar.formats``."""
        self._definition = 0
        """The line in which the function under construction is defined."""

    def module_text(self) -> str:
        """Declarations, constants and all functions emitted so far."""
        functions = self.foreign.with_context("\n".join(self.lines))
        return "\n".join([*self._globals.values(), *self._declarations.values(), functions, ""])

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
        self._definition = len(self.lines)
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

    def add_parameter(self, type: str, name: str) -> Val:
        """One more parameter, behind the others, of the function under construction; ``type`` is LLVM's."""
        line = self.lines[self._definition]
        parameters = line.index("(", line.index("@")) + 1
        end, depth = parameters, 1
        while depth:
            depth += {"(": 1, ")": -1}.get(line[end], 0)
            end += 1
        comma = ", " if end - 1 > parameters else ""
        self.lines[self._definition] = f"{line[: end - 1]}{comma}{type} %{name}{line[end - 1 :]}"
        return Val(f"%{name}", "ptr")

    # ----------------------------------------------------------------- loops

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
        test_line = len(self.lines)
        again = self.icmp("slt", following, loop.end)
        self.branch_if(again, loop.label, f"{loop.label}.end")
        self.begin_block(f"{loop.label}.end")
        if loop.guarded:
            results = tuple(
                self.phi(inside.kind, inside.lanes, [(initial, loop.preheader), (value, latch)])
                for inside, initial, value in zip(loop.carried, loop.initial, values)
            )
        else:
            results = tuple(values)
        definition = self.lines[self._definition]
        can_poll = definition.startswith("define void") and "(ptr noundef %context, ptr noundef %buffers," in definition
        self.emitted_loops.append(EmittedLoop(loop, following, latch, test_line, len(self.lines), can_poll))
        return results

    # ---------------------------------------------------------------- memory

    def element_pointer(self, base: Val, kind: str, index: Val) -> Val:
        """Address of element ``index`` (i64) of an array of ``kind`` (i1 arrays hold bytes)."""
        element = "i8" if kind == "i1" else LLVM_TYPE[kind]
        if index.lanes == 1:
            return self.emit("ptr", 1, f"getelementptr inbounds {element}, ptr {base.text}, i64 {index.text}")
        return self.emit(
            "ptr", index.lanes, f"getelementptr inbounds {element}, ptr {base.text}, {self.type_of(index)} {index.text}"
        )

    def load(self, kind: str, pointer: Val, *, vector: bool = False, flags: str = "", align: int = 0) -> Val:
        """Load one element, or (``vector``) the builder's lanes of consecutive ones.  i1 is loaded from bytes.

        ``align`` is what is known of the address in bytes, by default that of one element.
        """
        lanes = self.lanes if vector else 1
        memory = "i8" if kind == "i1" else kind
        align = align or max(1, KIND_BITS[memory] // 8)
        value = self.emit(memory, lanes, f"load {self.type(memory, lanes)}, ptr {pointer.text}, align {align}{flags}")
        return self.icmp("ne", value, Val("0", "i8")) if kind == "i1" else value

    def store(self, value: Val, pointer: Val, *, flags: str = "", align: int = 0) -> None:
        """Store a value (all its lanes, consecutively)."""
        if value.kind == "i1":
            value = self.zext(value, "i8")
        align = align or max(1, KIND_BITS[value.kind] // 8)
        self.line(f"store {self.type_of(value)} {value.text}, ptr {pointer.text}, align {align}{flags}")

    def gather(self, kind: str, pointers: Val, mask: Val | None = None) -> Val:
        """Load from a vector of addresses; lanes whose mask is 0 are not read and give 0."""
        memory = "i8" if kind == "i1" else kind
        lanes = pointers.lanes
        vector = self.type(memory, lanes)
        align = max(1, KIND_BITS[memory] // 8)
        mask_text = "splat (i1 true)" if mask is None else self.splat(mask, lanes).text
        symbol = f"llvm.masked.gather.v{lanes}{TYPE_SUFFIX[memory]}.v{lanes}p0"
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
        symbol = f"llvm.masked.scatter.v{lanes}{TYPE_SUFFIX[value.kind]}.v{lanes}p0"
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
        symbol = f"llvm.masked.load.v{mask.lanes}{TYPE_SUFFIX[memory]}.p0"
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
        symbol = f"llvm.masked.store.v{mask.lanes}{TYPE_SUFFIX[value.kind]}.p0"
        self.declare(symbol, f"declare void @{symbol}({vector}, ptr, <{mask.lanes} x i1>)")
        self.line(
            f"call void @{symbol}({vector} {value.text}, ptr align {align} {pointer.text}, "
            f"<{mask.lanes} x i1> {mask.text})"
        )

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

    # ------------------------------------------------------ tables and calls

    def constant_bytes(self, content: bytes) -> Val:
        """A private constant of bytes; returns its address."""
        text = "".join(f"\\{byte:02X}" for byte in content)
        symbol = f"@.bytes.{len(self._globals)}"
        self._globals[symbol] = f'{symbol} = private unnamed_addr constant [{len(content)} x i8] c"{text}"'
        return Val(symbol, "ptr")

    def constant_aligned(self, content: bytes, alignment: int) -> Val:
        """The same at a multiple of so many bytes."""
        address = self.constant_bytes(content)
        self._globals[address.text] += f", align {alignment}"
        return address

    def constant_record(self, body: str) -> Val:
        """A private constant of any type, ``body`` being LLVM's text of type and value; returns its address."""
        symbol = f"@.record.{len(self._globals)}"
        self._globals[symbol] = f"{symbol} = private unnamed_addr constant {body}, align 16"
        return Val(symbol, "ptr")

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

    def lookup(self, kind: str, table: tuple[int | float, ...], index: Val) -> Val:
        base = self.constant_table(kind, table)
        wide = self.zext(index, "i64")
        pointers = self.element_pointer(base, kind, wide)
        if wide.lanes == 1:
            return self.load(kind, pointers)
        # Lanes that do not take part may have an index beyond the table.
        return self.gather(kind, pointers, self.mask if self.mask and self.mask.lanes == wide.lanes else None)

    def tabulated(self, kind: str, table: np.ndarray[Any, Any], index: Val) -> Val:
        """``lookup`` in an array of the kind's dtype that may be large; the index is in range in every lane."""
        key = f"{kind} {id(table)}"
        if key not in self._arrays:
            self._arrays[key] = table, self._constant_array(table)
        pointers = self.element_pointer(self._arrays[key][1], kind, self.zext(index, "i64"))
        return self.load(kind, pointers) if pointers.lanes == 1 else self.gather(kind, pointers)

    def _constant_array(self, table: np.ndarray[Any, Any]) -> Val:
        text = "".join(map(_BYTE.__getitem__, table.tobytes()))
        symbol = f"@.array.{len(self._globals)}"
        body = f'[{table.nbytes} x i8] c"{text}", align 64'
        self._globals[symbol] = f"{symbol} = private unnamed_addr constant {body}"
        return Val(symbol, "ptr")

    def rare(self, condition: Val, slow: Callable[..., Val], arguments: Sequence[Val], fast: Val) -> Val:
        """``slow(builder, *arguments)`` where the condition holds, run only if some lane needs it; else ``fast``."""
        return emit_rare(self, condition, slow, arguments, fast)

    def call(
        self,
        function: Callable[..., Any],
        kinds: tuple[str, ...],
        result_kind: str,
        arguments: tuple[Val, ...],
        user: str,
    ) -> Val:
        """A plugin's function, lane by lane: in kernels that call one, LLVM does the widening."""
        compiled = self._functions.get(function, kinds, result_kind, user)
        returned = self._call_lanes(compiled, arguments)
        if not code_bits(result_kind):
            returned = as_result(self, returned, compiled.result, result_kind)
        return returned

    def _call_lanes(self, compiled: ScalarFunction, arguments: tuple[Val, ...]) -> Val:
        kind = plain_kind(compiled.result)
        lanes = max((argument.lanes for argument in arguments), default=1)
        if lanes == 1:
            return self.foreign.call(compiled, kind, arguments)
        value = Val("poison", kind, lanes)
        vectors = [self.splat(argument, lanes) for argument in arguments]
        for lane in range(lanes):
            scalars = [self.extract(vector, lane) for vector in vectors]
            value = self.insert(value, lane, self.foreign.call(compiled, kind, scalars))
        return value


_BYTE: Final = [f"\\{byte:02X}" for byte in range(256)]
"""Bytes in LLVM's strings."""


def scalars(builder: LlvmBuilder) -> ScalarBuilder:
    """The builder as the rules see it; its values are narrower than what the protocol's methods may be given."""
    return cast(ScalarBuilder, builder)
