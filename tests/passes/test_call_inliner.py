"""Calls that multiply."""

from __future__ import annotations

import tracemalloc

import pytest
from hlojit.ir.errors import HlojitError
from hlojit.ir.passes.call_inliner import CallInliner
from hlojit.ir.text.parser import parse_module

KIND = "tensor<4xf32>"


def doubling(levels: int) -> str:
    """Functions each of which calls the next one twice."""
    head = f"(%x: {KIND}) -> {KIND} {{"
    call = "func.call @f{}(%{}) : ({k}) -> {k}"
    lines = [f"func.func @main{head}", f"%0 = {call.format(0, 'x', k=KIND)}", f"return %0 : {KIND}", "}"]
    for level in range(levels):
        lines += [f"func.func private @f{level}{head}", f"%0 = {call.format(level + 1, 'x', k=KIND)}"]
        lines += [f"%1 = {call.format(level + 1, '0', k=KIND)}", f"return %1 : {KIND}", "}"]
    lines += [f"func.func private @f{levels}{head}", f"%0 = stablehlo.tanh %x : {KIND}", f"return %0 : {KIND}", "}"]
    return "\n".join(lines)


def test_calls_that_multiply_are_inlined() -> None:
    module = parse_module(doubling(5))
    CallInliner().run(module)
    assert [each.op.name for each in module.main.body][:-1] == ["stablehlo.tanh"] * 32


@pytest.mark.parametrize("levels", [23, 30, 500])
def test_too_many_are_refused_before_any_is_inlined(levels: int) -> None:
    module = parse_module(doubling(levels))
    before = str(module)
    tracemalloc.start()
    try:
        with pytest.raises(HlojitError, match="gives more than 5000000 instructions"):
            CallInliner().run(module)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert str(module) == before
