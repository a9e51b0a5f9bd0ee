"""Reading attributes: generic ones of MLIR, the records of StableHLO's dimension numbers, and others kept as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from hlojit.ir.attributes import (
    ArrayAttr,
    Attribute,
    BoolAttr,
    DenseArrayAttr,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    OpaqueAttr,
    StringAttr,
    SymbolAttr,
    TypeAttr,
    UnitAttr,
)
from hlojit.ir.formats import BooleanType, FloatFormat, IntegerType, QuantizedType, find_element_type
from hlojit.ir.text.decimals import read_number
from hlojit.ir.text.dense import Resource, dense, elided, float_from_bits, from_resource, read_dense_body
from hlojit.ir.text.dimension_numbers import RECORDS, RecordReader
from hlojit.ir.text.lexer import NESTING_LIMIT, NUMBER, WORD, Cursor
from hlojit.ir.text.meshes import MESH_RECORDS
from hlojit.ir.text.spelling import ELIDED, print_attribute
from hlojit.ir.text.types import TypeReader
from hlojit.ir.types import TensorType

_NAME: Final = re.compile(r'[A-Za-z_][\w$.-]*|"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+"')
_ALIAS_NAME: Final = re.compile(r"[A-Za-z_$0-9][\w$.-]*")
_TYPE_WORD: Final = re.compile(r"tensor|tuple|none|index|complex|vector|memref|tf32|(?:i|ui|si|f|bf)[0-9]+\w*")
_SCALAR_TYPE: Final = re.compile(r"[a-z]\w*")
_REFERENCE: Final = re.compile(r'"(?:[^"\\\n]|\\.)*+"|#([A-Za-z_$][\w$-]*+)(?![.<\w])')
_SIZE_LIMIT: Final = 1 << 20
_OPAQUE_BUILTINS: Final = frozenset({"affine_map", "affine_set", "strided", "distinct", "sparse", "opaque"})


class AttributeReader:
    """Reads attributes.  ``aliases`` and ``resources`` are what the parser found when it looked over the text."""

    def __init__(self, cursor: Cursor, types: TypeReader):
        self.cursor = cursor
        self.types = types
        self.records = RecordReader(cursor, self.read)
        self.aliases: dict[str, int] = {}
        self.resources: dict[str, Resource] = {}
        self._read_aliases: dict[str, tuple[Attribute, int, int, int]] = {}
        self._level = 0
        self._deepest = 0
        self._size = 0
        self._open_aliases: set[str] = set()
        self._in_constant = False
        types.attribute_text = self._text_of_attribute

    def dictionary(self) -> dict[str, Attribute]:
        """Read ``{a = 1, b}``."""
        found: dict[str, Attribute] = {}

        def entry() -> None:
            start = self.cursor.pos
            name, value = self._entry()
            if name in found:
                self.cursor.fail(f"attribute {name!r} is given twice", start)
            found[name] = value

        self.cursor.items("{", "}", entry)
        return found

    def _entry(self) -> tuple[str, Attribute]:
        cursor = self.cursor
        name = cursor.take(_NAME, "the name of an attribute, or '}'")
        if name.startswith('"'):
            name = name[1:-1]
        if cursor.accept("="):
            return name, self.read()
        return name, UnitAttr()

    def constant(self) -> Attribute:
        """Read the elements of a constant; of a quantized type they are the stored integers."""
        self._in_constant = True
        try:
            return self.read()
        finally:
            self._in_constant = False

    def read(self) -> Attribute:
        """Read one attribute."""
        cursor = self.cursor
        cursor.enter()
        if not self._level:
            self._deepest = self._size = 0
        self._level += 1
        self._deepest = max(self._deepest, cursor.depth)
        self._size += 1
        found = self._read()
        self._level -= 1
        cursor.leave()
        return found

    def _read(self) -> Attribute:
        cursor = self.cursor
        char = cursor.text[cursor.pos : cursor.pos + 1]
        if char == '"':
            return self._string()
        if char == "@":
            return self._symbol()
        if char == "[":
            return ArrayAttr(tuple(cursor.items("[", "]", self.read)))
        if char == "{":
            return DictAttr(tuple(self.dictionary().items()))
        if char == "#":
            return self._hash()
        if char.isascii() and (char.isdecimal() or char == "-"):
            return self._number()
        if char in ("!", "("):
            return TypeAttr(self.types.read())
        word = cursor.peek(WORD)
        if word is None:
            cursor.expected("an attribute")
        reader = _BY_WORD.get(word)
        if reader is not None:
            cursor.take(WORD)
            return reader(self)
        if word in _OPAQUE_BUILTINS:
            start = cursor.pos
            cursor.take(WORD)
            prefix = cursor.balanced("[") if cursor.at("[") else ""
            return OpaqueAttr(word + prefix + cursor.balanced("<")) if cursor.at("<") else self._as_type(start)
        return self._as_type(cursor.pos)

    def _as_type(self, start: int) -> Attribute:
        self.cursor.pos = start
        word = self.cursor.peek(WORD)
        if not find_element_type(str(word)) and not _TYPE_WORD.fullmatch(str(word)):
            self.cursor.expected("an attribute")
        return TypeAttr(self.types.read())

    def _string(self) -> Attribute:
        value = self.cursor.string()
        if self.cursor.at(":") and not self.cursor.at("::"):
            self.cursor.accept(":")
            self.types.read()
        return StringAttr(value)

    def _symbol(self) -> Attribute:
        cursor = self.cursor
        name = cursor.symbol()
        while cursor.accept("::"):
            name += f"::@{cursor.symbol()}"
        return SymbolAttr(name)

    def _number(self) -> Attribute:
        cursor = self.cursor
        start = cursor.pos
        text = cursor.take(NUMBER)
        spelling = ""
        if cursor.accept(":"):
            spelling = cursor.take(_SCALAR_TYPE, "the type of the number")
        hexadecimal = "x" in text
        if not spelling:
            spelling = "f64" if "." in text else "i64"
        if spelling == "index" or re.fullmatch(r"[us]?i[0-9]+", spelling):
            if "." in text:
                cursor.fail(f"expected an integer of type {spelling}, found {text}", start)
            return IntegerAttr(self._checked_integer(text, spelling, start), spelling)
        row = find_element_type(spelling)
        if not isinstance(row, FloatFormat):
            cursor.fail(f"unknown type {spelling!r} of a number", start)
        if not hexadecimal and len(text) > 400:
            cursor.fail("the number has too many digits", start)
        return FloatAttr(self._checked_float(text, row, start), spelling)

    def _checked_integer(self, text: str, spelling: str, start: int) -> int:
        bits = 64 if spelling == "index" else int(spelling.lstrip("usi")[:6])
        if len(text) > 5000 or bits > 4096:
            self.cursor.fail(f"{text[:40]} is out of range for {spelling}", start)
        value = int(text, 16) if "x" in text else int(text) if len(text) < 4000 else 1 << 4096
        low = 0 if spelling.startswith("u") else -(1 << max(bits - 1, 0))
        if not low <= value < 1 << bits:
            self.cursor.fail(f"{text[:40]} is out of range for {spelling}", start)
        if spelling[0] in "is" and spelling != "i1" and bits and value >= 1 << (bits - 1):
            value -= 1 << bits
        return value

    def _checked_float(self, text: str, row: FloatFormat, start: int) -> float:
        if "x" in text:
            pattern = int(text, 16)
            if pattern < 0 or pattern >> row.bits:
                self.cursor.fail(f"{text[:40]} is out of range for {row}", start)
            return float_from_bits(pattern, row)
        return read_number(text, row)

    def _true(self) -> Attribute:
        return BoolAttr(True)

    def _false(self) -> Attribute:
        return BoolAttr(False)

    def _unit(self) -> Attribute:
        return UnitAttr()

    def _loc(self) -> Attribute:
        return OpaqueAttr(f"loc{self.cursor.balanced('(')}")

    def dense(self) -> Attribute:
        """Read what follows the word ``dense``."""
        start, end = read_dense_body(self.cursor)
        return dense(self.cursor, start, end, self._type_of_dense())

    def dense_resource(self) -> Attribute:
        """Read what follows the word ``dense_resource``."""
        cursor = self.cursor
        start = cursor.pos
        cursor.expect("<")
        at = cursor.pos
        name = cursor.take(_NAME, "the name of a resource").strip('"')
        cursor.expect(">")
        type = self._type_of_dense()
        resource = self.resources.get(name)
        if resource is None and name == ELIDED:
            return elided(cursor, start, type)
        if resource is None:
            cursor.fail(f"no resource {name!r} in this text", at)
        return from_resource(cursor, start, resource, type)

    def _type_of_dense(self) -> TensorType:
        cursor = self.cursor
        cursor.expect(":")
        start = cursor.pos
        type = self.types.read()
        if not isinstance(type, TensorType):
            cursor.fail(f"expected a tensor type, found {type}", start)
        if isinstance(type.element_type, QuantizedType) and not self._in_constant:
            stored = type.with_element_type(type.element_type.storage_element)
            cursor.fail(
                f"elements are numbers, not {type.element_type}: write the stored integers, of type {stored}", start
            )
        return type

    def _array(self) -> Attribute:
        cursor = self.cursor
        cursor.expect("<")
        start = cursor.pos
        name = cursor.take(_SCALAR_TYPE, "an element type")
        row = find_element_type(name)
        if not isinstance(row, (IntegerType, FloatFormat, BooleanType)):
            cursor.fail(f"expected an integer or float type, found {name!r}", start)
        values: list[Any] = []
        if cursor.accept(":"):
            while True:
                values.append(self._array_element(row))
                if not cursor.accept(","):
                    break
        cursor.expect(">")
        return DenseArrayAttr(name, tuple(values))

    def _array_element(self, row: IntegerType | FloatFormat | BooleanType) -> Any:
        cursor = self.cursor
        if isinstance(row, BooleanType):
            word = cursor.take(re.compile(r"true|false|[01]\b"), "true or false")
            return word in ("true", "1")
        if isinstance(row, FloatFormat):
            start = cursor.pos
            return self._checked_float(cursor.take(NUMBER), row, start)
        return cursor.integer(minimum=row.minimum, maximum=row.maximum)

    def _hash(self) -> Attribute:
        cursor = self.cursor
        start = cursor.pos
        cursor.pos += 1
        name = cursor.take(_ALIAS_NAME, "the name of an attribute after '#'")
        if name in self.aliases:
            return self.alias(name)
        if "." not in name and not cursor.at("<"):
            cursor.fail(f"undefined attribute alias #{name}", start)
        if name.startswith(("stablehlo", "chlo", "mhlo")):
            record = _RECORDS.get(name.partition(".")[2])
            if record is not None and cursor.at("<"):
                return record(self.records)
        text = f"#{name}"
        while cursor.at("<"):
            text += self._with_aliases_replaced(cursor.balanced("<"))
        if cursor.at(":") and not cursor.at("::"):  # a typed attribute of another dialect
            here = cursor.pos
            cursor.accept(":")
            if cursor.peek(WORD) is None and not cursor.at("!"):
                cursor.pos = here
            else:
                text += f" : {self.types.read()}"
        return OpaqueAttr(text)

    def alias(self, name: str) -> Attribute:
        """The attribute that ``#name`` stands for."""
        cursor = self.cursor
        known = self._read_aliases.get(name)
        if known is None:
            if name in self._open_aliases:
                cursor.fail(f"alias #{name} refers to itself", self.aliases[name])
            self._open_aliases.add(name)
            here, outer_high, outer_size = cursor.pos, self._deepest, self._size
            cursor.pos, self._deepest = self.aliases[name], cursor.depth
            found = self.read()
            known = (found, cursor.pos, self._deepest - cursor.depth, self._size - outer_size)
            self._read_aliases[name] = known
            cursor.pos, self._deepest, self._size = here, outer_high, outer_size
            self._open_aliases.discard(name)
        found, _, depth, size = known
        # An alias counts as what it stands for: a few lines of aliases could else spell gigabytes.
        self._deepest = max(self._deepest, cursor.depth + depth)
        self._size += size
        if self._deepest > NESTING_LIMIT:
            cursor.fail(f"with its aliases, nesting is deeper than {NESTING_LIMIT} levels")
        if self._size > _SIZE_LIMIT:
            cursor.fail(f"with its aliases, this attribute has more than {_SIZE_LIMIT} parts")
        return found

    def definition(self, name: str) -> None:
        """Read the definition of an alias, at which the cursor stands, and move over it."""
        self._size = 0
        self.alias(name)
        self.cursor.pos = self._read_aliases[name][1]

    def _with_aliases_replaced(self, text: str) -> str:
        if "#" not in text:
            return text

        def replace(match: re.Match[str]) -> str:
            name = match[1]
            if name is None or name not in self.aliases:
                return match[0]
            return print_attribute(self.alias(name))

        replaced = _REFERENCE.sub(replace, text)
        if len(replaced) > max(len(text), 1 << 24):
            self.cursor.fail("with its aliases, this attribute is longer than 16 MB")
        return replaced

    def _text_of_attribute(self) -> str:
        return print_attribute(self.read())


_RECORDS: Final = RECORDS | MESH_RECORDS

_BY_WORD: Final[dict[str, Callable[[AttributeReader], Attribute]]] = {
    "true": AttributeReader._true,
    "false": AttributeReader._false,
    "unit": AttributeReader._unit,
    "dense": AttributeReader.dense,
    "dense_resource": AttributeReader.dense_resource,
    "array": AttributeReader._array,
    "loc": AttributeReader._loc,
}
