"""``hlojit new-plugin``: what it writes is checked as our own sources are; ``test_packaging.py`` installs and runs it."""

from __future__ import annotations

import ast
import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hlojit.command import main
from hlojit.extensions import using
from hlojit.new_plugin import write_plugin
from hlojit.testing.plugins import parts_of

ROOT = Path(__file__).resolve().parents[1]
MODULES = ("arrays", "blocks", "device", "double_negation", "float8", "row_norm", "softsign", "swish")
"""Of which each can be deleted."""
RULE = (
    "delete `hlojit_nova/swish.py`, delete `tests/test_swish.py`, and delete the lines of `plugin.py` that name `swish`"
)


def test_the_files_of_a_new_plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "vendor"
    assert main(["new-plugin", "nova", "--path", str(folder)]) == 0
    assert "pip install -e" in capsys.readouterr().out
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert written == {
        "pyproject.toml", "README.md", ".github/workflows/test.yml", "hlojit_nova/__init__.py", "hlojit_nova/py.typed",
        "hlojit_nova/plugin.py", "tests/test_plugin.py",
        *(f"hlojit_nova/{name}.py" for name in MODULES), *(f"tests/test_{name}.py" for name in MODULES),
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
    # mypy does not follow the finder of an editable installation, but the links of tools/link_tree.py.
    environment = {**os.environ, "MYPYPATH": str(ROOT / "build" / "dev")}
    for command in (*RUFF, ["mypy", "--strict", "--follow-imports=silent"]):
        done = tool(*command, "hlojit_nova", "tests", folder=tmp_path / "vendor", environment=environment)
        assert done.returncode == 0, done.stdout


RUFF = (
    ["ruff", "check", "--config", str(ROOT / "pyproject.toml")],
    ["ruff", "format", "--check", "--config", str(ROOT / "pyproject.toml")],
)


def tool(*command: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False, cwd=folder, env=environment
    )
    if "No module named" in done.stderr and command[0] in done.stderr:
        pytest.skip(f"{command[0]} is not installed")
    return done


def delete(module: str, folder: Path) -> None:
    """By the rule of the package's README, to the letter."""
    (folder / "hlojit_nova" / f"{module}.py").unlink()
    (folder / "tests" / f"test_{module}.py").unlink()
    plugin = folder / "hlojit_nova" / "plugin.py"
    lines = plugin.read_text().splitlines(keepends=True)
    plugin.write_text("".join(line for line in lines if not re.search(rf"\b{module}\b", line)))


def parts(folder: Path) -> set[str]:
    """What the package brings, by the kit; its tests are imported, too."""
    importlib.invalidate_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        try:
            for path in sorted((folder / "tests").glob("test_*.py")):
                runpy.run_path(str(path))
            with using(importlib.import_module("hlojit_nova.plugin")):
                return {f"{part.kind} {part.name}" for part in parts_of("hlojit_nova.plugin")}
        finally:
            for name in [name for name in sys.modules if name.partition(".")[0] == "hlojit_nova"]:
                del sys.modules[name]


def test_what_is_not_wanted_is_deleted_by_the_rule_of_the_readme(tmp_path: Path) -> None:
    """Each module alone, so that the rest still loads, is tried by the kit and is clean; and all but one."""
    whole = tmp_path / "whole"
    write_plugin("nova", whole)
    readme = " ".join((whole / "README.md").read_text().split())
    assert RULE in readme and [f"`{name}.py`" in readme for name in MODULES] == [True] * len(MODULES)
    every, brought = parts(whole), dict[str, set[str]]()
    for module in MODULES:
        rest = shutil.copytree(whole, tmp_path / module)
        delete(module, rest)
        brought[module] = every - parts(rest)
        done = tool(*RUFF[0], str(rest), folder=rest, environment=dict(os.environ))
        assert done.returncode == 0, done.stdout
    assert (
        all(brought.values())
        and sum(map(len, brought.values())) == len(every)
        and set().union(*brought.values()) == every
    )
    for module in MODULES[1:]:
        delete(module, whole)
    assert parts(whole) == brought[MODULES[0]]


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
