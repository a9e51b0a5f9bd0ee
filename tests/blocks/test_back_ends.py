"""Blocks on back ends that know nothing of them: a vendor's machine gives the reference's numbers, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import DECOMPOSE, YES, Capability, Held, InterpretedBackend, Layout, Machine, hookimpl, using
from hlojit.ir.ops.block_parts import has_blocks


class _Plain(Machine):
    """Evaluates by the reference what it is given, one instruction after the other."""

    def put(self, array: Any, type: Any, layout: Layout) -> Any:
        return layout.pack(array)

    def get(self, memory: Any, type: Any, layout: Layout) -> Any:
        return layout.unpack(memory, type.shape)

    def evaluate(self, instruction: Any, operands: Sequence[Held], layouts: Sequence[Layout]) -> Sequence[Any]:
        return self.by_reference(instruction, operands, layouts)


class _Abacus(InterpretedBackend):
    name = "abacus"

    def machines(self) -> Sequence[Machine]:
        return [_Plain()]

    def capability(self, instruction: Any) -> Capability:
        return DECOMPOSE if has_blocks(instruction) else YES


class _Plugin:
    @hookimpl
    def hlojit_backends(self) -> list[Any]:
        return [_Abacus()]


@pytest.fixture
def abacus() -> Iterator[str]:
    with using(_Plugin()):
        yield "abacus"


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
def test_products_are_summed_as_the_reference_sums_them(name: str, rows: int, abacus: str) -> None:
    x, weights = numbers(rows, 96), hlojit.Array.from_values(numbers(40, 96), name)
    found, expected = (
        hlojit.jit(lambda x, w: x @ w.T, backend=backend)(x, weights) for backend in (abacus, "reference")
    )
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()
