"""Functions as blocks: called with tracers of a block's arguments while the trace in work builds there."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

from hlojit.ir.builder import Builder
from hlojit.ir.errors import ArgumentError
from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.ops.custom_derivatives import DERIVATIVE_OF
from hlojit.ir.transforms.sweep import sweep
from hlojit.ir.types import Type, tensor
from hlojit.tracing.calls.containers import Structure, flatten
from hlojit.tracing.errors import TracingError
from hlojit.tracing.frames import recording
from hlojit.tracing.operations import Operations
from hlojit.tracing.rewriting import substitute
from hlojit.tracing.scipy_functions.functions import replacement_for
from hlojit.tracing.state import Form, form_of, is_number_or_array
from hlojit.tracing.tracer import Tracer
from hlojit.tracing.transformed import is_transformed, transformed


@final
@dataclass(frozen=True)
class Region:
    """What a function was traced to: a block, and the structure of what it returns."""

    block: Block
    structure: Structure
    is_checked: bool
    """Whether the last value of the block is the number of the first check that failed in it, or 0."""

    @property
    def types(self) -> list[Type]:
        """Those of the results."""
        values = self.block.returned
        return [value.type for value in (values[:-1] if self.is_checked else values)]

    def without_check(self, operations: Operations, values: Sequence[Value]) -> list[Value]:
        """The results among the values of the block, whose failures become those of the trace in work."""
        if not self.is_checked:
            return list(values)
        *results, code = values
        b = operations.builder
        if code.tensor_type.rank:
            none = b.constant(0, tensor((), "i32"))
            code = b.reduce([code], [none], b.combiner("maximum", "i32"), dimensions=(0,))
        operations.checks.follow(b, code)
        return results


def like(operations: Operations, value: Value, leaf: Any) -> Tracer:
    """A tracer of a value that stands for a leaf of the arguments: a Python number's, a NumPy scalar's or an array's."""
    if leaf is None or not is_number_or_array(leaf):
        return result(operations, value)
    form = form_of(operations, leaf)
    is_scalar = form.is_scalar or not value.tensor_type.shape
    return Form(value.tensor_type, form.weak, is_scalar).tracer(operations, value)


def result(operations: Operations, value: Value) -> Tracer:
    """What a transformed function returns: a NumPy scalar, where there are no dimensions."""
    return operations.wrap(value) if value.tensor_type.shape else operations.scalar(value)


def called(function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """Call a user's function, as functions in traced code are called: rewritten, if it has control flow of its own."""
    replaced = replacement_for(function)
    made: Callable[..., Any] = substitute(function) if replaced is None else replaced
    return made(*arguments, **named)


def trace(operations: Operations, function: Callable[..., Any], leaves: Sequence[Any], types: Sequence[Type]) -> Region:
    """``function(tracers)`` as a block; ``leaves`` say what the tracers stand for."""
    block = Block(types)
    with recording(operations, block) as frame, transformed():
        made = function([like(operations, value, leaf) for value, leaf in zip(block.arguments, leaves)])
        found, structure = flatten(made)
        values = [operations.value(leaf) for leaf in found]
    if frame.written:
        raise TracingError(
            "a function that is transformed writes into an array that it has not been given as an argument; return it"
        )
    codes = [] if frame.code is None else [frame.code]
    Builder(block).return_(*values, *codes)
    return Region(block, structure, bool(codes))


@contextmanager
def transforming(operations: Operations) -> Iterator[Place]:
    """Where a transformation builds; blocks that it traced are forgotten at the end."""
    place = Place(operations)
    try:
        yield place
    finally:
        place.forget()


@final
class Place:
    """The place in a trace where one transformation builds, and the blocks of which it builds."""

    def __init__(self, operations: Operations):
        self._operations = operations
        self._block = operations.builder.block
        self._before = self._block.last
        self._blocks: list[Block] = []

    def trace(self, function: Callable[..., Any], leaves: Sequence[Any], types: Sequence[Type]) -> Region:
        """See ``trace``."""
        region = trace(self._operations, function, leaves, types)
        self._blocks.append(region.block)
        return region

    def block(self, types: Sequence[Type]) -> Builder:
        """A builder of a block that is only transformed."""
        self._blocks.append(Block(types))
        return Builder(self._blocks[-1], location=self._operations.builder.location)

    def forget(self) -> None:
        """What was only traced reads nothing any more."""
        for block in self._blocks:
            block.drop_all_references()
        self._blocks = []

    def done(self, values: Sequence[Value]) -> list[Value]:
        """Remove what nobody reads but for ``values``, which are returned as they are then."""
        self.forget()
        checks = self._operations.checks
        codes = [] if checks.running is None else [checks.running]
        found = [*values, *codes]
        found = found if is_transformed() else self._expanded(found)
        sweep(self._block, self._before, set(found))
        checks.running = found[-1] if codes else None
        return found[: len(values)]

    def _expanded(self, values: Sequence[Value]) -> list[Value]:
        """Replace functions with derivatives of their own by what they compute."""
        found = list(values)
        while pending := [each for each in self._walk() if each.op == DERIVATIVE_OF]:
            for each in pending:
                made = Builder.in_front_of(each).inline(each.regions[0], each.operands)
                named = dict(zip(each.results, made))
                found = [named.get(value, value) for value in found]
                each.replace_with(made)
        return found

    def _walk(self) -> Iterator[Instruction]:
        instruction = self._block.first if self._before is None else self._before.next
        while instruction is not None:
            yield from _outermost(instruction)
            instruction = instruction.next


def _outermost(instruction: Instruction) -> Iterator[Instruction]:
    """The instruction and those in its regions, without what lies in functions with derivatives of their own."""
    yield instruction
    if instruction.op != DERIVATIVE_OF:
        for region in instruction.regions:
            for inner in region:
                yield from _outermost(inner)


def argument_error(name: str, text: str) -> ArgumentError:
    """The error for arguments that a transformation does not take."""
    return ArgumentError(f"{name}: {text}")


def argument_value(name: str, operations: Operations, path: str, leaf: Any) -> Value:
    """An argument of a transformed function as a value; raises ``ArgumentError`` that names it."""
    try:
        return operations.value(leaf)
    except TracingError as error:
        raise argument_error(name, f"argument{path}: {error}") from None


def as_type(operations: Operations, leaf: Any, type: Any) -> Value:
    """A tangent or cotangent as a value: Python numbers take the type of what they belong to."""
    if builtins.type(leaf) in (int, float, complex):
        made: Value = operations.builder.constant(leaf, type)
        return made
    return operations.value(leaf)


def fresh(operations: Operations, leaf: Any) -> Any:
    """A traced array of its own, so that what the transformed function writes stays inside."""
    return like(operations, operations.value(leaf), leaf) if isinstance(leaf, Tracer) else leaf
