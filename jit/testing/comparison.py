"""Comparing arrays of any element type, in storage form: bit for bit, or within a tolerance.

NaN is NaN, whatever its bits; zeros of different signs are different numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hlojit.ir.formats import ComplexType, ElementType, FloatFormat
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.ops.custom_calls import is_custom_call
from hlojit.ir.ops.definition import Cost, Indexed, Kernel, Pointwise, Reduction, Structural, Trait
from hlojit.ir.scalar.arrays import to_compute
from hlojit.ir.types import TensorType, Type

NDArray = np.ndarray[Any, Any]


_NARROW_UNITS: Final = 2.0
"""Of a narrow format: a result beside a tie is rounded the other way, and what it is added to is, too."""
_F32_MANTISSA: Final = 23


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far two floats may be apart: ``ulps`` units in the last place of the larger, ``absolute``, or ``relative`` to it.

    ``scaled``: units are those of the largest finite number of the array, as sums that cancel need it.  ``zeros``: the sign of
    a zero does not count.  The default is the same bits.  Of formats narrower than f32 no more than two of their units count
    beside that many of f32, in which they are computed: 512 units of f16 are half of the number, of f8 all of it.
    """

    ulps: float = 0.0
    absolute: float = 0.0
    zeros: bool = False
    scaled: bool = False
    relative: float = 0.0


EXACT = Tolerance()
INEXACT = Tolerance(ulps=512, zeros=True, scaled=True)
"""For programs with functions and sums of floats, which back ends compute in their own ways and orders."""


def tolerance_for(module: Module) -> Tolerance:
    """``EXACT`` where the specification leaves a back end no choice, ``INEXACT`` where it does: sums, functions."""
    return EXACT if all(map(_is_exact, module.walk())) else INEXACT


def _is_exact(instruction: Instruction) -> bool:
    record = instruction.op
    if not any(map(_is_inexact_type, (*instruction.operand_types, *instruction.result_types))):
        return True
    lowering = record.lowering
    if Trait.PARTS in record.traits:
        return True
    if isinstance(lowering, Pointwise):
        return record.cost is Cost.CHEAP
    if isinstance(lowering, Kernel) and (lowering.operations is not None or is_custom_call(instruction)):
        return False
    if isinstance(lowering, (Kernel, Reduction)):
        inner = (each.op.traits for region in instruction.regions for each in region)
        return not any(Trait.ASSOCIATIVE in traits and Trait.IDEMPOTENT not in traits for traits in inner)
    return isinstance(lowering, (Indexed, Structural))


def _is_inexact_type(kind: Type) -> bool:
    return isinstance(kind, TensorType) and isinstance(kind.element_type, (FloatFormat, ComplexType))


@dataclass(frozen=True, slots=True)
class Difference:
    """The first element that differs: which result, where, and the two numbers; ``count`` of all elements of that result.

    ``marks`` are the ways in which elements of that result differ, the plainest in front.
    """

    result: int
    index: tuple[int, ...]
    found: str
    expected: str
    count: int
    size: int
    marks: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The element."""
        return f"result {self.result}" + (f"[{', '.join(map(str, self.index))}]" if self.index else "")

    @property
    def _rest(self) -> str:
        return f"; {self.count} of {self.size} elements differ" if self.size > 1 else ""

    def __str__(self) -> str:
        return f"{self.where} is {self.found}, expected {self.expected}{self._rest}"

    def between(self, run: int) -> str:
        """Of two runs, of which the first is what was expected."""
        return f"{self.where} is {self.expected} at first and {self.found} in run {run}{self._rest}"


def first_difference(
    found: Sequence[NDArray], expected: Sequence[NDArray], types: Sequence[TensorType], tolerance: Tolerance = EXACT
) -> Difference | None:
    """The first place in which two lists of results (storage form) differ by more than the tolerance."""
    for number, (ours, theirs, kind) in enumerate(zip(found, expected, types, strict=True)):
        if ours.shape != theirs.shape:
            return Difference(number, (), f"of shape {ours.shape}", f"shape {theirs.shape}", 1, 1, ("shape",))
        wrong = differences(ours, theirs, kind.element_type, tolerance)
        if wrong.any():
            index = tuple(int(each) for each in np.argwhere(wrong)[0])
            shown, wanted = (spell(array[index], kind.element_type) for array in (ours, theirs))
            marks = _marks(ours[wrong], theirs[wrong], kind.element_type)
            return Difference(number, index, shown, wanted, int(wrong.sum()), wrong.size, marks)
    return None


def _marks(found: NDArray, expected: NDArray, element: ElementType) -> tuple[str, ...]:
    """In which ways elements that differ do so: a number for another, an infinity, a NaN, a zero of the other sign."""
    if not isinstance(element, (FloatFormat, ComplexType)):
        return ("number",)
    is_complex = isinstance(element, ComplexType)
    ours, theirs = (
        each if is_complex else to_compute(np.ascontiguousarray(each), element) for each in (found, expected)
    )
    is_nan = np.isnan(ours) | np.isnan(theirs)
    is_infinite = (np.isinf(ours) | np.isinf(theirs)) & ~is_nan
    is_zero = ours == theirs
    cases = {
        "number": ~(is_nan | is_infinite | is_zero),
        "infinity": is_infinite & ~is_zero,
        "nan": is_nan,
        "sign of zero": is_zero,
    }
    return tuple(name for name, where in cases.items() if where.any())


def differences(found: NDArray, expected: NDArray, element: ElementType, tolerance: Tolerance = EXACT) -> NDArray:
    """Which elements differ (booleans)."""
    if isinstance(element, ComplexType):
        component = found.real.dtype
        parts = [
            _differ(ours, theirs, np.finfo(component).nmant, tolerance)
            for ours, theirs in ((found.real, expected.real), (found.imag, expected.imag))
        ]
        return np.asarray(parts[0] | parts[1])
    if not isinstance(element, FloatFormat):
        return np.asarray(found != expected)
    ours, theirs = (to_compute(np.ascontiguousarray(each), element) for each in (found, expected))
    # NumPy makes contiguous scalars arrays of one element.
    return _differ(ours, theirs, element.mantissa_bits, tolerance).reshape(found.shape)


def _differ(found: NDArray, expected: NDArray, mantissa_bits: int, tolerance: Tolerance) -> NDArray:
    """Numbers in compute form that differ, as zeros of different signs do."""
    both_nan = (found != found) & (expected != expected)
    same = found == expected
    if not tolerance.zeros:
        same &= np.signbit(found) == np.signbit(expected)
    wrong = ~(same | both_nan)
    if not (tolerance.ulps or tolerance.absolute or tolerance.relative):
        return np.asarray(wrong)
    with np.errstate(all="ignore"):
        wide, other = found.astype(np.float64), expected.astype(np.float64)
        size = np.maximum(np.abs(wide), np.abs(other))
        if tolerance.scaled:
            size = np.max(np.abs(other), initial=0.0, where=np.isfinite(other))
        allowed = size * max(_units(tolerance.ulps, mantissa_bits), tolerance.relative)
        near = np.abs(wide - other) <= np.maximum(allowed, tolerance.absolute)
    # A part of an infinity is infinite: every number would lie within it.
    return np.asarray(wrong & ~(near & np.isfinite(wide) & np.isfinite(other)))


def _units(ulps: float, mantissa_bits: int) -> float:
    """So many units in the last place, as a part of the number."""
    unit = 2.0**-mantissa_bits
    return min(ulps * unit, _NARROW_UNITS * unit + ulps * 2.0**-_F32_MANTISSA)


def lost_numbers(results: Sequence[NDArray], types: Sequence[TensorType]) -> int:
    """How many elements are NaN or infinite: what was computed on the way to these cannot be told."""
    return sum(int(np.count_nonzero(~_is_finite(array, kind.element_type))) for array, kind in zip(results, types))


def _is_finite(array: NDArray, element: ElementType) -> NDArray:
    if not isinstance(element, (FloatFormat, ComplexType)):
        return np.ones(array.shape, np.bool_)
    numbers = array if isinstance(element, ComplexType) else to_compute(np.ascontiguousarray(array), element)
    return np.asarray(np.isfinite(numbers))


def spell(stored: Any, element: ElementType) -> str:
    """One element as its number, and its code where the type has no dtype of its own."""
    array = np.asarray(stored)
    if not isinstance(element, FloatFormat):
        return str(array.item())
    value = to_compute(array.reshape(1), element)[0].item()
    if element.is_native:
        return repr(value) if value == value else "nan"
    code = int(np.ascontiguousarray(array).reshape(1).view(element.storage_bits)[0])
    return f"{value!r} (code {code:#x})"
