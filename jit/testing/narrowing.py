"""Findings' programs made smaller: what a back end computes and the reference's meaning, apart with as little as possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Module
from hlojit.testing.comparison import EXACT, Tolerance
from hlojit.testing.execution import meaning_of
from hlojit.testing.reduction import reduce_with_arguments
from hlojit.testing.runs import Fault, fault_of, runs_of
from hlojit.testing.script import script

NDArray = np.ndarray[Any, Any]

TRIES: Final = 3
"""Runs in one of which a finding is to come back; what comes back in none of them comes and goes."""
_LEAST_SECONDS: Final = 5.0


def smallest_program(
    module: Module,
    arguments: Sequence[NDArray],
    backend: str | Sequence[str],
    *,
    tolerance: Tolerance = EXACT,
    seconds: float = 10.0,
    times: int = 2,
    progress: Callable[[str], None] | None = None,
) -> str:
    """A script: the smallest program found within ``seconds`` on which the back end differs from the meaning, or fails.

    The whole program, if these agree: then both are wrong, or it does not happen every time, which the script says.
    """
    until = time.monotonic() + seconds
    limit = max(_LEAST_SECONDS, seconds)
    isolate = False

    def fault(candidate: Module, arrays: Sequence[NDArray]) -> Fault | None:
        wanted = meaning_of(candidate, arrays)
        if not wanted.is_good:
            return None
        found = runs_of(candidate, backend, arrays, times=times, isolate=isolate, seconds=limit)
        return fault_of(candidate, found, wanted, tolerance)

    # In a child first: it may crash, or never end.
    isolate = True
    first = fault(module, arguments)
    isolate = first is not None and first.kind in ("crash", "endless")
    tries = 1
    while first is None and tries < TRIES and time.monotonic() < until:
        first, tries = fault(module, arguments), tries + 1
    if first is None:
        meant = meaning_of(module, arguments)
        if not meant.is_good:
            return script(module, arguments, backend, f"not made smaller: the reference has no result: {meant.message}")
        # Of a program that an oracle or another run has found wrong.
        return script(module, arguments, backend, f"not made smaller: it did not come back in {_times(tries)}")
    if first.kind == "endless":
        return script(module, arguments, backend, first.text)
    kind = first.kind

    def shows(candidate: Module, arrays: Sequence[NDArray]) -> bool:
        found = fault(candidate, arrays)
        return found is not None and found.kind == kind

    left = max(0.0, until - time.monotonic())
    try:
        small, arrays = reduce_with_arguments(module, arguments, shows, seconds=left, progress=progress)
    except HlojitError:
        return script(module, arguments, backend, f"it comes and goes: {first.text}")
    wanted = meaning_of(small, arrays)
    last = fault(small, arrays)
    if last is None:
        return script(module, arguments, backend, f"it comes and goes: {first.text}")
    expected = f"found:    {_found(small, arrays, backend, last, isolate)}\nexpected: {wanted.describe()}"
    return script(small, arrays, backend, expected, with_patterns=kind == "unwritten")


def _found(module: Module, arrays: Sequence[NDArray], backend: str | Sequence[str], fault: Fault, isolate: bool) -> str:
    if fault.kind != "wrong":
        return fault.text
    return runs_of(module, backend, arrays, isolate=isolate).first.describe()


def _times(count: int) -> str:
    return f"{count} more run{'' if count == 1 else 's'}"
