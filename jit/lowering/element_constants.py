"""The elements of constants inside of kernels, in compute form and in memory form."""

from __future__ import annotations

import numpy as np
from hlojit.ir.attributes import Dense
from hlojit.ir.formats import ElementType, QuantizedType, element_type
from hlojit.ir.scalar.arrays import to_compute

LARGEST_TABLE = 4096
"""Constants of more elements that are no splats must be operands of a fusion."""


def stored_element(element: ElementType) -> ElementType:
    """The type of what stands in memory for an element: of a quantized one, its integer."""
    return element_type(element.storage_type) if isinstance(element, QuantizedType) else element


def constant_numbers(dense: Dense) -> tuple[int | float, ...]:
    """The elements of a constant in compute form, in row-major order; of a splat, one of them.

    What stands in the array is the storage form: for a float format without a NumPy dtype, codes.
    """
    stored = dense.splat_element.reshape(1) if dense.is_splat else dense.array.reshape(-1)
    values = to_compute(np.ascontiguousarray(stored), stored_element(dense.type.element_type))
    return tuple(values.tolist())


def constant_parts(dense: Dense) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The real and the imaginary parts of a constant's elements, in row-major order; of a splat, of one of them."""
    stored = dense.splat_element.reshape(1) if dense.is_splat else dense.array.reshape(-1)
    return tuple(stored.real.tolist()), tuple(stored.imag.tolist())


def constant_codes(dense: Dense) -> tuple[int, ...]:
    """The bits of a constant's elements, in row-major order; of a splat, of one of them."""
    stored = dense.splat_element.reshape(1) if dense.is_splat else dense.array.reshape(-1)
    contiguous = np.ascontiguousarray(stored)
    return tuple(contiguous.view(f"u{contiguous.itemsize}").tolist())
