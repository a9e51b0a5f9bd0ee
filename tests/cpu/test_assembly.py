"""The machine code of the main kernels: the widest vectors, no call of libm, no spill in the loops.

Compiled for fixed processors, so that it is checked on any machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import hlojit
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.cpu.backend import kernel_cache, kernel_source
from hlojit.cpu.inspection import assembly_of
from hlojit.extensions import CompileOptions, registry
from hlojit.lowering.schedule import build_program
from hlojit.lowering.target import X86_64_V3, X86_64_V4, Target

_MATRIX = np.zeros((256, 256), "f4")


def _softmax(x: Any) -> Any:
    exponentials = jnp.exp(x - x.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def _layer_norm(x: Any) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "matmul_f32": (lambda x, y: x @ y, (_MATRIX, _MATRIX)),
    "matmul_f64": (lambda x, y: x @ y, (_MATRIX.astype("f8"), _MATRIX.astype("f8"))),
    "convolution_3x3": (
        lambda x, k: jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        (np.zeros((1, 28, 28, 64), "f4"), np.zeros((3, 3, 64, 64), "f4")),
    ),
    "exp": (jnp.exp, (_MATRIX,)),
    "complex_multiply_add": (lambda z, w: z * w + z, (_MATRIX.astype("c8"), _MATRIX.astype("c8"))),
    "complex_divide": (lambda z, w: z / w, (_MATRIX.astype("c16"), _MATRIX.astype("c16"))),
    "tanh": (jnp.tanh, (_MATRIX,)),
    "softmax": (_softmax, (_MATRIX,)),
    "layer_norm": (_layer_norm, (_MATRIX,)),
    "row_sum": (lambda x: x.sum(axis=1), (_MATRIX,)),
    "column_sum": (lambda x: x.sum(axis=0), (_MATRIX,)),
}


@cache
def assembly(name: str, target: Target) -> tuple[str, ...]:
    """Assembly of every kernel that the program of ``name`` launches."""
    function, arguments = PROGRAMS[name]
    with jax.enable_x64(True):
        text = jax.jit(function).lower(*arguments).as_text()
    module = lower(hlojit.parse(text), registry().backend("cpu"), CompileOptions()).freeze()
    program = build_program(module.main, kernel_source(kernel_cache(target)))
    codes = {launch.kernel.phases[0].symbol: launch.kernel for launch in program.launches()}
    return tuple(assembly_of(code, target) for code in codes.values())


def innermost_loops(text: str) -> list[list[str]]:
    """Instructions of every loop without a loop inside, from a label to a jump back to it, but for those over rare lanes."""
    lines = [line.strip() for line in text.splitlines()]
    places = {
        line.rstrip(":"): n for n, line in enumerate(lines) if re.fullmatch(r"[.\w]+:", line.split("#")[0].strip())
    }
    places.update({line.split(":")[0]: n for n, line in enumerate(lines) if re.match(r"^\.LBB\w+:", line)})
    spans = []
    for number, line in enumerate(lines):
        jump = re.match(r"j\w+\s+(\.LBB\w+)", line)
        if jump and places.get(jump[1], number) < number:
            spans.append((places[jump[1]], number))
    inner = [span for span in spans if not any(span[0] <= o[0] and o[1] <= span[1] and o != span for o in spans)]
    loops = [[line for line in lines[a : b + 1] if line and not line.startswith((".", "#"))] for a, b in inner]
    # What visits single lanes, one bit of a mask after the other, is the rare path of numbers that are hardly ever there.
    return [loop for loop in loops if not any(line.startswith("tzcnt") for line in loop)]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("target", "register"), [(X86_64_V4, "zmm"), (X86_64_V3, "ymm")])
def test_kernels_use_the_widest_vectors(name: str, target: Target, register: str) -> None:
    for text in assembly(name, target):
        arithmetic = re.findall(r"\tv(?:add|sub|mul|div|max|f\w*madd\w*|f\w*msub\w*)p[sd]\t.*", text)
        wide = [line for line in arithmetic if f"%{register}" in line]
        assert wide and any(f"%{register}" in line for loop in innermost_loops(text) for line in loop)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", [X86_64_V4, X86_64_V3])
def test_kernels_call_nothing(name: str, target: Target) -> None:
    for text in assembly(name, target):
        called = re.findall(r"\tcallq?\t\*?([\w@.]+)", text)
        assert not [each for each in called if not each.startswith(("mem", "hlojit"))]
        assert not re.search(r"\b(expf?|tanhf?|logf?|sqrtf?|powf?)@PLT", text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_innermost_loops_do_not_spill(name: str) -> None:
    """No vector is stored to the stack, and none but constants loaded from it, in an innermost loop with AVX-512."""
    loops = [loop for text in assembly(name, X86_64_V4) for loop in innermost_loops(text)]
    assert loops
    for loop in loops:
        spilled = [line for line in loop if re.search(r"%[xyz]mm\d+,\s*-?\d*\(%r[sb]p\)", line)]
        assert spilled == []


@pytest.mark.parametrize("name", ["complex_multiply_add", "complex_divide"])
@pytest.mark.parametrize("target", [X86_64_V4, X86_64_V3])
def test_complex_numbers_are_taken_apart_in_registers(name: str, target: Target) -> None:
    for text in assembly(name, target):
        assert not re.search(r"\tv(p?gather|p?scatter)", text)
        loads = [
            line for loop in innermost_loops(text) for line in loop if re.match(r"vmov\w*u\w*\s+\S*\(%r(?!s|ip)", line)
        ]
        assert loads and all(re.search(r"%[yz]mm", line) for line in loads)


def test_products_fuse_multiply_and_add() -> None:
    for name, suffix in (("matmul_f32", "ps"), ("matmul_f64", "pd"), ("convolution_3x3", "ps")):
        densest = max(
            (sum(bool(re.match(rf"vfn?madd\d+{suffix}\s.*%zmm", line)) for line in loop) / len(loop)
             for text in assembly(name, X86_64_V4) for loop in innermost_loops(text)),
        )  # fmt: skip
        assert densest > 0.5, f"{name}: an innermost loop should be mostly multiply-adds"
