"""Sources: found where they are certain, once per code, and never another text."""

from __future__ import annotations

import ast
import gc
import importlib.util
import linecache
import os
import sys
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import hlojit
import pytest
from hlojit.tracing.rewriting import rewrite, rewritten, substitute
from hlojit.tracing.rewriting.parsing import parsed

SOURCE = "def f(x):\n    if x > 0:\n        return 1\n    return 2\n"


def imported(path: Path, text: str) -> ModuleType:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def changed(path: Path, text: str) -> None:
    path.write_text(text)
    stamp = path.stat().st_mtime + 10
    os.utime(path, (stamp, stamp))


@pytest.mark.parametrize(
    "text",
    [SOURCE.replace("> 0", "> 1"), "\n" + SOURCE, SOURCE.replace("f(x)", "g(x)"), "x = (", ""],
    ids=["another constant", "moved", "renamed", "broken", "empty"],
)
def test_changed_file_is_left_alone(tmp_path: Path, text: str) -> None:
    module = imported(tmp_path / "stale.py", SOURCE)
    changed(tmp_path / "stale.py", text)
    done = rewritten(module.f)
    assert done.function is module.f
    assert "stale.py" in done.reason
    assert done.function(1) == 1


def test_change_elsewhere_in_the_file_does_not_matter(tmp_path: Path) -> None:
    module = imported(tmp_path / "grown.py", SOURCE)
    changed(tmp_path / "grown.py", SOURCE + "\n\ny = 3\n")
    assert not rewritten(module.f).reason


def test_deleted_file_is_a_reason(tmp_path: Path) -> None:
    module = imported(tmp_path / "gone.py", SOURCE)
    (tmp_path / "gone.py").unlink()
    assert "is not there" in rewritten(module.f).reason


def test_cells_of_notebooks() -> None:
    name = "/tmp/ipykernel_1/123.py"
    linecache.cache[name] = (len(SOURCE), None, SOURCE.splitlines(keepends=True), name)
    variables: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SOURCE, name, "exec"), variables)
    done = rewritten(variables["f"])
    assert not done.reason
    assert done.function(0) == 2


def test_equal_code_of_two_files_is_not_mixed_up(tmp_path: Path) -> None:
    first, second = imported(tmp_path / "one.py", SOURCE), imported(tmp_path / "two.py", SOURCE)
    assert first.f.__code__ == second.f.__code__
    assert [Path(rewritten(each.f).function.__code__.co_filename).name for each in (first, second)] == [
        "one.py",
        "two.py",
    ]


def test_future_annotations_stay(tmp_path: Path) -> None:
    text = "from __future__ import annotations\ndef f(x):\n    def g(y: nothing) -> nothing:\n        return y\n    return g\n"
    module = imported(tmp_path / "future.py", text)
    done = rewritten(module.f)
    assert not done.reason
    assert done.function(1).__annotations__ == {"y": "nothing", "return": "nothing"}
    assert done.function(1).__qualname__ == "f.<locals>.g"


def test_rewritten_once_per_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = imported(
        tmp_path / "once.py",
        "def outer():\n" + "".join(f"    {line}\n" for line in SOURCE.splitlines()) + "    return f\n",
    )
    made = []
    compiled = rewrite._compiled
    monkeypatch.setattr(rewrite, "_compiled", lambda *arguments: made.append(1) or compiled(*arguments))
    codes = {id(rewritten(module.outer()).function.__code__) for _ in range(3)}
    assert len(codes) == len(made) == 1
    inner = rewritten(module.outer).function()
    assert len(made) == 2
    assert substitute(inner) is inner  # rewritten with what it is in
    assert len(made) == 2


def test_code_is_not_kept(tmp_path: Path) -> None:
    module = imported(tmp_path / "dropped.py", SOURCE)
    done = rewritten(module.f)
    dead = weakref.ref(module.f.__code__), weakref.ref(done.function.__code__)
    del done, module
    gc.collect()
    assert [each() for each in dead] == [None, None]


def test_as_is(tmp_path: Path) -> None:
    module = imported(tmp_path / "kept.py", SOURCE)
    assert hlojit.as_is(module.f) is module.f
    assert substitute(module.f) is module.f
    assert "as_is" in rewritten(module.f).reason
    with pytest.raises(hlojit.ArgumentError, match="takes a Python function"):
        hlojit.as_is(len)


def test_names_like_ours_are_a_reason(tmp_path: Path) -> None:
    module = imported(tmp_path / "ours.py", "def f(x):\n    _hlojit_1 = x\n    return _hlojit_1\n")
    assert "are ours" in rewritten(module.f).reason


def test_tests_of_pytest_are_a_reason() -> None:
    def tested(x: int) -> int:
        assert x == 1
        return x

    assert sys.version_info and "pytest has changed" in rewritten(tested).reason


def test_a_tree_is_parsed_again_where_python_mistakes_its_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, left = ast.parse, [2]

    def failing(*arguments: object, **named: object) -> object:
        if left[0]:
            left[0] -= 1
            raise SystemError("AST constructor recursion depth mismatch (before=195, after=38)")
        return parse(*arguments, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(ast, "parse", failing)
    assert parsed("x = 1").body[0].targets[0].id == "x" and left == [0]
