"""The reducer: programs become small, stay valid, and still show what they are made smaller for."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit import testing
from hlojit.ir.graph import Module
from hlojit.ir.interpreter import evaluate
from hlojit.ir.verifier import verify

from ..random_programs import RandomProgram

MODEL = """
func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>, %n: tensor<i32>) -> (tensor<8x32xf32>, tensor<8xf32>, tensor<i32>) {
  %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %t = call @activation(%h) : (tensor<8x32xf32>) -> tensor<8x32xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %s = stablehlo.reduce(%t init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x32xf32>, tensor<f32>) -> tensor<8xf32>
  %r:2 = stablehlo.while(%i = %n, %v = %s) : tensor<i32>, tensor<8xf32> cond {
    %limit = stablehlo.constant dense<9> : tensor<i32>
    %c = stablehlo.compare LT, %i, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %q = stablehlo.sqrt %v : tensor<8xf32>
    %u = stablehlo.add %q, %v : tensor<8xf32>
    stablehlo.return %j, %u : tensor<i32>, tensor<8xf32>
  }
  return %t, %r#1, %r#0 : tensor<8x32xf32>, tensor<8xf32>, tensor<i32>
}
func.func private @activation(%x: tensor<8x32xf32>) -> tensor<8x32xf32> {
  %0 = stablehlo.tanh %x : tensor<8x32xf32>
  %1 = stablehlo.multiply %0, %x : tensor<8x32xf32>
  return %1 : tensor<8x32xf32>
}
"""


def names(module: Module) -> list[str]:
    return [instruction.name for instruction in module.walk() if not instruction.op.is_terminator]


def has(name: str) -> Any:
    return lambda module: name in names(module)


@pytest.mark.parametrize("op", ["sqrt", "tanh", "dot_general", "reduce", "while"])
def test_what_shows_it_stays_and_everything_else_goes(op: str) -> None:
    small = testing.reduce(MODEL, has(f"stablehlo.{op}"), seconds=20)
    verify(small)
    found = names(small)
    assert f"stablehlo.{op}" in found
    assert len(found) <= {"while": 3, "reduce": 4}.get(op, 1), small
    assert all(type.shape.count(1) == len(type.shape) for type in small.main.type.inputs), small  # type: ignore[attr-defined]


def test_the_program_itself_is_left_as_it_was() -> None:
    module = hlojit.parse(MODEL)
    before = str(module)
    testing.reduce(module, has("stablehlo.tanh"), seconds=5)
    assert str(module) == before


def test_code_that_nothing_reads_may_be_what_shows_it() -> None:
    dead = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.abs %x : tensor<4xf32>
      %1 = stablehlo.cosine %x : tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    small = testing.reduce(dead, has("stablehlo.cosine"))
    assert names(small) == ["stablehlo.cosine"]


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_become_small_and_stay_valid(seed: int) -> None:
    text, _ = RandomProgram(random.Random(seed), statements=25).build()
    module = hlojit.parse(text)
    wanted = sorted(set(names(module)))[seed]
    seen: list[Module] = []

    def shows(candidate: Module) -> bool:
        seen.append(candidate)
        return wanted in names(candidate)

    small = testing.reduce(module, shows, seconds=20)
    assert wanted in names(small)
    assert len(names(small)) <= 6, small
    for candidate in seen[:: max(1, len(seen) // 20)]:
        verify(candidate)


def test_arguments_become_smaller_with_the_program_and_keep_what_shows_it() -> None:
    text = """func.func @main(%x: tensor<6x50xf32>, %y: tensor<6x50xf32>) -> tensor<6x50xf32> {
      %0 = stablehlo.add %x, %y : tensor<6x50xf32>
      %1 = stablehlo.exponential %0 : tensor<6x50xf32>
      %2 = stablehlo.multiply %1, %y : tensor<6x50xf32>
      return %2 : tensor<6x50xf32>
    }"""
    x = np.zeros((6, 50), "f4")
    y = np.full((6, 50), 0.25, "f4")
    x[5, 49] = 200.0

    def overflows(module: Module, arrays: Sequence[np.ndarray[Any, Any]]) -> bool:
        return any(bool(np.isinf(np.asarray(result)).any()) for result in evaluate(module, *arrays))

    small, arrays = testing.reduce_with_arguments(text, [x, y], overflows, seconds=20)
    assert len(names(small)) <= 1
    assert [array.size for array in arrays] == [1]
    assert overflows(small, arrays)


def test_a_predicate_that_raises_does_not_hold() -> None:
    def picky(module: Module) -> bool:
        if "stablehlo.tanh" not in names(module):
            raise ValueError("not this one")
        return True

    assert names(testing.reduce(MODEL, picky)) == ["stablehlo.tanh"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MODEL, "the predicate does not hold"),
        ("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n return %y : tensor<4xf32>\n}", "%y"),
    ],
)
def test_what_shows_nothing_or_is_no_program_is_refused(text: str, message: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=message):
        testing.reduce(text, lambda module: False)


def test_the_command_reduces_a_file_by_a_command(tmp_path: Path) -> None:
    from hlojit.command import main

    (tmp_path / "program.mlir").write_text(MODEL)
    check = tmp_path / "check.py"
    check.write_text("import sys, pathlib\nsys.exit('stablehlo.tanh' not in pathlib.Path(sys.argv[1]).read_text())\n")
    output = tmp_path / "small.mlir"
    status = main(
        [
            "reduce",
            str(tmp_path / "program.mlir"),
            "--check",
            f"{sys.executable} -S {check} {{}}",
            "--output",
            str(output),
        ]
    )
    assert status == 0
    assert names(hlojit.parse(output.read_text())) == ["stablehlo.tanh"]
    assert subprocess.run([sys.executable, "-S", check, output], check=False).returncode == 0


def test_loops_that_a_step_leaves_without_an_end_are_given_up() -> None:
    from hlojit.testing.execution import interpret

    endless = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %r = stablehlo.while(%v = %x) : tensor<3xf32> cond {
        %t = stablehlo.constant dense<true> : tensor<i1>
        stablehlo.return %t : tensor<i1>
      } do {
        %n = stablehlo.negate %v : tensor<3xf32>
        stablehlo.return %n : tensor<3xf32>
      }
      return %r : tensor<3xf32>
    }"""
    assert interpret(hlojit.parse(endless), [np.zeros(3, "f4")]).kind == "endless"
