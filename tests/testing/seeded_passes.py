"""Passes that do harm, each in its own way: the kit has to find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hlojit import testing
from hlojit.extensions import Pass
from hlojit.ir import Builder
from hlojit.ir.graph import Instruction, Module

Check = Callable[[], testing.Report]


@dataclass(frozen=True)
class Rewriting(Pass):
    """Gives instructions of an op another meaning."""

    name: ClassVar[str] = "kit-rewriting"
    phase: ClassVar[str] = "before-fusion"
    op: str = ""
    rule: Callable[[Builder, Instruction], Any] = field(default=lambda builder, instruction: None, compare=False)

    def run(self, module: Module) -> bool:
        changed = False
        for each in [each for each in module.walk() if each.name == self.op]:
            made = self.rule(Builder.in_front_of(each), each)
            if made is not None:
                each.replace_with([made])
                changed = True
        return changed


def without_rounding(builder: Builder, convert: Instruction) -> Any:
    """A conversion to a narrow type and back is left out."""
    inner = convert.operands[0].producer
    if inner is None or inner.name != "stablehlo.convert" or inner.operands[0].type is not convert.result.type:
        return None
    return inner.operands[0]


def select_for_maximum(builder: Builder, maximum: Instruction) -> Any:
    x, y = maximum.operands
    return builder.select(builder.compare(x, y, "GT"), x, y)


def plus_zero(builder: Builder, add: Instruction) -> Any:
    """x + 0 is x: not of -0.0."""
    zero = add.operands[1].producer
    is_zero = zero is not None and zero.name == "stablehlo.constant" and not zero.attributes["value"].array.any()
    return add.operands[0] if is_zero else None


def product_with_zero(builder: Builder, multiply: Instruction) -> Any:
    other = multiply.operands[1].producer
    is_zero = other is not None and other.name == "stablehlo.constant" and not other.attributes["value"].array.any()
    return multiply.operands[1] if is_zero else None


def other_order(builder: Builder, add: Instruction) -> Any:
    """(x + y) + z becomes x + (y + z)."""
    inner = add.operands[0].producer
    if inner is None or inner.name != "stablehlo.add":
        return None
    return builder.add(inner.operands[0], builder.add(inner.operands[1], add.operands[1]))


def shift_for_division(builder: Builder, divide: Instruction) -> Any:
    """x / 2 becomes x >> 1: not of negative odd numbers."""
    kind = divide.result.tensor_type
    return builder.shift_right_arithmetic(divide.operands[0], builder.constant(1, kind))


def whole_slice(builder: Builder, cut: Instruction) -> Any:
    """A slice begins one element too early."""
    starts = cut.attributes["start_indices"]
    if not any(starts):
        return None
    x = cut.operands[0]
    limits, strides = cut.attributes["limit_indices"], cut.attributes["strides"]
    earlier = tuple(max(0, start - 1) for start in starts)
    moved = tuple(limit - start + one for limit, start, one in zip(limits, starts, earlier))
    return builder.slice(x, earlier, moved, strides)


def unstable(builder: Builder, sort: Instruction) -> Any:
    sort.attributes["is_stable"] = False
    region = sort.regions[0]
    for each in region:
        if each.name == "stablehlo.compare":
            each.attributes["comparison_direction"] = {"LT": "LE", "GT": "GE"}.get(
                each.attributes["comparison_direction"], each.attributes["comparison_direction"]
            )
    return None


@dataclass(frozen=True)
class WithoutEffects(Pass):
    """Leaves out calls whose results nobody reads, effects and all."""

    name: ClassVar[str] = "kit-without-effects"
    phase: ClassVar[str] = "before-fusion"
    how: str = "erase"

    def run(self, module: Module) -> bool:
        found = [each for each in module.walk() if each.name == "stablehlo.custom_call"]
        if self.how == "erase":
            doomed = [each for each in found if not any(result.users for result in each.results)]
            for each in doomed:
                each.erase()
            return bool(doomed)
        if self.how == "swap" and len(found) > 1:
            first, second = found[:2]
            for name in ("call_target_name",):
                first.attributes[name], second.attributes[name] = second.attributes[name], first.attributes[name]
            return True
        return False


EFFECTS = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @kit.tell(%x) {has_side_effect = true} : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.custom_call @kit.tell_more(%x) {has_side_effect = true} : (tensor<3xf32>) -> tensor<3xf32>
  %2 = stablehlo.abs %x : tensor<3xf32>
  return %2 : tensor<3xf32>
}"""


def program(element: str, *lines: str, arguments: str = "%x") -> str:
    kind = f"tensor<40x{element}>"
    declared = ", ".join(f"{each}: {kind}" for each in arguments.split(", "))
    body = "\n".join(f"  {line.replace('KIND', kind)}" for line in lines)
    return f"func.func @main({declared}) -> {kind} {{\n{body}\n  return %r : {kind}\n}}"


ROUNDING = program(
    "f32",
    "%0 = stablehlo.convert %x : (KIND) -> tensor<40xbf16>",
    "%r = stablehlo.convert %0 : (tensor<40xbf16>) -> KIND",
)
TRUNCATING = program(
    "f32",
    "%0 = stablehlo.convert %x : (KIND) -> tensor<40xi32>",
    "%r = stablehlo.convert %0 : (tensor<40xi32>) -> KIND",
)


def _check(op: str, rule: Any, *programs: str) -> testing.Report:
    return testing.check_pass(Rewriting(op, rule), programs or None, budget="smoke")


PASSES: dict[str, tuple[Check, tuple[str, ...]]] = {
    "a pass that drops a rounding": (
        lambda: _check("stablehlo.convert", without_rounding, ROUNDING),
        ("wrong", "bf16"),
    ),
    "a pass that drops a conversion to integers": (
        lambda: _check("stablehlo.convert", without_rounding, TRUNCATING),
        ("wrong", "i32"),
    ),
    "a pass whose maximum loses NaN": (
        lambda: _check(
            "stablehlo.maximum",
            select_for_maximum,
            program("f32", "%r = stablehlo.maximum %x, %y : KIND", arguments="%x, %y"),
        ),
        ("wrong", "nan"),
    ),
    "a pass that takes -0.0 for 0": (
        lambda: _check(
            "stablehlo.add",
            plus_zero,
            program("f32", "%z = stablehlo.constant dense<0.0> : KIND", "%r = stablehlo.add %x, %z : KIND"),
        ),
        ("wrong", "-0.0"),
    ),
    "a pass for which 0 times all is 0": (
        lambda: _check(
            "stablehlo.multiply",
            product_with_zero,
            program("f32", "%z = stablehlo.constant dense<0.0> : KIND", "%r = stablehlo.multiply %x, %z : KIND"),
        ),
        ("wrong",),
    ),
    "a pass that sums in another order": (
        lambda: _check(
            "stablehlo.add",
            other_order,
            program(
                "f32", "%0 = stablehlo.add %x, %y : KIND", "%r = stablehlo.add %0, %z : KIND", arguments="%x, %y, %z"
            ),
        ),
        ("wrong",),
    ),
    "a pass that shifts for a division": (
        lambda: _check(
            "stablehlo.divide",
            shift_for_division,
            program("i32", "%z = stablehlo.constant dense<2> : KIND", "%r = stablehlo.divide %x, %z : KIND"),
        ),
        ("wrong", "-"),
    ),
    "a pass that slices beside": (lambda: _check("stablehlo.slice", whole_slice), ("wrong", "stablehlo.slice")),
    "a pass that sorts unstably": (lambda: _check("stablehlo.sort", unstable), ()),
    "a pass that leaves out effects": (
        lambda: testing.check_pass(WithoutEffects(), [EFFECTS], budget="smoke"),
        ("effects: effect",),
    ),
    "a pass that changes the order of effects": (
        lambda: testing.check_pass(WithoutEffects("swap"), [EFFECTS], budget="smoke"),
        ("effects: effect",),
    ),
}
