"""Handlers of XLA's foreign function interface: written here with ctypes, and JAX's own of LAPACK."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import ForeignCall, foreign_handler, hookimpl, using
from hlojit.ir.errors import ExecutionError, HlojitError, PluginError

from .handlers import HANDLER, SCALE, Frame, X, halves, registered, scaled, words


def test_a_handler_is_called_with_buffers_and_attributes() -> None:
    with registered("acme.scale", scaled):
        executable = hlojit.compile(SCALE)
        np.testing.assert_array_equal(executable(X), X * 3.5)
    np.testing.assert_array_equal(executable(2 * X), X * 7, "the handler lives as long as the program")


def test_the_frame_is_what_the_header_says() -> None:
    seen = []

    def body(frame: Frame) -> None:
        seen.append(frame)
        frame.results[0][...] = 1

    with registered("acme.scale", body):
        hlojit.compile(SCALE)(X)
    (frame,) = seen
    assert (frame.size, frame.extension, frame.stage) == (168, 0, 3)
    assert frame.context != 0
    table = words(frame.api, 24)
    assert table[:2] == [192, 0]
    assert table[2:4] == [24, 0]
    assert halves(frame.api + 32, 2) == [0, 3]
    assert all(table[6:24])


ATTRIBUTES = """
func.func @main(%x: tensor<i32>) -> tensor<i32> {
  %0 = stablehlo.custom_call @acme.look(%x) {backend_config = {
      zeta = "text", b = true, x = 2.5 : f32, y = -2.5 : f64, s = -3 : i8, u = 250 : ui8, w = -9 : i64, v = 18446744073709551615 : ui64,
      empty = "", list = array<i64: 1, -2>, floats = array<f32: 0.5>, flags = array<i1: true, false>,
      dense = dense<[[1, 2], [3, 4]]> : tensor<2x2xi16>, splat = dense<7> : tensor<3xui32>,
      inner = {q = 1 : i32, a = {deep = "er"}}, nothing = {}}, api_version = 4 : i32} : (tensor<i32>) -> tensor<i32>
  return %0 : tensor<i32>
}"""


def test_attributes_are_sorted_and_exactly_typed() -> None:
    seen: list[Frame] = []
    with registered("acme.look", lambda frame: seen.append(frame)):
        hlojit.compile(ATTRIBUTES)(np.int32(1))
    found = seen[0].attributes
    assert list(found) == sorted(found)
    assert found["zeta"] == "text"
    assert found["empty"] == ""
    assert found["nothing"] == {}
    assert found["inner"] == {"a": {"deep": "er"}, "q": 1}
    kinds = dict(zip(found, seen[0].kinds))
    scalars = {
        "b": (True, 1),
        "x": (2.5, 11),
        "y": (-2.5, 12),
        "s": (-3, 2),
        "u": (250, 6),
        "w": (-9, 5),
        "v": (2**64 - 1, 9),
    }
    for name, (value, number) in scalars.items():
        assert found[name] == value
        assert kinds[name] == (3, number)
    arrays = {
        "list": ([1, -2], 5),
        "floats": ([0.5], 11),
        "flags": ([True, False], 1),
        "dense": ([1, 2, 3, 4], 3),
        "splat": ([7] * 3, 8),
    }
    for name, (values, number) in arrays.items():
        assert found[name].tolist() == values
        assert kinds[name] == (1, number)
    assert [kinds[name][0] for name in ("inner", "nothing", "zeta", "empty")] == [2, 2, 4, 4]


LAYOUTS = """
func.func @main(%x: tensor<2x3x4xf64>) -> tensor<3x5xf64> {
  %0 = stablehlo.custom_call @acme.look(%x) {operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>],
    result_layouts = [dense<[0, 1]> : tensor<2xindex>]} : (tensor<2x3x4xf64>) -> tensor<3x5xf64>
  return %0 : tensor<3x5xf64>
}"""


def test_layouts_say_how_arrays_lie_in_memory() -> None:
    x = np.random.default_rng(0).random((2, 3, 4))
    out = np.random.default_rng(1).random((3, 5))

    def body(frame: Frame) -> None:
        (given,), (result,) = frame.arguments, frame.results
        assert given.shape == (2, 3, 4)  # the tensor's own, whatever the layout
        assert result.shape == (3, 5)
        np.testing.assert_array_equal(given.reshape(2, 4, 3), x.transpose(0, 2, 1))
        result.reshape(-1)[...] = out.T.reshape(-1)

    with registered("acme.look", body):
        np.testing.assert_array_equal(hlojit.compile(LAYOUTS)(x), out)


ALIASED = """
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0:2 = stablehlo.custom_call @acme.count(%x) {output_operand_aliases = [
    #stablehlo.output_operand_alias<output_tuple_indices = [1], operand_index = 0, operand_tuple_indices = []>]}
    : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return %0#0, %0#1, %x : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}"""


def test_an_aliased_result_is_the_operands_memory_and_arguments_stay() -> None:
    def body(frame: Frame) -> None:
        frame.results[0][...] = frame.arguments[0]
        assert frame.arguments[0].ctypes.data == frame.results[1].ctypes.data
        frame.results[1][...] += 1

    x = np.arange(4, dtype="f4")
    with registered("acme.count", body):
        old, new, argument = hlojit.compile(ALIASED)(x)
    np.testing.assert_array_equal(old, [0, 1, 2, 3])
    np.testing.assert_array_equal(new, [1, 2, 3, 4])
    np.testing.assert_array_equal(argument, x)


def test_an_error_is_an_exception_with_target_code_and_place() -> None:
    with registered("acme.scale", lambda frame: frame.error(3, "too négative")):
        executable = hlojit.compile(
            SCALE,
        )
        for _ in range(3):
            with pytest.raises(ExecutionError) as caught:
                executable(X)
    text = str(caught.value)
    assert "main: custom call target 'acme.scale' failed: INVALID_ARGUMENT: too négative" in text
    assert ":3:" in text.rpartition("at ")[2]


def test_errors_can_be_read_and_dropped_by_the_handler() -> None:
    messages = []

    def body(frame: Frame) -> None:
        error = frame.error(5, "mine")
        arguments = (ctypes.c_int64 * 4)(32, 0, error, 0)
        frame.function(1, None)(ctypes.addressof(arguments))
        messages.append(ctypes.string_at(arguments[3]))
        frame.function(2, None)(ctypes.addressof(arguments))
        scaled(frame)

    with registered("acme.scale", body):
        np.testing.assert_array_equal(hlojit.compile(SCALE)(X), X * 3.5)
    assert messages == [b"mine"]


def test_the_table_gives_memory_and_says_what_it_has_not() -> None:
    facts: dict[str, Any] = {}

    def body(frame: Frame) -> None:
        memory = (ctypes.c_int64 * 6)(48, 0, frame.context, 1000, 64, 0)
        assert not frame.function(9)(ctypes.addressof(memory))
        facts["aligned"] = memory[5] % 64
        ctypes.memset(memory[5], 1, 1000)
        memory[4] = memory[5]
        assert not frame.function(10)(ctypes.addressof(memory))
        too_much = (ctypes.c_int64 * 6)(48, 0, frame.context, 1 << 60, 64, 0)
        facts["refused"] = halves(frame.function(9)(ctypes.addressof(too_much)), 1)
        count = ctypes.c_int64()
        threads = (ctypes.c_int64 * 4)(32, 0, frame.context, ctypes.addressof(count))
        assert not frame.function(12)(ctypes.addressof(threads))
        facts["threads"] = count.value
        ran = []
        task = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ran.append)
        job = (ctypes.c_int64 * 5)(40, 0, frame.context, ctypes.cast(task, ctypes.c_void_p).value or 0, 77)
        assert not frame.function(11)(ctypes.addressof(job))
        facts["ran"] = ran
        for number in (3, 4, 5, 6, 7, 8, 13, 14, 15):
            assert halves(frame.function(number)(ctypes.addressof(threads)), 1) == [12]
        for number in (16, 17):
            assert not frame.function(number)(ctypes.addressof(threads))
        scaled(frame)

    with registered("acme.scale", body):
        np.testing.assert_array_equal(hlojit.compile(SCALE)(X), X * 3.5)
    assert facts == {"aligned": 0, "refused": [8], "threads": 1, "ran": [77]}


EFFECT = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  stablehlo.custom_call @acme.note(%x) {has_side_effect = true} : (tensor<2xf32>) -> ()
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  stablehlo.custom_call @acme.note(%0) {has_side_effect = true} : (tensor<2xf32>) -> ()
  return %x : tensor<2xf32>
}"""


def test_calls_with_effects_are_made_in_order_and_others_only_if_somebody_reads_them() -> None:
    seen: list[list[float]] = []
    with registered("acme.note", lambda frame: seen.append(frame.arguments[0].tolist())):
        hlojit.compile(EFFECT)(np.array([1, 2], "f4"))
        assert seen == [[1, 2], [2, 4]]
        hlojit.compile(EFFECT.replace("{has_side_effect = true} ", ""))(np.array([1, 2], "f4"))
    assert seen == [[1, 2], [2, 4]]


def test_calls_from_several_threads() -> None:
    with registered("acme.scale", scaled):
        executable = hlojit.compile(SCALE)
        with ThreadPoolExecutor(4) as threads:
            for number, found in enumerate(threads.map(lambda k: executable(X + k), range(40))):
                np.testing.assert_array_equal(found, (X + number) * 3.5)


def test_a_call_in_a_loop() -> None:
    text = """
func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %c = stablehlo.constant dense<0> : tensor<i32>
  %n = stablehlo.constant dense<5> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0:2 = stablehlo.while(%i = %c, %v = %x) : tensor<i32>, tensor<2x3xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.add %i, %one : tensor<i32>
    %2 = stablehlo.custom_call @acme.scale(%v) {mhlo.backend_config = {factor = 2.0 : f32}} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    stablehlo.return %1, %2 : tensor<i32>, tensor<2x3xf32>
  }
  return %0#1 : tensor<2x3xf32>
}"""
    with registered("acme.scale", scaled):
        np.testing.assert_array_equal(hlojit.compile(text)(X), X * 32)


def test_other_back_ends_run_the_substitute() -> None:
    with registered("acme.scale", scaled, substitute=lambda x, factor: x * factor):
        np.testing.assert_array_equal(hlojit.compile(SCALE, backend="reference")(X), X * 3.5)
    with registered("acme.scale", scaled):
        executable = hlojit.compile(SCALE, backend="reference")
        with pytest.raises(HlojitError, match="has no substitute="):
            executable(X)


def test_a_substitute_sees_tensors_without_layouts() -> None:
    x, out = np.random.default_rng(0).random((2, 3, 4)), np.random.default_rng(1).random((3, 5))

    def substitute(given: Any) -> Any:
        np.testing.assert_array_equal(given, x)
        return out

    with registered("acme.look", scaled, substitute=substitute):
        np.testing.assert_array_equal(hlojit.compile(LAYOUTS, backend="reference")(x), out)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{mhlo.backend_config = {l = [1 : i32]}}", "attribute l is .*no form"),
        ("{mhlo.backend_config = {l = unit}}", "attribute l is .*no form"),
        ("{mhlo.backend_config = {l = 1 : index}}", "a number of type index"),
        ("{mhlo.backend_config = {d = {l = 1 : i7}}}", "attribute d is a number of type i7"),
        ('{backend_config = "opaque"}', "not a dictionary of typed attributes"),
        (
            "{operand_layouts = [dense<[0, 0]> : tensor<2xindex>], result_layouts = [dense<[0, 1]> : tensor<2xindex>]}",
            "layout",
        ),
        (
            "{output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 3, "
            "operand_tuple_indices = []>]}",
            "alias",
        ),
    ],
)
def test_what_has_no_form_is_refused(config: str, message: str) -> None:
    text = SCALE.replace("{mhlo.backend_config = {factor = 2.5 : f32}, api_version = 4 : i32}", config)
    with registered("acme.scale", scaled), pytest.raises(HlojitError, match=message):
        hlojit.compile(text)


@pytest.mark.parametrize("given", [None, 0, -1, "name", True, 2**64])
def test_a_handler_is_a_function(given: Any) -> None:
    with pytest.raises(PluginError, match=r"custom call target 'acme.none': handler is"):
        ForeignCall("acme.none", handler=given)


def test_a_saved_program_holds_the_targets_name(tmp_path: Path) -> None:
    with registered("acme.scale", scaled):
        executable = hlojit.compile(SCALE)
        executable.save(tmp_path / "scale.hlojit")
        compiled = executable.spec.compiled
        assert compiled is not None
        assert "ffi:acme.scale" in [name for _, name in compiled.imports]
    with pytest.raises(HlojitError, match="custom call target 'acme.scale', and no plugin in scope has one"):
        hlojit.load(tmp_path / "scale.hlojit")

    def other(frame: Frame) -> None:
        frame.results[0][...] = 0

    with registered("acme.scale", other):
        np.testing.assert_array_equal(hlojit.load(tmp_path / "scale.hlojit")(X), X)


# ------------------------------------------------------------------------------------------------- JAX's handlers


def jax_calls() -> list[ForeignCall]:
    import jaxlib.lapack
    from jaxlib.cpu import _lapack

    _lapack.initialize()
    registrations = jaxlib.lapack.registrations()["cpu"]
    return [ForeignCall(name, handler=capsule) for name, capsule, version in registrations if version == 1]


class JaxCalls:
    @hookimpl
    def hlojit_custom_calls(self) -> list[ForeignCall]:
        return jax_calls()


@pytest.mark.parametrize("name", ["svd", "eigh", "qr", "cholesky", "inv", "slogdet"])
def test_handlers_of_jax_give_what_hlojits_own_calls_give(name: str) -> None:
    import jax
    from jax.numpy import linalg

    a = np.random.default_rng(0).standard_normal((3, 5, 5))
    a = a @ a.transpose(0, 2, 1) + np.eye(5)
    with jax.enable_x64(True):
        text = jax.jit(lambda x: jax.tree.leaves(getattr(linalg, name)(x))).lower(a).as_text()
    own = hlojit.compile(text)
    with using(JaxCalls()):
        theirs = hlojit.compile(text)
    assert theirs.spec.compiled is not None
    assert any(imported.startswith("ffi:lapack_") for _, imported in theirs.spec.compiled.imports)
    assert own.spec.compiled is not None
    assert all(imported.startswith("lapack:") for _, imported in own.spec.compiled.imports)
    for found, expected in zip(jax.tree.leaves(theirs(a)), jax.tree.leaves(own(a)), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_what_a_handler_of_jax_complains_of_is_an_exception() -> None:
    text = """
func.func @main(%a: tensor<4x4xf64>) -> (tensor<4x4xf64>, tensor<i32>) {
  %0:2 = stablehlo.custom_call @lapack_dpotrf_ffi(%a) {mhlo.backend_config = {}} : (tensor<4x4xf64>) -> (tensor<4x4xf64>, tensor<i32>)
  return %0#0, %0#1 : tensor<4x4xf64>, tensor<i32>
}"""
    with using(JaxCalls()):
        executable = hlojit.compile(text)
        with pytest.raises(
            ExecutionError, match=r"'lapack_dpotrf_ffi' failed: INVALID_ARGUMENT: .*number of attributes"
        ):
            executable(np.eye(4))


def test_the_interface_is_loaded_by_who_needs_it() -> None:
    code = """
import hlojit, numpy
from hlojit.runtime import ffi
hlojit.compile("func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {\\n  return %x : tensor<3xf32>\\n}")(numpy.zeros(3, "f4"))
assert ffi.addresses.made is None
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("raised", [ValueError("no such luck"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_python_handler_that_raises_ends_the_call_with_an_error(raised: BaseException) -> None:
    @foreign_handler
    def failing(frame: int) -> None:
        raise raised

    class Plugin:
        @hookimpl
        def hlojit_custom_calls(self) -> list[ForeignCall]:
            return [ForeignCall("acme.scale", handler=failing, asks_version=False)]

    with using(Plugin()):
        compiled = hlojit.compile(SCALE)
        for _ in range(3):
            with pytest.raises(ExecutionError, match=f"'acme.scale' failed: INTERNAL: .*{raised}"):
                compiled(X)


def test_bare_callbacks_of_ctypes_are_refused() -> None:
    callback = HANDLER(lambda frame: None)
    for bare in (callback, ctypes.cast(callback, HANDLER)):
        with pytest.raises(PluginError, match=r"'acme.scale': handler is a ctypes callback .* foreign_handler"):
            ForeignCall("acme.scale", handler=bare)
    # Functions of libraries, and those made of addresses, have no Python behind them.
    assert ForeignCall("acme.scale", handler=ctypes.CDLL(None).free).address()
    assert ForeignCall(
        "acme.scale", handler=HANDLER(ForeignCall("acme.scale", handler=ctypes.CDLL(None).free).address())
    )


def test_python_handler_returns_an_error_or_nothing() -> None:
    class Plugin:
        @hookimpl
        def hlojit_custom_calls(self) -> list[ForeignCall]:
            return [ForeignCall("acme.scale", handler=foreign_handler(lambda frame: "done"), asks_version=False)]  # type: ignore[arg-type, return-value]

    with using(Plugin()):
        compiled = hlojit.compile(SCALE)
        with pytest.raises(ExecutionError, match="a handler returns None or the address of an error, not 'done'"):
            compiled(X)


@pytest.mark.parametrize("element", ["bf16", "f16", "i4", "f32"])
def test_substitutes_are_given_arrays_as_callers_have_them(element: str) -> None:
    seen = []

    def substitute(x: Any) -> Any:
        seen.append(x.dtype)
        return x

    class Plugin:
        @hookimpl
        def hlojit_custom_calls(self) -> list[ForeignCall]:
            return [ForeignCall("acme.same", handler=foreign_handler(lambda frame: None), substitute=substitute)]

    kind = f"tensor<3x{element}>"
    with using(Plugin()):
        program = hlojit.compile(
            f"func.func @main(%x: {kind}) -> {kind} {{\n  %0 = stablehlo.custom_call @acme.same(%x) "
            f"{{api_version = 4 : i32, backend_config = {{}}}} : ({kind}) -> {kind}\n  return %0 : {kind}\n}}",
            backend="reference",
        )
    dtype = program.input_types[0].element_type.dtype
    x = np.array([1, 2, 3]).astype(dtype)
    np.testing.assert_array_equal(program(x), x)
    assert seen == [dtype]


@pytest.mark.parametrize(
    ("place", "name"), [(3, "Handler_Register"), (4, "Stream_Get"), (7, "State_Set"), (13, "Future_Create")]
)
def test_a_function_of_the_interface_that_there_is_not_is_named(place: int, name: str) -> None:
    @foreign_handler
    def ask(frame: int) -> int:
        table = ctypes.c_int64.from_address(frame + 16).value
        return int(HANDLER(ctypes.c_int64.from_address(table + 48 + 8 * place).value)(0))

    class Asking:
        @hookimpl
        def hlojit_custom_calls(self) -> list[ForeignCall]:
            return [ForeignCall("t.ask", handler=ask, asks_version=False)]

    text = (
        "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
        "  %0 = stablehlo.custom_call @t.ask(%x) {api_version = 4 : i32} : (tensor<2xf32>) -> tensor<2xf32>\n"
        "  return %0 : tensor<2xf32>\n}"
    )
    with using(Asking()), pytest.raises(ExecutionError, match=f"UNIMPLEMENTED: XLA_FFI_{name} is not offered"):
        hlojit.compile(text)(np.ones(2, "f4"))
