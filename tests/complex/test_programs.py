"""Programs of complex numbers on every back end, against NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import hlojit
import numpy as np
import pytest
from hlojit.arrays import Array

ELEMENTS = ("f32", "f64")
DTYPES = {"f32": np.dtype(np.complex64), "f64": np.dtype(np.complex128)}
SIZES = (0, 1, 2, 7, 16, 33, 1000)


@pytest.fixture(autouse=True, scope="module")
def simulator(request: pytest.FixtureRequest) -> Iterator[None]:
    """The back end ``cuda`` runs on the simulator, unless there is a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("--gpu", default=False):
            patch.setenv("HLOJIT_CUDA", "simulator")
        yield


@pytest.fixture(params=["cpu", "cuda"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def numbers(shape: tuple[int, ...], element: str, seed: int = 0) -> np.ndarray:
    """Random complex numbers of many sizes."""
    generator = np.random.default_rng(seed)
    parts = generator.normal(size=(*shape, 2)) * 2.0 ** generator.integers(-4, 5, (*shape, 2))
    return parts.astype(element.replace("f32", "f4").replace("f64", "f8")).view(DTYPES[element])[..., 0]


def run(text: str, backend: str, element: str, *arguments: np.ndarray) -> list[np.ndarray]:
    """The results of a program written for complex<f32>."""
    results = hlojit.compile(text.replace("f32", element), backend=backend)(*arguments)
    return [np.asarray(result) for result in (results if isinstance(results, tuple) else (results,))]


def assert_close(found: np.ndarray, expected: np.ndarray, units: float = 4.0) -> None:
    """Numbers agree as vectors, to ``units`` in the last place of the larger part; types and shapes are the same."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    wrong = np.abs(found - expected) > units * np.spacing(np.abs(expected))
    assert not wrong.any(), (found[wrong][:4], expected[wrong][:4])


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("size", SIZES)
def test_elementwise_arithmetic(backend: str, element: str, size: int) -> None:
    text = f"""
    func.func @main(%x: tensor<{size}xcomplex<f32>>, %y: tensor<{size}xcomplex<f32>>)
        -> (tensor<{size}xcomplex<f32>>, tensor<{size}xcomplex<f32>>, tensor<{size}xf32>, tensor<{size}xi1>) {{
      %0 = stablehlo.multiply %x, %y : tensor<{size}xcomplex<f32>>
      %1 = stablehlo.add %0, %x : tensor<{size}xcomplex<f32>>
      %2 = stablehlo.divide %x, %y : tensor<{size}xcomplex<f32>>
      %3 = stablehlo.abs %x : (tensor<{size}xcomplex<f32>>) -> tensor<{size}xf32>
      %4 = stablehlo.compare EQ, %x, %1 : (tensor<{size}xcomplex<f32>>, tensor<{size}xcomplex<f32>>) -> tensor<{size}xi1>
      return %1, %2, %3, %4 : tensor<{size}xcomplex<f32>>, tensor<{size}xcomplex<f32>>, tensor<{size}xf32>, tensor<{size}xi1>
    }}"""
    x, y = numbers((size,), element), numbers((size,), element, 1)
    total, quotient, size_of, equal = run(text, backend, element, x, y)
    wide_x, wide_y = x.astype(np.clongdouble), y.astype(np.clongdouble)
    # The plain formula: its error is that of the products, not of the sum.
    scale = np.abs(wide_x * wide_y) + np.abs(wide_x)
    assert np.all(np.abs(total - (wide_x * wide_y + wide_x)) <= 4 * np.spacing(scale.astype(x.real.dtype)))
    assert_close(quotient, (wide_x / wide_y).astype(x.dtype), 4.0)
    # Rounding what is expected takes half a unit itself.
    assert_close(size_of, np.abs(wide_x).astype(x.real.dtype), 1.0)
    assert np.array_equal(equal, x == total)


@pytest.mark.parametrize("element", ELEMENTS)
def test_movement_is_exact(backend: str, element: str) -> None:
    text = """
    func.func @main(%x: tensor<5x9xcomplex<f32>>, %p: tensor<5x9xi1>, %n: tensor<i32>, %i: tensor<3x1xi32>)
        -> (tensor<9x5xcomplex<f32>>, tensor<5x9xcomplex<f32>>, tensor<7x11xcomplex<f32>>, tensor<2x9xcomplex<f32>>,
            tensor<3x9xcomplex<f32>>, tensor<5x9xcomplex<f32>>) {
      %z = stablehlo.constant dense<(0.5, -0.0)> : tensor<complex<f32>>
      %0 = stablehlo.constant dense<0> : tensor<i32>
      %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<5x9xcomplex<f32>>) -> tensor<9x5xcomplex<f32>>
      %r = stablehlo.reverse %x, dims = [1] : tensor<5x9xcomplex<f32>>
      %s = stablehlo.select %p, %x, %r : tensor<5x9xi1>, tensor<5x9xcomplex<f32>>
      %d = stablehlo.pad %x, %z, low = [1, 1], high = [1, 1], interior = [0, 0]
        : (tensor<5x9xcomplex<f32>>, tensor<complex<f32>>) -> tensor<7x11xcomplex<f32>>
      %y = stablehlo.dynamic_slice %x, %n, %0, sizes = [2, 9] : (tensor<5x9xcomplex<f32>>, tensor<i32>, tensor<i32>) -> tensor<2x9xcomplex<f32>>
      %g = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
        start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 9>}>
        : (tensor<5x9xcomplex<f32>>, tensor<3x1xi32>) -> tensor<3x9xcomplex<f32>>
      %u = stablehlo.dynamic_update_slice %x, %y, %0, %0
        : (tensor<5x9xcomplex<f32>>, tensor<2x9xcomplex<f32>>, tensor<i32>, tensor<i32>) -> tensor<5x9xcomplex<f32>>
      return %t, %s, %d, %y, %g, %u : tensor<9x5xcomplex<f32>>, tensor<5x9xcomplex<f32>>, tensor<7x11xcomplex<f32>>,
        tensor<2x9xcomplex<f32>>, tensor<3x9xcomplex<f32>>, tensor<5x9xcomplex<f32>>
    }"""
    x = numbers((5, 9), element)
    chosen = np.random.default_rng(2).integers(0, 2, (5, 9)).astype(bool)
    rows = np.array([[4], [0], [3]], np.int32)
    padded = np.full((7, 11), complex(0.5, -0.0), x.dtype)
    padded[1:-1, 1:-1] = x
    updated = x.copy()
    updated[:2] = x[2:4]
    expected = [x.T, np.where(chosen, x, x[:, ::-1]), padded, x[2:4], x[rows[:, 0]], updated]
    for found, wanted in zip(run(text, backend, element, x, chosen, np.int32(2), rows), expected, strict=True):
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("element", ELEMENTS)
def test_regions_loops_and_branches(backend: str, element: str) -> None:
    text = """
    func.func @main(%x: tensor<6x40xcomplex<f32>>, %n: tensor<i32>)
        -> (tensor<6xcomplex<f32>>, tensor<40xcomplex<f32>>, tensor<6x40xcomplex<f32>>, tensor<6x40xcomplex<f32>>) {
      %0 = stablehlo.constant dense<0> : tensor<i32>
      %1 = stablehlo.constant dense<1> : tensor<i32>
      %z = stablehlo.constant dense<(0.0, 0.0)> : tensor<complex<f32>>
      %o = stablehlo.constant dense<(1.0, 0.0)> : tensor<complex<f32>>
      %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
        : (tensor<6x40xcomplex<f32>>, tensor<complex<f32>>) -> tensor<6xcomplex<f32>>
      %p = stablehlo.reduce(%x init: %o) applies stablehlo.multiply across dimensions = [0]
        : (tensor<6x40xcomplex<f32>>, tensor<complex<f32>>) -> tensor<40xcomplex<f32>>
      %w:2 = stablehlo.while(%y = %x, %k = %0) : tensor<6x40xcomplex<f32>>, tensor<i32>
       cond {
        %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %h = "stablehlo.case"(%k) ({
          %a = stablehlo.add %y, %x : tensor<6x40xcomplex<f32>>
          stablehlo.return %a : tensor<6x40xcomplex<f32>>
        }, {
          %b = stablehlo.negate %y : tensor<6x40xcomplex<f32>>
          stablehlo.return %b : tensor<6x40xcomplex<f32>>
        }) : (tensor<i32>) -> tensor<6x40xcomplex<f32>>
        %m = stablehlo.add %k, %1 : tensor<i32>
        stablehlo.return %h, %m : tensor<6x40xcomplex<f32>>, tensor<i32>
      }
      %q = "stablehlo.sort"(%x) <{dimension = 1 : i64, is_stable = true}> ({
      ^bb0(%a: tensor<complex<f32>>, %b: tensor<complex<f32>>):
        %c = stablehlo.compare LT, %a, %b : (tensor<complex<f32>>, tensor<complex<f32>>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }) : (tensor<6x40xcomplex<f32>>) -> tensor<6x40xcomplex<f32>>
      return %s, %p, %w#0, %q : tensor<6xcomplex<f32>>, tensor<40xcomplex<f32>>, tensor<6x40xcomplex<f32>>, tensor<6x40xcomplex<f32>>
    }"""
    x = numbers((6, 40), element)
    total, product, looped, ordered = run(text, backend, element, x, np.int32(2))
    wide = x.astype(complex)
    precision = np.finfo(x.dtype).eps
    assert np.all(np.abs(total - wide.sum(1)) <= 40 * precision * np.abs(wide).sum(1))
    assert np.all(np.abs(product - wide.prod(0)) <= 12 * precision * np.abs(wide).prod(0))
    assert looped.tobytes() == (-(x + x)).tobytes()
    assert ordered.tobytes() == np.sort(x, axis=1).tobytes()


@pytest.mark.parametrize("element", ELEMENTS)
def test_products_take_and_give_whole_numbers(backend: str, element: str) -> None:
    text = """
    func.func @main(%x: tensor<8x12xcomplex<f32>>, %y: tensor<12x5xcomplex<f32>>) -> tensor<8x5xcomplex<f32>> {
      %0 = stablehlo.negate %x : tensor<8x12xcomplex<f32>>
      %1 = stablehlo.dot_general %0, %y, contracting_dims = [1] x [0]
        : (tensor<8x12xcomplex<f32>>, tensor<12x5xcomplex<f32>>) -> tensor<8x5xcomplex<f32>>
      %2 = stablehlo.add %1, %1 : tensor<8x5xcomplex<f32>>
      return %2 : tensor<8x5xcomplex<f32>>
    }"""
    x, y = numbers((8, 12), element), numbers((12, 5), element, 1)
    (found,) = run(text, backend, element, x, y)
    wide = -2 * (x.astype(complex) @ y.astype(complex))
    assert np.all(np.abs(found - wide) <= 40 * np.finfo(x.dtype).eps * (np.abs(x) @ np.abs(y)))


def test_arrays_stay_on_the_device(backend: str) -> None:
    text = """
    func.func @main(%x: tensor<9xcomplex<f32>>) -> tensor<9xcomplex<f32>> {
      %0 = stablehlo.multiply %x, %x : tensor<9xcomplex<f32>>
      return %0 : tensor<9xcomplex<f32>>
    }"""
    x = numbers((9,), "f32")
    device = hlojit.devices(backend)[0]
    result = hlojit.compile(text, backend=backend)(hlojit.put(x, device))
    assert isinstance(result, Array) and result.device is device
    assert_close(np.asarray(hlojit.get(result)), x * x, 8.0)


@pytest.mark.parametrize("backend", ["cpu", "cuda", "reference"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 17)])
def test_bits_as_numbers_of_other_width(backend: str, shape: tuple[int, ...]) -> None:
    """A number of 128 bits is two of 64, whose real parts are the lower halves, and the other way round."""
    wide = numbers(shape, "f64")
    types = [
        f"tensor<{''.join(f'{n}x' for n in each)}complex<{e}>>" for each, e in ((shape, "f64"), ((*shape, 2), "f32"))
    ]
    text = "func.func @main(%x: {0}) -> {1} {{ %0 = stablehlo.bitcast_convert %x : ({0}) -> {1} return %0 : {1} }}"
    bits = np.stack([wide.real, wide.imag], axis=-1).view(np.uint64)
    halves = [(bits >> shift).astype(np.uint32).view(np.float32) for shift in (np.uint64(0), np.uint64(32))]
    split = np.asarray(hlojit.compile(text.format(*types), backend=backend)(wide))
    assert (split.shape, split.dtype) == ((*shape, 2), np.complex64)
    assert split.real.tobytes() == halves[0].tobytes() and split.imag.tobytes() == halves[1].tobytes()
    whole = np.asarray(hlojit.compile(text.format(*reversed(types)), backend=backend)(split))
    assert (whole.shape, whole.dtype, whole.tobytes()) == (shape, wide.dtype, wide.tobytes())
