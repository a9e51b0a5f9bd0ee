"""``check_kernel``: a kernel computes what it took over, for every size beside its blocks, again and again, in threads.

check_kernel(FUSED_SOFTMAX, programs=[module]).raise_if_failed()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from hlojit.compiler import compile as compile_program
from hlojit.compiler import parse
from hlojit.extensions import hookimpl, using
from hlojit.extensions.kernels.kernel import Declined, Kernel, KernelGroup
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Module
from hlojit.testing.arguments import Values, arguments_for
from hlojit.testing.comparison import EXACT, Tolerance, tolerance_for
from hlojit.testing.corpus import corpus
from hlojit.testing.execution import NDArray, argument_types
from hlojit.testing.kernel_programs import anchor_programs, resized
from hlojit.testing.recorder import Budget, Found, Recorder, Unreached, budget_of
from hlojit.testing.report import Report
from hlojit.testing.stated import StatedArguments, stated_arguments
from hlojit.testing.trials import Trial, Trials


@dataclass
class Watched:
    """A kernel whose answers are written down."""

    kernel: Kernel
    built: int = 0
    declined: list[str] = field(default_factory=list)

    def watched(self) -> Kernel:
        """The kernel, with a ``build`` that is listened to."""
        build = self.kernel.build

        def listening(group: KernelGroup) -> Any:
            answer = build(group)
            if isinstance(answer, Declined):
                self.declined.append(answer.reason)
            else:
                self.built += 1
            return answer

        # Its own name may be taken: by the plugin that registers it.
        name = f"{self.kernel.name}.watched"
        return replace(self.kernel, name=name, build=listening, priority=max(self.kernel.priority, 1 << 20))


def check_kernel(
    kernel: Kernel,
    programs: Iterable[Module | str] = (),
    *,
    with_plugins: Sequence[Any] = (),
    resize: bool = True,
    arguments: StatedArguments | None = None,
    tolerance: Tolerance | None = None,
    seed: int = 0,
    budget: str | Budget = "quick",
    isolate: bool = True,
    progress: bool | None = None,
) -> Report:
    """Try a kernel on programs that hold what its pattern is for, in many sizes.

    ``programs`` are modules or texts; each is also tried with its sizes changed by one and to others beside powers of two
    (``resize=False``: in its own sizes alone).  Without them programs with the pattern's op are taken from hlojit's own and from
    the corpus.  ``arguments(types, random)`` makes arrays where not all numbers make sense; ``tolerance`` is what results may
    differ by.  ``with_plugins`` are registered, too.  Programs run in child processes where the system has such, since kernels
    may be native code; ``isolate`` says otherwise.
    """
    recorder = Recorder("kernel", kernel.name, budget_of(budget), seed, progress)
    trials = Trials(recorder, isolate)
    watch = Watched(kernel)
    plugin = SimpleNamespace(__name__="hlojit.testing kernels", hlojit_kernels=hookimpl(lambda: [watch.watched()]))
    with using(*with_plugins, plugin):
        making = _Making(resize, arguments, tolerance)
        every = list(_trials(kernel, programs, recorder, making))
        taken = []
        for trial in every:
            if _is_taken(trial, kernel, watch):
                taken.append(trial)
        recorder.run("reach", "programs that it takes", lambda: _reached(taken, watch))
        for trial in taken:
            recorder.run(
                "results", trial.name, partial(trials.run, trial, kernel.backend, times=3), backend=kernel.backend
            )
        if taken and recorder.failures == 0:
            count = recorder.budget.threads
            recorder.run("threads", "at once", lambda: trials.threads(taken[:6], kernel.backend, count))
    return recorder.report()


def _reached(taken: Sequence[Trial], watch: Watched) -> int:
    if taken:
        return len(taken)
    if watch.declined:
        raise Found(f"it declined whatever it was offered: {', '.join(dict.fromkeys(watch.declined))}")
    raise Unreached("no program holds what its pattern is for: give programs= that do")


def _is_taken(trial: Trial, kernel: Kernel, watch: Watched) -> bool:
    """Whether the kernel builds something for a program; a build that fails is found when the program is run."""
    before = watch.built
    try:
        compile_program(trial.module, backend=kernel.backend)
    except HlojitError:
        return True
    return watch.built > before


@dataclass(frozen=True)
class _Making:
    """How programs become trials."""

    resize: bool
    arguments: StatedArguments | None
    tolerance: Tolerance | None

    def trial(self, name: str, module: Module, seed: int) -> Trial:
        """A program with arguments of its own."""
        second: list[NDArray] = []
        if self.arguments is not None:
            second = stated_arguments(self.arguments, argument_types(module), seed + 1)
            arrays = stated_arguments(self.arguments, argument_types(module), seed)
        else:
            # Where the specification leaves no choice, that goes for NaN and infinities, too.
            special = tolerance_for(module) == EXACT
            arrays = arguments_for(module, seed=seed, values=Values.SPECIAL if special else Values.ORDINARY)
        tolerance = self.tolerance or tolerance_for(module)
        return Trial(name, module, tuple(arrays), tolerance, second=tuple(second))


def _trials(kernel: Kernel, programs: Iterable[Module | str], recorder: Recorder, making: _Making) -> Iterator[Trial]:
    given = list(programs)
    if given:
        for number, program in enumerate(given):
            module = parse(program) if isinstance(program, str) else program
            for name, made in resized(module, recorder.budget.sizes) if making.resize else [("", module)]:
                yield making.trial(f"program {number}{name}", made, recorder.seed)
        return
    op = next((found for name in ("op", "anchor", "root") if (found := getattr(kernel.pattern, name, ""))), "")
    for name, module in anchor_programs(op, recorder.budget.sizes):
        yield making.trial(name, module, recorder.seed)
    for each in corpus(seed=recorder.seed, count=recorder.budget.programs):
        if any(instruction.name == op for instruction in each.module.walk()):
            yield Trial(each.name, each.module, each.arguments, making.tolerance or each.tolerance)
