"""What the fields of a float format mean, what is wrong with them, and in which native float they are computed.

    complaints(row)      # ["exponent_bits=0 leaves no field for the exponent; say exponent_bits=1 or more"]
    native_compute(row)  # "f32"

``FloatFormat`` (``hlojit.ir.formats``) asks when it is made.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import isfinite
from typing import Any, Final, NamedTuple, Protocol

import ml_dtypes
import numpy as np
from hlojit.ir.errors import short_repr
from hlojit.ir.time_limit import call_within


class NanEncoding(enum.Enum):
    """Which bit patterns of a float format mean "not a number"."""

    IEEE = "all exponent bits set, mantissa not zero, or infinity's code where there is no infinity"
    ALL_ONES = "exponent and mantissa all ones"
    NEGATIVE_ZERO = "the pattern of negative zero"
    NONE = "no pattern"


class Overflow(enum.Enum):
    """What a finite value becomes when it rounds beyond the largest finite number."""

    INFINITY = "infinity"
    NAN = "NaN"
    SATURATE = "the largest finite number of its sign"


class Rounding(enum.Enum):
    """Which of the two neighbours an exact result that lies between them becomes."""

    NEAREST_EVEN = "the nearer one, of two that are as near the one with an even last bit"
    NEAREST_AWAY = "the nearer one, of two that are as near the larger in magnitude"
    TOWARD_ZERO = "the smaller in magnitude; what is too large becomes the largest number"
    AWAY_FROM_ZERO = "the larger in magnitude"
    STOCHASTIC = "either, with the probability of its nearness, by bits that depend on seed, op and element"


class Fields(Protocol):
    """A float format as far as it is looked at here: the fields of ``FloatFormat``."""

    @property
    def name(self) -> str: ...
    @property
    def bits(self) -> int: ...
    @property
    def exponent_bits(self) -> int: ...
    @property
    def mantissa_bits(self) -> int: ...
    @property
    def bias(self) -> int: ...
    @property
    def signed(self) -> bool: ...
    @property
    def has_infinity(self) -> bool: ...
    @property
    def nan(self) -> NanEncoding: ...
    @property
    def overflow(self) -> Overflow: ...
    @property
    def has_zero(self) -> bool: ...
    @property
    def rounding(self) -> Rounding: ...
    @property
    def numpy_name(self) -> str: ...
    @property
    def accumulator(self) -> str: ...
    @property
    def decode(self) -> Callable[[int], float] | None: ...
    @property
    def encode(self) -> Callable[[float], int] | None: ...


_finfo: Any = ml_dtypes.finfo
LEAST_BITS: Final = 2
MOST_BITS: Final = 64
_NAME: Final = re.compile(r"!?[A-Za-z]\w*", re.ASCII)
"""What the reader of types takes for the name of an element type."""
_TAKEN: Final = re.compile(
    r"u?i\d+|si\d+|index|complex|tensor|tuple|vector|memref|token|none|future|mem|quant|true|false"
)
"""Names that the reader of types gives another meaning."""


class Native(NamedTuple):
    """A float that processors have."""

    name: str
    precision: int
    lowest: int
    """Exponent of the least number."""
    above: int
    """Exponent of the first power of two beyond the largest number."""


F32: Final = Native("f32", 24, -149, 128)
F64: Final = Native("f64", 53, -1074, 1024)


def usual_bias(row: Fields) -> int:
    """IEEE's; 0 of a format that is given by functions, or whose exponent field is none."""
    is_usual = row.decode is None and isinstance(row.exponent_bits, int) and 0 < row.exponent_bits <= MOST_BITS
    return (1 << (row.exponent_bits - 1)) - 1 if is_usual else 0


def lowest_exponent(row: Fields) -> int:
    """The exponent of the least positive number, of which all others are multiples."""
    return (1 - row.bias if row.has_zero else -row.bias) - row.mantissa_bits


def largest_code(row: Fields) -> int:
    """The pattern, without sign, of the largest finite number; below 0 where there is none."""
    if row.nan is NanEncoding.IEEE:
        return (((1 << row.exponent_bits) - 1) << row.mantissa_bits) - 1
    return (1 << (row.exponent_bits + row.mantissa_bits)) - 1 - (row.nan is NanEncoding.ALL_ONES) - row.has_infinity


def above_exponent(row: Fields) -> int:
    """The exponent of the power of two above the largest finite number."""
    return max((largest_code(row) >> row.mantissa_bits) - row.bias, lowest_exponent(row)) + 1


# --------------------------------------------------------------------------------------------------------- computing


def native_compute(row: Fields) -> str:
    """The native float in which arithmetic on a format given by fields is done before results are rounded; "" if none is right.

    Rounding the sum, product, quotient or square root that the native float has rounded must give what a single rounding of
    the exact result would.  For results in the format's range that takes twice its precision and two bits more
    (Figueroa, "When is double rounding innocuous?", 1995); products among the least numbers are exact where the native
    float reaches twice the precision further down; and where finite results that overflow differ from infinity, none may
    become infinity on the way.
    """
    for native in (F32, F64):
        if is_exact_in(row, native):
            return native.name
    return ""


def is_exact_in(row: Fields, native: Native) -> bool:
    """Whether a native float is enough for a format given by fields, see ``native_compute``.

    Rounding toward or away from zero must see on which side of a number an exact result lies.  Sums that the native float
    holds exactly tell; products, quotients and roots of numbers of half its precision are never so near to a number without
    being it that rounding them would hide it.  A stochastic rounding sees what f64 holds of a result.
    """
    precision, lowest, above = row.mantissa_bits + 1, lowest_exponent(row), above_exponent(row)
    if row.rounding is Rounding.STOCHASTIC and native is not F64:
        return False
    if row.has_zero and 1 - row.bias < native.lowest + native.precision - 1:
        return False  # normal numbers would be subnormal ones there, whose bits are others
    if row.rounding in DIRECTED and not _tells_sides(native, lowest, above):
        return False
    if (precision, lowest, above) == (native.precision, native.lowest, native.above):
        return not _tells_overflow(row) and row.rounding is Rounding.NEAREST_EVEN
    return _is_enough(native, precision, lowest, above, tells_overflow=_tells_overflow(row))


def _tells_sides(native: Native, lowest: int, above: int) -> bool:
    """Whether sums and products are exact, and quotients normal numbers."""
    normal = native.lowest + native.precision - 1
    return above + 1 - lowest <= native.precision and 2 * lowest >= native.lowest and lowest - above >= normal


def is_rounded_twice(row: Fields) -> bool:
    """Whether the float in which a format given by fields is computed has not the bits to be rounded to nearest first.

    f64 must round to odd then.  A product that became zero on the way is another number in formats without zero.
    """
    if not native_compute(row):
        return True
    native = F32 if native_compute(row) == F32.name else F64
    lowest, above = lowest_exponent(row), above_exponent(row)
    return not row.has_zero and not reaches_down(native, lowest, above)


def needs_integers(row: Fields) -> bool:
    """Whether no native float is enough, rounded to odd or not, so that a format's arithmetic is done in integers."""
    return row.decode is None and not native_compute(row) and not is_exact_by_odd(row)


def reaches_down(native: Native, lowest: int, above: int) -> bool:
    """Whether no product or quotient of numbers between powers of two becomes zero."""
    return 2 * lowest >= native.lowest and lowest - above >= native.lowest


def is_exact_by_odd(row: Fields) -> bool:
    """Whether f64 rounded to odd is enough: two bits to spare, and results and their errors far inside its range."""
    lowest, above = lowest_exponent(row), above_exponent(row)
    far = 2 * lowest - 8 >= F64.lowest and 2 * above <= F64.above and above - lowest + 60 <= F64.above
    return row.mantissa_bits + 3 <= F64.precision and far and row.rounding is not Rounding.STOCHASTIC


DIRECTED: Final = (Rounding.TOWARD_ZERO, Rounding.AWAY_FROM_ZERO)


def _tells_overflow(row: Fields) -> bool:
    """Whether a finite number that is too large becomes another one than infinity does."""
    return row.has_infinity and (row.overflow is not Overflow.INFINITY or row.rounding is Rounding.TOWARD_ZERO)


def _is_enough(native: Native, precision: int, lowest: int, above: int, *, tells_overflow: bool) -> bool:
    if tells_overflow and (2 * above > native.above or above - lowest > native.above):
        return False
    fits = lowest >= native.lowest and above <= native.above
    return fits and 2 * precision + 2 <= native.precision and lowest - 2 * precision >= native.lowest


MOST_SECONDS: Final = 5.0
"""Seconds that a function may take for all codes of such a format; those that end take milliseconds."""
MOST_LOOKED_AT: Final = 8
"""Bits of a format whose functions are asked for all of its numbers to learn in what it is computed."""


def compute_of_functions(row: Fields) -> str:
    """The native float in which a format given by functions is computed: f32 if that is exact enough for all its numbers."""
    python: Any = getattr(row.decode, "py_func", row.decode)
    if row.bits > MOST_LOOKED_AT:
        return "f64"
    try:
        found = call_within(
            MOST_SECONDS, lambda: "decode", lambda: [float(python(code)) for code in range(1 << row.bits)]
        )
    except Exception:
        return "f64"  # whoever compiles or calls it says what is wrong
    numbers = [Fraction(value) for value in found if isfinite(value)]
    shapes = [(abs(each.numerator), each.denominator.bit_length() - 1) for each in numbers if each]
    if not shapes:
        return "f32"
    odd = [numerator >> _zeros(numerator) for numerator, _ in shapes]
    lowest = min(_zeros(numerator) - down for numerator, down in shapes)
    above = max(numerator.bit_length() - down for numerator, down in shapes)
    precision = max(each.bit_length() for each in odd)
    return "f32" if _is_enough(F32, precision, lowest, above, tells_overflow=True) else "f64"


def _zeros(number: int) -> int:
    """How many of the lowest bits are zero."""
    return (number & -number).bit_length() - 1


# ---------------------------------------------------------------------------------------------------------- complaints


def complaints(row: Fields) -> list[str]:
    """Everything that is wrong with a format's fields, each with what to change."""
    found = [*name_complaints(row.name), *_of_kinds(row)]
    if found:
        return found
    found = [*_of_width(row), *_of_functions(row), *_of_dtype(row), *_of_accumulator(row)]
    if row.decode is None and row.encode is None:
        found += _of_fields(row) or [*_of_patterns(row), *_of_range(row)]
    return found


def name_complaints(name: object) -> Iterator[str]:
    """What is wrong with the name of an element type."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield (
            f"name={short_repr(name)} cannot be written in a program; a name is a letter with letters, digits and "
            f"underscores behind it ({_NAME.pattern})"
        )
    elif _TAKEN.fullmatch(name):
        yield f"name={name!r} means something else in a program; choose another name"


def _of_kinds(row: Fields) -> Iterator[str]:
    for field in ("bits", "exponent_bits", "mantissa_bits", "bias"):
        value = getattr(row, field)
        if not isinstance(value, int) or isinstance(value, bool):
            yield f"{field}={value!r} is no integer"
    for field in ("signed", "has_infinity", "has_zero"):
        if not isinstance(getattr(row, field), (bool, np.bool_)):
            yield f"{field}={getattr(row, field)!r} is neither True nor False"
    for field, kind in (("nan", NanEncoding), ("overflow", Overflow), ("rounding", Rounding)):
        if not isinstance(getattr(row, field), kind):
            choices = ", ".join(f"{kind.__name__}.{each.name}" for each in kind)
            yield f"{field}={getattr(row, field)!r} is none of {choices}"
    for field in ("decode", "encode"):
        value = getattr(row, field)
        if value is not None and not callable(value):
            yield f"{field}={value!r} is no function"


def _of_width(row: Fields) -> Iterator[str]:
    if not LEAST_BITS <= row.bits <= MOST_BITS:
        yield f"it has {row.bits} bits; a format has {LEAST_BITS} to {MOST_BITS}"


def _of_functions(row: Fields) -> Iterator[str]:
    if (row.decode is None) != (row.encode is None):
        given, missing = ("decode", "encode") if row.decode else ("encode", "decode")
        yield f"it has {given} and no {missing}; give both functions or none"
    elif row.encode and row.rounding is not Rounding.NEAREST_EVEN:
        yield (
            f"rounding=Rounding.{row.rounding.name} and encode: a format given by functions is rounded by encode; leave "
            "rounding out"
        )


def _of_dtype(row: Fields) -> Iterator[str]:
    if not row.numpy_name:
        return
    known = getattr(np, row.numpy_name, None) or getattr(ml_dtypes, row.numpy_name, None)
    try:
        dtype: np.dtype[Any] | None = None if known is None else np.dtype(known)
    except TypeError:
        dtype = None
    if dtype is None:
        yield f"numpy_name={row.numpy_name!r} is a dtype of neither NumPy nor ml_dtypes; leave it out if there is none"
        return
    width = int(_finfo(dtype).bits) if _is_float(dtype) else 8 * dtype.itemsize
    if width != row.bits:
        yield f"numpy_name={row.numpy_name!r} is a dtype of {width} bits, and the format has {row.bits}; leave it out"


def _is_float(dtype: np.dtype[Any]) -> bool:
    try:
        _finfo(dtype)
    except ValueError:
        return False
    return True


def _of_accumulator(row: Fields) -> Iterator[str]:
    if row.accumulator not in ("f32", "f64"):
        yield f"accumulator={row.accumulator!r} is no type in which sums are taken; say 'f32' or 'f64'"


def _of_fields(row: Fields) -> list[str]:
    """The widths of the fields."""
    found = []
    if row.exponent_bits < 1:
        found.append(
            f"exponent_bits={row.exponent_bits} leaves no field for the exponent; say 1 or more (a format without one is "
            "given by decode= and encode=)"
        )
    if row.mantissa_bits < 0:
        found.append(f"mantissa_bits={row.mantissa_bits} is negative; say 0 or more")
    fields = int(row.signed) + row.exponent_bits + row.mantissa_bits
    if not found and row.bits != fields:
        found.append(
            f"bits={row.bits}, and its sign, exponent and mantissa have {fields}; leave bits out, or change "
            "exponent_bits, mantissa_bits or signed"
        )
    return found


def _of_patterns(row: Fields) -> Iterator[str]:
    """Infinities, NaN and overflow: whether there are patterns for them."""
    nan = row.nan
    if nan is NanEncoding.IEEE and row.mantissa_bits == 0:
        yield (
            "nan=NanEncoding.IEEE is a mantissa that is not zero, and mantissa_bits=0; say nan=NanEncoding.ALL_ONES or "
            "NanEncoding.NONE"
        )
    if nan is NanEncoding.NEGATIVE_ZERO and not row.signed:
        yield "nan=NanEncoding.NEGATIVE_ZERO and signed=False: there is no negative zero; say NanEncoding.ALL_ONES or NONE"
    if nan is NanEncoding.NEGATIVE_ZERO and not row.has_zero:
        yield "nan=NanEncoding.NEGATIVE_ZERO and has_zero=False: there is no zero; say NanEncoding.ALL_ONES or NONE"
    if row.overflow is Overflow.INFINITY and not row.has_infinity:
        yield "overflow=Overflow.INFINITY (the default) and has_infinity=False; say Overflow.NAN or Overflow.SATURATE"
    if row.overflow is Overflow.NAN and nan is NanEncoding.NONE:
        yield "overflow=Overflow.NAN and nan=NanEncoding.NONE; say Overflow.SATURATE, or give it a NaN"
    if largest_code(row) < (1 if row.has_zero else 0):
        yield (
            "infinity and NaN leave no pattern for a number but zero; say has_infinity=False or nan=NanEncoding.NONE, or "
            "give it more bits"
        )


FURTHEST: Final = 1 << 18
"""Magnitude of the exponents that a format's numbers may have."""


def _of_range(row: Fields) -> Iterator[str]:
    lowest, above = lowest_exponent(row), above_exponent(row)
    if lowest < -FURTHEST or above > FURTHEST:
        yield f"it has numbers from 2**{lowest} to 2**{above}, beyond 2**{FURTHEST}; is bias={row.bias} right?"
