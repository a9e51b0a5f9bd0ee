"""Every op's record: its derivative is checked by a program, is that of what it expands into, or there is a reason why not.

A new op without a rule fails here: give its record a rule and a program (``graph_programs``, ``jax_programs``,
``text_programs``), or say here why it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hlojit.ir.builder import Builder
from hlojit.ir.formats import element_type
from hlojit.ir.graph import Block, Function, Module
from hlojit.ir.ops.definition import Expand, OpDefinition, Pointwise, ops
from hlojit.ir.types import tensor

from tests.transforms.graph_programs import GRAPHS, graph
from tests.transforms.jax_programs import PROGRAMS, Arrays, numbers, program_of, pulled, run
from tests.transforms.test_batching import check
from tests.transforms.test_derivatives import first
from tests.transforms.text_programs import TEXTS, text_program

REASONS: dict[str, str] = {
    **dict.fromkeys(
        (f"stablehlo.{name}" for name in "and or xor not popcnt count_leading_zeros compare is_finite iota".split()),
        "the results are integers or booleans, or constants",
    ),
    **dict.fromkeys(
        (f"stablehlo.shift_{name}" for name in ("left", "right_arithmetic", "right_logical")), "of integers only"
    ),
    "chlo.mulhi": "of integers only",
    "stablehlo.get_dimension_size": "an integer",
    "stablehlo.bitcast_convert": "bits are no numbers",
    "chlo.next_after": "a step between neighbours; JAX has none either",
    "chlo.bessel_i1e": "its derivative is made of i0e, which is no op",
    "stablehlo.uniform_quantize": "quantized programs are inference",
    "stablehlo.uniform_dequantize": "quantized programs are inference",
    "quant.scast": "quantized programs are inference",
    "stablehlo.custom_call": "a call's own rule is its expansion, or custom_jvp and custom_vjp around it",
    **dict.fromkeys(
        ("stablehlo.constant", "chlo.constant", "arith.constant", "func.constant"), "depends on no operand"
    ),
    **dict.fromkeys(("func.return", "stablehlo.return", "func.call"), "a part of functions: calls are inlined"),
    **dict.fromkeys(("stablehlo.tuple", "stablehlo.get_tuple_element"), "NumPy functions make none"),
    **dict.fromkeys(("stablehlo.after_all", "stablehlo.create_token"), "tokens order effects"),
    "chlo._asin_acos_kernel": "a part of asin and acos, which have rules",
}
"""Why there is no rule."""

_INTERNAL = ("hlojit.", "shape.", "tensor.", "builtin.")
"""Ops that passes make behind transformations, and those of shapes, which are integers."""

_BY_OTHER_TESTS = {
    "hlojit.lapack": "test_linear_algebra",
    "hlojit.derivative_of": "test_functions",
    "sdy.sharding_constraint": "the same values; a program of several devices",
}

_SINGLE = {"f32": 2e-5, "f16": 2e-2, "bf16": 1.5e-1}
"""Tolerances of pointwise rules in other formats against f64, relative to the largest."""


def _instructions(block: Block) -> Iterator[str]:
    for instruction in block:
        yield instruction.op.name
        for region in instruction.regions:
            yield from _instructions(region)


def _checked() -> set[str]:
    functions = [
        *(graph(name)[0] for name in GRAPHS),
        *(text_program(name)[0] for name in TEXTS),
        *(program_of(*PROGRAMS[name]) for name in PROGRAMS),
    ]
    return {name for function in functions for name in _instructions(function.body)}


def _without_rule(op: OpDefinition) -> bool:
    return op.derivative is None and not isinstance(op.lowering, Expand) and not op.name.startswith(_INTERNAL)


def test_rules_are_checked() -> None:
    """Each rule by a program whose derivatives are compared with differences."""
    with_rules = {op.name for op in ops() if op.derivative is not None}
    assert with_rules - _checked() - _BY_OTHER_TESTS.keys() == set()


def test_ops_without_rules_have_reasons() -> None:
    """And no reason is left of an op that has a rule by now."""
    missing = {op.name for op in ops() if _without_rule(op)}
    assert missing - REASONS.keys() == set()
    assert REASONS.keys() - missing == set()


@pytest.mark.parametrize("name", TEXTS)
def test_derivatives_and_batches_of_texts(name: str) -> None:
    function, arguments = text_program(name)
    back, cotangents = first(function, arguments)
    first(back.main, [*arguments, *cotangents])
    check(function, arguments, [True] * len(arguments))


def _in_format(build: Callable[..., Any], arguments: Arrays, element: str) -> Function:
    types = [tensor(x.shape, element_type(element)) for x in arguments]
    function = Function("main", types, ())
    builder = Builder(function.body)
    result = build(builder, *builder.arguments)
    builder.return_(result)
    function.result_types[:] = [result.type]
    function.result_attributes[:] = [{}]
    Module("op").add_function(function)
    return function


_POINTWISE = [name for name, (_, arguments) in GRAPHS.items() if arguments[0].dtype.kind == "f" and "solve" not in name]


@pytest.mark.parametrize("element", _SINGLE)
def test_rules_in_other_formats(element: str) -> None:
    """The derivative in a narrow format is that of the wide one of the same numbers, as far as it goes."""
    for name in _POINTWISE:
        if "cholesky" in name or (name == "complex" and element != "f32"):
            continue
        build, arguments = GRAPHS[name]
        dtype = element_type(element).dtype
        given = [np.asarray(x if x.any() else numbers(x), dtype) for x in arguments]
        narrow, wide = _in_format(build, given, element), _in_format(build, given, "f64")
        cotangent = np.asarray(run(narrow.module, given)[0])  # type: ignore[arg-type]
        cotangent = np.ones(cotangent.shape, cotangent.dtype)
        active = [True] * len(given)
        found = run(pulled(narrow, active), [*given, cotangent])
        exact = np.ones(cotangent.shape, "c16" if cotangent.dtype.kind == "c" else "f8")
        expected = run(pulled(wide, active), [*(np.asarray(x, "f8") for x in given), exact])
        for mine, right in zip(found, expected, strict=True):
            assert mine.dtype == dtype, name
            np.testing.assert_allclose(
                mine.astype("f8"),
                right,
                rtol=_SINGLE[element],
                atol=_SINGLE[element] * (1 + abs(right).max()),
                err_msg=name,
            )


def test_complex_rules_in_single_precision() -> None:
    for name, (build, arguments) in GRAPHS.items():
        if arguments[0].dtype.kind != "c" or not arguments[0].any():
            continue
        given = [x.astype("c8") for x in arguments]
        narrow, wide = _in_format(build, given, "complex<f32>"), _in_format(build, given, "complex<f64>")
        cotangent = np.ones_like(np.asarray(run(narrow.module, given)[0]))  # type: ignore[arg-type]
        found = run(pulled(narrow, [True]), [*given, cotangent])
        exact = cotangent.astype("c16" if cotangent.dtype.kind == "c" else "f8")
        expected = run(pulled(wide, [True]), [*(x.astype("c16") for x in given), exact])
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-4, err_msg=name)


def test_pointwise_ops_need_no_rule_for_batches() -> None:
    """Other ops that are no expansions have one, or run in a loop over the batch: few do."""
    in_loops = {
        op.name
        for op in ops()
        if op.batching is None
        and not isinstance(op.lowering, (Pointwise, Expand))
        and op.name not in REASONS
        and not op.name.startswith(_INTERNAL)
    }
    assert in_loops == set()
