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

from .mistakes import ABS, clean, nova, one_line, registering

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
    "no name": (lambda: made.BlockFormat(), r"BlockFormat lacks name="),
    "no function": (lambda: made.Constraint("C1"), r"Constraint 'C1' lacks check="),
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


ELEMENTS = {
    "near in another case": ("f8e4m3fn", r"'f8e4m3fn' is unknown; .*did you mean 'f8E4M3FN'"),
    "a dtype": (np.float16, r"element = <class 'numpy.float16'>, a dtype of NumPy's; it is 'f16'; give a FloatFormat"),
    "a class": (ext.FloatFormat, r"element = the class FloatFormat; give an instance, FloatFormat\(...\)"),
    "an array": (np.ones(100000), r"element = array.*; give a FloatFormat"),
}


@pytest.mark.parametrize("mistake", ELEMENTS)
def test_elements_of_another_kind(mistake: str) -> None:
    element, message = ELEMENTS[mistake]
    with pytest.raises(hlojit.HlojitError, match=message) as caught:
        made.BlockFormat("q9", element=element)
    assert len(str(caught.value)) < 250


def test_a_block_format_without_a_name_that_can_be_written() -> None:
    for name in (8, "my format", "tensor"):
        with pytest.raises(
            hlojit.HlojitError, match=rf"block format {name!r}: name={name!r} (cannot be written|means)"
        ):
            made.BlockFormat(name)


def test_blocks_along_a_dimension_that_a_tensor_has_not() -> None:
    ext.register(nova(formats=[ext.BlockFormat("q9", axis=3)]), package="hlojit-nova", version="0.1.0")
    remedy = (
        r"; axis=3 of q9 \(hlojit-nova 0\.1\.0\) would be -2 to 1 here, and -1 is the last dimension of every tensor"
    )
    with pytest.raises(hlojit.HlojitError, match=remedy):
        hlojit.Array.from_values(np.ones((2, 32)), "q9")
    with pytest.raises(hlojit.HlojitError, match=remedy):
        hlojit.compile("func.func @main(%x: tensor<2x32xq9>) -> tensor<2x32xq9> { return %x : tensor<2x32xq9> }")


RULES: dict[str, tuple[dict[str, Any], str]] = {
    "infer": ({"infer": lambda: []}, r"infer is given \(request\)"),
    "constraint": ({"constraints": (made.Constraint("C1", lambda: None),)}, r"constraint C1 is given \(instruction\)"),
    "expansion": ({"lowering": made.Expand(lambda b: [])}, r"the rule of Expand is given \(builder, instruction\)"),
    "reference": ({"reference": lambda x: x}, r"reference is given \(call, x\)"),
    "elements": ({"lowering": made.Pointwise(lambda x: x)}, r"the rule of Pointwise is given \(builder, call, x\)"),
}


@pytest.mark.parametrize("mistake", RULES)
def test_rules_of_other_parameters_are_refused_when_they_are_registered(mistake: str) -> None:
    fields, message = RULES[mistake]
    record = ext.OpDefinition("nova.op", **({"operands": (ext.Operand("x"),), "infer": lambda request: []} | fields))
    text = one_line(registering(nova(ops=[record]), rf"'nova\.op' has a function of other parameters: {message}"))
    assert "test_mistakes_in_fields.py:" in text


def test_a_constraint_that_raises_is_named() -> None:
    record = ext.OpDefinition(
        "nova.op",
        operands=(ext.Operand("x"),),
        infer=lambda request: list(request.operand_types),
        constraints=(ext.Constraint("C1", lambda call: call.attributes["unit"]),),
        reference=lambda call, x: x,
    )
    ext.register(nova(ops=[record]), package="hlojit-nova", version="0.1.0")
    with pytest.raises(
        hlojit.HlojitError,
        match=r"nova\.op \(C1\): constraint C1 \(hlojit-nova 0\.1\.0\) raised KeyError\('unit'\) at .*fields\.py:",
    ):
        hlojit.op("nova.op")(np.ones(3))


def test_a_number_for_an_operand() -> None:
    call = ext.ExpansionCall("nova.more", expand=lambda b, each: [b.add(each.operands[0], 1.0)])
    ext.register(nova(custom_calls=[call]), package="hlojit-nova", version="0.1.0")
    with pytest.raises(
        hlojit.PluginError,
        match=r"add: unexpected argument 1\.0; operands are values; builder\.constant\(1\.0, x\.type\)",
    ):
        hlojit.custom_call("nova.more", np.ones(3, "f4"), result=np.ones(3, "f4"))


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
    assert what.startswith("op 'nova.op' (hlojit-nova 0.1.0): infer raised AttributeError")
    assert where.startswith("  in pass 'nova-building' (hlojit-nova 0.1.0): run at ")
    assert "test_mistakes_in_fields.py:" in what
    assert "test_mistakes_in_fields.py:" in where


KERNELS: dict[str, tuple[dict[str, Any], str]] = {
    "build takes nothing": ({"build": lambda: None}, r"build raised TypeError\(.*\) at .*test_mistakes_in_fields\.py:"),
    "a class for an answer": ({"build": lambda group: ext.Declined}, r"build returned <class .*; this is a class: return Declined\(\.\.\.\)"),
    "no reason": ({"build": lambda group: made.Declined()}, r"build raised TypeError\('Declined lacks reason='\)"),
    "match gives a truth value": (
        {"pattern": made.SubgraphPattern(lambda each: True, root="stablehlo.abs")},
        r"match returned True; expected a list of the instructions of a group, or None \(at .*test_mistakes_in_fields\.py:",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", KERNELS)
def test_kernels(mistake: str) -> None:
    fields, message = KERNELS[mistake]
    given = {"pattern": ext.OpPattern("stablehlo.abs"), "build": lambda group: ext.Declined("no")} | fields
    ext.register(nova(kernels=[made.Kernel("nova.k", backend="cpu", **given)]), package="hlojit-nova", version="0.1.0")
    with pytest.raises(hlojit.PluginError, match=rf"^kernel 'nova\.k' \(hlojit-nova 0\.1\.0\): {message}") as caught:
        hlojit.compile(ABS)
    one_line(caught.value)


def test_an_op_without_its_dialect() -> None:
    kernel = ext.Kernel("nova.k", backend="cpu", pattern=ext.OpPattern("abs"), build=lambda group: ext.Declined("no"))
    ext.register(nova(kernels=[kernel]), package="hlojit-nova", version="0.1.0")
    with pytest.warns(ext.PluginWarning, match=r"OpPattern names the op 'abs', .*; did you mean 'stablehlo\.abs'"):
        hlojit.compile(ABS)


def test_devices_that_are_no_names_and_names_that_are_no_devices() -> None:
    def copy(**fields: Any) -> ext.ArrayCall:
        return ext.ArrayCall("nova.copy", function=lambda x: x, trust="python", **fields)

    one_line(registering(nova(custom_calls=[copy(devices=3)]), r"has devices=3; they are names of back ends"))
    ext.register(nova(custom_calls=[copy(devices=("cpuu",))]), package="hlojit-nova", version="0.1.0")
    with pytest.raises(hlojit.UnsupportedError, match=r"'cpuu' \(nobody registers 'cpuu'; did you mean 'cpu'\?\)"):
        hlojit.compile(ABS.replace("stablehlo.abs %x :", "stablehlo.custom_call @nova.copy(%x) : (tensor<50xf32>) ->"))


def test_a_signature_that_is_a_list() -> None:
    with pytest.raises(hlojit.PluginError, match=r"a signature is a text such as .*, not \['result0', 'operand0'\]"):
        made.ArrayCall(
            "nova.copy", function=ctypes.CDLL(None).memcpy, trust="native", signature=["result0", "operand0"]
        )
