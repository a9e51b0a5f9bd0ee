"""Kernels as PTX by both assemblers, and as machine code: wide accesses, nothing called, nothing contracted, nothing spilt."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hlojit
import pytest
from hlojit.compiler import lower
from hlojit.cuda import nvidia_platform
from hlojit.cuda.assemblers import libraries
from hlojit.cuda.assemblers.assembler import entry_name
from hlojit.cuda.assemblers.choice import NAMES, assembler, chosen_assembler
from hlojit.cuda.assemblers.cubin import cubin_of, unavailable
from hlojit.cuda.driver_api import DriverApi
from hlojit.cuda.nvptx import SM_80, SM_90, SM_100, NvptxDialect
from hlojit.extensions import CompileOptions, registry
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target
from hlojit.simt.kernels import emit_kernel

from .fake_cuda import FakeCuda

TARGETS = pytest.mark.parametrize("target", [SM_80, SM_90, SM_100], ids=lambda target: target.cpu)
ASSEMBLERS = pytest.mark.parametrize("name", NAMES)
CONVERTED = ("i8", "ui8", "i32", "ui32", "i64", "ui64", "f16", "bf16", "f8E5M2", "i1", "f64")
MACHINE_CODE = pytest.mark.skipif(bool(unavailable()), reason=unavailable())
WIDE = r"\.global\.(v4\.[bfu]32|v2\.[bfu]64)"


def kernel(text: str, target: Target, symbol: str = "kernel") -> KernelCode:
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    (instruction,) = [each for each in module.walk() if each.name == "hlojit.fusion"]
    return emit_kernel(instruction, target, NvptxDialect(), symbol)


def chain(dtype: str, count: int = 100000007) -> str:
    kind = f"tensor<{count}x{dtype}>"
    return f"""
    func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{
      %0 = stablehlo.multiply %x, %y : {kind}
      %1 = stablehlo.add %0, %x : {kind}
      return %1 : {kind}
    }}"""


def unary(op: str, dtype: str, result: str = "", more: str = "") -> str:
    kind, result = f"tensor<4096x{dtype}>", f"tensor<4096x{result or dtype}>"
    return f"""
    func.func @main(%x: {kind}) -> {result} {{
      %0 = stablehlo.add %x, %x : {kind}
      %1 = stablehlo.{op} %0{more} : ({kind}) -> {result}
      return %1 : {result}
    }}"""


def check(ptx: str, target: Target) -> None:
    assert f".target {target.cpu}" in ptx
    assert len(re.findall(r"^\.visible \.entry kernel\(", ptx, re.MULTILINE)) == 1
    assert not re.search(r"\bcall\b", ptx), "nobody defines what would be called"
    assert ".local" not in ptx, "nothing lies in memory that could be in registers"
    assert ".ftz" not in ptx and ".approx" not in ptx, "small numbers are kept, divisions and roots are exact"


@TARGETS
@ASSEMBLERS
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "f8E4M3FN", "i64", "i32", "i8"])
def test_pieces_become_wide_accesses(name: str, target: Target, dtype: str) -> None:
    ptx = assembler(name).ptx(kernel(chain(dtype), target), target)
    check(ptx, target)
    assert re.search(f"ld{WIDE}", ptx) and re.search(f"st{WIDE}", ptx)
    assert "fma" not in ptx or dtype not in ("f32", "f64"), "a product and a sum round twice"


@pytest.mark.slow
@ASSEMBLERS
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize(
    "op",
    "abs negate exponential log tanh sine sqrt rsqrt cbrt floor ceil round_nearest_even round_nearest_afz sign".split(),
)
def test_functions_become_code_of_their_own(name: str, op: str, dtype: str) -> None:
    check(assembler(name).ptx(kernel(unary(op, dtype), SM_90), SM_90), SM_90)


@pytest.mark.slow
@ASSEMBLERS
@pytest.mark.parametrize(
    ("dtype", "result"),
    [(one, other) for one in ("f32", "f64", "i8", "i1") for other in CONVERTED if one != other],
)
def test_conversions_become_code_of_their_own(name: str, dtype: str, result: str) -> None:
    check(assembler(name).ptx(kernel(unary("convert", dtype, result), SM_90), SM_90), SM_90)


@ASSEMBLERS
@pytest.mark.parametrize("op", ["popcnt", "count_leading_zeros", "not"])
@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64"])
def test_bits_are_counted(name: str, op: str, dtype: str) -> None:
    check(assembler(name).ptx(kernel(unary(op, dtype), SM_90), SM_90), SM_90)


@MACHINE_CODE
@TARGETS
@ASSEMBLERS
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_machine_code_spills_nothing(name: str, target: Target, dtype: str) -> None:
    made = cubin_of(assembler(name).ptx(kernel(chain(dtype), target), target), target)
    usage = made.usages["kernel"]
    assert made.image[:4] == b"\x7fELF"
    assert usage.spills == usage.stack == usage.shared == 0
    assert 8 < usage.registers <= 64


@ASSEMBLERS
def test_all_launches_of_a_kernel_are_in_one_module(name: str) -> None:
    text = """
    func.func @main(%x: tensor<67108864xf32>) -> tensor<f32> {
      %0 = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = stablehlo.reduce(%x init: %0) applies stablehlo.add across dimensions = [0]
        : (tensor<67108864xf32>, tensor<f32>) -> tensor<f32>
      return %1 : tensor<f32>
    }"""
    code = kernel(text, SM_90, "name")
    ptx = assembler(name).ptx(code, SM_90)
    assert len(code.phases) == 2 and any("." in phase.symbol for phase in code.phases)
    assert re.findall(r"\.entry ([\w$]+)\(", ptx) == [entry_name(phase.symbol) for phase in code.phases]
    assert ptx.count(".version") == 1 and ptx.count(".extern .shared") <= 1
    if not unavailable():
        assert set(cubin_of(ptx, SM_90).usages) == {entry_name(phase.symbol) for phase in code.phases}


@MACHINE_CODE
def test_what_the_assembler_refuses_is_said() -> None:
    with pytest.raises(hlojit.HlojitError, match="assembler refuses generated code: .*'nonsense'"):
        cubin_of(".version 8.0\n.target sm_90a\n.address_size 64\n.entry k() { nonsense; }\n", SM_90)


def test_a_switch_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLOJIT_CUDA_ASSEMBLER", raising=False)
    assert chosen_assembler().name == "numba", "what was asked for is the default"
    monkeypatch.setenv("HLOJIT_CUDA_ASSEMBLER", "llvm")
    assert chosen_assembler().name == "llvm"
    monkeypatch.setenv("HLOJIT_CUDA_ASSEMBLER", "gcc")
    with pytest.raises(hlojit.HlojitError, match="'gcc' names no assembler; there are numba and llvm"):
        chosen_assembler()


def test_without_numba_cuda_llvm_is_taken() -> None:
    script = """
import sys
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba_cuda" else found(name, *rest)
import os
from hlojit.cuda.assemblers.assembler import entry_name
from hlojit.cuda.assemblers.choice import chosen_assembler
print(chosen_assembler().name)
os.environ["HLOJIT_CUDA_ASSEMBLER"] = "numba"
try:
    chosen_assembler()
except Exception as error:
    print(error)
print([name for name in sys.modules if name.split(".")[0] in ("numba", "llvmlite", "cuda")])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    chosen, error, loaded = done.stdout.splitlines()
    assert chosen == "llvm" and loaded == "[]"
    assert error == (
        "HLOJIT_CUDA_ASSEMBLER=numba cannot be used: numba-cuda is not installed (pip install 'hlojit[cuda]')"
    )


@TARGETS
@ASSEMBLERS
@pytest.mark.parametrize(("op", "instruction"), [("maximum", "max.NaN.f32"), ("minimum", "min.NaN.f32")])
def test_extrema_are_one_instruction(name: str, target: Target, op: str, instruction: str) -> None:
    kind = "tensor<65536xf32>"
    text = f"""
    func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{
      %0 = stablehlo.add %x, %x : {kind}
      %1 = stablehlo.{op} %0, %y : {kind}
      return %1 : {kind}
    }}"""
    ptx = assembler(name).ptx(kernel(text, target), target)
    check(ptx, target)
    assert instruction in ptx and "setp.nan" not in ptx


def test_what_libnvvm_says_of_a_kernel_is_the_reason() -> None:
    """numba-cuda says no more than that something failed; a kernel that is in order was not the reason."""
    if reason := assembler("numba").unavailable():
        pytest.skip(reason)
    from hlojit.cuda.assemblers.legacy import LegacyKernel
    from hlojit.cuda.assemblers.numba_cuda import _reason

    body = "define void @body(i64 %a) {{\n  %b = {} i64 %a, 1\n  ret void\n}}\n"
    refused = LegacyKernel(body.format("frobnicate"), "body", 1, 32, 1)
    assert "expected instruction opcode" in _reason(refused, RuntimeError("failed"))
    assert _reason(LegacyKernel(body.format("add"), "body", 1, 32, 1), RuntimeError("failed")) == "failed"


def test_numba_cuda_is_imported_whatever_numpy_s_version() -> None:
    """NumPy 2.5 has no ``row_stack``, which numba-cuda 0.30 asks for; nobody else sees that it was there for a while."""
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("needs numba-cuda")
    script = """
import numpy as np
if hasattr(np, "row_stack"):
    del np.row_stack
    np.__all__.remove("row_stack")
from hlojit.cuda.numba_import import numba_cuda
from numba import types
cuda = numba_cuda()
def kernel(x):
    x[cuda.grid(1)] += 1
ptx, _ = cuda.compile(kernel, (types.float32[:],), device=False, abi="numba", cc=(9, 0))
print(".visible .entry" in ptx, hasattr(np, "row_stack"))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "False"], done.stderr


@pytest.mark.parametrize("name", ["nvJitLink", "nvvm"])
def test_what_images_depend_on_changes_with_nvidias_libraries(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update leaves the name of the file as it is."""
    pathfinder = pytest.importorskip("cuda.pathfinder")
    if not libraries.identity(name):
        pytest.skip(f"lib{name} is not installed")
    before = libraries.software("numba")
    file = tmp_path / f"lib{name}.so"
    load = pathfinder.load_nvidia_dynamic_lib

    def updated(wanted: str) -> Any:
        return SimpleNamespace(abs_path=str(file)) if wanted == name else load(wanted)

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", updated)
    seen = [before]
    for content in ("one", "another"):
        file.write_text(content)
        libraries.identity.cache_clear()
        seen.append(libraries.software("numba"))
    monkeypatch.undo()
    libraries.identity.cache_clear()
    assert len(set(seen)) == 3
    assert libraries.software("numba") == before


@pytest.mark.parametrize("name", NAMES)
def test_a_platform_says_what_images_depend_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := assembler(name).unavailable():
        pytest.skip(reason)
    monkeypatch.setenv("HLOJIT_CUDA_ASSEMBLER", name)
    monkeypatch.setattr(nvidia_platform, "driver_api", lambda: DriverApi(FakeCuda()))
    assert nvidia_platform.nvidia_platform().software == libraries.software(name)
