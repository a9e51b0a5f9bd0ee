"""About how long an instruction takes on the CPU, by the machine model: what splits of programs are reckoned with.

    dot_general 1024x1024x1024 f32      multiply-adds, spread over the cores         4.5 ms on two cores at 4 GHz
    add 1M f32                          bytes that memory has to move                0.2 ms
    exponential between two adds        arithmetic alone: one loop computes all three

What element-by-element neighbours hand each other is not moved: they are one loop.  Measured figures beside these are in
docs/decisions/partition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, final

from hlojit.ir.formats import ComplexType, FloatFormat
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.definition import Indexed, Kernel, Pointwise, Reduction, Trait
from hlojit.ir.passes.graph_facts import is_constant, is_control_flow, is_terminator
from hlojit.ir.types import TensorType
from hlojit.lowering.arithmetic_count import operations
from hlojit.lowering.body import Body
from hlojit.lowering.index import variable
from hlojit.lowering.loop_plan import INSTRUCTIONS_PER_CYCLE, probe_elements
from hlojit.lowering.machine import Machine
from hlojit.lowering.target import Target

LAUNCH_NANOSECONDS: Final = 100.0
"""Of one kernel, and of a trip through what the host program runs."""
_READERS_OF_MEMORY: Final = 2
"""Cores that read memory as fast as all of them."""
_CONVOLUTION_EFFICIENCY: Final = 0.6
"""Of convolutions, in parts of that of products."""
_COMPARISON_CYCLES: Final = 0.9
"""Of a sort, each of whose elements takes part in the logarithm of their number."""
_FACTORED: Final = 8.0
"""Operations a cycle of factorizations and solutions, which wait for themselves."""
_SCALAR_CYCLES: Final = 4.0
"""Of an operation of kernels that go element by element."""


@final
@dataclass
class InstructionCosts:
    """Of one processor; ``threads`` take part."""

    target: Target
    threads: int
    _cycles: dict[object, float] = field(default_factory=dict)
    """Of one element on a core, by op and element types."""

    def nanoseconds(self, instruction: Instruction) -> float | None:
        """Of an instruction on operands that are there; None where its sizes are not known."""
        if is_constant(instruction) or is_terminator(instruction):
            return 0.0
        values = (*instruction.operands, *instruction.results)
        tensors = [each.type for each in values if isinstance(each.type, TensorType)]
        if not all(each.is_static for each in tensors):
            return None
        if is_control_flow(instruction) or not tensors:
            return LAUNCH_NANOSECONDS
        if Trait.FUSION in instruction.op.traits:
            return LAUNCH_NANOSECONDS + sum(self.nanoseconds(each) or 0.0 for each in instruction.regions[0])
        moved = sum(_bytes(each) for each in dict.fromkeys(values) if _is_moved(each, instruction))
        launch = 0.0 if _is_element_by_element(instruction) and not moved else LAUNCH_NANOSECONDS
        return launch + max(self._over_cores(self._computing(instruction)), self._moving(moved))

    def _over_cores(self, nanoseconds: float) -> float:
        """Of work that takes so long on one core."""
        machine = self.target.machine
        if nanoseconds < machine.parallel_nanoseconds or self.threads == 1:
            return nanoseconds
        return max(nanoseconds / self.threads, machine.parallel_nanoseconds) + machine.fork_nanoseconds

    def _moving(self, nbytes: int) -> float:
        """Of bytes that come from where they fit."""
        machine = self.target.machine
        level = next((n for n, cache in enumerate(machine.caches) if nbytes <= cache.share), len(machine.caches))
        single = nbytes / (machine.bandwidth(level) * machine.gigahertz)
        if single < machine.parallel_nanoseconds:
            return single
        return single / min(self.threads, _READERS_OF_MEMORY if level == len(machine.caches) else self.threads)

    def _computing(self, instruction: Instruction) -> float:
        """Of its arithmetic, on one core."""
        lowering = instruction.op.lowering
        if isinstance(lowering, (Pointwise, Indexed)):
            return _size(instruction.results[0]) * self._element(instruction)
        if isinstance(lowering, Reduction):
            return operations(instruction) * self._lanes_nanoseconds(instruction.operands[0])
        rule = _RULES.get(lowering.name) if isinstance(lowering, Kernel) else None
        if rule is not None:
            return rule(self, instruction)
        return self.target.machine.nanoseconds(_SCALAR_CYCLES * _arithmetic(instruction))

    def _element(self, instruction: Instruction) -> float:
        """Of one element of a result."""
        key = (
            instruction.op.name,
            *(_element_name(each) for each in (*instruction.operands, *instruction.results)),
        )
        found = self._cycles.get(key)
        if found is None:
            found = self._cycles[key] = self._probed(instruction)
        return self.target.machine.nanoseconds(found)

    def _probed(self, instruction: Instruction) -> float:
        result = instruction.results[0]
        index = tuple(variable(f"i{n}", 0, max(0, size - 1)) for n, size in enumerate(result.tensor_type.shape))
        try:
            facts = probe_elements(Body.of(instruction), [(result, index)])
        except Exception:  # what a plugin's rule wants that a dry run does not give: it is an estimate
            return 1.0
        lanes = 1 if facts.has_call else max(1, self.target.vector_bits // facts.widest_bits)
        return max(facts.cost / INSTRUCTIONS_PER_CYCLE / lanes, 1 / 64)

    def _lanes_nanoseconds(self, value: Value) -> float:
        """Of one operation on an element in whole vectors."""
        machine: Machine = self.target.machine
        return machine.nanoseconds(1 / INSTRUCTIONS_PER_CYCLE / self._lanes(value))

    def _lanes(self, value: Value) -> float:
        element = value.tensor_type.element_type
        bits: float = element.bits
        if isinstance(element, ComplexType):
            bits = 2 * bits  # four products for two numbers
        elif isinstance(element, FloatFormat) and bits < 32:
            bits = 32
        return max(1.0, self.target.vector_bits / max(8.0, bits))

    def product(self, instruction: Instruction) -> float:
        """Of whole vectors: a matrix with few columns leaves lanes empty."""
        vectors = operations(instruction) / 2 / self._lanes(instruction.operands[0])
        return self.target.machine.product_nanoseconds(vectors)

    def convolution(self, instruction: Instruction) -> float:
        """As a product that does not keep the processor as busy."""
        return self.product(instruction) / _CONVOLUTION_EFFICIENCY

    def sort(self, instruction: Instruction) -> float:
        """By the comparisons."""
        first = instruction.operands[0].tensor_type
        dimension = instruction.attributes.get("dimension", first.rank - 1)
        length = first.shape[dimension] if first.rank else 1
        steps = first.size * max(1.0, math.log2(max(2, length))) * len(instruction.operands)
        return self.target.machine.nanoseconds(_COMPARISON_CYCLES * steps)

    def factorization(self, instruction: Instruction) -> float:
        """A third of the cube, for each matrix."""
        shape = instruction.operands[0].tensor_type.shape
        work = math.prod(shape) * shape[-1] / 3 if shape else 1.0
        return self.target.machine.nanoseconds(work / _FACTORED)


_RULES: Final[Mapping[str, Callable[[InstructionCosts, Instruction], float]]] = {
    "dot_general": InstructionCosts.product,
    "convolution": InstructionCosts.convolution,
    "sort": InstructionCosts.sort,
    "cholesky": InstructionCosts.factorization,
    "triangular_solve": InstructionCosts.factorization,
    "lapack": InstructionCosts.factorization,
}
"""By the names of kernels."""


def _arithmetic(instruction: Instruction) -> int:
    try:
        return max(operations(instruction), 1)
    except (AssertionError, KeyError, AttributeError, IndexError):  # a record of a plugin's that counts nothing here
        return _size(instruction.results[0]) if instruction.results else 1


def _is_element_by_element(instruction: Instruction | None) -> bool:
    return instruction is not None and isinstance(instruction.op.lowering, (Pointwise, Indexed))


def _is_moved(value: Value, instruction: Instruction) -> bool:
    """Whether a value goes through memory: not between loops that are one."""
    producer = value.producer
    if producer is None:
        return True
    if is_constant(producer):
        return _size(value) > 1
    if not _is_element_by_element(producer):
        # A product and what follows it element by element are one launch; its result is counted where it is made.
        return producer is instruction or not _is_element_by_element(instruction)
    fused = (Pointwise, Indexed, Reduction)
    return not all(isinstance(each.op.lowering, fused) for each in value.users)


def _size(value: Value) -> int:
    return value.type.size if isinstance(value.type, TensorType) else 1


def _bytes(value: Value) -> int:
    return value.type.nbytes if isinstance(value.type, TensorType) else 0


def _element_name(value: Value) -> str:
    return value.type.element_type.name if isinstance(value.type, TensorType) else ""
