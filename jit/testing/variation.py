"""Other arguments for a program: what an executable keeps of its first call shows where they, and the results, differ.

others, reason = other_trials(trial, meant)
for other, means in others:      # the program with other arguments, and what it means then
    ...
reason                           # why an executable that keeps its first results could not be told; empty if it could
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from hlojit.ir.formats import BooleanType, ComplexType, ElementType
from hlojit.ir.graph import Module
from hlojit.ir.scalar.arrays import to_compute, to_storage
from hlojit.ir.types import TensorType
from hlojit.testing.arguments import Values, arguments_for, made_up
from hlojit.testing.comparison import Tolerance, first_difference, lost_numbers
from hlojit.testing.execution import Outcome, argument_types, meaning_of, result_types
from hlojit.testing.findings import FEW

NDArray = np.ndarray[Any, Any]

Oracle = Callable[..., Sequence[NDArray]]
"""``oracle(*arguments)`` gives a program's results; arrays in storage form."""

_TRIES: Final = 8
"""Seeds of arguments, of which one is to be another."""


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


def other_trials(trial: Trial, meant: Outcome) -> tuple[list[tuple[Trial, Outcome]], str]:
    """The program with other arguments, of which it is known what they give; and why that tells nothing, if it does not."""
    if not any(array.size for array in trial.arguments):
        return [], ""  # there is nothing that could be other
    known = [(other, means) for other, means in _with_meaning(trial, _sets(trial, meant)) if _is_known(means)]
    if not _is_told(trial, meant, known) and not trial.second:
        for each in _with_meaning(trial, _further_sets(trial)):
            if _is_known(each[1]) and _is_told(trial, meant, [each]):
                known.append(each)
                break
    if _is_told(trial, meant, known) or not any(each.size for each in meant.results or ()):
        return known, ""
    if not known:
        return [], "nobody knows what it gives for other arguments"
    if trial.second and all(map(_same, trial.second, trial.arguments)):
        return known, "arguments= gives the same arrays every time"
    return known, "it gives the same results for all arguments that were tried"


def varied(arguments: Sequence[NDArray], kinds: Sequence[TensorType]) -> list[NDArray]:
    """Other arguments of the same kind of numbers: in another order, and where that is the same, other numbers.

    Where none is negative, none becomes negative: it may be an index, a count, or under a root.
    """
    return [_varied(array, kind, place) for place, (array, kind) in enumerate(zip(arguments, kinds, strict=True))]


def differing(first: Sequence[NDArray], make: Callable[[int], Sequence[NDArray]]) -> list[NDArray]:
    """What ``make(number)`` gives where each array is another than the first one; else where most are."""
    made = [list(make(number)) for number in range(1, _TRIES + 1)]
    return max(made, key=lambda arrays: sum(not _same(*each) for each in zip(arrays, first)))


def tells_little(trial: Trial, meant: Outcome) -> bool:
    """Whether most results are NaN or infinite."""
    if meant.results is None:
        return False
    size = sum(each.size for each in meant.results)
    return size > FEW and 2 * lost_numbers(meant.results, result_types(trial.module)) > size


def _sets(trial: Trial, meant: Outcome) -> Iterator[Sequence[NDArray]]:
    """Plain numbers and larger ones, each for itself, where differences count beside the largest number of a result: beside
    f32's largest all others are alike.  Where that tells more than the first ones, plain numbers alone.  Of several arguments
    then some are the first ones and some others: an executable may know a call by one of them.
    """
    if trial.second:
        yield trial.second
        return
    kinds = argument_types(trial.module)
    if trial.tolerance.scaled:
        chosen = [arguments_for(trial.module, seed=1, values=each) for each in (Values.SPARSE, Values.LARGE)]
    elif tells_little(trial, meant):
        chosen = [arguments_for(trial.module, seed=1, values=Values.SPARSE)]
    else:
        chosen = [varied(trial.arguments, kinds)]
    for arrays in chosen:
        other = [
            _varied(array, kind, place) if _same(array, first) else array
            for place, (array, first, kind) in enumerate(zip(arrays, trial.arguments, kinds))
        ]
        yield other
    if len(other) > 1:
        for odd in (0, 1):
            yield [array if place % 2 == odd else trial.arguments[place] for place, array in enumerate(other)]


def _further_sets(trial: Trial) -> Iterator[Sequence[NDArray]]:
    for seed in range(2, 5):
        yield arguments_for(trial.module, seed=seed, values=Values.ORDINARY)


def _with_meaning(trial: Trial, sets: Iterator[Sequence[NDArray]]) -> Iterator[tuple[Trial, Outcome]]:
    for arrays in sets:
        other = replace(trial, arguments=tuple(arrays))
        yield other, other.meaning()


def _is_known(meant: Outcome) -> bool:
    """Whether there are results, and not masked all over."""
    if meant.results is None:
        return False
    masked = [np.ma.getmaskarray(each) for each in meant.results]
    return any(not each.all() for each in masked) or not any(each.size for each in masked)


def _is_told(trial: Trial, meant: Outcome, others: Sequence[tuple[Trial, Outcome]]) -> bool:
    """Whether the first results in the place of the others' would be seen."""
    first = [np.ma.getdata(each) for each in meant.results or ()]
    types = result_types(trial.module)
    return any(
        first_difference(first, [np.ma.getdata(each) for each in means.results or ()], types, trial.tolerance)
        is not None
        for _, means in others
    )


def _varied(array: NDArray, kind: TensorType, place: int) -> NDArray:
    turned = np.ascontiguousarray(array.reshape(-1)[::-1]).reshape(array.shape)
    if not _same(turned, array) or not array.size:
        return turned
    element = kind.element_type
    if isinstance(element, BooleanType):
        return np.logical_not(array)
    for number in range(1, _TRIES + 1):
        made = made_up(kind, (number, place), Values.ORDINARY)
        made = made if _has_negative(array, element) else _without_sign(made, element)
        if not _same(made, array):
            return made
    return turned


def _has_negative(array: NDArray, element: ElementType) -> bool:
    if isinstance(element, ComplexType):
        return True
    return bool(np.signbit(to_compute(array, element).astype(np.float64)).any())


def _without_sign(array: NDArray, element: ElementType) -> NDArray:
    with np.errstate(all="ignore"):
        return np.asarray(to_storage(np.abs(to_compute(array, element)), element))


def _same(array: NDArray, other: NDArray) -> bool:
    return array.tobytes() == other.tobytes()
