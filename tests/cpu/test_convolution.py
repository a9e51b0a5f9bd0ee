"""``convolution`` kernels against a direct sum over taps in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hlojit.cpu.kernels.convolution_forms import emit_convolution
from hlojit.cpu.processor import host_target
from hlojit.ir.attributes import ConvDimensionNumbers
from hlojit.ir.formats import element_type
from hlojit.ir.graph import Instruction
from hlojit.ir.types import tensor
from hlojit.lowering.target import AARCH64, X86_64_V2, X86_64_V3, X86_64_V4
from hlojit.machine_code.object_code import compile_to_assembly

Array = np.ndarray[Any, Any]


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


def check(
    instruction: Callable[..., Instruction],
    run_kernel: Callable[..., Array],
    layout: tuple[str, str, str],
    lhs: Sequence[int],
    rhs: Sequence[int],
    types: tuple[str, str, str] = ("f32", "f32", "f32"),
    **attributes: Any,
) -> None:
    attributes["dimension_numbers"] = numbers(*layout)
    inputs = [random_array(lhs, types[0], 1), random_array(rhs, types[1], 2)]
    exact = not types[2].startswith(("f", "bf", "complex"))
    wide = np.int64 if exact else np.complex128 if types[2].startswith("complex") else np.float64
    wanted = reference(inputs[0].astype(wide), inputs[1].astype(wide), layout, attributes)
    result = tensor(wanted.shape, types[2])
    operands = [tensor(lhs, types[0]), tensor(rhs, types[1])]
    code = emit_convolution(instruction("stablehlo.convolution", operands, result, attributes), host_target(), "conv")
    found = run_kernel(code, inputs, result)
    assert run_kernel(code, inputs, result, single_tasks=True).tobytes() == found.tobytes()
    if types[2] == "i1":
        np.testing.assert_array_equal(found, wanted > 0)
    elif exact:
        np.testing.assert_array_equal(found, wanted.astype(found.dtype))
    else:
        scale = reference(np.abs(inputs[0].astype(wide)), np.abs(inputs[1].astype(wide)), layout, attributes)
        chain = 2.0**-52 if types[2] in ("f64", "complex<f64>") else 2.0**-23
        mantissa = getattr(element_type(types[2]), "mantissa_bits", 30)
        bound = chain * 8 * np.abs(scale) + 2.0 ** -(mantissa + 1) * np.abs(wanted) * 1.01 + 1e-7 * (mantissa < 20)
        assert (np.abs(found.astype(wide) - wanted) <= bound).all()


NHWC = ("NHWC", "HWIO", "NHWC")
LAYOUTS = [
    NHWC,
    ("NCHW", "OIHW", "NCHW"),
    ("NHWC", "OHWI", "NCHW"),
    ("CHWN", "IHWO", "HWNC"),
    ("NHWC", "OIHW", "NHWC"),
    ("NCHW", "HWIO", "NHWC"),
]
LETTERS = {"N": 2, "H": 9, "W": 11, "C": 6, "I": 6, "O": 10}
WINDOW = {"H": 3, "W": 3, "I": 6, "O": 10}
CONFIGURATIONS: list[dict[str, Any]] = [
    {},
    {"padding": ((1, 1), (1, 1))},
    {"window_strides": (2, 2), "padding": ((1, 1), (0, 1))},
    {"padding": ((2, 0), (0, 3)), "rhs_dilation": (2, 1)},
    {"lhs_dilation": (2, 3), "padding": ((1, 2), (2, 1))},
    {"lhs_dilation": (2, 2), "padding": ((-1, 2), (-2, -1)), "window_strides": (1, 2)},
    {"padding": ((-1, -1), (-2, 1)), "window_reversal": (True, False)},
    {"window_reversal": (True, True), "window_strides": (3, 1)},
    {"padding": ((9, 9), (14, 0))},
]


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_convolution_layouts_and_windows(instruction, run_kernel, layout, configuration) -> None:
    lhs, rhs = [LETTERS[c] for c in layout[0]], [WINDOW[c] for c in layout[1]]
    check(instruction, run_kernel, layout, lhs, rhs, **configuration)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_window_of_one(instruction, run_kernel, layout, stride) -> None:
    lhs = [LETTERS[c] for c in layout[0]]
    rhs = [{"H": 1, "W": 1, "I": 6, "O": 50}[c] for c in layout[1]]
    check(instruction, run_kernel, layout, lhs, rhs, window_strides=(stride, stride))
    lhs[layout[0].index("N")] = 1
    check(instruction, run_kernel, layout, lhs, rhs, window_strides=(stride, stride))


@pytest.mark.parametrize("layout", LAYOUTS[:3], ids=str)
@pytest.mark.parametrize(
    ("groups", "channels", "features"), [(2, 6, 10), (6, 6, 6), (6, 6, 12), (3, 12, 36), (40, 40, 40)]
)
def test_convolution_feature_groups(instruction, run_kernel, layout, groups, channels, features) -> None:
    lhs = [{**LETTERS, "C": channels}[c] for c in layout[0]]
    rhs = [{**WINDOW, "I": channels // groups, "O": features}[c] for c in layout[1]]
    for configuration in ({}, {"padding": ((1, 1), (1, 1)), "window_strides": (2, 1)}):
        check(instruction, run_kernel, layout, lhs, rhs, feature_group_count=groups, **configuration)


DEPTHWISE: list[dict[str, Any]] = [
    {},
    {"padding": ((1, 1), (1, 1))},
    {"padding": ((3, 1), (2, 5)), "window_strides": (2, 2)},
    {"padding": ((-1, 1), (4, -2)), "rhs_dilation": (2, 3), "window_reversal": (True, True)},
    {"padding": ((12, 12), (13, 13)), "window_reversal": (False, True)},
    {"padding": ((1, 1), (1, 1)), "lhs_dilation": (2, 2)},
]


@pytest.mark.parametrize("types", [("f32", "f32", "f32"), ("bf16", "bf16", "bf16"), ("f64", "f64", "f64")], ids=str)
@pytest.mark.parametrize("configuration", DEPTHWISE, ids=str)
def test_convolution_depthwise(instruction, run_kernel, configuration, types) -> None:
    for channels, width in ((16, 25), (37, 11), (3, 7)):
        lhs, rhs = (2, 9, width, channels), (3, 3, 1, channels)
        check(instruction, run_kernel, NHWC, lhs, rhs, types, feature_group_count=channels, **configuration)
    layout = ("NWC", "WIO", "NWC")
    check(instruction, run_kernel, layout, (2, 20, 17), (5, 1, 17), types, feature_group_count=17, padding=((4, 0),))


@pytest.mark.parametrize("layout", LAYOUTS[:3], ids=str)
def test_convolution_batch_groups(instruction, run_kernel, layout) -> None:
    lhs = [{**LETTERS, "N": 6}[c] for c in layout[0]]
    rhs = [{**WINDOW, "O": 9}[c] for c in layout[1]]
    check(instruction, run_kernel, layout, lhs, rhs, batch_group_count=3, padding=((1, 1), (1, 1)))
    lhs = [{**LETTERS, "N": 6, "C": 1}[c] for c in layout[0]]
    rhs = [{**WINDOW, "O": 6, "I": 1}[c] for c in layout[1]]
    check(instruction, run_kernel, layout, lhs, rhs, batch_group_count=6)


@pytest.mark.parametrize(
    ("layout", "lhs", "rhs", "configuration"),
    [
        (("NC", "IO", "NC"), (5, 7), (7, 20), {}),
        (("NWC", "WIO", "NWC"), (2, 30, 5), (4, 5, 7), {"padding": ((3, 0),)}),
        (("NCW", "OIW", "NCW"), (2, 5, 40), (7, 5, 4), {"padding": ((3, 0),)}),
        (("NDHWC", "DHWIO", "NDHWC"), (2, 5, 6, 7, 3), (2, 3, 2, 3, 8), {"padding": ((1, 0), (1, 1), (0, 1))}),
        (("NCDHW", "OIDHW", "NCDHW"), (2, 3, 5, 6, 17), (8, 3, 2, 3, 2), {"window_strides": (1, 2, 1)}),
        (NHWC, (1, 8, 8, 600), (3, 3, 600, 50), {"padding": ((1, 1), (1, 1))}),
        (("NCHW", "OIHW", "NCHW"), (1, 300, 6, 20), (30, 300, 3, 3), {"padding": ((1, 1), (1, 1))}),
        (NHWC, (1, 30, 28, 3), (7, 7, 3, 64), {"padding": ((3, 3), (3, 3)), "window_strides": (2, 2)}),
        (NHWC, (0, 5, 5, 3), (3, 3, 3, 4), {}),
        (NHWC, (2, 5, 5, 0), (3, 3, 0, 4), {}),
        (NHWC, (2, 5, 5, 3), (3, 3, 3, 0), {}),
        (NHWC, (1, 1, 1, 3), (1, 1, 3, 4), {"padding": ((2, 1), (0, 3))}),
    ],
    ids=str,
)
def test_convolution_ranks_and_sizes(instruction, run_kernel, layout, lhs, rhs, configuration) -> None:
    check(instruction, run_kernel, layout, lhs, rhs, **configuration)
    check(instruction, run_kernel, layout, lhs, rhs, ("bf16", "bf16", "bf16"), **configuration)


TYPES = [
    ("f64", "f64", "f64"),
    ("f16", "f16", "f16"),
    ("bf16", "bf16", "f32"),
    ("i8", "i8", "i32"),
    ("i8", "i8", "i8"),
    ("ui8", "ui8", "ui32"),
    ("i32", "i32", "i32"),
    ("i64", "i64", "i64"),
    ("i1", "i1", "i1"),
    ("i16", "i16", "i64"),
]


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("layout", [NHWC, ("NCHW", "OIHW", "NCHW")], ids=str)
def test_convolution_element_types(instruction, run_kernel, layout, types) -> None:
    lhs, rhs = [LETTERS[c] for c in layout[0]], [WINDOW[c] for c in layout[1]]
    check(instruction, run_kernel, layout, lhs, rhs, types, padding=((1, 1), (1, 0)))
    lhs, rhs = [{**LETTERS, "C": 20}[c] for c in layout[0]], [{**WINDOW, "I": 1, "O": 20}[c] for c in layout[1]]
    check(instruction, run_kernel, layout, lhs, rhs, types, padding=((1, 1), (1, 0)), feature_group_count=20)


@pytest.mark.parametrize("element", ["complex<f32>", "complex<f64>"])
@pytest.mark.parametrize("layout", LAYOUTS[:4], ids=str)
def test_convolution_complex(instruction, run_kernel, layout, element) -> None:
    lhs, rhs = [{**LETTERS, "N": 4}[c] for c in layout[0]], [WINDOW[c] for c in layout[1]]
    types = (element, element, element)
    check(instruction, run_kernel, layout, lhs, rhs, types, padding=((1, 1), (1, 0)), window_strides=(1, 2))
    check(instruction, run_kernel, layout, lhs, rhs, types, batch_group_count=2, window_reversal=(True, False))
    rhs = [{**WINDOW, "I": 3}[c] for c in layout[1]]
    check(instruction, run_kernel, layout, lhs, rhs, types, feature_group_count=2)


@pytest.mark.parametrize(
    ("target", "register", "multiply"),
    [(X86_64_V4, "%zmm", "vfmadd"), (X86_64_V3, "%ymm", "vfmadd"), (X86_64_V2, "%xmm", "mulp"), (AARCH64, "v", "fmla")],
)
@pytest.mark.parametrize("layout", [NHWC, ("NCHW", "OIHW", "NCHW")], ids=str)
def test_convolution_assembly_uses_widest_registers_without_spills(
    instruction, layout, target, register, multiply
) -> None:
    shape = {"N": 1, "H": 32, "W": 48, "C": 48}
    operands = [
        tensor([shape[c] for c in layout[0]], "f32"),
        tensor([{"H": 3, "W": 3, "I": 48, "O": 48}[c] for c in layout[1]], "f32"),
    ]
    result = tensor([shape[c] for c in layout[2]], "f32")
    attributes = {"dimension_numbers": numbers(*layout), "padding": ((1, 1), (1, 1))}
    code = emit_convolution(instruction("stablehlo.convolution", operands, result, attributes), target, "conv")
    lines = compile_to_assembly(code.ir, target).splitlines()
    tiles = [index for index, line in enumerate(lines) if line.startswith("conv.p") and ".tile:" in line]
    assert tiles
    for start in tiles:
        body = lines[start : next(i for i in range(start, len(lines)) if ".Lfunc_end" in lines[i])]
        products = [line for line in body if multiply in line]
        assert len(products) >= 8
        assert all(register in line for line in products)
        assert not [line for line in body if "call" in line or "\tbl\t" in line]
        stack = ("(%rsp", "(%rbp") if target.is_x86 else ("[sp",)
        first, last = body.index(products[0]), len(body) - body[::-1].index(products[-1])
        assert not [line for line in body[first:last] if any(word in line for word in stack)]
