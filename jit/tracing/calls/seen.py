"""A call that Python has answered, as what native code needs of the next such call is read off it (``entries.py``)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

from hlojit.tracing.calls.containers import Structure
from hlojit.tracing.calls.guards import Guards
from hlojit.tracing.calls.outcomes import Outcome


class Unknown(Exception):
    """A call that no operations describe."""


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """A call that Python has answered."""

    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    leaves: list[Any]
    structure: Structure
    """Of (positional, named) traced arguments."""
    signature: inspect.Signature
    static: frozenset[str]
    guards: tuple[Guards | None, ...]
    is_backend_given: bool
    call: Callable[..., Any]
    executable: Any
    outcome: Outcome | None
    result_structure: Structure
    finish: Callable[..., Any]
