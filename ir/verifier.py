"""Checks a module against the specification and collects every fault.

    verify(module)      # raises VerificationError, whose ``faults`` lists all of them

A fault cites the label of the broken constraint:

    transpose (C2): permutation (0, 0) is not a permutation of range(2)

One pass over the instructions, in loops: time is linear in the size of the module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.builder import short_name, signature_complaint
from hlojit.ir.environment import tables
from hlojit.ir.errors import Fault, HlojitError, TypeInferenceError, VerificationError, short_repr
from hlojit.ir.formats import QuantizedType
from hlojit.ir.graph import DEEPEST_REGION, Block, Function, Instruction, Module, Value
from hlojit.ir.module_checks import module_faults
from hlojit.ir.ops import BUILT_IN
from hlojit.ir.ops.block_parts import (
    AsNumbers,
    block_complaint,
    carries_blocks,
    has_blocks,
    op_complaint,
    type_complaint,
)
from hlojit.ir.ops.definition import (
    Constraint,
    Indexed,
    InferenceRequest,
    OpDefinition,
    Pointwise,
    Structural,
    Trait,
    ops,
)
from hlojit.ir.ops.foreign_rules import is_foreign, whose, wrong_types
from hlojit.ir.ops.rules import agreement, compatible_lists, spell
from hlojit.ir.quantized import tensor_complaint
from hlojit.ir.types import DYNAMIC, TensorType, Type, UnrankedTensorType
from hlojit.ir.vendor_places import raised_at, told

_CANNOT_CHECK = (ArithmeticError, AssertionError, AttributeError, HlojitError, LookupError, TypeError, ValueError)
"""What a check may raise on an instruction that is broken in a way that another check reports."""


def verify(module: Module, *, allow_unregistered: bool = False) -> None:
    """Raise ``VerificationError`` with every fault of the module; return if there is none."""
    faults = collect_faults(module, allow_unregistered=allow_unregistered)
    if faults:
        raise VerificationError(faults)


def collect_faults(module: Module, *, allow_unregistered: bool = False) -> list[Fault]:
    """Every fault of the module, in the order of the text."""
    faults: list[Fault] = []
    for function in module.functions.values():
        if not function.is_declaration:
            _FunctionCheck(function, faults, allow_unregistered).run()
    faults.extend(module_faults(module))
    return faults


@dataclass(slots=True)
class _Frame:
    """A block on the way down to the current instruction; ``region`` counts the regions entered of ``instruction``."""

    block: Block
    instruction: Instruction | None
    region: int = 0


class _FunctionCheck:
    """Walks one function.

    ``visible`` holds the values that the current point may read, ``correct`` the combinations of elementwise op, types
    and attributes that were found to be correct.
    """

    def __init__(self, function: Function, faults: list[Fault], allow_unregistered: bool):
        self.function = function
        self.faults = faults
        self.allow_unregistered = allow_unregistered
        self.visible: set[Value] = set()
        self.known_types: set[Type] = set()
        self.quantized = self.per_axis = self.blocks = False
        self.unranked = False
        self.correct: set[tuple[Any, ...]] = set()

    def run(self) -> None:
        """Check every instruction, those of regions included."""
        frames = [self.enter(self.function.body, None)]
        while frames:
            frame = frames[-1]
            instruction = frame.instruction
            if instruction is None:
                self.leave(frame.block)
                frames.pop()
                continue
            if frame.region == 0:
                self.check(instruction)
            if frame.region < len(instruction.regions):
                region = instruction.regions[frame.region]
                frame.region += 1
                if len(frames) <= DEEPEST_REGION:
                    frames.append(self.enter(region, instruction))
                elif frame.region == 1:
                    self.fault(instruction, f"its regions nest deeper than {DEEPEST_REGION} levels")
                continue
            self.visible.update(instruction.results)
            frame.instruction = instruction.next
            frame.region = 0

    def enter(self, block: Block, owner: Instruction | None) -> _Frame:
        """Make the arguments visible and check how the block ends."""
        self.visible.update(block.arguments)
        self.check_types([argument.type for argument in block.arguments], owner)
        ends = "function" if owner is None else "region"
        where = f"function @{self.function.name}" if owner is None else short_name(owner.name)
        last = block.last
        if last is None:
            self.fault(owner, f"a region of {where} is empty; it must end in {_terminator_name(ends)}")
        elif not last.op.registered and self.allow_unregistered:
            pass  # may end a block for all we know
        elif not _ends(last, ends):
            self.fault(last, f"ends a block of {where}, which must end in {_terminator_name(ends)}")
        elif owner is None and not compatible_lists(last.operand_types, self.function.result_types):
            self.fault(
                last,
                f"returns {spell(last.operand_types)} but @{self.function.name} is declared to return "
                f"{spell(self.function.result_types)}",
            )
        return _Frame(block, block.first)

    def leave(self, block: Block) -> None:
        """Values of a block are not visible behind it."""
        self.visible.difference_update(block.arguments)
        for instruction in block:
            self.visible.difference_update(instruction.results)

    def fault(self, instruction: Instruction | None, message: str, label: str = "") -> None:
        """Record a fault of an instruction (or of the function)."""
        if instruction is None:
            self.faults.append(Fault(f"func.func @{self.function.name}", label, message, self.function.location))
        else:
            self.faults.append(Fault(short_name(instruction.name), label, message, instruction.location))

    def check(self, instruction: Instruction) -> None:
        """Check one instruction, without what is in its regions."""
        record = instruction.op
        for position, operand in enumerate(instruction.operands):
            if operand not in self.visible:
                self.fault(instruction, f"operand {position} ({operand!r}) is not defined before its use")
        self.check_types(instruction.result_types, instruction)
        if not record.registered:
            if not self.allow_unregistered:
                self.fault(instruction, f"the op is not registered{tables().failures()}")
            return
        if record.is_terminator and instruction.next is not None:
            self.fault(instruction, "a terminator must be the last instruction of its block")
        complaint = signature_complaint(
            record, len(instruction.operands), instruction.attributes, len(instruction.regions)
        )
        if complaint:
            self.fault(instruction, complaint)
            return
        if self.unranked and self.has_no_rank(instruction):
            return
        if self.blocks and has_blocks(instruction):
            self.check_blocks(instruction)
            return
        key = None
        is_own = isinstance(record.lowering, Indexed) and BUILT_IN.get(record.name) is record
        if is_own or isinstance(record.lowering, Pointwise):
            # These records look at types and attributes only, and programs repeat few combinations of them.
            key = (record, instruction.operand_types, instruction.result_types, *instruction.attributes.items())
            try:
                if key in self.correct:
                    return
            except TypeError:  # an attribute is a list: a constraint may say what is wrong with it
                key = None
        count = len(self.faults)
        if self.per_axis:
            self.check_per_axis(instruction)
        self.check_constraints(instruction)
        if self.quantized and len(self.faults) == count:
            self.check_meaning_of_quantized(instruction)
        if len(self.faults) == count and record.infer is not None and not _compares_results(record):
            self.check_results(instruction)
        if key is not None and len(self.faults) == count:
            self.correct.add(key)

    def check_types(self, types: Sequence[Type], instruction: Instruction | None) -> None:
        """Report what is wrong with types that the function has not had before."""
        for type in types:
            if type not in self.known_types:
                self.known_types.add(type)
                self.unranked |= isinstance(type, UnrankedTensorType)
                element = type.element_type if isinstance(type, TensorType) else None
                self.quantized |= isinstance(element, QuantizedType)
                self.per_axis |= isinstance(element, QuantizedType) and not element.is_per_tensor
                self.blocks |= isinstance(element, BlockFormat)
                complaint = tensor_complaint(type) if isinstance(type, TensorType) else None
                if complaint is not None:
                    self.fault(instruction, complaint[1], complaint[0])
                if (wrong := type_complaint(type)) is not None:
                    self.fault(instruction, wrong, "blocks")

    def has_no_rank(self, instruction: Instruction) -> bool:
        """Report tensors without a rank, which only some ops take."""
        for type in (*instruction.operand_types, *instruction.result_types):
            if isinstance(type, UnrankedTensorType) and Trait.UNRANKED not in instruction.op.traits:
                self.fault(instruction, f"{type} has no rank, which StableHLO's tensors have", "rank")
                return True
        return False

    def check_per_axis(self, instruction: Instruction) -> None:
        """Most ops take and give tensors that are quantized per tensor, or not."""
        record = instruction.op
        structural = isinstance(record.lowering, Structural) and record.lowering.role != "alias"
        if structural or Trait.PER_AXIS in record.traits:
            return
        for position, type in enumerate((*instruction.operand_types, *instruction.result_types)):
            element = type.element_type if isinstance(type, TensorType) else None
            if isinstance(element, QuantizedType) and not element.is_per_tensor:
                count = len(instruction.operands)
                name = f"operand {position}" if position < count else f"result {position - count}"
                label = f"I{position + 1}" if position < count else ""
                self.fault(instruction, f"{name} must not be quantized per axis, found {type}", label)
                return

    def check_meaning_of_quantized(self, instruction: Instruction) -> None:
        """An extension's op that does more than move elements must say what it does to quantized numbers."""
        record = instruction.op
        if BUILT_IN.get(record.name) is record or isinstance(record.lowering, (Indexed, Structural)):
            return
        if QuantizedType in record.parts or record.traits & {Trait.DEQUANTIZES, Trait.ORDERS}:
            return
        for type in (*instruction.operand_types, *instruction.result_types):
            if isinstance(type, TensorType) and isinstance(type.element_type, QuantizedType):
                how = "Trait.DEQUANTIZES, Trait.ORDERS or a rule in its record's `parts` says it"
                self.fault(
                    instruction, f"{type}: the op does not say what it does to quantized numbers ({how})", "types"
                )
                return

    def check_blocks(self, instruction: Instruction) -> None:
        """What computes with numbers in blocks is checked as what it is on f32; what moves them, keeps blocks."""
        if any(map(type_complaint, (*instruction.operand_types, *instruction.result_types))):
            return
        if (complaint := op_complaint(instruction)) is not None:
            self.fault(instruction, complaint, "blocks")
            return
        count = len(self.faults)
        as_numbers: Any = instruction if carries_blocks(instruction) else AsNumbers(instruction)
        self.check_constraints(as_numbers)
        if len(self.faults) == count and (complaint := block_complaint(instruction)) is not None:
            self.fault(instruction, complaint, "blocks")
        record = instruction.op
        if len(self.faults) == count and record.infer is not None and not _compares_results(record):
            self.check_results(as_numbers)

    def check_constraints(self, instruction: Instruction) -> None:
        """Run the record's constraints."""
        before = len(self.faults)
        for constraint in instruction.op.constraints:
            label = constraint.label
            try:
                complaint = constraint.check(instruction)
            except TypeInferenceError as error:
                if constraint.compares_results and len(self.faults) > before:
                    continue
                complaint, label = error.message, error.label or label
            except _CANNOT_CHECK as error:
                if len(self.faults) > before:
                    continue  # a consequence of a fault that is reported already
                complaint = _why_unchecked(instruction, constraint, error)
            if complaint is not None and not isinstance(complaint, str):
                by = whose(instruction.op, f"constraint {label}")
                complaint = f"{by} returned {short_repr(complaint)}; return None, or what is wrong as a string"
            if complaint:
                fault = Fault(short_name(instruction.name), label, complaint, instruction.location)
                if fault not in self.faults[before:]:
                    self.faults.append(fault)

    def check_results(self, instruction: Instruction) -> None:
        """Compare the written result types with the inferred ones."""
        record = instruction.op
        assert record.infer is not None
        try:
            expected = record.infer(
                InferenceRequest(instruction.operand_types, instruction.attributes, instruction.regions)
            )
        except TypeInferenceError as error:
            self.fault(instruction, error.message, error.label)
            return
        except _CANNOT_CHECK as error:
            by = f"{whose(record, 'infer')} raised " if is_foreign(record) else ""
            at = raised_at(error, record.infer) if by else ""
            self.fault(instruction, f"result types cannot be inferred: {by}{type(error).__name__}: {error}{at}")
            return
        if is_foreign(record) and (wrong := wrong_types(expected)):
            self.fault(instruction, f"result types cannot be inferred: {whose(record, 'infer')} {wrong}")
            return
        found = instruction.result_types
        if len(found) != len(expected) or not all(map(agreement(record), found, expected)):
            self.fault(instruction, f"result types are {spell(found)}, expected {spell(expected)}")
        elif is_foreign(record) and isinstance(record.lowering, Pointwise) and (wrong := _misfit(instruction)):
            self.fault(instruction, wrong)


def _misfit(instruction: Instruction) -> str:
    """What is wrong with the operands of a plugin's op on elements, whose rule may not have looked: code would read beyond."""
    made = instruction.result_types[0]
    shape = made.shape if isinstance(made, TensorType) else ()
    for number, operand in enumerate(instruction.operands):
        own = operand.type.shape if isinstance(operand.type, TensorType) else ()
        known = [(one, other) for one, other in zip(own, shape) if DYNAMIC not in (one, other)]
        if own and (len(own) != len(shape) or any(one != other for one, other in known)):
            return (
                f"operand {number} is {operand.type} beside a result of {made}: the op is computed element by "
                "element, of operands of the result's shape or of none (Pointwise)"
            )
    return ""


def _why_unchecked(instruction: Instruction, constraint: Constraint, error: Exception) -> str:
    """What is wrong where a check could not even be made: mostly that something is no tensor."""
    types = (*instruction.operand_types, *instruction.result_types)
    if all(isinstance(type, TensorType) for type in types):
        if is_foreign(instruction.op):
            return f"{whose(instruction.op, f'constraint {constraint.label}')} raised {told(error, constraint.check)}"
        return f"cannot be checked: {type(error).__name__}: {error}"
    return f"operands and results must be tensors, found {spell(instruction.operand_types)} and {spell(instruction.result_types)}"


def _compares_results(record: OpDefinition) -> bool:
    """Whether one of the record's constraints is about all of the result types."""
    return any(constraint.compares_results for constraint in record.constraints)


def _ends(instruction: Instruction, what: str) -> bool:
    """Whether the instruction ends a ``function``, or a ``region``."""
    lowering = instruction.op.lowering
    return isinstance(lowering, Structural) and lowering.ends == what


def _terminator_name(what: str) -> str:
    """Name of the op that ends the body of a function, or a region."""
    return next(op.name for op in ops() if isinstance(op.lowering, Structural) and op.lowering.ends == what)
