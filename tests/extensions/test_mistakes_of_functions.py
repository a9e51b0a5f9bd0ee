"""Mistakes in what vendors' ops, calls and formats compute: errors that say what is wrong, whose it is, and where."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir import evaluate, tensor
from hlojit.ir.builder import infer_types
from hlojit.ir.ops.definition import Constraint, Expand, OpDefinition, Operand, Pointwise, find_op

from .mistakes import X, clean, nova, one_line, registering

left_as_found = pytest.fixture(autouse=True)(clean)

OP = """
func.func @main(%x: tensor<50xf32>) -> tensor<50xf32> {
  %0 = "nova.op"(%x) : (tensor<50xf32>) -> tensor<50xf32>
  return %0 : tensor<50xf32>
}
"""
CALL = """
func.func @main(%x: tensor<50xf32>) -> tensor<50xf32> {
  %0 = stablehlo.custom_call @nova.call(%x) : (tensor<50xf32>) -> tensor<50xf32>
  return %0 : tensor<50xf32>
}
"""
WHO = r"\(hlojit-nova 0\.1\.0\)"


def raising(*arguments: Any) -> Any:
    raise KeyError("unit 7")


def register(**hooks: Any) -> None:
    ext.register(nova(**hooks), package="hlojit-nova", version="0.1.0")


# --------------------------------------------------------------------------------------------------------------------- ops


def record(**fields: Any) -> OpDefinition:
    return OpDefinition(**{  # type: ignore[arg-type]
        "name": "nova.op",
        "operands": (Operand("x"),),
        "infer": lambda request: [request.operand_types[0]],
        "reference": lambda call, x: -x,
        "lowering": Pointwise(lambda b, call, x: b.fneg(x)),
        **fields,
    })  # fmt: skip


def integer_of(b: Any, call: Any, x: Any) -> Any:
    return b.constant("i32", 1)


FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "operands are names": ({"operands": ("x",)}, r"the op 'nova\.op' has operands = \('x',\), expected a tuple of Operand objects"),
    "one constraint, no tuple": ({"constraints": Constraint("C1", lambda i: None)}, r"the op 'nova\.op' has constraints = Constraint\(.*expected a tuple of Constraint"),
    "operands of one name": ({"operands": (Operand("x"), Operand("x"))}, r"the op 'nova\.op' has two operands of one name: x, x"),
    "kind of an attribute": ({"attributes": (ext.AttributeSpec("alpha", float),)}, r"has the attribute 'alpha' of kind <class 'float'>, expected one of AttributeKinds"),  # type: ignore[arg-type]
    "traits are names": ({"traits": frozenset({"commutative"})}, r"has traits = frozenset\(\{'commutative'\}\), expected frozenset"),
    "cost is a number": ({"cost": 3}, r"has cost = 3, expected Cost\.CHEAP or Cost\.EXPENSIVE"),
    "no rule": ({"lowering": Pointwise(None)}, r"has lowering = Pointwise\(rule=None.*, whose rule is not a function"),  # type: ignore[arg-type]
    "lowering is the rule": ({"lowering": lambda b, c, x: x}, r"the op 'nova\.op' has lowering = <function.*expected a Lowering such as Pointwise\(rule\)"),
    "infer is a type": ({"infer": "f32"}, r"the op 'nova\.op' has infer = 'f32', which is not a function"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", FIELDS)
def test_records_that_are_refused(mistake: str) -> None:
    fields, message = FIELDS[mistake]
    one_line(registering(nova(ops=[record(**fields)]), message))


OPS: dict[str, tuple[dict[str, Any], str]] = {
    "infer raises": ({"infer": raising}, rf"nova\.op: result types cannot be inferred: infer {WHO} raised KeyError: 'unit 7'"),
    "infer gives one type": ({"infer": lambda request: request.operand_types[0]}, rf"nova\.op: result types cannot be inferred: infer {WHO} returned tensor<50xf32>; it returns a list of types"),
    "infer gives nothing": ({"infer": lambda request: None}, rf"nova\.op: result types cannot be inferred: infer {WHO} returned None; it returns a list of types"),
    "infer gives names": ({"infer": lambda request: ["tensor<50xf32>"]}, rf"nova\.op: result types cannot be inferred: infer {WHO} returned .*; it returns a list of types"),
    "a constraint raises": ({"constraints": (Constraint("C1", raising),)}, rf"nova\.op \(C1\): constraint C1 {WHO} raised KeyError\('unit 7'\) at \S+:\d+"),
    "a constraint says True": ({"constraints": (Constraint("C1", lambda i: True),)}, rf"nova\.op \(C1\): constraint C1 {WHO} returned True; return None, or what is wrong as a string"),  # type: ignore[arg-type,return-value]
    "rule raises": ({"lowering": Pointwise(raising)}, rf"op 'nova\.op' {WHO}: the rule of Pointwise raised KeyError\('unit 7'\)"),
    "rule gives nothing": ({"lowering": Pointwise(lambda b, call, x: None)}, rf"op 'nova\.op' {WHO}: the rule of Pointwise returned None; it returns a scalar that the builder made"),  # type: ignore[arg-type,return-value]
    "rule gives a list": ({"lowering": Pointwise(lambda b, call, x: [b.fneg(x)])}, rf"op 'nova\.op' {WHO}: the rule of Pointwise returned \[.*; it returns a scalar"),  # type: ignore[arg-type,return-value]
    "rule gives a number": ({"lowering": Pointwise(lambda b, call, x: 2.0)}, rf"op 'nova\.op' {WHO}: the rule of Pointwise returned 2\.0; it returns a scalar"),  # type: ignore[arg-type,return-value]
    "rule gives i32 for f32": ({"lowering": Pointwise(integer_of)}, rf"op 'nova\.op' {WHO}: the rule of Pointwise returned a scalar of kind i32, expected f32"),
    "expansion raises": ({"lowering": Expand(raising)}, rf"op 'nova\.op' {WHO}: the expansion failed: KeyError\('unit 7'\)"),
    "expansion gives a value": ({"lowering": Expand(lambda b, i: b.negate(i.operands[0]))}, rf"op 'nova\.op' {WHO}: the expansion returned a Value, not a list of one"),
    "expansion gives another type": ({"lowering": Expand(lambda b, i: [b.convert(i.operands[0], "f64")])}, rf"op 'nova\.op' {WHO}: the expansion returned \[tensor<50xf64>\]; expected"),
    "expansion gives too much": ({"lowering": Expand(lambda b, i: [i.operands[0]] * 2)}, rf"op 'nova\.op' {WHO}: the expansion returned .*; expected one value for each result"),
    "expansion gives nothing": ({"lowering": Expand(lambda b, i: [])}, rf"op 'nova\.op' {WHO}: the expansion returned \[\]; expected one value"),
    "indexed rule raises": ({"lowering": ext.Indexed(raising)}, rf"op 'nova\.op' {WHO}: the rule of Indexed raised KeyError\('unit 7'\) at \S+:\d+"),
    "indexed rule gives nothing": ({"lowering": ext.Indexed(lambda e, i, at: None)}, rf"op 'nova\.op' {WHO}: the rule of Indexed returned None; it returns a scalar"),  # type: ignore[arg-type,return-value]
    "no lowering": ({"lowering": None}, r"nova\.op is not supported by the back end 'cpu'"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", OPS)
def test_ops(mistake: str) -> None:
    fields, message = OPS[mistake]
    register(ops=[record(**fields)])
    with pytest.raises(hlojit.HlojitError, match=message) as caught:
        hlojit.compile(OP)
    if "WHO" not in message and WHO in message:
        assert "hlojit-nova 0.1.0" in str(caught.value)


REFERENCES: dict[str, tuple[dict[str, Any], str]] = {
    "reference raises": ({"reference": raising}, rf"op 'nova\.op' {WHO}: reference raised KeyError\('unit 7'\)"),
    "reference gives another shape": ({"reference": lambda call, x: x[:2]}, rf"op 'nova\.op' {WHO}: reference returned .* of shape \(2,\), expected tensor<50xf32>"),
    "reference gives nothing": ({"reference": lambda call, x: None}, rf"op 'nova\.op' {WHO}: reference returned None of shape \(\), expected tensor<50xf32>"),
    "reference gives too much": ({"reference": lambda call, x: (x, x)}, rf"op 'nova\.op' {WHO}: reference returned 2 results, expected 1"),
}  # fmt: skip


def raising_infer(request: Any) -> Any:
    return request.operands[0]


def test_an_infer_rule_that_raises_where_ops_are_made() -> None:
    raised = r"infer raised AttributeError\(.*operands.*\) at .*test_mistakes_of_functions\.py:\d+"
    register(ops=[record(infer=raising_infer)])
    with pytest.raises(hlojit.HlojitError, match=rf"op 'nova\.op' {WHO}: {raised}"):
        hlojit.op("nova.op")(X)
    with pytest.raises(hlojit.PluginError, match=rf"^op 'nova\.op' {WHO}: {raised}"):
        infer_types(find_op("nova.op"), (tensor((50,), "f32"),), {}, ())


@pytest.mark.parametrize("mistake", REFERENCES)
def test_references(mistake: str) -> None:
    fields, message = REFERENCES[mistake]
    register(ops=[record(**fields)])
    with pytest.raises(hlojit.HlojitError, match=message) as caught:
        evaluate(hlojit.parse(OP), X)
    one_line(caught.value)


# ----------------------------------------------------------------------------------------------------------- custom calls


def elementwise(function: Any = None, **fields: Any) -> Callable[[], Any]:
    return lambda: ext.ElementwiseCall("nova.call", function=function, **fields)


def expansion(expand: Any) -> Callable[[], Any]:
    return lambda: ext.ExpansionCall("nova.call", expand=expand)


def raising_function(x: float) -> float:
    if x > 1:
        raise ValueError
    return x


class Lost(ext.CustomCall):
    """Its refine is wrong."""

    def replace(self, builder: Any, instruction: Any) -> Any:
        return [builder.negate(instruction.operands[0])]


TARGET = rf"custom call target 'nova\.call' {WHO}"
CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "function raises": (elementwise(raising_function), rf"{TARGET}: .*raise"),
    "function prints": (elementwise(lambda x: print(x)), rf"{TARGET}: .*"),
    "function takes too few": (elementwise(lambda: 1.0), rf"{TARGET}: .*takes 0 arguments, not 1"),
    "function returns a text": (elementwise(lambda x: "a"), rf"{TARGET}: .*returns a str; a scalar function returns a bool"),
    "function returns nothing": (elementwise(lambda x: None), rf"{TARGET}: .*returns None; a scalar function returns a bool"),
    "function takes too many": (elementwise(lambda x, y: x), rf"{TARGET}: .*takes 2 arguments, not 1"),
    "function gives a pair": (elementwise(lambda x: (x, x)), rf"{TARGET}: .*"),
    "function is of NumPy arrays": (elementwise(lambda x: np.sort(x)), rf"{TARGET}: .*"),
    "factory raises": (elementwise(factory=raising), rf"{TARGET}: .*the factory failed for .*KeyError\('unit 7'\)"),
    "factory gives a number": (elementwise(factory=lambda site: 1.0), rf"{TARGET}: .*the factory returned 1\.0 for .*; it returns the scalar function"),
    "expansion raises": (expansion(raising), rf"{TARGET}: the expansion failed: KeyError\('unit 7'\)"),
    "expansion gives nothing": (expansion(lambda b, i: None), rf"{TARGET}: the expansion returned None; expected one value"),
    "expansion gives a value": (expansion(lambda b, i: i.operands[0]), rf"{TARGET}: the expansion returned a Value, not a list of one"),
    "expansion gives another type": (expansion(lambda b, i: [b.convert(i.operands[0], "f64")]), rf"{TARGET}: the expansion returned \[tensor<50xf64>\]; expected"),
    "expansion gives arrays": (expansion(lambda b, i: [np.zeros(50)]), rf"{TARGET}: the expansion returned \[array"),
    "expansion misspells an op": (expansion(lambda b, i: [b.negat(i.operands[0])]), rf"{TARGET}: the expansion failed: .*negat"),
    "expansion calls itself": (expansion(lambda b, i: [b.custom_call([i.operands[0]], call_target_name="nova.call", result_types=[i.result.type])]), "nova.call"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", CALLS)
def test_calls(mistake: str) -> None:
    make, message = CALLS[mistake]
    register(custom_calls=[make()])
    with pytest.raises(hlojit.HlojitError, match=message) as caught:
        hlojit.compile(CALL)
    if mistake != "expansion calls itself":
        one_line(caught.value)


MADE: dict[str, tuple[Callable[[], Any], str]] = {
    "neither function nor factory": (elementwise(), r"'nova\.call': an ElementwiseCall has either function or factory"),
    "both": (elementwise(abs, factory=abs), r"'nova\.call': an ElementwiseCall has either function or factory"),
    "a ufunc": (elementwise(np.tanh), r"'nova\.call': function is the ufunc tanh, which works on whole arrays; give a function of"),
    "no function": (elementwise(3), r"'nova\.call': function is 3, which is not a function"),
    "expansion without a function": (lambda: ext.ExpansionCall("nova.call"), r"'nova\.call': an ExpansionCall needs expand="),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MADE)
def test_calls_that_cannot_be_made(mistake: str) -> None:
    make, message = MADE[mistake]
    with pytest.raises(hlojit.PluginError, match=message):
        make()
    hook = ext.hookimpl(lambda: [make()])
    registering(SimpleNamespace(hlojit_custom_calls=hook), rf"{message}")


def test_a_call_with_a_configuration_that_nobody_reads() -> None:
    register(custom_calls=[elementwise(lambda x: x)()])
    text = CALL.replace("(%x) :", '(%x) {backend_config = "slope"} :')
    with pytest.raises(hlojit.PluginError, match=rf"{TARGET}: the call has a backend_config.*factory="):
        hlojit.compile(text)


def test_an_unknown_target_has_near_names() -> None:
    register(custom_calls=[elementwise(lambda x: x)()])
    with pytest.raises(
        hlojit.UnsupportedError, match=r"unknown custom call target 'nova\.cal'.*did you mean 'nova\.call'"
    ):
        hlojit.compile(CALL.replace("@nova.call", "@nova.cal"))


@pytest.mark.parametrize(("refine", "message"), [
    (raising, rf"{TARGET}: its refine failed: KeyError\('unit 7'\)"),
    (lambda self, i: 7, rf"{TARGET}: its refine returned 7; expected a type for each result, or None"),
    (lambda self, i: [], rf"{TARGET}: its refine returned \[\]; expected a type for each result"),
])  # fmt: skip
def test_refine(refine: Any, message: str) -> None:
    register(custom_calls=[type("Refined", (Lost,), {"refine": refine})("nova.call")])
    executable = hlojit.compile(CALL.replace("50x", "?x"))
    with pytest.raises(hlojit.PluginError, match=message) as caught:
        executable(X)
    one_line(caught.value)


# ----------------------------------------------------------------------------------------------------------------- formats

FORMAT = """
func.func @main(%x: tensor<50xf32>) -> tensor<50xf32> {
  %0 = stablehlo.convert %x : (tensor<50xf32>) -> tensor<50xnova8>
  %1 = stablehlo.convert %0 : (tensor<50xnova8>) -> tensor<50xf32>
  return %1 : tensor<50xf32>
}
"""


def codec(decode: Any, encode: Any) -> Any:
    return ext.FloatFormat("nova8", bits=8, decode=decode, encode=encode, has_infinity=False, nan=ext.NanEncoding.NONE)


@pytest.mark.parametrize(("decode", "encode", "message"), [
    (raising, lambda x: 0, r"decode.*nova8.*"),
    (lambda code: float(code), raising, r"encode.*nova8.*"),
    (lambda code: float(code), lambda x: 300, r"encode.*nova8.*"),
    (lambda code: float(code), lambda x: -1, r"encode.*nova8.*"),
    (lambda code: "x", lambda x: 0, r"decode.*nova8.*"),
    (lambda: 1.0, lambda x: 0, r"decode.*nova8.*"),
])  # fmt: skip
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_codecs(decode: Any, encode: Any, message: str, backend: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=message) as caught:
        register(formats=[codec(decode, encode)])
        hlojit.compile(FORMAT, backend=backend)(X)
    assert len(str(caught.value).splitlines()[0]) < 400
