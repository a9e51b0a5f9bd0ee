"""Formats given by functions of up to 16 bits as tables: all that ``decode`` says, and where what ``encode`` says changes.

    tables = codec_tables(row)
    tables.values[codes]             # decode, of an array
    tables.encoded(floats)           # encode, of an array

``encode`` is taken for a step function: as a number grows from -infinity to infinity (-0.0 before 0.0), its code changes at a
number of *bounds*.  They are found by bisection between all numbers of the format, to the last bit, and the codes between
them are looked at again at other places.  A function that is no such thing - or that raises, or gives codes of too many
bits - has no tables, and is called for each element as it is.

Tables are kept by the content of both functions: one that reads another global value has other tables.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hlojit.ir.fingerprint import NotKeyable, fingerprint
from hlojit.ir.format_fields import MOST_LOOKED_AT, MOST_SECONDS
from hlojit.ir.formats import FloatFormat
from hlojit.ir.scalar.calls import called, evaluated
from hlojit.ir.time_limit import call_within

Array = np.ndarray[Any, Any]
Function = Callable[[Array], Array]

MOST_BITS: Final = 16
_KEPT: Final = 64
_NUMBERS: Final[dict[str, np.dtype[Any]]] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


@dataclass(frozen=True, slots=True)
class Cells:
    """Codes of numbers by their bits, for a few loads a number.

    All numbers of one sign and exponent share their mantissa's range in equal cells, so many that at most one bound
    lies in each: ``starts[sign and exponent]`` holds the number of the first cell and, in the lowest six bits, how many
    bits of the mantissa a cell has.  Numbers of a cell whose mantissa is at least ``bounds[cell]`` have the code in the upper
    half of ``pairs[cell]``, the others that in the lower half.
    """

    starts: Array
    bounds: Array
    pairs: Array


@dataclass(frozen=True, slots=True)
class CodecTables:
    """A format's functions, tabulated; arrays are read-only."""

    identity: str
    """Content of the functions."""
    values: Array
    """Number of every code, in the compute type."""
    bounds: Array
    """Orders (see ``order_of``) at which codes change, ascending."""
    codes: Array
    """The code below the first bound, from the first bound on, ..."""
    nan: int
    """Code of NaN."""
    fast: Array
    """Codes by the upper 16 bits of a number in f32; those between which a bound lies are ``mixed``."""
    mixed: Array
    cells: Cells | None
    """For kernels; None where there would be too many."""

    def encoded(self, numbers: Array) -> Array:
        """Codes of numbers of the compute type."""
        flat = np.ascontiguousarray(numbers).ravel()
        if flat.dtype == np.float32 and flat.size > _FEW:
            top = flat.view(np.uint32) >> np.uint32(16)
            result = self.fast[top]
            open_ = self.mixed[top]
            if open_.any():
                result[open_] = self._searched(flat[open_])
        else:
            result = self._searched(flat)
        return np.asarray(result.reshape(numbers.shape))

    def _searched(self, flat: Array) -> Array:
        found = self.codes[np.searchsorted(self.bounds, order_of(flat), side="right")]
        found[np.isnan(flat)] = self.nan
        return np.asarray(found)


_FEW: Final = 4096
_found: OrderedDict[tuple[str, int, str], CodecTables | None] = OrderedDict()


def codec_tables(row: FloatFormat) -> CodecTables | None:
    """The tables of a format given by functions; None where it has to be computed by calling them."""
    if row.decode is None or row.encode is None or row.bits > MOST_BITS:
        return None
    try:
        identity = fingerprint((row.decode, row.encode))
    except NotKeyable:
        return None
    key = identity, row.bits, row.compute
    with suppress(KeyError):
        return _found[key]
    made = _found.setdefault(key, _made(row, identity))
    while len(_found) > _KEPT:
        with suppress(KeyError):
            _found.popitem(last=False)
    return made


def order_of(numbers: Array) -> Array:
    """Integers in the order of the numbers: -0.0 just below 0.0, infinities at the ends."""
    width = numbers.dtype.itemsize * 8
    bits = numbers.view(f"i{width // 8}")
    return np.asarray(bits ^ ((bits >> (width - 1)) & np.iinfo(bits.dtype).max))


def _number_of(orders: Array) -> Array:
    """The inverse of ``order_of``."""
    width = orders.dtype.itemsize * 8
    bits = orders ^ ((orders >> (width - 1)) & np.iinfo(orders.dtype).max)
    return np.asarray(bits.view(f"f{width // 8}"))


class _Unfit(Exception):
    """The functions have no tables."""


def _made(row: FloatFormat, identity: str) -> CodecTables | None:
    try:
        decode, encode = _functions(row)
        return _tabulated(row, identity, decode, encode)
    except Exception:
        return None  # whoever calls the functions says what is wrong with them


def _tabulated(row: FloatFormat, identity: str, decode: Function, encode: Function) -> CodecTables:
    storage, number = row.storage_bits, _NUMBERS[row.compute]
    values = decode(np.arange(1 << row.bits, dtype=storage)).astype(number)
    edges = np.array([-np.inf, np.finfo(number).min, -0.0, 0.0, np.finfo(number).max, np.inf], number)
    places = np.unique(order_of(np.concatenate([values[np.isfinite(values)], edges])))
    # Codes mostly change half way between two numbers.
    with np.errstate(over="ignore"):
        halves = order_of(_number_of(places)[:-1] / 2 + _number_of(places)[1:] / 2)
    places = np.unique(np.concatenate([places, halves - 1, halves, halves + 1]))
    places = places[(places >= order_of(edges[:1])) & (places <= order_of(edges[-1:]))]
    bounds, codes = _bounds(places, encode)
    _look_again(np.concatenate([places[:1], bounds, places[-1:] + 1]), codes, encode)
    nan = int(encode(np.array([np.nan], number))[0])
    fast, mixed = _by_upper_bits(bounds, codes, nan, number)
    for array in (values, bounds, codes, fast, mixed):
        array.flags.writeable = False
    return CodecTables(identity, values, bounds, codes, nan, fast, mixed, _cells(bounds, codes, nan, number))


def _bounds(places: Array, encode: Function) -> tuple[Array, Array]:
    """Where codes change between sorted places, and the codes in between."""
    codes = encode(_number_of(places))
    change = np.flatnonzero(codes[1:] != codes[:-1])
    low, high = places[change], places[change + 1]
    while (rest := np.flatnonzero(high - low > 1)).size:
        middle = low[rest] + (high[rest] - low[rest]) // 2
        below = encode(_number_of(middle)) == codes[change[rest]]
        low[rest] = np.where(below, middle, low[rest])
        high[rest] = np.where(below, high[rest], middle)
    if np.any(encode(_number_of(high)) != codes[change + 1]):
        raise _Unfit
    return high, np.concatenate([codes[:1], codes[change + 1]])


def _look_again(ends: Array, codes: Array, encode: Function) -> None:
    """Between neighbouring bounds the code must be the same, wherever one looks."""
    first, length = ends[:-1], ends[1:] - ends[:-1]
    for part in (0, 1, 3, 8, 11, 15, 16):
        # Steps of sixteenths and something odd, without overflow.
        step = length // 16 * part + np.minimum(length % 16, part) * (part > 0) - (part == 16)
        if np.any(encode(_number_of(first + np.minimum(step, length - 1))) != codes):
            raise _Unfit


def _by_upper_bits(bounds: Array, codes: Array, nan: int, number: np.dtype[Any]) -> tuple[Array, Array]:
    if number != np.float32:
        return codes[:0].copy(), np.zeros(0, np.bool_)
    bits = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    first, last = order_of(bits.view(np.float32)), order_of((bits | np.uint32(0xFFFF)).view(np.float32))
    one, other = (np.searchsorted(bounds, each, side="right") for each in (first, last))
    fast, mixed = codes[one], one != other
    exponent = bits & np.uint32(0x7FFF0000)
    fast[exponent > np.uint32(0x7F800000)] = nan
    mixed[exponent >= np.uint32(0x7F800000)] = False
    mixed[exponent == np.uint32(0x7F800000)] = True  # infinity, or NaN
    return fast, mixed


MOST_CELLS: Final = 1 << 18


def _cells(bounds: Array, codes: Array, nan: int, number: np.dtype[Any]) -> Cells | None:
    width = number.itemsize * 8
    mantissa = np.finfo(number).nmant
    kind = np.dtype(f"u{number.itemsize}")
    # Where codes change as bits grow: below zero that is just behind the last number of an order.
    bits = _number_of(bounds).view(kind)
    negative = bits >> kind.type(width - 1) != 0
    bits = bits + negative.astype(kind)
    infinities = np.array([(1 << width - 1 - mantissa) - 1, (1 << width - mantissa) - 1], kind) << kind.type(mantissa)
    bits = np.unique(np.concatenate([bits, infinities + kind.type(1)]))
    exponents = bits >> kind.type(mantissa)
    mantissas = bits & kind.type((1 << mantissa) - 1)
    starts, first, cell_bounds, pairs = [], 0, [], []
    limits = np.searchsorted(exponents, np.arange((1 << width - mantissa) + 1, dtype=kind))
    for exponent in range(1 << width - mantissa):
        own = mantissas[limits[exponent] : limits[exponent + 1]]
        own = own[own > 0]  # code changes at the very start are those of the whole range
        shift = mantissa
        if own.size > 1:
            closest = int((own[1:] ^ own[:-1]).min())
            shift = closest.bit_length() - 1
            while np.unique(own >> kind.type(shift)).size < own.size:
                shift -= 1
        count = 1 << mantissa - shift
        if first + count > MOST_CELLS:
            return None
        starts.append(first << 6 | shift)
        ends = np.full(count, (1 << mantissa), kind)
        ends[own >> kind.type(shift)] = own
        low = (np.arange(count, dtype=kind) << kind.type(shift)) | kind.type(exponent << mantissa)
        last = low + kind.type((1 << shift) - 1)
        below, above = (_code_of(each, bounds, codes, nan, number) for each in (low, last))
        cell_bounds.append(ends)
        pairs.append(above.astype(np.uint32) << np.uint32(16) | below)
        first += count
    found = Cells(np.array(starts, np.uint32), np.concatenate(cell_bounds), np.concatenate(pairs).astype(np.uint32))
    for array in (found.starts, found.bounds, found.pairs):
        array.flags.writeable = False
    return found


def _code_of(bits: Array, bounds: Array, codes: Array, nan: int, number: np.dtype[Any]) -> Array:
    numbers = bits.view(number)
    found = codes[np.searchsorted(bounds, order_of(numbers), side="right")]
    found[np.isnan(numbers)] = nan
    return np.asarray(found)


# ----------------------------------------------------------------------------------------------------- the functions


def _functions(row: FloatFormat) -> tuple[Function, Function]:
    """Both functions, of arrays: in Python where there are few codes, otherwise compiled."""
    assert row.decode is not None and row.encode is not None
    if row.bits <= MOST_LOOKED_AT:
        return _in_python(row.decode, None), _in_python(row.encode, row)
    width = f"u{row.storage_bits.itemsize * 8}"
    decode, encode = evaluated(row.decode, (width,), row.compute), evaluated(row.encode, (row.compute,), "i64")
    if decode is None or encode is None:
        raise _Unfit
    return decode, _checked(encode, row)


def _in_python(function: Callable[..., Any], row: FloatFormat | None) -> Function:
    python = getattr(function, "py_func", function)

    def run(array: Array) -> Array:
        found = call_within(
            MOST_SECONDS, lambda: "the function", lambda: [called(python, (each,)) for each in array.tolist()]
        )
        if row is None:
            return np.array([float(each) for each in found])
        if not all(isinstance(each, (bool, int, np.bool_, np.integer)) for each in found):
            raise _Unfit
        return _codes(np.array([int(each) for each in found], object), row)

    return run


def _checked(function: Function, row: FloatFormat) -> Function:
    return lambda array: _codes(function(array), row)


def _codes(found: Array, row: FloatFormat) -> Array:
    if found.size and (found.min() < 0 or found.max() >> row.bits):
        raise _Unfit
    return found.astype(row.storage_bits)
