"""Times of programs and their launches: which launches there are, and that programs run as otherwise."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.gpu.launch_times import LaunchTime, Profile, Profiler


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--gpu"):
        monkeypatch.setenv("HLOJIT_CUDA", "simulator")


def rounds(count: int) -> str:
    lines = ["%v0 = stablehlo.add %x, %x : tensor<64xf32>"]
    for number in range(count):
        lines.append(f"%s{number} = stablehlo.constant dense<0.0> : tensor<f32>")
        lines.append(
            f"%t{number} = stablehlo.reduce(%v{number} init: %s{number}) applies stablehlo.maximum across dimensions = [0] : "
            "(tensor<64xf32>, tensor<f32>) -> tensor<f32>"
        )
        lines.append(f"%b{number} = stablehlo.broadcast_in_dim %t{number}, dims = [] : (tensor<f32>) -> tensor<64xf32>")
        lines.append(f"%v{number + 1} = stablehlo.subtract %v{number}, %b{number} : tensor<64xf32>")
    body = "\n".join(lines)
    return f"func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {{\n{body}\nreturn %v{count} : tensor<64xf32>\n}}"


LOOP = """
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<4xf32>
   cond {
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %b = stablehlo.add %a, %a : tensor<4xf32>
    stablehlo.return %j, %b : tensor<i32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}
"""


def profile(text: str, *arrays: Any, **options: Any) -> tuple[Any, Profile]:
    executable = hlojit.compile(text, backend="cuda")
    on_device = [hlojit.put(each, "cuda") for each in arrays]
    before = hlojit.get(executable(*on_device))
    found = Profiler(hlojit.devices("cuda")[0], **options).profile(executable, *on_device, runs=2, repeat=2)
    np.testing.assert_array_equal(hlojit.get(executable(*on_device)), before)
    return executable, found


@pytest.mark.parametrize("lead_bytes", [0, 1024])
def test_every_launch_of_a_program_has_a_time(lead_bytes: int) -> None:
    executable, found = profile(rounds(5), np.arange(64, dtype="f4"), lead_bytes=lead_bytes)
    launches = list(executable.spec.program.launches())
    assert [each.kernel for each in found.launches] == [each.kernel.symbol for each in launches]
    assert [each.what for each in found.launches] == [
        f"{each.instruction_name} at {each.location}" for each in launches
    ]
    assert all(each.nanoseconds > 0 for each in found.launches) and len(found.nanoseconds) == 2
    assert set(found.by_kernel()) == {each.kernel.symbol for each in launches}


def test_launches_in_loops_are_all_there() -> None:
    _, found = profile(LOOP, np.ones(4, "f4"), np.int32(3))
    assert len(found.launches) >= 1
    assert min(found.nanoseconds) > 0


def test_the_time_of_a_kernel_is_that_of_all_its_phases() -> None:
    times = [("a", "a", 10.0), ("a", "a_sums", 2.0), ("b", "b", 5.0), ("a", "a", 20.0), ("a", "a_sums", 4.0)]
    found = Profile((), tuple(LaunchTime(kernel, phase, "", time) for kernel, phase, time in times))
    assert found.by_kernel() == {"a": 18.0, "b": 5.0}


def test_other_devices_and_arrays_elsewhere_are_refused() -> None:
    executable = hlojit.compile(rounds(1), backend="cuda")
    on_the_host: Any
    for on_the_host in (hlojit.Array(np.ones(64, "f4"), "f32"), np.ones(64, "f4")):
        with pytest.raises(hlojit.ArgumentError, match="over arrays on the device"):
            Profiler(hlojit.devices("cuda")[0]).profile(executable, on_the_host)
    with pytest.raises(hlojit.ArgumentError, match="cpu:0 is no GPU"):
        Profiler(hlojit.devices("cpu")[0])
