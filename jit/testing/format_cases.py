"""Programs in a format, each with an exact oracle: every kind of op, with constants of every kind.

An oracle gets the model and the arguments' codes (arrays of Python integers) and says for each result which code each element
is, or (a frozenset) may be; results of other types are plain arrays.  Constants are codes of the format that stand for ordinary
numbers, never only 0.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from hlojit.ir.builder import Builder
from hlojit.ir.formats import FloatFormat
from hlojit.ir.graph import Value
from hlojit.ir.types import TensorType, tensor
from hlojit.testing import exact
from hlojit.testing.exact import Model, Number

NDArray = np.ndarray[Any, Any]
SHAPE = (5, 7)


@dataclass(frozen=True)
class Palette:
    """Codes of a format to write programs with."""

    format: FloatFormat
    model: Model
    seed: int = 0

    @cached_property
    def codes(self) -> list[int]:
        """Codes that are sampled: all of up to 12 bits, else some, the edges among them."""
        if self.format.bits <= 12:
            return list(range(1 << self.format.bits))
        generator = np.random.default_rng(self.seed)
        top = (1 << self.format.bits) - 1
        mantissa = 1 << self.format.mantissa_bits
        edges = [0, 1, 2, mantissa - 1, mantissa, top >> 1, (top >> 1) + 1, (top >> 1) - mantissa, top, top - 1]
        drawn = [int.from_bytes(generator.bytes(8), "little") & top for _ in range(2048)]
        return [code & top for code in edges] + drawn

    @cached_property
    def numbers(self) -> list[int]:
        """Those that are no NaN."""
        return [code for code in self.codes if not exact.is_nan(self.model.value(code))]

    @cached_property
    def ordinary(self) -> list[int]:
        """Those of numbers between 1/16 and 16, by magnitude, apart from 1, which hides multiplications; or all finite ones."""
        finite = [code for code in self.numbers if exact.magnitude(self.model.value(code)) != exact.INFINITY]
        found = [code for code in finite if Fraction(1, 16) <= exact.magnitude(self.model.value(code)) <= 16]
        found = [code for code in found if self.model.value(code) != 1]
        return found or finite

    @cached_property
    def zero(self) -> int | None:
        """The code of 0, if there is one."""
        return self._code_of(exact.ZERO)

    @cached_property
    def one(self) -> int | None:
        """The code of 1, if there is one."""
        return self._code_of(Fraction(1))

    def _code_of(self, number: Fraction) -> int | None:
        code = self.model.encode(number)
        return code if exact.same(self.model.value(code), number) else None

    def array(self, shape: Sequence[int], codes: Sequence[int], salt: int = 0) -> NDArray:
        """Codes drawn from a list, in an array of Python integers."""
        generator = np.random.default_rng([self.seed, salt, math.prod(shape)])
        drawn = generator.integers(0, len(codes), math.prod(shape))
        return cells([codes[int(each)] for each in drawn], shape)

    def constant(self, number: int) -> int:
        """An ordinary code: another one for each number."""
        return self.ordinary[(number * 7 + 3 + self.seed) % len(self.ordinary)]

    def stored(self, codes: Any) -> NDArray:
        """Codes as the format's storage."""
        plain = np.asarray(codes, dtype=object)
        flat = np.array([int(each) for each in plain.reshape(-1)], self.format.storage_bits)
        return flat.reshape(plain.shape).view(self.format.storage)


def cells(values: Sequence[Any], shape: Sequence[int]) -> NDArray:
    """An array of Python objects."""
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made.reshape(tuple(shape))


@dataclass
class Draft:
    """What a case's program is written with; ``x(...)`` adds an argument."""

    builder: Builder
    palette: Palette

    @property
    def format(self) -> FloatFormat:
        return self.palette.format

    def constant(self, codes: Any, shape: Sequence[int] | None = None) -> Value:
        """A constant of codes; with a shape a splat."""
        stored = self.palette.stored(codes)
        kind = tensor(stored.shape if shape is None else shape, self.format)
        return self.builder.constant(stored, kind)

    def integer(self, number: int) -> Value:
        """A scalar i32."""
        return self.builder.constant(number, tensor((), "i32"))

    def scalar_region(self, body: Callable[..., Any], count: int = 2) -> Any:
        """A region on scalars of the format."""
        return self.builder.region([tensor((), self.format)] * count, body)


Arguments = Callable[[Palette], list[tuple[TensorType, NDArray]]]


@dataclass(frozen=True)
class FormatCase:
    """A program: ``build`` writes it, ``oracle`` says what comes out, ``arguments`` are types with codes or plain arrays."""

    group: str
    name: str
    build: Callable[[Draft, list[Value]], Sequence[Value]]
    oracle: Callable[[Palette, list[NDArray]], list[Any]]
    arguments: Arguments
    needs: Callable[[Palette], str] = field(default=lambda palette: "")
    """Why the case is not for a format; empty if it is."""
    moves: bool = False
    """Elements keep their bits."""


def arrays(*choices: str, shape: Sequence[int] = SHAPE) -> Arguments:
    """Arguments of the format, each drawn from ``codes``, ``numbers`` or ``ordinary``."""

    def make(palette: Palette) -> list[tuple[TensorType, NDArray]]:
        return [
            (tensor(shape, palette.format), palette.array(shape, getattr(palette, choice), salt))
            for salt, choice in enumerate(choices)
        ]

    return make


def applied(palette: Palette, function: Callable[..., Number], *operands: NDArray) -> NDArray:
    """A function of exact numbers, element by element, rounded into the format."""
    model = palette.model
    known: dict[tuple[int, ...], frozenset[int]] = {}

    def one(*codes: int) -> frozenset[int]:
        if codes not in known:
            known[codes] = frozenset(model.codes(function(*map(model.value, codes))))
        return known[codes]

    with np.errstate(all="ignore"):
        return np.asarray(np.frompyfunc(one, len(operands), 1)(*operands), dtype=object)


def elementwise(name: str, function: Callable[..., Number], count: int) -> FormatCase:
    """An op of arguments, and of constants of every kind on either side."""
    group = "arithmetic"

    def build(draft: Draft, values: list[Value]) -> list[Value]:
        op: Callable[..., Value] = getattr(draft.builder, name)
        x = values[0]
        if count == 1:
            return [op(x), op(_constants(draft)[0]), op(_constants(draft)[2])]
        splat, spread, rows = _constants(draft)
        pairs = [(x, values[1]), (x, splat), (splat, x), (x, spread), (rows, x), (splat, rows), (x, x)]
        return [op(*pair) for pair in pairs]

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        splat, spread, rows = _constant_codes(palette)
        x = given[0]
        if count == 1:
            return [applied(palette, function, each) for each in (x, splat, rows)]
        pairs = [(x, given[1]), (x, splat), (splat, x), (x, spread), (rows, x), (splat, rows), (x, x)]
        return [applied(palette, function, *pair) for pair in pairs]

    return FormatCase(group, name, build, oracle, arrays(*["codes"] * count))


def _row(palette: Palette) -> NDArray:
    return cells([palette.constant(10 + k) for k in range(SHAPE[1])], SHAPE[1:])


def _constants(draft: Draft) -> tuple[Value, Value, Value]:
    """A splat, a scalar that is spread, a row that is repeated."""
    palette = draft.palette
    kind = tensor(SHAPE, draft.format)
    scalar = draft.constant(palette.constant(2), ())
    row = draft.constant(_row(palette))
    return (
        draft.constant(palette.constant(1), SHAPE),
        draft.builder.broadcast_in_dim(scalar, kind),
        draft.builder.broadcast_in_dim(row, kind, (1,)),
    )


def _constant_codes(palette: Palette) -> tuple[NDArray, NDArray, NDArray]:
    count = math.prod(SHAPE)
    rows = np.broadcast_to(_row(palette), SHAPE)
    return (
        cells([palette.constant(1)] * count, SHAPE),
        cells([palette.constant(2)] * count, SHAPE),
        cells(list(rows.reshape(-1)), SHAPE),
    )


# --------------------------------------------------------------------- compare


_DIRECTIONS: dict[str, Callable[[Any, Any], bool]] = {
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
}


def _compared(palette: Palette, direction: str, a: NDArray, b: NDArray) -> NDArray:
    compare, value = _DIRECTIONS[direction], palette.model.value

    def one(x: int, y: int) -> bool:
        p, q = value(x), value(y)
        return direction == "NE" if exact.is_nan(p) or exact.is_nan(q) else compare(p, q)

    return np.asarray(np.frompyfunc(one, 2, 1)(a, b)).astype(bool)


def comparison(direction: str) -> FormatCase:
    """A comparison with an argument and with constants."""

    def build(draft: Draft, values: list[Value]) -> list[Value]:
        x, y = values
        return [draft.builder.compare(x, each, direction) for each in (y, *_constants(draft))]

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        x, y = given
        return [_compared(palette, direction, x, each) for each in (y, *_constant_codes(palette))]

    return FormatCase("comparison", f"compare {direction}", build, oracle, arrays("codes", "codes"))


def _select() -> FormatCase:
    def build(draft: Draft, values: list[Value]) -> list[Value]:
        splat, spread, rows = _constants(draft)
        x, y = values
        chosen = draft.builder.compare(x, y, "LT")
        return [draft.builder.select(chosen, *pair) for pair in ((x, y), (splat, rows), (spread, x))]

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        splat, spread, rows = _constant_codes(palette)
        x, y = given
        chosen = _compared(palette, "LT", x, y)
        return [np.where(chosen, *pair) for pair in ((x, y), (splat, rows), (spread, x))]

    return FormatCase("comparison", "select", build, oracle, arrays("codes", "codes"), moves=True)


def _clamp() -> FormatCase:
    def bounds(palette: Palette) -> tuple[int, int]:
        low, high = sorted((palette.constant(1), palette.constant(2)), key=palette.model.value)
        return low, high

    def build(draft: Draft, values: list[Value]) -> list[Value]:
        low, high = (draft.constant(code, ()) for code in bounds(draft.palette))
        return [draft.builder.clamp(low, values[0], high)]

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        low, high = (palette.model.value(code) for code in bounds(palette))
        return [applied(palette, lambda x: exact.minimum(exact.maximum(low, x), high), given[0])]

    return FormatCase("comparison", "clamp", build, oracle, arrays("codes"))


# -------------------------------------------------------------------- movement


def movement(
    name: str, build: Callable[[Draft, Value], Value], oracle: Callable[[Palette, NDArray], NDArray]
) -> FormatCase:
    """Elements that only move, of an argument and of a constant."""

    def write(draft: Draft, values: list[Value]) -> list[Value]:
        rows = _constants(draft)[2]
        return [build(draft, values[0]), build(draft, rows)]

    def expected(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        return [oracle(palette, given[0]), oracle(palette, _constant_codes(palette)[2])]

    return FormatCase("movement", name, write, expected, arrays("codes"), moves=True)


def _pad(draft: Draft, x: Value) -> Value:
    fill = draft.constant(draft.palette.constant(3), ())
    made: Value = draft.builder.pad(x, fill, (1, 0), (0, 2), (0, 1))
    return made


def _padded(palette: Palette, x: NDArray) -> NDArray:
    fill = palette.constant(3)
    made = cells([fill] * ((SHAPE[0] + 1) * (2 * SHAPE[1] + 1)), (SHAPE[0] + 1, 2 * SHAPE[1] + 1))
    made[1:, 0 : 2 * SHAPE[1] - 1 : 2] = x
    return made


def _concatenated(palette: Palette, x: NDArray) -> NDArray:
    return np.concatenate([x, _constant_codes(palette)[0], x], axis=0)


def _updated(palette: Palette, x: NDArray) -> NDArray:
    made = x.copy()
    made[1:3, 2:5] = palette.constant(4)
    return made


def _update(draft: Draft, x: Value) -> Value:
    part = draft.constant(draft.palette.constant(4), (2, 3))
    made: Value = draft.builder.dynamic_update_slice(x, part, draft.integer(1), draft.integer(2))
    return made


def movements() -> list[FormatCase]:
    """Everything that moves elements."""
    return [
        movement("transpose", lambda d, x: d.builder.transpose(x, permutation=(1, 0)), lambda p, x: x.T),
        movement("reshape", lambda d, x: d.builder.reshape(x, (35,)), lambda p, x: x.reshape(35)),
        movement("reverse", lambda d, x: d.builder.reverse(x, (0, 1)), lambda p, x: x[::-1, ::-1]),
        movement("slice", lambda d, x: d.builder.slice(x, (1, 0), (4, 7), (1, 2)), lambda p, x: x[1:4, ::2]),
        movement("pad", _pad, _padded),
        movement(
            "concatenate",
            lambda d, x: d.builder.concatenate([x, _constants(d)[0], x], dimension=0),
            _concatenated,
        ),
        movement(
            "dynamic_slice",
            lambda d, x: d.builder.dynamic_slice(x, d.integer(1), d.integer(9), slice_sizes=(2, 3)),
            lambda p, x: x[1:3, 4:7],
        ),
        movement("dynamic_update_slice", _update, _updated),
        movement(
            "optimization_barrier",
            lambda d, x: d.builder.create("stablehlo.optimization_barrier", [x], result_types=[x.type]).result,
            lambda p, x: x,
        ),
    ]


# --------------------------------------------------------------------- convert


_TARGETS = ("f32", "f64", "f16", "bf16")


def _convert_out() -> FormatCase:
    def build(draft: Draft, values: list[Value]) -> list[Value]:
        rows = _constants(draft)[2]
        return [draft.builder.convert(each, name) for name in ("f32", "f64") for each in (values[0], rows)]

    def oracle(palette: Palette, given: list[NDArray]) -> list[Any]:
        value = palette.model.value
        rows = _constant_codes(palette)[2]
        return [
            np.asarray(np.frompyfunc(lambda code: float(value(code)), 1, 1)(each)).astype(dtype)
            for dtype in ("f4", "f8")
            for each in (given[0], rows)
        ]

    return FormatCase("conversion", "to f32 and f64", build, oracle, arrays("codes"), needs=_fits_f32)


def _fits_f32(palette: Palette) -> str:
    return "" if palette.format.compute == "f32" else "its numbers are no f32"


def _convert_integers() -> FormatCase:
    given = {"i8": range(-9, 9), "ui8": (0, 1, 2, 7, 100, 200, 255, 128), "i32": (0, 3, -3, 70000, -(2**31), 2**31 - 1)}

    def arguments(palette: Palette) -> list[tuple[TensorType, NDArray]]:
        return [
            (tensor((len(each),), name), np.array(each, tensor((), name).element_type.storage))
            for name, each in given.items()
        ]

    def build(draft: Draft, values: list[Value]) -> list[Value]:
        return [draft.builder.convert(each, draft.format) for each in values]

    def oracle(palette: Palette, arrays: list[NDArray]) -> list[Any]:
        model = palette.model
        return [
            cells([frozenset(model.codes(Fraction(int(number)))) for number in each], each.shape) for each in arrays
        ]

    return FormatCase("conversion", "from integers", build, oracle, arguments)


def _convert_to_integers() -> FormatCase:
    def build(draft: Draft, values: list[Value]) -> list[Value]:
        return [draft.builder.convert(values[0], name) for name in ("i32", "i8", "ui8", "i1")]

    def oracle(palette: Palette, given: list[NDArray]) -> list[Any]:
        value = palette.model.value

        def whole(low: int, high: int) -> Callable[[int], int]:
            def one(code: int) -> int:
                number = value(code)
                if exact.is_nan(number):
                    return 0
                return low if number <= low else high if number >= high else int(number)

            return one

        limits = ((-(2**31), 2**31 - 1, "i4"), (-128, 127, "i1"), (0, 255, "u1"))
        made = [np.asarray(np.frompyfunc(whole(low, high), 1, 1)(given[0])).astype(kind) for low, high, kind in limits]
        return [*made, np.asarray(np.frompyfunc(lambda code: value(code) != 0, 1, 1)(given[0])).astype(bool)]

    return FormatCase("conversion", "to integers", build, oracle, arrays("codes"))


def pointwise_cases() -> list[FormatCase]:
    """Arithmetic, comparison, conversion and movement."""
    return [
        *(
            elementwise(name, getattr(exact, name), 2)
            for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
        ),
        elementwise("negate", exact.negate, 1),
        elementwise("abs", exact.magnitude, 1),
        elementwise("sqrt", exact.square_root, 1),
        *map(comparison, _DIRECTIONS),
        _select(),
        _clamp(),
        *movements(),
        _convert_out(),
        _convert_integers(),
        _convert_to_integers(),
    ]
