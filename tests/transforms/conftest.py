"""The random numbers of these tests: of each test alone, so that one fails or passes whatever ran before it."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from tests.transforms import jax_programs


@pytest.fixture(autouse=True)
def _numbers_of_the_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences fail where a step crosses a jump, as that of ``remainder`` by a small number: draws are fixed."""
    monkeypatch.setattr(jax_programs, "_RNG", np.random.default_rng(zlib.crc32(request.node.name.encode())))
