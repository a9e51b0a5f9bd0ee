"""Give every rounding to a format with ``Rounding.STOCHASTIC`` its random bits.

    %2 = multiply %0, %1 : acme8s     =>     %3 = multiply(convert(%0), convert(%1)) : f64
                                             %2 = hlojit.round_stochastic(%3, iota, iteration) {number = 0, seed = 7} : acme8s

Ops are computed in f64, reductions and products too, and rounded by bits from the seed, the op's number in the program as it is
written, the iteration of the loops around it, and the element's place in the op's result.  Numbers are given before anything
is expanded, simplified or fused, so that they are the same on every back end.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Final

import numpy as np
from hlojit.ir.blocks import Block, Instruction, Value
from hlojit.ir.builder import Builder
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import ComplexType, ElementType, IntegerType, element_types
from hlojit.ir.graph import Module
from hlojit.ir.ops.integer_parts import ROUNDING, drawn, is_in_integers
from hlojit.ir.ops.rounded import ROUND_STOCHASTIC, is_stochastic, rounds
from hlojit.ir.passes.graph_facts import is_constant
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.passes.widening import Widening
from hlojit.ir.types import DYNAMIC, TensorType, Type, tensor

WIDE: Final = "f64"
SEED_ARGUMENT: Final = "hlojit.rounding_seed"
"""Attribute of an argument of @main, an integer, that is a seed at run time beside the option."""
SEED_TYPE: Final = tensor((), "i64")
_MIXED: Final = -7046029254386353131  # 0x9E3779B97F4A7C15: the iterations of nested loops make one number


@dataclass(frozen=True)
class StochasticRounding(Pass):
    """Widen what rounds to stochastic formats, and round by random bits."""

    name: ClassVar[str] = "stochastic-rounding"
    phase: ClassVar[str] = "legalize"
    after: ClassVar[tuple[str, ...]] = ("call-inliner",)
    before: ClassVar[tuple[str, ...]] = ("op-expander",)
    seed: int = 0

    def run(self, module: Module) -> bool:
        """Replace; return whether there was anything to replace."""
        if not any(map(is_stochastic, element_types())):
            return False
        if not -(1 << 63) <= self.seed < 1 << 63:
            raise HlojitError(f"the seed of roundings is a number of 64 bits, not {self.seed}")
        numbers, before = itertools.count(), 0
        for function in module.functions.values():
            if function.is_declaration or not any(map(_concerns, function.body.walk())):
                continue
            first = function.body.first
            assert first is not None
            b, iteration = Builder.in_front_of(first), None
            for argument, attributes in zip(function.body.arguments, function.argument_attributes):
                if SEED_ARGUMENT in attributes:
                    iteration = _seed_of(b, argument)
            if iteration is None:
                iteration = b.constant(np.array(0, np.int64), "i64")
            _Rounded(self.seed, numbers).block(function.body, iteration)
            before += 1
        return before > 0


def _is_concerned(type: Type) -> bool:
    return isinstance(type, TensorType) and is_stochastic(type.element_type)


def _concerns(instruction: Instruction) -> bool:
    """Whether an instruction rounds to a stochastic format."""
    return (
        rounds(instruction)
        and not is_constant(instruction)
        and any(_is_concerned(each.type) for each in instruction.results)
    )


_WIDENING: Final = Widening(_is_concerned, WIDE)


def _seed_of(b: Builder, argument: Value) -> Value:
    """An argument as the number where the count of iterations begins."""
    type = argument.type
    if not isinstance(type, TensorType) or type.shape or not isinstance(type.element_type, IntegerType):
        raise HlojitError(f"the argument marked {SEED_ARGUMENT} is {type}; a seed is an integer, a tensor<i64>")
    return argument if type == SEED_TYPE else b.convert(argument, SEED_TYPE.element_type)


def _element(instruction: Instruction) -> ElementType:
    return instruction.operands[0].tensor_type.element_type


class _Rounded:
    """Replaces the instructions of one function."""

    def __init__(self, seed: int, numbers: Iterator[int]):
        self.seed = seed
        self.numbers = numbers

    def block(self, block: Block, iteration: Value) -> None:
        """What a function, a branch or a loop's region holds."""
        for instruction in tuple(block):
            if _concerns(instruction):
                self._replace(instruction, iteration)
            elif instruction.op.host_role == "loop" and any(map(_concerns, instruction.walk())):
                self._loop(instruction, iteration)
            elif instruction.op.host_role:
                for region in instruction.regions:
                    self.block(region, iteration)

    def _loop(self, loop: Instruction, outer: Value) -> None:
        """Have a loop count its iterations."""
        before = Builder.in_front_of(loop)
        zero = before.constant(np.array(0, np.int64), "i64")
        for region in loop.regions:
            count = region.add_argument(zero.type)
            first = region.first
            assert first is not None
            b = Builder.in_front_of(first)
            mixed = b.multiply(outer, b.constant(np.array(_MIXED, np.int64), "i64"))
            self.block(region, b.add(mixed, count))
        body = loop.regions[1]
        b = Builder.in_front_of(body.terminator)
        following = b.add(body.arguments[-1], b.constant(np.array(1, np.int64), "i64"))
        body.terminator.operands = [*body.returned, following]
        regions, loop.regions = list(loop.regions), []
        made = before.insert(
            Instruction(
                loop.op,
                [*loop.operands, zero],
                [*loop.result_types, zero.type],
                loop.attributes,
                regions,
                loop.discardable,
                loop.location,
            )
        )
        loop.replace_with(made.results[:-1])

    def _replace(self, instruction: Instruction, iteration: Value) -> None:
        """Compute in f64, and round each result that wants it."""
        b = Builder.in_front_of(instruction)
        if any(is_in_integers(type) for type in instruction.result_types):
            self._in_integers(b, instruction, iteration)
            return
        made = _WIDENING.computed(b, instruction)
        results = [
            self._rounded(b, new, old.tensor_type, iteration) if _is_concerned(old.type) else new
            for new, old in zip(made.results, instruction.results)
        ]
        instruction.replace_with(results)

    def _in_integers(self, b: Builder, instruction: Instruction, iteration: Value) -> None:
        """Give an op of a format that is computed in integers its bits; sums of many elements are rounded to nearest."""
        if instruction.op in ROUNDING and not isinstance(_element(instruction), ComplexType):
            draw = (*self._place(b, instruction.result.tensor_type, iteration), next(self.numbers), self.seed)
            instruction.replace_with([drawn(b, instruction, draw)])

    def _rounded(self, b: Builder, value: Value, type: TensorType, iteration: Value) -> Value:
        attributes = {"number": next(self.numbers), "seed": self.seed}
        operands = [value, *self._place(b, type, iteration)]
        return b.create(ROUND_STOCHASTIC.name, operands, attributes=attributes, result_types=[type]).result

    def _place(self, b: Builder, type: TensorType, iteration: Value) -> tuple[Value, Value]:
        """The number of each element, and the iteration."""
        if DYNAMIC in type.shape:
            raise HlojitError(f"roundings to {type.element_type} want sizes that are known, and {type} has open ones")
        if not type.shape:
            return b.constant(np.array(0, np.int64), "i64"), iteration
        return b.reshape(b.iota(tensor((prod(type.shape),), "i64"), 0), type.shape), iteration
