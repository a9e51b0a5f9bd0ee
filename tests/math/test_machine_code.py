"""What the rules become on each kind of processor: wide vectors, no calls, no spills in the loop."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest
from hlojit.ir.scalar import functions
from hlojit.lowering.target import AARCH64, X86_64_V3, X86_64_V4, Target
from hlojit.machine_code.object_code import compile_to_assembly
from vector_function import loop_text

STRAIGHT = ("exp", "tanh", "log", "erf", "logistic", "expm1", "rsqrt")
"""Functions without a slow path, which programs use most."""

GPU = Target("nvptx64-nvidia-cuda", "sm_90", "+ptx80", 32, 64)


def assembly(name: str, kind: str, lanes: int, target: Target) -> str:
    operands = 2 if name in ("pow", "atan2", "polygamma", "zeta") else 1
    return compile_to_assembly(loop_text(getattr(functions, name), kind, lanes, operands), target)


def calls(text: str) -> list[str]:
    return re.findall(r"^\s+(?:callq?|bl|call\.uni)\s+(\S+)", text, re.MULTILINE)


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", functions.__all__)
@pytest.mark.parametrize("target", [X86_64_V4, X86_64_V3, AARCH64], ids=lambda target: target.cpu)
def test_cpu_code_has_wide_vectors_and_no_calls(name: str, kind: str, target: Target) -> None:
    text = assembly(name, kind, target.native_lanes(kind), target)
    assert calls(text) == []
    register = {"x86-64-v4": "%zmm", "x86-64-v3": "%ymm", "generic": r"v\d+\.[24][sd]"}[target.cpu]
    assert re.search(register, text)


@pytest.mark.parametrize("name", STRAIGHT)
def test_x86_64_v4_loop_keeps_all_in_registers(name: str) -> None:
    text = assembly(name, "f32", 4 * X86_64_V4.native_lanes("f32"), X86_64_V4)
    assert "(%rsp)" not in text
    assert "(%rbp)" not in text
    # no branch but the loop's own
    assert len(re.findall(r"^\s+j[a-z]+\s", text, re.MULTILINE)) <= 2


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", functions.__all__)
def test_gpu_code_calls_nothing(name: str, kind: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = assembly(name, kind, 1, GPU)
    assert calls(text) == []
    assert ".visible .func f" in text or ".entry f" in text
