"""Where an instruction may stand: alone, of constants, in a chain, in loops, branches and regions - a program of each.

    sample = Sample("nova.silu", (tensor((1,), "f32"),), write)
    for name, module in programs(sample, sizes):
        ...

``write(builder, values)`` writes what is tried and returns its results; the operand types of a sample are those of one element,
and every program gives them a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from hlojit.ir.builder import Builder, build_function
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import ElementType, FloatFormat
from hlojit.ir.graph import Module, Value
from hlojit.ir.scalar.arrays import encode_array
from hlojit.ir.types import TensorType, tensor
from hlojit.testing.arguments import NDArray, Values, arguments_for, made_up
from hlojit.testing.stated import Shape, Shapes, StatedArguments, stated_arguments

Write = Callable[[Builder, Sequence[Value]], Sequence[Value]]

SIZES: tuple[tuple[int, ...], ...] = (
    (65,),
    (5, 7),
    (1000,),
    (1,),
    (17,),
    (63,),
    (64,),
    (3, 1, 130),
    (4097,),
    (16,),
)
"""Shapes that are tried, those first that find most: beside multiples of vectors and blocks."""

EDGES: tuple[tuple[int, ...], ...] = ((), (0, 3))
"""Shapes that are always tried."""


@dataclass(frozen=True)
class Sample:
    """Something that is tried: its name, its operands' element types, and how it is written.

    ``shapes`` are those that it takes, several for each try (empty: any, one for all operands); ``is_elementwise`` says that it
    may stand in a region on scalars; ``arguments`` makes arrays that make sense to it.
    """

    name: str
    elements: tuple[ElementType, ...]
    write: Write
    shapes: tuple[Shapes, ...] = ()
    is_elementwise: bool = True
    arguments: StatedArguments | None = None

    def types(self, shapes: Shapes) -> list[TensorType]:
        """The operands' types in shapes."""
        return [tensor(shape, each) for shape, each in zip(shapes, self.elements, strict=True)]

    def alike(self, shape: Shape) -> Shapes:
        """A shape for all operands."""
        return (shape,) * len(self.elements)

    def tries(self, sizes: int) -> list[Shapes]:
        """The shapes in which it is tried alone."""
        return list(self.shapes) or [self.alike(shape) for shape in (*SIZES[:sizes], *EDGES)]

    @property
    def usual(self) -> Shapes:
        """The shapes in which it is tried in programs."""
        return self.shapes[0] if self.shapes else self.alike(SIZES[1])

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.elements))})"


def alone(sample: Sample, shapes: Shapes) -> Module:
    """Of arguments."""
    module = Module()
    with build_function(module, "main", sample.types(shapes)) as builder:
        builder.return_(*sample.write(builder, builder.arguments))
    return module


def of_constants(sample: Sample, shapes: Shapes, *, keep_first: bool) -> Module:
    """Of constants; with ``keep_first`` the first operand is an argument."""
    module = Module()
    types = sample.types(shapes)
    with build_function(module, "main", types[:1] if keep_first else []) as builder:
        values = [
            builder.arguments[0] if keep_first and number == 0 else builder.constant(array, kind)
            for number, (array, kind) in enumerate(zip(_constants(sample, types), types))
        ]
        builder.return_(*sample.write(builder, values))
    return module


def _constants(sample: Sample, types: Sequence[TensorType]) -> list[NDArray]:
    if sample.arguments is not None:
        return stated_arguments(sample.arguments, types, 7)
    return [made_up(kind, (7, number), Values.ORDINARY) for number, kind in enumerate(types)]


def in_chain(sample: Sample, shapes: Shapes) -> Module:
    """Of what other ops make, and read by others, twice."""
    module = Module()
    with build_function(module, "main", sample.types(shapes)) as builder:
        first = [builder.maximum(value, value) for value in builder.arguments]
        results = list(sample.write(builder, first))
        again = list(sample.write(builder, builder.arguments))
        chosen = [builder.maximum(a, b) for a, b in zip(results, again)]
        builder.return_(*chosen, *results)
    return module


def in_loop(sample: Sample, shapes: Shapes) -> Module:
    """In the body of a loop, of values that it carries."""
    module = Module()
    scalar = tensor((), "i32")
    with build_function(module, "main", sample.types(shapes)) as builder:
        start = [builder.constant(0, scalar), *builder.arguments]

        def body(inner: Builder, number: Value, *values: Value) -> list[Value]:
            results = sample.write(inner, values)
            following = [
                next((result for result in results if result.type is value.type), value) if place == 0 else value
                for place, value in enumerate(values)
            ]
            return [inner.add(number, inner.constant(1, scalar)), *following]

        results = builder.while_(
            start, lambda inner, number, *_: inner.compare(number, inner.constant(2, scalar), "LT"), body
        )
        builder.return_(*results[1:])
    return module


def in_branch(sample: Sample, shapes: Shapes) -> Module:
    """In a branch that is taken."""
    module = Module()
    with build_function(module, "main", sample.types(shapes)) as builder:
        first = alone(sample, shapes).main.result_types

        def zeros(inner: Builder) -> list[Value]:
            return [inner.constant(0, kind) for kind in first if isinstance(kind, TensorType)]

        index = builder.constant(1, tensor((), "i32"))
        builder.return_(*builder.case(index, [zeros, lambda inner: sample.write(inner, builder.arguments)]))
    return module


def in_map(sample: Sample, shapes: Shapes) -> Module:
    """In the region of a map, on scalars."""
    module = Module()
    types = sample.types(shapes)
    with build_function(module, "main", types) as builder:
        region = builder.region(
            [kind.with_shape(()) for kind in types], lambda inner, *values: sample.write(inner, values)
        )
        created = builder.create(
            "stablehlo.map",
            builder.arguments,
            attributes={"dimensions": tuple(range(len(shapes[0])))},
            regions=[region],
        )
        builder.return_(*created.results)
    return module


def in_combiner(sample: Sample, shapes: Shapes) -> Module:
    """In the combiner of a scatter, whose updates come in order."""
    from hlojit.ir.attributes import ScatterDimensionNumbers

    module = Module()
    element = sample.elements[0]
    with build_function(module, "main", [tensor((9,), element), tensor((4,), element)]) as builder:
        numbers = ScatterDimensionNumbers(
            inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1
        )
        scalar = tensor((), element)
        region = builder.region([scalar, scalar], lambda inner, a, b: _padded(sample, inner, a, b))
        places = builder.constant([[3], [1], [3], [8]], tensor((4, 1), "i32"))
        created = builder.create(
            "stablehlo.scatter",
            [builder.arguments[0], places, builder.arguments[1]],
            attributes={"scatter_dimension_numbers": numbers},
            regions=[region],
        )
        builder.return_(*created.results)
    return module


def in_comparator(sample: Sample, shapes: Shapes) -> Module:
    """In the comparator of a stable sort, by what it makes of the first operand of each pair."""
    module = Module()
    element = sample.elements[0]
    kind = tensor((23,), element)
    with build_function(module, "main", [kind]) as builder:
        scalar = tensor((), element)

        def less(inner: Builder, a: Value, b: Value) -> Value:
            return inner.compare(
                _padded(sample, inner, a, a)[0], _padded(sample, inner, b, b)[0], "LT", _order(element)
            )

        region = builder.region([scalar, scalar], less)
        created = builder.create(
            "stablehlo.sort",
            [builder.arguments[0]],
            attributes={"dimension": 0, "is_stable": True},
            regions=[region],
        )
        builder.return_(*created.results)
    return module


def context_arguments(sample: Sample, name: str, module: Module, seed: int) -> list[NDArray]:
    """Arguments for a program of ``programs``: what is sorted by a function are numbers that lie apart."""
    if name == "in a comparator":
        return [_apart(module.main.body.arguments[0].tensor_type)]
    kinds = [argument.tensor_type for argument in module.main.body.arguments]
    of_sample = [kind.element_type for kind in kinds] == list(sample.elements[: len(kinds)])
    if sample.arguments is not None and of_sample and name != "in a combiner":
        every = [
            *kinds,
            *(tensor(shape, each) for shape, each in zip(sample.usual[len(kinds) :], sample.elements[len(kinds) :])),
        ]
        return stated_arguments(sample.arguments, every, seed)[: len(kinds)]
    return arguments_for(module, seed=seed)


def two_sets(sample: Sample, name: str, module: Module, seed: int) -> tuple[list[NDArray], list[NDArray]]:
    """Arguments for a program of ``programs``, and others where a vendor says which make sense."""
    first = context_arguments(sample, name, module, seed)
    return first, [] if sample.arguments is None else context_arguments(sample, name, module, seed + 1)


def _apart(kind: TensorType) -> NDArray:
    numbers = ((np.arange(kind.size) * 7) % kind.size - kind.size // 2) * 0.5
    if not isinstance(kind.element_type, FloatFormat):
        return (numbers * 2).astype(kind.element_type.storage)
    return encode_array(numbers, kind.element_type)


def _order(element: ElementType) -> str | None:
    return "TOTALORDER" if isinstance(element, FloatFormat) else None


def _padded(sample: Sample, inner: Builder, *values: Value) -> Sequence[Value]:
    """The sample of as many operands as it takes, from these, again and again."""
    if any(element != sample.elements[0] for element in sample.elements):
        raise HlojitError("its operands have several types")
    return sample.write(inner, [values[number % len(values)] for number in range(len(sample.elements))])


CONTEXTS: dict[str, Callable[[Sample, Shapes], Module]] = {
    "of an argument and constants": lambda sample, shapes: of_constants(sample, shapes, keep_first=True),
    "of constants": lambda sample, shapes: of_constants(sample, shapes, keep_first=False),
    "in a chain": in_chain,
    "in a loop": in_loop,
    "in a branch": in_branch,
}
"""Where anything may stand."""

SCALAR_CONTEXTS: dict[str, Callable[[Sample, Shapes], Module]] = {
    "in a map": in_map,
    "in a combiner": in_combiner,
    "in a comparator": in_comparator,
}


def programs(sample: Sample, sizes: int) -> Iterator[tuple[str, Module]]:
    """Programs with the sample in every context, and alone in so many shapes; what cannot be written is left out."""
    for shapes in sample.tries(sizes):
        yield f"alone, {_spelled(shapes)}", alone(sample, shapes)
    contexts = CONTEXTS | (SCALAR_CONTEXTS if sample.is_elementwise else {})
    for name, write in contexts.items():
        try:
            made = write(sample, sample.usual)
        except HlojitError:
            continue  # its types do not fit there
        yield name, made


def _spelled(shapes: Shapes) -> str:
    """The shape of all operands, or of each."""
    different = dict.fromkeys(shapes) if len(set(shapes)) == 1 else shapes
    return ", ".join("x".join(map(str, shape)) or "scalar" for shape in different)
