"""Write ``docs/linear-algebra.md``'s table from the newest figures in ``benchmarks/results``; ``--check`` only compares."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
PAGE = ROOT / "docs" / "linear-algebra.md"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


def page(text: str) -> str:
    """The page with the table of the figures."""
    from benchmarks.linear_algebra import page as table

    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{PAGE} lacks the lines {BEGIN!r} and {END!r}")
    newest = max((ROOT / "benchmarks" / "results").glob("linear-algebra-[0-9]*.json"))
    result = json.loads(newest.read_text(encoding="utf-8"))
    return f"{before}{BEGIN}\n`benchmarks/results/{newest.name}`:\n\n{table(result)}\n\n{END}{after}"


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare the page with the figures")
    text = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().check:
        if page(text) == text:
            return 0
        print(f"{PAGE} is out of date; run: python tools/linear_algebra_table.py")
        return 1
    PAGE.write_text(page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
