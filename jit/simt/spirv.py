"""SPIR-V as a dialect (OpenCL's flavour), as LLVM's SPIR-V target has it: kernels for Intel's GPUs and whoever else takes it.

    code = emit_kernel(instruction, SPIRV64, SpirvDialect(), "kernel")
    compile_apart(code.ir, SPIRV64, pipeline="threads", linked=(), what="the kernel")       # a SPIR-V module

Each module is made in a process of its own: the second one of a process never ends (LLVM 22).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

from hlojit.ir.errors import HlojitError
from hlojit.llvm.text import Val
from hlojit.lowering.grid_machine import GridMachine, check_warp
from hlojit.lowering.target import Target
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import SHARED, Dialect, shared_place

TRIPLE: Final = "spirv64-unknown-unknown"
_WORKGROUP, _SUBGROUP = 2, 3
"""SPIR-V's numbers of scopes."""
_ACQUIRE_RELEASE_ALL: Final = 0x8 | 0x100 | 0x200
"""Memory semantics: acquire and release, of memory of the work group and of all."""


@final
class SpirvDialect(Dialect):
    """Subgroups of ``warp`` lanes, which a launch has to ask for."""

    name = "spirv"
    device_scope = "device"
    intrinsics = frozenset(
        (
            *("_Z12get_local_idj", "_Z12get_group_idj", "_Z22__spirv_ControlBarrierjjj"),
            *("_Z33__spirv_GroupNonUniformShuffleXorijj", "_Z30__spirv_GroupNonUniformShuffleijj"),
            "_Z29__spirv_GroupNonUniformBallotjb",
        )
    )

    def __init__(self, warp: int = 32):
        check_warp(warp)
        if warp > 32:
            raise HlojitError(f"subgroups of SPIR-V have 8, 16 or 32 lanes here, not {warp}")
        self.warp = warp
        self._shared_bytes = 0

    def for_module(self) -> SpirvDialect:
        return SpirvDialect(self.warp)

    @contextmanager
    def kernel(self, b: SimtBuilder, symbol: str, buffers: int, threads: int) -> Iterator[list[Val]]:
        parameters = [("ptr addrspace(1)", f"buffer{number}") for number in range(buffers)]
        size, lanes = f"!{93000 + threads}", f"!{92000 + self.warp}"
        b.declare(size, f"{size} = !{{i32 {threads}, i32 1, i32 1}}")
        b.declare(lanes, f"{lanes} = !{{i32 {self.warp}}}")
        attributes = f"nounwind !reqd_work_group_size {size} !intel_reqd_sub_group_size {lanes}"
        with b.function(symbol, parameters, attributes=attributes, linkage="spir_kernel") as addresses:
            yield [b.emit("ptr", 1, f"addrspacecast ptr addrspace(1) {address.text} to ptr") for address in addresses]
        self._shared_bytes = max(self._shared_bytes, b.shared_bytes)

    def _called(self, b: SimtBuilder, kind: str, symbol: str, *arguments: str) -> Val:
        types = ", ".join(argument.split(" ")[0] for argument in arguments)
        b.declare(symbol, f"declare spir_func {kind} @{symbol}({types})")
        return b.emit(kind, 1, f"call spir_func {kind} @{symbol}({', '.join(arguments)})")

    def thread(self, b: SimtBuilder) -> Val:
        return b.trunc(self._called(b, "i64", "_Z12get_local_idj", "i32 0"), "i32")

    def block(self, b: SimtBuilder) -> Val:
        return b.trunc(self._called(b, "i64", "_Z12get_group_idj", "i32 0"), "i32")

    def barrier(self, b: SimtBuilder) -> None:
        self._barrier(b, _WORKGROUP)

    def sync_warp(self, b: SimtBuilder) -> None:
        self._barrier(b, _SUBGROUP)

    def _barrier(self, b: SimtBuilder, scope: int) -> None:
        symbol = "_Z22__spirv_ControlBarrierjjj"
        b.declare(symbol, f"declare spir_func void @{symbol}(i32, i32, i32)")
        b.line(f"call spir_func void @{symbol}(i32 {scope}, i32 {scope}, i32 {_ACQUIRE_RELEASE_ALL})")

    def shuffle(self, b: SimtBuilder, value: Val, mask: int) -> Val:
        symbol = "_Z33__spirv_GroupNonUniformShuffleXorijj"
        return self._called(b, "i32", symbol, f"i32 {_SUBGROUP}", f"i32 {value.text}", f"i32 {mask}")

    def shuffle_from(self, b: SimtBuilder, value: Val, lane: Val) -> Val:
        symbol = "_Z30__spirv_GroupNonUniformShuffleijj"
        return self._called(b, "i32", symbol, f"i32 {_SUBGROUP}", f"i32 {value.text}", f"i32 {lane.text}")

    def ballot(self, b: SimtBuilder, predicate: Val) -> Val:
        symbol = "_Z29__spirv_GroupNonUniformBallotjb"
        b.declare(symbol, f"declare spir_func <4 x i32> @{symbol}(i32, i1)")
        votes = b.emit("i32", 4, f"call spir_func <4 x i32> @{symbol}(i32 {_SUBGROUP}, i1 {predicate.text})")
        return b.extract(votes, 0)

    def shared(self, b: SimtBuilder, offset: int) -> Val:
        return shared_place(b, offset)

    def finish(self, b: SimtBuilder, text: str) -> str:
        """Memory of a work group has a size."""
        sized = f"{SHARED} = internal addrspace(3) global [{self._shared_bytes} x i8] poison, align 16"
        return re.sub(rf"^{SHARED} = .*$", sized, text, flags=re.MULTILINE)


DATA_CENTER_MAX_1550 = GridMachine(128, 32, 1024, 2048, 131072, 256, 128 << 10, gigahertz=1.6, memory_bandwidth=3276.0)
"""Published figures: Intel's data sheet."""

SPIRV64 = Target(TRIPLE, "", "", 128, 255, unroll=1, grid=DATA_CENTER_MAX_1550)
