"""Several runs of one executable, and what is wrong with them.

    runs = runs_of(module, "cpu", arguments, times=2)
    fault = fault_of(module, runs, meaning, tolerance)
    fault.kind, fault.text           # "unwritten", "result 0[4] is 1.5e+16, and nan when ..."

In each run memory that nobody has written, and memory beside the arguments, holds other bytes: what depends on them differs.
"""

from __future__ import annotations

import contextvars
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hlojit.compiler import compile as compile_program
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Module
from hlojit.testing.comparison import EXACT, Difference, Tolerance, first_difference
from hlojit.testing.execution import NDArray, Outcome, isolated, result_types, run_executable
from hlojit.testing.memory import PATTERNS, Fillings, Guarded, unwritten_memory

_SHAPES: Final = re.compile(r"tensor<(?:[^<>]|<[^<>]*>)*>|[(\[](?:\d+(?:, ?)?)+[)\]]|%[\w#]+|0x[0-9a-f]+|\d+")
"""What becomes another where a program is made smaller: types, shapes, values' names, numbers."""


@dataclass(frozen=True)
class Runs:
    """Outcomes of one executable: the ``first``, more ``again`` with the same arguments, and those of ``others``.

    ``first`` is a copy of its time; what the run returned itself stands in front of ``again``.  ``has_repeated``: one more run
    with the bytes of the first gave the bits of the first.  ``trespass`` is what was written beside results, and
    ``trespasses`` what was in each of the runs of ``others``.
    """

    first: Outcome
    again: tuple[Outcome, ...] = ()
    others: tuple[Outcome, ...] = ()
    has_repeated: bool = True
    trespass: str = ""
    trespasses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fault:
    """What is wrong with runs: its ``kind`` in a word, and a line; ``marks`` tell it from other faults of its kind."""

    kind: str
    text: str
    marks: tuple[str, ...] = ()

    def is_like(self, other: Fault) -> bool:
        """Whether it may be ``other`` in a program that was made smaller: a failure that says the same, but for shapes."""
        return self.kind == other.kind and (not other.marks or other.marks[0] in self.marks)


def failure(outcome: Outcome) -> Fault:
    """A fault without results."""
    return Fault(outcome.kind, outcome.describe(), (gist(outcome.message),))


def gist(message: object) -> str:
    """What a message says of any program: its first line without types, shapes and numbers."""
    return _SHAPES.sub("_", str(message).partition("\n")[0])


def unequal(difference: Difference) -> Fault:
    """A fault of a result."""
    return Fault("wrong", str(difference), difference.marks)


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
    """What a function returns, or None if it takes longer: it goes on, on a thread that nobody waits for.

    Memory that it has filled with bytes is given out as before then.
    """
    found: list[Runs] = []
    failed: list[BaseException] = []
    context = contextvars.copy_context()
    fillings = Fillings()
    context.run(fillings.begin)

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
    if not found:
        fillings.give_up()
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
        first, trespass = _run(executable, module, Guarded(arguments, PATTERNS[0]), PATTERNS[0])
        if first.results is None:
            return Runs(first)
        kept, first = first, _copied(first)
        again = [kept]
        for number in range(1, times):
            byte = PATTERNS[number % len(PATTERNS)]
            outcome, wrote = _run(executable, module, Guarded(arguments, byte), byte)
            again.append(outcome)
            trespass = trespass or wrote
        has_repeated = True
        if any(not same_bits(each, first) for each in again[1:]):
            has_repeated = same_bits(_run(executable, module, Guarded(arguments, PATTERNS[0]), PATTERNS[0])[0], first)
        last = _with_others(executable, module, arguments, others)
    except UnsupportedError as error:
        return Runs(Outcome(None, "refused", str(error)))
    except Exception as error:
        return Runs(Outcome(None, "error", f"{type(error).__name__}: {error}"))
    outcomes, trespasses = tuple(each for each, _ in last), tuple(wrote for _, wrote in last)
    return Runs(first, tuple(again), outcomes, has_repeated, trespass, trespasses)


def _with_others(
    executable: Any, module: Module, arguments: Sequence[NDArray], others: Sequence[Sequence[NDArray]]
) -> list[tuple[Outcome, str]]:
    """Runs with other arguments, in the memory of a run with the first ones."""
    if not others:
        return []
    byte = PATTERNS[-1]
    memory = Guarded(arguments, byte)
    _run(executable, module, memory, byte)
    made = []
    for each in others:
        memory.fill(each, byte)
        outcome, wrote = _run(executable, module, memory, byte)
        made.append((_copied(outcome) if outcome.results is not None else outcome, wrote))
    return made


def _run(executable: Any, module: Module, guarded: Guarded, byte: int) -> tuple[Outcome, str]:
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
        return failure(first)
    if runs.trespass:
        return Fault("wrote", runs.trespass)
    for number, again in enumerate(runs.again, 1):
        if not same_bits(again, first):
            return _unlike(module, runs, number)
    assert wanted.results is not None
    return _wrong(module, first, wanted, tolerance)


def fault_of_other(module: Module, runs: Runs, number: int, wanted: Outcome, tolerance: Tolerance) -> Fault | None:
    """What is wrong with the run with other arguments of that number, for which the program means ``wanted``."""
    if runs.first.results is None:
        return failure(runs.first)
    found = runs.others[number]
    if found.results is None:
        return failure(found)
    if runs.trespasses[number]:
        return Fault("wrote", runs.trespasses[number])
    return _wrong(module, found, wanted, tolerance)


def _wrong(module: Module, found: Outcome, wanted: Outcome, tolerance: Tolerance) -> Fault | None:
    assert found.results is not None
    assert wanted.results is not None
    known = [where_known(ours, theirs) for ours, theirs in zip(found.results, wanted.results)]
    difference = first_difference(known, wanted.results, result_types(module), tolerance)
    return unequal(difference) if difference is not None else None


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
