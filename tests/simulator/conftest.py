"""Programs on the back end ``cuda``, run by the simulator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def simulator() -> Iterator[None]:
    """Its switch is set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HLOJIT_CUDA", "simulator")
        yield
