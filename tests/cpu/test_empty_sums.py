"""Products and convolutions whose sums have no terms: zeros, whatever the plan, and nothing is read.

Operands have no elements and end where a page begins that may not be read; results begin with other bits than zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hlojit.cpu.kernels.convolution_forms import emit_convolution
from hlojit.cpu.kernels.dot_forms import emit_dot_general
from hlojit.cpu.processor import host_target
from hlojit.ir.attributes import DotDimensionNumbers
from hlojit.ir.graph import Instruction
from hlojit.ir.types import TensorType, tensor
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import X86_64_V2, X86_64_V3, Target

from .test_blocking import MODELS
from .test_convolution import NHWC, numbers
from .test_dot import MATMUL, Numbers, result_type

TYPES = [
    ("f32", "f32", "f32"),
    ("f64", "f64", "f64"),
    ("bf16", "bf16", "bf16"),
    ("bf16", "bf16", "f32"),
    ("i8", "i8", "i32"),
    ("i32", "i32", "i32"),
    ("ui64", "ui64", "ui64"),
    ("i1", "i1", "i1"),
    ("complex<f32>", "complex<f32>", "complex<f32>"),
]
TARGETS = [replace(host_target(), machine=model) for model in MODELS.values()]
if host_target().is_x86:
    TARGETS += [X86_64_V2, X86_64_V3]

PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...], Numbers]] = [
    ((3, 0), (0, 5), MATMUL),
    ((64, 0), (0, 1024), MATMUL),
    ((1, 0), (0, 1), MATMUL),
    ((0, 300), (0, 70), ((), (), (0,), (0,))),
    ((33, 0), (130, 0), ((), (), (1,), (1,))),
    ((2, 24, 0), (2, 0, 40), ((0,), (0,), (2,), (1,))),
    ((24, 2, 0), (2, 0, 40), ((1,), (0,), (2,), (1,))),
    ((5, 3, 0), (3, 0, 7), ((), (), (1, 2), (0, 1))),
    ((5, 0, 40000), (40000, 0, 7), ((), (), (1, 2), (1, 0))),
]
CONVOLUTIONS: list[tuple[tuple[str, str, str], tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    (NHWC, (2, 9, 11, 0), (3, 3, 0, 10), (2, 7, 9, 10), {}),
    (NHWC, (2, 9, 11, 0), (3, 3, 0, 10), (2, 9, 11, 10), {"padding": ((1, 1), (1, 1))}),
    (NHWC, (1, 40, 40, 0), (1, 1, 0, 70), (1, 40, 40, 70), {}),
    (("NCHW", "OIHW", "NCHW"), (2, 0, 9, 33), (10, 0, 3, 3), (2, 10, 7, 31), {}),
    (("NHWC", "OHWI", "NCHW"), (2, 9, 11, 0), (10, 3, 3, 0), (2, 10, 4, 5), {"window_strides": (2, 2)}),
    (("NWC", "WIO", "NWC"), (2, 5, 0), (3, 0, 4), (2, 5, 4), {"padding": ((1, 1),)}),
    (("NWC", "WIO", "NWC"), (2, 5, 3), (0, 3, 4), (2, 6, 4), {}),
    (("NC", "IO", "NC"), (3, 0), (0, 7), (3, 7), {}),
    (NHWC, (2, 9, 11, 0), (3, 3, 0, 12), (2, 7, 9, 12), {"feature_group_count": 4}),
    (NHWC, (2, 9, 11, 0), (3, 3, 0, 12), (1, 7, 9, 12), {"batch_group_count": 2}),
    (NHWC, (2, 9, 11, 8), (3, 0, 1, 8), (2, 7, 12, 8), {"feature_group_count": 8}),
]


def check_zeros(
    emit: Callable[[Instruction, Target, str], KernelCode],
    made: Instruction,
    result: TensorType,
    run_kernel: Callable[..., Any],
) -> None:
    """The code for every target writes zeros of positive sign."""
    inputs = [np.ones(operand.tensor_type.shape, operand.tensor_type.element_type.storage) for operand in made.operands]
    zeros = np.zeros(result.shape, result.element_type.storage).tobytes()
    for target in TARGETS:
        code = emit(made, target, "kernel")
        for single in (False, True):
            assert run_kernel(code, inputs, result, single_tasks=single, target=target).tobytes() == zeros


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize(("lhs", "rhs", "dimensions"), PRODUCTS, ids=str)
def test_a_product_without_terms_is_zero(
    instruction: Callable[..., Instruction],
    run_kernel: Callable[..., Any],
    lhs: Sequence[int],
    rhs: Sequence[int],
    dimensions: Numbers,
    types: tuple[str, str, str],
) -> None:
    operands = [tensor(lhs, types[0]), tensor(rhs, types[1])]
    result = result_type(*operands, dimensions, types[2])
    attributes = {"dot_dimension_numbers": DotDimensionNumbers(*map(tuple, dimensions))}
    made = instruction("stablehlo.dot_general", operands, result, attributes)
    check_zeros(emit_dot_general, made, result, run_kernel)


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize(("layout", "lhs", "rhs", "out", "attributes"), CONVOLUTIONS, ids=str)
def test_a_convolution_without_terms_is_zero(
    instruction: Callable[..., Instruction],
    run_kernel: Callable[..., Any],
    layout: tuple[str, str, str],
    lhs: Sequence[int],
    rhs: Sequence[int],
    out: Sequence[int],
    attributes: dict[str, Any],
    types: tuple[str, str, str],
) -> None:
    operands, result = [tensor(lhs, types[0]), tensor(rhs, types[1])], tensor(out, types[2])
    attributes = {**attributes, "dimension_numbers": numbers(*layout)}
    made = instruction("stablehlo.convolution", operands, result, attributes)
    check_zeros(emit_convolution, made, result, run_kernel)
