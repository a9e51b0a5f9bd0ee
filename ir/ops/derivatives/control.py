"""Derivatives of branches: what was taken runs again in the reverse pass, where its cotangents are needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hlojit.ir.ops.derivatives.kinds import (
    Flow,
    Pull,
    PushingWork,
    RecordingWork,
    Tangents,
    instantiated,
)

if TYPE_CHECKING:
    from hlojit.ir.blocks import Block, Instruction, Value


def _push_branch(work: PushingWork, i: Instruction) -> tuple[Sequence[Value], Tangents]:
    columns = [work.active_returns(region, ()) for region in i.regions]
    active = [any(column) for column in zip(*columns)]

    def built(region: Block) -> Block:
        def body(b: Any) -> list[Value]:
            values, tangents = work.region(b, region, (), ())
            found = zip(values, tangents, active)
            return values + [instantiated(b, t, value.type) for value, t, is_active in found if is_active]

        made: Block = work.builder.region((), body)
        return made

    results = work.builder.create(i.op.name, i.operands, regions=[built(region) for region in i.regions]).results
    count = len(i.results)
    moving = iter(results[count:])
    return results[:count], [next(moving) if is_active else None for is_active in active]


def _record_branch(work: RecordingWork, i: Instruction) -> tuple[Sequence[Value], Pull]:
    captured = work.captured(i)

    def pull(b: Any, cotangents: Tangents) -> Sequence[tuple[Value, Value]]:
        def built(region: Block) -> Block:
            def body(inner: Any) -> list[Value]:
                found = work.region_cotangents(inner, region, (), (), captured, cotangents)
                return [instantiated(inner, t, value.type) for t, value in zip(found, captured)]

            made: Block = b.region((), body)
            return made

        regions = [built(region) for region in i.regions]
        return list(zip(captured, b.create(i.op.name, i.operands, regions=regions).results))

    return i.results, pull


BRANCH = Flow(_push_branch, _record_branch)

__all__ = ["BRANCH"]
