"""The softmax of rows: a program of the vector unit in one command, instead of seven instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hlojit.extensions import (
    Declined,
    Held,
    Instruction,
    Kernel,
    KernelGroup,
    Layout,
    MachineKernel,
    Started,
    SubgraphPattern,
    TensorType,
    Value,
)
from numpy.typing import NDArray

from hlojit_acme.machine import LANES, AcmeMachine

SPREADING = ("stablehlo.broadcast_in_dim", "stablehlo.reshape")


def match(division: Instruction) -> list[Instruction] | None:
    """exp(x - max(x)) / sum(exp(x - max(x))), from the division backwards."""
    exponential = division.operands[0].producer
    if exponential is None or exponential.name != "stablehlo.exponential":
        return None
    difference = exponential.operands[0].producer
    if difference is None or difference.name != "stablehlo.subtract":
        return None
    total, greatest = _reduced(division.operands[1]), _reduced(difference.operands[1])
    if not total or not greatest or total[-1].operands[0] is not exponential.result:
        return None
    if greatest[-1].operands[0] is not difference.operands[0]:
        return None
    return [division, exponential, difference, *total, *greatest]


def _reduced(value: Value) -> list[Instruction]:
    """A reduction, and what spreads its result over rows; the reduction last."""
    found: list[Instruction] = []
    while (producer := value.producer) is not None:
        found.append(producer)
        if producer.name == "stablehlo.reduce":
            return found
        if producer.name not in SPREADING:
            break
        value = producer.operands[0]
    return []


def rows_of_softmax(x: NDArray[Any]) -> NDArray[Any]:
    """Along the last dimension."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), x.dtype)


def build(group: KernelGroup) -> MachineKernel | Declined:
    """Take groups of one operand that compute what ``rows_of_softmax`` does, as a trial shows."""
    types = [*group.operand_types, *group.result_types]
    if len(types) != 2 or not all(isinstance(each, TensorType) for each in types) or types[0] != types[1]:
        return Declined("one operand and one result of the same type are wanted")
    kind = types[0]
    if kind.element_type.name != "f32" or kind.rank == 0 or kind.size == 0:
        return Declined(f"rows of f32 are wanted, not {kind}")
    trial = np.random.default_rng(0).standard_normal(kind.shape, "f4") * 4
    if not np.allclose(group.evaluate(trial)[0], rows_of_softmax(trial), rtol=1e-4, atol=1e-6):
        return Declined("it is not the softmax of rows")

    def run(machine: AcmeMachine, x: Held) -> Started:
        count = 4 * -(-kind.size // LANES)
        return machine.launch(
            "vector", "acme.softmax", count, [x], lambda array: [rows_of_softmax(array)], [kind], [Layout()]
        )

    return MachineKernel(run)


SOFTMAX = Kernel("acme.softmax", backend="acme", pattern=SubgraphPattern(match, root="stablehlo.divide"), build=build)
