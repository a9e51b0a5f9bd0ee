"""Where plugins' passes run: what they make in the last phase before fusion stays, whatever they are called."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import hlojit
import hlojit.extensions as ext
import pytest
from hlojit.ir import Builder, Module

TEXT = """
func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = stablehlo.add %x, %y : tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
"""


@dataclass(frozen=True)
class Columns(ext.Pass):
    """Sums in the order of columns, between two transposes that cancel each other for whoever simplifies."""

    phase: ClassVar[str] = "before-fusion"

    def run(self, module: Module) -> bool:
        sums = [each for each in module.walk() if each.name == "stablehlo.add" and each.result.type.shape == (4, 8)]
        for each in sums:
            builder = Builder.in_front_of(each)
            turned = [builder.transpose(operand, permutation=(1, 0)) for operand in each.operands]
            back = builder.transpose(builder.add(*turned), permutation=(1, 0))
            # The transposes of a sum of two are the sum of their transposes.
            each.replace_with([builder.transpose(builder.transpose(back, permutation=(1, 0)), permutation=(1, 0))])
        return bool(sums)


def transposes(name: str, **places: tuple[str, ...]) -> int:
    kind = type("Named", (Columns,), {"name": name, **places})
    with ext.using(SimpleNamespace(hlojit_passes=ext.hookimpl(lambda: [kind()]), __name__=name)):
        ran: list[str] = []
        module = hlojit.lower(TEXT, backend="reference", callback=lambda event: ran.append(event.pass_.name))
    assert name in ran
    return sum(each.name == "stablehlo.transpose" for each in module.walk())


@pytest.mark.parametrize("name", ["aaa-columns", "columns", "zzz-columns"])
def test_what_a_pass_makes_before_fusion_stays(name: str) -> None:
    assert transposes(name) == 5


def test_a_pass_that_asks_for_it_is_simplified() -> None:
    assert transposes("columns", before=("algebraic-simplifier",)) < 5
