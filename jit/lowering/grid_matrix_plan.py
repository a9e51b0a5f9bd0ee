"""Products by matrix instructions: which type of elements they get, and how a block's tile is divided among warps.

An instruction of a warp multiplies 16 rows by 8 columns over 32 bytes of terms, and adds to sums of f32 or i32:

    16 x 16 bf16 or f16        16 x 8 tf32        16 x 32 s8, u8, e4m3 or e5m2

Operands go into such a type where all their numbers are in it: a vendor's 6-bit float is decoded, exactly, to bf16.  The
products are exact then; the sums of one instruction are in the machine's order, instructions follow each other in the order
of the terms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from hlojit.ir.formats import BooleanType, ElementType, FloatFormat, IntegerType
from hlojit.ir.scalar.code_patterns import codes
from hlojit.lowering.candidates import MOST_CANDIDATES, Candidate
from hlojit.lowering.dot_problem import ceil_divide
from hlojit.lowering.grid_cost import DEPENDENT, FETCHED_BYTES, QUARTERS, SHARED_BYTES, BlockWork, launch_cycles
from hlojit.lowering.grid_dot_plan import THREADS, Fill, Parts, Passage, cut_terms, plan_fill
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_product import GridProduct, Pairs, ProductOperand

ROWS: Final = 16
COLUMNS: Final = 8
"""Of an instruction."""
WORDS: Final = 8
"""Of 32 bits, that an instruction reads of a row."""
STEP_WORDS: Final = 16
"""Of a row in shared memory."""
MOST_STAGES: Final = 4
"""Steps in shared memory where they are copied asynchronously: one is multiplied, the others are on their way."""
OWN_REGISTERS: Final = 96
"""Of a thread: sums, fragments, addresses."""
REGISTERS: Final = 128
"""Of a thread, at most: sums are at most 64 of them."""
COPY_BYTES: Final = (4, 8, 16)
"""Of an asynchronous copy."""
INSTRUCTION_CYCLES: Final = 8.0
"""Of machines whose rates are not known: an A100's."""
CONVERSION: Final = 5
"""Instructions for an element that becomes another one on its way."""
FEWEST_ROWS: Final = 8
"""Products of fewer rows or columns would multiply mostly nothing."""


@final
@dataclass(frozen=True, slots=True)
class MatrixInput:
    """A type that instructions take, by its name in PTX: bytes of an element, and for floats which numbers are in it."""

    name: str
    size: int
    precision: int = 0
    """Bits of the significand."""
    exponents: tuple[int, int] = (0, 0)
    """Of the smallest and the largest normal number."""

    def holds(self, format: FloatFormat) -> bool:
        """Whether all numbers of a format are in it."""
        if format.decode is not None or not format.exponent_bits:
            return False
        smallest = codes(format).minimum_exponent
        # A normal number of the format may be a subnormal one here, with fewer bits.
        last_bit = smallest - format.mantissa_bits
        largest = (1 << format.exponent_bits) - 1 - format.bias
        fits = last_bit >= self.exponents[0] - self.precision + 1 and largest <= self.exponents[1] + 1
        return fits and format.mantissa_bits < self.precision


BF16: Final = MatrixInput("bf16", 2, 8, (-126, 127))
F16: Final = MatrixInput("f16", 2, 11, (-14, 15))
TF32: Final = MatrixInput("tf32", 4, 11, (-126, 127))
S8: Final = MatrixInput("s8", 1)
U8: Final = MatrixInput("u8", 1)
E4M3: Final = MatrixInput("e4m3", 1)
E5M2: Final = MatrixInput("e5m2", 1)
_NARROW: Final = {"f8E4M3FN": E4M3, "f8E5M2": E5M2}


@final
@dataclass(frozen=True, slots=True)
class MatrixInputs:
    """What an instruction multiplies, and the kind of its sums."""

    lhs: MatrixInput
    rhs: MatrixInput
    sums: str

    @property
    def size(self) -> int:
        """Bytes of an element, on both sides."""
        return self.lhs.size

    @property
    def terms(self) -> int:
        """Of a step through shared memory."""
        return 4 * STEP_WORDS // self.size


def matrix_inputs(
    lhs: ElementType, rhs: ElementType, compute: str, machine: GridMachine, *, imprecise: bool = False
) -> MatrixInputs | None:
    """The cheapest inputs that hold both operands, or None; ``imprecise`` says that sums need not have all bits of f32."""
    found = None
    if compute == "i32" and _is_byte(lhs) and _is_byte(rhs):
        found = MatrixInputs(_byte(lhs), _byte(rhs), "i32")
    elif compute == "f32" and isinstance(lhs, FloatFormat) and isinstance(rhs, FloatFormat):
        if imprecise and lhs.name in _NARROW and rhs.name in _NARROW:
            found = MatrixInputs(_NARROW[lhs.name], _NARROW[rhs.name], "f32")
        if found is None or not _has(machine, found):
            held = [each for each in (BF16, F16, TF32) if each.holds(lhs) and each.holds(rhs)]
            candidates = [MatrixInputs(each, each, "f32") for each in held]
            found = next((each for each in candidates if _has(machine, each)), None)
    return found if found is not None and _has(machine, found) else None


def _has(machine: GridMachine, inputs: MatrixInputs) -> bool:
    return {inputs.lhs.name, inputs.rhs.name} <= set(machine.matrix_inputs)


def _is_byte(element: ElementType) -> bool:
    return isinstance(element, BooleanType) or (isinstance(element, IntegerType) and element.bits <= 8)


def _byte(element: ElementType) -> MatrixInput:
    return S8 if isinstance(element, IntegerType) and element.signed else U8


@final
@dataclass(frozen=True, slots=True)
class MatrixTile:
    """``rows`` x ``columns`` sums of a block, ``warp_rows`` x ``warp_columns`` of a warp."""

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int

    @property
    def warps(self) -> int:
        """Of a block."""
        return self.rows // self.warp_rows * (self.columns // self.warp_columns)


@final
@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """A product by matrix instructions."""

    product: GridProduct
    inputs: MatrixInputs
    tile: MatrixTile
    threads: int
    parts: Parts
    lhs: Fill
    rhs: Fill
    stages: int
    """Steps in shared memory."""
    at_once: int
    """Blocks that a multiprocessor should have registers for."""
    held: int
    """Registers of a thread that the next step's pieces take, where they come by registers."""

    @property
    def candidate(self) -> Candidate:
        """Its name, and the order of its sums, which no tile changes."""
        tile = self.tile
        shape = f"{tile.rows}x{tile.columns} by {tile.warp_rows}x{tile.warp_columns}, {self.stages} stages"
        return Candidate(f"matrices {shape}{self.parts}", f"matrices{self.parts}")

    @property
    def rows(self) -> int:
        """Of a block."""
        return self.tile.rows

    @property
    def columns(self) -> int:
        """Of a block."""
        return self.tile.columns

    @property
    def terms(self) -> int:
        """Of a step."""
        return self.inputs.terms

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """What the number of a block is made of: part, batch, tile of rows, tile of columns."""
        product, tile = self.product, self.tile
        rows, columns = ceil_divide(product.m, tile.rows), ceil_divide(product.n, tile.columns)
        return self.parts.count, product.batch, rows, columns

    @property
    def blocks(self) -> int:
        """How many there are."""
        return math.prod(self.extents)


@final
@dataclass(frozen=True, slots=True)
class InMemory:
    """What a plan asks of an operand's elements in memory."""

    size: int
    """Bytes."""
    is_own: bool = False
    """Whether they are what instructions take, bit for bit."""
    zero_is_zero: bool = True
    """Whether bytes of zeros are the number 0, which is what copies write where nothing is."""


def plan_matrices(
    product: GridProduct, inputs: MatrixInputs, elements: tuple[InMemory, InMemory], machine: GridMachine
) -> MatrixPlan | None:
    """The tile that takes the least estimated time, or None where too little would be multiplied."""
    return next(iter(matrix_plans(product, inputs, elements, machine)), None)


def matrix_plans(
    product: GridProduct,
    inputs: MatrixInputs,
    elements: tuple[InMemory, InMemory],
    machine: GridMachine,
    parts: Parts | None = None,
) -> list[MatrixPlan]:
    """Plans by estimated time, the best first; ``parts`` are those of the sums if not what the shape says."""
    if min(product.m, product.n) < FEWEST_ROWS or product.k < inputs.terms // 2:
        return []
    parts = cut_terms(product) if parts is None else parts
    plans = [plan for tile in _tiles(machine) for plan in _tile_plans(product, inputs, tile, parts, elements, machine)]
    # Pieces of single elements by the dozen would not fit into registers, and smaller tiles have as many threads for fewer.
    plans = [plan for plan in plans if plan.held <= machine.registers_per_thread // 2] or plans
    # Rows that begin anywhere are left element by element, each at an address of its own: few columns a warp want fewer.
    begins_anywhere = product.result_lanes(2) == 1

    def rank(plan: MatrixPlan) -> tuple[float, ...]:
        tile = plan.tile
        columns = tile.warp_columns if begins_anywhere else 0
        return plan_cycles(plan, elements, machine), -tile.warps, -plan.stages, columns

    plans.sort(key=rank)
    return plans[:MOST_CANDIDATES]


def _tile_plans(
    product: GridProduct,
    inputs: MatrixInputs,
    tile: MatrixTile,
    parts: Parts,
    elements: tuple[InMemory, InMemory],
    machine: GridMachine,
) -> Iterator[MatrixPlan]:
    """How operands come into shared memory, with the numbers of stages that there is room for."""
    threads = tile.warps * machine.warp
    fills = []
    for operand, each, side in zip((product.lhs, product.rhs), elements, (tile.rows, tile.columns)):
        fill = plan_fill(operand, each.size, side, inputs.terms, threads, machine)
        fills.append(replace(fill, passage=_passage(operand, each, fill, machine)))
    if shared_bytes(tile, fills, elements, inputs, 2) > machine.shared_bytes:
        fills = [replace(fill, passage=Passage.REGISTERS) for fill in fills]
    is_copied = any(fill.passage is not Passage.REGISTERS for fill in fills)
    held = sum(
        _held(side, fill, each, inputs, threads) for side, fill, each in zip((tile.rows, tile.columns), fills, elements)
    )
    at_once = max(
        1, machine.registers // (threads * min(max(REGISTERS, OWN_REGISTERS + held), machine.registers_per_thread))
    )
    for stages in range(2, MOST_STAGES + 1 if is_copied else 3):
        if stages == 2 or shared_bytes(tile, fills, elements, inputs, stages) <= machine.shared_bytes:
            yield MatrixPlan(product, inputs, tile, threads, parts, fills[0], fills[1], stages, at_once, held)


def _held(side: int, fill: Fill, element: InMemory, inputs: MatrixInputs, threads: int) -> int:
    """Registers of a thread for the next step's pieces: their bits, where they lie, and whether they exist."""
    if fill.passage is not Passage.REGISTERS:
        return 0
    return side * inputs.terms // (fill.lanes * threads) * (ceil_divide(fill.lanes * element.size, 4) + 3)


def _passage(operand: ProductOperand, element: InMemory, fill: Fill, machine: GridMachine) -> Passage:
    copied = machine.asynchronous_copies and fill.lanes * element.size in COPY_BYTES
    if not copied or operand.pairs is Pairs.RIGHT or not element.zero_is_zero:
        return Passage.REGISTERS
    return Passage.COPIED if element.is_own else Passage.CONVERTED


def shared_bytes(
    tile: MatrixTile, fills: Sequence[Fill], elements: Sequence[InMemory], inputs: MatrixInputs, stages: int
) -> int:
    """Of the steps of both operands, as they are multiplied and as they are in memory."""
    return sum(
        side * inputs.terms * (fill.slots(stages) * inputs.size + fill.raw_slots(stages) * element.size)
        for side, fill, element in zip((tile.rows, tile.columns), fills, elements)
    )


def _tiles(machine: GridMachine) -> Iterator[MatrixTile]:
    for rows in (32, 64, 128):
        for columns in (32, 64, 128):
            for warp_rows in (16, 32, 64):
                for warp_columns in (16, 32, 64):
                    tile = MatrixTile(rows, columns, warp_rows, warp_columns)
                    whole = warp_rows <= rows and warp_columns <= columns
                    sums = warp_rows * warp_columns // machine.warp
                    if not whole or tile.warps * machine.warp > THREADS or machine.warp != ROWS * 2:
                        continue
                    steps = 2 * (tile.rows + tile.columns) * 4 * STEP_WORDS
                    if steps <= machine.shared_bytes and sums <= machine.registers_per_thread // 3:
                        yield tile


def plan_cycles(plan: MatrixPlan, elements: tuple[InMemory, InMemory], machine: GridMachine) -> float:
    """The estimated time of a launch, in cycles."""
    tile, inputs = plan.tile, plan.inputs
    sides = list(zip((tile.rows, tile.columns), (plan.lhs, plan.rhs), elements))
    fetched = sum(side * inputs.terms * each.size for side, _, each in sides)
    moved = plan.tile.warps * (tile.warp_rows + tile.warp_columns) * 4 * STEP_WORDS
    for side, fill, each in sides:
        # What is converted is written as it is in memory, read, and written again.
        raw = 2 * each.size if fill.passage is Passage.CONVERTED else 0
        moved += side * inputs.terms * (inputs.size + raw)
    instructions = tile.warp_rows // ROWS * (tile.warp_columns // COLUMNS) * STEP_WORDS // WORDS
    results = tile.rows * tile.columns * 4
    converted = sum(side * inputs.terms for side, _, each in sides if not each.is_own)
    work = BlockWork(
        steps=ceil_divide(plan.parts.length, inputs.terms),
        warps=tile.warps,
        multiply=instructions * instruction_cycles(inputs, machine),
        issue=instructions + CONVERSION * converted / plan.threads,
        chain=DEPENDENT * STEP_WORDS / WORDS,
        shared=moved / SHARED_BYTES,
        fetch=fetched / FETCHED_BYTES,
        ahead=plan.stages - 1,
        finish=2 * results / SHARED_BYTES + results / FETCHED_BYTES,
    )
    held = shared_bytes(tile, (plan.lhs, plan.rhs), elements, inputs, plan.stages)
    threads = machine.threads_per_multiprocessor // plan.threads
    resident = max(1, min(plan.at_once, threads, machine.shared_bytes // held))
    return launch_cycles(plan.blocks, resident, machine, work)


def instruction_cycles(inputs: MatrixInputs, machine: GridMachine) -> float:
    """Of one quarter's matrix unit, for an instruction: by the machine's published rate, if it is known."""
    rate = dict(machine.matrix_rates).get(inputs.lhs.name)
    if rate is None:
        return INSTRUCTION_CYCLES
    operations = 2 * ROWS * COLUMNS * 4 * WORDS // inputs.size
    return operations * QUARTERS * machine.multiprocessors * machine.gigahertz / rate
