"""Back ends that compute with quantized numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import hlojit
import numpy as np
import pytest

Run = Callable[..., list[np.ndarray]]


@pytest.fixture(autouse=True, scope="session")
def simulator(request: pytest.FixtureRequest) -> Iterator[None]:
    """The back end ``cuda`` runs on the simulator, unless there is a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("--gpu", default=False):
            patch.setenv("HLOJIT_CUDA", "simulator")
        yield


def run_on(backend: str, text: str, *arguments: np.ndarray) -> list[np.ndarray]:
    """The results of a program."""
    results = hlojit.compile(text, backend=backend)(*arguments)
    return [np.asarray(result) for result in (results if isinstance(results, tuple) else (results,))]


@pytest.fixture
def run() -> Run:
    """Runs programs on the CPU and on the reference, which agree bit for bit."""

    def run_both(text: str, *arguments: np.ndarray) -> list[np.ndarray]:
        found, expected = (run_on(backend, text, *arguments) for backend in ("cpu", "reference"))
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        return found

    return run_both


@pytest.fixture(params=["cpu", "reference", "cuda"])
def run_everywhere(request: pytest.FixtureRequest) -> Run:
    """The same, the GPU's back end among them."""
    return lambda text, *arguments: run_on(request.param, text, *arguments)
