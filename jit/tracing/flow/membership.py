"""``item in container`` of traced values."""

from __future__ import annotations

from typing import Any

import numpy as np
from hlojit.tracing.errors import TracingError
from hlojit.tracing.operations import Operations
from hlojit.tracing.selection.selected import Selected
from hlojit.tracing.tracer import Tracer


def contains(ops: Operations, item: Any, container: Any) -> Any:
    """A Python truth value, traced where it is not known."""
    if type(container) in (Tracer, Selected):
        equal = ops.tracer(np.any(container == item))
        return ops.python_number(equal)
    if isinstance(container, (list, tuple)):
        return _in_items(ops, item, container)
    if type(item) is Tracer and ops.known(item) is None:
        if type(container) is range and abs(container.step) == 1:
            low, high = min(container, default=0), max(container, default=-1)
            inside = np.logical_and(np.greater_equal(item, low), np.less_equal(item, high))
            return ops.python_number(ops.tracer(inside))
        raise TracingError(
            f"`in` of a {type(container).__name__} needs the number that {item!r} stands for; write the numbers as a tuple"
        )
    return item in container


def _in_items(ops: Operations, item: Any, items: Any) -> Any:
    found: Any = False
    for each in items:
        if each is item:
            return True
        equal = each == item
        if type(equal) is not Tracer:
            if equal:
                return True
            continue
        if equal.size != 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        found = equal if found is False else np.logical_or(found, equal)
    return found if found is False else ops.python_number(ops.tracer(found))
