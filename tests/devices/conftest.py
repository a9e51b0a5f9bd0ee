"""Fixtures of the devices' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hlojit.extensions import registry

from .vendor import Plugin, TestBackend


@pytest.fixture
def backend() -> Iterator[TestBackend]:
    """A registered back end with two devices."""
    made = TestBackend()
    with registry().load().using(Plugin(made)):
        yield made
    for device in made.devices():
        device.gate.set()
