"""Back ends that break their word: what they return is checked, and what they are given stays as it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest

X = np.ones(6, "f4")
TEXT = """func.func @main(%x: tensor<6xf32>) -> tensor<6xf32> {
  %0 = stablehlo.add %x, %x : tensor<6xf32>
  return %0 : tensor<6xf32>
}"""


class CallableBackend(ext.Backend):
    """Programs are a Python function."""

    name = "callable"

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def capability(self, instruction: Any) -> Any:
        return ext.YES

    def compile(self, module: Any, options: Any) -> Any:
        return self.function


class Plugin:
    def __init__(self, backend: ext.Backend) -> None:
        self.backend = backend

    @ext.hookimpl
    def hlojit_backends(self) -> list[ext.Backend]:
        return [self.backend]


def write(array: Any) -> Any:
    array[:] = 9
    return (array,)


def test_arguments_of_a_python_back_end_are_read_only() -> None:
    with ext.using(Plugin(CallableBackend(write))):
        executable = hlojit.compile(TEXT, backend="callable")
        x, on_device = X.copy(), hlojit.put(X, "callable")
        for call in (
            lambda: executable(x),
            lambda: executable(on_device),
            lambda: executable.execute(on_device).wait(),
        ):
            with pytest.raises(hlojit.ExecutionError, match="read-only"):
                call()
        np.testing.assert_array_equal(x, X)
        np.testing.assert_array_equal(on_device, X)
        assert x.flags.writeable


@pytest.mark.parametrize("what", ["array", "view", "in a list"])
def test_results_that_the_back_end_keeps_are_copied(what: str) -> None:
    kept = np.full(6, 4, "f4")
    known = [kept]
    answers = {"array": lambda x: (kept,), "view": lambda x: [kept[:]], "in a list": lambda x: known}
    with ext.using(Plugin(CallableBackend(answers[what]))):
        executable = hlojit.compile(TEXT, backend="callable")
        here, there = executable(X), executable.execute(X)
        there.wait()
        kept[:] = 8
        np.testing.assert_array_equal(here, np.full(6, 4))
        np.testing.assert_array_equal(there, np.full(6, 4))


def test_a_result_that_nobody_has_is_not_copied() -> None:
    places: list[int] = []

    def make(x: Any) -> Any:
        result = x + x
        places.append(result.ctypes.data)
        return (result,)

    with ext.using(Plugin(CallableBackend(make))):
        assert hlojit.compile(TEXT, backend="callable")(X).ctypes.data == places[0]


def test_a_back_end_that_wants_to_leave() -> None:
    with ext.using(Plugin(CallableBackend(lambda x: sys.exit(3)))):
        executable = hlojit.compile(TEXT, backend="callable")
        for call in (lambda: executable(X), lambda: executable.execute(X).wait()):
            with pytest.raises(hlojit.ExecutionError, match=r"SystemExit\(3\)"):
                call()


class ViewedDevice(ext.Device):
    """Its memory can be seen, in the form that ``view`` makes of it."""

    def __init__(self, view: Callable[[Any], Any]) -> None:
        super().__init__("viewed")
        self.view = view

    def transfer_in(self, array: Any, type: Any, space: Any) -> Any:
        return array.copy(), ext.READY

    def transfer_out(self, handle: Any, type: Any) -> Any:
        return handle

    def host_view(self, handle: Any, type: Any) -> Any:
        return self.view(handle)

    def execute(self, program: Any, arguments: Any, after: Any) -> Any:
        raise AssertionError


class ViewedBackend(ext.Backend):
    name = "viewed"

    def __init__(self, view: Callable[[Any], Any]) -> None:
        self.found = [ViewedDevice(view)]

    def devices(self) -> Any:
        return self.found

    def capability(self, instruction: Any) -> Any:
        return ext.YES

    def compile(self, module: Any, options: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (lambda x: x[:2], r"returned ndarray float32\(2,\)"),
        (lambda x: x.astype("f8"), r"returned ndarray float64\(6,\)"),
        (lambda x: list(x), "returned list"),
        (lambda x: 1 / 0, "ZeroDivisionError"),
        (lambda x: sys.exit(), "SystemExit"),
    ],
)
def test_a_wrong_view_is_named(view: Callable[[Any], Any], message: str) -> None:
    with ext.using(Plugin(ViewedBackend(view))):
        array = hlojit.put(X, "viewed")
        for read in (np.asarray, hlojit.get):
            with pytest.raises(hlojit.HlojitError, match=f"(?s)tensor<6xf32> on viewed:0.*{message}"):
                read(array)


def test_a_right_view_is_shown() -> None:
    with ext.using(Plugin(ViewedBackend(lambda x: x))):
        array = np.asarray(hlojit.put(X, "viewed"))
        assert array.tolist() == X.tolist() and not array.flags.writeable
