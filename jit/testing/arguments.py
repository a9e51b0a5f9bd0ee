"""Arguments that programs are tried with: ordinary numbers among those that break programs.

    arrays = arguments_for(module, seed=3)          # storage form, the same for the same seed

Special values are NaN, infinities, both zeros, denormals, the largest numbers and their neighbours; integers' extremes.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from hlojit.ir.formats import BooleanType, ComplexType, ElementType, FloatFormat, IntegerType
from hlojit.ir.graph import Module
from hlojit.ir.scalar.arrays import encode_array
from hlojit.ir.types import TensorType
from hlojit.testing.execution import argument_types

NDArray = np.ndarray[Any, Any]


class Values(enum.Enum):
    """What kind of numbers arguments are."""

    LARGE = "numbers in the hundreds"
    SMALL = "small integers, whose sums and products are exact"
    ORDINARY = "numbers about one"
    SPECIAL = "ordinary ones, and one in four that is a special value"
    SPARSE = "ordinary ones, and in a few places special values"
    CODES = "every code of a format, at random"


SPECIALS = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.0, -1.0, 0.5)


SETS: tuple[Values, ...] = (Values.SPARSE, Values.SPECIAL, Values.SMALL)
"""Kinds of numbers that a program is tried with in turn where one kind may show nothing."""


def arguments_for(module: Module, *, seed: int = 0, values: Values = Values.SPECIAL) -> list[NDArray]:
    """Arrays for a module's entry function, in storage form; they depend on seed, position and type alone."""
    return [made_up(kind, (seed, position), values) for position, kind in enumerate(argument_types(module))]


def made_up(kind: TensorType, seed: Iterable[int], values: Values = Values.SPECIAL) -> NDArray:
    """Elements of a tensor type; a single one is ordinary, since of 0, infinity and NaN too much is the same."""
    if kind.size == 1 and values in (Values.SPECIAL, Values.SPARSE):
        values = Values.ORDINARY
    generator = np.random.default_rng([*seed, zlib.crc32(kind.element_type.name.encode())])
    if values is not Values.SPARSE:
        return elements(kind.element_type, kind.size, generator, values).reshape(kind.shape)
    flat = elements(kind.element_type, kind.size, generator, Values.ORDINARY)
    if flat.size:
        # In one place: a sum that meets it is NaN, and most sums meet none.
        flat[generator.integers(flat.size)] = _one_special(kind.element_type, generator)
    return flat.reshape(kind.shape)


def _one_special(element: ElementType, generator: np.random.Generator) -> Any:
    if isinstance(element, BooleanType):
        return True
    if isinstance(element, IntegerType):
        return generator.choice(np.array([element.minimum, element.maximum], element.storage))
    number = np.array([generator.choice(np.array(SPECIALS[:5]))])
    with np.errstate(all="ignore"):
        if isinstance(element, ComplexType):
            return number.astype(element.storage)[0]
        assert isinstance(element, FloatFormat), element
        return encode_array(number, element)[0]


def elements(element: ElementType, count: int, generator: np.random.Generator, values: Values) -> NDArray:
    """``count`` elements in storage form."""
    if isinstance(element, BooleanType):
        return generator.integers(0, 2, count).astype(np.bool_)
    if isinstance(element, IntegerType):
        return _integers(element, count, generator, values)
    if isinstance(element, ComplexType):
        parts = [_numbers(count, generator, values) for _ in range(2)]
        with np.errstate(all="ignore"):
            return (parts[0] + 1j * parts[1]).astype(element.storage)
    assert isinstance(element, FloatFormat), element
    if values is Values.CODES or (values is Values.SPECIAL and (element.decode or element.encode)):
        return _codes(element, count, generator)
    made = _numbers(count, generator, values)
    with np.errstate(all="ignore"):
        stored = encode_array(made, element)
    if values is Values.SPECIAL and count:
        # The smallest and the largest numbers lie at the ends of the codes.
        bits = stored.view(element.storage_bits).copy()
        where = generator.integers(0, 16, count) == 0
        bits[where] = _edges(element, generator, int(where.sum()))
        return bits.view(element.storage)
    return stored


def _numbers(count: int, generator: np.random.Generator, values: Values) -> NDArray:
    if values is Values.SMALL:
        return generator.integers(-2, 3, count).astype(np.float64)
    made = generator.standard_normal(count) * (256.0 if values is Values.LARGE else 1.0)
    if values is Values.SPECIAL:
        # Beyond one, too: what is right of small angles may be wrong of large ones.
        large = generator.integers(0, 8, count) == 0
        made[large] *= 2.0 ** generator.integers(-10, 20, int(large.sum()))
        where = generator.integers(0, 4, count) == 0
        made[where] = generator.choice(np.array(SPECIALS), int(where.sum()))
    return made


def _codes(element: FloatFormat, count: int, generator: np.random.Generator) -> NDArray:
    codes = generator.integers(0, (1 << element.bits) - 1, count, dtype=np.uint64, endpoint=True)
    return codes.astype(element.storage_bits).view(element.storage)


def _edges(element: FloatFormat, generator: np.random.Generator, count: int) -> NDArray:
    """Codes at and beside the ends of the range."""
    top = (1 << element.bits) - 1
    half = 1 << (element.bits - 1)
    mantissa = 1 << element.mantissa_bits
    known = [0, 1, 2, mantissa - 1, mantissa, half - 1, half, half - 2, half + 1, top, top - 1, half - mantissa]
    codes = np.array([each & top for each in known], np.uint64).astype(element.storage_bits)
    return np.asarray(generator.choice(codes, count))


def _integers(element: IntegerType, count: int, generator: np.random.Generator, values: Values) -> NDArray:
    low, high = max(element.minimum, -2), min(element.maximum, 3)
    if values is not Values.SMALL:
        low, high = max(element.minimum, -9), min(element.maximum, 9)
    made = generator.integers(low, high, count, endpoint=True)
    if values in (Values.SMALL, Values.ORDINARY, Values.LARGE):
        return made.astype(element.storage)
    edges = [element.minimum, element.minimum + 1, -1, 0, 1, element.maximum - 1, element.maximum]
    chosen = np.array([edge for edge in edges if element.minimum <= edge <= element.maximum], element.storage)
    stored = made.astype(element.storage)
    where = generator.integers(0, 6, count) == 0
    stored[where] = generator.choice(chosen, int(where.sum()))
    return stored
