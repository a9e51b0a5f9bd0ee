"""What threads do together, as the PTX that LLVM's own target makes of it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hlojit.cuda.assemblers.choice import NAMES, assembler
from hlojit.cuda.nvptx import SM_90, SM_100, NvptxDialect
from hlojit.llvm.kernel_code import kernel_code
from hlojit.llvm.text import Val
from hlojit.lowering.kernel import Phase
from hlojit.lowering.target import Target
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.dialect import Memory


def ptx(body: Callable[[SimtBuilder, Val], None], name: str = "llvm", target: Target = SM_90) -> str:
    b = SimtBuilder(NvptxDialect())
    with b.kernel("kernel", [Memory("the words", 4 * 256, 4)], 256) as (words,):
        body(b, words)
    return assembler(name).ptx(kernel_code(b, (Phase("kernel", 1, 1.0, 256),)), target)


def doubled(b: SimtBuilder, words: Val, change: Callable[[Val], Val]) -> None:
    place = b.element_pointer(words, "i32", b.zext(b.thread, "i64"))
    b.store(change(b.load("i32", place)), place)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda b, x: b.shuffle_xor(x, 4), r"shfl\.sync\.bfly\.b32"),
        (lambda b, x: b.shuffle_from(x, b.constant("i32", 3)), r"shfl\.sync\.idx\.b32"),
        (lambda b, x: b.ballot(b.icmp("eq", x, b.constant("i32", 0))), r"vote\.sync\.ballot\.b32"),
    ],
)
def test_lanes_exchange_by_one_instruction(change: Callable[[SimtBuilder, Val], Val], expected: str) -> None:
    text = ptx(lambda b, words: doubled(b, words, lambda x: change(b, x)))
    assert len(re.findall(expected, text)) == 1 and "call" not in text


def test_lanes_of_a_warp_wait_for_each_other() -> None:
    assert re.search(r"bar\.warp\.sync", ptx(lambda b, words: b.sync_warp()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", [SM_90, SM_100], ids=lambda target: target.cpu)
def test_atomic_instructions(target: Target, name: str) -> None:
    if reason := assembler(name).unavailable():
        pytest.skip(reason)

    def body(b: SimtBuilder, words: Val) -> None:
        old = b.atomic("umax", words, b.thread)
        b.compare_exchange(words, old, b.constant("i32", 1))

    text = ptx(body, name, target)
    assert re.search(r"atom\.\S*max\.u32", text) and re.search(r"atom\.\S*cas\.b32", text)
    assert len(re.findall(r"\batom\.", text)) == 2 and ".sys." not in text, "in the order of the GPU, not of the system"
