"""The host program of symbolic kernels: what is launched, gone around and chosen, as steps and as LLVM text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hlojit.ir.sizes import Size, apply
from hlojit.llvm.builder import Val
from hlojit.llvm.symbolic_elements import Memory, SymbolicElements


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel, its tasks, and the tasks of a grain."""

    kernel: str
    tasks: Size
    grain: Size

    def only_if(self, condition: Size) -> Launch:
        """Nothing where a condition on sizes does not hold."""
        return replace(self, tasks=apply("select", condition, self.tasks, 0))


@dataclass(frozen=True, slots=True)
class Round:
    """Condition and body, as long as the condition has left a byte that is not 0."""

    condition: Sequence[Step]
    predicate: Memory
    body: Sequence[Step]


@dataclass(frozen=True, slots=True)
class Choice:
    """The first case where the index is a byte that is not 0, else the second; or that of the number (i32), else the last."""

    index: Memory
    is_boolean: bool
    cases: Sequence[Sequence[Step]]


Step = Launch | Round | Choice

_PARAMETERS: Final = (("ptr", "context"), ("ptr", "buffers"))


def emit_host(elements: SymbolicElements, symbol: str, steps: Sequence[Step]) -> None:
    """The entry function, ``i32 entry(ptr context, ptr slots)``."""
    b = elements.builder
    b.declare("hlojit_parallel_for", "declare void @hlojit_parallel_for(ptr, ptr, ptr, i64, i64)")
    b.declare("hlojit_poll", "declare i32 @hlojit_poll(ptr)")
    elements.begin()
    with b.function(symbol, _PARAMETERS, result="i32"):
        b.begin_block("body")
        _steps(elements, steps)
        b.line("ret i32 0")
        b.begin_block("cancelled")
        b.line("ret i32 1")
        b.at_entry("br label %body")


def _steps(elements: SymbolicElements, steps: Sequence[Step]) -> None:
    for step in steps:
        if isinstance(step, Launch):
            _launch(elements, step)
        elif isinstance(step, Round):
            _round(elements, step)
        else:
            _choice(elements, step)


def _launch(elements: SymbolicElements, step: Launch) -> None:
    b = elements.builder
    count, grain = elements.size(step.tasks), elements.size(step.grain)
    b.line(
        f"call void @hlojit_parallel_for(ptr %context, ptr @{step.kernel}, ptr %buffers, i64 {count.text}, "
        f"i64 {grain.text})"
    )
    status = b.emit("i32", 1, "call i32 @hlojit_poll(ptr %context)")
    following = b.fresh_label("go")
    b.branch_if(b.icmp("ne", status, Val("0", "i32")), "cancelled", following)
    b.begin_block(following)


def _round(elements: SymbolicElements, step: Round) -> None:
    b = elements.builder
    labels = [b.fresh_label(stem) for stem in ("while", "do", "done")]
    b.branch(labels[0])
    b.begin_block(labels[0])
    _steps(elements, step.condition)
    b.branch_if(b.load("i1", elements.place_of(step.predicate)), labels[1], labels[2])
    b.begin_block(labels[1])
    _steps(elements, step.body)
    b.branch(labels[0])
    b.begin_block(labels[2])


def _choice(elements: SymbolicElements, step: Choice) -> None:
    b, cases = elements.builder, step.cases
    index = elements.place_of(step.index)
    number = None if step.is_boolean else b.load("i32", index)
    end = b.fresh_label("chosen")

    def is_case(position: int) -> Val:
        if number is None:
            return b.load("i1", index)
        return b.icmp("eq", number, b.constant("i32", position))

    for position, case in enumerate(cases[:-1]):
        labels = [b.fresh_label(stem) for stem in ("case", "other")]
        b.branch_if(is_case(position), labels[0], labels[1])
        b.begin_block(labels[0])
        _steps(elements, case)
        b.branch(end)
        b.begin_block(labels[1])
    _steps(elements, cases[-1])
    b.branch(end)
    b.begin_block(end)


def launches(steps: Sequence[Step]) -> int | None:
    """How many there are; None where only the run tells."""
    return len(steps) if all(isinstance(step, Launch) for step in steps) else None
