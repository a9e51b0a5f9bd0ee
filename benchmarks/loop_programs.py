"""The programs of ``benchmarks.loops``: each for hlojit, numba and JAX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hlojit
import numba
import numpy as np

njit = numba.njit


@dataclass(frozen=True)
class LoopProgram:
    """One program in three languages."""

    arguments: tuple[Any, ...]
    hlojit: Callable[..., Any]
    numba: Callable[..., Any]
    jax: Callable[..., Any] | None = None


def _jax() -> tuple[Any, Any, Any]:
    import jax

    return jax, jax.numpy, jax.lax


def ewma(count: int) -> LoopProgram:
    """An exponentially weighted mean."""

    @hlojit.jit
    def ours(x: Any, a: Any) -> Any:
        y = np.zeros_like(x)
        y[0] = x[0]

        def step(i: Any, s: Any) -> Any:
            s = a * x[i] + (1 - a) * s
            y[i] = s
            return s

        hlojit.fori_loop(1, len(x), step, x[0])
        return y

    @njit
    def theirs(x: Any, a: Any) -> Any:
        y = np.empty_like(x)
        s = y[0] = x[0]
        for i in range(1, len(x)):
            s = a * x[i] + (1 - a) * s
            y[i] = s
        return y

    jax, _, lax = _jax()

    @jax.jit
    def jaxs(x: Any, a: Any) -> Any:
        def step(s: Any, v: Any) -> Any:
            s = a * v + (1 - a) * s
            return s, s

        tail = lax.scan(step, x[0], x[1:])[1]
        return jax.numpy.concatenate([x[:1], tail])

    return LoopProgram((np.random.default_rng(0).standard_normal(count), 0.1), ours, theirs, jaxs)


def viterbi() -> LoopProgram:
    """The likeliest path of a hidden Markov model: 12 states, 500 observations."""
    states, symbols, count = 12, 8, 500
    generator = np.random.default_rng(1)
    start, trans, emit = (
        np.log(generator.dirichlet(np.ones(n), size=m)) for n, m in ((states, 1), (states, states), (symbols, states))
    )
    observed = generator.integers(0, symbols, count)

    @hlojit.jit
    def ours(start: Any, trans: Any, emit: Any, observed: Any) -> Any:
        back = np.zeros_like(trans, np.int64, shape=(count, states))

        def step(t: Any, score: Any) -> Any:
            moves = score[:, None] + trans
            back[t] = moves.argmax(0)
            return moves.max(0) + emit[:, observed[t]]

        score = hlojit.fori_loop(1, count, step, start + emit[:, observed[0]])
        path = np.zeros_like(trans, np.int64, shape=count)
        path[-1] = score.argmax()

        def follow(k: Any, state: Any) -> Any:
            t = count - 2 - k
            state = back[t + 1, state]
            path[t] = state
            return state

        hlojit.fori_loop(0, count - 1, follow, score.argmax())
        return path

    @njit
    def theirs(start: Any, trans: Any, emit: Any, observed: Any) -> Any:
        n, count = len(start), len(observed)
        back = np.zeros((count, n), np.int64)
        score, new = np.empty(n), np.empty(n)
        for j in range(n):
            score[j] = start[j] + emit[j, observed[0]]
        for t in range(1, count):
            for j in range(n):
                best, place = score[0] + trans[0, j], 0
                for i in range(1, n):
                    value = score[i] + trans[i, j]
                    if value > best:
                        best, place = value, i
                new[j] = best + emit[j, observed[t]]
                back[t, j] = place
            score, new = new, score
        path = np.empty(count, np.int64)
        path[-1] = score.argmax()
        for t in range(count - 2, -1, -1):
            path[t] = back[t + 1, path[t + 1]]
        return path

    jax, jnp, lax = _jax()

    @jax.jit
    def jaxs(start: Any, trans: Any, emit: Any, observed: Any) -> Any:
        def step(score: Any, symbol: Any) -> Any:
            moves = score[:, None] + trans
            return moves.max(0) + emit[:, symbol], moves.argmax(0)

        score, back = lax.scan(step, start + emit[:, observed[0]], observed[1:])

        def follow(state: Any, row: Any) -> Any:
            return row[state], row[state]

        last = score.argmax()
        path = lax.scan(follow, last, back, reverse=True)[1]
        return jnp.concatenate([path, last[None]])

    return LoopProgram((start[0], trans, emit, observed), ours, theirs, jaxs)


def sir() -> LoopProgram:
    """An epidemic by Euler's method, 1000 steps, all states kept."""
    steps = 1000

    @hlojit.jit
    def ours(beta: Any, gamma: Any, dt: Any) -> Any:
        out = np.zeros_like(beta, np.float64, shape=(steps, 3))

        def step(k: Any, state: Any) -> Any:
            s, i, r = state
            new, healed = beta * s * i * dt, gamma * i * dt
            s, i, r = s - new, i + new - healed, r + healed
            out[k, 0] = s
            out[k, 1] = i
            out[k, 2] = r
            return s, i, r

        hlojit.fori_loop(0, steps, step, (0.99, 0.01, 0.0))
        return out

    @njit
    def theirs(beta: Any, gamma: Any, dt: Any) -> Any:
        out = np.empty((steps, 3))
        s, i, r = 0.99, 0.01, 0.0
        for k in range(steps):
            new, healed = beta * s * i * dt, gamma * i * dt
            s, i, r = s - new, i + new - healed, r + healed
            out[k, 0] = s
            out[k, 1] = i
            out[k, 2] = r
        return out

    jax, jnp, lax = _jax()

    @jax.jit
    def jaxs(beta: Any, gamma: Any, dt: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            s, i, r = state
            new, healed = beta * s * i * dt, gamma * i * dt
            state = s - new, i + new - healed, r + healed
            return state, jnp.stack(state)

        return lax.scan(step, (0.99, 0.01, 0.0), None, steps)[1]

    return LoopProgram((0.3, 0.1, 0.1), ours, theirs, jaxs)


def lorenz() -> LoopProgram:
    """The Lorenz system by Runge and Kutta's method, 1000 steps on vectors of three, all states kept."""
    steps, dt = 1000, 0.01

    def derivative(v: Any) -> Any:
        x, y, z = v[0], v[1], v[2]
        return np.array([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])

    @hlojit.jit
    def ours(v: Any) -> Any:
        out = np.zeros_like(v, np.float64, shape=(steps, 3))

        def slope(v: Any) -> Any:
            x, y, z = v[0], v[1], v[2]
            return np.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])

        def step(k: Any, v: Any) -> Any:
            k1 = slope(v)
            k2 = slope(v + dt / 2 * k1)
            k3 = slope(v + dt / 2 * k2)
            k4 = slope(v + dt * k3)
            v = v + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            out[k] = v
            return v

        hlojit.fori_loop(0, steps, step, v)
        return out

    slopes = njit(derivative)

    @njit
    def theirs(v: Any) -> Any:
        out = np.empty((steps, 3))
        for k in range(steps):
            k1 = slopes(v)
            k2 = slopes(v + dt / 2 * k1)
            k3 = slopes(v + dt / 2 * k2)
            k4 = slopes(v + dt * k3)
            v = v + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            out[k] = v
        return out

    jax, jnp, lax = _jax()

    @jax.jit
    def jaxs(v: Any) -> Any:
        def slope(v: Any) -> Any:
            x, y, z = v
            return jnp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])

        def step(v: Any, _: Any) -> Any:
            k1 = slope(v)
            k2 = slope(v + dt / 2 * k1)
            k3 = slope(v + dt / 2 * k2)
            k4 = slope(v + dt * k3)
            v = v + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return v, v

        return lax.scan(step, v, None, steps)[1]

    return LoopProgram((np.array([1.0, 1.0, 1.0]),), ours, theirs, jaxs)


def mandelbrot() -> LoopProgram:
    """When points of the plane escape: 160 x 120, at most 256 rounds each."""
    width, height, limit = 160, 120, 256
    cx = np.linspace(-2.0, 0.6, width)[None, :] + np.zeros((height, 1))
    cy = np.linspace(-1.1, 1.1, height)[:, None] + np.zeros((1, width))

    @hlojit.jit
    def ours(cx: Any, cy: Any) -> Any:
        def escape(point: Any) -> Any:
            a, b = point

            def inside(state: Any) -> Any:
                x, y, n = state
                return (x * x + y * y <= 4.0) & (n < limit)

            def turn(state: Any) -> Any:
                x, y, n = state
                return x * x - y * y + a, 2 * x * y + b, n + 1

            return hlojit.while_loop(inside, turn, (0.0, 0.0, 0))[2]

        return hlojit.map(escape, (cx.ravel(), cy.ravel())).reshape(cx.shape)

    @njit
    def theirs(cx: Any, cy: Any) -> Any:
        out = np.empty(cx.shape, np.int64)
        for i in range(cx.shape[0]):
            for j in range(cx.shape[1]):
                a, b, x, y, n = cx[i, j], cy[i, j], 0.0, 0.0, 0
                while x * x + y * y <= 4.0 and n < limit:
                    x, y, n = x * x - y * y + a, 2 * x * y + b, n + 1
                out[i, j] = n
        return out

    jax, _, lax = _jax()

    @jax.jit
    @jax.vmap
    @jax.vmap
    def jaxs(a: Any, b: Any) -> Any:
        def inside(state: Any) -> Any:
            x, y, n = state
            return (x * x + y * y <= 4.0) & (n < limit)

        def turn(state: Any) -> Any:
            x, y, n = state
            return x * x - y * y + a, 2 * x * y + b, n + 1

        return lax.while_loop(inside, turn, (0.0, 0.0, 0))[2]

    return LoopProgram((cx, cy), ours, theirs, jaxs)


def life() -> LoopProgram:
    """The game of life on a torus of 128 x 128, 50 generations."""
    steps = 50
    board = (np.random.default_rng(2).random((128, 128)) < 0.3).astype(np.uint8)

    @hlojit.jit
    def ours(board: Any) -> Any:
        def step(_: Any, b: Any) -> Any:
            rows = b + np.roll(b, 1, 0) + np.roll(b, -1, 0)
            near = rows + np.roll(rows, 1, 1) + np.roll(rows, -1, 1) - b
            return ((near == 3) | ((near == 2) & (b == 1))).astype(np.uint8)

        return hlojit.fori_loop(0, steps, step, board)

    @njit
    def theirs(board: Any) -> Any:
        n, m = board.shape
        a, b = board.copy(), np.empty_like(board)
        for _ in range(steps):
            for i in range(n):
                up, down = (i - 1) % n, (i + 1) % n
                for j in range(m):
                    left, right = (j - 1) % m, (j + 1) % m
                    near = (
                        a[up, left] + a[up, j] + a[up, right] + a[i, left]
                        + a[i, right] + a[down, left] + a[down, j] + a[down, right]
                    )  # fmt: skip
                    b[i, j] = 1 if near == 3 or (near == 2 and a[i, j] == 1) else 0
            a, b = b, a
        return a

    jax, jnp, lax = _jax()

    @jax.jit
    def jaxs(board: Any) -> Any:
        def step(_: Any, b: Any) -> Any:
            rows = b + jnp.roll(b, 1, 0) + jnp.roll(b, -1, 0)
            near = rows + jnp.roll(rows, 1, 1) + jnp.roll(rows, -1, 1) - b
            return ((near == 3) | ((near == 2) & (b == 1))).astype(jnp.uint8)

        return lax.fori_loop(0, steps, step, board)

    return LoopProgram((board,), ours, theirs, jaxs)


def newton() -> LoopProgram:
    """Kepler's equation, solved by Newton's method for each of 20,000 orbits until it stands."""
    generator = np.random.default_rng(3)
    mean, eccentricity = generator.uniform(0, 2 * np.pi, 20_000), generator.uniform(0, 0.9, 20_000)

    @hlojit.jit
    def ours(mean: Any, eccentricity: Any) -> Any:
        def solve(orbit: Any) -> Any:
            m, e = orbit

            def goes_on(state: Any) -> Any:
                _, change, n = state
                return (np.abs(change) > 1e-12) & (n < 50)

            def turn(state: Any) -> Any:
                x, _, n = state
                change = (x - e * np.sin(x) - m) / (1 - e * np.cos(x))
                return x - change, change, n + 1

            return hlojit.while_loop(goes_on, turn, (m, 1.0, 0))[0]

        return hlojit.map(solve, (mean, eccentricity))

    @njit
    def theirs(mean: Any, eccentricity: Any) -> Any:
        out = np.empty_like(mean)
        for k in range(len(mean)):
            m, e = mean[k], eccentricity[k]
            x, change, n = m, 1.0, 0
            while abs(change) > 1e-12 and n < 50:
                change = (x - e * np.sin(x) - m) / (1 - e * np.cos(x))
                x -= change
                n += 1
            out[k] = x
        return out

    jax, jnp, lax = _jax()

    @jax.jit
    @jax.vmap
    def jaxs(m: Any, e: Any) -> Any:
        def goes_on(state: Any) -> Any:
            _, change, n = state
            return (jnp.abs(change) > 1e-12) & (n < 50)

        def turn(state: Any) -> Any:
            x, _, n = state
            change = (x - e * jnp.sin(x) - m) / (1 - e * jnp.cos(x))
            return x - change, change, n + 1

        return lax.while_loop(goes_on, turn, (m, 1.0, 0))[0]

    return LoopProgram((mean, eccentricity), ours, theirs, jaxs)


def heat() -> LoopProgram:
    """The heat equation on 256 x 256 points, 100 steps."""
    steps = 100

    @hlojit.jit
    def ours(u: Any, c: Any) -> Any:
        def step(_: Any, u: Any) -> Any:
            u = u.copy()
            u[1:-1, 1:-1] += c * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
            return u

        return hlojit.fori_loop(0, steps, step, u)

    @njit
    def theirs(u: Any, c: Any) -> Any:
        a, b = u.copy(), u.copy()
        for _ in range(steps):
            for i in range(1, a.shape[0] - 1):
                for j in range(1, a.shape[1] - 1):
                    b[i, j] = a[i, j] + c * (a[i + 1, j] + a[i - 1, j] + a[i, j + 1] + a[i, j - 1] - 4 * a[i, j])
            a, b = b, a
        return a

    jax, _, lax = _jax()

    @jax.jit
    def jaxs(u: Any, c: Any) -> Any:
        def step(_: Any, u: Any) -> Any:
            near = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
            return u.at[1:-1, 1:-1].add(c * near)

        return lax.fori_loop(0, steps, step, u)

    return LoopProgram((np.random.default_rng(4).random((256, 256)), 0.1), ours, theirs, jaxs)


def bodies() -> LoopProgram:
    """The motion of 128 bodies, 10 steps."""
    steps, count, dt = 10, 128, 0.01
    generator = np.random.default_rng(5)
    arguments = (generator.standard_normal((count, 3)), generator.standard_normal((count, 3)), generator.random(count))

    @hlojit.jit
    def ours(x: Any, v: Any, mass: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            x, v = state
            apart = x[None, :, :] - x[:, None, :]
            square = (apart * apart).sum(-1) + 1e-3
            pull = mass[None, :] / (square * np.sqrt(square))
            v = v + dt * (pull[:, :, None] * apart).sum(1)
            return x + dt * v, v

        return hlojit.fori_loop(0, steps, step, (x, v))

    @njit
    def theirs(x: Any, v: Any, mass: Any) -> Any:
        x, v = x.copy(), v.copy()
        n = len(x)
        for _ in range(steps):
            for i in range(n):
                ax = ay = az = 0.0
                for j in range(n):
                    dx, dy, dz = x[j, 0] - x[i, 0], x[j, 1] - x[i, 1], x[j, 2] - x[i, 2]
                    square = dx * dx + dy * dy + dz * dz + 1e-3
                    pull = mass[j] / (square * np.sqrt(square))
                    ax += pull * dx
                    ay += pull * dy
                    az += pull * dz
                v[i, 0] += dt * ax
                v[i, 1] += dt * ay
                v[i, 2] += dt * az
            for i in range(n):
                for k in range(3):
                    x[i, k] += dt * v[i, k]
        return x, v

    jax, jnp, lax = _jax()

    @jax.jit
    def jaxs(x: Any, v: Any, mass: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            x, v = state
            apart = x[None, :, :] - x[:, None, :]
            square = (apart * apart).sum(-1) + 1e-3
            pull = mass[None, :] / (square * jnp.sqrt(square))
            v = v + dt * (pull[:, :, None] * apart).sum(1)
            return x + dt * v, v

        return lax.fori_loop(0, steps, step, (x, v))

    return LoopProgram(arguments, ours, theirs, jaxs)


def edit_distance() -> LoopProgram:
    """How many edits make one text of 200 letters another: a table by rows, cell after cell."""
    generator = np.random.default_rng(6)
    one, other = generator.integers(0, 4, 200), generator.integers(0, 4, 180)

    @hlojit.jit
    def ours(one: Any, other: Any) -> Any:
        n, m = len(one), len(other)
        table = np.zeros_like(one, np.int64, shape=(n + 1, m + 1))
        table[:, 0] = np.arange(n + 1)
        table[0, :] = np.arange(m + 1)

        def row(i: Any, _: Any) -> Any:
            def cell(j: Any, _: Any) -> Any:
                change = np.where(one[i - 1] == other[j - 1], 0, 1)
                nearest = np.minimum(table[i - 1, j] + 1, table[i, j - 1] + 1)
                table[i, j] = np.minimum(nearest, table[i - 1, j - 1] + change)
                return ()

            return hlojit.fori_loop(1, m + 1, cell, ())

        hlojit.fori_loop(1, n + 1, row, ())
        return table

    @njit
    def theirs(one: Any, other: Any) -> Any:
        n, m = len(one), len(other)
        table = np.zeros((n + 1, m + 1), np.int64)
        for i in range(n + 1):
            table[i, 0] = i
        for j in range(m + 1):
            table[0, j] = j
        for i in range(1, n + 1):
            for j in range(1, m + 1):
                change = 0 if one[i - 1] == other[j - 1] else 1
                table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + change)
        return table

    jax, jnp, lax = _jax()

    @jax.jit
    def jaxs(one: Any, other: Any) -> Any:
        n, m = len(one), len(other)
        table = jnp.zeros((n + 1, m + 1), jnp.int64)
        table = table.at[:, 0].set(jnp.arange(n + 1)).at[0, :].set(jnp.arange(m + 1))

        def row(i: Any, table: Any) -> Any:
            def cell(j: Any, table: Any) -> Any:
                change = jnp.where(one[i - 1] == other[j - 1], 0, 1)
                nearest = jnp.minimum(table[i - 1, j] + 1, table[i, j - 1] + 1)
                return table.at[i, j].set(jnp.minimum(nearest, table[i - 1, j - 1] + change))

            return lax.fori_loop(1, m + 1, cell, table)

        return lax.fori_loop(1, n + 1, row, table)

    return LoopProgram((one, other), ours, theirs, jaxs)


def knapsack() -> LoopProgram:
    """The most that 60 things of a weight and a value are worth in 500: one row, written in place from its end."""
    generator = np.random.default_rng(7)
    capacity = 500
    weights, values = generator.integers(1, 60, 60), generator.integers(1, 100, 60)

    @hlojit.jit
    def ours(weights: Any, values: Any) -> Any:
        best = np.zeros_like(values, np.int64, shape=capacity + 1)

        def thing(k: Any, _: Any) -> Any:
            weight, value = weights[k], values[k]

            def place(room: Any) -> Any:
                best[room] = np.maximum(best[room], best[room - weight] + value)
                return room - 1

            hlojit.while_loop(lambda room: room >= weight, place, capacity)
            return ()

        hlojit.fori_loop(0, len(weights), thing, ())
        return best

    @njit
    def theirs(weights: Any, values: Any) -> Any:
        best = np.zeros(capacity + 1, np.int64)
        for k in range(len(weights)):
            for room in range(capacity, weights[k] - 1, -1):
                best[room] = max(best[room], best[room - weights[k]] + values[k])
        return best

    jax, jnp, lax = _jax()

    @jax.jit
    def jaxs(weights: Any, values: Any) -> Any:
        rooms = jnp.arange(capacity + 1)

        def thing(k: Any, best: Any) -> Any:
            more = jnp.where(rooms >= weights[k], best[rooms - weights[k]] + values[k], 0)
            return jnp.maximum(best, more)

        return lax.fori_loop(0, len(weights), thing, jnp.zeros(capacity + 1, jnp.int64))

    return LoopProgram((weights, values), ours, theirs, jaxs)


PROGRAMS: dict[str, Callable[[], LoopProgram]] = {
    "ewma 300": lambda: ewma(300),
    "ewma 100000": lambda: ewma(100_000),
    "viterbi": viterbi,
    "sir": sir,
    "lorenz": lorenz,
    "mandelbrot": mandelbrot,
    "life": life,
    "newton": newton,
    "heat": heat,
    "bodies": bodies,
    "edit distance": edit_distance,
    "knapsack": knapsack,
}
