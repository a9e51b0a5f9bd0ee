"""The derivative of every op: both modes and the second derivative against differences, conventions against JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hlojit.ir.graph import Function, Module

from tests.transforms.graph_programs import GRAPHS, graph
from tests.transforms.jax_programs import PROGRAMS, Arrays, numbers, program_of, pulled, pushed, run

STEP = 1e-6


def _evaluated(function: Function) -> Callable[[Arrays], list[np.ndarray[Any, Any]]]:
    module = function.module
    assert module is not None
    return lambda arguments: run(module, arguments)


def _along(function: Function, arguments: Arrays, directions: Arrays) -> list[np.ndarray[Any, Any]]:
    """Differences of the results in a direction, of fourth order."""
    evaluate = _evaluated(function)
    at = {k: evaluate([x + k * STEP * 100 * d for x, d in zip(arguments, directions)]) for k in (-2, -1, 1, 2)}
    return [
        (8 * (plus - minus) - (plus2 - minus2)) / (12 * STEP * 100)
        for minus2, minus, plus, plus2 in zip(at[-2], at[-1], at[1], at[2])
    ]


def _inner(lhs: Arrays, rhs: Arrays) -> float:
    """JAX's pairing of cotangents with tangents: the real part of the sum of products."""
    return float(sum(np.sum(a * b).real for a, b in zip(lhs, rhs)))


def first(function: Function, arguments: Arrays) -> tuple[Module, list[np.ndarray[Any, Any]]]:
    moving = [x.dtype.kind in "fc" for x in arguments]
    directions = [numbers(x) if m else np.zeros_like(x) for x, m in zip(arguments, moving)]
    found = run(pushed(function, moving), [*arguments, *(d for d, m in zip(directions, moving) if m)])
    for value, expected in zip(found, _along(function, arguments, directions), strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-6, atol=2e-6)
    results = _evaluated(function)(arguments)
    cotangents = [numbers(y) if y.dtype.kind in "fc" else y for y in results]
    back = pulled(function, moving)
    own = run(back, [*arguments, *cotangents])
    moved = [d for d, m in zip(directions, moving) if m]
    np.testing.assert_allclose(_inner(own, moved), _inner(cotangents, found), rtol=1e-8, atol=1e-8)
    return back, cotangents


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_of_programs(name: str) -> None:
    function, arguments = PROGRAMS[name]
    program = program_of(function, arguments)
    back, cotangents = first(program, arguments)
    first(back.main, [*arguments, *cotangents])


@pytest.mark.parametrize("name", GRAPHS)
def test_derivatives_of_ops(name: str) -> None:
    function, arguments = graph(name)
    back, cotangents = first(function, arguments)
    first(back.main, [*arguments, *cotangents])
