"""Formats given by functions of up to 16 bits as tables: all that ``decode`` says, and where what ``encode`` says changes.

    tables = codec_tables(row)
    tables.values[codes]             # decode, of an array
    tables.encoded(floats)           # encode, of an array

``encode`` is taken for a step function: as a number grows from -infinity to infinity (-0.0 before 0.0), its code changes at a
number of *bounds*.  They are found by bisection between all numbers of the format, to the last bit, and the codes between
them are looked at again at other places.  A function that is no such thing - or that raises, or gives codes of too many
bits - has no tables, and is called for each element as it is.

Tables are kept by the content of both functions, in the process and, where functions had to be compiled for them, in a
store: one that reads another global value has other tables.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from hlojit.ir.environment import ELEMENT_TYPES, Bounded, tables
from hlojit.ir.errors import PluginWarning
from hlojit.ir.fingerprint import NotKeyable, fingerprint
from hlojit.ir.format_fields import F32, F64, MOST_LOOKED_AT, MOST_SECONDS, Native, is_rounded_twice, reaches_down
from hlojit.ir.formats import FloatFormat
from hlojit.ir.scalar.calls import called, evaluated
from hlojit.ir.scalar.table_store import table_store
from hlojit.ir.time_limit import call_within
from hlojit.ir.vendor_places import place_of
from hlojit.ir.warn import warn

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

    def codes_of(self, flat: Array) -> Array:
        """Codes of numbers in a row."""
        kind = self.bounds.dtype.type
        mantissa = np.finfo(flat.dtype).nmant
        bits = flat.view(self.bounds.dtype)
        starts = self.starts[bits >> kind(mantissa)]
        bits = bits & kind((1 << mantissa) - 1)
        cells = (starts >> np.uint32(6)) + (bits >> (starts & np.uint32(63)))
        pairs = self.pairs[cells]
        return np.asarray(np.where(bits >= self.bounds[cells], pairs >> np.uint32(16), pairs & np.uint32(0xFFFF)))


@dataclass(frozen=True)
class CodecTables:
    """A format's functions, tabulated; arrays are read-only."""

    identity: str
    """Content of the functions."""
    values: Array
    """Number of every code, in the compute type."""
    steps: Steps
    """Codes of numbers of f64."""
    moved: tuple[int, int] | None = None
    """A code that ``encode`` gives and the one, of another number, that it gives for what ``decode`` makes of that."""

    @cached_property
    def single(self) -> Steps:
        """Codes of numbers of f32."""
        return self.steps.of_single()

    @cached_property
    def _upper_bits(self) -> tuple[Array, Array]:
        """Codes by the upper 16 bits of a number of f32, and between which of these numbers a bound lies."""
        return _by_upper_bits(self.single)

    @cached_property
    def _narrows(self) -> bool:
        """Whether numbers of f64 may be rounded to odd, to f32, and then looked up."""
        return _is_told_by_odd(self.steps)

    @cached_property
    def _cells(self) -> dict[str, Cells | None]:
        return {}

    def cells(self, kind: str) -> Cells | None:
        """For kernels, of numbers of f32 or f64; None where there would be too many."""
        if kind not in self._cells:
            self._cells[kind] = _cells(self.single if kind == "f32" else self.steps)
        return self._cells[kind]

    def encoded(self, numbers: Array) -> Array:
        """Codes of numbers of f32 or f64."""
        flat = np.ascontiguousarray(numbers).ravel()
        if flat.size > _FEW and flat.dtype == np.float64 and self._narrows:
            flat = rounded_to_odd(flat)
        if flat.size > _FEW and flat.dtype == np.float32:
            fast, mixed = self._upper_bits
            top = flat.view(np.uint32) >> np.uint32(16)
            result = fast[top]
            open_ = mixed[top]
            if open_.any():
                result[open_] = self._codes_of(flat[open_])
        else:
            result = self._codes_of(flat)
        return np.asarray(result.reshape(numbers.shape))

    def _codes_of(self, flat: Array) -> Array:
        """Codes of numbers in a row: of many by cells, which is several loads a number rather than sixteen."""
        kind = "f32" if flat.dtype == np.float32 else "f64"
        cells = self.cells(kind) if flat.size > _FEW else None
        if cells is not None:
            return cells.codes_of(flat).astype(self.steps.codes.dtype)
        return (self.single if kind == "f32" else self.steps).codes_of(flat)


@dataclass(frozen=True)
class Steps:
    """A step function from the numbers of a native float to codes."""

    number: np.dtype[Any]
    bounds: Array
    """Orders (see ``order_of``) at which codes change, ascending."""
    codes: Array
    """The code below the first bound, from the first bound on, ..."""
    nan: int
    """Code of NaN."""

    def __post_init__(self) -> None:
        self.bounds.flags.writeable = self.codes.flags.writeable = False

    def codes_of(self, flat: Array) -> Array:
        """Codes of numbers, found by bisection."""
        found = self.codes[np.searchsorted(self.bounds, order_of(flat), side="right")]
        found[np.isnan(flat)] = self.nan
        return np.asarray(found)

    def of_single(self) -> Steps:
        """The same function of the numbers of f32."""
        exact = _number_of(self.bounds)
        with np.errstate(all="ignore"):
            near = exact.astype(np.float32)
        bounds = order_of(near) + (order_of(near.astype(np.float64)) < self.bounds).astype(np.int32)
        last = np.flatnonzero(np.append(bounds[1:] != bounds[:-1], True)) if bounds.size else np.zeros(0, np.int64)
        return Steps(
            np.dtype(np.float32), bounds[last], np.concatenate([self.codes[:1], self.codes[last + 1]]), self.nan
        )


def _is_told_by_odd(steps: Steps) -> bool:
    """Whether each bound is a number of f32 whose last bit is even, or the next number of f64 behind one.

    No number beside a bound then becomes, rounded to odd, one on its other side.
    """
    found = np.zeros(steps.bounds.shape, np.bool_)
    for orders in (steps.bounds, steps.bounds - 1):
        numbers = _number_of(orders)
        with np.errstate(all="ignore"):
            single = numbers.astype(np.float32)
        found |= (order_of(single.astype(np.float64)) == orders) & (single.view(np.uint32) & np.uint32(1) == 0)
    return bool(found.all())


def rounded_to_odd(numbers: Array) -> Array:
    """Numbers of f64 in f32: those that it does not hold as the neighbour with an odd last bit, never zero or infinite."""
    with np.errstate(all="ignore"):
        near = numbers.astype(np.float32)
        wide = near.astype(np.float64)
        bits = near.view(np.int32)
        wrong = np.flatnonzero((wide != numbers) & (numbers == numbers) & (bits & 1 == 0))
        if wrong.size:
            is_less = np.abs(wide[wrong]) < np.abs(numbers[wrong])
            bits[wrong] += np.where(is_less, np.int32(1), np.int32(-1))
    return near


_FEW: Final = 4096
_found: OrderedDict[tuple[str, int, str], CodecTables | None] = OrderedDict()
_warned: Final[Bounded[tuple[str, str, int, str], bool]] = Bounded(256)
"""Formats by name and tables: two may have the same functions."""


def codec_tables(row: FloatFormat) -> CodecTables | None:
    """The tables of a format given by functions; None where it has to be computed by calling them."""
    if row.decode is None or row.encode is None or row.bits > MOST_BITS:
        return None
    try:
        identity = fingerprint((row.decode, row.encode))
    except NotKeyable:
        return None
    key = identity, row.bits, row.compute
    try:
        made = _found[key]
    except KeyError:
        made = _found.setdefault(key, _made(row, identity))
        while len(_found) > _KEPT:
            with suppress(KeyError):
                _found.popitem(last=False)
    if made is not None and made.moved is not None and (row.name, *key) not in _warned:
        _warned.keep((row.name, *key), True)
        _warn_of_moved(row, made.values, *made.moved)
    return made


def _warn_of_moved(row: FloatFormat, values: Array, code: int, kept: int) -> None:
    first, second = float(values[code]), float(values[kept])
    who = f"the format {row.name!r}{tables().source_of(ELEMENT_TYPES, row.name)}"
    warn(
        f"{who}: encode gives the code {code}, decode makes {first} of it, and encode of that gives {kept}, which is {second}: "
        "numbers change when they are stored again; have encode(decode(code)) be the code, for those that encode gives"
        f"{place_of(row.encode)}",
        PluginWarning,
    )


def rounds_twice(row: FloatFormat) -> bool:
    """Whether arithmetic in the float in which a format is computed has to be rounded to odd, to be rounded once."""
    if row.decode is None:
        return not row.is_native and not row.in_integers and is_rounded_twice(row)
    tables = codec_tables(row)
    return tables is None or not _is_harmless(tables, F32 if row.compute == F32.name else F64)


def _is_harmless(tables: CodecTables, native: Native) -> bool:
    """Whether no rounded sum, product, quotient or root lies at a bound that the exact one does not lie at.

    Bounds half way between two numbers have a bit more than these, and the native float has twice as many and two more
    (``native_compute``); bounds at a number, those of a rounding in one direction, are where every rounded result may lie.
    """
    numbers = tables.values[np.isfinite(tables.values) & (tables.values != 0)].astype(np.float64)
    if not numbers.size:
        return True
    exponents, precisions = np.frexp(numbers)[1], _precision(numbers)
    most, lowest, above = int(precisions.max()), int((exponents - precisions).min()), int(exponents.max())
    orders = tables.steps.bounds
    beside = np.stack([_number_of(orders), _number_of(orders - 1)])
    finite = np.isfinite(beside).all(0)
    bounds = np.where(_precision(beside[0]) <= _precision(beside[1]), *beside)[finite]
    tells_zero = bool((bounds == 0).any())
    bounds = bounds[bounds != 0]
    if 2 * most + 2 > native.precision or np.isin(np.abs(bounds), np.abs(numbers)).any():
        return False
    return bool((_precision(bounds) <= most + 1).all()) and (not tells_zero or reaches_down(native, lowest, above))


def _precision(numbers: Array) -> Array:
    """How many bits numbers of f64 have from their first to their last."""
    with np.errstate(all="ignore"):
        whole = (np.frexp(np.where(np.isfinite(numbers), numbers, 0))[0] * 2.0**53).astype(np.int64)
    lowest_bit = whole & -whole
    return np.where(whole == 0, 0, 54 - np.frexp(lowest_bit.astype(np.float64))[1])


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
    store = table_store() if row.bits > MOST_LOOKED_AT else None
    if store is not None and (kept := store.get(row, identity)) is not None:
        return kept
    try:
        decode, encode = _functions(row)
        made = _tabulated(row, identity, decode, encode)
    except Exception:
        return None  # whoever calls the functions says what is wrong with them
    if store is not None:
        store.put(row, made)
    return made


def _tabulated(row: FloatFormat, identity: str, decode: Function, encode: Function) -> CodecTables:
    values = decode(np.arange(1 << row.bits, dtype=row.storage_bits)).astype(np.float64)
    edges = np.array([-np.inf, np.finfo(np.float64).min, -0.0, 0.0, np.finfo(np.float64).max, np.inf])
    places = np.unique(order_of(np.concatenate([values[np.isfinite(values)], edges])))
    # Codes mostly change half way between two numbers.
    with np.errstate(over="ignore"):
        halves = order_of(_number_of(places)[:-1] / 2 + _number_of(places)[1:] / 2)
    places = np.unique(np.concatenate([places, halves - 1, halves, halves + 1]))
    places = places[(places >= order_of(edges[:1])) & (places <= order_of(edges[-1:]))]
    bounds, codes = _bounds(places, encode)
    _look_again(np.concatenate([places[:1], bounds, places[-1:] + 1]), codes, encode)
    nan = encode(np.array([np.nan]))
    kept = _kept_codes(values, encode)
    moved = _moved(values, np.unique(np.append(codes, nan)), kept)
    values[np.isnan(values)] = nan_of(row)
    compute = values.astype(_NUMBERS[row.compute])
    compute.flags.writeable = False
    return CodecTables(identity, compute, Steps(np.dtype(np.float64), bounds, kept[codes], int(kept[nan][0])), moved)


def _moved(values: Array, reached: Array, kept: Array) -> tuple[int, int] | None:
    """Of the codes that ``encode`` gives, one whose number is not kept as such, and the code that it is kept with."""
    there, again = values[reached], values[kept[reached]]
    wrong = np.flatnonzero((there != again) & ~(np.isnan(there) & np.isnan(again)))
    return (int(reached[wrong[0]]), int(kept[reached[wrong[0]]])) if wrong.size else None


def _kept_codes(values: Array, encode: Function) -> Array:
    """The code with which the number of each code is kept: programs hold numbers, and encode them again to store them."""
    kept = encode(values)
    for _ in range(_MOST_STEPS):
        following = kept[kept]
        if np.array_equal(following, kept):
            return kept
        kept = following
    raise _Unfit


_MOST_STEPS: Final = 8


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


def _by_upper_bits(single: Steps) -> tuple[Array, Array]:
    bits = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    first, last = order_of(bits.view(np.float32)), order_of((bits | np.uint32(0xFFFF)).view(np.float32))
    one, other = (np.searchsorted(single.bounds, each, side="right") for each in (first, last))
    fast, mixed = single.codes[one], one != other
    exponent = bits & np.uint32(0x7FFF0000)
    fast[exponent > np.uint32(0x7F800000)] = single.nan
    mixed[exponent >= np.uint32(0x7F800000)] = False
    mixed[exponent == np.uint32(0x7F800000)] = True  # infinity, or NaN
    return fast, mixed


MOST_CELLS: Final = 1 << 18


def _cells(steps: Steps) -> Cells | None:
    width = steps.number.itemsize * 8
    mantissa = np.finfo(steps.number).nmant
    kind = np.dtype(f"u{steps.number.itemsize}")
    # Where codes change as bits grow: below zero that is just behind the last number of an order.
    bits = _number_of(steps.bounds).view(kind)
    bits = bits + (bits >> kind.type(width - 1) != 0).astype(kind)
    infinities = np.array([(1 << width - 1 - mantissa) - 1, (1 << width - mantissa) - 1], kind) << kind.type(mantissa)
    bits = np.unique(np.concatenate([bits, infinities + kind.type(1)]))
    bits = bits[bits & kind.type((1 << mantissa) - 1) > 0]  # code changes at the very start are those of a whole range
    exponents = (bits >> kind.type(mantissa)).astype(np.int64)
    mantissas = bits & kind.type((1 << mantissa) - 1)
    shifts = np.full(1 << width - mantissa, mantissa)
    for exponent in np.unique(exponents).tolist():
        shifts[exponent] = _shift_apart(mantissas[exponents == exponent], mantissa)
    counts = np.int64(1) << (mantissa - shifts)
    if counts.sum() > MOST_CELLS:
        return None
    firsts = np.cumsum(counts) - counts
    exponent_of = np.repeat(np.arange(counts.size), counts)
    within = (np.arange(exponent_of.size) - firsts[exponent_of]).astype(kind)
    shift_of = shifts[exponent_of].astype(kind)
    low = (exponent_of.astype(kind) << kind.type(mantissa)) | (within << shift_of)
    last = low + ((kind.type(1) << shift_of) - kind.type(1))
    bounds = np.full(exponent_of.size, 1 << mantissa, kind)
    bounds[firsts[exponents] + (mantissas >> shifts[exponents].astype(kind)).astype(np.int64)] = mantissas
    below, above = (steps.codes_of(each.view(steps.number)).astype(np.uint32) for each in (low, last))
    found = Cells((firsts << 6 | shifts).astype(np.uint32), bounds, above << np.uint32(16) | below)
    for array in (found.starts, found.bounds, found.pairs):
        array.flags.writeable = False
    return found


def _shift_apart(mantissas: Array, most: int) -> int:
    """The width of equal cells in which sorted mantissas lie apart, in bits."""
    if mantissas.size < 2:
        return most
    kind = mantissas.dtype.type
    shift = int((mantissas[1:] ^ mantissas[:-1]).min()).bit_length() - 1
    while np.unique(mantissas >> kind(shift)).size < mantissas.size:
        shift -= 1
    return shift


# ----------------------------------------------------------------------------------------------------- the functions


def _functions(row: FloatFormat) -> tuple[Function, Function]:
    """Both functions, of arrays: in Python where there are few codes, otherwise compiled."""
    assert row.decode is not None and row.encode is not None
    if row.bits <= MOST_LOOKED_AT:
        return _in_python(row.decode, None), _in_python(row.encode, row)
    width = f"u{row.storage_bits.itemsize * 8}"
    decode, encode = evaluated(row.decode, (width,), "f64"), evaluated(row.encode, ("f64",), "i64")
    if decode is None or encode is None:
        raise _Unfit
    return decode, _checked(encode, row)


def nan_of(row: FloatFormat) -> float:
    """The NaN that ``decode`` makes: of one sign for a format, whatever computes it.

    The sign is that of the code of NaN, as Python says: compilers give NaN the sign that is at hand.
    """
    try:
        encode, decode = (getattr(each, "py_func", each) for each in (row.encode, row.decode))
        assert encode is not None and decode is not None
        with np.errstate(all="ignore"):
            number = call_within(
                MOST_SECONDS, lambda: "the function", lambda: float(called(decode)(int(called(encode)(_NAN))))
            )
    except Exception:
        return _NAN
    return math.copysign(_NAN, number) if math.isnan(number) else _NAN


_NAN: Final = np.float64(math.nan)


def _in_python(function: Callable[..., Any], row: FloatFormat | None) -> Function:
    python = called(getattr(function, "py_func", function))

    def run(array: Array) -> Array:
        # Floats as NumPy's, which a comparison with an element of an array of f32 does not narrow: as in compiled code.
        given = array if row is not None else array.tolist()
        with np.errstate(all="ignore"):
            found = call_within(MOST_SECONDS, lambda: "the function", lambda: [python(each) for each in given])
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
