"""Types, values and lists of the LLVM IR text that our builders write, read for the legacy dialect.

read_type("<4 x float> %v1, %v2")    # Type("float", 4), "%v1, %v2"
arguments("i32 -1, i32 %v3")         # ["i32 -1", "i32 %v3"]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, final

from hlojit.ir.errors import HlojitError

BITS: Final = {"half": 16, "float": 32, "double": 64} | {f"i{bits}": bits for bits in (1, 8, 16, 32, 64)}
INTEGER_OF: Final = {"half": "i16", "float": "i32", "double": "i64"}

_TYPE: Final = re.compile(
    r"\s*(?:<(?P<lanes>\d+) x (?P<lane>ptr|\w+)>|(?P<pointer>ptr)(?: addrspace\((?P<space>\d+)\))?|(?P<plain>\w+))"
    r"(?= |,|\)|$)(?: noundef)?(?: align \d+)?\s*"
)
_OPEN: Final = "<([{"
_CLOSE: Final = ">)]}"


class UnknownText(HlojitError):
    """A line that no builder of ours writes."""

    def __init__(self, line: str, reason: str = "the legacy dialect has no form for it"):
        super().__init__(f"internal error: cannot write {line.strip()!r} for libNVVM: {reason}")


@final
@dataclass(frozen=True, slots=True)
class Type:
    """A scalar type, or ``lanes`` of it."""

    name: str
    lanes: int = 1
    space: int = 0

    @property
    def bits(self) -> int:
        """Of one lane."""
        return 64 if self.name == "ptr" else BITS[self.name]

    @property
    def text(self) -> str:
        """One lane as LLVM 7 spells it."""
        if self.name != "ptr":
            return self.name
        return f"i8 addrspace({self.space})*" if self.space else "i8*"

    @property
    def is_float(self) -> bool:
        """Whether lanes are floating-point numbers."""
        return self.name in INTEGER_OF

    @property
    def lane(self) -> Type:
        """The type of one lane."""
        return Type(self.name, 1, self.space)

    def named(self, name: str) -> Type:
        """As many lanes of another type."""
        return Type(name, self.lanes)


def read_type(text: str) -> tuple[Type, str]:
    """A type and what follows it."""
    found = _TYPE.match(text)
    if found is None:
        raise UnknownText(text, "it does not begin with a type")
    rest = text[found.end() :]
    if found["pointer"]:
        return Type("ptr", 1, int(found["space"] or 0)), rest
    name = found["lane"] or found["plain"]
    if name != "ptr" and name not in BITS:
        raise UnknownText(text, f"{name!r} is no type of it")
    return Type(name, int(found["lanes"] or 1)), rest


def arguments(text: str) -> list[str]:
    """What stands between the commas that are in no brackets."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        if letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
        elif letter == "," and not depth:
            parts.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def lanes_of(kind: Type, text: str) -> list[str] | None:
    """The lanes of a constant; None for what is none."""
    if text[0] == "%" or text[0] == "@":
        return None
    if text.startswith("splat ("):
        return [text[7:-1].split(" ", 1)[1]] * kind.lanes
    if text[0] == "<":
        values = (part.split(" ", 1)[1] for part in arguments(text[1:-1]))
        return ["undef" if value == "poison" else value for value in values]
    if text in ("poison", "undef"):
        return ["undef"] * kind.lanes
    if text == "zeroinitializer":
        zero = "null" if kind.name == "ptr" else "0.0" if kind.is_float else "0"
        return [zero] * kind.lanes
    return [text]
