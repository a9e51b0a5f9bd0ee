"""Ops between element types: convert, bitcast_convert, reduce_precision, complex, real, imag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.formats import (
    BooleanType,
    ComplexType,
    ElementType,
    FloatFormat,
    IntegerType,
    NanEncoding,
    QuantizedType,
    element_type,
)
from hlojit.ir.graph import Instruction
from hlojit.ir.ops import dynamic_types
from hlojit.ir.ops.attribute_kinds import I32
from hlojit.ir.ops.block_arithmetic import converted as converted_blocks
from hlojit.ir.ops.complex_arithmetic import bits_of_parts, converted
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Cost,
    Indexed,
    OpDefinition,
    Operand,
    Pointwise,
    PointwiseCall,
    RangeOf,
    Trait,
    ValueRange,
    define,
)
from hlojit.ir.ops.derivatives import pointwise as derivatives
from hlojit.ir.ops.derivatives.kinds import Derivative
from hlojit.ir.ops.elementwise import modulus_type
from hlojit.ir.ops.pointwise import (
    ANY_PER_AXIS,
    BOOLEAN,
    COMPLEX,
    FLOAT,
    INTEGER,
    QUANTIZED,
    SINGLE,
    by_type,
    inferred_element,
    inferred_shape,
    like_operands,
    plain,
    same_operand_types,
    takes,
    with_element,
)
from hlojit.ir.ops.quantized_arithmetic import same_bits
from hlojit.ir.ops.rules import OpCall, checked, compatible_extents, compatible_shapes, inferred, operand_tensor
from hlojit.ir.ops.symbolic_values import Access, Recast, Shape, SymbolicShapes, refused
from hlojit.ir.scalar import arrays, conversions, formats
from hlojit.ir.scalar.builder import Pair, Scalar, ScalarBuilder
from hlojit.ir.scalar.elements import ElementEmitter, IndexExpression
from hlojit.ir.scalar.numpy_builder import saturate
from hlojit.ir.types import TensorType

# convert


def _same_shape(instruction: Any) -> str | None:
    operand, result = operand_tensor(instruction, 0), instruction.result_types[0]
    if isinstance(result, TensorType) and compatible_shapes(operand.shape, result.shape):
        return None
    return f"operand and result have different shapes: {operand} and {result}"


def _convert_arrays(call: Any, x: Array) -> Array:
    source, result = call.instruction.operands[0].tensor_type, call.instruction.result.tensor_type
    return convert_array(x, source.element_type, result.element_type)


def convert_array(x: Array, source: ElementType, target: ElementType) -> Array:
    """Elements as those of another type; not yet rounded to it."""
    if isinstance(source, ComplexType) and not isinstance(target, ComplexType):
        x = x.real
    if isinstance(target, BooleanType):
        return np.asarray(x != 0)
    if isinstance(target, IntegerType) and x.dtype.kind == "f":
        whole = saturate(x, target.storage)
        return whole if target.bits >= 8 else np.asarray(np.clip(whole, target.minimum, target.maximum))
    if isinstance(target, FloatFormat) and x.dtype.kind in "iu":
        return _integers_to_floats(x, target)
    return x if isinstance(target, FloatFormat) and x.dtype.kind == "f" else x.astype(target.storage)


def _integers_to_floats(x: Array, target: FloatFormat) -> Array:
    """Floats that round to the target as the integers do: beyond 53 bits, rounded to odd by dropping low bits."""
    if target.is_native:
        return x.astype(target.storage)
    return arrays.exact_floats(x)


def _convert(b: ScalarBuilder, call: PointwiseCall, x: Scalar) -> Scalar:
    return conversions.convert(b, x, call.operand_types[0], call.result_type)


def _converted_range(convert: Any, range_of: RangeOf) -> ValueRange | None:
    source = convert.operands[0]
    return (0, 1) if isinstance(source.tensor_type.element_type, BooleanType) else range_of(source)


_NOT_QUANTIZED = (BOOLEAN, INTEGER, FLOAT, COMPLEX)

CONVERT = define(
    OpDefinition(
        "stablehlo.convert",
        operands=(Operand("operand"),),
        refine=dynamic_types.keeps_shape,
        constraints=(takes("I1", 0, "operand", _NOT_QUANTIZED), Constraint("C1", _same_shape)),
        reference=_convert_arrays,
        syntax="pretty-same-type",
        lowering=Pointwise(_convert, exact=True),
        cost=Cost.CHEAP,
        value_range=_converted_range,
        parts={BlockFormat: converted_blocks, ComplexType: converted},
        derivative=derivatives.CONVERT,
        summary="The same number in another element type: rounded to even, truncated, saturated or wrapped.",
    )
)

# bitcast_convert


def stored_element(element: ElementType) -> ElementType:
    """The element type whose bits are in memory."""
    return element_type(element.storage_type) if isinstance(element, QuantizedType) else element


def _bits_fit(instruction: Any) -> str | None:
    operand, result = operand_tensor(instruction, 0), instruction.result_types[0]
    if not isinstance(result, TensorType):
        return f"result must be a tensor, found {result}"
    source, target = stored_element(operand.element_type).bits, stored_element(result.element_type).bits
    narrow, wide = (result, operand) if target < source else (operand, result)
    expected: tuple[int, ...] = wide.shape
    if source != target:
        ratio, rest = divmod(max(source, target), min(source, target))
        expected = (*wide.shape, ratio)
        if rest or narrow.rank != wide.rank + 1 or not compatible_extents(narrow.shape[-1], ratio):
            return f"{operand} has not the bits of {result}: the narrower type needs a last dimension of {ratio}"
    if compatible_shapes(narrow.shape, expected):
        return None
    return f"operand and result have different shapes: {operand} and {result}"


def _both_complex(instruction: Any) -> str | None:
    types = (instruction.operand_types[0], instruction.result_types[0])
    found = [isinstance(type, TensorType) and isinstance(type.element_type, ComplexType) for type in types]
    if found[0] == found[1]:
        return None
    return f"both or none of operand and result must be complex: {types[0]}, {types[1]}"


def _bitcast_arrays(call: Any, x: Array) -> Array:
    source = stored_element(call.instruction.operands[0].tensor_type.element_type)
    target = stored_element(call.instruction.result.tensor_type.element_type)
    if isinstance(source, ComplexType):
        return _bitcast_pairs(x, source, target)
    bits = arrays.to_bits(x, source)
    if source.bits > target.bits:
        steps = np.arange(0, source.bits, target.bits, dtype=np.uint64)
        bits = (bits[..., None].astype(np.uint64) >> steps) & np.uint64((1 << target.bits) - 1)
    elif source.bits < target.bits:
        steps = np.arange(0, target.bits, source.bits, dtype=np.uint64)
        bits = np.bitwise_or.reduce(bits.astype(np.uint64) << steps, axis=-1)
    return arrays.from_bits(bits, target)


def _bitcast_pairs(x: Array, source: ElementType, target: ElementType) -> Array:
    """Complex numbers: the real part's bits come first, and of each part the lower ones."""
    if source.bits == target.bits:
        return x
    viewed = np.ascontiguousarray(x[..., None] if source.bits > target.bits else x).view(target.storage)
    return viewed if source.bits > target.bits else viewed[..., 0]


def bits_of(b: ScalarBuilder, value: Scalar, element: ElementType) -> Scalar:
    """The bits of an element in compute form, zero-extended to the integer of its storage width (i1: an i8)."""
    if isinstance(element, BooleanType):
        return b.zext(value, "i8")
    if isinstance(element, FloatFormat):
        if element.is_native:
            return b.bitcast(value, f"i{element.bits}")
        return formats.pack(b, value, element)
    return b.and_(value, b.constant("i8", (1 << element.bits) - 1)) if element.bits < 8 else value


def from_bits(b: ScalarBuilder, bits: Scalar, element: ElementType) -> Scalar:
    """The inverse of ``bits_of``; bits beyond the element's are ignored."""
    if isinstance(element, BooleanType):
        return b.trunc(bits, "i1")
    if isinstance(element, FloatFormat) and element.is_native:
        return b.bitcast(bits, element.name)
    return formats.decode(b, bits, element)


def _resize(b: ScalarBuilder, value: Scalar, kind: str) -> Scalar:
    if value.kind == kind:
        return value
    wider = int(value.kind[1:]) < int(kind[1:])
    return b.zext(value, kind) if wider else b.trunc(value, kind)


def _bitcast(emitter: ElementEmitter, instruction: Instruction, index: Sequence[IndexExpression]) -> Scalar:
    b = emitter.builder
    source = stored_element(instruction.operands[0].tensor_type.element_type)
    target = stored_element(instruction.result.tensor_type.element_type)
    if source == target:
        return emitter.operand(0, index)
    kind = f"i{max(source.bits, target.bits, 8)}"
    narrow = f"i{max(target.bits, 8)}"
    if source.bits == target.bits:
        return from_bits(b, bits_of(b, emitter.operand(0, index), source), target)
    if source.bits > target.bits:
        whole = bits_of(b, emitter.operand(0, index[:-1]), source)
        shift = emitter.index_value(index[-1] * target.bits, kind)
        return from_bits(b, _resize(b, b.lshr(whole, shift), narrow), target)
    total = None
    for part in range(target.bits // source.bits):
        bits = _resize(b, bits_of(b, emitter.operand(0, (*index, part)), source), kind)
        moved = b.shl(bits, b.constant(kind, part * source.bits)) if part else bits
        total = moved if total is None else b.or_(total, moved)
    assert total is not None
    return from_bits(b, total, target)


def _bitcast_shape(instruction: Instruction) -> Sequence[int]:
    operand, result = instruction.operands[0].tensor_type, instruction.results[0].tensor_type
    source, target = stored_element(operand.element_type).bits, stored_element(result.element_type).bits
    if source > target:
        return (*operand.shape, source // target)
    return operand.shape if source == target else operand.shape[:-1]


def _bitcast_open(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    types = (instruction.operands[0].tensor_type, instruction.results[0].tensor_type)
    source, target = (stored_element(type.element_type).bits for type in types)
    if source != target:
        raise refused(instruction, "bits of another width have no code for sizes that are given at run time")
    return shapes.dims[instruction.operands[0]], Recast()


BITCAST_CONVERT = define(
    OpDefinition(
        "stablehlo.bitcast_convert",
        operands=(Operand("operand"),),
        refine=dynamic_types.shaped(_bitcast_shape),
        constraints=(
            takes("I1", 0, "operand", ANY_PER_AXIS),
            Constraint("C1", _bits_fit),
            Constraint("C2", _both_complex),
        ),
        reference=_bitcast_arrays,
        syntax="pretty-function-type",
        traits=frozenset({Trait.PER_AXIS}),
        lowering=Indexed(_bitcast),
        parts={ComplexType: bits_of_parts, QuantizedType: same_bits},
        symbolic=_bitcast_open,
        summary="The same bits as another element type; wider elements are made of, or split into, a last dimension.",
    )
)

# reduce_precision


def _at_least(name: str, low: int) -> Any:
    def check(call: OpCall) -> str | None:
        found = call.attributes[name]
        return None if found >= low else f"{name} must be at least {low}, found {found}"

    return check


def _worked_format(element: FloatFormat) -> FloatFormat:
    """The format whose bits are reduced: one without IEEE's infinity is treated in its compute type, then rounded."""
    ieee = element.has_infinity and element.nan is NanEncoding.IEEE
    if ieee and element.signed and element.has_zero and element.encode is None:
        return element
    return formats.format_of(element.compute)


def _reduce_precision(b: ScalarBuilder, call: PointwiseCall, x: Scalar) -> Scalar:
    """Round the mantissa in place, then replace exponents that the narrower one cannot say by infinity or zero."""
    worked = _worked_format(call.operand_types[0])
    bits = bits_of(b, x, worked)
    reduced = _reduce_bits(b, bits, worked, call.attributes["exponent_bits"], call.attributes["mantissa_bits"])
    result = from_bits(b, reduced, worked)
    if call.attributes["mantissa_bits"] == 0:
        return b.select(b.fcmp("uno", x, x), b.constant(x.kind, float("inf")), result)
    return b.select(b.fcmp("uno", x, x), x, result)


def _reduce_bits(
    b: ScalarBuilder, bits: Scalar, element: FloatFormat, exponent_bits: int, mantissa_bits: int
) -> Scalar:
    def constant(value: int) -> Scalar:
        return b.constant(bits.kind, value)

    own_mantissa, own_exponent = element.mantissa_bits, element.exponent_bits
    sign = b.and_(bits, constant(1 << (own_mantissa + own_exponent)))
    dropped = own_mantissa - mantissa_bits
    if dropped > 0:
        last = b.and_(b.lshr(bits, constant(dropped)), constant(1))
        bits = b.add(bits, b.add(last, constant((1 << (dropped - 1)) - 1)))
        bits = b.and_(bits, constant(-(1 << dropped)))
    if exponent_bits >= own_exponent:
        return bits
    bias, reduced_bias = (1 << (own_exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
    exponent_mask = ((1 << own_exponent) - 1) << own_mantissa
    exponent = b.and_(bits, constant(exponent_mask))
    overflows = b.icmp("ugt", exponent, constant((bias + reduced_bias) << own_mantissa))
    underflows = b.icmp("ule", exponent, constant((bias - reduced_bias) << own_mantissa))
    bits = b.select(overflows, b.or_(sign, constant(exponent_mask)), bits)
    return b.select(underflows, sign, bits)


def _reduce_precision_arrays(call: Any, x: Array) -> Array:
    """By arithmetic on significands: an independent statement of the same semantics, for IEEE formats."""
    worked = _worked_format(call.instruction.operands[0].tensor_type.element_type)
    exponent_bits, mantissa_bits = call.attributes["exponent_bits"], call.attributes["mantissa_bits"]
    smallest = 1 - worked.bias
    exponent = np.maximum(np.frexp(x)[1] - 1, smallest)
    steps = np.minimum(mantissa_bits, worked.mantissa_bits)
    significand = np.ldexp(x.astype(np.float64), steps - exponent)
    whole = np.rint(significand)
    if steps == 0:
        # With one bit of precision, "even" is the last bit of the exponent.
        down = (np.abs(significand) == 1.5) & ((exponent + worked.bias) % 2 == 0)
        whole = np.where(down, np.copysign(1.0, x), whole)
    rounded = np.ldexp(whole, exponent - steps)
    if exponent_bits < worked.exponent_bits:
        bias = (1 << (exponent_bits - 1)) - 1
        rounded = np.where(np.abs(rounded) >= 2.0 ** (bias + 1), np.copysign(np.inf, x), rounded)
        rounded = np.where(np.abs(rounded) < 2.0 ** (1 - bias), np.copysign(0.0, x), rounded)
    elif worked.name == "f64":
        rounded = np.where(np.isinf(x), x, rounded)
    nan = np.nan if mantissa_bits else np.inf
    return np.where(np.isnan(x), nan, np.where(np.isinf(x) | (x == 0), x, rounded))


_REDUCE_RULES = (
    takes("I1", 0, "operand", (FLOAT, QUANTIZED)),
    Constraint("C2", _at_least("exponent_bits", 1)),
    Constraint("C3", _at_least("mantissa_bits", 0)),
)

REDUCE_PRECISION = define(
    OpDefinition(
        "stablehlo.reduce_precision",
        operands=(Operand("operand"),),
        attributes=(AttributeSpec("exponent_bits", I32), AttributeSpec("mantissa_bits", I32)),
        infer=checked(_REDUCE_RULES, like_operands),
        constraints=(*_REDUCE_RULES, inferred("C1")),
        reference=_reduce_precision_arrays,
        syntax="reduce_precision",
        traits=frozenset({Trait.DEQUANTIZES}),
        lowering=Pointwise(_reduce_precision),
        cost=Cost.CHEAP,
        derivative=derivatives.REDUCE_PRECISION,
        summary="Rounded to a float of fewer bits and back.",
    )
)

# complex numbers


def _complex_of(element: ElementType) -> ElementType:
    return element_type(f"complex<{element.name}>")


def _make_complex(call: Any, real: Array, imaginary: Array) -> Array:
    result = np.empty(real.shape, call.instruction.result.tensor_type.element_type.storage)
    result.real, result.imag = real, imaginary
    return result


_COMPLEX_RULES = (
    takes("I1", 0, "lhs", (SINGLE,)),
    takes("I2", 1, "rhs", (SINGLE,)),
    same_operand_types("C1", ("lhs", "rhs")),
)

COMPLEX_NUMBER = define(
    OpDefinition(
        "stablehlo.complex",
        operands=(Operand("lhs"), Operand("rhs")),
        infer=checked(_COMPLEX_RULES, with_element(_complex_of)),
        constraints=(*_COMPLEX_RULES, inferred_shape("C2"), inferred_element("C3")),
        reference=_make_complex,
        syntax="complex",
        traits=frozenset({Trait.PARTS}),
        lowering=Pointwise(lambda builder, call, real, imaginary: Pair(real, imaginary), exact=True),
        cost=Cost.CHEAP,
        parts={ComplexType: lambda builder, instruction, operands: [(operands[0][0], operands[1][0])]},
        derivative=derivatives.COMPLEX,
        summary="lhs + i * rhs.",
    )
)

_PART_RULES = (takes("I1", 0, "operand", (FLOAT, COMPLEX)),)


def _part(
    number: int, mnemonic: str, reference: Any, lowering: Pointwise, derivative: Derivative, summary: str
) -> OpDefinition:
    return define(
        OpDefinition(
            f"stablehlo.{mnemonic}",
            operands=(Operand("operand"),),
            infer=checked(_PART_RULES, with_element(modulus_type)),
            constraints=(*_PART_RULES, inferred_shape("C1"), inferred_element("C2")),
            reference=reference,
            syntax="pretty-same-type",
            traits=frozenset({Trait.PARTS}),
            lowering=lowering,
            cost=Cost.CHEAP,
            parts={ComplexType: lambda builder, instruction, operands: [(operands[0][number],)]},
            derivative=derivative,
            summary=summary,
        )
    )


REAL = _part(
    0,
    "real",
    plain(np.real),
    by_type(real=lambda b, x: x, pair=lambda b, x: x.real, exact=True),
    derivatives.REAL,
    "The real part.",
)
IMAG = _part(
    1,
    "imag",
    plain(np.imag),
    # a format may have no zero
    by_type(real=lambda b, x: b.constant(x.kind, 0.0), pair=lambda b, x: x.imag),
    derivatives.IMAG,
    "The imaginary part; of a real number, 0.",
)
