"""Write the tables of ``examples/functions`` from the newest figures in ``benchmarks/results``; ``--check`` only compares.

All functions stand in ``docs/functions.md``, a few in the README.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
BEGIN, END = "<!-- functions table: begin -->\n", "<!-- functions table: end -->\n"
PAGES = ("README.md", "docs/functions.md")
SHOWN = (
    "kmeans kalman sir viterbi mandelbrot game_of_life edit_distance attention black_scholes gaussian_process".split()
)
"""In the README."""


def title(name: str) -> str:
    """What the function of an example is, by the first sentence of its file."""
    text = ast.get_docstring(ast.parse((ROOT / "examples" / "functions" / f"{name}.py").read_text(encoding="utf-8")))
    assert text is not None, name
    return text.partition("\n")[0].rstrip(".")


def _ratio(row: dict[str, Any], peer: str) -> str:
    seconds = row["seconds"]
    return f"{seconds[peer] / seconds['hlojit']:.2f}" if peer in seconds else "-"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def table(result: dict[str, Any], shown: list[str], folder: str) -> list[str]:
    """Rows of Markdown: times of hlojit, and how many times as long the peers take."""
    lines = [
        "| function | hlojit | NumPy | numba | JAX | first call, s: hlojit, numba, JAX |",
        "|---|---|---|---|---|---|",
    ]
    rows = {row["name"]: row for row in result["rows"]}
    for name in shown:
        row = rows[name]
        first = ", ".join(
            f"{row['first'][system]:.2f}" if system in row["seconds"] else "-" for system in ("hlojit", "numba", "jax")
        )
        ratios = " | ".join(_ratio(row, peer) for peer in ("numpy", "numba", "jax"))
        lines.append(
            f"| [{title(name)}]({folder}/{name}.py) | {_time(row['seconds']['hlojit'])} | {ratios} | {first} |"
        )
    return lines


def page(path: Path, result: dict[str, Any], source: str) -> str:
    """The page with its table."""
    from benchmarks.functions import means

    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{path} lacks the lines {BEGIN!r} and {END!r}")
    in_readme = path.name == "README.md"
    shown = SHOWN if in_readme else [row["name"] for row in result["rows"]]
    lines = table(result, shown, "examples/functions" if in_readme else "../examples/functions")
    machine = result["machine"]
    lines += [
        "",
        "Of the peers: how many times as long they take, where they take the function as it stands and agree with NumPy.",
        "In one process, turn by turn, least time, the better one of 1 and all threads",
        f"({machine['cpu']}, {machine['cores']} cores; `make bench-functions`).",
        f"Of all {len(result['rows'])} functions: {means(result)}. Figures: `{source}`.",
    ]
    body = "\n".join(lines)
    return f"{before}{BEGIN}\n{body}\n\n{END}{after}"


def main() -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare the pages with the figures")
    check = parser.parse_args().check
    newest = max((ROOT / "benchmarks" / "results").glob("functions-[0-9]*.json"))
    result = json.loads(newest.read_text(encoding="utf-8"))
    stale = []
    for name in PAGES:
        path = ROOT / name
        text = page(path, result, newest.relative_to(ROOT).as_posix())
        if text != path.read_text(encoding="utf-8"):
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"{', '.join(stale)}: out of date; run: python tools/functions_table.py")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
