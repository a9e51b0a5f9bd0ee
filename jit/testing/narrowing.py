"""Findings' programs made smaller: what a back end computes and the reference's meaning, apart with as little as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Module
from hlojit.testing.comparison import EXACT, Tolerance, first_difference
from hlojit.testing.execution import Outcome, execute, execute_isolated, meaning_of, result_types
from hlojit.testing.reduction import reduce_with_arguments
from hlojit.testing.script import script

NDArray = np.ndarray[Any, Any]


def smallest_program(
    module: Module,
    arguments: Sequence[NDArray],
    backend: str,
    *,
    against: str = "",
    tolerance: Tolerance = EXACT,
    seconds: float = 10.0,
) -> str:
    """A script: the smallest program on which the back end still differs from the meaning (or from ``against``), or fails.

    The whole program, if these agree: then both are wrong.
    """
    first = execute_isolated(module, backend, arguments)
    crashes = first.kind in ("crash", "endless")

    def shows(candidate: Module, arrays: Sequence[NDArray]) -> bool:
        wanted = _meaning(candidate, arrays, against)
        if not wanted.is_good:
            return False
        found = (execute_isolated if crashes else execute)(candidate, backend, arrays)
        return found.kind == first.kind and is_wrong(candidate, found, wanted, tolerance)

    try:
        small, arrays = reduce_with_arguments(module, arguments, shows, seconds=seconds)
    except HlojitError:
        return script(module, arguments, backend)  # both are wrong, or it does not happen every time
    wanted = _meaning(small, arrays, against)
    found = (execute_isolated if crashes else execute)(small, backend, arrays)
    return script(small, arrays, backend, f"found:    {found.describe()}\nexpected: {wanted.describe()}")


def _meaning(module: Module, arguments: Sequence[NDArray], against: str) -> Outcome:
    meaning = meaning_of(module, arguments)
    return execute(module, against, arguments) if against and meaning.kind != "endless" else meaning


def is_wrong(module: Module, found: Outcome, wanted: Outcome, tolerance: Tolerance) -> bool:
    """Whether there is no result, or another one."""
    if found.results is None or wanted.results is None:
        return True
    return first_difference(found.results, wanted.results, result_types(module), tolerance) is not None
