"""Which back ends of a list take an instruction, and what it costs there.

A back end takes what it answers YES to, and what becomes that once its own legalization has expanded it: an op that another
back end of the list keeps as it is must not keep this one from computing it in its own way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

from hlojit.extensions.backends.backend import Backend, Support
from hlojit.extensions.binding import expansion_or_binding
from hlojit.extensions.kernels.kernel import kernel_answer
from hlojit.extensions.kernels.selection import is_offered, selections
from hlojit.extensions.legalization import Legalizer, ask, program_instructions
from hlojit.extensions.origins import backend_text
from hlojit.ir.errors import HlojitError, PluginError, UnsupportedError, short_repr
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.ops.custom_calls import described
from hlojit.ir.ops.internal import chosen_kernel
from hlojit.ir.passes.graph_facts import is_constant, is_control_flow, is_terminator, program_blocks
from hlojit.ir.types import TensorType
from hlojit.ir.vendor_calls import call_named
from hlojit.lowering.arithmetic_count import operations
from hlojit.partition.extraction import extracted, reads_of
from hlojit.partition.preference import preferred

TRIPS: Final = 8.0
"""How often a loop is taken to run: nobody knows."""
_BYTES_PER_NANOSECOND: Final = 10.0
_OPERATIONS_PER_NANOSECOND: Final = 20.0
_NANOSECONDS: Final = 2.0
"""Of any instruction."""


@final
@dataclass(frozen=True, slots=True)
class Stated:
    """Nanoseconds, infinite where a back end does not take an instruction, and whether it says so or nobody knows."""

    nanoseconds: float
    is_stated: bool = True


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """Of all back ends of the list about one instruction, with its regions where the host program runs these.

    ``costs`` are nanoseconds, infinite where it is not taken; ``reasons`` say why not.
    """

    costs: tuple[float, ...]
    reasons: tuple[str, ...]

    @property
    def takers(self) -> list[int]:
        """Numbers of the back ends that take it."""
        return [number for number, cost in enumerate(self.costs) if cost < math.inf]


@final
class Candidates:
    """The answers for one module, each asked for once."""

    def __init__(self, module: Module, members: Sequence[Legalizer], name: str = ""):
        """``name``: of the list, for errors."""
        self._module = module
        self._joint_name = name
        self._members = list(members)
        self._own: dict[Instruction, Answer] = {}
        self._expanded: dict[tuple[object, ...], tuple[Stated, str]] = {}

    def of(self, instruction: Instruction) -> Answer:
        """About the instruction itself, what it holds left aside."""
        found = self._own.get(instruction)
        if found is None:
            answers = [self._ask(number, instruction) for number in range(len(self._members))]
            costs = preferred(_relative([cost for cost, _ in answers]), len(self._own))
            found = self._own[instruction] = Answer(costs, tuple(reason for _, reason in answers))
        return found

    def refuse(self, instruction: Instruction, number: int, reason: str) -> None:
        """A back end has said yes, and then refused a part with the instruction in it: take that for its answer."""
        known = self.of(instruction)
        costs, reasons = list(known.costs), list(known.reasons)
        costs[number], reasons[number] = math.inf, reason
        self._own[instruction] = Answer(tuple(costs), tuple(reasons))
        self.__dict__.pop("_whole", None)

    def check(self, instruction: Instruction, declined: Callable[[Instruction], str] = lambda _: "") -> None:
        """Raise ``UnsupportedError`` if none of them can do it, with the reason of each; ``declined`` as for ``Legalizer``."""
        answer = self.of(instruction)
        if answer.takers:
            return
        reasons = zip(self._members, answer.reasons)
        why = "; ".join(f"{each.backend.name}: {reason or 'gives no reason'}" for each, reason in reasons)
        raise UnsupportedError(
            described(instruction), self._joint_name, why + declined(instruction), instruction.location
        )

    def whole(self, construct: Instruction) -> Answer:
        """About a loop or branch with all that it holds."""
        return self._whole[construct]

    @cached_property
    def _whole(self) -> dict[Instruction, Answer]:
        """Of all constructs of the entry function; inner ones first."""
        found: dict[Instruction, Answer] = {}
        for block in reversed(list(program_blocks(self._module.main))):
            for each in block:
                if is_control_flow(each):
                    found[each] = self._with_regions(each, found)
        return found

    def _with_regions(self, construct: Instruction, known: dict[Instruction, Answer]) -> Answer:
        own = self.of(construct)
        costs, reasons = list(own.costs), list(own.reasons)
        times = TRIPS if construct.op.host_role == "loop" else 1.0 / max(1, len(construct.regions))
        for region in construct.regions:
            for each in region:
                if is_terminator(each):
                    continue
                answer = known.get(each) or self.of(each)
                for number, cost in enumerate(answer.costs):
                    if cost == math.inf and costs[number] < math.inf:
                        reasons[number] = f"{each.op.name} in it: {answer.reasons[number]}"
                    costs[number] += times * cost
        return Answer(tuple(costs), tuple(reasons))

    def _ask(self, number: int, instruction: Instruction) -> tuple[Stated, str]:
        legalizer = self._members[number]
        reason = legalizer.why_not(instruction)
        if reason is None and (constant := self._refused_constant(number, instruction)) is not None:
            return Stated(math.inf), constant
        if reason is None:
            return cost_of(legalizer.backend, instruction), ""
        expands = expansion_or_binding(instruction) is not None or bool(instruction.op.callees)
        if is_control_flow(instruction) or not (expands or is_offered(legalizer.backend, instruction)):
            return Stated(math.inf), reason
        shape = (number, instruction.op.name, instruction.operand_types, instruction.result_types)
        if instruction.regions or instruction.op.callees:
            key: tuple[object, ...] = (*shape, instruction)
        else:
            key = (*shape, repr(sorted(instruction.attributes.items(), key=lambda item: item[0])))
        found = self._expanded.get(key)
        if found is None:
            found = self._expanded[key] = self._after_expansion(number, instruction, reason)
        return found

    def _refused_constant(self, number: int, instruction: Instruction) -> str | None:
        """Why the back end cannot have a constant that the instruction reads: segments hold their constants."""
        for operand in reads_of(instruction):
            producer = operand.producer
            if producer is not None and is_constant(producer):
                answer = self.of(producer)
                if answer.costs[number] == math.inf:
                    return f"{producer.op.name} that it reads: {answer.reasons[number]}"
        return None

    def _after_expansion(self, number: int, instruction: Instruction, reason: str) -> tuple[Stated, str]:
        """What the instruction costs as what the back end's legalization makes of it."""
        legalizer = self._members[number]
        reads = reads_of(instruction)
        constants = [each.producer for each in reads if each.producer is not None and is_constant(each.producer)]
        inputs = [each for each in reads if not is_constant(each.producer)]
        # Expansions look at constants among the operands.
        alone = extracted(self._module, "trial", [*constants, instruction], inputs, instruction.results)
        by_phase = {pass_.phase: [pass_] for pass_ in selections(legalizer.backend, legalizer.options.pass_time_limit)}
        passes = (*by_phase.get("legalize", ()), *legalizer.passes(), *by_phase.get("before-fusion", ()))
        try:
            for pass_ in passes:
                pass_.run(alone.module)
            legalizer.check(alone.module)
        except PluginError:
            raise
        except UnsupportedError as error:
            return Stated(math.inf), reason or error.reason
        except HlojitError as error:
            return Stated(math.inf), f"{reason}; expanding it failed: {error}" if reason else str(error)
        found = list(program_instructions(alone.module))
        taken = [each for each in alone.module.walk() if chosen_kernel(each) is not None]
        parts = [cost_of(legalizer.backend, each) for each in found] + [_cost_of_kernel(each) for each in taken]
        total = sum(each.nanoseconds for each in parts)
        return Stated(total, all(each.is_stated for each in parts)), ""


def _relative(answers: Sequence[Stated]) -> tuple[float, ...]:
    """Costs of back ends in the order of the list.

    One that says nothing is taken for twice as fast as the next one that says something, and for twice as slow as the one
    before it where none follows.
    """
    known = {number: each.nanoseconds for number, each in enumerate(answers) if each.is_stated}
    known = {number: cost for number, cost in known.items() if cost < math.inf}
    costs: list[float] = []
    for number, each in enumerate(answers):
        behind = [other for other in known if other > number]
        if each.is_stated:
            costs.append(each.nanoseconds)
        elif known:
            nearest = min(behind) if behind else max(known)
            costs.append(known[nearest] * 2.0 ** (number - nearest))
        else:
            costs.append(each.nanoseconds * 2.0**number)
    return tuple(costs)


def cost_of(backend: Backend, instruction: Instruction) -> Stated:
    """Nanoseconds of an instruction that a back end takes: as it says, else by bytes and arithmetic."""
    answer = ask(backend, instruction)
    if answer.support is not Support.YES:
        return Stated(estimate(instruction), False)
    stated, asked = answer.cost, "capability returned the cost"
    if stated is None:
        asked = "instruction_cost returned"
        stated = call_named(
            lambda: f"{backend_text(backend.name)}: instruction_cost", backend.instruction_cost, instruction
        )
    if stated is None:
        return Stated(estimate(instruction), False)
    if not isinstance(stated, (int, float)) or isinstance(stated, bool) or not 0 <= stated < math.inf:
        raise PluginError(
            f"{backend_text(backend.name)}: {asked} {short_repr(stated)} when it was asked about "
            f"{instruction.op.name}; it is a number of nanoseconds, at least 0, or None\n  at {instruction.location}"
        )
    return Stated(float(stated))


def _cost_of_kernel(fusion: Instruction) -> Stated:
    """Nanoseconds of what a plugin's kernel computes: as the kernel says, else by bytes and arithmetic."""
    built = kernel_answer(fusion)
    if built is None or built.cost is None:
        return Stated(estimate(fusion), False)
    return Stated(built.cost)


def estimate(instruction: Instruction) -> float:
    """Nanoseconds of an instruction of which nobody says what it costs."""
    if is_control_flow(instruction):
        return _NANOSECONDS
    types = {*instruction.operand_types, *instruction.result_types}
    if not all(isinstance(each, TensorType) and each.is_static for each in types):
        return _NANOSECONDS
    try:
        arithmetic = operations(instruction)
    except (AssertionError, KeyError, AttributeError, IndexError):  # a record of a plugin's that counts nothing here
        arithmetic = 0
    moved = sum(nbytes_of(each.type) for each in (*instruction.operands, *instruction.results))
    return _NANOSECONDS + max(moved / _BYTES_PER_NANOSECOND, arithmetic / _OPERATIONS_PER_NANOSECOND)


def nbytes_of(type_: object) -> int:
    """Bytes of a tensor; 0 of what is none, or of a size that is not known."""
    return type_.nbytes if isinstance(type_, TensorType) and type_.is_static else 0


def transfer_nanoseconds(backend: Backend, nbytes: int) -> float:
    """What a back end says about moving so many bytes, checked."""
    stated: object = call_named(
        lambda: f"{backend_text(backend.name)}: transfer_cost", lambda: backend.transfer_cost(nbytes)
    )
    if not isinstance(stated, (int, float)) or isinstance(stated, bool) or not 0 <= stated < math.inf:
        raise PluginError(
            f"{backend_text(backend.name)}: transfer_cost returned {short_repr(stated)} for {nbytes} bytes; return a number of "
            "nanoseconds, at least 0"
        )
    return float(stated)
