"""The steps of the reducer: each yields programs that are smaller than the one that it is given, valid or not.

They make no promise about meaning: a candidate is any program; the predicate decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import numpy as np
from hlojit.compiler import parse
from hlojit.ir.attributes import Dense
from hlojit.ir.builder import Builder, dense_constant
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Block, Instruction, Module, Value
from hlojit.ir.interpreter import Interpreter
from hlojit.ir.ops.block_arithmetic import block_format
from hlojit.ir.ops.definition import Structural, Trait
from hlojit.ir.passes.call_inliner import CallInliner
from hlojit.ir.passes.dead_code_elimination import DeadCodeElimination
from hlojit.ir.scalar.arrays import to_compute, to_storage
from hlojit.ir.types import TensorType, Type

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Candidate:
    """A program, and its arguments in storage form if these count."""

    module: Module
    arguments: list[NDArray] | None

    @cached_property
    def text(self) -> str:
        """The program's text."""
        return str(self.module)

    @property
    def key(self) -> object:
        """What tells candidates apart."""
        return self.text, *(array.tobytes() for array in self.arguments or ())

    @cached_property
    def count(self) -> int:
        """How many instructions there are, in regions too."""
        return sum(1 for _ in self.module.walk())

    @cached_property
    def size(self) -> tuple[float, ...]:
        """What is to become smaller: instructions, elements, arguments, text, and what is not zero among numbers."""
        types = [argument.type for argument in self.module.main.body.arguments]
        types += [result.type for instruction in self.module.walk() for result in instruction.results]
        elements = sum(each.size for each in types if isinstance(each, TensorType) and each.is_static)
        plain = sum(
            int(np.count_nonzero(array.reshape(-1).view(np.uint8))) for array in self.arguments or () if array.size
        )
        return self.count, len(self.module.main.result_types), elements, len(types), len(self.text), plain

    def copy(self) -> Candidate:
        """A candidate to change."""
        return Candidate(self.module.clone(), None if self.arguments is None else list(self.arguments))


def tidied(candidate: Candidate, *, dead_code: bool = False) -> Candidate:
    """The same without arguments that nothing reads, what is only said about the program, and (or with) dead code."""
    made = candidate.copy()
    module = made.module
    for instruction in module.walk():
        instruction.discardable.clear()
    if not dead_code:
        # Twice: functions whose last call is dead are uncalled only behind it.
        while DeadCodeElimination().run(module):
            pass
    main = module.main
    for position in reversed(range(len(main.body.arguments))):
        if not main.body.arguments[position].users and len(module.functions) == 1:
            main.body.erase_argument(position)
            del main.argument_attributes[position]
            if made.arguments is not None:
                del made.arguments[position]
    return made


def instructions_of(module: Module) -> list[Instruction]:
    """Every instruction but terminators, outer before inner: position is what clones have in common."""
    return [each for each in module.walk() if not each.op.is_terminator]


def inlined(candidate: Candidate) -> Candidate:
    """One function instead of several, however large it gets."""
    made = candidate.copy()
    CallInliner().run(made.module)
    return made


def without_dead_code(candidate: Candidate) -> Iterator[Candidate]:
    """The program without what nothing reads."""
    yield tidied(candidate)


# ------------------------------------------------------------ results


def fewer_results(candidate: Candidate) -> Iterator[Candidate]:
    """One result; else without one of them, halves first."""
    count = len(candidate.module.main.result_types)
    if count < 2:
        return
    for keep in ([number] for number in range(count)):
        yield _with_results(candidate, keep)
    for first, last in _chunks(count):
        yield _with_results(candidate, [number for number in range(count) if not first <= number < last])


def _with_results(candidate: Candidate, keep: Sequence[int]) -> Candidate:
    made = candidate.copy()
    main = made.module.main
    _return(made.module, [main.body.returned[number] for number in keep])
    return made


def _return(module: Module, values: Sequence[Value]) -> None:
    main = module.main
    main.body.terminator.operands = tuple(values)
    main.result_types = [value.type for value in values]
    main.result_attributes = [{} for _ in values]


def return_earlier(candidate: Candidate) -> Iterator[Candidate]:
    """What an instruction in the middle computed, or one that a result is made of, is the only result."""
    block = candidate.module.main.body
    body = [each for each in block if each.results]
    order = sorted({len(body) * numerator // 8 for numerator in range(1, 8)}) if len(body) > 8 else []
    positions = {each: position for position, each in enumerate(body)}
    found = {producer for value in block.returned if (producer := value.producer) is not None and producer in positions}
    near = {
        positions[owner]
        for producer in found
        for operand in producer.operands
        if (owner := operand.producer) is not None and owner in positions
    }
    for position in [*order, *sorted(near)]:
        made = candidate.copy()
        copy = [each for each in made.module.main.body if each.results][position]
        if all(isinstance(result.type, TensorType) for result in copy.results):
            _return(made.module, copy.results)
            yield made


# ---------------------------------------------------------------- instructions


def drop_instructions(candidate: Candidate) -> Iterator[Candidate]:
    """Runs of instructions whose results become constants, arguments, or operands of the same type."""
    count = len(instructions_of(candidate.module))
    values = _computed(candidate)
    for first, last in _chunks(count):
        for substitute in (_operand, _argument(values), _constant(0), _constant(1)):
            made = candidate.copy()
            doomed = instructions_of(made.module)[first:last]
            if _substitute(made, doomed, first, substitute):
                yield made


Substitute = Callable[[Candidate, Instruction, int], Sequence[Value] | None]


def _substitute(made: Candidate, doomed: Sequence[Instruction], first: int, substitute: Substitute) -> bool:
    changed = False
    for number, instruction in reversed(list(enumerate(doomed, first))):
        if Trait.CONSTANT not in instruction.op.traits and any(result.users for result in instruction.results):
            values = substitute(made, instruction, number)
            for result, value in zip(instruction.results, values or ()):
                result.replace_all_uses_with(value)
        if not any(result.users for result in instruction.results):
            instruction.erase()
            changed = True
    return changed


def _operand(made: Candidate, instruction: Instruction, number: int) -> Sequence[Value] | None:
    """Operands in the place of the results: for a loop, what it begins with."""
    if len(instruction.results) > 1 and instruction.operand_types == instruction.result_types:
        return instruction.operands
    found = [
        next((operand for operand in instruction.operands if operand.type is result.type), None)
        for result in instruction.results
    ]
    return [each for each in found if each is not None] if all(found) and found else None


def _argument(values: dict[int, list[NDArray]]) -> Substitute:
    def make(made: Candidate, instruction: Instruction, number: int) -> Sequence[Value] | None:
        main = made.module.main
        known = values.get(number)
        if instruction.block is not main.body or (made.arguments is not None and known is None):
            return None
        if not instruction.results or not all(isinstance(each.type, TensorType) for each in instruction.results):
            return None
        added = [main.body.add_argument(result.type) for result in instruction.results]
        main.argument_attributes.extend({} for _ in added)
        if made.arguments is not None and known is not None:
            made.arguments.extend(known)
        return added

    return make


def _constant(number: int) -> Substitute:
    def make(made: Candidate, instruction: Instruction, position: int) -> Sequence[Value] | None:
        types = [result.type for result in instruction.results]
        if not types or not all(isinstance(each, TensorType) and each.is_static for each in types):
            return None
        builder = Builder.in_front_of(instruction)
        try:
            return [builder.constant(number, result.tensor_type) for result in instruction.results]
        except (HlojitError, TypeError, ValueError):
            return None

    return make


def _computed(candidate: Candidate) -> dict[int, list[NDArray]]:
    """What the entry function's own instructions compute from the arguments, by their positions; storage form."""
    if candidate.arguments is None:
        return {}
    main = candidate.module.main
    environment: dict[Value, Any] = {}
    entered = [
        to_compute(array, argument.tensor_type.element_type)
        for array, argument in zip(candidate.arguments, main.body.arguments)
    ]
    try:
        with np.errstate(all="ignore"):
            Interpreter(candidate.module).run(main.body, entered, environment)
    except Exception:
        return {}
    return {
        position: [
            to_storage(np.asarray(environment[result]), result.tensor_type.element_type)
            for result in instruction.results
        ]
        for position, instruction in enumerate(instructions_of(candidate.module))
        if instruction.block is main.body and all(map(_is_plain, instruction.result_types))
    }


def _is_plain(type: Type) -> bool:
    """Whether values of a type are arrays."""
    return isinstance(type, TensorType) and block_format(type) is None


def enter_regions(candidate: Candidate) -> Iterator[Candidate]:
    """A branch, or the body of a loop, once, in the place of the instruction that holds it."""
    for position, instruction in enumerate(instructions_of(candidate.module)):
        lowering = instruction.op.lowering
        if isinstance(lowering, Structural) and instruction.regions:
            for region in range(len(instruction.regions)):
                made = candidate.copy()
                if _entered(instructions_of(made.module)[position], region):
                    yield made


def _entered(instruction: Instruction, number: int) -> bool:
    region: Block = instruction.regions[number]
    operands = instruction.operands
    if len(region.arguments) not in (0, len(operands)):
        return False
    returned = Builder.in_front_of(instruction).inline(region, operands[: len(region.arguments)])
    if [value.type for value in returned] != list(instruction.result_types):
        return False
    instruction.replace_with(returned)
    return True


def other_operands(candidate: Candidate) -> Iterator[Candidate]:
    """Instructions that read an argument of the function in the place of what they read."""
    for position, instruction in enumerate(instructions_of(candidate.module)):
        for number, operand in enumerate(instruction.operands):
            for argument in candidate.module.main.body.arguments:
                if argument.type is operand.type and argument is not operand and instruction.function is not None:
                    made = candidate.copy()
                    main = made.module.main
                    if instruction.function.name == main.name:
                        copy = instructions_of(made.module)[position]
                        copy.set_operand(number, main.body.arguments[argument.index])
                        yield made


# --------------------------------------------------------- numbers and shapes


def simpler_constants(candidate: Candidate) -> Iterator[Candidate]:
    """Constants whose elements are all one number: 0, 1, or one of their own."""
    for position, instruction in enumerate(instructions_of(candidate.module)):
        dense = instruction.attributes.get("value")
        if Trait.CONSTANT not in instruction.op.traits or not isinstance(dense, Dense):
            continue
        own = [] if dense.is_splat else [dense.array.reshape(-1)[:1]] if dense.array.size else []
        for number in (0, 1, *own):
            made = candidate.copy()
            try:
                splat = dense_constant(number, dense.type)
            except (HlojitError, TypeError, ValueError):
                continue
            instructions_of(made.module)[position].attributes["value"] = splat
            yield made


def simpler_arguments(candidate: Candidate) -> Iterator[Candidate]:
    """Arrays of zeros, or with runs of zeros."""
    for number, array in enumerate(candidate.arguments or ()):
        for first, last in _chunks(array.size, least=max(1, array.size // 16)):
            made = candidate.copy()
            flat = array.reshape(-1).copy()
            flat[first:last] = np.zeros((), array.dtype)
            assert made.arguments is not None
            made.arguments[number] = flat.reshape(array.shape)
            yield made


_TYPE: Final = re.compile(r"tensor<[^<>]*(?:<[^<>]*>)?[^<>]*>")


def smaller_shapes(candidate: Candidate) -> Iterator[Candidate]:
    """One size in all types (and, on a second try, wherever the number stands) becomes a smaller one."""
    text = candidate.text
    known = {int(each) for kind in _TYPE.findall(text) for each in re.findall(r"(?<=[<x])(\d+)(?=x)", kind)}
    for extent in sorted(known, reverse=True):
        for smaller in sorted({1, 2, 3, extent // 2, extent - 1}):
            if 0 < smaller < extent:
                yield from _resized(candidate, text, extent, smaller)


def _resized(candidate: Candidate, text: str, extent: int, smaller: int) -> Iterator[Candidate]:
    in_types = re.sub(rf"(?<=[<x]){extent}(?=x)", str(smaller), text)
    everywhere = re.sub(rf"(?<![\w.%#]){extent}(?![\w.])", str(smaller), in_types)
    for changed in dict.fromkeys((in_types, everywhere)):
        try:
            module = parse(changed)
        except (HlojitError, RecursionError):
            continue
        if candidate.arguments is None:
            yield Candidate(module, None)
            continue
        shapes = [argument.tensor_type.shape for argument in module.main.body.arguments]
        for part in (slice(None), slice(None, None, -1)):
            arrays = [_cropped(array, shape, part) for array, shape in zip(candidate.arguments, shapes)]
            yield Candidate(module, arrays)


def _cropped(array: NDArray, shape: Sequence[int], part: slice) -> NDArray:
    """The first elements of an array in each dimension, or (``part`` goes backwards) the last ones."""
    backwards = part.step == -1
    places = tuple(
        slice(size - extent, size) if backwards else slice(0, extent) for size, extent in zip(array.shape, shape)
    )
    return np.ascontiguousarray(array[places])


def _chunks(count: int, least: int = 1) -> Iterator[tuple[int, int]]:
    """Runs of numbers below ``count``: all of it, halves, quarters, down to runs of ``least``; the last ones first."""
    size = count
    while size >= least and size:
        ends = list(accumulate([size] * -(-count // size)))
        yield from ((end - size, min(end, count)) for end in reversed(ends))
        if size == 1:
            return
        size = -(-size // 2)


Step = Callable[[Candidate], Iterator[Candidate]]

SHRINKING: Final[tuple[Step, ...]] = (fewer_results, smaller_shapes, simpler_arguments)
"""Steps that leave the instructions that a result is made of as they are."""

STEPS: Final[tuple[Step, ...]] = (
    without_dead_code,
    fewer_results,
    return_earlier,
    drop_instructions,
    enter_regions,
    other_operands,
    smaller_shapes,
    simpler_constants,
    simpler_arguments,
)
