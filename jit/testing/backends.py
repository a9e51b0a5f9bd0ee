"""``check_backend``: what a back end computes, and whether it does what it says it can.

check_backend("nova").raise_if_failed()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hlojit.compiler import compile as compile_program
from hlojit.extensions import Backend, Capability, Support, can_decompose
from hlojit.extensions.legalization import program_instructions
from hlojit.ir.builder import build_function
from hlojit.ir.errors import HlojitError, UnsupportedError
from hlojit.ir.graph import Instruction, Module, clone_instruction
from hlojit.ir.ops.custom_calls import is_custom_call
from hlojit.ir.passes.graph_facts import is_control_flow, is_terminator
from hlojit.ir.types import TensorType
from hlojit.partition.preference import preferring
from hlojit.placement import devices, named_backend
from hlojit.testing.arguments import arguments_for
from hlojit.testing.backend_edges import check_arrays, check_edges
from hlojit.testing.bisection import reads_of
from hlojit.testing.comparison import EXACT, Tolerance, tolerance_for
from hlojit.testing.corpus import CorpusProgram, corpus, corpus_of
from hlojit.testing.corpus_elements import ASKED, elements_taken, narrowed
from hlojit.testing.corpus_types import TYPED
from hlojit.testing.findings import Compared, Timing
from hlojit.testing.recorder import Budget, Found, Recorder, Refused, Skipped, Unreached, budget_of
from hlojit.testing.report import Report
from hlojit.testing.script import script
from hlojit.testing.script import spelled_backend as spelled
from hlojit.testing.timing import least_times, prepared
from hlojit.testing.trials import Trial, Trials

_GROUPS = {"random": "random programs", "attributes:": "attributes", TYPED.strip().partition(" ")[0]: "element types"}
"""Groups of checks by the first words of programs' names."""
_LONGEST = 80
"""Characters of an instruction's line in the name of a check."""


def check_backend(
    backend: str | Backend | Sequence[str],
    programs: Iterable[CorpusProgram | Module | str] = (),
    *,
    tolerance: Tolerance | None = None,
    seed: int = 0,
    budget: str | Budget = "quick",
    isolate: bool = False,
    progress: bool | None = None,
) -> Report:
    """Try a registered back end: real and random programs beside their meaning, and each of its answers about instructions.

    Programs are written in the element types of whose sums and constants the back end says that it takes them.  Of a list such as
    ``["nova", "cpu"]`` programs are tried that are split: those of which the first takes nothing show nothing.  ``programs`` are
    tried besides those of the corpus; ``tolerance`` is what inexact programs' results may differ by, as where a device sums in
    narrower numbers.  ``isolate`` runs programs in child processes, where they may crash.  What the back end refuses is no
    finding if it says why, and if it had said so when it was asked; but of a back end that refuses everything nothing is shown.
    """
    names = [backend.name] if isinstance(backend, Backend) else [backend] if isinstance(backend, str) else list(backend)
    chosen = [_usable(name) for name in names]
    target, label = names[0] if len(names) == 1 else names, spelled(names)
    recorder = Recorder("back end", label, budget_of(budget), seed, progress)
    trials = Trials(recorder, isolate)
    taken = elements_taken(chosen[0])
    own = corpus_of(programs, seed=seed)
    made = corpus(seed=seed, count=recorder.budget.programs, taken=taken, is_split=len(names) > 1)
    every = [_tolerated(each, tolerance) for each in (*own, *made)]
    splits = _Splits(target) if len(names) > 1 else None
    ran = []
    for program in every:
        if absent := _absent_type(program, taken):
            recorder.run(
                "element types", program.name, partial(_skip, f"the back end takes no {absent}"), backend=label
            )
            continue
        group = _GROUPS.get(program.name.partition(" ")[0], "real programs")
        if recorder.run(group, program.name, partial(_tried, program, target, trials, splits), backend=label):
            ran.append(_trial(program))
    if splits is not None:
        recorder.run("reach", "programs of which each back end gets a part", splits.reached)
    else:
        asked = [each for each in every if not _absent_type(each, taken)]
        _check_answers(chosen[0], asked, recorder, trials, tolerance)
    if target not in trials.stuck:
        check_edges(target, taken, recorder)
    for name in names:
        check_arrays(name, recorder)
    threaded = (ran or [*map(_trial, every)])[:8]
    count = recorder.budget.threads
    places = devices(names[0]) if len(names) == 1 else ()
    recorder.run("threads", "programs at once", lambda: trials.threads(threaded, target, count, places))
    if target not in trials.stuck:
        _time(target, every, recorder)
    return recorder.report(element_types=", ".join(sorted(taken)))


def _usable(name: str) -> Backend:
    chosen = named_backend(name)
    reason = chosen.unavailable()
    if reason:
        raise HlojitError(f"the back end {name!r} cannot be used here: {reason}")
    return chosen


def _absent_type(program: CorpusProgram, taken: frozenset[str]) -> str:
    """The element type that a program is for and that the back end has not; empty if it has it, or says no to all of them."""
    element = program.name.removeprefix(TYPED)
    return element if taken and element != program.name and element in ASKED and element not in taken else ""


def _skip(reason: str) -> int:
    raise Skipped(reason)


def _tried(program: CorpusProgram, target: str | Sequence[str], trials: Trials, splits: _Splits | None) -> Compared:
    if splits is None:
        return trials.run(_trial(program), target, times=2)
    # By costs alone programs as small as these are not split.
    with preferring(lambda number: number % len(target)):
        splits.look(program.module)
        return trials.run(_trial(program), target, times=2)


@dataclass
class _Splits:
    """How programs are split among several back ends."""

    target: Sequence[str]
    count: int = 0
    """Programs of which more than one back end got a part."""

    def look(self, module: Module) -> None:
        """Raise ``Unreached`` if the first gets no part of a program; what fails is found when the program is run."""
        try:
            executable = compile_program(module, backend=self.target)
        except Exception:
            return
        members = {each.place.member for each in getattr(executable, "segments", ())}
        if members and 0 not in members:
            raise Unreached(f"all of it runs without {self.target[0]}")
        self.count += len(members) > 1

    def reached(self) -> int:
        """How many programs were split."""
        if not self.count:
            raise Unreached(f"no program was split among {spelled(self.target)}: give programs= that are")
        return self.count


def _tolerated(program: CorpusProgram, tolerance: Tolerance | None) -> CorpusProgram:
    return program if tolerance is None or program.tolerance == EXACT else replace(program, tolerance=tolerance)


def _trial(program: CorpusProgram) -> Trial:
    return Trial(program.name, program.module, program.arguments, program.tolerance)


# --------------------------------------------------------------------- answers


def _check_answers(
    backend: Backend,
    every: Sequence[CorpusProgram],
    recorder: Recorder,
    trials: Trials,
    tolerance: Tolerance | None,
) -> None:
    """Each different instruction of the corpus, alone: what the back end answers, and whether it is so.

    Instructions differ by their attributes and regions, too.
    """
    seen: set[str] = set()
    for program in every:
        for instruction in _instructions(program.module):
            module = _alone(instruction)
            key = str(module)
            if key in seen:
                continue
            seen.add(key)
            check = partial(_answer, backend, instruction, module, trials, tolerance)
            recorder.run("answers", _asked_about(instruction, module), check, backend=backend.name)


def _asked_about(instruction: Instruction, module: Module) -> str:
    """The types of an instruction, and its attributes as they stand in its line."""
    types = ", ".join(map(str, instruction.operand_types))
    name = f"{instruction.name}({types})"
    if not instruction.attributes:
        return name
    line = next(line for line in str(module).splitlines() if instruction.name in line)
    said = line.partition(instruction.name)[2].strip(' "')
    return f"{name}: {said if len(said) <= _LONGEST else said[:_LONGEST] + ' ...'}"


def _instructions(module: Module) -> Iterator[Instruction]:
    """What a back end is asked about, of instructions on tensors: those in loops and branches, too."""
    for instruction in program_instructions(module):
        kinds = (*(value.type for value in reads_of(instruction)), *instruction.result_types)
        if all(isinstance(kind, TensorType) for kind in kinds):
            yield instruction


def _answer(
    backend: Backend, instruction: Instruction, module: Module, trials: Trials, stated: Tolerance | None
) -> int | Compared:
    answer = _asked(backend, instruction)
    if _asked(backend, instruction) != answer:
        raise Found(f"{backend.name} answers {instruction.name} once {answer} and then {_asked(backend, instruction)}")
    arrays = tuple(arguments_for(module, seed=trials.recorder.seed))
    if answer.support is Support.NO:
        return _refuses(backend, instruction, module, answer)
    if answer.support is Support.DECOMPOSE and not can_decompose(instruction):
        raise Found(
            f"{backend.name} answers DECOMPOSE to {instruction.name}, of which there is no expansion: no program with "
            "it compiles; answer no(reason), or YES",
            script(module, arrays, backend.name),
        )
    usual = tolerance_for(module)
    tolerance = narrowed(usual, module) if stated is None or usual == EXACT else stated
    try:
        return trials.run(Trial(instruction.name, module, arrays, tolerance), backend.name)
    except Refused as refusal:
        if _refuses_inside(backend, instruction):
            raise Refused(f"what it holds is refused: {refusal}") from None
        if answer.support is Support.YES:
            raise Found(
                f"{backend.name} answers YES to {instruction.name} and then refuses it: {refusal}",
                script(module, arrays, backend.name),
            ) from None
        raise Refused(f"what it is decomposed into is refused: {refusal}") from None


def _asked(backend: Backend, instruction: Instruction) -> Capability:
    answer: object = backend.capability(instruction)
    if not isinstance(answer, Capability):
        raise Found(f"{backend.name} answers {answer!r} to {instruction.name}; answer YES, DECOMPOSE or no(reason)")
    return answer


def _refuses_inside(backend: Backend, instruction: Instruction) -> bool:
    """Whether the back end says no to something in a loop or branch: it is asked about that apart."""
    if not is_control_flow(instruction):
        return False
    inside = (each for each in instruction.walk() if each is not instruction and not is_terminator(each))
    return any(_asked(backend, each).support is Support.NO for each in inside)


def _refuses(backend: Backend, instruction: Instruction, module: Module, answer: Capability) -> int:
    if not answer.reason:
        raise Found(f"{backend.name} answers no to {instruction.name} without a reason")
    try:
        compile_program(module, backend=backend.name)
    except UnsupportedError:
        raise Refused(answer.reason) from None  # as it said
    if can_decompose(instruction) or is_custom_call(instruction):
        raise Refused(f"{answer.reason}; it is taken apart")
    raise Unreached("the program is simpler than the instruction that it was asked about")


def _alone(instruction: Instruction) -> Module:
    """A program of one instruction; what its regions read from outside is an argument, too."""
    reads = reads_of(instruction)
    module = Module()
    with build_function(module, "main", [value.type for value in reads]) as builder:
        copy = builder.block.append(clone_instruction(instruction, dict(zip(reads, builder.block.arguments))))
        builder.return_(*copy.results)
    return module


def _time(target: str | Sequence[str], every: Sequence[CorpusProgram], recorder: Recorder) -> None:
    """The real programs beside the CPU."""
    if target == "cpu":
        return
    for program in every[:3]:
        try:
            own, cpu = least_times([prepared(program.module, each, recorder.seed) for each in (target, "cpu")], 3)
        except HlojitError:
            continue
        recorder.timings.append(Timing(f"{program.name} on {spelled(target)}", own, "cpu", cpu))
