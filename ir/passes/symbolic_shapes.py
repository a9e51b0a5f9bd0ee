"""Shapes of all values of a function as expressions over the sizes of its arguments.

    shapes = symbolic_shapes(module.main, size_arguments)

Raises ``UnsupportedError`` for the first op of which nobody knows how to compile it for sizes that are given at run time.  What
has to hold of sizes - that some are equal, shape assertions - is in ``shapes.checks``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import Any, Final, cast

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.formats import BooleanType, ElementType, IntegerType
from hlojit.ir.graph import Block, Function, Instruction, Value
from hlojit.ir.ops.custom_calls import is_shape_assertion
from hlojit.ir.ops.definition import Pointwise, PointwiseCall
from hlojit.ir.ops.shape_assertions import assertion_template
from hlojit.ir.ops.symbolic_values import (
    Access,
    Carrying,
    Choosing,
    Elementwise,
    Join,
    Numbers,
    Passing,
    Pick,
    Recast,
    Relabel,
    Shape,
    SymbolicShapes,
    refused,
)
from hlojit.ir.passes.graph_facts import constant_of, is_terminator
from hlojit.ir.passes.size_builder import NotASize, SizeBuilder, SizeScalar, limits, within
from hlojit.ir.sizes import Size, apply
from hlojit.ir.types import DYNAMIC, TensorType

_LARGEST: Final = 64
"""Elements of a tensor that sizes are computed with."""


def symbolic_shapes(function: Function, size_arguments: Sequence[int]) -> SymbolicShapes:
    """Run over the body; calls are inlined."""
    shapes = SymbolicShapes(function)
    fill(shapes, size_arguments)
    return shapes


def fill(shapes: SymbolicShapes, size_arguments: Sequence[int]) -> None:
    """Run over the body of the function that ``shapes`` are of."""
    body = shapes.function.body
    for argument in body.arguments:
        shapes.argument(argument, with_elements=argument.index in size_arguments)
    _block(shapes, body)


def _block(shapes: SymbolicShapes, block: Block) -> None:
    """Run over a block; regions nest as deep as they are written."""
    for instruction in block:
        if is_terminator(instruction):
            break
        try:
            _instruction(shapes, instruction)
        except UnsupportedError:
            if not shapes.is_partial:
                raise
            known = ((result, result.type) for result in instruction.results)
            shapes.dims.update((r, type.shape) for r, type in known if isinstance(type, TensorType) and type.is_static)


def _instruction(shapes: SymbolicShapes, instruction: Instruction) -> None:
    if shapes.is_partial and not all(value in shapes.dims for value in instruction.operands):
        raise refused(instruction, "nothing is known of an operand")
    if is_shape_assertion(instruction):
        _assertion(shapes, instruction)
        return
    if not all(isinstance(type, TensorType) for type in (*instruction.operand_types, *instruction.result_types)):
        raise refused(instruction, "it has values that are no tensors")
    structural = _STRUCTURAL.get(instruction.op.host_role)
    if structural is not None:
        structural(shapes, instruction)
        return
    shape, access = _shape_of(shapes, instruction)
    shapes.access[instruction] = access
    for result in instruction.results:
        shapes.dims[result] = shapes.written(instruction, result.tensor_type, shape)
    _elements(shapes, instruction, access)


# what the host program executes


def _loop(shapes: SymbolicShapes, instruction: Instruction) -> None:
    """What goes around keeps its sizes: calls for which it does not are compiled for themselves."""
    body = instruction.regions[1]
    stays = [value is argument for value, argument in zip(body.returned, body.arguments, strict=True)]
    for region in instruction.regions:
        for argument, operand, same in zip(region.arguments, instruction.operands, stays, strict=True):
            _same_value(shapes, instruction, argument, operand, with_elements=same)
        _block(shapes, region)
    for operand, value in zip(instruction.operands, body.returned):
        _assume_same(shapes, instruction, shapes.dims[operand], _returned(shapes, instruction, value))
    shapes.access[instruction] = Carrying()
    for result, operand, same in zip(instruction.results, instruction.operands, stays, strict=True):
        _same_value(shapes, instruction, result, operand, with_elements=same)


def _branch(shapes: SymbolicShapes, instruction: Instruction) -> None:
    """All branches give results of the same sizes, as in a loop."""
    for region in instruction.regions:
        _block(shapes, region)
    first, *others = (region.returned for region in instruction.regions)
    for number, result in enumerate(instruction.results):
        size = _returned(shapes, instruction, first[number])
        for other in others:
            _assume_same(shapes, instruction, size, _returned(shapes, instruction, other[number]))
        shapes.dims[result] = shapes.written(instruction, result.tensor_type, size)
    shapes.access[instruction] = Choosing()


def _alias(shapes: SymbolicShapes, instruction: Instruction) -> None:
    shapes.access[instruction] = Passing()
    for result, operand in zip(instruction.results, instruction.operands, strict=True):
        _same_value(shapes, instruction, result, operand, with_elements=True)


def _same_value(
    shapes: SymbolicShapes, instruction: Instruction, value: Value, source: Value, *, with_elements: bool
) -> None:
    shapes.dims[value] = shapes.written(instruction, value.tensor_type, shapes.dims[source])
    if with_elements and source in shapes.elements:
        shapes.elements[value] = shapes.elements[source]


def _returned(shapes: SymbolicShapes, instruction: Instruction, value: Value) -> Shape:
    found = shapes.dims.get(value)
    if found is None:
        raise refused(instruction, "nothing is known of a value that it returns")
    return found


def _assume_same(shapes: SymbolicShapes, instruction: Instruction, a: Shape, b: Shape) -> None:
    for left, right in zip(a, b, strict=True):
        shapes.assume(instruction, apply("equal", left, right), "sizes {0} and {1} are not the same", left, right)


_STRUCTURAL: Final[Mapping[str, Callable[[SymbolicShapes, Instruction], None]]] = {
    "loop": _loop,
    "branch": _branch,
    "alias": _alias,
}
"""By what ops are for the host program."""


def _assertion(shapes: SymbolicShapes, instruction: Instruction) -> None:
    (condition,), *inputs = (shapes.known(instruction, position) for position in range(len(instruction.operands)))
    shapes.require(condition, assertion_template(instruction), [size for (size,) in inputs])


def has_rule(instruction: Instruction) -> bool:
    """Whether it is known of an op how shapes and elements follow from sizes that are given at run time."""
    if is_terminator(instruction) or is_shape_assertion(instruction) or instruction.op.symbolic is not None:
        return True
    if instruction.op.host_role in _STRUCTURAL:
        return True
    if instruction.op.known_value is not None or any(constant_of(result) is not None for result in instruction.results):
        return True
    return isinstance(instruction.op.lowering, Pointwise) and not instruction.regions


def _shape_of(shapes: SymbolicShapes, instruction: Instruction) -> tuple[Shape, Access]:
    dense = constant_of(instruction.results[0]) if instruction.results else None
    if dense is not None:
        return dense.type.shape, Elementwise()
    if instruction.op.known_value is not None:
        return (), Elementwise()
    rule = instruction.op.symbolic
    if rule is not None:
        _check_regions(instruction)
        return rule(shapes, instruction)
    if isinstance(instruction.op.lowering, Pointwise) and not instruction.regions:
        return _pointwise(shapes, instruction), Elementwise()
    raise refused(instruction, "it has no code for sizes that are given at run time")


def _check_regions(instruction: Instruction) -> None:
    """Combiners and comparators are made of scalars that are computed one after the other."""
    for inner in (inner for region in instruction.regions for inner in region):
        known = is_terminator(inner) or any(constant_of(result) is not None for result in inner.results)
        if not known and not (isinstance(inner.op.lowering, Pointwise) and not inner.regions):
            raise refused(
                instruction, f"{inner.op.name} in its region has no code for sizes that are given at run time"
            )


def _pointwise(shapes: SymbolicShapes, instruction: Instruction) -> Shape:
    rank = instruction.results[0].tensor_type.rank
    found: list[Size] = list(instruction.results[0].tensor_type.shape)
    for operand in instruction.operands:
        if operand.tensor_type.rank == rank:
            pairs = zip(found, shapes.dims[operand])
            found = [size if own == DYNAMIC else shapes.same(instruction, own, size) for own, size in pairs]
    return tuple(found)


# elements that are sizes


def _is_integer(value: Value) -> bool:
    return isinstance(value.tensor_type.element_type, (IntegerType, BooleanType))


def _elements(shapes: SymbolicShapes, instruction: Instruction, access: Access) -> None:
    """Note the elements of small integer tensors that are computed from sizes."""
    if len(instruction.results) != 1 or not _is_integer(instruction.results[0]):
        return
    shape = shapes.dims[instruction.results[0]]
    extents = [size for size in shape if isinstance(size, int)]
    count = 1
    for each in extents:
        count *= each
    if len(extents) < len(shape) or count > _LARGEST:
        return
    with suppress(NotASize):
        found = _found(shapes, instruction, access, extents, count)
        if found is not None and len(found) == count:
            low, high = _limits(instruction.results[0].tensor_type.element_type)
            require = partial(shapes.take_within, instruction)
            shapes.elements[instruction.results[0]] = tuple(within(size, low, high, require) for size in found)


def _limits(element: ElementType) -> tuple[int, int]:
    return limits(element.bits, signed=element.signed) if isinstance(element, IntegerType) else (0, 1)


def _found(
    shapes: SymbolicShapes, instruction: Instruction, access: Access, extents: Sequence[int], count: int
) -> Sequence[Size] | None:
    dense = constant_of(instruction.results[0])
    if dense is not None:
        return [int(each) for each in dense.array.reshape(-1)]
    if instruction.op.known_value is not None:
        return (shapes.dims[instruction.operands[0]][instruction.attributes["dimension"]],)
    if isinstance(access, Numbers):
        return _along(extents, access.dimension)
    operands = [shapes.elements.get(operand) for operand in instruction.operands]
    if isinstance(access, Elementwise):
        known = [each for each in operands if each is not None]
        return _computed(shapes, instruction, known, count) if len(known) == len(operands) else None
    first = operands[0]
    if isinstance(access, Relabel) or (isinstance(access, Recast) and _is_integer(instruction.operands[0])):
        return first
    if isinstance(access, Join) and len(extents) == 1:
        return None if None in operands else [size for each in operands if each is not None for size in each]
    if isinstance(access, Pick) and first is not None and len(extents) <= 1 and len(access.coordinates) <= 1:
        return _picked(access, first, count)
    return None


def _along(extents: Sequence[int], dimension: int) -> list[Size]:
    inner = 1
    for extent in extents[dimension + 1 :]:
        inner *= extent
    total = inner * extents[dimension]
    for extent in extents[:dimension]:
        total *= extent
    return [position // inner % extents[dimension] for position in range(total)]


def _picked(access: Pick, elements: Sequence[Size], count: int) -> Sequence[Size] | None:
    if not access.coordinates:
        return list(repeat(elements[0], count))
    (coordinate,) = access.coordinates
    if coordinate.value is not None or not isinstance(coordinate.start, int):
        return None
    step = coordinate.step if coordinate.dimension is not None else 0
    return [elements[coordinate.start + step * position] for position in range(count)]


def _computed(
    shapes: SymbolicShapes, instruction: Instruction, operands: Sequence[Sequence[Size]], count: int
) -> list[Size] | None:
    """A pointwise rule on sizes; raises ``NotASize`` where it does what sizes do not."""
    lowering = instruction.op.lowering
    assert isinstance(lowering, Pointwise)
    types = tuple(operand.tensor_type.element_type for operand in instruction.operands)
    result = instruction.result.tensor_type.element_type
    call = PointwiseCall(types, result, instruction.attributes)
    builder = SizeBuilder(partial(shapes.take_within, instruction), signed=any(_limits(type)[0] < 0 for type in types))
    found = []
    for position in range(count):
        scalars = [
            SizeScalar(_kind(type), each[position if len(each) > 1 else 0]) for type, each in zip(types, operands)
        ]
        made = lowering.rule(cast(Any, builder), call, *scalars)
        if not isinstance(made, SizeScalar):
            return None
        found.append(made.size)
    return found


def _kind(element: Any) -> str:
    return "i1" if isinstance(element, BooleanType) else f"i{max(8, element.bits)}"
