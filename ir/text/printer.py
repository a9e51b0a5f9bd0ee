"""``print_module``: a module as StableHLO text that MLIR and ``parse_module`` read back to the same program.

For instance::

    print(print_module(module))
    print_module(module, locations=True)     # with loc(...) behind every op
    print_module(module, generic=True)       # no pretty forms
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from hlojit.ir.attributes import Attribute, DenseArrayAttr, UnitAttr
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import DEEPEST_REGION, Block, Function, Instruction, Module, Value
from hlojit.ir.location import UNKNOWN, Location
from hlojit.ir.ops.constants import CONSTANT, ELIDED_CONSTANT
from hlojit.ir.text.form_table import form_of
from hlojit.ir.text.spelling import print_attribute, print_dictionary, print_location, print_symbol, quote
from hlojit.ir.text.templates import spell_function
from hlojit.ir.text.unspellable import Unspellable
from hlojit.ir.types import Type

_HINT: Final = re.compile(r"[A-Za-z_$][\w$.-]*")


def print_module(module: Module, *, locations: bool = False, generic: bool = False) -> str:
    """Spell a module; ``locations`` adds ``loc(...)``, ``generic`` uses the generic form of every op."""
    lines = ["module"]
    if module.name:
        lines[0] += f" {print_symbol(module.name)}"
    if module.attributes:
        lines[0] += f" attributes {print_dictionary(module.attributes)}"
    lines[0] += " {"
    lines += [f"  {text}" for text in module.foreign]
    for function in module.functions.values():
        lines.append(print_function(function, locations=locations, generic=generic, indentation="  "))
    lines.append(f"}} {print_location(module.location)}" if locations and module.location is not UNKNOWN else "}")
    if module.resources:
        lines += ["", "{-#", "  dialect_resources: {", "    builtin: {"]
        entries = [f'      {_resource(name)}: "0x{data.hex().upper()}"' for name, data in module.resources.items()]
        lines += [",\n".join(entries), "    }", "  }", "#-}"]
    return "\n".join(lines) + "\n"


def _resource(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][\w$.-]*", name) else quote(name)


def print_function(function: Function, *, locations: bool = False, generic: bool = False, indentation: str = "") -> str:
    """Spell one function."""
    try:
        return Printer(locations=locations, generic=generic, indentation=indentation).function(function)
    except RecursionError:
        raise HlojitError(f"@{function.name}: nesting is too deep for what is left of Python's stack") from None


def print_instruction(instruction: Instruction) -> str:
    """Spell one instruction by itself, as messages show it (its operands are numbered as they come)."""
    return Printer().instruction(instruction)


class Printer:
    """Spells the instructions of one function; forms call back for names, regions and attributes."""

    def __init__(self, *, locations: bool = False, generic: bool = False, indentation: str = ""):
        self.locations = locations
        self.generic = generic
        self.indentation = indentation
        self._depth = 0
        self._names: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._suffixes: dict[str, int] = {}
        self._count = 0

    # -- names ---------------------------------------------------------------------------------------------------------

    def name(self, value: Value) -> str:
        """The name of a value."""
        found = self._names.get(value)
        if found is None:
            owner = value.owner
            if isinstance(owner, Instruction):
                self._name_results(owner)
            else:
                self._names[value] = self._fresh(value.name_hint or f"arg{value.index}")
            found = self._names[value]
        return found

    def names(self, values: Sequence[Value]) -> str:
        """The names of values, separated by commas."""
        known = self._names
        return ", ".join([known[value] if value in known else self.name(value) for value in values])

    def share_names(self, values: Sequence[Value], others: Sequence[Value]) -> None:
        """Give arguments of two regions the same names."""
        for value, other in zip(values, others):
            self._names[other] = self.name(value)

    def _fresh(self, hint: str) -> str:
        if hint and _HINT.fullmatch(hint):
            name = f"%{hint}"
            while name in self._taken:
                self._suffixes[hint] = self._suffixes.get(hint, -1) + 1
                name = f"%{hint}_{self._suffixes[hint]}"
        else:
            name = f"%{self._count}"
            self._count += 1
        self._taken.add(name)
        return name

    def _name_results(self, instruction: Instruction) -> None:
        results = instruction.results
        name = self._fresh(results[0].name_hint)
        if len(results) == 1:
            self._names[results[0]] = name
            return
        for result in results:
            self._names[result] = f"{name}#{result.index}"

    def argument(self, value: Value) -> str:
        """``%a: T``."""
        return f"{self.name(value)}: {value.type}"

    # -- functions and regions -----------------------------------------------------------------------------------------

    def function(self, function: Function) -> str:
        """Spell a function."""
        declared = function.is_declaration
        visibility = "" if function.visibility == "public" and function.name != "main" else f"{function.visibility} "
        arguments = []
        for argument, attributes in zip(function.body.arguments, function.argument_attributes):
            text = str(argument.type) if declared else self.argument(argument)
            arguments.append(text + (f" {print_dictionary(attributes)}" if attributes else ""))
        text = f"{self.indentation}func.func {visibility}{print_symbol(function.name)}({', '.join(arguments)})"
        text += _results(function.result_types, function.result_attributes)
        if function.attributes:
            text += f" attributes {print_dictionary(function.attributes)}"
        if not declared:
            text += f" {self.region(function.body, with_arguments=False)}"
        return text + self._location(function.location)

    def region(self, block: Block, *, with_arguments: bool = True) -> str:
        """Spell ``{...}`` with the instructions of a block."""
        outer = self.indentation
        if self._depth > DEEPEST_REGION:
            raise HlojitError(f"regions nest deeper than {DEEPEST_REGION} levels: the program cannot be printed")
        self._depth += 1
        lines = ["{"]
        if with_arguments and block.arguments:
            lines.append(f"{outer}^bb0({', '.join(map(self.argument, block.arguments))}):")
        self.indentation = inner = f"{outer}  "
        lines += [inner + self.instruction(instruction) for instruction in block]
        self.indentation = outer
        self._depth -= 1
        lines.append(f"{outer}}}")
        return "\n".join(lines)

    def instruction(self, instruction: Instruction) -> str:
        """Spell one instruction."""
        results = instruction.results
        head = ""
        if results:
            if results[0] not in self._names:
                self._name_results(instruction)
            name = self._names[results[0]]
            head = f"{name} = " if len(results) == 1 else f"{name.rpartition('#')[0]}:{len(results)} = "
        op = instruction.op
        form = None if self.generic or not op.registered else form_of(op)
        if form is not None:
            try:
                text = f"{_short(op.name)}{form.spell(self, instruction)}"
            except (Unspellable, KeyError):
                text = self.generic_form(instruction)
        else:
            text = self.generic_form(instruction)
        return head + text + self._location(instruction.location)

    def generic_form(self, instruction: Instruction) -> str:
        """Spell the generic form."""
        text = f"{quote(_written(instruction.name))}({self.names(instruction.operands)})"
        properties = self._own_attributes(instruction, frozenset())
        if properties:
            text += f" <{{{', '.join(properties)}}}>"
        if instruction.regions:
            text += f" ({', '.join(self.region(region) for region in instruction.regions)})"
        if instruction.discardable:
            text += f" {print_dictionary(instruction.discardable)}"
        return f"{text} : {spell_function(instruction)}"

    def attribute_dictionary(self, instruction: Instruction, elided: frozenset[str]) -> str:
        """``{...}`` with all attributes but the elided ones; empty if there are none."""
        if not instruction.discardable and instruction.attributes.keys() <= elided:
            return ""
        entries = self._own_attributes(instruction, elided)
        rest = {name: value for name, value in instruction.discardable.items() if name not in elided}
        if rest:
            entries.append(print_dictionary(rest)[1:-1])
        return f"{{{', '.join(entries)}}}" if entries else ""

    def _own_attributes(self, instruction: Instruction, elided: frozenset[str]) -> list[str]:
        entries = []
        for name, value in instruction.attributes.items():
            if name in elided:
                continue
            spec = instruction.op.attribute(name)
            generic = spec.kind.to_generic(value) if spec is not None else value
            if generic is not None:
                entries.append(name if isinstance(generic, UnitAttr) else f"{name} = {print_attribute(generic)}")
        return entries

    def segments(self, instruction: Instruction, name: str) -> tuple[int, ...] | None:
        """How operands or results divide, if the instruction says."""
        found = instruction.attributes.get(name, instruction.discardable.get(name))
        if isinstance(found, DenseArrayAttr):
            found = found.values
        return tuple(found) if isinstance(found, tuple) else None

    def _location(self, location: Location) -> str:
        return f" {print_location(location)}" if self.locations and location is not UNKNOWN else ""


def _short(name: str) -> str:
    return name[5:] if name in ("func.return",) else _written(name)


def _written(name: str) -> str:
    return CONSTANT.name if name == ELIDED_CONSTANT.name else name


def _results(types: Sequence[Type], attributes: Sequence[Mapping[str, Attribute]]) -> str:
    if not types:
        return ""
    words = [
        f"{type} {print_dictionary(entries)}" if entries else str(type) for type, entries in zip(types, attributes)
    ]
    if len(words) == 1 and not attributes[0]:
        return f" -> {words[0]}"
    return f" -> ({', '.join(words)})"


__all__ = [
    "Printer",
    "print_attribute",
    "print_function",
    "print_instruction",
    "print_location",
    "print_module",
]
