"""Polls in kernels with tasks that take long: Ctrl-C is heard in the middle of one.

A loop of many iterations goes in stretches, each to a limit of its own, and polls between them; within a stretch nothing is
added.  A call that is to stop leaves the kernel where it is: what it has written by then nobody reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from hlojit.lowering.kernel import Phase

if TYPE_CHECKING:
    from hlojit.llvm.builder import EmittedLoop, LlvmBuilder

LONG_NANOSECONDS: Final = 5e7
"""A task that is estimated to take longer polls."""
_STRETCH: Final = 1 << 20
"""Iterations of innermost loops between two polls, about: milliseconds."""
_UNKNOWN: Final = 1 << 10
"""Iterations of a loop whose bounds are not known."""


def takes_long(phase: Phase) -> bool:
    """Whether one task of a phase polls."""
    return phase.cost > LONG_NANOSECONDS


def add_polls(builder: LlvmBuilder, phases: Iterable[Phase]) -> None:
    """Have the kernels that a builder holds poll, if they take long."""
    if not any(map(takes_long, phases)):
        return
    inner: list[tuple[int, int]] = []
    for loop in builder.emitted_loops:
        # Loops are closed before those around them.
        work = 1
        while inner and inner[-1][0] > loop.loop.phi_line:
            work += inner.pop()[1]
        count = _iterations(loop)
        inner.append((loop.loop.phi_line, (_UNKNOWN if count is None else count) * work))
        stretch = max(1, _STRETCH // work)
        if loop.can_poll and (count is None or count > stretch):
            builder.declare("hlojit_poll", "declare i32 @hlojit_poll(ptr)")
            _in_stretches(builder.lines, loop, stretch * loop.loop.step)


def _iterations(emitted: EmittedLoop) -> int | None:
    loop = emitted.loop
    if loop.start.is_literal and loop.end.is_literal:
        return -(-(int(loop.end.text) - int(loop.start.text)) // loop.step)
    return None


def _in_stretches(lines: list[str], emitted: EmittedLoop, distance: int) -> None:
    loop = emitted.loop
    name, end = loop.label, loop.end.text
    # The last line of the block before ends it.
    lines[loop.phi_line - 2] = f"{_nearer(f'{name}.first', loop.start.text, distance, end)}\n{lines[loop.phi_line - 2]}"
    for line in range(loop.phi_line, loop.phi_line + 1 + len(loop.carried)):
        value = lines[line].rpartition("[ ")[2].rpartition(", %")[0]
        lines[line] += f", [ {value}, %{name}.next ]"
    lines[loop.phi_line] += (
        f"\n  %{name}.limit = phi i64 [ %{name}.first, %{loop.preheader} ], [ %{name}.limit, %{emitted.latch} ], "
        f"[ %{name}.second, %{name}.next ]"
    )
    following = emitted.following.text
    lines[emitted.test_line] = f"  %{name}.again = icmp slt i64 {following}, %{name}.limit"
    lines[emitted.test_line + 1] = "\n".join((
        f"  br i1 %{name}.again, label %{name}, label %{name}.pause",
        f"{name}.pause:",
        f"  %{name}.more = icmp slt i64 {following}, {end}",
        f"  br i1 %{name}.more, label %{name}.poll, label %{name}.end",
        f"{name}.poll:",
        f"  %{name}.status = call i32 @hlojit_poll(ptr %context) cold",
        f"  %{name}.go = icmp eq i32 %{name}.status, 0",
        f"  br i1 %{name}.go, label %{name}.next, label %{name}.stop",
        f"{name}.stop:",
        "  ret void",
        f"{name}.next:",
        _nearer(f"{name}.second", f"%{name}.limit", distance, end),
        f"  br label %{name}",
    ))  # fmt: skip
    for line in range(emitted.test_line + 2, emitted.last_line):
        lines[line] = lines[line].replace(f", %{emitted.latch} ]", f", %{name}.pause ]")


def _nearer(name: str, start: str, distance: int, end: str) -> str:
    """The end of a stretch: a distance from its start, or the end of the loop."""
    return (
        f"  %{name}.far = add nsw i64 {start}, {distance}\n"
        f"  %{name}.whole = icmp slt i64 %{name}.far, {end}\n"
        f"  %{name} = select i1 %{name}.whole, i64 %{name}.far, i64 {end}"
    )
