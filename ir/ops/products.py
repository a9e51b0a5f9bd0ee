"""Matrix products: dot_general and the older dot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hlojit.ir.attributes import DotAlgorithm, DotDimensionNumbers
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.formats import BooleanType, ComplexType, ElementType, FloatFormat, IntegerType, QuantizedType
from hlojit.ir.graph import Instruction
from hlojit.ir.ops import padding_rules, shape_rules
from hlojit.ir.ops.attribute_kinds import ArrayOfKind, EnumKind, RecordKind
from hlojit.ir.ops.batching import reductions as batching
from hlojit.ir.ops.block_arithmetic import decode_op_encode
from hlojit.ir.ops.convert import convert_array
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    Expand,
    InferenceRequest,
    Kernel,
    OpDefinition,
    Operand,
    ReferenceCall,
    Trait,
    define,
)
from hlojit.ir.ops.derivatives import products as derivatives
from hlojit.ir.ops.dot_algorithms import (
    ALGORITHM_RULES,
    declined_algorithm,
    evaluated_by,
    parts_of_complex_product,
    product_of_components,
    takes_complex_numbers,
)
from hlojit.ir.ops.mixed_products import declined_mixture, multiplied_as, product_of_one_kind
from hlojit.ir.ops.quantized_products import dot_dimension, dot_parts, evaluated, product_of
from hlojit.ir.ops.quantized_rules import per_tensor, quantized_element
from hlojit.ir.ops.rules import (
    OpCall,
    checked,
    compatible_extents,
    has_shape,
    has_size,
    in_range,
    operand_tensor,
    same_size,
    show,
    unique,
)
from hlojit.ir.ops.views import DotView
from hlojit.ir.types import Type, is_float, tensor

PRECISION = EnumKind("precision", ("DEFAULT", "HIGH", "HIGHEST"))
PRECISION_CONFIG = AttributeSpec("precision_config", ArrayOfKind(PRECISION), optional=True)


def numbers(call: OpCall) -> DotDimensionNumbers:
    """The dimension numbers of a dot_general."""
    return DotView.of(call).numbers


def free_dimensions(rank: int, batching: Sequence[int], contracting: Sequence[int]) -> tuple[int, ...]:
    """Dimensions that are neither batched nor contracted."""
    return tuple(d for d in range(rank) if d not in batching and d not in contracting)


def _same_extents(call: OpCall, what: str, lhs: Sequence[int], rhs: Sequence[int]) -> str | None:
    left, right = operand_tensor(call, 0), operand_tensor(call, 1)
    for a, b in zip(lhs, rhs):
        if not compatible_extents(left.shape[a], right.shape[b]):
            return f"{what} dimension {a} of lhs has size {left.shape[a]} but dimension {b} of rhs {right.shape[b]}"
    return None


def precision_complaint(call: OpCall) -> str | None:
    """A precision config names one precision for each side; StableHLO's own verifier lets the second be missing."""
    config = call.attributes.get("precision_config") or ()
    return has_size("precision_config", config, 2, "one for each side") if len(config) > 2 else None


def elements_complaint(call: OpCall) -> str | None:
    """Both sides have one element type, quantized ones aside, and floats of two formats."""
    lhs, rhs = operand_tensor(call, 0), operand_tensor(call, 1)
    if quantized_element(lhs) or quantized_element(rhs) or lhs.element_type == rhs.element_type:
        return None
    if is_float(lhs.element_type) and is_float(rhs.element_type):
        # Beyond the specification: JAX multiplies one f8 format by another, and StableHLO's own verifier takes any two.
        return None
    return f"lhs and rhs have different element types: {lhs} and {rhs}"


def _zero_points(call: OpCall) -> str | None:
    quantized = quantized_element(operand_tensor(call, 1))
    if quantized is None or not any(quantized.zero_points):
        return None
    return f"zero points of rhs must be 0, found {show(quantized.zero_points)}"


def _quantization_dimension(call: OpCall) -> str | None:
    quantized = quantized_element(operand_tensor(call, 1))
    if quantized is None or quantized.axis is None or quantized.axis not in numbers(call).rhs_contracting:
        return None
    return f"quantization dimension {quantized.axis} of rhs must not be contracted"


def storage_complaint(call: OpCall) -> str | None:
    """Quantized sides have one storage type."""
    lhs, rhs = quantized_element(operand_tensor(call, 0)), quantized_element(operand_tensor(call, 1))
    if lhs is None or rhs is None or lhs.storage_type == rhs.storage_type:
        return None
    return f"storage types of lhs and rhs differ: {lhs.storage_type} and {rhs.storage_type}"


def quantized_complaint(instruction: Any) -> str | None:
    """Where lhs is quantized, so are rhs and the result, and the other way round."""
    lhs, rhs = quantized_element(operand_tensor(instruction, 0)), quantized_element(operand_tensor(instruction, 1))
    result = quantized_element(instruction.result_types[0])
    if lhs is None and rhs is None and result is None:
        return None
    if (lhs is not None) == (result is not None) and rhs is not None:
        return None
    return "lhs and result must both be quantized or both not, and rhs must be quantized with them"


def expressed_complaint(instruction: Any) -> str | None:
    """Expressed types of quantized operands and results agree."""
    found = [quantized_element(operand_tensor(instruction, 0)), quantized_element(operand_tensor(instruction, 1))]
    found.append(quantized_element(instruction.result_types[0]))
    expressed = {quantized.expressed_type for quantized in found if quantized is not None}
    if found[0] is None or len(expressed) == 1:
        return None
    return f"expressed types differ: {', '.join(sorted(expressed))}"


def per_tensor_complaint(instruction: Any) -> str | None:
    """A rhs quantized per tensor gives a result quantized per tensor."""
    lhs, rhs = quantized_element(operand_tensor(instruction, 0)), quantized_element(operand_tensor(instruction, 1))
    result = quantized_element(instruction.result_types[0])
    if lhs is None or rhs is None or rhs.axis is not None or result is None or result.axis is None:
        return None
    return "rhs is quantized per tensor, so the result must be, too"


def hybrid_complaint(instruction: Any) -> str | None:
    """With only rhs quantized, lhs and result have its expressed type."""
    lhs, rhs = operand_tensor(instruction, 0), quantized_element(operand_tensor(instruction, 1))
    if rhs is None or quantized_element(lhs) is not None:
        return None
    result = instruction.result_types[0].element_type.name
    if lhs.element_type.name == rhs.expressed_type == result:
        return None
    return f"lhs {lhs.element_type}, expressed type {rhs.expressed_type} of rhs and result {result} must be one type"


def dot_dimension_rules(numbers: Callable[[OpCall], DotDimensionNumbers]) -> tuple[Constraint, ...]:
    """What the dimension numbers of a product must be, C1 to C10."""

    def same_number(name: str) -> Callable[[OpCall], str | None]:
        return lambda call: same_size(
            f"lhs_{name}_dimensions",
            getattr(numbers(call), f"lhs_{name}"),
            f"rhs_{name}_dimensions",
            getattr(numbers(call), f"rhs_{name}"),
        )

    def distinct(side: str) -> Callable[[OpCall], str | None]:
        def check(call: OpCall) -> str | None:
            dims = numbers(call)
            both = getattr(dims, f"{side}_batching") + getattr(dims, f"{side}_contracting")
            return unique(f"{side}_batching_dimensions + {side}_contracting_dimensions", both)

        return check

    def within(position: int, side: str, name: str) -> Callable[[OpCall], str | None]:
        def check(call: OpCall) -> str | None:
            found, rank = getattr(numbers(call), f"{side}_{name}"), operand_tensor(call, position).rank
            return in_range(f"{side}_{name}_dimensions", found, rank, f"rank of {side}")

        return check

    def same_extents(name: str) -> Callable[[OpCall], str | None]:
        return lambda call: _same_extents(
            call, name, getattr(numbers(call), f"lhs_{name}"), getattr(numbers(call), f"rhs_{name}")
        )

    return (
        Constraint("C1", same_number("batching")),
        Constraint("C2", same_number("contracting")),
        Constraint("C3", distinct("lhs")),
        Constraint("C4", distinct("rhs")),
        Constraint("C5", within(0, "lhs", "batching")),
        Constraint("C6", within(0, "lhs", "contracting")),
        Constraint("C7", within(1, "rhs", "batching")),
        Constraint("C8", within(1, "rhs", "contracting")),
        Constraint("C9", same_extents("batching")),
        Constraint("C10", same_extents("contracting")),
    )


DOT_GENERAL_RULES = (
    *dot_dimension_rules(numbers),
    Constraint("C11", precision_complaint),
    Constraint("C13", elements_complaint),
    per_tensor("I1", 0, "lhs"),
    Constraint("C15", _zero_points),
    Constraint("C16", _quantization_dimension),
    Constraint("C17", storage_complaint),
    *ALGORITHM_RULES,
)


def dot_shape(call: OpCall) -> tuple[int, ...]:
    """The shape of a dot_general: batching dimensions, then what is left of lhs, then of rhs."""
    lhs, rhs, dims = operand_tensor(call, 0).shape, operand_tensor(call, 1).shape, numbers(call)
    return (
        *(lhs[d] for d in dims.lhs_batching),
        *(lhs[d] for d in free_dimensions(len(lhs), dims.lhs_batching, dims.lhs_contracting)),
        *(rhs[d] for d in free_dimensions(len(rhs), dims.rhs_batching, dims.rhs_contracting)),
    )


def _dot_result(instruction: Any) -> str | None:
    return has_shape("result", instruction.result_types[0], dot_shape(instruction))


def infer_dot_general(request: InferenceRequest) -> Sequence[Type]:
    """The result in the element type of lhs, where none is written (a wider one may be)."""
    return [tensor(dot_shape(request), operand_tensor(request, 0).element_type)]


def factors(instruction: Instruction, lhs: Array, rhs: Array) -> tuple[Array, Array]:
    """Operand elements in the type in which the reference multiplies and adds.

    That is f64 where one of the floats is computed in it or names it as its accumulator, and f32 otherwise; integers wrap
    modulo the result's width.
    """
    operands = [operand.tensor_type.element_type for operand in instruction.operands[:2]]
    element = multiplied_as(operands, instruction.result.tensor_type.element_type)
    floats = [each for each in (*operands, element) if isinstance(each, FloatFormat)]
    wide = any("f64" in (each.compute, each.accumulator) for each in floats)
    left, right = (_factor(values, source, element, wide) for values, source in zip((lhs, rhs), operands))
    return left, right


def _factor(values: Array, source: ElementType, element: ElementType, wide: bool) -> Array:
    if isinstance(element, IntegerType):
        return convert_array(values, source, element).astype(element.storage)
    if isinstance(element, BooleanType):
        return values
    if isinstance(element, ComplexType):
        return values.astype(np.complex128 if element.bits == 128 else np.complex64)
    return values.astype(np.float64 if wide else np.float32)


def as_result(instruction: Instruction, product: Array) -> Array:
    """What was multiplied as numbers of another type than the result's, as numbers of the result."""
    operands = [operand.tensor_type.element_type for operand in instruction.operands[:2]]
    result = instruction.result.tensor_type.element_type
    element = multiplied_as(operands, result)
    return product if element == result else convert_array(product, element, result)


def _dot_general_reference(call: ReferenceCall, lhs: Array, rhs: Array) -> Array:
    at = call.instruction
    dims = numbers(at)
    if quantized_element(at.operand_types[1]) is not None:
        product = product_of(at, dot_dimension(at))
        return evaluated(at, lhs, rhs, product, lambda a, b: dot_arrays(a, b, dims))
    left, right = factors(at, lhs, rhs)
    found = evaluated_by(at, left, right, lambda a, b: dot_arrays(a, b, dims))
    return as_result(at, dot_arrays(left, right, dims) if found is None else found)


def _operations(instruction: Instruction) -> int:
    """A multiplication and an addition for every pair of elements."""
    lhs = instruction.operands[0].tensor_type
    terms = math.prod(lhs.shape[each] for each in DotView.of(instruction).numbers.lhs_contracting)
    return 2 * instruction.result.tensor_type.size * terms


def dot_arrays(lhs: Array, rhs: Array, dims: DotDimensionNumbers) -> Array:
    """Contract two arrays: the batched matrix product of their transposed, flattened forms."""
    lhs_free = free_dimensions(lhs.ndim, dims.lhs_batching, dims.lhs_contracting)
    rhs_free = free_dimensions(rhs.ndim, dims.rhs_batching, dims.rhs_contracting)
    batch = [lhs.shape[d] for d in dims.lhs_batching]
    rows = [lhs.shape[d] for d in lhs_free]
    columns = [rhs.shape[d] for d in rhs_free]
    depth = math.prod(lhs.shape[d] for d in dims.lhs_contracting)
    a = lhs.transpose(*dims.lhs_batching, *lhs_free, *dims.lhs_contracting).reshape(
        math.prod(batch), math.prod(rows), depth
    )
    b = rhs.transpose(*dims.rhs_batching, *dims.rhs_contracting, *rhs_free).reshape(
        math.prod(batch), depth, math.prod(columns)
    )
    return np.asarray(np.matmul(a, b)).reshape((*batch, *rows, *columns))


DOT_GENERAL = define(
    OpDefinition(
        "stablehlo.dot_general",
        operands=(Operand("lhs"), Operand("rhs")),
        attributes=(
            AttributeSpec("dot_dimension_numbers", RecordKind(DotDimensionNumbers)),
            PRECISION_CONFIG,
            AttributeSpec("algorithm", RecordKind(DotAlgorithm), optional=True),
        ),
        infer=checked(DOT_GENERAL_RULES, infer_dot_general),
        widens=True,
        constraints=(
            *DOT_GENERAL_RULES,
            Constraint("C12", _dot_result),
            Constraint("C14", quantized_complaint),
            Constraint("C18", expressed_complaint),
            Constraint("C19", per_tensor_complaint),
            Constraint("C20", hybrid_complaint),
        ),
        reference=_dot_general_reference,
        syntax="dot_general",
        traits=frozenset({Trait.PER_AXIS}),
        lowering=Kernel(
            "dot_general",
            operations=_operations,
            takes_pairs=takes_complex_numbers,
            expansion=lambda builder, at: product_of_one_kind(builder, at) or product_of_components(builder, at),
            declines=lambda at: declined_mixture(at) or declined_algorithm(at),
        ),
        parts={BlockFormat: decode_op_encode, ComplexType: parts_of_complex_product, QuantizedType: dot_parts},
        symbolic=shape_rules.dot_general,
        padded=padding_rules.dot_general,
        derivative=derivatives.DOT_GENERAL,
        batching=batching.dot_general,
        summary="products of matrices, batched, over any dimensions",
    )
)


# dot: vectors and matrices only


def _dot_numbers(call: OpCall) -> DotDimensionNumbers:
    return DotDimensionNumbers(lhs_contracting=(operand_tensor(call, 0).rank - 1,), rhs_contracting=(0,))


def _dot_ranks(call: OpCall) -> str | None:
    lhs, rhs = operand_tensor(call, 0), operand_tensor(call, 1)
    if {lhs.rank, rhs.rank} <= {1, 2}:
        return None
    return f"operands must be vectors or matrices, found {lhs} and {rhs}"


def _dot_extents(call: OpCall) -> str | None:
    dims = _dot_numbers(call)
    return _same_extents(call, "contracting", dims.lhs_contracting, dims.rhs_contracting)


DOT_RULES = (
    Constraint("rank", _dot_ranks),
    Constraint("contracting", _dot_extents),
    Constraint("elements", elements_complaint),
    Constraint("precision_config", precision_complaint),
)


def _infer_dot(request: InferenceRequest) -> Sequence[Type]:
    lhs, rhs = operand_tensor(request, 0), operand_tensor(request, 1)
    return [tensor((*lhs.shape[:-1], *rhs.shape[1:]), lhs.element_type)]


def _expand_dot(builder: Any, instruction: Any) -> Any:
    attributes = {"dot_dimension_numbers": _dot_numbers(instruction)}
    if instruction.attributes.get("precision_config"):
        attributes["precision_config"] = instruction.attributes["precision_config"]
    call = builder.create(
        "stablehlo.dot_general", instruction.operands, attributes=attributes, result_types=instruction.result_types
    )
    return list(call.results)


def _dot_reference(call: ReferenceCall, lhs: Array, rhs: Array) -> Array:
    at = call.instruction
    result = at.result.tensor_type
    if quantized_element(at.operand_types[1]) is not None:
        product = product_of(at, lambda axis: result.rank - 1)
        return evaluated(at, lhs, rhs, product, np.matmul)
    return as_result(at, np.asarray(np.matmul(*factors(at, lhs, rhs))))


DOT = define(
    OpDefinition(
        "stablehlo.dot",
        operands=(Operand("lhs"), Operand("rhs")),
        attributes=(PRECISION_CONFIG,),
        infer=checked(DOT_RULES, _infer_dot),
        widens=True,
        constraints=(
            *DOT_RULES,
            Constraint("result", lambda i: has_shape("result", i.results[0].tensor_type, _infer_dot_shape(i))),
        ),
        reference=_dot_reference,
        syntax="dot",
        traits=frozenset({Trait.PER_AXIS}),
        lowering=Expand(_expand_dot),
        summary="product of vectors and matrices",
    )
)


def _infer_dot_shape(instruction: Any) -> tuple[int, ...]:
    return (*operand_tensor(instruction, 0).shape[:-1], *operand_tensor(instruction, 1).shape[1:])
