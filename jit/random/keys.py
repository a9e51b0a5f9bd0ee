"""Keys: arrays that say where in a generator's numbers something is drawn, and what is made of them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from hlojit.ir.errors import ArgumentError
from hlojit.ir.graph import Value
from hlojit.ir.near_names import did_you_mean
from hlojit.ir.ops.random_expansion import Words
from hlojit.random.arguments import checked_key, checked_shape, integer_dtype
from hlojit.random.generators import GENERATORS, Generator
from hlojit.random.streams import Stream, draw
from hlojit.tracing.operations import Operations
from hlojit.tracing.reports import reported
from hlojit.tracing.tracer import Tracer

_BY_NAME: Final[dict[str, Generator]] = {each.name: each for each in GENERATORS.values()}


@reported
def key(seed: Any, impl: str = "threefry") -> Any:
    """The key of a seed, a whole number of up to 64 bits.

    ``impl``: "threefry", whose keys are uint32 of shape (2,), or "philox", whose keys are uint64 of shape (1,).
    """
    generator = _BY_NAME.get(impl)
    if generator is None:
        raise ArgumentError(
            f"key: impl is {impl!r}; it is 'threefry' or 'philox'{did_you_mean(str(impl), [*_BY_NAME])}"
        )
    if isinstance(seed, Tracer):
        return _of_traced(seed, generator)
    number = _whole("key", "seed", seed)
    return generator.of_seed(number >> 32, number & 0xFFFFFFFF)


def _of_traced(seed: Tracer, generator: Generator) -> Any:
    operations: Operations = seed.context
    operations.mark()
    words = Words(operations.builder)
    pair = generator.of_traced_seed(words, *_halves(operations, words, "key", "seed", seed))
    return operations.wrap(generator.as_keys(words, pair))


@reported
def split(key: Any, num: int | tuple[int, ...] = 2) -> Any:
    """``num`` new keys, an array of keys; ``num`` may be a shape.  What was split is not used again.

    ``k1, k2 = split(key)``
    """
    shape = checked_shape("split", num)
    return draw(_split, checked_key("split", key), (), (shape,))


def _split(stream: Stream, shape: tuple[int, ...]) -> Any:
    return stream.keys(shape)


@reported
def fold_in(key: Any, data: Any) -> Any:
    """The new key that belongs to a whole number, of up to 64 bits: that of a step, a worker, a row.

    ``fold_in(key, i)`` is ``split(key, n)[i]``.
    """
    key = checked_key("fold_in", key)
    if not isinstance(data, Tracer):
        data = np.uint64(_whole("fold_in", "data", data))
    return draw(_fold_in, key, (data,))


def _fold_in(stream: Stream, data: Any) -> Any:
    words = Words(stream.operations.builder)
    return stream.child(*_halves(stream.operations, words, "fold_in", "data", data)).as_key()


def _whole(function: str, name: str, number: Any) -> int:
    """A whole number as 64 bits."""
    found = number.item() if isinstance(number, (np.ndarray, np.generic)) and not number.shape else number
    if type(found) is bool or not isinstance(found, int):
        what = f"of shape {np.shape(number)}" if np.shape(number) else repr(number)
        raise ArgumentError(f"{function}: {name} is {what}, and must be one whole number")
    if not -(2**63) <= found < 2**64:
        raise ArgumentError(f"{function}: {name} is {found}, and must be a whole number of at most 64 bits")
    return found & 0xFFFFFFFFFFFFFFFF


def _halves(operations: Operations, words: Words, function: str, name: str, number: Tracer) -> tuple[Value, Value]:
    """The upper and lower word of a traced number."""
    if number.shape or number.dtype.kind not in "iu":
        raise ArgumentError(
            f"{function}: {name} is {number.dtype} of shape {number.shape}, and must be one whole number; for several, "
            f"hlojit.vmap(lambda {name}: hlojit.random.{function}({'' if name == 'seed' else 'key, '}{name}))"
        )
    wide = operations.converted(number.value, np.dtype(np.int64 if number.dtype.kind == "i" else np.uint64))
    whole = operations.converted(wide, np.dtype(np.uint64))
    return words.high(whole), words.low(whole)


@reported
def bits(key: Any, shape: Any = (), dtype: Any = np.uint32) -> Any:
    """Random bits, as unsigned integers of 8 to 64 bits."""
    word = integer_dtype("bits", dtype, signed=False)
    return draw(_bits, checked_key("bits", key), (), (checked_shape("bits", shape), word))


def _bits(stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return stream.bits(8 * dtype.itemsize, shape)
