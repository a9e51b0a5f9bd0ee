"""Element types: one table of rows that the parser, the printer, casts, folding and every emitter read.

The table holds integers, floats and complex types alike.  A float format is described by its parameters, so that a
vendor's format is one more row and nothing else::

    register_element_type(FloatFormat("f8E4M3", exponent_bits=4, mantissa_bits=3, bias=7))

Nothing in hlojit enumerates element types; ask the row for what it can do.  Names are looked up in the current environment
(``hlojit.ir.environment``); two plugins may call different formats by one name, in scopes of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np
from hlojit.ir.environment import ELEMENT_TYPES, process_environment, tables
from hlojit.ir.errors import HlojitError
from hlojit.ir.format_fields import NanEncoding as NanEncoding  # noqa: PLC0414
from hlojit.ir.format_fields import Overflow as Overflow  # noqa: PLC0414
from hlojit.ir.format_fields import Rounding as Rounding  # noqa: PLC0414
from hlojit.ir.format_fields import complaints, compute_of_functions, native_compute, needs_integers, usual_bias
from hlojit.ir.named_fields import named_fields
from hlojit.ir.near_names import did_you_mean


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ElementType(ABC):
    """Base of the rows.  ``name`` is the MLIR spelling, ``bits`` the width of one encoded value.

    Rows are equal if all of their fields are, functions among them: a format with another codec is another type.
    """

    name: str
    bits: int

    def __hash__(self) -> int:
        # Every look-up of an interned type hashes a row; few rows have the same name.
        return hash(self.name)

    @property
    @abstractmethod
    def storage(self) -> np.dtype[Any]:
        """NumPy dtype of the buffers that hold this type, one element per item (i1 is a byte)."""

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """NumPy's or ml_dtypes' dtype for arrays of this type, or None when there is none."""
        return self.storage

    @property
    def itemsize(self) -> int:
        """Bytes per element in a buffer."""
        return int(self.storage.itemsize)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class BooleanType(ElementType):
    """``i1``: a byte in memory, 0 or 1."""

    name: str = "i1"
    bits: int = 1

    __hash__ = ElementType.__hash__

    @property
    def storage(self) -> np.dtype[Any]:
        """NumPy's bool."""
        return np.dtype(np.bool_)


@dataclass(frozen=True, slots=True)
class IntegerType(ElementType):
    """``i2`` ... ``i64`` (two's complement) and ``ui2`` ... ``ui64``; sub-byte values take a byte each."""

    signed: bool = True

    __hash__ = ElementType.__hash__

    @property
    def storage(self) -> np.dtype[Any]:
        """The NumPy integer that holds one value (int8 for i4)."""
        return np.dtype(f"{'i' if self.signed else 'u'}{max(self.bits, 8) // 8}")

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """NumPy's dtype; ml_dtypes' for the sub-byte types."""
        if self.bits >= 8:
            return self.storage
        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, f"{'' if self.signed else 'u'}int{self.bits}"))
        return found

    @property
    def minimum(self) -> int:
        """Smallest value."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def maximum(self) -> int:
        """Largest value."""
        return (1 << (self.bits - self.signed)) - 1


INDEX = IntegerType("index", 64)
"""Sizes and places in memory.  Layouts have such elements, and shape computations of other dialects; StableHLO's values never
do, so it is no row of the table of element types."""


class _Computed(ElementType):
    """Room for what a format's fields and functions decide, once it is asked for."""

    __slots__ = ("_compute",)
    hlojit_runtime = ("_compute",)


@named_fields
@dataclass(frozen=True, slots=True)
class FloatFormat(_Computed):
    """A binary float: sign (optional), exponent, mantissa, and what its special patterns mean.

    What the fields cannot say - posits, logarithmic numbers, fixed point - is given by functions.  A format that contradicts
    itself raises ``HlojitError`` when it is made; the error lists everything that is wrong.  See ``docs/formats.md``.

    bits
        Width, 2 to 64.  May be left out: it is the sum of the fields.
    exponent_bits, mantissa_bits
        Widths of the fields, 1 and 0 at least.  The exponent field 0 holds the subnormal numbers.
    bias
        The exponent field holds the exponent plus this; by default IEEE's ``2**(exponent_bits - 1) - 1``.
    signed
        Whether the top bit is a sign.  A negative result in a format without one is NaN, or 0 if there is none.
    has_infinity
        Whether there is a pattern for infinity: with ``NanEncoding.IEEE`` the largest exponent with mantissa 0, otherwise the
        largest pattern that is not NaN.  Where there is none, infinity is treated like an overflow.
    nan
        Which patterns are NaN; with ``NanEncoding.IEEE`` and no infinity, infinity's is, too.  In a format without any, NaN
        becomes -0.0 (0 without a sign).
    overflow
        What is too large becomes.
    has_zero
        ``False``: the code 0 is the smallest power of two, there are no subnormal numbers, and zero becomes NaN (or the
        smallest number).
    rounding
        How results are rounded, by whoever computes: every back end, ``Array.from_values`` and constants in text.
        ``STOCHASTIC`` is to nearest wherever there is no op: in constants and arrays that the host makes.
    numpy_name
        The dtype in NumPy or ml_dtypes that has the same bits, if one exists.  A format without one travels outside as
        ``hlojit.Array`` over unsigned integers.
    accumulator
        The float, ``"f32"`` or ``"f64"``, in which reductions and products are summed if it is wider than ``compute``; they
        are rounded once, at the end.
    decode, encode
        Numba-compilable functions from a code, an unsigned integer, to a number, and from a number of 64 bits to the nearest
        code, whichever that is: ``encode`` rounds, saturates and knows NaN, and the fields beside ``bits`` and
        ``accumulator`` say nothing.
    """

    bits: int = 0
    exponent_bits: int = 0
    mantissa_bits: int = 0
    bias: int = cast(int, None)
    signed: bool = True
    has_infinity: bool = True
    nan: NanEncoding = NanEncoding.IEEE
    overflow: Overflow = Overflow.INFINITY
    has_zero: bool = True
    numpy_name: str = ""
    accumulator: str = "f32"
    decode: Callable[[int], float] | None = None
    encode: Callable[[float], int] | None = None
    rounding: Rounding = Rounding.NEAREST_EVEN

    __hash__ = ElementType.__hash__

    def __post_init__(self) -> None:
        if self.bits == 0 and all(isinstance(field, int) for field in (self.exponent_bits, self.mantissa_bits)):
            object.__setattr__(self, "bits", bool(self.signed) + self.exponent_bits + self.mantissa_bits)
        if self.bias is None:
            object.__setattr__(self, "bias", usual_bias(self))
        found = complaints(self)
        if not found and (taken := BUILT_IN.get(self.name)) is not None and self != taken:
            found = [f"name={self.name!r} is a type of hlojit's own; choose another name"]
        if found:
            raise HlojitError(f"the float format {self.name!r} cannot be: {'; '.join(found)}")

    @property
    def storage(self) -> np.dtype[Any]:
        """The format's own dtype if NumPy or ml_dtypes has one, otherwise the unsigned integer of its width."""
        return self.dtype or self.storage_bits

    @property
    def storage_bits(self) -> np.dtype[Any]:
        """The unsigned integer dtype that holds one encoded value."""
        width = 8
        while width < self.bits:
            width *= 2
        return np.dtype(f"u{width // 8}")

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """NumPy's or ml_dtypes' dtype, or None."""
        if not self.numpy_name:
            return None
        found: np.dtype[Any] = np.dtype(getattr(np, self.numpy_name, None) or getattr(ml_dtypes, self.numpy_name))
        return found

    @property
    def compute(self) -> str:
        """Name of the native type in which arithmetic on this format is done before rounding: f32 or f64.

        See ``hlojit.ir.format_fields``.  What ``decode`` returns is held in this type; ``encode`` takes f64.  Of a format that is
        computed in integers, the type that shows its numbers.
        """
        return self._found() or "f64"

    @property
    def in_integers(self) -> bool:
        """Whether arithmetic on this format is done in integers, because no native float is enough."""
        return not self._found()

    def _found(self) -> str:
        found: str | None = getattr(self, "_compute", None)
        if found is None:
            found = compute_of_functions(self) if self.decode is not None else native_compute(self)
            found = found or ("" if needs_integers(self) else "f64")
            object.__setattr__(self, "_compute", found)
        return found

    @property
    def is_native(self) -> bool:
        """Whether the format is its own compute type."""
        return self.name in ("f32", "f64")


@dataclass(frozen=True, slots=True)
class ComplexType(ElementType):
    """``complex<f32>`` and ``complex<f64>``."""

    component: str = "f32"

    __hash__ = ElementType.__hash__

    @property
    def storage(self) -> np.dtype[Any]:
        """NumPy's complex64 or complex128."""
        return np.dtype(f"c{self.bits // 8}")


@dataclass(frozen=True, slots=True)
class QuantizedType(ElementType):
    """``!quant.uniform<storage:expressed, scale:zero_point>``: integers that stand for ``(integer - zero_point) * scale``.

    Per tensor; per axis, where ``axis`` is set (a scale and a zero point for each index of that dimension); or by blocks
    (MLIR's sub-channel quantization), where ``blocks`` holds pairs of a dimension and the size of its blocks, and ``grid``
    how many blocks there are in each dimension of the tensor.  ``name`` is the whole MLIR spelling.  Instances are made by
    ``hlojit.ir.quantized.quantized_type``; they are not rows of the table.
    """

    storage_type: str = "i8"
    expressed_type: str = "f32"
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int | None = None
    storage_min: int | None = None
    storage_max: int | None = None
    blocks: tuple[tuple[int, int], ...] = ()
    grid: tuple[int, ...] = ()

    __hash__ = ElementType.__hash__

    @property
    def storage(self) -> np.dtype[Any]:
        """The storage integer's dtype."""
        return element_type(self.storage_type).storage

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The dtype of arrays of this type outside: the storage integer's."""
        return element_type(self.storage_type).dtype

    @property
    def storage_element(self) -> IntegerType:
        """The row of the storage integer."""
        row = element_type(self.storage_type)
        assert isinstance(row, IntegerType)
        return row

    @property
    def expressed_element(self) -> FloatFormat:
        """The row of the float that elements stand for."""
        row = element_type(self.expressed_type)
        assert isinstance(row, FloatFormat)
        return row

    @property
    def minimum(self) -> int:
        """Smallest integer that may be stored."""
        return self.storage_element.minimum if self.storage_min is None else self.storage_min

    @property
    def maximum(self) -> int:
        """Largest integer that may be stored."""
        return self.storage_element.maximum if self.storage_max is None else self.storage_max

    @property
    def is_per_tensor(self) -> bool:
        """Whether one scale and one zero point serve all elements."""
        return self.axis is None and not self.blocks


def register_element_type(row: ElementType, *, replace: bool = False) -> ElementType:
    """Add a row of hlojit's own to the table and return it.  A name that is taken by a different row is an error."""
    present = tables().element_types.get(row.name)
    if present is not None and present != row and not replace:
        raise HlojitError(f"element type {row.name!r} is already registered: {present!r}")
    process_environment().define(ELEMENT_TYPES, row.name, row)
    return row


def unregister_element_type(name: str) -> None:
    """Remove a row that ``register_element_type`` added."""
    process_environment().undefine(ELEMENT_TYPES, name)


def element_type(name: str) -> ElementType:
    """Return the row called ``name`` (its MLIR spelling) in the current environment."""
    found = tables().element_types.get(name)
    if found is None:
        known = tables()
        names = known.element_types
        hint = did_you_mean(name, names) or f"; known: {', '.join(names)}"
        raise HlojitError(f"unknown element type {name!r}{hint}{known.who_brings(ELEMENT_TYPES, name)}")
    return found


def find_element_type(name: str) -> ElementType | None:
    """Return the row called ``name`` in the current environment, or None."""
    return tables().element_types.get(name)


def element_types() -> Iterator[ElementType]:
    """Iterate over the rows of the current environment in the order of their registration."""
    return iter(tables().element_types.values())


def element_type_of(dtype: np.dtype[Any]) -> ElementType:
    """Return the row whose NumPy dtype is ``dtype`` (byte order ignored)."""
    for row in element_types():
        if row.dtype is not None and row.dtype == dtype.newbyteorder("="):
            return row
    raise HlojitError(f"no element type corresponds to NumPy dtype {dtype}")


def _register_builtin_types() -> None:
    register_element_type(BooleanType())
    for bits in (2, 4, 8, 16, 32, 64):
        register_element_type(IntegerType(f"i{bits}", bits, signed=True))
        register_element_type(IntegerType(f"ui{bits}", bits, signed=False))
    fn = {"has_infinity": False, "nan": NanEncoding.ALL_ONES, "overflow": Overflow.NAN}
    fnuz = {"has_infinity": False, "nan": NanEncoding.NEGATIVE_ZERO, "overflow": Overflow.NAN}
    finite = {"has_infinity": False, "nan": NanEncoding.NONE, "overflow": Overflow.SATURATE}
    rows: tuple[tuple[str, str, int, int, int, dict[str, Any]], ...] = (
        ("f64", "float64", 11, 52, 1023, {"accumulator": "f64"}),
        ("f32", "float32", 8, 23, 127, {}),
        ("f16", "float16", 5, 10, 15, {}),
        ("bf16", "bfloat16", 8, 7, 127, {}),
        ("f8E3M4", "float8_e3m4", 3, 4, 3, {}),
        ("f8E4M3", "float8_e4m3", 4, 3, 7, {}),
        ("f8E5M2", "float8_e5m2", 5, 2, 15, {}),
        ("f8E4M3FN", "float8_e4m3fn", 4, 3, 7, fn),
        ("f8E4M3FNUZ", "float8_e4m3fnuz", 4, 3, 8, fnuz),
        ("f8E4M3B11FNUZ", "float8_e4m3b11fnuz", 4, 3, 11, fnuz),
        ("f8E5M2FNUZ", "float8_e5m2fnuz", 5, 2, 16, fnuz),
        ("f8E8M0FNU", "float8_e8m0fnu", 8, 0, 127, fn | {"signed": False, "has_zero": False}),
        ("f6E2M3FN", "float6_e2m3fn", 2, 3, 1, finite),
        ("f6E3M2FN", "float6_e3m2fn", 3, 2, 3, finite),
        ("f4E2M1FN", "float4_e2m1fn", 2, 1, 1, finite),
    )
    for name, numpy_name, exponent_bits, mantissa_bits, bias, extra in rows:
        register_element_type(
            FloatFormat(
                name,
                exponent_bits=exponent_bits,
                mantissa_bits=mantissa_bits,
                bias=bias,
                numpy_name=numpy_name,
                **extra,
            )
        )
    register_element_type(ComplexType("complex<f32>", 64, component="f32"))
    register_element_type(ComplexType("complex<f64>", 128, component="f64"))


BUILT_IN: dict[str, ElementType] = {}
"""hlojit's own rows; keys of caches name these, and hold the content of all others."""

_register_builtin_types()

BUILT_IN.update((row.name, row) for row in element_types())
