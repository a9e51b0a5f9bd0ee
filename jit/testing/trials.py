"""Trying a program on a back end: compared with what it means, shown small where it differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from hlojit.compiler import compile as compile_program
from hlojit.ir.environment import current
from hlojit.ir.graph import Module
from hlojit.testing.comparison import Tolerance, first_difference
from hlojit.testing.execution import (
    NDArray,
    Outcome,
    execute,
    execute_isolated,
    isolated,
    meaning_of,
    result_types,
    run_executable,
)
from hlojit.testing.narrowing import smallest_program
from hlojit.testing.recorder import Found, Raised, Recorder, Refused
from hlojit.testing.script import script

Oracle = Callable[..., Sequence[NDArray]]
"""``oracle(*arguments)`` gives a program's results; arrays in storage form."""


@dataclass(frozen=True)
class Trial:
    """A program with arguments (storage form); ``oracle`` says what it means where it is not the reference that does."""

    name: str
    module: Module
    arguments: tuple[NDArray, ...]
    tolerance: Tolerance
    oracle: Oracle | None = None

    def meaning(self) -> Outcome:
        """What comes out of it: by the oracle, the records' semantics, or the reference back end, which expands."""
        if self.oracle is not None:
            try:
                return Outcome(tuple(self.oracle(*self.arguments)))
            except Exception as error:
                return Outcome(None, "error", f"the oracle raises {type(error).__name__}: {error}")
        return meaning_of(self.module, self.arguments)


@dataclass
class Trials:
    """Runs trials and raises what they find."""

    recorder: Recorder
    isolate: bool = False
    """Whether programs run in a child process, since they may crash."""

    def run(self, trial: Trial, backend: str, *, times: int = 1) -> int:
        """Compare; the number of elements compared.  ``times`` runs must give the same bits."""
        meant = trial.meaning()
        if meant.results is None:
            raise Raised(f"nobody knows what it means: {meant.describe()}")
        found = (execute_isolated if self.isolate else execute)(trial.module, backend, trial.arguments)
        if found.kind == "refused":
            raise Refused(found.message.partition("\n")[0])
        if found.results is None:
            raise Found(f"{trial.name} on {backend}: {found.describe()}", self._small(trial, backend))
        types = result_types(trial.module)
        known = list(map(_where_known, found.results, meant.results))
        difference = first_difference(known, meant.results, types, trial.tolerance)
        if difference is not None:
            raise Found(f"{trial.name} on {backend}: {difference}", self._small(trial, backend))
        if times > 1:
            self._again(trial, backend, found, times)
        return _compared(meant.results)

    def _again(self, trial: Trial, backend: str, first: Outcome, times: int) -> None:
        """More calls of one executable: the same bits for the same arguments, others' own, and what was returned stays."""
        others = [_in_another_order(array) for array in trial.arguments]
        meant = replace(trial, arguments=tuple(others)).meaning()

        def calls() -> str:
            executable = compile_program(trial.module, backend=backend)
            kept = [run_executable(executable, trial.module, trial.arguments) for _ in range(times)]
            between = run_executable(executable, trial.module, others) if meant.results is not None else meant
            for number, again in enumerate(kept, 2):
                if again.results is None or not _same_bits(again, first):
                    return f"run {number} gives other bits than the first, or they do not stay"
            return (
                self._complaint(trial, between, meant, f"run {times + 2}, with other arguments")
                if meant.is_good
                else ""
            )

        if self.isolate:
            ended = isolated(lambda say: calls())
            complaint = ended.reason or ended.value
        else:
            complaint = calls()
        if complaint:
            raise Found(f"{trial.name} on {backend}: {complaint}", script(trial.module, trial.arguments, backend))

    def _complaint(self, trial: Trial, found: Outcome, meant: Outcome, what: str) -> str:
        if found.results is None or meant.results is None:
            return f"{what}: {found.describe()}"
        known = list(map(_where_known, found.results, meant.results))
        difference = first_difference(known, meant.results, result_types(trial.module), trial.tolerance)
        return f"{what}: {difference}" if difference is not None else ""

    def threads(self, trials: Sequence[Trial], backend: str, count: int) -> int:
        """Threads that compile and run all of the programs at once, each beginning with another one."""
        home = current()
        meant = [trial.meaning() for trial in trials]
        refused: list[str] = []

        def work(number: int) -> str:
            with home.activate():
                for step in range(len(trials)):
                    place = (step + number) % len(trials)
                    trial, wanted = trials[place], meant[place]
                    if wanted.results is None:
                        continue
                    found = execute(trial.module, backend, trial.arguments)
                    if found.kind == "refused":
                        refused.append(found.message.partition("\n")[0])
                        continue
                    if found.results is None:
                        return f"{trial.name}: {found.describe()}"
                    types = result_types(trial.module)
                    known = list(map(_where_known, found.results, wanted.results))
                    difference = first_difference(known, wanted.results, types, trial.tolerance)
                    if difference is not None:
                        return f"{trial.name}: {difference}"
            return ""

        def at_once() -> tuple[str, list[str]]:
            with ThreadPoolExecutor(count) as pool:
                return next(filter(None, pool.map(work, range(count))), ""), refused

        if self.isolate:
            ended = isolated(lambda say: at_once())
            complaint, refused = (ended.reason, []) if ended.reason else ended.value
        else:
            complaint, refused = at_once()
        if complaint:
            raise Found(f"with {count} threads at once on {backend}, {complaint}")
        known = sum(each.results is not None for each in meant) * count
        if known and known == len(refused):
            raise Refused(refused[0])
        if trials and not known:
            raise Raised("nobody knows what the programs mean")
        return known - len(refused)

    def _small(self, trial: Trial, backend: str) -> str:
        if not self.recorder.reduces:
            return script(trial.module, trial.arguments, backend)
        seconds = self.recorder.budget.reduction_seconds
        return smallest_program(trial.module, trial.arguments, backend, tolerance=trial.tolerance, seconds=seconds)


def _where_known(found: NDArray, meant: NDArray) -> NDArray:
    """What was found, but what was meant where an oracle says (by a mask) that it does not know."""
    if not isinstance(meant, np.ma.MaskedArray) or found.shape != meant.shape:
        return found
    return np.where(np.ma.getmaskarray(meant), meant.data, found).astype(found.dtype)


def _compared(meant: Sequence[NDArray]) -> int:
    """How many elements were compared; an array without elements counts for its shape."""
    known = sum(each.size - int(np.count_nonzero(np.ma.getmaskarray(each))) for each in meant)
    if not known and any(each.size for each in meant):
        raise Raised("it raises for every element that was tried")
    return known or 1


def _in_another_order(array: NDArray) -> NDArray:
    """Other arguments of the same kind of numbers."""
    return np.ascontiguousarray(array.reshape(-1)[::-1]).reshape(array.shape)


def _same_bits(found: Outcome, other: Outcome) -> bool:
    assert found.results is not None
    assert other.results is not None
    return all(a.tobytes() == b.tobytes() for a, b in zip(found.results, other.results))
