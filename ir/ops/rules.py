"""What the records of structural ops share: checks that return a complaint, and type inference guarded by them.

A *check* looks at operand types, attributes and regions only, so that it serves both an instruction (the verifier) and
a request for type inference (the builder).  ``checked`` runs them before the inference rule proper, which may therefore
rely on them::

    RULES = (Constraint("C4", lambda call: in_range("dimensions", dims(call), rank(call))),)
    OpDefinition("stablehlo.reduce", infer=checked(RULES, infer_reduce), constraints=(*RULES, inferred("C7")))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from hlojit.ir.attributes import Dense
from hlojit.ir.errors import TypeInferenceError
from hlojit.ir.formats import BooleanType, ComplexType, ElementType, FloatFormat, IntegerType, QuantizedType
from hlojit.ir.ops.definition import Array, Constraint, InferenceRequest, InferenceRule, OpDefinition, Trait
from hlojit.ir.quantized import same_baseline
from hlojit.ir.types import (
    DYNAMIC,
    FutureType,
    TensorType,
    TupleType,
    Type,
    UnrankedTensorType,
    bounds_text,
    function_type,
    tensor,
)

if TYPE_CHECKING:
    from hlojit.ir.graph import Block, Instruction


class OpCall(Protocol):
    """What a check may look at: an ``Instruction`` or an ``InferenceRequest``."""

    @property
    def operand_types(self) -> tuple[Type, ...]:
        """Types of the operands."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Converted attributes."""

    @property
    def regions(self) -> Sequence[Block]:
        """The regions."""


Check = Callable[[OpCall], str | None]


def checked(rules: Sequence[Constraint], infer: InferenceRule) -> InferenceRule:
    """Inference that raises the first complaint of ``rules`` under its label before ``infer`` runs."""

    def run(request: InferenceRequest) -> Sequence[Type]:
        for rule in rules:
            complaint = cast("Check", rule.check)(request)
            if complaint:
                raise TypeInferenceError(complaint, rule.label)
        return infer(request)

    return run


def inferred(label: str) -> Constraint:
    """The constraint that the written result types are those that follow from the operands."""
    return Constraint(label, result_complaint, compares_results=True)


def result_complaint(instruction: Instruction) -> str | None:
    """Say how the written result types differ from the inferred ones; None if they do not, or nothing is inferred."""
    infer = instruction.op.infer
    if infer is None:
        return None
    expected = infer(InferenceRequest(instruction.operand_types, instruction.attributes, instruction.regions))
    found = instruction.result_types
    if len(found) == len(expected) and all(map(agreement(instruction.op), found, expected)):
        return None
    return f"result types are {spell(found)}, expected {spell(expected)}"


def spell(types: Sequence[Type]) -> str:
    """Types as they stand after an arrow."""
    return str(types[0]) if len(types) == 1 else f"({', '.join(map(str, types))})"


# types


def operand_tensor(call: OpCall, position: int) -> TensorType:
    """The type of an operand that must be a tensor."""
    type = call.operand_types[position]
    if not isinstance(type, TensorType):
        raise TypeInferenceError(f"operand {position} must be a tensor, found {type}", f"I{position + 1}")
    return type


def operand_tensors(call: OpCall, start: int = 0, stop: int | None = None) -> list[TensorType]:
    """Types of the operands from ``start`` to ``stop``, which must be tensors."""
    return [operand_tensor(call, position) for position in range(len(call.operand_types))[start:stop]]


def constant_operand(instruction: Instruction, position: int) -> Array | None:
    """The elements of an operand that is a constant, otherwise None."""
    producer = instruction.operands[position].producer
    if producer is None or Trait.CONSTANT not in producer.op.traits:
        return None
    found = producer.attributes.get("value")
    return found.array if isinstance(found, Dense) else None


def compatible_extents(a: int, b: int) -> bool:
    """Whether two sizes of a dimension can be the same at run time."""
    return a == b or DYNAMIC in (a, b)


def compatible_shapes(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes can be the same at run time."""
    return len(a) == len(b) and all(map(compatible_extents, a, b))


def agreement(record: OpDefinition) -> Callable[[Type, Type], bool]:
    """How a written result type of an op must agree with the inferred one.

    Where quantized results are computed, the operands' scales and zero points do not say what the results' are.
    """
    if record.widens:
        return compatible_shape_types
    if Trait.DEQUANTIZES not in record.traits:
        return compatible
    return compatible_unless_quantized if Trait.PER_AXIS in record.traits else baseline_compatible


def compatible_unless_quantized(a: Type, b: Type) -> bool:
    """Whether shapes can be the same, and element types are, or both are quantized."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        quantized = isinstance(a.element_type, QuantizedType) and isinstance(b.element_type, QuantizedType)
        return (quantized or a.element_type == b.element_type) and compatible_sizes(a, b)
    return compatible(a, b)


def baseline_compatible(a: Type, b: Type) -> bool:
    """``compatible``, whatever scales and zero points of quantized elements are."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return same_baseline(a.element_type, b.element_type) and compatible_sizes(a, b)
    return compatible(a, b)


def compatible(a: Type, b: Type) -> bool:
    """Whether values of the two types can be the same at run time (unknown sizes match, encodings are ignored)."""
    if a is b:
        return True
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return a.element_type == b.element_type and compatible_sizes(a, b)
    if isinstance(a, (TupleType, FutureType)) and type(a) is type(b):
        return compatible_lists(a.elements, b.elements)
    return _compatible_unranked(a, b)


def compatible_sizes(a: TensorType, b: TensorType) -> bool:
    """Whether two types can have the same sizes at run time: none of one is beyond a bound of the other."""
    if not compatible_shapes(a.shape, b.shape):
        return False
    if not (a.encoding or b.encoding):
        return True
    return all(
        bound == DYNAMIC or extent <= bound
        for one, other in ((a, b), (b, a))
        for extent, bound in zip(one.shape, other.bounds)
    )


def _compatible_unranked(a: Type, b: Type) -> bool:
    tensors = (TensorType, UnrankedTensorType)
    if not isinstance(a, tensors) or not isinstance(b, tensors):
        return False
    has_no_rank = isinstance(a, UnrankedTensorType) or isinstance(b, UnrankedTensorType)
    return has_no_rank and a.element_type == b.element_type


def most(type: TensorType) -> tuple[int, ...]:
    """The largest size of each dimension: its size, its bound where the size is not known, ``DYNAMIC`` where neither is."""
    return tuple(bound if extent == DYNAMIC else extent for extent, bound in zip(type.shape, type.bounds or type.shape))


def bounded(shape: Sequence[int], element: ElementType, largest: Sequence[int]) -> TensorType:
    """The type of sizes that are known, and of others that are at most ``largest``."""
    if DYNAMIC not in shape:
        return tensor(shape, element)
    bounds = [most if extent == DYNAMIC else DYNAMIC for extent, most in zip(shape, largest)]
    return tensor(shape, element, bounds_text(bounds))


def merged_type(types: Sequence[TensorType]) -> TensorType:
    """What compatible types share: sizes that any of them knows, the smallest bound of others; elements of the first."""
    first = types[0]
    if all(type is first for type in types):
        return first
    shape = tuple(
        next((n for n in extents if n != DYNAMIC), DYNAMIC) for extents in zip(*(type.shape for type in types))
    )
    given = [type.bounds for type in types if type.bounds]
    if not given or DYNAMIC not in shape:
        return tensor(shape, first.element_type)
    bounds = [min((n for n in each if n != DYNAMIC), default=DYNAMIC) for each in zip(*given)]
    kept = [bound if extent == DYNAMIC else DYNAMIC for bound, extent in zip(bounds, shape)]
    return tensor(shape, first.element_type, bounds_text(kept))


def compatible_shape_types(a: Type, b: Type) -> bool:
    """Whether two types have compatible shapes, whatever their element types."""
    return isinstance(a, TensorType) and isinstance(b, TensorType) and compatible_shapes(a.shape, b.shape)


def compatible_lists(a: Sequence[Type], b: Sequence[Type]) -> bool:
    """Whether two lists of types are compatible, one by one."""
    return len(a) == len(b) and all(map(compatible, a, b))


def is_promotable(source: ElementType, target: ElementType) -> bool:
    """The specification's ``is_promotable``: the same kind of number, not narrower."""
    if source == target or (isinstance(source, BooleanType) and isinstance(target, BooleanType)):
        return True
    if isinstance(source, IntegerType) and isinstance(target, IntegerType):
        return source.signed == target.signed and source.bits <= target.bits
    if isinstance(source, FloatFormat) and isinstance(target, FloatFormat):
        return source.bits <= target.bits
    if isinstance(source, ComplexType) and isinstance(target, ComplexType):
        return source.bits <= target.bits
    if isinstance(source, QuantizedType) and isinstance(target, QuantizedType):
        narrower = source.storage_element.bits <= target.storage_element.bits
        return source.expressed_type == target.expressed_type and narrower
    return False


def scalar_type(element: ElementType) -> TensorType:
    """``tensor<E>``."""
    return tensor((), element)


def without(shape: Sequence[int], dropped: Sequence[int]) -> tuple[int, ...]:
    """The shape without some of its dimensions."""
    return tuple(extent for dimension, extent in enumerate(shape) if dimension not in dropped)


# complaints


def in_range(name: str, values: Sequence[int], limit: int, of: str = "rank") -> str | None:
    """Every value must be an index below ``limit``."""
    if all(0 <= value < limit for value in values):
        return None
    return f"{name} {show(values)} must lie in [0, {limit}), the {of}"


def dimension_in_range(call: OpCall) -> str | None:
    """The attribute ``dimension`` must be one of the first operand."""
    return in_range("dimension", (call.attributes["dimension"],), operand_tensor(call, 0).rank)


def outside(name: str, value: int, other_name: str, others: Sequence[int]) -> str | None:
    """A value must not be one of others."""
    return f"{name} {value} is one of {other_name}" if value in others else None


def unique(name: str, values: Sequence[int]) -> str | None:
    """No value may occur twice."""
    return None if len(set(values)) == len(values) else f"{name} {show(values)} repeats a value"


def ascending(name: str, values: Sequence[int]) -> str | None:
    """Values must be sorted."""
    return None if list(values) == sorted(values) else f"{name} {show(values)} is not sorted"


def positive(name: str, values: Sequence[int]) -> str | None:
    """Values must be at least one."""
    return None if all(value > 0 for value in values) else f"{name} {show(values)} must be positive"


def not_negative(name: str, values: Sequence[int]) -> str | None:
    """Values must not be negative."""
    return None if all(value >= 0 for value in values) else f"{name} {show(values)} must not be negative"


def has_size(name: str, values: Sequence[Any], size: int, of: str = "the rank") -> str | None:
    """As many values as ``size``."""
    if len(values) == size:
        return None
    return f"{name} has {len(values)} element{'' if len(values) == 1 else 's'}, expected {size}, {of}"


def same_size(name: str, values: Sequence[Any], other_name: str, other: Sequence[Any]) -> str | None:
    """As many values in one list as in another."""
    if len(values) == len(other):
        return None
    return f"{name} has {len(values)} elements but {other_name} has {len(other)}"


def sized_result(instruction: Instruction) -> str | None:
    """The result's sizes are known, or all but one that is bounded."""
    type = instruction.result_types[0]
    if not isinstance(type, TensorType) or type.is_static:
        return None  # another rule says that it must be a tensor
    if type.shape.count(DYNAMIC) == 1 and sum(bound != DYNAMIC for bound in type.bounds) == 1:
        return None
    return f"result has type {type}, of which at most one size may be unknown, and that with a bound"


def same_shapes(name: str, types: Sequence[TensorType]) -> str | None:
    """All shapes agree."""
    for type in types[1:]:
        if not compatible_shapes(type.shape, types[0].shape):
            return f"{name} have different shapes: {types[0]} and {type}"
    return None


def result_keeps_shape(instruction: Instruction) -> str | None:
    """The result has the first operand's shape."""
    return same_shapes("operand and result", [operand_tensor(instruction, 0), instruction.results[0].tensor_type])


def same_elements(name: str, types: Sequence[TensorType]) -> str | None:
    """All element types agree."""
    for type in types[1:]:
        if type.element_type != types[0].element_type:
            return f"{name} have different element types: {types[0]} and {type}"
    return None


def same_baselines(name: str, types: Sequence[TensorType]) -> str | None:
    """All element types agree, scales and zero points of quantized ones aside."""
    for type in types[1:]:
        if not same_baseline(type.element_type, types[0].element_type):
            return f"{name} have different element types: {types[0]} and {type}"
    return None


def same_types(name: str, types: Sequence[Type]) -> str | None:
    """All types agree."""
    for type in types[1:]:
        if not compatible(type, types[0]):
            return f"{name} have different types: {types[0]} and {type}"
    return None


def has_shape(name: str, type: TensorType, shape: Sequence[int]) -> str | None:
    """The tensor has this shape."""
    if compatible_shapes(type.shape, shape):
        return None
    return f"{name} has type {type}, expected shape {show(shape)}"


def show(values: Sequence[Any]) -> str:
    """Values in parentheses."""
    return str(tuple(values))


# regions


def region_inputs(block: Block) -> tuple[Type, ...]:
    """Types of a region's arguments."""
    return tuple(argument.type for argument in block.arguments)


def region_outputs(block: Block) -> tuple[Type, ...]:
    """Types of the values that a region returns."""
    return tuple(value.type for value in block.last.operands) if block.last is not None else ()


def region_is(name: str, block: Block, inputs: Sequence[Type], outputs: Sequence[Type]) -> str | None:
    """The region has the function type ``inputs -> outputs``."""
    if compatible_lists(region_inputs(block), inputs) and compatible_lists(region_outputs(block), outputs):
        return None
    found = function_type(region_inputs(block), region_outputs(block))
    return f"{name} has type {found}, expected {function_type(inputs, outputs)}"


def combiner_is(
    name: str, block: Block, elements: Sequence[ElementType], shapes: Sequence[Sequence[int]] | None = None
) -> str | None:
    """The region maps two lists of scalars to one, of types to which ``elements`` can be promoted.

    ``shapes``: of its values, where they are no scalars.
    """
    outputs, shapes = region_outputs(block), shapes or [()] * len(elements)
    promoted = [type for type in outputs if isinstance(type, TensorType)]
    if len(promoted) == len(outputs) == len(elements):
        fits = all(compatible_shapes(type.shape, shape) for type, shape in zip(promoted, shapes))
        types = [type.element_type for type in promoted]
        if fits and all(map(is_promotable, elements, types)) and compatible_lists(region_inputs(block), [*outputs] * 2):
            return None
    expected = [tensor(shape, element) for element, shape in zip(elements, shapes)]
    found = function_type(region_inputs(block), outputs)
    return f"{name} has type {found}, expected {function_type([*expected, *expected], expected)} or a promotion of it"


def combined_elements(block: Block) -> list[ElementType]:
    """Element types of what a combiner region returns."""
    return [type.element_type for type in region_outputs(block) if isinstance(type, TensorType)]
