"""Ctrl-C, and signal handlers that compile, at any moment of a compilation: nothing is left behind, and nothing waits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("interrupted_process.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["interrupt", "handler"])
def test_a_compilation_may_be_disturbed_at_any_moment(kind: str) -> None:
    environment = {**os.environ, "HLOJIT_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), kind], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout[-2000:] + done.stderr[-4000:]
