"""``check_pass`` finds passes that change what programs mean, and shows each by a small program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import hlojit
import hlojit.extensions as ext
import pytest
from hlojit import testing
from hlojit.extensions import Pass
from hlojit.ir import Builder
from hlojit.ir.passes.algebraic_simplifier import AlgebraicSimplifier
from hlojit.ir.passes.common_subexpression_elimination import CommonSubexpressionElimination
from hlojit.testing import passes
from hlojit.testing.corpus import of_module

from .plugins import expect, plugin


@dataclass(frozen=True)
class Changing(Pass):
    """Does ``kind`` of harm to every subtraction."""

    name: ClassVar[str] = "kit-changing"
    phase: ClassVar[str] = "before-fusion"
    kind: str = "swap"

    def run(self, module: Any) -> bool:
        found = [each for each in module.walk() if each.name == "stablehlo.subtract"]
        for subtract in found:
            if self.kind == "swap":
                subtract.operands = subtract.operands[::-1]
            elif self.kind == "silent":
                builder = Builder.in_front_of(subtract)
                subtract.replace_with([builder.subtract(*subtract.operands)])
                builder.negate(subtract.operands[0]) if subtract.operands else None
            elif self.kind == "invalid":
                subtract.attributes["comparison_direction"] = "LT"
            elif self.kind == "raise":
                raise ValueError("not a subtraction")
            elif self.kind == "zero":
                # x - x is 0: not for NaN and infinities.
                x, y = subtract.operands
                if x is y:
                    subtract.replace_with([Builder.in_front_of(subtract).constant(0, subtract.result.tensor_type)])
        return bool(found) and self.kind != "silent"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("swap", ("wrong: result", "stablehlo.subtract", "Changing(kind='swap').run(module)")),
        ("invalid", ("leaves an invalid program", "comparison_direction")),
        ("raise", ("ValueError: not a subtraction",)),
    ],
)
def test_harm_is_found_and_shown(kind: str, words: tuple[str, ...]) -> None:
    report = testing.check_pass(Changing(kind), budget="smoke")
    expect(report, *words)
    assert min(len(finding.program.splitlines()) for finding in report.findings) <= 16


def test_a_pass_that_hides_a_change() -> None:
    @dataclass(frozen=True)
    class Hiding(Changing):
        def run(self, module: Any) -> bool:
            for each in [each for each in module.walk() if each.name == "stablehlo.add"]:
                each.operands = each.operands[::-1]
            return False

    expect(testing.check_pass(Hiding(), budget="smoke"), "returned False")


def test_special_values_tell_what_ordinary_ones_do_not() -> None:
    text = "func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {\n  %0 = stablehlo.subtract %x, %x : tensor<64xf32>\n  return %0 : tensor<64xf32>\n}"
    program = of_module("difference", hlojit.parse(text))
    expect(testing.check_pass(Changing("zero"), [program], budget="smoke"), "expected nan")


@pytest.mark.parametrize(
    "pass_", [AlgebraicSimplifier(effect="exact", fold_limit=64), CommonSubexpressionElimination()], ids=str
)
def test_hlojits_own_keep_every_bit(pass_: Pass) -> None:
    report = testing.check_pass(pass_, effect="exact", budget="quick").raise_if_failed()
    assert len({each.name for each in report.results if each.status.compared}) >= 4


def test_an_unknown_effect_is_named() -> None:
    with pytest.raises(hlojit.HlojitError, match="exact, permitted, approximates"):
        testing.check_pass(Changing(), effect="some")


@dataclass(frozen=True)
class Reciprocal(Pass):
    """Divisions become products with a reciprocal, which is rounded on its own."""

    name: ClassVar[str] = "kit-reciprocal"
    phase: ClassVar[str] = "before-fusion"
    numeric_effect: ClassVar[str] = "approximates"
    error_bound: ClassVar[float] = 1e-6
    digits: int = 0

    def run(self, module: Any) -> bool:
        found = [each for each in module.walk() if each.name == "stablehlo.divide"]
        for divide in found:
            x, y = divide.operands
            builder = Builder.in_front_of(divide)
            one = builder.constant(1.0 + 10.0**-self.digits if self.digits else 1.0, y.tensor_type)
            divide.replace_with([builder.multiply(x, builder.divide(one, y))])
        return bool(found)


DIVISION = """func.func @main(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.abs %y : tensor<64xf32>
  %1 = stablehlo.constant dense<1.5> : tensor<64xf32>
  %2 = stablehlo.add %0, %1 : tensor<64xf32>
  %3 = stablehlo.divide %x, %2 : tensor<64xf32>
  return %3 : tensor<64xf32>
}"""


def test_a_pass_is_held_to_the_effect_that_it_declares() -> None:
    report = testing.check_pass(Reciprocal(), [DIVISION], budget="smoke").raise_if_failed()
    assert report.settings["effect"] == "approximates, within 1e-06"
    expect(testing.check_pass(Reciprocal(), [DIVISION], effect="exact", budget="smoke"), "wrong: result")
    expect(testing.check_pass(Reciprocal(digits=4), [DIVISION], budget="smoke"), "wrong: result")
    testing.check_pass(Reciprocal(digits=4), [DIVISION], error_bound=1e-3, budget="smoke").raise_if_failed()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"numeric_effect": "some"}, "numeric_effect = 'some'; effects are exact, permitted, approximates"),
        ({"numeric_effect": "approximates"}, "say by how much"),
        ({"numeric_effect": "exact", "error_bound": 0.5}, "only what approximates"),
        ({"error_bound": "small"}, "expected a number"),
    ],
)
def test_declared_effects_are_looked_at(fields: dict[str, Any], message: str) -> None:
    kind = type("Declared", (Changing,), {"numeric_effect": "", "error_bound": 0.0} | fields)
    with pytest.raises(hlojit.HlojitError, match=message), ext.using(plugin("kit-declared", passes=[kind()])):
        pass


def test_a_pass_that_never_ends_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Endless(Changing):
        def run(self, module: Any) -> bool:
            while True:
                pass

    monkeypatch.setattr(passes, "MOST_SECONDS", 0.2)
    report = testing.check_pass(Endless(), [DIVISION], budget="smoke")
    expect(report, "raises: PluginError", "had not ended after 0.2 s")


def test_a_pass_that_is_wrong_of_one_element_type() -> None:
    @dataclass(frozen=True)
    class Narrow(Changing):
        def run(self, module: Any) -> bool:
            found = [each for each in module.walk() if each.name == "stablehlo.multiply"]
            for each in found:
                builder = Builder.in_front_of(each)
                is_wrong = each.result.tensor_type.element_type.name == "bf16"
                each.replace_with([(builder.add if is_wrong else builder.multiply)(*each.operands[::-1])])
            return bool(found)

    report = testing.check_pass(Narrow(), budget="smoke")
    expect(report, "wrong: result", "bf16")
    assert all("bf16" in finding.program for finding in report.findings)


def test_a_pass_that_is_not_the_same_every_time() -> None:
    @dataclass(frozen=True)
    class Moody(Changing):
        runs: ClassVar[list[int]] = []

        def run(self, module: Any) -> bool:
            self.runs.append(1)
            return len(self.runs) % 2 == 1 and super().run(module)

    expect(testing.check_pass(Moody(), budget="smoke"), "wrong: result")
