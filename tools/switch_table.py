"""Write ``docs/environment.md``'s table of switches from ``hlojit.ir.switches``; ``--check`` only compares."""

from __future__ import annotations

import argparse
from pathlib import Path

from hlojit.ir.switches import SWITCHES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "environment.md"
BEGIN, END = "<!-- switches: begin -->\n", "<!-- switches: end -->\n"


def page(text: str) -> str:
    """The page with the table that the switches give."""
    rows = [f"| `{each.name}` | {each.default} | {each.meaning} | {each.read} |\n" for each in SWITCHES]
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{PAGE} lacks the lines {BEGIN!r} and {END!r}")
    table = "".join(["| variable | default | meaning | read |\n|---|---|---|---|\n", *rows])
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare the page with the table of switches")
    text = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().check:
        if page(text) == text:
            return 0
        print(f"{PAGE} is out of date; run: python tools/switch_table.py")
        return 1
    PAGE.write_text(page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
