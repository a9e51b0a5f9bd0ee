"""What plugins' functions call of the C library, for machines that have none.

``exp``, ``sin`` and their like are hlojit's own rules on every machine; here is the rest: what is one intrinsic, and rules for
what is none.  With these there is code for all of ``math`` and of NumPy's functions of numbers that numba compiles for a CPU;
a function that calls anything else is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, cast

from hlojit.ir.scalar.arithmetic import float_remainder
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.expression import Term, maximum, minimum, where
from hlojit.ir.scalar.functions import gamma, lgamma
from hlojit.ir.scalar.logarithm import exceptions, log_with_rest
from hlojit.ir.scalar.representation import frexp, ldexp, next_after
from hlojit.llvm.builder import LlvmBuilder, Val, scalars
from hlojit.llvm.math_library import Rule, with_own_math

_POLL: Final = re.compile(r"^declare i32 @hlojit_poll\(ptr\)$", re.MULTILINE)
_POLLED: Final = """define internal i32 @hlojit_poll(ptr %status) alwaysinline nounwind {
  %stop = load volatile i32, ptr %status, align 4
  ret i32 %stop
}"""
_DECLARED: Final = re.compile(r"^declare (?P<result>\w+) [^\n@]*?@(?P<name>\w+)\([^\n]*$", re.MULTILINE)
_REMAINDER: Final = re.compile(r"= frem (?:(?!double|float)\w+ )*(?P<type>double|float) (?P<x>\S+), (?P<y>\S+)")
_SUFFIX: Final = {"float": "f32", "double": "f64"}
_INTRINSICS: Final = {
    "ceil": "ceil",
    "copysign": "copysign",
    "fabs": "fabs",
    "floor": "floor",
    "fma": "fma",
    "fmax": "maxnum",
    "fmin": "minnum",
    "nearbyint": "nearbyint",
    "rint": "rint",
    "round": "round",
    "sqrt": "sqrt",
    "trunc": "trunc",
}
"""Functions that are one instruction, or few, on every machine."""


@lru_cache(maxsize=256)
def without_c_library(text: str) -> tuple[str, str]:
    """The LLVM module of a plugin's function with all that it needs of the C library and of the host's runtime.

    Polls look at the status (``status.py``) instead of asking the runtime.  Also the name of what the module would still
    need, or an empty string.
    """
    text = with_own_math(_POLL.sub(_POLLED, _remainders(text)), _RULES)
    if " frem " in text:
        return text, "fmod of several numbers at once"
    for declared in list(_DECLARED.finditer(text)):
        name, suffix = declared["name"], _SUFFIX.get(declared["result"], "")
        stem = name if name in _INTRINSICS else name.removesuffix("f")
        if stem not in _INTRINSICS or not suffix:
            return text, name
        intrinsic = f"llvm.{_INTRINSICS[stem]}.{suffix}"
        # A second declaration of one symbol is a parse error.
        line = "" if f"@{intrinsic}(" in text else declared[0].replace(f"@{name}(", f"@{intrinsic}(")
        text = text.replace(declared[0], line, 1)
        text = re.sub(rf"@{name}\(", f"@{intrinsic}(", text)
    return text, ""


def _remainders(text: str) -> str:
    """Calls of ``fmod`` in the place of LLVM's instruction, which some machines have, rounded, and some have not."""
    used = {found["type"] for found in _REMAINDER.finditer(text)}
    names = {"double": "fmod", "float": "fmodf"}
    text = _REMAINDER.sub(
        lambda found: "= call {0} @{1}({0} {2}, {0} {3})".format(
            found["type"], names[found["type"]], found["x"], found["y"]
        ),
        text,
    )
    known = [f"declare {kind} @{names[kind]}({kind}, {kind})" for kind in sorted(used) if f"@{names[kind]}(" in text]
    declared = {line.partition("(")[0] for line in text.splitlines() if line.startswith("declare")}
    return "\n".join([text, *(line for line in known if line.partition("(")[0] not in declared), ""])


def _hypot(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    """The root of x*x + y*y without overflow between; infinite if one of them is, whatever the other."""
    wide, tall = Term(b, x).abs(), Term(b, y).abs()
    total = wide + tall
    root = _root_in_f64(wide, tall) if x.kind == "f32" else _scaled_root(wide, tall)
    root = where(total.equals(total), root, total)
    infinite = where(wide.equals(_INFINITY), wide, tall)
    return where(infinite.equals(_INFINITY), infinite, root).value


def _root_in_f64(wide: Term, tall: Term) -> Term:
    b = wide.b
    x, y = Term(b, b.fpext(wide.value)), Term(b, b.fpext(tall.value))
    return Term(b, b.fptrunc((x * x + y * y).sqrt().value))


def _scaled_root(wide: Term, tall: Term) -> Term:
    large, small = maximum(wide, tall), minimum(wide, tall)
    is_huge, is_tiny = large > 2.0**500, large < 2.0**-500
    up, down, one = large.constant(2.0**600), large.constant(2.0**-600), large.constant(1.0)
    scale = where(is_huge, down, where(is_tiny, up, one))
    back = where(is_huge, up, where(is_tiny, down, one))
    large, small = large * scale, small * scale
    return large.fma(large, small * small).sqrt() * back


def _log10(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Logarithm to base 10, so near that powers of ten are exact."""
    if x.kind == "f32":
        return b.fptrunc(_log10(b, b.fpext(x)))
    term = Term(b, x)
    high, low = log_with_rest(term)
    product = high * _LOG10_E
    rest = high.fma(_LOG10_E, -product) + high.fma(_LOG10_E_REST, low * _LOG10_E)
    return exceptions(term, product + rest).value


def _frexp(b: LlvmBuilder, x: Val, place: Val) -> Scalar:
    """The exponent goes where C's function puts it."""
    mantissa, exponent = frexp(scalars(b), x)
    b.store(cast(Val, exponent), place)
    return mantissa


_INFINITY: Final = float("inf")
_LOG10_E: Final = 0.4342944819032518
_LOG10_E_REST: Final = 1.098319650216765e-17
_RULES: Final[Mapping[str, Rule]] = {
    "fmod": float_remainder,
    "frexp": _frexp,
    "hypot": _hypot,
    "ldexp": ldexp,
    "lgamma": lgamma,
    "log10": _log10,
    "nextafter": next_after,
    "tgamma": gamma,
}
