"""The dialect is not NVIDIA's: the same kernels as AMD's code objects, by LLVM's AMDGPU target."""

from __future__ import annotations

import re
import struct
from types import ModuleType

import pytest
from hlojit.ir.errors import UnsupportedError
from hlojit.llvm.kernel_code import kernel_code
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.target import Target
from hlojit.machine_code.object_code import compile_to_assembly, compile_to_object
from hlojit.simt.amdgpu import GFX90A, GFX942, GFX1100, AmdgpuDialect
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Memory
from hlojit.simt.intrinsics import check_intrinsics

TARGETS = {"gfx90a": (GFX90A, 64), "gfx942": (GFX942, 64), "gfx1100": (GFX1100, 32)}
SIXTEEN = r"global_{}_(dwordx4|b128)\b"


def codes(kinds: ModuleType, kind: str, name: str) -> list[KernelCode]:
    target, warp = TARGETS[name]
    try:
        return list(kinds.codes(kinds.KINDS[kind], target, AmdgpuDialect(warp)))
    except UnsupportedError as error:
        pytest.skip(str(error).splitlines()[0])


def sections(image: bytes) -> tuple[int, list[str]]:
    """The machine and the names of the sections of a 64-bit ELF file."""
    assert image[:5] == b"\x7fELF\x02"
    (machine,) = struct.unpack_from("<H", image, 18)
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count, names = struct.unpack_from("<3H", image, 58)
    headers = [struct.unpack_from("<2I4Q", image, table + number * size) for number in range(count)]
    start = headers[names][4]
    return machine, [image[start + header[0] :].split(b"\0", 1)[0].decode() for header in headers]


def checked(code: KernelCode, target: Target, warp: int) -> str:
    check_intrinsics(code, AmdgpuDialect(warp), target.cpu)
    text = compile_to_assembly(code.ir, target, pipeline="threads")
    assert "s_swappc" not in text, "nothing is called"
    assert not re.search(r"^\s*(flat|buffer)_(load|store)", text, re.MULTILINE), "every address space is known"
    assert "scratch_store" not in text and re.search(r"\.private_segment_fixed_size: 0\n", text), "nothing is spilt"
    assert re.findall(r"\.vgpr_spill_count: +(\d+)\n", text) == ["0"] * len(code.phases)
    return text


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    "kind",
    [
        "chain_f32",
        "chain_bf16",
        "transpose_f32",
        "scatter_ordered_f32",
        "softmax_f32",
        "softmax_bf16",
        "sort_radix_short_i64",
    ],
)
def test_kernels_become_code_objects(kinds: ModuleType, kind: str, name: str) -> None:
    target, warp = TARGETS[name]
    for code in codes(kinds, kind, name):
        text = checked(code, target, warp)
        machine, names = sections(compile_to_object(code.ir, target, pipeline="threads"))
        assert machine == 224 and {".text", ".rodata", ".note"} <= set(names), "EM_AMDGPU, with a kernel descriptor"
        assert text.count(".amdhsa_kernel ") == len(code.phases)
        assert f".wavefront_size: {warp}" in text and f".max_flat_workgroup_size: {code.phases[0].threads}" in text
        if kinds.KINDS[kind].wide:
            assert re.search(SIXTEEN.format("load"), text) and re.search(SIXTEEN.format("store"), text)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_all_kinds_of_kernels_become_code(kinds: ModuleType, name: str) -> None:
    target, warp = TARGETS[name]
    for kind in kinds.KINDS.values():
        for code in kinds.codes(kind, target, AmdgpuDialect(warp)):
            checked(code, target, warp)


def assembly(warp: int, body: str, *arguments: int) -> str:
    b = SimtBuilder(AmdgpuDialect(warp))
    with b.kernel("kernel", [Memory("the words", 4 * 256, 4)], 256) as (words,):
        place = b.element_pointer(words, "i32", b.zext(b.thread, "i64"))
        value = b.load("i32", place)
        if body == "ballot":
            value = b.trunc(b.ballot(b.icmp("eq", value, b.constant("i32", 0))), "i32")
        elif body == "shuffle_from":
            value = b.shuffle_from(value, b.constant("i32", *arguments))
        elif body == "shuffle_xor":
            value = b.shuffle_xor(value, *arguments)
        else:
            getattr(b, body)()
        b.store(value, place)
    code = kernel_code(b, (Phase("kernel", 1, 1.0, 256),))
    return checked(code, GFX90A if warp == 64 else GFX1100, warp)


@pytest.mark.parametrize("mask", [1, 2, 16, 31])
def test_a_butterfly_is_a_pattern_of_one_instruction(mask: int) -> None:
    """The pattern: the lane is and-ed with the lowest five bits, or-ed with the next, xor-ed with the last."""
    assert "ds_bpermute" not in assembly(64, "shuffle_xor", mask)
    b = SimtBuilder(AmdgpuDialect(64))
    with b.kernel("kernel", [], 64):
        b.shuffle_xor(b.thread, mask)
    (pattern,) = re.findall(r"ds\.swizzle\(i32 %\w+, i32 (\d+)\)", "\n".join(b.lines))
    number = int(pattern)
    for lane in range(32):
        assert ((lane & number & 31) | (number >> 5 & 31)) ^ (number >> 10 & 31) == lane ^ mask


def test_the_halves_of_a_wavefront_exchange_through_its_crossbar() -> None:
    assert "ds_bpermute_b32" in assembly(64, "shuffle_xor", 32)
    assert re.search(r"v_readlane_b32|ds_bpermute_b32", assembly(32, "shuffle_from", 3))


@pytest.mark.parametrize("warp", [32, 64])
def test_votes_have_as_many_bits_as_there_are_lanes(warp: int) -> None:
    assert "v_cmp_eq_u32" in assembly(warp, "ballot")


def test_barriers() -> None:
    assert "s_barrier" in assembly(64, "barrier") and "s_barrier" not in assembly(64, "sync_warp")


def test_private_memory_and_constants_have_their_address_spaces() -> None:
    b = SimtBuilder(AmdgpuDialect())
    with b.kernel("kernel", [Memory("the words", 4 * 64, 4)], 64) as (words,):
        index = b.and_(b.thread, b.constant("i32", 3))
        private = b.array("i32", 64)
        for number in range(3):
            b.store(b.thread, b.element_pointer(private, "i32", b.constant("i64", number)))
        value = b.lookup("i32", (5, 6, 7, 8), index)
        kept = b.load("i32", b.element_pointer(private, "i32", b.zext(index, "i64")))
        b.store(b.add(value, kept), words)
    text = b.module_text()
    assert re.search(r"alloca \[64 x i32\], align 64, addrspace\(5\)", text)
    assert "private unnamed_addr addrspace(4) constant [4 x i32]" in text
    assert compile_to_object(text, GFX90A, pipeline="threads")
