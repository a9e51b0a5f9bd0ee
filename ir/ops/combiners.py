"""What a combiner region computes, where it is one of the common reductions.

>>> combiner_of(region)         # { ^bb0(%a, %b): return add(%a, %b) }
'add'

Printer (short form of ``reduce``), passes and emitters ask here, so that all of them recognize the same regions.
"""

from __future__ import annotations

from typing import Final

from hlojit.ir.graph import Block, Instruction, Value

SIMPLE: Final = {f"stablehlo.{name}": name for name in ("add", "multiply", "maximum", "minimum", "and", "or", "xor")}
"""Ops that make a combiner by themselves."""


def combiner_of(region: Block) -> str | None:
    """Name the combiner: one of ``SIMPLE``, ``argmax``/``argmin``, or None if it is not recognized.

    ``argmax`` and ``argmin`` are regions ``(value, index, other_value, other_index) -> (value, index)`` that keep the
    larger (smaller) value, any NaN before every number, and of equal values the one with the smaller index.  This is
    what JAX prints for ``argmax`` and ``argmin``; for integers and booleans there is no NaN test.
    """
    if len(region.arguments) == 2:
        return _simple(region)
    if len(region.arguments) == 4:
        return _extremum_with_index(region)
    return None


def returns_second(region: Block) -> bool:
    """Whether the region returns its second half of arguments: a scatter that overwrites."""
    half = len(region.arguments) // 2
    return len(region) == 1 and list(region.returned) == region.arguments[half:]


def compare_direction_of(region: Block) -> tuple[str, int] | None:
    """For the comparator of a sort that is one ``compare`` of a key: its direction and the number of the key.

    Comparators have arguments (lhs0, rhs0, lhs1, rhs1, ...).  Exchanged operands give the mirrored direction.
    """
    compare = _only(region, "stablehlo.compare")
    if compare is None or compare.attributes.get("compare_type") == "TOTALORDER":
        return None
    lhs, rhs = compare.operands
    if not (lhs.owner is region and rhs.owner is region and lhs.index // 2 == rhs.index // 2 and lhs is not rhs):
        return None
    direction = str(compare.attributes["comparison_direction"])
    if lhs.index % 2:
        direction = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}.get(direction, direction)
    return direction, lhs.index // 2


def _only(region: Block, name: str) -> Instruction | None:
    """The instruction of a region that does nothing but return the result of one op called ``name``."""
    first = region.first
    if len(region) != 2 or first is None or first.name != name or region.returned != first.results:
        return None
    return first


def _simple(region: Block) -> str | None:
    first = region.first
    if first is None or first.name not in SIMPLE or _only(region, first.name) is None:
        return None
    a, b = region.arguments
    # Exchanged operands compute the same: all of these ops are commutative, and a NaN stays a NaN.
    return SIMPLE[first.name] if first.operands in ((a, b), (b, a)) else None


def _extremum_with_index(region: Block) -> str | None:
    value, index, other_value, other_index = region.arguments
    if value.type is not other_value.type or index.type is not other_index.type or len(region.returned) != 2:
        return None
    chosen, chosen_index = (result.producer for result in region.returned)
    if not _is_select(chosen, value, other_value) or not _is_select(chosen_index, index, other_index):
        return None
    assert chosen is not None and chosen_index is not None
    better, first = chosen.operands[0], chosen_index.operands[0]
    for direction, kind in (("GT", "argmax"), ("LT", "argmin")):
        if _is_better(better, direction, value, other_value) and _is_first(first, better, region):
            return kind
    return None


def _is_select(instruction: Instruction | None, a: Value, b: Value) -> bool:
    return instruction is not None and instruction.name == "stablehlo.select" and instruction.operands[1:] == (a, b)


def _is_compare(value: Value, direction: str, a: Value, b: Value) -> bool:
    compare = value.producer
    if compare is None or compare.name != "stablehlo.compare" or compare.attributes.get("compare_type") == "TOTALORDER":
        return False
    mirrored = {"LT": "GT", "GT": "LT"}.get(direction, direction)
    found = compare.attributes["comparison_direction"]
    return (found == direction and compare.operands == (a, b)) or (found == mirrored and compare.operands == (b, a))


def _either(value: Value, name: str) -> tuple[Value, ...]:
    instruction = value.producer
    return instruction.operands if instruction is not None and instruction.name == name else ()


def _is_better(value: Value, direction: str, a: Value, b: Value) -> bool:
    """``a > b``, for floats ``a > b or a != a``."""
    if _is_compare(value, direction, a, b):
        # Without the NaN test a float region would lose NaNs: that is not this combiner.
        return not hasattr(a.tensor_type.element_type, "mantissa_bits")
    parts = _either(value, "stablehlo.or")
    return len(parts) == 2 and any(
        _is_compare(p, direction, a, b) and _is_compare(q, "NE", a, a) for p, q in (parts, parts[::-1])
    )


def _is_first(value: Value, better: Value, region: Block) -> bool:
    """``better or (a == b and index < other_index)``."""
    a, index, b, other_index = region.arguments
    parts = _either(value, "stablehlo.or")
    if len(parts) != 2 or better not in parts:
        return False
    tie = parts[1] if parts[0] is better else parts[0]
    conditions = _either(tie, "stablehlo.and")
    return len(conditions) == 2 and any(
        _is_compare(p, "EQ", a, b) and _is_compare(q, "LT", index, other_index)
        for p, q in (conditions, conditions[::-1])
    )
