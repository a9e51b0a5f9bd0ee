"""Fourier transforms out of short ones: what ``fft`` becomes on back ends that have none of their own.

A transform of length n = n1 * m over j = j1 * m + j2 is n1-point transforms over j1, twiddle factors, and a transform of length
m over j2 whose result is in order where the first ones' results are the faster index (Stockham's form of Cooley's and Tukey's
algorithm)::

    x[A, n, I]  =  x[A, n1, m, I]  -- hlojit.butterflies -->  y[A, m, n1, I]  =  y[A, m, n1 * I]  -- length m --> ...

so that every stage is one pass over memory, with contiguous reads and writes where I has grown.  Prime lengths beyond what is
written out are convolutions with a chirp (Bluestein), and transforms of real numbers of even length are of half as many complex
ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.ir.formats import ComplexType, ElementType, element_type
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.attribute_kinds import BOOL, FloatKind
from hlojit.ir.ops.definition import (
    Array,
    AttributeSpec,
    Constraint,
    InferenceRequest,
    Kernel,
    OpDefinition,
    Operand,
    ReferenceCall,
    define,
)
from hlojit.ir.ops.rules import inferred, operand_tensor
from hlojit.ir.ops.views import FftView
from hlojit.ir.types import TensorType, Type, tensor

LONGEST: Final = 32
"""The longest transform that is written out: its numbers fit a processor's registers, more or less."""
_BLOCK: Final = 1 << 20
"""Roots of unity are computed so many at a time: in extended precision they take ten times the memory of the result."""


def expand_fft(builder: Any, instruction: Instruction) -> Sequence[Value] | None:
    """All dimensions one after the other; of real numbers the last one first, and of real results last."""
    (operand,) = instruction.operands
    view = FftView.of(instruction)
    kind, result = operand.tensor_type, instruction.result.tensor_type
    if not kind.is_static or not result.is_static:
        return None
    if not result.size or 0 in view.lengths:
        return [builder.broadcast_in_dim(builder.constant(0, result.with_shape(())), result)]
    first = kind.rank - len(view.lengths)
    inner = range(first, kind.rank - 1)
    value = operand
    if view.kind == "RFFT":
        value = _from_real(builder, value, view.lengths[-1])
        for dimension in inner:
            value = _along(builder, value, dimension, inverse=False)
        return [value]
    inverse = view.kind != "FFT"
    for dimension in inner:
        value = _along(builder, value, dimension, inverse=inverse)
    if view.kind == "IRFFT":
        return [_to_real(builder, value, view.lengths[-1])]
    return [_along(builder, value, kind.rank - 1, inverse=inverse)]


# -------------------------------------------------------------------------------------------------- complex numbers


def _along(builder: Any, value: Value, dimension: int, *, inverse: bool) -> Value:
    """The transform along one dimension; the inverse one is divided by the length."""
    kind = value.tensor_type
    length = kind.shape[dimension]
    before, behind = math.prod(kind.shape[:dimension]), math.prod(kind.shape[dimension + 1 :])
    columns = builder.reshape(value, kind.with_shape((before, length, behind)))
    found = transform(builder, columns, inverse=inverse, scale=1 / length if inverse else 1.0)
    reshaped: Value = builder.reshape(found, kind)
    return reshaped


def transform(builder: Any, value: Value, *, inverse: bool, scale: float = 1.0) -> Value:
    """The transform of ``[A, n, I]`` along the middle, times ``scale``."""
    kind = value.tensor_type
    outer, length, inner = kind.shape
    factor = stages(length)[0]
    if factor == length:
        if factor > LONGEST:
            return _bluestein(builder, value, inverse=inverse, scale=scale)
        short = builder.reshape(value, kind.with_shape((outer, length, 1, inner)))
        found = _butterflies(builder, short, inverse=inverse, scale=scale)
    else:
        rest = length // factor
        split = kind.with_shape((outer, factor, rest, inner))
        if factor > LONGEST:
            first = _bluestein_stage(builder, value, split, inverse=inverse)
        else:
            first = _butterflies(builder, builder.reshape(value, split), inverse=inverse)
        found = transform(
            builder,
            builder.reshape(first, kind.with_shape((outer, rest, factor * inner))),
            inverse=inverse,
            scale=scale,
        )
    reshaped: Value = builder.reshape(found, kind)
    return reshaped


def _butterflies(builder: Any, value: Value, *, inverse: bool, scale: float = 1.0) -> Value:
    kind = value.tensor_type
    _, count, rest, _ = kind.shape
    real = _real(kind)
    roots = root_table(count * rest, range(count), range(rest), real.storage, inverse=inverse)
    factors = builder.constant(roots, tensor((2, count, rest), real))
    made: Value = builder.create(
        "hlojit.butterflies", [value, factors], attributes={"inverse": inverse, "scale": scale}
    ).result
    return made


def _real(kind: TensorType) -> ElementType:
    assert isinstance(kind.element_type, ComplexType)
    return element_type(kind.element_type.component)


def unit_roots(length: int, numbers: Array, *, inverse: bool) -> tuple[Array, Array]:
    """Cosines and sines of -2 pi number / length (of 2 pi number / length: ``inverse``), rounded once to f64."""
    # Exact in integers, and in the first octant before it is an angle: no error grows with the number.
    place = (np.asarray(numbers, np.int64) % length) * 8
    octant, offset = place // length, place % length
    folded = np.where(octant % 2 == 1, length - offset, offset)
    angle = folded.astype(np.longdouble) * (np.longdouble("3.14159265358979323846264338327950288") / (4 * length))
    cosine, sine = np.cos(angle), np.sin(angle)
    turned = (octant + 1) // 2 % 2 == 1
    x, y = np.where(turned, sine, cosine), np.where(turned, cosine, sine)
    x = np.where((octant >= 2) & (octant < 6), -x, x)
    y = np.where(octant >= 4, -y, y)
    return x.astype(np.float64), (y if inverse else -y).astype(np.float64)


def root_table(length: int, rows: range, columns: range, dtype: Any, *, inverse: bool) -> Array:
    """``unit_roots`` numbered row times column, as cosines and sines by rows and columns.

    Raises ``HlojitError`` with the length if there is no memory for it; nothing larger is needed on the way.
    """
    shape = (2, len(rows), len(columns))
    try:
        table: Array = np.empty(shape, dtype)
    except MemoryError as error:
        size = math.prod(shape) * np.dtype(dtype).itemsize / 2**30
        raise HlojitError(
            f"no memory to compile stablehlo.fft: a transform of length {length} needs {size:.3g} GiB of roots of unity"
        ) from error
    height, width = max(1, _BLOCK // max(1, len(columns))), min(_BLOCK, max(1, len(columns)))
    for top in range(0, len(rows), height):
        for left in range(0, len(columns), width):
            numbers = np.outer(rows[top : top + height], columns[left : left + width])
            table[:, top : top + height, left : left + width] = unit_roots(length, numbers, inverse=inverse)
    return table


def stages(length: int) -> list[int]:
    """Factors of a length, each of which is one stage: large primes first, the others of similar sizes up to ``LONGEST``."""
    primes, rest, divisor = [], length, 2
    while divisor * divisor <= rest:
        while rest % divisor == 0:
            primes.append(divisor)
            rest //= divisor
        divisor += 1
    if rest > 1:
        primes.append(rest)
    large = [prime for prime in primes if prime > LONGEST]
    small = [prime for prime in primes if prime <= LONGEST]
    count = max(1, math.ceil(math.log(math.prod(small)) / math.log(LONGEST) - 1e-9)) if small else 0
    while small:
        groups = [1] * count
        for prime in reversed(small):
            groups.sort()
            groups[0] *= prime
        if max(groups) <= LONGEST:
            large += sorted((group for group in groups if group > 1), reverse=True)
            break
        count += 1
    return large or [1]


# ------------------------------------------------------------------------------------------------------ large primes


def _bluestein(builder: Any, value: Value, *, inverse: bool, scale: float) -> Value:
    """A transform as a convolution: 2 j k = j^2 + k^2 - (k - j)^2."""
    kind = value.tensor_type
    _, length, _ = kind.shape
    padded = _smooth_length(2 * length - 1)
    squares = np.array([number * number % (2 * length) for number in range(length)], np.int64)
    cosines, sines = unit_roots(2 * length, squares, inverse=inverse)
    chirp = cosines + 1j * sines
    around = np.zeros(padded, np.complex128)
    around[:length] = chirp.conj()
    around[padded - length + 1 :] = chirp[1:][::-1].conj()
    spectrum = _reference_transform(around)
    value = _scaled(builder, value, chirp)
    zero = builder.constant(0, kind.with_shape(()))
    value = builder.pad(
        value,
        zero,
        edge_padding_low=(0, 0, 0),
        edge_padding_high=(0, padded - length, 0),
        interior_padding=(0, 0, 0),
    )
    value = _scaled(builder, transform(builder, value, inverse=False), spectrum)
    value = transform(builder, value, inverse=True)
    limits = (kind.shape[0], length, kind.shape[2])
    value = builder.slice(value, start_indices=(0, 0, 0), limit_indices=limits, strides=(1, 1, 1))
    return _scaled(builder, value, chirp * (scale / padded))


def _bluestein_stage(builder: Any, value: Value, split: TensorType, *, inverse: bool) -> Value:
    """A stage whose factor is a large prime, as ``hlojit.butterflies`` would do it."""
    outer, factor, rest, inner = split.shape
    columns = builder.reshape(value, split.with_shape((outer, factor, rest * inner)))
    found = builder.reshape(_bluestein(builder, columns, inverse=inverse, scale=1.0), split)
    cosines, sines = root_table(factor * rest, range(factor), range(rest), np.float64, inverse=inverse)
    twiddles = _constant(builder, cosines + 1j * sines, split)
    spread = builder.broadcast_in_dim(twiddles, split, broadcast_dimensions=(1, 2))
    moved: Value = builder.transpose(builder.multiply(found, spread), permutation=(0, 2, 1, 3))
    return moved


def _smooth_length(least: int) -> int:
    """The smallest number of factors 2, 3 and 5 that is not less."""
    best = 1 << (least - 1).bit_length()
    for fives in range(12):
        for threes in range(12):
            odd = 5**fives * 3**threes
            if odd >= best:
                break
            quotient = -(-least // odd)
            best = min(best, odd << (quotient - 1).bit_length())
    return best


def _reference_transform(values: Array) -> Array:
    import scipy.fft

    return np.asarray(scipy.fft.fft(values.astype(np.clongdouble))).astype(np.complex128)


def _constant(builder: Any, values: Array, kind: TensorType) -> Value:
    made: Value = builder.constant(values.astype(kind.element_type.storage), kind.with_shape(values.shape))
    return made


def _scaled(builder: Any, value: Value, factors: Array) -> Value:
    """Every column times a vector."""
    kind = value.tensor_type
    spread = builder.broadcast_in_dim(_constant(builder, factors, kind), kind, broadcast_dimensions=(1,))
    product: Value = builder.multiply(value, spread)
    return product


# ------------------------------------------------------------------------------------------------------ real numbers


def _last(builder: Any, value: Value, start: int, limit: int) -> Value:
    """Elements of the last dimension."""
    shape = value.tensor_type.shape
    zeros, ones = (0,) * (len(shape) - 1), (1,) * len(shape)
    part: Value = builder.slice(value, start_indices=(*zeros, start), limit_indices=(*shape[:-1], limit), strides=ones)
    return part


def _joined(builder: Any, values: Sequence[Value]) -> Value:
    """One behind the other in the last dimension."""
    if len(values) == 1:
        return values[0]
    joined: Value = builder.concatenate(list(values), dimension=values[0].tensor_type.rank - 1)
    return joined


def _reversed(builder: Any, value: Value) -> Value:
    found: Value = builder.reverse(value, dimensions=(value.tensor_type.rank - 1,))
    return found


def _spread(builder: Any, values: Array | float, kind: TensorType) -> Value:
    """A number, or one for each element of the last dimension."""
    shape, dimensions = ((), ()) if isinstance(values, float) else (values.shape, (kind.rank - 1,))
    made = builder.constant(np.asarray(values, kind.element_type.storage), kind.with_shape(shape))
    spread: Value = builder.broadcast_in_dim(made, kind, broadcast_dimensions=dimensions)
    return spread


def _from_real(builder: Any, value: Value, length: int) -> Value:
    """The first half of the spectrum, along the last dimension."""
    kind = value.tensor_type
    if length % 2:
        whole = _along(builder, builder.complex(value, _spread(builder, 0.0, kind)), kind.rank - 1, inverse=False)
        return _last(builder, whole, 0, length // 2 + 1)
    # Even and odd elements as real and imaginary parts of one transform of half the length.
    half = length // 2
    pairs = builder.reshape(value, kind.with_shape((*kind.shape[:-1], half, 2)))
    parts = [
        builder.reshape(_last(builder, pairs, number, number + 1), kind.with_shape((*kind.shape[:-1], half)))
        for number in range(2)
    ]
    packed = _along(builder, builder.complex(*parts), kind.rank - 1, inverse=False)
    first = _last(builder, packed, 0, 1)
    real, imaginary = builder.real(first), builder.imag(first)
    zero = _spread(builder, 0.0, real.tensor_type)
    ends = (builder.add(real, imaginary), zero), (builder.subtract(real, imaginary), zero)
    return _between(builder, ends[0], _turned_halves(builder, packed, half, inverse=False), ends[1])


def _to_real(builder: Any, value: Value, length: int) -> Value:
    """The real numbers whose spectrum begins with this one, along the last dimension; divided by the length.

    Imaginary parts that no real numbers' spectrum has, the first one's and the middle one's, are not read.
    """
    last, half = value.tensor_type.rank - 1, length // 2
    first = builder.real(_last(builder, value, 0, 1))
    if length % 2:
        start = builder.complex(first, _spread(builder, 0.0, first.tensor_type))
        rest = _last(builder, value, 1, half + 1) if half else None
        tail = [rest, _conjugate(builder, _reversed(builder, rest))] if rest is not None else []
        real: Value = builder.real(_along(builder, _joined(builder, [start, *tail]), last, inverse=True))
        return real
    middle = builder.real(_last(builder, value, half, half + 1))
    halves = _spread(builder, 0.5, first.tensor_type)
    start = (
        builder.multiply(halves, builder.add(first, middle)),
        builder.multiply(halves, builder.subtract(first, middle)),
    )
    inner = _turned_halves(builder, value, half, inverse=True)
    packed = _along(builder, _between(builder, start, inner, None), last, inverse=True)
    shape, component = packed.tensor_type.shape, first.tensor_type.element_type
    parts = [
        builder.reshape(part, tensor((*shape, 1), component)) for part in (builder.real(packed), builder.imag(packed))
    ]
    flat: Value = builder.reshape(_joined(builder, parts), tensor((*shape[:-1], length), component))
    return flat


Parts = tuple[Value, Value]
"""Real and imaginary parts."""


def _between(builder: Any, first: Parts, inner: Parts, last: Parts | None) -> Value:
    """Complex numbers one behind the other: one, many, and perhaps one more.

    As a padded array in which the ends are chosen: that is computed in vectors, where a concatenation is copies.
    """
    kind = inner[0].tensor_type
    dimension = kind.rank - 1
    count = kind.shape[-1] + (2 if last is not None else 1)
    whole = kind.with_shape((*kind.shape[:-1], count))
    numbers = builder.iota(tensor((count,), "i32"), dimension=0)
    parts = []
    for part in range(2):
        zeros = (0,) * dimension
        found = builder.pad(
            inner[part],
            builder.constant(0.0, kind.with_shape(())),
            edge_padding_low=(*zeros, 1),
            edge_padding_high=(*zeros, 1 if last is not None else 0),
            interior_padding=(*zeros, 0),
        )
        for place, end in ((0, first), *(((count - 1, last),) if last is not None else ())):
            here = builder.compare(numbers, builder.constant(place, tensor((count,), "i32")), "EQ")
            mask = builder.broadcast_in_dim(here, tensor(whole.shape, "i1"), broadcast_dimensions=(dimension,))
            value = builder.reshape(end[part], kind.with_shape(kind.shape[:-1]))
            spread = builder.broadcast_in_dim(value, whole, broadcast_dimensions=tuple(range(dimension)))
            found = builder.select(mask, spread, found)
        parts.append(found)
    made: Value = builder.complex(*parts)
    return made


def _turned_halves(builder: Any, value: Value, half: int, *, inverse: bool) -> Parts:
    """Between a transform z of pairs of real numbers and the spectrum x of all of them, without the ends.

    With z' the conjugate of z the other way round, (z + z') / 2 is the transform of the even elements and (z - z') / 2i that
    of the odd ones, which enters x turned by a root of unity; the way back differs in the root's sign only.
    """
    inner = _last(builder, value, 1, half)
    real, imaginary = builder.real(inner), builder.imag(inner)
    other_real, other_imaginary = (_reversed(builder, part) for part in (real, imaginary))
    kind = real.tensor_type
    cosines, sines = root_table(2 * half, range(1, 2), range(1, half), np.float64, inverse=inverse)[:, 0]
    # -i times the root, i times the inverse one; halved, which is exact.
    turn = (-sines, cosines) if inverse else (sines, -cosines)
    turn_real, turn_imaginary = (_spread(builder, part / 2, kind) for part in turn)
    halves = _spread(builder, 0.5, kind)
    difference_real = builder.subtract(real, other_real)
    difference_imaginary = builder.add(imaginary, other_imaginary)
    found_real = builder.subtract(
        builder.multiply(turn_real, difference_real), builder.multiply(turn_imaginary, difference_imaginary)
    )
    found_imaginary = builder.add(
        builder.multiply(turn_real, difference_imaginary), builder.multiply(turn_imaginary, difference_real)
    )
    return (
        builder.add(builder.multiply(halves, builder.add(real, other_real)), found_real),
        builder.add(builder.multiply(halves, builder.subtract(imaginary, other_imaginary)), found_imaginary),
    )


def _conjugate(builder: Any, value: Value) -> Value:
    found: Value = builder.complex(builder.real(value), builder.negate(builder.imag(value)))
    return found


# -------------------------------------------------------------------------------------------------------- the stage


def _infer(request: InferenceRequest) -> Sequence[Type]:
    kind = operand_tensor(request, 0)
    outer, count, rest, inner = kind.shape
    return [kind.with_shape((outer, rest, count, inner))]


def _shapes(call: Any) -> str | None:
    kind, factors = operand_tensor(call, 0), operand_tensor(call, 1)
    if kind.rank != 4 or not isinstance(kind.element_type, ComplexType) or not 1 <= kind.shape[1] <= LONGEST:
        return f"the operand has type {kind}, expected complex numbers of rank 4 with 1 to {LONGEST} points"
    wanted = tensor((2, *kind.shape[1:3]), kind.element_type.component)
    return None if factors == wanted else f"the factors have type {factors}, expected {wanted}"


def _reference(call: ReferenceCall, values: Array, factors: Array) -> Array:
    turned = np.fft.ifft(values, axis=1, norm="forward") if call.attributes["inverse"] else np.fft.fft(values, axis=1)
    twiddles = (factors[0] + 1j * factors[1])[None, :, :, None]
    found: Array = (turned * twiddles * call.attributes["scale"]).transpose(0, 2, 1, 3).astype(values.dtype)
    return found


BUTTERFLIES = define(
    OpDefinition(
        "hlojit.butterflies",
        operands=(Operand("values"), Operand("factors")),
        attributes=(AttributeSpec("inverse", BOOL), AttributeSpec("scale", FloatKind("f64"))),
        infer=_infer,
        constraints=(Constraint("C1", _shapes), inferred("C2")),
        reference=_reference,
        lowering=Kernel("butterflies", takes_pairs=True),
        summary="one stage of Fourier transforms: short ones along dimension 1, factors, and a change of order",
    )
)
