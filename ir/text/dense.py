"""Reading and printing the elements of constants: ``dense<...>``, in bulk.

A list of numbers is checked and converted as a whole: what remains of it without its digits must be exactly the
brackets and commas that the type asks for, and the digits go through ``float`` or ``int`` in pieces of bounded size.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final

import numpy as np
from hlojit.ir.attributes import Dense, ElidedElements
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.formats import (
    BooleanType,
    ComplexType,
    ElementType,
    FloatFormat,
    IntegerType,
    QuantizedType,
    element_type,
)
from hlojit.ir.text.decimals import encode_floats, read_decimals
from hlojit.ir.text.lexer import STRING, Cursor
from hlojit.ir.types import TensorType

Array = np.ndarray[Any, Any]

_SCALAR: Final = re.compile(r"\s*(?:-?(?:0x[0-9a-fA-F]+|[0-9]+(?:\.[0-9]*(?:[eE][-+]?[0-9]+)?)?)|true|false)\s*")
_NUMERAL: Final = b"0123456789+-.eE"
_HEX: Final = b"xXabcdefABCDEF"
_BLANKS: Final = b" \t\r\n"
_PIECE: Final = 1 << 20
_HEX_FROM: Final = 100
_RANK_LIMIT: Final = 64  # NumPy's


class Resource:
    """A blob of the ``{-# dialect_resources #-}`` section: decoded when it is first asked for."""

    def __init__(self, text: str, pos: int, end: int):
        self.text = text
        self.pos = pos
        self.end = end
        self.taken = False

    def data(self, cursor: Cursor) -> tuple[bytes, int]:
        """The bytes, and the offset at which the elements begin (a 4-byte alignment stands before them)."""
        raw = hex_bytes(cursor, self.pos, self.end)
        if len(raw) < 4:
            cursor.fail("expected a blob of at least 4 bytes (its alignment)", self.pos)
        return raw, 4


def read_dense_body(cursor: Cursor) -> tuple[int, int]:
    """Move over ``<...>`` after ``dense``; return where its inside begins and ends."""
    cursor.expect("<")
    start = cursor.pos
    string = STRING.match(cursor.text, start) if cursor.at('"') else None
    end = cursor.text.find(">", string.end() if string else start)
    if end < 0:
        cursor.fail("expected '>' to close these elements", start)
    cursor.pos = end + 1
    cursor.skip_blank()
    return start, end


def dense(cursor: Cursor, start: int, end: int, type: TensorType) -> Dense:
    """The elements that stand between two positions, as ``type`` says."""
    _check_shape(cursor, start, type)
    if cursor.text.startswith('"', start):
        stop = cursor.text.rfind('"', start, end)
        return _from_bytes(cursor, start, hex_bytes(cursor, start, stop + 1), 0, type)
    if _SCALAR.fullmatch(cursor.text, start, end) or cursor.text.startswith("(", start):
        values = _convert_all(cursor, start, cursor.text[start:end].encode("utf-8", "replace"), 1, type)
        return splat(type, values.reshape(()))
    body = cursor.text[start:end].encode("utf-8", "replace")
    if body.isspace() or not body:
        if type.size != 0:
            cursor.fail(f"expected {type.size} elements for {type}, found none", start)
        return _frozen(type, np.zeros(type.shape, type.element_type.storage))
    return _frozen(type, _convert_all(cursor, start, body, type.size, type).reshape(type.shape))


def _check_shape(cursor: Cursor, pos: int, type: TensorType) -> None:
    if not type.is_static:
        cursor.fail(f"a constant needs a static shape, found {type}", pos)
    if len(type.shape) > _RANK_LIMIT:
        cursor.fail(f"a constant has at most {_RANK_LIMIT} dimensions, found {len(type.shape)}", pos)


def splat(type: TensorType, value: Array) -> Dense:
    """All elements are ``value``, which is kept once."""
    value = np.array(value, type.element_type.storage)
    value.flags.writeable = False
    return Dense(type, np.broadcast_to(value, type.shape))


def from_resource(cursor: Cursor, pos: int, resource: Resource, type: TensorType) -> Dense:
    """The elements of a ``dense_resource``."""
    _check_shape(cursor, pos, type)
    raw, offset = resource.data(cursor)
    resource.taken = True
    return _from_bytes(cursor, pos, raw, offset, type, may_splat=False)


def elided(cursor: Cursor, pos: int, type: TensorType) -> ElidedElements:
    """What stands in the place of elements that were not printed."""
    _check_shape(cursor, pos, type)
    return ElidedElements(type)


def hex_bytes(cursor: Cursor, start: int, end: int) -> bytes:
    """Bytes of ``"0x..."``, of which ``start`` and ``end`` are the outer ends."""
    text = cursor.text
    if not text.startswith('"0x', start):
        cursor.fail('expected a string of hexadecimal digits that begins with "0x"', start)
    digits = text[start + 3 : end - 1]
    try:
        data = bytes.fromhex(digits)
    except ValueError:
        data = b""
    if 2 * len(data) != len(digits):
        bad = re.search(r"[^0-9a-fA-F]", digits)
        if bad is not None:
            cursor.fail(f"expected a hexadecimal digit, found {bad[0]!r}", start + 3 + bad.start())
        cursor.fail(f"expected an even number of hexadecimal digits, found {len(digits)}", end - 1)
    return data


def _frozen(type: TensorType, array: Array) -> Dense:
    array.flags.writeable = False
    return Dense(type, array)


def _from_bytes(
    cursor: Cursor, pos: int, raw: bytes, offset: int, type: TensorType, *, may_splat: bool = True
) -> Dense:
    element = type.element_type
    count = len(raw) - offset
    if isinstance(element, BooleanType) and count != type.size and count == (type.size + 7) // 8 and count > 1:
        bits = np.unpackbits(np.frombuffer(raw, np.uint8, offset=offset), count=type.size, bitorder="little")
        return _frozen(type, bits.astype(np.bool_).reshape(type.shape))
    size = type.element_type.itemsize
    if count == size and type.size != 1 and may_splat:
        return splat(type, _checked(cursor, pos, np.frombuffer(raw, _stored(element), 1, offset), element).reshape(()))
    if count != type.size * size:
        cursor.fail(f"expected {type.size * size} bytes for {type}, found {count}", pos)
    array = np.frombuffer(raw, _stored(element), type.size, offset)
    return _frozen(type, _checked(cursor, pos, array, element).reshape(type.shape))


def _stored(element: ElementType) -> np.dtype[Any]:
    """How raw bytes hold elements: always little-endian; bool as bytes that are yet to be normalized."""
    return np.dtype(np.uint8) if isinstance(element, BooleanType) else element.storage.newbyteorder("<")


def _checked(cursor: Cursor, pos: int, array: Array, element: ElementType) -> Array:
    if isinstance(element, BooleanType):
        return array if array.dtype == np.bool_ else array & 1 != 0
    if isinstance(element, IntegerType) and element.bits < 8:
        # Only the low bits count; above them stands whatever the writer left there.
        shift = 8 - element.bits
        return (array << shift) >> shift
    return array.astype(element.storage, copy=False)


def _skeleton(type: TensorType, element: bytes, shape: tuple[int, ...]) -> bytes:
    """Brackets and commas of a list of this shape."""
    if not shape:
        return element
    if 0 in shape:
        shape = shape[: shape.index(0) + 1]
        element = b""
    inner = element
    for extent in reversed(shape):
        # Repetition, not ``join``, which keeps 80 bytes for each item.
        inner = b"[" + ((inner + b",") * extent)[:-1] + b"]"
    return inner


def _convert_all(cursor: Cursor, start: int, body: bytes, count: int, type: TensorType) -> Array:
    """Check the nesting of the list ``body`` and convert its elements, flat."""
    element = type.element_type
    is_list = body.startswith(b"[")
    converter = _converter(element, b"x" in body)
    plausible = not is_list or math.prod(extent or 1 for extent in _listed(type.shape)) <= len(body)
    expected = _skeleton(type, converter.unit, type.shape if is_list else ()) if plausible else b""
    if not plausible or body.translate(None, converter.allowed + _BLANKS) != expected:
        _complain(cursor, start, body, type, converter)
    flat = body.translate(None, b"[]()\r\n\t ")
    size = count * (2 if isinstance(element, ComplexType) else 1)
    # What is written decides how much memory is taken: a type may claim any size.
    out = np.empty(min(size, flat.count(b",") + 1), _intermediate(element))
    position = done = 0
    while count and position < len(flat):
        stop = flat.find(b",", position + _PIECE)
        stop = len(flat) if stop < 0 else stop
        words = flat[position:stop].split(b",")
        try:
            out[done : done + len(words)] = converter.convert(words, done)
        except (ValueError, OverflowError, KeyError):
            _bad_element(cursor, start, body, done, converter)
        done += len(words)
        position = stop + 1
    if done != size:
        cursor.fail(f"expected {count} elements for {type}", start)
    return converter.finish(out)


def _listed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions that show in a list: those up to the first empty one."""
    return shape[: shape.index(0)] if 0 in shape else shape


def _intermediate(element: ElementType) -> Any:
    if isinstance(element, QuantizedType):
        return element_type(element.storage_type).storage
    if isinstance(element, FloatFormat) and element.in_integers:
        return element.storage
    if isinstance(element, (FloatFormat, ComplexType, BlockFormat)):
        return np.float64
    return element.storage


class Converter(ABC):
    """How the words of a list become the elements of one type."""

    allowed: bytes = _NUMERAL
    """Characters that an element may consist of."""
    unit: bytes = b""
    """What is left of an element without them."""

    def __init__(self, element: ElementType):
        self.element = element

    @abstractmethod
    def convert(self, words: list[bytes], index: int) -> list[Any]:
        """Convert words, of which the first is the element ``index``; raise if one is malformed or out of range."""

    def finish(self, values: Array) -> Array:
        """The flat array in the type's storage dtype."""
        return values


class BooleanConverter(Converter):
    """``true`` and ``false``, or 0 and 1."""

    allowed = _NUMERAL + b"trufals"
    words: ClassVar[dict[bytes, bool]] = {b"true": True, b"false": False, b"1": True, b"0": False, b"-1": True}

    def convert(self, words: list[bytes], index: int) -> list[Any]:
        """See the base class."""
        return list(map(self.words.__getitem__, words))


class IntegerConverter(Converter):
    """Decimal and hexadecimal integers; a signed type also takes the unsigned number of the same bits."""

    def __init__(self, element: IntegerType, has_hex: bool):
        super().__init__(element)
        self.allowed = _NUMERAL[:12] + (_HEX if has_hex else b"")
        self.has_hex = has_hex
        self.low = element.minimum
        self.high = (1 << element.bits) - 1
        self.maximum = element.maximum

    def convert(self, words: list[bytes], index: int) -> list[Any]:
        """See the base class."""
        if self.has_hex:
            values = [int(word, 16) if b"x" in word else int(word) for word in words]
        else:
            values = list(map(int, words))
        largest = max(values)
        if min(values) < self.low or largest > self.high:
            raise OverflowError
        if largest > self.maximum:
            return [value - (self.high + 1) if value > self.maximum else value for value in values]
        return values


class FloatConverter(Converter):
    """Decimal floats, and hexadecimal bit patterns for those that are not finite."""

    def __init__(self, element: FloatFormat | ComplexType, has_hex: bool):
        super().__init__(element)
        self.allowed = _NUMERAL + (_HEX if has_hex else b"")
        self.unit = b"(,)" if isinstance(element, ComplexType) else b""
        part = element_type(element.component) if isinstance(element, ComplexType) else element
        assert isinstance(part, FloatFormat)
        self.part = part
        self.has_hex = has_hex
        self.patterns: list[tuple[int, int]] = []

    def convert(self, words: list[bytes], index: int) -> list[Any]:
        """See the base class."""
        if not self.has_hex:
            return read_decimals(words, self.part)
        decimals = list(words)
        for at, word in enumerate(words):
            if b"x" not in word:
                continue
            pattern = int(word, 16)
            if pattern < 0 or pattern >> self.part.bits:
                raise OverflowError
            self.patterns.append((index + at, pattern))
            decimals[at] = b"0"
        return read_decimals(decimals, self.part)

    def finish(self, values: Array) -> Array:
        """Round to the format and put the bit patterns where they belong."""
        out = np.ascontiguousarray(encode_floats(values, self.part))
        if self.patterns:
            bits = out.view(self.part.storage_bits)
            positions, patterns = zip(*self.patterns)
            bits[list(positions)] = np.array(patterns, self.part.storage_bits)
        return out.view(self.element.storage) if isinstance(self.element, ComplexType) else out


class ExactConverter(FloatConverter):
    """Decimals for formats that no native float can carry: what is written is rounded once."""

    def convert(self, words: list[bytes], index: int) -> list[Any]:
        """See the base class."""
        from hlojit.ir.scalar.exact_numbers import encode_numbers, number_of

        patterns = {at: int(word, 16) for at, word in enumerate(words) if b"x" in word}
        if any(pattern < 0 or pattern >> self.part.bits for pattern in patterns.values()):
            raise OverflowError
        numbers = [0 if at in patterns else number_of(word.decode()) for at, word in enumerate(words)]
        coded = list(encode_numbers(numbers, self.part))
        return [patterns.get(at, code) for at, code in enumerate(coded)]

    def finish(self, values: Array) -> Array:
        """They are codes."""
        return values


def _converter(element: ElementType, has_hex: bool) -> Converter:
    if isinstance(element, QuantizedType):
        element = element_type(element.storage_type)
    if isinstance(element, BlockFormat):
        element = element_type("f32")
    if isinstance(element, BooleanType):
        return BooleanConverter(element)
    if isinstance(element, IntegerType):
        return IntegerConverter(element, has_hex)
    assert isinstance(element, (FloatFormat, ComplexType))
    is_exact = isinstance(element, FloatFormat) and element.in_integers
    return (ExactConverter if is_exact else FloatConverter)(element, has_hex)


def _complain(cursor: Cursor, start: int, body: bytes, type: TensorType, converter: Converter) -> None:
    """Say where a list departs from the shape of its type (slow, for messages only)."""
    text = cursor.text[start : start + len(body)]
    allowed = frozenset(converter.allowed.decode())
    for match in re.finditer(r"[^\s,()\[\]]+", text):
        if not allowed.issuperset(match[0]):
            cursor.fail(
                f"expected a number of type {type.element_type}, found {match[0][:40]!r}", start + match.start()
            )
    gap = re.search(r"(?:[\w.]\s+|[\])]\s*)(?=[-\w.(\[])", text)
    if gap is not None:
        cursor.fail(f"expected ',' between elements, found {text[gap.end()]!r}", start + gap.end())
    depth = 0
    counts = [0] * (len(type.shape) + 1)
    for match in re.finditer(r"[\[\]]|\([^()\[\]]*\)|[^\[\](),\s]+|[()]", text):
        token, position = match[0], start + match.start()
        if token == "[":
            counts[depth] += 1
            depth += 1
            if depth > len(type.shape):
                cursor.fail(f"expected an element: lists of {type} nest {len(type.shape)} deep", position)
            counts[depth] = 0
        elif token == "]":
            depth -= 1
            if depth < 0:
                cursor.fail("unbalanced ']'", position)
            if counts[depth + 1] != type.shape[depth]:
                cursor.fail(
                    f"expected {type.shape[depth]} elements in dimension {depth} of {type}, found {counts[depth + 1]}",
                    position,
                )
        elif depth < len(type.shape):
            cursor.fail(f"expected '[' (lists of {type} nest {len(type.shape)} deep), found {token!r}", position)
        elif converter.unit and token.count(",") != 1:
            cursor.fail(f"expected (real, imaginary), found {token!r}", position)
        else:
            counts[depth] += 1
    cursor.fail(f"expected the elements of {type} as nested lists separated by commas", start)


def _bad_element(cursor: Cursor, start: int, body: bytes, skip: int, converter: Converter) -> None:
    """Find the word that could not be converted and raise for it."""
    text = cursor.text[start : start + len(body)]
    for index, match in enumerate(re.finditer(r"[^\[\](),]+", text)):
        word = match[0].strip()
        if index < skip or not word:
            continue
        try:
            converter.convert([word.encode()], 0)
        except (ValueError, KeyError):
            pos = start + match.start() + len(match[0]) - len(match[0].lstrip())
            cursor.fail(f"expected a number of type {converter.element}, found {word!r}", pos)
        except OverflowError:
            pos = start + match.start() + len(match[0]) - len(match[0].lstrip())
            cursor.fail(f"{word} is out of range for {converter.element}", pos)
    cursor.fail(f"expected numbers of type {converter.element} separated by commas", start)


def print_dense(value: Dense) -> str:
    """Spell the elements with their type: ``dense<[1, 2]> : tensor<2xi32>``; many of them as hexadecimal bytes.

    >>> import numpy as np
    >>> from hlojit.ir.types import tensor
    >>> print_dense(Dense(tensor((2,), "i32"), np.array([1, 2], np.int32)))
    'dense<[1, 2]> : tensor<2xi32>'

    Of quantized elements, the stored integers with the type of these.
    """
    element = value.type.element_type
    type = value.type.with_element_type(element.storage_element) if isinstance(element, QuantizedType) else value.type
    return f"dense<{print_elements(value)}> : {type}"


def print_elements(value: Dense) -> str:
    """What stands between the angle brackets."""
    element = value.type.element_type
    if value.array.size == 0:
        return ""
    if value.is_splat:
        return print_scalar(value.splat_value, element)
    if value.array.size > _HEX_FROM:
        array = np.ascontiguousarray(value.array)
        stored = array if array.dtype.byteorder != ">" else array.byteswap()
        return f'"0x{stored.tobytes().hex().upper()}"'
    words = [print_scalar(item, element) for item in value.array.ravel()]
    for extent in reversed(value.type.shape):
        words = [f"[{', '.join(words[i : i + extent])}]" for i in range(0, len(words), extent)]
    return words[0]


def print_scalar(item: Any, element: ElementType) -> str:
    """Spell one element so that reading it gives the same bits."""
    if isinstance(element, BooleanType):
        return "true" if item else "false"
    if isinstance(element, ComplexType):
        part = element_type(element.component)
        assert isinstance(part, FloatFormat)
        return f"({print_float(item.real, part)},{print_float(item.imag, part)})"
    if isinstance(element, BlockFormat):
        element = element_type("f32")
    if isinstance(element, FloatFormat):
        return print_float(item, element)
    return str(int(item))


def print_float(item: Any, element: FloatFormat) -> str:
    """Spell a float as a decimal, or by its bits where it is not finite."""
    if element.dtype is None:
        return f"0x{int(item):0{(element.bits + 3) // 4}X}"
    item = np.asarray(item, element.dtype)
    value = float(item)
    if value - value != 0:
        return f"0x{int(item.view(element.storage_bits)):0{(element.bits + 3) // 4}X}"
    short = f"{value:e}"
    if float(short) == value:
        return short
    # The shortest digits that read back to the same f32; other narrow formats are exact in f64.
    digits = str(item) if element.name == "f32" else repr(value)
    if "e" in digits and "." not in digits:
        digits = digits.replace("e", ".0e")
    return digits if "." in digits else f"{digits}.0"


def float_from_bits(pattern: int, element: FloatFormat) -> float:
    """The value of a bit pattern (the payload of a NaN is lost)."""
    if element.dtype is None:
        from hlojit.ir.scalar.arrays import decode_array

        return float(np.asarray(decode_array(np.array([pattern], element.storage_bits), element))[0])
    with np.errstate(invalid="ignore"):
        return float(np.array([pattern], element.storage_bits).view(element.dtype)[0])
