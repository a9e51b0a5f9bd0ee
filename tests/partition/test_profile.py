"""How long parts of programs took, by the clocks of devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
from hlojit.extensions import Kernel, Machine, OpPattern, Timing, hookimpl, profiling, using

from .test_kernel_report import Kernelled, Plain, exponential
from .test_placement import SORTED, X, Y
from .test_streams import CHAIN, Streaming
from .vendor import OwnMemoryBackend, everything

Register = Callable[..., None]


class Ticking(Plain):
    """Each instruction takes a thousand nanoseconds of its own clock."""

    ticks = 0.0

    def evaluate(self, instruction: Any, operands: Any, layouts: Any) -> Any:
        self.ticks += 1000.0
        return super().evaluate(instruction, operands, layouts)

    def nanoseconds(self) -> float:
        return self.ticks


class Clocked(Kernelled):
    """With such a machine."""

    def machines(self) -> list[Machine]:
        return [Ticking()]


class Kernels:
    hlojit_api = (1, 2)

    @hookimpl
    def hlojit_kernels(self) -> list[Kernel]:
        return [Kernel("nova.exp", backend="nova", pattern=OpPattern("stablehlo.exponential"), build=exponential)]


def test_a_split_program_says_what_each_instruction_and_kernel_took(registered: Register) -> None:
    registered(Clocked(), OwnMemoryBackend("last", everything(1e6)))
    with using(Kernels()):
        executable = hlojit.compile(SORTED, backend=["nova", "last"])
    executable(X, Y)
    with hlojit.profile() as profile:
        for _ in range(3):
            executable(X, Y)
    executable(X, Y)
    totals = {(each.device, each.what): each for each in profile.totals()}
    assert totals["nova:0", "stablehlo.add"].runs == 3
    assert totals["nova:0", "stablehlo.add"].nanoseconds == 3000.0
    assert totals["nova:0", "stablehlo.add"].place == "<string>:3:3"
    assert totals["nova:0", "nova.exp"].runs == 3
    assert totals["last:0", "segment 1 of main"].nanoseconds > 0
    assert totals["nova:0", "segment 0 of main"].nanoseconds == 3000.0
    assert "3 x  nova:0  stablehlo.add" in str(profile)


def test_streams_are_waited_for_and_nobody_pays_who_does_not_ask(registered: Register) -> None:
    registered(Streaming())
    executable = hlojit.compile(CHAIN, backend="nova")
    x, y = np.arange(4, dtype="f4"), np.ones(4, "f4")
    assert profiling() is None
    with hlojit.profile() as profile:
        pending = executable.execute(x, y)
        pending.wait()
    assert [each.what for each in profile.timings] == [
        f"stablehlo.{op}" for op in ("add", "multiply", "subtract", "negate")
    ]
    executable(x, y)
    assert len(profile.timings) == 4


def test_a_vendors_own_timings(registered: Register) -> None:
    backend = OwnMemoryBackend("nova")

    def record(program: Any) -> None:
        if (profile := profiling()) is not None:
            profile.add(Timing("nova:0", "nova.unit", program.name, 17.0))

    backend.devices()[0].before = record
    registered(backend)
    executable = hlojit.compile(CHAIN, backend="nova")
    with hlojit.profile() as profile:
        executable(np.arange(4, dtype="f4"), np.ones(4, "f4"))
    assert profile.timings == [Timing("nova:0", "nova.unit", "main", 17.0)]


def test_nothing_recorded_says_so() -> None:
    with hlojit.profile() as profile:
        pass
    assert str(profile).startswith("nothing was recorded")
