"""The tool that runs other people's suites: whatever goes wrong with a program shows as a failure that names it."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.extensions.devices.host_device import HostDevice

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tools.conformance import __main__ as command
from tools.conformance import page, report
from tools.conformance.checks import Check, checked
from tools.conformance.comparison import FAR, differs, differs_by, ulp_distance
from tools.conformance.mlir_text import functions, split_list, split_modules, without_comments
from tools.conformance.programs import Outcome, Program
from tools.conformance.reasons import Reason, explained
from tools.conformance.suites import programs_of
from tools.conformance.tasks import perform
from tools.conformance.tolerances import Tolerance
from tools.conformance.workers import outcomes

RIGHT = """
func.func @doubles() {
  // a comment with a "quote
  %0 = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi64>
  %1 = stablehlo.add %0, %0 : tensor<3xi64>
  check.expect_eq_const %1, dense<[2, 4, 6]> : tensor<3xi64>
  func.return
}
"""
CLOSE = """
module @halves {
  func.func @main() -> tensor<2xf32> {
    %0 = call @values() : () -> tensor<2xf32>
    %1 = stablehlo.add %0, %0 : tensor<2xf32>
    stablehlo.custom_call @check.expect_close(%1, %0) {has_side_effect = true} : (tensor<2xf32>, tensor<2xf32>) -> ()
    return %1 : tensor<2xf32>
  }
  func.func private @values() -> tensor<2xf32> {
    %0 = stablehlo.constant dense<NUMBER> : tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
"""


def kind(text: str, task: str = "run", backend: str = "cpu") -> str:
    return perform(Program("own", "p", task, text), backend)[0]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_right_and_wrong_results(backend: str) -> None:
    assert kind(RIGHT, backend=backend) == ""
    assert perform(Program("own", "p", "run", RIGHT.replace("4, 6", "4, 7")), backend) == (
        "wrong",
        "not equal: 6 for 7 at [2]; 1 of 3 elements",
    )
    assert kind(CLOSE.replace("NUMBER", "0.0"), backend=backend) == ""
    assert kind(CLOSE.replace("NUMBER", "1.0"), backend=backend) == "wrong"
    assert kind(CLOSE.replace("NUMBER", "0x7FC00000"), backend=backend) == "", "NaN is near NaN"


def test_what_is_refused_or_accepted_by_mistake() -> None:
    unsupported = RIGHT.replace("%1 = stablehlo.add %0, %0", "%1 = stablehlo.custom_call @nobodys(%0)").replace(
        ": tensor<3xi64>\n  check", ": (tensor<3xi64>) -> tensor<3xi64>\n  check"
    )
    assert kind(unsupported) == "unsupported"
    invalid = RIGHT.replace("stablehlo.add %0, %0 : tensor<3xi64>", "stablehlo.add %0, %0 : tensor<4xi64>")
    assert (kind(invalid), kind(invalid, "parse"), kind(invalid, "refuse")) == ("refused", "refused", "")
    assert (kind(RIGHT, "parse"), kind(RIGHT, "refuse")) == ("", "accepted")
    foreign = 'func.func @f(%a: tensor<i1>) { "acme.op"(%a) : (tensor<i1>) -> () return }'
    assert (kind(foreign, "parse"), kind(foreign, "refuse")) == ("", "accepted")
    assert kind(RIGHT.replace("check.expect_eq_const %1,", "check.expect_eq_const"), "run") == "error"


def test_rules_of_several_processes() -> None:
    text = """
      func.func @one(%a: tensor<i32>) -> tensor<i32> {{ return %a : tensor<i32> }}
      func.func @main(%a: tensor<i32>) {{
        %0 = "interpreter.run_parallel"(%a) {{programs = {programs}}} : (tensor<i32>) -> tensor<i32>
        return
      }}"""
    for programs, wanted in {
        "[[@one]]": "",
        "[]": "refused",
        "[[@two]]": "refused",
        "[[@one, @one]]": "refused",
    }.items():
        assert kind(text.format(programs=programs), "parse") == wanted


PARALLEL = """
  func.func @sum(%a: tensor<2xi32>) -> (tensor<2xi32>, tensor<ui32>) {
    %0 = "stablehlo.all_reduce"(%a) ({
      ^bb0(%x: tensor<i32>, %y: tensor<i32>):
        %1 = stablehlo.add %x, %y : tensor<i32>
        stablehlo.return %1 : tensor<i32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xi32>) -> tensor<2xi32>
    %2 = stablehlo.replica_id : tensor<ui32>
    return %0, %2 : tensor<2xi32>, tensor<ui32>
  }
  func.func @main() {
    %a = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
    %b = stablehlo.constant dense<[10, 20]> : tensor<2xi32>
    %r:4 = "interpreter.run_parallel"(%a, %b) {programs = [[@sum], [@sum]]} : (tensor<2xi32>, tensor<2xi32>)
      -> (tensor<2xi32>, tensor<ui32>, tensor<2xi32>, tensor<ui32>)
    check.expect_eq_const %r#0, dense<[11, 22]> : tensor<2xi32>
    check.expect_eq_const %r#3, dense<1> : tensor<ui32>
    func.return
  }
"""


def test_programs_of_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = tuple(HostDevice("reference", number) for number in range(2))
    monkeypatch.setattr("hlojit.reference.plugin.reference_devices", lambda: devices)
    assert kind(PARALLEL, "parallel", "reference") == ""
    assert (
        kind(PARALLEL.replace("dense<1> : tensor<ui32>", "dense<0> : tensor<ui32>"), "parallel", "reference") == "wrong"
    )


DIFFERENT = """
  func.func @half(%a: tensor<2xf32>, %t: !stablehlo.token) -> !stablehlo.token {
    %0 = stablehlo.add %a, %a : tensor<2xf32>
    %1 = "stablehlo.send"(%0, %t) {channel_handle = #stablehlo.channel_handle<handle = 5, type = 2>, is_host_transfer = true}
      : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
    return %1 : !stablehlo.token
  }
  func.func @rest(%t: !stablehlo.token) -> (tensor<2xf32>, !stablehlo.token) {
    %0:2 = "stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 5, type = 3>, is_host_transfer = true}
      : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
    %1:2 = "stablehlo.infeed"(%0#1) : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
    %2 = stablehlo.multiply %0#0, %1#0 : tensor<2xf32>
    return %2, %1#1 : tensor<2xf32>, !stablehlo.token
  }
  func.func @fed() -> tensor<2xf32> {
    %0 = stablehlo.constant dense<[10.0, 100.0]> : tensor<2xf32>
    return %0 : tensor<2xf32>
  }
  func.func @main() {
    %a = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
    %t = stablehlo.after_all : !stablehlo.token
    %r:3 = "interpreter.run_parallel"(%t, %a, %t) {infeed = [@fed], programs = [[@rest], [@half]]}
      : (!stablehlo.token, tensor<2xf32>, !stablehlo.token) -> (tensor<2xf32>, !stablehlo.token, !stablehlo.token)
    check.expect_eq_const %r#0, dense<[20.0, 400.0]> : tensor<2xf32>
    func.return
  }
"""


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_processes_that_run_different_programs(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kind(DIFFERENT, "parallel", backend) == ""
    assert kind(DIFFERENT.replace("20.0, 400.0", "20.0, 401.0"), "parallel", backend) == "wrong"
    monkeypatch.setattr("tools.conformance.host_side.SECONDS", 0.2)
    alone = perform(
        Program("own", "p", "parallel", DIFFERENT.replace("handle = 5, type = 2", "handle = 6, type = 2")), backend
    )
    assert alone[0] and "nothing came through channel '5' in 0.2 s" in alone[1]
    unfed = perform(Program("own", "p", "parallel", DIFFERENT.replace("infeed = [@fed], ", "")), backend)
    assert unfed[0] and "nothing came through channel 'infeed'" in unfed[1]
    assert not hlojit.channel(5)._sends and not len(hlojit.channel(5)), "the channels are as they were"


def misbehave(program: Program, backend: str) -> tuple[str, str]:
    """A task in whose hands processes die, hang and answer."""
    if program.name == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if program.name == "leaves":
        os._exit(3)
    if program.name == "hangs":
        time.sleep(1000)
    return ("wrong", "as told") if program.name == "wrong" else ("", "")


@pytest.mark.slow
def test_crashes_and_hangs_are_named_and_the_rest_goes_on() -> None:
    names = ["right", "dies", "wrong", "hangs", "leaves", *(f"right {number}" for number in range(5))]
    found = {
        outcome.program.name: outcome
        for outcome in outcomes([Program("own", name, "run") for name in names], misbehave, "cpu", workers=2, limit=1.5)
    }
    assert {name: outcome.kind for name, outcome in found.items() if outcome.kind} == {
        "dies": "crash",
        "wrong": "wrong",
        "hangs": "hang",
        "leaves": "crash",
    }
    assert len(found) == len(names)
    assert (
        "SIGSEGV" in found["dies"].reason
        and "exit status 3" in found["leaves"].reason
        and "1.5 s" in found["hangs"].reason
    )


def test_suites_of_a_checkout(tmp_path: Path) -> None:
    folder = tmp_path / "stablehlo" / "tests"
    (folder / "interpret").mkdir(parents=True)
    (folder / "interpret" / "double.mlir").write_text(f"// RUN: x\n{RIGHT}\n// -----\n// nothing\n// -----\n{RIGHT}")
    (folder / "ops.mlir").write_text(f"{RIGHT}// -----\n// expected-error @+1 {{{{no}}}}\nfunc.func @f()")
    assert [program.name for program in programs_of("interpret", tmp_path)] == [
        "tests/interpret/double.mlir#0",
        "tests/interpret/double.mlir#2",
    ]
    assert [program.name for program in programs_of("errors", tmp_path)] == ["tests/ops.mlir#1"]
    assert len(list(programs_of("parse", tmp_path))) == 3
    with pytest.raises(FileNotFoundError, match="no checkout"):
        list(programs_of("parse", folder))


def test_reading_text() -> None:
    assert without_comments('a "//b" // c\nd') == 'a "//b" \nd'
    assert split_list('tensor<2x!quant.uniform<i8:f32, 0.1>>, (i32) -> i32, "a,b", [1, 2]') == [
        "tensor<2x!quant.uniform<i8:f32, 0.1>>",
        "(i32) -> i32",
        '"a,b"',
        "[1, 2]",
    ]
    assert len(split_modules("a\n// -----\nb\n  // -----  \nc")) == 3
    text = "func.func private @d(i32) func.func @m(%a: tensor<i32> {x = 1}) -> (tensor<2xi1> {y = {}}, !stablehlo.token) { return }"
    (found,) = functions(text)
    assert (found.argument_types(), found.result_types()) == (["tensor<i32>"], ["tensor<2xi1>", "!stablehlo.token"])
    assert found.argument_names() == ["%a"]


@pytest.mark.parametrize(
    "line, rule",
    [
        ("check.expect_almost_eq %a, %b, tolerance = 0.5 : tensor<f64>", Check("absolute", 0, 1, tolerance=0.5)),
        (
            "check.expect_almost_eq_const %a, dense<1.0> : tensor<f64> {tolerance = 0.1 : f64}",
            Check("absolute", 0, 1, tolerance=0.1),
        ),
        (
            '"check.expect_eq_const"(%a) <{value = dense<1.0> : tensor<f64>}> : (tensor<f64>) -> ()',
            Check("equal", 0, 1),
        ),
        (
            "check.expect_close %a, %b, max_ulp_difference = 5, min_ulp_difference = 2 : tensor<f64>, tensor<f64>",
            Check("ulp", 0, 1, least=2, most=5),
        ),
        (
            "%c = stablehlo.custom_call @check.eq(%a, %b) : (tensor<f64>, tensor<f64>) -> tensor<i1>",
            Check("absolute", 0, 1, tolerance=1e-4),
        ),
    ],
)
def test_forms_of_checks(line: str, rule: Check) -> None:
    ((text, checks),) = checked(f"func.func @f(%a: tensor<f64>, %b: tensor<f64>) {{\n  {line}\n  return\n}}")
    assert checks == (rule,)
    assert "check" not in text and "-> (tensor<f64>, tensor<f64>)" in text


def test_distances() -> None:
    one = np.array([1.0, -0.0, np.nan, np.inf, 1e-45, np.inf], "f4")
    other = np.array([np.nextafter(np.float32(1), np.float32(2)), 0.0, -np.nan, np.inf, -1e-45, 3e38], "f4")
    assert ulp_distance(one, other).tolist() == [1, 0, 0, 0, 2, FAR]
    half = np.array([1.0], ml_dtypes.bfloat16)
    assert ulp_distance(half, np.array([1.0078125], ml_dtypes.bfloat16)).tolist() == [1]
    small = np.array([1.0, -0.5], ml_dtypes.float4_e2m1fn)
    assert ulp_distance(small, np.array([1.5, 0.5], ml_dtypes.float4_e2m1fn)).tolist() == [1, 2]
    assert ulp_distance(np.array([1 + 2j]), np.array([1 + 2j])).tolist() == [[0, 0]]
    for one, other in ((1.0, 2.0), (1 + 2j, 1 + 3j)):
        scalars = np.array(one), np.array(other)
        for found in (differs(Check("ulp", 0, 1, most=3), *scalars), differs_by(Tolerance(4, "so"), *scalars)):
            assert re.search(rf"{other if other == 2.0 else 3.0} at .*; 1 of", found), found
    assert differs(Check("equal", 0, 1), np.zeros(2, "f4"), np.zeros(2, "f8")) == "float32[2] for float64[2]"


def test_tables(tmp_path: Path) -> None:
    program = Program("own", "b", "run", RIGHT)
    found = {
        "own": [
            Outcome(program, ops=program.ops()),
            Outcome(Program("own", "a", "run"), "so", "wrong", ops=("stablehlo.add",)),
        ]
    }
    report.write(tmp_path, "cpu", found)
    assert "| own | 1 | 2 | 1 wrong |" in (tmp_path / "summary.md").read_text()
    assert "| `stablehlo.add` | 1/2 |" in (tmp_path / "ops.md").read_text()
    assert (tmp_path / "failures-own.txt").read_text() == "a: wrong: so\n"
    report.keep(tmp_path, "own", found["own"])
    report.keep(tmp_path, "other", found["own"][:1])
    again = report.kept(tmp_path, "cpu", ("other", "missing", "own"))
    assert list(again) == ["other", "own"]
    assert [(each.program.name, each.kind, each.ops) for each in again["own"]] == [
        (each.program.name, each.kind, each.ops) for each in found["own"]
    ]
    (tmp_path / "outcomes-cut.json").write_text('{"every": 1, "outcomes": [["a"')
    (tmp_path / "outcomes-old.json").write_text('[["a", "", "", 0.0, []]]')
    assert report.kept(tmp_path, "cpu", ("cut", "old")) == {}
    report.keep(tmp_path / "partial" / "cuda", "own", found["own"], every=4)
    report.keep(tmp_path / "cpu", "own", found["own"][:1])
    text = page.page(tmp_path, ("own",))
    assert "| suite | CPU | `cuda`, simulated |" in text and "| own | 1/1 | 1/2 (one of 4) |" in text
    assert (
        "| `stablehlo/a` | `cuda`, simulated | **a defect**: wrong: so |" in text
        and "| `stablehlo.add` | 1/1 |" in text
    )
    report.write(tmp_path, "cpu", again)
    assert "| other | 1 | 1 |  |\n| own | 1 | 2 | 1 wrong |" in (tmp_path / "summary.md").read_text()


def test_reasons_hold_for_one_kind_of_failure_on_the_back_ends_that_they_name(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        ("own", "a"): Reason("so it is"),
        ("own", "b"): Reason("no host", kind="unsupported", backends=("cuda",)),
    }
    monkeypatch.setattr("tools.conformance.reasons.REASONS", rows)

    def reason(name: str, kind: str, backend: str) -> str:
        return explained(Outcome(Program("own", name, "run"), "", kind), backend).cannot_pass

    assert reason("a", "wrong", "cpu") == reason("a", "wrong", "cuda") == "so it is"
    assert reason("a", "", "cpu") == reason("a", "crash", "cpu") == reason("c", "wrong", "cpu") == ""
    assert reason("b", "unsupported", "cuda") == "no host"
    assert reason("b", "unsupported", "cpu") == reason("b", "wrong", "cuda") == ""
    known = Outcome(Program("own", "b", "run"), "", "wrong", cannot_pass="so it is")
    assert not known.passed and not known.is_failure and report.summary("own", [known]) == "own: 0/1 (1 with a reason)"


@pytest.mark.parametrize(
    "line, message",
    [
        ("", "say where a checkout"),
        ("--jax --suite math", "say where a checkout"),
        ("--stablehlo nowhere", "no checkout"),
        ("--stablehlo CHECKOUT", "no programs of the suite testdata"),
        ("--stablehlo CHECKOUT --suite parse --filter nobody", "no program of parse is left by --filter 'nobody'"),
        ("--stablehlo CHECKOUT --suite parse --first 9", "no program of parse is left"),
        ("--stablehlo CHECKOUT --suite parse --backend nope", "unknown back end 'nope'"),
        ("--stablehlo CHECKOUT --suite parse --filter (", "'(' is no regular expression"),
        ("--stablehlo CHECKOUT --every 0", "expected a number from 1 on, found '0'"),
        ("--stablehlo CHECKOUT --limit -1", "expected seconds, more than 0"),
    ],
)
def test_what_cannot_be_run_is_said_and_nothing_is_written(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "checkout" / "stablehlo" / "tests"
    folder.mkdir(parents=True)
    (folder / "ops.mlir").write_text(RIGHT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["conformance", *line.replace("CHECKOUT", "checkout").split()])
    try:
        code: object = command.main()
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "build").exists()
