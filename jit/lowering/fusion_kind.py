"""What kind of kernel a fusion takes: decided by its body, the same for all targets.

>>> FusionKind.of(Body.of(softmax))
<FusionKind.ROW: 'computed from reductions of its rows'>
"""

from __future__ import annotations

import enum

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Value
from hlojit.ir.ops.definition import Reduction
from hlojit.lowering.body import Body
from hlojit.lowering.row_plan import has_column_reductions, is_row_body
from hlojit.lowering.selection import sorted_value

OPERATION = "a fusion"


class FusionKind(enum.Enum):
    """How the roots of a fusion are computed."""

    EMPTY = "no root has an element"
    ROW = "computed from reductions of its rows"
    SUMMED_ROW = "computed from reductions of its rows, and reductions of the columns of all rows"
    REDUCTION = "reductions"
    SELECTION = "neighbours in sorted lines"
    ELEMENTWISE = "element by element"

    @classmethod
    def of(cls, body: Body) -> FusionKind:
        """The kind of a body; ``UnsupportedError`` where no kernel of the kind takes the body's storages."""
        kind = _kind(body)
        _check_storages(body, kind)
        return kind


def _kind(body: Body) -> FusionKind:
    if all(root.tensor_type.size == 0 for root in body.roots):
        return FusionKind.EMPTY
    if body.roots and sorted_value(body.roots[0], body) is not None:
        return FusionKind.SELECTION
    if is_row_body(body):
        return FusionKind.SUMMED_ROW if has_column_reductions(body) else FusionKind.ROW
    return FusionKind.REDUCTION if any(map(is_reduction, body.roots)) else FusionKind.ELEMENTWISE


def is_reduction(value: Value) -> bool:
    """Whether a value is a result of a reduction."""
    return value.producer is not None and isinstance(value.producer.op.lowering, Reduction)


def _check_storages(body: Body, kind: FusionKind) -> None:
    for number in range(len(body.roots) if body.storages else 0):
        storage = body.storages[len(body.operand_types) + number]
        takes_strides = kind in (FusionKind.ELEMENTWISE, FusionKind.EMPTY)
        if storage.packing > 1 or not (takes_strides or body.is_plain_root(number)):
            raise UnsupportedError(OPERATION, "", f"a kernel of this kind cannot write its result as {storage}")
    for storage in body.storages:
        if storage.offset % storage.itemsize:
            raise UnsupportedError(OPERATION, "", f"{storage}: the offset is no whole number of elements")
