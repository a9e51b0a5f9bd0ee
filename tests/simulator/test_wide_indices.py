"""Arrays of more than 2^32 elements: the last blocks of kernels over memory of which next to nothing is touched.

A kernel's blocks are numbered from the last ones on, so that only these run: index arithmetic in 32 bits would miss the end
of the arrays, where the numbers are.
"""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cuda.nvptx import H200
from hlojit.extensions import CompileOptions, registry
from hlojit.llvm.text import Val
from hlojit.simt.kernels import emit_kernel
from hlojit.simt.simulator.dialect import SimulatorDialect
from hlojit.simt.simulator.module import SimulatedModule, assemble, simulated_target

pytestmark = pytest.mark.simulator_only("kernels whose last blocks run alone, over memory that is not there")

Array = np.ndarray[Any, Any]
LINE = (1 << 32) + 77
ROWS, COLUMNS = 70001, 65537
NUMBERS = np.random.default_rng(3).integers(-9, 9, 64).astype(np.int8)
LAST = 48
"""Blocks that run."""


def sparse(*shape: int) -> Array:
    """Zeros that take no memory until they are touched, at a multiple of 256 bytes."""
    count = int(np.prod(shape))
    memory = np.zeros(count + 512, np.int8)
    begin = -memory.ctypes.data % 256
    return memory[begin : begin + count].reshape(shape)


def run_end(text: str, result: Array, *operands: Array) -> None:
    """Run the last blocks of the one kernel of a program."""
    main = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions()).main
    (instruction,) = [each for each in main.body if not each.op.is_terminator]
    with pytest.MonkeyPatch.context() as patch:
        first = [0]
        block = SimulatorDialect.block

        def later(dialect: SimulatorDialect, b: Any) -> Val:
            moved: Val = b.add(block(dialect, b), b.constant("i32", first[0]))
            return moved

        patch.setattr(SimulatorDialect, "block", later)
        (phase,) = emit_kernel(instruction, simulated_target(H200), SimulatorDialect(), "kernel").phases
        first[0] = max(0, phase.tasks - LAST)
        code = emit_kernel(instruction, simulated_target(H200), SimulatorDialect(), "kernel")
    module = SimulatedModule([assemble(code)], ["kernel"])
    given = [operands[main.body.arguments.index(value)] for value in instruction.operands]
    addresses = [array.ctypes.data for array in (*given, result)]
    blocks = phase.tasks - first[0]
    module.launch(phase.symbol, addresses, blocks, phase.threads, phase.shared_bytes, check_races=False)


def program(arguments: str, result: str, text: str) -> str:
    return f"func.func @main({arguments}) -> {result} {{\n  %r = {text}\n  return %r : {result}\n}}"


def kind(*shape: int, element: str = "i8") -> str:
    return f"tensor<{''.join(f'{extent}x' for extent in shape)}{element}>"


def scalar(value: int, dtype: type) -> Array:
    place = sparse(256)
    place.view(dtype)[0] = value
    return place.view(dtype)


def test_elements_of_a_line() -> None:
    x, y, result = sparse(LINE), sparse(LINE), sparse(LINE)
    x[-64:], y[-64:] = NUMBERS, NUMBERS[::-1]
    line = kind(LINE)
    run_end(program(f"%x: {line}, %y: {line}", line, f"stablehlo.subtract %x, %y : {line}"), result, x, y)
    np.testing.assert_array_equal(result[-64:], NUMBERS - NUMBERS[::-1])


def test_broadcast() -> None:
    x, result, whole = sparse(ROWS), sparse(ROWS, COLUMNS), kind(ROWS, COLUMNS)
    x[-64:] = NUMBERS
    text = f"stablehlo.broadcast_in_dim %x, dims = [0] : ({kind(ROWS)}) -> {whole}"
    run_end(program(f"%x: {kind(ROWS)}", whole, text), result, x)
    np.testing.assert_array_equal(result[-1, -64:], np.full(64, NUMBERS[-1]))


def test_reverse_reads_the_beginning_last() -> None:
    x, result, line = sparse(LINE), sparse(LINE), kind(LINE)
    x[:64] = NUMBERS
    run_end(program(f"%x: {line}", line, f"stablehlo.reverse %x, dims = [0] : {line}"), result, x)
    np.testing.assert_array_equal(result[-64:], NUMBERS[::-1])


def test_transpose() -> None:
    x, result = sparse(ROWS, COLUMNS), sparse(COLUMNS, ROWS)
    x[-8:, -8:] = NUMBERS.reshape(8, 8)
    source, target = kind(ROWS, COLUMNS), kind(COLUMNS, ROWS)
    run_end(
        program(f"%x: {source}", target, f"stablehlo.transpose %x, dims = [1, 0] : ({source}) -> {target}"), result, x
    )
    # The last tile has one row, and there are more tiles in a row than blocks that run.
    np.testing.assert_array_equal(result[-1, -8:], NUMBERS.reshape(8, 8).T[-1])


@pytest.mark.parametrize(("shape", "axis"), [((ROWS, COLUMNS), 1), ((37, (1 << 27) + 5), 0)], ids=str)
def test_reductions(shape: tuple[int, int], axis: int) -> None:
    x, kept = sparse(*shape), shape[1 - axis]
    result = sparse(kept)
    x[-8:, -8:] = NUMBERS.reshape(8, 8)
    text = (
        f"stablehlo.reduce(%x init: %i) applies stablehlo.add across dimensions = [{axis}] : "
        f"({kind(*shape)}, tensor<i8>) -> {kind(kept)}"
    )
    run_end(program(f"%x: {kind(*shape)}, %i: tensor<i8>", kind(kept), text), result, x, scalar(1, np.int8))
    np.testing.assert_array_equal(result[-8:], NUMBERS.reshape(8, 8).sum(axis, dtype=np.int8) + 1)


def test_slices_at_indices_read_and_write_the_end() -> None:
    x, start = sparse(LINE), scalar(LINE - 64, np.int64)
    x[-64:] = NUMBERS
    line, part = kind(LINE), kind(64)
    found = sparse(64)
    text = f"stablehlo.dynamic_slice %x, %i, sizes = [64] : ({line}, tensor<i64>) -> {part}"
    run_end(program(f"%x: {line}, %i: tensor<i64>", part, text), found, x, start)
    np.testing.assert_array_equal(found, NUMBERS)
    result, update = sparse(LINE), sparse(64)
    update[:] = NUMBERS[::-1]
    text = f"stablehlo.dynamic_update_slice %x, %u, %i : ({line}, {part}, tensor<i64>) -> {line}"
    run_end(program(f"%x: {line}, %u: {part}, %i: tensor<i64>", line, text), result, x, update, start)
    np.testing.assert_array_equal(result[-64:], NUMBERS[::-1])


GATHER = """"stablehlo.gather"(%x, %i) {{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0],
  index_vector_dim = 1>, slice_sizes = array<i64: 1>, indices_are_sorted = false}} : ({0}, tensor<64x1xi64>) -> tensor<64xi8>"""
SCATTER = """"stablehlo.scatter"(%x, %i, %u) ({{
  ^bb0(%p: tensor<i8>, %q: tensor<i8>):
    %c = stablehlo.{1} %p, %q : tensor<i8>
    stablehlo.return %c : tensor<i8>
  }}) {{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
  index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}} : ({0}, tensor<64x1xi64>, tensor<64xi8>) -> {0}"""


def indices_of_the_end() -> Array:
    places = sparse(64 * 8).view(np.int64).reshape(64, 1)
    places[:, 0] = LINE - 1 - np.arange(64)
    return places


def test_gather() -> None:
    x, found = sparse(LINE), sparse(64)
    x[-64:] = NUMBERS
    text = program(f"%x: {kind(LINE)}, %i: tensor<64x1xi64>", kind(64), GATHER.format(kind(LINE)))
    run_end(text, found, x, indices_of_the_end())
    np.testing.assert_array_equal(found, NUMBERS[::-1])


@pytest.mark.parametrize("combine", ["add", "subtract"])
def test_scatter(combine: str) -> None:
    x, updates, result = sparse(LINE), sparse(64), sparse(LINE)
    updates[:] = NUMBERS
    arguments = f"%x: {kind(LINE)}, %i: tensor<64x1xi64>, %u: tensor<64xi8>"
    text = program(arguments, kind(LINE), SCATTER.format(kind(LINE), combine))
    run_end(text, result, x, indices_of_the_end(), updates)
    np.testing.assert_array_equal(result[-64:], NUMBERS[::-1] if combine == "add" else -NUMBERS[::-1])


def test_concatenate_and_pad() -> None:
    half = (1 << 31) + 11
    x, y, result = sparse(half), sparse(half), sparse(2 * half)
    y[-64:] = NUMBERS
    line, long = kind(half), kind(2 * half)
    text = f"stablehlo.concatenate %x, %y, dim = 0 : ({line}, {line}) -> {long}"
    run_end(program(f"%x: {line}, %y: {line}", long, text), result, x, y)
    np.testing.assert_array_equal(result[-64:], NUMBERS)
    longer, result = kind(2 * half + 3), sparse(2 * half + 3)
    text = f"stablehlo.pad %y, %v, low = [{half + 1}], high = [2], interior = [0] : ({line}, tensor<i8>) -> {longer}"
    run_end(program(f"%y: {line}, %v: tensor<i8>", longer, text), result, y, scalar(5, np.int8))
    np.testing.assert_array_equal(result[-66:], [*NUMBERS, 5, 5])


def test_products_of_many_rows() -> None:
    rows = (1 << 31) + 64
    x, y, result = sparse(rows, 2), sparse(2, 1), sparse(rows, 1)
    x[-32:], y[:, 0] = NUMBERS.reshape(32, 2), (3, -2)
    source, target = kind(rows, 2), kind(rows, 1)
    text = f"stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({source}, {kind(2, 1)}) -> {target}"
    run_end(program(f"%x: {source}, %y: {kind(2, 1)}", target, text), result, x, y)
    np.testing.assert_array_equal(result[-32:, 0], NUMBERS.reshape(32, 2) @ np.array([3, -2], np.int8))


WINDOW = """"stablehlo.reduce_window"(%x, %i) ({{
  ^bb0(%p: tensor<i8>, %q: tensor<i8>):
    %c = stablehlo.add %p, %q : tensor<i8>
    stablehlo.return %c : tensor<i8>
  }}) {{window_dimensions = array<i64: 3>, padding = dense<[[2, 0]]> : tensor<1x2xi64>}} : ({0}, tensor<i8>) -> {0}"""


def test_windows() -> None:
    x, result, line = sparse(LINE), sparse(LINE), kind(LINE)
    x[-64:] = NUMBERS
    run_end(program(f"%x: {line}, %i: tensor<i8>", line, WINDOW.format(line)), result, x, scalar(0, np.int8))
    np.testing.assert_array_equal(result[-62:], NUMBERS[2:] + NUMBERS[1:-1] + NUMBERS[:-2])


def test_convolution() -> None:
    size = 65601
    x, y, result = sparse(1, size, size, 1), sparse(2, 2, 1, 1), sparse(1, size - 1, size - 1, 1)
    x[0, -9:, -9:, 0] = corner = np.resize(NUMBERS, (9, 9))
    y.ravel()[:] = (1, 2, -3, 4)
    source, target = kind(1, size, size, 1), kind(1, size - 1, size - 1, 1)
    text = (
        "stablehlo.convolution(%x, %y) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} "
        f"{{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({source}, {kind(2, 2, 1, 1)}) -> {target}"
    )
    run_end(program(f"%x: {source}, %y: {kind(2, 2, 1, 1)}", target, text), result, x, y)
    expected = corner[:-1, :-1] + 2 * corner[:-1, 1:] - 3 * corner[1:, :-1] + 4 * corner[1:, 1:]
    np.testing.assert_array_equal(result[0, -1, -8:, 0], expected[-1])
