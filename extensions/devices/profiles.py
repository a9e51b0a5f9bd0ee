"""What devices say about how long their parts of programs took, while somebody asks.

    with hlojit.profile() as profile:
        executable(x, w)
    print(profile)                          # device, kernel or instruction, how often, nanoseconds of the device's clock

Devices of machines (``InterpretedBackend``) record each instruction and each kernel, the parts of a split program are recorded
as a whole, and a vendor's own ``Device.execute`` records what it likes::

    if (profile := profiling()) is not None:
        profile.add(Timing(str(self), "nova.matmul", program.name, driver.nanoseconds(mark)))
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, final

_active: Final[ContextVar[Profile | None]] = ContextVar("hlojit_profile", default=None)


@final
@dataclass(frozen=True, slots=True)
class Timing:
    """One run of something on a device: what it is (an op, a kernel, a segment), its place in the program, and nanoseconds."""

    device: str
    what: str
    place: str
    nanoseconds: float


@final
@dataclass(frozen=True, slots=True)
class Total:
    """All runs of one thing on a device."""

    device: str
    what: str
    place: str
    runs: int
    nanoseconds: float


@final
class Profile:
    """What was recorded, in the order in which it ended; ``print`` shows the totals, the longest first."""

    def __init__(self) -> None:
        self.timings: list[Timing] = []

    def add(self, timing: Timing) -> None:
        """Record a run; safe to use from every thread."""
        self.timings.append(timing)

    def totals(self) -> list[Total]:
        """By device, thing and place, the longest first."""
        found: dict[tuple[str, str, str], list[float]] = {}
        for each in list(self.timings):
            found.setdefault((each.device, each.what, each.place), []).append(each.nanoseconds)
        totals = [Total(*key, len(times), sum(times)) for key, times in found.items()]
        return sorted(totals, key=lambda total: -total.nanoseconds)

    def __str__(self) -> str:
        totals = self.totals()
        if not totals:
            return "nothing was recorded: no device that measures its parts has run"
        width = max(len(each.what) for each in totals)
        devices = max(len(each.device) for each in totals)
        return "\n".join(
            f"{each.nanoseconds:14,.0f} ns  {each.runs:6} x  {each.device:{devices}}  {each.what:{width}}  {each.place}".rstrip()
            for each in totals
        )


@contextmanager
def profile() -> Iterator[Profile]:
    """Record what devices say in the block's context, threads of devices that work for it included.

    Programs take longer meanwhile: machines with streams wait for each instruction, so that its time is its own.
    """
    made = Profile()
    token = _active.set(made)
    try:
        yield made
    finally:
        _active.reset(token)


def profiling() -> Profile | None:
    """What is to be recorded in, or None: nobody asks."""
    return _active.get()
