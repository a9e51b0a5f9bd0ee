"""What kernels would take at least on a machine, from their plans: bytes, arithmetic, occupancy.  Estimates, not measurements.

    for each in estimates(backend, module):
        print(each.name, each.nanoseconds, each.bound, each.occupancy)

A kernel reads what it needs of its operands and writes its results once at the bandwidth of the memory, or computes - at the rate
of the matrix units for the type that they multiply, else of the ordinary f32 units - or is launched, whichever takes longest.
Occupancy is the share of a multiprocessor's threads that may be there at once, as threads, shared memory and (where somebody
knows them) registers allow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from hlojit.extensions.backends.backend import CompileOptions
from hlojit.gpu.libraries import is_for_library
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.graph import Instruction, Module, Value
from hlojit.ir.ops.custom_calls import described, is_custom_call
from hlojit.ir.ops.definition import Expand, Indexed, Trait
from hlojit.ir.ops.internal import device_function
from hlojit.lowering.alias_analysis import KernelSource
from hlojit.lowering.arithmetic_count import operations
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.library_product import LibraryProduct
from hlojit.lowering.program import Launch
from hlojit.lowering.schedule import build_program
from hlojit.lowering.target import Target
from hlojit.simt.kernels import matrix_type

if TYPE_CHECKING:
    from hlojit.gpu.backend import GpuBackend

OPERATIONS_PER_CLOCK: Final = 256
"""Of a multiprocessor: 128 multiply-adds of f32, as published for most GPUs of these years."""
BLOCKS_PER_MULTIPROCESSOR: Final = 32
LAUNCH_NANOSECONDS: Final = 2000.0
"""From one launch of a stream or a graph to the next, if these have nothing to do: assumed, for GPUs of these years."""
_MATRIX_NAMES: Final = {"f8E4M3FN": "e4m3", "f8E5M2": "e5m2", "i8": "s8", "f32": "tf32"}
_COLUMNS: Final = (
    *("kernel", "blocks", "threads", "shared", "registers", "occupancy", "bytes", "operations"),
    *("estimate (us)", "bound", "measured (us)"),
)


@final
@dataclass(frozen=True, slots=True)
class Estimate:
    """One launch of a program; ``operations`` is None where nobody knows what the kernel computes."""

    name: str
    place: str
    symbol: str
    blocks: int
    threads: int
    shared_bytes: int
    nbytes: int
    operations: int | None
    registers: int | None
    """Of a thread, as an assembler said; None: not known, and not counted in the occupancy."""
    occupancy: float
    nanoseconds: float
    bound: str
    """``memory``, ``arithmetic``, ``matrix units`` or ``launch``."""
    matrix: str = ""
    """The type that matrix units multiply, if it is they that compute: of our kernel, or of a library that may stand in."""
    library: bool = False
    """Whether a vendor's library may compute it instead, or, of a product with what follows it, the product."""
    measured: float | None = None
    """Nanoseconds, where somebody has measured it."""


def estimates(
    backend: GpuBackend,
    module: Module,
    measured: Mapping[str, float] | None = None,
    *,
    with_registers: bool = True,
) -> list[Estimate]:
    """All launches of a lowered module (``hlojit.compiler.lower``), each once; ``measured`` has nanoseconds by kernel symbol.

    ``with_registers``: ask an assembler, which takes its time.
    """
    for each in module.main.body:
        if isinstance(each.op.lowering, Expand) or is_custom_call(each):
            raise ArgumentError(
                f"estimates are of a lowered module, which hlojit.compiler.lower(module, backend, CompileOptions()) makes; "
                f"{described(each)} is left in this one\n  at {each.location}"
            )
    source = _Noting(backend.kernel_source())
    program = build_program(module.main, source, alignment=backend.alignment)
    target = backend.platform().target
    if target.grid is None:
        raise HlojitError(f"the back end {backend.name!r} has no machine with threads")
    registers: dict[str, Mapping[str, int]] = {}
    found = []
    for launch in program.launches():
        if launch.kernel.host is not None:
            continue  # nobody knows when the other end of a channel is ready
        symbol = launch.kernel.symbol
        instruction = source.instructions[symbol]
        if with_registers and symbol not in registers and device_function(instruction) is None:
            registers[symbol] = backend.registers(instruction)
        found.append(_estimate(launch, instruction, target, registers.get(symbol, {}), measured or {}))
    return found


@final
class _Noting:
    """A source of kernels that notes what they were made of."""

    def __init__(self, source: KernelSource):
        self._source = source
        self.instructions: dict[str, Instruction] = {}

    def kernel(self, instruction: Instruction) -> KernelCode:
        """Code for one instruction."""
        code = self._source.kernel(instruction)
        self.instructions[code.symbol] = instruction
        return code


def _estimate(
    launch: Launch,
    instruction: Instruction,
    target: Target,
    known_registers: Mapping[str, int],
    measured: Mapping[str, float],
) -> Estimate:
    machine = target.grid
    assert machine is not None
    widest = max(launch.kernel.phases, key=lambda phase: phase.tasks * phase.threads)
    is_foreign = device_function(instruction) is not None
    count = None if is_foreign else operations(instruction)
    nbytes = sum(_bytes_read(instruction).values()) + sum(each.tensor_type.nbytes for each in instruction.results)
    rates = dict(machine.matrix_rates) | {"": OPERATIONS_PER_CLOCK * machine.multiprocessors * machine.gigahertz}
    own = "" if is_foreign else matrix_type(instruction, target)
    matrix = max((own, *_library_types(launch)), key=lambda name: rates.get(name, 0.0))
    rate = rates.get(matrix, rates[""])
    times = {
        "memory": nbytes / machine.memory_bandwidth,
        "matrix units" if matrix else "arithmetic": (count or 0) / rate,
        "launch": LAUNCH_NANOSECONDS * len(launch.kernel.phases),
    }
    bound = max(times, key=times.__getitem__)
    registers = known_registers.get(widest.symbol)
    return Estimate(
        launch.instruction_name,
        str(launch.location),
        launch.kernel.symbol,
        widest.tasks,
        widest.threads,
        widest.shared_bytes,
        nbytes,
        count,
        registers,
        occupancy(widest, machine, registers),
        times[bound],
        bound,
        matrix,
        not is_foreign and _may_be_a_librarys(launch, instruction, target),
        measured.get(launch.kernel.symbol),
    )


def _may_be_a_librarys(launch: Launch, instruction: Instruction, target: Target) -> bool:
    phases = launch.kernel.phases
    if any(phase.library for phase in phases):
        return True
    return len(phases) == 1 and is_for_library(instruction, target, CompileOptions().libraries)


def _library_types(launch: Launch) -> list[str]:
    """What matrix units multiply where a library computes a product: its elements as they are."""
    calls = [LibraryProduct.of_text(phase.library) for phase in launch.kernel.phases if phase.library]
    return [_MATRIX_NAMES.get(call.lhs.element, call.lhs.element) for call in calls]


def _bytes_read(instruction: Instruction) -> dict[Value, int]:
    """What a kernel needs of its operands: all, or, where elements are looked up, as many as there are look-ups."""
    is_fusion = Trait.FUSION in instruction.op.traits
    inner = instruction.regions[0].arguments if is_fusion else instruction.operands
    looked_up: dict[Value, float] = {}
    for user in instruction.regions[0] if is_fusion else [instruction]:
        lowering = user.op.lowering
        for number, operand in enumerate(user.operands):
            share = math.inf
            if isinstance(lowering, Indexed):
                share = lowering.reads(user, number) if lowering.reads is not None else 1.0
            looked_up[operand] = looked_up.get(operand, 0.0) + share * sum(
                each.tensor_type.size for each in user.results
            )
    found = {}
    for operand, value in zip(instruction.operands, inner):
        kind = operand.tensor_type
        elements = min(float(kind.size), looked_up.get(value, 0.0)) if kind.size else 0.0
        found[operand] = math.ceil(elements * kind.nbytes / max(1, kind.size))
    return found


def occupancy(phase: Phase, machine: GridMachine, registers: int | None) -> float:
    """The share of a multiprocessor's threads that its blocks fill at once."""
    warps = math.ceil(phase.threads / machine.warp)
    room = [BLOCKS_PER_MULTIPROCESSOR, machine.threads_per_multiprocessor // (warps * machine.warp)]
    if phase.shared_bytes:
        room.append(machine.shared_bytes // phase.shared_bytes)
    if registers:
        # Registers are given to warps, eight to a thread at once.
        room.append(machine.registers // (-(-registers // 8) * 8 * machine.warp * warps))
    return min(room) * warps * machine.warp / machine.threads_per_multiprocessor


def table(found: Sequence[Estimate], machine: str) -> str:
    """Text for people; says what is estimated and what was measured."""
    head = f"estimates for {machine}, not measured: at least so long, by the machine's published figures"
    rows: list[tuple[str, ...]] = [_COLUMNS, *map(_row, found)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:]))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([head, *lines])


def _row(each: Estimate) -> tuple[str, ...]:
    return (
        f"{each.name} {each.place}",
        f"{each.blocks:,}",
        str(each.threads),
        f"{each.shared_bytes:,}",
        "-" if each.registers is None else str(each.registers),
        f"{each.occupancy:.0%}",
        f"{each.nbytes:,}",
        "-" if each.operations is None else f"{each.operations:,}",
        f"{each.nanoseconds / 1e3:.2f}",
        f"{each.bound} ({each.matrix})" if each.matrix else each.bound,
        "-" if each.measured is None else f"{each.measured / 1e3:.2f}",
    )
