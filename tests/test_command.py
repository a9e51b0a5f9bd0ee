"""The command line: what it prints, and its exit status."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hlojit.command import main
from hlojit.extensions import YES, Backend, Capability, ElementwiseCall, hookimpl, using
from hlojit.lowering.machine import parse_machine

PROGRAM = """
func.func @main(%x: tensor<2x3xf32>, %y: tensor<3xi32>) -> (tensor<2x3xf32>, tensor<3xi32>) {
  %0 = stablehlo.add %x, %x : tensor<2x3xf32>
  %1 = stablehlo.add %y, %y : tensor<3xi32>
  %2 = stablehlo.multiply %y, %y : tensor<3xi32>
  return %0, %1 : tensor<2x3xf32>, tensor<3xi32>
}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM)
    return str(path)


def test_run_with_input_files(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = np.arange(6, dtype="f4").reshape(2, 3), np.array([4, 5, 6], "i4")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    for backend in ("cpu", "reference"):
        status = main(
            [
                "run",
                file,
                "--input",
                str(tmp_path / "x.npy"),
                str(tmp_path / "y.npy"),
                "--output",
                str(tmp_path / "out.npz"),
                "--backend",
                backend,
            ]
        )
        assert status == 0
        with np.load(tmp_path / "out.npz") as results:
            np.testing.assert_array_equal(results["arr_0"], x + x)
            np.testing.assert_array_equal(results["arr_1"], y + y)
    assert main(["run", file, "--input", str(tmp_path / "x.npy"), "--input", str(tmp_path / "y.npy")]) == 0
    captured = capsys.readouterr()
    assert "result 1: tensor<3xi32>\n[ 8 10 12]" in captured.out and "ms" in captured.err


def test_run_with_random_inputs_is_repeatable(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", file, "--random-inputs", "--repeat", "3"]) == 0
    first = capsys.readouterr().out
    assert main(["run", file, "--random-inputs"]) == 0
    assert capsys.readouterr().out == first and "result 0: tensor<2x3xf32>" in first


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "ui4", "i8", "ui64", "f16", "bf16", "f8E4M3FN", "f64"])
def test_random_inputs_of_every_kind(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(
        f"func.func @main(%x: tensor<2x2x{kind}>, %y: tensor<{kind}>) -> tensor<2x2x{kind}> {{ return %x : tensor<2x2x{kind}> }}"
    )
    assert main(["run", str(path), "--random-inputs"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "message"), [
    (["run"], "takes 2 arguments"), (["run", "--input", "{x}"], "takes 2 arguments"), (["run", "--input", "{x}", "{x}"], "argument 1"),
    (["run", "--input", "{x}", "{missing}"], "No such file"), (["run", "--random-inputs", "--input", "{x}"], "either"),
    (["run", "--input", "{file}", "{file}"], ""), (["run", "--random-inputs", "--backend", "cpuu"], "did you mean 'cpu'"),
    (["opt", "-p", "algebraic-simplifer"], "algebraic-simplifier"), (["opt", "-p", "dead-code-elimination{"], ""), (["opt", "--backend", "nope"], "unknown back end"),
    (["run", "--random-inputs", "--output", "{missing}/y.npz"], "No such file"),
])  # fmt: skip
def test_errors_have_status_one_and_say_what(
    arguments: list[str], message: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3), "f4"))
    names = {"x": str(tmp_path / "x.npy"), "missing": str(tmp_path / "missing"), "file": file}
    assert (
        main(
            [
                arguments[0],
                file,
                *(
                    each.replace("{x}", names["x"]).replace("{missing}", names["missing"]).replace("{file}", file)
                    for each in arguments[1:]
                ),
            ]
        )
        == 1
    )
    error = capsys.readouterr().err
    assert "hlojit: error: " in error and message in error and "Traceback" not in error


@pytest.mark.parametrize("command", ["run", "opt", "parse", "verify"])
def test_bad_programs_have_status_one_and_a_place(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "program.mlir"
    for text in (
        PROGRAM.replace("stablehlo.add", "stablehlo.adds"),
        "nonsense",
        PROGRAM.replace("return %0", "return %9"),
    ):
        path.write_text(text)
        assert main([command, str(path)]) == 1
        assert "hlojit: error: " in capsys.readouterr().err
    path.write_bytes(b"\xff\xfe\x00\x01")
    assert main([command, str(path)]) == 1
    assert main([command, str(tmp_path)]) == 1
    assert main([command, str(tmp_path / "missing.mlir")]) == 1
    assert "missing.mlir" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["jump"], ["run", "--nonsense"], ["run", "x", "--repeat", "many"]])
def test_wrong_usage_has_status_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2 and "usage" in capsys.readouterr().err


def test_opt_runs_named_passes_or_the_default(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", file, "-p", "dead-code-elimination"]) == 0
    printed = capsys.readouterr().out
    assert "stablehlo.multiply" not in printed and printed.count("stablehlo.add") == 2
    assert main(["opt", file]) == 0
    default = capsys.readouterr().out
    assert "stablehlo.multiply" not in default and "func" in default
    assert main(["opt", "--list"]) == 0
    assert "dead-code-elimination" in capsys.readouterr().out


def test_parse_prints_a_program_that_parses_to_itself(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["parse", file]) == 0
    printed = capsys.readouterr().out
    again = tmp_path / "again.mlir"
    again.write_text(printed)
    assert main(["parse", str(again)]) == 0
    assert capsys.readouterr().out == printed


def test_verify_says_valid(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", file]) == 0
    assert "valid (1 functions, 4 instructions)" in capsys.readouterr().out


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["parse"], ["parse", "-"], ["run", "--random-inputs"]):
        monkeypatch.setattr(sys, "stdin", io.StringIO(PROGRAM))
        assert main(arguments) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("nonsense"))
    assert main(["verify"]) == 1
    assert "<stdin>:1" in capsys.readouterr().err


class Absent(Backend):
    name = "absent"

    def unavailable(self) -> str:
        return "its driver is not installed (pip install 'absent[driver]')"

    def capability(self, instruction: object) -> Capability:
        return YES

    def compile(self, module: object, options: object) -> None:
        raise NotImplementedError


def test_plugins_shows_what_plugins_say_in_full(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 80 columns, brackets and long names as well."""
    monkeypatch.setenv("COLUMNS", "80")
    swish = ElementwiseCall("absent.a_name_that_is_longer_than_its_column", function=lambda x: x)

    class Plugin:
        @hookimpl
        def hlojit_backends(self) -> list[Backend]:
            return [Absent()]

        @hookimpl
        def hlojit_custom_calls(self) -> list[ElementwiseCall]:
            return [swish]

    with using(Plugin()):
        assert main(["plugins"]) == 0
    lines = [[cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines()]
    brings, status = ("".join(line[at] for line in lines if len(line) > 5) for at in (4, 5))
    assert "absent.a_name_that_is_longer_than_its_column" in brings
    assert "'absent[driver]'" in status


def test_plugins_lists_the_built_in_back_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins"]) == 0
    printed = capsys.readouterr().out
    assert "cpu" in printed and "reference" in printed and "back end" in printed


def test_machine_prints_a_model_that_the_switch_reads() -> None:
    """What one process measured, others plan by, all of them the same."""

    def printed(*arguments: str, **switches: str) -> str:
        environment = {name: text for name, text in os.environ.items() if name != "HLOJIT_MACHINE"} | switches
        command = [sys.executable, "-m", "hlojit", "machine", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    found = printed()
    assert found == printed()
    assert parse_machine(found) == parse_machine(str(parse_machine(found)))
    measured = printed("--measure")
    assert parse_machine(measured) == replace(
        parse_machine(found), memory_bandwidth=parse_machine(measured).memory_bandwidth
    )
    assert printed(HLOJIT_MACHINE=measured) == measured
    assert "bandwidth=3.5" in printed(HLOJIT_MACHINE="bandwidth=3.5").split()


def test_as_a_module_and_into_a_closed_pipe(file: str) -> None:
    done = subprocess.run([sys.executable, "-m", "hlojit", "verify", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "valid" in done.stdout
    with subprocess.Popen(
        [sys.executable, "-m", "hlojit", "parse", file], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        errors = child.stderr.read()
    assert b"Traceback" not in errors and b"Broken pipe" not in errors and b"Exception ignored" not in errors
