"""Every op that takes quantized operands runs on every back end; what rounds differently in floats differs by one step."""

from __future__ import annotations

from pathlib import Path

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.ops.definition import Pointwise, Trait, ops

from .conftest import run_on

Q = "!quant.uniform<i8:f32, 0.0625:-3>"
WIDE = "!quant.uniform<i8:f32, 0.125:5>"
POINTWISE = sorted(
    op.name
    for op in ops()
    if Trait.DEQUANTIZES in op.traits
    and isinstance(op.lowering, Pointwise)
    and len(op.operands) <= 2
    and not any(not each.optional for each in op.attributes)
)


def stored(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def agree(text: str, *arguments: np.ndarray, steps: int = 1, backends: tuple[str, ...] = ("cpu", "cuda")) -> None:
    """Back ends against the reference; ``steps`` of stored integers may lie between."""
    expected = run_on("reference", text, *arguments)
    for backend in backends:
        for found, wanted in zip(run_on(backend, text, *arguments), expected, strict=True):
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            difference = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
            assert difference.size == 0 or difference.max() <= steps, backend


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise(name: str) -> None:
    record = next(op for op in ops() if op.name == name)
    count = len(record.operands)
    names = ", ".join(f"%a{number}" for number in range(count))
    arguments = ", ".join(f"%a{number}: tensor<64x{Q}>" for number in range(count))
    types = ", ".join([f"tensor<64x{Q}>"] * count)
    text = f"""func.func @main({arguments}) -> tensor<64x{WIDE}> {{
  %r = "{name}"({names}) : ({types}) -> tensor<64x{WIDE}>
  return %r : tensor<64x{WIDE}>
}}"""
    agree(text, *(stored(64, seed=number) for number in range(count)), backends=("cpu",))


STRUCTURED = {
    "batch_norm_inference": (
        ("4x3", "3", "3", "3", "3"),
        '"stablehlo.batch_norm_inference"(%a0, %a1, %a2, %a3, %a4) {epsilon = 1.0e-3 : f32, feature_index = 1 : i64}',
        ("4x3",),
    ),
    "batch_norm_training": (
        ("4x3", "3", "3"),
        '"stablehlo.batch_norm_training"(%a0, %a1, %a2) {epsilon = 1.0e-3 : f32, feature_index = 1 : i64}',
        ("4x3", "3", "3"),
    ),
    "batch_norm_grad": (
        ("4x3", "3", "3", "3", "4x3"),
        '"stablehlo.batch_norm_grad"(%a0, %a1, %a2, %a3, %a4) {epsilon = 1.0e-3 : f32, feature_index = 1 : i64}',
        ("4x3", "3", "3"),
    ),
    "reduce_precision": (
        ("7",),
        '"stablehlo.reduce_precision"(%a0) {exponent_bits = 5 : i32, mantissa_bits = 3 : i32}',
        ("7",),
    ),
    "clamp": (("", "7", ""), '"stablehlo.clamp"(%a0, %a1, %a2)', ("7",)),
    "chlo.broadcast_add": (("3x1", "4"), '"chlo.broadcast_add"(%a0, %a1)', ("3x4",)),
    "chlo.broadcast_maximum": (("3x1", "4"), '"chlo.broadcast_maximum"(%a0, %a1)', ("3x4",)),
    "cholesky": (("2x2",), '"stablehlo.cholesky"(%a0) {lower = true}', ("2x2",)),
    "dot": (("3x4", "4x2"), '"stablehlo.dot"(%a0, %a1)', ("3x2",)),
    "slice": (
        ("8",),
        '"stablehlo.slice"(%a0) {start_indices = array<i64: 1>, limit_indices = array<i64: 7>, strides = array<i64: 2>}',
        ("3",),
    ),
    "reverse": (("8",), '"stablehlo.reverse"(%a0) {dimensions = array<i64: 0>}', ("8",)),
    "concatenate": (("3", "4"), '"stablehlo.concatenate"(%a0, %a1) {dimension = 0 : i64}', ("7",)),
    "pad": (
        ("5", ""),
        '"stablehlo.pad"(%a0, %a1) {edge_padding_low = array<i64: 2>, edge_padding_high = array<i64: 1>, '
        "interior_padding = array<i64: 1>}",
        ("12",),
    ),
    "transpose": (("3x4",), '"stablehlo.transpose"(%a0) {permutation = array<i64: 1, 0>}', ("4x3",)),
    "reshape": (("3x4",), '"stablehlo.reshape"(%a0)', ("2x6",)),
    "broadcast_in_dim": (("4",), '"stablehlo.broadcast_in_dim"(%a0) {broadcast_dimensions = array<i64: 1>}', ("3x4",)),
    "optimization_barrier": (("4",), '"stablehlo.optimization_barrier"(%a0)', ("4",)),
}


@pytest.mark.parametrize("name", STRUCTURED)
def test_structured(name: str) -> None:
    """One type throughout."""
    shapes, call, results = STRUCTURED[name]
    types = [f"tensor<{shape}{'x' if shape else ''}{WIDE}>" for shape in (*shapes, *results)]
    arguments = ", ".join(f"%a{number}: {type}" for number, type in enumerate(types[: len(shapes)]))
    outputs = types[len(shapes) :]
    returned = ", ".join(f"%r#{number}" if len(outputs) > 1 else "%r" for number in range(len(outputs)))
    count = f":{len(outputs)}" if len(outputs) > 1 else ""
    text = f"""func.func @main({arguments}) -> ({", ".join(outputs)}) {{
  %r{count} = {call} : ({", ".join(types[: len(shapes)])}) -> ({", ".join(outputs)})
  return {returned} : {", ".join(outputs)}
}}"""
    extents = [[int(extent) for extent in shape.split("x") if extent] for shape in shapes]
    arrays = [stored(*shape, seed=number) for number, shape in enumerate(extents)]
    if name == "cholesky":
        arrays = [np.array([[100, 30], [30, 90]], np.int8)]
    # Kernels of factorizations are the CPU's.
    agree(text, *arrays, backends=("cpu",) if name == "cholesky" else ("cpu", "cuda"))


S = f"tensor<{Q}>"


def region(op: str) -> str:
    return f"""({{
  ^bb0(%x: {S}, %y: {S}):
    %s = "stablehlo.{op}"(%x, %y) : ({S}, {S}) -> {S}
    "stablehlo.return"(%s) : ({S}) -> ()
  }})"""


REGIONS = {
    "reduce": (
        ("6x5", ""),
        f'"stablehlo.reduce"(%a0, %a1) {region("add")} {{dimensions = array<i64: 1>}}',
        "6",
    ),
    "reduce_max": (
        ("6x5", ""),
        f'"stablehlo.reduce"(%a0, %a1) {region("maximum")} {{dimensions = array<i64: 0>}}',
        "5",
    ),
    "reduce_window": (
        ("6", ""),
        f'"stablehlo.reduce_window"(%a0, %a1) {region("maximum")} {{window_dimensions = array<i64: 3>}}',
        "4",
    ),
    "sums_of_windows": (
        ("9", ""),
        f'"stablehlo.reduce_window"(%a0, %a1) {region("add")} {{window_dimensions = array<i64: 3>, '
        "padding = dense<[[1, 2]]> : tensor<1x2xi64>}",
        "10",
    ),
    "map": (("6", "6"), f'"stablehlo.map"(%a0, %a1) {region("multiply")} {{dimensions = array<i64: 0>}}', "6"),
    "sort": (
        ("40",),
        f"""\"stablehlo.sort"(%a0) ({{
  ^bb0(%x: {S}, %y: {S}):
    %s = "stablehlo.compare"(%x, %y) {{comparison_direction = #stablehlo<comparison_direction LT>}} : ({S}, {S}) -> tensor<i1>
    "stablehlo.return"(%s) : (tensor<i1>) -> ()
  }}) {{dimension = 0 : i64}}""",
        "40",
    ),
}


@pytest.mark.parametrize("name", REGIONS)
def test_regions(name: str) -> None:
    """Combiners and comparators of quantized scalars."""
    shapes, call, result = REGIONS[name]
    types = [f"tensor<{shape}{'x' if shape else ''}{Q}>" for shape in (*shapes, result)]
    arguments = ", ".join(f"%a{number}: {type}" for number, type in enumerate(types[:-1]))
    text = f"""func.func @main({arguments}) -> {types[-1]} {{
  %r = {call} : ({", ".join(types[:-1])}) -> {types[-1]}
  return %r : {types[-1]}
}}"""
    extents = [[int(extent) for extent in shape.split("x") if extent] for shape in shapes]
    agree(text, *(stored(*shape, seed=number) for number, shape in enumerate(extents)), steps=0)


def test_sums_are_exact() -> None:
    """What adds quantized numbers does not saturate on the way, in whatever order."""
    text = f"""func.func @main(%a0: tensor<4x300x{Q}>, %a1: {S}) -> tensor<4x{Q}> {{
  %r = "stablehlo.reduce"(%a0, %a1) {region("add")} {{dimensions = array<i64: 1>}} : (tensor<4x300x{Q}>, {S}) -> tensor<4x{Q}>
  return %r : tensor<4x{Q}>
}}"""
    x = np.concatenate([np.full((4, 150), 127, np.int8), np.full((4, 150), -128, np.int8)], axis=1)
    x[:, -2:] = [[70, 10], [0, 0], [127, 127], [-128, -127]]
    expected = np.clip((x.astype(int) + 3).sum(axis=1) + (50 + 3) - 3, -128, 127)
    for backend in ("reference", "cpu", "cuda"):
        np.testing.assert_array_equal(run_on(backend, text, x, np.int8(50))[0], expected)


def test_promoted_bodies() -> None:
    """A body that takes another quantized type gets the operands requantized to it."""
    wide = "!quant.uniform<i32:f32, 0.03125>"
    scalar = f"tensor<{wide}>"
    text = f"""func.func @main(%a0: tensor<5x{Q}>, %a1: {S}) -> {scalar} {{
  %r = "stablehlo.reduce"(%a0, %a1) ({{
  ^bb0(%x: {scalar}, %y: {scalar}):
    %s = "stablehlo.OP"(%x, %y) : ({scalar}, {scalar}) -> {scalar}
    "stablehlo.return"(%s) : ({scalar}) -> ()
  }}) {{dimensions = array<i64: 0>}} : (tensor<5x{Q}>, {S}) -> {scalar}
  return %r : {scalar}
}}"""
    x = np.array([127, 127, 127, -128, 100], np.int8)
    promoted = (np.append(x, 7).astype(int) + 3) * 2
    for backend in ("reference", "cpu", "cuda"):
        for name, expected in (("add", promoted.sum()), ("maximum", promoted.max())):
            assert int(run_on(backend, text.replace("OP", name), x, np.int8(7))[0]) == expected


@pytest.mark.parametrize("combiner", ["add", "maximum"])
def test_scatter(combiner: str) -> None:
    text = f"""func.func @main(%a0: tensor<5x{Q}>, %a1: tensor<4x1xi32>, %a2: tensor<4x{Q}>) -> tensor<5x{Q}> {{
  %r = "stablehlo.scatter"(%a0, %a1, %a2) {region(combiner)} {{
    scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>
  }} : (tensor<5x{Q}>, tensor<4x1xi32>, tensor<4x{Q}>) -> tensor<5x{Q}>
  return %r : tensor<5x{Q}>
}}"""
    indices = np.array([[1], [1], [4], [1]], np.int32)
    agree(text, np.array([0, 100, 5, -7, 9], np.int8), indices, np.array([20, 90, 3, -120], np.int8), steps=0)


def test_loops_branches_and_constants() -> None:
    """Quantized values in loops, branches and constants."""
    text = f"""func.func @main(%a: tensor<4x{Q}>, %n: tensor<i32>) -> tensor<4x{Q}> {{
  %c = stablehlo.constant() {{value = dense<[1, -2, 30, 0]> : tensor<4xi8>}} : () -> tensor<4x{Q}>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = "stablehlo.while"(%a, %n) ({{
  ^bb0(%x: tensor<4x{Q}>, %i: tensor<i32>):
    %p = stablehlo.compare GT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }}, {{
  ^bb0(%x: tensor<4x{Q}>, %i: tensor<i32>):
    %y = stablehlo.add %x, %c : tensor<4x{Q}>
    %j = stablehlo.subtract %i, %one : tensor<i32>
    stablehlo.return %y, %j : tensor<4x{Q}>, tensor<i32>
  }}) : (tensor<4x{Q}>, tensor<i32>) -> (tensor<4x{Q}>, tensor<i32>)
  %p = stablehlo.compare EQ, %n, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %s = "stablehlo.if"(%p) ({{
    stablehlo.return %c : tensor<4x{Q}>
  }}, {{
    stablehlo.return %r#0 : tensor<4x{Q}>
  }}) : (tensor<i1>) -> tensor<4x{Q}>
  return %s : tensor<4x{Q}>
}}"""
    for count in (0, 1, 5):
        agree(text, np.array([0, 100, 5, -7], np.int8), np.int32(count), steps=0)


def test_programs_with_quantized_arguments_are_kept_and_saved(tmp_path: Path) -> None:
    """Files hold the parameters of the types; arrays on devices are of stored integers or of the quantized type itself."""
    type = "tensor<2x3x!quant.uniform<u4<1:14>:f32:1, {0.5:3, 0.25:4, 2.0:14}>>"
    executable = hlojit.compile(f"func.func @main(%a: {type}) -> {type} {{\n  return %a : {type}\n}}")
    x = np.array([[1, 2, 3], [4, 5, 14]], np.uint8).astype(ml_dtypes.uint4)
    path = tmp_path / "program"
    executable.save(path)
    loaded = hlojit.load(path)
    assert [str(each) for each in loaded.input_types] == [str(each) for each in executable.input_types]
    for each in (executable, loaded):
        np.testing.assert_array_equal(each(x), x)
    bytes_ = hlojit.compile(f"func.func @main(%a: tensor<4x{Q}>) -> tensor<4x{Q}> {{\n  return %a : tensor<4x{Q}>\n}}")
    there = bytes_(hlojit.put(np.arange(4, dtype=np.int8)))
    np.testing.assert_array_equal(np.asarray(bytes_(there)), np.arange(4, dtype=np.int8))
    with pytest.raises(hlojit.HlojitError, match="expected tensor<4x!quant"):
        bytes_(np.zeros(4, np.float32))
