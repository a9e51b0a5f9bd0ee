"""A function whose ``assert`` stays as it is written: pytest rewrites those of test modules."""

from __future__ import annotations

from typing import Any


def asserts(x: Any) -> Any:
    assert x.min() > 1, f"must be larger, got {x.min()}"
    return x
