"""Posits as fractions, straight from the text of the standard; nothing of the package takes part."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache


@lru_cache(maxsize=1 << 20)
def number(code: int, bits: int) -> Fraction | None:
    """What a code means; None is NaR."""
    if code == 0:
        return Fraction(0)
    if code == 1 << (bits - 1):
        return None
    if code >> (bits - 1):
        magnitude = number((1 << bits) - code, bits)
        assert magnitude is not None
        return -magnitude
    text = format(code, f"0{bits - 1}b")
    run = len(text) - len(text.lstrip(text[0]))
    regime = run - 1 if text[0] == "1" else -run
    rest = text[run + 1 :]
    exponent = int(rest[:2].ljust(2, "0"), 2)
    fraction = Fraction(int(rest[2:] or "0", 2), 1 << len(rest[2:]))
    return (1 + fraction) * Fraction(2) ** (4 * regime + exponent)


@lru_cache(maxsize=1 << 20)
def nearest(exact: Fraction | None, bits: int, root: int = 1) -> int:
    """The code of a number (of its square root with ``root=2``), rounded by the definition in section 4.1 of the standard.

    Between neighbours u and w the number v whose code is that of u and another 1 decides.
    """
    if exact is None:
        return 1 << (bits - 1)
    if exact == 0:
        return 0
    if exact < 0:
        return (1 << bits) - nearest(-exact, bits)
    largest = (1 << (bits - 1)) - 1
    below = bisect_right(range(1, largest + 1), exact, key=lambda code: number(code, bits) ** root)
    if below in (0, largest):
        return max(below, 1)
    middle = number(2 * below + 1, bits + 1)
    assert middle is not None
    if exact < middle**root or (exact == middle**root and below % 2 == 0):
        return below
    return below + 1


def edges(bits: int) -> list[int]:
    """Codes beside the ends of every regime, of both signs, zero and NaR."""
    powers = [1 << place for place in range(bits)] + [(1 << bits) - (1 << place) for place in range(bits)]
    return sorted({(power + step) % (1 << bits) for power in powers for step in (-2, -1, 0, 1, 2)})
