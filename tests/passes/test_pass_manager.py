"""The pass manager: order, text form, verification and containment of third-party passes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hlojit.ir.errors import HlojitError, PluginError
from hlojit.ir.graph import Module
from hlojit.ir.passes.pass_manager import Pass, PassEvent, PassPipeline, order_passes
from hlojit.ir.passes.pipeline_text import parse_pipeline
from hlojit.ir.passes.registry import BUILTIN_PASSES, default_passes, known_passes
from hlojit.ir.text.parser import parse_module
from hlojit.ir.types import tensor

PROGRAM = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.negate %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


@dataclass(frozen=True)
class Nothing(Pass):
    """Changes nothing."""

    name: ClassVar[str] = "nothing"
    label: str = ""

    def run(self, module: Module) -> bool:
        return False


def made(name: str, phase: str = "simplify", before: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> Pass:
    kind = type(name, (Nothing,), {"name": name, "phase": phase, "before": before, "after": after})
    return kind()


def names(pipeline: PassPipeline) -> list[str]:
    return [pass_.name for pass_ in pipeline.passes]


def test_order_is_by_phase_then_constraints_then_name() -> None:
    passes = [
        made("z", "import"),
        made("b"),
        made("a", after=("b",)),
        made("c"),
        made("d", before=("b",)),
        made("f", "fusion"),
    ]
    expected = ["z", "c", "d", "b", "a", "f"]
    assert names(order_passes(passes)) == expected
    assert names(order_passes(reversed(passes))) == expected


@pytest.mark.parametrize("name", ["aaa", "n", "zzz"])
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((), (), ["f", "g", "h", "?"]),
        (("g",), (), ["f", "?", "g", "h"]),
        (("f",), (), ["?", "f", "g", "h"]),
        ((), ("f",), ["f", "g", "h", "?"]),
        (("h",), ("g",), ["f", "g", "?", "h"]),
        (("f",), ("h",), ["g", "h", "?", "f"]),
    ],
)
def test_what_a_plugins_name_is_says_nothing_about_its_place(
    name: str, before: tuple[str, ...], after: tuple[str, ...], expected: list[str]
) -> None:
    passes = [made("h"), made(name, before=before, after=after), made("g"), made("f")]
    ordered = names(order_passes(passes, {name: "hlojit-nova 0.1.0"}))
    assert ordered == [name if each == "?" else each for each in expected]


def test_plugins_passes_that_name_each_other_stand_before_what_the_last_has_to_be_before() -> None:
    passes = [made("own"), made("also"), made("x", after=("y",), before=("own",)), made("y"), made("a")]
    assert names(order_passes(passes, dict.fromkeys("axy", "nova"))) == ["also", "y", "x", "own", "a"]


def test_order_names_the_passes_of_a_circle() -> None:
    with pytest.raises(HlojitError, match=r"form a circle: a, b"):
        order_passes([made("a", after=("b",)), made("b", after=("a",)), made("c")])


def test_order_names_an_unknown_phase() -> None:
    with pytest.raises(HlojitError, match=r"'a' names the phase 'later'"):
        order_passes([made("a", "later")])


def test_default_order() -> None:
    ordered = names(order_passes(default_passes()))
    assert ordered[:3] == ["tuple-legalizer", "block-operands", "block-signature"]
    assert ordered[3:7] == ["token-removal", "call-inliner", "stochastic-rounding", "op-expander"]
    assert ordered[7:10] == ["type-legalizer", "exact-arithmetic", "algebraic-simplifier"]
    assert ordered[-2:] == ["instruction-fusion", "latency-hiding-scheduler"]
    assert ordered[-4:-2] == ["dead-code-elimination", "exact-arithmetic"], (
        "what vendors' passes before fusion leave unused is not compiled"
    )
    assert ordered.index("while-loop-simplifier") < ordered.index("common-subexpression-elimination")


def test_parse_pipeline_reads_names_aliases_and_options() -> None:
    pipeline = parse_pipeline("canonicalize{effect=exact fold_limit=7}, cse,while-loop-simplifier{hoist=false}")
    assert str(pipeline) == (
        "algebraic-simplifier{effect=exact fold_limit=7},common-subexpression-elimination,"
        "while-loop-simplifier{hoist=false}"
    )
    assert str(parse_pipeline(str(pipeline))) == str(pipeline)
    assert parse_pipeline("").passes == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "unknown pass 'nonsense'; known: algebraic-simplifier"),
        ("cse{a=1}", "has no option 'a'; it has none"),
        ("fold{limit=many}", "option 'limit' of pass 'constant-folding': 'many' is not an int"),
        ("while-loop-simplifier{hoist=2}", "'2' is not a bool"),
        ("cse;dce", "cannot read the pass pipeline at 'cse;dce'"),
    ],
)
def test_parse_pipeline_errors(text: str, message: str) -> None:
    with pytest.raises(HlojitError) as caught:
        parse_pipeline(text)
    assert message in str(caught.value)


def test_option_values_are_checked_when_the_pass_runs() -> None:
    for text in ("canonicalize{effect=none}", "canonicalize{disable=no_such_rule}"):
        with pytest.raises(HlojitError, match=r"algebraic-simplifier"):
            parse_pipeline(text).run(parse_module(PROGRAM))


def test_a_disabled_rule_does_not_fire() -> None:
    text = PROGRAM.replace("return %0", "%1 = stablehlo.negate %0 : tensor<4xf32>\n  return %1")
    module = parse_module(text)
    assert not parse_pipeline("canonicalize{disable=negate_negated}").run(module)
    assert parse_pipeline("canonicalize").run(module)


def test_callback_is_told_about_every_pass() -> None:
    events: list[PassEvent] = []
    parse_pipeline("dce,cse").run(parse_module(PROGRAM), callback=events.append)
    assert [(event.index, event.pass_.name, event.changed) for event in events] == [
        (0, "dead-code-elimination", False),
        (1, "common-subexpression-elimination", False),
    ]
    assert all(event.seconds >= 0 for event in events)


BAD = {"vandal": "bad-vendor", "thrower": "bad-vendor"}


@dataclass(frozen=True)
class Vandal(Pass):
    """A vendor's pass that leaves an invalid program: an operand of another type."""

    name: ClassVar[str] = "vandal"

    def run(self, module: Module) -> bool:
        module.main.result_types[0] = tensor((5,), "f32")
        return True


@dataclass(frozen=True)
class Thrower(Pass):
    """A vendor's pass that raises."""

    name: ClassVar[str] = "thrower"

    def run(self, module: Module) -> bool:
        raise KeyError("lost")


def test_an_invalid_result_of_a_third_party_pass_names_the_package() -> None:
    with pytest.raises(PluginError, match=r"pass 'vandal' \(bad-vendor\) left an invalid program behind"):
        PassPipeline((Vandal(),), BAD).run(parse_module(PROGRAM))
    PassPipeline((Vandal(),), BAD).run(parse_module(PROGRAM), verify="never")


def test_an_exception_in_a_third_party_pass_names_the_package() -> None:
    with pytest.raises(PluginError, match=r"pass 'thrower' \(bad-vendor\): run raised KeyError"):
        PassPipeline((Thrower(),), BAD).run(parse_module(PROGRAM))


def test_built_in_passes_have_docstrings_with_an_example() -> None:
    for kind in BUILTIN_PASSES:
        text = sys.modules[kind.__module__].__doc__ or ""
        assert "=>" in text, f"{kind.name}: the module docstring shows no before and after"
        assert known_passes()[kind.name] is kind
