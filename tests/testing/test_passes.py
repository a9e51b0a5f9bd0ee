"""``check_pass`` finds passes that change what programs mean, and shows each by a small program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import hlojit
import pytest
from hlojit import testing
from hlojit.extensions import Pass
from hlojit.ir import Builder
from hlojit.ir.passes.algebraic_simplifier import AlgebraicSimplifier
from hlojit.ir.passes.common_subexpression_elimination import CommonSubexpressionElimination
from hlojit.testing.corpus import of_module

from .plugins import expect


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
    report = testing.check_pass(pass_, budget="smoke").raise_if_failed()
    assert report.counts["passed"] > 30


def test_a_pass_that_reaches_nothing_is_said() -> None:
    @dataclass(frozen=True)
    class Idle(Changing):
        def run(self, module: Any) -> bool:
            return False

    report = testing.check_pass(Idle(), budget="smoke")
    assert report.ok
    assert report.counts["skipped"] == 1
    with pytest.raises(hlojit.HlojitError, match="exact, permitted, approximates"):
        testing.check_pass(Idle(), effect="some")
