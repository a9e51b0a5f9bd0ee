"""Run by test_memory: threads make, share, donate and drop large arrays where memory is short, and fork in between."""

from __future__ import annotations

import os
import sys
import threading

import hlojit
import numpy as np
from hlojit import runtime

SIZES = (300_000, 500_000, 900_000, 2_000_000)


def text(size: int, factor: int) -> str:
    kind = f"tensor<{size}xf32>"
    return (
        f"func.func @main(%a: {kind} {{tf.aliasing_output = 0 : i32}}) -> {kind} {{\n"
        f"  %c = stablehlo.constant dense<{factor}.0> : {kind}\n"
        f"  %0 = stablehlo.multiply %a, %c : {kind}\n  return %0 : {kind}\n}}"
    )


PROGRAMS = {size: hlojit.compile(text(size, number + 2)) for number, size in enumerate(SIZES)}
failures: list[str] = []


def work(seed: int, steps: int) -> None:
    generator = np.random.default_rng(seed)
    held = []
    for step in range(steps):
        number = int(generator.integers(len(SIZES)))
        size = SIZES[number]
        x = np.full(size, np.float32(seed + step))
        result = PROGRAMS[size](x)
        if generator.random() < 0.5:  # what came out of the pool goes in again, donated
            result = PROGRAMS[size](result)
            expected = (seed + step) * (number + 2) ** 2
        else:
            expected = (seed + step) * (number + 2)
        held.append((result, expected))
        if len(held) > 2:
            old, value = held.pop(int(generator.integers(len(held))))
            if not (old == np.float32(value)).all():
                failures.append(f"thread {seed}, step {step}: {old[0]} for {value}")


def child() -> int:
    """What a child can do while the parent's threads were at work."""
    x = np.ones(SIZES[3], np.float32)
    right = bool((PROGRAMS[SIZES[3]](x) == 5).all())
    runtime.trim()
    return 0 if right and not failures else 1


def main() -> None:
    threading.excepthook = lambda what: failures.append(f"{what.exc_type}: {what.exc_value}")
    threads = [threading.Thread(target=work, args=(seed, int(sys.argv[1]))) for seed in range(1, 7)]
    for thread in threads:
        thread.start()
    for _ in range(int(sys.argv[2])):
        number = os.fork()
        if not number:
            os._exit(child())
        _, status = os.waitpid(number, 0)
        if status:
            failures.append(f"a child ended with {status}")
        runtime.trim()
    for thread in threads:
        thread.join()
    runtime.trim()
    assert not failures, failures
    found = runtime.statistics()
    assert found.bytes_cached < 1 << 24, found  # small blocks stay
    assert found.bytes_mapped <= 2 << 24, found  # slabs
    assert not found.failed_allocations, found
    print("good")


main()
