"""Our own math functions in place of libm's, for code that plugins bring.

numba compiles ``math.exp`` to a call of ``llvm.exp.f32`` and ``math.log1p`` to one of ``log1pf``: scalar calls that stop
LLVM's loop vectorizer.  Here such declarations become definitions, made from hlojit's own rules and inlined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hlojit.ir.scalar import functions
from hlojit.llvm.builder import LlvmBuilder

Rule = Callable[..., Any]
"""From a builder and scalars to the result."""

_NAMES = frozenset(
    "exp expm1 exp2 log log1p log2 tanh sinh cosh asinh acosh atanh sin cos tan asin acos atan atan2 pow cbrt erf "
    "erfc".split()
)

_KINDS = {"float": "f32", "double": "f64", "i32": "i32", "ptr": "ptr"}

_DECLARATION = re.compile(
    r"^declare[^\n@]*\b(?P<type>float|double) @(?P<name>(?:llvm\.)?(?P<stem>[a-z0-9]+)(?:\.f32|\.f64)?)"
    r"\((?P<parameters>[^\n)]*)\)[^\n]*$",
    re.MULTILINE,
)


def with_own_math(text: str, more: Mapping[str, Rule] = MappingProxyType({})) -> str:
    """LLVM IR text whose calls of libm functions that we have are calls of ours, defined in the text.

    ``more`` are rules for others, by the functions' names for double precision.
    """
    rules = {**{name: getattr(functions, name) for name in _NAMES}, **more}
    b = LlvmBuilder()
    renames: dict[str, str] = {}

    def replace(match: re.Match[str]) -> str:
        stem, kind = match["stem"], "f32" if match["type"] == "float" else "f64"
        # C's float functions end in f; so does erf, which has both forms.
        if stem not in rules and kind == "f32":
            stem = stem.removesuffix("f")
        if stem not in rules:
            return match[0]
        symbol = f"hlojit_math_{stem}_{kind}"
        if symbol not in renames.values():
            kinds = [_KINDS[parameter.split()[0]] for parameter in match["parameters"].split(",")]
            _define(b, symbol, rules[stem], kind, kinds)
        renames[match["name"]] = symbol
        return ""

    text = _DECLARATION.sub(replace, text)
    for name, symbol in renames.items():
        text = re.sub(rf"@{re.escape(name)}(?=\()", f"@{symbol}", text)
    # A second declaration of one symbol is a parse error.
    declared = set(re.findall(r"^declare[^\n@]*@([\w.]+)\(", text, re.MULTILINE))
    lines = b.module_text().splitlines()
    kept = [line for line in lines if not (line.startswith("declare") and _declared_name(line) in declared)]
    return "\n".join([text, *kept, ""])


def _declared_name(line: str) -> str:
    return line.partition("@")[2].partition("(")[0]


def _define(b: LlvmBuilder, symbol: str, rule: Rule, kind: str, kinds: Sequence[str]) -> None:
    parameters = [(each, f"x{number}") for number, each in enumerate(kinds)]
    result = b.type(kind)
    with b.function(symbol, parameters, result=f"internal {result}", attributes="alwaysinline nounwind") as values:
        value = rule(b, *values)
        b.line(f"ret {result} {value.text}")
