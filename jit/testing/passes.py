"""``check_pass``: a pass keeps what programs mean, leaves them valid, and says whether it changed them.

check_pass(DivisionByConstant(), effect="exact").raise_if_failed()
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from hlojit.compiler import default_pipeline, parse
from hlojit.extensions import CompileOptions, Pass, registry
from hlojit.extensions.calls.elementwise_calls import one_compilation
from hlojit.ir.compare import structurally_equal
from hlojit.ir.environment import scope_for
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Module
from hlojit.ir.passes.pass_manager import PHASES
from hlojit.ir.time_limit import call_within
from hlojit.ir.verifier import collect_faults
from hlojit.testing.arguments import Values, arguments_for
from hlojit.testing.comparison import EXACT, Tolerance, first_difference, lost_numbers
from hlojit.testing.corpus import CorpusProgram, corpus, corpus_of, of_module
from hlojit.testing.effects import PROGRAMS, Effect, first_change, has_effects
from hlojit.testing.execution import NDArray, interpret, meaning_of, result_types
from hlojit.testing.findings import FEW, Compared
from hlojit.testing.recorder import Budget, Found, Raised, Recorder, Unchanged, Unreached, budget_of
from hlojit.testing.reduction import reduce_with_arguments
from hlojit.testing.report import Report
from hlojit.testing.runs import Fault, gist, unequal

EFFECTS = {
    "exact": EXACT,
    "permitted": Tolerance(ulps=16, zeros=True, scaled=True),
    "approximates": Tolerance(ulps=1 << 14, zeros=True, scaled=True),
}
"""How far the results of a pass of each effect may be from those of the program as it was; of the last one if it says nothing."""

MOST_SECONDS = 30.0
"""That a pass may take for a program of the corpus."""


def check_pass(
    pass_: Pass,
    programs: Iterable[CorpusProgram | Module | str] | None = None,
    *,
    effect: str = "",
    error_bound: float = 0.0,
    backend: str = "",
    seed: int = 0,
    budget: str | Budget = "quick",
    progress: bool | None = None,
) -> Report:
    """Run a pass on a corpus of real and random programs, as they are written and as they are in the pass's phase.

    ``effect`` says what it may do to numbers: ``exact`` (same bits), ``permitted`` (a freedom of the specification) or
    ``approximates``, then by no more than ``error_bound``, relative to the largest finite number of a result; by default what
    the pass declares (``numeric_effect``), and ``exact`` if it says nothing.  ``programs`` replaces the corpus: modules, texts,
    or programs of a corpus.  ``backend`` is the one whose passes run before, by default the first that the pass is for.
    A program that the pass leaves as it is shows nothing; the verdict counts those that it changed and whose results were
    compared: fewer than a quarter of all, and fewer than four, are hardly anything.
    """
    chosen_effect = effect or pass_.numeric_effect or "exact"
    if chosen_effect not in EFFECTS:
        raise HlojitError(f"effect={effect!r} is none of {', '.join(EFFECTS)}")
    recorder = Recorder("pass", pass_.name, budget_of(budget), seed, progress)
    bound = error_bound or (pass_.error_bound if chosen_effect == "approximates" else 0.0)
    tolerance = Tolerance(ulps=1, zeros=True, scaled=True, relative=bound) if bound else EFFECTS[chosen_effect]
    check = _PassCheck(pass_, tolerance, backend or _backend_of(pass_), recorder)
    own = None if programs is None else corpus_of(programs, seed=seed)
    usual = (*corpus(seed=seed, count=recorder.budget.programs), *_with_effects(seed))
    for program in usual if own is None else own:
        recorder.run("as written", program.name, partial(check.keeps_meaning, program, program.module))
        recorder.run("in its phase", program.name, partial(check.keeps_meaning_in_phase, program))
    return recorder.report(effect=f"{chosen_effect}, within {bound:g}" if bound else chosen_effect)


def _with_effects(seed: int) -> Iterator[CorpusProgram]:
    for name, text in PROGRAMS.items():
        yield of_module(name, parse(text), seed=seed, values=Values.SMALL)


def _backend_of(pass_: Pass) -> str:
    """The first back end that a pass is for and that is here."""
    return next((name for name in pass_.targets if name in registry().backends), "cpu")


class _PassCheck:
    def __init__(self, pass_: Pass, tolerance: Tolerance, backend: str, recorder: Recorder):
        self.pass_ = pass_
        self.tolerance = tolerance
        self.recorder = recorder
        self.pipeline = default_pipeline(registry().backend(backend), CompileOptions())
        self.changes = False
        """Whether the pass changed the last program that it was given."""
        self.is_endless = False
        self.compared = Compared(0)
        """What was compared last."""

    def keeps_meaning_in_phase(self, program: CorpusProgram) -> Compared:
        """One program as it is when the pass runs in a compilation."""
        return self.keeps_meaning(program, self.in_phase(program.module))

    def in_phase(self, module: Module) -> Module:
        """The program as it is when the pass runs in a compilation."""
        earlier = PHASES[: PHASES.index(self.pass_.phase)]
        passes = tuple(each for each in self.pipeline.passes if each.phase in earlier and each.name != self.pass_.name)
        working = module.clone()
        try:
            with one_compilation():
                replace(self.pipeline, passes=passes).run(working)
        except HlojitError as error:
            raise Unreached(f"the passes in front of it fail: {error}".partition("\n")[0]) from None
        return working

    def keeps_meaning(self, program: CorpusProgram, module: Module) -> Compared:
        """One program through the pass; with plain numbers too, where those of the corpus make NaN of most results."""
        compared = self._kept(module, program.arguments)
        if compared.count > FEW and 2 * compared.lost > compared.count:
            compared += self._kept(module, arguments_for(module, seed=1, values=Values.SPARSE))
        if compared.count > FEW and compared.lost == compared.count:
            raise Unreached(f"all {compared.count} elements that were compared are NaN or infinite")
        return compared

    def _kept(self, module: Module, arguments: Sequence[NDArray]) -> Compared:
        if self.is_endless:
            raise Unreached("the pass did not end for a program before")
        fault = self.fault(module, arguments)
        if fault is None:
            if not self.changes:
                raise Unchanged("the pass leaves the program as it is")
            return self.compared
        small, arrays = module, list(arguments)
        if self.recorder.reduces and not self.is_endless:
            first = fault
            try:
                small, arrays = reduce_with_arguments(
                    module,
                    arrays,
                    lambda *given: (found := self.fault(*given)) is not None and found.is_like(first),
                    seconds=self.recorder.budget.reduction_seconds,
                    progress=self.recorder.show,
                )
                fault = self.fault(small, arrays) or fault
            except HlojitError:
                again = "it did not come back when the pass ran again"
                fault = replace(fault, text=f"{fault.text} (not made smaller: {again})")
        raise Found(f"{self.pass_.name}: {fault.kind}: {fault.text}", self._shown(small, arrays))

    def fault(self, module: Module, arguments: Sequence[NDArray]) -> Fault | None:
        """What the pass does wrong to a program; None if it does nothing wrong."""
        self.changes = False
        expected: list[Effect] = []
        found: list[Effect] = []
        is_told = has_effects(module)
        meant = interpret(module, arguments, expected) if is_told else meaning_of(module, arguments)
        if meant.results is None:
            raise Raised(f"nobody knows what the program means: {meant.describe()}")
        working, said, error = self._run(module)
        if error is not None:
            return error
        faults = collect_faults(working)
        if faults:
            return Fault("invalid", f"it leaves an invalid program behind: {faults[0]}", (gist(faults[0]),))
        self.changes = not structurally_equal(module, working)
        if self.changes and said is False:
            return Fault("silent", "it changed the program and returned False")
        if working.main.type is not module.main.type:
            return Fault("signature", f"it made {working.main.type} of {module.main.type}")
        means = interpret(working, arguments, found) if is_told else meaning_of(working, arguments)
        if means.results is None:
            text = f"what it leaves cannot be evaluated: {means.message}"
            return Fault("meaningless", text, (gist(means.message),))
        if change := first_change(found, expected):
            return Fault("effects", change)
        types = result_types(module)
        self.compared = Compared(sum(each.size for each in meant.results), lost_numbers(meant.results, types))
        difference = first_difference(means.results, meant.results, types, self.tolerance)
        return unequal(difference) if difference is not None else None

    def _run(self, module: Module) -> tuple[Module, object, Fault | None]:
        working = module.clone()
        scope = scope_for(module.environment).snapshot()
        start = time.monotonic()
        try:
            with one_compilation(), scope.activate():
                said: object = call_within(MOST_SECONDS, lambda: self.pass_.name, copy.copy(self.pass_).run, working)
        except Exception as error:
            self.is_endless = time.monotonic() - start >= MOST_SECONDS
            text = f"{type(error).__name__}: {error}"
            return working, None, Fault("raises", text, (gist(text),))
        return working, said, None

    def _shown(self, module: Module, arguments: Sequence[NDArray]) -> str:
        """A script that runs the pass on the program and prints both meanings."""
        from hlojit.testing.script import spelled, without_module_line

        arrays = ", ".join(
            spelled(array, argument.tensor_type) for array, argument in zip(arguments, module.main.body.arguments)
        )
        kind = type(self.pass_)
        brought = f"from {kind.__module__} import {kind.__qualname__}"
        brought = f"# with {kind.__qualname__}" if "<" in kind.__qualname__ else brought
        # Nobody knows what calls with effects give.
        means = "" if has_effects(module) else "evaluate(module, *arguments)"
        return "\n".join(
            [
                "import hlojit",
                "import numpy as np",
                "from hlojit.ir import evaluate",
                brought,
                "",
                f'module = hlojit.parse("""\n{without_module_line(str(module))}\n""")',
                f"arguments = [{arrays}]",
                f"print({means or 'module'})",
                f"{_spelled(self.pass_)}.run(module)",
                f"print({', '.join(filter(None, ('module', means)))})",
            ]
        )


def _spelled(pass_: Pass) -> str:
    """A pass as an expression; where its fields have none, what it looks like stands in a comment."""
    kind = type(pass_)
    text = repr(pass_).replace(kind.__qualname__, kind.__name__)
    try:
        compile(text, "pass", "eval")
    except SyntaxError:
        return f"# {' '.join(text.split())}\n{kind.__name__}(...)"
    return text
