"""Which arguments' elements decide shapes: those that the elements of shape operands are computed from.

    func.func @main(%n: tensor<i64>, %x: tensor<?xf32>) {          argument 0: its value is the size of %y
      %s = stablehlo.reshape %n : -> tensor<1xi64>
      %y = stablehlo.dynamic_iota %s : -> tensor<?xf32>

Shapes that are computed from sizes of arguments alone need no argument's elements.  ``Operand.sizes`` says of an op which
operands give shapes; of custom calls their attributes do.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlojit.ir.attributes import StringAttr
from hlojit.ir.formats import BooleanType, IntegerType
from hlojit.ir.graph import Block, Function, Instruction, Module, Value
from hlojit.ir.ops.custom_calls import is_shape_assertion
from hlojit.ir.ops.dynamic_types import shape_positions
from hlojit.ir.types import TensorType, TupleType, Type, UnrankedTensorType

_GLOBAL_CONSTANT = "jax.global_constant"
"""Names arguments that JAX's ``export`` adds."""


def is_dynamic(module: Module) -> bool:
    """Whether any type in what the entry function runs leaves a size open."""
    main = module.main
    if any(map(has_unknown_size, (*(value.type for value in main.body.arguments), *main.result_types))):
        return True
    return any(has_unknown_size(result.type) for each in reached_instructions(module) for result in each.results)


def reached_instructions(module: Module) -> Iterator[Instruction]:
    """The instructions of the entry function, and of the functions that these run."""
    names = [module.main.name]
    for name in names:
        for instruction in module.functions[name].body.walk():
            yield instruction
            names.extend(each for each in instruction.callees if each in module.functions and each not in names)


def has_unknown_size(type: Type) -> bool:
    """Whether a type leaves a size open, or all of them with the rank."""
    if isinstance(type, TupleType):
        return any(map(has_unknown_size, type.elements))
    return isinstance(type, UnrankedTensorType) or (isinstance(type, TensorType) and not type.is_static)


def size_operands(instruction: Instruction) -> list[Value]:
    """The operands whose elements give shapes, or state what must hold of sizes."""
    if is_shape_assertion(instruction):
        return list(instruction.operands)
    positions = shape_positions(instruction)
    if positions is not None:
        return [instruction.operands[position] for position in positions]
    specs = instruction.op.operands
    return [operand for spec, operand in zip(specs, instruction.operands) if spec.sizes]


def size_arguments(function: Function) -> tuple[int, ...]:
    """Numbers of the arguments, integers all, whose elements decide shapes; calls are inlined."""
    reached: set[Value] = set()
    pending = [operand for instruction in function.body.walk() for operand in size_operands(instruction)]
    while pending:
        value = pending.pop()
        if value not in reached:
            reached.add(value)
            pending.extend(_made_of(value))
    return tuple(
        argument.index for argument in function.body.arguments if argument in reached and _is_integer(argument.type)
    )


def platform_argument(function: Function) -> int | None:
    """The number of the argument that says which of the platforms of an export the program runs on, if anything reads it."""
    for argument, attributes in zip(function.body.arguments, function.argument_attributes):
        stated = attributes.get(_GLOBAL_CONSTANT)
        is_platform = isinstance(stated, StringAttr) and stated.value == "_platform_index"
        if is_platform and argument.users and _is_integer(argument.type) and not has_unknown_size(argument.type):
            return argument.index
    return None


def _is_integer(type: Type) -> bool:
    return isinstance(type, TensorType) and isinstance(type.element_type, (IntegerType, BooleanType))


def _made_of(value: Value) -> Iterator[Value]:
    """The values that a value's elements are computed from."""
    owner = value.owner
    if isinstance(owner, Block):
        if isinstance(owner.parent, Instruction):
            yield from _read_by(owner.parent)
    elif owner.op.known_value is None:
        yield from _read_by(owner)


def _read_by(instruction: Instruction) -> Iterator[Value]:
    """Operands, and what regions return or read: all of them, since what decides a loop or branch counts as well."""
    yield from instruction.operands
    for region in instruction.regions:
        for inner in region.walk():
            yield from inner.operands
