"""``ldmatrix`` and ``mma.sync`` of PTX with NumPy, element by element as NVIDIA's PTX ISA places them in the registers of a warp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
WARP = 32
LANES = np.arange(WARP)
GROUP, MEMBER = LANES // 4, LANES % 4
"""``groupID`` and ``threadID_in_group``."""
ELEMENTS: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "s8": np.int8, "u8": np.uint8,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


def loaded_matrices(rows: Array, *, transposed: bool) -> list[Array]:
    """``ldmatrix.m8n8.x4``: from 16 bytes for each lane, ``(warps, 32, 16)``, what goes into its four registers."""
    matrices = np.ascontiguousarray(rows).view(np.uint16).reshape(-1, 4, 8, 8).astype(np.uint32)
    if transposed:
        matrices = matrices.swapaxes(2, 3)
    low, high = (matrices[:, :, GROUP, 2 * MEMBER + half] for half in range(2))
    words = low | high << np.uint32(16)
    return [words[:, number].reshape(-1) for number in range(4)]


def _left_place(number: int, size: int) -> tuple[Array, Array]:
    """Row and term of element ``number`` of a lane's fragment of the left operand."""
    each = 4 // size
    lower = number // each % 2 == 1
    column = MEMBER * each + number % each + (4 * each if number >= 2 * each else 0)
    return GROUP + (8 if lower else 0), column


def _right_place(number: int, size: int) -> tuple[Array, Array]:
    """Term and column of element ``number`` of a lane's fragment of the right operand."""
    each = 4 // size
    return MEMBER * each + number % each + (4 * each if number >= each else 0), GROUP


def multiplied(name: Sequence[str], left: Array, right: Array, sums: Array) -> Array:
    """``mma.sync.aligned.m16n8kK.row.col``: registers ``(registers, warps, 32)``; returns those of the result."""
    shape, sums_kind, kinds = name[0], name[3], (name[4], name[5])
    terms = int(shape.removeprefix("m16n8k"))
    size = 32 // terms
    wide = np.float64 if sums_kind == "f32" else np.int64
    warps = left.shape[1]
    a, b = np.zeros((warps, 16, terms), wide), np.zeros((warps, terms, 8), wide)
    for matrix, registers, kind, place in ((a, left, kinds[0], _left_place), (b, right, kinds[1], _right_place)):
        numbers = _numbers(registers, kind)
        for number in range(numbers.shape[2]):
            matrix[(slice(None), *place(number, size))] = numbers[:, :, number]
    total = a @ b
    result = sums.copy()
    view = result.view(np.float32) if sums_kind == "f32" else result.view(np.int32)
    for number in range(4):
        found = total[:, GROUP + (8 if number >= 2 else 0), MEMBER * 2 + number % 2]
        added = view[number].astype(wide) + found
        view[number] = (
            added.astype(np.float32) if wide is np.float64 else (added & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        )
    return result


def _numbers(registers: Array, kind: str) -> Array:
    """The elements of every lane's registers: ``(warps, 32, elements)``."""
    words = np.ascontiguousarray(np.moveaxis(registers, 0, 2))
    if kind == "tf32":
        # The hardware reads the upper 19 bits.
        return (words & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    return words.view(ELEMENTS[kind]).astype(np.float64 if kind[0] != "s" and kind[0] != "u" else np.int64)
