"""Run in a fresh process by test_cold_start.py: threads compile different programs from a cold start.

    python cold_process.py THREADS SEED

Every thread compiles programs of its own and compares the results with NumPy's; plugins are loaded, and one more is
registered, so that keys contain what plugins bring.  Prints what was wrong; the exit status says whether anything was.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum,
    "minimum": np.minimum,
}  # fmt: skip


def text(op: str, size: int) -> str:
    kind = f"tensor<{size}xf32>"
    return (
        f"func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{\n  %0 = stablehlo.{op} %a, %b : {kind}\n"
        f"  return %0 : {kind}\n}}"
    )


def acme(name: str, factor: float) -> str:
    kind = "tensor<5xf32>"
    return (
        f"func.func @main(%a: {kind}) -> {kind} {{\n  %0 = stablehlo.custom_call @{name}(%a) : ({kind}) -> {kind}\n"
        f"  return %0 : {kind}\n}}"
    )


class Vendor:
    """A plugin whose two targets differ in a captured number only."""

    __name__ = "vendor"

    @staticmethod
    def scaled(factor: float) -> Any:
        return lambda x: x * factor


def main() -> int:
    threads, seed = int(sys.argv[1]), int(sys.argv[2])
    sys.setswitchinterval(1e-6 if seed % 2 else 0.005)
    import hlojit
    import hlojit.extensions as ext

    wrong: list[str] = []
    vendor = Vendor()
    hook = lambda: [ext.ElementwiseCall(f"acme.x{f}", function=vendor.scaled(float(f))) for f in (2, 3, 5, 7)]  # noqa: E731
    hook.__name__ = "hlojit_custom_calls"
    vendor.hlojit_custom_calls = ext.hookimpl(hook)  # type: ignore[attr-defined]
    if seed % 3 == 0:
        ext.register(vendor)
    ext.registry().load()
    barrier = threading.Barrier(threads)

    def work(number: int) -> None:
        a, b = np.arange(1, 6, dtype="f4"), np.full(5, 3 + number, "f4")
        barrier.wait()
        for turn in range(3):
            op = sorted(BINARY)[(number + turn) % len(BINARY)]
            try:
                got = hlojit.compile(text(op, 5))(a, b)
                expected = BINARY[op](a, b)
                if not np.array_equal(got, expected):
                    wrong.append(f"thread {number}: {op} gave {got}, not {expected}")
                if seed % 3 == 0:
                    factor = (2, 3, 5, 7)[number % 4]
                    got = hlojit.compile(acme(f"acme.x{factor}", factor))(a)
                    if not np.array_equal(got, a * factor):
                        wrong.append(f"thread {number}: acme.x{factor} gave {got}")
            except BaseException as error:
                wrong.append(f"thread {number}: {type(error).__name__}: {error}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print("\n".join(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
