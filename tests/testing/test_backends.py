"""``check_backend`` and ``check_kernel``: what lies, loses, races or is wrong in the last block is found."""

from __future__ import annotations

import time
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit import testing
from hlojit.extensions.functions.array_functions import ArrayFunction
from hlojit.extensions.kernels.kernel import Declined, Kernel, OpPattern

from .formats import plain
from .plugins import TINY, Device, expect, plugin


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", "off")


def report_on(device: ext.Backend) -> testing.Report:
    with ext.using(plugin("kit-device", backends=[device])):
        return testing.check_backend(device.name, budget=TINY)


def test_a_device_conforms() -> None:
    report = report_on(Device()).raise_if_failed()
    groups = {result.group for result in report.results}
    assert groups == {
        "real programs",
        "attributes",
        "element types",
        "random programs",
        "answers",
        "edges",
        "arrays",
        "threads",
    }
    assert report.timings


class NoReverse(Device):
    """Takes branches, and not all that they may hold."""

    def capability(self, instruction: Any) -> ext.Capability:
        return (
            ext.no("it reads forwards") if instruction.name == "stablehlo.reverse" else super().capability(instruction)
        )


def test_a_loop_or_branch_is_one_answer_and_what_it_holds_another() -> None:
    report = report_on(NoReverse()).raise_if_failed()
    details = [each.detail for each in report.results if each.name.startswith("stablehlo.case")]
    assert any("what it holds is refused" in each and "it reads forwards" in each for each in details), details


class Lying(Device):
    """Says that it sorts."""

    def compile(self, module: Any, options: Any) -> Any:
        for each in module.walk():
            if each.name == "stablehlo.sort":
                raise hlojit.UnsupportedError(each.name, self.name, "there is no sorter after all")
        return super().compile(module, options)


class Mute(Device):
    """Says no without a reason."""

    def capability(self, instruction: Any) -> ext.Capability:
        if instruction.name == "stablehlo.sort":
            return ext.Capability(ext.Support.NO)
        return super().capability(instruction)


class Dividing(Device):
    """Wants in parts what has none."""

    def capability(self, instruction: Any) -> ext.Capability:
        return ext.DECOMPOSE if instruction.name == "stablehlo.multiply" else super().capability(instruction)


class Forgetful(Device):
    """Keeps the program of the last compilation in the back end."""

    def compile(self, module: Any, options: Any) -> Any:
        from hlojit.ir import evaluate

        self.last = module

        def run(*arrays: Any) -> Any:
            time.sleep(0.001)
            return [np.array(each) for each in evaluate(self.last, *arrays)]

        return run

    hlojit_runtime = ("_host_devices", "last")


class Lending(Device):
    """Gives arguments back as results."""

    def compile(self, module: Any, options: Any) -> Any:
        run = super().compile(module, options)
        names = list(module.main.body.arguments)
        lent = [names.index(value) if value in names else None for value in module.main.body.returned]
        return lambda *arrays: [result if place is None else arrays[place] for result, place in zip(run(*arrays), lent)]


class Losing(Device):
    """A scatter keeps the last update of a place and forgets the others."""

    name = "kit-losing"

    def compile(self, module: Any, options: Any) -> Any:
        changed = module.clone()
        for each in changed.walk():
            if each.name == "stablehlo.scatter":
                each.regions[0].terminator.operands = (each.regions[0].arguments[1],)
        return super().compile(changed, options)


class Remembering(Device):
    """Gives the results of its first call, again and again."""

    def compile(self, module: Any, options: Any) -> Any:
        run = super().compile(module, options)
        first: list[Any] = []
        return lambda *arrays: [each.copy() for each in (first or [first.extend(run(*arrays)), first][1])]


class Narrow(Device):
    """Has 32 bits for integers of 64."""

    def compile(self, module: Any, options: Any) -> Any:
        run = super().compile(module, options)
        return lambda *arrays: [x.astype("i4").astype("i8") if x.dtype == "i8" else x for x in run(*arrays)]


class Hasty(Device):
    """Goes round a loop once more."""

    def compile(self, module: Any, options: Any) -> Any:
        changed = module.clone()
        for each in changed.walk():
            if each.name == "stablehlo.compare" and each.block is not changed.main.body and not each.result.type.shape:
                each.attributes["comparison_direction"] = "LE"
        return super().compile(changed, options)


class Moody(Device):
    """Answers otherwise each time."""

    asked = 0
    hlojit_runtime = ("_host_devices", "asked")

    def capability(self, instruction: Any) -> ext.Capability:
        self.asked += 1
        if instruction.name == "stablehlo.tanh" and self.asked % 2:
            return ext.no("tired")
        return super().capability(instruction)


@pytest.mark.parametrize(
    ("device", "words"),
    [
        (Remembering(), ("with other arguments",)),
        (Narrow(), ("numbers of ui32",)),
        (Hasty(), ("a count", "stablehlo.while")),
        (Moody(), ("answers stablehlo.tanh once",)),
        (Lying(), ("answers YES to stablehlo.sort and then refuses it",)),
        (Mute(), ("answers no to stablehlo.sort without a reason",)),
        (Dividing(), ("answers DECOMPOSE to stablehlo.multiply", "no expansion")),
        (Forgetful(), ("threads at once",)),
        (Losing(), ("embedding", "stablehlo.scatter")),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, ext.Backend) else "",
)
def test_what_a_device_gets_wrong(device: ext.Backend, words: tuple[str, ...]) -> None:
    expect(report_on(device), *words)


def test_a_scatter_that_loses_updates_shows_in_a_format() -> None:
    with ext.using(plugin("kit-losing", backends=[Losing()])):
        report = testing.check_format(plain(), backends=["kit-losing"], groups=["scatter"], budget=TINY)
    expect(report, "maximum on kit-losing")


def test_a_back_end_that_is_not_there_is_named() -> None:
    with pytest.raises(hlojit.HlojitError, match="kit-nowhere"):
        testing.check_backend("kit-nowhere")


# ---------------------------------------------------------------------- kernels


def negated(x: Any, result: Any) -> None:
    for i in range(x.size):
        result[i] = -x[i]


def negated_but_the_rest(x: Any, result: Any) -> None:
    for i in range(x.size):
        result[i] = x[i]
    for i in range(x.size // 16 * 16):
        result[i] = -x[i]


def kernel(function: Any) -> Kernel:
    def build(group: Any) -> Any:
        (kind,) = group.operand_types
        if kind.rank != 1 or kind.element_type.name != "f32":
            return Declined("a vector of f32 is wanted")
        return ArrayFunction(function)

    return Kernel("kit.negate", backend="cpu", pattern=OpPattern("stablehlo.negate"), build=build)


def test_a_kernel_conforms() -> None:
    report = testing.check_kernel(kernel(negated), budget=TINY).raise_if_failed()
    assert report.counts["passed"] > 5


def test_a_kernel_that_forgets_the_last_partial_block() -> None:
    report = testing.check_kernel(kernel(negated_but_the_rest), budget=TINY)
    expect(report, "on cpu", "stablehlo.negate")
    passed = {
        result.name for result in report.results if result.status is testing.Status.PASSED and result.group == "results"
    }
    assert passed, "whole blocks are right"


def test_programs_may_be_given_and_are_tried_in_other_sizes() -> None:
    text = "func.func @main(%x: tensor<32xf32>) -> tensor<32xf32> {\n  %0 = stablehlo.negate %x : tensor<32xf32>\n  return %0 : tensor<32xf32>\n}"
    report = testing.check_kernel(kernel(negated_but_the_rest), [text], budget=TINY)
    results = {result.name: result.status for result in report.results}
    assert results["program 0"] is testing.Status.PASSED
    assert results["program 0, 33 for 32"] is testing.Status.FAILED


def test_a_kernel_that_declines_everything_is_said() -> None:
    declining = Kernel(
        "kit.no", backend="cpu", pattern=OpPattern("stablehlo.negate"), build=lambda group: Declined("no time")
    )
    expect(testing.check_kernel(declining, budget=TINY), "no time")
    nowhere = Kernel(
        "kit.no", backend="cpu", pattern=OpPattern("stablehlo.fft"), build=lambda group: Declined("no time")
    )
    assert testing.check_kernel(nowhere, budget=TINY).verdict == "not shown"


def larger(x: Any, y: Any, result: Any) -> None:
    for i in range(x.size):
        result[i] = x[i] if x[i] > y[i] else y[i]


def test_a_kernel_for_which_nan_is_a_number() -> None:
    def build(group: Any) -> Any:
        kind = group.operand_types[0]
        return (
            ArrayFunction(larger) if kind.rank == 1 and kind.element_type.name == "f32" else Declined("f32 is wanted")
        )

    wrong = Kernel("kit.larger", backend="cpu", pattern=OpPattern("stablehlo.maximum"), build=build)
    expect(testing.check_kernel(wrong, budget=TINY), "expected nan")
