"""Write ``docs/environment.md``'s table of switches from ``hlojit.ir.switches``; ``--check`` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from hlojit.ir.switches import SWITCHES

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools import generated_pages

PAGE = Path(__file__).resolve().parent.parent / "docs" / "environment.md"
MARKS = ("<!-- switches: begin -->\n", "<!-- switches: end -->\n")


def page(text: str) -> str:
    """The page with the table that the switches give."""
    rows = [f"| `{each.name}` | {each.default} | {each.meaning} | {each.read} |\n" for each in SWITCHES]
    table = "".join(["| variable | default | meaning | read |\n|---|---|---|---|\n", *rows])
    return generated_pages.between(text, MARKS, table)


if __name__ == "__main__":
    raise SystemExit(generated_pages.main(PAGE, page, __doc__))
