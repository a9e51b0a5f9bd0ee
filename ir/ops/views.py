"""Typed views of the attributes of ops that several places read.

    slice = SliceView.of(instruction)
    slice.starts, slice.limits, slice.strides

A view is made of an instruction, of a request for type inference or of what a reference is called with; defaults of
attributes that are left out are filled in.  ``instruction.attributes`` stays what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Final, Protocol, Self, cast

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
Reader = Callable[[Mapping[str, Any]], Any]


class View:
    """Base of the views: every field says which attribute it is, unless ``of_attributes`` reads them together."""

    __slots__ = ()

    @classmethod
    def of(cls, call: HasAttributes) -> Self:
        """The view of an instruction, of a request for type inference or of what a reference is called with."""
        return cls.of_attributes(call.attributes)

    @classmethod
    def of_attributes(cls, attributes: Mapping[str, Any]) -> Self:
        """The view of an op with these attributes."""
        readers: Sequence[Reader] = _readers(cast(Hashable, cls))
        return cls(*[read(attributes) for read in readers])


@cache
def _readers(view: Any) -> tuple[Reader, ...]:
    return tuple(each.metadata["read"] for each in fields(view))


def _read(reader: Reader) -> dict[str, Reader]:
    """A field's metadata: how it is read."""
    return {"read": reader}


def _as_stored(name: str) -> dict[str, Reader]:
    return _read(lambda attributes: attributes[name])


def _integers(name: str) -> dict[str, Reader]:
    return _read(lambda attributes: tuple(attributes[name]))


def _of_class(name: str, kind: type) -> dict[str, Reader]:
    def read(attributes: Mapping[str, Any]) -> Any:
        value = attributes[name]
        assert isinstance(value, kind)
        return value

    return _read(read)


@dataclass(frozen=True, slots=True)
class ConstantView(View):
    """``constant``."""

    value: Dense = field(metadata=_of_class("value", Dense))


@dataclass(frozen=True, slots=True)
class IotaView(View):
    """``iota``, ``dynamic_iota``."""

    dimension: int = field(metadata=_as_stored("iota_dimension"))


MIRRORED: Final[Mapping[str, str]] = {"EQ": "EQ", "NE": "NE", "LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}
"""The direction of a comparison whose operands are exchanged."""


@dataclass(frozen=True, slots=True)
class CompareView(View):
    """``compare``: direction, and how numbers are ordered (``NOTYPE`` where that is left to their type)."""

    direction: str = field(metadata=_as_stored("comparison_direction"))
    order: str = field(metadata=_read(lambda attributes: attributes.get("compare_type") or "NOTYPE"))

    @property
    def mirrored(self) -> str:
        """The direction with exchanged operands."""
        return MIRRORED[self.direction]

    @property
    def is_total_order(self) -> bool:
        """Whether -0.0 is below 0.0 and NaN has a place."""
        return self.order == "TOTALORDER"


@dataclass(frozen=True, slots=True)
class BroadcastView(View):
    """``broadcast_in_dim``: the dimension of the result that each of the operand's is."""

    dimensions: Integers = field(metadata=_integers("broadcast_dimensions"))


@dataclass(frozen=True, slots=True)
class TransposeView(View):
    """``transpose``: the operand's dimension that each of the result's is."""

    permutation: Integers = field(metadata=_integers("permutation"))


@dataclass(frozen=True, slots=True)
class DimensionsView(View):
    """``reduce`` (the dimensions that go), ``reverse`` (those that are turned round)."""

    dimensions: Integers = field(metadata=_integers("dimensions"))


@dataclass(frozen=True, slots=True)
class DimensionView(View):
    """``concatenate``, ``get_dimension_size``, ``set_dimension_size``: one dimension."""

    dimension: int = field(metadata=_as_stored("dimension"))


@dataclass(frozen=True, slots=True)
class SliceView(View):
    """``slice``: from ``starts`` to ``limits`` in steps of ``strides``, an entry a dimension."""

    starts: Integers = field(metadata=_integers("start_indices"))
    limits: Integers = field(metadata=_integers("limit_indices"))
    strides: Integers = field(metadata=_integers("strides"))

    @property
    def ranges(self) -> tuple[tuple[int, int, int], ...]:
        """(start, limit, stride) of each dimension."""
        return tuple(zip(self.starts, self.limits, self.strides))


@dataclass(frozen=True, slots=True)
class DynamicSliceView(View):
    """``dynamic_slice``."""

    sizes: Integers = field(metadata=_integers("slice_sizes"))


@dataclass(frozen=True, slots=True)
class PadView(View):
    """``pad``: what is added before, after and between the elements of each dimension; negative amounts cut."""

    low: Integers = field(metadata=_integers("edge_padding_low"))
    high: Integers = field(metadata=_integers("edge_padding_high"))
    interior: Integers = field(metadata=_integers("interior_padding"))

    @property
    def ranges(self) -> tuple[tuple[int, int, int], ...]:
        """(low, high, interior) of each dimension."""
        return tuple(zip(self.low, self.high, self.interior))


@dataclass(frozen=True, slots=True)
class GatherView(View):
    """``gather``; of a ``dynamic_gather`` the sizes are an operand, and empty here."""

    numbers: GatherDimensionNumbers = field(metadata=_of_class("dimension_numbers", GatherDimensionNumbers))
    sizes: Integers = field(metadata=_read(lambda attributes: tuple(attributes.get("slice_sizes", ()))))


@dataclass(frozen=True, slots=True)
class ScatterView(View):
    """``scatter``: dimension numbers, and whether the program promises that no element is updated twice."""

    numbers: ScatterDimensionNumbers = field(metadata=_of_class("scatter_dimension_numbers", ScatterDimensionNumbers))
    unique_indices: bool = field(metadata=_read(lambda attributes: bool(attributes.get("unique_indices", False))))


@dataclass(frozen=True, slots=True)
class SortView(View):
    """``sort``: the dimension, counted from the end where it is negative."""

    dimension: int = field(
        metadata=_read(lambda attributes: -1 if attributes.get("dimension") is None else int(attributes["dimension"]))
    )

    def position(self, rank: int) -> int:
        """The dimension counted from the front."""
        return self.dimension if self.dimension >= 0 else rank + self.dimension


@dataclass(frozen=True, slots=True)
class CholeskyView(View):
    """``cholesky``: which triangle is read and written."""

    lower: bool = field(metadata=_read(lambda attributes: bool(attributes.get("lower"))))


@dataclass(frozen=True, slots=True)
class TriangularSolveView(View):
    """``triangular_solve``; ``transpose`` is ``N`` for none, ``T``, or ``C`` for the adjoint."""

    left_side: bool = field(metadata=_as_stored("left_side"))
    lower: bool = field(metadata=_as_stored("lower"))
    unit_diagonal: bool = field(metadata=_as_stored("unit_diagonal"))
    transpose: str = field(
        metadata=_read(lambda attributes: {"TRANSPOSE": "T", "ADJOINT": "C"}.get(attributes["transpose_a"], "N"))
    )


@dataclass(frozen=True, slots=True)
class FftView(View):
    """``fft``: its kind, and the lengths of the last dimensions of the side that is not halved."""

    kind: str = field(metadata=_as_stored("fft_type"))
    lengths: Integers = field(metadata=_integers("fft_length"))


@dataclass(frozen=True, slots=True)
class ButterfliesView(View):
    """``hlojit.butterflies``."""

    inverse: bool = field(metadata=_as_stored("inverse"))
    scale: float = field(metadata=_as_stored("scale"))


@dataclass(frozen=True, slots=True)
class DotView(View):
    """``dot_general``."""

    numbers: DotDimensionNumbers = field(metadata=_of_class("dot_dimension_numbers", DotDimensionNumbers))
    algorithm: DotAlgorithm | None = field(metadata=_read(lambda attributes: attributes.get("algorithm")))


@dataclass(frozen=True, slots=True)
class WindowView(View):
    """The windows of ``reduce_window``: an entry a dimension, of ``padding`` a pair (low, high)."""

    sizes: Integers
    strides: Integers
    base_dilations: Integers
    dilations: Integers
    padding: Pairs

    @classmethod
    def of_attributes(cls, attributes: Mapping[str, Any]) -> WindowView:
        """Defaults depend on the number of dimensions."""
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
class ConvolutionView(View):
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
    def of_attributes(cls, attributes: Mapping[str, Any]) -> ConvolutionView:
        """Defaults depend on the number of spatial dimensions."""
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
    return tuple(found) if found else (default,) * rank


def _pairs(attributes: Mapping[str, Any], rank: int) -> Pairs:
    found = attributes.get("padding")
    return tuple((low, high) for low, high in found) if found else ((0, 0),) * rank


@dataclass(frozen=True, slots=True)
class CollectiveView(View):
    """``hlojit.collective``: what moves, and among whom; -1 fills up groups of different sizes.

    ``written_as`` is the op that the program has for it, where it has one.
    """

    kind: str = field(metadata=_as_stored("kind"))
    groups: tuple[Integers, ...] = field(metadata=_read(lambda attributes: tuple(map(tuple, attributes["groups"]))))
    written_as: str = field(metadata=_read(lambda attributes: str(attributes.get("written_as", ""))))
