"""What vendors import is one surface: nothing that was recorded goes or changes, and documents and examples use nothing else."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.api_surface import FOLDER, breaks, surface

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = {"hlojit", "hlojit.extensions", "hlojit.ir", "hlojit.numpy", "hlojit.testing"}

CHANGED_BEFORE_THE_PROMISE = {
    "hlojit.CompileOptions: the parameter extra is gone",
    "hlojit.CompileOptions.extra is gone",
    "hlojit.verify: the parameter module is gone",
    "hlojit.verify: the parameter program is new and has no default",
    "hlojit.extensions.CompileOptions: the parameter extra is gone",
    "hlojit.extensions.CompileOptions.extra is gone",
    "hlojit.extensions.CustomCall.replace is abstract now: classes that were derived from it cannot be made any more",
    "hlojit.extensions.Pass.package is gone",
    "hlojit.extensions.PluginRecord: the parameter formats is not the 7. any more",
    "hlojit.extensions.PluginRecord: the parameter ops is not the 8. any more",
    "hlojit.extensions.PluginRecord: the parameter passes is not the 9. any more",
    "hlojit.extensions.PluginRecord: the parameter custom_calls is not the 10. any more",
    "hlojit.extensions.PluginRecord: the parameter backends is not the 11. any more",
    "hlojit.extensions.Registry.identity is gone",
    "hlojit.ir.Instruction.has_effects is gone",
    "hlojit.ir.Instruction.is_dead is gone",
}
"""Between 1.0 and 1.1, when nobody was promised anything (docs/compatibility.md); plugins of 1.0 used none of it."""


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_recorded_is_there(path: Path) -> None:
    broken = set(breaks(json.loads(path.read_text(encoding="utf-8")), surface()))
    assert broken == (CHANGED_BEFORE_THE_PROMISE if path.stem == "1.0" else set())


def test_every_version_has_a_record() -> None:
    from hlojit.extensions import API_VERSION

    major, minor = API_VERSION
    assert {path.stem for path in FOLDER.glob("*.json")} == {f"{major}.{number}" for number in range(minor + 1)}


# --------------------------------------------------------------------------------------------------- the check itself


def function(*parameters: tuple[str, str, str]) -> dict[str, Any]:
    return {"m": {"f": {"kind": "function", "parameters": [list(each) for each in parameters]}}}


A, B = ("a", "either", ""), ("b", "either", "default")


@pytest.mark.parametrize(("old", "new", "broken"), [
    (function(A), function(A, B), []),
    (function(A), function(A, ("c", "keyword", "default")), []),
    (function(A, B), function(A), ["m.f: the parameter b is gone"]),
    (function(A), function(A, ("c", "either", "")), ["m.f: the parameter c is new and has no default"]),
    (function(A, B), function(B, A), ["m.f: the parameter a is not the 1. any more", "m.f: the parameter b is not the 2. any more", "m.f: the parameter b has no default any more"][:2]),
    (function(B), function(("b", "either", "")), ["m.f: the parameter b has no default any more"]),
    (function(A), function(("a", "position", "")), ["m.f: the parameter a is not given by name any more"]),
    (function(A), function(("a", "keyword", "")), ["m.f: the parameter a is not the 1. any more"]),
    (function(A), {"m": {}}, ["m.f is gone"]),
    ({"m": {"e": {"members": ["X", "Y"]}}}, {"m": {"e": {"members": ["Y", "Z"]}}}, ["m.e.X is gone"]),
    ({"m": {"c": {"attributes": ["x"], "methods": {"g": []}}}}, {"m": {"c": {}}}, ["m.c.g is gone", "m.c.x is gone"]),
    ({"m": {"c": {"abstract": []}}}, {"m": {"c": {"abstract": ["run"]}}}, ["m.c.run is abstract now: classes that were derived from it cannot be made any more"]),
])  # fmt: skip
def test_breaks_are_found(old: Any, new: Any, broken: list[str]) -> None:
    assert list(breaks(old, new)) == broken


# ----------------------------------------------------------------------------------------- documents and examples


OF_INTERNALS = {"cuda.md"}
"""Pages that show what is below the surface on purpose, and say so."""


def imported(code: str) -> Iterator[str]:
    """The modules of hlojit that code imports, in functions too."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


def is_public(module: str) -> bool:
    return module.partition(".")[0] != "hlojit" or module in PUBLIC


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_documents_import_the_surface_only(page: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    found = {module for block in blocks for module in imported(block) if not is_public(module)}
    assert page.name in OF_INTERNALS or not found


@pytest.mark.parametrize("path", sorted((ROOT / "plugins_example").rglob("*.py")), ids=lambda path: path.name)
def test_examples_import_the_surface_only(path: Path) -> None:
    assert [module for module in imported(path.read_text(encoding="utf-8")) if not is_public(module)] == []


def test_the_surface_is_typed() -> None:
    """Every function and class says what it takes and gives."""
    import importlib
    import inspect

    lacking = []
    for name in PUBLIC - {"hlojit.testing"}:
        module = importlib.import_module(name)
        for each in module.__all__:
            found = getattr(module, each)
            if (
                inspect.isfunction(found)
                and not found.__module__.startswith("numpy")
                and "return" not in found.__annotations__
            ):
                lacking.append(f"{name}.{each}")
    assert lacking == []
    assert (ROOT / "jit" / "py.typed").exists()
