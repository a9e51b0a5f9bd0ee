"""Trying a program on a back end: compared with what it means, shown small where it differs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hlojit.extensions import Device
from hlojit.ir.environment import current
from hlojit.testing.comparison import first_difference, lost_numbers
from hlojit.testing.execution import NDArray, Outcome, execute, isolated, result_types
from hlojit.testing.findings import FEW, Compared
from hlojit.testing.narrowing import smallest_program
from hlojit.testing.recorder import Found, Raised, Recorder, Refused, Unreached
from hlojit.testing.runs import Fault, Runs, fault_of, fault_of_other, runs_of, where_known
from hlojit.testing.script import script, spelled_backend
from hlojit.testing.variation import Oracle, Trial, other_trials, tells_little

__all__ = ["Oracle", "Trial", "Trials"]


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
        others, alike = other_trials(trial, meant) if times > 1 or tells_little(trial, meant) else ([], "")
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
            program = self._small(trial, backend, fault, times)
            raise Found(f"{trial.name} on {spelled_backend(backend)}: {fault.text}", program)
        compared = replace(_compared(trial, meant), alike=alike)
        for number, (other, means) in enumerate(others):
            earlier = [trial.arguments, *(each.arguments for each, _ in others[:number])]
            self._compare_other(other, means, runs, number, backend, earlier)
            compared += _compared(other, means)
        if compared.count > FEW and compared.lost == compared.count:
            raise Unreached(f"all {compared.count} elements that were compared are NaN or infinite")
        return compared

    def _compare_other(
        self,
        other: Trial,
        meant: Outcome,
        runs: Runs,
        number: int,
        backend: str | Sequence[str],
        earlier: Sequence[Sequence[NDArray]],
    ) -> None:
        """What came of other arguments, in the same executable."""
        fault = fault_of_other(other.module, runs, number, meant, other.tolerance)
        if fault is not None:
            run = len(runs.again) + 1 + number
            where = f"{other.name} on {spelled_backend(backend)}: run {run}, with other arguments"
            raise Found(f"{where}: {fault.text}", self._small(other, backend, fault, 1, earlier))

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

    def _small(
        self,
        trial: Trial,
        backend: str | Sequence[str],
        fault: Fault,
        times: int,
        earlier: Sequence[Sequence[NDArray]] = (),
    ) -> str:
        """A script; ``earlier`` are arguments of calls in front of the one that is wrong."""
        said: dict[str, Any] = {"earlier": earlier}
        if not self.recorder.reduces or fault.kind == "endless":
            said["with_patterns"] = fault.kind == "unwritten"
            return script(trial.module, trial.arguments, backend, **said)
        return smallest_program(
            trial.module,
            trial.arguments,
            backend,
            tolerance=trial.tolerance,
            seconds=self.recorder.budget.reduction_seconds,
            times=times,
            progress=self.recorder.show,
            known=fault if trial.oracle is None else None,
            is_judged_apart=trial.oracle is not None,
            **said,
        )


def _compared(trial: Trial, meant: Outcome) -> Compared:
    """How many elements were compared; an array without elements counts for its shape."""
    assert meant.results is not None
    known = sum(each.size - int(np.count_nonzero(np.ma.getmaskarray(each))) for each in meant.results)
    if not known and any(each.size for each in meant.results):
        raise Raised("it raises for every element that was tried")
    lost = lost_numbers([np.ma.getdata(each) for each in meant.results], result_types(trial.module))
    return Compared(known or 1, min(lost, known))
