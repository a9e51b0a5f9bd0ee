"""Correct calls of structural ops, and the means to break them one constraint at a time."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hlojit.ir.attributes import (
    ChannelHandle,
    ConvDimensionNumbers,
    DotAlgorithm,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
)
from hlojit.ir.builder import Builder
from hlojit.ir.errors import Fault
from hlojit.ir.formats import QuantizedType
from hlojit.ir.graph import Block, Function, Instruction, Module
from hlojit.ir.ops.definition import op
from hlojit.ir.quantized import quantized_type
from hlojit.ir.types import DYNAMIC, TOKEN, Type, tensor, tuple_type
from hlojit.ir.verifier import collect_faults

Region = Callable[[], Block]


def quantized(
    storage: str = "i8", expressed: str = "f32", axis: int | None = None, zero: int = 0, count: int = 3
) -> QuantizedType:
    """A quantized element type of scale 0.5: ``count`` times, where it is quantized per axis."""
    count = 1 if axis is None else count
    return quantized_type(storage, expressed, (0.5,) * count, (zero,) * count, axis)


def shaped(text: str | Type | tuple[str, QuantizedType]) -> Type:
    """``2x3xf32``, ``f32``, ``?xi8``, ``token``."""
    if isinstance(text, Type):
        return text
    if isinstance(text, tuple):
        return tensor([int(extent) for extent in text[0].split("x") if extent], text[1])
    if text == "token":
        return TOKEN
    match = re.fullmatch(r"((?:(?:\d+|\?)x)*)(.+)", text)
    assert match is not None
    shape = [DYNAMIC if extent == "?" else int(extent) for extent in match[1].split("x") if extent]
    return tensor(shape, match[2])


def region(arguments: Sequence[str], returned: Sequence[str], build: str = "") -> Region:
    """A region that returns constants, or with ``build`` the result of that op on its arguments."""

    def make() -> Block:
        block = Block([shaped(type) for type in arguments])
        builder = Builder(block)
        if build:
            values = [builder.create(build, block.arguments).result]
        else:
            values = [builder.constant(0, shaped(type)) for type in returned]  # type: ignore[arg-type]
        builder.create("stablehlo.return", values)
        return block

    return make


def combiner(element: str = "f32") -> Region:
    """Addition of two scalars."""
    return region([element, element], [element], "add")


def comparator(element: str = "f32") -> Region:
    """Returns a constant i1."""
    return region([element, element], ["i1"])


@dataclass(frozen=True)
class Constant:
    """An operand that a constant gives."""

    values: Any
    type: str


@dataclass(frozen=True)
class Call:
    """One instruction in a function of its own, the operands being the function's arguments."""

    op: str
    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    regions: tuple[Region, ...] = ()

    def but(
        self,
        operands: Any = None,
        results: Any = None,
        regions: Any = None,
        at: dict[int, Any] | None = None,
        **changes: Any,
    ) -> Call:
        """The call with some parts replaced; ``at`` replaces single operands, None drops an attribute.

        Fields of dimension numbers and algorithms are given by their own names.
        """
        attributes = dict(self.attributes)
        for name, value in changes.items():
            holder = next((key for key, held in attributes.items() if _has_field(held, name)), None)
            if holder is not None and name not in attributes:
                attributes[holder] = dataclasses.replace(attributes[holder], **{name: value})
            elif value is None:
                attributes.pop(name, None)
            else:
                attributes[name] = value
        changed = list(self.operands if operands is None else operands)
        for position, operand in (at or {}).items():
            changed[position] = operand
        return Call(
            self.op,
            tuple(changed),
            self.results if results is None else tuple(results),
            attributes,
            self.regions if regions is None else tuple(regions),
        )

    def build(self) -> Module:
        """A module with the call in its @main; nothing is checked."""
        module = Module()
        types = [shaped(operand) for operand in self.operands if not isinstance(operand, Constant)]
        results = [shaped(result) for result in self.results]
        function = module.add_function(Function("main", types, results))
        builder = Builder(function.body)
        arguments = iter(function.body.arguments)
        values = [
            builder.constant(np.array(o.values), shaped(o.type)) if isinstance(o, Constant) else next(arguments)  # type: ignore[arg-type]
            for o in self.operands
        ]
        made = Instruction(op(self.op), values, results, self.attributes, [make() for make in self.regions])
        function.body.append(made)
        builder.create("func.return", made.results)
        return module

    def faults(self) -> list[Fault]:
        """What the verifier says."""
        return collect_faults(self.build())


def _has_field(value: Any, name: str) -> bool:
    return dataclasses.is_dataclass(value) and name in {entry.name for entry in dataclasses.fields(value)}


CONV = ConvDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
SCATTER = ScatterDimensionNumbers((3, 4), (1,), (0,), (1,), (2, 1), 3)
GROUPS = {"replica_groups": ((0, 1),)}
CHANNEL = {"channel_handle": ChannelHandle(1, 1)}

CALLS: dict[str, Call] = {
    "while": Call(
        "while",
        ("f32", "2xi32"),
        ("f32", "2xi32"),
        {},
        (region(["f32", "2xi32"], ["i1"]), region(["f32", "2xi32"], ["f32", "2xi32"])),
    ),
    "if": Call("if", ("i1",), ("2xf32",), {}, (region([], ["2xf32"]), region([], ["2xf32"]))),
    "case": Call("case", ("i32",), ("2xf32",), {}, (region([], ["2xf32"]), region([], ["2xf32"]))),
    "tuple": Call("tuple", ("f32", "i32"), (tuple_type([shaped("f32"), shaped("i32")]),)),
    "get_tuple_element": Call(
        "get_tuple_element", (tuple_type([shaped("f32"), shaped("i32")]),), ("i32",), {"index": 1}
    ),
    "optimization_barrier": Call("optimization_barrier", ("f32", "token"), ("f32", "token")),
    "reduce": Call("reduce", ("2x3xf32", "f32"), ("2xf32",), {"dimensions": (1,)}, (combiner(),)),
    "map": Call("map", ("2x3xf32", "2x3xf32"), ("2x3xf32",), {"dimensions": (0, 1)}, (combiner(),)),
    "sort": Call(
        "sort",
        ("2x3xf32", "2x3xi32"),
        ("2x3xf32", "2x3xi32"),
        {"dimension": 1},
        (region(["f32", "f32", "i32", "i32"], ["i1"]),),
    ),
    "dot_general": Call(
        "dot_general",
        ("2x3x4xf32", "2x4x5xf32"),
        ("2x3x5xf32",),
        {
            "dot_dimension_numbers": DotDimensionNumbers((0,), (0,), (2,), (1,)),
            "precision_config": ("DEFAULT", "DEFAULT"),
            "algorithm": DotAlgorithm("f32", "f32", "f32"),
        },
    ),
    "convolution": Call(
        "convolution",
        ("2x8x9x4xf32", "3x2x2x6xf32"),
        ("2x5x9x6xf32",),
        {
            "window_strides": (2, 1),
            "padding": ((1, 2), (0, 1)),
            "lhs_dilation": (1, 1),
            "rhs_dilation": (1, 1),
            "window_reversal": (False, False),
            "dimension_numbers": CONV,
            "feature_group_count": 2,
            "batch_group_count": 1,
            "precision_config": ("DEFAULT", "DEFAULT"),
        },
    ),
    "gather": Call(
        "gather",
        ("2x3x4x2xi32", "2x2x3x2xi64"),
        ("2x2x3x2x2xi32",),
        {"dimension_numbers": GatherDimensionNumbers((3, 4), (1,), (0,), (1,), (2, 1), 3), "slice_sizes": (1, 1, 2, 2)},
    ),
    "scatter": Call(
        "scatter",
        ("2x3x4x2xf32", "2x2x3x2xi64", "2x2x3x2x2xf32"),
        ("2x3x4x2xf32",),
        {"scatter_dimension_numbers": SCATTER},
        (combiner(),),
    ),
    "dynamic_update_slice": Call("dynamic_update_slice", ("4x4xf32", "2x3xf32", "i64", "i64"), ("4x4xf32",)),
    "reduce_window": Call(
        "reduce_window",
        ("3x2xf32", "f32"),
        ("2x2xf32",),
        {
            "window_dimensions": (2, 1),
            "window_strides": (4, 1),
            "base_dilations": (2, 1),
            "window_dilations": (3, 1),
            "padding": ((2, 1), (0, 0)),
        },
        (combiner(),),
    ),
    "select_and_scatter": Call(
        "select_and_scatter",
        ("4x2xf32", "2x2xf32", "f32"),
        ("4x2xf32",),
        {"window_dimensions": (3, 1), "window_strides": (2, 1), "padding": ((0, 1), (0, 0))},
        (comparator(), combiner()),
    ),
    "rng": Call("rng", ("f32", "f32", Constant([2, 3], "2xi64")), ("2x3xf32",), {"rng_distribution": "UNIFORM"}),
    "rng_bit_generator": Call("rng_bit_generator", ("2xui64",), ("2xui64", "3xui32"), {"rng_algorithm": "THREE_FRY"}),
    "batch_norm_inference": Call(
        "batch_norm_inference", ("2x3xf32", *("3xf32",) * 4), ("2x3xf32",), {"epsilon": 0.0, "feature_index": 1}
    ),
    "batch_norm_training": Call(
        "batch_norm_training",
        ("2x3xf32", "3xf32", "3xf32"),
        ("2x3xf32", "3xf32", "3xf32"),
        {"epsilon": 0.0, "feature_index": 1},
    ),
    "batch_norm_grad": Call(
        "batch_norm_grad",
        ("2x3xf32", "3xf32", "3xf32", "3xf32", "2x3xf32"),
        ("2x3xf32", "3xf32", "3xf32"),
        {"epsilon": 0.0, "feature_index": 1},
    ),
    "cholesky": Call("cholesky", ("2x3x3xf32",), ("2x3x3xf32",), {"lower": True}),
    "triangular_solve": Call(
        "triangular_solve",
        ("2x3x3xf32", "2x3x4xf32"),
        ("2x3x4xf32",),
        {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"},
    ),
    "fft": Call("fft", ("2x4x8xf32",), ("2x4x5xcomplex<f32>",), {"fft_type": "RFFT", "fft_length": (4, 8)}),
    "all_gather": Call("all_gather", ("2x3xf32",), ("2x6xf32",), {"all_gather_dim": 1, **GROUPS}),
    "all_reduce": Call("all_reduce", ("2x3xf32",), ("2x3xf32",), GROUPS, (combiner(),)),
    "all_to_all": Call(
        "all_to_all",
        ("2x4xf32",),
        ("4x2xf32",),
        {"split_dimension": 1, "concat_dimension": 0, "split_count": 2, **GROUPS},
    ),
    "collective_broadcast": Call("collective_broadcast", ("2xf32",), ("2xf32",), GROUPS),
    "collective_permute": Call("collective_permute", ("2xf32",), ("2xf32",), {"source_target_pairs": ((0, 1), (1, 2))}),
    "collective_reduce": Call("collective_reduce", ("2xf32",), ("2xf32",), GROUPS, (combiner(),)),
    "reduce_scatter": Call(
        "reduce_scatter", ("2x4xf32",), ("2x2xf32",), {"scatter_dimension": 1, **GROUPS}, (combiner(),)
    ),
    "infeed": Call("infeed", ("token",), ("2xf32", "token")),
    "send": Call("send", ("2xf32", "token"), ("token",), {**CHANNEL, "source_target_pairs": ((0, 1), (1, 2))}),
    "recv": Call("recv", ("token",), ("2xf32", "token"), {**CHANNEL, "source_target_pairs": ((0, 1), (1, 2))}),
    "uniform_quantize": Call("uniform_quantize", ("2xf32",), (("2", quantized()),)),
    "uniform_dequantize": Call("uniform_dequantize", (("2", quantized()),), ("2xf32",)),
    "dynamic_broadcast_in_dim": Call(
        "dynamic_broadcast_in_dim",
        ("1x3xf32", "3xi64"),
        ("2x?x3xf32",),
        {"broadcast_dimensions": (1, 2), "known_expanding_dimensions": (0,), "known_nonexpanding_dimensions": (1,)},
    ),
    "dynamic_reshape": Call("dynamic_reshape", ("2x3xf32", "1xi64"), ("6xf32",)),
    "dynamic_iota": Call("dynamic_iota", ("2xi64",), ("4x?xi32",), {"iota_dimension": 0}),
    "dynamic_pad": Call(
        "dynamic_pad",
        ("2x3xf32", "f32", Constant([0, 1], "2xi64"), Constant([2, 1], "2xi64"), Constant([1, 2], "2xi64")),
        ("5x9xf32",),
    ),
    "dynamic_gather": Call(
        "dynamic_gather",
        ("3x4x2xi32", "2x3x2xi64", Constant([1, 2, 2], "3xi64")),
        ("2x3x2x2xi32",),
        {"dimension_numbers": GatherDimensionNumbers((2, 3), (0,), (), (), (1, 0), 2)},
    ),
    "dynamic_conv": Call(
        "dynamic_conv",
        ("2x8x9x4xf32", "3x2x2x6xf32", "2x2xi64"),
        ("2x?x?x6xf32",),
        {
            "window_strides": (2, 1),
            "lhs_dilation": (1, 1),
            "rhs_dilation": (1, 1),
            "window_reversal": (False, False),
            "dimension_numbers": CONV,
            "feature_group_count": 2,
            "batch_group_count": 1,
            "precision_config": ("DEFAULT", "DEFAULT"),
        },
    ),
}
"""A correct call of each op."""
