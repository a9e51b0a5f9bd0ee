"""The documentation is true: every Python block runs, every shell command works, generated pages are up to date.

Blocks of one page run in order in one namespace, as a reader would type them.  A block that begins with the comment
``# file: NAME`` is also written to that file, for the shell blocks after it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from hlojit.extensions import registry

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENVIRONMENT = dict(os.environ, COLUMNS="120")
if "PYTHONPATH" in os.environ:
    # The blocks run in other folders.
    ENVIRONMENT["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, os.environ["PYTHONPATH"].split(os.pathsep)))
SETS_UP = re.compile(r"^\$ (make|pip|git) ")
"""Commands that are tested elsewhere (tests/test_packaging.py) or by whoever runs this."""


class Fence(NamedTuple):
    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Fence]:
    text = page.read_text(encoding="utf-8")
    return [Fence(m[1], m[2], text.count("\n", 0, m.start()) + 2) for m in FENCE.finditer(text)]


def with_blocks(language: str) -> list[Path]:
    return [page for page in PAGES if any(block.language == language for block in blocks(page))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run_python(page: Path, folder: Path) -> None:
    # The code runs in a process of its own: pages register plugins and ops.
    parts = []
    for block in blocks(page):
        if block.language != "python":
            continue
        first = block.text.partition("\n")[0]
        if first.startswith("# file: "):
            (folder / first.removeprefix("# file: ")).write_text(block.text, encoding="utf-8")
        # compile() keeps the page's line numbers in tracebacks; inspect.getsource finds the code in the page.
        parts.append((block.line, block.text))
    script = folder / "page.py"
    lines: list[str] = []
    for line, text in parts:
        lines += [""] * (line - 1 - len(lines))
        lines += text.splitlines()
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{page} (line numbers are the page's):\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", with_blocks("python"), ids=name)
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    run_python(page, tmp_path)


@pytest.mark.parametrize("page", with_blocks("console"), ids=name)
def test_commands_work_and_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    """A line ``$ command`` and the lines after it: all that is shown is printed, in that order; ``...`` is anything."""
    for block in blocks(page):
        first = block.text.partition("\n")[0]
        if block.language == "python" and first.startswith("# file: "):
            (tmp_path / first.removeprefix("# file: ")).write_text(block.text, encoding="utf-8")
        if block.language != "console":
            continue
        for part in re.split(r"^(?=\$ )", block.text, flags=re.MULTILINE):
            if part.strip() and not SETS_UP.match(part):
                command, _, shown = part.removeprefix("$ ").partition("\n")
                check_command(page, command, shown, tmp_path)


def check_command(page: Path, command: str, shown: str, folder: Path) -> None:
    command = re.sub(r"^(\w+=\S+ )*hlojit ", r"\1python -m hlojit ", command)
    command = re.sub(r"\bpython\b", sys.executable, command).replace("examples/", f"{ROOT}/examples/")
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    position, printed = 0, done.stdout
    for line in filter(None, map(str.strip, re.split(r"\n|\.\.\.", shown))):
        found = printed.find(line, position)
        assert found >= 0, f"{page}: {command}\ndid not print {line!r} but\n{printed}"
        position = found + len(line)
    assert done.returncode == 0, printed


def anchors(page: Path) -> set[str]:
    """What links may name in a page: its headings, in lower case and without punctuation, as GitHub makes them."""
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_paths_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page}: {target}"
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", text):
        linked = (page.parent / target) if target else page
        assert anchor in anchors(linked), f"{page}: {target}#{anchor}"
    for path in re.findall(
        r"`((?:ir|jit|extensions|cuda|tests|tools|docs|examples|benchmarks|plugins_example)/[\w./-]*)`", text
    ):
        assert (ROOT / path).exists(), f"{page}: {path}"


def test_every_page_is_linked() -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    linked = {
        (page.parent / target).resolve()
        for page, text in texts.items()
        for target in re.findall(r"\]\(([^)#:]+)", text)
    }
    assert set(PAGES) - linked == {ROOT / "README.md", ROOT / "CHANGELOG.md"}


@pytest.mark.parametrize(
    "tool",
    ["op_status", "op_attributes", "sorting_table", "linear_algebra_table", "comparison_table", "functions_table"],
)
def test_generated_pages_are_up_to_date(tool: str) -> None:
    command = [sys.executable, ROOT / "tools" / f"{tool}.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_switch_is_documented_and_every_documented_switch_exists() -> None:
    pattern = re.compile(r"HLOJIT_[A-Z_]*[A-Z]")
    sources = [path for folder in ("ir", "jit", "extensions", "cuda") for path in (ROOT / folder).rglob("*.py")]
    used = {found for path in sources for found in pattern.findall(path.read_text(encoding="utf-8"))}
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    assert used == set(pattern.findall(page))


def test_the_built_in_plugins_page_names_every_hook() -> None:
    from hlojit.extensions.registration.checks import HOOKS

    assert registry().load().backends
    page = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    assert [hook for hook in HOOKS if f"`{hook}`" not in page] == []


def test_the_page_about_the_architecture_names_every_folder() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    sources = [path.parent for folder in ("ir", "jit", "extensions", "cuda") for path in (ROOT / folder).rglob("*.py")]
    folders = {f"{folder.relative_to(ROOT).as_posix()}/" for folder in sources}
    assert sorted(folder for folder in folders if f"`{folder}`" not in page) == []
