"""The kinds of kernels that ``make assemble`` knows."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def kinds() -> ModuleType:
    """``tools/assemble.py``."""
    spec = importlib.util.spec_from_file_location("hlojit_assemble", ROOT / "tools" / "assemble.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
