"""What the emitters need to know about a processor."""

from __future__ import annotations

from dataclasses import dataclass

KIND_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f32": 32, "f64": 64, "ptr": 64}


@dataclass(frozen=True, slots=True)
class Target:
    """A processor as code generation sees it.

    ``vector_bits`` is the width of a native vector register, ``vector_registers`` their number, ``unroll`` how many
    native vectors one explicit vector spans (LLVM splits and interleaves them).
    """

    triple: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int
    unroll: int = 4

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


X86_64_V4 = Target(
    "x86_64-unknown-linux-gnu",
    "x86-64-v4",
    "+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx2,+fma,+f16c,+prefer-256-bit".replace(
        ",+prefer-256-bit", ",-prefer-256-bit"
    ),
    512,
    32,
)
X86_64_V3 = Target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma,+f16c", 256, 16, unroll=2)
X86_64_V2 = Target("x86_64-unknown-linux-gnu", "x86-64-v2", "", 128, 16, unroll=2)
AARCH64 = Target("aarch64-unknown-linux-gnu", "generic", "+neon", 128, 32)
