"""Implementations that plugins register with numba: their code is in no function's content, so nothing is kept of it."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions.implementations import foreign_implementations
from hlojit.extensions.numba_bridge import compile_scalar
from hlojit.ir.fingerprint import fingerprint

from .processes import run

SCRIPT = """
    import hlojit, math, numpy as np, operator, sys, types
    from hlojit.extensions import hookimpl, register
    from hlojit.extensions.elementwise_calls import ElementwiseCall
    from numba.core import types as kinds
    from numba.extending import overload, overload_attribute, overload_method
    def helper(x): pass
    source = "def implement(x):\\n    return lambda x: x * {scale}\\n"
    scope = dict(__name__="acme")
    exec(source, scope)
    {register}
    def outer(x): return {body}
    class Plugin:
        @hookimpl
        def hlojit_custom_calls(self): return [ElementwiseCall("acme.outer", function=outer)]
    register(Plugin())
    text = '''func.func @main(%a: tensor<64xf32>) -> tensor<64xf32> {{
      %r = stablehlo.custom_call @acme.outer(%a) : (tensor<64xf32>) -> tensor<64xf32>
      return %r : tensor<64xf32> }}'''
    print(hlojit.compile(text)(np.ones(64, np.float32))[0])
"""


@pytest.mark.parametrize(
    "register, body",
    [
        ("overload(helper)(scope['implement'])", "helper(x)"),
        ("overload_method(kinds.Float, 'scaled')(scope['implement'])", "x.scaled()"),
        ("overload_attribute(kinds.Float, 'scaled')(scope['implement'])", "x.scaled"),
        ("overload(operator.invert)(scope['implement'])", "~x"),
    ],
    ids=["function", "method", "attribute", "operator"],
)
def test_what_changed_in_an_implementation_counts(tmp_path: Path, register: str, body: str) -> None:
    """In another process, with one cache on disk."""
    for scale in (2.0, 3.0):
        code = textwrap.dedent(SCRIPT).format(scale=scale, register=register, body=body)
        assert float(run(code, tmp_path, HLOJIT_CACHE=str(tmp_path / "cache"))) == scale


def _overloaded(scale: float) -> Any:
    """A function whose content does not tell the scale."""
    module = ModuleType("acme_module")
    source = f"""
from numba.extending import overload
def helper(x): pass
@overload(helper)
def implement(x):
    return lambda x: x * {scale}
def outer(x): return helper(x)
"""
    exec(source, module.__dict__)
    return module.outer


def test_functions_that_look_alike_in_one_process() -> None:
    first, second = _overloaded(2.0), _overloaded(3.0)
    assert fingerprint(first) == fingerprint(second)
    text = """func.func @main(%a: tensor<64xf32>) -> tensor<64xf32> {
      %r = stablehlo.custom_call @acme.outer(%a) : (tensor<64xf32>) -> tensor<64xf32>
      return %r : tensor<64xf32> }"""
    for function, scale in ((first, 2.0), (second, 3.0), (first, 2.0)):

        class Plugin:
            hlojit_custom_calls = ext.hookimpl(
                lambda self, function=function: [ext.ElementwiseCall("acme.outer", function=function)]
            )

        with ext.using(Plugin()):
            executable = hlojit.compile(text)
        np.testing.assert_array_equal(executable(np.ones(64, "f4")), np.full(64, scale, "f4"))
        assert "acme_module.implement" in executable.spec.compiled.unkeyable[0]


def test_numba_s_own_implementations_count_by_its_version() -> None:
    import numba

    table = np.array([1.0, 2.0])

    @numba.extending.register_jitable
    def helper(x: float) -> float:
        return x + 1.0

    @numba.njit
    def jitted(x: float) -> float:
        return helper(x) - x**2

    def plain(x: float) -> float:
        found = math.log1p(abs(x)) + np.sin(x) + max(x, 2.0) + round(x) + table[int(x) & 1]
        return jitted(float(found)) if -found < x or not x else helper(x.real)

    assert not compile_scalar(plain, ("f64",), "f64", "a test").unkeyable
    compiled = numba.njit("f8(f8)")(plain)
    (overload,) = compiled.overloads.values()
    assert not list(foreign_implementations(overload, compiled.typingctx))


def test_messages_of_kernels_do_not_name_files() -> None:
    """A kernel serves everybody who has the same function, wherever it is written."""
    found = []
    for path in ("/first/acme.py", "/second/acme.py"):
        scope: dict[str, Any] = {"TABLE": np.arange(4)}
        exec(compile("def look_up(x): return TABLE[x]", path, "exec"), scope)
        found.append(compile_scalar(scope["look_up"], ("i64",), "i64", "the acme op"))
    first, second = found
    assert first == second
    assert first.failure.startswith("the acme op: ") and first.failure.endswith(" in look_up")
