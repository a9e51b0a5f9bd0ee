"""Records of the ops that hlojit's own passes make; they never come from or go to a StableHLO program.

    %0 = "hlojit.fusion"(%x, %y) <{kind = "loop"}> ({
    ^bb0(%a: tensor<8xf32>, %b: tensor<8xf32>):
      %1 = stablehlo.add %a, %b : tensor<8xf32>
      %2 = stablehlo.exponential %1 : tensor<8xf32>
      stablehlo.return %2 : tensor<8xf32>
    }) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>

The body's arguments are the operands, what it returns are the results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from hlojit.ir.attributes import Attribute, StringAttr
from hlojit.ir.formats import ElementType, element_type
from hlojit.ir.graph import Instruction
from hlojit.ir.ops import collective_semantics
from hlojit.ir.ops.attribute_kinds import I64_MATRIX, STRING, AttributeKind
from hlojit.ir.ops.definition import (
    AttributeSpec,
    Constraint,
    DeviceFunction,
    Indexed,
    Kernel,
    OpDefinition,
    Operand,
    Pointwise,
    ReferenceCall,
    Structural,
    Trait,
    define,
)
from hlojit.ir.ops.parts import each_part
from hlojit.ir.ops.rules import operand_tensor
from hlojit.ir.types import tensor

FUSION_KINDS = ("loop", "reduction", "row", "selection", "anchor", "kernel")
"""``loop``: all roots have one shape.  ``reduction``: roots reduce inputs of one shape over the same dimensions, or
have that shape themselves.  ``row``: reductions over the last dimensions and pointwise work over the same rows that
reads their results.  ``selection``: a sort of which only the first elements are wanted, and its operands that are
elements' numbers.  ``anchor``: one op that has a kernel of its own (``anchor_of``), and work element by element over what
it results in.  ``kernel``: whatever a plugin's kernel, the attribute of that name, computes in one step.
"""


class ChosenKernel(ABC):
    """A kernel that a plugin has built for a group of instructions, which stand in the body of the fusion that has it.

    The body says what is computed; what computes it is not looked into here.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The kernel's name in the table of kernels."""

    @property
    @abstractmethod
    def user(self) -> str:
        """How messages name the kernel, with its plugin."""

    @property
    @abstractmethod
    def device_function(self) -> DeviceFunction | None:
        """The launch that it is, where it is a function for a machine with threads."""


@dataclass(frozen=True)
class ChosenKernelKind(AttributeKind):
    """A ``ChosenKernel``.  Text has its name alone, which nothing runs."""

    @property
    def expected(self) -> str:
        return "the name of a kernel"

    def from_generic(self, attribute: Attribute) -> str:
        return STRING.from_generic(attribute)

    def to_generic(self, value: ChosenKernel | str) -> StringAttr:
        return StringAttr(value if isinstance(value, str) else value.name)


def chosen_kernel(instruction: Instruction) -> ChosenKernel | None:
    """The kernel of a plugin that computes the instruction, or None."""
    found = instruction.attributes.get("kernel") if instruction.op is FUSION else None
    return found if isinstance(found, ChosenKernel) else None


def device_function(instruction: Instruction) -> DeviceFunction | None:
    """The plugin's function for a machine with threads that an instruction is a launch of, or None."""
    lowering = instruction.op.lowering
    if isinstance(lowering, DeviceFunction):
        return lowering
    kernel = chosen_kernel(instruction)
    return kernel.device_function if kernel is not None else None


def is_fusion(instruction: Instruction) -> bool:
    """Whether the instruction is a fusion."""
    return instruction.op == FUSION


def is_anchored(instruction: Instruction) -> bool:
    """Whether the instruction is a fusion around an op with a kernel of its own."""
    return instruction.op == FUSION and instruction.attributes.get("kind") == "anchor"


def anchor_of(fusion: Instruction) -> Instruction:
    """The only op with a kernel of its own in an anchored fusion."""
    (anchor,) = _anchors(fusion)
    return anchor


def _anchors(fusion: Instruction) -> list[Instruction]:
    return [each for each in fusion.regions[0] if isinstance(each.op.lowering, Kernel)]


def _run_body(call: ReferenceCall, *arrays: Any) -> Any:
    results = call.run(0, *arrays)
    return results[0] if len(results) == 1 else results


def _check_kind(instruction: Instruction) -> str | None:
    kind = instruction.attributes.get("kind")
    if kind not in FUSION_KINDS:
        return f"kind {kind!r} is none of {', '.join(FUSION_KINDS)}"
    return (
        "a fusion of kind 'kernel' names its kernel"
        if (kind == "kernel") != (instruction.attributes.get("kernel") is not None)
        else None
    )


def _check_arguments(instruction: Instruction) -> str | None:
    body = instruction.regions[0]
    types = tuple(argument.type for argument in body.arguments)
    if types != instruction.operand_types:
        return f"the body takes {types}, the operands are {instruction.operand_types}"
    return None


def _check_results(instruction: Instruction) -> str | None:
    types = tuple(value.type for value in instruction.regions[0].returned)
    if types != instruction.result_types:
        return f"the body returns {types}, the results are {instruction.result_types}"
    return None


def _check_anchor(instruction: Instruction) -> str | None:
    if instruction.attributes.get("kind") != "anchor":
        return None
    anchors = _anchors(instruction)
    if len(anchors) != 1 or len(anchors[0].results) != 1:
        return f"the body has {len(anchors)} ops with kernels of their own; an anchored fusion has one, with one result"
    for each in instruction.regions[0]:
        lowering = each.op.lowering
        is_element_by_element = isinstance(lowering, (Pointwise, Indexed)) or Trait.CONSTANT in each.op.traits
        if each is not anchors[0] and not is_element_by_element and Trait.TERMINATOR not in each.op.traits:
            return f"{each.op.name} is neither the anchor nor computed element by element"
    return None


FUSION = define(
    OpDefinition(
        "hlojit.fusion",
        operands=(Operand("inputs", variadic=True),),
        attributes=(AttributeSpec("kind", STRING), AttributeSpec("kernel", ChosenKernelKind(), optional=True)),
        regions=("body",),
        constraints=(
            Constraint("C1", _check_kind),
            Constraint("C2", _check_arguments),
            Constraint("C3", _check_results),
            Constraint("C4", _check_anchor),
        ),
        reference=_run_body,
        traits=frozenset({Trait.FUSION}),
        lowering=Kernel("fusion"),
        summary="several instructions that one kernel computes",
    )
)


# processes

MOVEMENTS = ("all_gather", "all_to_all", "broadcast", "permute")
"""Of processes' whole operands, whose first dimension counts the members of a group in results of ``all_gather`` and in
operands and results of ``all_to_all``; the groups of ``permute`` are pairs (source, target).  Who is in no group, and what
a group lacks that is smaller than others, gets zeros."""


def _check_movement(instruction: Instruction) -> str | None:
    kind, groups = instruction.attributes["kind"], instruction.attributes["groups"]
    if kind not in MOVEMENTS:
        return f"kind {kind!r} is none of {', '.join(MOVEMENTS)}"
    operand, (result,) = operand_tensor(instruction, 0), instruction.result_types
    count = max(map(len, groups), default=0)
    expected = operand.with_shape((count, *operand.shape)) if kind == "all_gather" else operand
    return None if result == expected else f"result has type {result}, expected {expected}"


COLLECTIVE = define(
    OpDefinition(
        "hlojit.collective",
        operands=(Operand("operand"),),
        attributes=(
            AttributeSpec("kind", STRING),
            AttributeSpec("groups", I64_MATRIX),
            AttributeSpec("written_as", STRING, optional=True, default=""),
        ),
        constraints=(Constraint("C1", _check_movement),),
        reference=collective_semantics.moved,
        traits=frozenset({Trait.EFFECT}),
        lowering=Structural("collective"),
        parts={ElementType: each_part},
        summary="moves elements among the processes of a program",
    )
)

PROCESS_ID = define(
    OpDefinition(
        "hlojit.process_id",
        infer=lambda request: [tensor((), element_type("ui32"))],
        reference=collective_semantics.process_id,
        lowering=Structural("process_id"),
        summary="the number of this process among those of the program",
    )
)
