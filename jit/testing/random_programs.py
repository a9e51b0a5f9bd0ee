"""Random valid programs of exact ops: whatever computes one computes these bits.

    module = random_module(7)

Arithmetic, movement, comparison, reductions whose order does not matter, sort, scatter, gather, products of integers, loops and
branches, over few shapes and two element types a program, so that values meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from hlojit.ir.attributes import GatherDimensionNumbers, ScatterDimensionNumbers
from hlojit.ir.builder import Builder
from hlojit.ir.formats import BooleanType, FloatFormat, IntegerType, element_type
from hlojit.ir.graph import Function, Module, Value
from hlojit.ir.types import TensorType, tensor

ELEMENTS: Final[Sequence[str]] = ("f32", "i32", "f32", "f64", "i8", "ui8", "i64", "i1", "bf16", "f16", "ui32", "i16")
SHAPES: Final = ((), (1,), (7,), (5, 7), (7, 5), (35,), (2, 3, 4), (0,), (130,))
_FLOAT: Final = ("add", "subtract", "multiply", "maximum", "minimum")
_INTEGER: Final = (*_FLOAT, "and_", "or_", "xor")
_LOGIC: Final = ("and_", "or_", "xor")


_PLACES: Final = "i32"
"""The type of numbers of places and turns."""
_CHOICES: Final = "i1"


def random_module(
    seed: int,
    *,
    elements: Sequence[str] = ELEMENTS,
    chosen: Sequence[str] = (),
    statements: int = 14,
    depth: int = 1,
) -> Module:
    """A program of two of the element types, or of the ``chosen`` ones; the same for the same arguments.

    Without ``i32`` among them nothing is gathered, scattered or repeated, without ``i1`` nothing is compared.
    """
    return _Writer(np.random.default_rng(seed), elements, chosen, depth).module(statements)


class _Writer:
    def __init__(self, generator: np.random.Generator, elements: Sequence[str], chosen: Sequence[str], depth: int):
        self.generator = generator
        self.depth = depth
        self.has_places, self.has_choices = (name in elements for name in (_PLACES, _CHOICES))
        self.elements = list(chosen) or [str(generator.choice(list(elements))) for _ in range(2)]

    def module(self, statements: int) -> Module:
        module = Module()
        kinds = [self.type() for _ in range(3)] + [tensor((), _PLACES)] * self.has_places
        function = Function("main", kinds, ())
        builder = Builder(function.body)
        values = list(function.body.arguments)
        for _ in range(statements):
            values += self.statement(builder, values, self.depth)
        returned = [values[-1 - self.below(min(len(values), 6))] for _ in range(1 + self.below(3))]
        builder.return_(*returned)
        function.result_types = [value.type for value in returned]
        function.result_attributes = [{} for _ in returned]
        module.add_function(function)
        return module

    # ------------------------------------------------------------- choosing

    def below(self, count: int) -> int:
        return int(self.generator.integers(count))

    def pick(self, items: Sequence[Any]) -> Any:
        return items[self.below(len(items))]

    def type(self) -> TensorType:
        return tensor(self.pick(SHAPES), self.pick(self.elements))

    def value(self, values: Sequence[Value]) -> Value:
        """Recent ones are likelier, so that chains form."""
        return values[-1 - min(self.below(len(values)), self.below(len(values)))]

    def like(self, builder: Builder, values: Sequence[Value], kind: TensorType) -> Value:
        found = [value for value in values if value.type is kind]
        return self.pick(found) if found and self.below(6) else self.constant(builder, kind)

    def constant(self, builder: Builder, kind: TensorType) -> Value:
        element = kind.element_type
        if isinstance(element, BooleanType):
            return builder.constant(bool(self.below(2)), kind)
        if isinstance(element, IntegerType):
            number = self.pick((0, 1, 3, element.minimum, element.maximum))
            return builder.constant(np.full(kind.shape, number, element.storage), kind)
        return builder.constant(float(self.pick((0.0, -0.0, 1.0, -1.5, 0.25, np.inf))), kind)

    # ----------------------------------------------------------- statements

    def statement(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        """One more statement: the values that it makes."""
        steps = [self.binary] * 4 + [self.unary, *[self.select] * self.has_choices, self.move, self.move]
        steps += [self.broadcast, self.pad, self.reduce, *[self.sort] * self.has_choices]
        steps += [self.scatter, self.gather] * self.has_places
        steps += [self.slice, *[self.update] * self.has_places, self.product, self.convert]
        if depth > 0 and self.has_places:
            steps += [*[self.loop] * self.has_choices, self.branch]
        return self.pick(steps)(builder, values, depth) or []

    def binary(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        x = self.value(values)
        element = x.tensor_type.element_type
        names = _LOGIC if isinstance(element, BooleanType) else _FLOAT if isinstance(element, FloatFormat) else _INTEGER
        return [getattr(builder, self.pick(names))(x, self.like(builder, values, x.tensor_type))]

    def unary(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        x = self.value(values)
        element = x.tensor_type.element_type
        if isinstance(element, BooleanType):
            return [builder.not_(x)]
        if isinstance(element, IntegerType) and not element.signed:
            return [builder.not_(x)]
        return [getattr(builder, self.pick(("negate", "abs", "sign")))(x)]

    def select(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        x = self.value(values)
        y = self.like(builder, values, x.tensor_type)
        chosen = builder.compare(x, y, self.pick(("LT", "EQ", "NE", "GE")))
        return [chosen, builder.select(chosen, x, y)]

    def convert(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        return [builder.convert(self.value(values), self.pick(self.elements))]

    def move(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        x = self.value(values)
        kind = x.tensor_type
        if not kind.rank:
            return []
        which = self.below(4)
        if which == 0:
            return [builder.transpose(x, permutation=tuple(map(int, self.generator.permutation(kind.rank))))]
        if which == 1:
            return [builder.reverse(x, tuple(range(kind.rank))[: 1 + self.below(kind.rank)])]
        if which == 2:
            shapes = [shape for shape in SHAPES if np.prod(shape, dtype=int) == kind.size] + [(kind.size,)]
            return [builder.reshape(x, self.pick(shapes))]
        axis = self.below(kind.rank)
        return [builder.concatenate([x, self.like(builder, values, kind)], dimension=axis)] if kind.size < 600 else []

    def slice(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        x = self.value(values)
        shape = x.tensor_type.shape
        starts = tuple(self.below(extent + 1) for extent in shape)
        return [builder.slice(x, starts, shape, tuple(1 + self.below(3) for _ in shape))]

    def pad(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        x = self.value(values)
        kind = x.tensor_type
        if kind.size > 300:
            return []
        fill = self.like(builder, values, kind.with_shape(()))
        sizes = [tuple(self.below(3) for _ in kind.shape) for _ in range(3)]
        return [builder.pad(x, fill, *sizes)]

    def broadcast(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        x = self.like(builder, values, tensor(self.pick(((), (7,))), self.pick(self.elements)))
        target = self.pick(((5, 7), (130, 7), (3, 7)))
        return [builder.broadcast_in_dim(x, target, (1,) if x.tensor_type.rank else ())]

    def reduce(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        x = self.value(values)
        element = x.tensor_type.element_type
        if isinstance(element, BooleanType):
            names: Sequence[str] = _LOGIC
        else:
            names = (
                ("maximum", "minimum") if isinstance(element, FloatFormat) else ("add", "maximum", "multiply", "xor")
            )
        axes = tuple(axis for axis in range(x.tensor_type.rank) if self.below(2))
        name = self.pick(names).removesuffix("_")
        initial = self.like(builder, values, x.tensor_type.with_shape(()))
        return [builder.reduce([x], [initial], builder.combiner(name, element), dimensions=axes)]

    def product(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        names = [name for name in self.elements if isinstance(element_type(name), IntegerType)]
        if not names:
            return []
        name = self.pick(names)
        return [builder.dot(*(self.like(builder, values, tensor(shape, name)) for shape in ((5, 7), (7, 5))))]

    def sort(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        x = self.value(values)
        if not x.tensor_type.rank:
            return []
        other = self.like(builder, values, x.tensor_type.with_element_type(self.pick(self.elements)))
        kinds = [value.tensor_type.with_shape(()) for value in (x, x, other, other)]
        order = "TOTALORDER" if isinstance(x.tensor_type.element_type, FloatFormat) else None
        direction = self.pick(("LT", "GT"))
        region = builder.region(kinds, lambda inner, a, b, *_: inner.compare(a, b, direction, order))
        axis = self.below(x.tensor_type.rank)
        created = builder.create(
            "stablehlo.sort", [x, other], attributes={"dimension": axis, "is_stable": True}, regions=[region]
        )
        return list(created.results)

    def indices(self, builder: Builder, values: list[Value], count: int) -> Value:
        """Places that may be anywhere: what is outside is clamped, or left out."""
        known = [value for value in values if value.type is tensor((count,), "i32")]
        if known and self.below(2):
            return builder.reshape(self.pick(known), (count, 1))
        return builder.constant(self.generator.integers(-2, 140, (count, 1)).astype("i4"))

    def scatter(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        kind = tensor((130,), self.pick(self.elements))
        if isinstance(kind.element_type, BooleanType):
            return []
        operand, updates = self.like(builder, values, kind), self.like(builder, values, kind.with_shape((7,)))
        numbers = ScatterDimensionNumbers(
            inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1
        )
        name = self.pick(("maximum", "minimum", "add"))
        created = builder.create(
            "stablehlo.scatter",
            [operand, self.indices(builder, values, 7), updates],
            attributes={"scatter_dimension_numbers": numbers},
            regions=[builder.combiner(name, kind.element_type)],
        )
        return [created.result]

    def gather(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        source = self.like(builder, values, tensor((130,), self.pick(self.elements)))
        numbers = GatherDimensionNumbers(collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=1)
        created = builder.create(
            "stablehlo.gather",
            [source, self.indices(builder, values, 7)],
            attributes={"dimension_numbers": numbers, "slice_sizes": (1,)},
        )
        return [created.result]

    def update(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        whole = self.like(builder, values, tensor((130,), self.pick(self.elements)))
        at = self.like(builder, values, tensor((), "i32"))
        if self.below(2):
            return [builder.dynamic_slice(whole, at, slice_sizes=(7,))]
        part = self.like(builder, values, whole.tensor_type.with_shape((7,)))
        return [builder.dynamic_update_slice(whole, part, at)]

    # --------------------------------------------------------- control flow

    def loop(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        count = self.below(4)
        state = [self.value(values) for _ in range(1 + self.below(3))]
        scalar = tensor((), "i32")

        def body(inner: Builder, number: Value, *carried: Value) -> list[Value]:
            inside = [*values, *carried]
            for _ in range(1 + self.below(4)):
                inside += self.statement(inner, inside, depth - 1)
            following = [self.like(inner, inside, value.tensor_type) for value in carried]
            return [inner.add(number, inner.constant(1, scalar)), *following]

        results = builder.while_(
            [builder.constant(0, scalar), *state],
            lambda inner, number, *_: inner.compare(number, inner.constant(count, scalar), "LT"),
            body,
        )
        return list(results[1:])

    def branch(self, builder: Builder, values: list[Value], depth: int) -> list[Value]:
        kinds = [self.value(values).tensor_type for _ in range(1 + self.below(2))]

        def body(inner: Builder) -> list[Value]:
            inside = list(values)
            for _ in range(self.below(3)):
                inside += self.statement(inner, inside, depth - 1)
            return [self.like(inner, inside, kind) for kind in kinds]

        index = self.like(builder, values, tensor((), "i32"))
        return list(builder.case(index, [body] * (2 + self.below(2))))
