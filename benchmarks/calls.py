"""What a call of a jitted function costs beside numba and JAX, turn by turn in one process: ``python -m benchmarks.calls``.

Programs are so small that nearly all of the time is the call.  Figures are the least of many rounds, in microseconds; a peer that
is not installed, or that has no such kind of argument, has none.  ``--output FILE`` writes them as JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.__main__ import machine

ROUNDS, RUNS = 25, 4000


class Case(NamedTuple):
    """One kind of call; ``options`` are those of ``hlojit.jit``."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: Mapping[str, Any] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})
    peers: tuple[str, ...] = ("numba", "jax")
    is_method: bool = False
    """Whether it is called as ``instance.method(...)``; the function then makes an instance for a system."""
    is_inner: bool = False
    """Whether code that numba compiled calls it, again and again."""


class Pair(NamedTuple):
    """Two results."""

    a: Any
    b: Any


@dataclasses.dataclass
class State:
    """Two results in an object."""

    a: Any
    b: Any


rate = 2.0
weights = np.ones(8)
model = SimpleNamespace(rate=2.0, weights=np.ones(8), sizes=[8, 8])


def cases() -> Iterator[Case]:
    """All kinds of calls."""
    x = np.arange(8.0)
    six = {name: x.copy() for name in "abcdef"}

    def of_name(x: Any) -> Any:
        return x * rate

    def of_things(x: Any) -> Any:
        return x * model.rate + model.weights[: model.sizes[0]]

    def writing(x: Any, y: Any) -> None:
        x += y

    def in_steps(x: Any, n: Any) -> Any:
        return x * n

    yield Case("x + x", lambda x: x + x, (x,))
    yield Case("x + 1.5", lambda x, y: x + y, (x, 1.5))
    yield Case("a number of NumPy's", lambda x, y: x + y, (x, np.float64(1.5)))
    yield Case("keyword", lambda x, y: x + y, (x,), {"y": x})
    yield Case("global name", of_name, (x,))
    yield Case("global array", lambda x: x * weights, (x,))
    yield Case("attributes, an array and a list outside", of_things, (x,), {}, {}, ())
    yield Case("static", in_steps, (x, 3), {}, {"static_argnames": "n"}, ())
    yield Case("ten arrays", lambda a, b, c, d, e, f, g, h, i, j: a + b + c + d + e + f + g + h + i + j, (x,) * 10)
    yield Case("dict of six", lambda p: p["a"] + p["b"] + p["c"] + p["d"] + p["e"] + p["f"], (six,), {}, {}, ("jax",))
    yield Case("method, its object an argument", layer, (x,), {}, {}, ("numba", "jax"), is_method=True)
    yield Case("method, its object static", fixed, (x,), {}, {}, (), is_method=True)
    yield Case("tuple of results", lambda x: (x + 1, x + 2), (x,))
    yield Case("named tuple of results", lambda x: Pair(x + 1, x + 2), (x,))
    yield Case("dataclass of results", lambda x: State(x + 1, x + 2), (x,), {}, {}, ())
    yield Case("dictionary of results", lambda x: {"a": x + 1, "b": x + 2}, (x,), {}, {}, ("jax",))
    yield Case("a number as result", lambda x: x.sum(), (x,))
    yield Case("written argument", writing, (x.copy(), np.zeros(8)), {}, {}, ("numba",))
    yield Case("x + x, called by numba's code", lambda x: x + x, (x,), {}, {}, ("numba",), is_inner=True)
    yield Case(
        "written argument, called by numba's code", writing, (x.copy(), np.zeros(8)), {}, {}, ("numba",), is_inner=True
    )


def layer(system: str) -> Any:
    """An object with an array and a method, as a system has them."""

    class Layer:
        def __init__(self, weights: Any):
            self.weights = weights

        def method(self, x: Any) -> Any:
            return x + self.weights

    kind: Any = Layer
    if system == "hlojit":
        import hlojit

        kind.method = hlojit.jit(Layer.method)
        hlojit.register_dataclass(kind, data_fields=("weights",))
    elif system == "numba":
        import numba
        from numba.experimental import jitclass

        kind = jitclass([("weights", numba.float64[::1])])(Layer)
    elif system == "jax":
        import jax

        kind.method = jax.jit(Layer.method)
        jax.tree_util.register_pytree_node(kind, lambda each: ((each.weights,), None), lambda _, leaves: kind(*leaves))
    return kind(np.ones(8))


def fixed(system: str) -> Any:
    """An object whose attribute is a constant of its method."""
    import hlojit

    class Scale:
        def __init__(self) -> None:
            self.factor = 2.0

        def method(self, x: Any) -> Any:
            return x * self.factor

    kind: Any = Scale
    if system == "hlojit":
        kind.method = hlojit.jit(Scale.method, static_argnums=0)
    return kind()


def systems(case: Case) -> dict[str, Any]:
    """The function as every system has it, or an instance for each whose method is called."""
    import hlojit

    if case.is_method:
        named = [each for each in case.peers if importlib.util.find_spec(each)]
        return {system: case.function(system) for system in ("hlojit", *named, "numpy")}
    if case.is_inner and importlib.util.find_spec("numba"):
        import numba

        makers = {"hlojit": hlojit.jit, "numba": numba.njit}
        return {system: repeated(make(case.function), len(case.arguments)) for system, make in makers.items()}
    found: dict[str, Any] = {"hlojit": hlojit.jit(case.function, **case.options)}
    if "numba" in case.peers and importlib.util.find_spec("numba"):
        import numba

        found["numba"] = numba.njit(case.function)
    if "jax" in case.peers and importlib.util.find_spec("jax"):
        import jax

        jax.config.update("jax_enable_x64", True)
        found["jax"] = jax.jit(case.function)
    found["numpy"] = case.function
    return found


def repeated(function: Any, count: int) -> Any:
    """A function of numba's that calls one with so many arguments ``RUNS`` times."""
    import numba

    names = ", ".join(f"x{number}" for number in range(count))
    scope: dict[str, Any] = {"function": function, "runs": RUNS}
    exec(f"def loop({names}):\n    for _ in range(runs):\n        function({names})", scope)
    return numba.njit(scope["loop"])


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Time one kind of call, turn by turn."""
    functions = systems(case)
    seconds = dict.fromkeys(functions, float("inf"))
    arguments, named = case.arguments, case.named
    for function in functions.values():
        for _ in range(3):
            function.method(*arguments) if case.is_method else function(*arguments, **named)
    for _ in range(rounds):
        for system, function in functions.items():
            runs = range(1 if case.is_inner else RUNS if system != "jax" else RUNS // 10)
            start = time.perf_counter()
            if case.is_method:
                # As methods are called: of instance.method(*arguments) Python makes a bound method first.
                (x,) = arguments
                for _ in runs:
                    function.method(x)
            elif named:
                for _ in runs:
                    function(*arguments, **named)
            else:
                for _ in runs:
                    function(*arguments)
            count = RUNS if case.is_inner else len(runs)
            seconds[system] = min(seconds[system], (time.perf_counter() - start) / count)
    return {"name": case.name, "microseconds": {system: round(each * 1e6, 3) for system, each in seconds.items()}}


def page(result: dict[str, Any]) -> str:
    """A result file as Markdown."""
    peers = ("hlojit", "numba", "jax", "numpy")
    lines = [f"| call, us | {' | '.join(peers)} |", "|---|" + "---:|" * len(peers)]
    for row in result["rows"]:
        cells = (f"{row['microseconds'][peer]:.2f}" if peer in row["microseconds"] else "" for peer in peers)
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run all of them and print, or write, what was measured."""
    parser = argparse.ArgumentParser(prog="benchmarks.calls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    rows = [measure(case, options.rounds) for case in cases()]
    result = {"machine": machine(), "rows": rows}
    if options.output:
        lines = ",\n ".join(json.dumps(row) for row in rows)
        options.output.write_text(f'{{"machine": {json.dumps(result["machine"])},\n"rows": [\n {lines}\n]}}\n')
    print(page(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
