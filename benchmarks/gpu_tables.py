"""Figures of ``benchmarks.gpu`` as text: a line while it runs, and Markdown tables of a result file.

python -m benchmarks.gpu_tables benchmarks/results/gpu-2026-11-22.json
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
OURS, OWN, PEER = "hlojit", "hlojit, own kernels", "jax"


def queued(row: Row, system: str) -> float | None:
    """Seconds of a queued call, the median."""
    return _host(row, system, "queued")


def device(row: Row, system: str) -> float | None:
    """Seconds of the device: by events, by JAX's profiler, or, where that was not asked, of a queued call."""
    found = row.get("device", {}).get(system)
    if found is None and system == PEER:
        return queued(row, system)
    return None if found is None else float(found)


def share(row: Row, machine: Row, system: str) -> float | None:
    """Of the bandwidth of a copy within the device that a program bound by memory reaches."""
    seconds = device(row, system)
    if row.get("group") != "memory" or not seconds or not machine.get("copy_bytes_per_second"):
        return None
    return float(row["nbytes"]) / seconds / float(machine["copy_bytes_per_second"])


def rate(row: Row, system: str) -> float | None:
    """Operations a second of a product, in 10^12."""
    seconds = device(row, system)
    return float(row["operations"]) / seconds * 1e-12 if row.get("operations") and seconds else None


def ratio(row: Row, of: Any = device) -> float | None:
    """JAX's time divided by hlojit's."""
    ours, theirs = of(row, OURS), of(row, PEER)
    return theirs / ours if ours and theirs else None


def is_right(row: Row) -> bool:
    """Whether the results agree."""
    return all(worst <= row["tolerance"] for worst in row["difference"].values())


def microseconds(seconds: float | None) -> str:
    """For a table."""
    return "-" if seconds is None else f"{seconds * 1e6:,.1f}"


def number(value: float | None, pattern: str) -> str:
    """For a table."""
    return "-" if value is None else format(value, pattern)


def summary(row: Row, machine: Row, *, dry: bool = False) -> str:
    """One line about a program; without figures where they would say nothing."""
    if "error" in row:
        return f"{row['name']:26} FAILED: {row['error'].splitlines()[0]}"
    if dry:
        verdict = "results agree" if is_right(row) else f"RESULTS DIFFER: {row['difference']}"
        return f"{row['name']:26} {verdict}"
    parts = [f"{row['name']:26}"]
    parts += [f"{system} {microseconds(device(row, system))} us" for system in row["times"]]
    if (found := ratio(row)) is not None:
        parts.append(f"JAX/hlojit {found:.2f}")
    if (reached := share(row, machine, OURS)) is not None:
        parts.append(f"{reached:.0%} of copy")
    if (operations := rate(row, OURS)) is not None:
        parts.append(f"{operations:.0f} Tera/s")
    if not is_right(row):
        parts.append(f"RESULTS DIFFER: {row['difference']}")
    return "  ".join(parts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of Markdown."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def markdown(stored: Row) -> str:
    """Tables of all groups, what failed, and the machine."""
    machine, rows = stored["machine"], stored["rows"]
    good = [row for row in rows if "error" not in row]
    lines = [described(machine), ""]
    memory = [row for row in good if row["group"] == "memory"]
    head = ("bound by memory", "hlojit us", "JAX us", "JAX / hlojit", "share of copy", "JAX's share", "difference")
    lines += table(head, [
        (row["name"], microseconds(device(row, OURS)), microseconds(device(row, PEER)), number(ratio(row), ".2f"),
         number(share(row, machine, OURS), ".0%"), number(share(row, machine, PEER), ".0%"), _difference(row))
        for row in memory
    ])  # fmt: skip
    head = (
        "products",
        "hlojit us",
        "own kernels us",
        "JAX us",
        "JAX / hlojit",
        "hlojit T/s",
        "own T/s",
        "JAX T/s",
        "difference",
    )
    lines += ["", *table(head, [
        (row["name"], *(microseconds(device(row, each)) for each in (OURS, OWN, PEER)), number(ratio(row), ".2f"),
         *(number(rate(row, each), ".0f") for each in (OURS, OWN, PEER)), _difference(row))
        for row in good if row["group"] == "products"
    ])]  # fmt: skip
    kinds = ("call", "started", "queued")
    head = (
        "models and launches",
        *(f"{each}{kind} us" for kind in (*kinds, "device") for each in ("", "JAX ")),
        "difference",
    )
    lines += ["", *table(head, [
        (row["name"], *(microseconds(_host(row, each, kind)) for kind in kinds for each in (OURS, PEER)),
         *(microseconds(row["device"].get(each)) for each in (OURS, PEER)), _difference(row))
        for row in good if row["group"] in ("models", "launches")
    ])]  # fmt: skip
    compiled = [row["compile"] for row in good if PEER in row["compile"]]
    if compiled:
        logs = [math.log(each[PEER] / each[OURS]) for each in compiled]
        ours, theirs = (sum(each[system] for each in compiled) for system in (OURS, PEER))
        lines += ["", f"Compilation: {ours:.1f} s of hlojit, {theirs:.1f} s of JAX (geometric mean of the ratios "
                      f"{math.exp(sum(logs) / len(logs)):.2f})."]  # fmt: skip
    failed = [row for row in rows if "error" in row]
    if failed:
        lines += ["", "Not measured:", "", *(f"* {row['name']}: {row['error'].splitlines()[0]}" for row in failed)]
    return "\n".join(lines) + "\n"


def _host(row: Row, system: str, kind: str) -> float | None:
    found = row["times"].get(system)
    return None if found is None else float(found[kind]["median"])


def _difference(row: Row) -> str:
    worst = max(row["difference"].values(), default=0.0)
    return f"{worst:.0e}" if is_right(row) else f"**{worst:.0e}**"


def described(machine: Row) -> str:
    """The machine in a sentence."""
    smi, packages = machine.get("nvidia_smi", {}), machine.get("packages", {})
    versions = ", ".join(f"{name} {found}" for name, found in packages.items())
    clocks = smi.get("clocks.max.sm", "?"), smi.get("clocks.max.mem", "?")
    return (
        f"{machine['gpu']}, driver {smi.get('driver_version', '?')}, clocks up to {clocks[0]} and {clocks[1]}, power limit "
        f"{smi.get('power.limit', '?')}; a copy within the device reads and writes "
        f"{machine['copy_bytes_per_second'] * 1e-12:.2f} TB/s; {machine['cpu']}, {machine['cores']} cores, Python "
        f"{machine['python']}; {versions}.  Times of hlojit by events, of JAX by its profiler where the host takes longer than "
        "the device, otherwise of queued calls; medians, turn by turn in one process."
    )


def main() -> int:
    """Write the tables beside the figures."""
    path = Path(sys.argv[1])
    text = markdown(json.loads(path.read_text(encoding="utf-8")))
    path.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
