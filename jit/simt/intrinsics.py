"""Which intrinsics a kernel's text may call: LLVM ends the process when a target has no code for one.

    check_intrinsics(code, NvptxDialect(), "sm_90a")      # HlojitError: kernel k calls llvm.exp.f32, ...

The stems here are those that LLVM's targets for machines with threads have exact code for, in every scalar type and vector of
such (``llvm.exp``, ``llvm.sin`` and the like are libraries on a CPU, and fatal here; ours are polynomials).  A dialect adds
its machine's.  Functions that others bring are not looked at here: they are compiled in a process of their own.
"""

from __future__ import annotations

import re
from typing import Final

from hlojit.ir.errors import HlojitError
from hlojit.lowering.kernel import KernelCode
from hlojit.simt.dialect import Dialect

EXACT: Final = frozenset(
    "fma fabs sqrt floor ceil trunc roundeven rint nearbyint round copysign maxnum minnum maximum minimum "
    "ctpop ctlz cttz abs smax smin umax umin bswap bitreverse fshl fshr uadd.sat usub.sat sadd.sat ssub.sat "
    "fptosi.sat fptoui.sat masked.gather masked.scatter masked.load masked.store "
    "assume expect lifetime.start lifetime.end".split()
)
_CALLED: Final = re.compile(r"\bcall\b[^\n@\"]*@(?P<symbol>[\w.$]+)\(")
_TYPE: Final = re.compile(r"^(?:v\d+)?(?:[if]\d+|bf16|p\d+)$")


def check_intrinsics(code: KernelCode, dialect: Dialect, machine: str) -> None:
    """Raise ``HlojitError`` if the text calls what no code can be made of, or what nobody defines."""
    defined = set(re.findall(r"^define [^\n@]*@([\w.$]+)\(", code.ir, re.MULTILINE))
    linked = {symbol for symbol, _ in code.linked}
    for symbol in dict.fromkeys(_CALLED.findall(code.ir)):
        if symbol in defined or symbol in linked or symbol in dialect.externs:
            continue
        if not symbol.startswith("llvm."):
            raise HlojitError(f"kernel {code.symbol} calls {symbol}, which nobody defines for {machine}")
        if (
            stem_of(symbol) not in EXACT
            and symbol not in dialect.intrinsics
            and stem_of(symbol) not in dialect.intrinsics
        ):
            raise HlojitError(f"kernel {code.symbol} calls {symbol}, for which there is no code on {machine}")


def stem_of(symbol: str) -> str:
    """``fptosi.sat`` of ``llvm.fptosi.sat.i8.f32``."""
    parts = symbol.removeprefix("llvm.").split(".")
    while len(parts) > 1 and _TYPE.match(parts[-1]):
        parts.pop()
    return ".".join(parts)
