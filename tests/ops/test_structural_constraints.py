"""Every constraint that the specification states of structural ops has a call that breaks it.

A row is op, label, how the correct call is changed, and text of the fault that the verifier must report.
"""

from __future__ import annotations

import pytest
from hlojit.ir.attributes import ChannelHandle
from hlojit.ir.builder import Builder
from hlojit.ir.errors import TypeInferenceError
from hlojit.ir.graph import Block, Function, Module
from hlojit.ir.ops.definition import InferenceRequest, op
from hlojit.ir.types import opaque_type
from hlojit.ir.verifier import collect_faults

from .calls import CALLS, Call, Constant, combiner, comparator, quantized, region, shaped

LABELS = {
    "after_all": 0, "all_gather": 6, "all_reduce": 7, "all_to_all": 9, "async_done": 1, "async_start": 4,
    "batch_norm_grad": 5, "batch_norm_inference": 7, "batch_norm_training": 7, "case": 4, "cholesky": 3,
    "collective_broadcast": 6, "collective_permute": 5, "collective_reduce": 4, "composite": 4, "convolution": 34,
    "custom_call": 0, "dot_general": 24, "dynamic_broadcast_in_dim": 10, "dynamic_conv": 34, "dynamic_gather": 14,
    "dynamic_iota": 2, "dynamic_pad": 4, "dynamic_reshape": 4, "dynamic_update_slice": 6, "fft": 5, "gather": 23,
    "get_tuple_element": 2, "if": 3, "infeed": 3, "map": 4, "optimization_barrier": 1, "outfeed": 0,
    "partition_id": 0, "recv": 5, "reduce": 8, "reduce_scatter": 9, "reduce_window": 16, "replica_id": 0, "rng": 3,
    "rng_bit_generator": 2, "scatter": 25, "select_and_scatter": 12, "send": 5, "sort": 5, "triangular_solve": 4,
    "tuple": 1, "uniform_dequantize": 2, "uniform_quantize": 2, "while": 3,
}  # fmt: skip
"""Number of constraints (C1, C2, ...) of each op in the specification."""

ELSEWHERE = {
    "async_done": {"C1"},
    "async_start": {"C1", "C2", "C3", "C4"},
    "composite": {"C1", "C2", "C3", "C4"},
}
"""Constraints with tests of their own below."""

NOT_CHECKED = {
    # A value at run time.
    "collective_broadcast": {"C6"},
    # Parameters of types quantized per axis, which no back end computes with.
    "dynamic_broadcast_in_dim": {"C6"},
    "dynamic_reshape": {"C3"},
    # How many replicas and partitions there are is known when a program is compiled; the ids are checked as a range.
}

Q, Q16, QF16, QZERO = quantized(), quantized("i16"), quantized(expressed="f16"), quantized(zero=3)

CONVOLUTIONS = [
    ("C1", {"at": {1: "3x2x2xf32"}}, "one rank"),
    ("C2", {"window_strides": (2,)}, "window_strides has 1 element, expected 2"),
    ("C3", {"window_strides": (2, 0)}, "window_strides (2, 0) must be positive"),
    ("C5", {"lhs_dilation": (1,)}, "lhs_dilation has 1 element, expected 2"),
    ("C6", {"lhs_dilation": (0, 1)}, "lhs_dilation (0, 1) must be positive"),
    ("C7", {"rhs_dilation": (1, 1, 1)}, "rhs_dilation has 3 elements, expected 2"),
    ("C8", {"rhs_dilation": (1, -1)}, "rhs_dilation (1, -1) must be positive"),
    ("C9", {"window_reversal": (True,)}, "window_reversal has 1 element, expected 2"),
    ("C10", {"batch_group_count": 3, "feature_group_count": 1}, "the batch of lhs has size 2"),
    ("C11", {"feature_group_count": 3}, "the feature dimension of lhs has size 4"),
    ("C12", {"input_spatial": (1,)}, "input_spatial_dimensions has 1 element, expected 2"),
    ("C13", {"input_batch": 1}, "input dimensions (1, 1, 2, 3) repeats a value"),
    ("C13", {"input_batch": 4}, "input dimensions (4, 1, 2, 3) must lie in [0, 4)"),
    ("C14", {"at": {1: "3x2x4x6xf32"}}, "the kernel's input features are 4, expected 4 / 2 = 2"),
    ("C15", {"at": {1: "3x2x4x5xf32"}, "feature_group_count": 1, "batch_group_count": 2}, "rhs has size 5"),
    ("C16", {"at": {1: "3x2x2x5xf32"}}, "rhs has size 5, which is not divisible by feature_group_count 2"),
    ("C17", {"kernel_spatial": (0,)}, "kernel_spatial_dimensions has 1 element, expected 2"),
    ("C18", {"kernel_input_feature": 3}, "kernel dimensions (0, 1, 3, 3) repeats a value"),
    ("C19", {"output_spatial": (1, 2, 0)}, "output_spatial_dimensions has 3 elements, expected 2"),
    ("C20", {"output_feature": -1}, "output dimensions (0, 1, 2, -1) must lie in [0, 4)"),
    ("C21", {"feature_group_count": 0}, "feature_group_count (0,) must be positive"),
    ("C22", {"batch_group_count": 0}, "batch_group_count (0,) must be positive"),
    ("C23", {"batch_group_count": 2}, "feature_group_count 2 and batch_group_count 2: one must be 1"),
    ("C24", {"precision_config": ("DEFAULT",) * 3}, "precision_config has 3 elements, expected 2"),
    ("C26", {"results": ["2x5x9xf32"]}, "expected rank 4"),
    ("C27", {"at": {1: "3x2x2x6xi32"}}, "different element types"),
    ("C28", {"at": {0: ("2x8x9x4", Q), 1: ("3x2x2x6", Q)}}, "must both be quantized or both not"),
    ("C29", {"at": {0: ("2x8x9x4", Q), 1: ("3x2x2x6", quantized(axis=2))}}, "quantized along dimension 2"),
    ("C31", {"at": {0: ("2x8x9x4", Q), 1: ("3x2x2x6", Q16)}}, "storage types of lhs and rhs differ: i8 and i16"),
    ("C34", {"at": {1: ("3x2x2x6", QF16)}}, "expressed type f16 of rhs"),
]

STATIC_CONVOLUTIONS = [
    ("C4", {"padding": ((0, 0),)}, "padding has shape (1, 2), expected (2, 2)"),
    ("C25", {"results": ["2x5x8x6xf32"]}, "expected shape (2, 5, 9, 6)"),
    ("C30", {"at": {0: ("2x8x9x4", Q), 1: ("3x2x2x6", Q)}, "results": [("2x5x9x6", quantized(axis=1))]}, "dimension 1"),
    ("C32", {"at": {0: ("2x8x9x4", Q), 1: ("3x2x2x6", QF16)}, "results": [("2x5x9x6", Q)]}, "expressed types differ"),
    ("C33", {"at": {0: ("2x8x9x4", Q), 1: ("3x2x2x6", Q)}, "results": [("2x5x9x6", quantized(axis=3))]}, "per tensor"),
]

DYNAMIC_CONVOLUTIONS = [
    ("C4", {"at": {2: "2x3xi64"}}, "padding has type tensor<2x3xi64>"),
    ("C25", {"results": ["2x?x?x7xf32"]}, "expected shape (2, -1, -1, 6)"),
    ("C30", {"at": {0: ("2x8x9x4", Q), 1: ("3x2x2x6", Q)}, "results": [("2x5x9x6", quantized(axis=1))]}, "dimension 1"),
    ("C32", {"at": {0: ("2x8x9x4", Q), 1: ("3x2x2x6", QF16)}, "results": [("2x5x9x6", Q)]}, "expressed types differ"),
    ("C33", {"at": {0: ("2x8x9x4", Q), 1: ("3x2x2x6", Q)}, "results": [("2x5x9x6", quantized(axis=3))]}, "per tensor"),
]

BAD_GROUPS = {"replica_groups": ((0, 0),)}
GAP_GROUPS = {"replica_groups": ((0, 2),)}


def pair_rows(name: str) -> list[tuple[str, str, dict, str]]:
    return [
        (name, "C1", {"source_target_pairs": ((0, 1, 2),)}, "must have 2 columns"),
        (name, "C2", {"source_target_pairs": ((0, 1), (0, 2))}, "sources (0, 0) repeat"),
        (name, "C3", {"source_target_pairs": ((0, 1), (2, 1))}, "targets (1, 1) repeat"),
        (name, "C4", {"source_target_pairs": ((0, -1),)}, "must not be negative"),
    ]


def group_rows(name: str, distinct: str, *ranges: str) -> list[tuple[str, str, dict, str]]:
    return [(name, distinct, BAD_GROUPS, "repeat a process")] + [
        (name, label, GAP_GROUPS, "replica_groups (0, 2) must lie in [0, 2)") for label in ranges
    ]


ROWS: list[tuple[str, str, dict, str]] = [
    ("while", "C1", {"regions": [region(["f32", "2xi32"], ["i32"]), CALLS["while"].regions[1]]}, "cond has type"),
    ("while", "C2", {"regions": [CALLS["while"].regions[0], region(["f32", "2xi32"], ["f32"])]}, "body has type"),
    ("while", "C3", {"results": ["f32", "3xi32"]}, "expected (tensor<f32>, tensor<2xi32>)"),
    ("if", "I1", {"operands": ["i32"]}, "pred must be tensor<i1>, found tensor<i32>"),
    ("if", "C1", {"regions": [region(["f32"], ["2xf32"]), region([], ["2xf32"])]}, "branch 0 has arguments"),
    ("if", "C2", {"regions": [region([], ["2xf32"]), region([], ["3xf32"])]}, "branch 1 returns tensor<3xf32>"),
    ("if", "C3", {"results": ["3xf32"]}, "result types are tensor<3xf32>, expected tensor<2xf32>"),
    ("case", "I1", {"operands": ["i64"]}, "index must be tensor<i32>"),
    ("case", "C1", {"regions": []}, "at least one branch"),
    ("case", "C2", {"regions": [region(["f32"], ["2xf32"])]}, "branch 0 has arguments"),
    ("case", "C3", {"regions": [region([], ["2xf32"]), region([], ["2xi32"])]}, "branch 1 returns tensor<2xi32>"),
    ("case", "C4", {"results": ["2xi32"]}, "expected tensor<2xf32>"),
    ("tuple", "C1", {"results": [CALLS["tuple"].but(operands=["f32"]).operands[0]]}, "expected tuple<"),
    ("get_tuple_element", "C1", {"index": 2}, "index 2 is not within the 2 elements"),
    ("get_tuple_element", "C2", {"results": ["f32"]}, "expected tensor<i32>"),
    ("optimization_barrier", "C1", {"results": ["i32", "token"]}, "expected (tensor<f32>, !stablehlo.token)"),
    (
        "reduce",
        "C1",
        {"operands": ["2x3xf32", "2x4xf32", "f32", "f32"], "results": ["2xf32", "2xf32"]},
        "different shapes",
    ),
    ("reduce", "C2", {"at": {1: "i32"}}, "init value 0 has type tensor<i32>, expected tensor<f32>"),
    ("reduce", "C3", {"operands": ["2x3xf32"]}, "1 operands are not as many inputs as init values"),
    ("reduce", "C4", {"dimensions": (2,)}, "dimensions (2,) must lie in [0, 2)"),
    ("reduce", "C5", {"dimensions": (1, 1)}, "dimensions (1, 1) repeats a value"),
    ("reduce", "C6", {"regions": [combiner("i32")]}, "body has type (tensor<i32>, tensor<i32>) -> tensor<i32>"),
    ("reduce", "C7", {"results": ["3xf32"]}, "expected shape (2,)"),
    ("reduce", "C8", {"results": ["2xf64"]}, "expected tensor<2xf32>"),
    ("map", "C1", {"at": {1: "3x2xf32"}}, "inputs have different shapes"),
    ("map", "C2", {"operands": []}, "at least one input"),
    ("map", "C3", {"dimensions": (1, 0)}, "dimensions (1, 0) must be (0, 1)"),
    ("map", "C4", {"regions": [combiner("i32")]}, "computation takes"),
    ("sort", "C1", {"operands": [], "results": []}, "at least one input"),
    ("sort", "C2", {"results": ["2x3xf32", "2x3xf32"]}, "expected (tensor<2x3xf32>, tensor<2x3xi32>)"),
    ("sort", "C3", {"at": {1: "2x4xi32"}}, "different shapes"),
    ("sort", "C4", {"dimension": 2}, "dimension 2 must lie in [-2, 2)"),
    ("sort", "C5", {"regions": [comparator()]}, "comparator has type (tensor<f32>, tensor<f32>) -> tensor<i1>"),
    ("dot_general", "C1", {"lhs_batching": ()}, "lhs_batching_dimensions has 0 elements but"),
    ("dot_general", "C2", {"rhs_contracting": (1, 2)}, "lhs_contracting_dimensions has 1 elements but"),
    ("dot_general", "C3", {"lhs_contracting": (0,)}, "repeats a value"),
    ("dot_general", "C4", {"rhs_contracting": (0,)}, "repeats a value"),
    ("dot_general", "C5", {"lhs_batching": (3,)}, "lhs_batching_dimensions (3,) must lie in [0, 3), the rank of lhs"),
    ("dot_general", "C6", {"lhs_contracting": (-1,)}, "lhs_contracting_dimensions (-1,) must lie in [0, 3)"),
    ("dot_general", "C7", {"rhs_batching": (3,)}, "rhs_batching_dimensions (3,) must lie in [0, 3), the rank of rhs"),
    ("dot_general", "C8", {"rhs_contracting": (7,)}, "rhs_contracting_dimensions (7,) must lie in [0, 3)"),
    ("dot_general", "C9", {"at": {1: "3x4x5xf32"}}, "batching dimension 0 of lhs has size 2 but dimension 0 of rhs 3"),
    (
        "dot_general",
        "C10",
        {"at": {1: "2x3x5xf32"}},
        "contracting dimension 2 of lhs has size 4 but dimension 1 of rhs 3",
    ),
    ("dot_general", "C11", {"precision_config": ("HIGH",) * 3}, "precision_config has 3 elements, expected 2"),
    ("dot_general", "C12", {"results": ["2x5x3xf32"]}, "expected shape (2, 3, 5)"),
    ("dot_general", "C13", {"at": {1: "2x4x5xi32"}}, "lhs and rhs have different element types"),
    ("dot_general", "C14", {"at": {0: ("2x3x4", Q), 1: ("2x4x5", Q)}}, "must both be quantized or both not"),
    ("dot_general", "C15", {"at": {0: ("2x3x4", Q), 1: ("2x4x5", QZERO)}}, "zero points of rhs must be 0, found (3,)"),
    ("dot_general", "C16", {"at": {0: ("2x3x4", Q), 1: ("2x4x5", quantized(axis=1))}}, "dimension 1 of rhs must not"),
    ("dot_general", "C17", {"at": {0: ("2x3x4", Q), 1: ("2x4x5", Q16)}}, "storage types of lhs and rhs differ"),
    ("dot_general", "C18", {"at": {0: ("2x3x4", Q), 1: ("2x4x5", QF16)}, "results": [("2x3x5", Q)]}, "expressed types"),
    (
        "dot_general",
        "C19",
        {"at": {0: ("2x3x4", Q), 1: ("2x4x5", Q)}, "results": [("2x3x5", quantized(axis=2))]},
        "per tensor",
    ),
    ("dot_general", "C20", {"at": {1: ("2x4x5", QF16)}}, "lhs f32, expressed type f16 of rhs and result f32"),
    ("dot_general", "C21", {"precision_config": ("HIGH", "DEFAULT")}, "must be DEFAULT where an algorithm is given"),
    ("dot_general", "C22", {"lhs_component_count": 0}, "lhs_component_count (0,) must be positive"),
    ("dot_general", "C23", {"rhs_component_count": -1}, "rhs_component_count (-1,) must be positive"),
    ("dot_general", "C24", {"num_primitive_operations": 0}, "num_primitive_operations (0,) must be positive"),
    *[("convolution", *row) for row in (*CONVOLUTIONS, *STATIC_CONVOLUTIONS)],
    *[("dynamic_conv", *row) for row in (*CONVOLUTIONS, *DYNAMIC_CONVOLUTIONS)],
    ("gather", "I2", {"at": {1: "2x2x3x2xf32"}}, "start_indices must be integers"),
    ("gather", "C1", {"offset_dims": (3,)}, "are 3 together, expected the rank 4"),
    ("gather", "C2", {"index_vector_dim": 5}, "index_vector_dim 5 must lie in [0, 4]"),
    ("gather", "C3", {"start_index_map": (2,)}, "start_index_map has 1 element, expected 2"),
    ("gather", "C4", {"offset_dims": (4, 3)}, "offset_dims (4, 3) is not sorted"),
    ("gather", "C4", {"offset_dims": (3, 3)}, "offset_dims (3, 3) repeats a value"),
    ("gather", "C5", {"offset_dims": (3, 5)}, "offset_dims (3, 5) must lie in [0, 5)"),
    ("gather", "C6", {"collapsed_slice_dims": (0,)}, "collapsed_slice_dims + operand_batching_dims (0, 0) repeats"),
    (
        "gather",
        "C7",
        {"collapsed_slice_dims": (3, 1), "offset_dims": (3,)},
        "collapsed_slice_dims (3, 1) is not sorted",
    ),
    ("gather", "C8", {"collapsed_slice_dims": (4,)}, "collapsed_slice_dims (4,) must lie in [0, 4)"),
    ("gather", "C9", {"slice_sizes": (1, 2, 2, 2)}, "must be at most 1 at collapsed_slice_dims (1,)"),
    (
        "gather",
        "C10",
        {"operand_batching_dims": (3, 0), "offset_dims": (3,)},
        "operand_batching_dims (3, 0) is not sorted",
    ),
    ("gather", "C11", {"operand_batching_dims": (-1,)}, "operand_batching_dims (-1,) must lie in [0, 4)"),
    ("gather", "C12", {"slice_sizes": (2, 1, 2, 2)}, "must be at most 1 at operand_batching_dims (0,)"),
    ("gather", "C13", {"start_indices_batching_dims": (1, 1)}, "start_indices_batching_dims (1, 1) repeats"),
    ("gather", "C14", {"start_indices_batching_dims": (4,)}, "start_indices_batching_dims (4,) must lie in [0, 4)"),
    (
        "gather",
        "C15",
        {"start_indices_batching_dims": (3,)},
        "index_vector_dim 3 is one of start_indices_batching_dims",
    ),
    ("gather", "C16", {"start_indices_batching_dims": ()}, "operand_batching_dims has 1 elements but"),
    ("gather", "C17", {"at": {1: "2x5x3x2xi64"}}, "dimension 0 has size 2 but dimension 1 of the indices 5"),
    ("gather", "C18", {"start_index_map": (2, 0)}, "start_index_map + operand_batching_dims (2, 0, 0) repeats"),
    ("gather", "C19", {"start_index_map": (2, 4)}, "start_index_map (2, 4) must lie in [0, 4)"),
    ("gather", "C20", {"slice_sizes": (1, 1, 2)}, "slice_sizes has 3 elements, expected 4"),
    ("gather", "C21", {"slice_sizes": (1, 1, 2, 3)}, "slice_sizes (1, 1, 2, 3) must lie within the operand's shape"),
    ("gather", "C22", {"results": ["2x2x3x2x3xi32"]}, "expected shape (2, 2, 3, 2, 2)"),
    ("gather", "C23", {"results": ["2x2x3x2x2xi64"]}, "operand and result have different element types"),
    ("scatter", "I2", {"at": {1: "2x2x3x2xf32"}}, "scatter_indices must be integers"),
    (
        "scatter",
        "C1",
        {"operands": ["2x3x4x2xf32", "2x3x5x2xf32", "2x2x3x2xi64", *("2x2x3x2x2xf32",) * 2]},
        "inputs have",
    ),
    ("scatter", "C2", {"update_window_dims": (3,)}, "are 3 together, expected the rank 4"),
    (
        "scatter",
        "C3",
        {"operands": [*("2x3x4x2xf32",) * 2, "2x2x3x2xi64", "2x2x3x2x2xf32", "2x2x3x2x1xf32"]},
        "updates have",
    ),
    (
        "scatter",
        "C4",
        {"at": {2: "2x2x3x2x3xf32"}},
        "dimension 4 of updates tensor<2x2x3x2x3xf32> is larger than the 2",
    ),
    ("scatter", "C4", {"at": {2: "2x2x4x2x2xf32"}}, "dimension 2 of updates tensor<2x2x4x2x2xf32> must be 3"),
    ("scatter", "C5", {"operands": ["2x3x4x2xf32", "2x2x3x2xi64"]}, "as many inputs as updates"),
    ("scatter", "C6", {"at": {2: "2x2x3x2x2xi32"}}, "an input and its update have different element types"),
    ("scatter", "C7", {"update_window_dims": (4, 3)}, "update_window_dims (4, 3) is not sorted"),
    ("scatter", "C8", {"update_window_dims": (3, 5)}, "update_window_dims (3, 5) must lie in [0, 5)"),
    ("scatter", "C9", {"inserted_window_dims": (0,)}, "inserted_window_dims + input_batching_dims (0, 0) repeats"),
    ("scatter", "C10", {"inserted_window_dims": (3, 1)}, "inserted_window_dims (3, 1) is not sorted"),
    ("scatter", "C11", {"inserted_window_dims": (4,)}, "inserted_window_dims (4,) must lie in [0, 4)"),
    ("scatter", "C12", {"input_batching_dims": (3, 0)}, "input_batching_dims (3, 0) is not sorted"),
    ("scatter", "C13", {"input_batching_dims": (4,)}, "input_batching_dims (4,) must lie in [0, 4)"),
    ("scatter", "C14", {"scatter_indices_batching_dims": (1, 1)}, "scatter_indices_batching_dims (1, 1) repeats"),
    (
        "scatter",
        "C15",
        {"scatter_indices_batching_dims": (4,)},
        "scatter_indices_batching_dims (4,) must lie in [0, 4)",
    ),
    ("scatter", "C16", {"scatter_indices_batching_dims": (3,)}, "is one of scatter_indices_batching_dims"),
    ("scatter", "C17", {"scatter_indices_batching_dims": ()}, "input_batching_dims has 1 elements but"),
    ("scatter", "C18", {"at": {1: "2x5x3x2xi64"}}, "dimension 0 has size 2 but dimension 1 of the indices 5"),
    (
        "scatter",
        "C19",
        {"scatter_dims_to_operand_dims": (2,)},
        "scatter_dims_to_operand_dims has 1 element, expected 2",
    ),
    ("scatter", "C20", {"scatter_dims_to_operand_dims": (2, 0)}, "(2, 0, 0) repeats a value"),
    (
        "scatter",
        "C21",
        {"scatter_dims_to_operand_dims": (2, 4)},
        "scatter_dims_to_operand_dims (2, 4) must lie in [0, 4)",
    ),
    ("scatter", "C22", {"index_vector_dim": 5}, "index_vector_dim 5 must lie in [0, 4]"),
    ("scatter", "C23", {"regions": [combiner("i32")]}, "update_computation has type"),
    ("scatter", "C24", {"results": ["2x3x4x3xf32"]}, "inputs and results have different shapes"),
    ("scatter", "C25", {"results": ["2x3x4x2xf64"]}, "expected tensor<2x3x4x2xf32>"),
    ("dynamic_update_slice", "I3", {"at": {2: "f32", 3: "f32"}}, "start indices must be integer scalars"),
    ("dynamic_update_slice", "C1", {"results": ["4x5xf32"]}, "expected tensor<4x4xf32>"),
    ("dynamic_update_slice", "C2", {"at": {1: "2x3xi32"}}, "operand and update have different element types"),
    ("dynamic_update_slice", "C3", {"at": {1: "2xf32"}}, "have different ranks"),
    (
        "dynamic_update_slice",
        "C4",
        {"operands": ["4x4xf32", "2x3xf32", "i64"]},
        "start_indices has 1 element, expected 2",
    ),
    ("dynamic_update_slice", "C5", {"at": {3: "i32"}}, "start_indices have different types"),
    ("dynamic_update_slice", "C6", {"at": {1: "2x5xf32"}}, "update tensor<2x5xf32> is larger"),
    ("reduce_window", "C1", {"operands": ["3x2xf32"]}, "not as many inputs as init values"),
    ("reduce_window", "C2", {"operands": ["3x2xf32", "3x3xf32", "f32", "f32"]}, "inputs have different shapes"),
    ("reduce_window", "C3", {"at": {1: "i32"}}, "init value 0 has type tensor<i32>"),
    ("reduce_window", "C4", {"window_dimensions": (2,)}, "window_dimensions has 1 element, expected 2"),
    ("reduce_window", "C5", {"window_dimensions": (0, 1)}, "window_dimensions (0, 1) must be positive"),
    ("reduce_window", "C6", {"window_strides": (4,)}, "window_strides has 1 element, expected 2"),
    ("reduce_window", "C7", {"window_strides": (4, 0)}, "window_strides (4, 0) must be positive"),
    ("reduce_window", "C8", {"base_dilations": (4,)}, "base_dilations has 1 element, expected 2"),
    ("reduce_window", "C9", {"base_dilations": (4, 0)}, "base_dilations (4, 0) must be positive"),
    ("reduce_window", "C10", {"window_dilations": ()}, "window_dilations has 0 elements, expected 2"),
    ("reduce_window", "C11", {"window_dilations": (4, -1)}, "window_dilations (4, -1) must be positive"),
    ("reduce_window", "C12", {"padding": ((0, 0),)}, "padding has shape (1, 2), expected (2, 2)"),
    ("reduce_window", "C13", {"regions": [combiner("i32")]}, "body has type"),
    (
        "reduce_window",
        "C14",
        {
            "operands": ["3x2xf32", "3x2xf32", "f32", "f32"],
            "results": ["2x2xf32", "2x3xf32"],
            "regions": [region(["f32"] * 4, ["f32"] * 2)],
        },
        "results have different shapes",
    ),
    ("reduce_window", "C15", {"results": ["2x3xf32"]}, "expected shape (2, 2), the number of windows"),
    ("reduce_window", "C16", {"results": ["2x2xf64"]}, "expected tensor<2x2xf32>"),
    ("select_and_scatter", "C1", {"at": {1: "2x2xf64"}}, "operand and source have different element types"),
    ("select_and_scatter", "C2", {"at": {1: "2x3xf32"}}, "expected shape (2, 2), the number of windows"),
    ("select_and_scatter", "C3", {"at": {2: "f64"}}, "init_value and operand have different element types"),
    ("select_and_scatter", "C4", {"window_dimensions": (3,)}, "window_dimensions has 1 element, expected 2"),
    ("select_and_scatter", "C5", {"window_dimensions": (3, 0)}, "window_dimensions (3, 0) must be positive"),
    ("select_and_scatter", "C6", {"window_strides": (3,)}, "window_strides has 1 element, expected 2"),
    ("select_and_scatter", "C7", {"window_strides": (3, 0)}, "window_strides (3, 0) must be positive"),
    ("select_and_scatter", "C8", {"padding": ((3, 0),)}, "padding has shape (1, 2), expected (2, 2)"),
    ("select_and_scatter", "C9", {"regions": [combiner(), combiner()]}, "select has type"),
    ("select_and_scatter", "C10", {"regions": [comparator(), comparator()]}, "scatter has type"),
    ("select_and_scatter", "C11", {"results": ["4x3xf32"]}, "operand and result have different shapes"),
    ("select_and_scatter", "C12", {"results": ["4x2xf64"]}, "expected tensor<4x2xf32>"),
    ("rng", "I1", {"at": {0: "1xf32"}}, "a must be a scalar"),
    ("rng", "I2", {"at": {1: "1xf32"}}, "b must be a scalar"),
    ("rng", "C1", {"at": {1: "i32"}}, "a and b have different element types"),
    (
        "rng",
        "C2",
        {"at": {0: "i32", 1: "i32"}, "results": ["2x3xi32"], "rng_distribution": "NORMAL"},
        "must be of floats",
    ),
    ("rng", "C3", {"results": ["3x2xf32"]}, "expected shape (2, 3)"),
    (
        "rng_bit_generator",
        "I2",
        {"at": {0: "2xf64"}, "results": ["2xf64", "3xui32"]},
        "must hold integers of 32 or 64 bits",
    ),
    ("rng_bit_generator", "C1", {"results": ["3xui64", "3xui32"]}, "output_state has type tensor<3xui64>"),
    ("rng_bit_generator", "C2", {"at": {0: "3xui64"}, "results": ["3xui64", "3xui32"]}, "expected 2 words of 64 bits"),
    (
        "rng_bit_generator",
        "C2",
        {"at": {0: "4xui64"}, "results": ["4xui64", "3xui32"], "rng_algorithm": "PHILOX"},
        "2 or 3 words",
    ),
    ("batch_norm_inference", "C1", {"feature_index": 2}, "feature_index (2,) must lie in [0, 2)"),
    ("batch_norm_inference", "C2", {"at": {3: "3xf64"}}, "different element types"),
    ("batch_norm_inference", "C3", {"at": {1: "2xf32"}}, "scale has type tensor<2xf32>, expected 3 elements"),
    ("batch_norm_inference", "C4", {"at": {2: "2xf32"}}, "offset has type tensor<2xf32>, expected 3 elements"),
    ("batch_norm_inference", "C5", {"at": {3: "2xf32"}}, "mean has type tensor<2xf32>, expected 3 elements"),
    ("batch_norm_inference", "C6", {"at": {4: "2xf32"}}, "variance has type tensor<2xf32>, expected 3 elements"),
    ("batch_norm_inference", "C7", {"results": ["3x3xf32"]}, "expected tensor<2x3xf32>"),
    ("batch_norm_training", "C1", {"feature_index": -1}, "feature_index (-1,) must lie in [0, 2)"),
    ("batch_norm_training", "C2", {"at": {1: "3xf64"}}, "different element types"),
    ("batch_norm_training", "C3", {"at": {1: "2xf32"}}, "scale has type tensor<2xf32>"),
    ("batch_norm_training", "C4", {"at": {2: "2xf32"}}, "offset has type tensor<2xf32>"),
    ("batch_norm_training", "C5", {"results": ["2x3xf32", "2xf32", "3xf32"]}, "batch_mean has type tensor<2xf32>"),
    ("batch_norm_training", "C6", {"results": ["2x3xf32", "3xf32", "2xf32"]}, "batch_var has type tensor<2xf32>"),
    (
        "batch_norm_training",
        "C7",
        {"results": ["3x3xf32", "3xf32", "3xf32"]},
        "operand and output have different shapes",
    ),
    ("batch_norm_grad", "C1", {"feature_index": 2}, "feature_index (2,) must lie in [0, 2)"),
    ("batch_norm_grad", "C2", {"results": ["2x3xf32", "3xf64", "3xf32"]}, "different element types"),
    ("batch_norm_grad", "C3", {"at": {4: "3x3xf32"}}, "operand, grad_output and grad_operand have different shapes"),
    ("batch_norm_grad", "C4", {"at": {2: "2xf32"}}, "have different shapes"),
    (
        "batch_norm_grad",
        "C5",
        {"at": {1: "2xf32", 2: "2xf32", 3: "2xf32"}},
        "scale has type tensor<2xf32>, expected 3",
    ),
    ("cholesky", "C1", {"results": ["2x3x3xf64"]}, "expected tensor<2x3x3xf32>"),
    ("cholesky", "C2", {"operands": ["3xf32"], "results": ["3xf32"]}, "expected rank 2 or more"),
    ("cholesky", "C3", {"operands": ["3x4xf32"], "results": ["3x4xf32"]}, "expected square matrices"),
    ("triangular_solve", "C1", {"at": {1: "2x3x4xf64"}}, "a and b have different element types"),
    ("triangular_solve", "C2", {"at": {1: "3x4xf32"}}, "must have one rank"),
    ("triangular_solve", "C3", {"at": {1: "2x4x3xf32"}}, "does not fit b of shape (2, 4, 3)"),
    ("triangular_solve", "C4", {"results": ["2x3x5xf32"]}, "expected tensor<2x3x4xf32>"),
    ("fft", "C1", {"operands": ["8xf32"], "results": ["5xcomplex<f32>"]}, "has more elements than the rank 1"),
    ("fft", "C2", {"operands": ["2x4x8xcomplex<f32>"]}, "the operand of RFFT must be f32 or f64"),
    ("fft", "C2", {"results": ["2x4x5xcomplex<f64>"]}, "expected elements of type complex<f32>"),
    ("fft", "C3", {"fft_length": ()}, "fft_length () must have 1 to 3 elements"),
    ("fft", "C4", {"fft_length": (4, 9)}, "fft_length (4, 9) differs from the sizes"),
    ("fft", "C5", {"results": ["2x4x4xcomplex<f32>"]}, "expected tensor<2x4x5xcomplex<f32>>"),
    (
        "fft",
        "C5",
        {"operands": ["2x4x8xcomplex<f32>"], "results": ["2x4x8xf32"], "fft_type": "IRFFT"},
        "the last dimension of tensor<2x4x8xcomplex<f32>> must be 5",
    ),
    ("all_gather", "C1", {"all_gather_dim": 2}, "all_gather_dim (2,) must lie in [0, 2)"),
    *group_rows("all_gather", "C2", "C3", "C4"),
    ("all_gather", "C5", {"use_global_device_ids": True}, "needs a channel_handle"),
    ("all_gather", "C6", {"results": ["2x3xf32"]}, "expected tensor<2x6xf32>"),
    *group_rows("all_reduce", "C1", "C2", "C3"),
    ("all_reduce", "C4", {"use_global_device_ids": True, "channel_handle": ChannelHandle(0)}, "needs a channel_handle"),
    ("all_reduce", "C5", {"regions": [combiner("i32")]}, "computation has type"),
    ("all_reduce", "C6", {"results": ["2x4xf32"]}, "expected the shapes"),
    ("all_reduce", "C7", {"results": ["2x3xf64"]}, "expected tensor<2x3xf32>"),
    ("all_to_all", "C1", {"split_dimension": 2}, "split_dimension (2,) must lie in [0, 2)"),
    ("all_to_all", "C2", {"operands": ["2x3xf32"]}, "is not divisible by 2"),
    ("all_to_all", "C3", {"concat_dimension": -1}, "concat_dimension (-1,) must lie in [0, 2)"),
    ("all_to_all", "C4", {"split_count": 0}, "split_count (0,) must be positive"),
    *group_rows("all_to_all", "C5", "C6", "C7"),
    ("all_to_all", "C8", {"split_count": 4}, "replica_groups have 2 members each, expected split_count 4"),
    ("all_to_all", "C9", {"results": ["2x4xf32"]}, "expected tensor<4x2xf32>"),
    *group_rows("collective_broadcast", "C1", "C2"),
    ("collective_broadcast", "C3", {"operands": [], "results": []}, "at least one operand"),
    ("collective_broadcast", "C4", {"has_dynamic_root": True}, "the last operand must be"),
    ("collective_broadcast", "C5", {"results": ["3xf32"]}, "expected tensor<2xf32>"),
    *pair_rows("collective_permute"),
    ("collective_permute", "C5", {"results": ["3xf32"]}, "expected tensor<2xf32>"),
    *group_rows("collective_reduce", "C1", "C2"),
    ("collective_reduce", "C3", {"results": ["3xf32"]}, "expected tensor<2xf32>"),
    ("collective_reduce", "C4", {"regions": [combiner("i32")]}, "computation has type"),
    ("reduce_scatter", "C1", {"operands": ["2x3xf32"]}, "is not divisible by 2"),
    ("reduce_scatter", "C2", {"scatter_dimension": 2}, "scatter_dimension (2,) must lie in [0, 2)"),
    *group_rows("reduce_scatter", "C3", "C4", "C5"),
    ("reduce_scatter", "C6", {"use_global_device_ids": True}, "needs a channel_handle"),
    ("reduce_scatter", "C7", {"regions": [combiner("i32")]}, "computation has type"),
    ("reduce_scatter", "C8", {"results": ["2x4xf32"]}, "expected shape (2, 2)"),
    ("reduce_scatter", "C9", {"results": ["2x2xf64"]}, "expected tensor<2x2xf32>"),
    ("infeed", "C1", {"results": []}, "at least one result"),
    ("infeed", "C2", {"results": ["token", "token"]}, "must be tensors"),
    ("infeed", "C3", {"results": ["2xf32"]}, "the last result must be a token"),
    *pair_rows("send"),
    ("send", "C5", {"is_host_transfer": True}, "channel type is 1, expected 2"),
    *pair_rows("recv"),
    ("recv", "C5", {"is_host_transfer": True}, "channel type is 1, expected 3"),
    ("uniform_quantize", "C1", {"results": [("3", Q)]}, "operand and result have different shapes"),
    ("uniform_quantize", "C2", {"results": [("2", QF16)]}, "expected a quantized type that expresses f32"),
    ("uniform_dequantize", "C1", {"results": ["3xf32"]}, "operand and result have different shapes"),
    ("uniform_dequantize", "C2", {"results": ["2xf16"]}, "expected tensor<2xf32>"),
    ("dynamic_broadcast_in_dim", "C1", {"results": ["2x?x3xf64"]}, "different element types"),
    (
        "dynamic_broadcast_in_dim",
        "C2",
        {"broadcast_dimensions": (1,)},
        "broadcast_dimensions has 1 element, expected 2",
    ),
    (
        "dynamic_broadcast_in_dim",
        "C3",
        {"broadcast_dimensions": (1, 3)},
        "broadcast_dimensions (1, 3) must lie in [0, 3)",
    ),
    (
        "dynamic_broadcast_in_dim",
        "C4",
        {"broadcast_dimensions": (1, 1)},
        "broadcast_dimensions (1, 1) repeats a value",
    ),
    ("dynamic_broadcast_in_dim", "C5", {"results": ["2x?x4xf32"]}, "dimension 1 of tensor<1x3xf32> must be 1 or fit"),
    ("dynamic_broadcast_in_dim", "C7", {"at": {1: "2xi64"}}, "output_dimensions has type tensor<2xi64>, expected 3"),
    ("dynamic_broadcast_in_dim", "C7", {"at": {1: Constant([2, 1, 4], "3xi64")}}, "(2, 1, 4) does not fit the result"),
    ("dynamic_broadcast_in_dim", "C8", {"known_expanding_dimensions": (1,)}, "(1, 1) repeats a value"),
    ("dynamic_broadcast_in_dim", "C9", {"known_expanding_dimensions": (2,)}, "known_expanding_dimensions (2,) must"),
    ("dynamic_broadcast_in_dim", "C10", {"known_nonexpanding_dimensions": (2,)}, "known_nonexpanding_dimensions (2,)"),
    ("dynamic_reshape", "C1", {"results": ["6xi32"]}, "different element types"),
    ("dynamic_reshape", "C2", {"results": ["7xf32"]}, "has 6 elements but the result of shape (7,) has 7"),
    ("dynamic_reshape", "C4", {"at": {1: "2xi64"}}, "output_shape has type tensor<2xi64>, expected 1 elements"),
    ("dynamic_iota", "C1", {"iota_dimension": 2}, "iota_dimension (2,) must lie in [0, 2)"),
    ("dynamic_iota", "C2", {"at": {0: "3xi64"}}, "output_shape has type tensor<3xi64>, expected 2 elements"),
    ("dynamic_pad", "C1", {"at": {1: "i32"}}, "operand, padding_value and result have different element types"),
    ("dynamic_pad", "C2", {"at": {2: "3xi64"}}, "must have 2 elements, found tensor<3xi64>"),
    ("dynamic_pad", "C3", {"at": {4: Constant([1, -1], "2xi64")}}, "interior_padding (1, -1) must not be negative"),
    ("dynamic_pad", "C4", {"results": ["5x8xf32"]}, "expected shape (5, 9)"),
    ("dynamic_gather", "C1", {"offset_dims": (2,)}, "are 2 together, expected the rank 3"),
    ("dynamic_gather", "C2", {"index_vector_dim": 4}, "index_vector_dim 4 must lie in [0, 3]"),
    ("dynamic_gather", "C3", {"start_index_map": (1,)}, "start_index_map has 1 element, expected 2"),
    ("dynamic_gather", "C4", {"offset_dims": (3, 2)}, "offset_dims (3, 2) is not sorted"),
    ("dynamic_gather", "C5", {"offset_dims": (2, 4)}, "offset_dims (2, 4) must lie in [0, 4)"),
    ("dynamic_gather", "C6", {"collapsed_slice_dims": (1, 0), "offset_dims": (2,)}, "is not sorted"),
    ("dynamic_gather", "C7", {"collapsed_slice_dims": (3,)}, "collapsed_slice_dims (3,) must lie in [0, 3)"),
    ("dynamic_gather", "C8", {"at": {2: Constant([2, 2, 2], "3xi64")}}, "must be at most 1"),
    ("dynamic_gather", "C9", {"start_index_map": (1, 1)}, "repeats a value"),
    ("dynamic_gather", "C10", {"start_index_map": (1, 3)}, "start_index_map (1, 3) must lie in [0, 3)"),
    ("dynamic_gather", "C11", {"at": {2: "2xi64"}}, "slice_sizes has type tensor<2xi64>, expected 3 elements"),
    ("dynamic_gather", "C12", {"at": {2: Constant([1, 2, 3], "3xi64")}}, "must lie within the operand's shape"),
    ("dynamic_gather", "C13", {"results": ["2x3x2x3xi32"]}, "expected shape (2, 3, 2, 2)"),
    ("dynamic_gather", "C14", {"results": ["2x3x2x2xi64"]}, "different element types"),
]


@pytest.mark.parametrize("name", CALLS)
def test_correct_call_has_no_faults(name: str) -> None:
    assert CALLS[name].faults() == []


@pytest.mark.parametrize(
    ("name", "label", "change", "text"), ROWS, ids=[f"{row[0]}-{row[1]}-{n}" for n, row in enumerate(ROWS)]
)
def test_broken_constraint_is_reported(name: str, label: str, change: dict, text: str) -> None:
    faults = CALLS[name].but(**change).faults()
    assert any(fault.op == name and fault.label == label and text in fault.message for fault in faults), faults
    assert not any("cannot be checked" in fault.message for fault in faults), faults


@pytest.mark.parametrize(
    ("name", "label", "change", "text"), ROWS, ids=[f"{row[0]}-{row[1]}-{n}" for n, row in enumerate(ROWS)]
)
def test_inference_never_crashes(name: str, label: str, change: dict, text: str) -> None:
    """Inference on a broken call gives types or a TypeInferenceError, never another exception."""
    call: Call = CALLS[name].but(**change)
    record = op(name)
    if record.infer is None:
        return
    types = tuple(shaped(o.type if isinstance(o, Constant) else o) for o in call.operands)
    try:
        record.infer(InferenceRequest(types, call.attributes, [make() for make in call.regions]))
    except TypeInferenceError as error:
        assert error.message


def test_every_label_of_the_specification_has_a_row() -> None:
    covered = {(row[0], row[1]) for row in ROWS}
    missing = {
        f"{name} C{number}"
        for name, count in LABELS.items()
        for number in range(1, count + 1)
        if (name, f"C{number}") not in covered
        and f"C{number}" not in ELSEWHERE.get(name, set()) | NOT_CHECKED.get(name, set())
    }
    assert not missing


@pytest.mark.parametrize("name", LABELS)
def test_op_is_registered(name: str) -> None:
    assert op(name).name == f"stablehlo.{name}"


# composite and asynchronous calls


def composite(
    name: str = "my.op", decomposition: str = "callee", operands: tuple = ("f32",), results: tuple = ("f32",)
) -> Module:
    module = Call("composite", operands, results, {"name": name, "decomposition": decomposition}).build()
    callee = module.add_function(Function("callee", [shaped("f32")], [shaped("f32")], visibility="private"))
    Builder(callee.body).return_(callee.body.arguments[0])
    return module


@pytest.mark.parametrize(
    ("label", "module", "text"),
    [
        ("C1", composite(name="op"), "name 'op' is not a namespaced op name"),
        ("C2", composite(decomposition="nobody"), "there is no function @nobody"),
        ("C3", composite(operands=("i32",)), "inputs are tensor<i32> but @callee takes tensor<f32>"),
        ("C4", composite(results=("i32",)), "results are tensor<i32> but @callee returns tensor<f32>"),
    ],
)
def test_composite(label: str, module: Module, text: str) -> None:
    assert not collect_faults(composite())
    assert any(fault.label == label and text in fault.message for fault in collect_faults(module))


FUTURE = "!stablehlo.future<tensor<2xf32>>"


@pytest.mark.parametrize(
    ("label", "arguments", "returned", "build", "result", "text"),
    [
        ("C1", ["2xf32"], ["2xf32", "2xf32"], "", FUTURE, "body must be one op and a return"),
        ("C2", ["2xf32", "2xf32"], [], "add", FUTURE, "body must be a collective or a slice, found stablehlo.add"),
        ("C3", ["3xf32"], [], "collective_permute", FUTURE, "body takes tensor<3xf32> but is given tensor<2xf32>"),
        ("C4", ["2xf32"], [], "collective_permute", "!stablehlo.future<tensor<3xf32>>", f"expected {FUTURE}"),
    ],
)
def test_async_start(label: str, arguments: list, returned: list, build: str, result: str, text: str) -> None:
    def body() -> Block:
        if build != "collective_permute":
            return region(arguments, returned, build)()
        block = Block([shaped(type) for type in arguments])
        builder = Builder(block)
        moved = builder.create(build, block.arguments, attributes={"source_target_pairs": ((0, 1),)})
        builder.return_(*moved.results)
        return block

    faults = Call("async_start", ("2xf32",), (opaque_type(result),), {}, (body,)).faults()
    assert any(fault.label == label and text in fault.message for fault in faults), faults


def test_async_done_c1_result_is_what_the_future_holds() -> None:
    assert not Call("async_done", (opaque_type(FUTURE),), ("2xf32",)).faults()
    (fault,) = Call("async_done", (opaque_type(FUTURE),), ("3xf32",)).faults()
    assert fault.label == "C1"
