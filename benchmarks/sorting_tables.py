"""Figures of ``benchmarks.sorting`` as text: a line for every operation, type and peer, and Markdown tables of result files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.__main__ import geometric_mean

Row = Mapping[str, Any]

TITLES = {
    "sort": "sort",
    "rows": "sort of lines",
    "argsort": "stable argsort",
    "first": "first elements",
    "middle": "an element in the middle, median",
    "top_k": "top_k",
    "scatter": "sums by segments, counts, histograms",
}
NAMES = {"numpy": "NumPy", "jax": "JAX", "inductor": "inductor"}


def lines_of(rows: Sequence[Row]) -> Iterator[str]:
    """Means and least ratios by operation, type and peer."""
    for group, dtype, peer, found in _parts(rows):
        ratios = [row["ratio"][peer] for row in found]
        worst = min(found, key=lambda row: float(row["ratio"][peer]))
        yield f"{group} {dtype} / {peer}: mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f} ({worst['name']})"


def _parts(rows: Sequence[Row]) -> Iterator[tuple[str, str, str, list[Row]]]:
    keys = dict.fromkeys((row["group"], row["type"], peer) for row in rows for peer in row["ratio"])
    for group, dtype, peer in keys:
        found = [row for row in rows if (row["group"], row["type"]) == (group, dtype) and peer in row["ratio"]]
        yield group, dtype, peer, found


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """Tables: a row for every operation and type, mean and least ratio of each result file."""
    heads = [result["machine"]["vectors"] for result in results]
    columns = [f"{head}: {figure}" for head in heads for figure in ("mean", "least", "in")]
    lines = [
        "| operation | type | against | " + " | ".join(columns) + " |",
        "|---|---|---|" + "---|" * len(columns),
    ]
    parts = [{(group, dtype, peer): found for group, dtype, peer, found in _parts(each["rows"])} for each in results]
    for group, title in TITLES.items():
        for key in dict.fromkeys(key for each in parts for key in each if key[0] == group):
            cells = [cell for each in parts for cell in _cells(each.get(key, []), key[2])]
            lines.append(f"| {title} | {key[1]} | {NAMES[key[2]]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cells(rows: Sequence[Row], peer: str) -> tuple[str, str, str]:
    if not rows:
        return ("", "", "")
    worst = min(rows, key=lambda row: float(row["ratio"][peer]))
    mean = geometric_mean([row["ratio"][peer] for row in rows])
    return (f"{mean:.2f}", f"{worst['ratio'][peer]:.2f}", str(worst["name"]))
