"""``check_pass``: a pass keeps what programs mean, leaves them valid, and says whether it changed them.

check_pass(DivisionByConstant(), effect="exact").raise_if_failed()
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from hlojit.compiler import default_pipeline
from hlojit.extensions import CompileOptions, Pass, registry
from hlojit.extensions.elementwise_calls import one_compilation
from hlojit.ir.compare import structurally_equal
from hlojit.ir.environment import scope_for
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Module
from hlojit.ir.passes.pass_manager import PHASES
from hlojit.ir.verifier import collect_faults
from hlojit.testing.comparison import EXACT, Tolerance, first_difference
from hlojit.testing.corpus import CorpusProgram, corpus
from hlojit.testing.execution import NDArray, interpret, result_types
from hlojit.testing.recorder import Budget, Found, Recorder, Skipped, budget_of
from hlojit.testing.reduction import reduce_with_arguments
from hlojit.testing.report import Report

EFFECTS = {
    "exact": EXACT,
    "permitted": Tolerance(ulps=16, zeros=True, scaled=True),
    "approximates": Tolerance(ulps=1 << 14, zeros=True, scaled=True),
}
"""How far the results of a pass of each effect may be from those of the program as it was."""


def check_pass(
    pass_: Pass,
    programs: Iterable[CorpusProgram] | None = None,
    *,
    effect: str = "exact",
    backend: str = "cpu",
    seed: int = 0,
    budget: str | Budget = "quick",
    progress: bool | None = None,
) -> Report:
    """Run a pass on a corpus of real and random programs, as they are written and as they are in the pass's phase.

    ``effect`` says what it may do to numbers: ``exact`` (same bits), ``permitted`` (a freedom of the specification) or
    ``approximates``.  ``programs`` replaces the corpus; ``backend`` is the one whose passes run before.
    """
    if effect not in EFFECTS:
        raise HlojitError(f"effect={effect!r} is none of {', '.join(EFFECTS)}")
    recorder = Recorder("pass", pass_.name, budget_of(budget), seed, progress)
    chosen = list(programs) if programs is not None else corpus(seed=seed, count=recorder.budget.programs)
    check = _PassCheck(pass_, effect, backend, recorder)
    for program in chosen:
        for when, module in (("as written", program.module), ("in its phase", check.in_phase(program.module))):
            if module is not None:
                recorder.run(when, program.name, partial(check.keeps_meaning, program, module))
    recorder.run("reach", "changes a program of the corpus", lambda: _reached(check.changed))
    return recorder.report()


def _reached(changed: int) -> int:
    if not changed:
        raise Skipped("no program of the corpus is one for the pass: give programs= that are")
    return changed


class _PassCheck:
    def __init__(self, pass_: Pass, effect: str, backend: str, recorder: Recorder):
        self.pass_ = pass_
        self.effect = effect
        self.recorder = recorder
        self.pipeline = default_pipeline(registry().backend(backend), CompileOptions())
        self.changed = 0

    def in_phase(self, module: Module) -> Module | None:
        """The program as it is when the pass runs in a compilation; None if the passes before it fail."""
        earlier = PHASES[: PHASES.index(self.pass_.phase)]
        passes = tuple(each for each in self.pipeline.passes if each.phase in earlier and each.name != self.pass_.name)
        working = module.clone()
        try:
            with one_compilation():
                replace(self.pipeline, passes=passes).run(working)
        except HlojitError:
            return None
        return working

    def keeps_meaning(self, program: CorpusProgram, module: Module) -> int:
        """One program through the pass."""
        complaint = self.complaint(module, program.arguments)
        if not complaint:
            return sum(value.tensor_type.size for value in module.main.body.returned)
        small, arrays = module, list(program.arguments)
        if self.recorder.reduces:
            kind = complaint.partition(":")[0]
            small, arrays = reduce_with_arguments(
                module,
                arrays,
                lambda candidate, given: self.complaint(candidate, given).startswith(kind),
                seconds=self.recorder.budget.reduction_seconds,
            )
            complaint = self.complaint(small, arrays)
        raise Found(f"{self.pass_.name}: {complaint}", self._shown(small, arrays))

    def complaint(self, module: Module, arguments: Sequence[NDArray]) -> str:
        """What the pass does wrong to a program; empty if it does nothing wrong."""
        meant = interpret(module, arguments)
        if not meant.is_good or meant.results is None:
            return ""
        working, said, error = self._run(module)
        if error:
            return error
        faults = collect_faults(working)
        if faults:
            return f"invalid: it leaves an invalid program behind: {faults[0]}"
        is_changed = not structurally_equal(module, working)
        self.changed += is_changed
        if is_changed and said is False:
            return "silent: it changed the program and returned False"
        if working.main.type is not module.main.type:
            return f"signature: it made {working.main.type} of {module.main.type}"
        means = interpret(working, arguments)
        if means.results is None:
            return f"meaningless: what it leaves cannot be evaluated: {means.message}"
        tolerance = EFFECTS[self.effect]
        difference = first_difference(means.results, meant.results, result_types(module), tolerance)
        return f"wrong: {difference}" if difference is not None else ""

    def _run(self, module: Module) -> tuple[Module, object, str]:
        working = module.clone()
        scope = scope_for(module.environment).snapshot()
        try:
            with one_compilation(), scope.activate():
                said: object = copy.copy(self.pass_).run(working)
        except Exception as error:
            return working, None, f"raises: {type(error).__name__}: {error}"
        return working, said, ""

    def _shown(self, module: Module, arguments: Sequence[NDArray]) -> str:
        """A script that runs the pass on the program and prints both meanings."""
        from hlojit.testing.script import spelled, without_module_line

        arrays = ", ".join(
            spelled(array, argument.tensor_type) for array, argument in zip(arguments, module.main.body.arguments)
        )
        kind = type(self.pass_)
        brought = f"from {kind.__module__} import {kind.__qualname__}"
        brought = f"# with {kind.__qualname__}" if "<" in kind.__qualname__ else brought
        return "\n".join(
            [
                "import hlojit",
                "import numpy as np",
                "from hlojit.ir import evaluate",
                brought,
                "",
                f'module = hlojit.parse("""\n{without_module_line(str(module))}\n""")',
                f"arguments = [{arrays}]",
                "print(evaluate(module, *arguments))",
                f"{repr(self.pass_).replace(kind.__qualname__, kind.__name__)}.run(module)",
                "print(module, evaluate(module, *arguments))",
            ]
        )
