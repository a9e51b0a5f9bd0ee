"""Plugins without a content hash: one object is one identity in the process, and nothing of it is on disk."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir import evaluate
from hlojit.ir.environment import tables
from hlojit.ir.process_identity import process_identity, token_of

from .processes import run

X = np.float32([1, 2, 3])


class Locked(ext.Backend):
    """Multiplies by a factor, under a lock of its own."""

    name = "locked"

    def __init__(self, factor: float):
        self.factor = factor
        self.lock = threading.Lock()

    def capability(self, instruction: Any) -> Any:
        return ext.YES

    def compile(self, module: Any, options: Any) -> Any:
        return lambda *arrays: [np.float32(self.factor) * each for each in evaluate(module, *arrays)]


class Plugin:
    """Makes its back end anew whenever it is asked."""

    def __init__(self, factor: float = 2.0):
        self.factor = factor

    @ext.hookimpl
    def hlojit_backends(self) -> Any:
        return [Locked(self.factor)]


def identity(plugin: Any) -> str:
    with ext.using(plugin):
        return tables().identity


def test_one_object_is_compiled_for_once() -> None:
    traced: list[int] = []

    @hlojit.jit(backend="locked")
    def f(x: Any) -> Any:
        traced.append(1)
        return x + 1

    plugin = Plugin()
    for _ in range(3):
        with ext.using(plugin):
            np.testing.assert_array_equal(f(X), 2 * (X + 1))
    assert traced == [1]
    # What can be seen to have changed counts, and so does another object.
    plugin.factor = 5.0
    with ext.using(plugin):
        np.testing.assert_array_equal(f(X), 5 * (X + 1))
    with ext.using(Plugin(3.0)):
        np.testing.assert_array_equal(f(X), 3 * (X + 1))
    assert len(traced) == 3


def test_plugins_of_a_jitted_function() -> None:
    traced: list[int] = []

    @hlojit.jit(backend="locked", plugins=[Plugin()])
    def f(x: Any) -> Any:
        traced.append(1)
        return x

    for _ in range(3):
        np.testing.assert_array_equal(f(X), 2 * X)
    assert traced == [1]


def test_identities_of_objects() -> None:
    first, second = Plugin(), Plugin()
    assert identity(first) == identity(first) != identity(second) == identity(second)
    library = ctypes.CDLL(None)

    def calling(function: Any) -> Any:
        hook = ext.hookimpl(lambda: [ext.ElementwiseCall("c.f", function=lambda x: function(x))])
        return SimpleNamespace(__name__="c", hlojit_custom_calls=hook)

    one = calling(library.labs)
    assert identity(one) == identity(one)
    assert identity(one) != identity(calling(library.labs)), "another plugin"
    with ext.using(one):
        assert ext.registry().records["c"].identity.startswith("unkeyed-")


def test_what_a_hook_makes_of_c_counts_by_the_object() -> None:
    library = ctypes.CDLL(None)
    functions = [library.labs, library.llabs]
    plugin = SimpleNamespace(
        __name__="c",
        hlojit_custom_calls=ext.hookimpl(lambda: [ext.ElementwiseCall("c.f", function=lambda x, f=functions[0]: f(x))]),
    )
    before = identity(plugin)
    functions.reverse()
    assert identity(plugin) != before
    functions.reverse()
    assert identity(plugin) == before


@pytest.mark.parametrize("value", [
    threading.Lock(), [threading.RLock(), 1], Locked(2.0), lambda: os.environ["HOME"], ctypes.CDLL(None).labs, os,
], ids=["lock", "list", "back end", "environment", "C function", "module"])  # fmt: skip
def test_an_owner_and_a_value(value: Any) -> None:
    owner, other = Plugin(), Plugin()
    assert process_identity(owner, value) == process_identity(owner, value) != process_identity(other, value)
    assert process_identity(owner, (value, 1)) != process_identity(owner, (value, 2))


def test_objects_that_hold_different_things_differ() -> None:
    owner = Plugin()
    assert process_identity(owner, Locked(2.0)) == process_identity(owner, Locked(2.0))
    assert process_identity(owner, Locked(2.0)) != process_identity(owner, Locked(3.0))
    # Without weak references nothing tells whether it is the same.
    assert process_identity(object(), 1) != process_identity(object(), 1)


def test_a_token_goes_with_its_object() -> None:
    plugin = Plugin()
    token = token_of(plugin)
    assert token == token_of(plugin) and token != token_of(Plugin())
    identity(plugin)
    gone = weakref.ref(plugin)
    del plugin
    gc.collect()
    assert gone() is None


def test_nothing_is_kept_on_disk(tmp_path: Path) -> None:
    code = """
    import ctypes, threading
    import numpy as np, hlojit, hlojit.extensions as ext
    class Plugin:
        @ext.hookimpl
        def hlojit_passes(self):
            return [Unkeyable()]
    from dataclasses import dataclass, field
    from typing import Any, ClassVar
    @dataclass(frozen=True)
    class Unkeyable(ext.Pass):
        name: ClassVar[str] = "unkeyable"
        lock: Any = field(default_factory=threading.Lock)
        def run(self, module):
            return False
    text = "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { %0 = stablehlo.add %a, %a : tensor<2xf32> return %0 : tensor<2xf32> }"
    from hlojit.disk_cache import disk_cache
    plugin = Plugin()
    for _ in range(2):
        with ext.using(plugin):
            hlojit.compile(text)
    print([each.kind for each in disk_cache().entries() if each.kind == "programs"])
    hlojit.compile(text)
    print([each.kind for each in disk_cache().entries() if each.kind == "programs"])
    """
    assert run(code, tmp_path, HLOJIT_CACHE=str(tmp_path / "cache")) == "[]\n['programs']\n"


def holding_local() -> tuple[Any, Callable[[], None]]:
    value = threading.local()
    value.scale = 2.0
    return value, lambda: setattr(value, "scale", 5.0)


def holding_number() -> tuple[Any, Callable[[], None]]:
    value = ctypes.c_double(2.0)
    return value, lambda: setattr(value, "value", 5.0)


def holding_array() -> tuple[Any, Callable[[], None]]:
    value = (ctypes.c_double * 2)(2.0)
    return value, lambda: value.__setitem__(1, 5.0)


def holding_view() -> tuple[Any, Callable[[], None]]:
    memory = bytearray(8)
    return memoryview(memory), lambda: memory.__setitem__(0, 5)


@pytest.mark.parametrize("make", [holding_local, holding_number, holding_array, holding_view])
def test_what_an_object_without_content_holds_counts(make: Callable[[], tuple[Any, Callable[[], None]]]) -> None:
    owner = Plugin()
    value, change = make()
    before = process_identity(owner, value)
    assert process_identity(owner, value) == before
    change()
    assert process_identity(owner, value) != before


@pytest.mark.parametrize("make", [tempfile.TemporaryFile, lambda: mmap.mmap(-1, 16), lambda: (x for x in (1, 2))])
def test_what_cannot_be_looked_at_is_something_else_every_time(make: Callable[[], Any]) -> None:
    owner, value = Plugin(), make()
    assert process_identity(owner, value) != process_identity(owner, value)


class Odd:
    """Its attributes raise what they like."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def test_attributes_that_raise_are_no_reason_to_refuse_a_plugin() -> None:
    odd = Odd()
    hook = ext.hookimpl(lambda: [ext.ElementwiseCall("odd.f", function=lambda x: x if odd is not None else -x)])
    with ext.using(SimpleNamespace(__name__="odd", hlojit_custom_calls=hook)):
        assert ext.registry().records["odd"].identity.startswith("unkeyed-")
