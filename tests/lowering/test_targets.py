"""The code itself: widest vectors, no calls, no spills; and the same rules on other processors."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hlojit.ir.types import tensor
from hlojit.llvm.fusion_emitter import emit_fusion
from hlojit.lowering.target import AARCH64, X86_64_V2, X86_64_V3, X86_64_V4, Target
from hlojit.machine_code.object_code import compile_to_assembly

MATRIX = tensor((64, 1000), "f32")
SCALAR = tensor((), "f32")


def multiply_add(b: Any, x: Any, y: Any, z: Any) -> Any:
    return b.add(b.multiply(x, y), z)


def exponential(b: Any, x: Any) -> Any:
    return b.exponential(x)


def row_sum(b: Any, x: Any, init: Any) -> Any:
    return b.reduce([x], [init], b.combiner("add", "f32"), dimensions=(1,))


def transpose(b: Any, x: Any) -> Any:
    return b.negate(b.transpose(x, (1, 0)))


PROGRAMS = {
    "multiply_add": (multiply_add, (MATRIX, MATRIX, MATRIX)),
    "exponential": (exponential, (MATRIX,)),
    "row_sum": (row_sum, (MATRIX, SCALAR)),
    "transpose": (transpose, (MATRIX,)),
}


def assembly(lab: Any, name: str, target: Target) -> str:
    build, types = PROGRAMS[name]
    code = emit_fusion(lab.make_fusion(build, *types), target, "kernel")
    return compile_to_assembly(code.ir, target, pipeline=code.pipeline)


def hot_loop(text: str) -> list[str]:
    """The instructions of the innermost loop with the most vector instructions."""
    lines = text.splitlines()
    labels = {
        line[:-1]: n for n, line in enumerate(lines) if re.match(r"\.L\w+:", line.strip()) for line in [line.strip()]
    }
    best: list[str] = []
    for n, line in enumerate(lines):
        jump = re.match(r"\s+j\w+\s+(\.L\w+)", line)
        if jump and labels.get(jump.group(1), n) < n:
            body = lines[labels[jump.group(1)] : n]
            count = sum("zmm" in one for one in body)
            if count > sum("zmm" in one for one in best):
                best = body
    return best


@pytest.mark.parametrize("name", ["multiply_add", "exponential", "row_sum"])
def test_target_avx512_loop_is_wide_without_calls_and_spills(lab: Any, name: str) -> None:
    loop = hot_loop(assembly(lab, name, X86_64_V4))
    assert sum("zmm" in line for line in loop) >= 4, loop
    assert not any("call" in line for line in loop)
    stack = [line for line in loop if "(%rsp)" in line or "(%rbp)" in line]
    assert not stack, stack


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    ("target", "register"),
    [(X86_64_V4, "zmm"), (X86_64_V3, "ymm"), (X86_64_V2, "xmm"), (AARCH64, r"v\d+\.4s|q\d+")],
    ids=["v4", "v3", "v2", "aarch64"],
)
def test_target_emits_vectors_of_its_width(lab: Any, name: str, target: Target, register: str) -> None:
    text = assembly(lab, name, target)
    assert re.search(register, text)
    assert not re.search(r"\b(call|bl)\s+(?!\.)", text), "a library call"
    if target.vector_bits < 512 and target.is_x86:
        assert "zmm" not in text
