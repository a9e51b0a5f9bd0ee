"""Write ``docs/sorting.md``'s tables from the newest figures in ``benchmarks/results``; ``--check`` only compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools import generated_pages

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "sorting.md"
MARKS = ("<!-- figures: begin -->\n", "<!-- figures: end -->\n")
SETTINGS = ("avx512", "peers-avx2", "avx2")
"""``sorting-SETTING-DATE.json``."""


def page(text: str) -> str:
    """The page with the tables of the figures."""
    from benchmarks.sorting_tables import described
    from benchmarks.sorting_tables import page as tables

    shown = []
    for setting in SETTINGS:
        newest = max((ROOT / "benchmarks" / "results").glob(f"sorting-{setting}-[0-9]*.json"))
        result = json.loads(newest.read_text(encoding="utf-8"))
        head = f"`benchmarks/results/{newest.name}`: {described(result['machine'])}"
        shown.append(f"{head}\n\n{tables(result)}\n")
    return generated_pages.between(text, MARKS, "\n".join(shown))


if __name__ == "__main__":
    raise SystemExit(generated_pages.main(PAGE, page, __doc__))
