"""How much memory stays behind when programs are compiled and dropped.

    python tools/memory_growth.py [COUNT]          # 10,000 different programs; the limit is 50 MB
    python tools/memory_growth.py --same [COUNT]   # the same program again and again

Resident memory is read after collection and after the C library gave free pages back.  A first part of the programs is
not counted: it fills caches that are bounded.  The exit status says whether what stayed is within the limit.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
from pathlib import Path

LIMIT = 50e6
WARM_UP = 200


def text(number: int) -> str:
    """A program whose shape and constant no other number has."""
    kind = f"tensor<{number}xf32>"
    return (
        f"func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{\n"
        f"  %c = stablehlo.constant dense<{number / 7}> : {kind}\n"
        f"  %0 = stablehlo.add %a, %b : {kind}\n"
        f"  %1 = stablehlo.multiply %0, %c : {kind}\n"
        f"  return %1 : {kind}\n}}"
    )


def resident() -> int:
    """Bytes of this process that are in memory, after everything that can go has gone."""
    gc.collect()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(count: int, same: bool) -> int:
    """Bytes that ``count`` programs leave behind."""
    import hlojit
    import numpy as np

    def compile_and_run(number: int) -> None:
        array = np.ones(number, "f4")
        hlojit.compile(text(number))(array, array)

    for number in range(WARM_UP):
        compile_and_run(7 if same else 10 + number)
    before = resident()
    for number in range(count):
        compile_and_run(7 if same else 10 + WARM_UP + number)
    return resident() - before


def main() -> int:
    """Measure, print, and compare with the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=10_000)
    parser.add_argument("--same", action="store_true", help="the same program every time")
    options = parser.parse_args()
    # What is kept on disk is no part of this.
    os.environ["HLOJIT_CACHE"] = "off"
    stayed = growth(options.count, options.same)
    print(f"{options.count:,} programs: {stayed / 1e6:.1f} MB stayed, {stayed / options.count:,.0f} bytes each")
    return int(stayed > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
