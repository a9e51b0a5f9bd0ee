"""The measuring tools of ``tools/`` for the tests of this folder, and the references they share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
