"""Kernels that differ only in what surrounds their instruction: one must never stand in for the other."""

from __future__ import annotations

from collections.abc import Callable

import hlojit
import numpy as np
import pytest
from hlojit.ir.graph import Instruction
from hlojit.ir.ops.definition import Structural
from hlojit.lowering.structure import isolated, structure_text

A = np.array([3, 1, 2, 5, 4, 0, 7, 6], np.float32)
SCALARS = "^bb0(%x: tensor<f32>, %y: tensor<f32>):"


def _reduce(k: str) -> str:
    return f"""func.func @main(%a: tensor<8xf32>) -> tensor<f32> {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %k = stablehlo.constant dense<{k}> : tensor<f32>
  %r = "stablehlo.reduce"(%a, %z) ({{
  {SCALARS}
    %m = stablehlo.multiply %y, %k : tensor<f32>
    %s = stablehlo.add %x, %m : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }}) {{dimensions = array<i64: 0>}} : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32> }}"""


def _reduce_with_its_initial_value(k: str) -> str:
    """The captured constant is an operand too."""
    return f"""func.func @main(%a: tensor<8xf32>) -> tensor<f32> {{
  %k = stablehlo.constant dense<{k}> : tensor<f32>
  %r = "stablehlo.reduce"(%a, %k) ({{
  {SCALARS}
    %m = stablehlo.maximum %y, %k : tensor<f32>
    %s = stablehlo.maximum %x, %m : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }}) {{dimensions = array<i64: 0>}} : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32> }}"""


def _sort(k: str) -> str:
    return f"""func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
  %k = stablehlo.constant dense<{k}> : tensor<f32>
  %r = "stablehlo.sort"(%a) <{{dimension = 0 : i64, is_stable = true}}> ({{
  {SCALARS}
    %m = stablehlo.multiply %x, %k : tensor<f32>
    %n = stablehlo.multiply %y, %k : tensor<f32>
    %s = stablehlo.compare LT, %m, %n : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %s : tensor<i1>
  }}) : (tensor<8xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32> }}"""


def _reduce_window(k: str) -> str:
    return f"""func.func @main(%a: tensor<8xf32>) -> tensor<4xf32> {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %k = stablehlo.constant dense<{k}> : tensor<f32>
  %r = "stablehlo.reduce_window"(%a, %z) ({{
  {SCALARS}
    %m = stablehlo.multiply %y, %k : tensor<f32>
    %n = stablehlo.add %x, %m : tensor<f32>
    stablehlo.return %n : tensor<f32>
  }}) {{window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}} : (tensor<8xf32>, tensor<f32>) -> tensor<4xf32>
  return %r : tensor<4xf32> }}"""


def _scan(k: str) -> str:
    """Whether the initial value is the identity decides whether the kernel is a scan."""
    return f"""func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
  %k = stablehlo.constant dense<{k}> : tensor<f32>
  %r = "stablehlo.reduce_window"(%a, %k) ({{
  {SCALARS}
    %n = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %n : tensor<f32>
  }}) {{window_dimensions = array<i64: 8>, padding = dense<[[7, 0]]> : tensor<1x2xi64>}} : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  return %r : tensor<8xf32> }}"""


def _scatter(k: str) -> str:
    return f"""func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
  %i = stablehlo.constant dense<[[0], [2]]> : tensor<2x1xi32>
  %u = stablehlo.constant dense<1.0> : tensor<2xf32>
  %k = stablehlo.constant dense<{k}> : tensor<f32>
  %r = "stablehlo.scatter"(%a, %i, %u) ({{
  {SCALARS}
    %m = stablehlo.multiply %y, %k : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }}) {{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}} : (tensor<8xf32>, tensor<2x1xi32>, tensor<2xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32> }}"""


def _map(k: str) -> str:
    """Refused when it is compiled: its expansion leaves regions with captures alone."""
    return f"""func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
  %k = stablehlo.constant dense<{k}> : tensor<f32>
  %r = "stablehlo.map"(%a, %a) ({{
  {SCALARS}
    %m = stablehlo.multiply %y, %k : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }}) {{dimensions = array<i64: 0>}} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32> }}"""


def _select_and_scatter(k: str) -> str:
    return f"""func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
  %s = stablehlo.constant dense<1.0> : tensor<4xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %k = stablehlo.constant dense<{k}> : tensor<f32>
  %r = "stablehlo.select_and_scatter"(%a, %s, %z) ({{
  {SCALARS}
    %m = stablehlo.multiply %x, %k : tensor<f32>
    %n = stablehlo.multiply %y, %k : tensor<f32>
    %c = stablehlo.compare GE, %m, %n : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }}, {{
  {SCALARS}
    %n = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %n : tensor<f32>
  }}) {{window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}} : (tensor<8xf32>, tensor<4xf32>, tensor<f32>) -> tensor<8xf32>
  return %r : tensor<8xf32> }}"""


def _softmax_like(k: str) -> str:
    """A reduction with a captured constant among instructions that fuse."""
    return f"""func.func @main(%a: tensor<2x8xf32>) -> tensor<2x8xf32> {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %k = stablehlo.constant dense<{k}> : tensor<f32>
  %e = stablehlo.abs %a : tensor<2x8xf32>
  %r = "stablehlo.reduce"(%e, %z) ({{
  {SCALARS}
    %m = stablehlo.multiply %y, %k : tensor<f32>
    %s = stablehlo.add %x, %m : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }}) {{dimensions = array<i64: 1>}} : (tensor<2x8xf32>, tensor<f32>) -> tensor<2xf32>
  %b = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<2xf32>) -> tensor<2x8xf32>
  %d = stablehlo.subtract %e, %b : tensor<2x8xf32>
  return %d : tensor<2x8xf32> }}"""


PROGRAMS = (_reduce, _reduce_with_its_initial_value, _sort, _reduce_window, _scan, _scatter, _softmax_like)


def _fold(k: float, values: np.ndarray) -> np.float32:
    total = np.float32(0)
    for value in values:
        total += value * np.float32(k)
    return total


EXPECTED: dict[Callable[[str], str], Callable[[float], np.ndarray | np.float32]] = {
    _reduce: lambda k: _fold(k, A),
    _reduce_with_its_initial_value: lambda k: max(A.max(), np.float32(k)),
    _sort: lambda k: np.sort(A) if k > 0 else np.sort(A)[::-1],
    _reduce_window: lambda k: np.array([_fold(k, pair) for pair in A.reshape(4, 2)]),
    # The initial value, and the padding, which has it too: eight of them in sum with the window's own.
    _scan: lambda k: np.cumsum(A) + np.float32(k) * np.arange(8, 0, -1, dtype=np.float32),
    _scatter: lambda k: np.where(np.isin(np.arange(8), [0, 2]), np.float32(k), A),
    _softmax_like: lambda k: (A - _fold(k, A)) * np.ones((2, 1), np.float32),
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__[1:])
@pytest.mark.parametrize("first, second", [("0.0", "9.0"), ("1.0", "-1.0"), ("-2.0", "0.0")])
def test_constants_around_a_kernel_count(program: Callable[[str], str], first: str, second: str) -> None:
    a = np.broadcast_to(A, (2, 8)) if program is _softmax_like else A
    for k in (first, second):
        if program is _sort and float(k) == 0:
            continue  # nothing comes before anything
        found = hlojit.compile(program(k))(np.array(a))
        np.testing.assert_array_equal(found, EXPECTED[program](float(k)))


def _kernels(text: str) -> list[Instruction]:
    """The instructions of a parsed program that become kernels if nothing is done to it."""
    return [each for each in hlojit.parse(text).main.body if not isinstance(each.op.lowering, Structural)]


@pytest.mark.parametrize("program", (*PROGRAMS, _map, _select_and_scatter), ids=lambda program: program.__name__[1:])
def test_an_isolated_instruction_has_the_same_key(program: Callable[[str], str]) -> None:
    """The key tells exactly what the emitter is given."""
    keys = []
    for k in ("1.0", "1.0", "-1.0"):
        for kernel in _kernels(program(k)):
            alone = isolated(kernel)
            assert structure_text(alone) == structure_text(kernel)
            assert alone.block is not kernel.block
            assert all(value.owner in (alone.block, *(alone.block or ())) for value in alone.operands)
            if kernel.regions:
                keys.append(structure_text(kernel))
    assert keys[0] == keys[1] != keys[2]


def test_constants_that_no_code_depends_on_do_not_count() -> None:
    """One kernel serves every constant start and every constant matrix."""
    text = """func.func @main(%a: tensor<8xf32>) -> tensor<2xf32> {{
      %k = stablehlo.constant dense<{0}> : tensor<i32>
      %r = stablehlo.dynamic_slice %a, %k, sizes = [2] : (tensor<8xf32>, tensor<i32>) -> tensor<2xf32>
      return %r : tensor<2xf32> }}"""
    assert len({structure_text(_kernels(text.format(k))[-1]) for k in range(3)}) == 1
