"""The host program and kernel sharing: segments, linear work, identity of kernels."""

from __future__ import annotations

import math
import re
import threading
from itertools import pairwise
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.extensions import CompileOptions, registry
from hlojit.llvm.host import SEGMENT_STEPS, emit_host
from hlojit.lowering.program import Program
from hlojit.lowering.structure import structure_text


def chain_text(length: int) -> str:
    """Products, which do not fuse, and elementwise ops in turn."""
    lines = []
    for k in range(length // 2):
        value = f"%y{k - 1}" if k else "%x"
        lines.append(f"%d{k} = stablehlo.dot_general %w, {value}, contracting_dims = [1] x [0] "
                     ": (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>")  # fmt: skip
        lines.append(f"%y{k} = stablehlo.maximum %d{k}, %w : tensor<2x2xf32>")
    body = "\n".join(lines)
    return f"""func.func public @main(%x: tensor<2x2xf32>, %w: tensor<2x2xf32>) -> tensor<2x2xf32> {{
    {body}
    return %y{length // 2 - 1} : tensor<2x2xf32> }}"""


def program_of(text: str) -> Program:
    backend: Any = registry().backend("cpu")
    module = lower(hlojit.parse(text), backend, CompileOptions()).freeze()
    program = backend.program(module)
    assert isinstance(program, Program)
    return program


def test_work_of_long_programs_is_linear() -> None:
    """Counts, not seconds: launches, lines of the host program, its bytes; kernels do not multiply at all."""
    sizes, counts = (1_000, 4_000, 16_000), []
    for size in sizes:
        program = program_of(chain_text(size))
        text = emit_host(program, "main")
        kernels = {launch.kernel.phases[0].symbol for launch in program.launches()}
        counts.append((len(program.launches()), text.count("\n"), len(text)))
        assert len(kernels) <= 3 and program.arena_bytes <= 1024
        # LLVM's time grows faster than a function's length, so functions must stay short.
        functions = re.findall(r"^define .*?^}", text, re.MULTILINE | re.DOTALL)
        assert max(function.count("call void @hlojit_kernel") for function in functions) <= SEGMENT_STEPS
    for small, large in pairwise(counts):
        for few, many in zip(small, large):
            assert math.log(many / few) / math.log(4) <= 1.1


@pytest.mark.parametrize("length", [2, 190, 194, 400])
def test_segments_run_in_order(length: int) -> None:
    x, w = np.array([[1, 2], [3, 4]], "f4"), np.array([[0, 1], [1, 0]], "f4")
    expected = x
    for _ in range(length // 2):
        expected = np.maximum(w @ expected, w)
    np.testing.assert_array_equal(hlojit.compile(chain_text(length))(x, w), expected)


def test_long_loop_body_is_cut_too() -> None:
    steps = []
    for k in range(150):
        value = f"%y{k - 1}" if k else "%v"
        steps.append(f"%d{k} = stablehlo.dot_general %w, {value}, contracting_dims = [1] x [0] "
                     ": (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>")  # fmt: skip
        steps.append(f"%y{k} = stablehlo.maximum %d{k}, %w : tensor<2x2xf32>")
    body = "\n".join(steps)
    text = f"""func.func public @main(%x: tensor<2x2xf32>, %w: tensor<2x2xf32>, %n: tensor<i32>) -> tensor<2x2xf32> {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%v = %x, %i = %zero) : tensor<2x2xf32>, tensor<i32>
      cond {{
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        {body}
        %one = stablehlo.constant dense<1> : tensor<i32>
        %j = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %y149, %j : tensor<2x2xf32>, tensor<i32>
      }}
      return %r#0 : tensor<2x2xf32> }}"""
    x, w = np.array([[1, 2], [3, 4]], "f4"), np.array([[0, 1], [1, 0]], "f4")
    np.testing.assert_array_equal(hlojit.compile(text)(x, w, np.int32(3)), np.maximum(w @ np.maximum(w @ x, w), w))


def key_of(line: str, types: str = "tensor<4xf32>") -> str:
    module = hlojit.parse(
        f"func.func public @main(%a: {types}, %b: {types}) -> {types} {{\n{line}\nreturn %r : {types} }}"
    )
    return structure_text(next(iter(module.main.body)))


DIFFERENT = (
    ("%r = stablehlo.constant dense<0.0> : tensor<4xf32>", "%r = stablehlo.constant dense<-0.0> : tensor<4xf32>"),
    ("%r = stablehlo.constant dense<0x7FC00000> : tensor<4xf32>", "%r = stablehlo.constant dense<0x7FC00001> : tensor<4xf32>"),
    ("%r = stablehlo.constant dense<[1., 2., 3., 4.]> : tensor<4xf32>",
     "%r = stablehlo.constant dense<[1., 2., 3., 5.]> : tensor<4xf32>"),
    ("%r = stablehlo.add %a, %b : tensor<4xf32>", "%r = stablehlo.add %a, %a : tensor<4xf32>"),
    ("%r = stablehlo.add %a, %b : tensor<4xf32>", "%r = stablehlo.multiply %a, %b : tensor<4xf32>"),
    ("%r = stablehlo.reverse %a, dims = [0] : tensor<4xf32>", "%r = stablehlo.reverse %a, dims = [] : tensor<4xf32>"),
)  # fmt: skip


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_structure_distinguishes(one: str, other: str) -> None:
    assert key_of(one) != key_of(other)


def test_structure_distinguishes_types_and_directions() -> None:
    add = "%r = stablehlo.add %a, %b : "
    keys = {key_of(add + type, type) for type in ("tensor<4xf32>", "tensor<4xf16>", "tensor<4xi32>", "tensor<2x2xf32>")}
    assert len(keys) == 4


def test_structure_ignores_names_and_places() -> None:
    assert key_of("%r = stablehlo.add %a, %b : tensor<4xf32>") == key_of(
        "\n\n%r = stablehlo.add %b, %a : tensor<4xf32>"
    )


def test_structure_distinguishes_large_constants_within_attributes() -> None:
    """A long list, of which Python's repr of an array would leave out the middle."""
    numbers = [float(k) for k in range(5000)]
    keys = set()
    for middle in (2500.0, 7.0):
        numbers[2500] = middle
        keys.add(key_of(f"%r = stablehlo.constant dense<{numbers}> : tensor<5000xf32>", "tensor<5000xf32>"))
    assert len(keys) == 2


def test_constants_that_differ_in_the_sign_of_zero_stay_apart() -> None:
    text = """func.func public @main(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
      %p = stablehlo.constant dense<0.0> : tensor<4xf32>
      %n = stablehlo.constant dense<-0.0> : tensor<4xf32>
      %x = stablehlo.divide %a, %p : tensor<4xf32>
      %y = stablehlo.divide %a, %n : tensor<4xf32>
      return %x, %y : tensor<4xf32>, tensor<4xf32> }"""
    first, second = hlojit.compile(text)(np.ones(4, "f4"))
    assert (first == np.inf).all() and (second == -np.inf).all()


def test_threads_that_compile_at_once_get_their_own_kernels() -> None:
    failures: list[str] = []

    def work(number: int) -> None:
        for k in range(6):
            text = f"""func.func public @main(%a: tensor<5xf32>) -> tensor<5xf32> {{
              %c = stablehlo.constant dense<{k + 0.25}> : tensor<5xf32>
              %r = stablehlo.add %a, %c : tensor<5xf32>
              return %r : tensor<5xf32> }}"""
            actual = hlojit.compile(text)(np.zeros(5, "f4"))
            if not (actual == k + 0.25).all():
                failures.append(f"{number} {k}: {actual}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
