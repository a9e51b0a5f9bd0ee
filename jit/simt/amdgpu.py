"""AMD's dialect, as LLVM's AMDGPU target has it: the same kernels as GCN code objects.

    code = emit_kernel(instruction, GFX90A, AmdgpuDialect(64), "kernel")
    compile_to_object(code.ir, GFX90A, pipeline="threads")        # ELF with a kernel descriptor for each launch

No runtime of AMD's is driven here.  What a back end for these GPUs brings besides is a driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

from hlojit.ir.errors import HlojitError
from hlojit.llvm.text import Val
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.target import Target
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Dialect, shared_place

TRIPLE: Final = "amdgcn-amd-amdhsa"
_ALLOCA: Final = re.compile(r"^(  )(%[\w.]+) = (alloca [^\n]+)$", re.MULTILINE)
_CONSTANT: Final = re.compile(
    r"""^(@(?:[\w.$]+|"[^"]+")) = ((?:private|internal)(?: unnamed_addr)?) constant """, re.MULTILINE
)


@final
class AmdgpuDialect(Dialect):
    """Wavefronts of 64 lanes (GCN, CDNA) or of 32 (RDNA)."""

    name = "amdgpu"
    device_scope = "agent"
    intrinsics = frozenset(
        f"llvm.amdgcn.{name}"
        for name in (
            *("workitem.id.x", "workgroup.id.x", "s.barrier", "wave.barrier", "ds.bpermute", "ds.swizzle"),
            *("ballot.i32", "ballot.i64"),
        )
    )

    def __init__(self, warp: int = 64):
        if warp not in (32, 64):
            raise HlojitError(f"AMD's wavefronts have 32 or 64 lanes, not {warp!r}")
        self.warp = warp

    @contextmanager
    def kernel(self, b: SimtBuilder, symbol: str, buffers: int, threads: int) -> Iterator[list[Val]]:
        parameters = [("ptr addrspace(1)", f"buffer{number}") for number in range(buffers)]
        attributes = f'nounwind "amdgpu-flat-work-group-size"="{threads},{threads}" "uniform-work-group-size"="true"'
        with b.function(symbol, parameters, attributes=attributes, linkage="amdgpu_kernel") as addresses:
            yield [b.emit("ptr", 1, f"addrspacecast ptr addrspace(1) {address.text} to ptr") for address in addresses]

    def _number(self, b: SimtBuilder, name: str) -> Val:
        symbol = f"llvm.amdgcn.{name}"
        b.declare(symbol, f"declare i32 @{symbol}()")
        return b.emit("i32", 1, f"call i32 @{symbol}()")

    def thread(self, b: SimtBuilder) -> Val:
        return self._number(b, "workitem.id.x")

    def block(self, b: SimtBuilder) -> Val:
        return self._number(b, "workgroup.id.x")

    def barrier(self, b: SimtBuilder) -> None:
        self._fenced(b, "s.barrier", "workgroup")

    def sync_warp(self, b: SimtBuilder) -> None:
        self._fenced(b, "wave.barrier", "wavefront")

    def _fenced(self, b: SimtBuilder, name: str, scope: str) -> None:
        symbol = f"llvm.amdgcn.{name}"
        b.declare(symbol, f"declare void @{symbol}()")
        b.line(f'fence syncscope("{scope}") release')
        b.line(f"call void @{symbol}()")
        b.line(f'fence syncscope("{scope}") acquire')

    def shuffle(self, b: SimtBuilder, value: Val, mask: int) -> Val:
        if mask < 32:
            # Within 32 lanes the pattern is a part of the instruction: and, or, exclusive or of five bits each.
            symbol = "llvm.amdgcn.ds.swizzle"
            b.declare(symbol, f"declare i32 @{symbol}(i32, i32)")
            return b.emit("i32", 1, f"call i32 @{symbol}(i32 {value.text}, i32 {mask << 10 | 31})")
        return self.shuffle_from(b, value, b.xor(b.thread, b.constant("i32", mask)))

    def shuffle_from(self, b: SimtBuilder, value: Val, lane: Val) -> Val:
        symbol = "llvm.amdgcn.ds.bpermute"
        b.declare(symbol, f"declare i32 @{symbol}(i32, i32)")
        place = b.shl(b.and_(lane, b.constant("i32", self.warp - 1)), b.constant("i32", 2))
        return b.emit("i32", 1, f"call i32 @{symbol}(i32 {place.text}, i32 {value.text})")

    def ballot(self, b: SimtBuilder, predicate: Val) -> Val:
        kind = self.vote_kind
        symbol = f"llvm.amdgcn.ballot.{kind}"
        b.declare(symbol, f"declare {kind} @{symbol}(i1)")
        return b.emit(kind, 1, f"call {kind} @{symbol}(i1 {predicate.text})")

    def shared(self, b: SimtBuilder, offset: int) -> Val:
        return shared_place(b, offset)

    def finish(self, b: SimtBuilder, text: str) -> str:
        return self.linked(text)

    def linked(self, text: str) -> str:
        """A thread's own memory and constants have address spaces of their own."""
        text = _ALLOCA.sub(
            r"\1\2.private = \3, addrspace(5)\n\1\2 = addrspacecast ptr addrspace(5) \2.private to ptr", text
        )
        for name, _ in _CONSTANT.findall(text):
            text = re.sub(
                rf"ptr {re.escape(name)}(?![\w.$])", f"ptr addrspacecast (ptr addrspace(4) {name} to ptr)", text
            )
        return _CONSTANT.sub(r"\1 = \2 addrspace(4) constant ", text)


def amd_target(processor: str, machine: GridMachine) -> Target:
    """Code generation for a GPU by its name in LLVM."""
    return Target(TRIPLE, processor, "", 128, machine.registers_per_thread, unroll=1, grid=machine)


# Published figures: AMD's CDNA 2 and CDNA 3 white papers and the data sheet of the Radeon RX 7900 XTX.
MI250 = GridMachine(104, 64, 1024, 2048, 131072, 512, 64 << 10, gigahertz=1.7, memory_bandwidth=1638.0)
MI300X = GridMachine(304, 64, 1024, 2048, 131072, 512, 64 << 10, gigahertz=2.1, memory_bandwidth=5300.0)
RX7900 = GridMachine(96, 32, 1024, 2048, 98304, 256, 64 << 10, gigahertz=2.5, memory_bandwidth=960.0)

GFX90A = amd_target("gfx90a", MI250)
GFX942 = amd_target("gfx942", MI300X)
GFX1100 = amd_target("gfx1100", RX7900)
