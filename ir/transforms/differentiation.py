"""Forward and reverse mode on blocks of instructions, by the rules in the op records.

    pushing = Pushing(builder, {x: t})                      # x has the tangent t
    values, tangents = pushing.region(builder, block, [x], [t])

    recording = Recording(builder, [x])                     # differentiate for x
    (y,) = recording.region(block, [x])
    cotangents = recording.pull({y: one})                   # cotangents[x]

Both copy a block's instructions to the place of a builder, values in place of the block's arguments.  Regions may read values
from outside: these are differentiated, too, where they depend on what is asked for.  The graphs hold what turns out to be unused;
``hlojit.ir.transforms.sweep`` removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

from hlojit.ir.builder import Builder
from hlojit.ir.graph import Block, Instruction, Value, clone_instruction
from hlojit.ir.ops.derivatives.kinds import (
    Bilinear,
    Constant,
    Derivative,
    Flow,
    Into,
    Linear,
    Partials,
    Pull,
    Pushed,
    Rewritten,
    Tangents,
    accumulated,
    instantiated,
    is_differentiable,
    summed,
    zeros,
)
from hlojit.ir.passes.while_loop_simplifier import trip_count
from hlojit.ir.transforms.errors import no_derivative
from hlojit.ir.transforms.free_values import free_values
from hlojit.ir.transforms.loops import most_turns
from hlojit.ir.transforms.rules import derivative_of, made_of
from hlojit.ir.transforms.sweep import sweep
from hlojit.ir.types import Type


def depends(block: Block, arguments: Sequence[bool], is_active: Callable[[Value], bool]) -> list[bool]:
    """Which returned values depend on active arguments, or on active values from outside."""
    found = {argument for argument, active in zip(block.arguments, arguments) if active}
    for instruction in block:
        read = (*instruction.operands, *free_values(instruction))
        if any(value in found or is_active(value) for value in read):
            found.update(result for result in instruction.results if is_differentiable(result.type))
    return [value in found or is_active(value) for value in block.returned]


def _tangents_of_linear(b: Any, rule: Linear, instruction: Instruction, tangents: Tangents) -> Tangents:
    """The op itself, applied to tangents."""
    numbers = range(len(instruction.operands)) if rule.operands is None else rule.operands
    operands = list(instruction.operands)
    for number in numbers:
        operands[number] = instantiated(b, tangents[number], operands[number].type)
    return [_again(b, instruction, operands)]


def _again(b: Any, instruction: Instruction, operands: Sequence[Value]) -> Value:
    made: Value = b.create(
        instruction.op.name,
        operands,
        attributes=instruction.attributes,
        regions=[region.clone() for region in instruction.regions],
        result_types=instruction.result_types,
    ).result
    return made


def _tangents_of_product(b: Any, instruction: Instruction, tangents: Tangents) -> Tangents:
    lhs, rhs = instruction.operands
    return [
        summed(
            b,
            [
                None if tangents[0] is None else _again(b, instruction, [tangents[0], rhs]),
                None if tangents[1] is None else _again(b, instruction, [lhs, tangents[1]]),
            ],
        )
    ]


def _factors(b: Any, rule: Partials, instruction: Instruction, wanted: Sequence[bool]) -> list[Any]:
    """For each operand 1, -1, a value, or None."""
    if len(rule.partials) != len(instruction.operands):
        raise no_derivative(instruction, f"its rule has {len(rule.partials)} partial derivatives")
    return [
        partial(b, instruction.result, *instruction.operands) if is_wanted and partial is not None else None
        for partial, is_wanted in zip(rule.partials, wanted)
    ]


def _scaled(b: Any, factor: Any, tangent: Value) -> Value:
    if isinstance(factor, int):
        made: Value = tangent if factor == 1 else b.negate(tangent)
        return made
    product: Value = b.multiply(tangent, factor)
    return product


def pushed(b: Any, rule: Derivative, instruction: Instruction, tangents: Tangents) -> Tangents:
    """The tangents of the results of an instruction that is no control flow."""
    if isinstance(rule, Partials):
        factors = _factors(b, rule, instruction, [t is not None for t in tangents])
        return [summed(b, [None if f is None or t is None else _scaled(b, f, t) for f, t in zip(factors, tangents)])]
    if isinstance(rule, Linear):
        return _tangents_of_linear(b, rule, instruction, tangents)
    if isinstance(rule, Bilinear):
        return _tangents_of_product(b, instruction, tangents)
    if isinstance(rule, Pushed):
        return rule.push(b, instruction, tangents)
    assert isinstance(rule, Constant)
    return [None] * len(instruction.results)


def pulled(
    b: Any, rule: Derivative, instruction: Instruction, cotangents: Tangents, wanted: Sequence[bool]
) -> Sequence[Value | Into | None]:
    """The cotangents of the operands of an instruction that is no control flow."""
    if isinstance(rule, Partials):
        (t,) = cotangents
        assert t is not None
        return [None if f is None else _scaled(b, f, t) for f in _factors(b, rule, instruction, wanted)]
    if isinstance(rule, Linear):
        assert cotangents[0] is not None
        return rule.pull(b, instruction, cotangents[0])
    if isinstance(rule, Bilinear):
        assert cotangents[0] is not None
        return [rule.pull(b, instruction, cotangents[0], side) if wanted[side] else None for side in (0, 1)]
    assert isinstance(rule, Pushed)
    if rule.pull is not None:
        return rule.pull(b, instruction, cotangents, wanted)
    return _transposed(b, rule, instruction, cotangents, wanted)


def _transposed(
    b: Builder, rule: Pushed, instruction: Instruction, cotangents: Tangents, wanted: Sequence[bool]
) -> Tangents:
    """What pushes tangents is linear in them: its own reverse pass, wherever it is taken, is its transpose."""
    places = [zeros(b, operand.type) if w else None for operand, w in zip(instruction.operands, wanted)]
    scratch = Block([operand.type for operand, w in zip(instruction.operands, wanted) if w])
    inside = iter(scratch.arguments)
    outer = Builder(scratch, location=b.location)
    tangents = rule.push(outer, instruction, [next(inside) if w else None for w in wanted])
    returned = [t for t in tangents if t is not None]
    outer.return_(*returned)
    variables = [place for place in places if place is not None]
    recording = Recording(b, variables)
    results = recording.region(scratch, variables)
    given = {r: c for r, c in zip(results, [c for c, t in zip(cotangents, tangents) if t is not None]) if c is not None}
    found = recording.pull(b, given)
    scratch.drop_all_references()
    return [None if place is None else found.get(place) for place in places]


@final
class Pushing:
    """Forward mode: values and their tangents, side by side."""

    def __init__(self, builder: Builder, tangents: Mapping[Value, Value] | None = None):
        self.builder = builder
        self._tangents: dict[Value, Value] = dict(tangents or {})

    def tangent(self, value: Value) -> Value | None:
        """That of a value of the graph that is built, None where zero."""
        return self._tangents.get(value)

    def active_returns(self, region: Block, arguments: Sequence[bool]) -> list[bool]:
        """Which of a region's results depend on active arguments, or active values from outside."""
        return depends(region, arguments, self._tangents.__contains__)

    def region(
        self, builder: Any, region: Block, arguments: Sequence[Value], tangents: Tangents
    ) -> tuple[list[Value], list[Value | None]]:
        """Build a block's instructions with their tangents; what it returns."""
        inner = Pushing(builder, self._tangents)
        for argument, tangent in zip(arguments, tangents):
            if tangent is not None:
                inner._tangents[argument] = tangent
            else:
                inner._tangents.pop(argument, None)
        values = inner._block(region, dict(zip(region.arguments, arguments)))
        return values, [inner._tangents.get(value) for value in values]

    def _block(self, block: Block, mapping: dict[Value, Value]) -> list[Value]:
        for instruction in block:
            if not instruction.op.is_terminator:
                self._step(instruction, mapping)
        return [mapping.get(value, value) for value in block.returned]

    def _step(self, instruction: Instruction, mapping: dict[Value, Value]) -> None:
        b = self.builder
        b.location = instruction.location
        copy = b.insert(clone_instruction(instruction, mapping))
        read = (*copy.operands, *free_values(copy))
        if not any(value in self._tangents for value in read) or not _moves(instruction):
            return
        rule = derivative_of(copy)
        if isinstance(rule, Rewritten):
            self._rewritten(copy, instruction, rule, mapping)
        elif isinstance(rule, Flow):
            results, tangents = rule.push(self, copy)
            self._note(instruction, copy, results, tangents, mapping)
        else:
            _check_captures(copy, self._tangents.__contains__)
            tangents = pushed(b, rule, copy, [self._tangents.get(value) for value in copy.operands])
            self._note(instruction, copy, copy.results, tangents, mapping)

    def _rewritten(
        self, copy: Instruction, original: Instruction, rule: Rewritten, mapping: dict[Value, Value]
    ) -> None:
        made = made_of(copy, rule.rule)
        if made is None:
            raise no_derivative(original)
        results = self._block(made, {})
        made.drop_all_references()
        mapping.update(zip(original.results, results))

    def _note(
        self,
        original: Instruction,
        copy: Instruction,
        results: Sequence[Value],
        tangents: Tangents,
        mapping: dict[Value, Value],
    ) -> None:
        mapping.update(zip(original.results, results))
        for result, tangent in zip(results, tangents):
            if tangent is not None and is_differentiable(result.type):
                self._tangents[result] = tangent


def _moves(instruction: Instruction) -> bool:
    """Whether anybody reads a result that may have a tangent."""
    return any(result.users and is_differentiable(result.type) for result in instruction.results)


def _check_captures(copy: Instruction, is_active: Callable[[Value], bool]) -> None:
    """Regions of reductions and the like that read what is differentiated have no rule."""
    if copy.regions and any(is_active(value) for value in free_values(copy)):
        raise no_derivative(copy, "its region reads a value from outside that is differentiated")


@final
class Recording:
    """Reverse mode: what was computed, and how cotangents come back."""

    def __init__(self, builder: Builder, variables: Iterable[Value]):
        self.builder = builder
        self._active = set(variables)
        self._tape: list[tuple[Sequence[Value], Pull]] = []

    def is_active(self, value: Value) -> bool:
        """Whether the value depends on what is differentiated for."""
        return value in self._active

    def captured(self, instruction: Instruction) -> list[Value]:
        """Active values from outside that regions of the instruction read."""
        return [value for value in free_values(instruction) if value in self._active]

    def active_returns(self, region: Block, arguments: Sequence[bool]) -> list[bool]:
        """Which of a region's results depend on active arguments, or active values from outside."""
        return depends(region, arguments, self._active.__contains__)

    def trip_count(self, loop: Instruction) -> int | None:
        """How often a loop runs, if that is known."""
        return trip_count(loop)

    def most_turns(self, loop: Instruction) -> int | None:
        """How often a loop runs at most, if that is known."""
        return most_turns(loop)

    def scratch(self, types: Sequence[Type]) -> tuple[Block, Builder]:
        """A block with arguments of these types that is no part of the graph, and its builder."""
        block = Block(types)
        return block, Builder(block, location=self.builder.location)

    def used_arguments(self, block: Block) -> set[Value]:
        """What a scratch block reads of its arguments for what it returns; it is given up by that."""
        sweep(block)
        found = {argument for argument in block.arguments if argument.users}
        block.drop_all_references()
        return found

    def region(self, block: Block, arguments: Sequence[Value]) -> list[Value]:
        """Build a block's instructions; what it returns."""
        return self._block(block, dict(zip(block.arguments, arguments)))

    def region_cotangents(
        self,
        builder: Any,
        region: Block,
        arguments: Sequence[Value],
        wanted: Sequence[bool],
        captured: Sequence[Value],
        cotangents: Tangents,
        sums: Sequence[Value] = (),
    ) -> list[Value | None]:
        """Build a region's instructions and its reverse pass; cotangents of ``wanted`` arguments and of captured values.

        Those of captured values are added to ``sums``, if they are given.
        """
        return _region_cotangents(builder, region, arguments, wanted, captured, lambda results: cotangents, sums)[1]

    def pull(self, builder: Builder, cotangents: Mapping[Value, Value]) -> dict[Value, Value]:
        """The cotangents of all values that lead to those given."""
        found = {value: t for value, t in cotangents.items() if value in self._active}
        for results, pull in reversed(self._tape):
            given = [found.get(result) for result in results]
            if all(t is None for t in given):
                continue
            owner = results[0].producer
            if owner is not None:
                builder.location = owner.location
            for value, t in pull(builder, given):
                if value in self._active:
                    found[value] = accumulated(builder, found.get(value), t)
        return found

    def _block(self, block: Block, mapping: dict[Value, Value]) -> list[Value]:
        for instruction in block:
            if not instruction.op.is_terminator:
                self._step(instruction, mapping)
        return [mapping.get(value, value) for value in block.returned]

    def _step(self, instruction: Instruction, mapping: dict[Value, Value]) -> None:
        b = self.builder
        b.location = instruction.location
        copy = b.insert(clone_instruction(instruction, mapping))
        if not any(value in self._active for value in (*copy.operands, *free_values(copy))):
            return
        if not _moves(instruction):
            return
        rule = derivative_of(copy)
        if isinstance(rule, Rewritten):
            made = made_of(copy, rule.rule)
            if made is None:
                raise no_derivative(instruction)
            mapping.update(zip(instruction.results, self._block(made, {})))
            made.drop_all_references()
        elif isinstance(rule, Flow):
            results, pull = rule.record(self, copy)
            mapping.update(zip(instruction.results, results))
            self._note(results, pull)
        elif not isinstance(rule, Constant):
            _check_captures(copy, self._active.__contains__)
            self._note(copy.results, self._pull_of(rule, copy))

    def _pull_of(self, rule: Derivative, copy: Instruction) -> Pull:
        wanted = [value in self._active for value in copy.operands]

        def pull(b: Any, cotangents: Tangents) -> Sequence[tuple[Value, Value | Into]]:
            found = pulled(b, rule, copy, cotangents, wanted)
            return [(v, t) for v, t, w in zip(copy.operands, found, wanted) if w and t is not None]

        return pull

    def _note(self, results: Sequence[Value], pull: Pull) -> None:
        self._tape.append((tuple(results), pull))
        self._active.update(result for result in results if is_differentiable(result.type))


def _totals(b: Any, values: Sequence[Value], cotangents: Tangents) -> dict[Value, Value]:
    """Cotangents by value: one may be returned several times."""
    found: dict[Value, Value] = {}
    for value, t in zip(values, cotangents):
        if t is not None:
            found[value] = b.add(found[value], t) if value in found else t
    return found


def _region_cotangents(
    builder: Any,
    region: Block,
    arguments: Sequence[Value],
    wanted: Sequence[bool],
    captured: Sequence[Value],
    cotangents: Callable[[Sequence[Value]], Tangents],
    sums: Sequence[Value] = (),
) -> tuple[list[Value], list[Value | None]]:
    # Placeholders: the same value may be read from outside, or be two arguments, and counts for this argument only.
    scratch = Block([value.type for value in arguments])
    variables = [own for own, w in zip(scratch.arguments, wanted) if w]
    recording = Recording(builder, [*variables, *captured])
    results = recording.region(region, scratch.arguments)
    given = _totals(builder, results, cotangents(results))
    for value, total in zip(captured, sums):
        given[value] = builder.add(given[value], total) if value in given else total
    found = recording.pull(builder, given)
    own = dict(zip(scratch.arguments, arguments))
    for placeholder, value in own.items():
        placeholder.replace_all_uses_with(value)
    gathered = [found.get(value) for value in (*variables, *captured)]
    return [own.get(r, r) for r in results], [None if t is None else own.get(t, t) for t in gathered]


def push_block(
    builder: Builder, block: Block, arguments: Sequence[Value], tangents: Tangents
) -> tuple[list[Value], list[Value | None]]:
    """Forward mode: results and their tangents at the builder's place."""
    scratch = Block([value.type for value in arguments])
    results, found = Pushing(builder).region(builder, block, scratch.arguments, tangents)
    own = dict(zip(scratch.arguments, arguments))
    for placeholder, value in own.items():
        placeholder.replace_all_uses_with(value)
    return [own.get(r, r) for r in results], [None if t is None else own.get(t, t) for t in found]


def pull_block(
    builder: Builder,
    block: Block,
    arguments: Sequence[Value],
    wanted: Sequence[bool],
    cotangents: Callable[[Sequence[Value]], Tangents],
) -> tuple[list[Value], list[Value | None]]:
    """Reverse mode: results, and cotangents of wanted arguments for those that ``cotangents`` makes of the results."""
    return _region_cotangents(builder, block, arguments, wanted, (), cotangents)
