"""Every collective op, on every strategy of groups, against a model in plain NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.extensions.devices.rendezvous import Meeting
from hlojit.ir.interpreter import evaluate

from ..ops.test_regions import GCD, S
from . import model
from .model import Grid

# Strategy, grid, groups as written.  A channel makes the second and third what they are.
SPANNING = {
    "cross_replica": (Grid(4, 1), [[0, 1, 2, 3]]),
    "cross_replica_order": (Grid(4, 2), [[3, 0], [1, 2]]),
    "cross_replica_and_partition": (Grid(2, 2), [[1, 0]]),
    "cross_replica_and_partition_two": (Grid(2, 3), [[0], [1]]),
    "flattened_ids": (Grid(2, 2), [[0, 3], [2, 1]]),
    "alone": (Grid(2, 1), [[0], [1]]),
    "one": (Grid(1, 1), [[0]]),
}
ALONG = {
    "cross_replica": (Grid(3, 2), [[2, 0, 1]]),
    "cross_partition": (Grid(2, 3), [[0, 2, 1]]),
    "cross_partition_alone": (Grid(1, 2), [[0], [1]]),
}


def strategy(name: str) -> str:
    known = ("cross_replica_and_partition", "cross_replica", "cross_partition", "flattened_ids")
    return next((each for each in known if name.startswith(each)), "cross_replica")


def written(name: str, groups: Sequence[Sequence[int]], attribute: str = "replica_groups") -> str:
    chosen = strategy(name)
    rows = f"tensor<{len(groups)}x{len(groups[0])}xi64>"
    text = f"{attribute} = dense<{[list(group) for group in groups]}> : {rows}"
    if chosen != "cross_replica":
        text += ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
    if chosen == "flattened_ids":
        text += ", use_global_device_ids"
    return text


def groups_of(name: str, grid: Grid, groups: Any) -> Any:
    return getattr(grid, strategy(name))(groups)


def region(element: str, op: str = "add") -> str:
    body = f"stablehlo.{op} %a, %b : tensor<{element}>"
    return f"({{ ^bb0(%a: tensor<{element}>, %b: tensor<{element}>): %s = {body} stablehlo.return %s : tensor<{element}> }})"


def spell(array: np.ndarray[Any, Any], element: str) -> str:
    return f"tensor<{''.join(f'{extent}x' for extent in array.shape)}{element}>"


def run(every: str, grid: Grid, body: str, inputs: Sequence[Any], type: str, result: str) -> list[Any]:
    text = f"func.func @main(%x: {type}) -> {result} {{\n  %0 = {body}\n  return %0 : {result}\n}}"
    executable = hlojit.compile(text, backend=every, num_replicas=grid.replicas, num_partitions=grid.partitions)
    if grid == Grid(1, 1):
        return [executable(inputs[0])]
    return [results[0] for results in executable([[each] for each in inputs])]


def values(grid: Grid, shape: Sequence[int], dtype: Any = "i4") -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(len(grid.processes))
    return [random.integers(-99, 99, shape).astype(dtype) for _ in grid.processes]


def same(found: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        np.testing.assert_array_equal(np.asarray(one), other)


@pytest.mark.parametrize("dimension", [0, 1, 2])
@pytest.mark.parametrize("name", SPANNING)
def test_all_gather(every: str, name: str, dimension: int) -> None:
    grid, groups = SPANNING[name]
    inputs = values(grid, (2, 3, 5))
    expected = model.all_gather(grid, groups_of(name, grid, groups), inputs, dimension)
    type, result = spell(inputs[0], "i32"), spell(expected[0], "i32")
    body = f'"stablehlo.all_gather"(%x) {{all_gather_dim = {dimension} : i64, {written(name, groups)}}} : ({type}) -> {result}'
    same(run(every, grid, body, inputs, type, result), expected)


@pytest.mark.parametrize("shape", [(3, 5), (), (61, 83), (0, 4)], ids=str)
@pytest.mark.parametrize("name", SPANNING)
def test_all_reduce(every: str, name: str, shape: tuple[int, ...]) -> None:
    """Small ones are combined by all, larger ones in parts, whose number does not divide 61 * 83."""
    grid, groups = SPANNING[name]
    inputs = values(grid, shape)
    expected = model.all_reduce(grid, groups_of(name, grid, groups), inputs, np.add)
    type = spell(inputs[0], "i32")
    body = f'"stablehlo.all_reduce"(%x) {region("i32")} {{{written(name, groups)}}} : ({type}) -> {type}'
    same(run(every, grid, body, inputs, type, type), expected)


@pytest.mark.parametrize("name", SPANNING)
def test_reduce_scatter(every: str, name: str) -> None:
    grid, groups = SPANNING[name]
    inputs = values(grid, (3, 24))
    expected = model.reduce_scatter(grid, groups_of(name, grid, groups), inputs, 1, np.maximum)
    type, result = spell(inputs[0], "i32"), spell(expected[0], "i32")
    attributes = f"scatter_dimension = 1 : i64, {written(name, groups)}"
    body = f'"stablehlo.reduce_scatter"(%x) {region("i32", "maximum")} {{{attributes}}} : ({type}) -> {result}'
    same(run(every, grid, body, inputs, type, result), expected)


@pytest.mark.parametrize(("split", "concat"), [(0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("name", ALONG)
def test_all_to_all(every: str, name: str, split: int, concat: int) -> None:
    grid, groups = ALONG[name]
    count = len(groups[0])
    inputs = values(grid, (6, 6, 2))
    expected = model.all_to_all(grid, groups_of(name, grid, groups), inputs, split, concat, count)
    type, result = spell(inputs[0], "i32"), spell(expected[0], "i32")
    attributes = f"split_dimension = {split} : i64, concat_dimension = {concat} : i64, split_count = {count} : i64"
    body = f'"stablehlo.all_to_all"(%x) {{{attributes}, {written(name, groups)}}} : ({type}) -> {result}'
    same(run(every, grid, body, inputs, type, result), expected)


@pytest.mark.parametrize(
    ("name", "grid", "pairs"),
    [
        ("cross_replica", Grid(3, 1), [[0, 1], [1, 2]]),
        ("cross_replica", Grid(2, 2), [[0, 1], [1, 0]]),
        ("cross_replica", Grid(4, 1), [[0, 2], [2, 3], [3, 0]]),
        ("cross_replica", Grid(2, 1), [[0, 0], [1, 1]]),
        ("cross_partition", Grid(2, 3), [[2, 0], [0, 2]]),
        ("cross_replica", Grid(1, 1), [[0, 0]]),
    ],
)
def test_collective_permute(every: str, name: str, grid: Grid, pairs: list[list[int]]) -> None:
    inputs = values(grid, (2, 3))
    expected = model.collective_permute(grid, groups_of(name, grid, pairs), inputs)
    type = spell(inputs[0], "i32")
    body = f'"stablehlo.collective_permute"(%x) {{{written(name, pairs, "source_target_pairs")}}} : ({type}) -> {type}'
    same(run(every, grid, body, inputs, type, type), expected)


@pytest.mark.parametrize(
    ("name", "grid", "groups"),
    [
        ("cross_replica", Grid(4, 1), [[2, 1]]),
        ("cross_replica", Grid(2, 2), [[1, 0]]),
        ("cross_partition", Grid(2, 3), [[0, 2]]),
        ("cross_replica", Grid(1, 1), [[0]]),
    ],
)
@pytest.mark.parametrize("root", [None, 0, 1])
def test_collective_broadcast(every: str, name: str, grid: Grid, groups: list[list[int]], root: int | None) -> None:
    if root == 1 and len(groups[0]) == 1:
        pytest.skip("a group of one")
    inputs = values(grid, (1, 2))
    expected = model.collective_broadcast(grid, groups_of(name, grid, groups), inputs, root or 0)
    type = spell(inputs[0], "i32")
    attributes = written(name, groups)
    body = f'"stablehlo.collective_broadcast"(%x) {{{attributes}}} : ({type}) -> {type}'
    if root is not None:
        body = (
            f'stablehlo.constant dense<{root}> : tensor<1xi32>\n  %1 = "stablehlo.collective_broadcast"(%x, %0) '
            f"{{{attributes}, has_dynamic_root}} : ({type}, tensor<1xi32>) -> {type}\n  %2 = stablehlo.add %1, %1 : {type}"
        ).replace("%0 =", "%0 =")
        text = f"func.func @main(%x: {type}) -> {type} {{\n  %0 = {body}\n  return %1 : {type}\n}}"
        found = called(every, grid, text, inputs)
    else:
        found = run(every, grid, body, inputs, type, type)
    same(found, expected)


def called(every: str, grid: Grid, text: str, inputs: Sequence[Any]) -> list[Any]:
    executable = hlojit.compile(text, backend=every, num_replicas=grid.replicas, num_partitions=grid.partitions)
    if grid == Grid(1, 1):
        return [executable(inputs[0])]
    return [results[0] for results in executable([[each] for each in inputs])]


@pytest.mark.parametrize(
    ("name", "grid", "groups"),
    [("cross_replica", Grid(3, 1), [[2, 0]]), ("cross_partition", Grid(2, 2), [[1, 0]])],
)
def test_collective_reduce(every: str, name: str, grid: Grid, groups: list[list[int]]) -> None:
    inputs = values(grid, (3,))
    expected = model.collective_reduce(grid, groups_of(name, grid, groups), inputs, np.multiply)
    type = spell(inputs[0], "i32")
    body = f'"stablehlo.collective_reduce"(%x) {region("i32", "multiply")} {{{written(name, groups)}}} : ({type}) -> {type}'
    same(run(every, grid, body, inputs, type, type), expected)


def test_cross_replica_sum(every: str) -> None:
    grid = Grid(4, 1)
    inputs = values(grid, (5,), "f4")
    expected = model.all_reduce(grid, grid.cross_replica([[0, 3], [1, 2]]), inputs, np.add)
    body = '"stablehlo.cross-replica-sum"(%x) {replica_groups = dense<[[0, 3], [1, 2]]> : tensor<2x2xi64>} : (tensor<5xf32>) -> tensor<5xf32>'
    same(run(every, grid, body, inputs, "tensor<5xf32>", "tensor<5xf32>"), expected)


def test_groups_of_different_sizes(every: str) -> None:
    grid = Grid(4, 1)
    inputs = values(grid, (7,))
    expected = model.all_reduce(grid, grid.cross_replica([[2, 0, 1], [3, -1, -1]]), inputs, np.subtract)
    body = (
        f'"stablehlo.all_reduce"(%x) {region("i32", "subtract")} '
        "{replica_groups = dense<[[2, 0, 1], [3, -1, -1]]> : tensor<2x3xi64>} : (tensor<7xi32>) -> tensor<7xi32>"
    )
    same(run(every, grid, body, inputs, "tensor<7xi32>", "tensor<7xi32>"), expected)


TYPES: dict[str, Any] = {
    "f32": "f4", "f64": "f8", "f16": "f2", "bf16": ml_dtypes.bfloat16, "i8": "i1", "ui8": "u1", "i16": "i2", "i64": "i8",
    "ui64": "u8", "f8E4M3FN": ml_dtypes.float8_e4m3fn,
}  # fmt: skip


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("size", [12, 40_000])
def test_types_and_the_order_of_the_group(every: str, element: str, size: int) -> None:
    """Subtraction knows the order; floats are rounded after every step."""
    grid, dtype = Grid(3, 1), np.dtype(TYPES[element])
    random = np.random.default_rng(7)
    inputs = [random.integers(0, 9, size).astype(dtype) for _ in range(3)]
    expected = model.all_reduce(
        grid, grid.cross_replica([[1, 2, 0]]), inputs, lambda a, b: np.subtract(a, b, dtype=dtype)
    )
    type = f"tensor<{size}x{element}>"
    body = f'"stablehlo.all_reduce"(%x) {region(element, "subtract")} {{replica_groups = dense<[[1, 2, 0]]> : tensor<1x3xi64>}} : ({type}) -> {type}'
    found = run(every, grid, body, inputs, type, type)
    same(
        [np.asarray(each).view(f"u{dtype.itemsize}") for each in found],
        [each.view(f"u{dtype.itemsize}") for each in expected],
    )


def test_booleans_and_the_identity_of_bits(every: str) -> None:
    grid = Grid(2, 1)
    inputs = [np.array([True, False, True, False]), np.array([True, True, False, False])]
    body = f'"stablehlo.all_reduce"(%x) {region("i1", "and")} {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}} : (tensor<4xi1>) -> tensor<4xi1>'
    same(run(every, grid, body, inputs, "tensor<4xi1>", "tensor<4xi1>"), [inputs[0] & inputs[1]] * 2)
    nans = [np.array([0x7FC00001 + n, 0x7F800002 + n, 0x80000000], "u4").view("f4") for n in range(2)]
    body = '"stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<3xf32>) -> tensor<6xf32>'
    found = run(every, grid, body, nans, "tensor<3xf32>", "tensor<6xf32>")
    same([each.view("u4") for each in found], [np.concatenate(nans).view("u4")] * 2)


def test_a_wider_computation(every: str) -> None:
    inputs = [np.array([100, 27], "i1"), np.array([100, 1], "i1")]
    body = f'"stablehlo.all_reduce"(%x) {region("i32")} {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}} : (tensor<2xi8>) -> tensor<2xi32>'
    same(run(every, Grid(2, 1), body, inputs, "tensor<2xi8>", "tensor<2xi32>"), [np.array([200, 28])] * 2)


ANY_REGION = """({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %two = stablehlo.constant dense<2.0> : tensor<f32>
      %p = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %q = stablehlo.multiply %a, %two : tensor<f32>
      %r = stablehlo.subtract %b, %a : tensor<f32>
      %s = stablehlo.select %p, %q, %r : tensor<i1>, tensor<f32>
      stablehlo.return %s : tensor<f32>
  })"""


@pytest.mark.parametrize("size", [10, 9001])
def test_any_computation_of_elements(every: str, size: int) -> None:
    grid = Grid(3, 1)
    inputs = values(grid, (size,), "f4")
    expected = model.all_reduce(
        grid, grid.cross_replica([[0, 1, 2]]), inputs, lambda a, b: np.where(a > b, a * 2, b - a)
    )
    type = f"tensor<{size}xf32>"
    body = f'"stablehlo.all_reduce"(%x) {ANY_REGION} {{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>}} : ({type}) -> {type}'
    same(run(every, grid, body, inputs, type, type), expected)


LOOPING_REGION = f"""({{
    ^bb0(%a: {S}, %b: {S}):
      {GCD}
  }})"""


@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatter"])
def test_computations_with_loops(every: str, name: str) -> None:
    grid = Grid(2, 1)
    inputs = [abs(each) * 6 + 6 for each in values(grid, (8,))]
    scattered = ", scatter_dimension = 0 : i64" if name == "reduce_scatter" else ""
    result = "tensor<4xi32>" if scattered else "tensor<8xi32>"
    body = (
        f'"stablehlo.{name}"(%x) {LOOPING_REGION} {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>{scattered}}} : '
        f"(tensor<8xi32>) -> {result}"
    )
    whole = np.gcd(*inputs)
    same(run(every, grid, body, inputs, "tensor<8xi32>", result), np.split(whole, 2) if scattered else [whole, whole])


VARIADIC = """
func.func @main(%x: tensor<4xi32>, %y: tensor<2x3xf32>) -> (tensor<4xi32>, tensor<2x3xf32>, tensor<2x6xf32>, tensor<8xi32>) {
  %0:2 = "stablehlo.collective_permute"(%x, %y) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}
    : (tensor<4xi32>, tensor<2x3xf32>) -> (tensor<4xi32>, tensor<2x3xf32>)
  %1 = "stablehlo.all_gather"(%y) {all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
    : (tensor<2x3xf32>) -> tensor<2x6xf32>
  %2 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>}
    : (tensor<4xi32>) -> tensor<8xi32>
  return %0#0, %0#1, %1, %2 : tensor<4xi32>, tensor<2x3xf32>, tensor<2x6xf32>, tensor<8xi32>
}
"""


def test_several_operands(every: str) -> None:
    xs = [np.arange(4, dtype="i4") + 10 * n for n in range(2)]
    ys = [np.arange(6, dtype="f4").reshape(2, 3) - n for n in range(2)]
    first, second = hlojit.compile(VARIADIC, backend=every, num_replicas=2)([[xs[0], ys[0]], [xs[1], ys[1]]])
    same(first, [0 * xs[0], 0 * ys[0], np.concatenate(ys, 1), np.concatenate(xs[::-1])])
    same(second, [xs[0], ys[0], np.concatenate(ys, 1), np.concatenate(xs[::-1])])


IDS = """
func.func @main() -> (tensor<ui32>, tensor<ui32>) {
  %0 = stablehlo.replica_id : tensor<ui32>
  %1 = stablehlo.partition_id : tensor<ui32>
  return %0, %1 : tensor<ui32>, tensor<ui32>
}
"""


@pytest.mark.parametrize("grid", [(2, 3), (4, 1), (1, 5)])
def test_processes_know_where_they_are(every: str, grid: tuple[int, int]) -> None:
    executable = hlojit.compile(IDS, backend=every, num_replicas=grid[0], num_partitions=grid[1])
    found = executable([[] for _ in range(grid[0] * grid[1])])
    assert [tuple(map(int, each)) for each in found] == [(r, p) for r in range(grid[0]) for p in range(grid[1])]
    alone = hlojit.compile(IDS, backend=every)
    assert tuple(map(int, alone())) == (0, 0)


def test_the_module_says_how_many(every: str) -> None:
    text = f"module attributes {{mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 3 : i32}} {{{IDS}}}"
    executable = hlojit.compile(text, backend=every)
    assert (executable.num_replicas, executable.num_partitions) == (3, 2)
    assert [int(each[1]) for each in executable([[]] * 6)] == [0, 1] * 3


ASYNC = """
func.func @main(%x: tensor<2x4xf32>) -> (tensor<4x4xf32>, tensor<2x4xf32>) {
  %0 = "stablehlo.async_start"(%x) ({
    ^bb0(%a: tensor<2x4xf32>):
      %g = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
        : (tensor<2x4xf32>) -> tensor<4x4xf32>
      stablehlo.return %g : tensor<4x4xf32>
  }) : (tensor<2x4xf32>) -> !stablehlo.future<tensor<4x4xf32>>
  %1 = stablehlo.exponential %x : tensor<2x4xf32>
  %2 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<4x4xf32>>) -> tensor<4x4xf32>
  return %2, %1 : tensor<4x4xf32>, tensor<2x4xf32>
}
"""


def test_asynchronous_pairs(every: str) -> None:
    xs = [np.full((2, 4), n, "f4") for n in range(2)]
    found = hlojit.compile(ASYNC, backend=every, num_replicas=2)([[x] for x in xs])
    same([each[0] for each in found], [np.concatenate(xs)] * 2)


LOOP = """
func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c9 = stablehlo.constant dense<9> : tensor<i32>
  %0:2 = stablehlo.while(%i = %c0, %a = %x) : tensor<i32>, tensor<5xf32>
   cond { %p = stablehlo.compare LT, %i, %c9 : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1> }
   do { %j = stablehlo.add %i, %c1 : tensor<i32>
        %b = "stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 1], [1, 2], [2, 0]]> : tensor<3x2xi64>}
          : (tensor<5xf32>) -> tensor<5xf32>
        %d = stablehlo.add %b, %x : tensor<5xf32>
        stablehlo.return %j, %d : tensor<i32>, tensor<5xf32> }
  return %0#1 : tensor<5xf32>
}
"""


def test_collectives_in_loops(every: str) -> None:
    xs = [np.full(5, 10.0**n, "f4") for n in range(3)]
    expected = list(xs)
    for _ in range(9):
        expected = [expected[n - 1] + xs[n] for n in range(3)]
    executable = hlojit.compile(LOOP, backend=every, num_replicas=3)
    for _ in range(3):
        same([each[0] for each in executable([[x] for x in xs])], expected)


@pytest.mark.parametrize("element", ["i32", "f32"])
def test_programs_of_many_collectives(every: str, element: str) -> None:
    """One after the other, each reading what the one before has made: order, and memory that is used again."""
    random = np.random.default_rng(3)
    grid, steps = Grid(2, 2), []
    inputs = values(grid, (8, 4), "i4" if element == "i32" else "f4")
    current: list[Any] = list(inputs)
    type = f"tensor<8x4x{element}>"
    for number in range(12):
        name = f"%{number}" if number else "%x"
        kind = random.integers(3)
        if kind == 0:
            pairs = [[0, 1], [1, 0]]
            steps.append(
                f'"stablehlo.collective_permute"({name}) {{{written("cross_replica", pairs, "source_target_pairs")}}} : ({type}) -> {type}'
            )
            current = model.collective_permute(grid, grid.cross_replica(pairs), current)
        elif kind == 1:
            attributes = f"split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, {written('cross_partition', [[1, 0]])}"
            steps.append(f'"stablehlo.all_to_all"({name}) {{{attributes}}} : ({type}) -> {type}')
            current = model.all_to_all(grid, grid.cross_partition([[1, 0]]), current, 0, 0, 2)
        else:
            steps.append(
                f'"stablehlo.all_reduce"({name}) {region(element, "maximum")} {{{written("flattened_ids", [[0, 3], [1, 2]])}}} : ({type}) -> {type}'
            )
            current = model.all_reduce(grid, grid.flattened_ids([[0, 3], [1, 2]]), current, np.maximum)
    lines = "\n".join(f"  %{number + 1} = {step}" for number, step in enumerate(steps))
    text = f"func.func @main(%x: {type}) -> {type} {{\n{lines}\n  return %{len(steps)} : {type}\n}}"
    same(called(every, grid, text, inputs), current)


def unexpanded(grid: Grid, type: str, inputs: list[Any]) -> dict[str, tuple[str, list[Any]]]:
    """Ops on ``%x`` of each process, with the type of their result and what each process gets."""
    return {
        f'"stablehlo.all_gather"(%x) {{all_gather_dim = 1 : i64, {written("flattened_ids", [[3, 0], [1, 2]])}}}': (
            "tensor<4x8xi32>",
            model.all_gather(grid, grid.flattened_ids([[3, 0], [1, 2]]), inputs, 1),
        ),
        f'"stablehlo.reduce_scatter"(%x) {region("i32", "subtract")} {{scatter_dimension = 0 : i64, {written("cross_replica", [[1, 0]])}}}': (
            "tensor<2x4xi32>",
            model.reduce_scatter(grid, grid.cross_replica([[1, 0]]), inputs, 0, np.subtract),
        ),
        f'"stablehlo.all_to_all"(%x) {{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 2 : i64, {written("cross_partition", [[0, 1]])}}}': (
            "tensor<2x8xi32>",
            model.all_to_all(grid, grid.cross_partition([[0, 1]]), inputs, 0, 1, 2),
        ),
        f'"stablehlo.collective_permute"(%x) {{{written("cross_partition", [[1, 0]], "source_target_pairs")}}}': (
            type,
            model.collective_permute(grid, grid.cross_partition([[1, 0]]), inputs),
        ),
        f'"stablehlo.collective_broadcast"(%x) {{{written("cross_replica", [[1]])}}}': (
            type,
            model.collective_broadcast(grid, grid.cross_replica([[1]]), inputs),
        ),
        f'"stablehlo.collective_reduce"(%x) {region("i32", "add")} {{{written("cross_replica", [[1, 0]])}}}': (
            type,
            model.collective_reduce(grid, grid.cross_replica([[1, 0]]), inputs, np.add),
        ),
        f'"stablehlo.all_reduce"(%x) {region("i32", "add")} {{{written("cross_replica_and_partition", [[0, 1]])}}}': (
            type,
            model.all_reduce(grid, grid.cross_replica_and_partition([[0, 1]]), inputs, np.add),
        ),
    }


def test_the_records_mean_the_same_before_they_are_expanded() -> None:
    """The interpreter, on the program as it is written, each process on a thread."""
    grid = Grid(2, 2)
    type, inputs = "tensor<4x4xi32>", values(grid, (4, 4))
    for op, (result, expected) in unexpanded(grid, type, inputs).items():
        text = (
            "module attributes {mhlo.num_replicas = 2 : i32, mhlo.num_partitions = 2 : i32} {\n"
            f"func.func @main(%x: {type}) -> {result} {{\n  %0 = {op} : ({type}) -> {result}\n  return %0 : {result}\n}}\n}}"
        )
        module = hlojit.parse(text)
        hlojit.verify(module)
        meeting = Meeting("main", [f"process {number}" for number in range(4)], 30)
        with ThreadPoolExecutor(4) as pool:
            found = pool.map(
                lambda number, module=module, meeting=meeting: evaluate(
                    module, inputs[number], process=meeting.participant(number)
                )[0],
                range(4),
            )
            same(list(found), expected)


def test_the_numbers_of_the_computation_are_the_same_everywhere() -> None:
    """Every back end combines in the order of the group: the same rounding."""
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(20_000).astype("f4") for _ in range(5)]
    type = "tensor<20000xf32>"
    body = f'"stablehlo.all_reduce"(%x) {region("f32")} {{replica_groups = dense<[[4, 2, 0, 1, 3]]> : tensor<1x5xi64>}} : ({type}) -> {type}'
    total = inputs[4]
    for number in (2, 0, 1, 3):
        total = total + inputs[number]
    found: list[Any] = []
    for name in ("cpu", "cuda", "reference"):
        with pytest.MonkeyPatch.context() as patch:
            make(name, patch)
            found += run(name, Grid(5, 1), body, inputs, type, type)
    same(found, [total] * 15)


def make(name: str, patch: pytest.MonkeyPatch) -> None:
    from .conftest import make_devices

    make_devices(name, patch)
