"""The kinds of kernels that ``make assemble`` knows."""

from __future__ import annotations

from types import ModuleType

import pytest

from tools import assemble


@pytest.fixture(scope="session")
def kinds() -> ModuleType:
    """``tools/assemble.py``."""
    return assemble
