"""Which kernels of plugins compute what of a program, and why others do not.

print(hlojit.kernel_report(text))
nova.softmax ('nova') for 9 instructions around stablehlo.divide at model.mlir:7:8: taken, 1,200 ns
nova.matmul ('nova') for stablehlo.dot_general at model.mlir:9:8: not taken: rows are not a multiple of 16
nova.rms ('nova'): match was asked of 5 instructions of stablehlo.multiply and took none
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from hlojit.compiler import lower, parse, verify
from hlojit.extensions import Backend, CompileOptions, registry
from hlojit.extensions.calls.elementwise_calls import one_compilation
from hlojit.extensions.kernels.selection import KernelDecision, KernelSelection, unmatched
from hlojit.extensions.kernels.table import kernels_for
from hlojit.ir.environment import scope_for
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Module
from hlojit.ir.passes.pass_manager import PassEvent
from hlojit.ir.resolution import resolved
from hlojit.placement import named

Unmatched = tuple[str, str, str]


@final
@dataclass(frozen=True, slots=True)
class SegmentKernels:
    """What was offered in one part of a split program, and the device that runs it."""

    number: int
    device: str
    decisions: tuple[KernelDecision, ...]

    def __str__(self) -> str:
        said = [f"  {each}" for each in self.decisions] or ["  no kernel of a plugin was offered anything"]
        return "\n".join([f"segment {self.number} on {self.device}:", *said])


@final
@dataclass(frozen=True, slots=True)
class KernelReport:
    """What plugins' kernels were offered in a program; its text is for people."""

    backend: str
    decisions: tuple[KernelDecision, ...]
    """Offers in the order in which they were decided."""
    unmatched: tuple[Unmatched, ...] = ()
    """Kernels to which nothing was offered: name, plugin, and what they are for."""
    note: str = ""
    """Why nobody was asked, or why the program cannot be compiled."""
    segments: tuple[SegmentKernels, ...] = ()
    """Of a program for several back ends, its parts: ``decisions`` are theirs, one part after the other."""
    asked: tuple[tuple[str, int], ...] = ()
    """Of how many instructions the ``match`` of kernels was asked, by their names."""

    @property
    def taken(self) -> tuple[KernelDecision, ...]:
        """The offers that became part of the program."""
        return tuple(each for each in self.decisions if each.taken)

    def __str__(self) -> str:
        lines = list(map(str, self.segments or self.decisions))
        asked = dict(self.asked)
        where = "; kernels see one segment, not what other devices compute" if self.segments else ""
        for name, plugin, what in self.unmatched:
            if count := asked.get(name, 0):
                ended = what.removeprefix("subgraphs that end in ") if " end in " in what else ""
                of = f"{count} instruction{'' if count == 1 else 's'}{ended and f' of {ended}'}"
                lines.append(f"{name} ({plugin}): match was asked of {of} and took none{where}")
            else:
                there = "no segment" if self.segments else "the program"
                lines.append(f"{name} ({plugin}): {there} has {'no ' * (not self.segments)}{what}")
        lines += [self.note] * bool(self.note)
        return "\n".join(lines) or f"no plugin has kernels for the back end {self.backend!r}"


def kernel_report(
    program: str | Module, *, backend: str | Sequence[str] | None = None, options: CompileOptions | None = None
) -> KernelReport:
    """Lower a program for a back end, or those of a list, as ``hlojit.compile`` does, and say what became of plugins' kernels.

    The program is not changed.  Raises what ``hlojit.compile`` raises of a program that is not valid.
    """
    names = named(backend)
    module = parse(program) if isinstance(program, str) else program.clone()
    with one_compilation(), scope_for(module.environment).snapshot().activate() as scope:
        module = resolved(module, scope)
        module.environment = scope
        verify(module)
        if isinstance(names, str):
            return _of_one(module, registry().backend(names), options or CompileOptions())
        return _of_several(module, names, options or CompileOptions())


def _of_one(module: Module, backend: Backend, options: CompileOptions) -> KernelReport:
    note, found = "", Offers()
    try:
        _lowered(module, backend, options, found)
    except UnsupportedError as error:
        note = str(error)
    asked = tuple(found.asked.items())
    return KernelReport(backend.name, tuple(found), *_rest([backend], found, note), (), asked)


def _of_several(module: Module, names: Sequence[str], options: CompileOptions) -> KernelReport:
    from hlojit.partition.joint import joint_backend
    from hlojit.partition.partitioner import planned

    joint = joint_backend(names, registry().backend, lambda *_: None)
    note, parts, asked = "", list[SegmentKernels](), Counter[str]()

    def decided(part: Module, member: Backend) -> Offers:
        found = Offers()
        _lowered(part, member, replace(options, num_replicas=1, num_partitions=1), found, is_segment=True)
        return found

    try:
        lower(module, joint, options)
        plan, _ = planned(module, joint, options, decided)
        parts = [SegmentKernels(each.number, str(each.place), tuple(each.executable)) for each in plan.segments]
        for each in plan.segments:
            asked.update(each.executable.asked)
    except UnsupportedError as error:
        note = str(error)
    all_decisions = [decision for each in parts for decision in each.decisions]
    rest, note = _rest(joint.members, all_decisions, note)
    return KernelReport(joint.name, tuple(all_decisions), rest, note, tuple(parts), tuple(asked.items()))


class Offers(list[KernelDecision]):
    """What was decided, and of how many instructions ``match`` was asked, by kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, int] = {}


def _lowered(
    module: Module, backend: Backend, options: CompileOptions, found: Offers, *, is_segment: bool = False
) -> None:
    """Run the passes, which change the module, and leave in ``found`` what they decided, also where they fail."""

    def note(event: PassEvent) -> None:
        if isinstance(event.pass_, KernelSelection):
            found[:] = event.pass_.decisions
            found.asked.update(event.pass_.asked)

    lower(module, backend, options, callback=note, is_segment=is_segment)


def _rest(
    backends: Sequence[Backend], decisions: Sequence[KernelDecision], note: str
) -> tuple[tuple[Unmatched, ...], str]:
    """Kernels to which nothing was offered, and the note."""
    notes = [
        f"the back end {each.name!r} takes no kernels of plugins"
        for each in backends
        if kernels_for(each.name).plugins and not each.kernel_forms
    ]
    if note and not notes:
        return (), note
    taking = [each for each in backends if each.kernel_forms]
    rest = [(r.kernel.name, r.origin, str(p)) for each in taking for r, p in unmatched(each, decisions)]
    return tuple(rest), "; ".join(notes)
