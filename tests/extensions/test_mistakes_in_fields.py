"""Mistakes in the fields of records: refused where the record is made or registered, with the name that is meant."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir import Builder

from .mistakes import ABS, clean, nova

left_as_found = pytest.fixture(autouse=True)(clean)

made: Any = ext
"""Without types: mypy would find what is wrong in these calls."""

UNKNOWN: dict[str, tuple[Callable[[], Any], str]] = {
    "block format": (lambda: made.BlockFormat("q8", blok=3), r"BlockFormat 'q8' has no field 'blok'; did you mean 'block'\?"),
    "float format": (lambda: made.FloatFormat("q6", 6, exponentbits=3), r"FloatFormat 'q6' has no field 'exponentbits'; did you mean 'exponent_bits'\?"),
    "op": (lambda: made.OpDefinition("nova.op", operand=()), r"OpDefinition 'nova\.op' has no field 'operand'; did you mean 'operands'\?"),
    "name by keyword": (lambda: made.OpDefinition(name="nova.op", infers=None), r"OpDefinition 'nova\.op' has no field 'infers'; did you mean 'infer'\?"),
    "function of elements": (lambda: made.ElementwiseCall("nova.c", func=abs), r"ElementwiseCall 'nova\.c' has no field 'func'; did you mean 'function'\?"),
    "function of arrays": (lambda: made.ArrayCall("nova.c", function=abs, trusted="python"), r"ArrayCall 'nova\.c' has no field 'trusted'; did you mean 'trust'\?"),
    "expansion": (lambda: made.ExpansionCall("nova.c", expansion=abs), r"ExpansionCall 'nova\.c' has no field 'expansion'; did you mean 'expand'"),
    "declared": (lambda: made.DeclaredCall("nova.c", device=("nova",)), r"DeclaredCall 'nova\.c' has no field 'device'; did you mean 'devices'\?"),
    "handler": (lambda: made.ForeignCall("nova.c", handlers=1), r"ForeignCall 'nova\.c' has no field 'handlers'; did you mean 'handler'\?"),
    "kernel": (lambda: made.Kernel("nova", backends="cpu"), r"Kernel 'nova' has no field 'backends'; did you mean 'backend'\?"),
    "tasks": (lambda: made.TaskFunction(abs, task=2), r"TaskFunction has no field 'task'; did you mean 'tasks'\?"),
    "without a name": (lambda: made.ElementwiseCall("nova.c", abs), r"ElementwiseCall 'nova\.c' takes target in this order, and 2 values are given without a name; give the others by name: .*function="),
    "too many": (lambda: made.KernelPhase("a", 2, 3, 4, 5, 6), r"KernelPhase 'a' takes symbol, "),
    "nothing near": (lambda: made.ArrayFunction(abs, zzz=2), r"ArrayFunction has no field 'zzz'; its fields are function, "),
}  # fmt: skip


@pytest.mark.parametrize("mistake", UNKNOWN)
def test_unknown_fields(mistake: str) -> None:
    make, message = UNKNOWN[mistake]
    with pytest.raises(TypeError, match=message) as caught:
        make()
    assert len(str(caught.value)) < 400


def test_a_block_format_of_a_block_format() -> None:
    inner = ext.BlockFormat("q8")
    with pytest.raises(hlojit.HlojitError, match=r"'q9': element = q8 is a BlockFormat; give a FloatFormat") as caught:
        ext.BlockFormat("q9", element=made.BlockFormat("q8"))
    assert len(str(caught.value)) < 150
    assert inner.block == 32


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    format = ext.BlockFormat("q9", block=np.int32(16), axis=np.int64(-2))  # type: ignore[arg-type]
    assert (type(format.block), type(format.axis)) == (int, int)
    assert format == ext.BlockFormat("q9", block=16, axis=-2)


MISTYPED = {
    "reslt0, operand0": "result0",
    "result0, oprand1": "operand1",
    "result0, operand": "operand0",
    "results, operand0": "result0",
}


@pytest.mark.parametrize("signature", MISTYPED)
def test_signatures(signature: str) -> None:
    meant = MISTYPED[signature]
    with pytest.raises(hlojit.PluginError, match=rf"'nova\.copy': .*is no operand or result; did you mean '{meant}'\?"):
        ext.ArrayCall("nova.copy", function=ctypes.CDLL(None).memcpy, trust="native", signature=signature)


def test_a_number_of_a_configuration_with_its_type_may_have_any_name() -> None:
    signature = "result0, operand0, operands:i64"
    call = ext.ArrayCall("nova.copy", function=ctypes.CDLL(None).memcpy, trust="native", signature=signature)
    ext.register(nova(custom_calls=[call]), package="hlojit-nova", version="0.1.0")
    x = np.arange(5.0)
    np.testing.assert_array_equal(hlojit.custom_call("nova.copy", x, result=x, operands=x.nbytes), x)


@dataclass(frozen=True)
class Building(ext.Pass):
    """Builds an op whose rule for result types fails."""

    name: ClassVar[str] = "nova-building"

    def run(self, module: Any) -> bool:
        for instruction in list(module.walk()):
            if instruction.name == "stablehlo.abs":
                Builder.in_front_of(instruction).nova.op(instruction.operands[0])
        return True


def test_a_rule_that_fails_in_a_pass_is_named_first() -> None:
    record = ext.OpDefinition(
        "nova.op", operands=(ext.Operand("x"),), infer=lambda request: request.operands[0], reference=lambda call, x: x
    )
    ext.register(nova(ops=[record], passes=[Building()]), package="hlojit-nova", version="0.1.0")
    with pytest.raises(hlojit.PluginError) as caught:
        hlojit.compile(ABS)
    what, where = str(caught.value).splitlines()
    assert what.startswith("op 'nova.op' (hlojit-nova 0.1.0): infer (hlojit-nova 0.1.0) raised AttributeError")
    assert where.startswith("  in pass 'nova-building' (hlojit-nova 0.1.0): run at ")
    assert "test_mistakes_in_fields.py:" in what
    assert "test_mistakes_in_fields.py:" in where
