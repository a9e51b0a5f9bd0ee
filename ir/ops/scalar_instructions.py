"""Scalar rules as StableHLO: ``ScalarInstructions`` is a ``ScalarBuilder`` whose scalars are tensors of one shape.

What rules say for all targets (``hlojit.ir.scalar``) becomes additions, comparisons and selections of a program, for readers
that have no CHLO.  StableHLO has no fused multiply-add: in f32 it is computed in f64, in f64 from exact products of halves,
which misses the rounded value only beside ties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, final

from hlojit.ir.attributes import GatherDimensionNumbers
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import BooleanType, ElementType, FloatFormat, IntegerType
from hlojit.ir.ops.definition import Pointwise, PointwiseCall
from hlojit.ir.ops.foreign_rules import pointwise
from hlojit.ir.scalar import formats
from hlojit.ir.scalar.builder import Pair
from hlojit.ir.types import tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value

_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f32": 32, "f64": 64}
_ORDERED = {"oeq": "EQ", "olt": "LT", "ole": "LE", "ogt": "GT", "oge": "GE"}
_NEGATED = {"ult": "GE", "ule": "GT", "ugt": "LE", "uge": "LT"}
_INTEGER = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}
_LOW_HALF = (1 << 27) - 1


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that plays the part of one scalar."""

    kind: str
    value: Value


@final
class ScalarInstructions:
    """Implements ``ScalarBuilder`` with a builder of instructions, for tensors of ``shape``."""

    def __init__(self, builder: Any, shape: tuple[int, ...]):
        self._b = builder
        self._shape = shape
        self._constants: dict[tuple[str, str], Tensor] = {}

    def _type(self, kind: str) -> Any:
        return tensor(self._shape, kind)

    def constant(self, kind: str, value: int | float) -> Tensor:
        """A constant; integers wrap."""
        key = (kind, repr(value))
        found = self._constants.get(key)
        if found is None:
            number: Any = value
            if kind not in ("f32", "f64"):
                bits = _BITS[kind]
                number = int(value) & ((1 << bits) - 1)
                number -= 1 << bits if bits > 1 and number >> (bits - 1) else 0
            found = self._constants[key] = Tensor(kind, self._b.constant(number, self._type(kind)))
        return found

    def _made(self, kind: str, value: Any) -> Tensor:
        return Tensor(kind, value)

    def _unsigned(self, a: Tensor) -> Value:
        made: Value = self._b.bitcast_convert(a.value, self._type(f"u{a.kind}"))
        return made

    def _signed(self, value: Value, kind: str) -> Tensor:
        return Tensor(kind, self._b.bitcast_convert(value, self._type(kind)))

    def _same(self, method: str) -> Callable[..., Tensor]:
        """An instruction on operands of one kind, which is the result's."""
        build = getattr(self._b, method)
        return lambda *operands: Tensor(operands[0].kind, build(*(each.value for each in operands)))

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        method = _DIRECT.get(name)
        if method is None:
            raise AttributeError(name)
        return self._same(method)

    # integers

    def udiv(self, a: Tensor, b: Tensor) -> Tensor:
        """Unsigned quotient."""
        return self._signed(self._b.divide(self._unsigned(a), self._unsigned(b)), a.kind)

    def urem(self, a: Tensor, b: Tensor) -> Tensor:
        """Unsigned remainder."""
        return self._signed(self._b.remainder(self._unsigned(a), self._unsigned(b)), a.kind)

    def icmp(self, predicate: str, a: Tensor, b: Tensor) -> Tensor:
        """Compare integers."""
        unsigned = predicate[0] == "u" and a.kind != "i1"
        direction = _INTEGER[predicate[-2:]]
        left, right = (self._unsigned(each) if unsigned else each.value for each in (a, b))
        return Tensor("i1", self._b.compare(left, right, direction))

    # floats

    def fma(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """A * b + c, rounded once, but for ties between f64."""
        if a.kind == "f64":
            return self._fma_of_halves(a, b, c)
        wide = [self.fpext(each) for each in (a, b, c)]
        return self.fptrunc(self.fadd(self.fmul(wide[0], wide[1]), wide[2]))

    def _fma_of_halves(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        mask = self.constant("i64", ~_LOW_HALF)
        highs = [self.bitcast(self.and_(self.bitcast(each, "i64"), mask), "f64") for each in (a, b)]
        lows = [self.fsub(each, high) for each, high in zip((a, b), highs)]
        product = self.fmul(a, b)
        rest = self.fsub(self.fmul(highs[0], highs[1]), product)
        rest = self.fadd(rest, self.fmul(highs[0], lows[1]))
        rest = self.fadd(rest, self.fmul(lows[0], highs[1]))
        rest = self.fadd(rest, self.fmul(lows[0], lows[1]))
        total = self.fadd(product, c)
        back = self.fsub(total, product)
        lost = self.fadd(self.fsub(product, self.fsub(total, back)), self.fsub(c, back))
        exact = self.fadd(total, self.fadd(lost, rest))
        finite = self.fcmp("olt", self.fabs(total), self.constant("f64", float("inf")))
        return self.select(finite, exact, total)

    def truncate(self, a: Tensor) -> Tensor:
        """Toward zero, with the operand's sign."""
        toward = self.select(self.fcmp("olt", a, self.constant(a.kind, 0.0)), self.ceil(a), self.floor(a))
        return self.copysign(toward, a)

    def copysign(self, magnitude: Tensor, sign: Tensor) -> Tensor:
        """A magnitude with another number's sign."""
        kind = f"i{_BITS[sign.kind]}"
        top = 1 << (_BITS[sign.kind] - 1)
        rest = self.and_(self.bitcast(magnitude, kind), self.constant(kind, top - 1))
        return self.bitcast(self.or_(rest, self.and_(self.bitcast(sign, kind), self.constant(kind, top))), sign.kind)

    def fcmp(self, predicate: str, a: Tensor, b: Tensor) -> Tensor:
        """Compare floats."""
        build = self._b

        def compare(direction: str) -> Any:
            return build.compare(a.value, b.value, direction)

        def unordered(word: str, join: Callable[..., Any]) -> Any:
            return join(*(build.compare(each.value, each.value, word) for each in (a, b)))

        if predicate in _ORDERED:
            return Tensor("i1", compare(_ORDERED[predicate]))
        if predicate in _NEGATED:
            return Tensor("i1", build.not_(compare(_NEGATED[predicate])))
        if predicate == "une":
            return Tensor("i1", compare("NE"))
        if predicate == "uno":
            return Tensor("i1", unordered("NE", build.or_))
        known = unordered("EQ", build.and_)
        if predicate == "ord":
            return Tensor("i1", known)
        if predicate == "one":
            return Tensor("i1", build.and_(compare("NE"), known))
        return Tensor("i1", build.or_(compare("EQ"), build.not_(known)))

    # conversions

    def bitcast(self, a: Tensor, kind: str) -> Tensor:
        """The same bits."""
        return a if a.kind == kind else Tensor(kind, self._b.bitcast_convert(a.value, self._type(kind)))

    def sext(self, a: Tensor, kind: str) -> Tensor:
        """Extend a signed integer; of i1, 0 or -1."""
        if a.kind == "i1":
            return self.select(a, self.constant(kind, -1), self.constant(kind, 0))
        return self._converted(a, kind)

    def zext(self, a: Tensor, kind: str) -> Tensor:
        """Extend with zeros."""
        if a.kind == "i1":
            return self._converted(a, kind)
        return self._signed(self._b.convert(self._unsigned(a), f"u{kind}"), kind)

    def trunc(self, a: Tensor, kind: str) -> Tensor:
        """Drop high bits."""
        if kind == "i1":
            return self.icmp("ne", self.and_(a, self.constant(a.kind, 1)), self.constant(a.kind, 0))
        low = self.and_(a, self.constant(a.kind, (1 << _BITS[kind]) - 1))
        return self._signed(self._b.convert(self._unsigned(low), f"u{kind}"), kind)

    def _converted(self, a: Tensor, kind: str) -> Tensor:
        return Tensor(kind, self._b.convert(a.value, kind))

    def sitofp(self, a: Tensor, kind: str) -> Tensor:
        """A signed integer's value."""
        return self._converted(a, kind)

    def uitofp(self, a: Tensor, kind: str) -> Tensor:
        """An unsigned integer's value."""
        return self._converted(a, kind) if a.kind == "i1" else Tensor(kind, self._b.convert(self._unsigned(a), kind))

    def fptosi(self, a: Tensor, kind: str) -> Tensor:
        """The integer part."""
        return self._converted(a, kind)

    def fptoui(self, a: Tensor, kind: str) -> Tensor:
        """The integer part, unsigned."""
        return self._signed(self._b.convert(a.value, f"u{kind}"), kind)

    def fpext(self, a: Tensor) -> Tensor:
        """f32 to f64."""
        return self._converted(a, "f64")

    def fptrunc(self, a: Tensor) -> Tensor:
        """f64 to f32."""
        return self._converted(a, "f32")

    def half_to_float(self, bits: Tensor) -> Tensor:
        """The number whose f16 has these bits."""
        return Tensor("f32", self._b.convert(self._b.bitcast_convert(bits.value, self._type("f16")), "f32"))

    def float_to_half(self, a: Tensor) -> Tensor:
        """The bits of a number rounded to f16."""
        return self._signed(self._b.convert(a.value, "f16"), "i16")

    # selection

    def select(self, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """One of two."""
        return Tensor(a.kind, self._b.select(condition.value, a.value, b.value))

    def lookup(self, kind: str, table: tuple[int | float, ...], index: Tensor) -> Tensor:
        """Elements of a table."""
        import numpy as np

        dtype = {"f32": "f4", "f64": "f8"}.get(kind) or f"i{_BITS[kind] // 8}"
        wrapped = [int(v) - (1 << 64) if kind == "i64" and int(v) >> 63 else v for v in table]
        values = self._b.constant(np.array(wrapped, dtype), kind)
        rank = len(self._shape)
        numbers = GatherDimensionNumbers(collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=rank)
        attributes = {"dimension_numbers": numbers, "slice_sizes": (1,), "indices_are_sorted": False}
        made = self._b.create("stablehlo.gather", [values, index.value], attributes=attributes)
        return Tensor(kind, made.result)

    def call(self, function: Callable[..., Any], *_: Any) -> NoReturn:
        """There is no StableHLO for Python functions of plugins."""
        raise HlojitError(f"{function.__name__} is a Python function, which StableHLO cannot say")


_DIRECT = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "sdiv": "divide",
    "srem": "remainder",
    "and_": "and_",
    "or_": "or_",
    "xor": "xor",
    "shl": "shift_left",
    "lshr": "shift_right_logical",
    "ashr": "shift_right_arithmetic",
    "population_count": "popcnt",
    "count_leading_zeros": "count_leading_zeros",
    "fadd": "add",
    "fsub": "subtract",
    "fmul": "multiply",
    "fdiv": "divide",
    "fneg": "negate",
    "fabs": "abs",
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "round_even": "round_nearest_even",
}
"""Methods that are one instruction, whose result has the operands' kind."""


def expand_pointwise(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """A pointwise op as StableHLO, by its rule; None for shapes that are not known."""
    lowering, result = instruction.op.lowering, instruction.result.tensor_type
    if not isinstance(lowering, Pointwise) or not result.is_static:
        return None
    b: Any = ScalarInstructions(builder, result.shape)
    types = tuple(operand.tensor_type.element_type for operand in instruction.operands)
    scalars = [_computed(b, builder, operand, element) for operand, element in zip(instruction.operands, types)]
    call = PointwiseCall(types, result.element_type, instruction.attributes)
    made: Any = pointwise(instruction.op, b, call, *scalars)
    if isinstance(made, Pair):
        parts: tuple[Any, Any] = made
        return [builder.complex(*(part.value for part in parts))]
    if isinstance(result.element_type, IntegerType):
        made = formats.wrap_integer(b, made, result.element_type)
    return [_stored(builder, made, result.element_type)]


def _computed(b: Any, builder: Any, value: Value, element: ElementType) -> Tensor:
    """An operand in compute form."""
    kind = formats.compute_kind(element)
    if isinstance(element, FloatFormat):
        return Tensor(kind, value if element.is_native else builder.convert(value, kind))
    if isinstance(element, BooleanType):
        return Tensor(kind, value)
    assert isinstance(element, IntegerType)
    if element.signed:
        return Tensor(kind, value if element.name == kind else builder.convert(value, kind))
    wide = value if element.name == f"u{kind}" else builder.convert(value, f"u{kind}")
    return Tensor(kind, builder.bitcast_convert(wide, wide.tensor_type.with_element_type(kind)))


def _stored(builder: Any, scalar: Tensor, element: ElementType) -> Value:
    """A result in its own element type."""
    value = scalar.value
    if isinstance(element, IntegerType) and not element.signed:
        value = builder.bitcast_convert(value, value.tensor_type.with_element_type(f"u{scalar.kind}"))
    if value.tensor_type.element_type == element:
        return value
    made: Value = builder.convert(value, element)
    return made
