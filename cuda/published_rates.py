"""What NVIDIA publishes of the matrix units of its GPUs: dense figures, without structured sparsity.

Operations a nanosecond (a multiply-add is two) of the whole GPU, from the data sheets "NVIDIA A100 Tensor Core GPU" (2020),
"NVIDIA H200 Tensor Core GPU" (2024; those of the H100 SXM, halved where they are said to be with sparsity) and "NVIDIA HGX
B200" (2024; an eighth, halved).  They are for the clock that such work runs at, below the highest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from hlojit.lowering.grid_machine import GridMachine

_DENSE: Final[Mapping[int, tuple[int, Mapping[str, float]]]] = {
    8: (108, {"bf16": 312e3, "f16": 312e3, "tf32": 156e3, "8-bit integer": 624e3}),
    9: (132, {"bf16": 989.4e3, "f16": 989.4e3, "tf32": 494.7e3, "8-bit integer": 1978.9e3, "8-bit float": 1978.9e3}),
    10: (148, {"bf16": 2250e3, "f16": 2250e3, "tf32": 1125e3, "8-bit integer": 4500e3, "8-bit float": 4500e3}),
}
"""By the major compute capability: multiprocessors of the GPU that the figures are for, and the figures."""
_BYTES: Final = {"8-bit integer": ("s8", "u8"), "8-bit float": ("e4m3", "e5m2")}


def rated(machine: GridMachine, compute_capability: tuple[int, int]) -> GridMachine:
    """A machine with the rates of its matrix units: the published ones, by its share of multiprocessors."""
    found = _DENSE.get(compute_capability[0])
    if found is None:
        return machine
    multiprocessors, dense = found
    rates = {
        name: rate * machine.multiprocessors / multiprocessors
        for kind, rate in dense.items()
        for name in _BYTES.get(kind, (kind,))
    }
    known = tuple((name, rate) for name, rate in rates.items() if name in machine.matrix_inputs)
    return replace(machine, matrix_rates=known)
