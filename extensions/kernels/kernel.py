"""Kernels by hook: a plugin's own code for an op, a composite or a group of instructions on a back end.

    def build(group):
        rows, columns = group.operand_types[0].shape
        if columns % 16:
            return Declined("rows are not a multiple of 16")
        return LlvmKernel(softmax_ir(columns), "softmax", tasks=rows)

    Kernel("nova.softmax", backend="cpu", pattern=CompositePattern("nova.softmax"), build=build)

A kernel's *pattern* says which instructions it is offered.  ``build`` gets them as a ``KernelGroup``: a small frozen graph
with its types and layouts.  It returns what computes the group, in a form that the back end takes (``Backend.kernel_forms``), or
declines with a reason; then others are asked, and at last hlojit's own.

hlojit's own kernels stand in the same table, see ``hlojit.cpu.kernels``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import numpy as np
from hlojit.ir.errors import PluginError
from hlojit.ir.graph import Function, Instruction, Module, Value
from hlojit.ir.interpreter import evaluate
from hlojit.ir.location import Location
from hlojit.ir.named_fields import named_fields
from hlojit.ir.ops.definition import DeviceFunction
from hlojit.ir.ops.internal import ChosenKernel
from hlojit.ir.passes.graph_facts import constant_of
from hlojit.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class OpPattern:
    """Every instruction of an op: ``stablehlo.dot_general``, ``chlo.top_k``, a plugin's own."""

    op: str

    def __str__(self) -> str:
        return f"instructions of {self.op}"


@dataclass(frozen=True, slots=True)
class CompositePattern:
    """Every ``stablehlo.composite`` of a name; its decomposition is the group's graph."""

    composite: str

    def __str__(self) -> str:
        return f"composites {self.composite!r}"


@dataclass(frozen=True, slots=True)
class AnchorPattern:
    """Every group that the fusion passes have made around one instruction of an op, or that instruction alone.

    ``stablehlo.reduce`` gives reductions with what they read, ``stablehlo.dot_general`` products, with prologue and epilogue
    where the back end has such groups.  On back ends that do not fuse the instruction is offered alone.
    """

    anchor: str

    def __str__(self) -> str:
        return f"groups around {self.anchor}"


@dataclass(frozen=True)
class SubgraphPattern:
    """What ``match(instruction)`` returns: the instruction and what is to be computed with it, or None.

    It is asked of every instruction, or of those of the op ``root``, the last one of a block first, when programs are legalized
    and simplified.  All have to be of one block, and none may need what others compute of the group; constants need not be
    listed.
    """

    match: Callable[[Instruction], Sequence[Instruction] | None]
    root: str = ""

    def __str__(self) -> str:
        return f"subgraphs that end in {self.root}" if self.root else "subgraphs"


@dataclass(frozen=True, slots=True)
class LoweringPattern:
    """Every instruction whose op's record has ``Kernel(routine)`` as its lowering."""

    routine: str

    def __str__(self) -> str:
        return f"ops that are the routine {self.routine!r}"


Pattern: TypeAlias = OpPattern | CompositePattern | AnchorPattern | SubgraphPattern | LoweringPattern
_PATTERNS = (OpPattern, CompositePattern, AnchorPattern, SubgraphPattern, LoweringPattern)


@named_fields
@dataclass(frozen=True, slots=True)
class Declined:
    """A kernel's answer that a group is not for it, and why: ``hlojit kernels`` and error messages show the reason."""

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str) or not self.reason:
            raise PluginError(f"Declined: the reason is a text that is not empty, not {self.reason!r}")


@final
class KernelGroup:
    """What a kernel is to compute: a small graph with its types and layouts, and the machine.

    ``graph`` is a frozen function: its arguments are the operands, what it returns are the results.  Constants of one element
    value, and small ones, stand in it.  ``anchor`` is the instruction in it that the pattern found (None for a composite).
    ``layouts`` are strides in elements, of operands, then of results.  ``target`` has facts about the machine, as the back end
    gives them (``Backend.kernel_target``), or is None.
    """

    def __init__(
        self, module: Module, anchor: Instruction | None, *, backend: str, target: Any = None, location: Location
    ):
        self.module = module
        self.anchor = anchor
        self.backend = backend
        self.target = target
        self.location = location

    @property
    def graph(self) -> Function:
        """The group alone, as a function."""
        return self.module.main

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """What is computed, in order, constants and the return left out."""
        return tuple(
            each for each in self.graph.body if not each.op.is_terminator and constant_of_results(each) is None
        )

    @property
    def operand_types(self) -> tuple[TensorType, ...]:
        """Types of the operands."""
        return tuple(argument.tensor_type for argument in self.graph.body.arguments)

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        """Types of the results."""
        return tuple(value.tensor_type for value in self.graph.body.returned)

    @property
    def layouts(self) -> tuple[tuple[int, ...], ...]:
        """Strides in elements, of operands, then of results: rows lie one behind the other."""
        return tuple(kind.strides for kind in (*self.operand_types, *self.result_types))

    def constant(self, value: Value) -> np.ndarray[Any, Any] | None:
        """The elements of a value of the graph that is a constant, or None."""
        dense = constant_of(value)
        return None if dense is None else np.asarray(dense.array)

    def evaluate(self, *operands: Any) -> tuple[Any, ...]:
        """The results by the reference interpreter."""
        return evaluate(self.module, *operands)

    def __repr__(self) -> str:
        return f"<KernelGroup for {self.backend}: {', '.join(each.op.name for each in self.instructions)}>"


def constant_of_results(instruction: Instruction) -> Any:
    """The elements of a constant instruction, or None."""
    return constant_of(instruction.results[0]) if len(instruction.results) == 1 else None


Build: TypeAlias = Callable[[KernelGroup], Any]
Cost: TypeAlias = float | Callable[[KernelGroup], float | None] | None


@named_fields
@dataclass(frozen=True)
class Kernel:
    """A kernel in the table of kernels.

    ``build(group)`` returns what computes a group, or ``Declined(reason)``.  Of several kernels that build the same group the
    one of the highest ``priority`` is taken, then the one of the least ``cost`` - nanoseconds, or a function of the group; a
    kernel without cost comes after those with one - and then the first by the names of plugin and kernel.  hlojit's own
    kernels compute what plugins' decline.
    """

    name: str
    backend: str = field(kw_only=True)
    pattern: Pattern = field(kw_only=True)
    build: Build = field(kw_only=True)
    cost: Cost = field(kw_only=True, default=None)
    priority: int = field(kw_only=True, default=0)

    def __post_init__(self) -> None:
        def refuse(what: str) -> PluginError:
            return PluginError(f"kernel {self.name!r}: {what}")

        if not isinstance(self.backend, str) or not self.backend:
            raise refuse(f"backend is {self.backend!r}; give the name of a back end")
        if not isinstance(self.pattern, _PATTERNS):
            listed = ", ".join(kind.__name__ for kind in _PATTERNS[:4])
            raise refuse(f"pattern is {self.pattern!r}, none of {listed}")
        for each in ("op", "composite", "anchor", "routine", "root"):
            found = getattr(self.pattern, each, "")
            if not isinstance(found, str) or (not found and each != "root" and hasattr(self.pattern, each)):
                raise refuse(f"{type(self.pattern).__name__}: {each} is {found!r}, which is no name")
        if isinstance(self.pattern, SubgraphPattern) and not callable(self.pattern.match):
            raise refuse(f"SubgraphPattern: match is {self.pattern.match!r}, which is not a function")
        if not callable(self.build):
            raise refuse(f"build is {self.build!r}, which is not a function")
        if type(self.priority) is not int:
            raise refuse(f"priority is {self.priority!r}, which is not a whole number")
        if self.cost is not None and not callable(self.cost) and not is_cost(self.cost):
            raise refuse(f"cost is {self.cost!r}; give nanoseconds, a function of the group, or None")


def is_cost(value: object) -> bool:
    """Whether this is a number of nanoseconds."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


@dataclass(frozen=True, eq=False)
class BuiltKernel(ChosenKernel):
    """A kernel's answer for one group: the attribute ``kernel`` of the fusion that it computes."""

    kernel: str
    plugin: str
    """How messages call the plugin: name, package and version."""
    answer: Any
    function: DeviceFunction | None = None
    cost: float | None = None
    """Nanoseconds, as the kernel or its answer says."""

    @property
    def name(self) -> str:
        return self.kernel

    @property
    def user(self) -> str:
        return f"kernel {self.kernel!r} ({self.plugin})"

    @property
    def device_function(self) -> DeviceFunction | None:
        return self.function


def kernel_answer(instruction: Instruction) -> BuiltKernel | None:
    """What a plugin's kernel has built for an instruction, for back ends that compile it; None for other instructions."""
    from hlojit.ir.ops.internal import chosen_kernel

    found = chosen_kernel(instruction)
    return found if isinstance(found, BuiltKernel) else None
