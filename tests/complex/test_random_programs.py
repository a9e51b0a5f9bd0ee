"""Random programs of complex numbers: the CPU and the simulator against the reference, which computes with them as NumPy does.

Every choice goes through ``choose``, so Hypothesis makes the choices, and makes a program that fails small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import hlojit
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SHAPES: tuple[tuple[int, ...], ...] = ((), (5,), (3, 4), (4, 3), (2, 17), (1, 1))
BINARY = ("add", "subtract", "multiply", "multiply", "maximum", "minimum")
UNARY = ("negate", "sign", "abs", "conjugate", "real", "exponential", "tanh", "reverse", "transpose", "reshape")
DIRECTIONS = ("EQ", "NE", "LT", "GE")
TOLERANCE = {"f32": 2e-4, "f64": 1e-11}

Type = tuple[tuple[int, ...], str]


@pytest.fixture(autouse=True, scope="module")
def simulator(request: pytest.FixtureRequest) -> Iterator[None]:
    """The back end ``cuda`` runs on the simulator, unless there is a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("--gpu", default=False):
            patch.setenv("HLOJIT_CUDA", "simulator")
        yield


class ComplexProgram:
    """Writes one program of complex values; ``choose(n)`` returns a number below n."""

    def __init__(self, choose: Callable[[int], int], element: str):
        self.choose = choose
        self.complex = f"complex<{element}>"
        self.element = element
        self.lines: list[str] = []
        self.count = 0

    def spell(self, shape: Sequence[int], element: str = "") -> str:
        return "tensor<" + "".join(f"{extent}x" for extent in shape) + (element or self.complex) + ">"

    def emit(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def build(self) -> tuple[str, list[tuple[int, ...]]]:
        """The text, and the shapes of its arguments."""
        shapes = [SHAPES[self.choose(len(SHAPES))] for _ in range(1 + self.choose(3))]
        values = [(f"%a{number}", shape) for number, shape in enumerate(shapes)]
        for _ in range(2 + self.choose(8)):
            values.append(self.step(values))
        chosen = values[-1 - self.choose(min(3, len(values))) :]
        arguments = ", ".join(f"{name}: {self.spell(shape)}" for name, shape in values[: len(shapes)])
        types = ", ".join(self.spell(shape) for _, shape in chosen)
        body = "\n  ".join(self.lines)
        names = ", ".join(name for name, _ in chosen)
        return f"func.func @main({arguments}) -> ({types}) {{\n  {body}\n  return {names} : {types}\n}}", shapes

    def step(self, values: list[tuple[str, tuple[int, ...]]]) -> tuple[str, tuple[int, ...]]:
        steps = (self.binary, self.binary, self.unary, self.unary, self.select, self.reduce, self.branch, self.constant)
        name, shape = values[-1 - self.choose(len(values))]
        return steps[self.choose(len(steps))](values, name, shape)

    def like(self, values: list[tuple[str, tuple[int, ...]]], shape: tuple[int, ...]) -> str:
        same = [name for name, other in values if other == shape]
        return same[self.choose(len(same))]

    def binary(
        self, values: list[tuple[str, tuple[int, ...]]], name: str, shape: tuple[int, ...]
    ) -> tuple[str, tuple[int, ...]]:
        op = BINARY[self.choose(len(BINARY))]
        return self.emit(f"stablehlo.{op} {name}, {self.like(values, shape)} : {self.spell(shape)}"), shape

    def bounded(self, name: str, shape: tuple[int, ...]) -> str:
        """A number whose parts are small: functions that grow fast stay finite."""
        return self.emit(f"stablehlo.sign {name} : {self.spell(shape)}")

    def unary(
        self, values: list[tuple[str, tuple[int, ...]]], name: str, shape: tuple[int, ...]
    ) -> tuple[str, tuple[int, ...]]:
        op = UNARY[self.choose(len(UNARY))]
        type, part = self.spell(shape), self.spell(shape, self.element)
        if op in ("abs", "real"):
            size = self.emit(f"stablehlo.{op} {name} : ({type}) -> {part}")
            return self.emit(f"stablehlo.complex {size}, {size} : {type}"), shape
        if op == "conjugate":
            return self.emit(f"chlo.conj {name} : {type} -> {type}"), shape
        if op == "reverse":
            return self.emit(
                f"stablehlo.reverse {name}, dims = [{', '.join(map(str, range(len(shape))))}] : {type}"
            ), shape
        if op == "transpose":
            order = tuple(reversed(range(len(shape))))
            turned = tuple(shape[d] for d in order)
            return self.emit(
                f"stablehlo.transpose {name}, dims = {list(order)} : ({type}) -> {self.spell(turned)}"
            ), turned
        if op == "reshape":
            flat = (int(np.prod(shape, dtype=int)),)
            return self.emit(f"stablehlo.reshape {name} : ({type}) -> {self.spell(flat)}"), flat
        if op in ("exponential", "tanh"):
            name = self.bounded(name, shape)
        return self.emit(f"stablehlo.{op} {name} : {type}"), shape

    def select(
        self, values: list[tuple[str, tuple[int, ...]]], name: str, shape: tuple[int, ...]
    ) -> tuple[str, tuple[int, ...]]:
        type, predicate = self.spell(shape), self.spell(shape, "i1")
        other = self.like(values, shape)
        direction = DIRECTIONS[self.choose(len(DIRECTIONS))]
        chosen = self.emit(f"stablehlo.compare {direction}, {name}, {other} : ({type}, {type}) -> {predicate}")
        return self.emit(f"stablehlo.select {chosen}, {name}, {other} : {predicate}, {type}"), shape

    def constant(
        self, values: list[tuple[str, tuple[int, ...]]], name: str, shape: tuple[int, ...]
    ) -> tuple[str, tuple[int, ...]]:
        number = ("(1.0, 0.0)", "(0.0, 1.0)", "(-0.5, 0.25)", "(0.0, 0.0)")[self.choose(4)]
        return self.emit(f"stablehlo.constant dense<{number}> : {self.spell(shape)}"), shape

    def reduce(
        self, values: list[tuple[str, tuple[int, ...]]], name: str, shape: tuple[int, ...]
    ) -> tuple[str, tuple[int, ...]]:
        op, start = (("add", "(0.0, 0.0)"), ("multiply", "(1.0, 0.0)"))[self.choose(2)]
        dimensions = [d for d in range(len(shape)) if self.choose(2)]
        kept = tuple(extent for d, extent in enumerate(shape) if d not in dimensions)
        scalar = self.spell(())
        init = self.emit(f"stablehlo.constant dense<{start}> : {scalar}")
        return self.emit(
            f"stablehlo.reduce({name} init: {init}) applies stablehlo.{op} across dimensions = {dimensions} : "
            f"({self.spell(shape)}, {scalar}) -> {self.spell(kept)}"
        ), kept

    def branch(
        self, values: list[tuple[str, tuple[int, ...]]], name: str, shape: tuple[int, ...]
    ) -> tuple[str, tuple[int, ...]]:
        """A loop of a few steps whose state is complex and reads a value from outside."""
        type, other = self.spell(shape), self.like(values, shape)
        self.count += 1
        mark = self.count
        zero = self.emit("stablehlo.constant dense<0> : tensor<i32>")
        limit = self.emit(f"stablehlo.constant dense<{1 + self.choose(3)}> : tensor<i32>")
        one = self.emit("stablehlo.constant dense<1> : tensor<i32>")
        op = ("add", "subtract")[self.choose(2)]
        self.lines.append(
            f"%w{mark}:2 = stablehlo.while(%z{mark} = {name}, %k{mark} = {zero}) : {type}, tensor<i32>\n"
            f"   cond {{\n    %c{mark} = stablehlo.compare LT, %k{mark}, {limit} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
            f"    stablehlo.return %c{mark} : tensor<i1>\n  }} do {{\n"
            f"    %n{mark} = stablehlo.{op} {other}, %z{mark} : {type}\n"
            f"    %m{mark} = stablehlo.add %k{mark}, {one} : tensor<i32>\n"
            f"    stablehlo.return %n{mark}, %m{mark} : {type}, tensor<i32>\n  }}"
        )
        return f"%w{mark}#0", shape


def check(choose: Callable[[int], int], backend: str, element: str) -> None:
    """One program on a back end, beside the reference."""
    text, shapes = ComplexProgram(choose, element).build()
    generator = np.random.default_rng(1)
    dtype = np.complex64 if element == "f32" else np.complex128
    arguments = [(generator.normal(size=shape) + 1j * generator.normal(size=shape)).astype(dtype) for shape in shapes]
    with np.errstate(all="ignore"):
        expected = hlojit.compile(text, backend="reference")(*arguments)
    found = hlojit.compile(text, backend=backend)(*arguments)
    pairs = zip(*(results if isinstance(results, tuple) else (results,) for results in (found, expected)), strict=True)
    for left, right in ((np.asarray(one), np.asarray(other)) for one, other in pairs):
        assert (left.dtype, left.shape) == (right.dtype, right.shape), text
        size = np.max(np.abs(right), initial=1.0, where=np.isfinite(right))
        np.testing.assert_allclose(left, right, rtol=TOLERANCE[element], atol=TOLERANCE[element] * size, err_msg=text)


@pytest.mark.parametrize("element", ["f32", "f64"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_random_programs_on_the_cpu(element: str, data: st.DataObject) -> None:
    check(lambda number: data.draw(st.integers(0, number - 1)), "cpu", element)


@pytest.mark.parametrize("element", ["f32", "f64"])
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_random_programs_on_the_simulator(element: str, data: st.DataObject) -> None:
    check(lambda number: data.draw(st.integers(0, number - 1)), "cuda", element)
