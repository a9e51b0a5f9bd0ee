"""Run in a fresh process by test_native.py: a program of thousands of arguments, on a thread with a small stack."""

import threading

import hlojit
import numpy as np

COUNT = 5000


def main() -> None:
    """A program that adds its first and its last argument, and one whose results are all its arguments."""
    kind = "tensor<2xf32>"
    parameters = ", ".join(f"%a{number}: {kind}" for number in range(COUNT))
    add = hlojit.compile(
        f"func.func @main({parameters}) -> {kind} {{\n"
        f"  %r = stablehlo.add %a0, %a{COUNT - 1} : {kind}\n  return %r : {kind}\n}}"
    )
    everything = ", ".join(f"%a{number}" for number in range(COUNT))
    kinds = ", ".join([kind] * COUNT)
    echo = hlojit.compile(f"func.func @main({parameters}) -> ({kinds}) {{\n  return {everything} : {kinds}\n}}")
    arrays = [np.full(2, number, np.float32) for number in range(COUNT)]
    results: list[object] = []

    def work() -> None:
        results.append(add(*arrays))
        results.append(echo(*arrays))

    threading.stack_size(1 << 16)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    total, copies = results
    assert np.array_equal(total, [COUNT - 1] * 2), total
    assert all(np.array_equal(copy, array) for copy, array in zip(copies, arrays))


main()
