"""Process replay: equal compilers leave equal records, and what a change alters is named."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import hlojit
import pytest

TOOL = Path(__file__).resolve().parents[1] / "tools" / "process_replay.py"
LOOP = """
func.func @main(%n: tensor<i32>, %x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0:2 = stablehlo.while(%i = %n, %y = %x) : tensor<i32>, tensor<64x64xf32>
   cond {
    %c = stablehlo.constant dense<9> : tensor<i32>
    %1 = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %1 = stablehlo.add %i, %c : tensor<i32>
    %2 = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %t = stablehlo.reverse %2, dims = [0] : tensor<64x64xf32>
    %3 = stablehlo.tanh %t : tensor<64x64xf32>
    stablehlo.return %1, %3 : tensor<i32>, tensor<64x64xf32>
  }
  return %0#1 : tensor<64x64xf32>
}
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("process_replay", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def program(tool: ModuleType) -> Any:
    return tool.lowered_program(LOOP)


def records(folder: Path, name: str, tool: ModuleType, program: Any) -> Path:
    tool.write_record(program, folder / name / "loop")
    return folder / name


def test_the_same_program_leaves_the_same_record(tool: ModuleType, tmp_path: Path) -> None:
    sides = [records(tmp_path, name, tool, tool.lowered_program(LOOP)) for name in "ab"]
    assert tool.compare(*sides) == []
    text = (sides[0] / "loop" / "program.txt").read_text()
    assert "Loop predicate=" in text and "arena_bytes: " in text and "instruction_name='stablehlo.dot_general'" in text
    assert "@kernel(" in next((sides[0] / "loop").glob("kernel_*_dot_general.ll")).read_text()


def test_another_scheme_of_symbols_is_no_difference(tool: ModuleType, program: Any, tmp_path: Path) -> None:
    before = records(tmp_path, "before", tool, program)
    for launch in program.launches():
        kernel = launch.kernel
        old = kernel.phases[0].symbol.partition(".")[0]
        new = f"hlojit_{hash(old) & 0xFFFFFFFFFFFFFFFF:016x}"
        phases = tuple(replace(phase, symbol=phase.symbol.replace(old, new)) for phase in kernel.phases)
        launch.kernel = replace(kernel, ir=kernel.ir.replace(old, new), phases=phases)
    assert tool.compare(before, records(tmp_path, "after", tool, program)) == []


SORT = """
func.func @main(%x: tensor<300xi32>) -> tensor<300xi32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %1 = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) : (tensor<300xi32>) -> tensor<300xi32>
  return %0 : tensor<300xi32>
}
"""


def test_other_symbols_of_shared_functions_are_no_difference(tool: ModuleType, tmp_path: Path) -> None:
    program = tool.lowered_program(SORT)
    before = records(tmp_path, "before", tool, program)
    (launch,) = program.launches()
    (part,) = launch.kernel.parts
    old = part.phases[0].symbol

    def renamed(kernel: Any, new: str) -> Any:
        phases = tuple(replace(phase, symbol=phase.symbol.replace(old, new)) for phase in kernel.phases)
        return replace(kernel, ir=kernel.ir.replace(old, new), phases=phases)

    launch.kernel = replace(
        renamed(launch.kernel, "hlojit_0123456789abcdef"), parts=(renamed(part, "hlojit_0123456789abcdef"),)
    )
    assert tool.compare(before, records(tmp_path, "renamed", tool, program)) == []
    changed = replace(part, ir=part.ir.replace("smin", "smax"))
    launch.kernel = replace(launch.kernel, parts=(changed,))
    assert tool.compare(before, records(tmp_path, "changed", tool, program))


def test_a_changed_kernel_is_named(tool: ModuleType, program: Any, tmp_path: Path) -> None:
    before = records(tmp_path, "before", tool, program)
    launch = next(each for each in program.launches() if each.instruction_name == "stablehlo.dot_general")
    launch.kernel = replace(
        launch.kernel, ir=launch.kernel.ir.replace("fmul", "fdiv").replace("@llvm.fma", "@llvm.fmb")
    )
    (line,) = tool.compare(before, records(tmp_path, "after", tool, program))
    assert line.startswith("loop: 1 of ") and line.endswith("_dot_general.ll")


def test_a_changed_program_is_named_and_shown(tool: ModuleType, program: Any, tmp_path: Path) -> None:
    before = records(tmp_path, "before", tool, program)
    program.temporaries[0].offset += 64
    first, *shown = tool.compare(before, records(tmp_path, "after", tool, program), lines=20)
    assert first == "loop: the program record differs"
    assert any(line.strip().startswith("+  0: nbytes=") and line.endswith(" offset=64") for line in shown)


def test_a_pass_left_out_shows_in_the_record(tool: ModuleType, program: Any, tmp_path: Path) -> None:
    from hlojit.compiler import lower, parse
    from hlojit.cpu.backend import CpuBackend

    backend = CpuBackend()
    options = hlojit.CompileOptions(disable_passes=("instruction-fusion",))
    changed = backend.program(lower(parse(LOOP), backend, options).freeze())
    assert tool.compare(records(tmp_path, "a", tool, program), records(tmp_path, "b", tool, changed))


def test_the_command_records_and_compares(tmp_path: Path) -> None:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(TOOL), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    for name in ("a", "b"):
        done = run("record", tmp_path / name, "example_classifier", "traced_attention")
        assert done.returncode == 0, done.stderr
    done = run("compare", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 0 and "2 programs with 6 kernels: nothing differs" in done.stdout
    (tmp_path / "b" / "example_classifier" / "program.txt").write_text("")
    done = run("compare", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 1 and "example_classifier: the program record differs" in done.stdout
    assert "unknown program" in run("record", tmp_path / "a", "nothing").stderr
