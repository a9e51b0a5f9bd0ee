"""Custom calls that name functions of the module: kept, found, run inside of regions, and refused by the target's name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir.passes.call_inliner import CallInliner
from hlojit.ir.passes.dead_code_elimination import DeadCodeElimination

from ..ops.test_regions import GCD, S

TEXT = f"""
func.func private @gcd(%a: {S}, %b: {S}) -> {S} {{
  {GCD.replace("stablehlo.return %w#0", "return %w#0")}
}}
func.func private @combine(%a: {S}, %b: {S}) -> {S} {{
  %r = func.call @gcd(%a, %b) : ({S}, {S}) -> {S}
  return %r : {S}
}}
func.func private @unused(%a: {S}) -> {S} {{
  return %a : {S}
}}
func.func @main(%x: tensor<12xi32>) -> {S} {{
  %r = stablehlo.custom_call @test.fold(%x) {{called_computations = [@combine]}} : (tensor<12xi32>) -> {S}
  return %r : {S}
}}
"""
X = np.array([24, 36, 60, 84, 12, 0, 96, 48, 72, 36, 120, 180], "i4")


def plugin(expand: Any) -> Any:
    calls = [ext.ExpansionCall("test.fold", expand=expand)]
    return SimpleNamespace(__name__="test", hlojit_custom_calls=ext.hookimpl(lambda: calls))


def reduction(builder: Any, instruction: Any) -> Any:
    """A reduction by the function that the call names."""
    (function,) = ext.called_functions(instruction)
    region = builder.region(
        [each.type for each in function.body.arguments], lambda inner, *values: inner.inline(function.body, values)
    )
    zero = builder.constant(0, region.arguments[0].type)
    return [builder.reduce(list(instruction.operands), [zero], region, dimensions=(0,))]


def loop(builder: Any, instruction: Any) -> Any:
    """Calls of the function, one after the other."""
    (function,) = ext.called_functions(instruction)
    (operand,) = instruction.operands
    total = builder.constant(0, function.body.arguments[0].type)
    for number in range(12):
        part = builder.slice(operand, start_indices=(number,), limit_indices=(number + 1,), strides=(1,))
        (total,) = builder.call(function, total, builder.reshape(part, ()))
    return [total]


@pytest.mark.parametrize("expand", [reduction, loop])
@pytest.mark.parametrize("backend", ["cpu", "cuda", "reference"])
def test_an_expansion_runs_the_functions(backend: str, expand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    with ext.using(plugin(expand)):
        executable = hlojit.compile(TEXT, backend=backend)
    assert executable(X) == 12


def test_calls_inside_of_regions_run_theirs() -> None:
    body = f"""%c = stablehlo.reshape %a : ({S}) -> tensor<1xi32>
    %d = stablehlo.reshape %b : ({S}) -> tensor<1xi32>
    %e = stablehlo.concatenate %c, %d, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %f = stablehlo.custom_call @test.fold(%e) {{called_computations = [@combine]}} : (tensor<2xi32>) -> {S}
    stablehlo.return %f : {S}"""
    head, _ = TEXT.split("func.func @main")
    text = f"""{head}func.func @main(%x: tensor<12xi32>) -> {S} {{
  %none = stablehlo.constant dense<0> : {S}
  %r = "stablehlo.reduce"(%x, %none) ({{
  ^bb0(%a: {S}, %b: {S}):
    {body}
  }}) {{dimensions = array<i64: 0>}} : (tensor<12xi32>, {S}) -> {S}
  return %r : {S}
}}"""
    with ext.using(plugin(reduction)):
        assert hlojit.compile(text)(X) == 12


def test_functions_stay_as_long_as_they_are_named() -> None:
    module = hlojit.parse(TEXT)
    hlojit.verify(module)
    CallInliner().run(module)
    DeadCodeElimination().run(module)
    assert sorted(module.functions) == ["combine", "main"], "what it called is in its body, what nobody named is gone"
    assert any(each.op.host_role == "loop" for each in module.functions["combine"].body)


def test_a_back_end_that_takes_the_call_gets_its_functions() -> None:
    class Keeping(ext.Backend):
        name = "keeping"

        def capability(self, instruction: Any) -> ext.Capability:
            return ext.YES

        def compile(self, module: Any, options: Any) -> Any:
            self.functions = sorted(module.functions)
            return lambda *arrays: list(arrays)

    backend = Keeping()
    brings = SimpleNamespace(__name__="keeping", hlojit_api=(1, 1), hlojit_backends=ext.hookimpl(lambda: [backend]))
    with ext.using(brings):
        hlojit.compile(TEXT, backend="keeping")
    assert backend.functions == ["combine", "main"]


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_an_unknown_target_is_named(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    with pytest.raises(hlojit.UnsupportedError, match=r"test\.fold"):
        hlojit.compile(TEXT, backend=backend)


def test_a_function_that_is_not_there_is_named() -> None:
    """Programs may name what they do not have; who needs the function says so."""
    text = TEXT.replace("[@combine]", "[@absent]")
    hlojit.verify(text)
    with ext.using(plugin(reduction)), pytest.raises(hlojit.PluginError, match=r"@test\.fold.*@absent"):
        hlojit.compile(text)
