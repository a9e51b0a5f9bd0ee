"""Arithmetic on complex numbers by arithmetic on their parts: rules for ``OpDefinition.parts``.

    quotient(builder, a, b, c, d)    # the parts of (a + bi) / (c + di)

Numbers are scaled by powers of two where their squares and products could leave the range of the type, which is exact.
Special values are those of C99, Annex G; the product is the plain formula, as NumPy's and XLA's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from hlojit.ir.formats import ComplexType, FloatFormat, element_type
from hlojit.ir.ops.parts import Parts, PartsRule

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value


def of_parts(function: Callable[..., Parts]) -> PartsRule:
    """The rule of a function of a builder and the parts of all operands, which returns those of the only result."""

    def rule(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
        return [function(builder, *(part for parts in operands for part in parts))]

    return rule


def product(builder: Any, a: Value, b: Value, c: Value, d: Value) -> Parts:
    """(a + bi)(c + di)."""
    real = builder.subtract(builder.multiply(a, c), builder.multiply(b, d))
    return real, builder.add(builder.multiply(a, d), builder.multiply(b, c))


@final
class Scale:
    """Powers of two near numbers of one float type, as the fields of their exponents."""

    def __init__(self, builder: Any, model: Value):
        element = model.tensor_type.element_type
        assert isinstance(element, FloatFormat)
        self.b = builder
        self.type = model.tensor_type
        self.word = model.tensor_type.with_element_type(f"i{element.bits}")
        self.mantissa = element.mantissa_bits
        self.bias = element.bias

    def integer(self, value: int) -> Value:
        """A constant for exponents."""
        made: Value = self.b.constant(value, self.word)
        return made

    def number(self, value: float) -> Value:
        """A constant."""
        made: Value = self.b.constant(value, self.type)
        return made

    def signed(self, magnitude: float, sign: Value) -> Value:
        """A constant with the sign of a number."""
        b = self.b
        mask = self.integer(-1 << (self.mantissa + self.bias.bit_length() + 1))
        bit = b.and_(b.bitcast_convert(sign, self.word), mask)
        return _value(b.bitcast_convert(b.or_(bit, b.bitcast_convert(self.number(magnitude), self.word)), self.type))

    def inverse(self, size: Value) -> Value:
        """The field of a power of two that brings a positive number between 2 and 4; of infinity and NaN, that of 1.

        A number below the normal ones comes to the largest such power times itself: its square is far above them.
        """
        b, top = self.b, 2 * self.bias + 1
        exponent = b.shift_right_logical(b.bitcast_convert(size, self.word), self.integer(self.mantissa))
        field = b.minimum(b.subtract(self.integer(top), exponent), self.integer(top - 1))
        return _value(b.select(b.compare(exponent, self.integer(top), "EQ"), self.integer(self.bias), field))

    def power(self, field: Value) -> Value:
        """The power of two with an exponent's field; 0 for the field 0."""
        b = self.b
        return _value(b.bitcast_convert(b.shift_left(field, self.integer(self.mantissa)), self.type))

    def moved(self, number: Value, shift: Value) -> Value:
        """A number times 2 to the power of an integer of at most twice the range: in two steps."""
        b = self.b
        half = b.shift_right_arithmetic(shift, self.integer(1))
        rest = b.subtract(shift, half)
        bias = self.integer(self.bias)
        return _value(b.multiply(b.multiply(number, self.power(b.add(half, bias))), self.power(b.add(rest, bias))))


def _value(made: Any) -> Value:
    result: Value = made
    return result


def _largest(builder: Any, x: Value, y: Value) -> Value:
    return _value(builder.maximum(builder.abs(x), builder.abs(y)))


def quotient(builder: Any, a: Value, b: Value, c: Value, d: Value) -> Parts:
    """(a + bi) / (c + di): both brought near 1 first, so that nothing in between leaves the range of the type."""
    numerator, denominator = _Operand(builder, a, b), _Operand(builder, c, d)
    scale = denominator.scale
    a1, b1, c1, d1 = *numerator.scaled, *denominator.scaled
    size = builder.add(builder.multiply(c1, c1), builder.multiply(d1, d1))
    real = builder.divide(builder.add(builder.multiply(a1, c1), builder.multiply(b1, d1)), size)
    imaginary = builder.divide(builder.subtract(builder.multiply(b1, c1), builder.multiply(a1, d1)), size)
    shift = builder.subtract(denominator.field, numerator.field)
    is_zero = builder.compare(denominator.size, scale.number(0.0), "EQ")
    infinity = scale.signed(float("inf"), c)
    return tuple(
        _value(
            builder.select(
                is_zero,
                builder.multiply(infinity, part),
                _limited(builder, numerator, denominator, scale, found, shift),
            )
        )
        for part, found in ((a, real), (b, imaginary))
    )


def _limited(
    builder: Any, numerator: _Operand, denominator: _Operand, scale: Scale, found: Value, shift: Value
) -> Value:
    """The quotient of scaled numbers at its true size: infinite, or zero, where one of them is infinite."""
    infinite = builder.multiply(found, scale.number(float("inf")))
    large = builder.select(denominator.is_finite, infinite, scale.number(float("nan")))
    zero = builder.multiply(found, scale.number(0.0))
    small = builder.select(denominator.is_infinite, zero, scale.moved(found, shift))
    return _value(builder.select(numerator.is_infinite, large, small))


@final
class _Operand:
    """A complex number near 1: scaled, or, where a part is infinite, 1 for infinite parts and 0 for finite ones."""

    def __init__(self, builder: Any, real: Value, imaginary: Value):
        b = builder
        self.scale = scale = Scale(b, real)
        self.size = _largest(b, real, imaginary)
        infinity = scale.number(float("inf"))
        infinite = [b.compare(b.abs(part), infinity, "EQ") for part in (real, imaginary)]
        self.is_infinite = b.or_(*infinite)
        self.is_finite = b.compare(self.size, infinity, "LT")
        self.field = scale.inverse(self.size)
        power = scale.power(self.field)
        self.scaled = tuple(
            b.select(
                self.is_infinite,
                b.select(is_infinite, scale.signed(1.0, part), scale.signed(0.0, part)),
                b.multiply(part, power),
            )
            for part, is_infinite in zip((real, imaginary), infinite)
        )


def modulus(builder: Any, real: Value, imaginary: Value) -> Parts:
    """The absolute value, to less than a unit in the last place; nothing in between overflows; infinite where a part is.

    In f32 by way of f64, in f64 by squares with their errors.
    """
    element = real.tensor_type.element_type
    infinity = builder.constant(float("inf"), real.tensor_type)
    if element.name == "f32":
        wide = [builder.convert(part, "f64") for part in (real, imaginary)]
        found = builder.convert(builder.sqrt(builder.add(*(builder.multiply(part, part) for part in wide))), element)
    else:
        scale = Scale(builder, real)
        large = _largest(builder, real, imaginary)
        small = builder.minimum(builder.abs(real), builder.abs(imaginary))
        field = scale.inverse(large)
        (square, error), (other, its_error) = (
            _square(builder, builder.multiply(part, scale.power(field))) for part in (large, small)
        )
        root = builder.sqrt(builder.add(builder.add(builder.add(error, its_error), other), square))
        found = scale.moved(root, builder.subtract(scale.integer(scale.bias), field))
    infinite = [builder.compare(builder.abs(part), infinity, "EQ") for part in (real, imaginary)]
    return (_value(builder.select(builder.or_(*infinite), infinity, found)),)


def _square(builder: Any, x: Value) -> tuple[Value, Value]:
    """The square of an f64, and what it lacks (Dekker's product)."""
    split = builder.multiply(x, builder.constant(2.0**27 + 1, x.tensor_type))
    high = builder.subtract(split, builder.subtract(split, x))
    low = builder.subtract(x, high)
    square = builder.multiply(x, x)
    twice = builder.add(high, high)
    error = builder.add(
        builder.add(builder.subtract(builder.multiply(high, high), square), builder.multiply(twice, low)),
        builder.multiply(low, low),
    )
    return square, error


def signum(builder: Any, real: Value, imaginary: Value) -> Parts:
    """The number over its absolute value; 0 of 0, and NaN, both parts of it, of what has a part that is NaN."""
    scale = Scale(builder, real)
    size = _largest(builder, real, imaginary)
    power = scale.power(scale.inverse(size))
    parts = [builder.multiply(part, power) for part in (real, imaginary)]
    (length,) = modulus(builder, *parts)
    is_zero = builder.compare(size, scale.number(0.0), "EQ")
    is_nan = builder.compare(size, size, "NE")
    nan, zero = scale.number(float("nan")), scale.number(0.0)
    return tuple(
        _value(builder.select(is_zero, zero, builder.select(is_nan, nan, builder.divide(part, length))))
        for part in parts
    )


# comparison: by real parts, by imaginary parts where these are equal


def compared(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    """EQ and NE of both parts; other directions in lexicographic order."""
    (a, b), (c, d) = operands
    direction = instruction.attributes["comparison_direction"]
    real, imaginary = builder.compare(a, c, direction), builder.compare(b, d, direction)
    if direction == "EQ":
        return [(builder.and_(real, imaginary),)]
    if direction == "NE":
        return [(builder.or_(real, imaginary),)]
    return [(builder.select(builder.compare(a, c, "EQ"), imaginary, real),)]


def extremum(direction: str) -> PartsRule:
    """The first of two numbers if it stands in a relation to the second; the one that is NaN, if one is."""

    def rule(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
        (a, b), (c, d) = operands
        before = builder.select(
            builder.compare(a, c, "EQ"), builder.compare(b, d, direction), builder.compare(a, c, direction)
        )
        is_nan = [
            builder.or_(builder.compare(real, real, "NE"), builder.compare(imaginary, imaginary, "NE"))
            for real, imaginary in operands
        ]
        first = builder.or_(is_nan[0], builder.and_(before, builder.not_(is_nan[1])))
        return [(builder.select(first, a, c), builder.select(first, b, d))]

    return rule


def clamped(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    """minimum(maximum(operand, min), max)."""
    shape = instruction.result.tensor_type.shape
    low, x, high = (
        parts if parts[0].tensor_type.rank else tuple(builder.broadcast_in_dim(part, shape) for part in parts)
        for parts in operands
    )
    (raised,) = extremum("GT")(builder, instruction, [x, low]) or ()
    return extremum("LT")(builder, instruction, [raised, high]) or ()


# between real and complex numbers


def converted(builder: Any, instruction: Instruction, operands: Sequence[Parts]) -> Sequence[Parts]:
    """Both parts to another width; of a complex number its real part; of any other number, that and 0."""
    ((*parts,),) = operands
    element = instruction.result.tensor_type.element_type
    if not isinstance(element, ComplexType):
        return [(builder.convert(parts[0], element),)]
    component = element_type(element.component)
    found = [builder.convert(part, component) for part in parts]
    zero = [] if len(found) == 2 else [builder.constant(0.0, found[0].tensor_type)]
    return [(*found, *zero)]
