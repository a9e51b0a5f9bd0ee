"""A block computed for all elements of a batch at once, by the rules in the op records.

    lanes = Vectorizing(builder, size).region(builder, block, [Lane(x, True), Lane(w, False)])

Pointwise ops are the same ops on larger tensors; others have a rule ``batching``, or are what they expand into.  What is
left, and has no effect, runs in a loop over the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from hlojit.ir.builder import Builder
from hlojit.ir.graph import Block, Instruction, Value, clone_instruction
from hlojit.ir.ops.batching.kinds import Lane
from hlojit.ir.ops.definition import Pointwise
from hlojit.ir.passes.graph_facts import has_own_effect
from hlojit.ir.transforms.errors import refused
from hlojit.ir.transforms.free_values import free_values
from hlojit.ir.transforms.rules import expansion, made_of
from hlojit.ir.types import TensorType, tensor

_COUNTER = tensor((), "i32")


@final
class Vectorizing:
    """Builds instructions for a batch; ``size`` is the number of its elements."""

    def __init__(self, builder: Any, size: int, outer: Vectorizing | None = None):
        self.builder = builder
        self.size = size
        self._batched: set[Value] = set() if outer is None else set(outer._batched)
        self._mapping: dict[Value, Value] = {} if outer is None else dict(outer._mapping)

    # what rules ask

    def spread(self, lane: Lane, builder: Any = None) -> Value:
        """The value with a batch, the same for all of its elements if it had none."""
        if lane.batched:
            return lane.value
        shape = lane.value.tensor_type.shape
        b = self.builder if builder is None else builder
        made: Value = b.broadcast_in_dim(lane.value, (self.size, *shape), tuple(range(1, len(shape) + 1)))
        return made

    def again(
        self, instruction: Instruction, operands: Sequence[Value], result_types: Any = None, **attributes: Any
    ) -> Sequence[Value]:
        """The op on other operands, with some attributes replaced."""
        if result_types is None:
            result_types = [self._with_batch(type) for type in instruction.result_types]
        made = self.builder.create(
            instruction.op.name,
            operands,
            attributes={**instruction.attributes, **attributes},
            regions=[region.clone(dict(self._mapping)) for region in instruction.regions],
            result_types=result_types,
            discardable=instruction.discardable,
        )
        found: Sequence[Value] = made.results
        return found

    def zero(self, like: Sequence[Value]) -> Value:
        """An index 0 of the type of others."""
        made: Value = self.builder.constant(0, like[0].type if like else _COUNTER)
        return made

    def transposed(self, value: Value, permutation: Sequence[int]) -> Value:
        """The dimensions in another order."""
        if list(permutation) == list(range(len(permutation))):
            return value
        made: Value = self.builder.transpose(value, permutation=tuple(permutation))
        return made

    def folded(self, value: Value, dimension: int) -> Value:
        """The batch joined, outer, with a dimension of each element."""
        rank = value.tensor_type.rank
        order = [*range(1, rank)]
        order.insert(dimension, 0)
        moved = self.transposed(value, order)
        shape = list(moved.tensor_type.shape)
        shape[dimension : dimension + 2] = [shape[dimension] * shape[dimension + 1]]
        made: Value = self.builder.reshape(moved, shape)
        return made

    def unfolded(self, value: Value, dimension: int) -> Value:
        """The batch taken off a dimension that it was joined with."""
        shape = list(value.tensor_type.shape)
        shape[dimension : dimension + 1] = [self.size, shape[dimension] // self.size]
        apart = self.builder.reshape(value, shape)
        return self.transposed(apart, [dimension, *(d for d in range(len(shape)) if d != dimension)])

    def region(self, builder: Any, region: Block, lanes: Sequence[Lane]) -> list[Lane]:
        """Build a block's instructions for the batch; what it returns."""
        inner = Vectorizing(builder, self.size, self)
        for argument, lane in zip(region.arguments, lanes):
            inner._mapping[argument] = lane.value
            (inner._batched.add if lane.batched else inner._batched.discard)(lane.value)
        values = inner._block(region)
        return [Lane(value, value in inner._batched) for value in values]

    def batched_returns(self, region: Block, arguments: Sequence[bool]) -> list[bool]:
        """Which of a region's results have a batch, for arguments that have one, or not."""
        found = {argument for argument, each in zip(region.arguments, arguments) if each}
        for instruction in region:
            read = (*instruction.operands, *free_values(instruction))
            if any(value in found or self._here(value) in self._batched for value in read):
                found.update(instruction.results)
        return [value in found or self._here(value) in self._batched for value in region.returned]

    # instructions

    def _with_batch(self, type: Any) -> Any:
        if not isinstance(type, TensorType) or not type.is_static:
            return type
        return type.with_shape((self.size, *type.shape))

    def _here(self, value: Value) -> Value:
        return self._mapping.get(value, value)

    def _reads_batched(self, instruction: Instruction) -> bool:
        return any(self._here(v) in self._batched for v in (*instruction.operands, *free_values(instruction)))

    def _captures_batched(self, instruction: Instruction) -> bool:
        return any(self._here(value) in self._batched for value in free_values(instruction))

    def _block(self, block: Block) -> list[Value]:
        for instruction in block:
            if not instruction.op.is_terminator:
                self._step(instruction)
        return list(map(self._here, block.returned))

    def _step(self, instruction: Instruction) -> None:
        self.builder.location = instruction.location
        if not self._reads_batched(instruction):
            self.builder.insert(clone_instruction(instruction, self._mapping))
            return
        values = list(map(self._here, instruction.operands))
        results = self._results(instruction, [Lane(value, value in self._batched) for value in values])
        self._mapping.update(zip(instruction.results, results))
        self._batched.update(results)

    def _results(self, instruction: Instruction, lanes: Sequence[Lane]) -> Sequence[Value]:
        rule = instruction.op.batching
        if not instruction.op.host_role and self._captures_batched(instruction):
            raise refused(instruction, "vmap", "its region reads a value from outside that has a batch")
        found = rule(self, instruction, lanes) if rule is not None else None
        if found is not None:
            return found
        if rule is None and isinstance(instruction.op.lowering, Pointwise) and not instruction.regions:
            return self._pointwise(instruction, lanes)
        made = None if rule is not None or (each := expansion(instruction)) is None else made_of(instruction, each)
        if made is not None:
            values = self._block(made)
            made.drop_all_references()
            return [self.spread(Lane(value, value in self._batched)) for value in values]
        return self._one_by_one(instruction, lanes)

    def _pointwise(self, instruction: Instruction, lanes: Sequence[Lane]) -> Sequence[Value]:
        """The same op; operands without dimensions are brought into the shape of the others."""
        shape = instruction.result.tensor_type.shape
        operands = []
        for lane in lanes:
            value = self.spread(lane) if lane.batched or lane.value.tensor_type.rank == len(shape) else lane.value
            if lane.batched and value.tensor_type.rank != len(shape) + 1:
                value = self.builder.broadcast_in_dim(value, (self.size, *shape), (0,))
            operands.append(value)
        return self.again(instruction, operands)

    def _one_by_one(self, instruction: Instruction, lanes: Sequence[Lane]) -> Sequence[Value]:
        """A loop over the batch, for ops without effects whose rule is not for these operands, or that have none."""
        if any(map(has_own_effect, instruction.walk())) or self._captures_batched(instruction):
            raise refused(
                instruction,
                "vmap",
                "the record of the op has no rule `batching`, and a loop over the batch is no choice",
            )
        if not all(isinstance(type, TensorType) and type.is_static for type in instruction.result_types):
            raise refused(
                instruction,
                "vmap",
                "the record of the op has no rule `batching`, and its results are no arrays of known size",
            )
        b = self.builder
        stacks = [b.constant(0, self._with_batch(type)) for type in instruction.result_types]

        def turn(inner: Builder, number: Value, *found: Value) -> list[Value]:
            own = [_element(inner, lane.value, number) if lane.batched else lane.value for lane in lanes]
            made = inner.insert(
                clone_instruction(instruction, {**self._mapping, **dict(zip(instruction.operands, own))})
            )
            grown = [_stored(inner, stack, number, result) for stack, result in zip(found, made.results)]
            return [inner.add(number, inner.constant(1, _COUNTER)), *grown]

        def test(inner: Builder, number: Value, *found: Value) -> Value:
            return inner.compare(number, inner.constant(self.size, _COUNTER), "LT")

        results: Sequence[Value] = b.while_([b.constant(0, _COUNTER), *stacks], test, turn)
        return results[1:]


def _element(b: Any, value: Value, number: Value) -> Any:
    _, *shape = value.tensor_type.shape
    starts = [number] + [b.constant(0, _COUNTER)] * len(shape)
    part = b.create("dynamic_slice", [value, *starts], attributes={"slice_sizes": (1, *shape)}).result
    return b.reshape(part, shape)


def _stored(b: Any, stack: Value, number: Value, value: Value) -> Any:
    shape = value.tensor_type.shape
    starts = [number] + [b.constant(0, _COUNTER)] * len(shape)
    return b.dynamic_update_slice(stack, b.reshape(value, (1, *shape)), *starts)


def vectorize_block(builder: Any, block: Block, lanes: Sequence[Lane], size: int) -> list[Lane]:
    """Results of a block for a batch at the builder's place."""
    scratch = Block([lane.value.type for lane in lanes])
    own = [Lane(value, lane.batched) for value, lane in zip(scratch.arguments, lanes)]
    results = Vectorizing(builder, size).region(builder, block, own)
    given = {placeholder: lane.value for placeholder, lane in zip(scratch.arguments, lanes)}
    for placeholder, value in given.items():
        placeholder.replace_all_uses_with(value)
    return [Lane(given.get(lane.value, lane.value), lane.batched) for lane in results]
