"""Programs that do not end by themselves, and nobody waits for: they end, whenever that is asked for, and nothing else does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions import registry
from hlojit.gpu.device import GpuDevice

FUNCTION = """
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.custom_call @test.endless(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}"""


def endless(x: float) -> float:
    while x > 0.5:
        x = x * 1.0001 if x < 2.0 else x - 1.0
    return x


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuDevice]:
    """A simulated GPU, and a plugin's function that does not end for 1."""
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    call = ext.ElementwiseCall("test.endless", function=endless)
    with ext.using(SimpleNamespace(__name__="test", hlojit_custom_calls=ext.hookimpl(lambda: [call]))):
        found = registry().load().backend("cuda").devices()[0]
        assert isinstance(found, GpuDevice)
        yield found


def test_a_stop_that_comes_before_the_program_begins_is_not_forgotten(device: GpuDevice) -> None:
    f = hlojit.compile(FUNCTION, backend="cuda")
    x, zeros = hlojit.put(np.ones(8, "f4"), "cuda"), hlojit.put(np.zeros(8, "f4"), "cuda")
    assert hlojit.get(f(zeros)).tolist() == [0] * 8
    gate = threading.Event()
    stream: Any = device._opened().site.stream
    stream.put(gate.wait)
    done = f.execute(x).buffer.ready
    done.stop()
    gate.set()
    with pytest.raises(hlojit.ExecutionError, match="was stopped"):
        assert done.wait(20), "it runs for ever"
    assert hlojit.get(f(zeros)).tolist() == [0] * 8, "the next run is another one"
