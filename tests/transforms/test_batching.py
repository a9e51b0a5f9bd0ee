"""Programs for a batch against the same programs for each element of it."""

from __future__ import annotations

import numpy as np
import pytest
from hlojit.ir.graph import Function

from tests.transforms.graph_programs import GRAPHS, graph
from tests.transforms.jax_programs import PROGRAMS, Arrays, numbers, program_of, pulled, run, vectorized

SIZE = 3


def check(function: Function, arguments: Arrays, batched: list[bool]) -> None:
    module = function.module
    assert module is not None
    given = [
        np.stack([x, *(0.1 * numbers(x) + x for _ in range(SIZE - 1))]) if b else x for x, b in zip(arguments, batched)
    ]
    found = run(vectorized(function, batched, SIZE), given)
    each = [run(module, [x[k] if b else x for x, b in zip(given, batched)]) for k in range(SIZE)]
    for value, expected in zip(found, map(np.stack, zip(*each)), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", PROGRAMS)
def test_batches_of_programs(name: str) -> None:
    function, arguments = PROGRAMS[name]
    program = program_of(function, arguments)
    for batched in {(True,) * len(arguments), (True, False)[: len(arguments)], (False, True)[: len(arguments)]}:
        if any(batched):
            check(program, arguments, list(batched))


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ("pool", "cummax")])
def test_batches_of_derivatives(name: str) -> None:
    function, arguments = PROGRAMS[name]
    program = program_of(function, arguments)
    module = program.module
    assert module is not None
    results = run(module, arguments)
    back = pulled(program, [True] * len(arguments))
    check(back.main, [*arguments, *map(numbers, results)], [True] * (len(arguments) + len(results)))


@pytest.mark.parametrize(
    "name", ["solve", "solve-right-unit", "cholesky", "cholesky-complex", "zeta", "erf", "abs-complex"]
)
def test_batches_of_ops(name: str) -> None:
    assert name in GRAPHS
    function, arguments = graph(name)
    check(function, arguments, [True] * len(arguments))
