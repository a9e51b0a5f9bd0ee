"""What tracing raises."""

from __future__ import annotations

from hlojit.ir.errors import HlojitError


class TracingError(HlojitError, TypeError):
    """A traced function did something that a compiled one cannot do."""
