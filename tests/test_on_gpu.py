"""The options of pytest that run the suites on a GPU: what they skip, and what becomes of a process whose GPU is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import time
import pytest
from hlojit.extensions import registry

@pytest.mark.parametrize("number", range(6))
def test_something(number):
    device = registry().load().backend("cuda").devices()[0]
    assert not device.lost
    if number == 2:
        device._lost = "a fault"
        raise AssertionError("met a fault")

def test_that_hangs():
    if HANGS:
        time.sleep(60)

@pytest.mark.simulator_only("faults are survived")
def test_of_the_simulator():
    raise AssertionError

@pytest.mark.gpu_only
def test_of_a_gpu():
    raise AssertionError
"""


def run(path: Path, *options: str, hangs: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    (path / "test_them.py").write_text(TESTS.replace("HANGS", str(hangs)), encoding="utf-8")
    (path / "conftest.py").write_text(
        "from tests import on_gpu\nfrom tests.conftest import *\non_gpu.HANG_SECONDS = 8.0\n", encoding="utf-8"
    )
    kept = {name: value for name, value in os.environ.items() if name not in ("HLOJIT_CUDA", "PYTEST_XDIST_WORKER")}
    kept["PYTHONPATH"] = os.pathsep.join([str(ROOT), kept.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "--rootdir", path, path, *options],
        cwd=path, env=kept | environment, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_a_process_whose_gpu_is_lost_is_replaced(tmp_path: Path) -> None:
    done = run(tmp_path, "--gpu", "-n", "1", HLOJIT_CUDA="simulator")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "programs run on cuda:0: simulated H200" in done.stdout
    assert "simulator only: faults are survived" in done.stdout and "needs a GPU (make test-gpu)" in done.stdout
    assert "6 passed" in done.stdout and "met a fault" in done.stdout
    alone = run(tmp_path, "--gpu", "-p", "no:xdist", HLOJIT_CUDA="simulator")
    assert "the GPU was stopped by a fault in" in alone.stdout + alone.stderr and alone.returncode == 3


@pytest.mark.slow
def test_a_process_that_hangs_is_replaced(tmp_path: Path) -> None:
    done = run(tmp_path, "--gpu", "-n", "1", hangs=True, HLOJIT_CUDA="simulator")
    assert "crashed while running 'test_them.py::test_that_hangs'" in done.stdout
    assert "5 passed" in done.stdout and "2 skipped" in done.stdout


@pytest.mark.slow
def test_without_a_gpu_nothing_runs_and_the_reason_is_told(tmp_path: Path) -> None:
    from hlojit.extensions import registry

    if registry().load().backend("cuda").unavailable() is None:
        pytest.skip("there is a GPU")
    done = run(tmp_path, "--gpu")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--gpu: there is no GPU to test on: " in done.stderr and "HLOJIT_CUDA=simulator" in done.stderr
