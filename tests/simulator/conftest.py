"""Programs on the back end ``cuda``, run by the simulator, or, with ``--gpu``, by the machine's GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def simulator(request: pytest.FixtureRequest) -> Iterator[None]:
    """Its switch is set."""
    if request.config.getoption("--gpu"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HLOJIT_CUDA", "simulator")
        yield
