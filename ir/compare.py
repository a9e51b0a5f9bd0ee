"""``structurally_equal``: whether two modules are the same program, whatever their values are called.

    assert structurally_equal(parse_module(print_module(module)), module)

Locations and names of values do not count; everything else does, floats by their bits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from hlojit.ir.attributes import Dense, DictAttr
from hlojit.ir.graph import Block, Function, Instruction, Module, Value
from hlojit.ir.types import Type


def structurally_equal(a: Module, b: Module) -> bool:
    """Whether two modules are the same program."""
    return first_difference(a, b) is None


def first_difference(a: Module, b: Module) -> str | None:
    """Say where two modules first differ; None if they are the same program."""
    if (a.name, a.foreign, a.resources) != (b.name, b.foreign, b.resources):
        return "the modules differ in name, foreign ops or resources"
    if not _same(a.attributes, b.attributes):
        return "the modules' attributes differ"
    if list(a.functions) != list(b.functions):
        return f"functions {list(a.functions)} against {list(b.functions)}"
    for first, second in zip(a.functions.values(), b.functions.values()):
        difference = _functions(first, second)
        if difference:
            return f"@{first.name}: {difference}"
    return None


def _functions(a: Function, b: Function) -> str | None:
    if a.type is not b.type or a.visibility != b.visibility or a.is_declaration != b.is_declaration:
        return f"{a.visibility} {a.type} against {b.visibility} {b.type}"
    for name in ("attributes", "argument_attributes", "result_attributes"):
        if not _same(getattr(a, name), getattr(b, name)):
            return f"{name} differ"
    return _blocks(a.body, b.body, {})


def _blocks(a: Block, b: Block, same: dict[Value, Value]) -> str | None:
    # A stack of pairs of iterators instead of recursion: regions may nest as deep as a program likes.
    complaint = _enter(a, b, same)
    stack = [(iter(a), iter(b))]
    while stack and complaint is None:
        first, second = next(stack[-1][0], None), next(stack[-1][1], None)
        if first is None and second is None:
            stack.pop()
        elif first is None or second is None:
            complaint = "one block has more instructions"
        else:
            complaint = _instructions(first, second, same)
            if complaint is None:
                pairs = list(zip(first.regions, second.regions))
                for pair in pairs:
                    complaint = complaint or _enter(*pair, same)
                stack += [(iter(left), iter(right)) for left, right in reversed(pairs)]
    return complaint


def _enter(a: Block, b: Block, same: dict[Value, Value]) -> str | None:
    if _types(a.arguments) != _types(b.arguments):
        return f"block arguments {_types(a.arguments)} against {_types(b.arguments)}"
    same.update(zip(a.arguments, b.arguments))
    return None


def _instructions(a: Instruction, b: Instruction, same: dict[Value, Value]) -> str | None:
    if a.name != b.name:
        return f"{a.name} against {b.name}"
    if a.result_types != b.result_types or len(a.regions) != len(b.regions):
        return f"{a.name}: result types {a.result_types} against {b.result_types}"
    if [same.get(operand) for operand in a.operands] != list(b.operands):
        return f"{a.name}: operands differ"
    if not _same(a.attributes, b.attributes) or not _same(a.discardable, b.discardable):
        return f"{a.name}: attributes {a.attributes} {a.discardable} against {b.attributes} {b.discardable}"
    same.update(zip(a.results, b.results))
    return None


def _types(values: Sequence[Value]) -> list[Type]:
    return [value.type for value in values]


def _same(a: Any, b: Any) -> bool:
    """Equality by bits, so that NaN equals itself and -0.0 differs from 0.0; order in dictionaries does not count."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_same(value, b[key]) for key, value in a.items())
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, Dense):
        return bool(a == b)
    if isinstance(a, DictAttr):
        return _same(a.as_dict(), b.as_dict())
    fields = getattr(type(a), "__dataclass_fields__", None)
    if fields:
        return all(_same(getattr(a, name), getattr(b, name)) for name in fields)
    return bool(a == b)
