"""The program record: every step's text, check and meaning, in the interpreter and in the host's native code."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.cpu.processor import host_target
from hlojit.executable import Executable, ExecutableSpec
from hlojit.ir import evaluate
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.sizes import extent, multiply
from hlojit.ir.types import tensor
from hlojit.llvm.host import emit_host
from hlojit.lowering.buffer_assignment import assign_buffers
from hlojit.lowering.collective_moves import moves_of
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.program import (
    Begin,
    Branch,
    Buffer,
    BufferKind,
    Collective,
    CollectiveKind,
    Copy,
    Launch,
    Loop,
    PointCell,
    ProcessId,
    Program,
    ProgramError,
    Step,
    Swap,
    Transfer,
    Wait,
)
from hlojit.lowering.program_calls import call
from hlojit.lowering.program_check import check
from hlojit.lowering.program_interpreter import run, run_together
from hlojit.lowering.program_text import text
from hlojit.lowering.storage import Storage
from hlojit.machine_code.loading import compile_to_object, load_objects
from hlojit.runtime import native_symbols

from ..random_programs import RandomProgram, random_arguments
from .records import VECTOR, native, native_launch, no_launch, program_of

# ------------------------------------------------------------------------------------- the interpreter as an oracle


@pytest.mark.parametrize("block", range(3))
def test_records_mean_what_the_programs_mean(block: int) -> None:
    """Random programs: record and kernels, run step by step in Python, against the interpreter of the graph."""
    for seed in range(1000 + block * 4, 1004 + block * 4):
        text, kinds = RandomProgram(random.Random(seed), statements=12).build()
        arguments = random_arguments(kinds, seed)
        with np.errstate(all="ignore"):
            expected = evaluate(hlojit.parse(text), *arguments)
        program = program_of(text)
        for ours, theirs in zip(run(program, arguments, native_launch(program)), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


# -------------------------------------------------------------------------------------------- records made by hand


def io(count: int = 1, **fields: Any) -> tuple[list[Buffer], list[Buffer]]:
    """Inputs and outputs of six integers each."""
    return (
        [Buffer(BufferKind.INPUT, replace(Storage.of(VECTOR), **fields), number) for number in range(count)],
        [Buffer(BufferKind.OUTPUT, replace(Storage.of(VECTOR), **fields), number) for number in range(count)],
    )


def record(steps: Callable[..., Sequence[Step]], count: int = 1, temporaries: int = 1, **fields: Any) -> Program:
    """A program whose steps are ``steps(inputs, outputs, temporaries)``."""
    inputs, outputs = io(count, **fields)
    storage = replace(Storage.of(VECTOR), **fields)
    scratch = [Buffer(BufferKind.TEMPORARY, storage, number) for number in range(temporaries)]
    program = Program("main", list(steps(inputs, outputs, scratch)), inputs, outputs, [], [])
    assign_buffers(program)
    return program


X = np.arange(6, dtype="i4") * 3 - 4


def through(event: int | None) -> Callable[..., Sequence[Step]]:
    """Input to output by two transfers."""

    def steps(x: list[Buffer], y: list[Buffer], t: list[Buffer]) -> list[Step]:
        waits: list[list[Step]] = [[Wait(number)] if event is not None else [] for number in (event or 0, 7)]
        return [Transfer(x[0], t[0], event), *waits[0], Transfer(t[0], y[0], event and 7), *waits[1]]

    return steps


@pytest.mark.parametrize("event", [None, 3])
def test_transfers_copy_and_waits_finish_them(event: int | None) -> None:
    program = record(through(event))
    check(program)
    np.testing.assert_array_equal(run(program, [X], no_launch)[0], X)
    np.testing.assert_array_equal(native(program)(X), X)


def test_a_target_is_undefined_until_it_is_waited_for() -> None:
    """What reads too early sees it in the interpreter, and the check refuses it."""
    program = record(lambda x, y, t: [Transfer(x[0], t[0], 1), Copy(t[0], y[0]), Wait(1)])
    assert (run(program, [X], no_launch)[0].view("u1") == 0xA5).all()
    with pytest.raises(ProgramError, match="copy temporary0 -> output0: temporary0 is on its way until event 1"):
        check(program)


def test_transfers_between_spaces_have_arenas_of_their_own() -> None:
    device = replace(Storage.of(VECTOR), space="device:1")
    inputs, outputs = io()
    scratch = [Buffer(BufferKind.TEMPORARY, device, number) for number in range(2)]
    steps = [
        Transfer(inputs[0], scratch[0], 0),
        Wait(0),
        Copy(scratch[0], scratch[1]),
        Transfer(scratch[1], outputs[0]),
    ]
    program = Program("main", steps, inputs, outputs, [], [])
    assign_buffers(program)
    check(program)
    assert program.arenas == {"device:1": 128} and program.arena_bytes == 0
    np.testing.assert_array_equal(run(program, [X], no_launch)[0], X)
    with pytest.raises(UnsupportedError, match="temporary0 lies in the memory of device:1"):
        emit_host(program, "main")


CALLEE = """func.func public @main(%x: tensor<6xi32>, %y: tensor<6xi32>) -> (tensor<6xi32>, tensor<6xi32>) {
  %c = stablehlo.constant dense<[1, 2, 3, 4, 5, 6]> : tensor<6xi32>
  %s = stablehlo.reverse %x, dims = [0] : tensor<6xi32>
  %i = stablehlo.constant dense<2> : tensor<i32>
  %u = stablehlo.dynamic_update_slice %c, %y, %i : (tensor<6xi32>, tensor<6xi32>, tensor<i32>) -> tensor<6xi32>
  %p = stablehlo.add %s, %u : tensor<6xi32>
  %q = "stablehlo.sort"(%p) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %l = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %l : tensor<i1>
  }) {dimension = 0 : i64, is_stable = true} : (tensor<6xi32>) -> tensor<6xi32>
  return %p, %q : tensor<6xi32>, tensor<6xi32> }"""


def test_calls_run_another_programs_entry() -> None:
    callee = program_of(CALLEE)
    inputs, outputs = io(2)
    t = [Buffer(BufferKind.TEMPORARY, Storage.of(VECTOR), number) for number in range(2)]
    caller = Program("main", [], inputs, outputs, [np.arange(3)], t)
    caller.steps = [call(caller, callee, "callee", inputs, t), call(caller, callee, "callee", (t[1], t[0]), outputs)]
    assign_buffers(caller)
    check(caller)
    y = X[::-1].copy() * 5
    with np.errstate(all="ignore"):
        first = evaluate(hlojit.parse(CALLEE), X, y)
        expected = evaluate(hlojit.parse(CALLEE), first[1], first[0])
    for ours in (
        run(caller, [X, y], native_launch(callee), {"callee": callee}),
        native(caller, ("callee", callee))(X, y),
    ):
        for one, other in zip(ours, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_callee_that_fails_ends_the_caller() -> None:
    callee = Program("callee", [], *io(), [], [])
    program = record(lambda x, y, t: [Copy(x[0], y[0])])
    program.steps.insert(0, call(program, callee, "failing", program.inputs, program.outputs))
    failing = "define i32 @failing(ptr %context, ptr %slots) {\n  ret i32 3\n}\n"
    objects = [compile_to_object(emit_host(program, "main"), host_target()), compile_to_object(failing, host_target())]
    loaded = load_objects(objects, ["main"], native_symbols())
    executable = Executable(ExecutableSpec("caller", loaded.address("main"), (VECTOR,), (VECTOR,), keepalive=(loaded,)))
    with pytest.raises(hlojit.ExecutionError, match="caller failed with status 3"):
        executable(X)


def test_arguments_of_a_call_are_those_of_the_callee() -> None:
    callee = Program("callee", [], *io(), [], [])
    program = record(lambda x, y, t: [Copy(x[0], y[0])])
    with pytest.raises(ProgramError, match="results of other sizes or of another number than callee takes"):
        call(program, callee, "callee", program.inputs, ())


# ------------------------------------------------------------------------------------------------------- collectives


def collective(kind: CollectiveKind, groups: Any, target: int = 6) -> Program:
    inputs, outputs = io()
    outputs[0].storage = Storage.of(tensor((target,), "i32"))
    steps: list[Step] = [Collective(kind, inputs[0], outputs[0], groups, event=5), Wait(5)]
    program = Program("main", steps, inputs, outputs, [], [])
    check(program)
    return program


def together(program: Program, count: int = 4) -> list[list[int]]:
    sources = [[X + 10 * number] for number in range(count)]
    return [[int(each) for each in outputs[0]] for outputs in run_together(program, sources, no_launch)]


ROWS = [X + 10 * number for number in range(4)]
PAIRS = ((0, 2), (3, 1))


def test_collectives_among_several() -> None:
    kinds = CollectiveKind
    gathered = together(collective(kinds.ALL_GATHER, PAIRS, target=12))
    assert gathered == [[*ROWS[a], *ROWS[b]] for a, b in ((0, 2), (3, 1), (0, 2), (3, 1))]
    exchanged = together(collective(kinds.ALL_TO_ALL, PAIRS))
    assert exchanged[0] == [*ROWS[0][:3], *ROWS[2][:3]] and exchanged[1] == [*ROWS[3][3:], *ROWS[1][3:]]
    assert together(collective(kinds.BROADCAST, PAIRS)) == [ROWS[n].tolist() for n in (0, 3, 0, 3)]
    assert together(collective(kinds.PERMUTE, ((0, 1), (1, 3)))) == [
        [0] * 6,
        ROWS[0].tolist(),
        [0] * 6,
        ROWS[1].tolist(),
    ]


def test_what_nobody_gives_is_zeros() -> None:
    kinds, zeros = CollectiveKind, [0] * 6
    uneven = ((0, 2), (3, -1))
    assert together(collective(kinds.ALL_GATHER, uneven, target=12)) == [
        [*ROWS[0], *ROWS[2]],
        [*zeros, *zeros],
        [*ROWS[0], *ROWS[2]],
        [*ROWS[3], *zeros],
    ]
    assert together(collective(kinds.BROADCAST, ((2, 1),))) == [zeros, ROWS[2].tolist(), ROWS[2].tolist(), zeros]


def test_participants_know_their_numbers() -> None:
    _, outputs = io()
    outputs[0].storage = Storage.of(tensor((), "ui32"))
    program = Program("main", [ProcessId(outputs[0])], [], outputs, [], [])
    check(program)
    assert run_together(program, [[], [], []], no_launch) == [[0], [1], [2]]


@pytest.mark.parametrize("kind", CollectiveKind)
@pytest.mark.parametrize("groups", [((0, 1, 2, 3),), ((0, 2), (3, 1)), ((2, 0), (1, -1)), ((3, 2),), ((1, 1),)])
def test_pieces_are_what_a_collective_moves(kind: CollectiveKind, groups: Any) -> None:
    if kind is CollectiveKind.PERMUTE:
        groups = tuple(pair for pair in groups if len(pair) == 2 and -1 not in pair) or ((0, 1), (1, 2))
    elif groups == ((1, 1),):
        groups = ((1,),)
    count = max(map(len, groups))
    source, target = 48, 48 * (count if kind is CollectiveKind.ALL_GATHER else 1)
    inputs, outputs = io()
    inputs[0].storage, outputs[0].storage = (Storage.of(tensor((nbytes,), "ui8")) for nbytes in (source, target))
    program = Program("main", [Collective(kind, inputs[0], outputs[0], groups)], inputs, outputs, [], [])
    check(program)
    sources = [np.arange(48, dtype=np.uint8) + 50 * number for number in range(4)]
    expected = run_together(program, [[each] for each in sources], no_launch)
    for number in range(4):
        moves = moves_of(kind, groups, number, source, target)
        found = np.full(target, 255, np.uint8)
        for piece in moves.pieces:
            assert piece.giver in moves.partners
            given = sources[piece.giver][piece.source : piece.source + piece.nbytes]
            found[piece.target : piece.target + piece.nbytes] = given
        for offset, nbytes in moves.zeros:
            found[offset : offset + nbytes] = 0
        np.testing.assert_array_equal(found, expected[number][0])
        assert number in moves.partners
        for each in moves.partners:
            assert moves_of(kind, groups, each, source, target).partners == moves.partners


def test_what_somebody_else_runs_is_there_when_it_is_waited_for() -> None:
    def steps(x: list[Buffer], y: list[Buffer], t: list[Buffer]) -> list[Step]:
        body = [Copy(x[0], t[0]), Copy(t[0], t[1])]
        # The third would lie where the first was, if that were free.
        return [Begin(4, list(body)), Copy(x[1], t[2]), Copy(t[2], y[0]), Wait(4), Copy(t[1], y[0])]

    program = record(steps, 2, 3)
    check(program)
    spans = [(each.start, each.end) for each in program.temporaries]
    assert spans[0] == (2, 7) and spans[1] == (3, 8), program
    np.testing.assert_array_equal(run(program, [X, X + 9], no_launch)[0], X)
    assert "  begin event 4\n    copy input0 -> temporary0\n" in text(program)
    program.temporaries[2].offset = program.temporaries[0].offset
    with pytest.raises(ProgramError, match="temporary0 and temporary2 live at the same time in the same memory"):
        check(program)


def test_participants_meet_at_the_same_collective() -> None:
    program = record(lambda x, y, t: [
        Branch(x[0], False, [[Collective(CollectiveKind.BROADCAST, x[0], y[0], ((0, 1),))], [Copy(x[0], y[0])]])
    ], temporaries=0)  # fmt: skip
    with pytest.raises(hlojit.HlojitError, match="participants arrive at different collectives"):
        run_together(program, [[X * 0], [X * 0 + 1]], no_launch)


# -------------------------------------------------------------------------------------------------------------- checks


def kernel(*in_place: tuple[int, int], workspace: int = 0) -> KernelCode:
    return KernelCode("", (Phase("kernel", 1, 1.0),), workspace, in_place=in_place)


def other_space(buffer: Buffer) -> Buffer:
    buffer.storage = replace(buffer.storage, space="device:0")
    return buffer


def smaller(buffer: Buffer) -> Buffer:
    buffer.storage = Storage.of(tensor((5,), "i32"))
    return buffer


SWAPPED = [Buffer(BufferKind.SWAPPED, Storage.of(VECTOR), number) for number in range(3)]

BROKEN: dict[str, tuple[Callable[..., Sequence[Step]], str]] = {
    "input_written": (lambda x, y, t: [Copy(t[0], x[0])], "copy temporary0 -> input0: input0 must not be written"),
    "bytes": (lambda x, y, t: [Copy(x[0], smaller(y[0]))], "copy input0 -> output0: 24 bytes into 20"),
    "copy_between_spaces": (lambda x, y, t: [Copy(x[0], other_space(t[0]))], "several memory spaces: device:0, host"),
    "launch_between_spaces": (lambda x, y, t: [Launch(kernel(), (x[0],), (other_space(t[0]),))], "several memory spaces"),
    "no_such_input": (lambda x, y, t: [Copy(io(3)[0][2], y[0])], "there is no input2"),
    "not_the_programs": (lambda x, y, t: [Copy(io()[0][0], y[0])], "input0 is another one than the program's"),
    "no_such_cell": (lambda x, y, t: [PointCell(SWAPPED[2], t[0])], "there is no swapped2"),
    "in_place": (lambda x, y, t: [Copy(x[0], t[0]), Launch(kernel(), (t[0],), (t[0],))], "may not write temporary0"),
    "workspace": (lambda x, y, t: [Launch(kernel(workspace=64), (x[0],), (y[0],))], "needs 64 bytes of workspace"),
    "unwritten": (lambda x, y, t: [Copy(t[0], y[0])], "temporary0 is read before it is written"),
    "unwritten_in_one_case": (
        lambda x, y, t: [Branch(x[0], False, [[Copy(x[0], t[0])], []]), Copy(t[0], y[0])],
        "temporary0 is read before it is written",
    ),
    "cases": (lambda x, y, t: [Branch(x[0], True, [[]])], "branch if input0: 1 cases"),
    "host_reads": (lambda x, y, t: [Loop([], other_space(x[0]), [])], "the host reads input0, which lies in device:0"),
    "no_wait": (lambda x, y, t: [Transfer(x[0], y[0], 1)], "nobody waits for the event"),
    "no_event": (lambda x, y, t: [Wait(2)], "wait for event 2: nothing that began"),
    "wait_elsewhere": (
        lambda x, y, t: [Transfer(x[0], y[0], 1), Branch(x[0], False, [[Wait(1)], []])],
        "wait for event 1: nothing that began|nobody waits",
    ),
    "twice": (lambda x, y, t: [Transfer(x[0], y[0], 1), Wait(1), Transfer(x[0], y[0], 1), Wait(1)], "begins twice"),
    "source_written": (
        lambda x, y, t: [Copy(x[0], t[0]), Transfer(t[0], y[0], 1), Copy(x[0], t[0]), Wait(1)],
        "temporary0 is being read until event 1",
    ),
    "nobody": (lambda x, y, t: [Collective(CollectiveKind.BROADCAST, x[0], y[0], ((-1,),))], "nobody takes part"),
    "two_groups": (lambda x, y, t: [Collective(CollectiveKind.BROADCAST, x[0], y[0], ((0, 1), (1, 2)))], "in two groups"),
    "pairs": (lambda x, y, t: [Collective(CollectiveKind.PERMUTE, x[0], y[0], ((0, 1), (2, 1)))], "different targets"),
    "gathered": (lambda x, y, t: [Collective(CollectiveKind.ALL_GATHER, x[0], y[0], ((0, 1),))], "48 bytes into 24"),
    "body_read": (
        lambda x, y, t: [Begin(1, [Copy(x[0], t[0])]), Copy(t[0], y[0]), Wait(1)],
        "temporary0 is on its way until event 1",
    ),
    "body_disturbed": (
        lambda x, y, t: [Copy(x[0], t[0]), Begin(1, [Copy(t[0], y[0])]), Copy(x[0], t[0]), Wait(1)],
        "temporary0 is being read until event 1",
    ),
    "body_left_alone": (lambda x, y, t: [Begin(1, [Copy(x[0], y[0])])], "nobody waits for the event"),
    "body_of_bodies": (
        lambda x, y, t: [Begin(1, [Begin(2, [Copy(x[0], y[0])]), Wait(2)]), Wait(1)],
        "no step of a body that somebody else runs",
    ),
    "cells": (lambda x, y, t: [Swap(t[0], SWAPPED[0])], "temporary0 is no cell"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_record_that_makes_no_sense_is_refused(name: str) -> None:
    steps, message = BROKEN[name]
    program = record(steps)
    program.cells = 2
    with pytest.raises(ProgramError, match=message):
        check(program)


def test_memory_is_nobody_elses() -> None:
    program = record(lambda x, y, t: [Copy(x[0], t[0]), Copy(x[0], t[1]), Copy(t[0], y[0]), Copy(t[1], y[0])], 1, 2)
    check(program)
    program.temporaries[1].offset = program.temporaries[0].offset
    with pytest.raises(ProgramError, match="temporary0 and temporary1 live at the same time in the same memory"):
        check(program)
    program.temporaries[1].offset = 4096
    with pytest.raises(ProgramError, match="temporary1 lies outside the arena of 128 bytes"):
        check(program)
    program = record(lambda x, y, t: [Copy(x[0], t[0]), Copy(t[0], y[0])])
    program.temporaries[0].end = 1
    with pytest.raises(ProgramError, match="temporary0 lives from 1 to 2, not 1 to 1"):
        check(program)
    program.aliases = {0: 0}
    with pytest.raises(ProgramError, match="output0 cannot be the memory of input0"):
        check(program)


def test_sizes_of_arguments_are_evaluated_and_refused_by_the_host() -> None:
    type = tensor((-1, 2), "i32")
    storage = Storage.of(type, argument=0)
    x, y = Buffer(BufferKind.INPUT, storage), Buffer(BufferKind.OUTPUT, storage)
    t = Buffer(BufferKind.TEMPORARY, storage)
    program = Program("main", [Copy(x, t), Copy(t, y)], [x], [y], [], [])
    assign_buffers(program)
    check(program)
    assert storage.nbytes == multiply(extent(0, 0), 8)
    for rows in (1, 30):
        array = np.arange(2 * rows, dtype="i4").reshape(rows, 2)
        np.testing.assert_array_equal(run(program, [array], no_launch)[0], array)
    with pytest.raises(UnsupportedError, match=r"input0.shape\[0\].* is known only when the program is called"):
        emit_host(program, "main")
    with pytest.raises(ProgramError, match=r"the arena takes \(.*input0.shape\[0\].*\) bytes"):
        assert program.arena_bytes


# ---------------------------------------------------------------------------------------------------------------- text


def test_text_shows_every_kind_of_step() -> None:
    def steps(x: list[Buffer], y: list[Buffer], t: list[Buffer]) -> list[Step]:
        return [
            Copy(x[0], t[0]),
            PointCell(SWAPPED[0], t[0]),
            PointCell(SWAPPED[1], t[1]),
            Loop(
                [Launch(kernel(workspace=64), (SWAPPED[0],), (t[2],), t[3], "stablehlo.compare")],
                t[2],
                [Swap(SWAPPED[0], SWAPPED[1]), Branch(t[2], True, [[Copy(x[0], SWAPPED[1])], []])],
            ),
            Transfer(SWAPPED[0], y[0], 4),
            Wait(4),
            Collective(CollectiveKind.ALL_TO_ALL, x[0], y[0], ((0, 1),)),
        ]

    program = record(steps, temporaries=4)
    program.cells = 2
    check(program)
    lines = text(program).splitlines()
    assert lines[:2] == ["program main", "  input0     6xi32"]
    assert str(program).splitlines() == lines
    assert lines[lines.index("") + 1 :] == [
        "  copy input0 -> temporary0",
        "  point swapped0 -> temporary0",
        "  point swapped1 -> temporary1",
        "  loop",
        "    launch kernel stablehlo.compare (swapped0) -> (temporary2), workspace temporary3",
        "  while temporary2",
        "    swap swapped0, swapped1",
        "    branch if temporary2",
        "    case 0",
        "      copy input0 -> swapped1",
        "    case 1",
        "  transfer swapped0 (host) -> output0 (host), event 4",
        "  wait for event 4",
        "  all_to_all input0 -> output0 among ((0, 1),)",
    ]


def test_the_steps_of_deep_programs_are_cut_into_functions() -> None:
    depth = 200
    program = record(lambda x, y, t: [])
    steps = program.steps
    for _ in range(depth):
        case: list[Step] = []
        steps.append(Branch(program.inputs[0], False, [case, [Copy(program.inputs[0], program.outputs[0])]]))
        steps = case
    steps.append(Copy(program.inputs[0], program.outputs[0]))
    np.testing.assert_array_equal(native(program)(X * 0), X * 0)
    assert emit_host(program, "main").count("define ") > depth // 10
