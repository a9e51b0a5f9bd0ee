"""Plain data to bytes and back, for files that other processes wrote: checked while it is read, and it never runs code.

    writer = Writer(RECORDS); writer.put({"name": "f", "sizes": (1, 2)}); data = writer.finish()
    Reader(data, RECORDS).value()

Values are None, booleans, integers of 64 bits, floats, text, tuples, lists, dictionaries, bytes, arrays, tensor types,
members of enumerations and *records*: instances of dataclasses that the table names.  A record that appears twice is one
object again when it is read.  ``docs/file-format.md`` says what the bytes mean.
"""

from __future__ import annotations

import enum
import struct
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.ir.fingerprint import NotKeyable
from hlojit.ir.formats import QuantizedType, find_element_type
from hlojit.ir.location import UNKNOWN
from hlojit.ir.quantized import element_complaint, parameters_of_type, quantized_type_of
from hlojit.ir.types import TensorType, tensor

MAXIMUM_DEPTH: Final = 150
"""Of values inside one another."""

_FIRST_USER_DTYPE: Final = 256
"""NumPy's numbers for dtypes that extensions bring begin here; those have no letters of their own."""

ALIGNMENT: Final = 64
"""Of bytes and arrays, counted from the start of the data."""

Records = Mapping[str, type]
"""Dataclasses and enumerations that may be read and written, by name."""


class FormatError(HlojitError):
    """Data that is not what ``Writer`` writes: damaged, cut off, or of another version."""


class _Tag(enum.IntEnum):
    NONE = 0
    FALSE = 1
    TRUE = 2
    INTEGER = 3
    FLOAT = 4
    TEXT = 5
    BYTES = 6
    TUPLE = 7
    LIST = 8
    MAPPING = 9
    RECORD = 10
    AGAIN = 11
    ARRAY = 12
    TENSOR_TYPE = 13
    MEMBER = 14
    UNKNOWN_LOCATION = 15


QUANTIZED: Final = "!quant.uniform"
"""What stands for the element type of a tensor of quantized numbers, whose parameters come behind the shape."""


def records_of(*modules: types.ModuleType) -> Records:
    """The table of all dataclasses and enumerations that modules define."""
    return {
        name: kind
        for module in modules
        for name, kind in vars(module).items()
        if isinstance(kind, type)
        and kind.__module__ == module.__name__
        and (hasattr(kind, "__dataclass_fields__") or issubclass(kind, enum.Enum))
    }


class Writer:
    """Collects values; ``finish`` returns the bytes.  What cannot be written raises ``NotKeyable``, which names it."""

    def __init__(self, records: Records):
        self._kinds = {kind: name for name, kind in records.items()}
        self._out = bytearray()
        self._blobs: list[bytes | memoryview] = []
        self._classes: dict[type, int] = {}
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = []
        self._depth = 0

    def finish(self) -> bytes:
        """The table of classes, the values, the table of blobs, the blobs."""
        head = bytearray()
        _number(head, len(self._classes))
        for kind in self._classes:
            _text(head, self._kinds[kind])
            names = _names(kind)
            _number(head, len(names))
            for name in names:
                _text(head, name)
        _number(head, len(self._out))
        head += self._out
        _number(head, len(self._blobs))
        for blob in self._blobs:
            _number(head, len(blob))
        parts: list[bytes | bytearray | memoryview] = [head]
        length = len(head)
        for blob in self._blobs:
            padding = -length % ALIGNMENT
            parts += [bytes(padding), blob]
            length += padding + len(blob)
        return b"".join(parts)

    def put(self, value: Any) -> None:
        """Append a value."""
        if self._depth > MAXIMUM_DEPTH:
            raise NotKeyable(f"something nested more than {MAXIMUM_DEPTH} times")
        write = _WRITERS.get(type(value))
        self._depth += 1
        if write is not None:
            write(self, value)
        elif isinstance(value, enum.Enum):
            self._member(value)
        elif type(value) in self._kinds:
            self._record(value)
        elif value is UNKNOWN:
            self._out.append(_Tag.UNKNOWN_LOCATION)
        else:
            raise NotKeyable(f"an object of type {type(value).__module__}.{type(value).__qualname__}")
        self._depth -= 1

    def _simple(self, value: bool | None) -> None:
        self._out.append(_Tag.NONE if value is None else _Tag.TRUE if value else _Tag.FALSE)

    def _integer(self, value: int) -> None:
        if not -(1 << 63) <= value < 1 << 63:
            raise NotKeyable(f"the integer {value}, which takes more than 64 bits,")
        self._out.append(_Tag.INTEGER)
        _number(self._out, value << 1 if value >= 0 else (-value << 1) - 1)

    def _float(self, value: float) -> None:
        self._out.append(_Tag.FLOAT)
        self._out += struct.pack("<d", value)

    def _text(self, value: str) -> None:
        self._out.append(_Tag.TEXT)
        _text(self._out, value)

    def _bytes(self, value: bytes) -> None:
        self._out.append(_Tag.BYTES)
        self._blob(value)

    def _blob(self, value: bytes | memoryview) -> None:
        _number(self._out, len(self._blobs))
        self._blobs.append(value)

    def _sequence(self, value: tuple[Any, ...] | list[Any]) -> None:
        self._out.append(_Tag.TUPLE if type(value) is tuple else _Tag.LIST)
        _number(self._out, len(value))
        for item in value:
            self.put(item)

    def _mapping(self, value: dict[Any, Any]) -> None:
        self._out.append(_Tag.MAPPING)
        _number(self._out, len(value))
        for key, item in value.items():
            self.put(key)
            self.put(item)

    def _array(self, value: np.ndarray[Any, Any]) -> None:
        if value.dtype.hasobject or value.dtype.names:
            raise NotKeyable(f"an array of dtype {value.dtype}")
        native = np.ascontiguousarray(value.astype(value.dtype.newbyteorder("="), copy=False))
        self._out.append(_Tag.ARRAY)
        dtype = native.dtype
        _text(self._out, dtype.newbyteorder("<").str if dtype.num < _FIRST_USER_DTYPE else dtype.name)
        _number(self._out, value.ndim)
        for extent in value.shape:
            _number(self._out, extent)
        self._blob(native.reshape(-1).view(np.uint8).data)

    def _tensor_type(self, value: TensorType) -> None:
        self._out.append(_Tag.TENSOR_TYPE)
        element = value.element_type
        _text(self._out, QUANTIZED if isinstance(element, QuantizedType) else element.name)
        _text(self._out, value.encoding)
        _number(self._out, value.rank)
        for extent in value.shape:
            _number(self._out, extent + 1)  # 0 is a dimension that is not known
        if isinstance(element, QuantizedType):
            self.put(parameters_of_type(element))

    def _class(self, kind: type) -> None:
        if kind not in self._kinds:
            raise NotKeyable(f"an object of type {kind.__module__}.{kind.__qualname__}")
        _number(self._out, self._classes.setdefault(kind, len(self._classes)))

    def _member(self, value: enum.Enum) -> None:
        self._out.append(_Tag.MEMBER)
        self._class(type(value))
        _text(self._out, value.name)

    def _record(self, value: Any) -> None:
        number = self._numbers.get(id(value))
        if number is not None:
            self._out.append(_Tag.AGAIN)
            _number(self._out, number)
            return
        self._out.append(_Tag.RECORD)
        self._class(type(value))
        for name in _names(type(value)):
            self.put(getattr(value, name))
        self._numbers[id(value)] = len(self._numbers)
        self._alive.append(value)


def _names(kind: type) -> tuple[str, ...]:
    """Names of a dataclass's fields."""
    return tuple(getattr(kind, "__dataclass_fields__", ()))


def _number(out: bytearray, value: int) -> None:
    """Seven bits a byte, the lowest first; the highest bit says that more follow."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _text(out: bytearray, value: str) -> None:
    data = value.encode("utf-8", "surrogatepass")
    _number(out, len(data))
    out += data


_WRITERS: Final[dict[type, Callable[[Writer, Any], None]]] = {
    type(None): Writer._simple,
    bool: Writer._simple,
    int: Writer._integer,
    float: Writer._float,
    str: Writer._text,
    bytes: Writer._bytes,
    tuple: Writer._sequence,
    list: Writer._sequence,
    dict: Writer._mapping,
    np.ndarray: Writer._array,
    TensorType: Writer._tensor_type,
}


class Reader:
    """Reads what ``Writer`` wrote; anything else raises ``FormatError``.

    Bytes and arrays share the memory of ``data``.
    """

    def __init__(self, data: bytes | memoryview, records: Records):
        self._data = memoryview(data)
        self._end = len(self._data)
        self._place = 0
        self._depth = 0
        self._made: list[Any] = []
        self._classes = [self._declared(records) for _ in range(self._count())]
        length = self._count()
        start = self._place
        self._place += length
        self._blobs = self._blob_places()
        self._place, self._end = start, start + length

    def _declared(self, records: Records) -> type:
        name = self._string()
        names = tuple(self._string() for _ in range(self._count()))
        kind = records.get(name)
        if kind is None or names != _names(kind):
            raise FormatError(f"the record {name!r} is not what this version of hlojit calls so")
        return kind

    def _blob_places(self) -> list[memoryview]:
        lengths = [self._long() for _ in range(self._count())]
        place = self._place
        found = []
        for length in lengths:
            place += -place % ALIGNMENT
            if place + length > len(self._data):
                raise FormatError("the data is cut off")
            found.append(self._data[place : place + length])
            place += length
        return found

    def value(self) -> Any:
        """The next value."""
        self._depth += 1
        if self._depth > MAXIMUM_DEPTH + 1:
            raise FormatError("values are nested too deeply")
        tag = self._byte()
        if tag >= len(_READERS):
            raise FormatError(f"unknown tag {tag}")
        found = _READERS[tag](self)
        self._depth -= 1
        return found

    # ------------------------------------------------------------------------------------------------ pieces

    def _byte(self) -> int:
        if self._place >= self._end:
            raise FormatError("the data is cut off")
        self._place += 1
        return self._data[self._place - 1]

    def _long(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise FormatError("a number takes more than 64 bits")

    def _count(self) -> int:
        """How many things follow, each of at least one byte."""
        count = self._long()
        if count > self._end - self._place:
            raise FormatError(f"{count} things are announced where {self._end - self._place} bytes are left")
        return count

    def _string(self) -> str:
        length = self._count()
        self._place += length
        try:
            return str(self._data[self._place - length : self._place], "utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise FormatError(f"a text is damaged: {error}") from None

    def _integer(self) -> int:
        value = self._long()
        return -(value + 1 >> 1) if value & 1 else value >> 1

    def _float(self) -> float:
        if self._end - self._place < 8:
            raise FormatError("the data is cut off")
        self._place += 8
        (value,) = struct.unpack_from("<d", self._data, self._place - 8)
        return float(value)

    def _blob(self) -> memoryview:
        number = self._long()
        if number >= len(self._blobs):
            raise FormatError(f"there is no blob {number}")
        return self._blobs[number]

    def _mapping(self) -> dict[Any, Any]:
        found = {}
        for _ in range(self._count()):
            key = self.value()
            if type(key) not in (str, int):
                raise FormatError(f"a key is of type {type(key).__name__}")
            found[key] = self.value()
        return found

    def _array(self) -> np.ndarray[Any, Any]:
        name = self._string()
        shape = tuple(self._long() for _ in range(self._count()))
        blob = self._blob()
        try:
            array: np.ndarray[Any, Any] = np.frombuffer(blob, _dtype(name)).reshape(shape)
        except (TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"an array is damaged: {error}") from None
        return array

    def _quantized(self) -> QuantizedType:
        """The parameters of a quantized type, which no table has a row of."""
        try:
            element = quantized_type_of(self.value())
            complaint = element_complaint(element)
        except (HlojitError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FormatError(f"a quantized type is damaged: {error}") from None
        if complaint is not None:
            raise FormatError(f"a quantized type is damaged: {complaint[1]}")
        return element

    def _tensor_type(self) -> TensorType:
        name, encoding = self._string(), self._string()
        shape = tuple(self._long() - 1 for _ in range(self._count()))
        element = self._quantized() if name == QUANTIZED else find_element_type(name)
        if element is None:
            raise FormatError(f"the element type {name!r} is not registered; load the plugin that brings it")
        return tensor(shape, element, encoding)

    def _kind(self) -> type:
        number = self._long()
        if number >= len(self._classes):
            raise FormatError(f"there is no class {number}")
        return self._classes[number]

    def _member(self) -> Any:
        kind, name = self._kind(), self._string()
        member = getattr(kind, "__members__", {}).get(name)
        if member is None:
            raise FormatError(f"{kind.__name__} has no member {name!r}")
        return member

    def _record(self) -> Any:
        kind = self._kind()
        checks = _checks(kind)
        values = []
        for name, check in checks:
            value = self.value()
            if not check(value):
                raise FormatError(f"{kind.__name__}.{name} cannot be {value!r:.60}")
            values.append(value)
        try:
            made = kind(*values)
        except Exception as error:
            raise FormatError(f"{kind.__name__} cannot be made: {error}") from None
        self._made.append(made)
        return made

    def _again(self) -> Any:
        number = self._long()
        if number >= len(self._made):
            raise FormatError(f"there is no record {number}")
        return self._made[number]


def _dtype(name: str) -> np.dtype[Any]:
    if name[:1] in "<|" and name[1:2] in "biufc":
        return np.dtype(name).newbyteorder("=")
    # ml_dtypes' scalar types, which NumPy has no letters for.
    import ml_dtypes

    found = getattr(ml_dtypes, name, None)
    if not (isinstance(found, type) and issubclass(found, np.generic)):
        raise TypeError(f"there is no dtype {name!r}")
    return np.dtype(found)


_READERS: Final[tuple[Callable[[Reader], Any], ...]] = (
    lambda reader: None,
    lambda reader: False,
    lambda reader: True,
    Reader._integer,
    Reader._float,
    Reader._string,
    Reader._blob,
    lambda reader: tuple([reader.value() for _ in range(reader._count())]),
    lambda reader: [reader.value() for _ in range(reader._count())],
    Reader._mapping,
    Reader._record,
    Reader._again,
    Reader._array,
    Reader._tensor_type,
    Reader._member,
    lambda reader: UNKNOWN,
)


# ---------------------------------------------------------------------------------------- types of records' fields


_known_checks: dict[type, tuple[tuple[str, Callable[[Any], bool]], ...]] = {}


def _checks(kind: type) -> tuple[tuple[str, Callable[[Any], bool]], ...]:
    """For each field of a dataclass, whether a value is of the type that it declares."""
    if issubclass(kind, enum.Enum):
        raise FormatError(f"{kind.__name__} is no record")
    if kind not in _known_checks:
        hints = typing.get_type_hints(kind)
        _known_checks[kind] = tuple((name, _check(hints[name])) for name in _names(kind))
    return _known_checks[kind]


def _check(hint: Any) -> Callable[[Any], bool]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda value: True
    if origin in (typing.Union, types.UnionType):
        checks = [_check(each) for each in arguments]
        return lambda value: any(check(value) for check in checks)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _all_of(tuple, arguments[0])
    if origin is tuple:
        parts = [_check(each) for each in arguments]
        return lambda value: (
            type(value) is tuple and len(value) == len(parts) and all(check(v) for check, v in zip(parts, value))
        )
    if origin is list:
        return _all_of(list, arguments[0])
    if origin is dict:
        key, entry = _check(arguments[0]), _check(arguments[1])
        return lambda value: type(value) is dict and all(key(k) and entry(v) for k, v in value.items())
    kind = origin or hint
    if kind in (float, int, bool, str, type(None)):
        return lambda value: type(value) is kind or (kind is float and type(value) is int)
    if kind is bytes:
        return lambda value: isinstance(value, memoryview)
    return lambda value: isinstance(value, kind)


def _all_of(kind: type[Any], hint: Any) -> Callable[[Any], bool]:
    item = _check(hint)
    return lambda value: type(value) is kind and all(item(each) for each in value)
