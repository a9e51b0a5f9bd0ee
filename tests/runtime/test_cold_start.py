"""Threads that compile from a cold start get their own programs, whatever the scheduler does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("cold_process.py")


def run(threads: int, seed: int) -> str:
    # Without the cache on disk every kernel is emitted and compiled; with it, threads also find what others keep.
    cache = {"HLOJIT_CACHE": "off"} if seed % 4 < 2 else {}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(threads), str(seed)],
        env={**os.environ, **cache}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("seed", range(10))
def test_every_thread_runs_its_own_program(seed: int) -> None:
    assert not run(2 + seed % 7, seed)


@pytest.mark.soak
def test_every_thread_runs_its_own_program_in_two_hundred_processes() -> None:
    faults = [fault for seed in range(10, 210) if (fault := run(2 + seed % 7, seed))]
    assert not faults
