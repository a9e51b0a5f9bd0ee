"""``hlojit new-plugin``: what it writes is checked as our own sources are; ``test_packaging.py`` installs and runs it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hlojit.command import main
from hlojit.new_plugin import write_plugin

ROOT = Path(__file__).resolve().parents[1]


def test_the_files_of_a_new_plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "vendor"
    assert main(["new-plugin", "nova", "--path", str(folder)]) == 0
    assert "pip install -e" in capsys.readouterr().out
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert written == {
        "pyproject.toml", "README.md", ".github/workflows/test.yml", "hlojit_nova/__init__.py", "hlojit_nova/py.typed",
        "hlojit_nova/plugin.py", "hlojit_nova/arrays.py", "hlojit_nova/blocks.py", "hlojit_nova/cases.py", "hlojit_nova/device.py",
        "tests/test_nova.py",
    }  # fmt: skip
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["hlojit"] == {"nova": "hlojit_nova.plugin"}
    for path in folder.rglob("*"):
        assert path.is_dir() or not any(word in path.read_text() for word in ("NAME", "TITLE", "API_VERSION"))
    for path in folder.rglob("*.py"):
        imports = [node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        ours = {name for name in imports if name and name.split(".")[0] == "hlojit"}
        assert ours <= {"hlojit.extensions", "hlojit.ir", "hlojit.testing"}


def test_a_new_plugin_is_clean(tmp_path: Path) -> None:
    """By ruff, with our own rules, and by mypy in strict mode."""
    write_plugin("nova", tmp_path / "vendor")
    rules = ("--config", str(ROOT / "pyproject.toml"))
    # mypy does not follow the finder of an editable installation, but the links of tools/link_tree.py.
    environment = {**os.environ, "MYPYPATH": str(ROOT / "build" / "dev")}
    for command in (
        ["ruff", "check", *rules],
        ["ruff", "format", "--check", *rules],
        ["mypy", "--strict", "--follow-imports=silent"],
    ):
        target = tmp_path / "vendor" / ("hlojit_nova" if command[0] == "mypy" else ".")
        done = subprocess.run(
            [sys.executable, "-m", *command, target],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment,
        )
        if "No module named" in done.stderr:
            pytest.skip(f"{command[0]} is not installed")
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("name", "message"), [
    ("Nova", "a plugin's name is a lower-case word such as 'acme' or 'nova2', not 'Nova'"),
    ("nova-2", "a plugin's name is a lower-case word"), ("2nova", "a plugin's name is a lower-case word"),
    ("", "a plugin's name is a lower-case word"), ("cpu", "a plugin called 'cpu' is installed already"),
])  # fmt: skip
def test_names_that_cannot_be(name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-plugin", name, "--path", str(tmp_path / "vendor")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "vendor").exists()


def test_a_folder_with_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["new-plugin", "nova", "--path", str(tmp_path)]) == 1
    assert "exists and is not empty; name another folder with --path" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
