"""``scatter`` against a loop in Python that follows the specification, and against JAX."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import hlojit
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlojit.cpu.processor import host_target
from hlojit.lowering import scatter_shares

from .guarded import Array, run_both, run_guarded, spell
from .test_key_sort import TARGETS
from .test_sort import STORAGE, values

COMBINERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda old, new: old + new,
    "multiply": lambda old, new: old * new,
    "minimum": min,
    "maximum": max,
    "overwrite": lambda old, new: new,
    "subtract": lambda old, new: old - new,  # depends on the order of the operands
}


@dataclass(frozen=True)
class Case:
    """Shapes and dimension numbers of one scatter."""

    operand: tuple[int, ...]
    indices: tuple[int, ...]
    updates: tuple[int, ...]
    window: tuple[int, ...]
    inserted: tuple[int, ...]
    to_operand: tuple[int, ...]
    vector: int
    batching: tuple[int, ...] = ()
    indices_batching: tuple[int, ...] = ()

    def text(self, elements: tuple[str, ...], combiner: str, index: str = "i32") -> str:
        """A program of one scatter."""
        count = len(elements)
        inputs, updates = [spell(self.operand, e) for e in elements], [spell(self.updates, e) for e in elements]
        types = [*inputs, spell(self.indices, index), *updates]
        names = [*(f"%x{k}" for k in range(count)), "%i", *(f"%u{k}" for k in range(count))]
        header = ", ".join(f"{name}: {type}" for name, type in zip(names, types))
        scalars = ", ".join([f"%p{k}: tensor<{e}>" for k, e in enumerate(elements)]
                            + [f"%q{k}: tensor<{e}>" for k, e in enumerate(elements)])  # fmt: skip
        body, results = "", []
        for k, element in enumerate(elements):
            if combiner != "overwrite":
                body += f"%c{k} = stablehlo.{combiner} %p{k}, %q{k} : tensor<{element}>\n"
            results.append(f"%q{k}" if combiner == "overwrite" else f"%c{k}")
        numbers = (
            f"update_window_dims = {list(self.window)}, inserted_window_dims = {list(self.inserted)}, "
            f"input_batching_dims = {list(self.batching)}, "
            f"scatter_indices_batching_dims = {list(self.indices_batching)}, "
            f"scatter_dims_to_operand_dims = {list(self.to_operand)}, index_vector_dim = {self.vector}"
        )
        scalar_types = ", ".join(f"tensor<{e}>" for e in elements)
        returned = ", ".join(f"%r#{k}" for k in range(count))
        return f"""
        func.func public @main({header}) -> ({", ".join(inputs)}) {{
          %r:{count} = "stablehlo.scatter"({", ".join(names)}) ({{
          ^bb0({scalars}):
            {body}
            stablehlo.return {", ".join(results)} : {scalar_types}
          }}) {{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}} : ({", ".join(types)}) -> ({", ".join(inputs)})
          return {returned} : {", ".join(inputs)}
        }}"""

    def expected(self, operands: list[Array], indices: Array, updates: list[Array], combiner: str) -> list[Array]:
        """Element by element in ascending order; what falls outside is skipped."""
        results = [operand.copy() for operand in operands]
        scatter_dims = [d for d in range(len(self.updates)) if d not in self.window]
        absent = {*self.inserted, *self.batching}
        with np.errstate(all="ignore"):
            for place in itertools.product(*(range(n) for n in self.updates)):
                scattered = [place[d] for d in scatter_dims]
                key: list[Any] = list(scattered)
                key.insert(self.vector, slice(None))
                vector = indices[tuple(key)] if self.vector < indices.ndim else indices[tuple(scattered)].reshape(1)
                target = [0] * len(self.operand)
                for component, dimension in enumerate(self.to_operand):
                    target[dimension] += int(vector[component])
                for dimension, source in zip(self.batching, self.indices_batching):
                    target[dimension] += scattered[source - (source > self.vector)]
                kept = [d for d in range(len(self.operand)) if d not in absent]
                for dimension, source in zip(kept, self.window):
                    target[dimension] += place[source]
                if all(0 <= t < n for t, n in zip(target, self.operand)):
                    for result, update in zip(results, updates):
                        result[tuple(target)] = COMBINERS[combiner](result[tuple(target)], update[place])
        return results


ROWS = Case((8, 5), (6, 1), (6, 5), (1,), (0,), (0,), 1)
CASES = {
    "rows": ROWS,
    "points": Case((5, 6), (20, 2), (20,), (), (0, 1), (0, 1), 1),
    "points_swapped": Case((5, 6), (20, 2), (20,), (), (0, 1), (1, 0), 1),
    "index_without_vector": Case((9,), (30,), (30,), (), (0,), (0,), 1),
    "vector_first": Case((5, 6), (2, 7), (7,), (), (0, 1), (0, 1), 0),
    "vector_between": Case((5, 6), (3, 2, 4), (3, 4), (), (0, 1), (0, 1), 1),
    "windows": Case((6, 7), (4, 2), (4, 2, 3), (1, 2), (), (0, 1), 1),
    "window_first": Case((6, 7), (4, 2), (2, 3, 4), (0, 1), (), (0, 1), 1),
    "one_window": Case((6, 7), (2,), (3, 2), (0, 1), (), (0, 1), 0),
    "partial_index": Case((6, 4, 3), (5, 1), (5, 4, 2), (1, 2), (0,), (2,), 1),
    "batched": Case((3, 8), (3, 5, 1), (3, 5), (), (1,), (1,), 2, (0,), (0,)),
    "batched_windows": Case((3, 8, 4), (5, 3, 1), (5, 3, 2), (2,), (1,), (1,), 2, (0,), (1,)),
    "batched_vector_first": Case((3, 8), (1, 5, 3), (5, 3), (), (1,), (1,), 0, (0,), (2,)),
    "scalar_operand": Case((), (4, 0), (4,), (), (), (), 1),
    "no_updates": Case((4, 3), (0, 1), (0, 3), (1,), (0,), (0,), 1),
}


def arguments(case: Case, elements: tuple[str, ...], seed: int, low: int = -3, high: int = 9) -> list[Any]:
    generator = np.random.default_rng(seed)
    indices = generator.integers(low, high, case.indices).astype("i4")
    inputs = [values(element, case.operand, seed + k) for k, element in enumerate(elements)]
    updates = [values(element, case.updates, seed + 50 + k, few=True) for k, element in enumerate(elements)]
    return [*inputs, indices, *updates]


def check(case: Case, elements: tuple[str, ...], combiner: str, given: list[Any], index: str = "i32") -> None:
    count = len(elements)
    actual = run_both(case.text(elements, combiner, index), *given)
    expected = case.expected(given[:count], given[count], given[count + 1 :], combiner)
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("combiner", ["subtract", "overwrite"])
def test_scatter_dimension_numbers(name: str, combiner: str) -> None:
    """Negative and too large indices among them: single elements of a window are skipped, the others are not."""
    case = CASES[name]
    check(case, ("i32",), combiner, arguments(case, ("i32",), seed=len(name)))


@pytest.mark.parametrize("combiner", [each for each in COMBINERS if each != "subtract"])
@pytest.mark.parametrize("element", ["f32", "f64", "f16", "bf16", "i8", "ui16", "i64"])
def test_scatter_combiners(element: str, combiner: str) -> None:
    check(CASES["points"], (element,), combiner, arguments(CASES["points"], (element,), 3))


def test_scatter_booleans() -> None:
    for combiner in ("overwrite", "maximum", "minimum"):
        check(ROWS, ("i1",), combiner, arguments(ROWS, ("i1",), 4))


def test_scatter_repeated_indices_ascend() -> None:
    """The last of equal indices wins; floats are added in the order of the updates."""
    case = Case((3,), (50, 1), (50,), (), (0,), (0,), 1)
    given = [np.zeros(3, "f4"), np.ones((50, 1), "i4"), np.random.default_rng(1).standard_normal(50).astype("f4") * 1e6]
    check(case, ("f32",), "overwrite", given)
    check(case, ("f32",), "add", given)


def test_scatter_several_inputs() -> None:
    for combiner in ("subtract", "overwrite"):
        for name in ("windows", "batched", "points"):
            check(CASES[name], ("f32", "i64", "i8"), combiner, arguments(CASES[name], ("f32", "i64", "i8"), 8))


@pytest.mark.parametrize("index", ["i8", "i32", "i64", "ui8", "ui32", "ui64"])
def test_scatter_extreme_indices_touch_nothing(index: str) -> None:
    information = np.iinfo(STORAGE[index])
    numbers = [information.min, information.max, information.max - 1, 0, 5, 6]
    for case in (CASES["windows"], ROWS):
        rows, width = case.indices
        indices = np.resize(np.array(numbers, STORAGE[index]), (6, width))[:rows]
        given = [values("i32", case.operand), indices, values("i32", case.updates)]
        check(case, ("i32",), "overwrite", given, index)


def test_scatter_keeps_operands_that_are_needed() -> None:
    """One value is both inputs, and is returned as well."""
    text = """
    func.func public @main(%a: tensor<6xf32>, %i: tensor<2x1xi32>, %u: tensor<2xf32>)
        -> (tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) {
      %n = stablehlo.negate %a : tensor<6xf32>
      %x = stablehlo.optimization_barrier %n : tensor<6xf32>
      %r:2 = "stablehlo.scatter"(%x, %x, %i, %u, %u) ({
      ^bb0(%p: tensor<f32>, %q: tensor<f32>, %s: tensor<f32>, %t: tensor<f32>):
        %c = stablehlo.add %p, %s : tensor<f32>
        %d = stablehlo.multiply %q, %t : tensor<f32>
        stablehlo.return %c, %d : tensor<f32>, tensor<f32>
      }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
          scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
        : (tensor<6xf32>, tensor<6xf32>, tensor<2x1xi32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<6xf32>, tensor<6xf32>)
      return %r#0, %r#1, %x : tensor<6xf32>, tensor<6xf32>, tensor<6xf32>
    }"""
    array, indices, updates = np.arange(6, dtype="f4"), np.array([[1], [4]], "i4"), np.array([10, 20], "f4")
    added, multiplied = -array, -array
    added[[1, 4]] += updates
    multiplied[[1, 4]] *= updates
    for ours, theirs in zip(hlojit.compile(text)(array, indices, updates), (added, multiplied, -array)):
        np.testing.assert_array_equal(ours, theirs)


JAX_PROGRAMS: dict[str, Callable[..., Any]] = {
    "at_set": lambda x, i: x.at[i].set(7),
    "at_add": lambda x, i: x.at[i].add(x[:7]),
    "at_multiply_drop": lambda x, i: x.at[i + 5].multiply(3, mode="drop"),
    "at_min_clip": lambda x, i: x.at[i * 3].min(-1, mode="clip"),
    "at_max_promise": lambda x, i: x.at[i].max(x[::-1][:7], mode="promise_in_bounds"),
    "at_slices": lambda x, i: x.at[1:4, ::2].set(-x[2:5, ::2]),
    "at_two": lambda x, i: x.at[i, i % 4].add(1),
    "segment_sum": lambda x, i: jax.ops.segment_sum(x[:7], i, 10),
    "bincount": lambda x, i: jnp.bincount(i, length=9),
    "vmap": lambda x, i: jax.vmap(lambda row: row.at[i % 4].add(jnp.arange(7)))(x),
    "gather_gradient": lambda x, i: jax.grad(lambda y: jnp.sum(y[i] * jnp.arange(1.0, 5.0)))(x),
    "apply": lambda x, i: x.at[i].apply(lambda v: v * 2 + 1),
}


@pytest.mark.parametrize("name", JAX_PROGRAMS)
def test_scatter_as_jax(name: str) -> None:
    array = np.round(np.random.default_rng(2).standard_normal((8, 4)) * 10).astype("f4")
    indices = np.array([0, 3, 3, -1, 7, 2, 0], "i4")
    function = jax.jit(JAX_PROGRAMS[name], keep_unused=True)
    actual = hlojit.compile(function.lower(array, indices).as_text())(array, indices)
    np.testing.assert_array_equal(actual, np.asarray(function(array, indices)))


SHARED = {
    "long_rows": Case((8, 130), (60, 1), (60, 130), (1,), (0,), (0,), 1),
    "many_rows": Case((8, 33, 6), (20, 1), (20, 33, 6), (1, 2), (0,), (0,), 1),
    "moved_windows": Case((6, 90), (9, 2), (9, 3, 70), (1, 2), (), (0, 1), 1),
    "moved_far": Case((3, 2000), (40, 1), (40, 2, 900), (1, 2), (), (1,), 1),
    "moved_rows": Case((70, 130), (30, 1), (30, 50, 130), (1, 2), (), (0,), 1),
    "window_first": Case((6, 90), (9, 2), (3, 70, 9), (0, 1), (), (0, 1), 1),
}


@pytest.mark.parametrize("name", SHARED)
def test_windows_are_shared_by_tasks(name: str) -> None:
    """Each task goes through all updates in their order and does its part of every window."""
    case = SHARED[name]
    for element, combiner in (
        ("f32", "add"),
        ("f32", "overwrite"),
        ("bf16", "subtract"),
        ("i8", "overwrite"),
        ("f64", "maximum"),
    ):
        given = arguments(case, (element,), 5, -2, case.operand[-1] if name == "moved_far" else 10)
        if name == "window_first":  # what is the first update of an element depends on who counts
            given[2] = np.ones_like(given[2])
        (expected,) = case.expected(given[:1], given[1], given[2:], combiner)
        for cores in (1, 3, 16):
            target = replace(host_target(), machine=replace(host_target().machine, cores=cores))
            (actual,) = run_guarded(case.text((element,), combiner), *given, target=target)
            np.testing.assert_array_equal(actual, expected, err_msg=f"{element} {combiner} {cores}")


@pytest.mark.parametrize("index", ["i32", "i64", "ui32", "ui64", "i16"])
def test_single_elements_are_shared_by_their_places(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of floats are in the order of updates for any number of tasks, sorted indices or not, outside ones skipped."""
    monkeypatch.setattr(scatter_shares, "LEAST_PLACES", 100)
    generator = np.random.default_rng(0)
    case = Case((301,), (1700,), (1700,), (), (0,), (0,), 1)
    updates = (generator.standard_normal(1700) * 1e5).astype("f4")
    operand = generator.standard_normal(301).astype("f4")
    numbers = generator.integers(0, 330, 1700).astype(STORAGE[index])
    numbers[5] = np.iinfo(STORAGE[index]).max
    numbers[6] = np.iinfo(STORAGE[index]).min
    for indices in (numbers, np.sort(numbers)):
        for combiner in ("add", "overwrite", "minimum"):
            (expected,) = case.expected([operand], indices, [updates], combiner)
            for cores in (1, 4, 7):
                for each in (host_target(), TARGETS["avx2"]()):
                    target = replace(each, machine=replace(each.machine, cores=cores))
                    text = case.text(("f32",), combiner, index)
                    (actual,) = run_guarded(text, operand, indices, updates, target=target)
                    np.testing.assert_array_equal(actual, expected, err_msg=f"{combiner} {cores}")


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_windows_that_overlap_are_combined_one_after_the_other(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the updates' first dimension is the windows' own: by a combiner for which the order matters."""
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    text = """func.func @main(%x: tensor<6xf32>, %i: tensor<3x1xi32>, %u: tensor<3x3xf32>) -> tensor<6xf32> {
      %two = stablehlo.constant dense<2.0> : tensor<f32>
      %r = "stablehlo.scatter"(%x, %i, %u) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %m = stablehlo.multiply %a, %two : tensor<f32>
        %s = stablehlo.add %m, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
        : (tensor<6xf32>, tensor<3x1xi32>, tensor<3x3xf32>) -> tensor<6xf32>
      return %r : tensor<6xf32>
    }"""
    x, at, updates = np.zeros(6, "f4"), np.array([[0], [1], [0]], "i4"), np.arange(1, 10, dtype="f4").reshape(3, 3)
    expected = x.copy()
    for column, (place,) in enumerate(at):
        for row in range(3):
            expected[place + row] = expected[place + row] * 2 + updates[row, column]
    for name in (backend, "reference"):
        np.testing.assert_array_equal(hlojit.compile(text, backend=name)(x, at, updates), expected)
