"""What parameters must be, checked when the function runs."""

from __future__ import annotations

from typing import Any

from hlojit.tracing.operations import Operations


def require(holds: Any, message: str) -> None:
    """``ValueError`` where an element of ``holds``, a traced array of truth values, is false."""
    operations: Operations = holds.context
    operations.check(operations.builder.create("not", [holds.value]).result, ValueError, message)
