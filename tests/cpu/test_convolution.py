"""``convolution`` kernels against a direct sum over taps in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hlojit.cpu.kernels.convolution_forms import emit_convolution
from hlojit.cpu.processor import host_target
from hlojit.ir.graph import Instruction
from hlojit.ir.types import tensor
from hlojit.lowering.target import AARCH64, X86_64_V2, X86_64_V3, X86_64_V4
from hlojit.machine_code.object_code import compile_to_assembly

from ..convolutions import Array, compare, expected, numbers, random_array


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
    wanted, scale = expected(inputs, types[2], layout, attributes)
    result = tensor(wanted.shape, types[2])
    operands = [tensor(lhs, types[0]), tensor(rhs, types[1])]
    code = emit_convolution(instruction("stablehlo.convolution", operands, result, attributes), host_target(), "conv")
    found = run_kernel(code, inputs, result)
    assert run_kernel(code, inputs, result, single_tasks=True).tobytes() == found.tobytes()
    compare(found, wanted, scale, types[2])


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
