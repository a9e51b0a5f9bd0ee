"""The host program: one native function per executable that launches its kernels, loops and branches.

    i32 main(ptr context, ptr slots)

``slots`` holds addresses: the inputs, the outputs, the arena, then the constants (see ``hlojit.runtime``).  The result is
0, or not 0 when a poll saw a cancellation.  Long programs are cut into functions of bounded length, and deeply nested
ones into functions of bounded depth, so that LLVM's time stays proportional to the program.

Everything lies in the host's memory: transfers are copies that have finished when they have begun, and waits for them do
nothing.  What needs another space is refused (``UnsupportedError``).  A collective calls

    i32 hlojit_collective(ptr description, i64 length, ptr source, ptr target)

which whoever loads the program supplies (``hlojit.cpu.collectives``); it returns when the target is there, or not 0 when it
never will be.  The description says, in JSON, what moves among whom; of ``process_id`` there is no source.  The body of a
``Begin`` is a function of its own, whose launches are not shared among threads; it is handed over, waited for, and called off
if the program ends before, which returns when it has ended, by

    i32 hlojit_async_begin(ptr frame, ptr function, ptr context, ptr slots, ptr cells)
    i32 hlojit_async_wait(ptr frame, ptr context)
    void hlojit_async_abandon(ptr frames, i64 count)

``frame`` is an address that is the body's alone until then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.sizes import Size
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.llvm.polls import takes_long
from hlojit.lowering.abi import CONTEXT
from hlojit.lowering.machine import GENERIC, Machine
from hlojit.lowering.program import (
    Begin,
    Branch,
    Buffer,
    BufferKind,
    Call,
    Collective,
    Copy,
    Launch,
    Loop,
    PointCell,
    ProcessId,
    Program,
    Step,
    Swap,
    Transfer,
    Wait,
)
from hlojit.lowering.storage import HOST

SEGMENT_STEPS = 96
SEGMENT_DEPTH = 8
"""Loops and branches within one another in one function."""
POLL_NS = 200_000.0
"""A launch that takes longer is followed by a poll for cancellation."""

_CONTEXT = [("ptr", "context"), ("ptr", "slots"), ("ptr", "cells")]


class HostEmitter:
    """Emits the host program of one ``Program``; see the module's docstring."""

    def __init__(self, program: Program, symbol: str, machine: Machine = GENERIC):
        self.program = program
        self.machine = machine
        self.symbol = symbol
        self.builder = LlvmBuilder()
        self._segments = 0
        self._depth = 0
        """Loops and branches around what is being emitted, within its function."""
        self._pending: list[tuple[str, Sequence[Step], bool]] = []
        self.functions: dict[int, str] = {}
        """Loops that are functions of modules of their own, by identity, and their symbols."""
        self._is_beside = False
        """Whether what is being emitted runs beside the program, on a thread that shares no work."""
        self._frames = {step.event: n for n, step in enumerate(s for s in program.walk() if isinstance(s, Begin))}
        self._arena_slot = len(program.inputs) + len(program.outputs)

    def emit(self) -> str:
        """Return the module's text."""
        b = self.builder
        b.declare("hlojit_parallel_for", "declare void @hlojit_parallel_for(ptr, ptr, ptr, i64, i64)")
        b.declare("hlojit_poll", "declare i32 @hlojit_poll(ptr)")
        for symbol in self.functions.values():
            b.declare(symbol, f"declare i32 @{symbol}(ptr, ptr, ptr)")
        for launch in self.program.launches():
            for phase in launch.kernel.phases:
                b.declare(phase.symbol, f"declare void @{phase.symbol}(ptr, ptr, i64, i64)")
        with b.function(self.symbol, [("ptr", "context"), ("ptr", "slots")], result="i32"):
            cells = b.emit("ptr", 1, f"alloca [{max(1, self.program.cells + len(self._frames))} x ptr]")
            first = self._segment(self.program.steps)
            status = b.emit("i32", 1, f"call i32 @{first}(ptr %context, ptr %slots, ptr {cells.text})")
            self._abandon_unless_ended(status, cells)
            b.line(f"ret i32 {status.text}")
        while self._pending:
            name, steps, self._is_beside = self._pending.pop()
            self._emit_segment(name, steps)
        return b.module_text()

    def _abandon_unless_ended(self, status: Val, cells: Val) -> None:
        """Nobody uses the call's memory any more when the program has ended, well or not."""
        if not self._frames:
            return
        b = self.builder
        b.declare("hlojit_async_abandon", "declare void @hlojit_async_abandon(ptr, i64)")
        b.branch_if(b.icmp("ne", status, Val("0", "i32")), "abandon", "ended")
        b.begin_block("abandon")
        frames = self._place_behind(cells.text, self.program.cells)
        b.line(f"call void @hlojit_async_abandon(ptr {frames.text}, i64 {len(self._frames)})")
        b.branch("ended")
        b.begin_block("ended")

    def _place_behind(self, cells: str, number: int) -> Val:
        return self.builder.emit("ptr", 1, f"getelementptr inbounds ptr, ptr {cells}, i64 {number}")

    def _segment(self, steps: Sequence[Step], *, beside: bool = False) -> str:
        """Plan a function for ``steps`` and return its name."""
        self._segments += 1
        name = f"{self.symbol}_segment_{self._segments}"
        self._pending.append((name, steps, beside or self._is_beside))
        return name

    def _emit_segment(self, name: str, steps: Sequence[Step]) -> None:
        b = self.builder
        with b.function(name, _CONTEXT, result="i32", attributes="nounwind noinline"):
            self._arguments = b.emit("ptr", 1, f"alloca [{self._widest(steps)} x ptr]")
            self._depth = 0
            self._steps(steps)
            b.line("ret i32 0")
            b.begin_block("cancelled")
            b.line("ret i32 1")

    def _widest(self, steps: Sequence[Step]) -> int:
        widest = 1
        stack = list(steps)
        while stack:
            step = stack.pop()
            if isinstance(step, Launch):
                widest = max(widest, len(step.buffers))
            elif isinstance(step, Call):
                widest = max(widest, len(step.arguments) + len(step.results) + 1 + len(step.constants))
            for nested in step.nested:
                stack += nested
        return widest

    def _steps(self, steps: Sequence[Step]) -> None:
        if self._depth > SEGMENT_DEPTH and steps:
            self._call_segment(self._segment(steps))
            return
        if len(steps) > SEGMENT_STEPS:
            # Square-root cutting: at most SEGMENT_STEPS calls here, each of a part that may be cut again.
            size = max(SEGMENT_STEPS, -(-len(steps) // SEGMENT_STEPS))
            for start in range(0, len(steps), size):
                self._call_segment(self._segment(steps[start : start + size]))
            return
        self._count(steps)
        for step in steps:
            self._step(step)

    def _nested(self, steps: Sequence[Step]) -> None:
        """Steps inside a loop or branch."""
        self._depth += 1
        self._steps(steps)
        self._depth -= 1

    def _count(self, steps: Sequence[Step]) -> None:
        """Add the launches of a straight run of steps, and the bytes they move at least, to the context's counters."""
        launches = [step for step in steps if isinstance(step, Launch)]
        if not launches:
            return
        b = self.builder
        sums = {"kernels": len(launches), "bytes_moved": sum(launch.bytes_moved for launch in launches)}
        for name, amount in sums.items():
            place = b.emit("ptr", 1, f"getelementptr inbounds i8, ptr %context, i64 {CONTEXT[name].offset}")
            b.store(b.add(b.load("i64", place), b.constant("i64", amount)), place)

    def _call_segment(self, name: str) -> None:
        status = self.builder.emit("i32", 1, f"call i32 @{name}(ptr %context, ptr %slots, ptr %cells)")
        self._stop_if(status)

    def _stop_if(self, status: Val) -> None:
        b = self.builder
        following = b.fresh_label("go")
        b.branch_if(b.icmp("ne", status, Val("0", "i32")), "cancelled", following)
        b.begin_block(following)

    def _poll_in(self, step: Loop) -> None:
        """Once round a loop."""
        self._poll()

    def _poll(self) -> None:
        self._stop_if(self.builder.emit("i32", 1, "call i32 @hlojit_poll(ptr %context)"))

    # ---------------------------------------------------------------- steps

    def _step(self, step: Step) -> None:
        emit: dict[type[Step], Callable[..., None]] = {
            Launch: self._launch,
            Copy: self._copy,
            Loop: self._loop,
            Branch: self._branch,
            Swap: self._swap,
            PointCell: self._point,
            Call: self._call,
            Transfer: self._copy,
            Begin: self._begin,
            Wait: self._wait,
            Collective: self._collective,
            ProcessId: self._process_id,
        }
        emit[type(step)](step)

    def _slot(self, index: int) -> Val:
        """The address that a slot holds (loaded once per straight-line function)."""
        b = self.builder
        pointer = b.emit("ptr", 1, f"getelementptr inbounds ptr, ptr %slots, i64 {index}")
        return b.emit("ptr", 1, f"load ptr, ptr {pointer.text}, align 8, !invariant.load !0")

    def _cell(self, buffer: Buffer) -> Val:
        return self._place_behind("%cells", buffer.index)

    def _address(self, buffer: Buffer) -> Val:
        b = self.builder
        if buffer.space != HOST:
            raise _unsupported(f"{buffer} lies in the memory of {buffer.space}")
        if buffer.kind is BufferKind.INPUT:
            return self._slot(buffer.index)
        if buffer.kind is BufferKind.OUTPUT:
            return self._slot(len(self.program.inputs) + buffer.index)
        if buffer.kind is BufferKind.CONSTANT:
            return self._slot(self._arena_slot + 1 + buffer.index)
        if buffer.kind is BufferKind.SWAPPED:
            return b.emit("ptr", 1, f"load ptr, ptr {self._cell(buffer).text}, align 8")
        arena = self._slot(self._arena_slot)
        return b.emit("ptr", 1, f"getelementptr inbounds i8, ptr {arena.text}, i64 {_known(buffer.offset)}")

    def _store_arguments(self, buffers: Sequence[Buffer]) -> None:
        b = self.builder
        for number, buffer in enumerate(buffers):
            address = self._address(buffer)
            place = b.emit("ptr", 1, f"getelementptr inbounds ptr, ptr {self._arguments.text}, i64 {number}")
            b.line(f"store ptr {address.text}, ptr {place.text}, align 8")

    def _launch(self, step: Launch) -> None:
        b = self.builder
        self._store_arguments(step.buffers)
        total = 0.0
        for phase in step.kernel.phases:
            cost = phase.tasks * phase.cost
            total += cost
            if cost < self.machine.parallel_nanoseconds or phase.tasks == 1 or self._is_beside:
                b.line(f"call void @{phase.symbol}(ptr %context, ptr {self._arguments.text}, i64 0, i64 {phase.tasks})")
            else:
                grain = max(1, min(phase.tasks, int(self.machine.grain_nanoseconds / max(phase.cost, 1e-3))))
                b.line(
                    f"call void @hlojit_parallel_for(ptr %context, ptr @{phase.symbol}, ptr {self._arguments.text}, "
                    f"i64 {phase.tasks}, i64 {grain})"
                )
            if takes_long(phase) and phase is not step.kernel.phases[-1]:
                # It may have stopped in the middle: what the next phase would read is not there.
                self._poll()
        if total > POLL_NS:
            self._poll()

    def _copy(self, step: Copy | Transfer) -> None:
        b = self.builder
        source, target = self._address(step.source), self._address(step.target)
        size = _known(step.target.nbytes)
        if size in (1, 2, 4, 8):
            value = b.emit("i64", 1, f"load i{8 * size}, ptr {source.text}, align 1")
            b.line(f"store i{8 * size} {value.text}, ptr {target.text}, align 1")
            return
        b.declare("llvm.memmove", "declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)")
        b.line(f"call void @llvm.memmove.p0.p0.i64(ptr {target.text}, ptr {source.text}, i64 {size}, i1 false)")

    def _point(self, step: PointCell) -> None:
        self.builder.line(f"store ptr {self._address(step.target).text}, ptr {self._cell(step.cell).text}")

    def _call(self, step: Call) -> None:
        """Lay out the callee's slots where kernels' arguments lie, and run it with this program's context."""
        b = self.builder
        b.declare(step.entry, f"declare i32 @{step.entry}(ptr, ptr)")
        self._store_arguments((*step.arguments, *step.results))
        place = len(step.arguments) + len(step.results)
        for number, buffer in enumerate((step.arena, *step.constants), place):
            address = self._address(buffer).text if buffer is not None else "null"
            slot = b.emit("ptr", 1, f"getelementptr inbounds ptr, ptr {self._arguments.text}, i64 {number}")
            b.line(f"store ptr {address}, ptr {slot.text}, align 8")
        status = b.emit("i32", 1, f"call i32 @{step.entry}(ptr %context, ptr {self._arguments.text})")
        self._fail_if(status)

    def _fail_if(self, status: Val) -> None:
        """The status of what was called is this program's, too, unless that has already said what went wrong."""
        b = self.builder
        failed, following = b.fresh_label("failed"), b.fresh_label("go")
        b.branch_if(b.icmp("ne", status, Val("0", "i32")), failed, following)
        b.begin_block(failed)
        b.declare("hlojit_fail", "declare void @hlojit_fail(ptr, i32, i64, i64)")
        b.line(f"call void @hlojit_fail(ptr %context, i32 {status.text}, i64 0, i64 0)")
        b.branch("cancelled")
        b.begin_block(following)

    def _begin(self, step: Begin) -> None:
        b = self.builder
        b.declare("hlojit_async_begin", "declare i32 @hlojit_async_begin(ptr, ptr, ptr, ptr, ptr)")
        body = self._segment(step.body, beside=True)
        frame = self._place_behind("%cells", self.program.cells + self._frames[step.event])
        arguments = f"ptr {frame.text}, ptr @{body}, ptr %context, ptr %slots, ptr %cells"
        self._fail_if(b.emit("i32", 1, f"call i32 @hlojit_async_begin({arguments})"))

    def _wait(self, step: Wait) -> None:
        """For a body; nothing else is on its way."""
        if step.event not in self._frames:
            return
        b = self.builder
        b.declare("hlojit_async_wait", "declare i32 @hlojit_async_wait(ptr, ptr)")
        frame = self._place_behind("%cells", self.program.cells + self._frames[step.event])
        self._fail_if(b.emit("i32", 1, f"call i32 @hlojit_async_wait(ptr {frame.text}, ptr %context)"))

    def _collective(self, step: Collective) -> None:
        description = {
            "kind": step.kind.name,
            "groups": step.groups,
            "source": _known(step.source.nbytes),
            "target": _known(step.target.nbytes),
            "what": step.what,
        }
        self._meet(description, self._address(step.source).text, step.target)

    def _process_id(self, step: ProcessId) -> None:
        self._meet({}, "null", step.target)

    def _meet(self, description: Mapping[str, object], source: str, target: Buffer) -> None:
        b = self.builder
        b.declare("hlojit_collective", "declare i32 @hlojit_collective(ptr, i64, ptr, ptr)")
        text = json.dumps(description).encode()
        arguments = (
            f"ptr {b.constant_bytes(text).text}, i64 {len(text)}, ptr {source}, ptr {self._address(target).text}"
        )
        self._fail_if(b.emit("i32", 1, f"call i32 @hlojit_collective({arguments})"))

    def _swap(self, step: Swap) -> None:
        b = self.builder
        first, second = self._cell(step.first), self._cell(step.second)
        values = [b.emit("ptr", 1, f"load ptr, ptr {cell.text}, align 8") for cell in (first, second)]
        b.line(f"store ptr {values[1].text}, ptr {first.text}, align 8")
        b.line(f"store ptr {values[0].text}, ptr {second.text}, align 8")

    def _flag(self, buffer: Buffer) -> Val:
        b = self.builder
        byte = b.emit("i8", 1, f"load i8, ptr {self._address(buffer).text}, align 1")
        return b.icmp("ne", byte, Val("0", "i8"))

    def _loop(self, step: Loop) -> None:
        if id(step) in self.functions:
            self._call_segment(self.functions[id(step)])
        else:
            self._emit_loop(step)

    def _emit_loop(self, step: Loop) -> None:
        b = self.builder
        head, body, end = (b.fresh_label(stem) for stem in ("while", "body", "done"))
        b.branch(head)
        b.begin_block(head)
        self._poll_in(step)
        self._nested(step.condition)
        b.branch_if(self._flag(step.predicate), body, end)
        b.begin_block(body)
        self._begin_body(step)
        self._nested(step.body)
        b.branch(head)
        b.begin_block(end)

    def _begin_body(self, step: Loop) -> None:
        """What functions of loops know there."""

    def _branch(self, step: Branch) -> None:
        b = self.builder
        end = b.fresh_label("join")
        labels = [b.fresh_label("case") for _ in step.cases]
        if step.is_predicate:
            b.branch_if(self._flag(step.index), labels[0], labels[1])
        else:
            index = b.emit("i32", 1, f"load i32, ptr {self._address(step.index).text}, align 4")
            cases = " ".join(f"i32 {number}, label %{label}" for number, label in enumerate(labels))
            b.line(f"switch i32 {index.text}, label %{labels[-1]} [ {cases} ]")
        for label, case in zip(labels, step.cases):
            b.begin_block(label)
            self._nested(case)
            b.branch(end)
        b.begin_block(end)


def _unsupported(reason: str) -> UnsupportedError:
    return UnsupportedError("a step of the program", "cpu", reason)


def _known(size: Size) -> int:
    if isinstance(size, int):
        return size
    raise _unsupported(f"the size {size} is known only when the program is called")


def emit_host(program: Program, symbol: str, machine: Machine = GENERIC) -> str:
    """LLVM IR text of the host program under the name ``symbol``."""
    return HostEmitter(program, symbol, machine).emit() + "!0 = !{}\n"
