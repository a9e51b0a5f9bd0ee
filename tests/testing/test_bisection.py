"""``bisect`` names who is guilty: each kind of culprit is put in, and found."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit import testing
from hlojit.command import main
from hlojit.ir.builder import Builder
from hlojit.ir.passes import algebraic_simplifier
from hlojit.ir.passes.rules import arithmetic

TEXT = """
func.func @main(%x: tensor<43xf32>, %y: tensor<43xf32>) -> (tensor<43xf32>, tensor<43xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<43xf32>
  %0 = stablehlo.abs %x : tensor<43xf32>
  %1 = stablehlo.subtract %0, %z : tensor<43xf32>
  %2 = stablehlo.multiply %1, %y : tensor<43xf32>
  %3 = stablehlo.maximum %2, %0 : tensor<43xf32>
  return %3, %2 : tensor<43xf32>, tensor<43xf32>
}
"""


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", "off")


def plugin(name: str, **hooks: Any) -> Any:
    return SimpleNamespace(
        __name__=name, **{f"hlojit_{hook}": ext.hookimpl(lambda made=made: made) for hook, made in hooks.items()}
    )


def test_nothing_wrong_is_said() -> None:
    with pytest.raises(hlojit.HlojitError, match="nothing is wrong"):
        testing.bisect(TEXT)


@pytest.fixture
def wrong_rule(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The rule for x - 0 gives -x."""
    (right,) = (rule for rule in arithmetic.RULES if rule.name == "subtract_zero")

    def negated(rewriter: Any, subtract: Any) -> Any:
        found = right.apply(rewriter, subtract)
        return None if found is None else rewriter.create("stablehlo.negate", [found], found.type)

    wrong = replace(right, apply=negated)
    monkeypatch.setattr(
        algebraic_simplifier, "ALL_RULES", tuple(wrong if r is right else r for r in algebraic_simplifier.ALL_RULES)
    )
    algebraic_simplifier._table.cache_clear()
    yield
    algebraic_simplifier._table.cache_clear()


@pytest.mark.usefixtures("wrong_rule")
def test_a_wrong_rule_is_named_with_the_smallest_program() -> None:
    found = testing.bisect(TEXT)
    assert (found.kind, found.name, found.package) == ("rule", "subtract_zero of algebraic-simplifier", "")
    assert sum(1 for _ in found.module.walk()) == 3, found
    assert [array.size for array in found.arguments] == [1]
    assert "subtract" in found.script
    compile(found.script, "script", "exec")


@pytest.mark.usefixtures("wrong_rule")
def test_the_command_names_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "program.mlir").write_text(TEXT)
    arrays = [np.arange(43, dtype="f4"), np.ones(43, "f4")]
    for name, array in zip("xy", arrays):
        np.save(tmp_path / f"{name}.npy", array)
    command = ["bisect", str(tmp_path / "program.mlir"), "--input", str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    assert main(command) == 0
    assert "rule subtract_zero of algebraic-simplifier" in capsys.readouterr().out


@dataclass(frozen=True)
class Swap(ext.Pass):
    """Exchanges the operands of a subtraction."""

    name: ClassVar[str] = "bisect-swap"
    phase: ClassVar[str] = "before-fusion"

    def run(self, module: Any) -> bool:
        for instruction in list(module.walk()):
            if instruction.name == "stablehlo.subtract":
                instruction.operands = instruction.operands[::-1]
        return True


def test_a_plugins_pass_is_named_with_its_plugin() -> None:
    text = TEXT.replace("%0, %z", "%0, %y")
    with ext.using(plugin("swapper", passes=[Swap()]), plugin("innocent", passes=[])):
        found = testing.bisect(text)
    assert (found.kind, found.name, found.package) == ("pass", "bisect-swap", "plugin 'swapper'")
    assert any("without the plugin swapper it is right" in each for each in found.evidence)
    assert not any("innocent" in each for each in found.evidence)


@dataclass(frozen=True)
class Raising(Swap):
    """Fails on a subtraction."""

    name: ClassVar[str] = "bisect-raising"

    def run(self, module: Any) -> bool:
        if any(instruction.name == "stablehlo.subtract" for instruction in module.walk()):
            raise ValueError("no subtractions here")
        return False


@dataclass(frozen=True)
class Crashing(Swap):
    """Ends the process."""

    name: ClassVar[str] = "bisect-crashing"

    def run(self, module: Any) -> bool:
        if any(instruction.name == "stablehlo.subtract" for instruction in module.walk()):
            ctypes.string_at(0)
        return False


@pytest.mark.parametrize(
    "kind", [Raising, pytest.param(Crashing, marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"))]
)
def test_a_pass_that_fails_or_crashes_is_named(kind: type[ext.Pass]) -> None:
    text = TEXT.replace("%0, %z", "%0, %y")
    with ext.using(plugin("failing", passes=[kind()])):
        found = testing.bisect(text, seconds=10)
    assert (found.kind, found.name, found.package) == ("pass", kind.name, "plugin 'failing'")
    assert ("SIGSEGV" in found.problem) == (kind is Crashing)


class Device(ext.Backend):
    """Computes a product one too large."""

    name = "bisect-device"

    def capability(self, instruction: Any) -> ext.Capability:
        return ext.YES

    def compile(self, module: Any, options: Any) -> Any:
        from hlojit.ir import evaluate

        wrong = any(instruction.name == "stablehlo.multiply" for instruction in module.walk())
        return lambda *arrays: [np.asarray(each) + 1 if wrong else each for each in evaluate(module, *arrays)]


def test_what_a_back_end_computes_wrongly_is_named() -> None:
    with ext.using(plugin("device", backends=[Device()])):
        found = testing.bisect(TEXT, backend="bisect-device")
    assert (found.kind, found.name) == ("kernel", "stablehlo.multiply -> tensor<1xf32>")
    assert found.package == "plugin 'device'"
    assert "every pass keeps the program's meaning" in found.evidence


def test_an_expansion_is_the_expanders_and_its_plugins() -> None:
    def twice(builder: Builder, call: Any) -> Any:
        return [builder.multiply(call.operands[0], call.operands[0])]

    def reference(call: Any, x: Any) -> Any:
        return x + x

    from hlojit.ir.ops.definition import Expand, OpDefinition, Operand

    record = OpDefinition(
        "bis.twice",
        operands=(Operand("x"),),
        infer=lambda request: [request.operand_types[0]],
        reference=reference,
        lowering=Expand(twice),
    )
    text = 'func.func @main(%x: tensor<7xf32>) -> tensor<7xf32> {\n %0 = "bis.twice"(%x) : (tensor<7xf32>) -> tensor<7xf32>\n return %0 : tensor<7xf32>\n}'
    with ext.using(plugin("twice", ops=[record])):
        found = testing.bisect(text)
        assert (found.kind, found.name) == ("pass", "op-expander")
        assert "bis.twice" in found.script
        assert "the op bis.twice of twice" in found.script


def test_a_plugins_kernel_in_a_loop_of_donated_memory_is_named() -> None:
    def one_more(x: Any, result: Any) -> None:
        for i in range(x.size):
            result[i] = x[i] + 1

    kernel = ext.Kernel(
        "bis.negate",
        backend="cpu",
        pattern=ext.OpPattern("stablehlo.negate"),
        build=lambda group: ext.ArrayFunction(one_more),
    )
    text = """func.func @main(%x: tensor<8xf32> {tf.aliasing_output = 0 : i32}) -> tensor<8xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<8xf32> cond {
        %three = stablehlo.constant dense<3> : tensor<i32>
        %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %j = stablehlo.add %i, %one : tensor<i32>
        %w = stablehlo.negate %v : tensor<8xf32>
        stablehlo.return %j, %w : tensor<i32>, tensor<8xf32>
      }
      return %r#1 : tensor<8xf32>
    }"""
    with ext.using(plugin("bis", kernels=[kernel])):
        found = testing.bisect(text, seconds=30)
    assert found.kind == "kernel"
    assert "plugin 'bis'" in found.package
    assert any("bis.negate" in each and "was taken" in each for each in found.evidence), found.evidence
    assert "stablehlo.negate" in found.script
    assert "while" not in found.script


def test_an_error_is_not_taken_for_another_one() -> None:
    """Where the program is made smaller: without the maximum the device raises something else."""

    class Picky(ext.Backend):
        name = "bisect-picky"

        def capability(self, instruction: Any) -> ext.Capability:
            return ext.YES

        def compile(self, module: Any, options: Any) -> Any:
            names = {instruction.name for instruction in module.walk()}
            if "stablehlo.maximum" not in names:
                raise TypeError("a program without a maximum")
            raise ValueError(f"no products beside a maximum in {module.main.result_types[0]}")

    with ext.using(plugin("picky", backends=[Picky()])):
        found = testing.bisect(TEXT, backend="bisect-picky", seconds=10)
    assert "no products beside a maximum" in found.problem
    assert "stablehlo.maximum" in found.script
