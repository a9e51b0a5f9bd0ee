"""Dot algorithms: what operands of a product are rounded to, and sums of several products of their components.

    dot_general of f32, algorithm bf16 x bf16 -> f32 with 3 operations

    =>  a0 = bf16(a), a1 = bf16(a - a0), b0 = bf16(b), b1 = bf16(b - b0)
        (a1 b0 + a0 b1)  +  a0 b0         each product with sums in f32

With 3 operations there are two components a side, with 6 and 9 three; the smallest products are added first.  An algorithm with
one operation only rounds the operands, which is the kernel's own business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from hlojit.ir.attributes import DotAlgorithm
from hlojit.ir.formats import ComplexType, ElementType, FloatFormat, element_type, find_element_type
from hlojit.ir.ops.complex_products import has_many_terms, product_of_few_terms
from hlojit.ir.ops.definition import Array, Constraint
from hlojit.ir.ops.parts import Parts
from hlojit.ir.ops.rules import OpCall, positive, show
from hlojit.ir.ops.views import DotView
from hlojit.ir.scalar.arrays import round_array

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction, Value


@dataclass(frozen=True, slots=True)
class _Precision(FloatFormat):
    """A format to which numbers of f32 are rounded; nothing is computed in it."""

    __hash__ = FloatFormat.__hash__

    @property
    def compute(self) -> str:
        """f32."""
        return "f32"


TF32: Final = _Precision("tf32", exponent_bits=8, mantissa_bits=10, bias=127)
"""What matrix units round f32 to; no type of tensors."""

_PAIRS: Final = {
    3: ((0, 1), (1, 0), (0, 0)),
    6: ((1, 1), (0, 2), (2, 0), (0, 1), (1, 0), (0, 0)),
    9: ((2, 2), (1, 2), (2, 1), (1, 1), (0, 2), (2, 0), (0, 1), (1, 0), (0, 0)),
}
"""By number of operations: which components of lhs and rhs are multiplied, the largest (of number 0) last."""

_F8: Final = frozenset({"f8E3M4", "f8E4M3", "f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E4M3B11FNUZ", "f8E5M2FNUZ"})

KNOWN_ALGORITHMS: Final = frozenset(
    {
        ("f16", "f16", 1), ("f16", "f32", 1), ("bf16", "bf16", 1), ("bf16", "f32", 1), ("bf16", "f32", 3),
        ("bf16", "f32", 6), ("bf16", "f32", 9), ("tf32", "f32", 1), ("tf32", "f32", 3), ("f32", "f32", 1),
        ("f64", "f64", 1),
    }
)  # fmt: skip
"""What some hardware computes: precision of both sides, type of the sums, operations a product; beside pairs of f8 types."""


# constraints


def _algorithm(call: OpCall) -> DotAlgorithm | None:
    found = call.attributes.get("algorithm")
    return found if isinstance(found, DotAlgorithm) else None


def _precision_complaint(call: OpCall) -> str | None:
    config = call.attributes.get("precision_config") or ()
    if _algorithm(call) is None or all(precision == "DEFAULT" for precision in config):
        return None
    return f"precision_config must be DEFAULT where an algorithm is given, found {show(config)}"


def _count_complaint(name: str) -> Callable[[OpCall], str | None]:
    def check(call: OpCall) -> str | None:
        algorithm = _algorithm(call)
        return positive(name, (getattr(algorithm, name),)) if algorithm is not None else None

    return check


def _type_complaint(name: str) -> Callable[[OpCall], str | None]:
    def check(call: OpCall) -> str | None:
        algorithm = _algorithm(call)
        if algorithm is None or precision_format(found := getattr(algorithm, name)) is not None:
            return None
        return f"{name} of the algorithm must be a floating-point type, found {found}"

    return check


def _known_complaint(call: OpCall) -> str | None:
    algorithm = _algorithm(call)
    if algorithm is None or is_known_algorithm(algorithm):
        return None
    return f"no hardware is known to have the algorithm {algorithm}"


def is_known_algorithm(algorithm: DotAlgorithm) -> bool:
    """Whether some hardware multiplies in this way."""
    lhs, rhs, sums = algorithm.lhs_precision_type, algorithm.rhs_precision_type, algorithm.accumulation_type
    count = algorithm.num_primitive_operations
    if (algorithm.lhs_component_count, algorithm.rhs_component_count) != (1, 1):
        return False
    if lhs in _F8 and rhs in _F8 and sums == "f32" and count == 1:
        return True
    return lhs == rhs and (lhs, sums, count) in KNOWN_ALGORITHMS and not algorithm.allow_imprecise_accumulation


ALGORITHM_RULES: Final = (
    Constraint("C21", _precision_complaint),
    Constraint("C22", _count_complaint("lhs_component_count")),
    Constraint("C23", _count_complaint("rhs_component_count")),
    Constraint("C24", _count_complaint("num_primitive_operations")),
    Constraint("I8", _type_complaint("lhs_precision_type")),
    Constraint("I9", _type_complaint("rhs_precision_type")),
    Constraint("I10", _type_complaint("accumulation_type")),
    Constraint("algorithm", _known_complaint),
)


# what is computed


def precision_format(name: str) -> FloatFormat | None:
    """The format of a precision's name, ``tf32`` among them; None where it is none of floats."""
    if name == TF32.name:
        return TF32
    found = find_element_type(name)
    return found if isinstance(found, FloatFormat) else None


def rounded_format(element: ElementType, precision: str) -> FloatFormat | None:
    """The format that elements of a product are rounded to, or None where all of their numbers are in it."""
    narrow = precision_format(precision)
    if narrow is None or not isinstance(element, FloatFormat):
        return None
    if narrow.mantissa_bits >= element.mantissa_bits and narrow.exponent_bits >= element.exponent_bits:
        return None
    return narrow


def multiplied_pairs(instruction: Instruction) -> Sequence[tuple[int, int]]:
    """The components whose products are added, in order; none for a product that is one operation."""
    algorithm = DotView.of(instruction).algorithm
    if algorithm is None or not isinstance(instruction.result.tensor_type.element_type, FloatFormat):
        return ()
    return _PAIRS.get(algorithm.num_primitive_operations, ())


def declined_algorithm(instruction: Instruction) -> str:
    """Why no kernel takes a product as it is, or an empty string."""
    return "its algorithm adds several products" if multiplied_pairs(instruction) else ""


def product_of_components(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """Products of components, each an instruction of its own (see the module's docstring)."""
    pairs, algorithm = multiplied_pairs(instruction), DotView.of(instruction).algorithm
    if not pairs or algorithm is None:
        return None
    result, numbers = instruction.result.tensor_type, DotView.of(instruction).numbers
    sums = result.with_element_type(algorithm.accumulation_type)
    count = 1 + max(lhs for lhs, _ in pairs)
    lhs, rhs = (_components(builder, side, algorithm.lhs_precision_type, count) for side in instruction.operands)
    attributes: dict[str, Any] = {"dot_dimension_numbers": numbers}
    if precision_format(algorithm.lhs_precision_type) is TF32:
        attributes["algorithm"] = replace(algorithm, num_primitive_operations=1)
    *small, largest = (
        builder.create(
            "stablehlo.dot_general", [lhs[left], rhs[right]], attributes=attributes, result_types=[sums]
        ).result
        for left, right in pairs
    )
    total = small[0]
    for each in small[1:]:
        total = builder.add(total, each)
    total = builder.add(_number_or_zero(builder, total), largest)
    return [builder.convert(total, result.element_type) if sums != result else total]


def _components(builder: Any, operand: Value, precision: str, count: int) -> list[Value]:
    """Numbers of a precision whose sum is nearly the operand, the largest first: in its type, or in those of narrower floats."""
    element = operand.tensor_type.element_type
    work = element if isinstance(element, FloatFormat) and element.is_native else element_type("f32")
    rest = operand if work is element else builder.convert(operand, work)
    found = []
    for _ in range(count):
        narrow = precision_format(precision)
        assert narrow is not None
        part = builder.create(
            "stablehlo.reduce_precision",
            [rest],
            attributes={"exponent_bits": narrow.exponent_bits, "mantissa_bits": narrow.mantissa_bits},
        ).result
        found.append(part if narrow is TF32 else builder.convert(part, narrow))
        rest = builder.subtract(rest, part)
    return found


def _number_or_zero(builder: Any, value: Value) -> Value:
    """What infinite numbers leave of their smaller components is NaN: the largest ones alone say what comes of them."""
    zero = builder.broadcast_in_dim(builder.constant(0.0, value.tensor_type.with_shape(())), value.tensor_type)
    chosen: Value = builder.select(builder.compare(value, value, "EQ"), value, zero)
    return chosen


def parts_of_complex_product(
    builder: Any, instruction: Instruction, operands: Sequence[Parts]
) -> Sequence[Parts] | None:
    """Of complex numbers: a rounding algorithm holds for each of four real products; otherwise few terms are written out."""
    if not rounds_parts(instruction):
        return product_of_few_terms(builder, instruction, operands)
    result = instruction.result.tensor_type
    assert isinstance(result.element_type, ComplexType)
    type, attributes = result.with_element_type(result.element_type.component), dict(instruction.attributes)
    (a, b), (c, d) = operands

    def product(lhs: Value, rhs: Value) -> Value:
        made: Value = builder.create(
            "stablehlo.dot_general", [lhs, rhs], attributes=attributes, result_types=[type]
        ).result
        return made

    return [(builder.subtract(product(a, c), product(b, d)), builder.add(product(a, d), product(b, c)))]


def rounds_parts(instruction: Instruction) -> bool:
    """Whether an algorithm rounds the parts of the complex numbers that are multiplied."""
    algorithm, element = DotView.of(instruction).algorithm, instruction.operands[0].tensor_type.element_type
    if algorithm is None or not isinstance(element, ComplexType):
        return False
    return rounded_format(element_type(element.component), algorithm.lhs_precision_type) is not None


def takes_complex_numbers(instruction: Instruction) -> bool:
    """Whether kernels take a product of complex numbers as they are in memory."""
    return has_many_terms(instruction) and not rounds_parts(instruction)


# reference


def evaluated_by(
    instruction: Instruction, lhs: Array, rhs: Array, multiply: Callable[[Array, Array], Array]
) -> Array | None:
    """The product as its algorithm says, or None without one that says anything about these numbers."""
    algorithm = DotView.of(instruction).algorithm
    if algorithm is None or lhs.dtype.kind not in "fc":
        return None
    if lhs.dtype.kind == "c":
        if not rounds_parts(instruction):
            return None
        (a, b), (c, d) = ((side.real, side.imag) for side in (lhs, rhs))
        parts = [_sum_of_products(algorithm, *pair, multiply) for pair in ((a, c), (b, d), (a, d), (b, c))]
        return np.asarray(parts[0] - parts[1] + 1j * (parts[2] + parts[3]), lhs.dtype)
    return _sum_of_products(algorithm, lhs, rhs, multiply)


def _sum_of_products(
    algorithm: DotAlgorithm, lhs: Array, rhs: Array, multiply: Callable[[Array, Array], Array]
) -> Array:
    """Products of the components of real numbers, added up."""
    pairs = _PAIRS.get(algorithm.num_primitive_operations, ((0, 0),))
    count = 1 + max(left for left, _ in pairs)
    sides = (
        _component_arrays(lhs, algorithm.lhs_precision_type, count),
        _component_arrays(rhs, algorithm.rhs_precision_type, count),
    )
    if algorithm.accumulation_type == "f64":
        sides = ([part.astype(np.float64) for part in sides[0]], [part.astype(np.float64) for part in sides[1]])
    with np.errstate(all="ignore"):
        *small, largest = (multiply(sides[0][left], sides[1][right]) for left, right in pairs)
        if not small:
            return largest
        total = small[0]
        for each in small[1:]:
            total = total + each
        return np.asarray(np.where(np.isnan(total), 0, total) + largest, largest.dtype)


def _component_arrays(values: Array, precision: str, count: int) -> list[Array]:
    found, rest, narrow = [], values, rounded_format(element_type(f"f{8 * values.dtype.itemsize}"), precision)
    for _ in range(count):
        part = rest if narrow is None else round_array(rest, narrow).astype(rest.dtype)
        found.append(part)
        with np.errstate(all="ignore"):
            rest = rest - part
    return found
