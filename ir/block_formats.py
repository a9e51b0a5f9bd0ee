"""Block formats: narrow floats in blocks along a dimension, each block with a scale (MX formats, NVFP4, one's own).

    BlockFormat("mxfp8", element="f8E4M3FN", scale="f8E8M0FNU", block=32)           # tensor<64x128xmxfp8>

A tensor of such a type is two tensors: the elements, 64x128 numbers of ``f8E4M3FN``, and the scales of the blocks, 64x4
numbers of ``f8E8M0FNU``.  A number is its element times the scale of its block.  Where a format has a ``tensor_scale``, there
is a third one, a single number by which all are multiplied.

The last block of a dimension is shorter where the size is no multiple of the block.  A number has no meaning without its
block: there are no tensors of rank 0, and what moves elements keeps blocks as they are or is refused
(``hlojit.ir.ops.block_movement``).  docs/block-formats.md says how numbers are encoded.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hlojit.ir.environment import ELEMENT_TYPES, tables
from hlojit.ir.errors import HlojitError, short_repr
from hlojit.ir.format_fields import Rounding, name_complaints
from hlojit.ir.formats import BUILT_IN, ElementType, FloatFormat, NanEncoding, register_element_type
from hlojit.ir.named_fields import named_fields
from hlojit.ir.near_names import did_you_mean

_LONGEST_BLOCK: Final = 1 << 20
_SIGNIFICANT_BITS: Final = 24
"""Of f32, in which numbers of block formats are computed with."""


class Scaling(enum.Enum):
    """How the scale of a block follows from its largest magnitude."""

    EXPONENT = "the power of two that brings the largest number into the top binade of the element format"
    """OCP Microscaling Formats v1.0, section 6.3: shared exponent = floor(log2(largest)) - emax of the elements."""
    MAXIMUM = "the number of the scale format nearest to the largest number divided by the largest element"


@named_fields
@dataclass(frozen=True, slots=True)
class BlockFormat(ElementType):
    """Blocks of ``block`` elements along the dimension ``axis``, each with one scale.

    ``element`` and ``scale`` are float formats or names of built-in ones.  ``axis`` counts from the first dimension, or from
    the last one if it is negative.  ``scaling`` says how scales are chosen: a ``Scaling`` or its name in small letters, or a
    numba-compilable function of the largest magnitude of a block that returns the scale, which is rounded to the scale format
    (to its least number where the function gives none above 0).  ``tensor_scale``, of a format with two levels of scales, is
    that of the number by which all numbers of a tensor are multiplied; the scales are then chosen by ``Scaling.MAXIMUM``.
    Raises ``HlojitError`` for fields that do not fit together.
    """

    bits: int = 0
    element: FloatFormat | str = "f8E4M3FN"
    scale: FloatFormat | str = "f8E8M0FNU"
    block: int = 32
    axis: int = -1
    scaling: Scaling | str | Callable[[float], float] = Scaling.EXPONENT
    tensor_scale: FloatFormat | str | None = None

    __hash__ = ElementType.__hash__

    def __post_init__(self) -> None:
        found = list(name_complaints(self.name))
        for name in ("element", "scale", "tensor_scale"):
            given = getattr(self, name)
            if isinstance(given, str):
                object.__setattr__(self, name, _known(name, given, found))
        for name in ("bits", "block", "axis"):
            given = getattr(self, name)
            if isinstance(given, np.integer):
                object.__setattr__(self, name, int(given))
        if isinstance(self.scaling, str):
            object.__setattr__(self, "scaling", _known_scaling(self.scaling, found))
        found += _complaints(self)
        if found:
            raise HlojitError(f"block format {self.name!r}: {'; '.join(found)}")
        object.__setattr__(self, "bits", self.elements.bits)
        taken = BUILT_IN.get(self.name)
        if taken is not None and self != taken:
            raise HlojitError(f"block format {self.name!r}: it is a type of hlojit's own; choose another name")

    @property
    def elements(self) -> FloatFormat:
        """The format of the elements."""
        assert isinstance(self.element, FloatFormat)
        return self.element

    @property
    def scales(self) -> FloatFormat:
        """The format of the blocks' scales."""
        assert isinstance(self.scale, FloatFormat)
        return self.scale

    @property
    def part_formats(self) -> tuple[FloatFormat, ...]:
        """Those of elements, of scales and, with two levels of scales, of the tensor's scale."""
        parts = (self.element, self.scale, self.tensor_scale)
        return tuple(part for part in parts if isinstance(part, FloatFormat))

    @property
    def storage(self) -> np.dtype[Any]:
        """How constants hold the numbers: not yet encoded, as f32.  Buffers hold elements and scales."""
        return np.dtype(np.float32)

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """NumPy has none."""
        return None

    def dimension(self, rank: int) -> int:
        """The dimension of a tensor of ``rank`` dimensions along which its blocks lie; raises ``HlojitError``."""
        if not -rank <= self.axis < rank:
            raise HlojitError(
                f"{self.name} has its blocks along dimension {self.axis}, which a tensor of rank {rank} has not"
                + remedy(self, rank)
            )
        return self.axis % rank

    def part_shapes(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Shapes of the parts of a tensor of this shape."""
        axis = self.dimension(len(shape))
        blocks = -(-shape[axis] // self.block)
        scales = (*shape[:axis], blocks, *shape[axis + 1 :])
        return (shape, scales, ())[: len(self.part_formats)]

    def same_numbers(self, other: ElementType) -> bool:
        """Whether the other is this format, but for the name and the dimension of the blocks."""
        if not isinstance(other, BlockFormat):
            return False
        fields = ("part_formats", "block", "scaling")
        return all(getattr(self, name) == getattr(other, name) for name in fields)


def largest_number(format: FloatFormat) -> float:
    """The largest finite number of a parametric format."""
    top = (1 << format.exponent_bits) - 1 - format.bias
    mantissa = (1 << format.mantissa_bits) - 1
    if format.nan is NanEncoding.IEEE or format.has_infinity:
        top -= 1
    elif format.nan is NanEncoding.ALL_ONES:
        top, mantissa = (top - 1, mantissa) if mantissa == 0 else (top, mantissa - 1)
    return math.ldexp((1 << format.mantissa_bits) + mantissa, top - format.mantissa_bits)


def largest_exponent(format: FloatFormat) -> int:
    """``emax``: the exponent of the largest finite number."""
    return math.frexp(largest_number(format))[1] - 1


def scale_exponents(format: BlockFormat) -> tuple[int, int]:
    """The least and the greatest exponent of scales that are powers of two; f32 bounds them, too."""
    scales = format.scales
    least = 1 - scales.bias - scales.mantissa_bits if scales.has_zero else -scales.bias
    return max(least, -127), min(largest_exponent(scales), 127)


def remedy(format: BlockFormat, rank: int) -> str:
    """What to do where a tensor of ``rank`` dimensions lacks the one of the blocks; the end of a message."""
    if rank == 0:
        return "; a single number has no block: use f32"
    found = f"axis={format.axis} of {format.name}{tables().source_of(ELEMENT_TYPES, format.name)}"
    return f"; {found} would be {-rank} to {rank - 1} here, and -1 is the last dimension of every tensor"


def scaling_user(format: BlockFormat) -> str:
    """How messages name a format's function."""
    return f"the scaling function of {format.name}"


def _known(field: str, given: str, found: list[str]) -> FloatFormat | str:
    """The format of a name, or the name and a complaint more."""
    row = tables().element_types.get(given)
    if isinstance(row, FloatFormat):
        return row
    floats = [name for name, each in tables().element_types.items() if isinstance(each, FloatFormat)]
    what = "is no float format" if row is not None else "is unknown; give a FloatFormat or the name of one"
    found.append(f"{field} = {given!r} {what}{did_you_mean(given, floats)}")
    return given


def _known_scaling(given: str, found: list[str]) -> Scaling:
    for each in Scaling:
        if each.name.lower() == given:
            return each
    names = " or ".join(repr(each.name.lower()) for each in Scaling)
    found.append(f"scaling = {given!r}; it is {names}")
    return Scaling.EXPONENT


def _complaints(format: BlockFormat) -> Iterator[str]:
    """Everything that is wrong with the fields, and what to change."""
    for field, (least, most), what in (
        ("block", (1, _LONGEST_BLOCK), f"a block has 1 to {_LONGEST_BLOCK} elements"),
        ("axis", (-64, 63), "arrays have at most 64 dimensions"),
    ):
        value = getattr(format, field)
        if not isinstance(value, int) or isinstance(value, bool):
            yield f"{field} = {value!r} is no whole number"
        elif not least <= value <= most:
            yield f"{field} = {value}; {what}"
    if not isinstance(format.scaling, Scaling) and not callable(format.scaling):
        yield f"scaling = {format.scaling!r}; it is one of Scaling, or a function of the largest magnitude"
    # Names that are unknown have been complained of.
    parts = {field: _part_complaint(field, getattr(format, field)) for field in ("element", "scale")}
    yield from filter(None, parts.values())
    if isinstance(format.element, FloatFormat) and parts["element"] is None:
        yield from _element_complaints(format)
        if isinstance(format.scale, FloatFormat) and parts["scale"] is None:
            yield from filter(None, [_scale_complaint(format)])


def _element_complaints(format: BlockFormat) -> Iterator[str]:
    if format.bits not in (0, format.elements.bits):
        yield f"bits = {format.bits}, and its elements have {format.elements.bits}; leave bits out"
    if not format.elements.signed:
        yield f"the element format {format.elements} has no sign, and blocks hold numbers of both; choose another one"
    if not format.elements.has_zero:
        yield f"the element format {format.elements} has no zero, which numbers far below a block's largest become"


def _part_complaint(field: str, given: Any) -> str | None:
    if isinstance(given, str):
        return None
    if isinstance(given, type) and issubclass(given, ElementType):
        return f"{field} = the class {given.__name__}; give an instance, {given.__name__}(...), or the name of a built-in one"
    if (isinstance(given, type) and issubclass(given, np.generic)) or isinstance(given, np.dtype):
        return (
            f"{field} = {short_repr(given)}{_meant(np.dtype(given))}; give a FloatFormat, or the name of a built-in one"
        )
    if isinstance(given, ElementType) and not isinstance(given, FloatFormat):
        return f"{field} = {given.name} is a {type(given).__name__}; give a FloatFormat, or the name of a built-in one"
    if not isinstance(given, FloatFormat):
        return f"{field} = {short_repr(given)}; give a FloatFormat, or the name of a built-in one"
    if given.decode is not None or given.encode is not None:
        return f"{field} = {given.name} is made of functions; blocks have formats of exponent and mantissa"
    if given.rounding is Rounding.STOCHASTIC:
        return f"{field} = {given.name} is rounded by random bits; blocks are encoded in one way"
    if given.compute != "f32":
        return f"{field} = {given.name} is beyond f32, in which numbers of block formats are computed with"
    return None


def _meant(dtype: np.dtype[Any]) -> str:
    """The float format that a dtype of NumPy's is, where it is one."""
    return next(
        (
            f", a dtype of NumPy's; it is {row.name!r}"
            for row in BUILT_IN.values()
            if isinstance(row, FloatFormat) and row.dtype == dtype
        ),
        ", a dtype of NumPy's",
    )


def _scale_complaint(format: BlockFormat) -> str | None:
    scales = format.scales
    if scales.nan is NanEncoding.NONE:
        return f"the scale format {scales} has no NaN, which the scale of a block with a NaN or an infinity is"
    digits = format.elements.mantissa_bits + scales.mantissa_bits + 2
    if digits > _SIGNIFICANT_BITS:
        return (
            f"element times scale has {digits} significant bits, f32 has {_SIGNIFICANT_BITS}; choose narrower formats"
        )
    if format.tensor_scale is not None:
        if not isinstance(format.tensor_scale, FloatFormat) or format.tensor_scale.name != "f32":
            return f"tensor_scale = {format.tensor_scale!s}; it is 'f32' or None"
        if format.scaling is not Scaling.MAXIMUM:
            return "scales below a tensor's scale are chosen by scaling='maximum'"
    if format.scaling is Scaling.EXPONENT:
        low, high = scale_exponents(format)
        if low > -1 or high < 1:
            return f"the scale format {scales} has no powers of two below and above 1; choose scaling='maximum'"
        if largest_exponent(format.elements) < 0:
            return f"the element format {format.elements} has no number from 1; choose scaling='maximum'"
    return None


def _register_builtin_formats() -> None:
    mx = {"mxfp8": "f8E4M3FN", "mxfp8_e5m2": "f8E5M2", "mxfp6_e2m3": "f6E2M3FN", "mxfp6_e3m2": "f6E3M2FN"}
    for suffix, axis in (("", -1), ("_t", -2)):
        for name, element in {**mx, "mxfp4": "f4E2M1FN"}.items():
            _built_in(BlockFormat(f"{name}{suffix}", element=element, axis=axis))
        nvfp4 = BlockFormat(
            f"nvfp4{suffix}",
            element="f4E2M1FN",
            scale="f8E4M3FN",
            block=16,
            axis=axis,
            scaling=Scaling.MAXIMUM,
            tensor_scale="f32",
        )
        _built_in(nvfp4)


def _built_in(row: BlockFormat) -> None:
    BUILT_IN[row.name] = register_element_type(row)


_register_builtin_formats()
