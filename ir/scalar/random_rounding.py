"""Random bits for roundings: Philox4x32 with 7 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

The counter is the element's place in the op's result and the iteration of the loops around the op; the key is made of the
op's number in the program and the seed.  So the bits are the same wherever, whenever and in whatever order elements are computed.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlojit.ir.scalar.builder import Scalar, ScalarBuilder

ROUNDS = 7
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEYS = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF


def random_bits(b: ScalarBuilder, place: Scalar, iteration: Scalar, number: int, seed: int) -> Scalar:
    """32 bits (i32) for an element: ``place`` and ``iteration`` are i64, ``number`` and ``seed`` any 64 bits."""
    words = [b.trunc(place, "i32"), _upper(b, place), b.trunc(iteration, "i32"), _upper(b, iteration)]
    for keys in _keys(_key(number, seed)):
        first, second = (_product(b, words[2 * k], _MULTIPLIERS[k]) for k in range(2))
        words = [
            b.xor(b.xor(_upper(b, second), words[1]), b.constant("i32", keys[0])),
            b.trunc(second, "i32"),
            b.xor(b.xor(_upper(b, first), words[3]), b.constant("i32", keys[1])),
            b.trunc(first, "i32"),
        ]
    return words[0]


def _key(number: int, seed: int) -> tuple[int, int]:
    """The key of an op: a word for each half, of the counter ``number`` with the key ``seed``."""
    words = [number & _WORD, number >> 32 & _WORD, 0, 0]
    for keys in _keys((seed & _WORD, seed >> 32 & _WORD)):
        first, second = (words[2 * k] * _MULTIPLIERS[k] for k in range(2))
        words = [second >> 32 ^ words[1] ^ keys[0], second & _WORD, first >> 32 ^ words[3] ^ keys[1], first & _WORD]
    return words[0], words[2]


def _keys(key: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The keys of the rounds."""
    for step in range(ROUNDS):
        yield (key[0] + step * _KEYS[0]) & _WORD, (key[1] + step * _KEYS[1]) & _WORD


def _product(b: ScalarBuilder, word: Scalar, factor: int) -> Scalar:
    return b.mul(b.zext(word, "i64"), b.constant("i64", factor))


def _upper(b: ScalarBuilder, wide: Scalar) -> Scalar:
    return b.trunc(b.lshr(wide, b.constant("i64", 32)), "i32")
