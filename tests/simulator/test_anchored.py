"""Products and convolutions with what follows them as one kernel of threads: bit for bit what they give apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cuda.backend import CudaBackend
from hlojit.cuda.nvptx import H200
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.internal import is_fusion
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.library_product import LibraryProduct
from hlojit.simt.kernels import emit_kernel, kernel_candidates
from hlojit.simt.simulator.dialect import SimulatorDialect
from hlojit.simt.simulator.module import simulated_target

from ..anchored_programs import (
    PAIRS,
    TYPES,
    Array,
    check_same_bits,
    convolution,
    followed,
    product,
    random_convolution,
    random_product,
)
from ..simt.simulated import TARGET, run_code

LIMITS = CudaBackend.fusion_limits
APART = replace(LIMITS, anchors=frozenset())


def run(text: str, arrays: Sequence[Array], patch: pytest.MonkeyPatch, *, whole: bool) -> tuple[int, list[Array]]:
    """How many kernels there are, and what they compute."""
    with patch.context() as inside:
        inside.setattr(CudaBackend, "fusion_limits", LIMITS if whole else APART)
        executable = hlojit.compile(text, backend="cuda")
    found = executable(*arrays)
    launches = len(list(executable.spec.program.launches()))
    return launches, [np.asarray(each) for each in (found if isinstance(found, (tuple, list)) else (found,))]


def check(text: str, arrays: Sequence[Array], patch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The same bits whole and apart; gives the numbers of kernels."""
    count, found = run(text, arrays, patch, whole=True)
    before, expected = run(text, arrays, patch, whole=False)
    check_same_bits(found, expected, text)
    return count, before


@pytest.mark.parametrize("seed", range(60))
def test_random_products(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = random_product(seed, [*PAIRS, ("f8E4M3FN", "f8E5M2"), ("f8E5M2", "f32"), ("bf16", "f16")])
    check(writer.text(), writer.arrays(np.random.default_rng(seed)), monkeypatch)


@pytest.mark.parametrize("seed", range(20))
def test_random_convolutions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = random_convolution(seed)
    check(writer.text(), writer.arrays(np.random.default_rng(seed)), monkeypatch)


WHOLE = {
    "matrix instructions": product((), 150, 70, 144, ("bf16", "bf16")),
    "matrix instructions, sums of f32": product((), 70, 64, 96, ("bf16", "f32")),
    "matrix instructions, rows that begin anywhere": product((2,), 40, 64, 77, ("f16", "f16"), (False, True)),
    "matrix instructions, bytes": product((), 33, 128, 65, ("i8", "i32")),
    "tiles": product((), 130, 40, 260, ("f32", "f32")),
    "tiles of f64": product((), 66, 40, 70, ("f64", "f64")),
    "rows, terms apart": product((), 3, 600, 130, ("f32", "f32")),
    "rows, terms beside each other": product((), 2, 600, 130, ("f32", "f32"), (False, True)),
    "a vector": product((), 130, 300, 1, ("bf16", "bf16")),
    "sums in parts": product((), 20, 4000, 24, ("f32", "f32")),
    "sums of matrix instructions in parts": product((), 20, 4000, 24, ("bf16", "bf16")),
    "few rows in parts": product((), 3, 30000, 5, ("f32", "f32")),
    "a convolution": convolution(1, 9, 16, 48, 3, 1, "b01f"),
    "features apart": convolution(1, 9, 16, 48, 3, 2, "bf01"),
    "a depthwise convolution": convolution(1, 9, 48, 48, 3, 1, "b01f", 48),
}


@pytest.mark.parametrize("name", WHOLE)
def test_forms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every form of the kernels."""
    writer = followed(WHOLE[name], ("bias", "residual", "root", "relu"))
    count, before = check(writer.text(), writer.arrays(np.random.default_rng(0)), monkeypatch)
    assert (count, before) == (1, 2)


@pytest.mark.parametrize("name", [name for name in WHOLE if "i8" not in WHOLE[name].arguments[0]])
def test_functions_of_the_sums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a rounded sum, of places, and into another type."""
    writer = followed(WHOLE[name], ("tanh", "root", "iota", "choose", "bf16", "rows"))
    count, before = check(writer.text(), writer.arrays(np.random.default_rng(1)), monkeypatch)
    assert (count, before) == (1, 2)


def adam(element: str, rows: int = 40, columns: int = 48) -> str:
    """A gradient, of which a step of Adam is computed."""
    x, y, t = f"tensor<64x{rows}x{element}>", f"tensor<64x{columns}x{element}>", f"tensor<{rows}x{columns}xf32>"
    r = f"tensor<{rows}x{columns}x{element}>"
    return f"""func.func @main(%x: {x}, %y: {y}, %p: {t}, %m: {t}, %v: {t}) -> ({t}, {t}, {t}) {{
  %d = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0] : ({x}, {y}) -> {r}
  %g = stablehlo.convert %d : ({r}) -> {t}
  %a = stablehlo.constant dense<0.1> : {t}
  %0 = stablehlo.subtract %g, %m : {t}
  %1 = stablehlo.multiply %0, %a : {t}
  %2 = stablehlo.add %m, %1 : {t}
  %3 = stablehlo.multiply %g, %g : {t}
  %4 = stablehlo.subtract %3, %v : {t}
  %5 = stablehlo.multiply %4, %a : {t}
  %6 = stablehlo.add %v, %5 : {t}
  %7 = stablehlo.sqrt %6 : {t}
  %8 = stablehlo.add %7, %a : {t}
  %9 = stablehlo.divide %2, %8 : {t}
  %10 = stablehlo.subtract %p, %9 : {t}
  return %10, %2, %6 : {t}, {t}, {t}
}}"""


@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_update_of_weights_behind_a_gradient(element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six arrays as large as the product's result, three of which may be written over."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(TYPES[element]) for shape in ((64, 40), (64, 48))]
    arrays += [rng.random((40, 48)).astype("f4") for _ in range(3)]
    assert check(adam(element), arrays, monkeypatch) == (1, 2)
    kept = hlojit.compile(adam(element), backend="cuda")(*arrays)
    donated = hlojit.compile(adam(element), backend="cuda", donate=[2, 3, 4])(*(each.copy() for each in arrays))
    for one, other in zip(kept, donated):
        np.testing.assert_array_equal(one, other)


def test_result_of_another_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows goes over a reshaped result, and somebody else reads the result itself."""
    text = """func.func @main(%x: tensor<6x40xf32>, %y: tensor<40x48xf32>, %b: tensor<12xf32>) -> (tensor<2x3x4x12xf32>, tensor<48xf32>) {
  %d = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<6x40xf32>, tensor<40x48xf32>) -> tensor<6x48xf32>
  %r = stablehlo.reshape %d : (tensor<6x48xf32>) -> tensor<2x3x4x12xf32>
  %w = stablehlo.broadcast_in_dim %b, dims = [3] : (tensor<12xf32>) -> tensor<2x3x4x12xf32>
  %s = stablehlo.add %r, %w : tensor<2x3x4x12xf32>
  %t = stablehlo.tanh %s : tensor<2x3x4x12xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %q = stablehlo.reduce(%d init: %z) applies stablehlo.add across dimensions = [0] : (tensor<6x48xf32>, tensor<f32>) -> tensor<48xf32>
  return %t, %q : tensor<2x3x4x12xf32>, tensor<48xf32>
}"""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("f4") for shape in ((6, 40), (40, 48), (12,))]
    assert check(text, arrays, monkeypatch) == (2, 3)


def test_operand_that_is_also_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operand of the product may not be the memory of the result, though it is read element by element afterwards."""
    text = """func.func @main(%x: tensor<64x64xbf16>, %y: tensor<64x64xbf16>) -> tensor<64x64xbf16> {
  %e = stablehlo.exponential %x : tensor<64x64xbf16>
  %d = stablehlo.dot_general %e, %y, contracting_dims = [1] x [0] : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
  %s = stablehlo.subtract %d, %e : tensor<64x64xbf16>
  return %s : tensor<64x64xbf16>
}"""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((64, 64)).astype(TYPES["bf16"]) for _ in range(2)]
    assert check(text, arrays, monkeypatch) == (2, 3)


def test_state_of_a_loop_and_donated_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recurrent step: the state is an operand of the product, and what is added to it; and memory that is given away."""
    text = """func.func @main(%h: tensor<16x64xf32>, %w: tensor<64x64xf32>, %n: tensor<i32>) -> tensor<16x64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %s = %h) : tensor<i32>, tensor<16x64xf32>
   cond {
    %c = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %d = stablehlo.dot_general %s, %w, contracting_dims = [1] x [0] : (tensor<16x64xf32>, tensor<64x64xf32>) -> tensor<16x64xf32>
    %a = stablehlo.add %d, %s : tensor<16x64xf32>
    %t = stablehlo.tanh %a : tensor<16x64xf32>
    stablehlo.return %j, %t : tensor<i32>, tensor<16x64xf32>
  }
  return %0#1 : tensor<16x64xf32>
}"""
    rng = np.random.default_rng(0)
    h, w = rng.standard_normal((16, 64)).astype("f4"), rng.standard_normal((64, 64)).astype("f4") / 8
    check(text, [h, w, np.int32(7)], monkeypatch)
    writer = followed(product((), 96, 80, 96, ("f32", "f32")), ("residual", "tanh"))
    x, y, residual = writer.arrays(rng)
    kept = hlojit.compile(writer.text(), backend="cuda")
    donated = hlojit.compile(writer.text(), backend="cuda", donate=[2])
    # The residual's memory becomes that of the result: each element is read where it is written.
    np.testing.assert_array_equal(donated(x, y, residual.copy()), kept(x, y, residual))
    assert [launch.kernel.in_place for launch in donated.spec.program.launches()] == [((2, 0),)]


SIX = ext.FloatFormat(
    "anchored6", exponent_bits=3, mantissa_bits=2, bias=3, has_infinity=False, nan=ext.NanEncoding.NONE,
    overflow=ext.Overflow.SATURATE)  # fmt: skip
TABLE = np.linspace(0.0, 1.0, 64, dtype="f4") ** 2.2


def looked_up(place: int) -> float:
    return TABLE[place] if place < 100 else TABLE[0]


LOOKED_UP = ext.ElementwiseCall("anchored.looked_up", function=looked_up)
VENDOR = """func.func @main(%a: tensor<40x64xf32>, %w: tensor<64x48xf32>, %p: tensor<40x48xi32>) -> (tensor<40x48xf32>, tensor<40x48xf32>) {
  %x = stablehlo.convert %a : (tensor<40x64xf32>) -> tensor<40x64xanchored6>
  %y = stablehlo.convert %w : (tensor<64x48xf32>) -> tensor<64x48xanchored6>
  %d = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<40x64xanchored6>, tensor<64x48xanchored6>) -> tensor<40x48xanchored6>
  %s = stablehlo.add %d, %d : tensor<40x48xanchored6>
  %f = stablehlo.convert %s : (tensor<40x48xanchored6>) -> tensor<40x48xf32>
  %c = stablehlo.custom_call @anchored.looked_up(%p) : (tensor<40x48xi32>) -> tensor<40x48xf32>
  %r = stablehlo.multiply %f, %c : tensor<40x48xf32>
  return %f, %r : tensor<40x48xf32>, tensor<40x48xf32>
}"""


def test_formats_and_functions_of_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vendor's numbers are rounded where the program rounds, and what a function fails with is heard."""
    rng = np.random.default_rng(0)
    a, w = (rng.standard_normal(shape).astype("f4") for shape in ((40, 64), (64, 48)))
    places = rng.integers(0, 64, (40, 48)).astype("i4")
    plugin = SimpleNamespace(
        __name__="anchored",
        hlojit_formats=ext.hookimpl(lambda: [SIX]),
        hlojit_custom_calls=ext.hookimpl(lambda: [LOOKED_UP]),
    )
    with ext.using(plugin):
        count, before = check(VENDOR, [a, w, places], monkeypatch)
        assert count == before - 1
        executable = hlojit.compile(VENDOR, backend="cuda")
        with pytest.raises(hlojit.ExecutionError, match="'anchored.looked_up': an index is out of range"):
            executable(a, w, places + 70)


def fusion_of(text: str) -> Instruction:
    """The one fusion of a program."""
    module = lower(hlojit.parse(text), registry().backend("cuda"), CompileOptions())
    (found,) = [each for each in module.main.body if is_fusion(each)]
    return found


TILED = ["matrix instructions", "matrix instructions, rows that begin anywhere", "tiles", "tiles of f64"]


@pytest.mark.parametrize("name", TILED)
def test_tiles_of_all_sizes_give_the_same_bits(name: str) -> None:
    """On a machine of one multiprocessor tiles are large: sums are left in several rounds, of one step or more."""
    writer = followed(WHOLE[name], ("bias", "tanh", "root", "residual"))
    fusion, arrays = fusion_of(writer.text()), writer.arrays(np.random.default_rng(0))
    results = [value.tensor_type for value in fusion.results]
    found = []
    for machine in (H200, GridMachine(1, matrix_inputs=H200.matrix_inputs)):
        target = simulated_target(machine)
        first, *others = kernel_candidates(fusion, target)
        names = [first.name, *(each.name for each in others if each.order == first.order)]
        for candidate in names[:: max(1, len(names) - 1)]:
            code = emit_kernel(fusion, target, SimulatorDialect(), "kernel", candidate=candidate)
            found.append(run_code(code, arrays, results))
    for each in found[1:]:
        check_same_bits(each, found[0], writer.text())


@pytest.mark.parametrize("name", ["matrix instructions", "sums of matrix instructions in parts"])
def test_what_follows_a_product_that_a_library_computes(name: str) -> None:
    """It is a launch of its own then; our own kernel stands in for the library here."""
    writer = followed(WHOLE[name], ("bias", "tanh", "root", "residual", "f32"))
    fusion, arrays = fusion_of(writer.text()), writer.arrays(np.random.default_rng(0))
    results = [value.tensor_type for value in fusion.results]
    found = []
    for candidate in ("", "library 2"):
        code = emit_kernel(fusion, TARGET, SimulatorDialect(), "kernel", candidate=candidate)
        found.append(run_code(code, arrays, results))
        called = [bool(phase.library) for phase in code.phases]
        assert called == ([True, False] if candidate else [False] * len(code.phases))
    call = LibraryProduct.of_text(code.phases[0].library)
    assert call.buffers == (0, 1, len(arrays) + len(results)) and call.way == 1
    if "parts" not in name:  # a library's call is one launch, and so is the kernel in its place
        check_same_bits(found[1], found[0], writer.text())
