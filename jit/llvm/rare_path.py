"""A guarded slow path inside straight-line vector code: ``LlvmBuilder.rare``.

Where no lane needs the slow rule (huge arguments of sine, say) the cost is one test and an untaken branch.  Where some
do, a loop visits just those lanes and runs the rule on scalars, so that the slow code is emitted once however wide the
vectors are, and takes no registers from the fast path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlojit.llvm.builder import LlvmBuilder, Val

_UNLIKELY = "!91001"
_WEIGHTS = f'{_UNLIKELY} = !{{!"branch_weights", i32 1, i32 2000}}'


def emit_rare(b: LlvmBuilder, condition: Val, slow: Callable[..., Val], arguments: Sequence[Val], fast: Val) -> Val:
    """``slow(b, *arguments)`` in the lanes where ``condition`` holds, ``fast`` in the others."""
    lanes = max(value.lanes for value in (condition, fast, *arguments))
    if lanes == 1:
        return _emit_scalar(b, condition, slow, arguments, fast)
    condition, fast = b.splat(condition, lanes), b.splat(fast, lanes)
    mask = b.emit(f"i{lanes}", 1, f"bitcast <{lanes} x i1> {condition.text} to i{lanes}")
    some = b.emit("i1", 1, f"icmp ne i{lanes} {mask.text}, 0")
    before, visit, done, after = b.label, *(b.fresh_label(stem) for stem in ("rare", "rare.done", "rare.after"))
    b.declare(_UNLIKELY, _WEIGHTS)
    enter = b.fresh_label("rare.enter")
    b.line(f"br i1 {some.text}, label %{enter}, label %{after}, !prof {_UNLIKELY}")

    b.begin_block(enter)
    result = b.scratch(0, fast.kind, lanes)
    b.store(fast, result)
    memories = []
    for number, argument in enumerate(arguments, 1):
        memories.append(b.scratch(number, argument.kind, lanes))
        b.store(b.splat(argument, lanes), memories[-1])
    b.branch(visit)

    b.begin_block(visit)
    left, rest = b.name(), b.name()
    latch_line = len(b.lines)
    b.lines.append("")
    symbol = f"llvm.cttz.i{lanes}"
    b.declare(symbol, f"declare i{lanes} @{symbol}(i{lanes}, i1)")
    lane = b.emit(f"i{lanes}", 1, f"call i{lanes} @{symbol}(i{lanes} {left}, i1 true)")
    if lanes != 64:
        lane = b.emit("i64", 1, f"{'zext' if lanes < 64 else 'trunc'} i{lanes} {lane.text} to i64")
    lane = lane._replace(kind="i64")
    values = [
        b.load(argument.kind, b.element_pointer(memory, argument.kind, lane))
        for argument, memory in zip(arguments, memories)
    ]
    b.store(slow(b, *values), b.element_pointer(result, fast.kind, lane))
    lower = b.emit(f"i{lanes}", 1, f"add i{lanes} {left}, -1")
    b.line(f"{rest} = and i{lanes} {left}, {lower.text}")
    b.lines[latch_line] = f"  {left} = phi i{lanes} [ {mask.text}, %{enter} ], [ {rest}, %{b.label} ]"
    more = b.emit("i1", 1, f"icmp ne i{lanes} {rest}, 0")
    b.branch_if(more, visit, done)

    b.begin_block(done)
    mixed = b.emit(fast.kind, lanes, f"load {b.type(fast.kind, lanes)}, ptr {result.text}, align 64")
    b.branch(after)
    b.begin_block(after)
    return b.phi(fast.kind, lanes, [(fast, before), (mixed, done)])


def _emit_scalar(b: LlvmBuilder, condition: Val, slow: Callable[..., Val], arguments: Sequence[Val], fast: Val) -> Val:
    before, visit, after = b.label, b.fresh_label("rare"), b.fresh_label("rare.after")
    b.branch_if(condition, visit, after)
    b.begin_block(visit)
    value = slow(b, *arguments)
    last = b.label
    b.branch(after)
    b.begin_block(after)
    return b.phi(fast.kind, 1, [(fast, before), (value, last)])
