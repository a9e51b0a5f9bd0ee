"""The two generators, as arithmetic on words of a graph: Threefry-2x32 and Philox-4x32.

Both make words of a key and a counter, and keep no state: the word at a place is the same however it is computed.  A *domain*
sets the counters of draws that one function makes apart from each other; domain 0 is that of ``bits``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, final

import numpy as np
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Value
from hlojit.ir.ops.random_bits import philox as philox_of_arrays
from hlojit.ir.ops.random_expansion import Words, interleaved, philox, threefry
from hlojit.ir.types import tensor

Pair = tuple[Value, Value]
Domain = int | Value
"""A number, or a scalar of 32 bits that is not 0."""

_TOP: Final = 1 << 31


class Generator(ABC):
    """What makes words of a key, which is two words."""

    name: str
    dtype: np.dtype[np.unsignedinteger]
    words: int
    """Elements of a key, of that dtype."""

    @abstractmethod
    def of_seed(self, high: int, low: int) -> np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]:
        """The key of a seed of 64 bits."""

    @abstractmethod
    def of_traced_seed(self, words: Words, high: Value, low: Value) -> Pair:
        """The same of scalars."""

    @abstractmethod
    def key_words(self, words: Words, key: Value) -> Pair:
        """The two words of a key, scalars."""

    @abstractmethod
    def as_keys(self, words: Words, pair: Pair) -> Value:
        """Keys of arrays of words; their elements are the last dimension."""

    @abstractmethod
    def derived(self, words: Words, key: Pair, high: Value, low: Value) -> Pair:
        """The words of new keys, one for each number of 64 bits."""

    @abstractmethod
    def bits32(self, words: Words, key: Pair, size: int, domain: Domain) -> Value:
        """Words of 32 bits, in one dimension."""

    @abstractmethod
    def bits64(self, words: Words, key: Pair, size: int, domain: Domain) -> Value:
        """Words of 64 bits, in one dimension."""

    def pair32(self, words: Words, key: Pair, size: int, domain: Domain) -> Pair:
        """Two words of 32 bits for each element; uses the next domain, too."""
        return self.bits32(words, key, size, domain), self.bits32(words, key, size, following(words, domain))

    def pair64(self, words: Words, key: Pair, size: int, domain: Domain) -> Pair:
        """Two words of 64 bits for each element; uses the next domain, too."""
        return self.bits64(words, key, size, domain), self.bits64(words, key, size, following(words, domain))


def following(words: Words, domain: Domain) -> Domain:
    """The next one."""
    return domain + 1 if isinstance(domain, int) else words.op("add", domain, 1)


def _everywhere(b: Builder, word: Domain, size: int) -> Value:
    if isinstance(word, int):
        return b.constant(word, tensor((size,), "ui32"))
    return b.broadcast_in_dim(word, (size,))


def _counters(words: Words, size: int) -> tuple[Value, Value | None]:
    """The numbers of elements: their low words, and the high ones where there are any."""
    b = words.b
    if size <= 1 << 32:
        return b.iota(tensor((size,), "ui32"), 0), None
    wide = b.iota(tensor((size,), "ui64"), 0)
    return words.low(wide), words.high(wide)


@final
class Threefry(Generator):
    """Bits as ``jax.random`` has them (with ``jax_threefry_partitionable``): both words of one counter for each element."""

    name = "threefry"
    dtype = np.dtype(np.uint32)
    words = 2

    def of_seed(self, high: int, low: int) -> np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]:
        """The seed itself."""
        return np.array([high, low], np.uint32)

    def of_traced_seed(self, words: Words, high: Value, low: Value) -> Pair:
        """The seed itself."""
        return high, low

    def key_words(self, words: Words, key: Value) -> Pair:
        """Its elements."""
        limits = [{"start_indices": (k,), "limit_indices": (k + 1,), "strides": (1,)} for k in (0, 1)]
        first, second = (words.b.create("slice", [key], attributes=each).result for each in limits)
        return words.b.reshape(first, ()), words.b.reshape(second, ())

    def as_keys(self, words: Words, pair: Pair) -> Value:
        """Words beside each other."""
        rows = [words.b.reshape(each, (*each.tensor_type.shape, 1)) for each in pair]
        dimension = {"dimension": rows[0].tensor_type.rank - 1}
        found: Value = words.b.create("concatenate", rows, attributes=dimension).result
        return found

    def derived(self, words: Words, key: Pair, high: Value, low: Value) -> Pair:
        """The words of a counter."""
        return threefry(words, key, (high, low))

    def _drawn(self, name: str, words: Words, key: Pair, size: int, domain: Domain) -> Value:
        low, high = _counters(words, size)
        if isinstance(domain, int):
            above: Domain = _TOP + domain if domain else 0
        else:
            above = words.op("add", domain, _TOP)
        if high is None:
            high = _everywhere(words.b, above, size)
        elif above != 0:
            high = words.op("add", high, above)
        first, second = (words.b.broadcast_in_dim(each, low.tensor_type.shape) for each in key)
        found: Value = words.b.create(name, [first, second, high, low]).result
        return found

    def bits32(self, words: Words, key: Pair, size: int, domain: Domain) -> Value:
        """Of both words one."""
        return self._drawn("hlojit.threefry32", words, key, size, domain)

    def bits64(self, words: Words, key: Pair, size: int, domain: Domain) -> Value:
        """The first word is the upper half."""
        return self._drawn("hlojit.threefry64", words, key, size, domain)

    def pair32(self, words: Words, key: Pair, size: int, domain: Domain) -> Pair:
        """Both words of one counter."""
        both = self._drawn("hlojit.threefry64", words, key, size, domain)
        return words.high(both), words.low(both)


@final
class Philox(Generator):
    """Keys as JAX's ``philox4x32``; bits as XLA's ``RngBitGenerator`` with the state (key, 2^63): all words of each counter."""

    name = "philox"
    dtype = np.dtype(np.uint64)
    words = 1

    def of_seed(self, high: int, low: int) -> np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]:
        """The seed is a counter of the key 0."""
        zero, counter = np.zeros(1, np.uint32), [np.array([each], np.uint32) for each in (high, low, 0, 0)]
        with np.errstate(over="ignore"):
            first, second, _, _ = philox_of_arrays((zero, zero), (counter[0], counter[1], counter[2], counter[3]))
        return first.astype(np.uint64) | second.astype(np.uint64) << np.uint64(32)

    def of_traced_seed(self, words: Words, high: Value, low: Value) -> Pair:
        """The seed is a counter of the key 0."""
        zero = words.b.constant(0, high.tensor_type)
        first, second, _, _ = philox(words, (zero, zero), (high, low, zero, zero))
        return first, second

    def key_words(self, words: Words, key: Value) -> Pair:
        """Its halves."""
        whole = words.b.reshape(key, ())
        return words.low(whole), words.high(whole)

    def as_keys(self, words: Words, pair: Pair) -> Value:
        """Words of 64 bits."""
        whole = words.join(*pair)
        return words.b.reshape(whole, (*whole.tensor_type.shape, 1))

    def derived(self, words: Words, key: Pair, high: Value, low: Value) -> Pair:
        """The first words of counters whose lower half is 0."""
        zero = words.b.constant(0, high.tensor_type)
        first, second, _, _ = philox(words, key, (zero, zero, high, low))
        return first, second

    def _drawn(
        self, words: Words, key: Pair, size: int, domain: Domain, parts: Callable[[list[Value]], list[Value]], per: int
    ) -> Value:
        blocks = -(-size // per)
        low, high = _counters(words, blocks)
        # No counter of a key that is derived has this bit.
        above = _everywhere(words.b, _TOP, blocks) if high is None else words.op("or", high, _TOP)
        third, fourth = _everywhere(words.b, domain, blocks), words.b.constant(0, low.tensor_type)
        drawn = interleaved(words.b, parts(philox(words, key, (low, above, third, fourth))), size)
        # What is computed of interleaved words in their kernel is computed of one at a time.
        apart: Value = words.b.create("optimization_barrier", [drawn]).result
        return apart

    def bits32(self, words: Words, key: Pair, size: int, domain: Domain) -> Value:
        """The four words of a counter are four elements."""
        return self._drawn(words, key, size, domain, lambda block: block, 4)

    def bits64(self, words: Words, key: Pair, size: int, domain: Domain) -> Value:
        """Two elements of each counter; the first word is the lower half."""
        return self._drawn(words, key, size, domain, lambda block: [words.join(*block[:2]), words.join(*block[2:])], 2)


THREEFRY: Final = Threefry()
PHILOX: Final = Philox()
GENERATORS: Final[dict[str, Generator]] = {str(each.dtype): each for each in (THREEFRY, PHILOX)}
"""By the dtype of their keys."""
