"""What is checked of a custom call: layouts, aliases of operands and results, its configuration, and calls about buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.attributes import ArrayAttr, Dense, DictAttr, OutputOperandAlias, StringAttr
from hlojit.ir.ops.definition import Constraint
from hlojit.ir.ops.rules import compatible_shapes, show
from hlojit.ir.types import BufferType, TensorType, TupleType, Type, UnrankedTensorType

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction

TYPED_FFI: Final = 4
"""The ``api_version`` of calls whose configuration is a dictionary."""


def _layouts(instruction: Instruction) -> str | None:
    operands, results = (instruction.attributes.get(f"{name}_layouts") for name in ("operand", "result"))
    if operands is None and results is None:
        return None
    if operands is None or results is None:
        return "operand_layouts and result_layouts must both be given, or neither"
    types = instruction.result_types
    if len(types) == 1 and isinstance(types[0], TupleType):
        types = types[0].elements
    return _layout_complaint("operand", instruction.operand_types, operands) or _layout_complaint(
        "result", types, results
    )


def _layout_complaint(name: str, types: Sequence[Type], layouts: Any) -> str | None:
    if not isinstance(layouts, ArrayAttr) or not all(isinstance(each, Dense) for each in layouts.elements):
        return f"{name}_layouts must be a list of dense<...> : tensor<Nxindex>"
    if len(types) != len(layouts.elements):
        return f"{name}_layouts has {len(layouts.elements)} elements, expected {len(types)}"
    for number, (type, layout) in enumerate(zip(types, layouts.elements)):
        assert isinstance(layout, Dense)
        order = layout.array.ravel().tolist()
        if isinstance(type, TupleType):
            return f"{name} {number} is a tuple, which cannot have a layout"
        if isinstance(type, UnrankedTensorType):
            continue
        rank = len(type.shape) if isinstance(type, (TensorType, BufferType)) else 0
        if sorted(order) != list(range(rank)):
            return f"layout {show(order)} of {name} {number} of type {type} must be a permutation of range({rank})"
    return None


def _aliases(instruction: Instruction) -> tuple[OutputOperandAlias, ...]:
    found = instruction.attributes.get("output_operand_aliases")
    if not isinstance(found, ArrayAttr):
        return ()
    return tuple(alias for alias in found.elements if isinstance(alias, OutputOperandAlias))


def _part(type: Type, indices: Sequence[int]) -> Type | None:
    """An element of nested tuples, or None where there is none."""
    for index in indices:
        if not isinstance(type, TupleType) or not 0 <= index < len(type.elements):
            return None
        type = type.elements[index]
    return type


def _output_part(instruction: Instruction, indices: Sequence[int]) -> Type | None:
    types = instruction.result_types
    if len(types) == 1:
        return _part(types[0], indices)
    if not indices:
        return None
    return _part(types[indices[0]], indices[1:]) if 0 <= indices[0] < len(types) else None


def _alias_complaint(instruction: Instruction) -> str | None:
    found = instruction.attributes.get("output_operand_aliases")
    aliases = _aliases(instruction)
    if found is not None and (not isinstance(found, ArrayAttr) or len(aliases) < len(found.elements)):
        return "output_operand_aliases must be a list of #stablehlo.output_operand_alias<...>"
    for alias in aliases:
        if not 0 <= alias.operand_index < len(instruction.operands):
            return f"operand_index {alias.operand_index} must lie in [0, {len(instruction.operands)})"
        operand = _part(instruction.operand_types[alias.operand_index], alias.operand_tuple_indices)
        if operand is None:
            return f"operand_tuple_indices {show(alias.operand_tuple_indices)} name no element of the operand"
        output = _output_part(instruction, alias.output_tuple_indices)
        if output is None:
            return f"output_tuple_indices {show(alias.output_tuple_indices)} name no element of the results"
        if operand is not output:
            return f"an operand of type {operand} cannot be the memory of a result of type {output}"
    return None


def _configuration(instruction: Instruction) -> str | None:
    config, version = instruction.attributes.get("backend_config"), instruction.attributes.get("api_version", 1)
    expected: tuple[type, str] = (DictAttr, "a dictionary") if version == TYPED_FFI else (StringAttr, "a string")
    if config is None or isinstance(config, expected[0]):
        return None
    return f"backend_config must be {expected[1]} where api_version is {version}"


# buffers


def _leaves(type: Type) -> list[tuple[tuple[int, ...], Type]]:
    """What nested tuples hold, with the indices that lead there."""
    found: list[tuple[tuple[int, ...], Type]] = []
    stack: list[tuple[tuple[int, ...], Type]] = [((), type)]
    while stack:
        indices, inner = stack.pop()
        if isinstance(inner, TupleType):
            stack += [((*indices, number), element) for number, element in enumerate(inner.elements)]
        else:
            found.append((indices, inner))
    return sorted(found, key=lambda leaf: leaf[0])


def _one_each(instruction: Instruction, source: type, target: type, words: tuple[str, str]) -> str | None:
    operands, results = instruction.operand_types, instruction.result_types
    if len(operands) != 1 or not isinstance(operands[0], source):
        return f"there must be one operand, {words[0]}"
    if len(results) != 1 or not isinstance(results[0], target):
        return f"there must be one result, {words[1]}"
    first: Any = operands[0]
    second: Any = results[0]
    if first.element_type != second.element_type or not compatible_shapes(first.shape, second.shape):
        return f"operand {first} and result {second} must have the same shape and element type"
    return None


def _create_buffer(instruction: Instruction) -> str | None:
    if instruction.operands:
        return "a buffer is created out of nothing: there must be no operands"
    if len(instruction.results) == 1 and isinstance(instruction.result_types[0], BufferType):
        return None
    return "there must be one result, a buffer (memref<...>)"


_BUFFER_CALLS: Final[dict[str, Callable[[Instruction], str | None]]] = {
    "CreateBuffer": _create_buffer,
    "Pin": lambda i: _one_each(i, TensorType, BufferType, ("a tensor", "a buffer (memref<...>)")),
    "Unpin": lambda i: _one_each(i, BufferType, TensorType, ("a buffer (memref<...>)", "a tensor")),
}


def _buffers(instruction: Instruction) -> str | None:
    """Buffers are made, and given back, by calls of their own; every other that a call returns is one of its operands."""
    known = _BUFFER_CALLS.get(instruction.attributes.get("call_target_name", ""))
    if known is not None:
        return known(instruction)
    types = instruction.result_types
    leaves = (
        _leaves(types[0])
        if len(types) == 1
        else [((number, *indices), leaf) for number, type in enumerate(types) for indices, leaf in _leaves(type)]
    )
    outputs, operands = [], []
    for alias in _aliases(instruction):
        if alias.operand_index < len(instruction.operands) and isinstance(
            _part(instruction.operand_types[alias.operand_index], alias.operand_tuple_indices), BufferType
        ):
            outputs.append(alias.output_tuple_indices)
            operands.append((alias.operand_index, alias.operand_tuple_indices))
    for name, places in (("result", outputs), ("operand", operands)):
        if len(set(places)) < len(places):
            return f"a buffer {name} stands in output_operand_aliases more than once"
    for indices, leaf in leaves:
        if isinstance(leaf, BufferType) and indices not in outputs:
            return f"result {show(indices)} is a buffer: output_operand_aliases must say of which operand"
    return None


CUSTOM_CALL_RULES: Final = (
    Constraint("layouts", _layouts),
    Constraint("aliases", _alias_complaint),
    Constraint("backend_config", _configuration),
    Constraint("buffers", _buffers),
)
"""The specification has no constraints of custom calls; these are those of StableHLO's own verifier."""
