"""What compared nothing does not conform: the report says what is not shown, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import hlojit
import hlojit.extensions as ext
import pytest
from hlojit import testing
from hlojit.extensions import ArrayCall, ElementwiseCall, ExpansionCall, Kernel, OpPattern, Pass
from hlojit.extensions.kernels.kernel import Declined
from hlojit.ir import tensor
from hlojit.testing import Status
from hlojit.testing.arguments import made_up
from hlojit.testing.comparison import first_difference

from .formats import plain
from .plugins import TINY, Device, plugin


def not_shown(report: testing.Report, *words: str) -> None:
    """The report claims nothing, in all its forms, and says why."""
    assert report.verdict == "not shown", report.text()
    assert not report.ok
    for form in (report.text(), report.html(), report.json()):
        assert "not shown" in form
        assert all(word in form for word in words), form
    with pytest.raises(testing.ConformanceError, match="not shown"):
        report.raise_if_failed()


def raising(x: Any) -> Any:
    raise RuntimeError("not today")


def test_a_call_that_always_raises() -> None:
    call = ArrayCall("kit.raising", function=raising, trust="python", result_types=lambda call: call.operands[0])
    report = testing.check_custom_call(call, operands=["f32"], budget=TINY)
    not_shown(report, "raised", "not today")
    assert report.score == 0.0


def test_a_function_that_raises_for_every_element() -> None:
    def never(x: float) -> float:
        return 1.0 / (x - x)

    report = testing.check_custom_call(
        ElementwiseCall("kit.never", function=never),
        operands=["i32"],
        results=["f32"],
        backends=["cpu"],
        budget=TINY,
    )
    assert any(each.status is Status.RAISED and "every element" in each.detail for each in report.results)
    assert not any(each.status is Status.PASSED and each.name == "alone, 65 on cpu" for each in report.results)


def test_a_call_that_refuses_every_type() -> None:
    def refuse(builder: Any, instruction: Any) -> Any:
        raise ValueError("no such type")

    not_shown(testing.check_custom_call(ExpansionCall("kit.refusing", expand=refuse), budget=TINY), "no such type")


class Refusing(Device):
    """Has nothing."""

    name = "kit-refusing"

    def capability(self, instruction: Any) -> ext.Capability:
        return ext.no("there is no device yet")


def test_a_back_end_that_refuses_everything() -> None:
    with ext.using(plugin("kit-refusing", backends=[Refusing()])):
        not_shown(testing.check_backend("kit-refusing", budget=TINY), "refused", "there is no device yet")


def test_a_format_on_a_back_end_that_refuses_it() -> None:
    with ext.using(plugin("kit-refusing", backends=[Refusing()])):
        report = testing.check_format(plain(), backends=["kit-refusing"], groups=["rounding", "threads"], budget=TINY)
    not_shown(report, "on kit-refusing", "there is no device yet")
    assert report.score == 1.0, "what was compared, without the back end, holds"
    assert 0 < report.coverage < 1


def test_a_back_end_without_one_op_conforms_as_far_as_shown() -> None:
    class Unsorted(Device):
        name = "kit-unsorted"

        def capability(self, instruction: Any) -> ext.Capability:
            if instruction.name == "stablehlo.sort":
                return ext.no("the device does not sort")
            return super().capability(instruction)

    with ext.using(plugin("kit-unsorted", backends=[Unsorted()])):
        report = testing.check_format(plain(), backends=["kit-unsorted"], groups=["sort", "encodings"], budget=TINY)
    assert report.verdict == "conforms as far as shown"
    assert report.ok
    assert [(each.what, "does not sort" in each.reason) for each in report.missing] == [("sort", True)]


@dataclass(frozen=True)
class Idle(Pass):
    """Changes nothing."""

    name: ClassVar[str] = "kit-idle"

    def run(self, module: Any) -> bool:
        return False


@dataclass(frozen=True)
class Exchange(Pass):
    """Exchanges the operands of sums, which changes nothing."""

    name: ClassVar[str] = "kit-exchange"

    def run(self, module: Any) -> bool:
        found = [each for each in module.walk() if each.name == "stablehlo.add"]
        for each in found:
            each.operands = each.operands[::-1]
        return bool(found)


def test_a_pass_that_reaches_nothing() -> None:
    not_shown(testing.check_pass(Idle(), budget=TINY), "leaves the program as it is")


def programs(changed: int, others: int) -> list[str]:
    """Programs with sums, and without."""
    text = "func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {{\n  %0 = stablehlo.{} %x, %y : tensor<4xf32>\n  return %0 : tensor<4xf32>\n}}"
    return [text.format("add")] * changed + [text.format("maximum")] * others


@pytest.mark.parametrize(
    ("changed", "others", "verdict"),
    [
        (1, 0, "conforms"),
        (1, 2, "conforms"),
        (1, 8, "hardly shown"),
        (4, 20, "conforms as far as shown"),
        (0, 2, "not shown"),
    ],
)
def test_what_counts_of_a_pass_is_programs_that_it_changed(changed: int, others: int, verdict: str) -> None:
    report = testing.check_pass(Exchange(), programs(changed, others), budget=TINY)
    assert report.verdict == verdict, report.text()
    assert report.ok == verdict.startswith("conforms")
    assert report.counts["unchanged"] == 4 * others  # twice, with two sets of arguments
    if changed and verdict != "conforms":
        said = f"{2 * others} of {2 * (changed + others)} programs: the pass changed {2 * changed}, whose results were compared"
        assert said in report.text() + report.html()


def test_a_kernel_that_reaches_nothing() -> None:
    nowhere = Kernel("kit.no", backend="cpu", pattern=OpPattern("stablehlo.fft"), build=lambda group: Declined("no"))
    not_shown(testing.check_kernel(nowhere, budget=TINY), "give programs=")


def test_a_plugin_of_which_one_thing_is_not_shown() -> None:
    with ext.using(plugin("kit-half", passes=[Idle(), Exchange()])):
        report = testing.check_plugin("kit-half", budget=TINY)
    not_shown(report, "kit-idle")
    assert [each.what for each in report.missing if each.is_essential] == ["kit-idle"]


def test_reports_of_earlier_versions_are_read() -> None:
    report = testing.check_pass(Idle(), budget=TINY)
    content = json.loads(report.json())
    content["format_version"] = 1
    for each in content["results"]:
        each["status"] = "skipped"
        del each["backend"], each["subject"]
    assert testing.Report.from_json(json.dumps(content)).counts["skipped"] == len(content["results"])
    content["format_version"] = 4
    with pytest.raises(hlojit.HlojitError, match="version 4"):
        testing.Report.from_json(json.dumps(content))


@pytest.mark.parametrize("element", ["f32", "bf16", "complex<f32>", "i32"])
def test_scalars_that_differ_are_shown(element: str) -> None:
    kind = tensor((), element)
    one, two = (made_up(kind, (seed,)) for seed in (1, 2))
    found = first_difference([one], [two], [kind])
    assert found is not None
    assert str(found).startswith("result 0 is ")
