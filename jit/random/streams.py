"""A key as a source of random words in the trace in work, and how the public functions reach it.

draw(_normal, key, (), ((8,), np.dtype("f8")))      # _normal(stream, (8,), dtype), in the trace in work or compiled by itself
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from hlojit.ir.graph import Value
from hlojit.ir.ops.random_expansion import Words
from hlojit.ir.types import tensor
from hlojit.random.generators import GENERATORS, Domain, Generator, Pair
from hlojit.tracing.decorator import jit
from hlojit.tracing.jitted_functions import JittedFunction
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer
from hlojit.transforms.regions import result


@final
class Stream:
    """One key: arrays of words, and the keys that are made of it."""

    def __init__(self, operations: Operations, generator: Generator, key: Pair, domain: Domain = 0):
        self.operations = operations
        self.generator = generator
        self.key = key
        self.domain = domain

    @classmethod
    def of(cls, operations: Operations, key: Any) -> Stream:
        """The stream of a key."""
        traced = operations.tracer(key)
        generator = GENERATORS[str(traced.dtype)]
        return cls(operations, generator, generator.key_words(Words(operations.builder), traced.value))

    @property
    def _words(self) -> Words:
        return Words(self.operations.builder)

    def apart(self, number: int | Any) -> Stream:
        """Words that ``bits`` does not give: those of two numbers differ.  From 1; an integer may be traced."""
        if isinstance(number, Tracer):
            number = self.operations.converted(number.value, np.dtype(np.uint32))
        return Stream(self.operations, self.generator, self.key, number)

    def split(self, count: int) -> list[Stream]:
        """The streams of the keys that ``hlojit.random.split(key, count)`` gives."""
        b = self.operations.builder
        return [self.child(*(b.constant(each, tensor((), "ui32")) for each in (0, k))) for k in range(count)]

    def child(self, high: Value, low: Value) -> Stream:
        """The stream of one key that is derived by a number."""
        pair = self.generator.derived(self._words, self.key, high, low)
        return Stream(self.operations, self.generator, pair)

    def keys(self, shape: tuple[int, ...]) -> Tracer:
        """New keys, in an array of this shape."""
        b, size = self.operations.builder, math.prod(shape)
        # Each is a number of 64 bits, of which so many keys need 32.
        low = b.iota(tensor((size,), "ui32"), 0)
        pair = self.generator.derived(self._words, self.key, b.constant(0, low.tensor_type), low)
        first, second = (b.reshape(each, shape) for each in pair)
        return self.operations.wrap(self.generator.as_keys(self._words, (first, second)))

    def as_key(self) -> Tracer:
        """The key itself."""
        return self.operations.wrap(self.generator.as_keys(self._words, self.key))

    def bits(self, width: int, shape: tuple[int, ...]) -> Tracer:
        """Unsigned integers of 8, 16, 32 or 64 bits."""
        b, size = self.operations.builder, math.prod(shape)
        if not size:
            return self._none(width, shape)
        if width == 64:
            return self._shaped(self.generator.bits64(self._words, self.key, size, self.domain), shape)
        words = self.generator.bits32(self._words, self.key, size, self.domain)
        return self._shaped(words if width == 32 else b.convert(words, f"ui{width}"), shape)

    def pair(self, width: int, shape: tuple[int, ...]) -> tuple[Tracer, Tracer]:
        """Two unsigned integers of 32 or 64 bits for each element; of a stream apart, those of the next number, too."""
        size = math.prod(shape)
        if not size:
            return self._none(width, shape), self._none(width, shape)
        draw = self.generator.pair64 if width == 64 else self.generator.pair32
        first, second = draw(self._words, self.key, size, self.domain)
        return self._shaped(first, shape), self._shaped(second, shape)

    def _none(self, width: int, shape: tuple[int, ...]) -> Tracer:
        return self.operations.wrap(self.operations.full(0, np.dtype(f"u{width // 8}"), shape))

    def _shaped(self, flat: Value, shape: tuple[int, ...]) -> Tracer:
        return self.operations.wrap(self.operations.builder.reshape(flat, shape))


Body = Callable[..., Any]
"""``body(stream, *operands, *options)`` builds into the trace in work."""


def draw(body: Body, key: Any, operands: Sequence[Any] = (), options: tuple[Any, ...] = ()) -> Any:
    """What a body makes of a key; compiled once for its options and each signature where nothing is traced."""
    operations = Operations.in_work.get()
    if operations is None:
        return _compiled(body, options)(key, *operands)
    operations.mark()
    return _built(operations, body, key, operands, options)


@functools.lru_cache(maxsize=1024)
def _compiled(body: Body, options: tuple[Any, ...]) -> JittedFunction:
    def call(key: Any, *operands: Any) -> Any:
        operations = Operations.in_work.get()
        assert operations is not None, "it is traced"
        return _built(operations, body, key, operands, options)

    call.__name__ = call.__qualname__ = f"hlojit.random.{body.__name__.lstrip('_')}"
    return jit(call)


def _built(operations: Operations, body: Body, key: Any, operands: Sequence[Any], options: tuple[Any, ...]) -> Any:
    made = body(Stream.of(operations, key), *(operations.tracer(each) for each in operands), *options)
    return result(operations, made.value)
