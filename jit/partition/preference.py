"""Another choice than by costs, for whoever tries splits: small programs are worth no transfer, and would never be split.

with preferring(lambda number: number % 2):
    hlojit.compile(text, backend=["nova", "cpu"])       # instructions by turns, where both take them
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

Choose = Callable[[int], int]
"""The number of the back end that is to take the instruction of a number, counted as they are asked about."""

_FAR: Final = 1e9
"""Nanoseconds that any other back end is taken to need besides: more than transfers cost."""
_choose: Final[ContextVar[Choose | None]] = ContextVar("choose", default=None)


@contextmanager
def preferring(choose: Choose) -> Iterator[None]:
    """Split programs that are compiled meanwhile as ``choose`` says, where the back end that it names takes an instruction."""
    token = _choose.set(choose)
    try:
        yield
    finally:
        _choose.reset(token)


def preferred(costs: Sequence[float], number: int) -> tuple[float, ...]:
    """The costs of an instruction with what is preferred."""
    choose = _choose.get()
    member = -1 if choose is None else choose(number)
    if choose is None or costs[member] == math.inf:
        return tuple(costs)
    return tuple(cost if other == member else cost + _FAR for other, cost in enumerate(costs))
