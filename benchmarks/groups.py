"""What anchored groups and prologues gain in whole programs: turns with groups, and with each kernel by itself.

python -m benchmarks.groups [NAME ...] [--repeat 30] [--one-thread]

A group is a product or a convolution with what follows it (bias, activation, residual) and what computes its streamed operand,
as one launch; without groups each of them is a kernel.  Times are the least, and the median, of runs that take turns; results
must be the same bits.  ``--one-thread`` takes processor time on one processor, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import hlojit
import numpy as np
from hlojit.cpu.backend import CpuBackend

from benchmarks.programs import REAL_PROGRAMS

NAMES = ("gpt2_forward", "gpt2_decode", "resnet50")


@dataclass
class Way:
    """A program compiled with groups or without, and how long its runs took."""

    program: Any
    seconds: list[float] = field(default_factory=list)

    def run(self, arguments: list[Any], clock: Callable[[], float]) -> Any:
        """One run, timed."""
        start = clock()
        found = self.program(*arguments)
        self.seconds.append(clock() - start)
        return found

    def __str__(self) -> str:
        least, median = min(self.seconds) * 1e3, statistics.median(self.seconds) * 1e3
        launches, arena = len(self.program.spec.program.launches()), self.program.spec.arena_bytes / 1e6
        return f"{least:.2f} ms least, {median:.2f} median, {launches} launches, {arena:.1f} MB of intermediate values"


def compiled(text: str, *, grouped: bool) -> Way:
    """A program with anchored groups, or without."""
    limits = CpuBackend.fusion_limits
    apart = replace(limits, anchors=frozenset(), prologues=frozenset())
    try:
        CpuBackend.fusion_limits = limits if grouped else apart
        return Way(hlojit.compile(text, backend="cpu"))
    finally:
        CpuBackend.fusion_limits = limits


def compare(name: str, repeat: int, clock: Callable[[], float]) -> None:
    """Print times of both ways for a program."""
    program = REAL_PROGRAMS[name]()
    text, arguments = program.text(), program.flat_arguments()
    grouped, apart = (compiled(text, grouped=each) for each in (True, False))
    results = [np.asarray(each).tobytes() for way in (grouped, apart) for each in _leaves(way.run(arguments, clock))]
    half = len(results) // 2
    for way in (grouped, apart):
        way.seconds.clear()
    for turn in range(repeat):  # who is first in a turn changes
        for way in (grouped, apart) if turn % 2 else (apart, grouped):
            way.run(arguments, clock)
    ratios = [f(grouped.seconds) / f(apart.seconds) for f in (min, statistics.median)]
    same = "the same bits" if results[:half] == results[half:] else "DIFFERENT BITS"
    print(
        f"{name}: {ratios[0]:.3f} of least times, {ratios[1]:.3f} of medians, {same}\n  groups: {grouped}\n  apart:  {apart}",
        flush=True,
    )


def _leaves(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def main() -> None:
    """Print times of both ways for each program named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(REAL_PROGRAMS)}")
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--one-thread", action="store_true")
    given = parser.parse_args()
    clock = time.perf_counter
    if given.one_thread:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        clock = time.process_time
    for name in given.names or NAMES:
        compare(name, given.repeat, clock)


if __name__ == "__main__":
    main()
