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
from hlojit.extensions.functions.implementations import foreign_implementations
from hlojit.extensions.functions.numba_bridge import compile_scalar
from hlojit.ir.fingerprint import fingerprint

from .processes import run

SCRIPT = """
    import hlojit, math, numpy as np, operator, sys, types
    from hlojit.extensions import hookimpl, register
    from hlojit.extensions.calls.elementwise_calls import ElementwiseCall
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


EVERY_REGISTRATION = """
import hlojit, math, numba, numpy as np, operator, sys, types
from hlojit.extensions.functions.implementations import foreign_implementations
from hlojit.extensions.functions.numba_bridge import compile_scalar
from numba.core import types as kinds
from numba.core.imputils import impl_ret_untracked
import numba.core.typing.templates as templates

def defined(name, source):
    sys.modules[name] = types.ModuleType(name)
    scope = vars(sys.modules[name])
    scope.update({key: value for key, value in globals().items() if not key.startswith("__")})
    exec(source, scope)
    return scope

def check(name, body, kind="float32"):
    function = eval("lambda x: " + body, scope)
    compiled = numba.njit((getattr(kinds, kind),))(function)
    (made,) = compiled.overloads.values()
    found = list(foreign_implementations(made, compiled.typingctx))
    print(name if any(each.startswith(name) for each in found) else f"escaped:{name}")
    assert compile_scalar(function, ("f32",), "f64", "the test").unkeyable

from numba.extending import (intrinsic, lower_builtin, lower_cast, lower_getattr, lower_getattr_generic, overload,
                             overload_attribute, overload_method, register_jitable, type_callable)
from numba.core.imputils import lower_constant

doubled = "builder.fadd(args[0], args[0])"
scope = defined("acme_builtin", f"def lower(context, builder, sig, args): return {doubled}")
lower_builtin(math.sin, kinds.float32)(scope["lower"])
check("acme_builtin.lower", "math.sin(x)")

scope = defined("acme_operator", f"def lower(context, builder, sig, args): return {doubled}")
lower_builtin(operator.truediv, kinds.float32, kinds.float32)(scope["lower"])
check("acme_operator.lower", "x / x")

scope = defined("acme_attribute", "def lower(context, builder, typ, value): return builder.fadd(value, value)")
lower_getattr(kinds.float32, "real")(scope["lower"])
check("acme_attribute.lower", "x.real")

scope = defined("acme_template", f'''
def helper(x): pass
@templates.infer_global(helper)
class Template(templates.AbstractTemplate):
    def generic(self, args, kws): return templates.signature(kinds.float32, kinds.float32)
def lower(context, builder, sig, args): return {doubled}
''')
lower_builtin(scope["helper"], kinds.float32)(scope["lower"])
check("acme_template.Template", "helper(x)")

scope = defined("acme_callable", f'''
def helper(x): pass
@type_callable(helper)
def typed(context):
    def typer(x): return kinds.float32
    return typer
def lower(context, builder, sig, args): return {doubled}
''')
lower_builtin(scope["helper"], kinds.float32)(scope["lower"])
check("acme_callable.", "helper(x)")

scope = defined("acme_getattr", '''
@templates.infer_getattr
class Attributes(templates.AttributeTemplate):
    key = kinds.Float
    def resolve_scaled(self, x): return x
def lower(context, builder, typ, value): return builder.fadd(value, value)
''')
lower_getattr(kinds.Float, "scaled")(scope["lower"])
check("acme_getattr.", "x.scaled")

scope = defined("acme_intrinsic", f'''
@intrinsic
def doubled(typing, x):
    def code(context, builder, sig, args): return {doubled}
    return kinds.float32(kinds.float32), code
def helper(x): pass
@overload(helper)
def implement(x): return lambda x: doubled(x)
''')
try:
    check("acme_intrinsic.implement", "helper(x)")
except hlojit.PluginError as error:
    print("refused", "doubled" in str(error))

scope = defined("acme_nested", '''
def inner(x): pass
@overload(inner)
def implement(x): return lambda x: x * 2.0
@register_jitable
def outer(x): return inner(x)
''')
check("acme_nested.implement", "outer(x)")

scope = defined("acme_cast", "def lower(context, builder, fromty, toty, value): return builder.fpext(value, context.get_value_type(toty))")
lower_cast(kinds.float32, kinds.float64)(scope["lower"])
check("acme_cast.lower", "np.float64(x)")

scope = defined("acme_constant", "def lower(context, builder, ty, value): return context.get_value_type(ty)(value * 2)")
lower_constant(kinds.float64)(scope["lower"])
check("acme_constant.lower", "x * 1.5")
"""


def test_every_way_to_register_with_numba_is_seen(tmp_path: Path) -> None:
    """Of what is not seen a stale kernel would be found in the cache on disk."""
    names = run(EVERY_REGISTRATION, tmp_path).split()
    assert len(names) == 10 and not any(name.startswith("escaped") for name in names), names


def test_a_rewriting_pass_of_a_plugin_is_seen(tmp_path: Path) -> None:
    code = """
        import types
        from hlojit.extensions.functions.numba_bridge import compile_scalar
        from numba.core.rewrites import Rewrite, register_rewrite
        Acme = type("Acme", (Rewrite,), {"match": lambda *arguments: False, "__module__": "acme_rewrites"})
        assert not compile_scalar(lambda x: x + 1.0, ("f64",), "f64", "the test").unkeyable
        register_rewrite("before-inference")(Acme)
        print(compile_scalar(lambda x: x + 2.0, ("f64",), "f64", "the test").unkeyable)
    """
    assert "acme_rewrites.Acme" in run(textwrap.dedent(code), tmp_path)


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


def test_numbas_tables_are_looked_at_while_nobody_else_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from hlojit.extensions.functions import numba_bridge
    from numba.core.compiler_lock import global_compiler_lock

    held = []

    def looked_at(*arguments: Any) -> Any:
        held.append(global_compiler_lock.is_locked())
        return iter(())

    monkeypatch.setattr(numba_bridge, "foreign_implementations", looked_at)
    numba_bridge.compile_scalar(lambda x: x * 3.2578125, ("f32",), "f32", "test")
    assert held == [True]
