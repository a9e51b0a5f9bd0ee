"""Functions that people write: loops, branches and jumps on values known at run time, each with arguments.

Not in a test module: pytest rewrites `assert` there, and functions that are others than their source are left alone.
"""

# ruff: noqa: B007, PLW2901, SIM102
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

RANDOM = np.random.default_rng(0)
CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


def case(*arguments: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append((function, arguments))
        return function

    return register


X20, X300, M = RANDOM.normal(size=20), RANDOM.normal(size=300), RANDOM.normal(size=(6, 7))


@case(X20)
def running_max(x: Any) -> Any:
    best = x[0]
    for v in x:
        best = max(best, v)
    return best


@case(X300)
def argbest(x: Any) -> Any:
    best, where = -np.inf, 0
    for i in range(len(x)):
        if x[i] > best:
            best = x[i]
            where = i
    return where


@case(X300, 1.5)
def first_above(x: Any, t: Any) -> Any:
    for i, v in enumerate(x):
        if v > t:
            return i
    return -1


@case(X300, 100.0)
def first_above2(x: Any, t: Any) -> Any:
    for i, v in enumerate(x):
        if v > t:
            return i
    return -1


@case(2.0)
def newton(a: Any) -> Any:
    x = a
    while abs(x * x - a) > 1e-12:
        x = 0.5 * (x + a / x)
    return x


@case(2.0)
def newton_it(a: Any) -> Any:
    x = a
    for it in range(50):
        new = 0.5 * (x + a / x)
        if abs(new - x) < 1e-12:
            break
        x = new
    return x, it


@case(X20, 3)
def chain(x: Any, k: Any) -> Any:
    return 0 < x[k] < 1, (x[0] > 0 and x[1] > 0), (x[0] > 0 or x[1] > 5), not x[2] > 0


@case(M)
def mat_loop(a: Any) -> Any:
    out = np.zeros_like(a)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            if a[i, j] > 0:
                out[i, j] = a[i, j]
            else:
                out[i, j] = -a[i, j] * 2
    return out


@case(RANDOM.normal(size=(40, 30)))
def mat_loop2(a: Any) -> Any:
    out = np.zeros(a.shape)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = a[i, j] if a[i, j] > 0 else 0.0
    return out


@case(RANDOM.normal(size=(40, 30)))
def rows(a: Any) -> Any:
    for row in a:
        row /= np.abs(row).sum()
    return a.sum()


@case(0.5, 100)
def mandel(c: Any, n: Any) -> Any:
    z = 0j
    for k in range(100):
        z = z * z + c
        if abs(z) > 2:
            return k
    return 100


@case(-3.0)
def raising(x: Any) -> Any:
    if x < 0:
        raise ValueError("negative")
    return math.sqrt(x)


@case(4.0)
def raising2(x: Any) -> Any:
    if x < 0:
        raise ValueError("negative")
    return math.sqrt(x)


@case(X20)
def asserting(x: Any) -> Any:
    assert x.sum() > 1000, "too small"
    return x


@case(10)
def fib(n: Any) -> Any:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


@case(48, 36)
def gcd(a: Any, b: Any) -> Any:
    while b:
        a, b = b, a % b
    return a


@case(X20)
def lists(x: Any) -> Any:
    out = []
    for i in range(20):
        out.append(x[i] * i)
    return np.array(out)


@case(X20, 0)
def nested_fun(x: Any, k: Any) -> Any:
    def helper(v: Any) -> Any:
        if v > 0:
            return v
        return -v

    return helper(x[k]) + helper(x[k + 1])


@case(RANDOM.normal(size=64))
def bubble(x: Any) -> Any:
    x = x.copy()
    n = len(x)
    for i in range(n):
        for j in range(n - 1 - i):
            if x[j] > x[j + 1]:
                x[j], x[j + 1] = x[j + 1], x[j]
    return x


@case(np.array([1, 5, 3, 2]), 3)
def member(x: Any, v: Any) -> Any:
    return v in x, v in (1, 2, 3), 7 in x


@case(0.01, 100)
def sir(dt: Any, n: Any) -> Any:
    S, I, recovered = 0.99, 0.01, 0.0
    hist = np.zeros((100, 3))
    for t in range(100):
        dS = -0.5 * S * I
        dI = 0.5 * S * I - 0.1 * I
        dR = 0.1 * I
        S += dt * dS
        I += dt * dI
        recovered += dt * dR
        hist[t, 0] = S
        hist[t, 1] = I
        hist[t, 2] = recovered
    return hist


@case(RANDOM.normal(size=50))
def heat(u: Any) -> Any:
    u = u.copy()
    for t in range(30):
        un = u.copy()
        u[1:-1] = un[1:-1] + 0.1 * (un[2:] - 2 * un[1:-1] + un[:-2])
    return u


@case(RANDOM.normal(size=50))
def heat2(u0: Any) -> Any:
    u = u0.copy()
    new = np.empty_like(u)
    for t in range(30):
        new[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        new[0] = new[-1] = 0
        u, new = new, u
    return u


@case(RANDOM.normal(size=(8, 8)))
def power(A: Any) -> Any:
    v = np.ones(8)
    lam = 0.0
    while True:
        w = A @ v
        n = np.linalg.norm(w)
        w = w / n
        if np.abs(np.abs(w @ v) - 1) < 1e-3 or n > 1e6:
            break
        v = w
        lam += 1
        if lam > 50:
            break
    return lam


@case(np.arange(30) % 4)
def counts(x: Any) -> Any:
    h = np.zeros(4, int)
    for v in x:
        h[v] += 1
    return h


@case(RANDOM.integers(0, 5, 40), RANDOM.integers(0, 5, 30))
def edit(a: Any, b: Any) -> Any:
    n, mm = len(a), len(b)
    d = np.zeros((n + 1, mm + 1), dtype=np.int64)
    d[:, 0] = np.arange(n + 1)
    d[0, :] = np.arange(mm + 1)
    for i in range(1, n + 1):
        for j in range(1, mm + 1):
            cost = 0 if a[i - 1] == b[j - 1] else 1
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + cost)
    return d[n, mm]


@case(X300, 12)
def cont(x: Any, n: Any) -> Any:
    total = 0.0
    for i in range(300):
        if i % n == 0:
            continue
        if x[i] < -1:
            continue
        total += x[i]
    return total


@case(5)
def elseloop(n: Any) -> Any:
    i = 2
    while i < n:
        if n % i == 0:
            r = False
            break
        i += 1
    else:
        r = True
    return r


@case(X20, X20[:3])
def conv(x: Any, k: Any) -> Any:
    out = np.zeros(len(x) - len(k) + 1)
    for i in range(len(out)):
        out[i] = (x[i : i + len(k)] * k).sum()
    return out


@case(np.array([3.0, 1.0, 2.0]))
def tern(x: Any) -> Any:
    y = x if x.sum() > 0 else -x
    return y


@case(-2.0)
def clampf(v: Any) -> Any:
    return max(0.0, min(1.0, v))


@case(7.9)
def ints(v: Any) -> Any:
    return int(v), round(v), float(v), math.floor(v), bool(v)


@case(X20)
def early(x: Any) -> Any:
    if x.sum() > 1e9:
        return x
    y = x * 2
    if y[0] > 1e9:
        return y
    return x - 1


@case(RANDOM.normal(size=30))
def state_machine(x: Any) -> Any:
    state = 0
    count = 0
    for v in x:
        if state == 0:
            if v > 0.5:
                state = 1
        elif state == 1:
            if v < -0.5:
                state = 0
                count += 1
    return state, count


@case(np.arange(5.0), 1)
def view_of_what_the_branch_wrote(x: Any, k: Any) -> Any:
    row = x[:2] * 1.0
    if k > 0:
        x[1:4] = 5.0
        row = x[2:4]
    return row, x


@case(np.arange(5.0), 3)
def view_of_what_the_loop_wrote(x: Any, n: Any) -> Any:
    last = x[:1] * 1.0
    for i in range(n):
        x[i] = 10.0 * i
        last = x[i : i + 1].copy()
    return last, x


@case(np.arange(5.0), 2.5)
def first_above_or_else(x: Any, t: Any) -> Any:
    for i, v in enumerate(x):
        if v > t:
            return i
    return -1


@case(30, 7)
def first_divisor_or_else(n: Any, k: Any) -> Any:
    while k > 1:
        k -= 1
        if n % k == 0:
            return k
    return 0


@case(3)
def integer_of_a_truth_value(a: Any) -> Any:
    return int(a > 2), int(a > 5), round(a > 2), math.floor(a > 2)


@case(3)
def an_exception_behind_one_of_the_call(a: Any) -> Any:
    names = [1, 2]
    assert a > 5, "too small"
    return names[a if a is None else 2]


@case(-1)
def unbound_behind_one_of_the_call(a: Any) -> Any:
    for i in range(a):
        b = i
        assert a > 5, "too small"
    return b


@case(np.arange(5.0), 0.5)
def written_behind_two_loops_that_call(x: Any, b: Any) -> Any:
    def first(p: Any) -> None:
        nonlocal x
        x[0] = p

    for _ in range(int(b * 8)):
        y = int(b)
    for _ in range(12):
        y = np.zeros(5) % 4.0
    first(b)
    return y


@case(3)
def counted_by_a_function_inside(n: Any) -> Any:
    total = calls = 0

    def add(v: Any) -> None:
        nonlocal total, calls
        total += v
        if v > 2:
            calls += 1

    for i in range(n * 10):
        add(i)
    return total, calls


@case(np.arange(5.0))
def an_array_that_each_round_makes_anew(x: Any) -> Any:
    y = x
    for i in range(12):
        y = np.zeros(5) + i
    x[0] = 2.0
    y[1] = 3.0
    return y


@case(2, np.ones(5))
def every_path_raises(a: Any, x: Any) -> Any:
    if a > 100:
        raise AssertionError(a)
    raise ValueError("of every other number")


@case(3, np.ones(5))
def every_path_of_a_loop_raises(a: Any, x: Any) -> Any:
    for i in range(20):
        if x[i % 5] > a:
            raise AssertionError(a)
        raise ValueError("of every other number")
    return a


@case(-1, np.ones(5))
def every_path_of_a_branch_raises(a: Any, x: Any) -> Any:
    if a > 1:
        if x[0] > 5:
            raise AssertionError(a)
        raise ValueError("of every other number")
    return a
