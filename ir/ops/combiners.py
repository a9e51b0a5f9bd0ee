"""What a combiner region computes, where it is one of the common reductions.

>>> combiner_of(region)         # { ^bb0(%a, %b): return add(%a, %b) }
RecognizedCombiner(step=<Instruction stablehlo.add -> tensor<f32>>, ...)

Emitters ask here, so that all of them recognize the same regions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hlojit.ir.formats import ElementType, FloatFormat
from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.definition import Pointwise, Trait
from hlojit.ir.ops.views import CompareView
from hlojit.ir.quantized import is_quantized


@dataclass(frozen=True, slots=True)
class RecognizedCombiner:
    """A combiner whose elements may be taken in any order.

    ``step`` is the one instruction of the region, or None for an extremum with its index: ``argmax`` and ``argmin``.
    """

    step: Instruction | None
    is_maximum: bool = False
    """Whether it keeps the larger value, of floats any NaN before every number."""
    is_minimum: bool = False

    @property
    def is_idempotent(self) -> bool:
        """Whether taking an element twice is the same as taking it once."""
        return self.step is None or Trait.IDEMPOTENT in self.step.op.traits

    def identity(self, element: ElementType) -> Any:
        """The number that changes nothing, for a combiner of one value that is not idempotent."""
        assert self.step is not None and self.step.op.identity is not None
        return self.step.op.identity(element)


def combiner_of(region: Block) -> RecognizedCombiner | None:
    """What the region combines by, or None if the order of the elements has to be kept.

    A region of two arguments is recognized if it is one pointwise op whose record says COMMUTATIVE and ASSOCIATIVE, and
    IDEMPOTENT or an ``identity``.

    ``argmax`` and ``argmin`` are regions ``(value, index, other_value, other_index) -> (value, index)`` that keep the
    larger (smaller) value, any NaN before every number, and of equal values the one with the smaller index.  This is
    what JAX prints for ``argmax`` and ``argmin``; for integers and booleans there is no NaN test.
    """
    if len(region.arguments) == 2:
        return _simple(region)
    if len(region.arguments) == 4:
        return _extremum_with_index(region)
    return None


_ANY_ORDER = frozenset({Trait.COMMUTATIVE, Trait.ASSOCIATIVE})


def _simple(region: Block) -> RecognizedCombiner | None:
    step = region.first
    if step is None or len(region) != 2 or region.returned != step.results:
        return None
    record = step.op
    if not (record.traits >= _ANY_ORDER and isinstance(record.lowering, Pointwise)):
        return None
    if Trait.IDEMPOTENT not in record.traits and record.identity is None:
        return None
    a, b = region.arguments
    if is_quantized(a.type):
        return None
    # Exchanged operands compute the same: the op is commutative.
    if step.operands not in ((a, b), (b, a)) or step.result.type is not a.type:
        return None
    return RecognizedCombiner(step, Trait.MAXIMUM in record.traits, Trait.MINIMUM in record.traits)


def _extremum_with_index(region: Block) -> RecognizedCombiner | None:
    value, index, other_value, other_index = region.arguments
    if value.type is not other_value.type or index.type is not other_index.type or len(region.returned) != 2:
        return None
    chosen, chosen_index = (result.producer for result in region.returned)
    if not _is_select(chosen, value, other_value) or not _is_select(chosen_index, index, other_index):
        return None
    assert chosen is not None and chosen_index is not None
    better, first = chosen.operands[0], chosen_index.operands[0]
    for direction in ("GT", "LT"):
        if _is_better(better, direction, value, other_value) and _is_first(first, better, region):
            return RecognizedCombiner(None, direction == "GT", direction == "LT")
    return None


def _is_select(instruction: Instruction | None, a: Value, b: Value) -> bool:
    if instruction is None or Trait.SELECTION not in instruction.op.traits:
        return False
    return instruction.operands[1:] == (a, b)


def _is_compare(value: Value, direction: str, a: Value, b: Value) -> bool:
    compare = value.producer
    if compare is None or Trait.COMPARISON not in compare.op.traits:
        return False
    view = CompareView.of(compare)
    if view.is_total_order:
        return False
    return (view.direction == direction and compare.operands == (a, b)) or (
        view.mirrored == direction and compare.operands == (b, a)
    )


def _parts(value: Value, trait: Trait) -> tuple[Value, ...]:
    """The operands of a conjunction or disjunction; none, if the value is something else."""
    instruction = value.producer
    return instruction.operands if instruction is not None and trait in instruction.op.traits else ()


def _is_better(value: Value, direction: str, a: Value, b: Value) -> bool:
    """``a > b``, for floats ``a > b or a != a``."""
    if _is_compare(value, direction, a, b):
        # Without the NaN test a float region would lose NaNs: that is not this combiner.
        return not isinstance(a.tensor_type.element_type, FloatFormat)
    parts = _parts(value, Trait.DISJUNCTION)
    return len(parts) == 2 and any(
        _is_compare(p, direction, a, b) and _is_compare(q, "NE", a, a) for p, q in (parts, parts[::-1])
    )


def _is_first(value: Value, better: Value, region: Block) -> bool:
    """``better or (a == b and index < other_index)``."""
    a, index, b, other_index = region.arguments
    parts = _parts(value, Trait.DISJUNCTION)
    if len(parts) != 2 or better not in parts:
        return False
    tie = parts[1] if parts[0] is better else parts[0]
    conditions = _parts(tie, Trait.CONJUNCTION)
    return len(conditions) == 2 and any(
        _is_compare(p, "EQ", a, b) and _is_compare(q, "LT", index, other_index)
        for p, q in (conditions, conditions[::-1])
    )
