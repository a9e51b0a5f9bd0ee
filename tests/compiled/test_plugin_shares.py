"""What of plugins counts in the key of a program: what may take part in its compilation, with all that changes under it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit import extensions as ext
from hlojit.disk_cache import DiskCache
from hlojit.ir.builder import Builder
from hlojit.ir.errors import HlojitError
from hlojit.ir.fingerprint import NotKeyable
from hlojit.plugin_shares import plugin_shares

X = np.arange(6, dtype="f4")
ADD = """func.func @main(%x: tensor<6xf32>) -> tensor<6xf32> {
  %0 = stablehlo.add %x, %x : tensor<6xf32>
  return %0 : tensor<6xf32>
}"""
LOCK = threading.Lock()
"""What has no content: whoever looks at it raises ``NotKeyable``."""


def unkeyable(*ignored: Any) -> Any:
    return LOCK


def plugin(**brought: list[Any]) -> Any:
    hooks = {f"hlojit_{kind}": ext.hookimpl(lambda self, items=items: items) for kind, items in brought.items()}
    return type("Vendor", (), hooks)()


def pass_for(*targets: str, **attributes: Any) -> ext.Pass:
    body = {"name": "vendor-idle", "phase": "simplify", "targets": targets, "run": lambda self, module: False}
    made: ext.Pass = dataclass(frozen=True)(type("Idle", (ext.Pass,), {**body, **attributes}))()
    return made


def kernel_for(backend: str, build: Callable[..., Any] = unkeyable) -> ext.Kernel:
    return ext.Kernel("vendor.kernel", backend=backend, pattern=ext.OpPattern("stablehlo.add"), build=build)


def call(target: str = "vendor.scaled", function: Callable[..., Any] = unkeyable) -> ext.CustomCall:
    return ext.ExpansionCall(target, expand=lambda builder, instruction: [function(*instruction.operands)])


def format_called(name: str, decode: Callable[..., Any]) -> ext.FloatFormat:
    return ext.FloatFormat(name, exponent_bits=3, mantissa_bits=2, bias=3, decode=decode, encode=decode)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HLOJIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def programs(folder: Path) -> int:
    return sum(entry.kind == "programs" for entry in DiskCache(folder).entries())


# ------------------------------------------------------------------------------------------------------------ idle


IDLE = {
    "pass": lambda: plugin(passes=[pass_for("cuda", held=LOCK)]),
    "kernel": lambda: plugin(kernels=[kernel_for("cuda")]),
    "custom call": lambda: plugin(custom_calls=[call()]),
    "format": lambda: plugin(formats=[ext.FloatFormat("vendor6", exponent_bits=3, mantissa_bits=2, bias=3)]),
}


@pytest.mark.parametrize("kind", IDLE)
def test_what_is_idle_is_not_looked_at(kind: str, own_folder: Path) -> None:
    hlojit.compile(ADD)
    assert programs(own_folder) == 1
    with ext.using(IDLE[kind]()):
        assert plugin_shares(ADD, "cpu") == {}
        np.testing.assert_array_equal(hlojit.compile(ADD)(X), X + X)
    assert programs(own_folder) == 1, "with and without the plugin it is one program"


def test_an_idle_back_end_and_traced_functions(own_folder: Path) -> None:
    def compiled() -> Any:
        return hlojit.jit(lambda x: x + x)(X)

    compiled()
    with ext.using(IDLE["custom call"]()):
        compiled()
    assert programs(own_folder) == 1


def test_what_has_no_content_and_takes_part_is_not_kept() -> None:
    for each in (pass_for("cpu", held=LOCK), pass_for(held=LOCK)):
        with ext.using(plugin(passes=[each])), pytest.raises(NotKeyable, match="lock"):
            plugin_shares(ADD, "cpu")
    with ext.using(plugin(kernels=[kernel_for("cpu")])), pytest.raises(NotKeyable, match="lock"):
        plugin_shares(ADD, "cpu")


def test_others_count_by_what_was_registered_where_code_takes_part() -> None:
    kernel = plugin(kernels=[kernel_for("cpu", lambda group: ext.Declined("no"))])

    def shares(*targets: str) -> dict[str, str]:
        other = SimpleNamespace(
            __name__="Other", hlojit_custom_calls=ext.hookimpl(lambda: [call(each) for each in targets])
        )
        with ext.using(kernel, other):
            return plugin_shares(ADD, "cpu")

    assert set(shares()) == {"Vendor", "Other"}
    assert shares("other.f") == shares("other.f"), "though it has no content"


# ------------------------------------------------------------------------------------------------- names in programs


FORMATS = [
    ("vendor6", "tensor<6xvendor6>"), ("vendor6", "tensor<6 x complex< vendor6 >>"), ("vendor6", r'"\76endor6"'),
]  # fmt: skip
CODE = [
    ("vendor.scaled", "stablehlo.custom_call @vendor.scaled(%x)"), ("vendor.*", "stablehlo.custom_call @vendor.any(%x)"),
    ("*", "stablehlo.custom_call @any(%x)"), ("a*b*c", "stablehlo.custom_call @a1b2c(%x)"),
    ("vendor.scaled", r'{call_target_name = "\76endor.scaled"}'), ("0xab", 'stablehlo.custom_call @"0xab"(%x)'),
    ("vendor.scaled", '%c = dense<"0x0000803F"> stablehlo.custom_call @vendor.scaled(%x)'),
]  # fmt: skip


@pytest.mark.parametrize(("target", "text"), CODE)
def test_calls_that_the_program_may_name_count(target: str, text: str) -> None:
    with ext.using(plugin(custom_calls=[call(target)])):
        with pytest.raises(NotKeyable):
            plugin_shares(text, "cpu")
        if target == "vendor.scaled":
            assert plugin_shares('stablehlo.constant dense<"0xvendor.scaled"> : @other(%x)', "cpu") == {}


@pytest.mark.parametrize(("name", "text"), FORMATS)
def test_formats_that_the_program_may_name_count(name: str, text: str) -> None:
    with ext.using(plugin(formats=[format_called(name, lambda x: x + 1)])):
        first = plugin_shares(text, "cpu")
        assert plugin_shares(ADD, "cpu") == {}
    with ext.using(plugin(formats=[format_called(name, lambda x: x + 2)])):
        assert plugin_shares(text, "cpu") != first


@pytest.mark.parametrize("other", [{"passes": [pass_for()]}, {"passes": [pass_for("cpu")]}])
def test_where_a_pass_may_build_instructions_everything_counts(other: dict[str, list[Any]]) -> None:
    with ext.using(plugin(**other, custom_calls=[call()])), pytest.raises(NotKeyable):
        plugin_shares(ADD, "cpu")


class Own(ext.Backend):
    name = "vendor"

    def capability(self, instruction: ext.Instruction) -> ext.Capability:
        return ext.YES

    def compile(self, module: ext.Module, options: ext.CompileOptions) -> Any:
        raise NotImplementedError


def test_the_back_end_of_a_plugin_may_ask_for_anything() -> None:
    for brought in (
        {"custom_calls": [call()]},
        {"passes": [pass_for("cuda", held=LOCK)]},
        {"kernels": [kernel_for("cuda")]},
    ):
        with ext.using(plugin(**brought, backends=[Own()])):
            assert plugin_shares(ADD, "cpu") == {}
            with pytest.raises(NotKeyable):
                plugin_shares(ADD, "vendor")


def test_names_of_passes_count_where_options_name_passes(own_folder: Path) -> None:
    options = {"disable_passes": ("vendor-idle",)}
    with ext.using(IDLE["pass"]()):
        hlojit.compile(ADD, options=options)
    with pytest.raises(HlojitError, match="unknown pass 'vendor-idle'"):
        hlojit.compile(ADD, options=options)


# ------------------------------------------------------------------------------------- what changes under a record


FACTOR, NUMBERS, TABLE = 2.0, [2.0], np.array([2.0])


class Constants:
    factor = 2.0


def factor_of_globals() -> float:
    return FACTOR


@contextmanager
def global_number() -> Iterator[tuple[Callable[[], float], Callable[[], None]]]:
    before = globals()["FACTOR"]
    yield (lambda: FACTOR), lambda: globals().update(FACTOR=3.0)
    globals()["FACTOR"] = before


@contextmanager
def helper_s_global() -> Iterator[tuple[Callable[[], float], Callable[[], None]]]:
    before = globals()["FACTOR"]
    yield (lambda: factor_of_globals()), lambda: globals().update(FACTOR=3.0)
    globals()["FACTOR"] = before


@contextmanager
def helper_replaced() -> Iterator[tuple[Callable[[], float], Callable[[], None]]]:
    before = factor_of_globals
    yield (lambda: factor_of_globals()), lambda: globals().update(factor_of_globals=lambda: 3.0)
    globals()["factor_of_globals"] = before


@contextmanager
def code_replaced() -> Iterator[tuple[Callable[[], float], Callable[[], None]]]:
    def factor() -> float:
        return 2.0

    yield factor, lambda: setattr(factor, "__code__", (lambda: 3.0).__code__)


@contextmanager
def closure_cell() -> Iterator[tuple[Callable[[], float], Callable[[], None]]]:
    number = 2.0

    def change() -> None:
        nonlocal number
        number = 3.0

    yield (lambda: number), change


@contextmanager
def defaults() -> Iterator[tuple[Callable[[], float], Callable[[], None]]]:
    def factor(number: float = 2.0) -> float:
        return number

    yield factor, lambda: setattr(factor, "__defaults__", (3.0,))


@contextmanager
def class_attribute() -> Iterator[tuple[Callable[[], float], Callable[[], None]]]:
    yield (lambda: Constants.factor), lambda: setattr(Constants, "factor", 3.0)
    Constants.factor = 2.0


@contextmanager
def list_element() -> Iterator[tuple[Callable[[], float], Callable[[], None]]]:
    yield (lambda: NUMBERS[0]), lambda: NUMBERS.__setitem__(0, 3.0)
    NUMBERS[0] = 2.0


@contextmanager
def array_element() -> Iterator[tuple[Callable[[], float], Callable[[], None]]]:
    yield (lambda: float(TABLE[0])), lambda: TABLE.__setitem__(0, 3.0)
    TABLE[0] = 2.0


CHANGES = (
    global_number, helper_s_global, helper_replaced, code_replaced, closure_cell, defaults, class_attribute, list_element,
    array_element,
)  # fmt: skip


def scaling(factor: Callable[[], float]) -> ext.ExpansionCall:
    def expand(builder: Builder, instruction: ext.Instruction) -> list[ext.Value]:
        (x,) = instruction.operands
        return [builder.multiply(x, builder.constant(factor(), x.tensor_type))]

    return ext.ExpansionCall("vendor.scaled", expand=expand)


def to_call(module: ext.Module) -> bool:
    """Whether an addition was replaced: by a call that the program does not name."""
    for each in list(module.main.body):
        if each.name == "stablehlo.add":
            kind = each.results[0].tensor_type
            builder = Builder.in_front_of(each)
            each.replace_with(
                [builder.custom_call(each.operands[0], result_types=[kind], call_target_name="vendor.scaled")]
            )
            return True
    return False


@pytest.mark.parametrize("changing", CHANGES)
@pytest.mark.parametrize("way", ["named", "built"])
def test_what_changes_under_a_record_changes_the_program(
    changing: Callable[[], Any], way: str, own_folder: Path
) -> None:
    """Also in the hands of another plugin's pass, which brings a call into a program that does not name it."""
    text = ADD.replace("stablehlo.add %x, %x : ", "stablehlo.custom_call @vendor.scaled(%x) : (tensor<6xf32>) -> ")
    passes = SimpleNamespace(
        __name__="Passes",
        hlojit_passes=ext.hookimpl(
            lambda: (
                [pass_for("cpu", phase="legalize", run=lambda self, module: to_call(module))] if way == "built" else []
            )
        ),
    )
    with changing() as (factor, change), ext.using(plugin(custom_calls=[scaling(factor)]), passes):
        for expected in (2, 2, 3):
            if expected == 3:
                change()
            np.testing.assert_array_equal(hlojit.compile(ADD if way == "built" else text)(X), expected * X)
    assert programs(own_folder) == 2


@pytest.mark.parametrize("changing", CHANGES)
def test_what_changes_under_passes_and_kernels_changes_the_key(changing: Callable[[], Any]) -> None:
    for brought in (
        lambda factor: {"passes": [pass_for("cpu", run=lambda self, module: bool(factor()) and False)]},
        lambda factor: {"kernels": [kernel_for("cpu", lambda group: ext.Declined(f"{factor()}"))]},
    ):
        with changing() as (factor, change), ext.using(plugin(**brought(factor))):
            before = plugin_shares(ADD, "cpu")
            assert plugin_shares(ADD, "cpu") == before
            change()
            assert plugin_shares(ADD, "cpu") != before
