"""Several runs of one executable, and what is wrong with them.

    runs = runs_of(module, "cpu", arguments, times=2)
    fault = fault_of(module, runs, meaning, tolerance)
    fault.kind, fault.text           # "unwritten", "result 0[4] is 1.5e+16, and nan when ..."

In each run memory that nobody has written, and memory beside the arguments, holds other bytes: what depends on them differs.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hlojit.compiler import compile as compile_program
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Module
from hlojit.testing.comparison import EXACT, Tolerance, first_difference
from hlojit.testing.execution import NDArray, Outcome, isolated, result_types, run_executable
from hlojit.testing.memory import PATTERNS, Guarded, unwritten_memory


@dataclass(frozen=True)
class Runs:
    """Outcomes of one executable: the ``first``, more ``again`` with the same arguments, and those of ``others``.

    ``first`` is a copy of its time; what the run returned itself stands in front of ``again``.  ``has_repeated``: one more run
    with the bytes of the first gave the bits of the first.  ``trespass`` is what was written beside results.
    """

    first: Outcome
    again: tuple[Outcome, ...] = ()
    others: tuple[Outcome, ...] = ()
    has_repeated: bool = True
    trespass: str = ""


@dataclass(frozen=True)
class Fault:
    """What is wrong with runs: its ``kind`` in a word, and a line."""

    kind: str
    text: str


def runs_of(
    module: Module,
    backend: str | Sequence[str],
    arguments: Sequence[NDArray],
    *,
    times: int = 1,
    others: Sequence[Sequence[NDArray]] = (),
    isolate: bool = False,
    seconds: float = 60.0,
) -> Runs:
    """Compile and run; no exception but ``KeyboardInterrupt`` leaves.  With ``isolate`` in a child process, which may crash.

    What has not ended after ``seconds`` counts as endless.
    """

    def made() -> Runs:
        return _runs(module, backend, arguments, times, others)

    if not isolate:
        ended = _within(seconds, made)
        return ended if ended is not None else Runs(_endless(seconds))
    child = isolated(lambda say: made(), seconds=seconds)
    if child.reason:
        return Runs(Outcome(None, "endless" if "did not end" in child.reason else "crash", child.reason))
    found: Runs = child.value
    return found


def _endless(seconds: float) -> Outcome:
    return Outcome(None, "endless", f"did not end within {seconds:g} s")


def _within(seconds: float, function: Callable[[], Runs]) -> Runs | None:
    """What a function returns, or None if it takes longer: it goes on, on a thread that nobody waits for."""
    found: list[Runs] = []
    failed: list[BaseException] = []
    context = contextvars.copy_context()

    def work() -> None:
        try:
            found.append(context.run(function))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="hlojit-testing-run", daemon=True)
    thread.start()
    thread.join(seconds)
    for error in failed:
        raise error
    return found[0] if found else None


def _runs(
    module: Module,
    backend: str | Sequence[str],
    arguments: Sequence[NDArray],
    times: int,
    others: Sequence[Sequence[NDArray]],
) -> Runs:
    try:
        executable = compile_program(module, backend=backend)
        first, trespass = _run(executable, module, arguments, PATTERNS[0])
        if first.results is None:
            return Runs(first)
        kept, first = first, _copied(first)
        again = [kept]
        for number in range(1, times):
            outcome, wrote = _run(executable, module, arguments, PATTERNS[number % len(PATTERNS)])
            again.append(outcome)
            trespass = trespass or wrote
        has_repeated = True
        if any(not same_bits(each, first) for each in again[1:]):
            has_repeated = same_bits(_run(executable, module, arguments, PATTERNS[0])[0], first)
        last = [_run(executable, module, each, PATTERNS[-1])[0] for each in others]
    except UnsupportedError as error:
        return Runs(Outcome(None, "refused", str(error)))
    except Exception as error:
        return Runs(Outcome(None, "error", f"{type(error).__name__}: {error}"))
    return Runs(first, tuple(again), tuple(last), has_repeated, trespass)


def _run(executable: Any, module: Module, arguments: Sequence[NDArray], byte: int) -> tuple[Outcome, str]:
    guarded = Guarded(arguments, byte)
    with unwritten_memory(byte):
        outcome = run_executable(executable, module, guarded.arrays)
    trespass = guarded.complaint()
    if outcome.results is not None and not trespass:
        lent = (n for n, each in enumerate(outcome.results) if any(_shares(each, array) for array in guarded.arrays))
        trespass = next((f"its result {number} is a view of an argument" for number in lent), "")
    return outcome, trespass


def _shares(result: NDArray, argument: NDArray) -> bool:
    return bool(result.size) and np.shares_memory(result, argument)


def _copied(outcome: Outcome) -> Outcome:
    assert outcome.results is not None
    return Outcome(tuple(each.copy() for each in outcome.results))


def same_bits(found: Outcome, other: Outcome) -> bool:
    """Whether two runs gave the same bytes."""
    if found.results is None or other.results is None:
        return False
    return all(a.tobytes() == b.tobytes() for a, b in zip(found.results, other.results))


def fault_of(module: Module, runs: Runs, wanted: Outcome, tolerance: Tolerance) -> Fault | None:
    """What is wrong with runs, ``wanted`` being what the program means for the first arguments."""
    first = runs.first
    if first.results is None:
        return Fault(first.kind, first.describe())
    if runs.trespass:
        return Fault("wrote", runs.trespass)
    for number, again in enumerate(runs.again, 1):
        if not same_bits(again, first):
            return _unlike(module, runs, number)
    assert wanted.results is not None
    known = [where_known(ours, theirs) for ours, theirs in zip(first.results, wanted.results)]
    difference = first_difference(known, wanted.results, result_types(module), tolerance)
    return Fault("wrong", str(difference)) if difference is not None else None


def _unlike(module: Module, runs: Runs, number: int) -> Fault:
    """The same arguments, and other bits."""
    again, first = runs.again[number - 1], runs.first
    if again.results is None:
        return Fault("fails", f"run {number} fails where the first did not: {again.describe()}")
    if number == 1:
        return Fault("unstable", "what the first run returned does not stay: a later one writes to it")
    assert first.results is not None
    difference = first_difference(again.results, first.results, result_types(module), EXACT)
    what = f"run {number} gives other bits than the first: {difference.between(number) if difference else 'of a NaN'}"
    if not runs.has_repeated:
        return Fault("unstable", f"{what}; it is another result every time")
    return Fault(
        "unwritten",
        f"{what}. Only memory that nobody has written, and memory beside the arguments, holds other bytes then: these elements "
        "are not written, or are made of such memory",
    )


def where_known(found: NDArray, meant: NDArray) -> NDArray:
    """What was found, but what was meant where an oracle says (by a mask) that it does not know."""
    if not isinstance(meant, np.ma.MaskedArray) or found.shape != meant.shape:
        return found
    return np.where(np.ma.getmaskarray(meant), meant.data, found).astype(found.dtype)
