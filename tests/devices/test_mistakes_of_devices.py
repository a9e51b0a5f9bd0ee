"""Mistakes in machines and devices written in Python: one line with the method, its file and line, and the instruction."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir import evaluate

from ..extensions.mistakes import clean, nova

left_as_found = pytest.fixture(autouse=True)(clean)

X = np.linspace(-2, 2, 12, dtype="f2").reshape(3, 4)
PROGRAM = """
func.func @main(%x: tensor<3x4xf16>) -> tensor<3x4xf16> {
  %0 = stablehlo.tanh %x : tensor<3x4xf16>
  %1 = stablehlo.negate %0 : tensor<3x4xf16>
  return %1 : tensor<3x4xf16>
}
"""


class Plain(ext.Machine):
    """Keeps NumPy arrays."""

    def put(self, array: Any, type: Any, layout: Any) -> Any:
        return np.array(array)

    def get(self, memory: Any, type: Any, layout: Any) -> Any:
        return np.array(memory)

    def evaluate(self, instruction: Any, operands: Any, layouts: Any) -> Any:
        return self.by_reference(instruction, operands, layouts)


def changed(change: Callable[[Any], Any]) -> Any:
    """An ``evaluate`` whose memories are something else."""

    def evaluate(self: Any, instruction: Any, operands: Any, layouts: Any) -> Any:
        return change(Plain.evaluate(self, instruction, operands, layouts))

    return evaluate


def register(machines: Any = None, **members: Any) -> None:
    made = type("Abacus", (Plain,), members)
    back_end = type(
        "Device",
        (ext.InterpretedBackend,),
        {"name": "nova", "machines": machines or (lambda self: [made()]), "capability": lambda self, i: ext.YES},
    )
    ext.register(nova(backends=[back_end()]), package="hlojit-nova", version="0.1.0")


TANH = r"main on nova:0 \(hlojit-nova 0\.1\.0\): stablehlo\.tanh at <string>:3:3: Abacus"
GET = r"(transfer of tensor<3x4xf16>|main) on nova:0 \(hlojit-nova 0\.1\.0\): Abacus\.get returned"
FOUND = r"for tensor<3x4xf16>(, which was made for .*)?; expected an array float16\[3, 4\]"
MADE = r"for tensor<3x4xf16>, which was made for stablehlo\.tanh at <string>:3:3; expected an array float16\[3, 4\]"
OWNER = r"the back end 'nova' \(hlojit-nova 0\.1\.0\)"

MACHINES: dict[str, tuple[dict[str, Any], str]] = {
    "evaluate gives an array": ({"evaluate": changed(lambda found: found[0])}, rf"{TANH}\.evaluate returned array\(.*, not a list of 1 memory: \[memory\]"),
    "evaluate gives nothing": ({"evaluate": changed(lambda found: None)}, rf"{TANH}\.evaluate returned None, not a list of 1 memory"),
    "evaluate gives two": ({"evaluate": changed(lambda found: found * 2)}, rf"{TANH}\.evaluate returned a list of 2, not a list of 1 memory"),
    "evaluate gives no memory": ({"evaluate": changed(lambda found: [None])}, rf"{TANH}\.evaluate returned None for the memory of result 0, tensor<3x4xf16>"),
    "evaluate gives a generator": ({"evaluate": changed(lambda found: (each for each in found))}, rf"{TANH}\.evaluate returned <generator"),
    "evaluate gives no event": ({"evaluate": changed(lambda found: ext.Started(found, None))}, rf"{TANH}\.evaluate returned Started with None for done; it is an Event"),  # type: ignore[arg-type]
    "evaluate gives another type": ({"evaluate": changed(lambda found: [found[0].astype("f4")])}, rf"{GET} float32\[3, 4\] {MADE}"),
    "evaluate gives another shape": ({"evaluate": changed(lambda found: [found[0][:1]])}, rf"{GET} float16\[1, 4\] {MADE}"),
    "evaluate takes too few": ({"evaluate": lambda self, i: None}, rf"{OWNER}: Abacus\.evaluate takes other arguments; write def evaluate\(self, instruction, operands, layouts\)"),
    "get gives nothing": ({"get": lambda self, m, t, l: None}, rf"{GET} None {FOUND}"),
    "get gives a list": ({"get": lambda self, m, t, l: m.tolist()}, rf"{GET} \[\[.* {FOUND}"),
    "get gives the transpose": ({"get": lambda self, m, t, l: m.T}, rf"{GET} float16\[4, 3\] {FOUND}"),
    "put gives nothing": ({"put": lambda self, a, t, l: None}, r"transfer of tensor<3x4xf16> on nova:0 \(hlojit-nova 0\.1\.0\): Abacus\.put returned None for tensor<3x4xf16>"),
    "put raises": ({"put": lambda self, a, t, l: {}[0]}, rf"transfer of tensor<3x4xf16> on nova:0: {OWNER} raised KeyError\(0\)"),
    "put takes too few": ({"put": lambda self, a: a}, rf"{OWNER}: Abacus\.put takes other arguments; write def put\(self, array, type, layout\)"),
    "free takes nothing": ({"free": lambda self: None}, rf"{OWNER}: Abacus\.free takes other arguments; write def free\(self, memory\)"),
    "a clock without a time": ({"nanoseconds": lambda self: None}, r"Abacus\.nanoseconds returned None; it returns the machine's clock, a number"),
    "a clock that is a text": ({"nanoseconds": lambda self: "12"}, r"Abacus\.nanoseconds returned '12'; it returns the machine's clock, a number"),
    "one machine": ({"machines": lambda self: Plain()}, rf"{OWNER}: machines returned one Plain; return a list of them: \[Plain\(\.\.\.\)\]"),
    "classes": ({"machines": lambda self: [Plain]}, rf"{OWNER}: machines returned the class Plain; give an instance: Plain\(\)"),
    "no machines": ({"machines": lambda self: []}, rf"{OWNER}: machines returned \[\]; it returns a list with at least one Machine"),
    "machines without a return": ({"machines": lambda self: None}, rf"{OWNER}: machines returned None; it returns a list"),
    "names of machines": ({"machines": lambda self: "abacus"}, rf"{OWNER}: machines returned 'abacus'; it returns a list"),
    "a machine twice": ({"machines": lambda self: [Plain()] * 2}, rf"{OWNER}: machines returned one object twice"),
    "machines raises": ({"machines": lambda self: 1 // 0}, rf"{OWNER}: devices raised ZeroDivisionError"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MACHINES)
def test_machines(mistake: str) -> None:
    members, message = MACHINES[mistake]
    register(**members)
    with pytest.raises(hlojit.HlojitError, match=message) as caught:
        np.asarray(hlojit.compile(PROGRAM, backend="nova")(X))
    said = str(caught.value)
    assert len(said.splitlines()) == 1 and len(said) < 600
    assert f"at {__file__}:" in said


def test_a_memory_that_cannot_be_freed_is_a_warning_once() -> None:
    def free(self: Any, memory: Any) -> None:
        raise OSError("unit 7")

    register(free=free)
    with pytest.warns(
        hlojit.PluginWarning, match=r"Abacus\.free raised OSError\('unit 7'\) at .*memory is not"
    ) as said:
        for _ in range(3):
            np.asarray(hlojit.compile(PROGRAM, backend="nova")(X))
        gc.collect()
    assert len([each for each in said if "Abacus.free" in str(each.message)]) == 1


def test_a_layout_of_another_rank_is_refused_where_it_is_row_major_too() -> None:
    def wishes(self: Any, instruction: Any) -> Any:
        return ext.Layouts((ext.Layout((0, 1, 2)),), (ext.Layout(),))

    back_end = type(
        "Device",
        (ext.InterpretedBackend,),
        {
            "name": "nova",
            "machines": lambda self: [Plain()],
            "capability": lambda self, i: ext.YES,
            "preferred_layouts": wishes,
        },
    )
    ext.register(nova(backends=[back_end()]), package="hlojit-nova", version="0.1.0")
    with pytest.raises(hlojit.PluginError, match=r"preferred_layouts returned .* tensor<3x4xf16> .*cannot lie so"):
        hlojit.compile(PROGRAM, backend="nova")
    assert ext.Layout((0, 1)) == ext.Layout() and ext.Layout((0, 1)).fits(2) and not ext.Layout((0, 1)).fits(3)


class Bare(ext.Device):
    """A device whose handles are arrays."""

    def transfer_in(self, array: Any, type: Any, space: Any) -> Any:
        return np.array(array), ext.READY

    def transfer_out(self, handle: Any, type: Any) -> Any:
        return handle

    def execute(self, program: Any, arguments: Any, after: Any) -> Any:
        after.wait()
        return [evaluate(program.code, *arguments)], ext.READY


DEVICES: dict[str, tuple[dict[str, Any], str]] = {
    "transfer_in gives nothing": ({"transfer_in": lambda self, a, t, s: None}, rf"transfer of tensor<3x4xf16> on nova:0: {OWNER} returned None from transfer_in, not a pair of handle and Event"),
    "transfer_in gives a handle": ({"transfer_in": lambda self, a, t, s: a}, r"from transfer_in, not a pair of handle and Event"),
    "transfer_in gives no event": ({"transfer_in": lambda self, a, t, s: (a, True)}, r"from transfer_in, not a pair of handle and Event"),
    "transfer_out gives nothing": ({"transfer_out": lambda self, h, t: None}, rf"{OWNER} returned NoneType ; expected an array float16\(3, 4\)"),
    "execute gives nothing": ({"execute": lambda self, p, a, e: None}, rf"main on nova:0: {OWNER} returned None from execute, not a pair of handles and event"),
    "execute gives no handles": ({"execute": lambda self, p, a, e: (None, ext.READY)}, r"returned None for handles from execute, not 1"),
    "execute gives too many": ({"execute": lambda self, p, a, e: (a * 2, ext.READY)}, r"returned 2 handles from execute, not 1"),
    "execute raises": ({"execute": lambda self, p, a, e: {}[0]}, rf"main on nova:0: {OWNER} raised KeyError\(0\) at "),
    "one device": ({"devices": lambda self: Bare("nova")}, rf"{OWNER}: devices returned one Bare; return a list, of the same objects every time"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", DEVICES)
def test_devices(mistake: str) -> None:
    members, message = DEVICES[mistake]
    made = type("Made", (Bare,), {name: each for name, each in members.items() if name != "devices"})("nova")
    back_end = type(
        "Own",
        (ext.Backend,),
        {
            "name": "nova",
            "capability": lambda self, i: ext.YES,
            "devices": members.get("devices", lambda self: [made]),
            "compile": lambda self, m, o: ext.DeviceProgram.of(m, m),
        },
    )
    ext.register(nova(backends=[back_end()]), package="hlojit-nova", version="0.1.0")
    with pytest.raises(hlojit.HlojitError, match=message) as caught, warnings.catch_warnings():
        np.asarray(hlojit.compile(PROGRAM, backend="nova")(X))
    assert f"at {__file__}:" in str(caught.value)
