"""Find the sizes that types leave open, from the types of the arguments and from shapes that the program computes.

    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {          =>      func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
      %n = stablehlo.get_dimension_size %x, dim = 0                          %n = stablehlo.constant dense<16>
      %s = stablehlo.reshape %n : -> tensor<1xi32>                           %s = stablehlo.constant dense<16>
      %y = stablehlo.dynamic_broadcast_in_dim %one, %s                       %y = stablehlo.dynamic_broadcast_in_dim %one, %s
           : -> tensor<?xf32>                                                     : -> tensor<16xf32>

``arguments`` gives the shapes, separated by ``:``, with ``?`` for what stays unknown: ``16x4:?x8``; a scalar is ``-``, and what
is left out stays as it is.  A compilation gives them as types, and also the elements of arguments that decide shapes.  Calls
are inlined first: a function may be called with several shapes.  What the shapes break is left for the verifier to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
from hlojit.ir.attributes import Dense
from hlojit.ir.errors import ArgumentError, HlojitError, PluginError, TypeInferenceError, repr_of
from hlojit.ir.formats import BooleanType, IntegerType
from hlojit.ir.graph import Block, Function, Instruction, Module, Value
from hlojit.ir.ops import BUILT_IN
from hlojit.ir.ops.block_inference import infer_blocks
from hlojit.ir.ops.custom_calls import is_custom_call, is_shape_assertion, wrapped_operand
from hlojit.ir.ops.definition import InferenceRequest, op
from hlojit.ir.ops.exported_calls import CALL_EXPANSIONS, without_shape_operands
from hlojit.ir.ops.shape_assertions import check_assertion
from hlojit.ir.passes.call_inliner import CallInliner
from hlojit.ir.passes.constant_folding import Folder
from hlojit.ir.passes.dead_code_elimination import remove_uncalled_functions
from hlojit.ir.passes.graph_facts import is_constant
from hlojit.ir.passes.pass_manager import GIVEN, Pass
from hlojit.ir.sizes import MOST_BYTES
from hlojit.ir.types import DYNAMIC, TensorType, TupleType, Type, UnrankedTensorType, tuple_type

LARGEST_SHAPE: Final = 4096
"""Elements of a tensor that shapes may be computed with."""


@dataclass(frozen=True)
class ShapeRefinement(Pass):
    """Refine types from the arguments on, and compute what shapes are computed from."""

    name: ClassVar[str] = "shape-refinement"
    phase: ClassVar[str] = "import"
    open_sizes: ClassVar[bool] = True
    arguments: str = ""
    types: tuple[Type, ...] | None = field(default=None, metadata=GIVEN)
    values: Mapping[int, Any] = field(default_factory=dict, metadata=GIVEN)
    """Elements of arguments, by their numbers."""
    refine_call: Callable[[Instruction], Sequence[Type] | None] | None = field(default=None, metadata=GIVEN)
    """What plugins say of the result types of a custom call."""

    def run(self, module: Module) -> bool:
        """Refine; return whether anything changed."""
        changed = CallInliner(keeps=lambda instruction: True).run(module)
        main = module.main
        types = self.types or _read_arguments(self.arguments, main)
        refiner = _Refiner(module, self.refine_call)
        for number, elements in sorted(self.values.items()):
            refiner.replace_argument(main, number, elements)
        refiner.refine_function(main, types)
        remove_uncalled_functions(module)
        return refiner.changed or changed


def _read_arguments(text: str, main: Function) -> list[Type]:
    """The argument types with the shapes that ``text`` gives."""
    found = [argument.type for argument in main.body.arguments]
    words = [word.strip() for word in text.split(":")] if text else []
    if len(words) > len(found):
        raise HlojitError(f"shape-refinement: {len(words)} shapes for the {len(found)} arguments of @{main.name}")
    for number, word in enumerate(words):
        type = found[number]
        if not word:
            continue
        try:
            shape = () if word == "-" else tuple(DYNAMIC if part == "?" else int(part) for part in word.split("x"))
        except ValueError:
            raise HlojitError(f"shape-refinement: cannot read the shape {word!r}; expected for example 16x4") from None
        if not isinstance(type, (TensorType, UnrankedTensorType)) or not _can_have(type, shape):
            raise HlojitError(f"shape-refinement: argument {number} of type {type} cannot have the shape {word}")
        found[number] = type.refined(shape)
    return found


def _can_have(type: TensorType | UnrankedTensorType, shape: Sequence[int]) -> bool:
    if min(shape, default=0) < DYNAMIC:
        return False
    if isinstance(type, UnrankedTensorType):
        return True
    if len(shape) != type.rank:
        return False
    return all(DYNAMIC in (own, given) or own == given for own, given in zip(type.shape, shape))


def merged(written: Type, found: Type) -> Type:
    """The written type with sizes that ``found`` knows and it does not."""
    if isinstance(written, TensorType) and isinstance(found, TensorType) and written.rank == found.rank:
        return written.refined(found.shape)
    if isinstance(written, UnrankedTensorType) and isinstance(found, TensorType):
        return written.refined(found.shape)
    if isinstance(written, TupleType) and isinstance(found, TupleType) and len(written.elements) == len(found.elements):
        return tuple_type([merged(*pair) for pair in zip(written.elements, found.elements)])
    return written


def _check_bounds(value: Value, refined: Type) -> None:
    """Raise ``ArgumentError`` where a size that is known now is beyond the bound of its type."""
    written = value.type
    if not isinstance(written, TensorType) or not isinstance(refined, TensorType) or not written.bounds:
        return
    if any(bound != DYNAMIC and extent > bound for bound, extent in zip(written.bounds, refined.shape)):
        owner = value.owner
        what = f"{owner.op.name} at {owner.location}" if isinstance(owner, Instruction) else f"argument {value.index}"
        raise ArgumentError(f"{what} would have the shape {refined.shape}, beyond the bounds of its type {written}")


class _Refiner:
    """Refines functions of one module."""

    def __init__(self, module: Module, refine_call: Callable[[Instruction], Sequence[Type] | None] | None):
        self.module = module
        self.refine_call = refine_call
        self.changed = False
        self._folder = Folder(module, LARGEST_SHAPE, expanding=True)

    def replace_argument(self, function: Function, number: int, elements: Any) -> None:
        """Have a constant read where the argument is."""
        argument, first = function.body.arguments[number], function.body.first
        if argument.users and first is not None:
            type = argument.tensor_type
            array = np.asarray(elements, type.element_type.storage)
            self._constant(first, Dense(type.refined(array.shape), array.copy()), argument)

    def refine_function(self, function: Function, types: Sequence[Type]) -> None:
        """Refine the body for arguments of ``types``."""
        for argument, type in zip(function.body.arguments, types):
            self._set(argument, type)
        self._block(function.body)
        function.result_types = list(map(merged, function.result_types, (v.type for v in function.body.returned)))

    def _set(self, value: Value, type: Type) -> None:
        refined = merged(value.type, type)
        if refined is not value.type:
            _check_bounds(value, refined)
            value.type = refined
            self.changed = True

    def _block(self, block: Block) -> None:
        for instruction in block:
            self._visit(instruction)

    def _visit(self, instruction: Instruction) -> None:
        wrapped = wrapped_operand(instruction)
        if wrapped is not None:
            instruction.replace_with([wrapped])
            self.changed = True
            return
        if is_shape_assertion(instruction):
            if check_assertion(instruction):
                instruction.erase()
                self.changed = True
            return
        self._regions(instruction)
        if is_custom_call(instruction) and self._replaced(instruction):
            return
        for result, type in zip(instruction.results, self._types(instruction)):
            self._set(result, type)
        self._fold(instruction)

    def _replaced(self, instruction: Instruction) -> bool:
        """Whether a custom call is an op whose sizes are known by now, and was replaced by it."""
        from hlojit.ir.builder import Builder

        rule = CALL_EXPANSIONS.get(instruction.attributes["call_target_name"])
        for result, type in zip(instruction.results, self._types(instruction)):
            self._set(result, type)
        before, block, builder = instruction.previous, instruction.block, Builder.in_front_of(instruction)
        values = rule(builder, instruction) if rule is not None else None
        values = without_shape_operands(builder, instruction) if values is None else values
        if values is None or block is None:
            return False
        made = block.first if before is None else before.next
        while made is not None and made is not instruction:
            following = made.next
            self._visit(made)
            made = following
        instruction.replace_with(values)
        self.changed = True
        return True

    def _regions(self, instruction: Instruction) -> None:
        for region in instruction.regions:
            if instruction.op.host_role == "loop":
                for argument, type in zip(region.arguments, instruction.operand_types):
                    self._set(argument, type)
            self._block(region)

    def _types(self, instruction: Instruction) -> Sequence[Type]:
        """Result types as far as they are known."""
        record = instruction.op
        types: Sequence[Type] = instruction.result_types
        if all(isinstance(type, TensorType) and type.is_static for type in types):
            return types
        if self.refine_call is not None and is_custom_call(instruction):
            of_plugin = self.refine_call(instruction)
            if of_plugin is not None:
                return of_plugin
        if record.callees and not record.host_role:
            return self._of_callee(instruction) or types
        if record.refine is not None:
            types = record.refine(instruction) or types
        if record.infer is not None:
            request = InferenceRequest(instruction.operand_types, instruction.attributes, instruction.regions)
            try:
                return [merged(*pair) for pair in zip(types, infer_blocks(record, request) or record.infer(request))]
            except TypeInferenceError:
                return types
            except Exception as error:
                # Shapes that do not fit each other are the verifier's to name; what else fails is a fault of the record.
                if _may_not_fit(instruction):
                    return types
                operands = ", ".join(map(str, instruction.operand_types))
                raise PluginError(
                    f"the inference of {record.name} failed on ({operands}) at {instruction.location}: {repr_of(error)}"
                ) from error
        return types

    def _of_callee(self, instruction: Instruction) -> Sequence[Type] | None:
        """The types that a function returns for the operands' types: of a copy of it, which the instruction names then."""
        (attribute,) = instruction.op.callees
        name = instruction.attributes.get(attribute)
        callee = self.module.functions.get(name) if isinstance(name, str) else None
        if callee is None or callee.is_declaration:
            return None if instruction.op.refine is None else instruction.op.refine(instruction)
        copy = callee.clone()
        number = 1
        while (copy_name := f"{callee.name}.{number}") in self.module.functions:
            number += 1
        copy.name, copy.visibility = copy_name, "private"
        self.module.add_function(copy)
        instruction.attributes[attribute] = copy_name
        self.refine_function(copy, instruction.operand_types)
        return copy.result_types

    def _fold(self, instruction: Instruction) -> None:
        """Replace numbers that shapes may be computed from, where they are known."""
        if len(instruction.results) != 1 or is_constant(instruction) or not _may_be_shape(instruction.results[0].type):
            return
        if instruction.op.known_value is not None:
            value = instruction.op.known_value(instruction)
            if value is None:
                return
            type = instruction.result.tensor_type
            dense = Dense(type, np.asarray(value, type.element_type.storage).reshape(type.shape))
        else:
            folded = self._folder.fold(instruction) if _reads_constants(instruction) and _holds(instruction) else None
            if folded is None:
                return
            (dense,) = folded
        self._constant(instruction, dense, instruction.result)
        instruction.erase()

    def _constant(self, anchor: Instruction, dense: Dense, value: Value) -> None:
        """Have a constant in front of ``anchor`` read instead of ``value``."""
        assert anchor.block is not None
        made = Instruction(op("stablehlo.constant"), (), [dense.type], {"value": dense}, location=anchor.location)
        anchor.block.insert_before(anchor, made)
        made.result.name_hint = value.name_hint
        value.replace_all_uses_with(made.result)
        self.changed = True


def _reads_constants(instruction: Instruction) -> bool:
    return all(isinstance(each.owner, Instruction) and not each.owner.operands for each in instruction.operands)


def _holds(instruction: Instruction) -> bool:
    """Whether an instruction may be evaluated: what breaks a constraint, or no machine has, stays for others to name."""
    types = (type for type in instruction.result_types if isinstance(type, TensorType))
    if any(max(type.shape, default=0) >= MOST_BYTES for type in types):
        return False
    try:
        return not any(constraint.check(instruction) for constraint in instruction.op.constraints)
    except Exception:
        # A check that cannot be made is a fault, too.
        return False


def _may_not_fit(instruction: Instruction) -> bool:
    """Whether inference that failed may have met shapes that break a constraint."""
    if BUILT_IN.get(instruction.op.name) is instruction.op:
        return True
    try:
        return any(constraint.check(instruction) for constraint in instruction.op.constraints)
    except Exception:
        return True


def _may_be_shape(type: Type) -> bool:
    return (
        isinstance(type, TensorType)
        and type.is_static
        and isinstance(type.element_type, (IntegerType, BooleanType))
        and type.size <= LARGEST_SHAPE
    )
