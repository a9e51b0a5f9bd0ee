"""A guarded slow path inside straight-line vector code: ``LlvmBuilder.rare``.

Where no lane needs the slow rule (huge arguments of sine, say) the cost is one test and an untaken branch.  Where some
do, a loop visits just those lanes and runs the rule on scalars, so that the slow code is emitted once however wide the
vectors are, and takes no registers from the fast path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

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
    result = _Lanes(b.scratch(0, fast.kind, lanes), fast.kind)
    b.store(fast, result.memory)
    given = []
    for number, argument in enumerate(arguments, 1):
        given.append(_Lanes(b.scratch(number, argument.kind, lanes), argument.kind))
        b.store(b.splat(argument, lanes), given[-1].memory)
    b.branch(visit)

    b.begin_block(visit)
    b.branch_if(_visit_lane(b, slow, given, result, mask, enter), visit, done)

    b.begin_block(done)
    mixed = b.emit(fast.kind, lanes, f"load {b.type(fast.kind, lanes)}, ptr {result.memory.text}, align 64")
    b.branch(after)
    b.begin_block(after)
    return b.phi(fast.kind, lanes, [(fast, before), (mixed, done)])


class _Lanes(NamedTuple):
    """A vector in memory, and the kind of its lanes."""

    memory: Val
    kind: str

    def at(self, b: LlvmBuilder, lane: Val) -> Val:
        """Where a lane lies."""
        return b.element_pointer(self.memory, self.kind, lane)


def _visit_lane(
    b: LlvmBuilder, slow: Callable[..., Val], given: Sequence[_Lanes], result: _Lanes, mask: Val, before: str
) -> Val:
    """The block of a loop over the lanes of ``mask``, entered from ``before``; whether lanes are left."""
    bits = mask.kind
    left, rest = b.name(), b.name()
    latch_line = len(b.lines)
    b.lines.append("")
    symbol = f"llvm.cttz.{bits}"
    b.declare(symbol, f"declare {bits} @{symbol}({bits}, i1)")
    lane = b.emit(bits, 1, f"call {bits} @{symbol}({bits} {left}, i1 true)")
    if bits != "i64":
        lane = b.emit("i64", 1, f"{'zext' if int(bits[1:]) < 64 else 'trunc'} {bits} {lane.text} to i64")
    values = [b.load(each.kind, each.at(b, lane)) for each in given]
    b.store(slow(b, *values), result.at(b, lane))
    lower = b.emit(bits, 1, f"add {bits} {left}, -1")
    b.line(f"{rest} = and {bits} {left}, {lower.text}")
    b.lines[latch_line] = f"  {left} = phi {bits} [ {mask.text}, %{before} ], [ {rest}, %{b.label} ]"
    return b.emit("i1", 1, f"icmp ne {bits} {rest}, 0")


def _emit_scalar(b: LlvmBuilder, condition: Val, slow: Callable[..., Val], arguments: Sequence[Val], fast: Val) -> Val:
    before, visit, after = b.label, b.fresh_label("rare"), b.fresh_label("rare.after")
    b.branch_if(condition, visit, after)
    b.begin_block(visit)
    value = slow(b, *arguments)
    last = b.label
    b.branch(after)
    b.begin_block(after)
    return b.phi(fast.kind, 1, [(fast, before), (value, last)])
