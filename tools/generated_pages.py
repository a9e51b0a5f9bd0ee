"""Pages of the documentation that tools write, whole or in part, from records and figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path


def between(text: str, marks: tuple[str, str], made: str) -> str:
    """The text with ``made`` between two marked lines, which stay."""
    begin, end = marks
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"the page lacks the lines {begin!r} and {end!r}")
    return f"{before}{begin}\n{made}\n{end}{after}"


def main(page: Path, made: Callable[[str], str], description: str | None) -> int:
    """Write ``made(the page as it is)``, or with ``--check`` only compare; the exit status."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="exit status 1 if the page is out of date; nothing is written"
    )
    check = parser.parse_args().check
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    wanted = made(text)
    if not check:
        page.write_text(wanted, encoding="utf-8")
    elif wanted != text:
        print(f"{page} is out of date; run: python {sys.argv[0]}")
        return 1
    return 0
