"""Fixtures of the runtime's tests."""

from __future__ import annotations

import pytest

from .programs import Build, make_executable


@pytest.fixture(scope="session")
def build() -> Build:
    """``build(ir, inputs, outputs, **fields)``: see ``make_executable``."""
    return make_executable
