"""The machine model: what plans know about caches, speed and number of cores, as plain data with a stable text.

    machine = parse_machine("L1=48K/12 L2=2M/16 L3=105M/15/56 cores=56 fma=2")
    machine.first.size, machine.level_for(rows=1024, stride=4096, width=192)

``hlojit.cpu.machine`` reads the model of the machine at hand; a test, or the switch ``HLOJIT_MACHINE``, gives another.
Blocking, packing and the size of tasks derive from it.  The order in which sums are combined never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from hlojit.ir.errors import HlojitError

PRODUCT_EFFICIENCY = 0.93
"""Part of the multiply-adds that a processor can begin which a product reaches."""
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Cache:
    """One level of data cache: bytes, ways, bytes of a line, processors that share it, and its speed in cycles."""

    size: int
    ways: int
    shared: int = 1
    latency: float = 14.0
    """Cycles from a load to its value."""
    bandwidth: float = 32.0
    """Bytes that one core reads in a cycle."""
    line: int = 64

    @property
    def sets(self) -> int:
        """Number of sets: addresses that are ``sets * line`` apart compete for the same ways."""
        return max(1, self.size // (self.ways * self.line))

    @property
    def share(self) -> int:
        """Bytes for one of the processors that share it."""
        return self.size // self.shared

    def ways_needed(self, rows: int, stride: int, width: int) -> int:
        """Ways that ``rows`` pieces of ``width`` bytes, ``stride`` bytes apart, take in the fullest set.

        >>> Cache(32 << 10, 8).ways_needed(rows=1024, stride=4096, width=192)
        1024
        >>> Cache(32 << 10, 8).ways_needed(rows=64, stride=4160, width=192)
        3
        """
        return _fullest(self.sets, self.line, min(rows, 1 << 14), stride, width)

    def holds(self, rows: int, stride: int, width: int) -> bool:
        """Whether such rows stay in the cache, one way in four left to others."""
        return self.ways_needed(rows, stride, width) <= self.ways - max(1, self.ways // 4)


@lru_cache(maxsize=1024)
def _fullest(sets: int, line: int, rows: int, stride: int, width: int) -> int:
    """How many lines of some rows of memory fall into the fullest of ``sets``."""
    starts = np.arange(rows, dtype=np.int64) * stride
    first, last = starts // line, (starts + width - 1) // line
    lines = first[:, None] + np.arange(int((last - first).max(initial=0)) + 1)
    return int(np.bincount(lines[lines <= last[:, None]] % sets).max(initial=0))


@dataclass(frozen=True, slots=True)
class Machine:
    """Caches from the first level on, cores, and the speed of what plans weigh against each other.

    Speeds are estimates: measured ones would differ from run to run, and with them plans and the keys of kernels.
    """

    caches: tuple[Cache, ...]
    cores: int = 2
    gigahertz: float = 4.0
    multiply_adds: float = 2.0
    """Multiply-adds of whole native vectors that begin in a cycle."""
    memory_latency: float = 400.0
    """Cycles."""
    memory_bandwidth: float = 40.0
    """Bytes a nanosecond that one core reads."""
    pages: int = 1024
    """Pages whose translation is at hand without a walk through memory."""
    page_bytes: int = 4096
    fork_nanoseconds: float = 300.0
    """Time to hand a launch to other threads and to wait for them."""

    @property
    def first(self) -> Cache:
        """The first level."""
        return self.caches[0]

    @property
    def second(self) -> Cache:
        """The level behind the first: what one core has for itself, or the larger part of it."""
        return self.caches[min(1, len(self.caches) - 1)]

    @property
    def last(self) -> Cache:
        """The last level."""
        return self.caches[-1]

    def level_for(self, rows: int, stride: int, width: int) -> int:
        """The first level (from 0) whose sets hold rows that lie ``stride`` bytes apart; ``len(caches)`` for memory."""
        for level, cache in enumerate(self.caches):
            if cache.holds(rows, stride, width):
                return level
        return len(self.caches)

    def latency(self, level: int) -> float:
        """Cycles of a load from a level; ``len(caches)`` is memory."""
        return self.caches[level].latency if level < len(self.caches) else self.memory_latency

    def bandwidth(self, level: int) -> float:
        """Bytes a cycle that one core reads from a level."""
        if level < len(self.caches):
            return self.caches[level].bandwidth
        return self.memory_bandwidth / self.gigahertz

    def nanoseconds(self, cycles: float) -> float:
        """Time of so many cycles."""
        return cycles / self.gigahertz

    def product_nanoseconds(self, vectors: float) -> float:
        """Time of the multiply-adds of ``vectors`` whole native vectors, as well as products keep a processor busy."""
        return vectors / (PRODUCT_EFFICIENCY * self.multiply_adds * self.gigahertz)

    @property
    def task_nanoseconds(self) -> float:
        """What a task should take, so that handing it out costs little."""
        return 200 / 3 * self.fork_nanoseconds

    @property
    def parallel_nanoseconds(self) -> float:
        """Launches that take less altogether run on the calling thread."""
        return 20 * self.fork_nanoseconds

    @property
    def grain_nanoseconds(self) -> float:
        """What one thread takes at a time, at least."""
        return 40 / 3 * self.fork_nanoseconds

    @property
    def most_tasks(self) -> int:
        """Tasks of a launch beyond which a finer cut balances nothing more."""
        return max(64, 4 * self.cores)

    def __str__(self) -> str:
        """The model as ``parse_machine`` reads it."""
        parts = [
            f"L{number}={_size(cache.size)}/{cache.ways}/{cache.shared}/{cache.latency:g}/{cache.bandwidth:g}/{cache.line}"
            for number, cache in enumerate(self.caches, 1)
        ]
        parts += [f"{key}={getattr(self, name):g}" for key, name in _NUMBERS.items()]
        return " ".join(parts)


_NUMBERS = {
    "cores": "cores",
    "ghz": "gigahertz",
    "fma": "multiply_adds",
    "latency": "memory_latency",
    "bandwidth": "memory_bandwidth",
    "pages": "pages",
    "page": "page_bytes",
    "fork": "fork_nanoseconds",
}

GENERIC = Machine(
    (
        Cache(32 << 10, 8, latency=5, bandwidth=64),
        Cache(1 << 20, 8),
        Cache(32 << 20, 16, 8, latency=50, bandwidth=20),
    )
)
"""A machine of which nothing is known."""


def parse_machine(text: str, base: Machine = GENERIC) -> Machine:
    """A machine from ``key=value`` words; what they leave out is taken from ``base``.

    ``L1=``, ``L2=``, ``L3=`` give ``size/ways/shared/latency/bandwidth/line`` (``48K/12``), whose end may be left out; the other
    keys are ``cores``, ``ghz``, ``fma`` (vectors a cycle), ``latency`` and ``bandwidth`` of memory,
    ``pages`` at hand and bytes of a ``page``, ``fork`` (nanoseconds).
    """
    caches = list(base.caches)
    numbers: dict[str, float | int] = {}
    for word in text.replace(",", " ").split():
        key, _, value = word.partition("=")
        try:
            if key in _NUMBERS:
                numbers[_NUMBERS[key]] = int(value) if key in ("cores", "pages", "page") else float(value)
                if not 0 < numbers[_NUMBERS[key]] < 1e18:
                    raise ValueError
                continue
            level = int(key.removeprefix("L"))
            if not key.startswith("L") or not 1 <= level <= len(caches) + 1:
                raise ValueError
            cache = _parse_cache(value.split("/"), caches[min(level, len(caches)) - 1])
        except ValueError:
            raise HlojitError(
                f"HLOJIT_MACHINE: {word!r} is not understood; write for example 'L1=48K/12 L2=2M/16 cores=8 fma=2' "
                f"(keys L1, L2, L3 and {', '.join(_NUMBERS)}; values above zero)"
            ) from None
        caches[level - 1 : level] = [cache]
    return replace(base, caches=tuple(caches), **numbers)  # type: ignore[arg-type]


def _parse_cache(words: Sequence[str], base: Cache) -> Cache:
    numbers = [float(word) for word in words[1:]]
    if not 1 <= len(words) <= 6 or any(not number > 0 for number in numbers):
        raise ValueError
    size = _bytes(words[0])
    names = ("ways", "shared", "latency", "bandwidth", "line")
    whole = ("ways", "shared", "line")
    fields = {name: int(n) if name in whole else n for name, n in zip(names, numbers)}
    return replace(base, size=size, **fields)  # type: ignore[arg-type]


def _bytes(text: str) -> int:
    unit = _UNITS.get(text[-1:].upper(), 1)
    size = int(text[:-1] if unit > 1 else text) * unit
    if size <= 0:
        raise ValueError
    return size


def _size(size: int) -> str:
    for letter, unit in reversed(_UNITS.items()):
        if size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)
