"""Groups of any instructions: whatever set a plugin asks for is formed without changing what a program computes, or refused."""

from __future__ import annotations

import random
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import ArrayFunction, Kernel, KernelGroup, OpPattern, SubgraphPattern, using
from hlojit.ir import evaluate

from ..random_programs import RandomProgram, random_arguments
from .kernel_plugins import Kernels


def as_meant(group: KernelGroup) -> ArrayFunction:
    """Computes a group by its own graph."""

    def compute(*operands: Any) -> Any:
        results = group.evaluate(*operands)
        return results if len(results) > 1 else results[0]

    return ArrayFunction(compute, trust="python")


def any_of_the_block(source: random.Random) -> Any:
    """A match of random instructions that stand in the same block, near or far, of loops too."""

    def match(instruction: Any) -> Any:
        if source.randrange(3):
            return None
        others = [each for each in instruction.block if not each.op.is_terminator]
        return [instruction, *(each for each in others if source.randrange(3) == 0)]

    return match


@pytest.mark.parametrize("seed", range(14))
def test_random_groups_change_nothing(seed: int) -> None:
    source = random.Random(seed)
    text, types = RandomProgram(source, statements=40).build()
    arguments = random_arguments(types, seed)
    expected = evaluate(hlojit.parse(text), *arguments)
    plugin = Kernels(
        Kernel("any", backend="cpu", pattern=SubgraphPattern(any_of_the_block(source)), build=as_meant),
        Kernel("sums", backend="cpu", pattern=OpPattern("stablehlo.add"), build=as_meant),
    )
    with using(plugin):
        found = hlojit.compile(text, options={"verify": "always"})(*arguments)
    found = found if isinstance(found, tuple) else (found,)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
