"""Typed views of the attributes of ops that several places read.

    slice = SliceView.of(instruction)
    slice.starts, slice.limits, slice.strides

A view is made of an instruction, of a request for type inference or of what a reference is called with; defaults of
attributes that are left out are filled in.  ``instruction.attributes`` stays what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hlojit.ir.attributes import (
    ConvDimensionNumbers,
    Dense,
    DotAlgorithm,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
)


class HasAttributes(Protocol):
    """An instruction, an inference request, a reference call."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Converted attributes."""


Integers = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ConstantView:
    """``constant``."""

    value: Dense

    @classmethod
    def of(cls, call: HasAttributes) -> ConstantView:
        """The view of a constant."""
        value = call.attributes["value"]
        assert isinstance(value, Dense)
        return cls(value)


@dataclass(frozen=True, slots=True)
class IotaView:
    """``iota``, ``dynamic_iota``."""

    dimension: int

    @classmethod
    def of(cls, call: HasAttributes) -> IotaView:
        """The view of an iota."""
        return cls(call.attributes["iota_dimension"])


MIRRORED: Final[Mapping[str, str]] = {"EQ": "EQ", "NE": "NE", "LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}
"""The direction of a comparison whose operands are exchanged."""


@dataclass(frozen=True, slots=True)
class CompareView:
    """``compare``: direction, and how numbers are ordered (``NOTYPE`` where that is left to their type)."""

    direction: str
    order: str

    @classmethod
    def of(cls, call: HasAttributes) -> CompareView:
        """The view of a comparison."""
        return cls(call.attributes["comparison_direction"], call.attributes.get("compare_type") or "NOTYPE")

    @property
    def mirrored(self) -> str:
        """The direction with exchanged operands."""
        return MIRRORED[self.direction]

    @property
    def is_total_order(self) -> bool:
        """Whether -0.0 is below 0.0 and NaN has a place."""
        return self.order == "TOTALORDER"


@dataclass(frozen=True, slots=True)
class BroadcastView:
    """``broadcast_in_dim``: the dimension of the result that each of the operand's is."""

    dimensions: Integers

    @classmethod
    def of(cls, call: HasAttributes) -> BroadcastView:
        """The view of a broadcast."""
        return cls(tuple(call.attributes["broadcast_dimensions"]))


@dataclass(frozen=True, slots=True)
class TransposeView:
    """``transpose``: the operand's dimension that each of the result's is."""

    permutation: Integers

    @classmethod
    def of(cls, call: HasAttributes) -> TransposeView:
        """The view of a transpose."""
        return cls(tuple(call.attributes["permutation"]))


@dataclass(frozen=True, slots=True)
class DimensionsView:
    """``reduce`` (the dimensions that go), ``reverse`` (those that are turned round)."""

    dimensions: Integers

    @classmethod
    def of(cls, call: HasAttributes) -> DimensionsView:
        """The view of a reduction or reversal."""
        return cls(tuple(call.attributes["dimensions"]))


@dataclass(frozen=True, slots=True)
class DimensionView:
    """``concatenate``, ``get_dimension_size``, ``set_dimension_size``: one dimension."""

    dimension: int

    @classmethod
    def of(cls, call: HasAttributes) -> DimensionView:
        """The view of an op on one dimension."""
        return cls(call.attributes["dimension"])


@dataclass(frozen=True, slots=True)
class SliceView:
    """``slice``: from ``starts`` to ``limits`` in steps of ``strides``, an entry a dimension."""

    starts: Integers
    limits: Integers
    strides: Integers

    @classmethod
    def of(cls, call: HasAttributes) -> SliceView:
        """The view of a slice."""
        attributes = call.attributes
        return cls(tuple(attributes["start_indices"]), tuple(attributes["limit_indices"]), tuple(attributes["strides"]))

    @property
    def ranges(self) -> tuple[tuple[int, int, int], ...]:
        """(start, limit, stride) of each dimension."""
        return tuple(zip(self.starts, self.limits, self.strides))


@dataclass(frozen=True, slots=True)
class DynamicSliceView:
    """``dynamic_slice``."""

    sizes: Integers

    @classmethod
    def of(cls, call: HasAttributes) -> DynamicSliceView:
        """The view of a dynamic slice."""
        return cls(tuple(call.attributes["slice_sizes"]))


@dataclass(frozen=True, slots=True)
class PadView:
    """``pad``: what is added before, after and between the elements of each dimension; negative amounts cut."""

    low: Integers
    high: Integers
    interior: Integers

    @classmethod
    def of(cls, call: HasAttributes) -> PadView:
        """The view of a pad."""
        attributes = call.attributes
        return cls(
            tuple(attributes["edge_padding_low"]),
            tuple(attributes["edge_padding_high"]),
            tuple(attributes["interior_padding"]),
        )

    @property
    def ranges(self) -> tuple[tuple[int, int, int], ...]:
        """(low, high, interior) of each dimension."""
        return tuple(zip(self.low, self.high, self.interior))


@dataclass(frozen=True, slots=True)
class GatherView:
    """``gather``; of a ``dynamic_gather`` the sizes are an operand, and empty here."""

    numbers: GatherDimensionNumbers
    sizes: Integers

    @classmethod
    def of(cls, call: HasAttributes) -> GatherView:
        """The view of a gather."""
        numbers = call.attributes["dimension_numbers"]
        assert isinstance(numbers, GatherDimensionNumbers)
        return cls(numbers, tuple(call.attributes.get("slice_sizes", ())))


@dataclass(frozen=True, slots=True)
class ScatterView:
    """``scatter``: dimension numbers, and whether the program promises that no element is updated twice."""

    numbers: ScatterDimensionNumbers
    unique_indices: bool = False

    @classmethod
    def of(cls, call: HasAttributes) -> ScatterView:
        """The view of a scatter."""
        numbers = call.attributes["scatter_dimension_numbers"]
        assert isinstance(numbers, ScatterDimensionNumbers)
        return cls(numbers, bool(call.attributes.get("unique_indices", False)))


@dataclass(frozen=True, slots=True)
class SortView:
    """``sort``: the dimension, counted from the end where it is negative."""

    dimension: int

    @classmethod
    def of(cls, call: HasAttributes) -> SortView:
        """The view of a sort."""
        dimension = call.attributes.get("dimension")
        return cls(-1 if dimension is None else int(dimension))

    def position(self, rank: int) -> int:
        """The dimension counted from the front."""
        return self.dimension if self.dimension >= 0 else rank + self.dimension


@dataclass(frozen=True, slots=True)
class DotView:
    """``dot_general``."""

    numbers: DotDimensionNumbers
    algorithm: DotAlgorithm | None

    @classmethod
    def of(cls, call: HasAttributes) -> DotView:
        """The view of a product."""
        numbers = call.attributes["dot_dimension_numbers"]
        assert isinstance(numbers, DotDimensionNumbers)
        return cls(numbers, call.attributes.get("algorithm"))


@dataclass(frozen=True, slots=True)
class WindowView:
    """The windows of ``reduce_window``: an entry a dimension, of ``padding`` a pair (low, high)."""

    sizes: Integers
    strides: Integers
    base_dilations: Integers
    dilations: Integers
    padding: Pairs

    @classmethod
    def of(cls, call: HasAttributes) -> WindowView:
        """The view of a reduction over windows."""
        attributes = call.attributes
        sizes = tuple(attributes["window_dimensions"])
        rank = len(sizes)
        return cls(
            sizes,
            _each(attributes, "window_strides", 1, rank),
            _each(attributes, "base_dilations", 1, rank),
            _each(attributes, "window_dilations", 1, rank),
            _pairs(attributes, rank),
        )


@dataclass(frozen=True, slots=True)
class ConvolutionView:
    """``convolution``: dimension numbers, and for each spatial dimension how the window moves."""

    numbers: ConvDimensionNumbers
    strides: Integers
    padding: Pairs
    lhs_dilation: Integers
    rhs_dilation: Integers
    reversal: tuple[bool, ...]
    feature_groups: int
    batch_groups: int

    @classmethod
    def of(cls, call: HasAttributes) -> ConvolutionView:
        """The view of a convolution."""
        return cls.of_attributes(call.attributes)

    @classmethod
    def of_attributes(cls, attributes: Mapping[str, Any]) -> ConvolutionView:
        """The view of a convolution with these attributes."""
        numbers = attributes["dimension_numbers"]
        assert isinstance(numbers, ConvDimensionNumbers)
        rank = len(numbers.input_spatial)
        return cls(
            numbers,
            _each(attributes, "window_strides", 1, rank),
            _pairs(attributes, rank),
            _each(attributes, "lhs_dilation", 1, rank),
            _each(attributes, "rhs_dilation", 1, rank),
            tuple(map(bool, _each(attributes, "window_reversal", 0, rank))),
            int(attributes.get("feature_group_count") or 1),
            int(attributes.get("batch_group_count") or 1),
        )


def _each(attributes: Mapping[str, Any], name: str, default: int, rank: int) -> Integers:
    found = attributes.get(name)
    return (default,) * rank if found is None else tuple(found)


def _pairs(attributes: Mapping[str, Any], rank: int) -> Pairs:
    found = attributes.get("padding")
    return ((0, 0),) * rank if found is None else tuple((low, high) for low, high in found)
