"""Cases of a format with regions, indices and loops: reductions, sort, scatter, gather, while, products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from hlojit.extensions import ElementwiseCall
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Value
from hlojit.ir.types import TensorType, tensor
from hlojit.testing import exact
from hlojit.testing.exact import Number
from hlojit.testing.format_cases import SHAPE, Draft, FormatCase, NDArray, Palette, applied, arrays, cells

ROWS, COLUMNS = SHAPE
MIX = ElementwiseCall("hlojit.testing.subtract", function=lambda x, y: x - y)
"""A custom call that is registered while a format is checked: its operands have an order, its result is exact."""


def _needs_zero(palette: Palette) -> str:
    return "" if palette.zero is not None else "the format has no zero"


def _needs_one(palette: Palette) -> str:
    return "" if palette.one is not None else "the format has no one"


# ------------------------------------------------------------------- reductions


def _one_in_a_line(palette: Palette, filling: int) -> NDArray:
    """Rows of one element value but for one number each: whatever the order, there is one sum (or product) of a row."""
    made = cells([filling] * (ROWS * COLUMNS), SHAPE)
    for row in range(ROWS):
        made[row, (row * 3) % COLUMNS] = palette.array((ROWS,), palette.ordinary, 5)[row]
    return made


def reduction(name: str, filling: str) -> FormatCase:
    """A sum or a product of a row that holds one number: the initial value is what changes nothing, then an ordinary number."""

    def arguments(palette: Palette) -> list[tuple[TensorType, NDArray]]:
        neutral = getattr(palette, filling)
        return [
            (tensor(SHAPE, palette.format), _one_in_a_line(palette, neutral)),
            (tensor(SHAPE, palette.format), cells([neutral] * (ROWS * COLUMNS), SHAPE)),
        ]

    def build(draft: Draft, values: list[Value]) -> list[Value]:
        neutral = draft.constant(getattr(draft.palette, filling), ())
        initial = draft.constant(draft.palette.constant(6), ())
        made = []
        for x, init in ((values[0], neutral), (values[1], initial)):
            region = draft.builder.combiner(name, draft.format)
            made.append(draft.builder.reduce([x], [init], region, dimensions=(1,)))
        return made

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        neutral = getattr(palette, filling)
        alone = [next((code for code in row if code != neutral), neutral) for row in given[0]]
        return [cells(alone, (ROWS,)), cells([palette.constant(6)] * ROWS, (ROWS,))]

    needs = _needs_zero if filling == "zero" else _needs_one
    return FormatCase("reductions", f"reduce {name}", build, oracle, arguments, needs=needs)


def extremum(name: str, function: Callable[[Number, Number], Number]) -> FormatCase:
    """The largest or smallest of rows and of columns, with an ordinary number to begin with."""

    def build(draft: Draft, values: list[Value]) -> list[Value]:
        initial = draft.constant(draft.palette.constant(6), ())
        return [
            draft.builder.reduce([values[0]], [initial], draft.builder.combiner(name, draft.format), dimensions=(each,))
            for each in (0, 1)
        ]

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        value, found = palette.model.value, []
        for lines in (given[0].T, given[0]):
            best = []
            for line in lines:
                number = value(palette.constant(6))
                for code in line:
                    number = function(number, value(code))
                best.append(frozenset(palette.model.codes(number)))
            found.append(cells(best, (len(best),)))
        return found

    return FormatCase("reductions", f"reduce {name}", build, oracle, arrays("codes"))


def _constant_in_combiner() -> FormatCase:
    def build(draft: Draft, values: list[Value]) -> list[Value]:
        limit = draft.palette.constant(8)

        def body(inner: Builder, a: Value, b: Value) -> Value:
            bound = inner.constant(draft.palette.stored(limit), tensor((), draft.format))
            made: Value = inner.maximum(a, inner.minimum(b, bound))
            return made

        initial = draft.constant(draft.palette.constant(6), ())
        return [draft.builder.reduce([values[0]], [initial], draft.scalar_region(body), dimensions=(1,))]

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        value = palette.model.value
        limit, found = value(palette.constant(8)), []
        for line in given[0]:
            number = value(palette.constant(6))
            for code in line:
                number = exact.maximum(number, exact.minimum(value(code), limit))
            found.append(frozenset(palette.model.codes(number)))
        return [cells(found, (ROWS,))]

    return FormatCase("reductions", "a constant in the region", build, oracle, arrays("numbers"))


def _window() -> FormatCase:
    def build(draft: Draft, values: list[Value]) -> list[Value]:
        initial = draft.constant(draft.palette.constant(6), ())
        created = draft.builder.create(
            "stablehlo.reduce_window",
            [values[0], initial],
            attributes={"window_dimensions": (1, 3), "padding": ((0, 0), (1, 1))},
            regions=[draft.builder.combiner("maximum", draft.format)],
        )
        return [created.result]

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        value = palette.model.value

        def at(row: int, column: int) -> frozenset[int]:
            number = value(palette.constant(6))
            for code in given[0][row, max(column - 1, 0) : column + 2]:
                number = exact.maximum(number, value(code))
            return frozenset(palette.model.codes(number))

        return [cells([at(row, column) for row in range(ROWS) for column in range(COLUMNS)], SHAPE)]

    return FormatCase("reductions", "reduce_window", build, oracle, arrays("numbers"))


# ------------------------------------------------------------------------- sort


def sort(
    name: str, key: Callable[[Palette, Number], Any], body: Callable[[Draft, Builder, Value, Value], Value]
) -> FormatCase:
    """A stable sort of rows with their numbers as passengers."""

    def build(draft: Draft, values: list[Value]) -> list[Value]:
        numbers = draft.builder.iota(tensor(SHAPE, "i32"), 1)
        scalar, integer = tensor((), draft.format), tensor((), "i32")
        region = draft.builder.region(
            [scalar, scalar, integer, integer], lambda inner, a, b, *_: body(draft, inner, a, b)
        )
        created = draft.builder.create(
            "stablehlo.sort", [values[0], numbers], attributes={"dimension": 1, "is_stable": True}, regions=[region]
        )
        return list(created.results)

    def oracle(palette: Palette, given: list[NDArray]) -> list[Any]:
        value = palette.model.value
        codes, places = [], []
        for line in given[0]:
            order = sorted(range(COLUMNS), key=lambda place: key(palette, value(line[place])))
            codes += [line[place] for place in order]
            places.append(order)
        return [cells(codes, SHAPE), np.array(places, "i4")]

    return FormatCase("sort", name, build, oracle, arrays("numbers"), moves=True)


def _above(draft: Draft, inner: Builder, a: Value, b: Value) -> Value:
    bound = inner.constant(draft.palette.stored(draft.palette.constant(5)), tensor((), draft.format))
    return inner.compare(inner.maximum(a, bound), inner.maximum(b, bound), "LT")


def sorts() -> list[FormatCase]:
    """Ascending, descending, and by a comparator with a constant."""
    return [
        sort("ascending", lambda palette, number: number, lambda draft, inner, a, b: inner.compare(a, b, "LT")),
        sort("descending", lambda palette, number: -number, lambda draft, inner, a, b: inner.compare(a, b, "GT")),
        sort(
            "by a comparator with a constant",
            lambda palette, number: max(number, palette.model.value(palette.constant(5))),
            _above,
        ),
    ]


# ------------------------------------------------------------- scatter and gather


_PLACES = (4, 1, 4)


def scatter(
    name: str,
    combine: Callable[[Palette, Number, Number], Number],
    body: Callable[[Draft, Builder, Value, Value], Value],
) -> FormatCase:
    """Three rows of updates, two of them in one place, in their order."""

    def build(draft: Draft, values: list[Value]) -> list[Value]:
        region = draft.scalar_region(lambda inner, a, b: body(draft, inner, a, b))
        constant = draft.constant(_updates(draft.palette))
        return [
            _scattered(draft, values[0], updates, region_of)
            for updates, region_of in (
                (values[1], region),
                (constant, draft.scalar_region(lambda inner, a, b: body(draft, inner, a, b))),
            )
        ]

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        return [_combined(palette, given[0], updates, combine) for updates in (given[1], _updates(palette))]

    def arguments(palette: Palette) -> list[tuple[TensorType, NDArray]]:
        operand = palette.array(SHAPE, palette.numbers, 1)
        updates = palette.array((len(_PLACES), COLUMNS), palette.numbers, 2)
        return [(tensor(each.shape, palette.format), each) for each in (operand, updates)]

    return FormatCase("scatter", name, build, oracle, arguments)


def _updates(palette: Palette) -> NDArray:
    return palette.array((len(_PLACES), COLUMNS), palette.ordinary, 3)


def _scattered(draft: Draft, operand: Value, updates: Value, region: Any) -> Value:
    from hlojit.ir.attributes import ScatterDimensionNumbers

    numbers = ScatterDimensionNumbers(
        update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1
    )
    places = draft.builder.constant(np.array(_PLACES, "i4").reshape(-1, 1))
    attributes = {"scatter_dimension_numbers": numbers}
    created = draft.builder.create(
        "stablehlo.scatter", [operand, places, updates], attributes=attributes, regions=[region]
    )
    return created.result


def _combined(
    palette: Palette, operand: NDArray, updates: NDArray, combine: Callable[[Palette, Number, Number], Number]
) -> NDArray:
    model, made = palette.model, operand.copy()
    for row, place in enumerate(_PLACES):
        for column in range(COLUMNS):
            old, new = model.value(made[place, column]), model.value(updates[row, column])
            made[place, column] = model.encode(combine(palette, old, new))
    return made


def _bounded(draft: Draft, inner: Builder, a: Value, b: Value) -> Value:
    bound = inner.constant(draft.palette.stored(draft.palette.constant(5)), tensor((), draft.format))
    made: Value = inner.maximum(inner.maximum(a, b), bound)
    return made


def scatters() -> list[FormatCase]:
    """The largest, the last, and a combiner with a constant."""
    return [
        scatter("maximum", lambda palette, a, b: exact.maximum(a, b), lambda d, inner, a, b: inner.maximum(a, b)),
        scatter("the last one", lambda palette, a, b: b, lambda d, inner, a, b: b),
        scatter(
            "a combiner with a constant",
            lambda palette, a, b: exact.maximum(exact.maximum(a, b), palette.model.value(palette.constant(5))),
            _bounded,
        ),
    ]


def _gather() -> FormatCase:
    def build(draft: Draft, values: list[Value]) -> list[Value]:
        from hlojit.ir.attributes import GatherDimensionNumbers

        numbers = GatherDimensionNumbers(
            offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=1
        )
        places = draft.builder.constant(np.array(_PLACES, "i4").reshape(-1, 1))
        made = []
        for source in (values[0], draft.constant(draft.palette.array(SHAPE, draft.palette.ordinary, 9))):
            attributes = {"dimension_numbers": numbers, "slice_sizes": (1, COLUMNS)}
            made.append(draft.builder.create("stablehlo.gather", [source, places], attributes=attributes).result)
        return made

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        return [each[list(_PLACES)] for each in (given[0], palette.array(SHAPE, palette.ordinary, 9))]

    return FormatCase("gather", "rows", build, oracle, arrays("codes"), moves=True)


# ------------------------------------------------------- control flow and products


def _while() -> FormatCase:
    def build(draft: Draft, values: list[Value]) -> list[Value]:
        factor = draft.palette.constant(7)

        def body(inner: Builder, count: Value, state: Value) -> tuple[Value, Value]:
            one = inner.constant(1, tensor((), "i32"))
            by = inner.constant(draft.palette.stored(factor), state.tensor_type)
            return inner.add(count, one), inner.multiply(state, by)

        results = draft.builder.while_(
            [draft.integer(0), values[0]],
            lambda inner, count, _: inner.compare(count, inner.constant(3, tensor((), "i32")), "LT"),
            body,
        )
        return [results[1]]

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        factor, state = palette.model.value(palette.constant(7)), given[0]
        for _ in range(3):
            rounded = applied(palette, lambda x: exact.multiply(x, factor), state)
            state = np.asarray(np.frompyfunc(min, 1, 1)(rounded), dtype=object)
        return [state]

    return FormatCase("control flow", "while", build, oracle, arrays("codes"), needs=_is_determined)


def _is_determined(palette: Palette) -> str:
    return "" if exact.rounding_mode(palette.format) != "stochastic" else "what is rounded at random has no one result"


def _case() -> FormatCase:
    def build(draft: Draft, values: list[Value]) -> list[Value]:
        splat = draft.palette.constant(1)
        return [
            draft.builder.case(
                values[1],
                [
                    lambda inner: inner.constant(draft.palette.stored(splat), values[0].tensor_type),
                    lambda inner: inner.negate(values[0]),
                ],
            )[0]
        ]

    def arguments(palette: Palette) -> list[tuple[TensorType, NDArray]]:
        return [*arrays("codes")(palette), (tensor((), "i32"), np.array(1, "i4"))]

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        return [applied(palette, exact.negate, given[0])]

    return FormatCase("control flow", "case", build, oracle, arguments)


def _map() -> FormatCase:
    def build(draft: Draft, values: list[Value]) -> list[Value]:
        def body(inner: Builder, a: Value) -> Value:
            factor = inner.constant(draft.palette.stored(draft.palette.constant(5)), tensor((), draft.format))
            made: Value = inner.multiply(a, factor)
            return made

        region = draft.scalar_region(body, 1)
        created = draft.builder.create(
            "stablehlo.map", [values[0]], attributes={"dimensions": (0, 1)}, regions=[region]
        )
        return [created.result]

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        factor = palette.model.value(palette.constant(5))
        return [applied(palette, lambda x: exact.multiply(x, factor), given[0])]

    return FormatCase("control flow", "map", build, oracle, arrays("codes"))


def _dot() -> FormatCase:
    """Rows with one number each times an ordinary number everywhere: one product a sum, whatever the order."""

    def arguments(palette: Palette) -> list[tuple[TensorType, NDArray]]:
        assert palette.zero is not None
        return [(tensor(SHAPE, palette.format), _one_in_a_line(palette, palette.zero))]

    def build(draft: Draft, values: list[Value]) -> list[Value]:
        other = draft.constant(draft.palette.array((COLUMNS, 4), draft.palette.ordinary, 11))
        return [draft.builder.dot(values[0], other)]

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        value, zero = palette.model.value, palette.zero
        other = palette.array((COLUMNS, 4), palette.ordinary, 11)
        found = []
        for row in given[0]:
            for column in range(4):
                product = Fraction(0)
                for k in range(COLUMNS):
                    if row[k] != zero:
                        product += Fraction(value(row[k])) * Fraction(value(other[k, column]))
                found.append(frozenset(palette.model.codes(product)))
        return [cells(found, (ROWS, 4))]

    return FormatCase("products", "dot", build, oracle, arguments, needs=_needs_zero)


def _custom_call() -> FormatCase:
    def build(draft: Draft, values: list[Value]) -> list[Value]:
        splat = draft.constant(draft.palette.constant(1), SHAPE)
        return [
            draft.builder.create(
                "stablehlo.custom_call",
                pair,
                attributes={"call_target_name": MIX.target},
                result_types=[values[0].type],
            ).result
            for pair in ((values[0], values[1]), (splat, values[0]))
        ]

    def oracle(palette: Palette, given: list[NDArray]) -> list[NDArray]:
        splat = cells([palette.constant(1)] * (ROWS * COLUMNS), SHAPE)
        return [applied(palette, exact.subtract, *pair) for pair in ((given[0], given[1]), (splat, given[0]))]

    return FormatCase("custom calls", "elementwise", build, oracle, arrays("codes", "codes"))


def _custom_call_in_comparator() -> FormatCase:
    def body(draft: Draft, inner: Builder, a: Value, b: Value) -> Value:
        attributes = {"call_target_name": MIX.target}
        called = inner.create("stablehlo.custom_call", [a, b], attributes=attributes, result_types=[a.type]).result
        zero = inner.constant(draft.palette.stored(draft.palette.zero), a.tensor_type)
        made: Value = inner.select(inner.compare(called, zero, "LT"), b, a)
        return made

    def combine(palette: Palette, a: Number, b: Number) -> Number:
        model = palette.model
        return b if model.value(model.encode(exact.subtract(a, b))) < 0 else a

    made = scatter("a custom call in the combiner", combine, body)
    return FormatCase("custom calls", made.name, made.build, made.oracle, made.arguments, needs=_signed_with_zero)


def _signed_with_zero(palette: Palette) -> str:
    return _needs_zero(palette) or ("" if palette.format.signed else "the format has no sign")


def structural_cases() -> Sequence[FormatCase]:
    """Everything with regions, indices and loops."""
    return [
        reduction("add", "zero"),
        reduction("multiply", "one"),
        extremum("maximum", exact.maximum),
        extremum("minimum", exact.minimum),
        _constant_in_combiner(),
        _window(),
        *sorts(),
        *scatters(),
        _gather(),
        _while(),
        _case(),
        _map(),
        _dot(),
        _custom_call(),
        _custom_call_in_comparator(),
    ]
