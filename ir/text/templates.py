"""From a template of ``hlojit.ir.text.forms`` to a reader, a one-regex fast path and a printer.

For instance::

    form = form_of(op("stablehlo.transpose"))
    form.fast(reader, pos)                # reads " %0, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>"
    form.spell(printer, instruction)      # and spells it
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.attributes import Attribute
from hlojit.ir.ops.attribute_kinds import (
    BoolKind,
    EnumKind,
    IntegerArrayKind,
    IntegerKind,
)
from hlojit.ir.ops.definition import AttributeSpec, OpDefinition
from hlojit.ir.text.short_values import read_short, short_pattern, spell_short
from hlojit.ir.text.unspellable import Unspellable
from hlojit.ir.types import FunctionType, Type, function_type

if TYPE_CHECKING:
    from hlojit.ir.graph import Block, Instruction
    from hlojit.ir.text.instructions import InstructionReader
    from hlojit.ir.text.printer import Printer

VALUE: Final = r"%[\w$.-]+(?:#[0-9]+)?"
VALUES: Final = rf"{VALUE}(?:, {VALUE})*"
TYPES: Final = r"\([^()\n]*\) -> (?:\([^()\n]*\)|[^()\n]*?)|[^()\n]*?"
END: Final = r"(?: loc\((#[\w$]+|unknown)\))?[ \t\r]*\n"

TypeRule = Callable[[Any, Sequence[Type]], "Sequence[Type] | None"]
"""What the result types are, from what is written (a type, several, or a function type) and the operands' types."""


class OpState:
    """An op as far as it is read."""

    __slots__ = (
        "attributes", "discardable", "location", "name_pos", "operand_types", "operands", "record", "regions",
        "result_count", "result_types", "start", "type_pos",
    )  # fmt: skip

    def __init__(self, record: OpDefinition, start: int, name_pos: int, result_count: int):
        self.record = record
        self.start = start
        self.name_pos = name_pos
        self.result_count = result_count
        self.operands: list[tuple[str, int]] = []
        self.operand_types: Sequence[Type] | None = None
        self.result_types: Sequence[Type] | None = None
        self.type_pos = start
        self.attributes: dict[str, Any] = {}
        self.discardable: dict[str, Attribute] = {}
        self.regions: list[Block] = []
        self.location: Any = None


class Piece(ABC):
    """One part of a form.  ``pattern`` has exactly one group, or is None if the piece has no fast path."""

    names: tuple[str, ...] = ()
    """Attributes that it says, which ``attr-dict`` therefore leaves out."""
    pattern: str | None = None

    @abstractmethod
    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read what stands at the cursor into ``state``."""

    @abstractmethod
    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The text, empty if there is none."""

    def convert(self, text: str | None) -> Mapping[str, Any]:
        """Attributes from the text that the pattern's group caught; raises ``ValueError`` to leave it to ``read``."""
        return {}


class Literal(Piece):
    """Punctuation or a word."""

    def __init__(self, text: str):
        self.text = text
        self.pattern = re.escape(text)

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Move over the text."""
        if self.text[0].isalpha():
            reader.cursor.expect_word(self.text)
        else:
            reader.cursor.expect(self.text)

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The text."""
        return self.text


class Operands(Piece):
    """All operands, separated by commas."""

    pattern = f"({VALUES})?"

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read names, as long as a comma is followed by one."""
        state.operands += reader.operands()

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The operands' names."""
        return printer.names(instruction.operands)


class AttributeDictionary(Piece):
    """``{...}`` with what no other piece says."""

    pattern = ""

    def __init__(self) -> None:
        self.elided: frozenset[str] = frozenset()

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the dictionary if there is one."""
        if reader.cursor.at("{"):
            reader.attribute_dictionary(state)

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The dictionary, or nothing if it would be empty."""
        return printer.attribute_dictionary(instruction, self.elided)


class AttributeValue(Piece):
    """An attribute in the short spelling of its kind."""

    def __init__(self, spec: AttributeSpec, *, optional: bool = False):
        self.spec = spec
        self.names = (spec.name,)
        self.optional = optional
        pattern = short_pattern(spec.kind)
        self.pattern = f"({pattern})" if pattern else None

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the value."""
        state.attributes[self.spec.name] = read_short(reader, self.spec)

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The value."""
        return spell_short(self.spec.kind, instruction.attributes[self.spec.name])

    def convert(self, text: str | None) -> Mapping[str, Any]:
        """The value as an attribute."""
        assert text is not None
        kind = self.spec.kind
        if isinstance(kind, IntegerKind):
            return {self.spec.name: int(text)}
        if isinstance(kind, IntegerArrayKind):
            words = text[1:-1]
            return {self.spec.name: tuple(map(int, words.split(","))) if words else ()}
        if isinstance(kind, BoolKind):
            return {self.spec.name: text == "true"}
        assert isinstance(kind, EnumKind)
        if text not in kind.keywords:
            raise ValueError(text)
        return {self.spec.name: text}


class Optional(Piece):
    """``( , $name )?``: literals and one attribute, all there or none."""

    def __init__(self, pieces: Sequence[Piece]):
        self.pieces = pieces
        self.names = tuple(name for piece in pieces for name in piece.names)
        inner = _pattern_of(pieces)
        self.pattern = None if inner is None else f"(?:{inner})?"

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the group if its first literal stands here."""
        first = self.pieces[0]
        assert isinstance(first, Literal)
        if reader.cursor.at(first.text):
            for piece in self.pieces:
                piece.read(reader, state)

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The group, if its attribute is there."""
        if any(name not in instruction.attributes for name in self.names):
            return ""
        return join([(piece, piece.spell(printer, instruction)) for piece in self.pieces])

    def convert(self, text: str | None) -> Mapping[str, Any]:
        """Nothing if the group is absent."""
        if text is None:
            return {}
        return next(piece for piece in self.pieces if piece.names).convert(text)


class Types(Piece):
    """The types, by a rule that says what is written and what follows from it."""

    pattern: str | None = f"({TYPES})"

    def __init__(
        self,
        read: Callable[[InstructionReader], Any],
        rule: TypeRule,
        spell: Callable[[Instruction], str],
        *,
        several_results: bool = False,
    ):
        self.several_results = several_results
        self.read_types = read
        self.rule = rule
        self._spell = spell

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read types and set operand and result types."""
        state.type_pos = reader.cursor.pos
        written = self.read_types(reader)
        self.apply(reader, state, written)

    def apply(self, reader: InstructionReader, state: OpState, written: Any) -> None:
        """Set operand and result types from what was written."""
        if isinstance(written, FunctionType):
            state.operand_types = written.inputs
            state.result_types = written.results
            return
        actual = [reader.value(name, pos).type for name, pos in state.operands]
        found = self.rule(written, actual)
        if found is None:
            reader.cursor.fail(f"expected types that fit {len(actual)} operands", state.type_pos)
        state.operand_types = found[: len(actual)]
        state.result_types = found[len(actual) :]

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The types; ``Unspellable`` where one is a function type, which would be read as the whole signature."""
        if any(isinstance(type, FunctionType) for type in (*instruction.operand_types, *instruction.result_types)):
            raise Unspellable
        return self._spell(instruction)


Fast = tuple[list[Any], Sequence[Type], dict[str, Any], "Sequence[Block]", "str | None", int]
"""What a fast path found: operands, result types, attributes, regions, the location's text, where the next line begins.
"""


class Form(ABC):
    """The pretty form of one op."""

    def fast(self, reader: InstructionReader, pos: int) -> Fast | None:
        """Read one line at once; None if anything is unusual or wrong, which ``read`` then looks into."""
        return None

    @abstractmethod
    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the op behind its name."""

    @abstractmethod
    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The op behind its name, with the space that separates them; raises ``Unspellable`` if it has no such form."""


class TemplateForm(Form):
    """A form made of pieces."""

    def __init__(self, op: OpDefinition, pieces: Sequence[Piece]):
        self.pieces = pieces
        names = frozenset(name for piece in pieces for name in piece.names)
        for piece in pieces:
            if isinstance(piece, AttributeDictionary):
                piece.elided = names
        self.pattern: re.Pattern[str] | None = None
        self.captures: list[tuple[int, Piece, dict[str | None, Mapping[str, Any]]]] = []
        self.operands_group = 0
        self.types_group = 0
        self.types: Types | None = None
        types = [piece for piece in pieces if isinstance(piece, Types)]
        self.several_results = not types or types[-1].several_results
        variadic = any(operand.variadic for operand in op.operands)
        self.least_operands = sum(not (operand.variadic or operand.optional) for operand in op.operands)
        self.most_operands = 1 << 40 if variadic else len(op.operands)
        covered = all(spec.optional or spec.name in names for spec in op.attributes)
        pattern = _pattern_of(pieces) if covered and not op.regions else None
        if pattern is not None:
            self._index_groups(pieces, pattern)

    def _index_groups(self, pieces: Sequence[Piece], pattern: str) -> None:
        group = 0
        for piece in pieces:
            if piece.pattern is None or re.compile(piece.pattern).groups == 0:
                continue
            group += 1
            if isinstance(piece, Operands):
                self.operands_group = group
            elif isinstance(piece, Types):
                self.types_group = group
                self.types = piece
            else:
                self.captures.append((group, piece, {}))
        if self.types is not None:
            space = "" if pattern.startswith("\\(") else " "
            self.pattern = re.compile(space + pattern + END)
            self.location_group = group + 1

    def fast(self, reader: InstructionReader, pos: int) -> Fast | None:
        """See the base class."""
        match = self.pattern.match(reader.cursor.text, pos) if self.pattern is not None else None
        if match is None or self.types is None:
            return None
        names = match[self.operands_group] if self.operands_group else None
        attributes: dict[str, Any] = {}
        try:
            values = reader.values
            operands = [values[name] for name in names.split(", ")] if names else []
            for group, piece, cache in self.captures:
                text = match[group]
                found = cache.get(text)
                if found is None:
                    if len(cache) > 10_000:
                        cache.clear()
                    found = cache[text] = piece.convert(text)
                attributes.update(found)
        except (KeyError, ValueError):
            return None
        written = reader.written(match, self.types_group, self.types.read_types)
        if written is None or not self.least_operands <= len(operands) <= self.most_operands:
            return None
        if isinstance(written, FunctionType):
            inputs, results = written.inputs, written.results
        else:
            all_types = self.types.rule(written, [value.type for value in operands])
            if all_types is None:
                return None
            count = len(operands)
            inputs, results = tuple(all_types[:count]), tuple(all_types[count:])
        if len(inputs) != len(operands):
            return None
        for value, type in zip(operands, inputs):
            if value.type is not type:
                return None
        return operands, results, attributes, (), match[self.location_group], match.end()

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """See the base class."""
        for piece in self.pieces:
            piece.read(reader, state)

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """See the base class."""
        if instruction.regions or (len(instruction.results) != 1 and not self.several_results):
            raise Unspellable
        text = join([(piece, piece.spell(printer, instruction)) for piece in self.pieces])
        if not text or (text[0] in "([" and isinstance(self.pieces[0], Literal)):
            return text
        return f" {text}"


def spell_function(instruction: Instruction) -> str:
    """``(A, B) -> R``."""
    return str(function_type(instruction.operand_types, instruction.result_types))


_NO_SPACE_BEFORE: Final = frozenset(",])([}")
_NO_SPACE_AFTER: Final = frozenset("([{")


def _glued(before: Piece, after: Piece) -> bool:
    left = before.text if isinstance(before, Literal) else ""
    right = after.text if isinstance(after, Literal) else ""
    if isinstance(after, Optional):
        return True
    return left in _NO_SPACE_AFTER or right in _NO_SPACE_BEFORE or getattr(after, "glued", False)


def join(parts: Sequence[tuple[Piece, str]]) -> str:
    """Put the texts of pieces together with the spaces that MLIR prints."""
    out: list[str] = []
    last: Piece | None = None
    for piece, text in parts:
        if not text:
            continue
        if last is not None and not _glued(last, piece):
            out.append(" ")
        out.append(text)
        last = piece
    return "".join(out)


def _pattern_of(pieces: Sequence[Piece]) -> str | None:
    out: list[str] = []
    last: Piece | None = None
    for piece in pieces:
        if piece.pattern is None:
            return None
        if piece.pattern == "":
            continue
        if last is not None and not _glued(last, piece):
            out.append(" ")
        out.append(piece.pattern)
        last = piece
    return "".join(out)
