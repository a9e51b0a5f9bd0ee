"""Random programs that leave sizes open: the CPU back end against the reference interpreter, which evaluates them as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.interpreter import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st

Size = int | str
"""A number, or the name of an unknown size: equal names are equal sizes."""
BOUND = 6


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[Size, ...]
    bounded: bool = False
    """Whether an unknown size of it is one that only data tell: such sizes have bounds."""


class Writer:
    """Writes a program of one function line by line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tensors: list[Tensor] = []
        self.count = 0
        self.bounds: dict[str, int] = {}
        self.constants: dict[str, str] = {}

    def kind(self, shape: tuple[Size, ...], element: str = "f32") -> str:
        sizes = "".join(f"{extent}x" if isinstance(extent, int) else "?x" for extent in shape)
        known = [str(self.bounds[extent]) if extent in self.bounds else "?" for extent in shape]
        encoding = f", #stablehlo.bounds<{', '.join(known)}>" if set(known) - {"?"} else ""
        return f"tensor<{sizes}{element}{encoding}>"

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def emit(self, text: str, shape: tuple[Size, ...], bounded: bool) -> None:
        name = self.fresh()
        self.lines.append(f"%{name} = {text}")
        self.tensors.append(Tensor(name, shape, bounded))

    def size(self, parts: tuple[Size, ...], bounded: bool) -> Size:
        """The sum of sizes."""
        numbers = sum(part for part in parts if isinstance(part, int))
        names = sorted(part for part in parts if isinstance(part, str))
        if not names:
            return numbers
        name = "+".join([*names, str(numbers)])
        known = [self.bounds.get(part) for part in names]
        if bounded and all(each is not None for each in known):
            self.bounds[name] = numbers + sum(each for each in known if each is not None)
        return name


def unary(w: Writer, x: Tensor, draw: Any) -> None:
    op = draw(st.sampled_from(["negate", "tanh", "abs"]))
    w.emit(f"stablehlo.{op} %{x.name} : {w.kind(x.shape)}", x.shape, x.bounded)


def binary(w: Writer, x: Tensor, draw: Any) -> None:
    others = [each for each in w.tensors if each.shape == x.shape]
    y, op = draw(st.sampled_from(others)), draw(st.sampled_from(["add", "multiply", "maximum"]))
    w.emit(f"stablehlo.{op} %{x.name}, %{y.name} : {w.kind(x.shape)}", x.shape, x.bounded or y.bounded)


def transpose(w: Writer, x: Tensor, draw: Any) -> None:
    order = draw(st.permutations(range(len(x.shape))))
    shape = tuple(x.shape[d] for d in order)
    w.emit(
        f"stablehlo.transpose %{x.name}, dims = {list(order)} : ({w.kind(x.shape)}) -> {w.kind(shape)}",
        shape,
        x.bounded,
    )


def reverse(w: Writer, x: Tensor, draw: Any) -> None:
    if x.shape:
        dimension = draw(st.integers(0, len(x.shape) - 1))
        w.emit(f"stablehlo.reverse %{x.name}, dims = [{dimension}] : {w.kind(x.shape)}", x.shape, x.bounded)


def reduce(w: Writer, x: Tensor, draw: Any) -> None:
    if x.shape:
        dimension = draw(st.integers(0, len(x.shape) - 1))
        op, init = draw(st.sampled_from([("add", "zero"), ("maximum", "lowest"), ("minimum", "zero")]))
        shape = (*x.shape[:dimension], *x.shape[dimension + 1 :])
        w.emit(
            f"stablehlo.reduce(%{x.name} init: %{init}) applies stablehlo.{op} across dimensions = [{dimension}] : "
            f"({w.kind(x.shape)}, tensor<f32>) -> {w.kind(shape)}",
            shape,
            x.bounded,
        )


def concatenate(w: Writer, x: Tensor, draw: Any) -> None:
    if x.shape:
        dimension = draw(st.integers(0, len(x.shape) - 1))
        rest = (*x.shape[:dimension], *x.shape[dimension + 1 :])
        others = [
            each
            for each in w.tensors
            if len(each.shape) == len(x.shape) and (*each.shape[:dimension], *each.shape[dimension + 1 :]) == rest
        ]
        y = draw(st.sampled_from(others))
        bounded = x.bounded or y.bounded
        # Sums of bounded and unbounded sizes have no bound that the type could state.
        total = w.size((x.shape[dimension], y.shape[dimension]), bounded)
        shape = (*x.shape[:dimension], total, *x.shape[dimension + 1 :])
        w.emit(
            f"stablehlo.concatenate %{x.name}, %{y.name}, dim = {dimension} : ({w.kind(x.shape)}, {w.kind(y.shape)}) -> "
            f"{w.kind(shape)}",
            shape,
            bounded,
        )


def pad(w: Writer, x: Tensor, draw: Any) -> None:
    low = draw(st.lists(st.integers(0, 2), min_size=len(x.shape), max_size=len(x.shape)))
    high = draw(st.lists(st.integers(0, 2), min_size=len(x.shape), max_size=len(x.shape)))
    shape = tuple(w.size((extent, a + b), x.bounded) for extent, a, b in zip(x.shape, low, high))
    zeros = [0] * len(x.shape)
    w.emit(
        f"stablehlo.pad %{x.name}, %one, low = {low}, high = {high}, interior = {zeros} : "
        f"({w.kind(x.shape)}, tensor<f32>) -> {w.kind(shape)}",
        shape,
        x.bounded,
    )


def product(w: Writer, x: Tensor, draw: Any) -> None:
    others = [y for y in w.tensors if len(y.shape) == 2 and len(x.shape) == 2 and y.shape[0] == x.shape[1]]
    if others:
        y = draw(st.sampled_from(others))
        shape = (x.shape[0], y.shape[1])
        w.emit(
            f"stablehlo.dot_general %{x.name}, %{y.name}, contracting_dims = [1] x [0] : "
            f"({w.kind(x.shape)}, {w.kind(y.shape)}) -> {w.kind(shape)}",
            shape,
            x.bounded or y.bounded,
        )


def sort(w: Writer, x: Tensor, draw: Any) -> None:
    if x.shape:
        dimension, kind = draw(st.integers(0, len(x.shape) - 1)), w.kind(x.shape)
        w.emit(
            f'"stablehlo.sort"(%{x.name}) <{{dimension = {dimension} : i64, is_stable = true}}> ({{ ^bb0(%a: tensor<f32>, '
            "%b: tensor<f32>): %p = stablehlo.compare GT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1> "
            f"stablehlo.return %p : tensor<i1> }}) : ({kind}) -> {kind}",
            x.shape,
            x.bounded,
        )


def shorten(w: Writer, x: Tensor, draw: Any) -> None:
    """A dimension of known size becomes one whose size is data."""
    known = [d for d, extent in enumerate(x.shape) if extent == BOUND]
    if known:
        dimension, number = draw(st.sampled_from(known)), draw(st.integers(0, 1))
        w.bounds[f"n{number}"] = BOUND
        shape = (*x.shape[:dimension], f"n{number}", *x.shape[dimension + 1 :])
        if all(isinstance(extent, int) or extent in w.bounds for extent in shape):
            w.emit(
                f"stablehlo.set_dimension_size %{x.name}, %n{number}, dim = {dimension} : "
                f"({w.kind(x.shape)}, tensor<i32>) -> {w.kind(shape)}",
                shape,
                True,
            )


OPS = [unary, binary, transpose, reverse, reduce, concatenate, pad, product, sort]
SHAPES: list[list[tuple[Size, ...]]] = [
    [("b", 3), (3, "b"), ("b",)],
    [(BOUND, 3), (3, BOUND), (BOUND,), (BOUND, BOUND)],
]


@st.composite
def programs(draw: Any, unknown_to_data: bool) -> tuple[str, list[tuple[Size, ...]]]:
    w = Writer()
    shapes = draw(st.lists(st.sampled_from(SHAPES[unknown_to_data]), min_size=1, max_size=3))
    arguments = [f"%x{number}: {w.kind(shape)}" for number, shape in enumerate(shapes)]
    w.tensors = [Tensor(f"x{number}", shape) for number, shape in enumerate(shapes)]
    if unknown_to_data:
        arguments += ["%n0: tensor<i32>", "%n1: tensor<i32>"]
        for tensor in tuple(w.tensors):
            shorten(w, tensor, draw)
    for _ in range(draw(st.integers(1, 8))):
        draw(st.sampled_from([*OPS, shorten] if unknown_to_data else OPS))(w, draw(st.sampled_from(w.tensors)), draw)
    results = draw(st.lists(st.sampled_from(w.tensors), min_size=1, max_size=3))
    results.append(w.tensors[-1])
    kinds = ", ".join(w.kind(each.shape) for each in results)
    body = "\n  ".join(w.lines)
    text = f"""func.func @main({", ".join(arguments)}) -> ({kinds}) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  {body}
  return {", ".join(f"%{each.name}" for each in results)} : {kinds}
}}"""
    return text, shapes


def check(
    text: str, shapes: list[tuple[Size, ...]], sizes: list[int], numbers: list[tuple[int, int]], how: str = "specialize"
) -> None:
    module = hlojit.parse(text)
    hlojit.verify(module)
    executable = hlojit.compile(module, options={"dynamic_shapes": how})
    if how == "symbolic" and "?" in text:
        assert executable.dynamic_shapes == how, executable.why
    generator = np.random.default_rng(0)
    for b, data in zip(sizes, numbers):
        inputs: list[Any] = [
            generator.standard_normal([extent if isinstance(extent, int) else b for extent in shape]).astype(np.float32)
            for shape in shapes
        ]
        if "%n0" in text:
            inputs += [np.int32(number) for number in data]
        results = executable(*inputs)
        for result, expected in zip(results, evaluate(module, *inputs), strict=True):
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(programs(False), st.lists(st.integers(0, 9), min_size=2, max_size=2, unique=True))
def test_sizes_of_arguments(program: tuple[str, list[tuple[Size, ...]]], sizes: list[int]) -> None:
    check(*program, sizes, [(0, 0)] * 2)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(programs(False), st.lists(st.integers(0, 40), min_size=3, max_size=3, unique=True))
def test_one_compilation(program: tuple[str, list[tuple[Size, ...]]], sizes: list[int]) -> None:
    check(*program, sizes, [(0, 0)] * 3, "symbolic")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(programs(True), st.lists(st.tuples(st.integers(0, BOUND), st.integers(0, BOUND)), min_size=3, max_size=3))
def test_sizes_that_only_data_tell(program: tuple[str, list[tuple[Size, ...]]], numbers: list[tuple[int, int]]) -> None:
    check(*program, [1] * 3, numbers)
