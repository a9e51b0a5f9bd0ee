"""The bandwidth that one core has to memory, measured, for a machine model of one's own.

    machine = with_measured_bandwidth(host_target().machine)     # hlojit machine --measure

No compilation measures anything: what a machine delivers depends on its neighbours by a factor of two and more, and plans
that follow it differ from process to process, as do the keys of kernels (docs/decisions/machine-model.md).  Who measures when
the machine is quiet, and gives what came out to ``HLOJIT_MACHINE``, has the same plans everywhere.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import replace

import numpy as np
from hlojit.lowering.machine import Machine

LEAST_BYTES = 64 << 20
MOST_BYTES = 1 << 30
LEAST_RUNS = 5
SECONDS = 0.25


def with_measured_bandwidth(machine: Machine) -> Machine:
    """The model with the bandwidth of one core, as far as it can be told (a factor of the root of two)."""
    # Four times the last level: of what the pass before left there, nothing is found again.
    nbytes = min(MOST_BYTES, max(LEAST_BYTES, 4 * machine.last.size))
    return replace(machine, memory_bandwidth=coarse(read_rate(nbytes)))


def read_rate(nbytes: int, seconds: float = SECONDS) -> float:
    """Bytes a nanosecond in which one core reads an array of ``nbytes``, again and again; the median."""
    words = np.ones(max(1, nbytes // 8), np.uint64)
    rates: list[float] = []
    end = time.perf_counter() + seconds
    while len(rates) < LEAST_RUNS or time.perf_counter() < end:
        start = time.perf_counter_ns()
        np.bitwise_or.reduce(words)
        rates.append(words.nbytes / max(1, time.perf_counter_ns() - start))
    return statistics.median(rates)


def coarse(rate: float) -> float:
    """The nearest power of the root of two, to three digits, which the text of a model keeps."""
    return float(f"{2 ** (round(2 * math.log2(rate)) / 2):.3g}")
