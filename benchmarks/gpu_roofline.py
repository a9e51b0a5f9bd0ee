"""What every kernel of the GPU's benchmark programs takes at least on an H200: ``python -m benchmarks.gpu_roofline [NAME ...]``.

Estimates from plans and published figures (``hlojit.gpu.roofline``), made without a GPU and written to
``benchmarks/results/roofline-h200.json`` and ``.md``.  Where a result file of ``benchmarks.gpu`` is named with ``--measured``,
its times stand beside them, by program and kernel.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hlojit
import jax
from hlojit.compiler import lower
from hlojit.extensions import CompileOptions, registry
from hlojit.gpu.roofline import LAUNCH_NANOSECONDS, Estimate, estimates

from benchmarks.gpu_programs import Case, cases, shapes_only
from benchmarks.gpu_systems import text_for
from benchmarks.gpu_tables import number, table

PATH = Path(__file__).resolve().parent / "results" / "roofline-h200.json"
FIELDS = ("name", "blocks", "threads", "shared_bytes", "registers", "occupancy", "nbytes", "operations", "nanoseconds",
          "bound", "matrix", "library")  # fmt: skip
"""Of an estimate, in the file; a kernel that is launched several times stands there once."""


def kernels_of(case: Case, *, with_registers: bool = True) -> list[dict[str, Any]]:
    """The kernels of a program in the order of their first launches."""
    backend: Any = registry().load().backend("cuda")
    with shapes_only():
        text = text_for(case.program())
    module = lower(hlojit.parse(text), backend, CompileOptions())
    found: dict[str, dict[str, Any]] = {}
    for each in estimates(backend, module, with_registers=with_registers):
        row = found.setdefault(each.symbol, {**_row(each), "launches": 0})
        row["launches"] += 1
    return list(found.values())


def _row(each: Estimate) -> dict[str, Any]:
    fields = asdict(each)
    return {"symbol": each.symbol, **{name: fields[name] for name in FIELDS}}


def with_times(programs: Mapping[str, list[dict[str, Any]]], rows: Iterable[Mapping[str, Any]]) -> None:
    """Put measured nanoseconds beside the estimates: of the n-th kernel of a program, as symbols differ between machines."""
    for row in rows:
        measured = row.get("kernels", {}).get("hlojit", [])
        order = list(dict.fromkeys(each["symbol"] for each in measured))
        times = {each["symbol"]: each["measured"] for each in measured}
        for kernel, symbol in zip(programs.get(row["name"], ()), order):
            kernel["measured"] = times[symbol]


def markdown(stored: Mapping[str, Any]) -> str:
    """A table of programs, and one of all kernels."""
    lines = [stored["note"], ""]
    programs = []
    for name, kernels in stored["programs"].items():
        total = sum(each["nanoseconds"] * each["launches"] for each in kernels)
        times = [each["measured"] * each["launches"] for each in kernels if "measured" in each]
        programs.append((name, str(sum(each["launches"] for each in kernels)), str(len(kernels)), f"{total / 1e3:,.1f}",
                         f"{sum(times) / 1e3:,.1f}" if len(times) == len(kernels) else "-"))  # fmt: skip
    lines += table(("program", "launches", "kernels", "estimate us", "measured us"), programs)
    head = ("kernel", "launches", "blocks", "threads", "shared", "registers", "occupancy", "bytes", "operations", "bound",
            "estimate us", "measured us")  # fmt: skip
    for name, kernels in stored["programs"].items():
        lines += ["", f"## {name}", "", *table(head, [_cells(each) for each in kernels])]
    return "\n".join(lines) + "\n"


def _cells(each: Mapping[str, Any]) -> Sequence[str]:
    bound = f"{each['bound']} ({each['matrix']})" if each["matrix"] else each["bound"]
    measured = each.get("measured")
    return (
        each["name"] + (" (or a library)" if each["library"] else ""), str(each["launches"]), f"{each['blocks']:,}",
        str(each["threads"]), f"{each['shared_bytes']:,}", number(each["registers"], "d"), f"{each['occupancy']:.0%}",
        f"{each['nbytes']:,}", number(each["operations"], ","), bound, f"{each['nanoseconds'] / 1e3:,.2f}",
        number(None if measured is None else measured / 1e3, ",.2f"),
    )  # fmt: skip


def main() -> int:
    """Write the files."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.gpu_roofline", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="programs (default: all, which takes some minutes)")
    parser.add_argument("--measured", type=Path, help="a result file of benchmarks.gpu")
    options = parser.parse_args()
    os.environ["HLOJIT_CUDA"] = "simulator"  # the plans of an H200, whatever is here
    jax.config.update("jax_platforms", "cpu")
    stored = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {"programs": {}}
    known = cases()
    programs = dict(stored["programs"])
    if options.names or not options.measured:
        for name in options.names or known:
            programs[name] = kernels_of(known[name])
            print(f"{name}: {len(programs[name])} kernels", flush=True)
    if options.measured:
        with_times(programs, json.loads(options.measured.read_text(encoding="utf-8"))["rows"])
    stored = {"note": note(), "programs": {name: programs[name] for name in known if name in programs}}
    PATH.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    PATH.with_suffix(".md").write_text(markdown(stored), encoding="utf-8")
    return 0


def note() -> str:
    """What the figures are."""
    backend: Any = registry().load().backend("cuda")
    grid = backend.platform().target.grid
    rates = ", ".join(f"{name} {rate / 1e3:,.1f}" for name, rate in grid.matrix_rates)
    return (
        "Estimates for an H200, not measured: what every kernel takes at least, by its plan and NVIDIA's published figures "
        f"({grid.multiprocessors} multiprocessors, {grid.memory_bandwidth / 1e3:.1f} TB/s; matrix units, dense, in 10^12 "
        f"operations a second: {rates}; a launch is taken to cost {LAUNCH_NANOSECONDS / 1e3:.0f} us). "
        "Made by `python -m benchmarks.gpu_roofline`."
    )


if __name__ == "__main__":
    raise SystemExit(main())
