"""``raise UnsupportedError(reason)``: how each of a plugin's functions says what it does not take."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir import Expand, OpDefinition, Operand

REASON = "it has no unit for that"
TANH = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.tanh %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
CALL = TANH.replace("stablehlo.tanh %x :", "stablehlo.custom_call @nova.f(%x) :").replace(
    ": tensor<4xf32>\n  r", ": (tensor<4xf32>) -> tensor<4xf32>\n  r"
)
X = np.linspace(-1, 1, 4, dtype="f4")


def refuse(*_: Any) -> NoReturn:
    raise ext.UnsupportedError(REASON)


def plugin(**hooks: Any) -> Any:
    made = {name: ext.hookimpl(lambda found=found: [found]) for name, found in hooks.items()}
    return SimpleNamespace(__name__="nova", hlojit_api=(1, 2), **made)


def refused(message: str, text: str = TANH, backend: str = "reference", **hooks: Any) -> None:
    with ext.using(plugin(**hooks)), pytest.raises(hlojit.UnsupportedError) as caught:
        hlojit.compile(text, backend=backend)
    assert message in str(caught.value) and caught.value.reason == REASON


@pytest.mark.parametrize(
    ("place", "kernel"),
    [
        ("build", {"pattern": ext.OpPattern("stablehlo.tanh"), "build": refuse}),
        ("match", {"pattern": ext.SubgraphPattern(refuse), "build": lambda group: None}),
        (
            "cost",
            {
                "pattern": ext.OpPattern("stablehlo.tanh"),
                "build": lambda group: ext.ArrayFunction(np.tanh, trust="python"),
                "cost": refuse,
            },
        ),
    ],
)
def test_a_kernel_that_refuses_has_declined(place: str, kernel: dict[str, Any]) -> None:
    with ext.using(plugin(hlojit_kernels=ext.Kernel("nova.k", backend="cpu", **kernel))):
        report = hlojit.kernel_report(TANH)
        assert not report.taken and REASON in str(report)
        np.testing.assert_allclose(hlojit.compile(TANH)(X), np.tanh(X), rtol=1e-6)


CALLS: dict[str, ext.CustomCall] = {
    "expand": ext.ExpansionCall("nova.f", expand=refuse),
    "expand of a family": ext.ExpansionCall("nova.*", expand=refuse),
    "factory": ext.ElementwiseCall("nova.f", factory=refuse),
    "result_types": ext.ElementwiseCall("nova.f", function=lambda x: x, result_types=refuse),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_refused_is_named_with_its_place(name: str) -> None:
    with ext.using(plugin(hlojit_custom_calls=CALLS[name])), pytest.raises(hlojit.UnsupportedError) as caught:
        hlojit.compile(CALL)
    assert "nova.f" in caught.value.op and caught.value.reason == REASON
    assert f"is not supported: {REASON}" in str(caught.value) and "<string>:3" in str(caught.value)


def test_an_op_whose_expansion_refuses_is_named() -> None:
    record = OpDefinition(
        "nova.f",
        operands=(Operand("x"),),
        infer=lambda call: [call.operand_types[0]],
        lowering=Expand(refuse),
        summary="f",
    )
    refused(
        f"nova.f is not supported: {REASON}",
        TANH.replace("stablehlo.tanh %x", '"nova.f"(%x)').replace(
            ": tensor<4xf32>\n  r", ": (tensor<4xf32>) -> tensor<4xf32>\n  r"
        ),
        hlojit_ops=record,
    )


class Nova(ext.Backend):
    name = "nova"

    def __init__(self, capability: Callable[..., Any] | None = None, compile: Callable[..., Any] | None = None):
        self.answers = capability, compile

    def capability(self, instruction: Any) -> ext.Capability:
        return self.answers[0](instruction) if self.answers[0] else ext.YES

    def compile(self, module: Any, options: Any) -> Any:
        assert self.answers[1] is not None
        return self.answers[1](module, options)


def test_a_back_end_that_refuses_when_it_is_asked_has_said_no() -> None:
    refused("stablehlo.tanh is not supported by the back end 'nova'", backend="nova", hlojit_backends=Nova(refuse))


def test_a_back_end_that_refuses_a_whole_program_is_named() -> None:
    message = f"the program is not supported by the back end 'nova': {REASON}"
    refused(message, backend="nova", hlojit_backends=Nova(compile=refuse))


@dataclass(frozen=True)
class Wants(ext.Pass):
    """Takes no program."""

    name: ClassVar[str] = "nova-wants"

    def run(self, module: Any) -> bool:
        refuse()


def test_a_pass_that_refuses_is_named() -> None:
    refused("pass 'nova-wants' (", hlojit_passes=Wants())


def test_the_error_says_what_it_is_given() -> None:
    short = hlojit.UnsupportedError(REASON)
    assert str(short) == f"not supported: {REASON}" and (short.op, short.backend) == ("", "")
    full = short.about("nova.f", "nova")
    assert str(full) == f"nova.f is not supported by the back end 'nova': {REASON}"
    assert full.about("other", "another") is full
    assert str(pickle.loads(pickle.dumps(short))) and copy.copy(short).reason
