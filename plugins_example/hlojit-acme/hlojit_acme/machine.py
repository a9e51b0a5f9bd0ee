"""The machine: what its units do with tensors in its memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from hlojit.extensions import Held, Instruction, Layout, Machine, Started, TensorType, Value
from hlojit.ir import evaluate_instruction
from numpy.typing import NDArray

from hlojit_acme.memory import Memory, Region, shape_in_memory
from hlojit_acme.products import TILE, is_tiled
from hlojit_acme.stream import Command, Stream, Unit

MEMORY = 1 << 26
LANES = 64
"""Elements that the vector unit does in a cycle."""
LATENCY = 1000
"""Cycles, each a nanosecond, until a transfer begins; then it moves ``DMA_BYTES`` in each."""
DMA_BYTES = 16

VECTOR: dict[str, Callable[..., NDArray[Any]]] = {
    "stablehlo.add": np.add,
    "stablehlo.subtract": np.subtract,
    "stablehlo.multiply": np.multiply,
    "stablehlo.divide": np.divide,
    "stablehlo.exponential": np.exp,
    "stablehlo.tanh": np.tanh,
    "stablehlo.negate": np.negative,
    "stablehlo.sqrt": np.sqrt,
}
"""What the vector unit does to f32 however it lies."""

ALSO_VECTOR = frozenset(
    f"stablehlo.{name}"
    for name in "reduce maximum minimum rsqrt power log select compare convert abs and or not".split()
)
MOVES = frozenset(
    f"stablehlo.{name}"
    for name in "pad slice reshape transpose broadcast_in_dim concatenate iota dynamic_slice reverse".split()
)
MOVED_BYTES = 64
"""Within the memory, in a cycle."""


def tensors(values: Sequence[Value]) -> list[TensorType]:
    """The types of values, tokens left out."""
    return [value.type for value in values if isinstance(value.type, TensorType)]


def vectorized(instruction: Instruction) -> bool:
    """Whether the vector unit has an instruction for it."""
    types = tensors([*instruction.operands, *instruction.results])
    return instruction.name in VECTOR and all(each.element_type.name == "f32" for each in types)


def cycles(instruction: Instruction) -> tuple[Unit, int]:
    """Who computes an instruction, and about how long; a product that is not in tiles yet, as if it were."""
    results = tensors(instruction.results)
    sizes = [each.size for each in (*tensors(instruction.operands), *results)]
    if instruction.name == "stablehlo.dot_general":
        return "matrix", prod(numbers_of_tiles(instruction))
    if vectorized(instruction) or instruction.name in ALSO_VECTOR:
        return "vector", -(-max(sizes) // LANES)
    if instruction.name in MOVES:
        return "dma", -(-max(each.nbytes for each in results) // MOVED_BYTES)
    return "scalar", sum(sizes)


def numbers_of_tiles(instruction: Instruction) -> tuple[int, int, int, int]:
    """Of a product: batches, and tiles of rows, of columns and of the dimension that is summed over."""
    numbers = instruction.attributes["dot_dimension_numbers"]
    left, right = (each.shape for each in tensors(instruction.operands))
    batches = prod(left[i] for i in numbers.lhs_batching)
    depth = prod(left[i] for i in numbers.lhs_contracting)
    rows = prod(left) // max(batches * depth, 1)
    columns = prod(right) // max(batches * depth, 1)
    return batches, -(-rows // TILE), -(-columns // TILE), -(-depth // TILE)


class AcmeMachine(Machine):
    """One Acme: 64 MiB, a unit for products of 16x16 tiles, a vector unit, a scalar core, and DMA to the host."""

    def __init__(self, number: int, memory: int = MEMORY) -> None:
        self.memory = Memory(memory)
        self.stream = Stream(f"acme:{number} commands")

    # memory

    def put(self, array: NDArray[Any], type: TensorType, layout: Layout) -> Started:
        """Bring an array to the machine; it has been read when this returns."""
        staged = np.array(layout.pack(array))
        region = self._allocate(type, layout)
        return Started([region], self._dma("put", staged.nbytes, (), (region,), lambda: self._write(region, staged)))

    def get(self, memory: Region, type: TensorType, layout: Layout) -> NDArray[Any]:
        """Bring it back; waits for the command that writes it."""
        arrived: list[NDArray[Any]] = []
        self._dma("get", memory.nbytes, (memory,), (), lambda: arrived.append(self.memory.view(memory).copy())).wait()
        return layout.unpack(arrived[0], type.shape)

    def empty(self, type: TensorType) -> Region:
        """Memory without contents."""
        region = self._allocate(type, Layout())
        region.written.complete()
        return region

    def free(self, memory: Region) -> None:
        """Give memory back.  Commands hold what they read, so nothing that waits in the stream reads it any more."""
        self.memory.release(memory)

    def convert(self, held: Held, layout: Layout) -> Started:
        """The same tensor in another layout, moved within the memory."""

        def moved(array: NDArray[Any]) -> list[NDArray[Any]]:
            return [layout.pack(held.layout.unpack(array, held.type.shape))]

        return self.launch("dma", "convert", held.memory.nbytes // MOVED_BYTES, [held], moved, [held.type], [layout])

    def relabelled(self, held: Held, type: TensorType, layout: Layout) -> Started:
        """The transpose of a tensor in another layout: the same bytes, which stay as long as either is there."""
        lent = held.memory
        shape = shape_in_memory(type, layout)
        return Started([Region(lent.address, lent.nbytes, lent.dtype, shape, lent.written, source=held)], lent.written)

    # instructions

    def evaluate(self, instruction: Instruction, operands: Sequence[Held], layouts: Sequence[Layout]) -> Started:
        """Enqueue what computes an instruction; the memory that is returned is written when the stream comes to it."""
        unit, count = cycles(instruction)
        if unit == "matrix" and not is_tiled(instruction):
            raise RuntimeError("the matrix unit multiplies whole 16x16 tiles: has the pass acme-tile been left out?")
        compute: Callable[..., Sequence[NDArray[Any]]]
        if unit == "matrix":
            compute = _multiply
        elif vectorized(instruction) and len({each.layout for each in operands} | set(layouts)) == 1:
            compute = _each_alone(VECTOR[instruction.name])
        else:
            compute = _by_meaning(instruction, operands, layouts)
        return self.launch(unit, instruction.name, count, operands, compute, instruction.result_types, layouts)

    def launch(
        self,
        unit: Unit,
        what: str,
        count: int,
        operands: Sequence[Held],
        compute: Callable[..., Sequence[NDArray[Any]]],
        types: Sequence[Any],
        layouts: Sequence[Layout],
    ) -> Started:
        """Enqueue a function of arrays as they lie in memory, which returns arrays as they are to lie there."""
        reads = tuple(each.memory for each in operands)
        writes = tuple(self._allocate(type, layout) for type, layout in zip(types, layouts, strict=True))

        def work() -> None:
            with np.errstate(all="ignore"):
                for region, array in zip(writes, compute(*(self.memory.view(each) for each in reads)), strict=True):
                    self._write(region, array)

        done = self.stream.submit(Command(unit, what, count, reads, writes, work, tuple(operands)))
        return Started(writes, done)

    def nanoseconds(self) -> float:
        """The clock, when all that was enqueued has run."""
        return float(self.stream.drain())

    def _allocate(self, type: TensorType, layout: Layout) -> Region:
        try:
            return self.memory.allocate(type, layout)
        except MemoryError:
            self.stream.drain()  # what has run gives its operands back
            return self.memory.allocate(type, layout)

    def _dma(
        self, what: str, nbytes: int, reads: tuple[Region, ...], writes: tuple[Region, ...], work: Callable[[], None]
    ) -> Any:
        return self.stream.submit(Command("dma", what, LATENCY + nbytes // DMA_BYTES, reads, writes, work))

    def _write(self, region: Region, array: NDArray[Any]) -> None:
        self.memory.view(region)[...] = array


def _each_alone(function: Callable[..., NDArray[Any]]) -> Callable[..., Sequence[NDArray[Any]]]:
    return lambda *arrays: [function(*arrays)]


def _by_meaning(
    instruction: Instruction, operands: Sequence[Held], layouts: Sequence[Layout]
) -> Callable[..., Sequence[NDArray[Any]]]:
    """What hlojit's reference computes: units that are not simulated more closely."""

    def compute(*arrays: NDArray[Any]) -> list[NDArray[Any]]:
        tensors = [each.layout.unpack(array, each.type.shape) for each, array in zip(operands, arrays, strict=True)]
        return [
            layout.pack(result)
            for layout, result in zip(layouts, evaluate_instruction(instruction, tensors), strict=True)
        ]

    return compute


def _multiply(left: NDArray[Any], right: NDArray[Any]) -> list[NDArray[Any]]:
    """Tiles [..., i, k] times the transposes of tiles [..., j, k], added to tiles [..., i, j], one k after the other."""
    rows, columns, depth = left.shape[-4], right.shape[-4], left.shape[-3]
    result = np.zeros((*left.shape[:-4], rows, columns, TILE, TILE), left.dtype)
    for k in range(depth):
        result += left[..., :, None, k, :, :] @ np.swapaxes(right[..., None, :, k, :, :], -1, -2)
    return [result]
