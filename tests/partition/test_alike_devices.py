"""Devices that a vendor's class makes equal to each other, or that cannot be compared: memory is that of the very object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import registry

from .test_placement import X, devices_of
from .vendor import OwnMemoryBackend, OwnMemoryDevice, everything

TWO = """func.func @main(%x: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %a = stablehlo.sine %x : tensor<64xf32>
  %b = stablehlo.cosine %x : tensor<64xf32>
  %c = stablehlo.sine %b : tensor<64xf32>
  %d = stablehlo.add %a, %c : tensor<64xf32>
  %e = stablehlo.multiply %a, %c : tensor<64xf32>
  return %d, %e : tensor<64xf32>, tensor<64xf32>
}"""
ONE = "func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> { %0 = stablehlo.add %x, %x : tensor<64xf32> return %0 : tensor<64xf32> }"


@dataclass(init=False, unsafe_hash=True)
class Equal(OwnMemoryDevice):
    """A data class of what is alike in both: equal, and of one hash."""

    cores: int = 16


class Unhashable(OwnMemoryDevice):
    """Equal to everything, so without a hash, and empty as a container."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return 0


class Incomparable(OwnMemoryDevice):
    """Refuses to be compared."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("devices are not compared")

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture(params=[Equal, Unhashable, Incomparable])
def alike(request: pytest.FixtureRequest, registered: Callable[..., None]) -> OwnMemoryBackend:
    backend = OwnMemoryBackend("nova", everything(1e7), devices=2)
    backend._devices = [request.param("nova", number) for number in range(2)]
    registered(backend)
    return backend


def test_a_program_on_both(alike: OwnMemoryBackend) -> None:
    executable = hlojit.compile(TWO, backend=["nova:0", "nova:1"])
    assert set(devices_of(executable).values()) == {"nova:0", "nova:1"}
    expected = hlojit.compile(TWO, backend="reference")(X)
    for argument in (X, hlojit.put(X, "nova:0"), hlojit.put(X, "nova:1")):
        for result, right in zip(executable(argument), expected):
            np.testing.assert_array_equal(hlojit.get(result), right)
    assert {str(each.device) for each in executable.execute(X)} <= {"nova:0", "nova:1"}
    assert all(device.executions for device in alike.devices())


def test_an_argument_on_the_other_one_is_refused(alike: OwnMemoryBackend) -> None:
    executable = hlojit.compile(ONE, backend="nova:1")
    np.testing.assert_array_equal(hlojit.get(executable(hlojit.put(X, "nova:1"))), X + X)
    with pytest.raises(hlojit.ArgumentError, match="argument 0 is on nova:0, the program is compiled for nova:1"):
        executable(hlojit.put(X, "nova:0"))


def test_where_a_program_is_executed(alike: OwnMemoryBackend) -> None:
    executable = hlojit.compile(ONE, backend="nova")
    for number, device in enumerate(alike.devices()):
        there = hlojit.put(X, device)
        for result in (executable(there), executable.execute(X, device=device), executable.execute(there)):
            assert result.device is device
            np.testing.assert_array_equal(hlojit.get(result), X + X)
        assert hlojit.put(there, device) is there
        other = alike.devices()[1 - number]
        assert hlojit.put(there, other).device is other
        with pytest.raises(hlojit.ArgumentError, match="an argument is on nova:"):
            executable.execute(there, device=other)


def test_parts_of_blocks_on_different_ones(alike: OwnMemoryBackend) -> None:
    format_ = hlojit.extensions.BlockFormat("alikemx", element="f8E4M3FN", scale="f8E8M0FNU", block=32)

    class Formats:
        @hlojit.extensions.hookimpl
        def hlojit_formats(self) -> list[Any]:
            return [format_]

    with registry().using(Formats()):
        parts = hlojit.Array.from_values(np.ones((2, 64), "f4"), "alikemx").parts
        first, second = (hlojit.put(part, device) for part, device in zip(parts, alike.devices()))
        with pytest.raises(hlojit.ArgumentError, match="on different devices"):
            hlojit.Array.from_parts([first, second], "alikemx")
