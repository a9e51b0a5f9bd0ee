"""Random graphs keep their meaning: every pass alone, and the default pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Function, Module, Value
from hlojit.ir.interpreter import evaluate
from hlojit.ir.passes.pass_manager import order_passes
from hlojit.ir.passes.pipeline_text import parse_pipeline
from hlojit.ir.passes.registry import default_passes
from hlojit.ir.text.printer import print_module
from hlojit.ir.types import tensor
from hlojit.ir.verifier import verify

SHAPES = ((4, 6), (6, 4), (4,), (6,), (24,), (4, 1), (1, 6), (2, 2, 6), ())
Choice = Callable[[Any], Any]


class Graph:
    """Grows a random function of integers: exact arithmetic, so that every rewrite must keep every bit."""

    def __init__(self, seed: int):
        self.generator = np.random.default_rng(seed)
        self.module = Module()
        inputs = [tensor(shape, "i32") for shape in SHAPES[:5]]
        function = Function("main", inputs, [])
        self.builder = Builder(function.body)
        values = list(function.body.arguments)
        for _ in range(40):
            values.append(self.grow(self.builder, values, depth=0))
        picked = [values[int(i)] for i in self.generator.integers(5, len(values), 4)]
        function.result_types = [value.type for value in picked]
        function.result_attributes = [{} for _ in picked]
        self.builder.return_(*picked)
        self.module.add_function(function)

    def pick(self, values: list[Value]) -> Value:
        """Prefer recent values."""
        return values[-1 - min(int(self.generator.geometric(0.15)), len(values) - 1)]

    def like(self, values: list[Value], value: Value) -> Value:
        """Some value of the same type."""
        same = [other for other in values if other.type is value.type]
        return same[int(self.generator.integers(len(same)))]

    def grow(self, builder: Builder, values: list[Value], depth: int) -> Value:
        """One more value, computed from those there are."""
        steps = [self.unary, self.binary, self.binary, self.constant, self.select, self.broadcast, self.transpose]
        steps += [self.reshape, self.slice, self.concatenate, self.reduce, self.reverse, self.iota, self.pad, self.dot]
        if depth == 0:
            steps += [self.loop, self.branch]
        step = steps[int(self.generator.integers(len(steps)))]
        result: Value = step(builder, values)
        return result

    def unary(self, builder: Builder, values: list[Value]) -> Value:
        return getattr(builder, str(self.generator.choice(["negate", "abs", "sign", "not_"])))(self.pick(values))

    def binary(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        name = self.generator.choice(["add", "subtract", "multiply", "maximum", "minimum", "and_", "xor", "divide"])
        return getattr(builder, str(name))(x, self.like(values, x))

    def constant(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        number = int(self.generator.integers(-1, 3))
        return builder.add(x, builder.constant(number, x.tensor_type)) if number else builder.constant(0, x.tensor_type)

    def select(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        direction = str(self.generator.choice(["LT", "EQ", "NE", "GE"]))
        return builder.select(builder.compare(x, self.like(values, x), direction), self.like(values, x), x)

    def broadcast(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        shape = x.tensor_type.shape
        if len(shape) > 2 or self.generator.random() < 0.3:
            return builder.reshape(x, (1, *shape)) if len(shape) < 3 else x
        extra = int(self.generator.integers(0, len(shape) + 1))
        target = [*shape[:extra], 3 if len(shape) == 2 else 4, *shape[extra:]]
        dimensions = [d for d in range(len(target)) if d != extra]
        target = [5 if extent == 1 and self.generator.random() < 0.5 else extent for extent in target]
        return builder.broadcast_in_dim(x, target, dimensions)

    def transpose(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        return builder.transpose(x, permutation=tuple(int(d) for d in self.generator.permutation(x.tensor_type.rank)))

    def reshape(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        fitting = [shape for shape in SHAPES if np.prod(shape) == x.tensor_type.size]
        fitting.append((x.tensor_type.size,))
        return builder.reshape(x, fitting[int(self.generator.integers(len(fitting)))])

    def slice(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        shape = x.tensor_type.shape
        starts = tuple(int(self.generator.integers(0, extent)) for extent in shape)
        return builder.slice(x, starts, shape, tuple(int(self.generator.integers(1, 3)) for _ in shape))

    def concatenate(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        if not x.tensor_type.rank or x.tensor_type.size > 500:
            return x
        dimension = int(self.generator.integers(x.tensor_type.rank))
        return builder.concatenate([x, self.like(values, x)], dimension=dimension)

    def reduce(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        dimensions = tuple(d for d in range(x.tensor_type.rank) if self.generator.random() < 0.5)
        name = str(self.generator.choice(["add", "maximum"]))
        initial = builder.constant(0 if name == "add" else -(2**31), tensor((), "i32"))
        return builder.reduce([x], [initial], builder.combiner(name, "i32"), dimensions=dimensions)

    def reverse(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        return builder.reverse(x, tuple(range(x.tensor_type.rank))[: int(self.generator.integers(0, 3))])

    def iota(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        if not x.tensor_type.rank:
            return x
        return builder.add(x, builder.iota(x.tensor_type, int(self.generator.integers(x.tensor_type.rank))))

    def pad(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        rank = x.tensor_type.rank
        if x.tensor_type.size > 500:
            return x
        low, high = (tuple(int(n) for n in self.generator.integers(0, 2, rank)) for _ in range(2))
        fill = builder.constant(int(self.generator.integers(3)), tensor((), "i32"))
        return builder.pad(x, fill, low, high, (0,) * rank)

    def dot(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        if x.tensor_type.rank != 2 or x.tensor_type.size > 200:
            return x
        product = builder.dot(x, builder.transpose(self.like(values, x), permutation=(1, 0)))
        return builder.transpose(product, permutation=(1, 0))

    def loop(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        start = builder.constant(0, tensor((), "i32"))

        def body(inner: Builder, count: Value, carried: Value, other: Value) -> tuple[Value, ...]:
            inside = [*values, carried, other]
            for _ in range(4):
                inside.append(self.grow(inner, inside, depth=1))
            last = next(value for value in reversed(inside) if value.type is x.type)
            return inner.add(count, inner.constant(1, tensor((), "i32"))), last, other

        results = builder.while_(
            [start, x, self.like(values, x)],
            lambda inner, count, *_: inner.compare(
                count, inner.constant(int(self.generator.integers(3)), count.type), "LT"
            ),
            body,
        )
        return results[1]

    def branch(self, builder: Builder, values: list[Value]) -> Value:
        x = self.pick(values)
        scalar = [value for value in values if value.type is tensor((), "i32")]
        first = scalar[-1] if scalar else builder.constant(1, tensor((), "i32"))

        def body(inner: Builder) -> Value:
            inside = list(values)
            for _ in range(3):
                inside.append(self.grow(inner, inside, depth=1))
            return next(value for value in reversed(inside) if value.type is x.type)

        predicate = builder.compare(first, builder.constant(1, tensor((), "i32")), "LT")
        result = builder.create("if", [predicate], regions=[builder.region([], body), builder.region([], body)])
        return result.result


PIPELINES = ["canonicalize{fold_limit=64}", "cse,dce", "while-loop-simplifier,dce", "fuse", "fuse{rows=true}", ""]


@pytest.mark.parametrize("seed", range(25))
def test_random_graph_keeps_its_meaning(seed: int) -> None:
    module = Graph(seed).module
    verify(module)
    generator = np.random.default_rng(seed)
    arguments = [generator.integers(-3, 4, type.shape).astype(np.int32) for type in module.main.type.inputs]  # type: ignore[attr-defined]
    expected = evaluate(module, *arguments)
    for text in PIPELINES:
        changed = module.clone()
        pipeline = parse_pipeline(text) if text else order_passes(default_passes())
        pipeline.run(changed, verify="always")
        for one, other in zip(expected, evaluate(changed, *arguments), strict=True):
            assert np.array_equal(one, other), f"{pipeline}\n{print_module(module)}"
