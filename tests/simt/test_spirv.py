"""The same kernels as SPIR-V modules, by LLVM's SPIR-V target."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import ModuleType

import pytest
from hlojit.ir.errors import UnsupportedError
from hlojit.llvm.kernel_code import kernel_code
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.machine_code.worker_process import compile_apart
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Memory
from hlojit.simt.spirv import SPIRV64, SpirvDialect

ENTRY_POINT, EXECUTION_MODE, LOAD, STORE, DECORATE = 15, 16, 61, 62, 71
BARRIER, BALLOT, SHUFFLE, SHUFFLE_XOR = 224, 339, 345, 346
LINKAGE, IMPORT, ALIGNED, LOCAL_SIZE, SUBGROUP_SIZE, CONTRACTION_OFF = 41, 1, 2, 17, 35, 31

Instruction = tuple[int, tuple[int, ...]]


def assembled(code: KernelCode) -> list[Instruction]:
    image = compile_apart(code.ir, SPIRV64, pipeline="threads", linked=(), what="the kernel")
    words = struct.unpack(f"<{len(image) // 4}I", image)
    assert words[0] == 0x07230203, "SPIR-V's magic number"
    return list(instructions(words))


def instructions(words: tuple[int, ...]) -> Iterator[Instruction]:
    place = 5
    while place < len(words):
        yield words[place] & 0xFFFF, words[place + 1 : place + (words[place] >> 16)]
        place += words[place] >> 16


def imported(module: list[Instruction]) -> list[str]:
    """What somebody else is to define."""
    found = [operands for code, operands in module if code == DECORATE and operands[1] == LINKAGE]
    return [struct.pack(f"<{len(o) - 3}I", *o[2:-1]).split(b"\0")[0].decode() for o in found if o[-1] == IMPORT]


def codes(kinds: ModuleType, kind: str) -> list[KernelCode]:
    try:
        return list(kinds.codes(kinds.KINDS[kind], SPIRV64, SpirvDialect()))
    except UnsupportedError as error:
        pytest.skip(str(error).splitlines()[0])


@pytest.mark.parametrize("kind", ["chain_f32", "transpose_bf16", "scatter_ordered_f32", "softmax_f32"])
def test_kernels_become_modules(kinds: ModuleType, kind: str) -> None:
    for code in codes(kinds, kind):
        module = assembled(code)
        assert all(name.startswith("__spirv_BuiltIn") for name in imported(module)), "nobody defines functions"
        assert sum(each == ENTRY_POINT for each, _ in module) == len(code.phases)
        modes = [operands[1:] for each, operands in module if each == EXECUTION_MODE]
        assert (LOCAL_SIZE, code.phases[0].threads, 1, 1) in modes and (SUBGROUP_SIZE, 32) in modes
        assert (CONTRACTION_OFF,) in modes
        if kinds.KINDS[kind].wide:
            assert any(each == LOAD and operands[-2:] == (ALIGNED, 16) for each, operands in module)
            assert any(each == STORE and operands[-2:] == (ALIGNED, 16) for each, operands in module)


@pytest.mark.slow
def test_all_kinds_of_kernels_become_modules(kinds: ModuleType) -> None:
    for kind in kinds.KINDS.values():
        for code in kinds.codes(kind, SPIRV64, SpirvDialect()):
            assert all(name.startswith("__spirv_BuiltIn") for name in imported(assembled(code)))


def test_what_threads_do_together_is_one_instruction_each() -> None:
    b = SimtBuilder(SpirvDialect())
    with b.kernel("kernel", [Memory("the words", 4 * 256, 4)], 256) as (words,):
        own = b.shared("i32", 256)
        place = b.element_pointer(words, "i32", b.zext(b.thread, "i64"))
        value = b.shuffle_from(b.shuffle_xor(b.load("i32", place), 4), b.constant("i32", 3))
        b.store(value, b.element_pointer(own, "i32", b.zext(b.thread, "i64")))
        b.barrier()
        b.sync_warp()
        votes = b.ballot(b.icmp("eq", value, b.constant("i32", 0)))
        b.store(b.add(votes, b.load("i32", own)), place)
    found = [each for each, _ in assembled(kernel_code(b, (Phase("kernel", 1, 1.0, 256, 1024),)))]
    assert [found.count(each) for each in (BARRIER, BALLOT, SHUFFLE, SHUFFLE_XOR)] == [2, 1, 1, 1]
