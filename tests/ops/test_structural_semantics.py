"""Reference semantics of structural ops: small tables by hand, many of them the specification's own examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hlojit.ir.attributes import DotDimensionNumbers, GatherDimensionNumbers, ScatterDimensionNumbers
from hlojit.ir.builder import Builder, build_function
from hlojit.ir.formats import element_type_of
from hlojit.ir.graph import Module, Value
from hlojit.ir.interpreter import evaluate
from hlojit.ir.ops.combiners import combiner_of
from hlojit.ir.ops.definition import ops
from hlojit.ir.ops.random_bits import GENERATORS
from hlojit.ir.types import tensor
from hlojit.ir.verifier import verify

from .calls import CALLS, shaped

NAN, INF = float("nan"), float("inf")


def run(build: Any, *arrays: Any) -> list[Any]:
    """Build a function of the arrays' types, verify and evaluate it."""
    values = [np.asarray(array) for array in arrays]
    module = Module()
    types = [tensor(value.shape, element_type_of(value.dtype)) for value in values]
    with build_function(module, "main", types) as builder:
        result = build(builder, *builder.arguments)
        builder.return_(*(result if isinstance(result, (tuple, list)) else [result]))
    verify(module)
    return [result.tolist() for result in evaluate(module, *values)]


def add(builder: Builder, a: Value, b: Value) -> Any:
    return builder.add(a, b)


# reduce


def reduce(kind: str, dimensions: tuple[int, ...], init: Any) -> Any:
    def build(builder: Builder, x: Value) -> Any:
        element = x.tensor_type.element_type
        start = builder.constant(init, tensor((), element))
        return builder.reduce([x], [start], builder.combiner(kind, element), dimensions=dimensions)

    return build


@pytest.mark.parametrize(
    ("kind", "dimensions", "init", "operand", "expected"),
    [
        ("add", (1,), 0, np.array([[0, 1, 2, 3, 4, 5]]), [15]),
        ("add", (0, 1), 10, np.arange(6).reshape(2, 3), 25),
        ("add", (1,), 7, np.zeros((2, 0), np.int32), [7, 7]),
        ("add", (), 5, np.array([1, 2]), [6, 7]),
        ("multiply", (0,), 1, np.array([[2, 3], [4, 5]]), [8, 15]),
        ("maximum", (0,), -INF, np.array([1.0, -0.0, NAN]), NAN),
        ("minimum", (0,), INF, np.array([3.0, -INF]), -INF),
        ("and", (0,), True, np.array([True, False]), False),
        ("or", (0,), False, np.array([True, False]), True),
        ("xor", (0,), 0, np.array([5, 3, 1]), 7),
        ("add", (0,), 0, np.array([2**63 - 1, 1]), -(2**63)),
    ],
)
def test_reduce(kind: str, dimensions: Any, init: Any, operand: Any, expected: Any) -> None:
    np.testing.assert_array_equal(run(reduce(kind, dimensions, init), operand)[0], expected)


def test_reduce_keeps_the_order_of_elements() -> None:
    """Matrix products of 2x2 matrices do not commute; a reduce over their entries shows the order of combination."""

    def build(builder: Builder, *entries: Value) -> Any:
        scalar = tensor((), "i64")
        ones = [builder.constant(value, scalar) for value in (1, 0, 0, 1)]

        def multiply(b: Builder, *v: Value) -> list[Any]:
            (a0, a1, a2, a3), (b0, b1, b2, b3) = v[:4], v[4:]
            dot = lambda p, q, r, s: b.add(b.multiply(p, q), b.multiply(r, s))  # noqa: E731
            return [dot(a0, b0, a1, b2), dot(a0, b1, a1, b3), dot(a2, b0, a3, b2), dot(a2, b1, a3, b3)]

        return builder.reduce(list(entries), ones, builder.region([scalar] * 8, multiply), dimensions=(0,))

    matrices = np.random.default_rng(1).integers(-3, 4, (7, 2, 2))
    expected = np.linalg.multi_dot(list(matrices.astype(object)))
    assert run(build, *(matrices[:, i, j] for i in range(2) for j in range(2))) == expected.ravel().tolist()


def test_reduce_with_a_body_that_is_not_elementwise() -> None:
    def body(builder: Builder, a: Value, b: Value) -> Any:
        return builder.reshape(builder.add(builder.reshape(a, (1,)), builder.reshape(b, (1,))), ())

    def build(builder: Builder, x: Value) -> Any:
        scalar = tensor((), "i64")
        return builder.reduce([x], [builder.constant(0, scalar)], builder.region([scalar] * 2, body), dimensions=(1,))

    assert run(build, np.arange(6).reshape(2, 3)) == [[3, 12]]


# windows


def test_reduce_window_example_of_the_specification() -> None:
    def build(builder: Builder, x: Value) -> Any:
        start = builder.constant(0, tensor((), "i64"))
        return builder.reduce_window(
            [x], [start], builder.combiner("add", "i64"), window_dimensions=(2, 1), window_strides=(4, 1),
            base_dilations=(2, 1), window_dilations=(3, 1), padding=((2, 1), (0, 0)),
        )  # fmt: skip

    assert run(build, np.array([[1, 2], [3, 4], [5, 6]])) == [[[0, 0], [3, 4]]]


@pytest.mark.parametrize(("extent", "expected"), [(0, []), (1, []), (2, [3])])
def test_reduce_window_larger_than_its_input(extent: int, expected: list) -> None:
    def build(builder: Builder, x: Value) -> Any:
        start = builder.constant(0, tensor((), "i64"))
        return builder.reduce_window([x], [start], builder.combiner("add", "i64"), window_dimensions=(2,))

    assert run(build, np.arange(1, extent + 1)) == [expected]


def select_and_scatter(direction: str, padding: Any) -> Any:
    def build(builder: Builder, operand: Value, source: Value) -> Any:
        scalar = operand.tensor_type.with_shape(())
        select = builder.region([scalar, scalar], lambda b, x, y: b.compare(x, y, direction))
        return builder.select_and_scatter(
            operand, source, builder.constant(0, scalar), select, builder.combiner("add", scalar.element_type),
            window_dimensions=(3, 1), window_strides=(2, 1), padding=padding,
        )  # fmt: skip

    return build


def test_select_and_scatter_example_of_the_specification() -> None:
    operand, source = np.array([[1, 5], [2, 5], [3, 6], [4, 4]]), np.array([[5, 6], [7, 8]])
    expected = [[[0, 0], [0, 0], [5, 14], [7, 0]]]
    assert run(select_and_scatter("GE", ((0, 1), (0, 0))), operand, source) == expected


def test_select_and_scatter_never_selects_padding() -> None:
    operand, source = np.array([[-3], [-2], [-1]]), np.array([[10], [20]])
    assert run(select_and_scatter("GE", ((1, 1), (0, 0))), operand, source) == [[[0], [10], [20]]]


# sort


@pytest.mark.parametrize(("stable", "direction", "expected"), [(True, "LT", [1, 3, 0, 2]), (True, "GT", [0, 2, 1, 3])])
def test_sort_is_stable(stable: bool, direction: str, expected: list) -> None:
    def build(builder: Builder, keys: Value, values: Value) -> Any:
        scalar = tensor((), "i64")
        comparator = builder.region([scalar] * 4, lambda b, x, y, i, j: b.compare(x, y, direction))
        return builder.sort([keys, values], comparator, dimension=0, is_stable=stable)

    keys = np.array([2, 1, 2, 1])
    ordered, positions = run(build, keys, np.arange(4))
    assert positions == expected
    assert ordered == keys[expected].tolist()


def test_sort_of_long_and_of_empty_rows() -> None:
    def build(builder: Builder, x: Value) -> Any:
        scalar = tensor((), "f64")
        return builder.sort([x], builder.region([scalar] * 2, lambda b, p, q: b.compare(p, q, "LT")), dimension=1)

    values = np.random.default_rng(0).normal(size=(2, 700))
    assert run(build, values) == [np.sort(values, 1).tolist()]
    assert run(build, np.zeros((2, 0))) == [[[], []]]


# products and indexing


def test_dot_general_of_scalars_and_of_nothing() -> None:
    nothing = DotDimensionNumbers()
    assert run(lambda b, x, y: b.dot_general(x, y, nothing), 3.0, 4.0) == [12.0]
    contract = DotDimensionNumbers(lhs_contracting=(1,), rhs_contracting=(0,))
    assert run(lambda b, x, y: b.dot_general(x, y, contract), np.zeros((2, 0)), np.zeros((0, 3))) == [[[0.0] * 3] * 2]


def test_dot_general_accumulates_in_the_type_of_its_result() -> None:
    def build(builder: Builder, x: Value, y: Value) -> Any:
        return builder.dot_general(
            x, y, DotDimensionNumbers(lhs_contracting=(0,), rhs_contracting=(0,)), type=tensor((), "i32")
        )

    assert run(build, np.full(4, 100, np.int8), np.full(4, 100, np.int8)) == [40000]


@pytest.mark.parametrize(
    ("start", "expected"), [(-5, [0, 1]), (1, [1, 2]), (9, [3, 4]), (-(2**63), [0, 1]), (2**63 - 1, [3, 4])]
)
def test_gather_clamps_its_indices(start: int, expected: list) -> None:
    dims = GatherDimensionNumbers(offset_dims=(0,), start_index_map=(0,), index_vector_dim=0)
    assert run(lambda b, x, i: b.gather(x, i, dims, (2,)), np.arange(5), np.array([start])) == [expected]


@pytest.mark.parametrize(("start", "expected"), [(-5, [8, 9, 2, 3]), (1, [0, 8, 9, 3]), (3, [0, 1, 8, 9])])
def test_dynamic_update_slice_clamps_its_start(start: int, expected: list) -> None:
    build = lambda b, x, u, i: b.dynamic_update_slice(x, u, i)  # noqa: E731
    assert run(build, np.arange(4), np.array([8, 9]), start) == [expected]


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ([0, 0, 0], [3, 4, 2, 3]),
        ([-1, 3, 7], [1, 1, 2, 4]),  # each window covers two elements; those outside are skipped one by one
        ([2**63 - 1, -(2**63), 2], [0, 1, 3, 4]),
    ],
)
def test_scatter_skips_what_is_out_of_bounds(starts: list, expected: list) -> None:
    dims = ScatterDimensionNumbers(update_window_dims=(1,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1)

    def build(builder: Builder, x: Value, i: Value, u: Value) -> Any:
        return builder.scatter([x], i, [u], builder.combiner("add", "i64"), scatter_dimension_numbers=dims)

    assert run(build, np.arange(4), np.array(starts)[:, None], np.ones((3, 2), np.int64)) == [expected]


def test_scatter_applies_updates_of_one_place_in_order() -> None:
    dims = ScatterDimensionNumbers((), (0,), (), (), (0,), 1)

    def build(builder: Builder, x: Value, i: Value, u: Value) -> Any:
        scalar = tensor((), "i64")
        ten = lambda b: b.constant(10, scalar)  # noqa: E731
        body = builder.region([scalar] * 2, lambda b, old, new: b.add(b.multiply(old, ten(b)), new))
        return builder.scatter([x], i, [u], body, scatter_dimension_numbers=dims)

    assert run(build, np.zeros(2, np.int64), np.array([[1], [0], [1], [1]]), np.array([1, 2, 3, 4])) == [[2, 134]]


# control flow


def test_while_counts_and_sums() -> None:
    def build(builder: Builder, start: Value, limit: Value) -> Any:
        scalar = tensor((), "i64")

        def step(b: Builder, i: Value, total: Value) -> list[Any]:
            return [b.add(i, b.constant(1, scalar)), b.add(total, i)]

        # The condition reads a value from outside its region.
        return builder.while_([start, builder.constant(0, scalar)], lambda b, i, t: b.compare(i, limit, "LT"), step)

    assert run(build, 1, 5) == [5, 10]
    assert run(build, 5, 5) == [5, 0]


@pytest.mark.parametrize(("index", "expected"), [(0, 10), (1, 11), (2, 12), (-1, 12), (3, 12)])
def test_case_takes_the_last_branch_out_of_range(index: int, expected: int) -> None:
    def build(builder: Builder, i: Value) -> Any:
        branch = lambda number: lambda b: b.constant(10 + number, tensor((), "i64"))  # noqa: E731
        return builder.case(i, [branch(0), branch(1), branch(2)])

    assert run(build, np.int32(index)) == [expected]


def test_map_applies_its_computation_to_every_element() -> None:
    def build(builder: Builder, x: Value, y: Value) -> Any:
        return builder.map([x, y], builder.combiner("multiply", "i64"), dimensions=(0, 1))

    assert run(build, np.array([[0, 1], [2, 3]]), np.array([[4, 5], [6, 7]])) == [[[0, 5], [12, 21]]]


# random bits


def test_threefry_example_of_the_specification() -> None:
    state, words = GENERATORS["THREE_FRY"](np.array([1, 2], np.uint64), (2, 2), 64)
    assert state.tolist() == [1, 6]
    assert words.ravel().tolist() == [
        9236835810183407956, 16087790271692313299, 18212823393184779219, 2658481902456610144,
    ]  # fmt: skip


def test_philox_carries_into_the_upper_half_of_its_counter() -> None:
    state = np.array([7, 2**64 - 1, 5], np.uint64)
    after, words = GENERATORS["PHILOX"](state, (8,), 32)
    assert after.tolist() == [7, 1, 6]
    assert words[4:].tolist() == GENERATORS["PHILOX"](np.array([7, 0, 6], np.uint64), (4,), 32)[1].tolist()


# linear algebra


@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_solve(transpose: str, left: bool, lower: bool, unit: bool) -> None:
    rng = np.random.default_rng(3)
    a = rng.normal(size=(2, 4, 4)) + 4 * np.eye(4)
    b = rng.normal(size=(2, 4, 3) if left else (2, 3, 4))
    triangle = np.tril(a) if lower else np.triu(a)
    if unit:
        triangle[:, range(4), range(4)] = 1
    system = triangle if transpose == "NO_TRANSPOSE" else np.swapaxes(triangle, 1, 2)

    def build(builder: Builder, a: Value, b: Value) -> Any:
        return builder.triangular_solve(a, b, left, lower, unit, transpose)

    (x,) = run(build, a, b)
    np.testing.assert_allclose(system @ x if left else x @ system, b, atol=1e-12)


def test_triangular_solve_adjoint_of_complex_from_the_right() -> None:
    rng = np.random.default_rng(3)
    a = np.tril(rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3)) + 3 * np.eye(3))
    b = rng.normal(size=(2, 3)) + 0j
    module = Module()
    with build_function(module, "main", [shaped("3x3xcomplex<f64>"), shaped("2x3xcomplex<f64>")]) as builder:
        builder.return_(builder.triangular_solve(*builder.arguments, False, True, False, "ADJOINT"))
    verify(module)
    (x,) = evaluate(module, a, b)
    np.testing.assert_allclose(x @ a.conj().T, b, atol=1e-12)


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky_reads_one_triangle(lower: bool) -> None:
    root = np.tril(np.random.default_rng(0).normal(size=(3, 3))) + 2 * np.eye(3)
    full = root @ root.T
    given = (
        np.tril(full) + np.triu(np.full((3, 3), 99.0), 1)
        if lower
        else np.triu(full) + np.tril(np.full((3, 3), 99.0), -1)
    )
    (factor,) = run(lambda b, a: b.cholesky(a, lower), given)
    product = np.array(factor) @ np.array(factor).T if lower else np.array(factor).T @ np.array(factor)
    np.testing.assert_allclose(product, full, atol=1e-12)


def test_cholesky_of_a_matrix_that_has_none_is_nan() -> None:
    (factor,) = run(lambda b, a: b.cholesky(a, True), np.array([[1.0, 0.0], [0.0, -1.0]]))
    assert np.isnan(factor[1][1])


# batch norm, by its definition and by its expansion


@pytest.mark.parametrize("name", ["batch_norm_inference", "batch_norm_training", "batch_norm_grad"])
def test_batch_norm_expands_into_what_its_reference_computes(name: str) -> None:
    call = CALLS[name].but(epsilon=0.25)
    module, expanded = call.build(), call.build()
    instruction = next(i for i in expanded.main.body if i.name == f"stablehlo.{name}")
    replacement = instruction.op.lowering.rule(Builder.in_front_of(instruction), instruction)  # type: ignore[union-attr]
    instruction.replace_with(replacement)
    verify(expanded)
    rng = np.random.default_rng(5)
    arrays = [abs(rng.normal(size=type.shape)).astype(np.float32) for type in module.main.type.inputs]  # type: ignore[attr-defined]
    for got, want in zip(evaluate(expanded, *arrays), evaluate(module, *arrays)):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_batch_norm_training_example_of_the_specification() -> None:
    operand = np.array([[[1.0, 2.0], [3.0, 4.0]], [[3.0, 4.0], [1.0, 2.0]]])

    def build(builder: Builder, x: Value) -> Any:
        ones = builder.constant(1.0, tensor((2,), "f64"))
        return builder.batch_norm_training(x, ones, ones, 0.0, 2)

    output, mean, variance = run(build, operand)
    assert (mean, variance) == ([2.0, 3.0], [1.0, 1.0])
    assert output == [[[0.0, 0.0], [2.0, 2.0]], [[2.0, 2.0], [0.0, 0.0]]]


# combiners


def region_of(build: Any, count: int = 2, element: str = "f32") -> Any:
    module = Module()
    with build_function(module, "main", []) as builder:
        types = [tensor((), element), tensor((), "i32")] * (count // 2) if count == 4 else [tensor((), element)] * count
        made = builder.region(types, build)
        builder.return_()
    return made


@pytest.mark.parametrize(
    ("name", "element", "identity", "idempotent"),
    [
        ("add", "f32", -0.0, False),
        ("add", "i32", 0, False),
        ("multiply", "f32", 1, False),
        ("xor", "i32", 0, False),
        ("maximum", "f32", -np.inf, True),
        ("maximum", "i8", -128, True),
        ("minimum", "ui8", 255, True),
        ("and", "i1", 1, True),
        ("or", "i16", 0, True),
    ],
)
def test_combiner_of_simple_regions(name: str, element: str, identity: float, idempotent: bool) -> None:
    for swap in (False, True):
        order = slice(None, None, -1 if swap else 1)
        region = region_of(lambda b, *xy, order=order: b.create(name, xy[order]).result, element=element)
        found = combiner_of(region)
        assert found is not None and found.step is region.first
        assert (found.is_idempotent, found.is_maximum, found.is_minimum) == (
            idempotent, name == "maximum", name == "minimum"
        )  # fmt: skip
        number = found.identity(region.arguments[0].tensor_type.element_type)
        assert (number, np.signbit(number)) == (identity, np.signbit(identity))


def test_combiner_of_refuses_what_is_not_quite_one() -> None:
    assert combiner_of(region_of(lambda b, x, y: b.add(x, x))) is None
    assert combiner_of(region_of(lambda b, x, y: b.subtract(x, y))) is None
    assert combiner_of(region_of(lambda b, x, y: b.add(b.add(x, y), y))) is None
    assert combiner_of(region_of(lambda b, x, y: y)) is None


def extremum(direction: str, element: str, with_nan: bool, tie: str = "LT") -> Any:
    def build(b: Builder, x: Value, i: Value, y: Value, j: Value) -> list[Any]:
        better = b.compare(x, y, direction)
        if with_nan:
            better = b.or_(better, b.compare(x, x, "NE"))
        first = b.or_(better, b.and_(b.compare(x, y, "EQ"), b.compare(i, j, tie)))
        return [b.select(better, x, y), b.select(first, i, j)]

    return region_of(build, 4, element)


def test_combiner_of_argmax_and_argmin() -> None:
    for region, largest in (
        (extremum("GT", "f32", True), True),
        (extremum("LT", "f32", True), False),
        (extremum("GT", "i32", False), True),
    ):
        found = combiner_of(region)
        assert found is not None and found.step is None and found.is_idempotent
        assert (found.is_maximum, found.is_minimum) == (largest, not largest)
    assert combiner_of(extremum("GT", "f32", False)) is None, "loses NaN"
    assert combiner_of(extremum("GT", "f32", True, tie="GT")) is None, "takes the last index"


def test_every_record_has_a_summary() -> None:
    assert [record.name for record in ops() if record.registered and not record.summary] == []
