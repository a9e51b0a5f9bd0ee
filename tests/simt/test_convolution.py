"""convolution on machines with threads, through the simulator, against a direct sum over taps in NumPy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hlojit.cuda.assemblers.choice import assembler
from hlojit.cuda.nvptx import H200, SM_90, NvptxDialect
from hlojit.ir.graph import Block, Instruction
from hlojit.ir.ops import BUILT_IN
from hlojit.ir.types import tensor
from hlojit.lowering.convolution_problem import canonical_convolution
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.grid_product import GridProduct, convolution_product
from hlojit.simt.kernels import emit_kernel
from hlojit.simt.simulator.dialect import SimulatorDialect
from hlojit.simt.simulator.module import simulated_target

from ..convolutions import Layout, compare, expected, numbers, random_array
from .simulated import run_code

NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
LAYOUTS = [NHWC, NCHW, ("NHWC", "OHWI", "NCHW"), ("CHWN", "IHWO", "HWNC"), ("NCHW", "HWIO", "NHWC")]
LETTERS = {"N": 2, "H": 9, "W": 11, "C": 6, "I": 6, "O": 10}
WINDOW = {"H": 3, "W": 3, "I": 6, "O": 10}
SMALL = GridMachine(1)
"""One multiprocessor: even small products take the largest tiles."""


def instruction_of(
    lhs: Sequence[int], rhs: Sequence[int], result: Sequence[int], types: Sequence[str], attributes: dict[str, Any]
) -> Instruction:
    operands = Block([tensor(shape, element) for shape, element in zip((lhs, rhs), types)]).arguments
    return Instruction(BUILT_IN["stablehlo.convolution"], operands, [tensor(result, types[2])], attributes)


def check(
    layout: Layout,
    lhs: Sequence[int],
    rhs: Sequence[int],
    types: Sequence[str] = ("f32", "f32", "f32"),
    machine: GridMachine = H200,
    **attributes: Any,
) -> None:
    attributes["dimension_numbers"] = numbers(*layout)
    inputs = [random_array(shape, element, seed) for seed, (shape, element) in enumerate(zip((lhs, rhs), types))]
    wanted, scale = expected(inputs, types[2], layout, attributes)
    instruction = instruction_of(lhs, rhs, wanted.shape, types, attributes)
    code = emit_kernel(instruction, simulated_target(machine), SimulatorDialect(), "kernel")
    (found,) = run_code(code, inputs, [instruction.result.tensor_type])
    compare(found, wanted, scale, types[2])


def shapes(layout: Layout, **sizes: int) -> tuple[list[int], list[int]]:
    """Of image and kernel; ``sizes`` by letter, those of the window as ``kh`` and ``kw``."""
    window = WINDOW | {"H": sizes.pop("kh", 3), "W": sizes.pop("kw", 3)}
    return [(LETTERS | sizes)[c] for c in layout[0]], [
        (window | sizes)[c] if c in "IO" else window[c] for c in layout[1]
    ]


CONFIGURATIONS: list[dict[str, Any]] = [
    {},
    {"window_strides": (2, 2), "padding": ((1, 1), (0, 1))},
    {"padding": ((2, 0), (0, 3)), "rhs_dilation": (2, 1)},
    {"lhs_dilation": (2, 3), "padding": ((1, 2), (2, 1))},
    {"lhs_dilation": (2, 2), "padding": ((-1, 2), (-2, -1)), "window_strides": (1, 2)},
    {"padding": ((-1, -1), (-2, 1)), "window_reversal": (True, False)},
    {"padding": ((9, 9), (14, 0)), "window_reversal": (True, True)},
]


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_windows(layout: Layout, configuration: dict[str, Any]) -> None:
    check(layout, *shapes(layout), **configuration)


@pytest.mark.parametrize("layout", [NHWC, NCHW], ids=str)
def test_large_tiles(layout: Layout) -> None:
    check(layout, *shapes(layout, C=32, I=32, O=136), machine=SMALL, padding=((1, 1), (1, 1)))


@pytest.mark.parametrize("layout", LAYOUTS[:3], ids=str)
@pytest.mark.parametrize("stride", [1, 2])
def test_a_window_of_one(layout: Layout, stride: int) -> None:
    check(layout, *shapes(layout, kh=1, kw=1, O=50), window_strides=(stride, stride))


@pytest.mark.parametrize("layout", LAYOUTS[:3], ids=str)
@pytest.mark.parametrize(("groups", "channels", "features"), [(2, 6, 10), (6, 6, 12), (40, 40, 40)])
def test_feature_groups(layout: Layout, groups: int, channels: int, features: int) -> None:
    lhs, rhs = shapes(layout, C=channels, I=channels // groups, O=features)
    check(layout, lhs, rhs, feature_group_count=groups, padding=((1, 1), (1, 1)), window_strides=(2, 1))


@pytest.mark.parametrize("layout", LAYOUTS[:3], ids=str)
def test_batch_groups(layout: Layout) -> None:
    check(layout, *shapes(layout, N=6, O=9), batch_group_count=3, padding=((1, 1), (1, 1)))


@pytest.mark.parametrize(
    ("layout", "lhs", "rhs", "configuration"),
    [
        (("NC", "IO", "NC"), (5, 7), (7, 20), {}),
        (("NWC", "WIO", "NWC"), (2, 30, 5), (4, 5, 7), {"padding": ((3, 0),)}),
        (("NDHWC", "DHWIO", "NDHWC"), (2, 5, 6, 7, 3), (2, 3, 2, 3, 8), {"padding": ((1, 0), (1, 1), (0, 1))}),
        (("NCDHW", "OIDHW", "NCDHW"), (2, 3, 5, 6, 17), (8, 3, 2, 3, 2), {"window_strides": (1, 2, 1)}),
        (NHWC, (1, 4, 4, 300), (3, 3, 300, 8), {"padding": ((1, 1), (1, 1))}),
        (NHWC, (0, 5, 5, 3), (3, 3, 3, 4), {}),
        (NHWC, (2, 5, 5, 0), (3, 3, 0, 4), {}),
        (NHWC, (2, 5, 5, 3), (3, 3, 3, 0), {}),
        (NHWC, (1, 1, 1, 3), (1, 1, 3, 4), {"padding": ((2, 1), (0, 3))}),
        (NCHW, (1, 1, 1, 1), (1, 1, 1, 1), {}),
    ],
    ids=str,
)
def test_ranks_and_sizes(layout: Layout, lhs: Sequence[int], rhs: Sequence[int], configuration: dict[str, Any]) -> None:
    check(layout, lhs, rhs, **configuration)


TYPES = [
    *((element,) * 3 for element in ("f64", "f16", "i8", "i64", "i1", "complex<f32>", "complex<f64>")),
    *(("bf16", "bf16", "f32"), ("i8", "i8", "i32"), ("i16", "i16", "i64"), ("f8E4M3FN", "f8E4M3FN", "f32")),
]


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("layout", [NHWC, NCHW], ids=str)
def test_element_types(layout: Layout, types: Sequence[str]) -> None:
    check(layout, *shapes(layout), types, padding=((1, 1), (1, 0)), window_strides=(1, 2))


def product(
    layout: Layout, lhs: Sequence[int], rhs: Sequence[int], result: Sequence[int], **attributes: Any
) -> GridProduct:
    types = [tensor(shape, "f32") for shape in (lhs, rhs, result)]
    attributes["dimension_numbers"] = numbers(*layout)
    return convolution_product(canonical_convolution(types[0], types[1], types[2], attributes))


def test_plan_windows_that_stay_inside_are_strides() -> None:
    inside = product(NHWC, (8, 32, 32, 64), (3, 3, 64, 128), (8, 30, 30, 128))
    assert not inside.lhs.windows and inside.lhs.lanes(along_terms=True, most=4) == 4
    padded = product(NHWC, (8, 32, 32, 64), (3, 3, 64, 128), (8, 32, 32, 128), padding=((1, 1), (1, 1)))
    assert len(padded.lhs.windows) == 2 and padded.lhs.lanes(along_terms=True, most=4) == 4
    assert (padded.m, padded.n, padded.k) == (8 * 32 * 32, 128, 9 * 64)


def test_plan_neighbours_in_the_result_are_columns() -> None:
    positions = product(NCHW, (8, 64, 32, 32), (128, 64, 3, 3), (8, 128, 32, 32), padding=((1, 1), (1, 1)))
    assert (positions.m, positions.n) == (128, 8 * 32 * 32) and positions.result_lanes(4) == 4


def test_plan_a_window_of_one_is_a_plain_product() -> None:
    plain = product(NHWC, (8, 32, 32, 64), (1, 1, 64, 128), (8, 32, 32, 128))
    assert not plain.lhs.windows and len(plain.lhs.free) == 1 and len(plain.lhs.terms) == 1


@pytest.mark.parametrize("layout", [NHWC, NCHW], ids=str)
@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_ptx(layout: Layout, element: str) -> None:
    sizes = {"N": 8, "H": 32, "W": 32, "C": 64}
    lhs, result = ([sizes[c] for c in letters] for letters in (layout[0], layout[2]))
    rhs = [{"H": 3, "W": 3, "I": 64, "O": 64}[c] for c in layout[1]]
    attributes = {"dimension_numbers": numbers(*layout), "padding": ((1, 1), (1, 1))}
    instruction = instruction_of(lhs, rhs, result, (element,) * 3, attributes)
    ptx = assembler("llvm").ptx(emit_kernel(instruction, SM_90, NvptxDialect(), "kernel"), SM_90)
    assert not re.search(r"\bcall\b", ptx) and ".local" not in ptx and not re.search(r"\b(div|rem)\.", ptx)
    assert re.search(r"ld\.shared\.v4\.b32" if element == "f32" else "mma.sync.*m16n8k16.*bf16", ptx)
    if layout is NHWC:
        assert not re.search(r"ld\.global\.(nc\.)?b(16|32)\b", ptx), "channels are read together"
