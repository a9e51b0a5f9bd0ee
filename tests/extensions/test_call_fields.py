"""What all forms of custom calls have in common: rules for types, effects, aliases, costs, devices, rules of transformations."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import (
    YES,
    ArrayCall,
    Backend,
    CustomCall,
    DeclaredCall,
    ElementwiseCall,
    ExpansionCall,
    FloatFormat,
    ForeignCall,
    foreign_handler,
    hookimpl,
    registry,
    using,
)
from hlojit.ir import tensor
from hlojit.ir.errors import HlojitError, PluginError, UnsupportedError
from hlojit.ir.types import DYNAMIC


class Calls:
    hlojit_api = (1, 1)

    def __init__(self, *calls: CustomCall, backends: tuple[Backend, ...] = ()):
        self.calls, self.backends = calls, backends

    @hookimpl
    def hlojit_custom_calls(self) -> list[CustomCall]:
        return list(self.calls)

    @hookimpl
    def hlojit_backends(self) -> list[Backend]:
        return list(self.backends)


def registered(*calls: CustomCall, backends: tuple[Backend, ...] = ()) -> Any:
    return using(Calls(*calls, backends=backends))


def text(call: str, result: str = "4xf32") -> str:
    return f"""
func.func @main(%x: tensor<4xf32>) -> tensor<{result}> {{
  %0 = stablehlo.custom_call @t.f(%x) {call} : (tensor<4xf32>) -> tensor<{result}>
  return %0 : tensor<{result}>
}}"""


def twice(builder: Any, call: Any) -> Any:
    return [builder.add(call.operands[0], call.operands[0])]


@foreign_handler
def nothing(frame: int) -> None:
    """Writes nothing."""


FORMS: dict[str, Callable[..., CustomCall]] = {
    "elementwise": lambda **fields: ElementwiseCall("t.f", function=lambda x: x + x, **fields),
    "expansion": lambda **fields: ExpansionCall("t.f", expand=twice, **fields),
    "array": lambda **fields: ArrayCall("t.f", function=lambda x: x + x, trust="python", **fields),
    "foreign": lambda **fields: ForeignCall("t.f", handler=nothing, asks_version=False, **fields),
    "declared": lambda **fields: DeclaredCall("t.f", **{"devices": ("nova",), **fields}),
}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "types": ({"result_types": 3}, r"has result_types=3, which is not a function"),
    "jvp": ({"jvp": "no"}, r"has jvp='no', which is not a function"),
    "batching": ({"batching": 1}, r"has batching=1, which is not a function"),
    "effects": ({"effects": "yes"}, r"has effects='yes'"),
    "aliases": ({"aliases": ((0, 0), (0, 1))}, r"has aliases=.*pairs"),
    "cost": ({"cost": -1.0}, r"has cost=-1.0"),
    "devices": ({"devices": "cpu"}, r"has devices='cpu'; they are names of back ends"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("field", WRONG)
def test_fields_are_checked_where_a_call_is_registered(form: str, field: str) -> None:
    given, said = WRONG[field]
    with pytest.raises(PluginError, match=rf"the custom call target 't\.f' {said}"), registered(FORMS[form](**given)):
        pass


@pytest.mark.parametrize("form", FORMS)
def test_rules_of_transformations_are_kept(form: str) -> None:
    def rule(*arguments: Any) -> None:
        """Whatever it is."""

    with registered(FORMS[form](jvp=rule, batching=rule, cost=5.0, result_types=lambda call: call.operands)):
        found = registry().custom_call("t.f")
        assert found is not None
        assert (found.jvp, found.batching, found.cost) == (rule, rule, 5.0)


@pytest.mark.parametrize("form", ["elementwise", "expansion", "array"])
def test_calls_are_checked_against_the_rule_for_their_types(form: str) -> None:
    def same(call: Any) -> Any:
        assert call.target == "t.f"
        assert call.config is None
        return call.operands[0]

    with registered(FORMS[form](result_types=same)):
        np.testing.assert_array_equal(hlojit.compile(text(""))(np.ones(4, "f4")), np.full(4, 2))
        with pytest.raises(
            PluginError, match=r"(?s)'t\.f': for operands \(tensor<4xf32>\) it gives \[tensor<4xf32>\].*at .*:3:"
        ):
            hlojit.compile(text("", "4xf64"))
    for wrong, said in (
        (lambda call: 3, "returned 3"),
        (lambda call: call.none, "failed for .tensor<4xf32>.: AttributeError"),
    ):
        with (
            registered(FORMS[form](result_types=wrong)),
            pytest.raises(PluginError, match=rf"'t\.f': result_types {said}"),
        ):
            hlojit.compile(text(""))


def test_open_sizes_follow_from_the_rule_for_types() -> None:
    def doubled(call: Any) -> Any:
        count = call.operands[0].shape[0]
        return tensor((DYNAMIC if count == DYNAMIC else 2 * count,), "f32")

    call = ArrayCall("t.f", function=lambda x: np.concatenate([x, x]), trust="python", result_types=doubled)
    with registered(call):
        run = hlojit.compile(text("").replace("4xf32", "?xf32"))
        for count in (1, 3):
            assert run(np.ones(count, "f4")).tolist() == [1.0] * (2 * count)


def test_calls_with_effects_are_made_in_order_also_where_nobody_reads_them() -> None:
    seen = []

    def note(x: Any, *, word: str) -> Any:
        seen.append((word, float(x[0])))
        return x

    program = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @t.f(%x) {mhlo.backend_config = {word = "first"}} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.add %x, %x : tensor<4xf32>
  %2 = stablehlo.custom_call @t.f(%x) {mhlo.backend_config = {word = "first"}} : (tensor<4xf32>) -> tensor<4xf32>
  %3 = stablehlo.custom_call @t.f(%1) {mhlo.backend_config = {word = "second"}} : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}"""
    for backend in ("cpu", "reference"):
        with registered(ArrayCall("t.f", function=note, trust="python", effects=True)):
            hlojit.compile(program, backend=backend)(np.ones(4, "f4"))
        assert seen == [("first", 1.0), ("first", 1.0), ("second", 2.0)]
        seen.clear()
        with registered(ArrayCall("t.f", function=note, trust="python")):
            hlojit.compile(program, backend=backend)(np.ones(4, "f4"))
        assert not seen


ALIASED = """
func.func @main(%x: tensor<1000xf32>) -> (tensor<1000xf32>, tensor<1000xf32>) {
  %0 = stablehlo.add %x, %x : tensor<1000xf32>
  %1 = stablehlo.custom_call @t.f(%0) ATTRIBUTES : (tensor<1000xf32>) -> tensor<1000xf32>
  RETURN
}"""
NAMED = "{output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>]}"


@pytest.mark.parametrize("attributes", ["", NAMED])
@pytest.mark.parametrize("returned", ["%0, %1", "%1, %1"])
def test_results_lie_in_the_memory_of_operands_where_that_is_asked_for(attributes: str, returned: str) -> None:
    addresses = []
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)

    def add_one(x: int, r: int, size: int) -> None:
        addresses.append(x == r)
        values = np.frombuffer((ctypes.c_float * size).from_address(r), "f4")
        values += 1

    native = ctypes.CFUNCTYPE(None, *kinds)(add_one)
    call = ArrayCall(
        "t.f",
        function=ctypes.cast(native, ctypes.c_void_p).value,
        trust="native",
        signature="operand0, result0, operand0.size",
        aliases=() if attributes else ((0, 0),),
    )
    with registered(call):
        program = ALIASED.replace("ATTRIBUTES", attributes)
        run = hlojit.compile(program.replace("RETURN", f"return {returned} : tensor<1000xf32>, tensor<1000xf32>"))
    x = np.arange(1000, dtype="f4")
    first, second = run(x)
    np.testing.assert_array_equal(first, 2 * x + (returned[:2] == "%1"))
    np.testing.assert_array_equal(second, 2 * x + 1)
    assert addresses == [True]


class Nova(Backend):
    """Takes calls of ``t.f`` as they are, and knows what they mean."""

    name = "nova"

    def capability(self, instruction: Any) -> Any:
        return YES

    def compile(self, module: Any, options: Any) -> Any:
        assert "stablehlo.custom_call @t.f" in str(module)
        return lambda *arrays: (arrays[0] * 2,)


def test_a_call_may_be_for_some_back_ends_only() -> None:
    with registered(FORMS["declared"](), backends=(Nova(),)):
        np.testing.assert_array_equal(hlojit.compile(text(""), backend="nova")(np.ones(4, "f4")), np.full(4, 2))
        for backend in ("cpu", "reference"):
            with pytest.raises(
                UnsupportedError, match=r"(?s)custom call target 't\.f' is for the back end 'nova'.*:3:"
            ):
                hlojit.compile(text(""), backend=backend)
    with registered(FORMS["elementwise"](devices=("cpu", "nova"))):
        np.testing.assert_array_equal(hlojit.compile(text(""))(np.ones(4, "f4")), np.full(4, 2))
        with pytest.raises(UnsupportedError, match=r"for the back ends 'cpu', 'nova'"):
            hlojit.compile(text(""), backend="reference")


def test_costs_are_asked_for_and_named_when_they_fail() -> None:
    with registered(FORMS["array"](cost=lambda call: 7.0 * call.operands[0].size)):
        run = hlojit.compile(text(""))
        (launch,) = run.spec.program.launches()
        assert launch.kernel.phases[0].cost == 28.0
    with (
        registered(FORMS["array"](cost=lambda call: None)),
        pytest.raises(PluginError, match=r"(?s)'t\.f': cost returned None, which is no number of nanoseconds.*:3:"),
    ):
        hlojit.compile(text(""))


def test_an_unknown_target_names_near_ones_and_who_may_bring_it() -> None:
    with (
        registered(FORMS["array"]()),
        pytest.raises(UnsupportedError, match=r"unknown custom call target 't\.ff'.*did you mean 't\.f'"),
    ):
        hlojit.compile(text("").replace("@t.f", "@t.ff"))
    # The error of the process that has the plugin turned off.
    from hlojit.extensions.registration.checks import PluginRecord, failed
    from hlojit.ir.environment import process_environment

    record = PluginRecord("nova", "hlojit-nova", "0.1.0", error="disabled by HLOJIT_DISABLE_PLUGINS")
    process_environment().add(failed(record, "", record.error))
    try:
        with pytest.raises(
            UnsupportedError,
            match=r"'nova' \(package hlojit-nova 0\.1\.0\), which may bring 'nova\.silu', is disabled by HLOJIT",
        ):
            hlojit.compile(text("").replace("@t.f", "@nova.silu"))
        with pytest.raises(HlojitError, match=r"unknown op 'nova\.silu'.*which may bring 'nova\.silu', is disabled by"):
            hlojit.parse(
                'func.func @main(%x: tensor<f32>) -> tensor<f32> { %0 = "nova.silu"(%x) : (tensor<f32>) -> tensor<f32> }'
            )
        with pytest.raises(HlojitError, match=r"unknown element type 'nova6'.*hlojit-nova 0\.1\.0\) is disabled by"):
            hlojit.Array.from_values([1.0], "nova6")
    finally:
        process_environment().remove("nova")


def test_the_plugin_of_a_scope_that_has_ended_is_named() -> None:
    class Gone:
        @hookimpl
        def hlojit_formats(self) -> list[FloatFormat]:
            return [FloatFormat("gone6", exponent_bits=3, mantissa_bits=2, bias=3)]

    with using(Gone()):
        hlojit.Array.from_values([1.0], "gone6")
    for use in (
        lambda: hlojit.Array.from_values([1.0], "gone6"),
        lambda: hlojit.parse("func.func @main(%x: tensor<gone6>) -> tensor<gone6> { return %x : tensor<gone6> }"),
    ):
        with pytest.raises(
            HlojitError, match="unknown element type 'gone6'.*'Gone' brings it and is not registered here"
        ):
            use()


def test_what_a_form_cannot_do_is_said() -> None:
    with (
        pytest.raises(PluginError, match="form that becomes other ops, which has no effects"),
        registered(FORMS["elementwise"](effects=True)),
    ):
        pass


def test_kernels_have_effects_and_no_aliases() -> None:
    from hlojit.extensions import KernelCall, Launch

    def made(**fields: Any) -> KernelCall:
        return KernelCall(
            "t.f",
            kernel=lambda x, r: None,
            launch=lambda call: Launch(1, 1),
            substitute=lambda x: seen.append(1) or x,
            backend="nova",
            **fields,
        )

    seen: list[int] = []
    unread = text("").replace("return %0", "return %x")
    for effects in (False, True):
        with registered(made(effects=effects)):
            hlojit.compile(unread, backend="reference")(np.ones(4, "f4"))
        assert len(seen) == effects
    with pytest.raises(PluginError, match="is a KernelCall, which has no aliases"), registered(made(aliases=((0, 0),))):
        pass


def test_a_declared_call_says_for_whom_it_is() -> None:
    with (
        pytest.raises(PluginError, match="needs devices=, the back ends that know it"),
        registered(DeclaredCall("t.f")),
    ):
        pass


def test_quantized_numbers_are_to_be_converted_first() -> None:
    quantized = text("").replace("4xf32", "4x!quant.uniform<i8:f32, 0.5>")
    with (
        registered(FORMS["array"]()),
        pytest.raises(PluginError, match=r"'t\.f': a function of arrays is not given .*uniform_dequantize"),
    ):
        hlojit.compile(quantized)
