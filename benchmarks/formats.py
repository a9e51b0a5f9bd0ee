"""x * y + z over a million elements in vendors' formats, beside built-in ones: ``python -m benchmarks.formats``.

Programs take turns, the least of many runs counts; each line says the time and its ratio to f8E4M3FN, f16 and bf16.
"""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
from hlojit.extensions import Rounding
from hlojit.ir.formats import FloatFormat, element_type
from hlojit.ir.scalar.arrays import encode_array

SIZE = 1_000_000
TEXT = """func.func @main(%x: T, %y: T, %z: T) -> T {
  %0 = stablehlo.multiply %x, %y : T
  %1 = stablehlo.add %0, %z : T
  return %1 : T }"""


def decode_posit(code: int) -> float:
    """A posit of 8 bits with one exponent bit, by its definition."""
    if code in (0, 128):
        return float("nan") if code else 0.0
    bits = 256 - code if code > 128 else code
    ones, position, regime = bits & 64 != 0, 6, 0
    while position >= 0 and (bits >> position & 1 != 0) == ones:
        regime += 1
        position -= 1
    exponent = 2 * (regime - 1 if ones else -regime)
    position -= 1
    if position >= 0:
        exponent += bits >> position & 1
    value = (1.0 + (bits & ((1 << max(position, 0)) - 1)) / (1 << max(position, 0))) * 2.0**exponent
    return -value if code > 128 else value


POSITIVE = np.array([decode_posit(code) for code in range(128)])


def encode_posit(value: float) -> int:
    """The nearest posit, ties to even codes; no number but zero becomes zero."""
    if value != value:
        return 128
    magnitude = abs(value)
    low = int(np.searchsorted(POSITIVE, magnitude, side="right")) - 1
    if low < 127:
        rest, room = magnitude - POSITIVE[low], POSITIVE[low + 1] - magnitude
        if rest > room or (rest == room and low % 2 == 1) or (low == 0 and magnitude > 0.0):
            low += 1
    return (256 - low) % 256 if value < 0.0 else low


ROWS = [
    FloatFormat("bench6", exponent_bits=3, mantissa_bits=2, bias=3),
    FloatFormat("bench8", exponent_bits=5, mantissa_bits=2, bias=14),
    FloatFormat("benchposit8", bits=8, decode=decode_posit, encode=encode_posit),
    FloatFormat("bench12", exponent_bits=5, mantissa_bits=6, bias=14),
    FloatFormat("bench24", exponent_bits=8, mantissa_bits=15, bias=127),
    FloatFormat("bench40", exponent_bits=8, mantissa_bits=31, bias=127),
    FloatFormat("bench60", exponent_bits=15, mantissa_bits=44, bias=16383),
    FloatFormat("bench64", exponent_bits=7, mantissa_bits=56, bias=63),
    FloatFormat("bench16zero", exponent_bits=8, mantissa_bits=7, bias=127, rounding=Rounding.TOWARD_ZERO),
    FloatFormat("bench16stochastic", exponent_bits=8, mantissa_bits=7, bias=127, rounding=Rounding.STOCHASTIC),
]
BESIDE = ("f8E4M3FN", "f16", "bf16")


def main(rounds: int) -> None:
    """Measure and print a table in Markdown."""
    ext.register(SimpleNamespace(__name__="benchmark", hlojit_formats=ext.hookimpl(lambda: ROWS)))
    values = np.random.default_rng(0).standard_normal((3, SIZE))
    cases: dict[str, tuple[Any, list[Any]]] = {}
    for name in (*BESIDE, *(row.name for row in ROWS)):
        row = element_type(name)
        assert isinstance(row, FloatFormat)
        arrays = [
            hlojit.Array.from_values(each, row) if row.dtype is None else encode_array(each, row) for each in values
        ]
        cases[name] = hlojit.compile(TEXT.replace("T", f"tensor<{SIZE}x{name}>")), arrays
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(rounds):
        for name, (executable, arrays) in cases.items():
            start = time.perf_counter()
            executable(*arrays)
            best[name] = min(best[name], time.perf_counter() - start)
    print("| format | ms | of f8E4M3FN | of f16 | of bf16 |\n|---|---|---|---|---|")
    for name, seconds in best.items():
        ratios = " | ".join(f"{seconds / best[other]:.2f}" for other in BESIDE)
        print(f"| {name} | {seconds * 1e3:.2f} | {ratios} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
