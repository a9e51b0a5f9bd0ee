"""Rules of plugins' ops, run so that what they get wrong is named; hlojit's own run as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hlojit.ir.environment import OPS, tables
from hlojit.ir.errors import HlojitError, PluginError, short_repr
from hlojit.ir.ops.definition import OpDefinition, Pointwise, PointwiseCall
from hlojit.ir.scalar import formats
from hlojit.ir.scalar.builder import Pair
from hlojit.ir.scalar.rule_builder import Misuse, RuleBuilder, RuleScalar, UnknownName
from hlojit.ir.types import Type
from hlojit.ir.vendor_places import place_of, raised_at, told


def is_foreign(record: OpDefinition) -> bool:
    """Whether a plugin brought the op."""
    return (OPS, record.name) in tables().owners


def whose(record: OpDefinition, what: str) -> str:
    """``infer (hlojit-nova 0.1.0)``: a plugin's op, or a part of it in faults that name the op already."""
    return f"{what}{tables().source_of(OPS, record.name)}"


def infer_failure(record: OpDefinition, error: Exception) -> PluginError | None:
    """The error of a plugin's op whose rule for result types raised; None for hlojit's own ops."""
    if not is_foreign(record):
        return None
    return PluginError(f"{whose(record, f'op {record.name!r}')}: infer raised {told(error, record.infer)}")


def pointwise(record: OpDefinition, builder: Any, call: PointwiseCall, *scalars: Any) -> Any:
    """What the rule of a pointwise op makes of scalars; of a plugin's op it is a scalar of the result's kind, or an error."""
    lowering = record.lowering
    assert isinstance(lowering, Pointwise)
    if not is_foreign(record):
        return lowering.rule(builder, call, *scalars)
    checked = RuleBuilder(builder)
    rule = lowering.rule
    try:
        made: object = rule(checked, call, *map(checked.wrap, scalars))
        found: Any = checked.unwrap(made) if isinstance(made, (RuleScalar, Pair)) else None
    except (HlojitError, MemoryError):
        raise
    except (Misuse, UnknownName) as error:
        raise PluginError(f"{_rule(record)}{raised_at(error, rule)}: {error}") from error
    except Exception as error:
        raise PluginError(f"{_rule(record)} raised {told(error, rule)}") from error
    if found is None:
        raise PluginError(
            f"{_rule(record)} returned {short_repr(made)}; it returns a scalar that the builder made{place_of(rule)}"
        )
    if not lowering.moves and not found.kind.startswith("complex"):
        expected = formats.compute_kind(call.result_type)
        if found.kind != expected:
            raise PluginError(
                f"{_rule(record)} returned a scalar of kind {found.kind}, expected {expected}, in which "
                f"{call.result_type.name} is computed{place_of(rule)}"
            )
    return found


def indexed(record: OpDefinition, rule: Callable[..., Any], emitter: Any, instruction: Any, index: Any) -> Any:
    """What the rule of an indexed op makes at an index; what a plugin's raises is named."""
    if not is_foreign(record):
        return rule(emitter, instruction, index)
    what = f"op {record.name!r}: the rule of Indexed"
    try:
        made = rule(emitter, instruction, index)
    except (HlojitError, MemoryError):
        raise
    except Exception as error:
        raise PluginError(f"{what} raised {told(error, rule)}\n  at {instruction.location}") from error
    for each in made if isinstance(made, tuple) and not hasattr(made, "kind") else (made,):
        if not isinstance(getattr(each, "kind", None), str):
            raise PluginError(
                f"{what} returned {short_repr(made)}; it returns a scalar for each result{place_of(rule)}"
                f"\n  at {instruction.location}"
            )
    return made


def _rule(record: OpDefinition) -> str:
    return f"op {record.name!r}: the rule of Pointwise"


def wrong_types(inferred: object) -> str:
    """What is wrong with the value of a rule that infers types, or an empty string."""
    if isinstance(inferred, (list, tuple)) and all(isinstance(each, Type) for each in inferred):
        return ""
    return f"returned {short_repr(inferred)}; it returns a list of types, one for each result"
