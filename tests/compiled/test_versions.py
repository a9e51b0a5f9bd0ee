"""What keys say of hlojit's own sources: all of them count, wherever they lie, and a process that lost them keeps nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hlojit.disk_cache import DiskCache
from hlojit.ir import versions

ROOT = Path(__file__).resolve().parents[2]
PACKAGES: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
"""As setuptools maps them in an editable install."""

FINDER = """
import sys
from importlib.machinery import PathFinder
from importlib.util import spec_from_file_location
MAPPING = {mapping!r}
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in MAPPING:
            return spec_from_file_location(name, MAPPING[name] + "/__init__.py")
        parent = name.rpartition(".")[0]
        return PathFinder.find_spec(name, path=[MAPPING[parent]]) if parent in MAPPING else None
sys.meta_path.insert(0, Finder)
import hlojit
assert hlojit.__file__ == MAPPING["hlojit"] + "/__init__.py", hlojit.__file__
"""
VERSION = "from hlojit.ir.versions import versions; print(versions()['hlojit'])"
EDIT_AND_COMPILE = """
import hlojit.ir.scalar.arithmetic
with open(MAPPING["hlojit.ir"] + "/scalar/arithmetic.py", "a") as file:
    file.write("# edited\\n")
hlojit.compile("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in PACKAGES.values():
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(checkout: Path, source: str) -> str:
    mapping = {name: str(checkout / folder) for name, folder in PACKAGES.items()}
    done = subprocess.run(
        [sys.executable, "-c", FINDER.format(mapping=mapping) + source],
        env={**os.environ, "HLOJIT_CACHE": str(checkout / "cache"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_folder_of_an_editable_install_counts(checkout: Path) -> None:
    assert set(PACKAGES) == set(versions._OWN)
    seen = [run(checkout, VERSION)]
    assert run(checkout, VERSION) == seen[0]
    for folder in PACKAGES.values():
        with (checkout / folder / "__init__.py").open("a") as file:
            file.write("# edited\n")
        seen.append(run(checkout, VERSION))
    assert len(set(seen)) == len(seen)


def test_a_process_whose_sources_were_changed_keeps_nothing(checkout: Path) -> None:
    run(checkout, EDIT_AND_COMPILE)
    assert not list(DiskCache(checkout / "cache").entries())
    run(
        checkout,
        EDIT_AND_COMPILE.partition("with open")[0] + EDIT_AND_COMPILE[EDIT_AND_COMPILE.index("hlojit.compile(") :],
    )
    assert list(DiskCache(checkout / "cache").entries())
