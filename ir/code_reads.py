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
from dataclasses import dataclass
from itertools import takewhile
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final
from weakref import WeakKeyDictionary

MISSING: Final = object()
"""Stands for a name that nothing defines (yet)."""

_NAME_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_CELL_LOADS = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_ATTRIBUTE_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


@dataclass(frozen=True, slots=True)
class _Load:
    """A name that bytecode loads, and the attributes that it goes on to load of what the name means."""

    name: str
    attributes: tuple[str, ...]
    is_cell: bool


@dataclass(frozen=True, slots=True)
class _Import:
    """An import statement: ``taken`` are the names of ``from``, ``mentioned`` all names that the code has."""

    name: str
    level: object
    taken: tuple[str, ...]
    mentioned: tuple[str, ...]


_known: Final[WeakKeyDictionary[CodeType, tuple[_Load | _Import, ...]]] = WeakKeyDictionary()
"""What is written in code objects, which never change: taking bytecode apart is most of what a content hash would take.  What the
names mean is looked up every time."""


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
    for each in _loads(function.__code__):
        if isinstance(each, _Import):
            found.update(_imported(function, each, is_whole))
            continue
        if each.is_cell and each.name not in captured:
            continue
        path, value = each.name, _meaning(function, each, captured)
        for attribute in each.attributes:
            if not isinstance(value, ModuleType) or is_whole(value):
                break
            path, value = f"{path}.{attribute}", getattr(value, attribute, MISSING)
        found[path] = value
        if path != each.name and isinstance(captured.get(each.name), ModuleType):
            found.pop(each.name, None)
    return dict(sorted(found.items()))


def chains(function: FunctionType) -> Iterator[list[tuple[str, Any]]]:
    """What a function loads by name, step by step: the name, then the attributes read of modules of whatever kind.

    ``numpy.random.rand`` is the module, ``numpy.random`` and ``numpy.random.rand``, whatever the module is called there.
    """
    captured = cells(function)
    for each in _loads(function.__code__):
        if isinstance(each, _Import):
            yield from ([found] for found in _imported(function, each, lambda module: False).items())
            continue
        if each.is_cell and each.name not in captured:
            continue
        chain = [(each.name, _meaning(function, each, captured))]
        for attribute in each.attributes:
            module = chain[-1][1]
            if not isinstance(module, ModuleType):
                break
            chain.append((f"{module.__name__}.{attribute}", getattr(module, attribute, MISSING)))
        yield chain


def _meaning(function: FunctionType, load: _Load, captured: dict[str, Any]) -> Any:
    if load.is_cell:
        return captured[load.name]
    return function.__globals__.get(load.name, getattr(builtins, load.name, MISSING))


def _loads(code: CodeType) -> tuple[_Load | _Import, ...]:
    """What the code object and those inside it load and import by name, in their order."""
    found = _known.get(code)
    if found is None:
        found = _known[code] = tuple(each for inner in codes(code) for each in _loads_of_one(inner))
    return found


def _loads_of_one(code: CodeType) -> Iterator[_Load | _Import]:
    instructions = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
    for position, instruction in enumerate(instructions):
        name, following = instruction.argval, instructions[position + 1 :]
        if instruction.opname in _NAME_LOADS or instruction.opname in _CELL_LOADS:
            attributes = takewhile(lambda each: each.opname in _ATTRIBUTE_LOADS, following)
            yield _Load(name, tuple(each.argval for each in attributes), instruction.opname in _CELL_LOADS)
        elif instruction.opname == "IMPORT_NAME":
            bound = takewhile(lambda each: each.opname == "IMPORT_FROM" or each.opname.startswith("STORE_"), following)
            taken = tuple(each.argval for each in bound if each.opname == "IMPORT_FROM")
            # "import helper" may be followed by reads of helper.f anywhere in the function.
            mentioned = tuple(each for inner in codes(code) for each in inner.co_names)
            yield _Import(name, instructions[position - 2].argval, taken, mentioned)


def _imported(function: FunctionType, statement: _Import, is_whole: Callable[[ModuleType], bool]) -> dict[str, Any]:
    """What an import statement inside a function brings: names of ``from``, or every attribute that the code mentions."""
    name, level = statement.name, statement.level
    package = function.__globals__.get("__package__") or ""
    try:
        module = importlib.import_module("." * level + name, package or None) if isinstance(level, int) else None
    except ImportError:
        module = None
    if module is None:
        return {name: MISSING}
    if is_whole(module):
        return {name: module}
    names = statement.taken or [each for each in statement.mentioned if hasattr(module, each)]
    return {f"{name}.{each}": getattr(module, each, MISSING) for each in names}
