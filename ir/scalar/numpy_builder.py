"""``NumpyBuilder``: scalar rules evaluated on NumPy arrays, so that a rule can be tested on millions of inputs at once.

>>> b = NumpyBuilder()
>>> b.array(b.fadd(b.value("f32", [1.0, 2.0]), b.constant("f32", 0.5)))
array([1.5, 2.5], dtype=float32)

What LLVM leaves undefined raises (integer division by zero and minimum / -1, table indices out of range) or gives
conspicuous garbage where LLVM gives poison that a later ``select`` may discard (shifts by the width and more).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.ir.scalar.calls import called as called  # noqa: PLC0414
from hlojit.ir.scalar.calls import code_bits, plain_kind
from hlojit.ir.scalar.conversions import as_result
from hlojit.ir.scalar.wide_numbers import two_sum
from hlojit.ir.vendor_places import place_of, raised_at

Array = np.ndarray[Any, Any]

DTYPE: dict[str, np.dtype[Any]] = {
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
"""NumPy dtype of each kind; integers are signed, as LLVM's have no sign of their own."""

GARBAGE = 0x5AA5_A55A_5AA5_A55A
"""Stands for LLVM's poison."""


@dataclass(frozen=True, slots=True)
class NumpyScalar:
    """An array that plays the part of one scalar."""

    kind: str
    array: Array


def _unsigned(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}") if array.dtype != np.bool_ else array


class NumpyBuilder:
    """Implements ``ScalarBuilder`` with NumPy; arrays of different shapes broadcast."""

    def value(self, kind: str, values: Any) -> NumpyScalar:
        """Wrap an array; integers may be given signed or unsigned."""
        array = np.asarray(values)
        dtype = DTYPE[kind]
        if array.dtype != dtype:
            array = array.view(dtype) if array.dtype.itemsize == dtype.itemsize and array.dtype.kind in "iu" else array
        return NumpyScalar(kind, np.asarray(array, dtype=dtype))

    def array(self, scalar: NumpyScalar) -> Array:
        """The values of a scalar."""
        return scalar.array

    def constant(self, kind: str, value: int | float) -> NumpyScalar:
        """A constant; integers wrap."""
        with np.errstate(all="ignore"):
            if kind in ("f32", "f64"):
                return NumpyScalar(kind, np.asarray(np.float64(value)).astype(DTYPE[kind]))
        if kind == "i1":
            return NumpyScalar(kind, np.asarray(bool(value)))
        bits = DTYPE[kind].itemsize * 8
        return NumpyScalar(kind, np.asarray(int(value) & ((1 << bits) - 1), dtype=f"u{bits // 8}").view(DTYPE[kind]))

    def _apply(self, function: Callable[..., Any], *operands: NumpyScalar) -> NumpyScalar:
        kind = operands[0].kind
        assert all(operand.kind == kind for operand in operands), [operand.kind for operand in operands]
        with np.errstate(all="ignore"):
            result = np.asarray(function(*(operand.array for operand in operands)))
        assert result.dtype == DTYPE[kind], (function, result.dtype, kind)
        return NumpyScalar(kind, result)

    def _compare(self, function: Callable[..., Any], a: Any, b: Any) -> NumpyScalar:
        with np.errstate(all="ignore"):
            return NumpyScalar("i1", np.asarray(function(a, b)))

    # integers

    def add(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        return self._apply(np.not_equal if a.kind == "i1" else np.add, a, b)

    def sub(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        return self._apply(np.not_equal if a.kind == "i1" else np.subtract, a, b)

    def mul(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        return self._apply(np.multiply, a, b)

    def _check_division(self, a: NumpyScalar, b: NumpyScalar, *, signed: bool) -> None:
        if np.any(b.array == 0):
            raise ZeroDivisionError("a rule divides an integer by zero")
        if signed and np.any((a.array == np.iinfo(a.array.dtype).min) & (b.array == -1)):
            raise OverflowError("a rule divides the smallest integer by -1")

    def sdiv(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        self._check_division(a, b, signed=True)
        return self._apply(lambda x, y: (x - np.fmod(x, y)) // y, a, b)

    def udiv(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        self._check_division(a, b, signed=False)
        return self._apply(lambda x, y: (_unsigned(x) // _unsigned(y)).view(x.dtype), a, b)

    def srem(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        self._check_division(a, b, signed=True)
        return self._apply(np.fmod, a, b)

    def urem(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        self._check_division(a, b, signed=False)
        return self._apply(lambda x, y: (_unsigned(x) % _unsigned(y)).view(x.dtype), a, b)

    def and_(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        return self._apply(np.bitwise_and, a, b)

    def or_(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        return self._apply(np.bitwise_or, a, b)

    def xor(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        return self._apply(np.bitwise_xor, a, b)

    def _shift(self, function: Callable[..., Any], a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        width = DTYPE[a.kind].itemsize * 8
        valid = _unsigned(b.array) < width
        shifted = self._apply(function, a, NumpyScalar(b.kind, np.where(valid, b.array, b.array.dtype.type(0))))
        return NumpyScalar(a.kind, np.where(valid, shifted.array, self.constant(a.kind, GARBAGE).array))

    def shl(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        return self._shift(np.left_shift, a, b)

    def lshr(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        return self._shift(lambda x, y: (_unsigned(x) >> _unsigned(y)).view(x.dtype), a, b)

    def ashr(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        return self._shift(np.right_shift, a, b)

    def population_count(self, a: NumpyScalar) -> NumpyScalar:
        return self._apply(lambda x: np.bitwise_count(_unsigned(x)).astype(x.dtype), a)

    def count_leading_zeros(self, a: NumpyScalar) -> NumpyScalar:
        def count(x: Array) -> Array:
            rest, length = _unsigned(x).astype(np.uint64), np.zeros(x.shape, np.int64)
            for step in (32, 16, 8, 4, 2, 1):
                large = rest >= np.uint64(1) << np.uint64(step)
                length += step * large
                rest = np.where(large, rest >> np.uint64(step), rest)
            return np.asarray(x.dtype.itemsize * 8 - length - (rest != 0)).astype(x.dtype)

        return self._apply(count, a)

    def icmp(self, predicate: str, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        assert a.kind == b.kind, (a.kind, b.kind)
        x, y = a.array, b.array
        if predicate[0] == "u":
            x, y = _unsigned(x), _unsigned(y)
        function = _COMPARISONS[predicate if predicate in ("eq", "ne") else predicate[1:]]
        if a.kind == "i1" and predicate[0] == "s":
            x, y = y, x  # as a signed one-bit integer, true is -1
        return self._compare(function, x, y)

    # floats

    def fadd(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        return self._apply(np.add, a, b)

    def fsub(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        return self._apply(np.subtract, a, b)

    def fmul(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        return self._apply(np.multiply, a, b)

    def fdiv(self, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        return self._apply(np.divide, a, b)

    def fma(self, a: NumpyScalar, b: NumpyScalar, c: NumpyScalar) -> NumpyScalar:
        return self._apply(_fma_single if a.kind == "f32" else _fma_double, a, b, c)

    def fneg(self, a: NumpyScalar) -> NumpyScalar:
        return self._apply(np.negative, a)

    def fabs(self, a: NumpyScalar) -> NumpyScalar:
        return self._apply(np.abs, a)

    def sqrt(self, a: NumpyScalar) -> NumpyScalar:
        return self._apply(np.sqrt, a)

    def floor(self, a: NumpyScalar) -> NumpyScalar:
        return self._apply(np.floor, a)

    def ceil(self, a: NumpyScalar) -> NumpyScalar:
        return self._apply(np.ceil, a)

    def truncate(self, a: NumpyScalar) -> NumpyScalar:
        return self._apply(np.trunc, a)

    def round_even(self, a: NumpyScalar) -> NumpyScalar:
        return self._apply(np.rint, a)

    def copysign(self, magnitude: NumpyScalar, sign: NumpyScalar) -> NumpyScalar:
        return self._apply(np.copysign, magnitude, sign)

    def fcmp(self, predicate: str, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        assert a.kind == b.kind, (a.kind, b.kind)
        unordered = np.isnan(a.array) | np.isnan(b.array)
        if predicate == "ord":
            return NumpyScalar("i1", np.asarray(~unordered))
        if predicate == "uno":
            return NumpyScalar("i1", np.asarray(unordered))
        result = self._compare(_COMPARISONS[predicate[1:]], a.array, b.array).array
        return NumpyScalar("i1", np.asarray(result | unordered if predicate[0] == "u" else result & ~unordered))

    # conversions

    def bitcast(self, a: NumpyScalar, kind: str) -> NumpyScalar:
        assert a.array.dtype.itemsize == DTYPE[kind].itemsize
        return NumpyScalar(kind, a.array.view(DTYPE[kind]))

    def sext(self, a: NumpyScalar, kind: str) -> NumpyScalar:
        return NumpyScalar(kind, -a.array.astype(DTYPE[kind]) if a.kind == "i1" else a.array.astype(DTYPE[kind]))

    def zext(self, a: NumpyScalar, kind: str) -> NumpyScalar:
        return NumpyScalar(kind, _unsigned(a.array).astype(DTYPE[kind]))

    def trunc(self, a: NumpyScalar, kind: str) -> NumpyScalar:
        return NumpyScalar(kind, (a.array & 1).astype(np.bool_) if kind == "i1" else a.array.astype(DTYPE[kind]))

    def sitofp(self, a: NumpyScalar, kind: str) -> NumpyScalar:
        return NumpyScalar(kind, (-a.array.astype(np.int8) if a.kind == "i1" else a.array).astype(DTYPE[kind]))

    def uitofp(self, a: NumpyScalar, kind: str) -> NumpyScalar:
        return NumpyScalar(kind, _unsigned(a.array).astype(DTYPE[kind]))

    def fptosi(self, a: NumpyScalar, kind: str) -> NumpyScalar:
        return NumpyScalar(kind, saturate(a.array, DTYPE[kind]))

    def fptoui(self, a: NumpyScalar, kind: str) -> NumpyScalar:
        return NumpyScalar(kind, saturate(a.array, np.dtype(f"u{DTYPE[kind].itemsize}")).view(DTYPE[kind]))

    def fpext(self, a: NumpyScalar) -> NumpyScalar:
        assert a.kind == "f32"
        with np.errstate(invalid="ignore"):  # a signaling NaN
            return NumpyScalar("f64", a.array.astype(np.float64))

    def fptrunc(self, a: NumpyScalar) -> NumpyScalar:
        assert a.kind == "f64"
        with np.errstate(all="ignore"):
            return NumpyScalar("f32", a.array.astype(np.float32))

    def half_to_float(self, bits: NumpyScalar) -> NumpyScalar:
        assert bits.kind == "i16"
        return NumpyScalar("f32", bits.array.view(np.float16).astype(np.float32))

    def float_to_half(self, a: NumpyScalar) -> NumpyScalar:
        assert a.kind == "f32"
        with np.errstate(all="ignore"):
            return NumpyScalar("i16", a.array.astype(np.float16).view(np.int16))

    # selection

    def select(self, condition: NumpyScalar, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
        assert condition.kind == "i1"
        assert a.kind == b.kind, (a.kind, b.kind)
        return NumpyScalar(a.kind, np.where(condition.array, a.array, b.array))

    def rare(
        self, condition: NumpyScalar, slow: Callable[..., NumpyScalar], arguments: Any, fast: NumpyScalar
    ) -> NumpyScalar:
        """``slow(self, *arguments)`` on the elements where the condition holds, ``fast`` elsewhere."""
        chosen, result, *values = np.broadcast_arrays(
            condition.array, fast.array, *(argument.array for argument in arguments)
        )
        if not np.any(chosen):
            return fast
        parts = [NumpyScalar(argument.kind, value[chosen]) for argument, value in zip(arguments, values)]
        result = result.copy()
        result[chosen] = slow(self, *parts).array
        return NumpyScalar(fast.kind, result)

    def lookup(self, kind: str, table: tuple[int | float, ...], index: NumpyScalar) -> NumpyScalar:
        if np.any((index.array < 0) | (index.array >= len(table))):
            raise IndexError("a rule looks beyond its table")
        values = np.stack([self.constant(kind, value).array for value in table])
        return NumpyScalar(kind, values[index.array])

    def tabulated(self, kind: str, table: Array, index: NumpyScalar) -> NumpyScalar:
        """Elements of a table."""
        return self.value(kind, table[_unsigned(index.array)])

    def call(
        self,
        function: Callable[..., Any],
        kinds: tuple[str, ...],
        result_kind: str,
        arguments: tuple[NumpyScalar, ...],
        user: str,
    ) -> NumpyScalar:
        """Apply a Python function to each element; integers of kinds ``u8`` ... are passed as unsigned."""
        views = [_unsigned(a.array) if kind[0] == "u" else a.array for kind, a in zip(kinds, arguments, strict=True)]
        arrays = np.broadcast_arrays(*views)
        python: Callable[..., Any] = getattr(function, "py_func", function)
        run, results = called(python), []
        # Codes are asked of NumPy's numbers, which a comparison with an element of an array of f32 does not narrow.
        is_coded = code_bits(result_kind) > 0
        for values in zip(*(array.ravel() if is_coded else array.ravel().tolist() for array in arrays)):
            try:
                results.append(run(*values))
            except Exception as error:
                given = ", ".join(map(repr, values))
                raise HlojitError(f"{user} raised {error!r} for {given}{raised_at(error, python)}") from error
        bits = code_bits(result_kind)
        try:
            if bits:
                flat = _codes(results, bits, plain_kind(result_kind), user)
            else:
                flat = self.returned(results, result_kind, user)
        except HlojitError as error:
            raise HlojitError(f"{error}{place_of(python)}") from error
        return NumpyScalar(flat.kind, flat.array.reshape(arrays[0].shape))

    def returned(self, results: Sequence[Any], kind: str, user: str) -> NumpyScalar:
        """What a function returned for every element, as numbers of the kind that its user wants, each by itself."""
        found: dict[str, list[int]] = {}
        for number, value in enumerate(results):
            found.setdefault(_kind_of(value, user), []).append(number)
        flat: NumpyScalar | None = None
        for source, places in found.items():
            values = _array_of([results[place] for place in places], source)
            with np.errstate(all="ignore"):
                part: NumpyScalar = as_result(self, NumpyScalar(plain_kind(source), values), source, kind)
            if flat is None:
                flat = NumpyScalar(part.kind, np.empty(len(results), part.array.dtype))
            flat.array[places] = part.array
        return flat or NumpyScalar(plain_kind(kind), np.empty(0, DTYPE[plain_kind(kind)]))


def _kind_of(value: Any, user: str) -> str:
    """The kind of one number that a function returned: integers beyond i64 are unsigned."""
    if isinstance(value, (bool, np.bool_)):
        return "i1"
    if isinstance(value, (float, np.floating)):
        return "f64"
    if not isinstance(value, (int, np.integer)):
        raise HlojitError(f"{user} returned {value!r}; a scalar function returns a bool, an integer or a float")
    return "u64" if int(value) > np.iinfo(np.int64).max else "i64"


def _array_of(values: Sequence[Any], kind: str) -> Array:
    """Numbers of one kind in an array; integers wrap."""
    if kind == "i1":
        return np.array(values, dtype=np.bool_)
    if kind == "f64":
        return np.array([float(value) for value in values])
    return np.array([int(value) & _ALL_BITS for value in values], dtype=np.uint64).view(np.int64)


def _codes(results: Sequence[Any], bits: int, kind: str, user: str) -> NumpyScalar:
    for value in results:
        if not isinstance(value, (bool, int, np.bool_, np.integer)):
            raise HlojitError(f"{user} returned {value!r}; a code is an integer")
        if not (-(1 << 63) if bits == 64 else 0) <= int(value) < 1 << bits:
            raise HlojitError(f"{user} returned {int(value)}, which is outside its {bits} bits")
    flat = np.array([int(value) & _ALL_BITS for value in results], dtype=f"u{DTYPE[kind].itemsize}")
    return NumpyScalar(kind, flat.view(DTYPE[kind]))


_ALL_BITS = (1 << 64) - 1


_COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def saturate(values: Array, dtype: np.dtype[Any]) -> Array:
    """Floats to integers: toward zero, beyond the range its nearest end, NaN to 0."""
    limits = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        wide = np.trunc(values.astype(np.float64))
        # As floats, 2**63 - 1 and 2**64 - 1 round up to the power of two; nothing between is representable.
        inside = (wide >= float(limits.min)) & (wide < float(limits.max + 1))
        result = np.where(inside, wide, 0.0).astype(dtype)
    result = np.where(wide >= float(limits.max + 1), dtype.type(limits.max), result)
    return np.where(wide < float(limits.min), dtype.type(limits.min), result)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """A * b exactly, as rounded product and error (Dekker, Veltkamp's splitting)."""
    product = a * b

    def split(x: Array) -> tuple[Array, Array]:
        scaled = x * 134217729.0
        high = scaled - (scaled - x)
        return high, x - high

    (a_high, a_low), (b_high, b_low) = split(a), split(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _sum_to_odd(a: Array, b: Array) -> Array:
    """A + b rounded to odd: one more rounding to fewer bits then gives what a single rounding would."""
    total, error = two_sum(a, b)
    even = total.view(np.int64) & 1 == 0
    adjusted = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & even & np.isfinite(total), adjusted, total)


def _fma_single(a: Array, b: Array, c: Array) -> Array:
    """The product of two f32 is exact in f64; the sum is rounded to odd before it is rounded to f32."""
    product = a.astype(np.float64) * b.astype(np.float64)
    return np.asarray(_sum_to_odd(product, c.astype(np.float64))).astype(np.float32)


def _fma_double(a: Array, b: Array, c: Array) -> Array:
    """Boldo and Melquiond's algorithm of error-free transformations; exact fractions near the ends of the range."""
    a, b, c = np.broadcast_arrays(a, b, c)
    high, low = _two_product(a, b)
    upper, rest = two_sum(c, low)
    total, error = two_sum(high, upper)
    result = np.asarray(total + _sum_to_odd(rest, error))
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    plain = ~finite | (a == 0) | (b == 0)
    result = np.where(plain, a * b + c, result)

    def safe(x: Array, low: float, high: float) -> Array:
        return (np.abs(x) > low) & (np.abs(x) < high)

    fine = safe(a, 1e-140, 1e140) & safe(b, 1e-140, 1e140) & ((c == 0) | safe(c, 1e-280, 1e290))
    for index in np.argwhere(~plain & ~fine):
        place = tuple(index)
        result[place] = _exact_fma(float(a[place]), float(b[place]), float(c[place]))
    return result


def _exact_fma(a: float, b: float, c: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")
