"""NVIDIA's dialect as LLVM's NVPTX target has it, and the GPUs that code is made for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import final

from hlojit.cuda import narrow_floats
from hlojit.cuda.machine_instructions import global_address, machine_instruction, machine_statement, shared_address
from hlojit.cuda.matrix_fragments import NvidiaFragments
from hlojit.cuda.packed_inputs import packed_inputs
from hlojit.cuda.published_rates import rated
from hlojit.ir.formats import FloatFormat
from hlojit.llvm.text import Val
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_matrix_plan import MatrixInput, MatrixInputs
from hlojit.lowering.matrix_layout import MatrixLayout
from hlojit.lowering.target import Target
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Dialect, MemoryAccess, shared_place
from hlojit.simt.portable_matrices import Fragments

TRIPLE = "nvptx64-nvidia-cuda"
_SET_CONDITION = "cudaGraphSetConditional"
"""Of CUDA's device runtime, but no library has to be linked for it: a driver that has graphs with conditions defines it."""
OLDEST = (8, 0)
"""Compute capability: kernels use what came with Ampere."""

_INTRINSICS = frozenset(
    f"llvm.nvvm.{name}"
    for name in (
        *("read.ptx.sreg.tid.x", "read.ptx.sreg.ctaid.x", "read.ptx.sreg.ntid.x", "read.ptx.sreg.nctaid.x"),
        *("read.ptx.sreg.laneid", "barrier.cta.sync.aligned.all", "bar.warp.sync", "vote.ballot.sync"),
        *("shfl.sync.bfly.i32", "shfl.sync.idx.i32", "shfl.sync.up.i32", "shfl.sync.down.i32"),
    )
)


@final
class NvptxDialect(Dialect):
    """What LLVM's NVPTX target calls things."""

    name = "nvptx"
    intrinsics = _INTRINSICS
    externs = frozenset({_SET_CONDITION})
    device_scope = "device"

    def __init__(self, capability: tuple[int, int] = OLDEST):
        self.capability = capability

    @contextmanager
    def kernel(self, b: SimtBuilder, symbol: str, buffers: int, threads: int) -> Iterator[list[Val]]:
        parameters = [("ptr addrspace(1)", f"buffer{number}") for number in range(buffers)]
        attributes = f'nounwind "nvvm.reqntid"="{threads}"'
        if b.at_once > 1:
            attributes += f' "nvvm.minctasm"="{b.at_once}"'
        with b.function(symbol, parameters, attributes=attributes, linkage="ptx_kernel") as addresses:
            yield [b.emit("ptr", 1, f"addrspacecast ptr addrspace(1) {address.text} to ptr") for address in addresses]

    def _register(self, b: SimtBuilder, name: str) -> Val:
        symbol = f"llvm.nvvm.read.ptx.sreg.{name}"
        b.declare(symbol, f"declare i32 @{symbol}()")
        return b.emit("i32", 1, f"call i32 @{symbol}()")

    def extremum(self, b: SimtBuilder, x: Val, y: Val, *, is_maximum: bool) -> Val | None:
        # max.NaN and min.NaN, from sm_80 on; there are none for f64.
        return b.intrinsic("maximum" if is_maximum else "minimum", x, y) if x.kind == "f32" else None

    def encoded(self, b: SimtBuilder, value: Val, format: FloatFormat) -> Val | None:
        return narrow_floats.encoded(b, value, format, self.capability)

    def decoded(self, b: SimtBuilder, stored: Val, format: FloatFormat) -> Val | None:
        return narrow_floats.decoded(b, stored, format, self.capability)

    def thread(self, b: SimtBuilder) -> Val:
        return self._register(b, "tid.x")

    def block(self, b: SimtBuilder) -> Val:
        return self._register(b, "ctaid.x")

    def barrier(self, b: SimtBuilder) -> None:
        symbol = "llvm.nvvm.barrier.cta.sync.aligned.all"
        b.declare(symbol, f"declare void @{symbol}(i32)")
        b.line(f"call void @{symbol}(i32 0)")

    def shuffle(self, b: SimtBuilder, value: Val, mask: int) -> Val:
        symbol = "llvm.nvvm.shfl.sync.bfly.i32"
        b.declare(symbol, f"declare i32 @{symbol}(i32, i32, i32, i32)")
        return b.emit("i32", 1, f"call i32 @{symbol}(i32 -1, i32 {value.text}, i32 {mask}, i32 31)")

    def shuffle_from(self, b: SimtBuilder, value: Val, lane: Val) -> Val:
        symbol = "llvm.nvvm.shfl.sync.idx.i32"
        b.declare(symbol, f"declare i32 @{symbol}(i32, i32, i32, i32)")
        return b.emit("i32", 1, f"call i32 @{symbol}(i32 -1, i32 {value.text}, i32 {lane.text}, i32 31)")

    def ballot(self, b: SimtBuilder, predicate: Val) -> Val:
        symbol = "llvm.nvvm.vote.ballot.sync"
        b.declare(symbol, f"declare i32 @{symbol}(i32, i1)")
        return b.emit("i32", 1, f"call i32 @{symbol}(i32 -1, i1 {predicate.text})")

    def sync_warp(self, b: SimtBuilder) -> None:
        symbol = "llvm.nvvm.bar.warp.sync"
        b.declare(symbol, f"declare void @{symbol}(i32)")
        b.line(f"call void @{symbol}(i32 -1)")

    def shared(self, b: SimtBuilder, offset: int) -> Val:
        return shared_place(b, offset)

    def copy_async(self, b: SimtBuilder, access: MemoryAccess, source: Val, exists: Val | None) -> None:
        nbytes = access.align
        # Whole lines of the cache do not take part in the multiprocessor's own cache.
        cache = "cg" if nbytes == 16 else "ca"
        places = [shared_address(b, access.pointer), global_address(b, source)]
        text = f"cp.async.{cache}.shared.global [$0], [$1], {nbytes}"
        if exists is None:
            machine_statement(b, f"{text};", places)
            return
        read = b.select(exists, b.constant("i32", nbytes), b.constant("i32", 0))
        machine_statement(b, f"{text}, $2;", [*places, read])

    def commit_copies(self, b: SimtBuilder) -> None:
        machine_statement(b, "cp.async.commit_group;", [])

    def wait_for_copies(self, b: SimtBuilder, left: int) -> None:
        machine_statement(b, f"cp.async.wait_group {left};", [])

    def set_condition(self, b: SimtBuilder, handle: Val, value: Val) -> bool:
        b.declare(_SET_CONDITION, f"declare void @{_SET_CONDITION}(i64, i32)")
        b.line(f"call void @{_SET_CONDITION}(i64 {handle.text}, i32 {value.text})")
        return True

    exchanges_matrices = False

    def matrix_fragments(
        self, b: SimtBuilder, layout: MatrixLayout, base: Val, first: Val, *, is_left: bool
    ) -> Fragments:
        return NvidiaFragments(b, layout, base, first, is_left=is_left)

    def matrix_elements(self, b: SimtBuilder, stored: Val, format: FloatFormat, input: MatrixInput) -> Val | None:
        return packed_inputs(b, stored, format, input, self.capability)

    def matrix_multiply(
        self,
        b: SimtBuilder,
        inputs: MatrixInputs,
        left: Sequence[Val],
        right: Sequence[Val],
        sums: Sequence[Val],
        exchange: Val | None,
    ) -> list[Val]:
        kind = {"f32": "f32", "i32": "s32"}[inputs.sums]
        shape = f"m16n8k{32 // inputs.size}"
        text = (
            f"mma.sync.aligned.{shape}.row.col.{kind}.{inputs.lhs.name}.{inputs.rhs.name}.{kind} "
            "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
        )
        return machine_instruction(b, text, [inputs.sums] * 4, [*left, *right, *sums], memory=False)


def matrix_inputs_of(compute_capability: tuple[int, int]) -> tuple[str, ...]:
    """What matrix instructions multiply."""
    ampere = ("bf16", "f16", "tf32", "s8", "u8")
    return (*ampere, "e4m3", "e5m2") if compute_capability >= (8, 9) else ampere


def nvidia_target(compute_capability: tuple[int, int], machine: GridMachine) -> Target:
    """Code generation for GPUs of a compute capability."""
    major, minor = compute_capability
    suffix = "a" if major >= 9 else ""
    return Target(TRIPLE, f"sm_{major}{minor}{suffix}", "", 128, 255, unroll=1, grid=rated(machine, compute_capability))


# Published figures: NVIDIA's architecture whitepapers and data sheets.
A100 = GridMachine(
    108,
    shared_bytes=163 << 10,
    gigahertz=1.41,
    memory_bandwidth=1555.0,
    asynchronous_copies=True,
    matrix_inputs=matrix_inputs_of((8, 0)),
)
H200 = GridMachine(
    132,
    shared_bytes=227 << 10,
    gigahertz=1.98,
    memory_bandwidth=4800.0,
    asynchronous_copies=True,
    matrix_inputs=matrix_inputs_of((9, 0)),
)
B200 = GridMachine(
    148,
    shared_bytes=227 << 10,
    gigahertz=1.85,
    memory_bandwidth=8000.0,
    asynchronous_copies=True,
    matrix_inputs=matrix_inputs_of((10, 0)),
)

SM_80 = nvidia_target((8, 0), A100)
SM_90 = nvidia_target((9, 0), H200)
SM_100 = nvidia_target((10, 0), B200)
