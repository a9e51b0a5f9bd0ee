"""The reference interpreter: arguments, compute form, calls and errors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hlojit.ir.builder import Builder, build_function
from hlojit.ir.errors import ArgumentError, ExecutionError
from hlojit.ir.formats import FloatFormat, element_type, register_element_type, unregister_element_type
from hlojit.ir.graph import Block, Module
from hlojit.ir.interpreter import evaluate
from hlojit.ir.ops.custom_calls import CUSTOM_CALL_REFERENCES
from hlojit.ir.types import TOKEN, Type, tensor
from hlojit.ir.verifier import verify


def module_of(build: Any, *types: Type) -> Module:
    module = Module()
    with build_function(module, "main", types) as builder:
        result = build(builder, *builder.arguments)
        builder.return_(*(result if isinstance(result, (tuple, list)) else [result]))
    verify(module)
    return module


TWICE = module_of(lambda b, x: b.add(x, x), tensor((2,), "f32"))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "@main takes 1 arguments, found 0"),
        ((np.zeros(2, np.float32),) * 2, "@main takes 1 arguments, found 2"),
        ((np.zeros(3, np.float32),), "argument 0 of @main has shape (3,), expected (2,)"),
        ((np.zeros((2, 1), np.float32),), "has shape (2, 1), expected (2,)"),
        ((np.zeros(2, np.float64),), "argument 0 of @main has dtype float64, expected float32"),
        ((np.zeros(2, np.int32),), "has dtype int32, expected float32"),
    ],
)
def test_arguments_are_checked(arguments: tuple, text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        evaluate(TWICE, *arguments)
    assert text in str(caught.value)


def test_arguments_of_any_layout_and_byte_order() -> None:
    values = np.array([1, 9, 2, 9], np.float32)[::2]
    for argument in (values, values.astype(">f4"), [np.float32(1), np.float32(2)]):
        assert evaluate(TWICE, np.asarray(argument))[0].tolist() == [2.0, 4.0]


def test_arguments_stay_as_they_are_and_results_are_the_callers_own() -> None:
    identity = module_of(lambda b, x: x, tensor((2,), "f32"))
    given = np.ones(2, np.float32)
    given.flags.writeable = False
    (result,) = evaluate(identity, given)
    result[:] = 5
    assert given.tolist() == [1.0, 1.0]


def test_unknown_sizes_take_any_extent() -> None:
    module = module_of(lambda b, x: b.add(x, x), tensor((-1, 2), "f32"))
    assert evaluate(module, np.ones((5, 2), np.float32))[0].shape == (5, 2)
    with pytest.raises(ArgumentError):
        evaluate(module, np.ones((5, 3), np.float32))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float16])
def test_every_op_rounds_into_the_format(dtype: Any) -> None:
    """(a + b) - a shows whether the sum was rounded; ml_dtypes rounds after every operation."""
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=200).astype(dtype) for _ in range(2))
    element = next(e for e in map(element_type, ("bf16", "f8E4M3FN", "f8E5M2", "f16")) if e.dtype == np.dtype(dtype))
    module = module_of(lambda b, x, y: b.subtract(b.add(x, y), x), tensor((200,), element), tensor((200,), element))
    (result,) = evaluate(module, a, b)
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result.astype(np.float32), ((a + b) - a).astype(np.float32))


def test_format_without_a_dtype_travels_as_its_storage() -> None:
    row = FloatFormat("testing8", exponent_bits=4, mantissa_bits=3, bias=8, has_infinity=True)
    register_element_type(row)
    try:
        module = module_of(lambda b, x: b.add(x, b.constant(1.0, tensor((2,), "testing8"))), tensor((2,), "testing8"))
        # bias 8: 1.0 is exponent code 8, 2.0 code 9, 3.0 code 9 with half the mantissa.
        (result,) = evaluate(module, np.array([8 << 3, 9 << 3], np.uint8))
        assert result.tolist() == [9 << 3, (9 << 3) | 4]
    finally:
        unregister_element_type("testing8")


def test_sub_byte_integers_wrap() -> None:
    module = module_of(lambda b, x: b.add(x, x), tensor((3,), "i4"))
    (result,) = evaluate(module, np.array([7, -8, 3], ml_dtypes.int4))
    assert result.dtype == np.dtype(ml_dtypes.int4)
    assert result.astype(int).tolist() == [-2, 0, 6]
    module = module_of(lambda b, x: b.add(x, x), tensor((3,), "ui2"))
    assert evaluate(module, np.array([3, 2, 1], np.uint8))[0].astype(int).tolist() == [2, 0, 2]


def test_calls_tuples_and_tokens() -> None:
    module = Module()
    with build_function(module, "double", [tensor((), "i32")], visibility="private") as builder:
        builder.return_(builder.add(*builder.arguments * 2))
    with build_function(module, "main", [tensor((), "i32"), TOKEN]) as builder:
        x, token = builder.arguments
        (y,) = builder.call(module.functions["double"], x)
        pair = builder.tuple(y, builder.after_all(token))
        builder.return_(builder.get_tuple_element(pair, 0), builder.get_tuple_element(pair, 1))
    verify(module)
    assert evaluate(module, np.int32(21), None) == (42, None)


def test_composite_is_its_decomposition() -> None:
    module = Module()
    with build_function(module, "impl", [tensor((), "f32")], visibility="private") as builder:
        builder.return_(builder.negate(builder.arguments[0]))
    with build_function(module, "main", [tensor((), "f32")]) as builder:
        call = builder.create(
            "composite",
            builder.arguments,
            attributes={"name": "my.op", "decomposition": "impl"},
            result_types=[tensor((), "f32")],
        )
        builder.return_(*call.results)
    verify(module)
    assert evaluate(module, np.float32(3)) == (-3,)


def custom_call(target: str) -> Module:
    def build(builder: Builder, x: Any) -> Any:
        return builder.custom_call(x, call_target_name=target, type=x.type)

    return module_of(build, tensor((2,), "f32"))


def test_custom_call_without_reference_is_named() -> None:
    with pytest.raises(ExecutionError, match="custom_call @unheard_of"):
        evaluate(custom_call("unheard_of"), np.zeros(2, np.float32))


def test_custom_call_with_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CUSTOM_CALL_REFERENCES, "triple", lambda call, x: x * 3)
    assert evaluate(custom_call("triple"), np.ones(2, np.float32))[0].tolist() == [3.0, 3.0]


def nested(depth: int) -> Module:
    """``if`` in ``if``, ``depth`` times, each returning the predicate."""
    module = Module()
    with build_function(module, "main", [tensor((), "i1")]) as builder:
        (predicate,) = builder.arguments
        block = Block()
        Builder(block).create("stablehlo.return", [predicate])
        for _ in range(depth):
            other = Block()
            Builder(other).create("stablehlo.return", [predicate])
            outer = Block()
            inner = Builder(outer).create("stablehlo.if", [predicate], regions=[block, other])
            Builder(outer).create("stablehlo.return", inner.results)
            block = outer
        other = Block()
        Builder(other).create("stablehlo.return", [predicate])
        builder.return_(*builder.create("stablehlo.if", [predicate], regions=[block, other]).results)
    return module


def test_nesting() -> None:
    assert evaluate(nested(100), np.bool_(True)) == (True,)


def test_nesting_that_is_too_deep_is_an_error() -> None:
    with pytest.raises(ExecutionError, match="nest too deep"):
        evaluate(nested(5000), np.bool_(True))


def test_long_loop() -> None:
    def build(builder: Builder, x: Any) -> Any:
        scalar = tensor((), "i32")
        step = lambda b, i: b.add(i, b.constant(1, scalar))  # noqa: E731
        return builder.while_([x], lambda b, i: b.compare(i, b.constant(20_000, scalar), "LT"), step)

    assert evaluate(module_of(build, tensor((), "i32")), np.int32(0)) == (20_000,)
