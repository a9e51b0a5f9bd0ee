"""Devices in Python alone: machines that compute one instruction at a time, in layouts of their own."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import (
    DECOMPOSE,
    ROW_MAJOR,
    YES,
    Capability,
    CompositePattern,
    Device,
    Held,
    InterpretedBackend,
    Kernel,
    Layout,
    Layouts,
    Machine,
    MachineKernel,
    OpPattern,
    assign_layouts,
    can_decompose,
    hookimpl,
    no,
    registry,
)
from hlojit.extensions.machines.interpreted_run import Box, Run
from hlojit.extensions.machines.interpreted_schedule import Schedule, schedule
from hlojit.ir import Instruction, TensorType, evaluate_instruction
from hlojit.ir.errors import PluginWarning

from ..random_programs import RandomProgram, random_arguments
from .test_constructs import LOOP, W
from .test_placement import COMPOSITE, SORTED, X, Y

Register = Callable[..., None]
TILES = Layout((1, 0), tile=(16, 16))
NDArray = np.ndarray[Any, Any]


class CountingMachine(Machine):
    """Memory by number; everything is counted, and what was freed is gone."""

    def __init__(self) -> None:
        self.memory: dict[int, NDArray] = {}
        self.numbers = itertools.count()
        self.puts = self.gets = self.conversions = self.relabels = 0
        self.evaluated: list[str] = []
        self.time = 0.0

    def put(self, array: NDArray, type: TensorType, layout: Layout) -> int:
        self.puts += 1
        return self.store(layout.pack(array))

    def store(self, packed: NDArray) -> int:
        number = next(self.numbers)
        self.memory[number] = packed.copy()
        return number

    def get(self, memory: int, type: TensorType, layout: Layout) -> NDArray:
        self.gets += 1
        return layout.unpack(self.memory[memory], type.shape).copy()

    def free(self, memory: int) -> None:
        del self.memory[memory]

    def convert(self, held: Held, layout: Layout) -> int:
        self.conversions += 1
        return super().convert(held, layout)

    def relabelled(self, held: Held, type: TensorType, layout: Layout) -> int:
        self.relabels += 1
        return self.store(self.memory[held.memory])

    def evaluate(self, instruction: Instruction, operands: Sequence[Held], layouts: Sequence[Layout]) -> list[int]:
        self.evaluated.append(instruction.name.partition(".")[2])
        self.time += 1000.0
        return self.by_reference(instruction, operands, layouts)

    def nanoseconds(self) -> float:
        return self.time


class Nova(InterpretedBackend):
    """Products of 16x16 tiles, column-major."""

    name = "nova"

    def __init__(self, count: int = 1):
        self.made = [CountingMachine() for _ in range(count)]

    def machines(self) -> Sequence[Machine]:
        return self.made

    def capability(self, instruction: Instruction) -> Capability:
        return DECOMPOSE if can_decompose(instruction) else YES

    def preferred_layouts(self, instruction: Instruction) -> Layouts | None:
        if instruction.name != "stablehlo.dot_general" or any(each.rank != 2 for each in instruction.operand_types):
            return None
        return Layouts((TILES, TILES), (TILES,))


@pytest.fixture
def nova(registered: Register) -> Nova:
    """A registered device."""
    made = Nova(2)
    registered(made)
    return made


def same(found: Any, right: Any) -> None:
    for one, other in zip(found, right, strict=True):
        np.testing.assert_array_equal(hlojit.get(one), other)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int, nova: Nova) -> None:
    text, kinds = RandomProgram(random.Random(seed), statements=18).build()
    arguments = random_arguments(kinds, seed)
    right = hlojit.compile(text, backend="reference")(*arguments)
    executable = hlojit.compile(text, backend="nova")
    found = executable(*[hlojit.put(each, "nova") for each in arguments])
    as_tuple = [each if isinstance(each, tuple) else (each,) for each in (found, right)]
    same(*as_tuple)


def test_loops_and_branches_run_on_the_machine(nova: Nova) -> None:
    for trips in (0, 1, 5):
        text = LOOP.replace("OP", "sine")
        executable = hlojit.compile(text, backend="nova")
        arguments = (np.int32(trips), X[:16], W)
        same(executable(*arguments), hlojit.compile(text, backend="reference")(*arguments))


def test_memory_is_given_back(nova: Nova) -> None:
    executable = hlojit.compile(SORTED, backend="nova")
    machine = nova.made[0]
    x, y = hlojit.put(X, "nova"), hlojit.put(Y, "nova")
    most = 0
    evaluate = machine.evaluate

    def watching(*given: Any) -> Any:
        nonlocal most
        made = evaluate(*given)
        most = max(most, len(machine.memory))
        return made

    machine.evaluate = watching  # type: ignore[method-assign]
    result = executable(x, y)
    # Both arguments, and beside what is made what it is made of.
    assert most == 4 and len(machine.memory) == 3
    del x, y, result
    assert machine.memory == {}


def test_constants_are_put_once(nova: Nova) -> None:
    text = """
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %c = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
      %0 = stablehlo.add %x, %c : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    """
    executable = hlojit.compile(text, backend="nova")
    x = hlojit.put(X[:4], "nova")
    machine = nova.made[0]
    first = machine.puts
    executable(x)
    after = machine.puts
    executable(x)
    assert (after - first, machine.puts - after) == (2, 1)


def test_programs_wait_for_nobody(nova: Nova) -> None:
    gate = threading.Event()
    machine = nova.made[0]
    evaluate = machine.evaluate
    machine.evaluate = lambda *given: gate.wait(20) and evaluate(*given)  # type: ignore[method-assign, return-value]
    executable = hlojit.compile(SORTED, backend="nova")
    pending = executable.execute(X, Y)
    assert not pending.is_ready
    gate.set()
    np.testing.assert_array_equal(hlojit.get(pending), hlojit.compile(SORTED, backend="reference")(X, Y))


def test_a_machines_own_clock(nova: Nova) -> None:
    pending = hlojit.compile(SORTED, backend="nova").execute(X, Y)
    pending.wait()
    assert pending.buffer.ready.nanoseconds == 5000.0
    split = hlojit.compile(SORTED, backend=["nova"])
    split(X, Y)
    assert [each.measured for each in split.placement().segments] == [5000.0]


def test_what_a_machine_raises_names_the_place(nova: Nova) -> None:
    def fail(*given: Any) -> Any:
        raise ValueError("overheated")

    nova.made[0].evaluate = fail  # type: ignore[method-assign]
    message = r"main on nova:0: stablehlo.add at <string>:3:3: CountingMachine raised ValueError\('overheated'\)"
    with pytest.raises(hlojit.ExecutionError, match=message):
        hlojit.compile(SORTED, backend="nova")(X, Y)
    nova.made[0].evaluate = lambda *given: 3  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(hlojit.HlojitError, match="CountingMachine.evaluate returned 3, not a list of 1 memory"):
        hlojit.compile(SORTED, backend="nova")(X, Y)


def test_a_machine_that_computes_in_place_is_named(nova: Nova) -> None:
    """Others may still read the operand: its numbers had changed, without an error."""
    machine = nova.made[0]

    def in_place(instruction: Instruction, operands: Sequence[Held], layouts: Sequence[Layout]) -> list[Any]:
        machine.memory[operands[0].memory][:] += 1
        return [operands[0].memory]

    machine.evaluate = in_place  # type: ignore[method-assign]
    message = r"stablehlo.add at <string>:3:3: CountingMachine returned the memory of operand 0 as result 0; it returns new memory"
    with pytest.raises(hlojit.HlojitError, match=message):
        hlojit.compile(SORTED, backend="nova")(X, Y)


class Plain(Machine):
    """Memory is NumPy's, and tensors say whose they are."""

    def put(self, array: NDArray, type: TensorType, layout: Layout) -> NDArray:
        return np.array(layout.pack(array))

    def get(self, memory: NDArray, type: TensorType, layout: Layout) -> NDArray:
        return layout.unpack(memory, type.shape).copy()

    def evaluate(self, instruction: Instruction, operands: Sequence[Held], layouts: Sequence[Layout]) -> list[NDArray]:
        return [operands[0].memory + operands[1].memory]


def test_a_view_of_an_operand_is_named() -> None:
    class InPlace(Plain):
        def evaluate(
            self, instruction: Instruction, operands: Sequence[Held], layouts: Sequence[Layout]
        ) -> list[NDArray]:
            operands[1].memory[...] += operands[0].memory
            return [operands[1].memory[:]]

    message = "InPlace returned the memory of operand 1 as result 0"
    with pytest.raises(hlojit.HlojitError, match=message):
        _run_on(InPlace(), ADDED)


ADDED = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %c = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %0 = stablehlo.add %x, %c : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""


def _run_on(machine: Machine, text: str, code: Schedule | None = None) -> NDArray:
    code = code or schedule(hlojit.parse(text), Nova())
    x = np.ones(2, np.float32)
    type_ = TensorType((2,), hlojit.parse(text).main.body.arguments[0].tensor_type.element_type)
    argument = Box(Held(machine, machine.put(x, type_, ROW_MAJOR), type_, ROW_MAJOR))
    (result,) = Run(machine, code).of([argument])
    return result.read()


@pytest.mark.parametrize("is_hashable", [True, False])
def test_equal_machines_have_memories_of_their_own(is_hashable: bool) -> None:
    @dataclass(eq=True, frozen=is_hashable)
    class Equal(Plain):
        def put(self, array: NDArray, type: TensorType, layout: Layout) -> Any:
            return self, super().put(array, type, layout)

        def get(self, memory: Any, type: TensorType, layout: Layout) -> NDArray:
            return super().get(memory[1], type, layout)

        def evaluate(self, instruction: Instruction, operands: Sequence[Held], layouts: Sequence[Layout]) -> list[Any]:
            assert all(each.memory[0] is self for each in operands), "another machine's memory"
            return [(self, operands[0].memory[1] + operands[1].memory[1])]

    first, second = Equal(), Equal()
    assert first == second
    code = schedule(hlojit.parse(ADDED), Nova())
    for machine in (first, second):
        np.testing.assert_array_equal(_run_on(machine, ADDED, code), [2.0, 3.0])


def test_machines_are_made_once_by_many_threads() -> None:
    began, calls = threading.Barrier(4, timeout=20), list[Sequence[Machine]]()

    class Slow(Nova):
        def machines(self) -> Sequence[Machine]:
            calls.append(self.made)
            time.sleep(0.1)
            return self.made

    slow, found = Slow(), list[Sequence[Device]]()

    def ask() -> None:
        began.wait()
        found.append(slow.devices())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    assert len(calls) == 1
    assert len(found) == 4 and len({id(each) for each in found}) == 1


def test_what_free_raises_is_told_at_its_own_line() -> None:
    class Leaky(Plain):
        def free(self, memory: NDArray) -> None:
            raise ValueError("no such memory")

    with pytest.warns(PluginWarning, match="Leaky.free raised ValueError") as warned:
        _run_on(Leaky(), ADDED)
    code = Leaky.free.__code__
    assert (warned[0].filename, warned[0].lineno) == (code.co_filename, code.co_firstlineno)


def test_kernels_for_some_groups(nova: Nova) -> None:
    def negated(machine: Any, x: Held) -> list[int]:
        machine.evaluated.append("by kernel")
        return [machine.store(-machine.memory[x.memory])]

    class Kernels:
        hlojit_api = (1, 2)

        @hookimpl
        def hlojit_kernels(self) -> list[Kernel]:
            return [
                Kernel(
                    "nova.negate",
                    backend="nova",
                    pattern=OpPattern("stablehlo.negate"),
                    build=lambda group: MachineKernel(negated),
                )
            ]

    text = "func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> { %0 = stablehlo.negate %x : tensor<64xf32>\n%1 = stablehlo.sine %0 : tensor<64xf32>\nreturn %1 : tensor<64xf32> }"
    with registry().using(Kernels()):
        executable = hlojit.compile(text, backend="nova")
        np.testing.assert_array_equal(executable(X), hlojit.compile(text, backend="reference")(X))
    assert nova.made[0].evaluated == ["by kernel", "sine"]


def test_a_kernel_makes_a_device_take_what_it_could_not(registered: Register) -> None:
    """A composite, and an op: both go to the device that has a kernel for them, whole."""

    class Picky(Nova):
        name = "picky"

        def capability(self, instruction: Instruction) -> Capability:
            if can_decompose(instruction) or instruction.op.callees:
                return DECOMPOSE
            return no("by kernel only") if instruction.name in ("stablehlo.add", "stablehlo.sine") else YES

    def doubled(machine: Any, x: Held) -> list[int]:
        return [machine.store(2 * machine.memory[x.memory])]

    def sine(machine: Any, x: Held) -> list[int]:
        return [machine.store(np.sin(machine.memory[x.memory]))]

    class Kernels:
        hlojit_api = (1, 2)

        @hookimpl
        def hlojit_kernels(self) -> list[Kernel]:
            return [
                Kernel(
                    "double",
                    backend="picky",
                    pattern=CompositePattern("acme.twice"),
                    build=lambda group: MachineKernel(doubled),
                ),
                Kernel(
                    "sine",
                    backend="picky",
                    pattern=OpPattern("stablehlo.sine"),
                    build=lambda group: MachineKernel(sine),
                ),
            ]

    text = COMPOSITE.replace(
        "  return %0 : tensor<8xf32>\n}\nfunc",
        "  %1 = stablehlo.sine %0 : tensor<8xf32>\n  return %1 : tensor<8xf32>\n}\nfunc",
    )
    registered(Picky())
    x = X[:8]
    right = hlojit.compile(text, backend="reference")(x)
    without = hlojit.compile(text, backend=["picky", "cpu"])
    assert without.placement().devices == {"cpu:0": 2}
    with registry().using(Kernels()):
        executable = hlojit.compile(text, backend=["picky", "cpu"])
        assert executable.placement().devices == {"picky:0": 2}
        np.testing.assert_allclose(executable(x), right, rtol=1e-6)


# ------------------------------------------------------------------------------------------------------ layouts


@pytest.mark.parametrize("shape", [(5,), (3, 4), (17, 33), (2, 20, 7), (0, 3), ()])
def test_layouts_pack_and_unpack(shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape)), dtype="i4").reshape(shape)
    for order in itertools.permutations(range(len(shape))):
        for tile in ((), (4,), (16, 16)):
            if len(tile) > len(shape):
                continue
            layout = Layout(order, tile)
            np.testing.assert_array_equal(layout.unpack(layout.pack(array), shape), array)
            for permutation in itertools.permutations(range(len(shape))):
                turned = array.transpose(permutation)
                np.testing.assert_array_equal(
                    layout.transposed(permutation).unpack(layout.pack(array), turned.shape), turned
                )


def test_layouts_in_memory() -> None:
    array = np.arange(6).reshape(2, 3)
    assert Layout((1, 0)).pack(array).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert Layout((0, 1), (2, 2)).pack(array).tolist() == [[[[0, 1], [3, 4]], [[2, 0], [5, 0]]]]
    assert Layout((0, 1)) == ROW_MAJOR and Layout((0, 1), (2, 2)) != ROW_MAJOR
    assert [Layout((0, 1), (2, 2)).is_padded(each) for each in ((2, 4), (2, 3))] == [False, True]
    with pytest.raises(hlojit.PluginError, match="order holds each dimension once"):
        Layout((0, 0))


PRODUCTS = """
func.func @main(%x: tensor<32x48xf32>, %w: tensor<64x48xf32>, %v: tensor<64x16xf32>) -> tensor<32x16xf32> {
  %t = stablehlo.transpose %w, dims = [1, 0] : (tensor<64x48xf32>) -> tensor<48x64xf32>
  %0 = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0] : (tensor<32x48xf32>, tensor<48x64xf32>) -> tensor<32x64xf32>
  %1 = stablehlo.tanh %0 : tensor<32x64xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0] : (tensor<32x64xf32>, tensor<64x16xf32>) -> tensor<32x16xf32>
  return %2 : tensor<32x16xf32>
}
"""


def test_values_stay_in_tiles_between_products(nova: Nova) -> None:
    """Arguments are brought into tiles once, also for the calls that come; the transpose moves nothing; results go out."""
    source = np.random.default_rng(0)
    x, w, v = (source.integers(-3, 4, shape).astype("f4") for shape in ((32, 48), (64, 48), (64, 16)))
    text = PRODUCTS.replace(
        "%0 = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0]",
        "%0 = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0]",
    )
    executable = hlojit.compile(text, backend="nova", options={"disable_passes": ("algebraic-simplifier",)})
    machine = nova.made[0]
    on_device = [hlojit.put(each, "nova") for each in (x, w, v)]
    right = hlojit.compile(PRODUCTS, backend="reference")(x, w, v)
    for call in range(3):
        np.testing.assert_array_equal(hlojit.get(executable(*on_device)), right)
        assert machine.conversions == 3, f"call {call}"
    assert machine.relabels == 3
    np.testing.assert_array_equal(executable(x, w, v), right)


def test_what_is_left_to_convert(nova: Nova) -> None:
    """A product between sums of rows: what no tile is wanted for is row-major."""
    text = """
    func.func @main(%x: tensor<16x16xf32>) -> (tensor<16x16xf32>, tensor<16xf32>) {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
      %1 = stablehlo.abs %0 : tensor<16x16xf32>
      %2 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<16x16xf32>, tensor<f32>) -> tensor<16xf32>
      %3 = stablehlo.dot_general %1, %1, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
      return %3, %2 : tensor<16x16xf32>, tensor<16xf32>
    }
    """
    module = hlojit.parse(text)
    plan = assign_layouts(module, nova)
    (converted,) = plan.conversions
    assert converted[0].producer.name == "stablehlo.abs" and converted[1] == ROW_MAJOR
    assert str(plan.made[module.main.body.arguments[0]]) == "order 1x0, tiles of 16x16"


@pytest.mark.parametrize("rows", [16, 17])
def test_padding_is_never_computed_with(nova: Nova, rows: int) -> None:
    """cosine(0) is 1: the product behind it must not find it in the padding."""
    text = f"""
    func.func @main(%x: tensor<{rows}x{rows}xf32>) -> tensor<{rows}x{rows}xf32> {{
      %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<{rows}x{rows}xf32>, tensor<{rows}x{rows}xf32>) -> tensor<{rows}x{rows}xf32>
      %1 = stablehlo.cosine %0 : tensor<{rows}x{rows}xf32>
      %2 = stablehlo.dot_general %1, %0, contracting_dims = [1] x [0] : (tensor<{rows}x{rows}xf32>, tensor<{rows}x{rows}xf32>) -> tensor<{rows}x{rows}xf32>
      return %2 : tensor<{rows}x{rows}xf32>
    }}
    """
    plan = assign_layouts(hlojit.parse(text), nova)
    assert bool(plan.conversions) == (rows == 17)
    x = np.random.default_rng(0).integers(-3, 4, (rows, rows)).astype("f4")
    np.testing.assert_array_equal(hlojit.compile(text, backend="nova")(x), hlojit.compile(text, backend="reference")(x))


def test_wishes_are_checked(registered: Register) -> None:
    class Wrong(Nova):
        name = "wrong"

        def preferred_layouts(self, instruction: Instruction) -> Any:
            return Layouts((TILES,), (TILES,)) if instruction.name == "stablehlo.add" else None

    registered(Wrong())
    with pytest.raises(
        hlojit.PluginError, match="preferred_layouts returned .* for stablehlo.add, which has 2 operands and 1 results"
    ):
        hlojit.compile(SORTED, backend="wrong")


# ------------------------------------------------------------------------------------------- one instruction alone


def test_one_instruction_is_evaluated() -> None:
    module = hlojit.parse(SORTED)
    first, _, sort, *_ = module.main.body
    (total,) = evaluate_instruction(first, [X, Y])
    np.testing.assert_array_equal(total, X + Y)
    (found,) = evaluate_instruction(sort, [Y])
    np.testing.assert_array_equal(found, np.sort(Y))
    with pytest.raises(hlojit.ArgumentError, match="stablehlo.add at <string>:3:3 has 2 operands, found 1"):
        evaluate_instruction(first, [X])
    with pytest.raises(hlojit.ArgumentError, match="operand 1 of stablehlo.add"):
        evaluate_instruction(first, [X, Y[:3]])


def test_a_region_that_reads_from_outside() -> None:
    text = """
    func.func @main(%x: tensor<4xf32>, %s: tensor<f32>) -> tensor<f32> {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = "stablehlo.reduce"(%x, %z) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %m = stablehlo.multiply %b, %s : tensor<f32>
          %r = stablehlo.add %a, %m : tensor<f32>
          stablehlo.return %r : tensor<f32>
      }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }
    """
    module = hlojit.parse(text)
    _, reduce, _ = module.main.body
    x, scale = np.arange(4, dtype="f4"), module.main.body.arguments[1]
    (found,) = evaluate_instruction(reduce, [x, np.float32(0)], captured={scale: np.float32(2)})
    assert found == hlojit.compile(text, backend="reference")(x, np.float32(2))


def test_an_instruction_is_copied() -> None:
    module = hlojit.parse(SORTED)
    first, *_ = module.main.body
    mapping = {module.main.body.arguments[1]: module.main.body.arguments[0]}
    copy = first.clone(mapping)
    assert copy.block is None and copy.operands == (module.main.body.arguments[0],) * 2
    assert mapping[first.result] is copy.result
    copy.operands = ()


def test_what_it_refuses_is_said(registered: Register) -> None:
    class NoSort(Nova):
        name = "unsorted"

        def capability(self, instruction: Instruction) -> Capability:
            return no("no sorter") if instruction.name == "stablehlo.sort" else super().capability(instruction)

    registered(NoSort())
    with pytest.raises(hlojit.UnsupportedError, match="no sorter"):
        hlojit.compile(SORTED, backend="unsorted")
    rows = hlojit.compile(SORTED, backend=["unsorted", "cpu"]).placement().rows
    assert {row.device for row in rows if row.instruction.startswith("stablehlo.sort")} == {"cpu:0"}
