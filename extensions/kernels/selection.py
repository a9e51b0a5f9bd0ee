"""Which kernels of plugins compute what of a program: asked at three points of a compilation, where the program has what for.

``legalize``        composites, and ops that would be expanded into others
``before-fusion``   other ops, and subgraphs of what is legalized and simplified
``fusion``          groups that the fusion passes have made

    %1 = stablehlo.composite "nova.softmax" %0 ...   =>   %1 = hlojit.fusion(%0) {kind = "kernel", kernel = "nova.softmax"} {...}

A group is formed when a kernel has been built for it.  What all kernels decline stays as it is, and hlojit's own way is gone.
Where no plugin has kernels for a back end, the passes are not there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, ClassVar, Final

from hlojit.extensions.backends.backend import Backend
from hlojit.extensions.kernels.forms import checked_answer, cost_of, device_function_of
from hlojit.extensions.kernels.groups import NoGroup, Proposal, decomposition, of_composite, of_fusion, of_instructions
from hlojit.extensions.kernels.kernel import BuiltKernel, Declined, KernelGroup, Pattern, SubgraphPattern, is_cost
from hlojit.extensions.kernels.table import BackendKernels, RegisteredKernel, kernels_for
from hlojit.ir.errors import HlojitError, PluginError, UnsupportedError, short_repr
from hlojit.ir.formats import BooleanType, FloatFormat, IntegerType
from hlojit.ir.graph import Block, Instruction, Module
from hlojit.ir.ops.definition import Kernel
from hlojit.ir.ops.internal import chosen_kernel, is_fusion
from hlojit.ir.passes.graph_facts import Effects, is_constant, is_terminator, program_blocks
from hlojit.ir.passes.op_expander import expansion_of
from hlojit.ir.passes.pass_manager import GIVEN, Pass
from hlojit.ir.time_limit import call_within
from hlojit.ir.types import TensorType
from hlojit.ir.vendor_calls import call_vendor
from hlojit.ir.vendor_places import place_of

_NO_REASON: Final = "it gives no reason"
_building: Final[ContextVar[tuple[str, ...]]] = ContextVar("kernels that are being built", default=())
_NUMBERS: Final = (BooleanType, IntegerType, FloatFormat)
"""What nothing that is still to come takes apart."""


@dataclass(frozen=True, slots=True)
class KernelDecision:
    """What became of one offer: a kernel, the group and its place, and whether it was taken, or why not."""

    kernel: str
    plugin: str
    group: str
    place: str
    taken: bool
    reason: str = ""
    cost: float | None = None
    op: str = ""
    graph: Module | None = field(default=None, compare=False, repr=False)
    """The group as a program of its own."""
    types: str = field(default="", repr=False)
    """Of the op's operands and results: ops may have no place."""

    def __str__(self) -> str:
        cost = f", {self.cost:,.0f} ns" if self.cost is not None else ""
        outcome = f"taken{cost}" if self.taken else f"not taken: {self.reason}"
        return f"{self.kernel} ({self.plugin}) for {self.group} at {self.place}: {outcome}"


@dataclass(frozen=True)
class KernelSelection(Pass):
    """Have kernels of plugins compute what they are for; see the module's docstring."""

    name: ClassVar[str] = "kernel-selection"
    phase: ClassVar[str] = "legalize"
    before: ClassVar[tuple[str, ...]] = ("call-inliner", "op-expander", "type-legalizer", "token-removal")
    after: ClassVar[tuple[str, ...]] = ("instruction-fusion",)
    backend: Backend | None = field(default=None, metadata=GIVEN)
    decisions: list[KernelDecision] = field(default_factory=list, compare=False, metadata=GIVEN)
    asked: dict[str, int] = field(default_factory=dict, compare=False, metadata=GIVEN)
    """By kernel: of how many instructions its ``match`` was asked."""
    time_limit: float | None = field(default=None, metadata=GIVEN)
    """Seconds that a function of a plugin may take."""

    def run(self, module: Module) -> bool:
        """Ask; return whether a kernel was taken."""
        assert self.backend is not None, "made by the driver"
        selection = _Selection(module, self.backend, self.decisions, self.time_limit)
        try:
            return selection.run(self.phase)
        finally:
            self.asked.update(selection.asked)


def selections(backend: Backend, time_limit: float | None = None) -> list[Pass]:
    """The passes for a back end, none where no plugin has kernels for it; of one compilation."""
    found = kernels_for(backend.name)
    if not found.plugins or not backend.kernel_forms:
        return []
    selection = KernelSelection(backend=backend, time_limit=time_limit)
    phases = ("legalize", "before-fusion", "fusion") if backend.fuses else ("legalize", "before-fusion")
    return [selection.in_phase(phase) for phase in phases]


def is_offered(backend: Backend, instruction: Instruction) -> bool:
    """Whether plugins have kernels for an instruction by itself on a back end; they may decline it."""
    found = kernels_for(backend.name)
    lowering = instruction.op.lowering
    return bool(backend.kernel_forms) and (
        instruction.op.name in found.ops
        or (bool(instruction.op.callees) and instruction.attributes.get("name") in found.composites)
        or (isinstance(lowering, Kernel) and lowering.name in found.lowerings)
    )


@dataclass(frozen=True)
class _Offer:
    """One kernel and a group for it; what it builds is ``answer``."""

    registered: RegisteredKernel
    proposal: Proposal
    answer: Any = None
    cost: float | None = None

    @property
    def rank(self) -> tuple[Any, ...]:
        """The least is taken."""
        cost = math.inf if self.cost is None else self.cost
        return -self.registered.kernel.priority, -self.proposal.size, cost, self.registered.origin, self.kernel_name

    @property
    def kernel_name(self) -> str:
        return self.registered.kernel.name


class _Selection:
    """One pass over one module."""

    def __init__(self, module: Module, backend: Backend, decisions: list[KernelDecision], time_limit: float | None):
        self.time_limit = time_limit
        self.module = module
        self.backend = backend
        self.decisions = decisions
        self.kernels: BackendKernels = kernels_for(backend.name)
        self.asked: dict[str, int] = {}
        self.effects = Effects(module)
        self.bodies: dict[str, Block | None] = {}
        self.built: dict[tuple[str, str], tuple[Any, float | None]] = {}
        """By kernel and text of the group: twelve equal layers are built once."""

    def run(self, phase: str) -> bool:
        if phase == "legalize":
            return self._whole()
        if phase == "before-fusion":
            return self._each(self._subgraphs)
        return self._each(self._anchors)

    # ----------------------------------------------------------------------------------------------------- where

    def _whole(self) -> bool:
        """Composites and ops that would be expanded, in what is reached; a composite before what it is made of."""
        if not (self.kernels.composites or self.kernels.ops or self.kernels.lowerings):
            return False
        changed = False
        pending, seen = [self.module.main.name], set[str]()
        while pending:
            name = pending.pop()
            function = self.module.functions.get(name)
            if name in seen or function is None:
                continue
            seen.add(name)
            for block in list(program_blocks(function)):
                for instruction in list(block):
                    if self._take(self._early(instruction)):
                        changed = True
                    else:
                        pending.extend(instruction.callees)
        return changed

    def _early(self, instruction: Instruction) -> Iterator[_Offer]:
        if instruction.op.callees and instruction.op.host_role not in ("call", "function"):
            for each in self.kernels.composites.get(str(instruction.attributes.get("name")), ()):
                yield from self._offer(each, instruction, partial(self._composite, instruction))
        elif expansion_of(instruction) is not None:
            for each in self._for_op(instruction):
                yield from self._offer(each, instruction, partial(self._early_op, instruction))

    def _composite(self, instruction: Instruction) -> Proposal:
        _check_plain(instruction)
        name = str(instruction.attributes.get(instruction.op.callees[0]))
        if name not in self.bodies:
            self.bodies[name] = decomposition(self.module, name)
        body = self.bodies[name]
        if body is None:
            raise NoGroup(f"its decomposition @{name} has no body")
        return of_composite(instruction, body)

    def _early_op(self, instruction: Instruction) -> Proposal:
        _check_plain(instruction)
        return self._alone(instruction)

    def _alone(self, instruction: Instruction) -> Proposal:
        return of_instructions([instruction], instruction, self.effects)

    def _each(self, take: Callable[[Instruction], bool]) -> bool:
        """Every instruction of what the host program runs, the last one first."""
        changed = False
        for block in list(program_blocks(self.module.main)):
            for instruction in reversed(list(block)):
                if instruction.block is not None and not is_terminator(instruction) and not is_constant(instruction):
                    changed |= take(instruction)
        return changed

    def _subgraphs(self, instruction: Instruction) -> bool:
        return chosen_kernel(instruction) is None and self._take(self._late(instruction))

    def _late(self, instruction: Instruction) -> Iterator[_Offer]:
        for each in self.kernels.subgraphs:
            pattern = each.kernel.pattern
            assert isinstance(pattern, SubgraphPattern)
            if pattern.root and pattern.root != instruction.op.name:
                continue
            members = self._matched(each, pattern, instruction)
            if members is not None:
                make = partial(of_instructions, members, instruction, self.effects)
                yield from self._offer(each, instruction, make)
        for each in self._for_op(instruction):
            yield from self._offer(each, instruction, partial(self._alone, instruction))
        if not self.backend.fuses:
            for each in self.kernels.anchors.get(instruction.op.name, ()):
                yield from self._offer(each, instruction, partial(self._alone, instruction))

    def _for_op(self, instruction: Instruction) -> Sequence[RegisteredKernel]:
        lowering = instruction.op.lowering
        found = self.kernels.ops.get(instruction.op.name, ())
        if self.kernels.lowerings and isinstance(lowering, Kernel):
            return [*found, *self.kernels.lowerings.get(lowering.name, ())]
        return found

    def _matched(
        self, each: RegisteredKernel, pattern: SubgraphPattern, instruction: Instruction
    ) -> list[Instruction] | None:
        where = f"\n  at {instruction.location}"
        self.asked[each.kernel.name] = self.asked.get(each.kernel.name, 0) + 1
        try:
            found: Any = self._call(each, "match", pattern.match, instruction, where)
        except UnsupportedError as error:
            self._decline(each, instruction.op.name, instruction, error.reason or _NO_REASON)
            return None
        members = found
        if found is not None and not isinstance(found, (str, bytes, Instruction)):
            members = self._call(each, "match", list, found, where) if isinstance(found, Iterable) else [found]
        if members is not None and not (
            isinstance(members, list) and all(isinstance(member, Instruction) for member in members)
        ):
            raise PluginError(
                f"{each.user}: match returned {short_repr(found)}; expected a list of the instructions of a group, or None"
                f"{place_of(pattern.match)}{where}"
            )
        return members

    def _anchors(self, instruction: Instruction) -> bool:
        return (
            bool(self.kernels.anchors) and chosen_kernel(instruction) is None and self._take(self._fused(instruction))
        )

    def _fused(self, instruction: Instruction) -> Iterator[_Offer]:
        if not is_fusion(instruction):
            for each in self.kernels.anchors.get(instruction.op.name, ()):
                yield from self._offer(each, instruction, partial(self._alone, instruction))
            return
        for member in reversed(list(instruction.regions[0])):
            for each in self.kernels.anchors.get(member.op.name, ()):
                yield from self._offer(each, instruction, partial(of_fusion, instruction, member))

    # ----------------------------------------------------------------------------------------------------- asking

    def _offer(
        self, each: RegisteredKernel, instruction: Instruction, make: Callable[[], Proposal]
    ) -> Iterator[_Offer]:
        """The offer, if there can be such a group."""
        try:
            yield _Offer(each, make())
        except NoGroup as reason:
            self._decline(each, instruction.op.name, instruction, f"there is no such group: {reason}")

    def _take(self, offers: Iterator[_Offer]) -> bool:
        """Ask the kernels of the highest priority, then others; put the best answer into the program."""
        waiting = sorted(offers, key=lambda offer: offer.rank)
        while waiting:
            priority = waiting[0].registered.kernel.priority
            now = [offer for offer in waiting if offer.registered.kernel.priority == priority]
            waiting = waiting[len(now) :]
            asked = [found for offer in now if (found := self._asked(offer)) is not None]
            if not asked:
                continue
            best, *others = sorted(asked, key=lambda offer: offer.rank)
            for other in others:
                self._note(other, False, f"{best.kernel_name} comes before it{_why(best, other)}")
            for other in waiting:
                self._note(other, False, f"{best.kernel_name} has a higher priority")
            self._note(best, True)
            kernel = best.registered.kernel
            function = device_function_of(best.answer, kernel, best.registered.user, best.proposal.graph)
            built = BuiltKernel(kernel.name, best.registered.origin, best.answer, function, best.cost)
            best.proposal.form(best.proposal.fusion(built))
            return True
        return False

    def _asked(self, offer: _Offer) -> _Offer | None:
        """The offer with what the kernel has built, or None if it declines."""
        kernel, proposal = offer.registered.kernel, offer.proposal
        anchor = "" if proposal.anchor is None else proposal.anchor.op.name
        key = kernel.name, f"{anchor}\n{proposal.graph}"
        if key not in self.built:
            try:
                self.built[key] = self._built(offer)
            except UnsupportedError as error:
                self.built[key] = Declined(error.reason or _NO_REASON), None
        answer, cost = self.built[key]
        made = _Offer(offer.registered, proposal, answer, cost)
        if isinstance(answer, Declined):
            self._note(made, False, answer.reason)
            return None
        return made

    def _built(self, offer: _Offer) -> tuple[Any, float | None]:
        registered, proposal = offer.registered, offer.proposal
        kernel, where = registered.kernel, f"\n  at {proposal.location}"
        target = self.backend.kernel_target()
        group = KernelGroup(
            proposal.graph, proposal.anchor, backend=self.backend.name, target=target, location=proposal.location
        )
        outer = _building.get()
        if kernel.name in outer:
            raise PluginError(
                f"{registered.user}: build compiles a program for which the kernel is asked again; compile it with "
                f'options={{"disable_passes": ("{KernelSelection.name}",)}}{where}'
            )
        token = _building.set((*outer, kernel.name))
        try:
            answer: Any = self._call(registered, "build", kernel.build, group, where)
        finally:
            _building.reset(token)
        if isinstance(answer, Declined):
            return answer, None
        answer = checked_answer(answer, registered.user, self.backend, group, where)
        cost: Any = kernel.cost
        if callable(cost):
            cost = self._call(registered, "cost", cost, group, where)
        if cost is not None and not is_cost(cost):
            raise PluginError(f"{registered.user}: cost returned {cost!r}, which is no number of nanoseconds{where}")
        return answer, cost_of(answer) if cost is None else float(cost)

    def _call(
        self, registered: RegisteredKernel, name: str, function: Callable[[Any], Any], argument: Any, where: str
    ) -> Any:
        """What a plugin's function returns; what goes wrong in it is named."""

        def what() -> str:
            return f"{registered.user}: {name}"

        @wraps(function)
        def limited(given: Any) -> Any:
            return call_within(self.time_limit, what, function, given)

        try:
            return call_vendor(what, limited, argument, where=where)
        except UnsupportedError:
            raise
        except HlojitError as error:
            if registered.user in str(error):
                raise
            # Of a record that the function makes.
            raise PluginError(f"{what()}: {error}{where}") from error

    def _note(self, offer: _Offer, taken: bool, reason: str = "") -> None:
        proposal, registered = offer.proposal, offer.registered
        anchor = proposal.anchor
        self.decisions.append(
            KernelDecision(
                registered.kernel.name,
                registered.origin,
                proposal.what,
                str(proposal.location),
                taken,
                reason,
                offer.cost,
                "" if anchor is None else anchor.op.name,
                proposal.graph,
                "" if anchor is None else _types(anchor),
            )
        )

    def _decline(self, each: RegisteredKernel, group: str, instruction: Instruction, reason: str) -> None:
        place = str(instruction.location)
        self.decisions.append(
            KernelDecision(
                *(each.kernel.name, each.origin, group, place, False, reason),
                op=instruction.op.name,
                types=_types(instruction),
            )
        )


def _types(instruction: Instruction) -> str:
    operands, results = (", ".join(map(str, types)) for types in (instruction.operand_types, instruction.result_types))
    return f"({operands}) -> ({results})"


def _why(best: _Offer, other: _Offer) -> str:
    if best.proposal.size != other.proposal.size:
        return f": its group is of {best.proposal.size} instructions, not {other.proposal.size}"
    if best.cost != other.cost:
        known = "no cost is given" if other.cost is None else f"{other.cost:,.0f} ns"
        return f": its cost is {best.cost:,.0f} ns, not {known}" if other.cost is not None else f": here {known}"
    return " by the names of their plugins"


def declined_by(passes: Sequence[Pass]) -> Callable[[Instruction], str]:
    """Which kernels have declined an instruction in these passes, and why: a clause for messages."""

    def clause(instruction: Instruction) -> str:
        asked = instruction.op.name, str(instruction.location), _types(instruction)
        found = dict.fromkeys(
            f"; kernel {each.kernel!r} ({each.plugin}) declined: {each.reason}"
            for pass_ in passes
            if isinstance(pass_, KernelSelection)
            for each in pass_.decisions
            if (each.op, each.place, each.types) == asked
        )
        return "".join(found)

    return clause


def _check_plain(instruction: Instruction) -> None:
    """Refuse what later passes take apart: kernels get it when that is done, or never."""
    for value in (*instruction.operands, *instruction.results):
        kind = value.type
        if not isinstance(kind, TensorType) or not isinstance(kind.element_type, _NUMBERS):
            raise NoGroup(f"{kind} is taken apart")
        if not kind.is_static:
            raise NoGroup(f"the shape of {kind} is not known")


def unmatched(backend: Backend, decisions: Sequence[KernelDecision]) -> list[tuple[RegisteredKernel, Pattern]]:
    """The kernels to which nothing was offered."""
    offered = {each.kernel for each in decisions}
    return [
        (each, each.kernel.pattern) for each in kernels_for(backend.name).plugins if each.kernel.name not in offered
    ]
