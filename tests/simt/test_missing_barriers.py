"""Every barrier of real kernels is needed, and the simulator finds out when it is missing: each is left away once."""

from __future__ import annotations

from dataclasses import replace

import hlojit
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cuda.nvptx import H200
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.graph import Instruction
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.kernels import emit_kernel
from hlojit.simt.simulator.dialect import SimulatorDialect
from hlojit.simt.simulator.faults import KernelFaultError
from hlojit.simt.simulator.module import simulated_target
from hlojit.simt.simulator.records import FaultKind

from .simulated import Array, run_code


def sums(shape: str, dimensions: str, result: str) -> str:
    source, result = f"tensor<{shape}xf32>", f"tensor<{result}f32>"
    return f"""
    func.func @main(%x: {source}) -> {result} {{
      %0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.reduce(%x init: %0) applies stablehlo.add across dimensions = [{dimensions}]
        : ({source}, tensor<f32>) -> {result}
      return %1 : {result}
    }}"""


def normalized(rows: int, columns: int) -> str:
    type, row = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}xf32>"
    return f"""
    func.func @main(%x: {type}) -> {type} {{
      %0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.reduce(%x init: %0) applies stablehlo.maximum across dimensions = [1] : ({type}, tensor<f32>) -> {row}
      %2 = stablehlo.broadcast_in_dim %1, dims = [0] : ({row}) -> {type}
      %3 = stablehlo.subtract %x, %2 : {type}
      %4 = stablehlo.reduce(%3 init: %0) applies stablehlo.add across dimensions = [1] : ({type}, tensor<f32>) -> {row}
      %5 = stablehlo.broadcast_in_dim %4, dims = [0] : ({row}) -> {type}
      %6 = stablehlo.divide %3, %5 : {type}
      return %6 : {type}
    }}"""


def gradients(rows: int, columns: int) -> str:
    """Rows and the columns of all rows: teams of several warps, or several teams in a block."""
    type, row, column = (f"tensor<{shape}xf32>" for shape in (f"{rows}x{columns}", rows, columns))
    return f"""
    func.func @main(%x: {type}) -> ({type}, {column}) {{
      %0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.reduce(%x init: %0) applies stablehlo.add across dimensions = [1] : ({type}, tensor<f32>) -> {row}
      %2 = stablehlo.broadcast_in_dim %1, dims = [0] : ({row}) -> {type}
      %3 = stablehlo.subtract %x, %2 : {type}
      %4 = stablehlo.reduce(%3 init: %0) applies stablehlo.add across dimensions = [0] : ({type}, tensor<f32>) -> {column}
      return %3, %4 : {type}, {column}
    }}"""


def prefixes(columns: int) -> str:
    type = f"tensor<1x{columns}xf32>"
    return f"""
    func.func @main(%x: {type}) -> {type} {{
      %0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = "stablehlo.reduce_window"(%x, %0) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %2 = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %2 : tensor<f32>
      }}) {{window_dimensions = array<i64: 1, {columns}>, padding = dense<[[0, 0], [{columns - 1}, 0]]> : tensor<2x2xi64>}}
        : ({type}, tensor<f32>) -> {type}
      return %1 : {type}
    }}"""


TRANSPOSE = """
    func.func @main(%x: tensor<300x200xf32>, %y: tensor<200x300xf32>) -> tensor<200x300xf32> {
      %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<300x200xf32>) -> tensor<200x300xf32>
      %1 = stablehlo.add %0, %y : tensor<200x300xf32>
      return %1 : tensor<200x300xf32>
    }"""
PRODUCT = """
    func.func @main(%x: tensor<64x48xf32>, %y: tensor<48x64xf32>) -> tensor<64x64xf32> {
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
        : (tensor<64x48xf32>, tensor<48x64xf32>) -> tensor<64x64xf32>
      return %0 : tensor<64x64xf32>
    }"""
MATRIX_PRODUCT = """
    func.func @main(%x: tensor<64x160xbf16>, %y: tensor<160x72xbf16>) -> tensor<64x72xf32> {
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
        : (tensor<64x160xbf16>, tensor<160x72xbf16>) -> tensor<64x72xf32>
      return %0 : tensor<64x72xf32>
    }"""
CONVERTED_PRODUCT = MATRIX_PRODUCT.replace("160xbf16", "160xf8E4M3FN")
PROGRAMS = {
    "rows": sums("16x1000", "1", "16x"),
    "columns": sums("1000x64", "0", "64x"),
    "everything": sums("300x1000", "0, 1", ""),
    "normalized rows": normalized(4, 1000),
    "gradients": gradients(24, 3000),
    "gradients of short rows": gradients(600, 24),
    "prefixes": prefixes(4096),
    "prefixes in chunks": prefixes(50_000),
    "transpose": TRANSPOSE,
    "product": PRODUCT,
    "matrix product": MATRIX_PRODUCT,
    "matrix product, converted": CONVERTED_PRODUCT,
}


def kernel_of(text: str) -> Instruction:
    main = lower(hlojit.parse(text), registry().backend("cuda"), CompileOptions()).main
    (instruction,) = [each for each in main.body if not each.op.is_terminator and each.operands]
    return instruction


def run(instruction: Instruction) -> None:
    random = np.random.default_rng(0)
    types = [value.tensor_type for value in instruction.operands]
    operands: list[Array] = [random.normal(size=each.shape).astype(each.element_type.storage) for each in types]
    # One multiprocessor: even small products take large tiles.
    target = simulated_target(replace(H200, multiprocessors=1))
    code = emit_kernel(instruction, target, SimulatorDialect(), "kernel")
    run_code(code, operands, [result.tensor_type for result in instruction.results])


def left_away(monkeypatch: pytest.MonkeyPatch, name: str, instruction: Instruction) -> None:
    """Leave every call of a method of the dialect away, one after the other."""
    method, number, missing = getattr(SimulatorDialect, name), 0, -1

    def without_one(dialect: SimulatorDialect, b: SimtBuilder, *arguments: int) -> None:
        nonlocal number
        if number != missing:
            method(dialect, b, *arguments)
        number += 1

    monkeypatch.setattr(SimulatorDialect, name, without_one)
    run(instruction)
    assert number > 0
    for missing in range(number):  # noqa: B007  without_one reads it
        number = 0
        with pytest.raises(KernelFaultError) as found:
            run(instruction)
        assert found.value.kind in (FaultKind.SHARED_RACE, FaultKind.BUFFER_RACE)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_barrier_left_away(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left_away(monkeypatch, "barrier", kernel_of(PROGRAMS[name]))


@pytest.mark.parametrize("name", ["matrix product", "matrix product, converted"])
def test_a_wait_left_away(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left_away(monkeypatch, "wait_for_copies", kernel_of(PROGRAMS[name]))


def test_a_wait_for_one_group_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = SimulatorDialect.wait_for_copies
    monkeypatch.setattr(SimulatorDialect, "wait_for_copies", lambda dialect, b, left: wait(dialect, b, left + 1))
    with pytest.raises(KernelFaultError, match="has not waited"):
        run(kernel_of(MATRIX_PRODUCT))
