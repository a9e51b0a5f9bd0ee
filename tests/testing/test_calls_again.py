"""A second call with other arguments, attributes, and what is left behind: defects that one call of usual programs hides."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit import testing
from hlojit.ir import unwritten
from hlojit.testing.backends import _alone, _asked_about, _instructions
from hlojit.testing.comparison import EXACT
from hlojit.testing.execution import argument_types
from hlojit.testing.recorder import Found, Recorder
from hlojit.testing.runs import runs_of
from hlojit.testing.trials import Trial, Trials
from hlojit.testing.variation import other_trials, varied

from .plugins import TINY, Device, plugin

SCALARS = """func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.subtract %x, %y : tensor<f32>
  return %0 : tensor<f32>
}"""
PAIR = "func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = stablehlo.subtract %x, %y : tensor<4xf32>\n  return %0 : tensor<4xf32>\n}"


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", "off")


class Wrapped(Device):
    """Calls of an executable go through a function, with a memory of its own."""

    name = "kit-wrapped"
    wrap: Callable[[Any, list[Any]], Any]
    hlojit_runtime = ("_host_devices", "wrap")

    def __init__(self, wrap: Callable[[Any, list[Any]], Any]) -> None:
        self.wrap = wrap

    def compile(self, module: Any, options: Any) -> Any:
        run, memory = super().compile(module, options), list[Any]()
        call = self.wrap(run, memory)
        return lambda *arrays: [np.array(each) for each in call(*arrays)]


def by_key(key: Callable[..., Any]) -> Callable[[Any, list[Any]], Any]:
    """Results are kept, by something of the arguments."""

    def wrap(run: Any, memory: list[Any]) -> Any:
        kept: dict[Any, Any] = {}

        def call(*arrays: Any) -> Any:
            found = key(*arrays)
            if found not in kept:
                kept[found] = run(*arrays)
            return kept[found]

        return call

    return wrap


def baked(run: Any, memory: list[Any]) -> Any:
    """The last argument of the first call is a constant from then on."""

    def call(*arrays: Any) -> Any:
        memory.append(np.array(arrays[-1]))
        return run(*arrays[:-1], memory[0])

    return call


def one_behind(run: Any, memory: list[Any]) -> Any:
    def call(*arrays: Any) -> Any:
        memory.append(run(*arrays))
        return memory[max(0, len(memory) - 2)]

    return call


def beside_negative(run: Any, memory: list[Any]) -> Any:
    """Writes behind an argument that begins with another number than before."""

    def call(*arrays: Any) -> Any:
        first = np.asarray(arrays[0])
        memory.append(first.reshape(-1)[0].tobytes())
        if memory[0] != memory[-1]:
            ctypes.memset(first.ctypes.data + first.nbytes, 0, 1)
        return run(*arrays)

    return call


def tried(device: ext.Backend, text: str, *arguments: Any) -> str:
    """What is found, with the program that shows it."""
    module = hlojit.parse(text)
    arrays = tuple(np.array(each, kind.element_type.storage) for each, kind in zip(arguments, argument_types(module)))
    with ext.using(plugin("kit-again", backends=[device])), pytest.raises(Found) as found:
        Trials(Recorder("back end", device.name, TINY)).run(Trial("it", module, arrays, EXACT), device.name, times=2)
    return f"{found.value.finding.message}\n{found.value.finding.program}"


@pytest.mark.parametrize(
    ("wrap", "text", "arguments"),
    [
        (by_key(lambda *arrays: tuple(np.shape(each) for each in arrays)), SCALARS, (3.0, 1.0)),
        (by_key(lambda x, y: np.asarray(x).tobytes()), PAIR, ([1, 2, 3, 4], [5, 5, 5, 5])),
        (by_key(lambda x, y: np.asarray(y).tobytes()), PAIR, ([1, 2, 3, 4], [5, 5, 5, 5])),
        (by_key(lambda *arrays: tuple(np.asarray(each).ctypes.data for each in arrays)), PAIR, ([1, 2, 2, 1], [0] * 4)),
        (baked, SCALARS, (3.0, 1.0)),
        (baked, PAIR, ([1, 2, 3, 4], [7, 7, 7, 7])),
        (one_behind, SCALARS, (3.0, 1.0)),
    ],
    ids=["shape", "first", "second", "address", "baked scalar", "baked splat", "one behind"],
)
def test_results_that_are_kept_for_the_next_call(wrap: Any, text: str, arguments: Any) -> None:
    said = tried(Wrapped(wrap), text, *arguments)
    assert "with other arguments: result 0" in said
    # It happens every time: behind a call with other arguments.
    assert "come back" not in said
    assert "executable(*earlier0)" in said
    assert "# expected:" in said


def test_writes_beside_arguments_in_a_run_with_other_arguments() -> None:
    said = tried(Wrapped(beside_negative), PAIR, [1, 2, 3, 4], [5, 6, 7, 8])
    assert "with other arguments: it wrote behind argument 0" in said
    assert "come back" not in said


def test_other_arguments_are_other_ones() -> None:
    text = """func.func @main(%a: tensor<f32>, %b: tensor<1xi32>, %c: tensor<4xf32>, %d: tensor<3xi8>, %e: tensor<i1>, %f: tensor<complex<f32>>,
        %g: tensor<2xf8E4M3FN>, %h: tensor<0xf32>) -> tensor<f32> {
      return %a : tensor<f32>
    }"""
    kinds = argument_types(hlojit.parse(text))
    values: list[Any] = [3.0, [4], [2, 2, 2, 2], [1, 7, 1], True, 1j, [0x38, 0x38], []]
    first = [np.array(each, kind.element_type.storage_bits if kind.element_type.name.startswith("f8") else kind.element_type.storage)
             .view(kind.element_type.storage) for each, kind in zip(values, kinds)]  # fmt: skip
    made = varied(first, kinds)
    assert [a.tobytes() != b.tobytes() for a, b in zip(made, first)] == [True] * 7 + [False]
    # None was negative: none is, as an index or what a root is taken of must be.
    assert all((np.asarray(made[place]).astype("f4") >= 0).all() for place in (0, 1, 2, 3))


def test_where_no_arguments_are_other_it_is_said() -> None:
    text = "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {\n  %0 = stablehlo.constant dense<1.0> : tensor<3xf32>\n  return %0 : tensor<3xf32>\n}"
    trial = Trial("it", hlojit.parse(text), (np.ones(3, "f4"),), EXACT)
    assert other_trials(trial, trial.meaning())[1] == "it gives the same results for all arguments that were tried"
    report = testing.check_custom_call(
        ext.ElementwiseCall("kit.twice", function=lambda x: x + x),
        operands=["f32"],
        shapes=[(3,)],
        arguments=lambda types, random: [np.ones(kind.shape, "f4") for kind in types],
        backends=["reference"],
        budget=TINY,
    )
    assert report.called_alike
    for form in (report.text(), report.html(), report.json()):
        assert "arguments= gives the same arrays every time" in form


def test_an_oracle_alone_knows_better_is_said() -> None:
    report = testing.check_custom_call(
        ext.ElementwiseCall("kit.doubled", function=lambda x: x + x),
        operands=["f32"],
        oracle=lambda x: 3 * x,
        backends=["cpu"],
        budget=TINY,
    )
    assert report.findings
    assert not any("come back" in each.program for each in report.findings)
    assert any("worked out apart from both" in each.program for each in report.findings)


def test_memory_is_as_it_was_behind_a_program_that_did_not_end() -> None:
    go = threading.Event()
    ended = threading.Event()

    def waiting(run: Any, memory: list[Any]) -> Any:
        def call(*arrays: Any) -> Any:
            memory.append(go.wait(30))
            if len(memory) == 2:
                ended.set()
                go.wait(30)
            return run(*arrays)

        return call

    with ext.using(plugin("kit-again", backends=[Wrapped(waiting)])):
        arrays = [np.ones((), "f4"), np.ones((), "f4")]
        assert runs_of(hlojit.parse(SCALARS), "kit-wrapped", arrays, times=2, seconds=0.2).first.kind == "endless"
        assert not unwritten.zeros((4,), "u1").any()
        go.set()
        assert ended.wait(30)
        assert not unwritten.zeros((4,), "u1").any(), "what nobody waits for has gone on, and fills nothing"


def test_every_different_instruction_is_asked_about() -> None:
    text = """func.func @main(%x: tensor<4x4xf32>, %n: tensor<i1>) -> (tensor<4x4xi1>, tensor<4x4xi1>, tensor<4xf32>, tensor<4xf32>, tensor<4x4xf32>) {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %a = stablehlo.compare LT, %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xi1>
      %b = stablehlo.compare GE, %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xi1>
      %c = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
      %d = stablehlo.reduce(%x init: %z) applies stablehlo.maximum across dimensions = [1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
      %e = "stablehlo.if"(%n) ({
        %t = stablehlo.tanh %x : tensor<4x4xf32>
        stablehlo.return %t : tensor<4x4xf32>
      }, {
        stablehlo.return %x : tensor<4x4xf32>
      }) : (tensor<i1>) -> tensor<4x4xf32>
      return %a, %b, %c, %d, %e : tensor<4x4xi1>, tensor<4x4xi1>, tensor<4xf32>, tensor<4xf32>, tensor<4x4xf32>
    }"""
    asked: list[str] = []

    class Listening(Device):
        name = "kit-listening"
        hlojit_runtime = ("_host_devices",)

        def capability(self, instruction: Any) -> ext.Capability:
            if instruction.name == "stablehlo.compare" and instruction.attributes["comparison_direction"] == "GE":
                asked.append("GE")
            return super().capability(instruction)

        def compile(self, module: Any, options: Any) -> Any:
            if any(each.attributes.get("comparison_direction") == "GE" for each in module.walk()):
                raise hlojit.UnsupportedError("stablehlo.compare", self.name, "there is no GE")
            return super().compile(module, options)

    names = [_asked_about(each, _alone(each)) for each in _instructions(hlojit.parse(text))]
    assert len(names) == len(set(names))
    assert [sum(each.startswith(f"stablehlo.{op}(") for each in names) for op in ("compare", "reduce", "tanh")] == [
        2,
        2,
        1,
    ]
    with ext.using(plugin("kit-again", backends=[Listening()])):
        report = testing.check_backend("kit-listening", [text], budget=TINY)
    assert asked
    assert any("answers YES to stablehlo.compare and then refuses it" in each.message for each in report.findings)
