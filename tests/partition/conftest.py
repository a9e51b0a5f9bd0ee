"""Fixtures of the tests of placement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from hlojit.extensions import Backend, registry

from ..devices.vendor import Plugin
from .test_placement import refusing
from .vendor import OwnMemoryBackend, everything


@pytest.fixture
def registered() -> Iterator[Callable[..., None]]:
    """Registers back ends for the test."""
    with ExitStack() as stack:

        def register(*backends: Backend) -> None:
            names = "_".join(each.name for each in backends)
            stack.enter_context(registry().load().using(type(f"Plugin_{names}", (Plugin,), {})(*backends)))

        yield register


@pytest.fixture
def nova(registered: Callable[..., None]) -> OwnMemoryBackend:
    """Takes everything but sines; ``last`` everything, at a high cost."""
    made = OwnMemoryBackend("nova", refusing("stablehlo.sine", "stablehlo.sort"))
    registered(made, OwnMemoryBackend("last", everything(1e6)))
    return made
