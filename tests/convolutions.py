"""Convolutions as a direct sum over taps in NumPy: what the kernels of every target are compared with."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.ir.attributes import ConvDimensionNumbers
from hlojit.ir.formats import element_type

Array = np.ndarray[Any, Any]
Layout = tuple[str, str, str]


def numbers(lhs: str, rhs: str, out: str) -> ConvDimensionNumbers:
    """``numbers("NHWC", "HWIO", "NHWC")``; spatial dimensions are the other letters, in the order of the input."""
    spatial = [letter for letter in lhs if letter not in "NC"]
    return ConvDimensionNumbers(
        lhs.index("N"), lhs.index("C"), tuple(lhs.index(s) for s in spatial),
        rhs.index("I"), rhs.index("O"), tuple(rhs.index(s) for s in spatial),
        out.index("N"), out.index("C"), tuple(out.index(s) for s in spatial),
    )  # fmt: skip


def reference(lhs: Array, rhs: Array, layout: tuple[str, str, str], attributes: dict[str, Any]) -> Array:
    """Sum over taps of einsums of shifted inputs, in channels-last order, then into the output's order."""
    spatial = [letter for letter in layout[0] if letter not in "NC"]
    x = lhs.transpose([layout[0].index(c) for c in ["N", *spatial, "C"]])
    w = rhs.transpose([layout[1].index(c) for c in [*spatial, "I", "O"]])
    rank = len(spatial)
    stride = attributes.get("window_strides") or (1,) * rank
    padding = attributes.get("padding") or ((0, 0),) * rank
    dilation = attributes.get("lhs_dilation") or (1,) * rank
    window_dilation = attributes.get("rhs_dilation") or (1,) * rank
    reversal = attributes.get("window_reversal") or (False,) * rank
    w = w[tuple(slice(None, None, -1) if r else slice(None) for r in reversal)]
    groups, batch_groups = attributes.get("feature_group_count") or 1, attributes.get("batch_group_count") or 1
    dilated = [max(0, (n - 1) * d + 1) if n else 0 for n, d in zip(x.shape[1:-1], dilation)]
    full = np.zeros((x.shape[0], *dilated, x.shape[-1]), x.dtype)
    full[(slice(None), *(slice(None, None, d) for d in dilation))] = x
    crop = tuple(slice(max(0, -lo), n - max(0, -hi)) for n, (lo, hi) in zip(dilated, padding))
    full = full[(slice(None), *crop)]
    full = np.pad(full, [(0, 0), *((max(0, lo), max(0, hi)) for lo, hi in padding), (0, 0)])
    out = [(n - (k - 1) * wd - 1) // s + 1 for n, k, wd, s in zip(full.shape[1:-1], w.shape, window_dilation, stride)]
    parts = []
    count = max(groups, batch_groups)
    for g in range(count):
        image = np.array_split(full, groups, -1)[g] if groups > 1 else np.array_split(full, batch_groups, 0)[g]
        kernel = np.array_split(w, count, -1)[g]
        total = np.zeros((image.shape[0], *out, kernel.shape[-1]), x.dtype)
        for tap in itertools.product(*(range(k) for k in w.shape[:rank])):
            window = tuple(
                slice(t * wd, t * wd + (n - 1) * s + 1, s) for t, wd, n, s in zip(tap, window_dilation, out, stride)
            )
            total += np.einsum("...c,co->...o", image[(slice(None), *window)], kernel[tap])
        parts.append(total)
    result = np.concatenate(parts, -1)
    order = ["N", *spatial, "C"]
    return result.transpose([order.index(c) for c in layout[2]])


def random_array(shape: Sequence[int], element: str, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    row = element_type(element)
    if element == "i1":
        return generator.random(shape) < 0.2
    if element.startswith(("i", "ui")):
        return generator.integers(row.minimum, row.maximum, shape, row.storage, endpoint=True)  # type: ignore[attr-defined]
    if element.startswith("complex"):
        return (generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(row.storage)
    return generator.standard_normal(shape).astype(row.storage)


def expected(inputs: Sequence[Array], result: str, layout: Layout, attributes: dict[str, Any]) -> tuple[Array, Array]:
    """The convolution in 64 bits, and the same of the absolute values."""
    exact = not result.startswith(("f", "bf", "complex"))
    wide = np.int64 if exact else np.complex128 if result.startswith("complex") else np.float64
    lhs, rhs = (each.astype(wide) for each in inputs)
    return reference(lhs, rhs, layout, attributes), reference(np.abs(lhs), np.abs(rhs), layout, attributes)


def compare(found: Array, wanted: Array, scale: Array, result: str) -> None:
    """Within the rounding errors of a sum of products of such a type."""
    if result == "i1":
        np.testing.assert_array_equal(found, wanted > 0)
    elif not result.startswith(("f", "bf", "complex")):
        np.testing.assert_array_equal(found, wanted.astype(found.dtype))
    else:
        chain = 2.0**-52 if result in ("f64", "complex<f64>") else 2.0**-23
        mantissa = getattr(element_type(result), "mantissa_bits", 30)
        bound = chain * 8 * np.abs(scale) + 2.0 ** -(mantissa + 1) * np.abs(wanted) * 1.01 + 1e-7 * (mantissa < 20)
        assert (np.abs(found.astype(wanted.dtype) - wanted) <= bound).all()
