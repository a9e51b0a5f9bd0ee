"""Structure keys: what must be equal and what must differ for one kernel to serve two instructions."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir.attributes import StringAttr
from hlojit.ir.fingerprint import NotKeyable
from hlojit.ir.formats import FloatFormat, element_type
from hlojit.ir.ops.definition import OpDefinition, Operand, Pointwise
from hlojit.lowering.structure import Identities, module_text, structure_text

ADD = "func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {{ %0 = stablehlo.{op} {x}, {y} : tensor<4xf32> return %0 : tensor<4xf32> }}"


def key(op: str = "add", x: str = "%a", y: str = "%b") -> str:
    return structure_text(next(iter(hlojit.parse(ADD.format(op=op, x=x, y=y)).main.body)))


def test_ops_and_connections_count() -> None:
    assert key() == key() == key(x="%b", y="%a")
    assert len({key(), key("subtract"), key(x="%a", y="%a")}) == 3


def test_module_texts_are_about_the_whole_module() -> None:
    first, second = (hlojit.parse(ADD.format(op="add", x="%a", y="%b")) for _ in range(2))
    assert module_text(first) == module_text(second)
    second.main.argument_attributes[0]["jax.buffer_donor"] = StringAttr("x")
    assert module_text(first) != module_text(second)
    assert module_text(first) != module_text(hlojit.parse(ADD.format(op="add", x="%b", y="%a")))


def _add_hook(plugin: Any, name: str, items: Any) -> None:
    setattr(plugin, name, ext.hookimpl(lambda: items))


def with_plugin(**brings: Any) -> Any:
    class Plugin:
        pass

    plugin = Plugin()
    for name, items in brings.items():
        _add_hook(plugin, f"hlojit_{name}", items)
    return plugin


def decoding(scale: float) -> FloatFormat:
    return FloatFormat("vendor8", bits=8, decode=lambda bits: bits * scale, encode=lambda value: int(value / scale))


def test_a_vendor_s_format_counts_by_content() -> None:
    first, same, other = (Identities().of(decoding(scale)) for scale in (0.5, 0.5, 0.25))
    assert first == same != other
    assert not Identities().of(element_type("f8E4M3FN"))


def first_type(call: Any) -> Any:
    return call.operand_types[:1]


def twice(builder: Any, call: Any, x: Any) -> Any:
    return builder.fadd(x, x)


def square(builder: Any, call: Any, x: Any) -> Any:
    return builder.fmul(x, x)


def test_an_op_registered_again_gets_its_own_kernel() -> None:
    """Also for a module that was parsed before: its kernel is the old op's, and is nobody else's."""
    text = 'func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> { %0 = "vendor.op"(%a) : (tensor<3xf32>) -> tensor<3xf32> return %0 : tensor<3xf32> }'
    x = np.arange(3, dtype="f4")
    for rule in (twice, square, twice):
        record = OpDefinition("vendor.op", operands=(Operand("x"),), infer=first_type, lowering=Pointwise(rule))
        with ext.using(with_plugin(ops=[record])):
            expected = x + x if rule is twice else x * x
            np.testing.assert_array_equal(hlojit.compile(text)(x), expected)


def test_what_has_no_content_is_said() -> None:
    import ctypes

    pointer = ctypes.c_void_p(1)
    record = OpDefinition(
        "vendor.op", operands=(Operand("x"),), infer=first_type, lowering=Pointwise(lambda *_: pointer)
    )
    with ext.using(with_plugin(ops=[record])):
        module = hlojit.parse(
            'func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> { %0 = "vendor.op"(%a) : (tensor<3xf32>) -> tensor<3xf32> return %0 : tensor<3xf32> }'
        )
        with pytest.raises(NotKeyable, match="c_void_p"):
            structure_text(next(iter(module.main.body)))


def test_kernels_have_the_same_symbols_in_every_process() -> None:
    script = (
        "import hlojit\n"
        f"texts = [{ADD!r}.format(op=op, x='%a', y='%b') for op in ORDER]\n"
        "found = {text: hlojit.compile(text).spec.program.launches()[0].kernel.phases[0].symbol for text in texts}\n"
        "print(sorted(found.values()))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script.replace('ORDER', order)], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": "0" if "['add'" in order else "1"},
        ).stdout
        for order in ("['add', 'multiply']", "['multiply', 'add']")
    }  # fmt: skip
    assert len(said) == 1
