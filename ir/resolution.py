"""Modules and scopes: the records that a module holds are exchanged for those that its names mean now.

A module holds op records and element types themselves, not their names.  When a plugin is registered again, a module that
was parsed before still has the old ones; ``resolved`` gives the same program with the new ones.  Names that the tables do not
have - of a plugin that is gone, of ops made during a compilation - keep what the module has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from hlojit.ir.attributes import ArrayAttr, Dense, DictAttr, ElidedElements, TypeAttr
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.environment import ELEMENT_TYPES, OPS, Snapshot
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import ElementType, FloatFormat
from hlojit.ir.graph import Block, Module
from hlojit.ir.types import FunctionType, TensorType, TupleType, Type, function_type, tensor, tuple_type


def resolved(module: Module, tables: Snapshot) -> Module:
    """The module with the records of ``tables``: itself if it has them, otherwise a changed copy (not frozen)."""
    if not _is_outdated(module, tables):
        return module
    copy = module.clone()
    _Resolution(tables).module(copy)
    return copy


def _is_outdated(module: Module, tables: Snapshot) -> bool:
    if not any(kind in (OPS, ELEMENT_TYPES) for kind, _ in tables.owners):
        return False  # no plugin has brought anything that a module holds
    ops = tables.ops
    types: set[Type] = set(_types_in(module.attributes))
    for function in module.functions.values():
        types.update(function.result_types)
        for attributes in (function.attributes, *function.argument_attributes, *function.result_attributes):
            types.update(_types_in(attributes))
        types.update(argument.type for argument in function.body.arguments)
    for instruction in module.walk():
        if ops.get(instruction.op.name, instruction.op) is not instruction.op:
            return True
        types.update(result.type for result in instruction.results)
        types.update(_types_in(instruction.attributes))
        types.update(_types_in(instruction.discardable))
        for region in instruction.regions:
            types.update(argument.type for argument in region.arguments)
    resolution = _Resolution(tables)
    return any(resolution.type(each) is not each for each in types)


def _types_in(value: Any) -> Iterator[Type]:
    """The types that an attribute, or a dictionary of them, holds."""
    if isinstance(value, Type):
        yield value
    elif isinstance(value, (Dense, ElidedElements, TypeAttr)):
        yield value.type
    elif isinstance(value, (ArrayAttr, DictAttr, tuple, dict)):
        for each in _members(value):
            yield from _types_in(each)


def _members(value: ArrayAttr | DictAttr | tuple[Any, ...] | dict[str, Any]) -> Iterable[Any]:
    if isinstance(value, ArrayAttr):
        return value.elements
    if isinstance(value, DictAttr):
        return [each for _, each in value.items]
    return value.values() if isinstance(value, dict) else value


class _Resolution:
    """Exchanges the records in one module, in place."""

    def __init__(self, tables: Snapshot):
        self.tables = tables
        self._types: dict[Type, Type] = {}

    def module(self, module: Module) -> None:
        self._attributes(module.attributes)
        for function in module.functions.values():
            function.result_types = [self.type(each) for each in function.result_types]
            for attributes in (function.attributes, *function.argument_attributes, *function.result_attributes):
                self._attributes(attributes)
            self._arguments(function.body)
        for instruction in module.walk():
            instruction.op = self.tables.ops.get(instruction.op.name, instruction.op)
            for result in instruction.results:
                result.type = self.type(result.type)
            self._attributes(instruction.attributes)
            self._attributes(instruction.discardable)
            for region in instruction.regions:
                self._arguments(region)

    def type(self, type: Type) -> Type:
        """The type with the element types of the tables."""
        found = self._types.get(type)
        if found is None:
            found = self._types[type] = self._new_type(type)
        return found

    def _new_type(self, type: Type) -> Type:
        if isinstance(type, TensorType):
            row = self.tables.element_types.get(type.element_type.name, type.element_type)
            return type if row == type.element_type else tensor(type.shape, row, type.encoding)
        if isinstance(type, TupleType):
            return tuple_type([self.type(each) for each in type.elements])
        if isinstance(type, FunctionType):
            return function_type([self.type(each) for each in type.inputs], [self.type(each) for each in type.results])
        return type

    def _arguments(self, block: Block) -> None:
        for argument in block.arguments:
            argument.type = self.type(argument.type)

    def _attributes(self, attributes: dict[str, Any]) -> None:
        for name, value in attributes.items():
            attributes[name] = self._attribute(value)

    def _attribute(self, value: Any) -> Any:
        writer = _WRITERS.get(type(value))
        if writer is not None:
            return writer(self, value)
        return self.type(value) if isinstance(value, Type) else value

    def _dense(self, value: Dense) -> Dense:
        type = self.type(value.type)
        if type is value.type:
            return value
        assert isinstance(type, TensorType)
        elements = value.array[(slice(0, 1),) * value.array.ndim] if value.is_splat else value.array
        array = np.broadcast_to(_recoded(elements, value.type.element_type, type.element_type), type.shape)
        array.flags.writeable = False
        return Dense(type, array)

    def _elided(self, value: ElidedElements) -> ElidedElements:
        type = self.type(value.type)
        assert isinstance(type, TensorType)
        return ElidedElements(type)

    def _type_attribute(self, value: TypeAttr) -> TypeAttr:
        return TypeAttr(self.type(value.type))

    def _array(self, value: ArrayAttr) -> ArrayAttr:
        return ArrayAttr(tuple(map(self._attribute, value.elements)))

    def _dictionary(self, value: DictAttr) -> DictAttr:
        return DictAttr(tuple((name, self._attribute(each)) for name, each in value.items))

    def _tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(map(self._attribute, value))


_WRITERS: Mapping[type, Callable[[_Resolution, Any], Any]] = {
    Dense: _Resolution._dense,
    ElidedElements: _Resolution._elided,
    TypeAttr: _Resolution._type_attribute,
    ArrayAttr: _Resolution._array,
    DictAttr: _Resolution._dictionary,
    tuple: _Resolution._tuple,
}


def _recoded(elements: np.ndarray[Any, Any], old: ElementType, new: ElementType) -> np.ndarray[Any, Any]:
    """The numbers that a constant holds, in another format of the same name: as its text would be read again."""
    from hlojit.ir.scalar.arrays import to_compute, to_storage

    if isinstance(old, BlockFormat) and isinstance(new, BlockFormat):
        return elements  # numbers that are not encoded yet
    if type(old) is not type(new) or not isinstance(new, FloatFormat):
        raise HlojitError(
            f"the element type {new.name!r} was registered again as something else ({old!r} before, {new!r} now): "
            "a constant of a module made before cannot be carried over; parse the program again"
        )
    return to_storage(to_compute(elements, old), new)
