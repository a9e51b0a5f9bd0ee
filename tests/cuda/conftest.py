"""The back end ``cuda`` on the simulator."""

from __future__ import annotations

import pytest


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> str:
    """Its switch is set; returns the back end's name."""
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    return "cuda"
