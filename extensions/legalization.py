"""Legalization by capability: a back end says what it takes as it is, everything else becomes other ops.

    %0:2 = chlo.top_k(%x, k = 3)       stays, if the back end answers YES;
                                       becomes a sort and two slices, if it answers DECOMPOSE or no("...")

A back end whose plugin states ``hlojit_api = (1, 1)`` (or later) is asked before anything is expanded: ops with an
expansion, composites, custom calls.  One written for 1.0 is only asked about what is left when all is expanded.
``Legalizer.check`` asks at the end about every instruction; then DECOMPOSE is a no, because nothing is left to try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from hlojit.extensions.backends.backend import Backend, Capability, CompileOptions, Support, no
from hlojit.extensions.backends.registered import api_of
from hlojit.extensions.binding import expansion_or_binding, is_foreign, reason_against_devices
from hlojit.extensions.origins import backend_text
from hlojit.extensions.registration.registry import registry
from hlojit.ir.errors import HlojitError, PluginError, UnsupportedError, VerificationError, short_repr
from hlojit.ir.formats import FloatFormat
from hlojit.ir.graph import Block, Instruction, Module
from hlojit.ir.ops.custom_calls import PARTITIONER, PARTITIONER_TARGETS, described, is_custom_call
from hlojit.ir.ops.integer_parts import left_over
from hlojit.ir.ops.internal import chosen_kernel, is_fusion
from hlojit.ir.ops.representations import INTEGER_FLOAT_PARTS, REPRESENTATIONS
from hlojit.ir.passes.call_inliner import CallInliner
from hlojit.ir.passes.graph_facts import is_control_flow, is_terminator
from hlojit.ir.passes.op_expander import ExpansionRule, OpExpander
from hlojit.ir.passes.pass_manager import GIVEN, Pass
from hlojit.ir.passes.registry import simplification_passes
from hlojit.ir.passes.type_legalizer import TypeLegalizer
from hlojit.ir.vendor_places import place_of, told

_MOST_ROUNDS = 32
"""Expansions that build calls of functions whose bodies hold expansions, and so on: beyond this they are a circle."""


@dataclass(frozen=True, eq=False)
class Legalizer:
    """One back end's part in the legalization of one program."""

    backend: Backend
    options: CompileOptions
    open_sizes: bool = False
    """Whether it is for code that is given sizes at run time."""

    @cached_property
    def _api(self) -> tuple[int, int]:
        return api_of(self.backend)

    def keeps(self, instruction: Instruction) -> bool:
        """Whether the back end, asked before anything is expanded, takes the instruction as it is."""
        if self._api < (1, 1) or reason_against_devices(instruction, self.names):
            return False
        return self._ask(instruction).support is Support.YES

    @property
    def names(self) -> tuple[str, ...]:
        """The back ends that the program is compiled for."""
        return tuple(each.name for each in self.backend.joint_members or (self.backend,))

    def _ask(self, instruction: Instruction) -> Capability:
        return ask(self.backend, instruction, open_sizes=self.open_sizes)

    def passes(self) -> tuple[Pass, Pass, Pass]:
        """The passes that inline calls and composites, that expand and bind, and that take numbers apart.

        What the back end keeps is left as it is.
        """
        expand = VerifiedExpander(keeps=self.keeps, verify=self.options.verify != "never", backends=self.names)
        own = self.backend.computes_with
        # What numbers are made of is not known to be the same for all sizes: they are not taken apart where sizes are open.
        representations = tuple(
            one
            for one in ((INTEGER_FLOAT_PARTS,) if self.open_sizes else REPRESENTATIONS)
            if one.element_class not in own
        )
        take_apart = TypeLegalizer(keeps=self.keeps, expander=expand, representations=representations)
        return CallInliner(keeps=self.keeps), expand, take_apart

    def check(self, module: Module, declined: Callable[[Instruction], str] = lambda _: "") -> None:
        """Raise ``UnsupportedError`` for the first instruction of the entry function that the back end cannot do.

        ``declined`` says of an instruction which kernels of plugins have declined it, and why.
        """
        for instruction in program_instructions(module):
            reason = self.why_not(instruction)
            if reason is not None:
                raise UnsupportedError(
                    instruction.op.name, self.backend.name, reason + declined(instruction), instruction.location
                )

    def why_not(self, instruction: Instruction) -> str | None:
        """Why the back end cannot do an instruction of which nothing more is expanded; None if it can."""
        if FloatFormat not in self.backend.computes_with and (reason := left_over(instruction)):
            return reason
        # A 1.0 back end answers YES to whatever it does not know; custom calls were never its concern.
        if is_custom_call(instruction) and self._api < (1, 1):
            return self._why_not_decomposed(instruction)
        answer = self._ask(instruction)
        return None if answer.support is Support.YES else self._reason(instruction, answer)

    def _reason(self, instruction: Instruction, answer: Capability) -> str:
        """Why an instruction for which the answer is no yes cannot be compiled."""
        why_not = self._why_not_decomposed(instruction)
        if is_custom_call(instruction):
            return f"{answer.reason}; {why_not}" if answer.reason else why_not
        if answer.support is Support.DECOMPOSE:
            return f"it would have to be decomposed into other ops, but {why_not}"
        return answer.reason

    def _why_not_decomposed(self, instruction: Instruction) -> str:
        if reason := reason_against_devices(instruction, self.names):
            return reason
        if expansion_or_binding(instruction) is not None:
            return "its expansion does not apply to this instruction (its shapes are not known, or it is as simple as it can be)"
        if is_custom_call(instruction):
            target = instruction.attributes["call_target_name"]
            return f"@{target}: {PARTITIONER}" if target in PARTITIONER_TARGETS else registry().unknown_target(target)
        return "it has no expansion"


def ask(backend: Backend, instruction: Instruction, *, open_sizes: bool = False) -> Capability:
    """The back end's answer for an instruction; ``PluginError`` if it raises, or answers something else."""
    asked = "symbolic_capability" if open_sizes else "capability"
    question = backend.symbolic_capability if open_sizes else backend.capability
    try:
        answer: Any = question(instruction)
    except UnsupportedError as error:
        answer = no(error.reason or "it gives no reason")
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"interrupted in {backend_text(backend.name)}: {asked}")
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{backend_text(backend.name)}: {asked} raised {told(error, question)} when it was asked about "
            f"{described(instruction)}\n  at {instruction.location}"
        ) from error
    if not isinstance(answer, Capability):
        raise PluginError(
            f"{backend_text(backend.name)}: {asked} returned {short_repr(answer)} when it was asked about "
            f"{described(instruction)}; return YES, DECOMPOSE or no(reason) of hlojit.extensions{place_of(question)}"
            f"\n  at {instruction.location}"
        )
    return answer


def program_instructions(module: Module) -> Iterator[Instruction]:
    """What a back end is asked about: the entry function with its constants, loops, branches and members of fusions.

    What ends a block computes nothing, and nobody is asked about it.
    """
    stack: list[Block] = [module.main.body]
    while stack:
        block = stack.pop()
        for instruction in block:
            if chosen_kernel(instruction) is not None:
                continue  # what its body says, a plugin's kernel does
            fusion = is_fusion(instruction)
            if not fusion and not is_terminator(instruction):
                yield instruction
            if fusion or is_control_flow(instruction):
                stack.extend(instruction.regions)


@dataclass(frozen=True)
class VerifiedExpander(OpExpander):
    """Expands what records and plugins' custom calls say, and verifies the program where plugins had a hand in it."""

    verify: bool = field(default=True, metadata=GIVEN)
    backends: tuple[str, ...] = field(default=(), metadata=GIVEN)
    """Which the program is compiled for."""

    def run(self, module: Module) -> bool:
        """Expand; return whether there was anything to expand."""
        from hlojit.ir.verifier import verify

        taken_part: dict[str, None] = {}

        def rule_of(instruction: Instruction) -> ExpansionRule | None:
            rule = None if reason_against_devices(instruction, self.backends) else expansion_or_binding(instruction)
            if rule is not None and is_foreign(instruction):
                taken_part[described(instruction)] = None
            return rule

        changed = OpExpander(keep=self.keep, keeps=self.keeps, rule_of=rule_of).run(module)
        if taken_part and self.verify:
            try:
                verify(module)
            except VerificationError as error:
                raise PluginError(
                    f"what plugins' expansions have built is no valid program ({', '.join(taken_part)}): {error}"
                ) from error
        return changed


@dataclass(frozen=True)
class Legalization(Pass):
    """Legalize once more what passes have built since: inline, expand, bind, take apart; simplify that; remove what is dead."""

    name: ClassVar[str] = "legalization"
    phase: ClassVar[str] = "before-fusion"
    legalizer: Legalizer | None = field(default=None, metadata=GIVEN)
    fold_limit: int = 4096

    def run(self, module: Module) -> bool:
        """Legalize; return whether anything changed."""
        *simplifications, dead_code = simplification_passes(self.fold_limit)
        changed = self._legalize(module)
        if changed:
            for pass_ in simplifications:
                pass_.run(module)
        return dead_code.run(module) or changed

    def of_changes(self, phase: str) -> LegalizationOfChanges:
        """The same at the end of a phase, for what plugins' passes have built in it."""
        made = LegalizationOfChanges(legalizer=self.legalizer, fold_limit=self.fold_limit)
        object.__setattr__(made, "phase", phase)
        return made

    def _legalize(self, module: Module) -> bool:
        assert self.legalizer is not None, "made by the driver"
        inline, expand, take_apart = self.legalizer.passes()
        changed = inline.run(module)
        for _ in range(_MOST_ROUNDS):
            expanded = expand.run(module)
            if not take_apart.run(module) and not expanded:
                return changed
            changed = True
            if not inline.run(module):
                return changed
        raise HlojitError("expansions and the functions that they call build each other without end")


@dataclass(frozen=True)
class LegalizationOfChanges(Legalization):
    """Legalize what plugins' passes have built in a phase."""

    only_after_changes: ClassVar[bool] = True
