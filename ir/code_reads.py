"""What a Python function reads from outside of itself, found in its bytecode.

    SCALE = 3
    def double(x): return helper.twice(x) * SCALE     # reads ("helper.twice", the function) and ("SCALE", 3)

Attributes of modules are followed as far as the bytecode spells them (``helper.inner.twice``), so that a function depends
on what it uses of a module, not on everything that the module holds.
"""

from __future__ import annotations

import builtins
import dis
import importlib
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

MISSING: Final = object()
"""Stands for a name that nothing defines (yet)."""

_NAME_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_CELL_LOADS = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_ATTRIBUTE_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code object and those of functions, classes and comprehensions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def cells(function: FunctionType) -> dict[str, Any]:
    """Values of the variables that a closure captured; ``MISSING`` for those not yet assigned."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            found[name] = MISSING
    return found


def reads(function: FunctionType, is_whole: Callable[[ModuleType], bool]) -> dict[str, Any]:
    """Everything that a function reads from outside: dotted name to value, in the order of the names.

    A module for which ``is_whole`` holds is a value of its own; of others the attributes count that are read.
    """
    captured = cells(function)
    found: dict[str, Any] = dict(captured)
    for code in codes(function.__code__):
        instructions = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
        for position, instruction in enumerate(instructions):
            name = instruction.argval
            if instruction.opname in _NAME_LOADS:
                value = function.__globals__.get(name, getattr(builtins, name, MISSING))
            elif instruction.opname in _CELL_LOADS and name in captured:
                value = captured[name]
            elif instruction.opname == "IMPORT_NAME":
                found.update(_imported(function, code, instructions, position, is_whole))
                continue
            else:
                continue
            path, value = _follow(name, value, instructions, position + 1, is_whole)
            found[path] = value
            if path != name and isinstance(captured.get(name), ModuleType):
                found.pop(name, None)
    return dict(sorted(found.items()))


def chains(function: FunctionType) -> Iterator[list[tuple[str, Any]]]:
    """What a function loads by name, step by step: the name, then the attributes read of modules of whatever kind.

    ``numpy.random.rand`` is the module, ``numpy.random`` and ``numpy.random.rand``, whatever the module is called there.
    """
    for name, value, instructions, position in _name_loads(function):
        chain = [(name, value)]
        for following in instructions[position:]:
            module = chain[-1][1]
            if not isinstance(module, ModuleType) or following.opname not in _ATTRIBUTE_LOADS:
                break
            chain.append((f"{module.__name__}.{following.argval}", getattr(module, following.argval, MISSING)))
        yield chain


def _name_loads(function: FunctionType) -> Iterator[tuple[str, Any, list[Any], int]]:
    """Every name that is loaded or imported, what it means, and the instructions from the next one on."""
    captured = cells(function)
    for code in codes(function.__code__):
        instructions = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
        for position, instruction in enumerate(instructions):
            name = instruction.argval
            if instruction.opname in _NAME_LOADS:
                yield (
                    name,
                    function.__globals__.get(name, getattr(builtins, name, MISSING)),
                    instructions,
                    position + 1,
                )
            elif instruction.opname in _CELL_LOADS and name in captured:
                yield name, captured[name], instructions, position + 1
            elif instruction.opname == "IMPORT_NAME":
                for path, value in _imported(function, code, instructions, position, lambda module: False).items():
                    yield path, value, instructions, len(instructions)


def _follow(
    path: str, value: Any, instructions: list[Any], position: int, is_whole: Callable[[ModuleType], bool]
) -> tuple[str, Any]:
    """Follow attribute loads as long as the value is a module that does not count as a whole."""
    while isinstance(value, ModuleType) and not is_whole(value) and position < len(instructions):
        following = instructions[position]
        if following.opname not in _ATTRIBUTE_LOADS:
            break
        path = f"{path}.{following.argval}"
        value = getattr(value, following.argval, MISSING)
        position += 1
    return path, value


def _imported(
    function: FunctionType,
    code: CodeType,
    instructions: list[Any],
    position: int,
    is_whole: Callable[[ModuleType], bool],
) -> dict[str, Any]:
    """What an import statement inside a function brings: names of ``from``, or every attribute that the code mentions."""
    name = instructions[position].argval
    level = instructions[position - 2].argval
    package = function.__globals__.get("__package__") or ""
    try:
        module = importlib.import_module("." * level + name, package or None) if isinstance(level, int) else None
    except ImportError:
        module = None
    if module is None:
        return {name: MISSING}
    if is_whole(module):
        return {name: module}
    taken = []
    for following in instructions[position + 1 :]:
        if following.opname == "IMPORT_FROM":
            taken.append(following.argval)
        elif not following.opname.startswith("STORE_"):
            break
    # "import helper" may be followed by reads of helper.f anywhere in the function.
    names = taken or [each for inner in codes(code) for each in inner.co_names if hasattr(module, each)]
    return {f"{name}.{each}": getattr(module, each, MISSING) for each in names}
