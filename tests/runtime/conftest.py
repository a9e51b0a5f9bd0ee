"""Fixtures of the runtime's tests."""

from __future__ import annotations

from typing import Any

import hlojit
import pytest

from .donations import ADD
from .programs import Build, make_executable


@pytest.fixture(scope="session")
def build() -> Build:
    """``build(ir, inputs, outputs, **fields)``: see ``make_executable``."""
    return make_executable


@pytest.fixture(scope="module")
def add() -> Any:
    """A sum that lies in the memory of its first argument."""
    return hlojit.compile(ADD)
