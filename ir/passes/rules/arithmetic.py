"""Rules on arithmetic and on conversions between element types.

``x + 0`` stays for floats: with x = -0.0 the sum is 0.0.  ``x + -0.0`` and ``x - 0.0`` are x for every x.
"""

from __future__ import annotations

import math

import numpy as np
from hlojit.ir.formats import FloatFormat, IntegerType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.definition import Trait
from hlojit.ir.ops.views import CompareView
from hlojit.ir.passes.graph_facts import constant_of
from hlojit.ir.passes.rewriting import Effect, Rewriter, RuleSet
from hlojit.ir.passes.rules.matching import (
    element_of,
    highest_of,
    holds_all_of,
    is_all_ones,
    is_exact_kind,
    is_float,
    is_integer,
    is_splat,
    lowest_of,
    made_by,
    splat_number,
)

RULES = RuleSet("arithmetic")


@RULES.rule("add multiply maximum minimum and or xor", Effect.EXACT)
def constant_to_the_right(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """C op x is x op c: other rules look for constants on the right only."""
    lhs, rhs = instruction.operands
    if constant_of(lhs) is None or constant_of(rhs) is not None:
        return None
    return rewriter.create_like(instruction, [rhs, lhs])


@RULES.rule("compare", Effect.EXACT)
def compare_constant_to_the_right(rewriter: Rewriter, compare: Instruction) -> Value | None:
    """C < x is x > c."""
    lhs, rhs = compare.operands
    if constant_of(lhs) is None or constant_of(rhs) is not None:
        return None
    direction = CompareView.of(compare).mirrored
    mirrored: Value = rewriter.create(
        "compare", [rhs, lhs], compare.result.type, compare.attributes | {"comparison_direction": direction}
    )
    return mirrored


@RULES.rule("add", Effect.EXACT)
def add_zero(rewriter: Rewriter, add: Instruction) -> Value | None:
    """X + 0 is x for integers, x + -0.0 is x for floats."""
    lhs, rhs = add.operands
    return lhs if is_splat(rhs, -0.0 if is_float(rhs) else 0) else None


@RULES.rule("add", Effect.EXACT)
def add_negated(rewriter: Rewriter, add: Instruction) -> Value | None:
    """X + -y is x - y."""
    for value, other in (add.operands, reversed(add.operands)):
        negate = _exact_negation(other)
        if negate is not None:
            difference: Value = rewriter.create("subtract", [value, negate.operands[0]], add.result.type)
            return difference
    return None


@RULES.rule("subtract", Effect.EXACT)
def subtract_zero(rewriter: Rewriter, subtract: Instruction) -> Value | None:
    """X - 0 is x, for -0.0 too."""
    lhs, rhs = subtract.operands
    return lhs if is_splat(rhs, 0.0 if is_float(rhs) else 0) else None


@RULES.rule("subtract", Effect.EXACT)
def subtract_self(rewriter: Rewriter, subtract: Instruction) -> Value | None:
    """X - x is 0 for integers (floats may be infinite)."""
    lhs, rhs = subtract.operands
    return rewriter.splat(lhs.tensor_type, 0) if lhs is rhs and _is_static_integer(lhs) else None


@RULES.rule("subtract", Effect.EXACT)
def subtract_negated(rewriter: Rewriter, subtract: Instruction) -> Value | None:
    """X - -y is x + y."""
    lhs, rhs = subtract.operands
    negate = _exact_negation(rhs)
    if negate is None:
        return None
    total: Value = rewriter.create("add", [lhs, negate.operands[0]], subtract.result.type)
    return total


@RULES.rule("multiply", Effect.EXACT)
def multiply_by_one(rewriter: Rewriter, multiply: Instruction) -> Value | None:
    """X * 1 is x."""
    lhs, rhs = multiply.operands
    return lhs if is_splat(rhs, 1) else None


@RULES.rule("multiply", Effect.EXACT)
def multiply_by_zero(rewriter: Rewriter, multiply: Instruction) -> Value | None:
    """X * 0 is 0 for integers (floats: NaN, infinities and -0.0 differ)."""
    _, rhs = multiply.operands
    return rhs if is_exact_kind(rhs) and is_splat(rhs, 0) else None


@RULES.rule("multiply", Effect.EXACT)
def multiply_by_minus_one(rewriter: Rewriter, multiply: Instruction) -> Value | None:
    """X * -1 is -x."""
    lhs, rhs = multiply.operands
    if not (is_float(rhs) or is_integer(rhs)) or not is_splat(rhs, -1):
        return None
    negated: Value = rewriter.create("negate", [lhs], multiply.result.type)
    return negated


@RULES.rule("multiply", Effect.EXACT)
def multiply_negated(rewriter: Rewriter, multiply: Instruction) -> Value | None:
    """-x * -y is x * y."""
    first, second = map(_exact_negation, multiply.operands)
    if first is None or second is None:
        return None
    return rewriter.create_like(multiply, [first.operands[0], second.operands[0]])


@RULES.rule("divide", Effect.EXACT)
def divide_by_one(rewriter: Rewriter, divide: Instruction) -> Value | None:
    """X / 1 is x."""
    lhs, rhs = divide.operands
    return lhs if is_splat(rhs, 1) else None


@RULES.rule("divide", Effect.EXACT)
def divide_by_power_of_two(rewriter: Rewriter, divide: Instruction) -> Value | None:
    """X / 2^k is x * 2^-k for floats: both are the same real number, rounded once."""
    lhs, rhs = divide.operands
    number = splat_number(rhs)
    element = element_of(rhs)
    if not isinstance(element, FloatFormat) or not isinstance(number, float) or element.decode is not None:
        return None
    mantissa, exponent = math.frexp(number)
    lowest, highest = 2 - element.bias, element.bias
    # Both 2^k and 2^-k must be normal numbers: frexp gives 2^k as 0.5 * 2^(k + 1).
    if abs(mantissa) != 0.5 or not (lowest <= exponent <= highest and lowest <= 2 - exponent <= highest):
        return None
    product: Value = rewriter.create(
        "multiply", [lhs, rewriter.splat(rhs.tensor_type, 1.0 / number)], divide.result.type
    )
    return product


@RULES.rule("divide", Effect.EXACT)
def divide_unsigned_by_power_of_two(rewriter: Rewriter, divide: Instruction) -> Value | None:
    """X / 2^k is x >> k for unsigned integers."""
    lhs, rhs = divide.operands
    power = _unsigned_power_of_two(rhs)
    if power is None:
        return None
    shifted: Value = rewriter.create(
        "shift_right_logical", [lhs, rewriter.splat(rhs.tensor_type, power)], divide.result.type
    )
    return shifted


@RULES.rule("remainder", Effect.EXACT)
def remainder_unsigned_by_power_of_two(rewriter: Rewriter, remainder: Instruction) -> Value | None:
    """X % 2^k is x & (2^k - 1) for unsigned integers."""
    lhs, rhs = remainder.operands
    power = _unsigned_power_of_two(rhs)
    if power is None:
        return None
    masked: Value = rewriter.create(
        "and", [lhs, rewriter.splat(rhs.tensor_type, (1 << power) - 1)], remainder.result.type
    )
    return masked


@RULES.rule("power", Effect.EXACT)
def power_one(rewriter: Rewriter, power: Instruction) -> Value | None:
    """X to the power of 1 is x."""
    lhs, rhs = power.operands
    return lhs if is_splat(rhs, 1) else None


@RULES.rule("power", Effect.PERMITTED)
def power_small_integer(rewriter: Rewriter, power: Instruction) -> Value | None:
    """X to the power of 2 is x * x, of 3 x * x * x, of -1 1 / x: closer to the real number than a general power."""
    lhs, rhs = power.operands
    type = power.result.type
    if not is_float(lhs):
        return None
    if is_splat(rhs, -1):
        inverse: Value = rewriter.create("divide", [rewriter.splat(lhs.tensor_type, 1.0), lhs], type)
        return inverse
    if not is_splat(rhs, 2) and not is_splat(rhs, 3):
        return None
    product: Value = rewriter.create("multiply", [lhs, lhs], type)
    if is_splat(rhs, 3):
        product = rewriter.create("multiply", [product, lhs], type)
    return product


@RULES.rule("negate", Effect.EXACT)
def negate_negated(rewriter: Rewriter, negate: Instruction) -> Value | None:
    """-(-x) is x."""
    inner = _exact_negation(negate.operands[0])
    return inner.operands[0] if inner is not None else None


@RULES.rule("abs", Effect.EXACT)
def abs_of_negated(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """|-x| is |x|."""
    inner = _exact_negation(instruction.operands[0])
    return rewriter.create_like(instruction, [inner.operands[0]]) if inner is not None else None


@RULES.rule("abs ceil floor round_nearest_afz round_nearest_even sign", Effect.EXACT)
def idempotent_twice(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """f(f(x)) is f(x) for ops that say so of themselves."""
    inner = instruction.operands[0].owner
    if (
        isinstance(inner, Instruction)
        and inner.op is instruction.op
        and Trait.IDEMPOTENT in inner.op.traits
        and instruction.result.type is inner.result.type
    ):
        return inner.result
    return None


@RULES.rule("maximum minimum", Effect.EXACT)
def extremum_of_same(rewriter: Rewriter, extremum: Instruction) -> Value | None:
    """max(x, x) is x."""
    lhs, rhs = extremum.operands
    return lhs if lhs is rhs else None


@RULES.rule("maximum", Effect.EXACT)
def maximum_with_lowest(rewriter: Rewriter, maximum: Instruction) -> Value | None:
    """max(x, -inf) is x, for NaN too; max(x, smallest integer) is x."""
    lhs, rhs = maximum.operands
    lowest = lowest_of(element_of(rhs))
    return lhs if lowest is not None and is_splat(rhs, lowest) else None


@RULES.rule("minimum", Effect.EXACT)
def minimum_with_highest(rewriter: Rewriter, minimum: Instruction) -> Value | None:
    """min(x, inf) is x, for NaN too; min(x, largest integer) is x."""
    lhs, rhs = minimum.operands
    highest = highest_of(element_of(rhs))
    return lhs if highest is not None and is_splat(rhs, highest) else None


@RULES.rule("convert bitcast_convert", Effect.EXACT)
def convert_to_same(rewriter: Rewriter, convert: Instruction) -> Value | None:
    """A conversion to the same type is no conversion."""
    (operand,) = convert.operands
    return operand if operand.type is convert.result.type else None


@RULES.rule("convert", Effect.EXACT)
def convert_of_convert(rewriter: Rewriter, convert: Instruction) -> Value | None:
    """A conversion of a conversion that lost nothing starts from the original."""
    inner = made_by(convert.operands[0], "convert")
    if inner is None:
        return None
    (original,) = inner.operands
    source, middle, target = element_of(original), element_of(inner.result), element_of(convert.result)
    if source is None or middle is None or target is None or not holds_all_of(middle, source):
        return None
    if original.type is convert.result.type:
        return original
    # Integers wrap when they become integers, so that i32 -> i64 -> i16 is i32 -> i16. A float becomes the nearest one that
    # there is: i32 -> f64 -> i16 is another number where the i16 is too narrow. What becomes a float is rounded only once.
    wraps = isinstance(source, IntegerType) and isinstance(target, IntegerType)
    if wraps and not isinstance(middle, IntegerType) and not holds_all_of(target, source):
        return None
    return rewriter.create_like(convert, [original])


@RULES.rule("bitcast_convert", Effect.EXACT)
def bitcast_of_bitcast(rewriter: Rewriter, convert: Instruction) -> Value | None:
    """Bits reinterpreted twice are reinterpreted once."""
    inner = made_by(convert.operands[0], "bitcast_convert")
    if inner is None:
        return None
    (original,) = inner.operands
    if original.type is convert.result.type:
        return original
    same_shape = original.tensor_type.shape == inner.result.tensor_type.shape == convert.result.tensor_type.shape
    return rewriter.create_like(convert, [original]) if same_shape else None


@RULES.rule("reduce_precision", Effect.EXACT)
def reduce_precision_to_same(rewriter: Rewriter, reduce: Instruction) -> Value | None:
    """Rounding to the format that the elements already have changes nothing."""
    element = element_of(reduce.operands[0])
    if not isinstance(element, FloatFormat) or element.name not in ("f64", "f32", "f16", "bf16"):
        return None
    enough = (
        reduce.attributes["exponent_bits"] >= element.exponent_bits
        and reduce.attributes["mantissa_bits"] >= element.mantissa_bits
    )
    return reduce.operands[0] if enough else None


@RULES.rule("real imag", Effect.EXACT)
def part_of_complex(rewriter: Rewriter, part: Instruction) -> Value | None:
    """real(complex(a, b)) is a, imag(complex(a, b)) is b."""
    inner = made_by(part.operands[0], "complex")
    if inner is None:
        return None
    return inner.operands[0 if part.op.mnemonic == "real" else 1]


@RULES.rule("complex", Effect.EXACT)
def complex_of_parts(rewriter: Rewriter, instruction: Instruction) -> Value | None:
    """complex(real(z), imag(z)) is z."""
    real, imag = made_by(instruction.operands[0], "real"), made_by(instruction.operands[1], "imag")
    if real is None or imag is None or real.operands[0] is not imag.operands[0]:
        return None
    return real.operands[0] if real.operands[0].type is instruction.result.type else None


@RULES.rule("and or xor", Effect.EXACT)
def bitwise_with_zero(rewriter: Rewriter, bitwise: Instruction) -> Value | None:
    """X & 0 is 0; x | 0 and x ^ 0 are x."""
    lhs, rhs = bitwise.operands
    if not is_exact_kind(rhs) or not is_splat(rhs, 0):
        return None
    return rhs if bitwise.op.mnemonic == "and" else lhs


@RULES.rule("and or", Effect.EXACT)
def bitwise_with_ones(rewriter: Rewriter, bitwise: Instruction) -> Value | None:
    """X & -1 is x; x | -1 is -1; with booleans x & true is x."""
    lhs, rhs = bitwise.operands
    if not is_all_ones(rhs):
        return None
    return lhs if bitwise.op.mnemonic == "and" else rhs


@RULES.rule("and or xor", Effect.EXACT)
def bitwise_of_same(rewriter: Rewriter, bitwise: Instruction) -> Value | None:
    """X & x and x | x are x; x ^ x is 0."""
    lhs, rhs = bitwise.operands
    if lhs is not rhs or not lhs.tensor_type.is_static:
        return None
    return rewriter.splat(lhs.tensor_type, 0) if bitwise.op.mnemonic == "xor" else lhs


@RULES.rule("shift_left shift_right_logical shift_right_arithmetic", Effect.EXACT)
def shift_by_zero(rewriter: Rewriter, shift: Instruction) -> Value | None:
    """A shift by 0 is none."""
    lhs, rhs = shift.operands
    return lhs if is_splat(rhs, 0) else None


def _exact_negation(value: Value) -> Instruction | None:
    """The ``negate`` that computed the value, of elements each of which has an opposite (or wraps, as integers do)."""
    element = element_of(value)
    if isinstance(element, FloatFormat) and (not element.signed or element.decode is not None):
        return None
    return made_by(value, "negate")


def _is_static_integer(value: Value) -> bool:
    return is_integer(value) and value.tensor_type.is_static


def _unsigned_power_of_two(value: Value) -> int | None:
    """K where the value is a splat constant 2^k of an unsigned type."""
    element = element_of(value)
    if not isinstance(element, IntegerType) or element.signed:
        return None
    number = splat_number(value)
    if number is None or number <= 0 or number & (number - 1):
        return None
    return int(np.log2(float(number)))
