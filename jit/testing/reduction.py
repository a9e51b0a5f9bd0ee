"""The test-case reducer: the smallest program that still shows something.

    small = reduce(module, lambda module: crashes(module))
    small, arrays = reduce_with_arguments(module, arrays, lambda module, arrays: differs(module, arrays))

Delta debugging over results, instructions, operands, regions, functions, constants, arguments' elements and shapes
(``hlojit.testing.reduction_steps`` has the steps).  Every program that the predicate sees is valid; what the reducer returns,
too.  Where arguments are given, an instruction may become an argument that holds what it computed, so that what stands behind
it is seen with the same numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hlojit.compiler import parse
from hlojit.ir.environment import scope_for
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Module
from hlojit.ir.verifier import collect_faults
from hlojit.testing.reduction_steps import STEPS, Candidate, Step, inlined, tidied
from hlojit.testing.signatures import of_parts

NDArray = np.ndarray[Any, Any]
Predicate = Callable[[Module], bool]
PredicateWithArguments = Callable[[Module, Sequence[NDArray]], bool]
Progress = Callable[[str], None]


def reduce(
    program: Module | str, predicate: Predicate, *, seconds: float = 60.0, progress: Progress | None = None
) -> Module:
    """The smallest module found within ``seconds`` for which ``predicate`` holds.

    ``predicate`` is given valid modules, which it may not change; what it raises counts as "does not hold".  Raises
    ``HlojitError`` if it does not hold for ``program`` itself, or if that is no valid program.
    """
    module = parse(program) if isinstance(program, str) else program
    found = _Reducer(lambda each: predicate(each.module), seconds, progress).run(Candidate(module.clone(), None))
    return found.module


def reduce_with_arguments(
    program: Module | str,
    arguments: Sequence[NDArray],
    predicate: PredicateWithArguments,
    *,
    seconds: float = 60.0,
    progress: Progress | None = None,
    steps: Sequence[Step] = STEPS,
) -> tuple[Module, list[NDArray]]:
    """The same for a program and its arguments (arrays in storage form), which are made smaller together.

    Arguments and results in blocks become their parts: ``hlojit.testing.signatures``.
    """
    start = Candidate(*of_parts(parse(program) if isinstance(program, str) else program, arguments))
    found = _Reducer(lambda each: predicate(each.module, each.arguments or []), seconds, progress, steps).run(start)
    return found.module, list(found.arguments or [])


class _Reducer:
    """Tries candidates until no step makes the program smaller, or the time is over."""

    def __init__(
        self,
        holds: Callable[[Candidate], bool],
        seconds: float,
        progress: Progress | None,
        steps: Sequence[Step] = STEPS,
    ):
        self.holds = holds
        self.until = time.monotonic() + seconds
        self.progress = progress
        self.steps = steps
        self.seen: set[object] = set()
        self.tried = 0
        self.dead_code = False

    def run(self, start: Candidate) -> Candidate:
        faults = collect_faults(start.module)
        if faults:
            raise HlojitError(f"only valid programs are made smaller: {faults[0]}")
        if not self.holds(start):
            raise HlojitError("the predicate does not hold for the program that is to be made smaller")
        tidy = self._accepted(tidied(start))
        # What is to be shown may be in code that nothing reads: then that stays until a step takes it away.
        self.dead_code = tidy is None
        best = tidy or self._accepted(tidied(start, dead_code=True)) or start
        if len(best.module.functions) > 1:
            best = self._accepted(tidied(inlined(best), dead_code=self.dead_code)) or best
        while time.monotonic() < self.until:
            improved = False
            for step in self.steps:
                while (better := self._improved(best, step)) is not None:
                    best, improved = better, True
            if not improved:
                break
        return best

    def _improved(self, best: Candidate, step: Step) -> Candidate | None:
        """The first candidate of a step that is smaller and still shows it."""
        size = best.size
        with scope_for(best.module.environment).activate():
            for candidate in step(best):
                if time.monotonic() > self.until:
                    return None
                tidy = tidied(candidate, dead_code=self.dead_code)
                if tidy.size < size and (accepted := self._accepted(tidy)):
                    return accepted
        return None

    def _accepted(self, candidate: Candidate) -> Candidate | None:
        key = candidate.key
        if key in self.seen:
            return None
        self.seen.add(key)
        if collect_faults(candidate.module):
            return None
        self.tried += 1
        try:
            holds = self.holds(candidate)
        except Exception:
            holds = False
        if holds and self.progress is not None:
            self.progress(f"{candidate.count} instructions, {self.tried} tried")
        return candidate if holds else None
