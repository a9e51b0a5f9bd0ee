"""What somebody new gets wrong: every message says what was given, where, why it does not do, and what to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir import Builder

X = np.ones(2, "f4")
IDENTITY = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n return %x : tensor<2xf32>\n}"


class Vendor:
    @ext.hookimpl
    def hlojit_custom_calls(self) -> Any:
        return ext.ElementwiseCall("vendor.call", function=lambda x: x)


def compiled(program: Any) -> Callable[[], Any]:
    return lambda: hlojit.compile(program)


def returned(value: Any) -> Callable[[], Any]:
    return lambda: hlojit.jit(lambda x: value)(X)


ROWS: dict[str, tuple[Callable[[], Any], str]] = {
    "compile a number": (compiled(3), "takes a program, not an object of type int; pass a str or an hlojit Module"),
    "compile a function": (compiled(lambda x: x), r"of type function; hlojit.jit compiles .*\.lower\("),
    "compile bytes": (compiled(b"module"), r"of type bytes; pass the text as a str"),
    "compile bytecode": (
        compiled(b"ML\xefR\x00"),
        r"MLIR's bytecode .* not read: pass text .*exported\.mlir_module\(\)",
    ),
    "compile what JAX lowered": (
        compiled(SimpleNamespace(as_text=lambda: IDENTITY)),
        r"of type SimpleNamespace; pass its text, \.as_text\(\)",
    ),
    "compile what JAX exported": (
        compiled(SimpleNamespace(mlir_module=lambda: IDENTITY)),
        r"of type SimpleNamespace; pass its text, \.mlir_module\(\)",
    ),
    "compile a path": (compiled(Path("a.mlir")), r"of type \w*Path; pass what the file holds"),
    "compile a file's name": (compiled("model.mlir"), r"'model.mlir' is none; of a file pass what it holds"),
    "compile nothing": (compiled(""), "the program is an empty text"),
    "put on a number": (lambda: hlojit.put(X, 3), "3 of type int is no device; pass one of hlojit.devices"),  # type: ignore[arg-type]
    "put on the moon": (lambda: hlojit.put(X, "moon:"), "unknown back end 'moon'; known: cpu"),
    "put in a space": (
        lambda: hlojit.put(X, memory_space="fast"),  # type: ignore[arg-type]
        "cpu:0 has no memory space 'fast'; pass one of its memory_spaces",
    ),
    "a function's name": (
        lambda: ext.ElementwiseCall("a.b", function="x"),
        "'a.b': function is 'x', which is not a fun",
    ),
    "a ufunc": (lambda: ext.ElementwiseCall("a.b", function=np.exp), r"'a.b': function is the ufunc exp.*np\.exp\(x\)"),
    "no factory": (lambda: ext.ElementwiseCall("a.b", factory=3), "'a.b': factory is 3, which is not a function"),  # type: ignore[arg-type]
    "no expansion": (lambda: ext.ExpansionCall("a.b"), "'a.b': an ExpansionCall needs expand=, .*; got None"),
    "an expansion's number": (lambda: ext.ExpansionCall("a.b", expand=3), "needs expand=, .*; got 3"),  # type: ignore[arg-type]
    "a bare object": (
        lambda: ext.register(Vendor()),
        "hlojit_custom_calls returned one ElementwiseCall; return a list",
    ),
    "a class": (lambda: ext.register(Vendor), r"'Vendor' is a class, and .* give an instance: register\(Vendor\(\)\)"),
    "a result's function": (returned(len), "result is <built-in function len> of type builtin_function_or_method"),
    "a result inside": (returned({"a": [1.0, len]}), r"result\['a'\]\[1\] is <built-in function len> of type"),
}


@pytest.mark.parametrize("name", ROWS)
def test_messages(name: str) -> None:
    action, message = ROWS[name]
    with pytest.raises(hlojit.HlojitError, match=message):
        action()


def test_saving_where_there_is_no_folder_names_the_path(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "program.hlojit"
    with pytest.raises(FileNotFoundError) as caught:
        hlojit.compile(IDENTITY).save(path)
    assert caught.value.filename == str(path)


def test_dense_configurations_arrive_as_arrays() -> None:
    seen = []

    def factory(site: Any) -> Any:
        seen.append(site.config)
        first = float(site.config["table"][0])
        return lambda x: x * first

    plugin = SimpleNamespace(
        __name__="vendor", hlojit_custom_calls=ext.hookimpl(lambda: [ext.ElementwiseCall("a.b", factory=factory)])
    )
    text = IDENTITY.replace(
        " return %x",
        " %0 = stablehlo.custom_call @a.b(%x) {api_version = 4 : i32, backend_config = {table = dense<[3.0, 4.0]> : tensor<2xf32>}} : "
        "(tensor<2xf32>) -> tensor<2xf32>\n return %0",
    )
    with ext.using(plugin):
        np.testing.assert_array_equal(hlojit.compile(text)(X), 3 * X)
    assert isinstance(seen[0]["table"], np.ndarray)


def test_builders_list_the_ops() -> None:
    names = dir(Builder(hlojit.parse(IDENTITY).main.body))
    assert {"add", "top_k", "return_", "while_", "constant", "create"} <= set(names)


def test_a_target_that_nobody_registered_cannot_be_decomposed() -> None:
    text = IDENTITY.replace(
        " return %x", " %0 = stablehlo.custom_call @no.body(%x) : (tensor<2xf32>) -> tensor<2xf32>\n return %x"
    )
    call = next(each for each in hlojit.parse(text).walk() if each.name == "stablehlo.custom_call")
    assert not ext.can_decompose(call)
