"""All of a plugin: ``check_plugin``, and ``pytest --pyargs hlojit.testing --plugin=NAME`` as a vendor types it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import pytest
from hlojit import testing
from hlojit.extensions import ElementwiseCall, Kernel, OpPattern

from .plugins import TINY, Device, plugin


def test_each_thing_that_a_plugin_brings_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought = plugin(
        "kit-vendor", custom_calls=[ElementwiseCall("kitvendor.half", function=lambda x: x * 0.5)], backends=[Device()]
    )
    brought.hlojit_cases = cases(monkeypatch, [testing.Case("kitvendor.half", operands=["f32"])])
    with ext.using(brought):
        report = testing.check_plugin("kit-vendor", budget=TINY).raise_if_failed()
    groups = {result.group.partition(":")[0] for result in report.results}
    assert groups == {"kitvendor.half", "kit-device"}
    for ending in ("html", "json", "txt"):
        testing.write_report(report, tmp_path / f"report.{ending}")
    assert testing.Report.from_json((tmp_path / "report.json").read_text()).score == 1.0
    assert "conforms" in (tmp_path / "report.txt").read_text()
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def cases(monkeypatch: pytest.MonkeyPatch, listed: Any) -> str:
    """A module with cases, as a plugin names it."""
    monkeypatch.setitem(sys.modules, "kit_cases", SimpleNamespace(CASES=listed))
    return "kit_cases"


def power(x: float, *, exponent: float) -> float:
    return float(abs(x) ** exponent)


def test_a_plugin_says_how_its_things_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    named = cases(
        monkeypatch,
        [
            testing.Case("kitcases.power", operands=["f32"], config={"exponent": 2.0}, shapes=[(3, 5)]),
            testing.Case("kitcases.power", operands=["f64"], config={"exponent": 0.5}, shapes=[(7,)]),
        ],
    )
    brought = plugin("kit-cases", custom_calls=[ElementwiseCall("kitcases.power", function=power)])
    with ext.using(brought):
        assert testing.check_plugin("kit-cases", budget=TINY).verdict == "not shown", "it needs a configuration"
    brought.hlojit_cases = named
    with ext.using(brought):
        report = testing.check_plugin("kit-cases", budget=TINY).raise_if_failed()
    tried = {(each.group, each.name) for each in report.results}
    assert ("kitcases.power: case 0: kitcases.power(f32)", "alone, 3x5 on cpu") in tried
    assert ("kitcases.power: case 1: kitcases.power(f64)", "alone, 7 on cpu") in tried


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ([testing.Case("kitcases.other")], "cases of kitcases.other, which the plugin does not bring"),
        ([5], "expected a list of hlojit.testing.Case"),
        (None, "expected a list"),
    ],
)
def test_cases_that_are_none_are_said(listed: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    brought = plugin("kit-cases", custom_calls=[ElementwiseCall("kitcases.power", function=power)])
    brought.hlojit_cases = cases(monkeypatch, listed)
    with ext.using(brought), pytest.raises(hlojit.HlojitError, match=message):
        testing.check_plugin("kit-cases", budget=TINY)


def test_what_cannot_be_tried_on_this_machine_is_said_and_nobodys_fault() -> None:
    class Absent(Device):
        name = "kit-absent"

        def unavailable(self) -> str | None:
            return "no such card"

    kernel = Kernel("kit.elsewhere", backend="kit-absent", pattern=OpPattern("stablehlo.abs"), build=lambda group: None)
    with ext.using(plugin("kit-absent", backends=[Absent(), Device()], kernels=[kernel])):
        report = testing.check_plugin("kit-absent", budget=TINY).raise_if_failed()
    assert report.verdict == "conforms as far as shown"
    assert {each.what: "no such card" in each.reason for each in report.missing} == {
        "kit.elsewhere": True,
        "kit-absent": True,
    }


def test_plugins_that_are_not_there_are_named() -> None:
    with pytest.raises(hlojit.HlojitError, match="no plugin 'kit-nobody' is registered; registered are .*cpu"):
        testing.check_plugin("kit-nobody")


VENDOR = """
from hlojit.extensions import ElementwiseCall, hookimpl

hlojit_cases = "kit_vendor_cases"

@hookimpl
def hlojit_custom_calls():
    return [ElementwiseCall("kitpackage.double", function=lambda x: x + x)]
"""


CASES = """
from hlojit.testing import Case

CASES = [Case("kitpackage.double", operands=["f32"], shapes=[(5, 7)])]
"""


WRONG = """
from dataclasses import dataclass
from typing import ClassVar

from hlojit.extensions import Pass

@dataclass(frozen=True)
class Exchange(Pass):
    name: ClassVar[str] = "kit-exchange"
    phase: ClassVar[str] = "before-fusion"

    def run(self, module):
        found = [each for each in module.walk() if each.name == "stablehlo.subtract"]
        for each in found:
            each.operands = each.operands[::-1]
        return bool(found)

@hookimpl
def hlojit_passes():
    return [Exchange()]
"""


def test_the_command_that_a_vendor_types(tmp_path: Path) -> None:
    """A package with an entry point, in a process of its own, with a pass that exchanges operands."""
    (tmp_path / "kit_vendor.py").write_text(VENDOR + WRONG)
    (tmp_path / "kit_vendor_cases.py").write_text(CASES)
    metadata = tmp_path / "kit_vendor-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kit-vendor\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[hlojit]\nkitvendor = kit_vendor\n")
    package = Path(hlojit.__file__).parents[1]
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(map(str, (tmp_path, package))))
    options = ["--plugin=kitvendor", "--hlojit-budget=smoke", "--hlojit-report=report.html", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", "--pyargs", "hlojit.testing", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "kit-exchange" in done.stdout
    assert "stablehlo.subtract" in done.stdout
    page = (folder / "report.html").read_text()
    assert "kitpackage.double" in page
    assert "does not conform" in page


INSTALLED = """
from hlojit.extensions import ElementwiseCall, FloatFormat, OpDefinition, Operand, Pointwise, hookimpl, like_operands

FORMAT = FloatFormat("cold8", bits=8, decode=lambda code: code / 16.0, encode=lambda x: int(min(max(x, 0.0), 15.9) * 16.0))
OP = OpDefinition("cold.same", operands=(Operand("x"),), infer=like_operands, reference=lambda call, x: +x,
                  lowering=Pointwise(lambda b, call, x: x))
CALL = ElementwiseCall("cold.twice", function=lambda x: 2.0 * x)
hlojit_formats, hlojit_ops, hlojit_custom_calls = (hookimpl(lambda each=each: [each]) for each in (FORMAT, OP, CALL))
"""


@pytest.mark.parametrize(
    "check",
    [
        "check_format(cold.FORMAT, budget='smoke', groups=['registering again'])",
        "check_op(cold.OP, operands=['f32'], backends=['reference'], budget='smoke')",
        "check_custom_call(cold.CALL, operands=['f32'], backends=['reference'], budget='smoke')",
    ],
)
def test_what_an_installed_plugin_brings_is_its_own_before_anything_is_loaded(check: str, tmp_path: Path) -> None:
    (tmp_path / "cold.py").write_text(INSTALLED)
    metadata = tmp_path / "hlojit_cold-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hlojit-cold\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text("[hlojit]\ncold = cold\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import cold; from hlojit.testing import *; {check}.raise_if_failed()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
