"""Products as the matrix unit wants them, and the pass that brings them into that form.

The unit sums ``left[b, i, k] * right[b, j, k]`` over k, in f32, where i, j and k go up to multiples of 16; b may be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from hlojit.extensions import Builder, DotDimensionNumbers, Instruction, Layout, Layouts, Module, Pass, Value

TILE = 16
MATRIX = Layout((0, 1), tile=(TILE, TILE))
MATRICES = Layout((0, 1, 2), tile=(TILE, TILE))


def refused(instruction: Instruction) -> str:
    """Why the matrix unit cannot compute a product, or nothing."""
    types = [value.tensor_type for value in (*instruction.operands, instruction.result)]
    if any(type.element_type.name != "f32" for type in types):
        return "the matrix unit multiplies f32"
    if any(type.size == 0 for type in types):
        return "the matrix unit has nothing to multiply"
    if instruction.attributes.get("algorithm") is not None:
        return "the matrix unit has one algorithm, its own"
    return ""


def is_tiled(instruction: Instruction) -> bool:
    """Whether a ``dot_general`` has the unit's form."""
    left, right = (value.tensor_type for value in instruction.operands)
    if left.rank not in (2, 3) or right.rank != left.rank:
        return False
    return _numbers(instruction) == _form(left.rank - 2) and all(
        extent % TILE == 0 for extent in (*left.shape[-2:], *right.shape[-2:])
    )


def tiles(instruction: Instruction) -> Layouts | None:
    """How operands and result of a product in the unit's form lie."""
    if instruction.name != "stablehlo.dot_general" or not is_tiled(instruction):
        return None
    layout = MATRIX if instruction.result.tensor_type.rank == 2 else MATRICES
    return Layouts((layout, layout), (layout,))


@dataclass(frozen=True)
class Tile(Pass):
    """Products become products of matrices in whole tiles: transposed, reshaped, and padded with zeros, which add nothing."""

    name: ClassVar[str] = "acme-tile"
    phase: ClassVar[str] = "fusion"  # behind the algebraic-simplifier, which folds transposes into products
    targets: ClassVar[tuple[str, ...]] = ("acme",)
    numeric_effect: ClassVar[str] = "permitted"  # sums are split otherwise in whole tiles

    def run(self, module: Module) -> bool:
        """Rewrite every product that the unit can compute."""
        found = [
            each
            for each in module.walk()
            if each.name == "stablehlo.dot_general" and not refused(each) and not is_tiled(each)
        ]
        for product in found:
            _rewrite(product)
        return bool(found)


def _rewrite(product: Instruction) -> None:
    builder, numbers = Builder.in_front_of(product), _numbers(product)
    batching = len(numbers.lhs_batching)
    left = _matrices(builder, product.operands[0], numbers.lhs_batching, numbers.lhs_contracting)
    right = _matrices(builder, product.operands[1], numbers.rhs_batching, numbers.rhs_contracting)
    rows, columns = left.tensor_type.shape[-2], right.tensor_type.shape[-2]
    result = builder.dot_general(
        _padded(builder, left), _padded(builder, right), dot_dimension_numbers=_form(min(batching, 1))
    )
    limits = (*result.tensor_type.shape[:-2], rows, columns)
    if limits != result.tensor_type.shape:
        result = builder.slice(
            result, start_indices=(0,) * len(limits), limit_indices=limits, strides=(1,) * len(limits)
        )
    if result.tensor_type.shape != product.result.tensor_type.shape:
        result = builder.reshape(result, product.result.tensor_type.shape)
    product.replace_with([result])


def _matrices(builder: Builder, value: Value, batching: Sequence[int], contracting: Sequence[int]) -> Value:
    """An operand as [rows, depth], or [batch, rows, depth]."""
    shape = value.tensor_type.shape
    free = [i for i in range(len(shape)) if i not in batching and i not in contracting]
    order = (*batching, *free, *contracting)
    if order != tuple(range(len(shape))):
        value = builder.transpose(value, permutation=order)
    rows, depth = (prod(shape[i] for i in those) for those in (free, contracting))
    wanted = (*([prod(shape[i] for i in batching)] if batching else []), rows, depth)
    return value if value.tensor_type.shape == wanted else builder.reshape(value, wanted)


def _padded(builder: Builder, value: Value) -> Value:
    """With zeros up to whole tiles."""
    shape = value.tensor_type.shape
    missing = (*(0 for _ in shape[:-2]), *(-extent % TILE for extent in shape[-2:]))
    if not any(missing):
        return value
    none = (0,) * len(shape)
    zero = builder.constant(0.0, value.tensor_type.with_shape(()))
    padded: Value = builder.pad(value, zero, edge_padding_low=none, edge_padding_high=missing, interior_padding=none)
    return padded


def _form(batches: int) -> DotDimensionNumbers:
    """The unit's dimension numbers, with or without batches."""
    batching, last = tuple(range(batches)), (batches + 1,)
    return DotDimensionNumbers(batching, batching, last, last)


def _numbers(instruction: Instruction) -> Any:
    return instruction.attributes["dot_dimension_numbers"]
