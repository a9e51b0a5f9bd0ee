"""Programs with tensors in blocks: back ends against each other and against NumPy on the decoded numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.errors import HlojitError

Array = Any
RANDOM = np.random.default_rng(3)


def blocks(shape: Sequence[int], name: str = "mxfp8") -> Any:
    """Random numbers in blocks, of blocks of different sizes."""
    numbers = np.random.default_rng(len(shape) + sum(shape)).normal(size=shape)
    sizes = np.random.default_rng(0).integers(-3, 4, (*shape[:-1], 1))
    return hlojit.Array.from_values((numbers * 2.0**sizes).astype(np.float32), name)


def program(body: str, arguments: str, results: str) -> str:
    return f"func.func @main({arguments}) -> ({results}) {{\n{body}\n}}"


def encoded(numbers: Array, name: str) -> Array:
    return hlojit.Array.from_values(numbers, name).to_values()


M = "tensor<4x64xmxfp8>"
COMPUTED: dict[str, tuple[str, Callable[[Array, Array], Array]]] = {
    "add": (f"%r = stablehlo.add %x, %y : {M}", lambda x, y: encoded(x + y, "mxfp8")),
    "divide": (f"%r = stablehlo.divide %x, %y : {M}", lambda x, y: encoded(x / y, "mxfp8")),
    "maximum": (f"%r = stablehlo.maximum %x, %y : {M}", lambda x, y: encoded(np.maximum(x, y), "mxfp8")),
    "negate": (f"%r = stablehlo.negate %x : {M}", lambda x, y: encoded(-x, "mxfp8")),
    "select": (
        f"%p = stablehlo.compare LT, %x, %y : ({M}, {M}) -> tensor<4x64xi1>\n"
        f"%r = stablehlo.select %p, %x, %y : tensor<4x64xi1>, {M}",
        lambda x, y: encoded(np.minimum(x, y), "mxfp8"),
    ),
    "constant": (
        f"%c = stablehlo.constant dense<1.7> : {M}\n%r = stablehlo.multiply %x, %c : {M}",
        lambda x, y: encoded(x * encoded(np.full((4, 64), 1.7), "mxfp8"), "mxfp8"),
    ),
    "another format": (
        f"%n = stablehlo.convert %x : ({M}) -> tensor<4x64xnvfp4>\n%r = stablehlo.convert %n : (tensor<4x64xnvfp4>) -> {M}",
        lambda x, y: encoded(encoded(x, "nvfp4"), "mxfp8"),
    ),
    "while": (
        f"""%zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<3> : tensor<i32>
  %i, %r = stablehlo.while(%k = %zero, %v = %x) : tensor<i32>, {M}
   cond {{
    %p = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %next = stablehlo.add %k, %one : tensor<i32>
    %w = stablehlo.add %v, %y : {M}
    stablehlo.return %next, %w : tensor<i32>, {M}
  }}""",
        lambda x, y: encoded(encoded(encoded(x + y, "mxfp8") + y, "mxfp8") + y, "mxfp8"),
    ),
    "if": (
        f"""%t = stablehlo.constant dense<true> : tensor<i1>
  %q = stablehlo.optimization_barrier %t : tensor<i1>
  %r = "stablehlo.if"(%q) ({{
    %a = stablehlo.subtract %x, %y : {M}
    stablehlo.return %a : {M}
  }}, {{
    stablehlo.return %y : {M}
  }}) : (tensor<i1>) -> {M}""",
        lambda x, y: encoded(x - y, "mxfp8"),
    ),
}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("case", COMPUTED)
def test_what_computes_decodes_and_encodes(case: str, backend: str) -> None:
    body, expected = COMPUTED[case]
    x, y = blocks((4, 64)), hlojit.Array.from_values(np.asarray(blocks((4, 64)))[::-1] + 30, "mxfp8")
    text = program(f"{body}\nreturn %r : {M}", f"%x: {M}, %y: {M}", M)
    found = hlojit.compile(text, backend=backend)(x, y)
    np.testing.assert_array_equal(np.asarray(found), expected(np.asarray(x), np.asarray(y)))


MOVED: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "transpose": (
        "transpose %x, dims = [1, 0, 2] : (tensor<2x3x64xmxfp8>) -> tensor<3x2x64xmxfp8>",
        lambda x: x.transpose(1, 0, 2),
    ),
    "transpose of blocks": (
        "transpose %x, dims = [0, 2, 1] : (tensor<2x3x64xmxfp8>) -> tensor<2x64x3xmxfp8_t>",
        lambda x: x.transpose(0, 2, 1),
    ),
    "reshape": ("reshape %x : (tensor<2x3x64xmxfp8>) -> tensor<6x64xmxfp8>", lambda x: x.reshape(6, 64)),
    "reshape of blocks": ("reshape %x : (tensor<2x3x64xmxfp8>) -> tensor<384xmxfp8>", lambda x: x.reshape(384)),
    "reverse": ("reverse %x, dims = [0, 2] : tensor<2x3x64xmxfp8>", lambda x: x[::-1, :, ::-1]),
    "slice": (
        "slice %x [1:2, 0:3:2, 32:64] : (tensor<2x3x64xmxfp8>) -> tensor<1x2x32xmxfp8>",
        lambda x: x[1:2, 0:3:2, 32:64],
    ),
    "concatenate": (
        "concatenate %x, %x, dim = 2 : (tensor<2x3x64xmxfp8>, tensor<2x3x64xmxfp8>) -> tensor<2x3x128xmxfp8>",
        lambda x: np.concatenate([x, x], 2),
    ),
    "broadcast_in_dim": (
        "broadcast_in_dim %x, dims = [0, 2, 3] : (tensor<2x3x64xmxfp8>) -> tensor<2x5x3x64xmxfp8>",
        lambda x: np.broadcast_to(x[:, None], (2, 5, 3, 64)),
    ),
    "dynamic_slice": (
        "dynamic_slice %x, %i, %i, %i, sizes = [1, 2, 64] : "
        "(tensor<2x3x64xmxfp8>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x64xmxfp8>",
        lambda x: x[1:2, 1:3],
    ),
    "dynamic_update_slice": (
        "dynamic_update_slice %x, %u, %i, %i, %i : "
        "(tensor<2x3x64xmxfp8>, tensor<1x1x64xmxfp8>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x3x64xmxfp8>",
        lambda x: np.concatenate([x.reshape(6, 64)[:4], x[0, :1], x[1, 2:]]).reshape(2, 3, 64),
    ),
    "optimization_barrier": ("optimization_barrier %x : tensor<2x3x64xmxfp8>", lambda x: x),
}


def moving(case: str) -> str:
    operation, _ = MOVED[case]
    result = operation.rpartition("-> ")[2].rpartition(" : ")[2]
    body = f"""%i = stablehlo.constant dense<1> : tensor<i32>
  %u = stablehlo.slice %x [0:1, 0:1, 0:64] : (tensor<2x3x64xmxfp8>) -> tensor<1x1x64xmxfp8>
  %r = stablehlo.{operation}
  return %r : {result}"""
    return program(body, "%x: tensor<2x3x64xmxfp8>", result)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("case", MOVED)
def test_what_moves_keeps_blocks_as_they_are(case: str, backend: str) -> None:
    x = blocks((2, 3, 64))
    # Scales that encoding would not choose: nothing is encoded again.
    elements, scales = (np.asarray(part) for part in x.parts)
    x = hlojit.Array.from_parts(((elements.astype("f4") / 2).astype(elements.dtype), scales), "mxfp8")
    found = hlojit.compile(moving(case), backend=backend)(x)
    np.testing.assert_array_equal(np.asarray(found), MOVED[case][1](np.asarray(x)))
    if case == "optimization_barrier":
        for part, expected in zip(found.parts, x.parts):
            np.testing.assert_array_equal(np.asarray(part).view("u1"), np.asarray(expected).view("u1"))


GATHERED = """
func.func @main(%x: tensor<5x64xnvfp4>, %i: tensor<3x1xi32>) -> tensor<3x64xnvfp4> {
  %r = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 64>}>
    : (tensor<5x64xnvfp4>, tensor<3x1xi32>) -> tensor<3x64xnvfp4>
  return %r : tensor<3x64xnvfp4>
}
"""


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_rows_are_gathered_with_their_scales(backend: str) -> None:
    x = blocks((5, 64), "nvfp4")
    found = hlojit.compile(GATHERED, backend=backend)(x, np.int32([[4], [0], [2]]))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(x)[[4, 0, 2]])


X = "tensor<4x64xmxfp8>"
REFUSED = [
    ("slice %x [0:4, 1:33] : (%) -> tensor<4x32xmxfp8>", "1:33:1 are no whole blocks of 32"),
    ("slice %x [0:4, 0:64:2] : (%) -> tensor<4x32xmxfp8>", "0:64:2 are no whole blocks"),
    ("transpose %x, dims = [1, 0] : (%) -> tensor<64x4xmxfp8>", "blocks lie along dimension 0 of the result"),
    ("reshape %x : (%) -> tensor<16x16xmxfp8>", "does not hold the blocks of 32 of dimension 1"),
    ("reshape %x : (%) -> tensor<256xmxfp8_e5m2>", "must be of one block format"),
    ("reshape %x : (%) -> tensor<256xf32>", "operands and result must be of one block format"),
    ("add %x, %x : (%, %) -> tensor<4x64xf32>", "operands and results differ: f32 and mxfp8"),
    ("bitcast_convert %x : (%) -> tensor<4x64xi32>", "not what it takes or gives; convert to f32 first"),
    ("cholesky %x, lower = true : %", "not what it takes or gives; convert to f32 first"),
]


@pytest.mark.parametrize(("operation", "expected"), REFUSED)
def test_what_would_break_blocks_is_refused_with_a_reason(operation: str, expected: str) -> None:
    operation = operation.replace("%)", f"{X})").replace("(%,", f"({X},").replace(": %", f": {X}")
    result = operation.rpartition("-> ")[2].rpartition(" : ")[2]
    with pytest.raises(HlojitError) as caught:
        hlojit.compile(program(f"%r = stablehlo.{operation}\nreturn %r : {result}", f"%x: {X}", result))
    assert expected in str(caught.value)


SORTED = """
func.func @main(%x: tensor<4x64xmxfp8>) -> tensor<4x64xmxfp8> {
  %r = "stablehlo.sort"(%x) <{dimension = 1 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %p = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<4x64xmxfp8>) -> tensor<4x64xmxfp8>
  return %r : tensor<4x64xmxfp8>
}
"""


def test_a_sort_would_put_numbers_of_different_blocks_into_one() -> None:
    with pytest.raises(HlojitError, match="not what it takes or gives; convert to f32 first"):
        hlojit.compile(SORTED)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(
    "names", [("mxfp8", "mxfp8"), ("mxfp6_e2m3", "mxfp6_e3m2"), ("mxfp4", "f32"), ("nvfp4", "nvfp4")]
)
def test_products_of_blocks(names: tuple[str, str], backend: str) -> None:
    left, right = names
    x = blocks((6, 96), left)
    y: Any = blocks((5, 96), right) if right != "f32" else np.asarray(blocks((5, 96)))
    types = f"(tensor<6x96x{left}>, tensor<5x96x{right}>) -> tensor<6x5xf32>"
    text = program(
        f"%r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1] : {types}\nreturn %r : tensor<6x5xf32>",
        f"%x: tensor<6x96x{left}>, %y: tensor<5x96x{right}>",
        "tensor<6x5xf32>",
    )
    found = hlojit.compile(text, backend=backend)(x, y)
    exact = np.asarray(x).astype(np.float64) @ np.asarray(y).astype(np.float64).T
    sizes = np.abs(np.asarray(x)).astype(np.float64) @ np.abs(np.asarray(y)).astype(np.float64).T
    assert np.all(np.abs(found - exact) <= sizes * 96 * 2.0**-24)


FEW = {
    "row times matrix": ("tensor<1x96xf32>", "tensor<40x96xmxfp8>", "1] x [1", "tensor<1x40xf32>", "mk,nk->mn"),
    "matrix times rows": ("tensor<40x96xmxfp8>", "tensor<96x3xf32>", "1] x [0", "tensor<40x3xf32>", "nk,km->nm"),
    "vector in blocks": ("tensor<40x96xnvfp4>", "tensor<96xmxfp8>", "1] x [0", "tensor<40xf32>", "nk,k->n"),
    "rows of rows": ("tensor<96x2x2xf32>", "tensor<40x96xmxfp4>", "0] x [1", "tensor<2x2x40xf32>", "kab,nk->abn"),
    "result in blocks": ("tensor<2x96xmxfp8>", "tensor<64x96xmxfp8>", "1] x [1", "tensor<2x64xmxfp8>", "mk,nk->mn"),
}


def operand(text: str) -> Any:
    *extents, name = text.removeprefix("tensor<").removesuffix(">").split("x", text.count("x") - ("mx" in text))
    numbers = (
        np.random.default_rng(sum(map(int, extents))).normal(size=[int(each) for each in extents]).astype(np.float32)
    )
    return numbers if name == "f32" else hlojit.Array.from_values(numbers, name)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("case", FEW)
def test_products_of_few_rows_decode_the_matrix_as_they_read_it(case: str, backend: str) -> None:
    left, right, contracted, result, formula = FEW[case]
    x, y = operand(left), operand(right)
    text = program(
        f"%r = stablehlo.dot_general %x, %y, contracting_dims = [{contracted}] : ({left}, {right}) -> {result}\n"
        f"return %r : {result}",
        f"%x: {left}, %y: {right}",
        result,
    )
    executable = hlojit.compile(text, backend=backend)
    found = np.asarray(executable(x, y))
    exact = np.einsum(formula, np.asarray(x).astype(np.float64), np.asarray(y).astype(np.float64))
    bound = 0.07 * np.abs(exact).max() if result.endswith("mxfp8>") else 1e-4
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=bound)
    if backend == "cpu" and case == "row times matrix":
        # The scales in f32, and nothing of the matrix's size.
        assert executable.flat.spec.arena_bytes < 40 * 96


CONVOLVED = """
func.func @main(%x: tensor<1x6x6x32xmxfp8>, %w: tensor<3x3x32x8xmxfp8_t>) -> (tensor<1x4x4x8xf32>, tensor<1x6x6xf32>) {
  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x6x6x32xmxfp8>, tensor<3x3x32x8xmxfp8_t>) -> tensor<1x4x4x8xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [3]
    : (tensor<1x6x6x32xmxfp8>, tensor<f32>) -> tensor<1x6x6xf32>
  return %r, %s : tensor<1x4x4x8xf32>, tensor<1x6x6xf32>
}
"""


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_convolutions_and_reductions_of_blocks(backend: str) -> None:
    x = blocks((1, 6, 6, 32))
    w = hlojit.Array.from_values(np.random.default_rng(5).normal(size=(3, 3, 32, 8)), "mxfp8_t")
    found, largest = hlojit.compile(CONVOLVED, backend=backend)(x, w)
    image, kernel = np.asarray(x).astype(np.float64), np.asarray(w).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(image[0], (3, 3), axis=(0, 1))
    np.testing.assert_allclose(found[0], np.einsum("hwiab,abio->hwo", windows, kernel), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(largest, np.maximum(np.asarray(x).max(axis=3), 0))


def test_results_that_are_arguments_and_constants() -> None:
    text = program(
        f"%c = stablehlo.constant dense<3.25> : {M}\nreturn %x, %c, %x : {M}, {M}, {M}", f"%x: {M}", f"{M}, {M}, {M}"
    )
    x = blocks((4, 64))
    for backend in ("cpu", "reference"):
        first, constant, second = hlojit.compile(text, backend=backend)(x)
        np.testing.assert_array_equal(np.asarray(first), np.asarray(x))
        np.testing.assert_array_equal(np.asarray(second), np.asarray(x))
        np.testing.assert_array_equal(np.asarray(constant), np.full((4, 64), 3.25))


def test_tokens_beside_blocks_are_no_arguments() -> None:
    text = f"""
    func.func @main(%t: !stablehlo.token, %x: {M}) -> ({M}, !stablehlo.token) {{
      return %x, %t : {M}, !stablehlo.token
    }}"""
    x = blocks((4, 64))
    np.testing.assert_array_equal(np.asarray(hlojit.compile(text)(x)), np.asarray(x))
    with pytest.raises(HlojitError, match="not passed in and out"):
        hlojit.compile(f"func.func @main(%x: {M}, %y: f32) -> {M} {{ return %x : {M} }}")


def test_functions_that_are_called_and_tuples() -> None:
    text = f"""
    func.func private @twice(%x: {M}) -> {M} {{
      %r = stablehlo.add %x, %x : {M}
      return %r : {M}
    }}
    func.func @main(%t: tuple<{M}, tensor<f32>>) -> tuple<{M}, tensor<f32>> {{
      %x = stablehlo.get_tuple_element %t[0] : (tuple<{M}, tensor<f32>>) -> {M}
      %s = stablehlo.get_tuple_element %t[1] : (tuple<{M}, tensor<f32>>) -> tensor<f32>
      %y = func.call @twice(%x) : ({M}) -> {M}
      %r = stablehlo.tuple %y, %s : tuple<{M}, tensor<f32>>
      return %r : tuple<{M}, tensor<f32>>
    }}"""
    x = blocks((4, 64))
    for backend in ("cpu", "reference"):
        doubled, scalar = hlojit.compile(text, backend=backend)((x, np.float32(2)))
        np.testing.assert_array_equal(np.asarray(doubled), 2 * np.asarray(x))
        assert scalar == 2


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
def test_the_simulated_gpu_makes_the_same_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    numbers = np.asarray(blocks((4, 40)))

    def quantized(x: Array) -> Array:
        found = x.astype(name)
        return found, found @ found.T

    on_gpu, product = hlojit.jit(quantized, backend="cuda")(numbers)
    here, expected = hlojit.jit(quantized, backend="cpu")(numbers)
    for part, other in zip(on_gpu.parts, here.parts):
        assert np.asarray(part).tobytes() == np.asarray(other).tobytes()
    np.testing.assert_allclose(product, expected, rtol=1e-5, atol=1e-5)
