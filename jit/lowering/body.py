"""What one kernel computes, and where its operands and results lie: ``Body``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.definition import Trait
from hlojit.ir.sizes import known as known_size
from hlojit.ir.types import TensorType
from hlojit.lowering.index import Index, linear_index
from hlojit.lowering.storage import Storage


@dataclass(frozen=True)
class Body:
    """What one kernel computes: parameters (values that live in operand buffers) and roots (results)."""

    parameters: Mapping[Value, int]
    roots: tuple[Value, ...]
    operand_types: tuple[Any, ...]
    rules: Mapping[Instruction, Callable[..., Any]] = field(default_factory=dict)
    """Indexed rules that an emitter supplies itself; one of an instruction with several results returns a tuple."""
    storages: tuple[Storage, ...] = ()
    """How operands, then roots, lie in memory; empty where all are plain."""
    members: tuple[Instruction, ...] = ()
    """The instructions of a fusion, in their order; empty for any other instruction."""

    @staticmethod
    def of(instruction: Instruction, storages: Sequence[Storage] = ()) -> Body:
        """The body of a fusion, or of any single instruction taken as a fusion of one."""
        storages = tuple(storages)
        types = tuple(operand.tensor_type for operand in instruction.operands)
        if Trait.FUSION in instruction.op.traits:
            region = instruction.regions[0]
            parameters = {argument: n for n, argument in enumerate(region.arguments)}
            return Body(parameters, region.returned, types, storages=storages, members=tuple(region))
        parameters = {}
        for number, operand in enumerate(instruction.operands):
            parameters.setdefault(operand, number)
        return Body(parameters, instruction.results, types, storages=storages)

    def linear(self, number: int, index: Sequence[Index]) -> Index:
        """Where an element lies in buffer ``number`` (operands, then roots), counted in elements."""
        if not self.storages:
            return linear_index(index, self._type(number).strides)
        storage = self.storages[number]
        strides = [known_size(stride) for stride in storage.strides]
        return linear_index(index, strides) + storage.offset // storage.itemsize

    def packing(self, number: int) -> int:
        """How many elements of a buffer lie in one byte."""
        return self.storages[number].packing if self.storages else 1

    def length(self, number: int) -> int:
        """Elements (of a packed buffer: bytes) from the buffer's beginning to its end."""
        if not self.storages:
            return self._type(number).size
        storage = self.storages[number]
        return known_size(storage.nbytes) // storage.itemsize

    def is_plain_root(self, number: int) -> bool:
        """Whether a root lies in memory as every nest of loops writes it."""
        return not self.storages or self.storages[len(self.operand_types) + number].is_plain

    def _type(self, number: int) -> TensorType:
        count = len(self.operand_types)
        found: TensorType = self.operand_types[number] if number < count else self.roots[number - count].tensor_type
        return found
