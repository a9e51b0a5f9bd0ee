"""Fresh processes, and packages as pip would leave them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def run(code: str, folder: Path, **environment: str) -> str:
    """Run Python with ``folder`` on its path."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    done = subprocess.run(
        [sys.executable, "-"],
        input=textwrap.dedent(code),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def install(folder: Path, name: str, code: str, *, entry: str = "") -> None:
    """A package as pip would leave it: a module and the metadata with its entry point."""
    (folder / f"{name}.py").write_text(textwrap.dedent(code))
    info = folder / f"{name}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[hlojit]\n{name} = {entry or name}\n")
