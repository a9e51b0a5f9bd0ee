"""The NVIDIA back end without a GPU: the shared emitter's kernels as PTX, beside those of every CPU; what is imported when."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import hlojit
import pytest
from hlojit.compiler import lower
from hlojit.cpu.inspection import assembly_of
from hlojit.cuda.assemblers.choice import NAMES, assembler
from hlojit.cuda.nvptx import SM_90, NvptxDialect
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.graph import Instruction
from hlojit.llvm.fusion_emitter import emit_fusion
from hlojit.lowering.target import AARCH64, X86_64_V3, X86_64_V4, Target
from hlojit.simt.kernels import emit_kernel

GELU_LIKE = """
func.func @main(%x: tensor<64x128xf32>, %b: tensor<128xf32>) -> tensor<64x128xf32> {
  %0 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<128xf32>) -> tensor<64x128xf32>
  %1 = stablehlo.add %x, %0 : tensor<64x128xf32>
  %2 = stablehlo.tanh %1 : tensor<64x128xf32>
  %3 = stablehlo.exponential %2 : tensor<64x128xf32>
  %4 = stablehlo.multiply %1, %3 : tensor<64x128xf32>
  return %4 : tensor<64x128xf32>
}
"""


def only_fusion(text: str) -> Instruction:
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions())
    (fusion,) = [each for each in module.walk() if each.name == "hlojit.fusion"]
    return fusion


def assemble(text: str, name: str) -> str:
    code = emit_kernel(only_fusion(text), SM_90, NvptxDialect(), "kernel")
    return assembler(name).ptx(code, SM_90)


@pytest.mark.parametrize("name", NAMES)
def test_fused_elementwise_kernel_becomes_ptx_for_sm_90(name: str) -> None:
    ptx = assemble(GELU_LIKE, name)
    assert ".target sm_90" in ptx
    assert not re.search(r"\bcall\b", ptx), "no call of a function that nobody defines"
    assert ".local" not in ptx, "nothing is spilled"
    assert len(re.findall(r"ld\.global\S* ", ptx)) == 2 and len(re.findall(r"st\.global\S* ", ptx)) == 1
    assert "fma.rn.f32" in ptx


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "f8E4M3FN", "i32", "ui8", "i64"])
def test_every_family_of_element_types_becomes_ptx(dtype: str, name: str) -> None:
    text = f"""
    func.func @main(%x: tensor<100x{dtype}>, %y: tensor<100x{dtype}>) -> (tensor<100x{dtype}>, tensor<100xi1>) {{
      %0 = stablehlo.multiply %x, %y : tensor<100x{dtype}>
      %1 = stablehlo.maximum %0, %y : tensor<100x{dtype}>
      %2 = stablehlo.compare LT, %1, %x : (tensor<100x{dtype}>, tensor<100x{dtype}>) -> tensor<100xi1>
      return %1, %2 : tensor<100x{dtype}>, tensor<100xi1>
    }}
    """
    ptx = assemble(text, name)
    assert "st.global" in ptx and not re.search(r"\bcall\b", ptx)


@pytest.mark.parametrize(
    ("target", "wide"),
    [(X86_64_V4, "zmm"), (X86_64_V3, "ymm"), (AARCH64, ".4s")],
    ids=["x86-64-v4", "x86-64-v3", "aarch64"],
)
def test_the_same_fusion_becomes_vector_code_for_every_cpu(target: Target, wide: str) -> None:
    text = assembly_of(emit_fusion(only_fusion(GELU_LIKE), target, "kernel"), target)
    assert wide in text
    assert not re.search(r"^\s*(call|bl)q?\s", text, re.MULTILINE), "no libm"


def test_folder_does_not_shadow_nvidias_namespace() -> None:
    root = Path(__file__).resolve().parents[2]
    script = "import cuda.bindings, cuda; print(cuda.bindings.__file__)"
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(root / "cuda") not in done.stdout


def test_the_plugin_imports_nothing_of_cuda() -> None:
    script = (
        "import sys; from hlojit.extensions import registry; assert 'cuda' in registry().load().backends; "
        "print([name for name in sys.modules if name.startswith(('numba', 'cuda.', 'llvmlite'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
