"""Give values whose sizes only data tell a size in memory: that of their bounds.

    func.func @main(%x: tensor<8xf32>, %n: tensor<i32>)              =>      func.func @main(%x: tensor<8xf32>, %n: tensor<i32>)
        -> tensor<?xf32, #stablehlo.bounds<8>> {                                 -> (tensor<8xf32>, tensor<i32>, ...) {
      %0 = stablehlo.set_dimension_size %x, %n, dim = 0                        %0 = stablehlo.negate %x : tensor<8xf32>
      %1 = stablehlo.negate %0                                                 return %0, %n, %fault, %size
      return %1 : tensor<?xf32, #stablehlo.bounds<8>>                          ...
    }                                                                        }

Elements beyond a size are whatever they are; ops that combine elements mask them (``padded`` in their records).  The sizes of
results come behind them, and behind these whether a size was negative or beyond its bound: ``RunTimeSizes`` says which result is
what.  Runs behind ``shape-refinement``, on a program whose arguments are static.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlojit.ir.builder import Builder
from hlojit.ir.graph import Block, Instruction, Module, Value
from hlojit.ir.ops import padding_rules
from hlojit.ir.ops.custom_calls import is_custom_call
from hlojit.ir.ops.definition import Pointwise
from hlojit.ir.ops.padded_values import MOST, Need, Padded, PaddedBuilder, PaddingRule
from hlojit.ir.passes.call_inliner import CallInliner
from hlojit.ir.passes.graph_facts import is_control_flow, is_terminator
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.passes.size_sources import has_unknown_size
from hlojit.ir.types import Type


@dataclass(frozen=True, slots=True)
class Limit:
    """What an instruction needs of a size that the run gives: ``message``, with the size for ``{0}``, says what is wrong."""

    place: str
    message: str

    def complaint(self, size: int) -> str:
        """What is wrong with a size."""
        return f"{self.place}: {self.message.replace('{0}', str(size))}"


@dataclass(frozen=True, slots=True)
class RunTimeSizes:
    """What a padded program returns besides its results."""

    results: tuple[Mapping[int, int], ...]
    """Of each result of the program, by dimension, the number of the result that is its size."""
    limits: tuple[Limit, ...]
    """The last result but one is 0, or the number, from 1 on, of the first of these that was broken; the last one is the size."""


@dataclass(frozen=True)
class DynamicPadder(Pass):
    """Pad values whose sizes are known only at run time."""

    name: ClassVar[str] = "dynamic-padder"
    phase: ClassVar[str] = "import"

    def run(self, module: Module) -> bool:
        """Pad; return whether there was anything to."""
        return padded_program(module) is not None


def padded_program(module: Module) -> RunTimeSizes | None:
    """Pad in place and say where sizes are; None if there was nothing to pad."""
    CallInliner().run(module)
    main = module.main
    if not any(has_unknown_size(result.type) for instruction in main.body.walk() for result in instruction.results):
        return None
    padder = _Padder()
    padder.block(main.body)
    returned = main.body.terminator
    results = [padder.of(value) for value in returned.operands]
    values = [result.value for result in results]
    found: list[Mapping[int, int]] = []
    for result in results:
        found.append({d: len(values) + number for number, d in enumerate(result.sizes)})
        values.extend(result.sizes.values())
    if padder.limits:
        values.extend(padder.fault_of(_in_front_of(returned, results)))
    returned.operands = values
    main.result_types = [value.type for value in values]
    main.result_attributes = [*main.result_attributes, *({} for _ in values[len(results) :])]
    padder.erase()
    return RunTimeSizes(tuple(found), tuple(padder.limits))


class _Padder:
    """Replaces instructions one by one; what they gave is known by their old values."""

    def __init__(self) -> None:
        self._padded: dict[Value, Padded] = {}
        self._replaced: list[Instruction] = []
        self.limits: list[Limit] = []
        self._fault: tuple[Value, Value] | None = None
        """Which limit was broken up to here, and by which size, in the block that is being padded."""
        self._known: dict[Value, int] = {}
        """Sizes, and what they are known not to exceed unless there was a fault."""

    def of(self, value: Value) -> Padded:
        """What stands for a value."""
        return self._padded.get(value) or Padded(value)

    def block(self, block: Block) -> None:
        """Replace what has to be in a block, up to its terminator."""
        for instruction in block:
            if is_terminator(instruction):
                return
            operands = [self.of(operand) for operand in instruction.operands]
            touched = any(operand in self._padded for operand in instruction.operands)
            touched |= any(map(has_unknown_size, instruction.result_types))
            if touched or (is_control_flow(instruction) and self._reads_padded(instruction)):
                self._replace(instruction, operands)

    def erase(self, first: int = 0) -> None:
        """Remove what was replaced, from number ``first`` on."""
        for instruction in reversed(self._replaced[first:]):
            instruction.erase()
        del self._replaced[first:]

    def fault_of(self, builder: PaddedBuilder) -> tuple[Value, Value]:
        """The fault up to here, as values."""
        if self._fault is None:
            self._fault = builder.number(0), builder.number(0)
        return self._fault

    def _check(self, builder: PaddedBuilder, result: Padded) -> None:
        """Note a fault where a size that is new is negative or beyond the bound."""
        for dimension, size in result.sizes.items():
            bound = result.shape[dimension]
            if self._known.get(size, MOST) <= bound:
                continue
            self._known[size] = bound
            compare = builder.builder.compare
            low, high = compare(size, builder.number(0), "LT"), compare(size, builder.number(bound), "GT")
            broken = builder.builder.create("or", [low, high]).result
            message = f"dimension {dimension} of size {bound} cannot have the size {{0}}"
            self._note(builder, Need(broken, message, size))

    def _note(self, builder: PaddedBuilder, need: Need) -> None:
        """Note a fault where something does not hold that an instruction needs."""
        self.limits.append(Limit(f"{builder.instruction.op.name} at {builder.instruction.location}", need.message))
        compare, create = builder.builder.compare, builder.builder.create
        earlier, of_earlier = self.fault_of(builder)
        first = create("and", [need.broken, compare(earlier, builder.number(0), "EQ")]).result
        self._fault = (
            create("select", [first, builder.number(len(self.limits)), earlier]).result,
            create("select", [first, need.size, of_earlier]).result,
        )

    def _region(self, block: Block, fault: tuple[Value, Value] | None) -> tuple[Value, Value] | None:
        """Pad a region that begins with a fault, and give the one that it ends with."""
        outside = self._fault, dict(self._known)
        self._fault = fault
        self.block(block)
        found = self._fault
        self._fault, self._known = outside
        return found

    def _reads_padded(self, instruction: Instruction) -> bool:
        """Whether regions read padded values, or make values of unknown sizes."""
        for region in instruction.regions:
            for inner in region.walk():
                if any(operand in self._padded for operand in inner.operands):
                    return True
                if any(map(has_unknown_size, inner.result_types)):
                    return True
        return False

    def _replace(self, instruction: Instruction, operands: Sequence[Padded]) -> None:
        builder = _in_front_of(instruction, operands)
        if instruction.op.host_role == "loop":
            results = self._loop(builder)
        elif instruction.op.host_role == "branch":
            results = self._branch(builder)
        else:
            rule = _rule_of(instruction)
            if rule is None:
                raise builder.refuse(_reason(instruction, operands))
            results = [builder.written(number, result) for number, result in enumerate(rule(builder))]
            for need in builder.needs:
                self._note(builder, need)
            for result in results:
                self._check(builder, result)
        self._padded.update(zip(instruction.results, results))
        self._replaced.append(instruction)

    def _loop(self, builder: PaddedBuilder) -> Sequence[Padded]:
        """The sizes become states of the loop behind the others."""
        states, loop = builder.operands, builder.instruction
        layout = [tuple(state.sizes) for state in states]
        values = [state.value for state in states] + [size for state in states for size in state.sizes.values()]
        values.extend(self.fault_of(builder))
        types = [value.type for value in values]
        regions, faults = [], []
        for region in loop.regions:
            copy = region.clone()
            regions.append(copy)
            for argument, type in zip(copy.arguments, types):
                argument.type = type
            *added, number, size = [copy.add_argument(type) for type in types[len(states) :]]
            faults.append((number, size))
            sizes = iter(added)
            for argument, dimensions in zip(copy.arguments, layout):
                if dimensions:
                    (self._padded[argument],) = self._fit([Padded(argument, {d: next(sizes) for d in dimensions})])
        made = builder.builder.create(loop.op.name, values, regions=regions, result_types=types)
        condition_fault, body_fault = (self._region(region, fault) for region, fault in zip(made.regions, faults))
        if condition_fault is not faults[0] or body_fault is None:
            raise builder.refuse("its condition makes values whose sizes are known only when the program runs")
        self._close(builder, made.regions[1], layout, types, body_fault)
        *_, number, size = made.results
        self._fault = number, size
        condition = made.regions[0].terminator
        condition.operands = [self.of(operand).value for operand in condition.operands]
        return self._fit(_unpacked(made.results, layout))

    def _branch(self, builder: PaddedBuilder) -> Sequence[Padded]:
        """Every branch returns the sizes that one of them does."""
        chosen, first = builder.instruction, len(self._replaced)
        regions = [region.clone() for region in chosen.regions]
        made = Instruction(
            chosen.op, [builder.operands[0].value], (), chosen.attributes, regions, location=chosen.location
        )
        builder.builder.insert(made)
        before = self._fault
        faults = [self._region(region, before) for region in regions]
        returned = [[self.of(value) for value in region.returned] for region in regions]
        layout = [tuple(sorted({d for each in options for d in each.sizes})) for options in zip(*returned)]
        shapes = [
            tuple(max(extents) for extents in zip(*(each.shape for each in options))) for options in zip(*returned)
        ]
        has_fault = any(fault is not before for fault in faults)
        for region, results, fault in zip(regions, returned, faults):
            last = region.terminator
            inner = _in_front_of(last, results)
            grown = [inner.grown(each, shape) for each, shape in zip(results, shapes)]
            sizes = [inner.size(each, d) for each, dims in zip(results, layout) for d in dims]
            if has_fault:
                sizes.extend(fault or (inner.number(0), inner.number(0)))
            last.operands = [*(each.value for each in grown), *sizes]
        # What was replaced has no type that is known to a back end, and effects of its own: it is not to be cloned.
        self.erase(first)
        types = [value.type for value in regions[0].returned]
        final = builder.builder.create(
            chosen.op.name,
            [builder.operands[0].value],
            attributes=chosen.attributes,
            regions=[region.clone() for region in regions],
            result_types=types,
        )
        self._replaced.append(made)
        if has_fault:
            *_, number, size = final.results
            self._fault = number, size
        return self._fit(_unpacked(final.results, layout))

    def _fit(self, values: list[Padded]) -> list[Padded]:
        """Note that sizes were looked at before they came here."""
        for value in values:
            self._known.update((size, value.shape[dimension]) for dimension, size in value.sizes.items())
        return values

    def _close(
        self,
        builder: PaddedBuilder,
        region: Block,
        layout: Sequence[tuple[int, ...]],
        types: Sequence[Type],
        fault: tuple[Value, Value],
    ) -> None:
        """Have a loop's body return the sizes of its states, each in the shape that it began with."""
        last = region.terminator
        inner = _in_front_of(last, [self.of(value) for value in last.operands])
        values: list[Value] = []
        sizes: list[Value] = []
        for state, dimensions, type in zip(inner.operands, layout, types):
            if set(state.sizes) - set(dimensions):
                raise builder.refuse("a size that is known before it is known only at run time within it")
            extents = type.shape if hasattr(type, "shape") else ()
            if any(found > room for found, room in zip(state.shape, extents)):
                raise builder.refuse(
                    f"its state of type {type} grows to {state.type}; give it that size from the beginning"
                )
            values.append(inner.grown(state, extents).value)
            sizes.extend(inner.size(state, d) for d in dimensions)
        last.operands = [*values, *sizes, *fault]


def _unpacked(values: Sequence[Value], layout: Sequence[tuple[int, ...]]) -> list[Padded]:
    sizes = iter(values[len(layout) :])
    return [Padded(value, {d: next(sizes) for d in dimensions}) for value, dimensions in zip(values, layout)]


def _in_front_of(instruction: Instruction, operands: Sequence[Padded]) -> PaddedBuilder:
    return PaddedBuilder(instruction, operands, Builder.in_front_of(instruction))


def _rule_of(instruction: Instruction) -> PaddingRule | None:
    record = instruction.op
    return record.padded or (padding_rules.pointwise if isinstance(record.lowering, Pointwise) else None)


def _reason(instruction: Instruction, operands: Sequence[Padded]) -> str:
    unknown = next((type for type in instruction.result_types if has_unknown_size(type)), None)
    if unknown is not None and not any(operand.sizes for operand in operands):
        rule = "; its target has no rule for it (result_types=)" if is_custom_call(instruction) else ""
        return f"the size of its result {unknown} is known only when the program runs, and has no bound{rule}"
    return "it has no code for sizes that are known only when the program runs"
