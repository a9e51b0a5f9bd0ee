"""The messages in docs/mistakes.md are the real ones; ``--update-golden`` writes what they are now."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mistakes.md"
MISTAKE = re.compile(
    r"^### (?P<title>.*?)\n.*?```python\n(?P<code>.*?)\n# raises: (?P<call>.*?)\n```\n\n```text\n(?P<said>.*?)\n```$",
    re.MULTILINE | re.DOTALL,
)
START = "import random\nimport time\nimport hlojit\nimport numpy as np\nx = np.arange(4.0)\n"


class Mistake(NamedTuple):
    title: str
    code: str
    call: str
    said: str


MISTAKES = [Mistake(*found.groups()) for found in MISTAKE.finditer(PAGE.read_text(encoding="utf-8"))]


def test_there_are_thirty() -> None:
    headings = PAGE.read_text(encoding="utf-8").count("\n### ")
    assert len(MISTAKES) == headings >= 30


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each.title for each in MISTAKES])
def test_messages_are_the_real_ones(mistake: Mistake, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    file = tmp_path / "file.py"
    file.write_text(f"{mistake.code}\n{mistake.call}\n", encoding="utf-8")
    names: dict[str, Any] = {"__name__": "file"}
    exec(START, names)
    with pytest.raises(Exception) as caught:
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
    said = f"{type(caught.value).__name__}: {caught.value}"
    if request.config.getoption("update_golden"):
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page.replace(mistake.said, said), encoding="utf-8")
        return
    assert said == mistake.said
