"""Values whose sizes only data tell, as padded values and their sizes: what the pass ``dynamic-padder`` works on.

    %0 : tensor<?x4xf32, #stablehlo.bounds<8, ?>>      is      a tensor<8x4xf32> and a size (i32) of dimension 0

Elements beyond a size are whatever they are: an op that combines elements along such a dimension masks them first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.formats import IntegerType
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.types import DYNAMIC, TensorType, tensor

if TYPE_CHECKING:
    from hlojit.ir.builder import Builder

SIZE = tensor((), "i32")
"""The type of a size."""
MOST: Final = (1 << 31) - 1
"""The largest one."""


@dataclass(frozen=True, slots=True)
class Padded:
    """A value of a static type, and the sizes of the dimensions of which it is only a beginning that counts."""

    value: Value
    sizes: Mapping[int, Value] = field(default_factory=dict)

    @property
    def type(self) -> TensorType:
        """The static type."""
        return self.value.tensor_type

    @property
    def shape(self) -> tuple[int, ...]:
        """The static shape."""
        return self.type.shape


class Need(NamedTuple):
    """What an instruction needs of sizes at run time: that ``broken`` is false; else ``message``, with the size for ``{0}``."""

    broken: Value
    message: str
    size: Value


class PaddedBuilder:
    """Builds in front of one instruction, whose operands it knows as padded values."""

    def __init__(self, instruction: Instruction, operands: Sequence[Padded], builder: Builder):
        self.instruction = instruction
        self.operands = operands
        self.builder = builder
        self.needs: list[Need] = []
        """What has to hold at run time, in order."""

    def refuse(self, reason: str) -> UnsupportedError:
        """The error for an instruction that cannot be padded."""
        return UnsupportedError(self.instruction.op.name, "", reason, self.instruction.location)

    def number(self, value: int) -> Value:
        """A size that is known."""
        return self.builder.constant(value, SIZE)

    def size(self, padded: Padded, dimension: int) -> Value:
        """The size of a dimension."""
        found = padded.sizes.get(dimension)
        return self.number(padded.shape[dimension]) if found is None else found

    def arithmetic(self, name: str, a: Value, b: Value | int) -> Value:
        """``a`` and ``b`` combined by a pointwise op."""
        other = self.number(b) if isinstance(b, int) else b
        return self.builder.create(name, [a, other]).result

    def need(self, a: Value, relation: str, b: Value | int, message: str) -> None:
        """Have a size be in relation to another at run time (``EQ``, ``LE``); ``message`` speaks of ``a`` as ``{0}``."""
        if a is b:
            return
        other = self.number(b) if isinstance(b, int) else b
        opposite = {"EQ": "NE", "LE": "GT", "GE": "LT"}[relation]
        self.needs.append(Need(self.builder.compare(a, other, opposite), message, a))

    def agreed(self, sides: Sequence[tuple[Padded, int]]) -> Value | None:
        """The size of dimensions that have to be equal: None where one of them is known when the program is compiled."""
        known = next((side.shape[d] for side, d in sides if d not in side.sizes), None)
        sizes = [side.sizes[d] for side, d in sides if d in side.sizes]
        for number, size in enumerate(sizes):
            if known is not None:
                self.need(size, "EQ", known, f"a size {{0}} must be equal to the {known} of another operand")
            elif number:
                self.need(size, "EQ", sizes[0], "a size {0} must be equal to that of another operand")
        return sizes[0] if known is None else None

    def as_size(self, value: Value) -> Value:
        """A scalar of any integer type as a size; what is too large for one, or negative, stays it."""
        if value.type is SIZE:
            return value
        type = value.tensor_type
        element = type.element_type
        if isinstance(element, IntegerType) and element.maximum > MOST:
            value = self.builder.create("minimum", [value, self.builder.constant(MOST, type)]).result
            if element.signed:
                value = self.builder.create("maximum", [value, self.builder.constant(-1, type)]).result
        return self.builder.convert(value, SIZE.element_type)

    def element(self, values: Value, number: int) -> Value:
        """An element of a list, as a size."""
        part = self.builder.create(
            "slice",
            [values],
            attributes={"start_indices": (number,), "limit_indices": (number + 1,), "strides": (1,)},
        ).result
        return self.as_size(self.builder.reshape(part, ()))

    def within(self, padded: Padded, dimensions: Sequence[int], shape: Sequence[int] | None = None) -> Value | None:
        """Whether elements lie within the sizes of ``dimensions``: booleans of ``shape``, or None where all do."""
        shape = padded.shape if shape is None else tuple(shape)
        inside: Value | None = None
        for dimension in dimensions:
            if dimension not in padded.sizes:
                continue
            index = self.builder.iota(tensor(shape, "i32"), dimension)
            limit = self.builder.broadcast_in_dim(padded.sizes[dimension], shape)
            here = self.builder.compare(index, limit, "LT")
            inside = here if inside is None else self.builder.create("and", [inside, here]).result
        return inside

    def masked(self, padded: Padded, dimensions: Sequence[int], fill: Value) -> Value:
        """The value with ``fill``, a scalar, beyond the sizes of ``dimensions``."""
        inside = self.within(padded, dimensions)
        if inside is None:
            return padded.value
        other = self.builder.broadcast_in_dim(fill, padded.type)
        return self.builder.create("select", [inside, padded.value, other]).result

    def zero(self, type: TensorType) -> Value:
        """A zero of the element type."""
        return self.builder.constant(0, type.with_shape(()))

    def cut(self, padded: Padded, shape: Sequence[int]) -> Padded:
        """A smaller beginning of a padded value; what it loses must lie beyond its sizes."""
        if tuple(shape) == padded.shape:
            return padded
        attributes = {"start_indices": (0,) * len(shape), "limit_indices": tuple(shape), "strides": (1,) * len(shape)}
        return Padded(self.builder.create("slice", [padded.value], attributes=attributes).result, padded.sizes)

    def grown(self, padded: Padded, shape: Sequence[int]) -> Padded:
        """The value with room for ``shape``."""
        if tuple(shape) == padded.shape:
            return padded
        attributes = {
            "edge_padding_low": (0,) * len(shape),
            "edge_padding_high": tuple(large - small for large, small in zip(shape, padded.shape)),
            "interior_padding": (0,) * len(shape),
        }
        operands = [padded.value, self.zero(padded.type)]
        return Padded(self.builder.create("pad", operands, attributes=attributes).result, padded.sizes)

    def result_type(self, number: int, shape: Sequence[int]) -> TensorType:
        """The written type of a result in a static shape."""
        return self.instruction.results[number].tensor_type.with_shape(shape)

    def bound(self, number: int, dimension: int) -> int:
        """The bound that the type of a result states for a dimension, ``DYNAMIC`` if none."""
        type = self.instruction.results[number].tensor_type
        if type.shape[dimension] != DYNAMIC:
            return type.shape[dimension]
        return type.bounds[dimension] if type.bounds else DYNAMIC

    def written(self, number: int, result: Padded) -> Padded:
        """A result with what its type says: sizes that are known there, and bounds that leave less room."""
        type = self.instruction.results[number].tensor_type
        if not result.sizes:
            return result
        sizes, shape = dict(result.sizes), list(result.shape)
        for d, size in result.sizes.items():
            bound = self.bound(number, d)
            if type.shape[d] != DYNAMIC:
                self.need(size, "EQ", bound, f"the size {{0}} of dimension {d} must be {bound}")
                del sizes[d]
                shape[d] = bound
            elif bound != DYNAMIC:
                shape[d] = min(shape[d], bound)
        least = [min(pair) for pair in zip(shape, result.shape)]
        return Padded(self.grown(self.cut(result, least), shape).value, sizes)

    def again(self, operands: Sequence[Value], types: Sequence[TensorType], **attributes: object) -> Sequence[Value]:
        """The instruction on other operands, with other result types and some other attributes."""
        mapping: dict[Value, Value] = {}
        made = self.builder.create(
            self.instruction.op.name,
            operands,
            attributes={**self.instruction.attributes, **attributes},
            regions=[region.clone(mapping) for region in self.instruction.regions],
            result_types=types,
            discardable=self.instruction.discardable,
        )
        return made.results


PaddingRule = Callable[[PaddedBuilder], Sequence[Padded]]
"""Builds what stands for an instruction, and returns its results; raises ``UnsupportedError`` where it cannot."""
