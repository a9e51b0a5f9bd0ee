"""Write ``docs/sorting.md``'s tables from the newest figures in ``benchmarks/results``; ``--check`` only compares."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
PAGE = ROOT / "docs" / "sorting.md"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
SETTINGS = ("avx512", "peers-avx2", "avx2")
"""``sorting-SETTING-DATE.json``."""


def page(text: str) -> str:
    """The page with the tables of the figures."""
    from benchmarks.sorting_tables import described
    from benchmarks.sorting_tables import page as tables

    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{PAGE} lacks the lines {BEGIN!r} and {END!r}")
    shown = []
    for setting in SETTINGS:
        newest = max((ROOT / "benchmarks" / "results").glob(f"sorting-{setting}-[0-9]*.json"))
        result = json.loads(newest.read_text(encoding="utf-8"))
        head = f"`benchmarks/results/{newest.name}`: {described(result['machine'])}"
        shown.append(f"{head}\n\n{tables(result)}\n")
    return f"{before}{BEGIN}\n{chr(10).join(shown)}\n{END}{after}"


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare the page with the figures")
    text = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().check:
        if page(text) == text:
            return 0
        print(f"{PAGE} is out of date; run: python tools/sorting_table.py")
        return 1
    PAGE.write_text(page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
