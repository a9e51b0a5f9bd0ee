"""What cannot fail is not checked when a traced function runs, and what can is."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir import Block, Builder, tensor
from hlojit.tracing.frames import Frame
from hlojit.tracing.ranges import INT64, Ranges, fits, of_difference, of_product, of_quotient, of_sum

A = np.arange(12.0)
Function = Callable[..., Any]


def neighbours(a: Any) -> Any:
    d = np.empty(len(a) - 1)
    for i in range(len(a) - 1):
        d[i] = a[i + 1] - a[i]
    return d


def backwards(a: Any) -> Any:
    total = np.zeros(len(a))
    for i in range(len(a) - 1, -1, -1):
        total[i] = a[i] + a[-i - 1] + a[2 * i // 2]
    return total


def cells(a: Any) -> Any:
    made = np.zeros((3, 4))
    for i in range(len(a)):
        made[i // 4, i % 4] += a[(i * 5 + 3) % 12] * a[min(i + 1, 11)]
    return made


def pairs(a: Any) -> Any:
    best = np.zeros(len(a))
    for i in range(len(a)):
        for j in range(len(a) - i - 1):
            best[j] = max(best[j], a[i + j])
    return best


def items(a: Any) -> Any:
    total = np.zeros(len(a))
    for i, (x, y) in enumerate(zip(a, a[::-1])):
        total[i] = x * y + i
    return total


@pytest.mark.parametrize("function", [neighbours, backwards, cells, pairs, items])
def test_results_are_numpys(function: Function) -> None:
    for a in (A, np.random.default_rng(0).normal(size=12)):
        np.testing.assert_array_equal(hlojit.jit(function)(a), function(a))


@pytest.mark.parametrize("function", [neighbours, items])
def test_loops_that_cannot_fail_have_no_checks(function: Function) -> None:
    lowered = hlojit.jit(function).lower(np.arange(300.0))
    assert len(lowered.main.type.results) == 1, "a check has a result of its own"
    assert "stablehlo.while" in str(lowered)


def beyond(a: Any) -> Any:
    for i in range(len(a)):
        a[i] = a[i + 1]
    return a


def before(a: Any) -> Any:
    total = a[0]
    for i in range(len(a) + 2):
        total = total + a[-i]
    return total


def in_one_branch(a: Any, i: int) -> Any:
    if a[0] > 100:
        a[i] = 1.0
    return a[i]


def in_a_loop_that_may_not_run(a: Any, i: int) -> Any:
    k = 0
    while a[k] > 100:
        a[i] = 1.0
        k = k + 1
    return a[i]


@pytest.mark.parametrize(
    "function, arguments",
    [
        (beyond, ()),
        (before, ()),
        (in_one_branch, (400,)),
        (in_one_branch, (-301,)),
        (in_a_loop_that_may_not_run, (300,)),
    ],
)
def test_what_can_fail_raises(function: Function, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(IndexError):
        function(np.arange(300.0), *arguments)
    with pytest.raises(IndexError):
        hlojit.jit(function)(np.arange(300.0), *arguments)


def product(n: int, k: int, a: Any) -> Any:
    return n * k + a[0].astype(np.int64)


EDGES = [0, 1, -1, 2, 3, -7, 2**31, -(2**31), 2**32 + 1, 3037000499, 3037000500, 2**62, -(2**62), 2**63 - 1, -(2**63)]


def test_products_that_do_not_fit_raise_and_no_others() -> None:
    compiled = hlojit.jit(product)
    a = np.zeros(1)
    for n, k in itertools.product(EDGES, EDGES):
        if fits((n * k, n * k)):
            assert compiled(n, k, a) == n * k
        else:
            with pytest.raises(OverflowError):
                compiled(n, k, a)


@pytest.mark.parametrize("factor", [3, -3, 1 << 40, -(1 << 40), -1])
def test_products_by_constants(factor: int) -> None:
    compiled = hlojit.jit(lambda n, a: n * factor + a[0].astype(np.int64))
    limit = (2**63 - 1) // abs(factor)
    for n in (limit, -limit, limit + 1, -limit - 1, 5):
        if fits((n, n)) and fits((n * factor, n * factor)):
            assert compiled(n, np.zeros(1)) == n * factor
        elif fits((n, n)):
            with pytest.raises(OverflowError):
                compiled(n, np.zeros(1))


def test_ranges_of_arithmetic_hold_for_all_numbers_of_a_range() -> None:
    limits = [(-7, -3), (-4, 5), (0, 0), (0, 6), (3, 8)]
    for x, y in itertools.product(limits, limits):
        numbers = list(itertools.product(range(x[0], x[1] + 1), range(y[0], y[1] + 1)))
        for rule, plain in ((of_sum, int.__add__), (of_difference, int.__sub__), (of_product, int.__mul__)):
            found = [plain(a, b) for a, b in numbers]
            assert rule(x, y) == (min(found), max(found))
        if y[0] > 0:
            found = [a // b for a, b in numbers]
            assert of_quotient(x, y) == (min(found), max(found))


def test_what_is_noted_in_a_region_ends_with_it() -> None:
    block = Block([tensor((), "i64"), tensor((), "i8"), tensor((), "f32")])
    number, small, real = block.arguments
    frames: list[Frame] = []
    ranges = Ranges(frames)
    builder = Builder(block)
    assert ranges.of(number) == INT64 and ranges.known(number) is None
    assert ranges.of(builder.convert(small, "i64")) == (-128, 127)
    assert ranges.of(builder.constant(np.int64(7))) == (7, 7)
    assert not fits(ranges.of(builder.convert(real, "i64")), (-(2**62), 2**62))
    ranges.note(number, -5, 50)
    frames.append(Frame(block))
    ranges.note(number, 0, 100)
    assert ranges.of(number) == (0, 50)
    frames.pop()
    assert ranges.of(number) == (-5, 50)


def counted(a: Any) -> Any:
    made = np.zeros(len(a))

    def body(i: Any, total: Any) -> Any:
        made[i] = a[len(a) - 1 - i] + total
        return total + a[i]

    total = hlojit.fori_loop(0, len(a), body, 0.0)
    _, rows = hlojit.scan(lambda s, x: (s + x, s * x), 0.0, a)
    return made + total + rows


def test_loops_in_explicit_form_count_within_their_limits() -> None:
    np.testing.assert_array_equal(hlojit.jit(counted)(A), counted(A))
    lowered = hlojit.jit(counted).lower(np.arange(300.0))
    assert len(lowered.main.type.results) == 1


def beyond_its_limit(a: Any, n: int) -> Any:
    return hlojit.fori_loop(0, n, lambda i, total: total + a[i], 0.0)


def test_a_limit_that_is_an_argument_is_checked() -> None:
    compiled = hlojit.jit(beyond_its_limit)
    assert compiled(A, 12) == A.sum() and compiled(A, 0) == 0 and compiled(A, -3) == 0
    with pytest.raises(IndexError):
        compiled(A, 13)
