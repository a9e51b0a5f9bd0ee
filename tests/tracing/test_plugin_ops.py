"""``hlojit.op`` and ``hlojit.custom_call``: ops and custom calls by name, in jitted functions and outside."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import ArrayCall, AttributeKinds, CustomCall, ElementwiseCall, FloatFormat, hookimpl, using
from hlojit.ir import (
    F32,
    GENERIC,
    I64_ARRAY,
    AttributeSpec,
    Builder,
    Expand,
    Module,
    OpDefinition,
    Operand,
    build_function,
    tensor,
)
from hlojit.tracing import TracingError


def expand_silu(builder: Any, instruction: Any) -> Any:
    (x,) = instruction.operands
    scaled = builder.multiply(x, builder.constant(instruction.attributes["alpha"], x.tensor_type))
    return [builder.multiply(x, builder.logistic(scaled))]


def expand_split(builder: Any, instruction: Any) -> Any:
    (x,) = instruction.operands
    floor = builder.floor(x)
    return [floor, builder.subtract(x, floor)]


SILU = OpDefinition(
    "nova.silu",
    operands=(Operand("x"),),
    attributes=(AttributeSpec("alpha", F32),),
    infer=lambda request: [request.operand_types[0]],
    lowering=Expand(expand_silu),
)
SPLIT = OpDefinition(
    "nova.split",
    operands=(Operand("x"),),
    attributes=(AttributeSpec("axes", I64_ARRAY, optional=True), AttributeSpec("note", GENERIC, optional=True)),
    infer=lambda request: [request.operand_types[0]] * 2,
    lowering=Expand(expand_split),
)
LAMBDA = OpDefinition(
    "nova.lambda",
    operands=(Operand("x"),),
    lowering=Expand(lambda builder, instruction: [builder.convert(instruction.operands[0], "f64")]),
)


class Nova:
    """A vendor's ops, calls and a format."""

    @hookimpl
    def hlojit_ops(self) -> list[OpDefinition]:
        return [SILU, SPLIT, LAMBDA]

    @hookimpl
    def hlojit_formats(self) -> list[FloatFormat]:
        return [FloatFormat("nova7", exponent_bits=3, mantissa_bits=3, bias=3)]

    @hookimpl
    def hlojit_custom_calls(self) -> list[CustomCall]:
        return [
            ElementwiseCall("nova.scale", function=lambda x, factor=1.0: x * factor),
            ArrayCall("nova.eigenvalues", function=np.linalg.eigvalsh, trust="python"),
            ArrayCall(
                "nova.rows",
                function=lambda x, *, which: x[np.array(which)],
                trust="python",
                result_types=lambda call: tensor((len(call.config["which"]), *call.operands[0].shape[1:]), call.operands[0].element_type),
            ),
        ]  # fmt: skip


@pytest.fixture(autouse=True)
def nova() -> Iterator[None]:
    with using(Nova()):
        yield


X = np.linspace(-2, 2, 9, dtype="f4")


def silu(x: Any, alpha: float) -> Any:
    return x / (1 + np.exp(-alpha * x))


def test_an_op_of_a_plugin_is_called_in_a_jitted_function_and_outside() -> None:
    op = hlojit.op("nova.silu")

    @hlojit.jit
    def function(x: Any) -> Any:
        whole, rest = hlojit.op("nova.split")(x)
        return op(x, alpha=0.5) + whole * rest

    np.testing.assert_allclose(function(X), silu(X, 0.5) + np.floor(X) * (X - np.floor(X)), rtol=2e-6)
    np.testing.assert_allclose(op(X, alpha=2.0), silu(X, 2.0), rtol=2e-6)
    np.testing.assert_allclose(op(X, alpha=np.float32(0.25)), silu(X, 0.25), rtol=2e-6)
    whole, rest = hlojit.op("nova.split")(X, axes=[0, 1], note={"why": ["because", 3]})
    np.testing.assert_array_equal(whole + rest, X)


def test_ops_of_hlojit_itself_are_called_by_name() -> None:
    np.testing.assert_array_equal(hlojit.op("stablehlo.add")(X, X), X + X)
    np.testing.assert_array_equal(hlojit.op("compare")(X, X[::-1].copy(), comparison_direction="LT"), X[::-1] > X)
    np.testing.assert_array_equal(hlojit.op("reshape")(X, result=((3, 3), "f4")), X.reshape(3, 3))


def test_a_plugins_op_works_under_the_plugins_of_one_function() -> None:
    class Other:
        @hookimpl
        def hlojit_ops(self) -> list[OpDefinition]:
            return [OpDefinition("other.twice", operands=(Operand("x"),), infer=lambda r: [r.operand_types[0]],
                                 lowering=Expand(lambda b, i: [b.add(i.operands[0], i.operands[0])]))]  # fmt: skip

    twice = hlojit.op("other.twice")
    with pytest.raises(TracingError, match=r"op 'other\.twice': there is no op"):
        twice(X)
    np.testing.assert_array_equal(hlojit.jit(plugins=[Other()])(lambda x: twice(x))(X), 2 * X)
    with using(Other()):
        np.testing.assert_array_equal(twice(X), 2 * X)


RESULTS = {
    "type": tensor((9,), "f64"),
    "array": np.zeros(9),
    "shape and dtype": SimpleNamespace(shape=(9,), dtype=np.float64),
    "pair": ((9,), "f64"),
    "list": [np.empty(9)],
}


@pytest.mark.parametrize("form", RESULTS)
def test_result_types_are_given_in_many_forms(form: str) -> None:
    def function(x: Any) -> Any:
        return hlojit.op("nova.lambda")(x, result=RESULTS[form])

    np.testing.assert_array_equal(function(X), X.astype("f8"))
    result = hlojit.jit(function)(X)
    assert result.dtype == np.float64


def test_custom_calls_take_their_configuration_by_keyword() -> None:
    @hlojit.jit
    def function(x: Any) -> Any:
        return hlojit.custom_call("nova.scale", x, factor=3) + hlojit.custom_call("nova.scale", x, result=x, factor=0.5)

    np.testing.assert_array_equal(function(X), X * 3.5)
    np.testing.assert_array_equal(hlojit.custom_call("nova.scale", X, factor=np.float32(2)), X * 2)
    square = X[:4].reshape(2, 2) @ X[:4].reshape(2, 2).T
    np.testing.assert_allclose(
        hlojit.custom_call("nova.eigenvalues", square, result=((2,), "f4")), np.linalg.eigvalsh(square), rtol=1e-6
    )
    np.testing.assert_array_equal(hlojit.custom_call("nova.rows", X, which=[2, 0, 2]), X[[2, 0, 2]])


def test_python_numbers_take_the_type_of_the_first_array() -> None:
    @hlojit.jit
    def function(x: Any, y: Any) -> Any:
        return hlojit.op("add")(x[0], 2), hlojit.op("add")(y, x[1])

    first, second = function(X, 3)
    assert first.dtype == second.dtype == np.float32
    assert (first, second) == (X[0] + 2, X[1] + 3)


def test_formats_of_plugins_are_operands_and_results() -> None:
    values = hlojit.Array.from_values([1.0, 2.0, -3.5], "nova7")

    @hlojit.jit
    def function(x: Any, y: Any) -> Any:
        encoded = x.astype("nova7")
        return hlojit.op("add")(encoded, y), hlojit.custom_call("nova.scale", y, factor=2.0)

    total, scaled = function(np.float32([0.5, 1, 1]), values)
    assert isinstance(total, hlojit.Array)
    assert total.to_values().tolist() == [1.5, 3.0, -2.5]
    assert scaled.to_values().tolist() == [2.0, 4.0, -7.0]
    assert hlojit.op("add")(values, values).to_values().tolist() == [2.0, 4.0, -7.0]
    assert hlojit.op("nova.lambda")(values, result=((3,), "f64")).tolist() == [1.0, 2.0, -3.5]
    assert hlojit.op("convert")(X[:2], result=((2,), "nova7")).element_type.name == "nova7"


def test_an_attribute_keeps_64_bits() -> None:
    record = OpDefinition(
        "nova.scaled",
        operands=(Operand("x"),),
        attributes=(AttributeSpec("by", AttributeKinds.F64),),
        infer=lambda request: [request.operand_types[0]],
        lowering=Expand(lambda b, i: [b.multiply(i.operands[0], b.constant(i.attributes["by"], i.operands[0].type))]),
    )
    with using(SimpleNamespace(__name__="nova", hlojit_ops=hookimpl(lambda: [record]))):
        scaled = hlojit.jit(lambda x: hlojit.op("nova.scaled")(x, by=0.1))
        assert scaled(np.ones(2)).tolist() == [0.1, 0.1]
        text = str(scaled.lower(np.ones(2)))
        assert hlojit.compile(text)(np.ones(2)).tolist() == [0.1, 0.1]


def test_arrays_on_devices_are_operands() -> None:
    x = hlojit.put(X, hlojit.devices()[0])
    np.testing.assert_array_equal(np.asarray(hlojit.op("add")(x, x)), 2 * X)


MISTAKES: dict[str, tuple[Any, str]] = {
    "name": (lambda x: hlojit.op("nova.silo")(x), r"op 'nova\.silo': there is no op 'nova\.silo'; did you mean 'nova\.silu'"),
    "dialect": (lambda x: hlojit.op("silu")(x), r"there is no op 'silu'; did you mean 'nova\.silu'\?"),
    "own name": (lambda x: hlojit.op("tahn")(x), r"there is no op 'tahn'; did you mean .*'tanh'"),
    "missing": (lambda x: hlojit.op("nova.silu")(x), r"op 'nova\.silu': .*alpha is missing"),
    "attribute": (lambda x: hlojit.op("nova.silu")(x, alpa=1.0), r"has no attribute 'alpa'; its attributes: alpha; did you mean 'alpha'"),
    "kind": (lambda x: hlojit.op("nova.silu")(x, alpha="much"), r"attribute alpha is 'much'; expected"),
    "operands": (lambda x: hlojit.op("nova.silu")(x, x, alpha=1.0), r"takes 1 operand .x., found 2"),
    "types": (lambda x: hlojit.op("add")(x, 1.0), r"lhs and rhs have different types"),
    "result": (lambda x: hlojit.op("nova.lambda")(x), r"result types do not follow"),
    "no result": (lambda x: hlojit.op("nova.lambda")(x, result=3), r"result=3 is no type"),
    "target": (lambda x: hlojit.custom_call("nova.scal", x), r"unknown custom call target 'nova\.scal'.*did you mean 'nova\.scale'"),
    "rule": (lambda x: hlojit.custom_call("nova.eigenvalues", x), r"'nova\.eigenvalues': its result's type is not known: say result="),
    "value": (lambda x: hlojit.custom_call("nova.scale", x, factor={1}), r"\{1\} of type set cannot be an attribute"),
}  # fmt: skip


@pytest.mark.parametrize("jitted", [True, False], ids=["jit", "eager"])
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_name_op_and_line(name: str, jitted: bool) -> None:
    function, said = MISTAKES[name]
    with pytest.raises(TracingError, match=rf"(?s)^test_plugin_ops\.py:\d+: .*{said}"):
        (hlojit.jit(function) if jitted else function)(X)


def test_an_unknown_target_with_a_result_is_refused_when_it_is_compiled() -> None:
    with pytest.raises(hlojit.UnsupportedError, match=r"^test_plugin_ops\.py:\d+: .*did you mean 'nova\.scale'"):
        hlojit.custom_call("nova.scalee", X, result=X)


def test_calls_outside_without_operands_are_refused() -> None:
    with pytest.raises(
        TracingError,
        match=r"^test_plugin_ops\.py:\d+: .*'nova\.scale': outside of a jitted function a call has operands",
    ):
        hlojit.custom_call("nova.scale", result=X)


def test_calls_have_the_line_where_they_stand() -> None:
    @hlojit.jit
    def function(x: Any) -> Any:
        return hlojit.op("nova.silu")(x, alpha=1.0)

    (location,) = {str(each.location) for each in function.lower(X).main.body if each.op.name == "nova.silu"}
    assert f"{__file__}:{function.function.__code__.co_firstlineno + 2}" in location


def test_what_is_registered_again_is_called_again() -> None:
    class Calls:
        def __init__(self, factor: float):
            self.factor = factor

        @hookimpl
        def hlojit_custom_calls(self) -> list[CustomCall]:
            factor = self.factor
            return [ElementwiseCall("t.scale", function=lambda x: x * factor)]

    for factor in (2.0, 3.0):
        with using(Calls(factor)):
            np.testing.assert_array_equal(hlojit.custom_call("t.scale", X), X * np.float32(factor))


# ------------------------------------------------------------------------------------------------------------- builder


def test_a_builder_has_plugins_dialects() -> None:
    module = Module()
    with build_function(module, "main", [tensor((9,), "f32")]) as builder:
        (x,) = builder.arguments
        first = builder.nova.silu(x, alpha=0.5)
        second, _ = builder.nova.split(builder.nova.silu(x, 1.0))
        third = builder.nova.lambda_(x, type=tensor((9,), "f64"))
        builder.return_(builder.stablehlo.add(first, second), third)
        assert {"silu", "split", "lambda_"} <= set(dir(builder.nova))
        assert {"nova", "stablehlo", "chlo"} <= set(dir(builder))
        assert isinstance(builder, Builder)
        with pytest.raises(AttributeError, match=r"there is no op 'nova\.silo'; did you mean 'silu'"):
            builder.nova.silo(x)
        with pytest.raises(AttributeError, match=r"no op 'nowa', and no dialect of that name"):
            builder.nowa.silu(x)
        with pytest.raises(AttributeError, match=r"did you mean .*'tanh'"):
            builder.tahn(x)
        with pytest.raises(hlojit.HlojitError, match=r"alpha is missing"):
            builder.nova.silu(x)
    result, _ = hlojit.compile(module)(X)
    np.testing.assert_allclose(result, silu(X, 0.5) + np.floor(silu(X, 1.0)), rtol=2e-6)
