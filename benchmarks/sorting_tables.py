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
ORDER = ("f4", "f8", "f2", "bf16", "i4", "i8", "i2", "i1", "u4", "u8", "u2", "u1")
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


def page(result: Mapping[str, Any]) -> str:
    """A result file as Markdown: mean and least ratios, an operation and a peer a row, a type a column; what is below 1."""
    rows = result["rows"]
    types = list(dict.fromkeys(row["type"] for row in sorted(rows, key=lambda row: ORDER.index(row["type"]))))
    parts = {(group, dtype, peer): found for group, dtype, peer, found in _parts(rows)}
    lines = ["| operation | against | " + " | ".join(types) + " |", "|---|---|" + "---|" * len(types)]
    for group, title in TITLES.items():
        for peer in dict.fromkeys(key[2] for key in parts if key[0] == group):
            cells = [_cell(parts.get((group, dtype, peer), []), peer) for dtype in types]
            lines.append(f"| {title} | {NAMES[peer]} | " + " | ".join(cells) + " |")
    slow = [(ratio, row, peer) for row in rows for peer, ratio in row["ratio"].items() if ratio < 1]
    named = [
        f"{TITLES[row['group']]}, {row['type']}, {row['name']}: {ratio:.2f} ({NAMES[peer]})"
        for ratio, row, peer in sorted(slow, key=lambda each: each[0])
    ]
    return "\n".join([*lines, "", f"Below 1: {'; '.join(named) or 'nothing'}."])


def described(machine: Row) -> str:
    """What ran where, in a line."""
    versions = [f"{name} {machine[name]}" for name in ("numpy", "jax", "torch") if machine.get(name)]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} thread of hlojit, "
        f"vectors: {machine['vectors']}; {', '.join(versions)}."
    )


def _cell(rows: Sequence[Row], peer: str) -> str:
    ratios = [float(row["ratio"][peer]) for row in rows]
    return f"{_short(geometric_mean(ratios))}, {_short(min(ratios))}" if ratios else ""


def _short(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
