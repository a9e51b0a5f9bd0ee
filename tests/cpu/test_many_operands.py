"""A concatenation of very many arrays is several: elements of one kernel would look through all of them."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest


@pytest.mark.parametrize("dimension", [0, 1])
def test_concatenation_of_many(dimension: int) -> None:
    count = 700
    sizes = [1 + number % 3 for number in range(count)]
    types = [f"tensor<{size}x2xi32>" if dimension == 0 else f"tensor<2x{size}xi32>" for size in sizes]
    total = f"tensor<{sum(sizes)}x2xi32>" if dimension == 0 else f"tensor<2x{sum(sizes)}xi32>"
    names = [f"%a{number}" for number in range(count)]
    arguments = ", ".join(map("{}: {}".format, names, types))
    executable = hlojit.compile(
        f"func.func @main({arguments}) -> {total} {{\n"
        f"  %r = stablehlo.concatenate {', '.join(names)}, dim = {dimension} : ({', '.join(types)}) -> {total}\n"
        f"  return %r : {total}\n}}"
    )
    first = np.cumsum([0, *sizes])
    arrays = [
        np.arange(2 * start, 2 * (start + size), dtype="i4").reshape((size, 2) if dimension == 0 else (2, size))
        for start, size in zip(first, sizes)
    ]
    np.testing.assert_array_equal(executable(*arrays), np.concatenate(arrays, dimension))
    assert max(len(launch.buffers) for launch in executable.spec.program.launches()) <= 257
