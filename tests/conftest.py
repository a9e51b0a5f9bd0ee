"""Options of the whole test suite."""

from __future__ import annotations

from typing import Any


def pytest_addoption(parser: Any) -> None:
    """Add ``--update-golden``, which rewrites golden files instead of comparing with them."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what comes out now")
