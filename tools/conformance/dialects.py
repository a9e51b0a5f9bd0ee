"""``interpreter.run_parallel`` as an op with rules, so that the modules which break them are refused.

Its functions must exist, have one row of equal length for every replica, and take and return what the op does, one after the
other; an infeed is a list of functions without arguments that return tensors of one type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hlojit.extensions import hookimpl
from hlojit.ir.graph import Function, Instruction
from hlojit.ir.ops.control import callee_named
from hlojit.ir.ops.definition import Constraint, OpDefinition, Operand
from hlojit.ir.types import TensorType


def _names(attribute: Any) -> list[str]:
    return [str(each.name) for each in attribute.elements]


def _rows(instruction: Instruction) -> list[list[str]]:
    programs: Any = instruction.discardable.get("programs")
    return [_names(row) for row in programs.elements] if programs is not None else []


def _functions(instruction: Instruction, names: Sequence[str]) -> Iterator[Function]:
    for name in names:
        found = callee_named(instruction, name)
        if found is not None:
            yield found


def _missing(instruction: Instruction, names: Sequence[str]) -> str | None:
    missing = [name for name in names if callee_named(instruction, name) is None]
    return f"there is no function @{missing[0]} in the module" if missing else None


def _grid(instruction: Instruction) -> str | None:
    rows = _rows(instruction)
    if not rows or not rows[0]:
        return "programs are empty"
    if len({len(row) for row in rows}) > 1:
        return f"programs have rows of {sorted({len(row) for row in rows})} functions"
    return _missing(instruction, [name for row in rows for name in row])


def _types(instruction: Instruction) -> str | None:
    functions = list(_functions(instruction, [name for row in _rows(instruction) for name in row]))
    inputs = [type_ for function in functions for type_ in function.type.inputs]
    results = [type_ for function in functions for type_ in function.type.results]
    if len(inputs) != len(instruction.operands):
        return f"{len(instruction.operands)} operands for {len(inputs)} arguments of all programs"
    if len(results) != len(instruction.results):
        return f"{len(instruction.results)} results for {len(results)} results of all programs"
    return None


def _infeed(instruction: Instruction) -> str | None:
    infeed: Any = instruction.discardable.get("infeed")
    if infeed is None:
        return None
    names = _names(infeed)
    if not names:
        return "the infeed has no functions"
    if complaint := _missing(instruction, names):
        return complaint
    for function in _functions(instruction, names):
        results = function.type.results
        if len(results) != 1 or not isinstance(results[0], TensorType):
            return f"@{function.name} of the infeed does not return one tensor"
    return None


RUN_PARALLEL = OpDefinition(
    "interpreter.run_parallel",
    operands=(Operand("inputs", variadic=True),),
    constraints=(Constraint("programs", _grid), Constraint("types", _types), Constraint("infeed", _infeed)),
    summary="runs functions of the module as processes of a grid",
)


class Dialects:
    """The plugin that knows the op."""

    @hookimpl
    def hlojit_ops(self) -> Sequence[OpDefinition]:
        return [RUN_PARALLEL]
