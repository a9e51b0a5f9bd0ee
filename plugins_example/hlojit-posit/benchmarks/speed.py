"""x * y + z over a million elements in posits and other formats, turn by turn, least of many: python benchmarks/speed.py."""

from __future__ import annotations

import time

import hlojit
import numpy as np

FORMATS = ("f8E4M3FN", "f16", "f32", "posit8", "posit16", "posit32")
COUNT = 1 << 20
ROUNDS = 40

TEXT = """
func.func @main(%x: TENSOR, %y: TENSOR, %z: TENSOR) -> TENSOR {
  %0 = stablehlo.multiply %x, %y : TENSOR
  %1 = stablehlo.add %0, %z : TENSOR
  return %1 : TENSOR
}
"""

CAST = f"""
func.func @main(%x: tensor<{COUNT}xf32>) -> TENSOR {{
  %0 = stablehlo.convert %x : (tensor<{COUNT}xf32>) -> TENSOR
  return %0 : TENSOR
}}
"""


def main() -> None:
    """Print a row for each format: milliseconds, and how often that is the time of the others."""
    numbers = np.random.default_rng(0).standard_normal((3, COUNT)).astype("f4")
    programs, least = {}, dict.fromkeys(FORMATS, float("inf"))
    for name in FORMATS:
        kind = f"tensor<{COUNT}x{name}>"
        cast = hlojit.compile(CAST.replace("TENSOR", kind))
        programs[name] = hlojit.compile(TEXT.replace("TENSOR", kind)), [cast(each) for each in numbers]
    for _ in range(ROUNDS):
        for name, (program, arguments) in programs.items():
            begin = time.perf_counter()
            program(*arguments)
            least[name] = min(least[name], time.perf_counter() - begin)
    for name, seconds in least.items():
        ratios = " | ".join(f"{seconds / least[other]:.2f}" for other in ("f8E4M3FN", "f16"))
        print(f"| {name} | {seconds * 1e3:.2f} | {ratios} |")


if __name__ == "__main__":
    main()
