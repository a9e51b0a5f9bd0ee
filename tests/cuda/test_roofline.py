"""Estimates of what kernels take: bytes and operations worked out by hand, occupancy by what limits it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import hlojit
import pytest
from hlojit.command import main
from hlojit.compiler import lower
from hlojit.cuda.assemblers import cubin
from hlojit.cuda.nvptx import SM_80, SM_90, SM_100, nvidia_target
from hlojit.extensions import CompileOptions, registry
from hlojit.gpu.backend import GpuBackend
from hlojit.gpu.roofline import Estimate, estimates, occupancy, table
from hlojit.lowering.kernel import Phase

assert SM_90.grid is not None
H200 = SM_90.grid
pytestmark = pytest.mark.usefixtures("simulator")

TEXT = """func.func @main(%x: tensor<4096x1024xf32>, %y: tensor<1024x512xf32>) -> (tensor<4096x512xf32>, tensor<4096xf32>, tensor<4096x1024xf32>) {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<4096x1024xf32>, tensor<1024x512xf32>) -> tensor<4096x512xf32>
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions = [1] : (tensor<4096x512xf32>, tensor<f32>) -> tensor<4096xf32>
  %2 = stablehlo.multiply %x, %x : tensor<4096x1024xf32>
  %3 = stablehlo.add %2, %x : tensor<4096x1024xf32>
  return %0, %1, %3 : tensor<4096x512xf32>, tensor<4096xf32>, tensor<4096x1024xf32>
}"""


def found(text: str = TEXT, **options: Any) -> list[Estimate]:
    backend = registry().backend("cuda")
    assert isinstance(backend, GpuBackend)
    return estimates(backend, lower(hlojit.parse(text), backend, CompileOptions()), **options)


def test_a_module_that_is_not_lowered_is_refused_with_the_way_to_lower_it() -> None:
    text = """func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %0 = stablehlo.custom_call @acme.swish(%x) : (tensor<8xf32>) -> tensor<8xf32>
      return %0 : tensor<8xf32>
    }"""
    backend = registry().backend("cuda")
    assert isinstance(backend, GpuBackend)
    with pytest.raises(
        hlojit.ArgumentError, match=r"hlojit\.compiler\.lower\(module.*custom_call @acme\.swish is left in this one"
    ):
        estimates(backend, hlojit.parse(text))


def test_a_product_with_what_follows_it_is_one_launch_of_matrix_units() -> None:
    text = """func.func @main(%x: tensor<4096x1024xbf16>, %y: tensor<1024x512xbf16>, %b: tensor<512xbf16>) -> tensor<4096x512xbf16> {
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<4096x1024xbf16>, tensor<1024x512xbf16>) -> tensor<4096x512xbf16>
      %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<512xbf16>) -> tensor<4096x512xbf16>
      %2 = stablehlo.add %0, %1 : tensor<4096x512xbf16>
      return %2 : tensor<4096x512xbf16>
    }"""
    (each,) = found(text)
    assert each.matrix == "bf16" and each.bound == "matrix units" and each.library
    assert each.nbytes == 2 * (4096 * 1024 + 1024 * 512 + 512 + 4096 * 512)
    assert each.operations == 2 * 4096 * 512 * 1024 + 4096 * 512


def test_bytes_operations_and_bounds() -> None:
    by_operations = {each.operations: each for each in found()}
    product = by_operations[2 * 4096 * 512 * 1024]
    assert product.nbytes == 4 * (4096 * 1024 + 1024 * 512 + 4096 * 512)
    assert product.bound == "arithmetic"
    rate = 256 * H200.multiprocessors * H200.gigahertz
    assert product.nanoseconds == pytest.approx(2 * 4096 * 512 * 1024 / rate)
    chain = by_operations[2 * 4096 * 1024]
    assert (chain.nbytes, chain.bound) == (2 * 4 * 4096 * 1024, "memory")
    assert chain.nanoseconds == pytest.approx(chain.nbytes / H200.memory_bandwidth)
    assert 4096 * 512 in by_operations, "one addition an element of the reduction"


def test_registers_come_from_the_assembler() -> None:
    for each in found():
        assert (each.registers is None) == bool(cubin.unavailable())
        assert 0 < each.occupancy <= 1


@pytest.mark.parametrize(
    ("phase", "registers", "share"),
    [
        (Phase("k", 1, 1.0, 256), None, 1.0),
        (Phase("k", 1, 1.0, 256), 32, 1.0),
        (Phase("k", 1, 1.0, 256), 64, 0.5),
        (Phase("k", 1, 1.0, 256), 255, 0.125),
        (Phase("k", 1, 1.0, 256, 100 << 10), None, 0.25),
        (Phase("k", 1, 1.0, 32), None, 0.5),
        (Phase("k", 1, 1.0, 768), None, 0.75),
    ],
)
def test_occupancy(phase: Phase, registers: int | None, share: float) -> None:
    """Of 2,048 threads, 65,536 registers, 227 KB and 32 blocks a multiprocessor."""
    assert occupancy(phase, H200, registers) == share


def test_estimates_stand_beside_measurements_and_are_called_estimates() -> None:
    first = found()[0]
    rows = found(measured={first.symbol: 12345.0})
    assert rows[0].measured == 12345.0 and rows[1].measured is None
    head, *lines = table(rows, "H200").splitlines()
    assert head.startswith("estimates for H200, not measured") and "12.35" in lines[1] and lines[2].endswith("-")


def test_the_command_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(TEXT)
    assert main(["roofline", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "estimates for simulated H200" in printed and "4,294,967,296" in printed and "arithmetic" in printed
    assert main(["roofline", str(path), "--backend", "cpu"]) == 1


def dot(element: str, result: str = "f32", attributes: str = "", size: int = 2048) -> str:
    a, c = f"tensor<{size}x{size}x{element}>", f"tensor<{size}x{size}x{result}>"
    return (
        f"func.func @main(%x: {a}, %y: {a}) -> {c} {{\n%0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]{attributes} "
        f": ({a}, {a}) -> {c}\nreturn %0 : {c}\n}}"
    )


TF32 = (
    ", algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, "
    "rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false>"
)


@pytest.mark.parametrize(
    ("text", "matrix", "rate"),
    [
        (dot("bf16", "bf16"), "bf16", 989.4e3),
        (dot("f16"), "f16", 989.4e3),
        (dot("f32", attributes=TF32), "tf32", 494.7e3),
        (dot("i8", "i32"), "s8", 1978.9e3),
        (dot("f32"), "", 256 * 132 * 1.98),
    ],
    ids=["bf16", "f16", "tf32", "i8", "f32"],
)
def test_products_are_bound_by_the_units_that_compute_them(text: str, matrix: str, rate: float) -> None:
    """NVIDIA's dense figures for the H200, in operations a nanosecond."""
    (each,) = found(text)
    assert each.matrix == matrix
    assert each.bound == ("matrix units" if matrix else "arithmetic")
    assert each.nanoseconds == pytest.approx(2 * 2048**3 / rate)
    assert each.library == (matrix not in ("", "s8")), "cuBLASLt takes bytes whose terms are neighbours on both sides"


def test_a_library_multiplies_bytes_as_they_are() -> None:
    """Our kernel decodes 8-bit floats to f16, whose products are half as fast."""
    text = dot("f8E4M3FN", "bf16").replace("[1] x [0]", "[1] x [1]")
    (each,) = found(text)
    assert each.library and each.matrix == "e4m3"
    assert each.nanoseconds == pytest.approx(2 * 2048**3 / 1978.9e3)


def test_rates_are_of_all_types_that_a_machine_multiplies_and_follow_its_size() -> None:
    for target in (SM_80, SM_90, SM_100):
        assert target.grid is not None
        assert sorted(name for name, _ in target.grid.matrix_rates) == sorted(target.grid.matrix_inputs)
    half = nvidia_target((9, 0), replace(H200, multiprocessors=66)).grid
    assert half is not None and dict(half.matrix_rates)["bf16"] == 989.4e3 / 2


def test_small_kernels_take_as_long_as_their_launches() -> None:
    (each,) = found(TEXT.replace("4096", "8").replace("1024", "8").replace("512", "8"))[:1]
    assert (each.bound, each.nanoseconds) == ("launch", 2000.0)


def test_look_ups_read_no_more_than_they_return() -> None:
    text = """func.func @main(%table: tensor<50000x768xf32>, %i: tensor<16x1xi32>) -> tensor<16x768xf32> {
  %0 = "stablehlo.gather"(%table, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 768>}> : (tensor<50000x768xf32>, tensor<16x1xi32>) -> tensor<16x768xf32>
  %1 = stablehlo.add %0, %0 : tensor<16x768xf32>
  return %1 : tensor<16x768xf32>
}"""
    (each,) = found(text)
    assert each.nbytes == 2 * 16 * 768 * 4 + 16 * 4
