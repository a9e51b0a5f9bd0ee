"""Compute with the parts of numbers that a back end has no arithmetic for.

    %2 = multiply %0, %1 : complex<f32>    =>    %a = real %0 : f32    %b = imag %0 : f32    %c = real %1 ...
    return %2                                    %re = subtract(multiply(%a, %c), multiply(%b, %d)) : f32
                                                 %im = add(multiply(%a, %d), multiply(%b, %c)) : f32
                                                 return complex(%re, %im)

Every value of such a type becomes several values of types that the back end has, also in loops, branches and regions of
reductions.  What an op becomes stands in its record (``OpDefinition.parts``).  Functions keep their signatures: arguments
are taken apart where the function begins, results are put together where it returns; so are operands and results of what
the back end takes as it is, and of ops without a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

from hlojit.ir.blocks import Block, Instruction, Value
from hlojit.ir.builder import Builder
from hlojit.ir.formats import ElementType
from hlojit.ir.graph import Function, Module
from hlojit.ir.ops.parts import Parts, Representation, Separately
from hlojit.ir.ops.representations import REPRESENTATIONS
from hlojit.ir.passes.graph_facts import constant_of, is_constant, is_terminator
from hlojit.ir.passes.op_expander import OpExpander
from hlojit.ir.passes.pass_manager import GIVEN, Pass
from hlojit.ir.types import TensorType, Type


@dataclass(frozen=True)
class TypeLegalizer(Pass):
    """Replace numbers by their parts, but for what the back end keeps."""

    name: ClassVar[str] = "type-legalizer"
    phase: ClassVar[str] = "legalize"
    after: ClassVar[tuple[str, ...]] = ("op-expander",)
    keeps: Callable[[Instruction], bool] | None = field(default=None, metadata=GIVEN)
    expander: Pass = field(default=OpExpander(), metadata=GIVEN)
    """Expands what rules build."""
    representations: Sequence[Representation] = field(default=REPRESENTATIONS, metadata=GIVEN)

    def run(self, module: Module) -> bool:
        """Replace; return whether a rule was applied."""
        types = _Types(self.representations, self.keeps)
        if not any(map(types.has_rule, module.walk())):
            return False
        changed = False
        for _ in self.representations:
            # What a rule builds may hold numbers of another representation: a complex number's part, converted.
            replaced = 0
            for function in module.functions.values():
                if not function.is_declaration:
                    replaced += _FunctionLegalizer(types).run(function)
            changed |= replaced > 0
            if replaced:
                self.expander.run(module)
            if not replaced or not any(map(types.has_rule, module.walk())):
                break
        return changed


@final
class _Types:
    """Which types are taken apart, into what, and by which rules."""

    def __init__(self, representations: Sequence[Representation], keeps: Callable[[Instruction], bool] | None):
        self._representations = representations
        self._keeps = keeps
        self._known: dict[Type, Representation | None] = {}

    def representation(self, type: Type) -> Representation | None:
        """Of a type that is taken apart; None for any other."""
        try:
            return self._known[type]
        except KeyError:
            found = self._known[type] = self._find(type)
            return found

    def _find(self, type: Type) -> Representation | None:
        if not isinstance(type, TensorType):
            return None
        element: ElementType = type.element_type
        return next((one for one in self._representations if one.represents(element)), None)

    def concerned(self, instruction: Instruction) -> Representation | None:
        """The representation of the first operand or result that is taken apart."""
        for value in instruction.operands:
            if (found := self.representation(value.type)) is not None:
                return found
        for value in instruction.results:
            if (found := self.representation(value.type)) is not None:
                return found
        return None

    def has_rule(self, instruction: Instruction) -> bool:
        """Whether the instruction is replaced: not where it is at the edge between numbers and their parts already."""
        concerned = self.concerned(instruction)
        if concerned is None or concerned.is_edge(instruction) or is_constant(instruction):
            return False
        return (
            concerned.rule(instruction.op) is not None
            and not is_terminator(instruction)
            and not self.is_kept(instruction)
        )

    def is_no_edge(self, instruction: Instruction) -> bool:
        """Whether an instruction that is concerned does more than take apart or put together."""
        concerned = self.concerned(instruction)
        return concerned is not None and not concerned.is_edge(instruction)

    def is_kept(self, instruction: Instruction) -> bool:
        """Whether the back end takes the instruction as it is."""
        concerned = self.concerned(instruction)
        asks = concerned is None or concerned.asks_backends
        return asks and self._keeps is not None and self._keeps(instruction)

    def part_types(self, type: Type) -> list[TensorType]:
        """The types of the parts of a value that is taken apart."""
        found = self.representation(type)
        assert found is not None and isinstance(type, TensorType)
        return list(found.types(type))

    def parts(self, type: Type) -> list[Type]:
        """The types of a value's parts."""
        return [type] if self.representation(type) is None else list(self.part_types(type))


@final
class _FunctionLegalizer:
    """Replaces the values of one function."""

    def __init__(self, types: _Types):
        self._types = types
        self._parts: dict[Value, Parts] = {}
        self._wholes: set[Value] = set()
        """Values that stay as they are: arguments of the function, constants, results of what is kept."""
        self._dead: list[Instruction] = []

    def run(self, function: Function) -> int:
        """Replace in the whole body, while the signature stays; returns how many instructions were more than edges."""
        self._wholes.update(function.body.arguments)
        self._block(function.body)
        replaced = sum(map(self._types.is_no_edge, self._dead))
        for instruction in reversed(self._dead):
            instruction.erase()
        return replaced

    def _block(self, block: Block) -> None:
        for instruction in tuple(block):
            if self._types.concerned(instruction) is None:
                for region in instruction.regions:
                    self._block(region)
            elif is_terminator(instruction):
                self._terminator(instruction)
            else:
                self._instruction(instruction)

    def _terminator(self, instruction: Instruction) -> None:
        if isinstance(instruction.block and instruction.block.parent, Function):
            self._keep(instruction)
        else:
            instruction.operands = [part for operand in instruction.operands for part in self._of(operand)]

    def _instruction(self, instruction: Instruction) -> None:
        concerned = self._types.concerned(instruction)
        assert concerned is not None
        if is_constant(instruction):
            self._wholes.add(instruction.result)
            return
        rule = concerned.rule(instruction.op)
        if rule is None or (not concerned.is_edge(instruction) and self._types.is_kept(instruction)):
            self._keep(instruction)
        elif isinstance(rule, Separately):
            self._replace(instruction, self._separately(instruction, rule))
        else:
            parts = rule(Builder.in_front_of(instruction), instruction, [self._of(v) for v in instruction.operands])
            if parts is None:
                self._keep(instruction)
            elif isinstance(parts, Separately):
                self._replace(instruction, self._separately(instruction, parts))
            else:
                self._replace(instruction, parts)

    def _keep(self, instruction: Instruction) -> None:
        """Leave an instruction as it is: what it reads is put together, also what its regions read from outside."""
        for inner in instruction.walk():
            wanted = [operand for operand in inner.operands if operand in self._parts and operand not in self._wholes]
            if not wanted:
                continue
            builder = Builder.in_front_of(instruction)
            whole = {operand: self._whole(builder, operand) for operand in wanted}
            inner.operands = [whole.get(operand, operand) for operand in inner.operands]
        self._wholes.update(instruction.results)

    def _separately(self, instruction: Instruction, rule: Separately) -> list[Parts]:
        """The instruction with parts as operands, results and arguments of its regions."""
        operands = rule.operands or [part for operand in instruction.operands for part in self._of(operand)]
        groups = [self._types.parts(result.type) for result in instruction.results]
        for region in instruction.regions:
            self._arguments(region, rule)
            self._block(region)
        regions, instruction.regions = instruction.regions, []
        made = Builder.in_front_of(instruction).insert(
            Instruction(
                instruction.op,
                operands,
                [type for group in groups for type in group],
                instruction.attributes,
                regions,
                instruction.discardable,
                instruction.location,
            )
        )
        results = iter(made.results)
        return [tuple(next(results) for _ in group) for group in groups]

    def _arguments(self, block: Block, rule: Separately) -> None:
        """Give a region arguments for parts."""
        groups: list[Parts] = []
        for argument in block.arguments:
            if self._types.representation(argument.type) is None:
                groups.append((argument,))
                continue
            parts = tuple(Value(type, block, 0, argument.name_hint) for type in self._types.parts(argument.type))
            self._parts[argument] = parts
            groups.append(parts)
        block.arguments[:] = rule.arranged(groups)
        for number, argument in enumerate(block.arguments):
            argument.index = number

    def _replace(self, instruction: Instruction, results: Iterable[Parts]) -> None:
        for result, parts in zip(instruction.results, results, strict=True):
            # A rule of another representation gives a number as a whole.
            if self._types.representation(result.type) is None or parts[0].type == result.type:
                result.replace_all_uses_with(parts[0])
            else:
                self._parts[result] = parts
        self._dead.append(instruction)

    def _of(self, value: Value) -> Parts:
        """The parts of a value; of one that is not taken apart, the value."""
        found = self._parts.get(value)
        if found is None:
            representation = self._types.representation(value.type)
            if representation is None:
                return (value,)
            found = self._parts[value] = self._taken_apart(value, representation)
        return found

    def _taken_apart(self, value: Value, representation: Representation) -> Parts:
        owner = value.owner
        if isinstance(owner, Block):
            assert owner.first is not None
            return representation.take_apart(Builder.in_front_of(owner.first), value)
        dense = constant_of(value)
        if dense is not None:
            builder = Builder.in_front_of(owner)
            arrays = representation.constants(dense.array, value.tensor_type)
            types = self._types.part_types(value.tensor_type)
            return tuple(builder.constant(array, type) for array, type in zip(arrays, types))
        assert owner.next is not None
        return representation.take_apart(Builder.in_front_of(owner.next), value)

    def _whole(self, builder: Builder, value: Value) -> Value:
        representation = self._types.representation(value.type)
        if representation is None:
            return self._parts[value][0]
        return representation.put_together(builder, self._parts[value], value.tensor_type)
