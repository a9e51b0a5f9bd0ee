"""Machines that do not wait for their own commands: what is begun, when it has ended, and what failed."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import DECOMPOSE, YES, Event, Held, InterpretedBackend, Machine, Queue, Started, can_decompose
from hlojit.ir import Instruction, evaluate_instruction

Register = Callable[..., None]


class Cell:
    """A memory that is written later."""

    def __init__(self) -> None:
        self.array: Any = None
        self.is_freed = False


class Streams(Machine):
    """Two streams: instructions go to one after the other in turn, each behind what it reads."""

    def __init__(self) -> None:
        self.streams = [Queue("stream 0"), Queue("stream 1")]
        self.turn = 0
        self.failing = ""
        self.gate = threading.Event()
        self.gate.set()
        self.faults: list[str] = []
        self.freed = 0

    def put(self, array: Any, type: Any, layout: Any) -> Started:
        cell, staged = Cell(), array.copy()
        return Started([cell], self.streams[0].submit(lambda: setattr(cell, "array", staged)))

    def get(self, memory: Cell, type: Any, layout: Any) -> Any:
        if memory.array is None:
            self.faults.append("read before it was written")
        return memory.array.copy()

    def free(self, memory: Cell) -> None:
        memory.is_freed = True
        self.freed += 1

    def evaluate(self, instruction: Instruction, operands: Sequence[Held], layouts: Any) -> Started:
        cells = [Cell() for _ in instruction.results]
        reads = [each.memory for each in operands]

        def command() -> None:
            if not self.gate.wait(20):
                raise TimeoutError
            if self.failing == instruction.name:
                raise OSError("parity error")
            if any(each.is_freed or each.array is None for each in reads) or any(each.is_freed for each in cells):
                self.faults.append(f"{instruction.name}: memory is not there")
            for cell, array in zip(cells, evaluate_instruction(instruction, [each.array for each in reads])):
                cell.array = np.asarray(array)

        self.turn += 1
        after = Event.all([each.ready for each in operands])
        return Started(cells, self.streams[self.turn % 2].submit(command, after))


class Streaming(InterpretedBackend):
    """One such machine."""

    name = "nova"

    def __init__(self) -> None:
        self.machine = Streams()

    def machines(self) -> list[Machine]:
        return [self.machine]

    def capability(self, instruction: Instruction) -> Any:
        return DECOMPOSE if can_decompose(instruction) else YES


@pytest.fixture
def nova(registered: Register) -> Iterator[Streams]:
    backend = Streaming()
    registered(backend)
    yield backend.machine
    backend.machine.gate.set()
    assert not backend.machine.faults


CHAIN = """
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %0 = stablehlo.add %x, %c : tensor<4xf32>
  %1 = stablehlo.multiply %0, %y : tensor<4xf32>
  %2 = stablehlo.subtract %1, %0 : tensor<4xf32>
  %3 = stablehlo.negate %2 : tensor<4xf32>
  return %3 : tensor<4xf32>
}
"""
X, Y = np.arange(4, dtype="f4"), np.full(4, 2, "f4")
LOOP = """
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %i0, %v = %x) : tensor<i32>, tensor<4xf32>
    cond {
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %w = stablehlo.add %v, %v : tensor<4xf32>
      stablehlo.return %j, %w : tensor<i32>, tensor<4xf32>
    }
  return %r#1 : tensor<4xf32>
}
"""


def expected(text: str, *arguments: Any) -> Any:
    return hlojit.compile(text, backend="reference")(*arguments)


def test_programs_run_and_give_memory_back(nova: Streams) -> None:
    executable = hlojit.compile(CHAIN, backend="nova")
    for _ in range(20):
        np.testing.assert_array_equal(executable(X, Y), expected(CHAIN, X, Y))
    x = hlojit.put(X, "nova")
    for _ in range(3):
        x = executable(x, Y)
    assert str(x.device) == "nova:0"
    before = nova.freed
    del x
    assert nova.freed > before


def test_a_loop_waits_for_its_condition_alone(nova: Streams) -> None:
    executable = hlojit.compile(LOOP, backend="nova")
    np.testing.assert_array_equal(executable(X, np.int32(5)), X * 32)


def test_the_end_is_when_the_commands_have_ended(nova: Streams) -> None:
    """A result is pending as long as a command is, and the next program runs behind it."""
    executable = hlojit.compile(CHAIN, backend="nova")
    nova.gate.clear()
    pending = executable.execute(X, Y)
    following = executable.execute(pending, Y)
    time.sleep(0.05)
    assert not pending.is_ready
    nova.gate.set()
    once = expected(CHAIN, X, Y)
    np.testing.assert_array_equal(hlojit.get(following), expected(CHAIN, once, Y))


@pytest.mark.parametrize("failing", ["add", "subtract", "negate"])
def test_a_command_that_fails_is_named_and_the_next_call_works(nova: Streams, failing: str) -> None:
    executable = hlojit.compile(CHAIN, backend="nova")
    x = hlojit.put(X, "nova")
    nova.failing = f"stablehlo.{failing}"
    with pytest.raises(hlojit.ExecutionError) as caught:
        executable(x, Y)
    line = {"add": 4, "subtract": 6, "negate": 7}[failing]
    assert "main on nova:0" in str(caught.value)
    assert f"stablehlo.{failing} at <string>:{line}" in str(caught.value)
    assert "Streams: OSError('parity error')" in str(caught.value)
    nova.failing = ""
    np.testing.assert_array_equal(executable(x, Y), expected(CHAIN, X, Y))


def test_what_fails_in_a_loop_ends_it(nova: Streams) -> None:
    executable = hlojit.compile(LOOP, backend="nova")
    nova.failing = "stablehlo.compare"
    with pytest.raises(hlojit.ExecutionError, match="stablehlo.compare at"):
        executable(X, np.int32(5))
    nova.failing = ""
    np.testing.assert_array_equal(executable(X, np.int32(2)), X * 4)


def test_a_failure_reaches_what_waits_for_it(nova: Streams) -> None:
    executable = hlojit.compile(CHAIN, backend="nova")
    nova.failing = "stablehlo.multiply"
    pending = executable.execute(executable.execute(X, Y), Y)
    with pytest.raises(hlojit.ExecutionError, match="stablehlo.multiply at <string>:5"):
        np.asarray(pending)


def test_the_list_of_commands_may_be_split_among_devices(nova: Streams) -> None:
    executable = hlojit.compile(CHAIN, backend=["nova", "cpu"])
    np.testing.assert_allclose(executable(X, Y), expected(CHAIN, X, Y))
    double = hlojit.jit(lambda x: np.sort(x * 2)[::-1] * 3, backend=["nova", "cpu"])
    np.testing.assert_allclose(double(X), np.sort(X * 2)[::-1] * 3)


def test_ctrl_c_ends_the_waiting_and_the_program(nova: Streams) -> None:
    """The instructions that have not begun are not begun, so that the device is free again."""
    executable = hlojit.compile(LOOP, backend="nova")
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        executable(X, np.int32(2**31 - 1))
        time.sleep(10)
    timer.join()
    assert time.monotonic() - began < 8
    np.testing.assert_array_equal(executable(X, np.int32(3)), X * 8)


def test_what_is_no_event_is_an_error_that_says_so(nova: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Streams, "evaluate", lambda self, *_: Started([Cell()], "soon"))  # type: ignore[arg-type]
    with pytest.raises(
        hlojit.HlojitError, match="stablehlo.add at .*Streams.evaluate returned Started with 'soon' for done"
    ):
        hlojit.compile(CHAIN, backend="nova")(X, Y)
    monkeypatch.setattr(Streams, "evaluate", lambda self, *_: Started([], Event.completed()))
    with pytest.raises(hlojit.HlojitError, match="stablehlo.add at .*not a list of 1 memory"):
        hlojit.compile(CHAIN, backend="nova")(X, Y)


def test_a_machine_that_exits_is_an_error_that_names_the_instruction(
    nova: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: Any) -> Any:
        raise SystemExit(3)

    executable = hlojit.compile(CHAIN, backend="nova")
    monkeypatch.setattr(Streams, "evaluate", leave)
    with pytest.raises(hlojit.ExecutionError, match=r"stablehlo.add at <string>:4.*raised SystemExit\(3\)"):
        executable(X, Y)
    monkeypatch.undo()
    np.testing.assert_array_equal(executable(X, Y), expected(CHAIN, X, Y))
