"""The short spelling of attributes in pretty forms: ``3``, ``[0, 1]``, ``LT``, ``true``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlojit.ir.errors import HlojitError
from hlojit.ir.ops.attribute_kinds import (
    AttributeKind,
    BoolKind,
    EnumKind,
    IntegerArrayKind,
    IntegerKind,
    StringKind,
)
from hlojit.ir.ops.definition import AttributeSpec
from hlojit.ir.text.lexer import STRING, WORD
from hlojit.ir.text.spelling import print_attribute

if TYPE_CHECKING:
    from hlojit.ir.text.instructions import InstructionReader


def short_pattern(kind: AttributeKind) -> str | None:
    """The regular expression of the short spelling; None if there is none that the fast path could use."""
    if isinstance(kind, IntegerKind):
        return r"-?[0-9]{1,18}"
    if isinstance(kind, IntegerArrayKind):
        return None if kind.type == "i1" else r"\[(?:-?[0-9]{1,18}(?:, -?[0-9]{1,18})*)?\]"
    if isinstance(kind, BoolKind):
        return "true|false"
    if isinstance(kind, EnumKind):
        return r"\w+"
    return None


def read_short(reader: InstructionReader, spec: AttributeSpec) -> Any:
    """Read an attribute in the short spelling of its kind."""
    cursor, kind = reader.cursor, spec.kind
    if isinstance(kind, IntegerKind):
        return cursor.integer(f"an integer ({spec.name})")
    if isinstance(kind, IntegerArrayKind) and cursor.at("["):
        if kind.type == "i1":
            return tuple(cursor.items("[", "]", lambda: cursor.take(WORD) == "true"))
        return cursor.integers()
    if isinstance(kind, IntegerArrayKind) and not cursor.at_word("array"):
        cursor.expected(f"{spec.name}, a list such as [0, 1]")
    if isinstance(kind, EnumKind):
        start = cursor.pos
        word = cursor.take(WORD, f"{spec.name}, {kind.expected}")
        if word not in kind.keywords:
            cursor.fail(f"expected {spec.name}, {kind.expected}, found {word!r}", start)
        return word
    if isinstance(kind, StringKind) and cursor.peek(STRING):
        return cursor.string()
    start = cursor.pos
    attribute = reader.attributes.read()
    try:
        return kind.from_generic(attribute)
    except HlojitError as error:
        cursor.fail(f"{spec.name}: {error}", start)


def spell_short(kind: AttributeKind, value: Any) -> str:
    """Spell an attribute shortly."""
    if isinstance(kind, IntegerKind):
        return str(value)
    if isinstance(kind, IntegerArrayKind):
        words = ("true" if v else "false" for v in value) if kind.type == "i1" else map(str, value)
        return f"[{', '.join(words)}]"
    if isinstance(kind, EnumKind):
        return str(value)
    generic = kind.to_generic(value)
    return print_attribute(generic) if generic is not None else ""
