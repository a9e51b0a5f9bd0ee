"""What may go wrong around calls of LAPACK: numbers that are not finite, Ctrl-C in a long call, many programs at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hlojit
import numpy as np
import pytest

from .test_linear_algebra import close, lowered, positive, random, run

INFINITE = """
import hlojit, jax, numpy
from jax.lax.linalg import SvdAlgorithm, svd
jax.config.update("jax_enable_x64", True)
for name in ("f4", "c16"):
    for algorithm in (SvdAlgorithm.DEFAULT, SvdAlgorithm.QR):
        x = numpy.zeros((20, 5, 5), name)
        text = jax.jit(lambda x: svd(x, compute_uv=True, algorithm=algorithm)).lower(x).as_text()
        program = hlojit.compile(text, backend=sys.argv[1])
        for seed in range(3):
            generator = numpy.random.default_rng(seed)
            x = generator.standard_normal((20, 5, 5)).astype(name)
            x.reshape(-1)[generator.integers(0, 450, 71)] = numpy.inf
            u, s, vt = program(x)
            infinite = ~numpy.isfinite(x).all((1, 2))
            assert 0 < infinite.sum() < 20
            for each in (u, s, vt):
                assert numpy.isnan(each[infinite]).all() and numpy.isfinite(each[~infinite]).all()
"""


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_singular_values_of_infinite_matrices_are_not_looked_for(backend: str) -> None:
    """LAPACK's iterations may not end: in a process of its own, which can be stopped."""
    subprocess.run([sys.executable, "-c", f"import sys\n{INFINITE}", backend], check=True, timeout=120)


def test_ctrl_c_in_a_long_call_is_taken_right_behind_it() -> None:
    from jax.numpy import linalg

    a = random((160, 160), "f8")
    program = hlojit.compile(lowered(lambda x: tuple(linalg.eig(x)), a))
    program(a)
    before = threading.active_count()
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(3):
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            with pytest.raises(KeyboardInterrupt):
                program(a)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert threading.active_count() == before
    values, vectors = program(a)
    close(a @ vectors, vectors * values, 100)


def test_many_programs_at_once() -> None:
    from jax.numpy import linalg

    a = positive((70, 12, 12), "f8")
    big = positive((200, 200), "f8")
    work: list[tuple[Any, Any]] = [(linalg.cholesky, a), (linalg.inv, a), (linalg.inv, big), (linalg.det, a)]
    work += [(lambda x: tuple(linalg.eigh(x)), a), (lambda x: tuple(linalg.qr(x)), a)]
    work += [(lambda x: tuple(linalg.svd(x)), big), (lambda x: tuple(linalg.qr(x)), big)]
    programs = [(hlojit.compile(lowered(function, array)), array) for function, array in work]
    alone = [program(array) for program, array in programs]

    def again(number: int) -> Any:
        program, array = programs[number]
        return [program(array) for _ in range(3)]

    with ThreadPoolExecutor(len(programs)) as threads:
        for expected, results in zip(alone, threads.map(again, range(len(programs)))):
            for found in results:
                for x, y in zip(*((each if isinstance(each, tuple) else (each,)) for each in (found, expected))):
                    np.testing.assert_allclose(x, y, rtol=0, atol=1e-9 * np.abs(y).max())


def test_memory_of_arguments_may_lie_in_any_way() -> None:
    from jax.numpy import linalg

    whole = random((64, 40, 3), "f8")
    for strided in (whole[:32:2, ::4, 0].T, whole[::-4, :16, 1], np.asfortranarray(whole[:10, :10, 2])):
        square = strided[:10, :10] + 5 * np.eye(10)
        view = np.broadcast_to(np.arange(400.0).reshape(20, 20), (20, 20)).copy()[::2, ::-2]
        view[...] = square
        close(view @ run(linalg.inv, view), np.eye(10), 5)


def test_one_value_may_be_matrix_and_sides() -> None:
    from jax.lax.linalg import cholesky, triangular_solve

    def program(a: Any) -> Any:
        return triangular_solve(a, a, left_side=True, lower=True), cholesky(a), a + 1

    a = np.tril(positive((50, 5, 5), "f8"))
    solved, factor, more = run(program, a)
    close(solved, np.broadcast_to(np.eye(5), a.shape), 10)
    symmetric = (a + np.swapaxes(a, 1, 2)) / 2
    close(factor @ np.swapaxes(factor, 1, 2), symmetric, 50)
    np.testing.assert_array_equal(more, a + 1)
