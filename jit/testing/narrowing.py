"""Findings' programs made smaller: what a back end computes and the reference's meaning, apart with as little as possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Module
from hlojit.testing.comparison import EXACT, Tolerance
from hlojit.testing.execution import argument_types, meaning_of
from hlojit.testing.reduction import reduce_with_arguments
from hlojit.testing.runs import Fault, Runs, fault_of, fault_of_other, runs_of
from hlojit.testing.script import script, spelled_backend
from hlojit.testing.variation import varied

NDArray = np.ndarray[Any, Any]

TRIES: Final = 3
"""Runs in one of which a finding is to come back; what comes back in none of them comes and goes."""
_LEAST_SECONDS: Final = 5.0
_NEED_CHILD: Final = ("crash", "endless")

Places = tuple[int, ...]
_CALLS: Final[tuple[tuple[Places, ...], ...]] = (((),), ((1,),), ((0,),), ((), (1,), (0,)))
"""Calls in front of one that is wrong only behind others: in each even places (0), odd ones (1) or none have its arguments."""


def smallest_program(
    module: Module,
    arguments: Sequence[NDArray],
    backend: str | Sequence[str],
    *,
    tolerance: Tolerance = EXACT,
    seconds: float = 10.0,
    times: int = 2,
    progress: Callable[[str], None] | None = None,
    earlier: Sequence[Sequence[NDArray]] = (),
    known: Fault | None = None,
    is_judged_apart: bool = False,
) -> str:
    """A script: the smallest program found within ``seconds`` on which the back end differs from the meaning, or fails.

    The whole program, if these agree: then what is right was ``is_judged_apart`` from the reference, or it does not happen every
    time, which the script says.  ``earlier`` are arguments of the calls in front, where one call alone may be right; ``known``
    is the fault that was found.
    """
    until = time.monotonic() + seconds
    search = _Search(backend, tolerance, times, max(_LEAST_SECONDS, seconds), known)
    first, tries = search.first(module, arguments), 1
    for calls in _CALLS if first is None and earlier else ():
        search.calls = calls
        first = search.first(module, arguments)
        if first is not None:
            break
    while first is None and tries < TRIES and time.monotonic() < until and not is_judged_apart:
        first, tries = search.first(module, arguments), tries + 1
    if first is None:
        reason = _not_reproduced(module, arguments, backend, tries, is_judged_apart=is_judged_apart)
        return script(module, arguments, backend, f"not made smaller: {reason}", earlier=earlier)
    if first.kind == "endless":
        return script(module, arguments, backend, first.text)
    left = max(0.0, until - time.monotonic())
    try:
        small, arrays = reduce_with_arguments(
            module, arguments, lambda *given: search.shows(first, *given), seconds=left, progress=progress
        )
    except HlojitError:
        return script(
            module, arguments, backend, f"it comes and goes: {first.text}", earlier=search.earlier(module, arguments)
        )
    last, before = search.fault(small, arrays), search.earlier(small, arrays)
    if last is None:
        return script(module, arguments, backend, f"it comes and goes: {first.text}", earlier=before)
    found = last.text if last.kind != "wrong" else search.results(small, arrays)
    expected = f"found:    {found}\nexpected: {meaning_of(small, arrays).describe()}"
    return script(small, arrays, backend, expected, with_patterns=first.kind == "unwritten", earlier=before)


@dataclass
class _Search:
    """What is wrong with candidates, in the first call or in one behind ``calls``."""

    backend: str | Sequence[str]
    tolerance: Tolerance
    times: int
    limit: float
    known: Fault | None
    isolate: bool = False
    calls: Sequence[Places] = ()

    def first(self, module: Module, arguments: Sequence[NDArray]) -> Fault | None:
        """In a child first: it may crash, or never end.  What does so there alone is seen here."""
        self.isolate = True
        found = self.fault(module, arguments)
        self.isolate = found is not None and found.kind in _NEED_CHILD
        if self.isolate and self.known is not None and self.known.kind not in _NEED_CHILD:
            self.isolate = False
            found = self.fault(module, arguments)
        return found

    def shows(self, first: Fault, module: Module, arrays: Sequence[NDArray]) -> bool:
        found = self.fault(module, arrays)
        return found is not None and found.is_like(first)

    def fault(self, module: Module, arrays: Sequence[NDArray]) -> Fault | None:
        wanted = meaning_of(module, arrays)
        if not wanted.is_good:
            return None
        said: dict[str, Any] = {"isolate": self.isolate, "seconds": self.limit}
        if self.calls:
            return fault_of_other(module, self.last(module, arrays, **said), -1, wanted, self.tolerance)
        runs = runs_of(module, self.backend, arrays, times=self.times, **said)
        return fault_of(module, runs, wanted, self.tolerance)

    def last(self, module: Module, arrays: Sequence[NDArray], **said: Any) -> Runs:
        """Runs with the calls in front, of which the last is the one that counts."""
        first, *more = self.earlier(module, arrays)
        return runs_of(module, self.backend, first, others=[*more, arrays], **said)

    def earlier(self, module: Module, arrays: Sequence[NDArray]) -> list[list[NDArray]]:
        """Arguments of the calls in front: other ones, but in some places."""
        others = varied(arrays, argument_types(module)) if self.calls else []
        return [
            [same if number % 2 in places else other for number, (same, other) in enumerate(zip(arrays, others))]
            for places in self.calls
        ]

    def results(self, module: Module, arrays: Sequence[NDArray]) -> str:
        """What is found, in a line."""
        if self.calls:
            runs = self.last(module, arrays, isolate=self.isolate)
            return (runs.others or (runs.first,))[-1].describe()
        return runs_of(module, self.backend, arrays, isolate=self.isolate).first.describe()


def _not_reproduced(
    module: Module, arguments: Sequence[NDArray], backend: str | Sequence[str], tries: int, *, is_judged_apart: bool
) -> str:
    """Why a fault that was found is not seen beside the reference."""
    meant = meaning_of(module, arguments)
    if not meant.is_good:
        return f"the reference has no result: {meant.message}"
    if is_judged_apart:
        # What is right, an oracle or exact arithmetic has said: only for this program and these arguments.
        return (
            f"the reference computes what {spelled_backend(backend)} does; what is right was worked out apart from both"
        )
    return f"it did not come back in {tries} more run{'' if tries == 1 else 's'}"
