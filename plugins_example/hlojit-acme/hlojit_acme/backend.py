"""What Acme's devices can do, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence

from hlojit.extensions import (
    DECOMPOSE,
    YES,
    Capability,
    Instruction,
    InterpretedBackend,
    Layouts,
    MemorySpace,
    TensorType,
    can_decompose,
    no,
)

from hlojit_acme.machine import DMA_BYTES, LATENCY, AcmeMachine, cycles
from hlojit_acme.products import refused, tiles

ELEMENTS = frozenset("f32 f16 bf16 acme8 i1 i8 i16 i32 i64 ui8 ui16 ui32 ui64".split())
MISSING = {
    "stablehlo.sort": "the device has no sorter",
    "stablehlo.gather": "the device reads memory in rows, not by index",
    "stablehlo.scatter": "the device writes memory in rows, not by index",
    "stablehlo.convolution": "the device has no convolutions",
}
ALONE = frozenset(
    f"stablehlo.{name}"
    for name in "all_gather all_reduce all_to_all collective_broadcast collective_permute cross-replica-sum reduce_scatter "
    "partition_id replica_id send recv infeed outfeed rng async_start async_done".split()
)


class AcmeBackend(InterpretedBackend):
    """Two devices, ``acme:0`` and ``acme:1``, simulated; memory, commands and units are the machine's."""

    name = "acme"
    memory = MemorySpace("acme")

    def machines(self) -> Sequence[AcmeMachine]:
        """Those that are plugged in."""
        return [AcmeMachine(0), AcmeMachine(1)]

    def capability(self, instruction: Instruction) -> Capability:
        """What its units compute, with the cost; what hlojit can take apart is wanted in parts, but for the largest k."""
        for value in (*instruction.operands, *instruction.results):
            if isinstance(value.type, TensorType) and value.type.element_type.name == "f64":
                return no("the device has no f64 unit")
        if instruction.name != "chlo.top_k" and can_decompose(instruction):
            return DECOMPOSE
        if reason := _missing(instruction):
            return no(reason)
        return Capability(YES.support, cost=float(cycles(instruction)[1]))

    def transfer_cost(self, nbytes: int) -> float:
        """Nanoseconds: the latency, and 16 bytes in each."""
        return LATENCY + nbytes / DMA_BYTES

    def preferred_layouts(self, instruction: Instruction) -> Layouts | None:
        """Products are of tiles; everything else takes what it finds."""
        return tiles(instruction)


def _missing(instruction: Instruction) -> str:
    """What an instruction wants that the device has not, or nothing."""
    if instruction.name in MISSING:
        return MISSING[instruction.name]
    if instruction.name in ALONE:
        return "the device talks to nobody while a program runs"
    for value in (*instruction.operands, *instruction.results):
        if isinstance(value.type, TensorType) and value.type.element_type.name not in ELEMENTS:
            return f"the device has no {value.type.element_type} unit"
    return refused(instruction) if instruction.name == "stablehlo.dot_general" else ""
