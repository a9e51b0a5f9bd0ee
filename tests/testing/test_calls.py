"""``check_custom_call`` and ``check_op``: what is right conforms, what is wrong is found."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit import testing
from hlojit.extensions import ArrayCall, ElementwiseCall, ExpansionCall
from hlojit.extensions.calls import elementwise_calls
from hlojit.extensions.functions import linked_code
from hlojit.ir import tensor
from hlojit.ir.ops.definition import Expand, OpDefinition, Operand, Pointwise, Trait

from .plugins import TINY, expect

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", "off")


def call(function: Any) -> ElementwiseCall:
    return ElementwiseCall(f"kit.call{next(_numbers)}", function=function)


def less_twice(number: int) -> Any:
    """A function that no other test has."""
    return lambda x, y: x - (2 + number) * y


def test_an_elementwise_call_conforms() -> None:
    report = testing.check_custom_call(call(less_twice(0)), operands=["f32", "f32"], budget=TINY).raise_if_failed()
    names = {result.name for result in report.results}
    assert {"in a combiner on cpu", "in a comparator on cpu", "of constants on reference", "in threads on cpu"} <= names


def test_types_that_a_function_is_not_for_are_skipped() -> None:
    softplus = call(lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))))
    report = testing.check_custom_call(softplus, budget=TINY, backends=["cpu"]).raise_if_failed()
    assert any("integers are wanted" in result.detail for result in report.results)


def test_an_expansion_is_compared_with_an_oracle() -> None:
    square = ExpansionCall("kit.square", expand=lambda b, c: [b.multiply(c.operands[0], c.operands[0])])
    testing.check_custom_call(square, operands=["f32"], oracle=lambda x: x * x, budget=TINY).raise_if_failed()
    expect(
        testing.check_custom_call(square, operands=["f32"], oracle=lambda x: x + x, budget=TINY),
        "kit.square(f32) alone",
    )


def test_operands_that_are_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    right = elementwise_calls.call_scalar
    monkeypatch.setattr(
        elementwise_calls, "call_scalar", lambda b, f, scalars, *rest: right(b, f, scalars[::-1], *rest)
    )
    expect(
        testing.check_custom_call(call(less_twice(1)), operands=["f32", "f32"], budget=TINY),
        "on cpu",
        "stablehlo.custom_call",
    )


def test_unsigned_operands_that_come_as_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = linked_code._wrapper
    monkeypatch.setattr(linked_code, "_wrapper", lambda *given: right(*given).replace("= zext i8", "= sext i8"))
    halved = call(lambda x: (x + 3) // 2)
    expect(testing.check_custom_call(halved, operands=["ui8"], backends=["cpu"], budget=TINY), "on cpu", "u1")


def test_a_result_that_gets_the_type_of_an_operand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise_calls, "result_kind", lambda element: "i1")
    chosen = call(lambda p, x: x if p else -x)
    report = testing.check_custom_call(
        chosen, operands=["i1", "f32"], results=["f32"], backends=["reference"], budget=TINY
    )
    expect(report, "on reference")


def test_an_unknown_target_is_named() -> None:
    with pytest.raises(hlojit.HlojitError, match=r"kit\.nothing"):
        testing.check_custom_call("kit.nothing")


def weighted(rows: Any, weights: Any, result: Any, *, powers: Any, name: str) -> None:
    for i in range(rows.shape[0]):
        total = 0.0
        for k in range(rows.shape[1]):
            total += rows[i, k] * weights[k] ** powers[k % len(powers)]
        result[i] = total


def test_lists_of_a_configuration_and_shapes_of_each_operand() -> None:
    sums = ArrayCall(
        "kit.weighted", function=weighted, result_types=lambda call: tensor(call.operands[0].shape[:1], "f32")
    )
    report = testing.check_custom_call(
        sums,
        operands=["f32", "f32"],
        shapes=[[(4, 5), (5,)], [(1, 3), (3,)], [(2, 0), (0,)]],
        config={"powers": [1.0, 2.0], "name": "squares"},
        arguments=lambda types, random: [np.abs(random.standard_normal(each.shape, "f4")) for each in types],
        oracle=lambda x, w, *, powers, name: (x * w ** np.resize(powers, w.shape)).sum(-1),
        budget=TINY,
    ).raise_if_failed()
    names = {result.name for result in report.results}
    assert {"alone, 4x5, 5 on cpu", "alone, 2x0, 0 on reference", "in a loop on cpu"} <= names
    assert not any("map" in name for name in names)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"shapes": [[(4, 5)]]}, "a list of 2, one for each"),
        ({"shapes": [5]}, "one shape such as"),
        ({"shapes": [(4, -1)]}, "0 or more"),
        ({"shapes": [(3,)], "arguments": lambda types, random: []}, "gives 0 arrays for 2"),
    ],
)
def test_shapes_and_arguments_that_do_not_fit_are_said(named: dict[str, Any], message: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=message):
        testing.check_custom_call(call(less_twice(2)), operands=["f32", "f32"], budget=TINY, **named)


def test_types_that_a_call_is_told_to_take_and_refuses() -> None:
    softplus = call(lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))))
    expect(testing.check_custom_call(softplus, operands=["i32"], backends=["cpu"], budget=TINY), "is refused")


# -------------------------------------------------------------------------- ops


def test_an_op_conforms() -> None:
    report = testing.check_op(
        "stablehlo.maximum", operands=["f32", "f32"], oracle=np.maximum, budget=TINY
    ).raise_if_failed()
    assert "its record's traits hold" in {
        result.name for result in report.results if result.status is testing.Status.PASSED
    }


def difference(**fields: Any) -> OpDefinition:
    """A vendor's subtraction."""
    given: dict[str, Any] = {
        "operands": (Operand("x"), Operand("y")),
        "infer": lambda request: [request.operand_types[0]],
        "reference": lambda call, x, y: x - y,
        "lowering": Pointwise(lambda b, call, x, y: b.fsub(x, y)),
    }
    return OpDefinition(f"kit.difference{next(_numbers)}", **(given | fields))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"lowering": Pointwise(lambda b, call, x, y: b.fsub(y, x))}, ("on cpu", "kit.difference")),
        ({"lowering": Expand(lambda b, call: [b.subtract(*call.operands[::-1])])}, ("on cpu", "kit.difference")),
        ({"traits": frozenset({Trait.COMMUTATIVE})}, ("COMMUTATIVE", "exchanged")),
        ({"traits": frozenset({Trait.IDEMPOTENT})}, ("IDEMPOTENT",)),
        ({"identity": lambda element: 1.0}, ("neutral element",)),
    ],
)
def test_a_record_that_is_wrong(fields: dict[str, Any], words: tuple[str, ...]) -> None:
    operands = ["f32", "f32"]
    testing.check_op(difference(), operands=operands, budget=TINY, backends=["cpu"]).raise_if_failed()
    wrong = difference(**fields)
    if "identity" in fields:
        wrong = replace(wrong, reference=lambda call, x, y: y * x + x)
    expect(testing.check_op(wrong, operands=operands, budget=TINY, backends=["cpu"]), *words)


def test_types_that_do_not_fit_are_said() -> None:
    with pytest.raises(hlojit.HlojitError, match="no types of operands fit"):
        testing.check_op("stablehlo.transpose")


def test_an_op_with_shapes_of_its_own() -> None:
    product = OpDefinition(
        "kit.product",
        operands=(Operand("x"), Operand("y")),
        infer=lambda request: [tensor((request.operand_types[0].shape[0], request.operand_types[1].shape[1]), "f32")],
        reference=lambda call, x, y: x @ y,
        lowering=Expand(lambda b, call: [b.dot(*call.operands)]),
    )
    told: dict[str, Any] = {
        "operands": ["f32", "f32"],
        "shapes": [[(3, 4), (4, 2)], [(1, 1), (1, 5)]],
        "budget": "smoke",
    }
    testing.check_op(product, oracle=np.matmul, **told).raise_if_failed()
    wrong = replace(product, lowering=Expand(lambda b, call: [b.negate(b.dot(*call.operands))]))
    expect(testing.check_op(wrong, **told), "on cpu", "kit.product")


def test_an_op_whose_rule_for_types_is_not_that_of_its_reference() -> None:
    def twice(request: Any) -> Any:
        return [tensor((2, *request.operand_types[0].shape), "f32")]

    told: dict[str, Any] = {"operands": ["f32", "f32"], "budget": TINY}
    with pytest.raises(
        hlojit.HlojitError, match=r"with f32, f32: .*operand 0 is tensor<3xf32> beside a result of tensor<2x3xf32>"
    ):
        testing.check_op(difference(infer=twice), **told)
    wrong = difference(infer=twice, lowering=Expand(lambda b, call: [b.concatenate(call.operands, dimension=0)]))
    expect(testing.check_op(wrong, **told), "its reference", "shape")


def test_scalars_are_tried_with_numbers_that_tell() -> None:
    def wrong(x: Any) -> Any:
        return x * 2 if x.ndim else x * 3

    call = ArrayCall("kit.scalars", function=wrong, trust="python")
    report = testing.check_custom_call(call, operands=["f32"], oracle=lambda x: x * 2, budget=TINY)
    expect(report, "alone, scalar on cpu", "result 0 is")
