"""A loop as a native function with small kernels inside, as ``hlojit.lowering.loop_functions`` planned it.

    i32 symbol(ptr context, ptr slots, ptr cells)

The function calls the kernels by their symbols; whoever compiles the text links theirs to it, so that LLVM sees one body.
Buffers that are its own are variables on its stack, of which LLVM makes registers where it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlojit.llvm.builder import Val
from hlojit.llvm.host import HostEmitter
from hlojit.lowering.abi import CONTEXT
from hlojit.lowering.affine_indices import LARGEST, AffineLoop, Expression
from hlojit.lowering.loop_functions import LoopFunction, plan_loop_functions, poll_interval
from hlojit.lowering.machine import Machine
from hlojit.lowering.program import Buffer, BufferKind, Launch, Loop, Program, Step

_SELDOM = "!prof !1"
"""Of a branch that is hardly ever taken."""
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class LoopCode:
    """The code of one loop; ``linked`` are the texts of the kernels in it."""

    symbol: str
    ir: str
    linked: tuple[str, ...]
    pipeline: str


class LoopEmitter(HostEmitter):
    """Emits one loop of a program as a function."""

    def __init__(self, program: Program, symbol: str, function: LoopFunction, machine: Machine):
        super().__init__(program, symbol, machine)
        self._function = function
        self._own: dict[Buffer, Val] = {}
        """Addresses of variables in the place of buffers and cells."""
        self._tables: dict[int, Val] = {}
        """Where the addresses of a launch's buffers lie, by the launch's identity."""
        self._affine: AffineLoop[Buffer] | None = None
        """Of the loop that is emitted, the indices that are inside in all its rounds."""
        self.pipeline = "loops"

    def emit(self) -> str:
        """Return the module's text."""
        b, function = self.builder, self._function
        launches = [step for step in _walk(function.step) if isinstance(step, Launch)]
        self._declare(launches)
        # Addresses of arguments and results may be read in front of a loop that does not run.
        known = 8 * (len(self.program.inputs) + len(self.program.outputs))
        slots = f"ptr dereferenceable({known})" if known else "ptr"
        parameters = [("ptr", "context"), (slots, "slots"), ("ptr", "cells")]
        with b.function(self.symbol, parameters, result="i32"):
            for launch in launches:
                self._tables[id(launch)] = b.emit("ptr", 1, f"alloca [{max(1, len(launch.buffers))} x ptr]")
            self._turns = b.emit("ptr", 1, "alloca i64")
            b.store(Val("0", "i64"), self._turns)
            self._begin_locals()
            self._count_once()
            self._emit_versions(function.step)
            self._end_locals()
            b.line("ret i32 0")
            b.begin_block("cancelled")
            b.line("ret i32 1")
        weights = '!0 = !{}\n!1 = !{!"branch_weights", i32 1, i32 4096}\n'
        return b.module_text() + weights

    def _declare(self, launches: Sequence[Launch]) -> None:
        b = self.builder
        b.declare("hlojit_parallel_for", "declare void @hlojit_parallel_for(ptr, ptr, ptr, i64, i64)")
        b.declare("hlojit_poll", "declare i32 @hlojit_poll(ptr)")
        for launch in launches:
            for phase in launch.kernel.phases:
                b.declare(phase.symbol, f"declare void @{phase.symbol}(ptr, ptr, i64, i64)")

    def _begin_locals(self) -> None:
        """Variables, in the function's first block, with what they begin as."""
        b, function = self.builder, self._function
        for buffer in function.locals:
            place = b.emit("ptr", 1, f"alloca [{buffer.nbytes} x i8], align {_ALIGNMENT}")
            self._own[buffer] = place
        for cell in function.cells:
            self._own[cell] = b.emit("ptr", 1, "alloca ptr")
        for buffer in function.constants:
            self._own[buffer] = b.constant_aligned(self.program.constants[buffer.index].tobytes(), _ALIGNMENT)
        for buffer, local in function.locals.items():
            if local.copied_in and local.constant is not None:
                elements = self.program.constants[local.constant.index].tobytes()
                self._move(b.constant_aligned(elements, _ALIGNMENT), self._own[buffer], buffer)
            elif local.copied_in:
                self._move(super()._address(buffer), self._own[buffer], buffer)
        for cell, local in function.cells.items():
            if local.copied_in:
                self._move_pointer(super()._cell(cell), self._own[cell])

    def _end_locals(self) -> None:
        for buffer, local in self._function.locals.items():
            if local.copied_out:
                self._move(self._own[buffer], super()._address(buffer), buffer)
        for cell, local in self._function.cells.items():
            if local.copied_out:
                self._move_pointer(self._own[cell], super()._cell(cell))

    def _move(self, source: Val, target: Val, buffer: Buffer) -> None:
        b = self.builder
        b.declare("llvm.memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        b.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target.text}, ptr {source.text}, i64 {buffer.nbytes}, i1 false)")

    def _move_pointer(self, source: Val, target: Val) -> None:
        b = self.builder
        value = b.emit("ptr", 1, f"load ptr, ptr {source.text}, align 8")
        b.line(f"store ptr {value.text}, ptr {target.text}, align 8")

    def _count_once(self) -> None:
        """The kernels inside are one; what is launched from here counts as always."""
        b = self.builder
        place = b.emit("ptr", 1, f"getelementptr inbounds i8, ptr %context, i64 {CONTEXT['kernels'].offset}")
        b.store(b.add(b.load("i64", place), b.constant("i64", 1)), place)

    # ------------------------------------------------- what differs from the program's own function

    def _steps(self, steps: Sequence[Step]) -> None:
        self._count([step for step in steps if id(step) not in self._function.inlined])
        for step in steps:
            self._step(step)

    def _address(self, buffer: Buffer) -> Val:
        if buffer.kind is not BufferKind.SWAPPED and buffer in self._own:
            return self._own[buffer]
        return super()._address(buffer)

    def _cell(self, buffer: Buffer) -> Val:
        return self._own.get(buffer) or super()._cell(buffer)

    def _launch(self, step: Launch) -> None:
        self._arguments = self._tables[id(step)]
        if id(step) not in self._function.inlined:
            super()._launch(step)
            return
        b = self.builder
        self._store_arguments(step.buffers)
        for phase in step.kernel.phases:
            b.line(f"call void @{phase.symbol}(ptr %context, ptr {self._arguments.text}, i64 0, i64 {phase.tasks})")

    def _loop(self, step: Loop) -> None:
        self._emit_versions(step)

    def _emit_versions(self, step: Loop) -> None:
        """A loop, and a copy of it that is run where its indices are inside of their arrays in all rounds."""
        affine = step.affine
        if affine is None or not all(map(self._is_variable, affine.leaves)):
            self._emit_loop(step)
            return
        b = self.builder
        inside, unknown, end = (b.fresh_label(stem) for stem in ("inside", "unknown", "done"))
        b.branch_if(self._is_inside(affine), inside, unknown)
        b.begin_block(inside)
        self._affine = affine
        self.pipeline = "versions"
        self._emit_loop(step)
        self._affine = None
        b.branch(end)
        b.begin_block(unknown)
        self._emit_loop(step)
        b.branch(end)
        b.begin_block(end)

    def _is_variable(self, buffer: Buffer) -> bool:
        return buffer.kind is not BufferKind.SWAPPED and buffer in self._own

    def _is_inside(self, affine: AffineLoop[Buffer]) -> Val:
        """Whether the indices are inside in the first round and in the last; computed exactly, of integers that are not large."""
        b = self.builder
        values = {leaf: self._wide(leaf) for leaf in dict.fromkeys(affine.leaves)}
        holds = b.constant("i1", 1)
        for value in values.values():
            shifted = b.add(value, b.constant("i64", LARGEST))
            holds = b.and_(holds, b.icmp("ule", shifted, b.constant("i64", 2 * LARGEST)))
        limit = self._value(affine.limit, values, "i64")
        last = b.add(limit, b.constant("i64", affine.offset))
        for ends in (values, {**values, affine.counter: last}):
            for index in affine.indices:
                found = self._value(index.expression, ends, "i64")
                holds = b.and_(holds, b.icmp("ule", found, b.constant("i64", index.high)))
        return holds

    def _wide(self, leaf: Buffer) -> Val:
        b = self.builder
        value = b.load(f"i{8 * leaf.storage.itemsize}", self._own[leaf])
        return value if value.kind == "i64" else b.sext(value, "i64")

    def _value(self, expression: Expression[Buffer], values: Mapping[Buffer, Val], kind: str) -> Val:
        b = self.builder
        if expression.leaf is not None:
            return values[expression.leaf]
        if not expression.operation:
            return b.constant(kind, expression.constant)
        operate = {"add": b.add, "sub": b.sub, "mul": b.mul}[expression.operation]
        first, second = (self._value(operand, values, kind) for operand in expression.operands)
        return operate(first, second)

    def _begin_body(self, step: Loop) -> None:
        """Tell LLVM what is known of counters, and of indices: those need no clamps."""
        b = self.builder
        for counted in step.counted:
            if counted.buffer in self._own:
                kind, sign = f"i{counted.element.bits}", "s" if counted.element.signed else "u"
                self._assume_between(b.load(kind, self._own[counted.buffer]), sign, counted.low, counted.high)
        if self._affine is not None and self._affine is step.affine:
            for index in self._affine.indices:
                kind = f"i{index.bits}"
                values = {leaf: b.load(kind, self._own[leaf]) for leaf in index.expression.leaves}
                self._assume_between(self._value(index.expression, values, kind), "s", 0, index.high)

    def _assume_between(self, value: Val, sign: str, low: int, high: int) -> None:
        b = self.builder
        b.declare("llvm.assume", "declare void @llvm.assume(i1)")
        for relation, bound in ((f"{sign}ge", low), (f"{sign}le", high)):
            holds = b.icmp(relation, value, b.constant(value.kind, bound))
            b.line(f"call void @llvm.assume(i1 {holds.text})")

    def _poll_in(self, step: Loop) -> None:
        """Ask whether to stop, every so many iterations of any loop of this function."""
        b = self.builder
        interval = poll_interval(step)
        if interval == 0:
            return
        if interval == 1:
            self._poll()
            return
        turns = b.add(b.load("i64", self._turns), b.constant("i64", 1))
        b.store(turns, self._turns)
        is_due = b.icmp("eq", b.and_(turns, b.constant("i64", interval - 1)), b.constant("i64", 0))
        ask, go = b.fresh_label("ask"), b.fresh_label("go")
        b.line(f"br i1 {is_due.text}, label %{ask}, label %{go}, {_SELDOM}")
        b.begin_block(ask)
        self._stop_if(b.emit("i32", 1, "call i32 @hlojit_poll(ptr %context) cold"))
        b.branch(go)
        b.begin_block(go)


def _walk(loop: Loop) -> list[Step]:
    found: list[Step] = []
    work: list[Step] = [loop]
    while work:
        step = work.pop()
        found.append(step)
        for steps in step.nested:
            work += steps
    return found


def emit_program(program: Program, symbol: str, machine: Machine) -> tuple[str, list[LoopCode]]:
    """LLVM IR text of the host program, and the loops that it calls."""
    emitter = HostEmitter(program, symbol, machine)
    loops = []
    for number, function in enumerate(plan_loop_functions(program)):
        name = f"{symbol}_loop_{number}"
        emitter.functions[id(function.step)] = name
        inside = LoopEmitter(program, name, function, machine)
        text = inside.emit()
        loops.append(LoopCode(name, text, tuple(kernel.ir for kernel in function.kernels), inside.pipeline))
    return emitter.emit() + "!0 = !{}\n", loops
