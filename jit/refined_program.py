"""A program for arguments of certain types: sizes put in, what follows from them computed, what does not fit named.

refined_program(module, types, values)      # tensor<?x4xf32> as tensor<3x4xf32>, and all that is made of it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hlojit.extensions.binding import refined_call
from hlojit.ir.errors import ArgumentError, UnsupportedError, VerificationError
from hlojit.ir.graph import Module
from hlojit.ir.ops.symbolic_values import SymbolicShapes
from hlojit.ir.passes.shape_refinement import ShapeRefinement
from hlojit.ir.passes.size_sources import reached_instructions
from hlojit.ir.passes.symbolic_shapes import fill
from hlojit.ir.size_checks import SizeFacts
from hlojit.ir.sizes import MOST_BYTES
from hlojit.ir.types import TensorType, Type, UnrankedTensorType
from hlojit.ir.verifier import verify


def check_ranks(module: Module) -> None:
    """Raise ``UnsupportedError`` for an argument or a result whose rank is not known."""
    for argument in module.main.body.arguments:
        if isinstance(argument.type, UnrankedTensorType):
            raise UnsupportedError("an argument", "", f"the rank of {argument.type} is not known", module.main.location)
    for instruction in reached_instructions(module):
        unknown = next((type_ for type_ in instruction.result_types if isinstance(type_, UnrankedTensorType)), None)
        if unknown is not None:
            raise UnsupportedError(instruction.op.name, "", f"the rank of {unknown} is not known", instruction.location)


def as_any_tensor(type_: Type, what: str) -> TensorType | UnrankedTensorType:
    """The type of an argument or a result of which it is not known yet how large it is; raises ``UnsupportedError``."""
    return type_ if isinstance(type_, UnrankedTensorType) else as_tensor(type_, what)


def as_tensor(type_: Type, what: str) -> TensorType:
    """As ``as_any_tensor``, with a rank."""
    if not isinstance(type_, TensorType):
        raise UnsupportedError(
            what, "", f"beside sizes that are not known, arguments and results are tensors, not {type_}"
        )
    return type_


def refined_program(module: Module, types: Sequence[Type], values: Mapping[int, Any]) -> Module:
    """The program for arguments of ``types``, some of which have elements that are known; raises ``ArgumentError``."""
    copy = module.clone()
    ShapeRefinement(types=tuple(types), values=values, refine_call=refined_call).run(copy)
    try:
        verify(copy)
    except VerificationError as error:
        raise ArgumentError(
            f"{copy.main.name} cannot run with arguments of types ({', '.join(map(str, types))}): "
            f"{_mismatch(module, types, values) or error}"
        ) from error
    for instruction in reached_instructions(copy):
        for type_ in instruction.result_types:
            if not isinstance(type_, TensorType) or not type_.is_static:
                continue
            if max((type_.nbytes, *type_.shape)) >= MOST_BYTES:
                raise ArgumentError(
                    f"{copy.main.name} cannot run with arguments of types ({', '.join(map(str, types))}): {instruction.op.name} "
                    f"at {instruction.location} gives {type_}, {type_.nbytes:,} bytes, more than any machine has"
                )
    return copy


def _mismatch(module: Module, types: Sequence[Type], values: Mapping[int, Any]) -> str | None:
    """Which arguments' sizes do not fit each other, if that can be said by their names."""
    tensors = [type_ for type_ in types if isinstance(type_, TensorType)]
    if len(tensors) < len(types) or any(isinstance(v.type, UnrankedTensorType) for v in module.main.body.arguments):
        return None
    return _complaint(stated_sizes(module, tuple(values)).facts(), tensors, values)


def stated_sizes(module: Module, size_arguments: Sequence[int]) -> SymbolicShapes:
    """What the program needs of sizes, but for ops that say nothing of them."""
    shapes = SymbolicShapes(module.main, is_partial=True)
    fill(shapes, size_arguments)
    return shapes


def check_sizes(name: str, stated: SizeFacts, types: Sequence[Type], values: Mapping[int, Any]) -> None:
    """Raise ``ArgumentError`` for arguments of types that do not fit, though what would find it out was simplified away."""
    complaint = _complaint(stated, [type_ for type_ in types if isinstance(type_, TensorType)], values)
    if complaint is not None:
        raise ArgumentError(f"{name} cannot run with arguments of types ({', '.join(map(str, types))}): {complaint}")


def _complaint(facts: SizeFacts, types: Sequence[TensorType], values: Mapping[int, Any]) -> str | None:
    extents = [type_.shape for type_ in types]
    return None if facts.unfit(extents, values) else facts.complaint(extents, values)
