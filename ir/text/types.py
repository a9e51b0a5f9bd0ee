"""Reading types: ``tensor<2x?xf32>``, tuples, tokens, function types, quantized element types, foreign types."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Final

from hlojit.ir.environment import ELEMENT_TYPES, tables
from hlojit.ir.formats import (
    INDEX,
    ElementType,
    FloatFormat,
    IntegerType,
    QuantizedType,
    element_types,
    find_element_type,
)
from hlojit.ir.quantized import element_complaint, quantized_type
from hlojit.ir.text.decimals import read_decimals
from hlojit.ir.text.lexer import KEYWORD, NESTING_LIMIT, NUMBER, WORD, Cursor
from hlojit.ir.types import (
    BOUNDS_PREFIX,
    DYNAMIC,
    TOKEN,
    FunctionType,
    TensorType,
    Type,
    buffer_type,
    function_type,
    future_type,
    opaque_type,
    scalar,
    tensor,
    tuple_type,
    unranked,
)

_SIZE_LIMIT: Final = 1 << 20
_DIMENSIONS: Final = re.compile(r"(?:(?:[0-9]+|\?)x)*")
_SIMPLE_TENSOR: Final = re.compile(r"tensor<((?:(?:[0-9]{1,18}|\?)x)*)([A-Za-z]\w*|complex<f(?:32|64)>)>")
_ELEMENT_NAME: Final = re.compile(r"[A-Za-z]\w*")
_BOUNDS: Final = re.compile(
    r"#(?:stablehlo|mhlo)\.(?:bounds<([^<>]*)>|type_extensions<\s*bounds\s*=\s*\[([^\[\]]*)\]\s*>)"
)
_BUILTIN: Final = re.compile(r"none|index|(?:i|ui|si)[0-9]+|b?f[0-9]+\w*|tf32|complex|vector|memref")


class TypeReader:
    """Reads types; what it has once read it knows by its text.

    ``aliases`` are the positions of definitions ``!name = ...``; ``attribute_text`` reads the encoding of a tensor.
    """

    def __init__(self, cursor: Cursor):
        self.cursor = cursor
        self.known: dict[str, Type] = {}
        self._read_aliases: dict[str, Type | None] = {}
        self._measures: dict[Type, tuple[int, int]] = {}
        self.aliases: dict[str, int] = {}
        self.attribute_text: Callable[[], str] = cursor.balanced

    def read(self) -> Type:
        """Read one type."""
        cursor = self.cursor
        match = _SIMPLE_TENSOR.match(cursor.text, cursor.pos)
        if match is not None:
            found = self.known.get(match[0])
            if found is None:
                row = find_element_type(match[2])
                if row is None:
                    return self._tensor()
                found = self.known[match[0]] = self._checked_tensor(dimensions(match[1]), row, "", cursor.pos)
            cursor.pos = match.end()
            cursor.skip_blank()
            return found
        cursor.enter()
        found = self._other()
        cursor.leave()
        return found

    def tensor(self) -> TensorType:
        """Read one tensor type."""
        start = self.cursor.pos
        found = self.read()
        if not isinstance(found, TensorType):
            self.cursor.fail(f"expected a tensor type, found {found}", start)
        return found

    def function(self) -> FunctionType:
        """Read ``(A, B) -> R`` or ``(A, B) -> (R, S)``."""
        cursor = self.cursor
        inputs = cursor.items("(", ")", self.read)
        cursor.expect("->")
        results = self.results()
        type = function_type(inputs, results)
        self._measured(type, [*inputs, *results])
        return type

    def results(self) -> list[Type]:
        """Read ``R`` or ``(R, S)``."""
        cursor = self.cursor
        if not cursor.at("("):
            return [self.read()]
        start = cursor.pos
        items = cursor.items("(", ")", self.read)
        if not cursor.at("->"):
            return items
        cursor.pos = start
        return [self.read()]

    def listing(self) -> list[Type]:
        """Read ``A, B, C`` (at least one)."""
        found = [self.read()]
        while self.cursor.accept(","):
            found.append(self.read())
        return found

    def _other(self) -> Type:
        cursor = self.cursor
        if cursor.at("!"):
            return self._dialect_type()
        if cursor.at("("):
            return self.function()
        word = cursor.peek(WORD)
        if word == "tensor":
            return self._tensor()
        if word == "tuple":
            cursor.take(WORD)
            elements = cursor.items("<", ">", self.read)
            return self._measured(tuple_type(elements), elements)
        if word is not None and (find_element_type(word) or _BUILTIN.fullmatch(word)):
            start = cursor.pos
            cursor.take(WORD)
            if word == "memref" and cursor.at("<"):
                return self._buffer()
            body = cursor.balanced("<") if cursor.at("<") else ""
            if word == "tensor":
                cursor.fail("expected a type", start)
            if not body and (row := INDEX if word == INDEX.name else find_element_type(word)):
                return scalar(row)
            return opaque_type(word + body)
        cursor.expected("a type")

    def _dialect_type(self) -> Type:
        cursor = self.cursor
        start = cursor.pos
        cursor.pos += 1
        name = cursor.peek(KEYWORD)
        if name is None:
            cursor.expected("the name of a type after '!'")
        cursor.pos += len(name)
        if name == "stablehlo.token":
            cursor.skip_blank()
            return TOKEN
        if name == "stablehlo.future":
            return self._future()
        if cursor.at("<"):
            return opaque_type(f"!{name}{cursor.balanced('<')}")
        cursor.skip_blank()
        if name.startswith("stablehlo.") and name not in self.aliases:
            cursor.fail(
                f"unknown type !{name} of StableHLO; expected !stablehlo.token or !stablehlo.future<...>", start
            )
        if name in self.aliases:
            return self._alias(name)
        if "." not in name:
            cursor.fail(f"undefined type alias !{name}", start)
        return opaque_type(f"!{name}")

    def _alias(self, name: str) -> Type:
        found = self._read_aliases.get(name)
        if found is None:
            cursor = self.cursor
            if name in self._read_aliases:
                cursor.fail(f"alias !{name} refers to itself", self.aliases[name])
            self._read_aliases[name] = None
            here, cursor.pos = cursor.pos, self.aliases[name]
            found = self._read_aliases[name] = self.read()
            cursor.pos = here
        return found

    def _measured(self, type: Type, parts: Sequence[Type]) -> Type:
        """Check depth and size of a type with parts, which aliases could make as large as they like."""
        if type not in self._measures:
            measures = [self._measures.get(part, (1, 1)) for part in parts]
            depth = 1 + max((depth for depth, _ in measures), default=0)
            size = 1 + sum(size for _, size in measures)
            if depth > NESTING_LIMIT or size > _SIZE_LIMIT:
                self.cursor.fail("with its aliases, this type nests too deep or has too many parts")
            self._measures[type] = (depth, size)
        return type

    def _tensor(self) -> Type:
        cursor = self.cursor
        start = cursor.pos
        cursor.expect_word("tensor")
        cursor.expect("<")
        if cursor.accept("*"):
            return self._unranked()
        match = _DIMENSIONS.match(cursor.text, cursor.pos)
        assert match is not None
        shape = dimensions(match[0])
        cursor.pos = match.end()
        element = self.element()
        encoding = ""
        if cursor.accept(","):
            encoding = self.attribute_text()
        cursor.expect(">")
        return self._checked_tensor(shape, element, self._bounds(encoding, shape, start), start)

    def _bounds(self, encoding: str, shape: tuple[int, ...], start: int) -> str:
        """The one spelling of an encoding that gives bounds, which must fit the shape; other encodings as they are."""
        match = _BOUNDS.fullmatch(encoding)
        if match is None:
            return encoding
        body = (match[1] or match[2] or "").strip()
        words = [word.strip() for word in body.split(",")] if body else []
        if any(re.fullmatch(r"\?|[0-9]{1,18}", word) is None for word in words):
            self.cursor.fail(f"expected a size or '?' for each bound, found {encoding}", start)
        if len(words) != len(shape):
            self.cursor.fail(f"there are {len(words)} bounds, expected {len(shape)}, one for each dimension", start)
        for dimension, (word, extent) in enumerate(zip(words, shape)):
            if word != "?" and extent != DYNAMIC:
                self.cursor.fail(f"dimension {dimension} of size {extent} must have no bound but '?'", start)
        return f"{BOUNDS_PREFIX}{', '.join(words)}>"

    def _unranked(self) -> Type:
        cursor = self.cursor
        if not cursor.at("x"):
            cursor.expected("'x' and an element type behind '*'")
        cursor.pos += 1
        element = self.element()
        cursor.expect(">")
        return unranked(element)

    def _future(self) -> Type:
        cursor = self.cursor
        cursor.skip_blank()

        def element() -> Type:
            start = cursor.pos
            found = self.read()
            if not isinstance(found, TensorType):
                cursor.fail(f"a future holds tensors of known rank, found {found}", start)
            return found

        elements = cursor.items("<", ">", element)
        if not elements:
            cursor.expected("a tensor type in '!stablehlo.future<...>'")
        return self._measured(future_type(elements), elements)

    def _buffer(self) -> Type:
        """Read what follows ``memref``: dimensions and element type, and a layout that is kept as text."""
        cursor = self.cursor
        start = cursor.pos
        text = cursor.balanced("<")
        end, cursor.pos = cursor.pos, start
        cursor.expect("<")
        match = _DIMENSIONS.match(cursor.text, cursor.pos)
        assert match is not None
        found = _ELEMENT_NAME.match(cursor.text, match.end())
        element = find_element_type(found[0]) if found is not None else None
        if found is None or element is None or match[0].startswith("*"):
            cursor.pos = end  # of elements that are no numbers
            return opaque_type(f"memref{text}")
        cursor.pos = found.end()
        cursor.skip_blank()
        layout = ""
        if cursor.at(","):
            layout = text[text.index(",") + 1 : -1].strip()
        elif not cursor.at(">"):
            cursor.pos = end
            return opaque_type(f"memref{text}")
        cursor.pos = end
        shape = dimensions(match[0])
        if any(extent >= 1 << 63 for extent in shape):
            cursor.fail("a dimension is out of range", start)
        return buffer_type(shape, element, layout)

    def _checked_tensor(self, shape: tuple[int, ...], element: ElementType, encoding: str, start: int) -> TensorType:
        size = 1
        for extent in shape:
            if extent >= 1 << 63:
                self.cursor.fail(f"dimension {extent} is out of range", start)
            size *= max(extent, 1)
        if size * element.itemsize >= 1 << 63:
            self.cursor.fail("the tensor has more bytes than can be addressed", start)
        return tensor(shape, element, encoding)

    def element(self) -> ElementType:
        """Read an element type."""
        cursor = self.cursor
        if cursor.at("!"):
            return self._quantized()
        start = cursor.pos
        name = cursor.take(_ELEMENT_NAME, "a dimension or an element type")
        if name == "complex":
            name += cursor.balanced("<").replace(" ", "")
        if name == "index":
            return INDEX
        row = find_element_type(name)
        if row is None:
            known = [row.name for row in element_types()]
            near = get_close_matches(name, known, 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else f"; known are {', '.join(known)}"
            cursor.fail(f"unknown element type {name!r}{hint}{tables().who_brings(ELEMENT_TYPES, name)}", start)
        return row

    def _quantized(self) -> ElementType:
        cursor = self.cursor
        start = cursor.pos
        cursor.pos += 1
        name = cursor.take(KEYWORD)
        registered = find_element_type(f"!{name}")
        if registered is not None:
            return registered
        if name in self.aliases:
            here, cursor.pos = cursor.pos, self.aliases[name]
            cursor.enter()
            row = self.element()
            cursor.leave()
            cursor.pos = here
            return row
        if name != "quant.uniform":
            cursor.fail(f"unknown element type !{name}; expected !quant.uniform<...>", start)
        cursor.expect("<")
        element = self._uniform()
        cursor.expect(">")
        complaint = element_complaint(element)
        if complaint is not None:
            cursor.fail(f"({complaint[0]}): {complaint[1]}" if complaint[0] else complaint[1], start)
        return element

    def _uniform(self) -> QuantizedType:
        """``storage<min:max>:expressed:axis, parameters``, and ``:{dimension:size, ...}`` in place of an axis."""
        cursor = self.cursor
        storage = self._storage()
        low = high = None
        if cursor.accept("<"):
            low = cursor.integer()
            cursor.expect(":")
            high = cursor.integer()
            cursor.expect(">")
        cursor.expect(":")
        expressed = cursor.take(_ELEMENT_NAME, "the expressed element type")
        axis = None
        blocks: list[tuple[int, int]] = []
        if cursor.accept(":"):
            if cursor.at("{"):
                blocks = cursor.items("{", "}", self._block) or cursor.expected("a quantized dimension")
            else:
                axis = cursor.integer("the quantized dimension", minimum=0)
        cursor.expect(",")
        parameters: list[tuple[str, int]] = []
        grid: list[int] = []
        if axis is None and not blocks:
            self._parameters(parameters)
        elif blocks:
            grid = self._parameter_tree(parameters)
        else:
            cursor.items("{", "}", lambda: self._parameters(parameters))
        words, zeros = zip(*parameters) if parameters else ((), ())
        scales = _scales(words, find_element_type(expressed))
        return quantized_type(
            storage, expressed, scales, zeros, axis, storage_min=low, storage_max=high, blocks=blocks, grid=grid
        )

    def _block(self) -> tuple[int, int]:
        dimension = self.cursor.integer("a quantized dimension", minimum=0)
        self.cursor.expect(":")
        return dimension, self.cursor.integer("the size of its blocks", minimum=1)

    def _storage(self) -> str:
        cursor = self.cursor
        start = cursor.pos
        name = cursor.take(_ELEMENT_NAME, "the storage type")
        if name.startswith("u") and find_element_type(f"ui{name[1:]}"):
            name = f"ui{name[1:]}"
        if not isinstance(find_element_type(name), IntegerType):
            cursor.fail(f"{name!r} is no storage type; expected an integer type", start)
        return name

    def _parameters(self, parameters: list[tuple[str, int]]) -> None:
        cursor = self.cursor
        start = cursor.pos
        scale = cursor.take(NUMBER, "a scale")
        if "x" in scale:
            cursor.fail("expected a decimal number for a scale", start)
        parameters.append((scale, cursor.integer("a zero point") if cursor.accept(":") else 0))

    def _parameter_tree(self, parameters: list[tuple[str, int]]) -> list[int]:
        """Read nested braces with parameters; return the shape of the array that they are."""
        cursor = self.cursor
        if not cursor.at("{"):
            self._parameters(parameters)
            return []
        start = cursor.pos
        cursor.enter()
        shapes = cursor.items("{", "}", lambda: self._parameter_tree(parameters))
        cursor.leave()
        if any(shape != shapes[0] for shape in shapes):
            cursor.fail("lists of scales of one level must have one size", start)
        return [len(shapes), *(shapes[0] if shapes else [])]


def _scales(words: Sequence[str], expressed: ElementType | None) -> list[float]:
    """Scales, which round once to the expressed type; what f64 does not hold is infinite, for the checks to say."""
    scales = list(map(float, words))
    if not isinstance(expressed, FloatFormat) or not all(map(isfinite, scales)):
        return scales
    return read_decimals(words, expressed)


def dimensions(text: str) -> tuple[int, ...]:
    """``2x?x3x`` as a tuple."""
    return tuple(DYNAMIC if word == "?" else int(word[:30]) for word in text.split("x")[:-1])
