"""Index expressions: simplification, ranges, and agreement with integers."""

import numpy as np
import pytest
from hlojit.lowering.index import Index, constant, delinearized, linear_index, variable


def test_index_quotient_and_remainder_join() -> None:
    x = variable("x", 0, 4095)
    assert (x // 64) * 64 + x % 64 == x
    assert ((x // 512) * 8 + (x // 64) % 8) * 64 + x % 64 == x


def test_index_division_of_parts_in_range_vanishes() -> None:
    a, b = variable("a", 0, 63), variable("b", 0, 63)
    assert (a * 64 + b) // 64 == a
    assert (a * 64 + b) % 64 == b
    assert (a * 64 + b + 128) // 64 == a + 2


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 5), (7,), (1, 1), (3, 1, 4)])
def test_index_delinearize_inverts_linearize(shape: tuple[int, ...]) -> None:
    index = tuple(variable(f"v{n}", 0, extent - 1) for n, extent in enumerate(shape))
    strides = [int(np.prod(shape[n + 1 :])) for n in range(len(shape))]
    assert delinearized(linear_index(index, strides), shape) == index


def test_index_divisor_must_be_positive() -> None:
    with pytest.raises(ValueError, match="divisors are positive"):
        variable("x", 0, 3) // 0


def test_index_random_expressions_agree_with_integers() -> None:
    random = np.random.default_rng(3)
    for _ in range(400):
        variables = [
            variable(name, low, low + int(random.integers(1, 12))) for name, low in (("p", 0), ("q", -4), ("r", 2))
        ]
        values = {v.key: int(random.integers(v.low, v.high + 1)) for v in variables}
        pool: list[tuple[Index, int]] = [(v, values[v.key]) for v in variables]
        for _ in range(8):
            (e, n), (f, m) = (pool[int(random.integers(len(pool)))] for _ in range(2))
            divisor = int(random.choice([1, 2, 3, 4, 6, 8, 12, 13]))
            choice = int(random.integers(5))
            pool.append(
                [
                    (e + f, n + m),
                    (e - f, n - m),
                    (e * divisor, n * divisor),
                    (e // divisor, n // divisor),
                    (e % divisor, n % divisor),
                ][choice]
            )
        for expression, value in pool:
            assert expression.low <= value <= expression.high
            assert expression.substitute({k: constant(v) for k, v in values.items()}) == constant(value)
