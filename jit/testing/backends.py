"""``check_backend``: what a back end computes, and whether it does what it says it can.

check_backend("nova").raise_if_failed()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from hlojit.arrays import from_storage
from hlojit.compiler import compile as compile_program
from hlojit.compiler import parse
from hlojit.extensions import Backend, Capability, Device, Support, can_decompose
from hlojit.ir.builder import build_function
from hlojit.ir.errors import HlojitError, UnsupportedError
from hlojit.ir.formats import BooleanType, ComplexType, ElementType, FloatFormat, IntegerType, element_types
from hlojit.ir.graph import Instruction, Module, clone_instruction
from hlojit.ir.ops.custom_calls import is_custom_call
from hlojit.ir.passes.graph_facts import is_terminator
from hlojit.ir.types import TensorType, tensor
from hlojit.placement import devices, get, named_backend, put
from hlojit.testing.arguments import arguments_for, made_up
from hlojit.testing.comparison import EXACT, Tolerance, tolerance_for
from hlojit.testing.corpus import CorpusProgram, corpus, corpus_of
from hlojit.testing.execution import execute, interpret, run_executable, storage_of
from hlojit.testing.findings import Timing
from hlojit.testing.recorder import Budget, Found, Recorder, Refused, Unreached, budget_of
from hlojit.testing.report import Report
from hlojit.testing.script import script
from hlojit.testing.timing import least_times, prepared
from hlojit.testing.trials import Trial, Trials

_GROUPS = {"random": "random programs", "numbers": "element types"}
"""Groups of checks by the first words of programs' names."""


def check_backend(
    backend: str | Backend,
    programs: Iterable[CorpusProgram | Module | str] = (),
    *,
    tolerance: Tolerance | None = None,
    seed: int = 0,
    budget: str | Budget = "quick",
    isolate: bool = False,
    progress: bool | None = None,
) -> Report:
    """Try a registered back end: real and random programs beside their meaning, and each of its answers about instructions.

    ``programs`` are tried besides those of the corpus; ``tolerance`` is what inexact programs' results may differ by, as where a
    device sums in narrower numbers.  ``isolate`` runs programs in child processes, where they may crash.  What the back end
    refuses is no finding if it says why, and if it had said so when it was asked; but of a back end that refuses everything
    nothing is shown.
    """
    name = backend if isinstance(backend, str) else backend.name
    chosen = named_backend(name)
    reason = chosen.unavailable()
    if reason:
        raise HlojitError(f"the back end {name!r} cannot be used here: {reason}")
    recorder = Recorder("back end", name, budget_of(budget), seed, progress)
    trials = Trials(recorder, isolate)
    own = corpus_of(programs, seed=seed)
    every = [_tolerated(each, tolerance) for each in (*own, *corpus(seed=seed, count=recorder.budget.programs))]
    for program in every:
        group = _GROUPS.get(program.name.partition(" ")[0], "real programs")
        recorder.run(group, program.name, partial(trials.run, _trial(program), name, times=2), backend=name)
    _check_answers(chosen, every, recorder, trials, tolerance)
    _check_edges(name, recorder)
    _check_arrays(name, recorder)
    recorder.run(
        "threads",
        "programs at once",
        lambda: trials.threads(list(map(_trial, every[:8])), name, recorder.budget.threads),
    )
    _time(name, every, recorder)
    return recorder.report()


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
    """Each different instruction of the corpus, alone: what the back end answers, and whether it is so."""
    seen: set[object] = set()
    for program in every:
        for instruction in _instructions(program.module):
            key = (instruction.name, instruction.operand_types, instruction.result_types)
            if key in seen:
                continue
            seen.add(key)
            types = ", ".join(map(str, instruction.operand_types))
            name = f"{instruction.name}({types})"
            recorder.run(
                "answers", name, partial(_answer, backend, instruction, trials, tolerance), backend=backend.name
            )


def _instructions(module: Module) -> Iterator[Instruction]:
    """The entry function's own instructions on tensors, with what their regions hold."""
    for instruction in module.main.body:
        kinds = (*instruction.operand_types, *instruction.result_types)
        if not is_terminator(instruction) and all(isinstance(kind, TensorType) for kind in kinds):
            yield instruction


def _answer(backend: Backend, instruction: Instruction, trials: Trials, stated: Tolerance | None) -> int:
    answer = _asked(backend, instruction)
    if _asked(backend, instruction) != answer:
        raise Found(f"{backend.name} answers {instruction.name} once {answer} and then {_asked(backend, instruction)}")
    module = _alone(instruction)
    arrays = tuple(arguments_for(module, seed=trials.recorder.seed))
    if answer.support is Support.NO:
        return _refuses(backend, instruction, module, answer)
    if answer.support is Support.DECOMPOSE and not can_decompose(instruction):
        raise Found(
            f"{backend.name} answers DECOMPOSE to {instruction.name}, of which there is no expansion: no program with "
            "it compiles; answer no(reason), or YES",
            script(module, arrays, backend.name),
        )
    outcome = execute(module, backend.name, arrays) if not trials.isolate else None
    if outcome is not None and outcome.kind == "refused":
        if answer.support is Support.YES:
            raise Found(
                f"{backend.name} answers YES to {instruction.name} and then refuses it: {outcome.message}",
                script(module, arrays, backend.name),
            )
        raise Refused(f"what it is decomposed into is refused: {outcome.message.partition(chr(10))[0]}")
    usual = tolerance_for(module)
    tolerance = usual if stated is None or usual == EXACT else stated
    return trials.run(Trial(instruction.name, module, arrays, tolerance), backend.name)


def _asked(backend: Backend, instruction: Instruction) -> Capability:
    answer: object = backend.capability(instruction)
    if not isinstance(answer, Capability):
        raise Found(f"{backend.name} answers {answer!r} to {instruction.name}; answer YES, DECOMPOSE or no(reason)")
    return answer


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
    from hlojit.testing.bisection import reads_of

    reads = reads_of(instruction)
    module = Module()
    with build_function(module, "main", [value.type for value in reads]) as builder:
        copy = builder.block.append(clone_instruction(instruction, dict(zip(reads, builder.block.arguments))))
        builder.return_(*copy.results)
    return module


# ----------------------------------------------------------------------- edges

_EDGES = {
    "no arguments": "func.func @main() -> tensor<3xf32> {\n  %0 = stablehlo.constant dense<[1.0, -0.0, 3.0]> : tensor<3xf32>\n"
    "  return %0 : tensor<3xf32>\n}",
    "an argument returned": "func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {\n  return %x : tensor<5xf32>\n}",
    "an argument returned twice": "func.func @main(%x: tensor<5xi32>) -> (tensor<5xi32>, tensor<5xi32>) {\n"
    "  return %x, %x : tensor<5xi32>, tensor<5xi32>\n}",
    "an argument that nothing reads": "func.func @main(%x: tensor<5xf32>, %y: tensor<3xf32>) -> tensor<5xf32> {\n"
    "  %0 = stablehlo.abs %x : tensor<5xf32>\n  return %0 : tensor<5xf32>\n}",
    "no elements": "func.func @main(%x: tensor<0x4xf32>) -> tensor<0x4xf32> {\n  %0 = stablehlo.negate %x : tensor<0x4xf32>\n"
    "  return %0 : tensor<0x4xf32>\n}",
    "a scalar": "func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {\n  %0 = stablehlo.add %x, %y : tensor<f32>\n"
    "  return %0 : tensor<f32>\n}",
}


def _check_edges(name: str, recorder: Recorder) -> None:
    for what, text in _EDGES.items():
        recorder.run("edges", what, partial(_edge, text, name, recorder.seed))


def _edge(text: str, name: str, seed: int) -> int:
    """A program whose results are no views of its arguments, and which leaves these as they are."""
    module = parse(text)
    arrays = arguments_for(module, seed=seed)
    before = [array.copy() for array in arrays]
    meant = interpret(module, arrays)
    try:
        executable = compile_program(module, backend=name)
    except UnsupportedError as error:
        raise Refused(str(error).partition("\n")[0]) from None
    found = run_executable(executable, module, arrays)
    if found.results is None or meant.results is None:
        raise Found(found.describe(), script(module, arrays, name))
    for ours, theirs in zip(found.results, meant.results):
        if ours.tobytes() != theirs.tobytes():
            raise Found(f"gives {found.describe()}, expected {meant.describe()}", script(module, arrays, name))
    for given, kept in zip(arrays, before):
        if given.tobytes() != kept.tobytes():
            raise Found("it wrote to an argument", script(module, arrays, name))
    for result in found.results:
        if any(result.size and np.shares_memory(result, given) for given in arrays):
            raise Found("a result is a view of an argument", script(module, arrays, name))
    return len(found.results)


# ---------------------------------------------------------------------- arrays


def _check_arrays(name: str, recorder: Recorder) -> None:
    """Arrays of every element type go to the back end's devices and come back."""
    for device in devices(name):
        for element in element_types():
            if not isinstance(element, (BooleanType, IntegerType, FloatFormat, ComplexType)):
                continue  # what lies in several buffers is for who makes them
            recorder.run("arrays", f"{element} on {device}", partial(_there_and_back, device, element))


def _there_and_back(device: Device, element: ElementType) -> int:
    count = 0
    for shape in ((), (7,), (0, 3), (5, 4)):
        kind = tensor(shape, element)
        stored = made_up(kind, (3, len(shape)))
        outside = from_storage(stored, kind)
        back = get(put(outside, device))
        if storage_of(back, kind).tobytes() != stored.tobytes():
            raise Found(f"an array of {kind} that was put on {device} comes back as other bits")
        count += stored.size
    return count


def _time(name: str, every: Sequence[CorpusProgram], recorder: Recorder) -> None:
    """The real programs beside the CPU."""
    if name == "cpu":
        return
    for program in every[:3]:
        try:
            own, cpu = least_times([prepared(program.module, each, recorder.seed) for each in (name, "cpu")], 3)
        except HlojitError:
            continue
        recorder.timings.append(Timing(f"{program.name} on {name}", own, "cpu", cpu))
