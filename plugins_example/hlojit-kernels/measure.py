"""The time of attention with this package's kernel and without, in turn: ``python measure.py [KEYS ...]``.

Both are the same jitted function; the time is the processor's, of one core, the least of many.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

os.environ["HLOJIT_DISABLE_PLUGINS"] = "kernels"  # the entry point: here the plugin is given to one of two functions

import hlojit
import numpy as np
from hlojit_kernels import plugin

HEADS, DEPTH, SECONDS = 4, 64, 5.0


def attend(q: Any, k: Any, v: Any) -> Any:
    """softmax(q k^T / 8) v, as NumPy has it."""
    scores = q @ np.swapaxes(k, -1, -2) * np.float32(0.125)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


FUNCTIONS = {"without": hlojit.jit(attend), "with": hlojit.jit(attend, plugins=[plugin])}


def times(keys: int) -> dict[str, float]:
    """Seconds of a call, turn by turn."""
    arrays = np.random.default_rng(0).standard_normal((3, HEADS, keys, DEPTH), "f4")
    results = [function(*arrays) for function in FUNCTIONS.values()]
    np.testing.assert_allclose(*results, rtol=1e-3, atol=1e-5)
    least, end = dict.fromkeys(FUNCTIONS, float("inf")), time.monotonic() + SECONDS
    while time.monotonic() < end:
        for name, function in FUNCTIONS.items():
            begin = time.process_time()
            function(*arrays)
            least[name] = min(least[name], time.process_time() - begin)
    return least


def main() -> None:
    """The table of the README."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    print(f"| {HEADS} heads of {DEPTH}, keys | without, ms | with, ms | without / with |")
    print("|---|---|---|---|")
    for keys in map(int, sys.argv[1:] or ["512", "2048"]):
        least = times(keys)
        without, used = 1e3 * least["without"], 1e3 * least["with"]
        print(f"| {keys} | {without:.2f} | {used:.2f} | {without / used:.2f} |")


if __name__ == "__main__":
    main()
