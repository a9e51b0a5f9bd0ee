"""NVIDIA's dialect as LLVM's NVPTX target has it, and the GPUs that code is made for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, final

from hlojit.cuda import narrow_floats
from hlojit.cuda.published_rates import rated
from hlojit.ir.formats import FloatFormat
from hlojit.llvm.text import Val
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_matrix_plan import MatrixInputs
from hlojit.lowering.target import Target
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Dialect, MemoryAccess
from hlojit.simt.portable_matrices import SharedMatrix

TRIPLE = "nvptx64-nvidia-cuda"
_SHARED = "@hlojit_shared"
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
        b.declare(_SHARED, f"{_SHARED} = external addrspace(3) global [0 x i8], align 16")
        text = f"getelementptr inbounds i8, ptr addrspacecast (ptr addrspace(3) {_SHARED} to ptr), i64 {offset}"
        return b.emit("ptr", 1, text)

    def copy_async(self, b: SimtBuilder, access: MemoryAccess, source: Val, exists: Val | None) -> None:
        nbytes = access.align
        # Whole lines of the cache do not take part in the multiprocessor's own cache.
        cache = "cg" if nbytes == 16 else "ca"
        places = [_shared_address(b, access.pointer), _global_address(b, source)]
        text = f"cp.async.{cache}.shared.global [$0], [$1], {nbytes}"
        if exists is None:
            _machine_statement(b, f"{text};", places)
            return
        read = b.select(exists, b.constant("i32", nbytes), b.constant("i32", 0))
        _machine_statement(b, f"{text}, $2;", [*places, read])

    def commit_copies(self, b: SimtBuilder) -> None:
        _machine_statement(b, "cp.async.commit_group;", [])

    def wait_for_copies(self, b: SimtBuilder, left: int) -> None:
        _machine_statement(b, f"cp.async.wait_group {left};", [])

    exchanges_matrices = False

    def matrix_fragment(self, b: SimtBuilder, matrix: SharedMatrix) -> list[Val]:
        lane = b.zext(b.and_(b.thread, b.constant("i32", 31)), "i64")
        lower, upper = b.and_(lane, b.constant("i64", 15)), b.lshr(lane, b.constant("i64", 4))
        # A lane says where one line of eight of one of four matrices begins.
        if matrix.transposed:
            eight = b.constant("i64", 8)
            line = b.add(b.and_(lane, b.constant("i64", 7)), b.mul(upper, eight))
            inside = b.mul(b.lshr(lower, b.constant("i64", 3)), eight)
        else:
            line, inside = lower, b.mul(upper, b.constant("i64", 16 // matrix.size))
        offset = b.add(b.add(matrix.first, b.mul(line, b.constant("i64", matrix.pitch))), inside)
        address = b.emit("i64", 1, f"ptrtoint ptr {b.element_pointer(matrix.base, matrix.kind, offset).text} to i64")
        trans = ".trans" if matrix.transposed else ""
        text = (
            "{ .reg .b64 %place; cvta.to.shared.u64 %place, $4; "
            f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{$0, $1, $2, $3}}, [%place]; }}"
        )
        return _machine_instruction(b, text, ["i32"] * 4, [address], memory=True)

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
        return _machine_instruction(b, text, [inputs.sums] * 4, [*left, *right, *sums], memory=False)


def _shared_address(b: SimtBuilder, pointer: Val) -> Val:
    """Where an address lies in shared memory (i32)."""
    name = b.name()
    b.line(f"{name} = addrspacecast ptr {pointer.text} to ptr addrspace(3)")
    return b.emit("i32", 1, f"ptrtoint ptr addrspace(3) {name} to i32")


def _global_address(b: SimtBuilder, pointer: Val) -> Val:
    """An address in a buffer (i64)."""
    name = b.name()
    b.line(f"{name} = addrspacecast ptr {pointer.text} to ptr addrspace(1)")
    return b.emit("i64", 1, f"ptrtoint ptr addrspace(1) {name} to i64")


_LETTERS: Final = {"i32": "r", "i64": "l", "f32": "f"}
"""Registers in the constraints of a machine instruction."""


def _machine_statement(b: SimtBuilder, text: str, operands: Sequence[Val]) -> None:
    """An instruction of PTX that changes memory and has no results."""
    constraints = ",".join([*(_LETTERS[operand.kind] for operand in operands), "~{memory}"])
    passed = ", ".join(f"{b.type_of(operand)} {operand.text}" for operand in operands)
    b.line(f'call void asm sideeffect "{text}", "{constraints}"({passed})')


def _machine_instruction(
    b: SimtBuilder, text: str, kinds: Sequence[str], operands: Sequence[Val], *, memory: bool
) -> list[Val]:
    """An instruction of PTX that all lanes of a warp do together, with several results."""
    constraints = [f"={_LETTERS[kind]}" for kind in kinds] + [_LETTERS[operand.kind] for operand in operands]
    if memory:
        constraints.append("~{memory}")
    types = f"{{ {', '.join(b.type(kind) for kind in kinds)} }}"
    passed = ", ".join(f"{b.type_of(operand)} {operand.text}" for operand in operands)
    found = b.name()
    b.line(f'{found} = call {types} asm sideeffect "{text}", "{",".join(constraints)}"({passed}) convergent')
    return [b.emit(kind, 1, f"extractvalue {types} {found}, {number}") for number, kind in enumerate(kinds)]


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
    108, shared_bytes=163 << 10, gigahertz=1.41, memory_bandwidth=1555.0, matrix_inputs=matrix_inputs_of((8, 0))
)
H200 = GridMachine(
    132, shared_bytes=227 << 10, gigahertz=1.98, memory_bandwidth=4800.0, matrix_inputs=matrix_inputs_of((9, 0))
)
B200 = GridMachine(
    148, shared_bytes=227 << 10, gigahertz=1.85, memory_bandwidth=8000.0, matrix_inputs=matrix_inputs_of((10, 0))
)

SM_80 = nvidia_target((8, 0), A100)
SM_90 = nvidia_target((9, 0), H200)
SM_100 = nvidia_target((10, 0), B200)
