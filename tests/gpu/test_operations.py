"""Program records as operations over addresses, against the interpreter of records, and random programs against that of graphs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.gpu.driver import Grid
from hlojit.gpu.operations import CopyBytes, Jump, LaunchKernel, Operations
from hlojit.ir import evaluate, tensor
from hlojit.ir.errors import UnsupportedError
from hlojit.lowering.arena import assign_offsets
from hlojit.lowering.buffer_assignment import assign_buffers
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.program import (
    Branch,
    Buffer,
    BufferKind,
    Copy,
    Launch,
    Program,
    Step,
    Transfer,
    Wait,
)
from hlojit.lowering.program_interpreter import run
from hlojit.lowering.storage import Storage

from ..lowering.records import no_launch
from ..random_programs import RandomProgram, random_arguments

VECTOR = tensor((6,), "i32")
X = np.arange(6, dtype="i4") * 3 - 4


def buffers(kind: BufferKind, count: int, **fields: Any) -> list[Buffer]:
    return [Buffer(kind, replace(Storage.of(VECTOR), **fields), number) for number in range(count)]


def program_of(steps: Sequence[Step], inputs: list[Buffer], outputs: list[Buffer]) -> Program:
    made = Program("main", list(steps), inputs, outputs, [], [])
    assign_buffers(made, 256)
    return made


def moved(program: Program, *arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Run operations that only move, over NumPy memory."""
    operations = Operations(program)
    given = [each.view("u1").copy() for each in arrays]
    memories = [*given, *(np.zeros(24, "u1") for _ in program.outputs), np.zeros(program.arena_bytes, "u1")]
    frame = list(range(len(memories)))
    at = 0
    while at < len(operations.code):
        operation = operations.code[at]
        at += 1
        if isinstance(operation, Jump):
            at = operation.target
        else:
            assert isinstance(operation, CopyBytes), operation
            source = memories[frame[operation.source.slot]][operation.source.offset :]
            memories[frame[operation.target.slot]][operation.target.offset :][: operation.nbytes] = source[
                : operation.nbytes
            ]
    return [each.view("i4") for each in memories[len(given) : len(given) + len(program.outputs)]]


def test_transfers_are_copies_and_waits_are_nothing() -> None:
    x, y, t = buffers(BufferKind.INPUT, 1), buffers(BufferKind.OUTPUT, 1), buffers(BufferKind.TEMPORARY, 2)
    steps = [Transfer(x[0], t[0], 1), Wait(1), Copy(t[0], t[1]), Transfer(t[1], y[0])]
    program = program_of(steps, x, y)
    np.testing.assert_array_equal(moved(program, X)[0], run(program, [X], no_launch)[0])
    assert program.arenas == {"host": 512}, "places are multiples of 256"


def test_another_memory_space_is_refused() -> None:
    x, y = buffers(BufferKind.INPUT, 1), buffers(BufferKind.OUTPUT, 1)
    (t,) = buffers(BufferKind.TEMPORARY, 1, space="sram")
    with pytest.raises(UnsupportedError, match="lies in the memory space 'sram'"):
        Operations(program_of([Transfer(x[0], t), Transfer(t, y[0])], x, y))


def test_branches_nested_deeply_are_flat() -> None:
    index = Buffer(BufferKind.INPUT, Storage.of(tensor((), "i32")), 0)
    x, y = Buffer(BufferKind.INPUT, Storage.of(VECTOR), 1), buffers(BufferKind.OUTPUT, 1)
    steps: list[Step] = [Copy(x, y[0])]
    for _ in range(5000):
        steps = [Branch(index, False, [steps, []])]
    operations = Operations(program_of(steps, [index, x], y))
    assert not operations.is_fixed
    assert len(operations.code) == 5000 * 3 + 1
    assert all(
        each.target == len(operations.code)
        for each in operations.code
        if isinstance(each, Jump) and each is operations.code[-1]
    )


def test_phases_without_blocks_are_not_launched() -> None:
    x, y = buffers(BufferKind.INPUT, 1), buffers(BufferKind.OUTPUT, 1)
    code = KernelCode("", (Phase("first", 2, 1.0, 64, 1024), Phase("second", 0, 1.0), Phase("third", 1, 1.0, 32)))
    operations = Operations(program_of([Launch(code, tuple(x), tuple(y), None, "sort")], x, y))
    assert [(each.symbol, each.grid) for each in operations.launches] == [
        ("first", Grid(2, 64, 1024)),
        ("third", Grid(1, 32)),
    ]
    assert isinstance(operations.code[0], LaunchKernel) and operations.code[0].what.startswith("sort at ")


def test_offsets_are_multiples_of_what_is_asked_for() -> None:
    made = [Buffer(BufferKind.TEMPORARY, Storage.raw(100), start=n, end=9) for n in range(3)]
    assert assign_offsets(made, 256) == 768
    assert [each.offset for each in made] == [0, 256, 512]


@pytest.mark.parametrize("seed", range(2000, 2006))
def test_random_programs_on_the_simulator(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops, branches, donated and repeated values, against the interpreter of the graph."""
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    text, kinds = RandomProgram(random.Random(seed), statements=10).build()
    arguments = random_arguments(kinds, seed)
    with np.errstate(all="ignore"):
        expected = evaluate(hlojit.parse(text), *arguments)
    found = hlojit.compile(text, backend="cuda")(*arguments)
    for ours, theirs in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
