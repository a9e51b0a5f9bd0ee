"""What a call does behind the compiled program: it raises what was found, writes arguments, and gives results their forms.

The program returns the function's results, then the arrays that it wrote of its arguments, then the number of a failed check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from hlojit.arrays import Array
from hlojit.extensions.calls.host_texts import FIRST_TICKET, taken_message
from hlojit.ir.errors import ArgumentError
from hlojit.tracing.checks import Check
from hlojit.tracing.tracer import Tracer

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Form:
    """How one result is given back."""

    order: tuple[int, ...] | None = None
    """The transpose of what the program makes, for arrays that NumPy does not lay out by rows."""
    is_scalar: bool = False
    is_python_number: bool = False
    constant: Any = None
    """A number that was known when the function was traced, and is no result of the program."""
    is_constant: bool = False

    def of(self, result: Any) -> Any:
        """The result for the caller."""
        if self.order is not None:
            return result.transpose(self.order)
        if isinstance(result, Array):
            return result
        if self.is_python_number:
            return result.item()
        return result[()] if self.is_scalar else result


PLAIN: Final = Form()


@final
@dataclass(frozen=True)
class Write:
    """An argument that the function writes: the number of the array among the call's, and how messages call it."""

    leaf: int
    name: str
    is_donated: bool


@final
@dataclass(frozen=True)
class Outcome:
    """What is done with what a program returns."""

    forms: tuple[Form, ...]
    writes: tuple[Write, ...]
    checks: tuple[Check, ...]

    @property
    def is_plain(self) -> bool:
        """Whether the program's results are the function's as they are."""
        return not self.writes and not self.checks and all(form == PLAIN for form in self.forms)

    def require_writable(self, leaves: Sequence[Any]) -> None:
        """Raise before anything runs where an array that will be written may not be."""
        for write in self.writes:
            array = leaves[write.leaf]
            if not array.flags.writeable:
                raise ValueError(f"assignment destination is read-only: argument {write.name}")

    def _failure(self, number: int) -> BaseException:
        if number < FIRST_TICKET:
            return self.checks[number - 1].exception()
        number, noted = taken_message(number)
        return self.checks[number - 1].exception(noted)

    def results(self, made: Any, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """The function's results, after arguments were written."""
        given = list(made) if isinstance(made, tuple) else [made]
        if self.checks:
            failed = int(np.asarray(given.pop()))
            if failed:
                raise self._failure(failed)
        if self.writes:
            written = given[len(given) - len(self.writes) :]
            del given[len(given) - len(self.writes) :]
            for write, value in zip(self.writes, written):
                if not write.is_donated:
                    _write(leaves[write.leaf], value, write.name)
        values = iter(given)
        return tuple(form.constant if form.is_constant else form.of(next(values)) for form in self.forms)


def _write(target: NDArray, value: Any, name: str) -> None:
    """Store what a program wrote; in an array that has become another one meanwhile the numbers would be cast."""
    if not isinstance(value, np.ndarray):
        np.copyto(target, value)
        return
    is_same = target.shape == value.shape
    try:
        if is_same:
            # Asks for the type where it copies: a question before that would be answered too early.
            np.copyto(target, value, casting="equiv")
    except TypeError:
        is_same = False
    if not is_same:
        raise ArgumentError(
            f"argument {name}: it had shape {value.shape} and type {value.dtype} when the function began, and now has "
            f"{target.shape} and {target.dtype}, of another thread perhaps: nothing is written into it"
        )


def aliases(writes: Sequence[Write], leaves: Sequence[Any], names: Sequence[str]) -> tuple[int, ...] | None:
    """For each array of a call the first one that is the same memory; None if none that is written shares memory with another.

    Raises ``ArgumentError`` where a written one shares a part of its memory with another.
    """
    arrays = [(number, leaf) for number, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)]
    first = list(range(len(leaves)))
    found = False
    for write in writes:
        written = leaves[write.leaf]
        for number, other in arrays:
            if number == write.leaf or not np.may_share_memory(written, other):
                continue
            if _are_one(written, other):
                first[max(number, write.leaf)] = min(first[number], first[write.leaf])
                found = True
            elif _share(written, other):
                raise ArgumentError(
                    f"arguments {names[write.leaf]} and {names[number]} share a part of their memory, and the function writes "
                    f"{names[write.leaf]}: pass a copy of one of them"
                )
    return tuple(first) if found else None


def _are_one(a: NDArray, b: NDArray) -> bool:
    return (
        a.__array_interface__["data"] == b.__array_interface__["data"]
        and a.shape == b.shape
        and a.strides == b.strides
        and a.dtype == b.dtype
    )


def _share(a: NDArray, b: NDArray) -> bool:
    try:
        return bool(np.shares_memory(a, b, max_work=100_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def form_of(leaf: Any, order: tuple[int, ...] | None) -> Form:
    """How a result that was returned while tracing is given back."""
    if isinstance(leaf, Tracer):
        if leaf.weak is not None:
            return Form(is_python_number=True)
        return Form(is_scalar=True) if leaf.is_scalar else Form(order=order)
    if type(leaf) in (bool, int, float, complex, str, bytes) or isinstance(leaf, np.generic):
        return Form(constant=leaf, is_constant=True)
    return PLAIN
