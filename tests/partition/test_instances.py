"""One device of a back end by its name, wherever a back end is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.command import main
from hlojit.extensions import registry

from .test_placement import SORTED, X, Y, devices_of, refusing
from .vendor import OwnMemoryBackend, everything

Register = Callable[..., None]


@pytest.fixture
def nova(registered: Register) -> OwnMemoryBackend:
    """Two devices that take everything but sorts, and a back end that takes everything."""
    made = OwnMemoryBackend("nova", refusing("stablehlo.sort"), devices=2)
    registered(made, OwnMemoryBackend("last", everything(1e6)))
    return made


UNSORTED = "func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> { %0 = stablehlo.add %x, %x : tensor<64xf32> return %0 : tensor<64xf32> }"


def executions(nova: OwnMemoryBackend) -> list[int]:
    return [device.executions for device in nova.devices()]


def test_compile(nova: OwnMemoryBackend) -> None:
    executable = hlojit.compile(UNSORTED, backend="nova:1")
    np.testing.assert_array_equal(executable(X), X + X)
    assert executions(nova) == [0, 1]
    assert list(map(str, executable.devices)) == ["nova:1"]
    assert str(executable(hlojit.put(X, "nova:1")).device) == "nova:1"
    with pytest.raises(hlojit.ArgumentError, match="argument 0 is on nova:0, the program is compiled for nova:1"):
        executable(hlojit.put(X, "nova:0"))


def test_jit_and_the_variable(nova: OwnMemoryBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    double: Callable[..., Any] = hlojit.jit(lambda tree: {"sum": tree["a"] + tree["b"]}, backend="nova:1")
    np.testing.assert_array_equal(double({"a": X, "b": Y})["sum"], X + Y)
    assert executions(nova) == [0, 1]
    monkeypatch.setenv("HLOJIT_BACKEND", "nova:1")
    np.testing.assert_array_equal(hlojit.compile(UNSORTED)(X), X + X)
    assert executions(nova) == [0, 2]
    assert str(hlojit.put(X).device) == "nova:1"
    assert list(map(str, hlojit.devices())) == ["nova:1"]
    monkeypatch.setenv("HLOJIT_BACKEND", "nova:1, last")
    np.testing.assert_array_equal(hlojit.compile(SORTED)(X, Y), hlojit.compile(SORTED, backend="reference")(X, Y))
    assert executions(nova)[0] == 0


def test_lists(nova: OwnMemoryBackend) -> None:
    executable = hlojit.compile(SORTED, backend=["nova:1", "nova:0", "last"])
    assert set(devices_of(executable).values()) == {"nova:1", "last:0"}
    np.testing.assert_array_equal(executable(X, Y), hlojit.compile(SORTED, backend="reference")(X, Y))


def test_other_places_where_a_back_end_is_named(nova: OwnMemoryBackend) -> None:
    assert "stablehlo.add" in str(hlojit.lower(UNSORTED, backend="nova:1"))
    assert hlojit.kernel_report(UNSORTED, backend="nova:1").segments[0].device == "nova:1"
    assert list(map(str, hlojit.devices("nova:1"))) == ["nova:1"]
    np.testing.assert_array_equal(hlojit.get(hlojit.put(X, "nova:1")), X)


@pytest.mark.parametrize("name", ["nova:2", "nova:", "nova:x", "nova:01", "nova:-1"])
def test_an_unknown_device_is_one_clear_error(nova: OwnMemoryBackend, name: str) -> None:
    message = f"there is no device '{name}'; the back end 'nova' has nova:0, nova:1"
    for attempt in (
        lambda: hlojit.compile(UNSORTED, backend=name),
        lambda: hlojit.compile(UNSORTED, backend=[name, "last"]),
        lambda: hlojit.jit(lambda x: x + x, backend=name)(X),
        lambda: hlojit.put(X, name),
        lambda: hlojit.devices(name),
        lambda: hlojit.lower(UNSORTED, backend=name),
        lambda: hlojit.kernel_report(UNSORTED, backend=name),
    ):
        with pytest.raises(hlojit.HlojitError) as caught:
            attempt()
        assert message in str(caught.value)


def test_an_unknown_back_end_with_a_number(nova: OwnMemoryBackend) -> None:
    with pytest.raises(hlojit.HlojitError, match=r"unknown back end 'novo'.*nova"):
        hlojit.compile(UNSORTED, backend="novo:1")
    assert "nova" in registry().backends


def test_the_cpus_devices() -> None:
    text = "func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> { %0 = stablehlo.add %x, %x : tensor<64xf32> return %0 : tensor<64xf32> }"
    executable = hlojit.compile(text, backend="cpu:0")
    np.testing.assert_array_equal(executable(X), X + X)
    assert str(executable.execute(X).device) == "cpu:0"
    with pytest.raises(hlojit.HlojitError, match=r"for the device cpu:0 and cannot be saved.*backend='cpu'"):
        executable.save("somewhere")


def test_the_command(nova: OwnMemoryBackend, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "double.mlir"
    path.write_text(UNSORTED)
    assert main(["run", str(path), "--random-inputs", "--backend", "nova:1"]) == 0
    assert executions(nova) == [0, 1]
    assert main(["kernels", str(path), "--backend", "nova:1,last"]) == 0
    assert "segment 0 on nova:1" in capsys.readouterr().out
    assert main(["opt", str(path), "--backend", "nova:2"]) != 0
    assert "there is no device 'nova:2'" in capsys.readouterr().err
