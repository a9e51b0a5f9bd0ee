"""Kernels that do what no kernel may, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable

import hlojit.runtime
import pytest
from hlojit.llvm.text import Val
from hlojit.simt.builder import SimtBuilder
from hlojit.simt.simulator.faults import KernelFaultError
from hlojit.simt.simulator.records import FaultKind

from .simulated import Handmade, at

Body = Callable[..., None]


def word(b: SimtBuilder, value: int) -> Val:
    return b.constant("i32", value)


def fault(body: Body, buffers: list[tuple[str, int]], *, blocks: int = 1, **options: int) -> KernelFaultError:
    """What a launch raises; the same once more, and memory is given back."""
    kernel = Handmade(body, buffers, **options)
    before = hlojit.runtime.statistics().bytes_in_use
    with pytest.raises(KernelFaultError) as first:
        kernel.launch(blocks)
    with pytest.raises(KernelFaultError):
        kernel.launch(blocks)
    assert hlojit.runtime.statistics().bytes_in_use == before
    return first.value


def said(error: KernelFaultError, kind: FaultKind, *words: str) -> None:
    assert error.kind is kind and error.kernel == "kernel"
    for each in words:
        assert each in str(error), f"{each!r} is not in: {error}"


def everybody_writes(b: SimtBuilder, y: Val) -> None:
    b.store(b.thread, at(b, y, "i32", b.and_(b.thread, word(b, 62))))
