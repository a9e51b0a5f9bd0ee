"""Trying a program on a back end: compared with what it means, shown small where it differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
from hlojit.extensions import Device
from hlojit.ir.environment import current
from hlojit.ir.graph import Module
from hlojit.testing.arguments import Values, arguments_for
from hlojit.testing.comparison import Tolerance, first_difference, lost_numbers
from hlojit.testing.execution import NDArray, Outcome, execute, isolated, meaning_of, result_types
from hlojit.testing.findings import FEW, Compared
from hlojit.testing.narrowing import smallest_program
from hlojit.testing.recorder import Found, Raised, Recorder, Refused, Unreached
from hlojit.testing.runs import Fault, fault_of, runs_of, where_known
from hlojit.testing.script import script, spelled_backend

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
    second: tuple[NDArray, ...] = ()
    """Other arguments, where a vendor says which make sense; otherwise they are made up."""

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
    stuck: list[str | Sequence[str]] = field(default_factory=list)
    """Back ends on which a program did not end."""

    def run(self, trial: Trial, backend: str | Sequence[str], *, times: int = 1) -> Compared:
        """Compare; how many elements.  ``times`` runs must give the same bits, whatever memory holds that nobody has written."""
        if backend in self.stuck:
            raise Unreached(f"a program before did not end on {spelled_backend(backend)}")
        meant = trial.meaning()
        if meant.results is None:
            raise Raised(f"nobody knows what it means: {meant.describe()}")
        others = list(_others(trial, meant)) if times > 1 or _tells_little(trial, meant) else []
        runs = runs_of(
            trial.module,
            backend,
            trial.arguments,
            times=times,
            others=[each.arguments for each, _ in others],
            isolate=self.isolate,
            seconds=self.recorder.budget.run_seconds,
        )
        if runs.first.kind == "refused":
            raise Refused(runs.first.message.partition("\n")[0])
        if runs.first.kind == "endless":
            self.stuck.append(backend)
        fault = fault_of(trial.module, runs, meant, trial.tolerance)
        if fault is not None:
            raise Found(
                f"{trial.name} on {spelled_backend(backend)}: {fault.text}", self._small(trial, backend, fault, times)
            )
        compared = _compared(trial, meant)
        for number, (other, means) in enumerate(others):
            if means.results is not None:
                outcome, run = runs.others[number], times + number + 1
                self._compare_other(other, means, outcome, run, backend)
                compared += _compared(other, means)
        if compared.count > FEW and compared.lost == compared.count:
            raise Unreached(f"all {compared.count} elements that were compared are NaN or infinite")
        return compared

    def _compare_other(
        self, trial: Trial, meant: Outcome, found: Outcome, run: int, backend: str | Sequence[str]
    ) -> None:
        """What came of other arguments, in the same executable."""
        assert meant.results is not None
        where = f"{trial.name} on {spelled_backend(backend)}: run {run}, with other arguments"
        if found.results is None:
            raise Found(f"{where}: {found.describe()}", self._script(trial, backend))
        known = list(map(where_known, found.results, meant.results))
        difference = first_difference(known, meant.results, result_types(trial.module), trial.tolerance)
        if difference is not None:
            fault = Fault("wrong", str(difference))
            raise Found(f"{where}: {fault.text}", self._small(trial, backend, fault, 1))

    def threads(
        self, trials: Sequence[Trial], backend: str | Sequence[str], count: int, places: Sequence[Device] = ()
    ) -> int:
        """Threads that compile and run all of the programs at once, each beginning with another one.

        Of several ``places`` each thread has its own, where its arguments lie.
        """
        if backend in self.stuck:
            raise Unreached(f"a program before did not end on {spelled_backend(backend)}")
        home = current()
        meant = [trial.meaning() for trial in trials]
        refused: list[str] = []

        def work(number: int) -> str:
            place = places[number % len(places)] if len(places) > 1 else None
            with home.activate():
                for step in range(len(trials)):
                    which = (step + number) % len(trials)
                    trial, wanted = trials[which], meant[which]
                    if wanted.results is None:
                        continue
                    found = execute(trial.module, backend, trial.arguments, place=place)
                    if found.kind == "refused":
                        refused.append(found.message.partition("\n")[0])
                        continue
                    if found.results is None:
                        return f"{trial.name}: {found.describe()}"
                    types = result_types(trial.module)
                    known = list(map(where_known, found.results, wanted.results))
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
            raise Found(f"with {count} threads at once on {spelled_backend(backend)}, {complaint}")
        known = sum(each.results is not None for each in meant) * count
        if known and known == len(refused):
            raise Refused(refused[0])
        if trials and not known:
            raise Raised("nobody knows what the programs mean")
        return known - len(refused)

    def _small(self, trial: Trial, backend: str | Sequence[str], fault: Fault, times: int) -> str:
        if not self.recorder.reduces or fault.kind == "endless":
            return self._script(trial, backend, with_patterns=fault.kind == "unwritten")
        return smallest_program(
            trial.module,
            trial.arguments,
            backend,
            tolerance=trial.tolerance,
            seconds=self.recorder.budget.reduction_seconds,
            times=times,
            progress=self.recorder.show,
        )

    def _script(self, trial: Trial, backend: str | Sequence[str], *, with_patterns: bool = False) -> str:
        return script(trial.module, trial.arguments, backend, with_patterns=with_patterns)


def _others(trial: Trial, meant: Outcome) -> Iterator[tuple[Trial, Outcome]]:
    """The program with other arguments, and what it means then.

    Plain numbers and larger ones, each for itself, where differences count beside the largest number of a result: beside f32's
    largest all others are alike.  Where that tells more than the first ones, plain numbers alone.
    """
    if trial.second:
        sets: list[Sequence[NDArray]] = [trial.second]
    elif trial.tolerance.scaled:
        sets = [arguments_for(trial.module, seed=1, values=each) for each in (Values.SPARSE, Values.LARGE)]
    elif _tells_little(trial, meant):
        sets = [arguments_for(trial.module, seed=1, values=Values.SPARSE)]
    else:
        sets = [[_in_another_order(array) for array in trial.arguments]]
    for arrays in sets:
        other = replace(trial, arguments=tuple(arrays))
        yield other, other.meaning()


def _tells_little(trial: Trial, meant: Outcome) -> bool:
    """Whether most results are NaN or infinite."""
    if meant.results is None:
        return False
    size = sum(each.size for each in meant.results)
    return size > FEW and 2 * lost_numbers(meant.results, result_types(trial.module)) > size


def _compared(trial: Trial, meant: Outcome) -> Compared:
    """How many elements were compared; an array without elements counts for its shape."""
    assert meant.results is not None
    known = sum(each.size - int(np.count_nonzero(np.ma.getmaskarray(each))) for each in meant.results)
    if not known and any(each.size for each in meant.results):
        raise Raised("it raises for every element that was tried")
    lost = lost_numbers([np.ma.getdata(each) for each in meant.results], result_types(trial.module))
    return Compared(known or 1, min(lost, known))


def _in_another_order(array: NDArray) -> NDArray:
    """Other arguments of the same kind of numbers."""
    return np.ascontiguousarray(array.reshape(-1)[::-1]).reshape(array.shape)
