"""What the emitters need to know about a processor."""

from __future__ import annotations

from dataclasses import dataclass

from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.machine import GENERIC, Machine

KIND_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "i128": 128, "f32": 32, "f64": 64, "ptr": 64}
"""Bits of a scalar's kind; ``i128`` is a pair of ``f64`` in memory, which is no scalar anywhere else."""


@dataclass(frozen=True, slots=True)
class TileUnit:
    """A unit that multiplies small matrices: ``registers`` tiles of ``rows`` x ``row_bytes``, and the element types it takes."""

    registers: int
    rows: int
    row_bytes: int
    elements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """A processor as code generation sees it.

    ``cpu`` is what LLVM tunes for and ``features`` (in its spelling) are what the code may use.  ``vector_bits`` is the
    width of a native vector register, ``vector_registers`` their number, ``unroll`` how many native vectors one
    explicit vector spans (LLVM splits and interleaves them).  ``machine`` is what plans are derived from.
    """

    triple: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int
    unroll: int = 4
    machine: Machine = GENERIC
    grid: GridMachine | None = None
    """Of a machine whose code runs as many threads."""

    @property
    def identity(self) -> str:
        """Text that tells everything that code for this target depends on; the same in every process."""
        shape = f"{self.vector_bits}x{self.vector_registers}x{self.unroll}"
        machine = self.machine if self.grid is None else self.grid
        return f"{self.triple} {self.cpu} {self.features} {shape} {machine}"

    def native_lanes(self, kind: str) -> int:
        """Lanes of one native vector of ``kind`` (i1 counts as a byte)."""
        return max(1, self.vector_bits // max(8, KIND_BITS[kind]))

    @property
    def is_x86(self) -> bool:
        """Whether this is an x86-64 processor."""
        return self.triple.startswith("x86_64")

    def has_feature(self, name: str) -> bool:
        """Whether ``name`` (LLVM's spelling, without the sign) is switched on."""
        return f"+{name}" in self.features.split(",")

    @property
    def has_masks(self) -> bool:
        """Whether masked loads and stores of all widths are instructions of the processor."""
        return self.has_feature("avx512vl") and self.has_feature("avx512bw")

    @property
    def tile_unit(self) -> TileUnit | None:
        """The matrix unit, by its features (Intel's AMX), or None."""
        kinds = {"amx-bf16": "bf16", "amx-int8": "i8", "amx-fp16": "f16"}
        elements = tuple(element for feature, element in kinds.items() if self.has_feature(feature))
        return TileUnit(8, 16, 64, elements) if elements and self.has_feature("amx-tile") else None


X86_64_V4 = Target(
    "x86_64-unknown-linux-gnu",
    "x86-64-v4",
    "+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx2,+fma,+f16c,-prefer-256-bit",
    512,
    32,
)
X86_64_V3 = Target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma,+f16c", 256, 16, unroll=2)
X86_64_V2 = Target("x86_64-unknown-linux-gnu", "x86-64-v2", "", 128, 16, unroll=2)
AARCH64 = Target("aarch64-unknown-linux-gnu", "generic", "+neon", 128, 32)
