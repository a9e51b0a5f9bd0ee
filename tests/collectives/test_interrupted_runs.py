"""Ctrl-C while the processes of a run are started: those that were started wait for nobody, and the next run is another one."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions.devices.device import Device
from hlojit.parallel_executable import _Run

SUM = """
func.func @main(%x: tensor<6xf32>) -> tensor<6xf32> {
  %0 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<6xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}
"""
X = np.arange(6, dtype="f4")


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize(
    ("owner", "name"),
    [(Device, "start_among"), (_Run, "add"), (_Run, "bind"), (_Run, "wait")],
    ids=lambda each: str(each),
)
def test_ctrl_c_while_processes_are_started(
    several: str, owner: Any, name: str, process: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody waits as long as this.
    monkeypatch.setenv("HLOJIT_COLLECTIVE_TIMEOUT", "1000")
    executable = hlojit.compile(SUM, backend=several, num_replicas=2)
    rows = [[X], [2 * X]]
    real, calls = getattr(owner, name), [0]

    def interrupted(*arguments: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] > process or name in ("bind", "wait"):
            raise KeyboardInterrupt
        return real(*arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            executable(rows)
    results = executable.execute(rows)
    for each in results:
        assert each[0].wait(20), "it waits for the run before"
        np.testing.assert_array_equal(each[0], 3 * X)
