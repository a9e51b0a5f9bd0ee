"""Sorts, scatters and select_and_scatter that are compiled once for all sizes: the same bits as compiled for each."""

from __future__ import annotations

import threading
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .test_symbolic_shapes import ELEMENTS, SYMBOLIC

GENERATOR = np.random.default_rng(0)


def pair(text: str) -> tuple[Any, Any]:
    """The program compiled once for all sizes, and for each combination."""
    symbolic = hlojit.compile(text, options=SYMBOLIC)
    assert symbolic.dynamic_shapes == "symbolic", symbolic.why
    return symbolic, hlojit.compile(text)


def same(executables: tuple[Any, Any], *inputs: Any) -> None:
    found, wanted = (each(*inputs) for each in executables)
    for a, b in zip(*(each if isinstance(each, tuple) else (each,) for each in (found, wanted)), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.tobytes() == b.tobytes()


def sort(shape: str, dimension: int, element: str, compare: str, others: str = "i32") -> str:
    first, second = f"tensor<{shape}x{element}>", f"tensor<{shape}x{others}>"
    return f"""
    func.func @main(%x: {first}, %y: {second}) -> ({first}, {second}) {{
      %r:2 = "stablehlo.sort"(%x, %y) <{{dimension = {dimension} : i64, is_stable = true}}> ({{
      ^bb0(%a: tensor<{element}>, %b: tensor<{element}>, %c: tensor<{others}>, %d: tensor<{others}>):
        {compare}
        stablehlo.return %p : tensor<i1>
      }}) : ({first}, {second}) -> ({first}, {second})
      return %r#0, %r#1 : {first}, {second}
    }}"""


def ordered(element: str, direction: str = "LT") -> str:
    kind = "" if element.startswith(("i", "ui")) else ", FLOAT"
    return f"%p = stablehlo.compare {direction}, %a, %b{kind} : (tensor<{element}>, tensor<{element}>) -> tensor<i1>"


def numbers(element: str, shape: tuple[int, ...]) -> Any:
    dtype = ELEMENTS[element]
    values = GENERATOR.integers(0, 2, shape) if element == "i1" else GENERATOR.integers(-9, 9, shape)
    if element.startswith("ui"):
        values = abs(values)
    array = values.astype(dtype)
    if not element.startswith(("i", "ui")) and array.size:
        flat = array.reshape(-1)
        flat[::5], flat[::7] = -0.0, np.nan
    return array


@pytest.mark.parametrize("element", [each for each in ELEMENTS if each != "i1"])
def test_sorts_of_elements(element: str) -> None:
    executables = pair(sort("?", 0, element, ordered(element, "GT")))
    for size in (0, 1, 2, 12, 13, 25, 100, 3001):
        same(executables, numbers(element, (size,)), np.arange(size, dtype=np.int32))


@pytest.mark.parametrize(("shape", "dimension"), [("?x?", 0), ("?x?", 1), ("3x?x?", 1), ("?x4", 1), ("?x?x?", 0)])
def test_sorts_along_dimensions(shape: str, dimension: int) -> None:
    executables = pair(sort(shape, dimension, "f32", ordered("f32")))
    for sizes in ((0, 3, 2), (3, 0, 4), (1, 1, 1), (30, 5, 3), (4, 50, 2)):
        extents = tuple(size if extent == "?" else int(extent) for extent, size in zip(shape.split("x"), sizes))
        same(executables, numbers("f32", extents), np.arange(np.prod(extents), dtype=np.int32).reshape(extents))


COMPARISONS = {
    "two keys": """
        %l = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %e = stablehlo.compare EQ, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %g = stablehlo.compare GT, %c, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %h = stablehlo.and %e, %g : tensor<i1>
        %p = stablehlo.or %l, %h : tensor<i1>""",
    "no keys": """
        %k = stablehlo.constant dense<5> : tensor<i32>
        %m = stablehlo.remainder %a, %k : tensor<i32>
        %n = stablehlo.multiply %b, %b : tensor<i32>
        %o = stablehlo.multiply %m, %m : tensor<i32>
        %q = stablehlo.remainder %b, %k : tensor<i32>
        %r = stablehlo.multiply %q, %q : tensor<i32>
        %p = stablehlo.compare LT, %o, %r : (tensor<i32>, tensor<i32>) -> tensor<i1>""",
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparators(name: str) -> None:
    executables = pair(sort("?x?", 1, "i32", COMPARISONS[name]))
    for shape in ((2, 40), (5, 1), (1, 300)):
        same(executables, numbers("i32", shape), numbers("i32", shape))


def test_a_comparator_with_branches_is_compiled_for_each_shape() -> None:
    text = sort(
        "?",
        0,
        "i32",
        """%z = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %p = "stablehlo.if"(%z) ({ stablehlo.return %z : tensor<i1> }, { stablehlo.return %z : tensor<i1> }) : (tensor<i1>) -> tensor<i1>""",
    )
    executable = hlojit.compile(text, options=SYMBOLIC)
    x = numbers("i32", (20,))
    np.testing.assert_array_equal(executable(x, x)[0], np.sort(x))


def top_k(k: int) -> str:
    return f"""
    func.func @main(%x: tensor<?x?xf32>) -> (tensor<?x{k}xf32>, tensor<?x{k}xi32>) {{
      %0:2 = chlo.top_k(%x, k = {k}) : tensor<?x?xf32> -> (tensor<?x{k}xf32>, tensor<?x{k}xi32>)
      return %0#0, %0#1 : tensor<?x{k}xf32>, tensor<?x{k}xi32>
    }}"""


def test_top_k() -> None:
    executables = pair(top_k(3))
    for shape in ((0, 3), (1, 3), (4, 100)):
        same(executables, numbers("f32", shape))
    for each in executables:
        with pytest.raises(hlojit.ArgumentError):
            each(numbers("f32", (4, 2)))


def scatter(
    shape: str, indices: str, updates: str, numbers: str, op: str = "add", element: str = "f32", body: str = ""
) -> str:
    types = f"tensor<{shape}x{element}>", f"tensor<{indices}>", f"tensor<{updates}{element}>"
    body = body or f"%r = stablehlo.{op} %a, %b : tensor<{element}>"
    return f"""
    func.func @main(%x: {types[0]}, %i: {types[1]}, %u: {types[2]}) -> {types[0]} {{
      %0 = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}> ({{
      ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
        {body}
        stablehlo.return %r : tensor<{element}>
      }}) : ({", ".join(types)}) -> {types[0]}
      return %0 : {types[0]}
    }}"""


ROWS = "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
SINGLE = "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
COLUMNS = (
    "update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1], index_vector_dim = 1"
)
MOVED = "update_window_dims = [1, 2], scatter_dims_to_operand_dims = [1, 0], index_vector_dim = 1"
BATCHED = (
    "inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], "
    "scatter_dims_to_operand_dims = [1], index_vector_dim = 2"
)
SUBTRACT = "%r = stablehlo.subtract %b, %a : tensor<f32>"
"""Depends on the order of updates."""
SCATTERS: dict[str, tuple[str, Any]] = {
    "rows": (scatter("?x?", "?x1xi32", "?x?x", ROWS), lambda m, n, k: ((m, n), (k, 1), (k, n))),
    "rows in order": (scatter("?x?", "?x1xi64", "?x?x", ROWS, body=SUBTRACT), lambda m, n, k: ((m, n), (k, 1), (k, n))),
    "parts of rows": (scatter("?x?", "?x1xi32", "?x?x", ROWS), lambda m, n, k: ((m, n), (k, 1), (k, n // 2))),
    "elements": (scatter("?", "?x1xi32", "?x", SINGLE), lambda m, n, k: ((m,), (k, 1), (k,))),
    "elements in order": (scatter("?", "?x1xi16", "?x", SINGLE, body=SUBTRACT), lambda m, n, k: ((m,), (k, 1), (k,))),
    "the last one": (
        scatter("?", "?x1xui32", "?x", SINGLE, body="%r = stablehlo.abs %b : tensor<f32>"),
        lambda m, n, k: ((m,), (k, 1), (k,)),
    ),
    "columns": (scatter("?x?", "?x1xi32", "?x?x", COLUMNS), lambda m, n, k: ((m, n), (k, 1), (m, k))),
    "windows that move": (
        scatter("?x?", "?x2xi32", "?x?x?x", MOVED, body=SUBTRACT),
        lambda m, n, k: ((m, n), (k, 2), (k, min(m, 2), min(n, 3))),
    ),
    "batches": (scatter("?x?", "?x?x1xi32", "?x?x", BATCHED), lambda m, n, k: ((m, n), (m, k, 1), (m, k))),
    "narrow numbers": (
        scatter("?x?", "?x1xi32", "?x?x", ROWS, element="bf16"),
        lambda m, n, k: ((m, n), (k, 1), (k, n)),
    ),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_scatters(name: str) -> None:
    text, shapes = SCATTERS[name]
    executables = pair(text)
    element: Any = ml_dtypes.bfloat16 if "bf16" in text else np.float32
    index = np.dtype("i4")
    for word, dtype in (("xi64>", "i8"), ("xi16>", "i2"), ("xui32>", "u4")):
        if word in text.split("->")[0]:
            index = np.dtype(dtype)
    for sizes in ((4, 5, 7), (1, 1, 1), (3, 4, 0), (0, 4, 3), (9, 33, 400), (70, 64, 900)):
        given, at, updates = shapes(*sizes)
        if 0 in given and "moves" in name:
            continue
        low = 0 if index.kind == "u" else -2
        indices = GENERATOR.integers(low, max(given) + 2, at).astype(index)
        x, u = (GENERATOR.standard_normal(shape).astype(element) for shape in (given, updates))
        same(executables, x, indices, u)


def test_windows_that_do_not_fit_are_refused() -> None:
    for each in pair(SCATTERS["rows"][0]):
        for at, updates in (((3, 1), (3, 6)), ((3, 1), (2, 4))):
            with pytest.raises(hlojit.ArgumentError):
                each(np.ones((4, 5), "f4"), np.zeros(at, "i4"), np.ones(updates, "f4"))


def test_a_scatter_gives_the_same_for_any_threads() -> None:
    text, shapes = SCATTERS["rows in order"]
    executables = pair(text)
    given, at, updates = shapes(50, 40, 3000)
    inputs = (
        GENERATOR.standard_normal(given).astype("f4"),
        GENERATOR.integers(0, 50, at),
        GENERATOR.standard_normal(updates).astype("f4"),
    )
    wanted, wrong = executables[1](*inputs).tobytes(), []

    def run() -> None:
        for _ in range(5):
            if executables[0](*inputs).tobytes() != wanted:
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


SELECTED = """
func.func @main(%x: tensor<?x?xf32>, %s: tensor<?x?xf32>, %z: tensor<f32>) -> tensor<?x?xf32> {
  %0 = "stablehlo.select_and_scatter"(%x, %s, %z) <{
    window_dimensions = array<i64: 2, 3>, window_strides = array<i64: 2, 1>, padding = dense<[[0, 1], [1, 1]]> : tensor<2x2xi64>
  }> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>): %p = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>): %p = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %p : tensor<f32>
  }) : (tensor<?x?xf32>, tensor<?x?xf32>, tensor<f32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}"""


def test_select_and_scatter() -> None:
    executables = pair(SELECTED)
    for rows, columns in ((4, 5), (1, 1), (1, 3), (7, 2), (0, 4), (3, 0), (60, 31)):
        x = GENERATOR.integers(0, 5, (rows, columns)).astype("f4")
        source = GENERATOR.standard_normal((max(rows + 1, 0) // 2, columns)).astype("f4")
        same(executables, x, source, np.float32(1))
    for each in executables:
        with pytest.raises(hlojit.ArgumentError):
            each(np.ones((4, 6), "f4"), np.ones((3, 4), "f4"), np.float32(0))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["f32", "i32", "ui8", "f64", "bf16"]),
    st.sampled_from(["LT", "GT"]),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 70)), min_size=3, max_size=3),
    st.integers(0, 1),
)
def test_random_sorts(element: str, direction: str, sizes: list[tuple[int, int]], dimension: int) -> None:
    executables = pair(sort("?x?", dimension, element, ordered(element, direction)))
    for shape in sizes:
        same(executables, numbers(element, shape), np.arange(np.prod(shape), dtype=np.int32).reshape(shape))
