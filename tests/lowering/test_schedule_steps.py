"""The steps of scheduling one by one: order, aliases, copies, buffers; kernels are made up, nothing is compiled."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.compiler import lower
from hlojit.extensions import CompileOptions, registry
from hlojit.ir.graph import Block, Function, Instruction, Value
from hlojit.ir.ops.definition import op
from hlojit.ir.types import tensor
from hlojit.lowering.alias_analysis import AliasAnalysis
from hlojit.lowering.copy_insertion import CopyInsertion, Placement, parallel_copies
from hlojit.lowering.instruction_order import InstructionOrder, visit
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.program import Buffer, BufferKind, Copy, Launch, Loop, PointCell, Program, Swap
from hlojit.lowering.program_check import check
from hlojit.lowering.program_interpreter import run
from hlojit.lowering.program_text import text
from hlojit.lowering.schedule import build_program
from hlojit.lowering.storage import Storage
from hypothesis import given, settings
from hypothesis import strategies as st

from ..random_programs import RandomProgram, random_arguments

T = "tensor<300xf32>"
UPDATES = ("stablehlo.dynamic_update_slice", "stablehlo.scatter")
IN_PLACE = ("stablehlo.add", "stablehlo.negate", "stablehlo.tanh")


class MadeUpKernels:
    """Elementwise ops may write over every operand, updates must write over the first; everything else may not."""

    def kernel(self, instruction: Instruction) -> KernelCode:
        name = instruction.op.name
        pairs = [(number, 0) for number in range(len(instruction.operands))] if name in IN_PLACE else []
        pairs = [(0, 0)] if name in UPDATES else pairs
        workspace = 128 if name == "stablehlo.sort" else 0
        return KernelCode("", (Phase(name, 1, 1.0),), workspace, in_place=tuple(pairs), updates=name in UPDATES)


def function_of(body: str, signature: str = f"(%x: {T}, %i: tensor<i32>) -> {T}") -> Function:
    return hlojit.parse(f"func.func public @main{signature} {{\n{body}\n}}").main


def values_of(function: Function) -> dict[str, Value]:
    """Every value by its name in the text."""
    found = {argument.name_hint: argument for argument in function.body.arguments}
    for instruction in function.body.walk():
        found.update((result.name_hint, result) for result in instruction.results)
        for region in instruction.regions:
            found.update((argument.name_hint, argument) for argument in region.arguments)
    return {str(name).lstrip("%"): value for name, value in found.items()}


def analysis_of(function: Function) -> AliasAnalysis:
    return AliasAnalysis(function.body, InstructionOrder(function.body), MadeUpKernels())


def placement_of(function: Function, **donated: Any) -> Placement:
    return CopyInsertion(function, analysis_of(function), donated.get("donated", {})).run()


def steps_of(program: Program) -> list[str]:
    """The step lines of the program's text."""
    return [line.strip() for line in text(program).partition("\n\n")[2].splitlines()]


def scheduled(function: Function, donated: dict[int, int | None] | None = None) -> Program:
    program = build_program(function, MadeUpKernels(), donated)
    check(program)
    return program


LOOP = f"""
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:3 = stablehlo.while(%a = %START, %kept = %KEPT, %n = %zero) : {T}, {T}, tensor<i32>
  cond {{
    %c = stablehlo.compare LT, %n, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    BODY
    %one = stablehlo.constant dense<1> : tensor<i32>
    %m = stablehlo.add %n, %one : tensor<i32>
    stablehlo.return %b, %kept, %m : {T}, {T}, tensor<i32>
  }}"""


def loop(body: str, start: str = "x", kept: str = "x") -> str:
    return LOOP.replace("BODY", body).replace("START", start).replace("KEPT", kept)


# --------------------------------------------------------------------------------------------------------------- order


def test_constructs_span_the_positions_of_what_they_hold() -> None:
    function = function_of(loop(f"%b = stablehlo.negate %a : {T}") + f"\nreturn %r#0 : {T}")
    order = InstructionOrder(function.body)
    by_name = {instruction.op.name: instruction for instruction, entered in visit(function.body) if entered}
    outer = by_name["stablehlo.while"]
    inner = [instruction for region in outer.regions for instruction in region]
    assert all(order.begin[outer] < order.begin[each] == order.end[each] < order.end[outer] for each in inner)
    positions = [order.begin[each] for each in inner]
    assert positions == sorted(positions) and len(set(positions)) == len(positions)
    assert order.begin[by_name["func.return"]] == order.end[outer] + 1


def nested_branches(depth: int) -> Function:
    """As many ifs within one another; made by hand, since nothing here may recurse."""
    truth, number = tensor((), "i1"), tensor((300,), "f32")
    function = Function("main", [truth, number], [number])
    condition, x = function.body.arguments

    def returned(block: Block, value: Value, name: str = "stablehlo.return") -> None:
        block.append(Instruction(op(name), [value], [], {}))

    inner = Block([])
    returned(inner, inner.append(Instruction(op("stablehlo.negate"), [x], [number], {})).result)
    for level in reversed(range(depth)):
        other, outer = Block([]), Block([]) if level else function.body
        returned(other, x)
        chosen = outer.append(Instruction(op("stablehlo.if"), [condition], [number], {}, [inner, other]))
        returned(outer, chosen.result, "stablehlo.return" if level else "func.return")
        inner = outer
    return function


def test_depth_is_not_recursion() -> None:
    program = scheduled(nested_branches(1500))
    assert len([step for step in program.walk() if isinstance(step, Launch)]) == 1
    assert text(program).count("branch if") == 1500


# ------------------------------------------------------------------------------------------------------------- aliases


def test_what_is_one_memory_has_one_root() -> None:
    function = function_of(
        loop(f"%b = stablehlo.negate %a : {T}", kept="y").replace("%zero =", f"""
          %s = stablehlo.negate %x : {T}
          %t = stablehlo.reshape %s : ({T}) -> tensor<3x100xf32>
          %y = stablehlo.optimization_barrier %s : {T}
          %zero =""", 1) + f"\nreturn %r#1 : {T}"
    )  # fmt: skip
    aliases, values = analysis_of(function), values_of(function)
    source = values["s"]
    while_ = next(each for each in function.body if each.op.name == "stablehlo.while")
    for other in (values["t"], values["y"], values["kept"], while_.results[1], while_.regions[0].arguments[1]):
        assert aliases.root(other) is source
    assert aliases.root(while_.results[0]) is not source
    # What the loop hands on is read until the program returns it.
    assert aliases.last_use(source) == aliases.order.begin[function.body.terminator]
    assert source in aliases.captured


def test_last_use_in_a_loop_is_the_end_of_the_loop() -> None:
    function = function_of(
        f"%s = stablehlo.negate %x : {T}" + loop(f"%b = stablehlo.add %a, %s : {T}") + f"\nreturn %r#0 : {T}"
    )
    aliases, values = analysis_of(function), values_of(function)
    while_ = next(each for each in function.body if each.op.name == "stablehlo.while")
    assert aliases.last_use(values["s"]) == aliases.order.end[while_]
    inside = values["b"].producer
    assert inside is not None and not aliases.dies_at(values["s"], inside)


@pytest.mark.parametrize(
    ("body", "may"),
    [
        ("%b = stablehlo.negate %a : T", True),
        ("%b = stablehlo.add %a, %a : T", True),
        ("%b = stablehlo.reverse %a, dims = [0] : T", False),
        ("%c1 = stablehlo.reverse %a, dims = [0] : T\n%b = stablehlo.negate %c1 : T", True),
        ("%c1 = stablehlo.negate %x : T\n%b = stablehlo.negate %c1 : T\n%d = stablehlo.tanh %a : T", False),
        ("%b = stablehlo.optimization_barrier %a : T", False),
    ],
)
def test_a_state_may_be_written_over_after_its_last_use(body: str, may: bool) -> None:
    function = function_of(loop(body.replace(": T", f": {T}")) + f"\nreturn %r#0 : {T}")
    region = next(each for each in function.body if each.op.name == "stablehlo.while").regions[1]
    assert analysis_of(function).may_write_over(region.arguments[0], region.returned[0], region) is may


# -------------------------------------------------------------------------------------------------------------- copies


def update(name: str, operand: str) -> str:
    return (
        f"%{name} = stablehlo.dynamic_update_slice %{operand}, %part, %i : ({T}, tensor<4xf32>, tensor<i32>) -> {T}\n"
    )


PART = "%part = stablehlo.constant dense<1.0> : tensor<4xf32>\n"


def test_an_argument_is_copied_before_it_is_updated() -> None:
    function = function_of(PART + update("u", "x") + f"return %u : {T}")
    assert steps_of(scheduled(function)) == [
        "copy input0 -> output0",
        "launch stablehlo.dynamic_update_slice stablehlo.dynamic_update_slice (output0, constant0, input1) -> (output0)",
    ]


def test_a_dead_value_is_updated_where_it_lies_and_one_that_is_read_again_is_copied() -> None:
    function = function_of(
        PART + f"%s = stablehlo.reverse %x, dims = [0] : {T}\n" + update("u", "s") + f"return %u : {T}"
    )
    assert [step for step in scheduled(function).walk() if isinstance(step, Copy)] == []
    function = function_of(
        PART + f"%s = stablehlo.reverse %x, dims = [0] : {T}\n" + update("u", "s")
        + f"%v = stablehlo.add %u, %s : {T}\nreturn %v : {T}"
    )  # fmt: skip
    (copy,) = [step for step in scheduled(function).walk() if isinstance(step, Copy)]
    assert copy.source is not copy.target


def test_elementwise_results_lie_where_their_operands_did() -> None:
    function = function_of(f"""
      %s = stablehlo.reverse %x, dims = [0] : {T}
      %t = stablehlo.negate %s : {T}
      %u = stablehlo.tanh %t : {T}
      %v = stablehlo.reverse %u, dims = [0] : {T}
      return %v : {T}""")
    placement, values = placement_of(function), values_of(function)
    buffers = placement.buffers
    assert buffers[values["s"]] is buffers[values["t"]] is buffers[values["u"]]
    assert buffers[values["v"]].kind is BufferKind.OUTPUT


def test_large_states_that_cannot_be_written_over_are_swapped_and_small_ones_copied() -> None:
    for spelled, expected in ((T, 3), ("tensor<3xf32>", 0)):
        text = loop(f"%b = stablehlo.reverse %a, dims = [0] : {T}") + f"\nreturn %r#0 : {T}"
        function = function_of(text.replace(T, spelled), f"(%x: {spelled}, %i: tensor<i32>) -> {spelled}")
        exchanged = [step for step in scheduled(function).walk() if isinstance(step, (Swap, PointCell))]
        assert len(exchanged) == expected


def test_an_invariant_of_an_inner_loop_is_not_overwritten_by_the_next_state() -> None:
    """The inner loop hands %a on as %q#1, which is read after the outer loop's next state has been made."""
    text = f"""
    func.func public @main(%x: {T}, %i: tensor<i32>) -> ({T}, {T}) {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r:3 = stablehlo.while(%a = %x, %s = %x, %n = %zero) : {T}, {T}, tensor<i32>
      cond {{
        %c = stablehlo.compare LT, %n, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }} do {{
        %q:3 = stablehlo.while(%d = %s, %k = %a, %l = %zero) : {T}, {T}, tensor<i32>
        cond {{
          %f = stablehlo.compare LT, %l, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %f : tensor<i1>
        }} do {{
          %g = stablehlo.add %d, %k : {T}
          %h = stablehlo.add %l, %one : tensor<i32>
          stablehlo.return %g, %k, %h : {T}, {T}, tensor<i32>
        }}
        %iota = stablehlo.iota dim = 0 : {T}
        %b = stablehlo.reverse %iota, dims = [0] : {T}
        %sorted = "stablehlo.sort"(%b) ({{
          ^bb0(%u: tensor<f32>, %v: tensor<f32>):
            %w = stablehlo.compare GT, %u, %v : (tensor<f32>, tensor<f32>) -> tensor<i1>
            stablehlo.return %w : tensor<i1>
        }}) {{dimension = 0 : i64, is_stable = true}} : ({T}) -> {T}
        %e = stablehlo.subtract %q#0, %q#1 : {T}
        %m = stablehlo.add %n, %one : tensor<i32>
        stablehlo.return %sorted, %e, %m : {T}, {T}, tensor<i32>
      }}
      return %r#0, %r#1 : {T}, {T}
    }}"""
    x = np.linspace(-2, 3, 300, dtype="f4")
    executable = hlojit.compile(text, options={"disable_passes": ("while-loop-simplifier",)})
    from hlojit.ir import evaluate

    for ours, theirs in zip(executable(x, np.int32(3)), evaluate(hlojit.parse(text), x, np.int32(3)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=8))
def test_parallel_copies_do_all_moves_at_once(sources: list[int]) -> None:
    buffers = [Buffer(BufferKind.TEMPORARY, Storage.raw(8), number) for number in range(8)]
    contents: dict[Buffer, int] = {buffer: number for number, buffer in enumerate(buffers)}
    for copy in parallel_copies([(buffers[source], buffers[target]) for target, source in enumerate(sources)]):
        contents[copy.target] = contents[copy.source]
    assert [contents[buffer] for buffer in buffers] == [*sources, *range(len(sources), 8)]


# ---------------------------------------------------------------------------------------------------- lives and places


def copying(*pairs: tuple[Buffer, Buffer]) -> list[Any]:
    return [Copy(source, target) for source, target in pairs]


def temporaries(count: int) -> list[Buffer]:
    return [Buffer(BufferKind.TEMPORARY, Storage.raw(8), number) for number in range(count)]


def lives_of(steps: Sequence[Any]) -> dict[int, tuple[int, int]]:
    from hlojit.lowering.liveness import Liveness

    program = Program("main", list(steps), [X], [Y], [], [])
    return {each.index: (life.start, life.end) for each, life in Liveness(program).lives.items()
            if each.kind is BufferKind.TEMPORARY}  # fmt: skip


X, Y = Buffer(BufferKind.INPUT, Storage.raw(8)), Buffer(BufferKind.OUTPUT, Storage.raw(8))
FLAG = Buffer(BufferKind.TEMPORARY, Storage.raw(8), 9)


def test_a_straight_line_lives_from_write_to_read() -> None:
    a, b = temporaries(2)
    assert lives_of(copying((X, a), (a, b), (b, Y))) == {0: (1, 2), 1: (2, 3)}


def test_what_a_loop_reads_lives_until_its_end_and_what_it_makes_does_not() -> None:
    a, b, _ = temporaries(3)
    steps = [*copying((X, a)), Loop(copying((X, FLAG)), FLAG, copying((a, b), (b, Y))), *copying((a, Y))]
    # 1 copy, 2 loop, 3 condition, 4 and 5 body, 6 end, 7 copy
    assert lives_of(steps) == {0: (1, 7), 1: (4, 5), 9: (3, 3)}
    assert lives_of(steps[:-1])[0] == (1, 6)


def test_what_an_iteration_reads_before_it_writes_lives_through_the_loop() -> None:
    a, b, _ = temporaries(3)
    steps = [*copying((X, a)), Loop(copying((X, FLAG)), FLAG, copying((a, b), (b, a))), *copying((X, Y))]
    assert lives_of(steps)[0] == (1, 6)


def test_both_cells_live_while_one_is_used() -> None:
    a, b = temporaries(2)
    cells = [Buffer(BufferKind.SWAPPED, Storage.raw(8), number) for number in range(2)]
    steps = [*copying((X, a)), PointCell(cells[0], a), PointCell(cells[1], b),
             Loop(copying((X, FLAG)), FLAG, [*copying((cells[0], cells[1])), Swap(*cells)]),
             *copying((X, Y)), *copying((cells[0], Y))]  # fmt: skip
    assert lives_of(steps) == {0: (1, 10), 1: (3, 10), 9: (5, 5)}


def made_up_launch(limit: int) -> Any:
    """Results are a mixture of all operands' bytes; after ``limit`` launches every flag says no, so that loops end."""
    count = 0

    def launch(step: Launch, memories: list[np.ndarray[Any, Any]]) -> None:
        nonlocal count
        count += 1
        operands = [memory.copy() for memory in memories[: len(step.operands)]]
        mixed = sum(
            (int(memory.astype(np.uint64).sum()) * (7 * number + 3) for number, memory in enumerate(operands)), count
        )
        for number, memory in enumerate(memories[len(operands) :]):
            memory[...] = (np.arange(memory.size) * (mixed % 251) + mixed + number) % 256
            if memory.size == 1:
                memory[...] = mixed % 3 != 0 and count < limit

    return launch


@pytest.mark.parametrize("block", range(4))
def test_sharing_the_arena_changes_nothing(block: int) -> None:
    """Random programs with temporaries in the arena, and with memory of its own for each."""
    backend: Any = registry().load().backend("cpu")
    for seed in range(block * 25, block * 25 + 25):
        text, kinds = RandomProgram(random.Random(seed), statements=8 + seed % 20).build()
        program = backend.program(lower(hlojit.parse(text), backend, CompileOptions()).freeze())
        check(program)
        arguments = random_arguments(kinds, seed)
        shared = run(program, arguments, made_up_launch(200))
        apart = run(program, arguments, made_up_launch(200), has_arena=False)
        assert [array.tobytes() for array in shared] == [array.tobytes() for array in apart], text


def test_temporaries_are_numbered_by_their_first_use_and_workspace_is_one() -> None:
    function = function_of(f"""
      %s = stablehlo.reverse %x, dims = [0] : {T}
      %t = "stablehlo.sort"(%s) ({{
        ^bb0(%u: tensor<f32>, %v: tensor<f32>):
          %w = stablehlo.compare GT, %u, %v : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %w : tensor<i1>
      }}) {{dimension = 0 : i64, is_stable = true}} : ({T}) -> {T}
      return %t : {T}""")
    program = scheduled(function)
    assert [(each.index, each.nbytes, each.start, each.end) for each in program.temporaries] == [
        (0, 1200, 1, 2), (1, 128, 2, 2)]  # fmt: skip
    assert program.arena_bytes == 1216 + 128
    assert re.search(r"sort \(temporary0\) -> \(output0\), workspace temporary1", text(program))


def test_equal_constants_are_one() -> None:
    function = function_of(f"""
      %c = stablehlo.constant dense<2.0> : {T}
      %d = stablehlo.constant dense<2.0> : {T}
      %e = stablehlo.constant dense<-2.0> : {T}
      %s = stablehlo.reverse %c, dims = [0] : {T}
      %t = stablehlo.add %d, %s : {T}
      %u = stablehlo.add %t, %e : {T}
      return %u : {T}""")
    assert len(scheduled(function).constants) == 2
