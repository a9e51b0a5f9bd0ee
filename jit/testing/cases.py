"""What a plugin says of how it is to be tried, where types alone do not tell: a table in a module that only the kit imports.

hlojit_cases = "nova.cases"                                   # beside the hooks

CASES = [                                                     # nova/cases.py
    Case("nova.norm", operands=["f32", "f32"], shapes=[[(4, 8), (8,)]], oracle=norm),
    Case("nova.fused", programs=[TEXT], tolerance=Tolerance(ulps=16)),
    Case("nova", budget="smoke"),
]
"""

from __future__ import annotations

import importlib
from typing import Any

from hlojit.ir.errors import HlojitError, repr_of


class Case:
    """How one thing is tried: its ``name`` and arguments of its check.  Several cases of a name are tried one after the other."""

    def __init__(self, name: str, **arguments: Any):
        self.name = name
        self.arguments = arguments

    def __repr__(self) -> str:
        return f"Case({self.name!r}, {', '.join(self.arguments)})"


def cases_of(module: str) -> dict[str, list[Case]]:
    """The cases of a module by name; raises ``HlojitError`` for a module that has none."""
    if not module:
        return {}
    try:
        listed = importlib.import_module(module).CASES
    except Exception as error:
        raise HlojitError(
            f"hlojit_cases = {module!r}: there are no CASES in such a module: {repr_of(error)}"
        ) from error
    if not isinstance(listed, (list, tuple)) or not all(isinstance(each, Case) for each in listed):
        raise HlojitError(f"{module}.CASES holds {repr_of(listed)}, expected a list of hlojit.testing.Case")
    found: dict[str, list[Case]] = {}
    for case in listed:
        found.setdefault(case.name, []).append(case)
    return found
