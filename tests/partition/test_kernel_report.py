"""Which kernels of plugins compute what of a program that is split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
from hlojit.extensions import Declined, InterpretedBackend, Kernel, Machine, MachineKernel, OpPattern, hookimpl, using

from .test_placement import SORTED, X, Y, refusing
from .vendor import OwnMemoryBackend, everything

Register = Callable[..., None]


class Plain(Machine):
    """Its memory is NumPy's."""

    def put(self, array: Any, type: Any, layout: Any) -> Any:
        return array.copy()

    def get(self, memory: Any, type: Any, layout: Any) -> Any:
        return memory.copy()

    def evaluate(self, instruction: Any, operands: Any, layouts: Any) -> Any:
        return self.by_reference(instruction, operands, layouts)


class Kernelled(InterpretedBackend):
    """Takes everything but sorts, and kernels of plugins."""

    name = "nova"
    capability = staticmethod(refusing("stablehlo.sort"))  # type: ignore[assignment]

    def machines(self) -> list[Machine]:
        return [Plain()]


def exponential(group: Any) -> MachineKernel:
    return MachineKernel(lambda machine, x: [np.exp(x.memory)])


def negate(group: Any) -> Declined:
    return Declined("it is cheaper by hand")


def test_decisions_are_those_of_the_segments(registered: Register) -> None:
    class Plugin:
        hlojit_api = (1, 2)

        @hookimpl
        def hlojit_kernels(self) -> list[Kernel]:
            return [
                Kernel("nova.exp", backend="nova", pattern=OpPattern("stablehlo.exponential"), build=exponential),
                Kernel("nova.neg", backend="nova", pattern=OpPattern("stablehlo.negate"), build=negate),
                Kernel("nova.cbrt", backend="nova", pattern=OpPattern("stablehlo.cbrt"), build=negate),
            ]

    registered(Kernelled(), OwnMemoryBackend("last", everything(1e6)))
    with using(Plugin()):
        report = hlojit.kernel_report(SORTED, backend=["nova", "last"])
        executable = hlojit.compile(SORTED, backend=["nova", "last"])
        np.testing.assert_allclose(executable(X, Y), hlojit.compile(SORTED, backend="reference")(X, Y), rtol=1e-6)
    assert [each.device for each in report.segments] == ["nova:0", "last:0", "nova:0"]
    assert [each.kernel for each in report.taken] == ["nova.exp"]
    assert [[each.kernel for each in part.decisions] for part in report.segments] == [["nova.exp"], [], ["nova.neg"]]
    assert [name for name, _, _ in report.unmatched] == ["nova.cbrt"]
    text = str(report)
    assert "segment 0 on nova:0:\n  nova.exp" in text
    assert "not taken: it is cheaper by hand" in text
    assert "segment 1 on last:0:\n  no kernel of a plugin was offered anything" in text


def test_a_program_that_nobody_can_compile_says_why(registered: Register) -> None:
    registered(OwnMemoryBackend("nova", refusing("stablehlo.sort")), OwnMemoryBackend("o", refusing("stablehlo.sort")))
    report = hlojit.kernel_report(SORTED, backend=["nova", "o"])
    assert not report.segments and "there is no sort unit" in report.note
