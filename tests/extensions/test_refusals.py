"""What registration refuses: what is built in cannot be displaced, and mistakes of plugins are named."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest

X = np.linspace(-2, 2, 50, dtype="f4")
ABS = "func.func @main(%x: tensor<50xf32>) -> tensor<50xf32> { %0 = stablehlo.abs %x : tensor<50xf32> return %0 : tensor<50xf32> }"


def plugin(name: str = "test", **hooks: Any) -> Any:
    """An object whose hooks return what is given: ``plugin(custom_calls=[...])``."""

    def hook(items: Any) -> Any:
        return ext.hookimpl(lambda: items)

    return SimpleNamespace(__name__=name, **{f"hlojit_{kind}": hook(items) for kind, items in hooks.items()})


# ------------------------------------------------------------------------------------------------------ what is built in


class OtherCpu(ext.Backend):
    """Claims the name of a built-in back end."""

    name = "cpu"

    def capability(self, instruction: Any) -> Any:
        return ext.YES

    def compile(self, module: Any, options: Any) -> Any:
        return lambda *arrays: [each * 0 for each in arrays]


@dataclass(frozen=True)
class OtherSimplifier(ext.Pass):
    """Claims the name of a built-in pass."""

    name: ClassVar[str] = "algebraic-simplifier"

    def run(self, module: Any) -> bool:
        return False


@dataclass(frozen=True)
class OtherBinding(OtherSimplifier):
    """Claims the name of the pass that legalizes."""

    name: ClassVar[str] = "legalization"


@pytest.mark.parametrize(("hooks", "name"), [
    ({"backends": [OtherCpu()]}, "'cpu'"), ({"passes": [OtherSimplifier()]}, "'algebraic-simplifier'"),
    ({"passes": [OtherBinding()]}, "'legalization'"),
])  # fmt: skip
def test_what_is_built_in_is_not_displaced(hooks: dict[str, Any], name: str) -> None:
    for register in (ext.register, ext.scope):
        with pytest.raises(hlojit.PluginError, match=f"'test' registers the .* {name}, which is built in"):
            register(plugin(**hooks))
    np.testing.assert_array_equal(hlojit.compile(ABS)(X), np.abs(X))


def test_a_built_in_plugin_keeps_its_name() -> None:
    with pytest.raises(hlojit.PluginError, match=r"'cpu' is the name of a plugin that is built in"):
        ext.register(plugin(custom_calls=[ext.ElementwiseCall("test.scale", function=lambda x: x * 2)]), name="cpu")
    with pytest.raises(hlojit.PluginError, match="HLOJIT_DISABLE_PLUGINS"):
        ext.unregister("cpu")
    np.testing.assert_array_equal(hlojit.compile(ABS)(X), np.abs(X))


# ------------------------------------------------------------------------------------------------- what registration checks


class Nameless(ext.Backend):
    """Has no name."""

    def capability(self, instruction: Any) -> Any:
        return ext.YES

    def compile(self, module: Any, options: Any) -> Any:
        return lambda *arrays: arrays


def ordered(**attributes: Any) -> ext.Pass:
    made: type[ext.Pass] = type("Ordered", (OtherSimplifier,), {"name": "test-pass", **attributes})
    return made()


@pytest.mark.parametrize(("hooks", "message"), [
    ({"passes": None}, "hook hlojit_passes returned None, expected a list"),
    ({"backends": [Nameless()]}, "returned a Nameless without a name"),
    ({"passes": [ordered(name="")]}, "returned a Ordered whose name is ''"),
    ({"passes": [ordered(name=7)]}, "whose name is 7"),
    ({"passes": [ordered(phase="sometime")]}, "the pass 'test-pass' names the phase 'sometime'; phases are import"),
    ({"passes": [ordered(targets="cpu")]}, r"targets = 'cpu', which is not a sequence of names"),
    ({"passes": [ordered(before=[1])]}, r"before = \[1\], which is not a sequence of names"),
    ({}, "'test' has no hooks"),
])  # fmt: skip
def test_mistakes_are_named_when_a_plugin_is_registered(hooks: dict[str, Any], message: str) -> None:
    with pytest.raises(hlojit.PluginError, match=message):
        ext.register(plugin(**hooks))
    assert "test" not in ext.registry().records


def test_a_hook_without_its_mark_is_named() -> None:
    with pytest.raises(hlojit.PluginError, match="hlojit_passes lacks the decorator @hookimpl"):
        ext.register(SimpleNamespace(__name__="test", hlojit_passes=lambda: []))
