"""Rules of plugins' ops, run so that what they get wrong is named; hlojit's own run as they are."""

from __future__ import annotations

from typing import Any

from hlojit.ir.environment import OPS, tables
from hlojit.ir.errors import HlojitError, PluginError, repr_of, short_repr
from hlojit.ir.ops.definition import OpDefinition, Pointwise, PointwiseCall
from hlojit.ir.scalar import formats
from hlojit.ir.types import Type


def is_foreign(record: OpDefinition) -> bool:
    """Whether a plugin brought the op."""
    return (OPS, record.name) in tables().owners


def whose(record: OpDefinition, what: str) -> str:
    """``infer (hlojit-nova 0.1.0)``: a part of a plugin's op, in faults that name the op already."""
    return f"{what}{tables().source_of(OPS, record.name)}"


def pointwise(record: OpDefinition, builder: Any, call: PointwiseCall, *scalars: Any) -> Any:
    """What the rule of a pointwise op makes of scalars; of a plugin's op it is a scalar of the result's kind, or an error."""
    lowering = record.lowering
    assert isinstance(lowering, Pointwise)
    if not is_foreign(record):
        return lowering.rule(builder, call, *scalars)
    what = f"op {record.name!r}: the rule of Pointwise"
    try:
        made: object = lowering.rule(builder, call, *scalars)
    except (HlojitError, MemoryError):
        raise
    except Exception as error:
        raise PluginError(f"{what} raised {repr_of(error)}") from error
    kind = getattr(made, "kind", None)
    if not isinstance(kind, str):
        raise PluginError(f"{what} returned {short_repr(made)}; it returns a scalar that the builder made")
    if not lowering.moves and not kind.startswith("complex"):
        expected = formats.compute_kind(call.result_type)
        if kind != expected:
            raise PluginError(
                f"{what} returned a scalar of kind {kind}, expected {expected}, in which {call.result_type.name} is computed"
            )
    return made


def wrong_types(inferred: object) -> str:
    """What is wrong with the value of a rule that infers types, or an empty string."""
    if isinstance(inferred, (list, tuple)) and all(isinstance(each, Type) for each in inferred):
        return ""
    return f"returned {short_repr(inferred)}; it returns a list of types, one for each result"
