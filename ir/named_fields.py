"""Records of vendors say which field is meant where an unknown one is given.

    @named_fields
    @dataclass(frozen=True)
    class FloatFormat: ...

``FloatFormat("acme6", 6, exponent_bit=3)`` is ``TypeError: FloatFormat 'acme6' has no field 'exponent_bit'; did you mean
'exponent_bits'?`` instead of Python's "unexpected keyword argument", which names none.
"""

from __future__ import annotations

import functools
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

from hlojit.ir.errors import short_repr
from hlojit.ir.near_names import did_you_mean

_Record = TypeVar("_Record")


def named_fields(record: type[_Record]) -> type[_Record]:
    """The dataclass, with names and number of fields checked where one is made; outside of ``@dataclass``."""
    initialized: Any = record
    made = initialized.__init__
    given = [each for each in fields(initialized) if each.init]
    known = {each.name: each for each in given}
    in_order = [each.name for each in given if not each.kw_only]
    needed = [each.name for each in given if each.default is MISSING and each.default_factory is MISSING]

    @functools.wraps(made)
    def checked(self: Any, /, *positional: Any, **named: Any) -> None:
        if len(positional) > len(in_order) or not named.keys() <= known.keys():
            raise TypeError(_complaint(record.__name__, positional, named, known, in_order))
        if lacking := [name for name in needed if name not in named and name not in in_order[: len(positional)]]:
            raise TypeError(
                f"{_named(record.__name__, positional, named, known)} lacks {', '.join(f'{name}=' for name in lacking)}"
            )
        made(self, *positional, **named)

    initialized.__init__ = checked
    return record


def _complaint(
    record: str, positional: tuple[Any, ...], named: dict[str, Any], known: dict[str, Field[Any]], in_order: list[str]
) -> str:
    what = _named(record, positional, named, known)
    unknown = [name for name in named if name not in known]
    if unknown:
        near = did_you_mean(unknown[0], known) or f"; its fields are {', '.join(known)}"
        return f"{what} has no field {unknown[0]!r}{near}"
    by_name = ", ".join(f"{name}=" for name in known if name not in in_order and name not in named)
    return (
        f"{what} takes {', '.join(in_order)} in this order, and {len(positional)} values are given without a name"
        + (f"; give the others by name: {by_name}" if by_name else "")
    )


def _named(record: str, positional: tuple[Any, ...], named: dict[str, Any], known: dict[str, Field[Any]]) -> str:
    """How messages call what is made: by its first field, where that is a name."""
    called = positional[0] if positional else named.get(next(iter(known)))
    return f"{record} {short_repr(called)}" if isinstance(called, str) else record
