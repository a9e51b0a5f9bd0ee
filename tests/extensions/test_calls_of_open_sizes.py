"""Custom calls of plugins in programs that leave sizes open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import CustomCall, ElementwiseCall, ExpansionCall, hookimpl, using

TEXT = """
func.func @main(%x: tensor<?xi32>) -> tensor<?xf64> {
  %0 = stablehlo.custom_call @acme.lookup(%x) : (tensor<?xi32>) -> tensor<?xf64>
  %1 = stablehlo.negate %0 : tensor<?xf64>
  return %1 : tensor<?xf64>
}
"""
LOOKUP = ElementwiseCall("acme.lookup", function=lambda code: code * 2.5)


def plugin(*calls: CustomCall) -> Any:
    return SimpleNamespace(__name__="acme", hlojit_custom_calls=hookimpl(lambda: list(calls)))


@pytest.mark.parametrize("how", ["specialize", "symbolic"])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_elementwise_calls(how: str, backend: str) -> None:
    with using(plugin(LOOKUP)):
        executable = hlojit.compile(TEXT, backend=backend, options={"dynamic_shapes": how})
        for size in (0, 3, 50):
            x = np.arange(size, dtype=np.int32)
            np.testing.assert_array_equal(executable(x), x * -2.5)
    assert executable.dynamic_shapes == (how if backend == "cpu" else "specialize")


def test_elementwise_calls_of_bounded_sizes() -> None:
    kind = "tensor<?xi32, #stablehlo.bounds<8>>"
    result = kind.replace("i32", "f64")
    text = f"""
    func.func @main(%x: tensor<8xi32>, %n: tensor<i32>) -> {result} {{
      %0 = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<8xi32>, tensor<i32>) -> {kind}
      %1 = stablehlo.custom_call @acme.lookup(%0) : ({kind}) -> {result}
      return %1 : {result}
    }}
    """
    with using(plugin(LOOKUP)):
        x = np.arange(8, dtype=np.int32)
        np.testing.assert_array_equal(hlojit.compile(text)(x, np.int32(5)), x[:5] * 2.5)


def test_a_call_says_what_its_results_are() -> None:
    @dataclass(frozen=True)
    class Halved(ExpansionCall):
        def refine(self, instruction: Any) -> Sequence[Any] | None:
            (type,) = instruction.operand_types
            return [type.with_shape((type.shape[0] // 2,))] if type.is_static else None

    def expand(builder: Any, instruction: Any) -> Any:
        (size,) = instruction.result.tensor_type.shape
        attributes = {"start_indices": (0,), "limit_indices": (size,), "strides": (1,)}
        return builder.create("slice", instruction.operands, attributes=attributes).results

    with using(plugin(Halved("acme.lookup", expand=expand))):
        executable = hlojit.compile(TEXT.replace("f64", "i32"))
        for size in (2, 7):
            x = np.arange(size, dtype=np.int32)
            np.testing.assert_array_equal(executable(x), -x[: size // 2])


def test_what_fails_in_it_names_the_call() -> None:
    @dataclass(frozen=True)
    class Failing(ExpansionCall):
        def refine(self, instruction: Any) -> Sequence[Any] | None:
            raise KeyError("sizes")

    with using(plugin(Failing("acme.lookup", expand=lambda builder, instruction: instruction.operands))):
        executable = hlojit.compile(TEXT.replace("f64", "i32"))
        with pytest.raises(hlojit.PluginError, match="(?s)'acme.lookup'.*KeyError.*sizes.*:3:3"):
            executable(np.zeros(3, np.int32))
