"""Options for ``pytest --pyargs hlojit.testing --plugin=NAME``: an entry point of pytest's, which imports nothing else.

Options of a package that is named by ``--pyargs`` have to be known before pytest looks at it.
"""

from __future__ import annotations

from typing import Any


def pytest_addoption(parser: Any) -> None:
    """Add ``--plugin`` and what goes with it."""
    group = parser.getgroup("hlojit", "hlojit's conformance kit (pytest --pyargs hlojit.testing --plugin=NAME)")
    group.addoption(
        "--plugin", action="append", default=[], metavar="NAME", help="a plugin to try: its entry point's name"
    )
    group.addoption("--hlojit-budget", default="quick", help="smoke, quick or full")
    group.addoption("--hlojit-seed", type=int, default=0, help="of everything that is made up")
    group.addoption("--hlojit-report", metavar="FILE", help="where to write the report: .html, .json or .txt")
