"""Sorts, selections and sums by segments beside their peers, turn by turn: ``python -m benchmarks.sorting [--quick]``.

NumPy's vectorized ``np.sort``, its stable ``np.argsort``, ``np.partition``, ``np.bincount`` and ``np.histogram``, JAX's own
programs, and PyTorch's ``topk`` (by inductor, where ``torch`` is installed) get the same arrays as hlojit's programs, in one
process and with one thread each (``--threads`` gives hlojit more).  Results are compared first.  A ratio is the peer's time
divided by hlojit's, both the least of several rounds; above 1, hlojit is faster.

``--avx2`` shows what processors without AVX-512 do: hlojit's code, NumPy, PyTorch and JAX are kept from using it.
``--peers-avx2`` keeps the peers from it alone: on some processors NumPy's sorts by AVX-512 are slower than those by AVX2.
``--output FILE`` writes the figures as JSON, ``--add`` keeps those of other cases in it; ``tools/sorting_table.py`` puts the
files of ``benchmarks/results`` into docs/sorting.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.sorting_cases import GROUPS, TYPES, Case, cases
from benchmarks.sorting_tables import lines_of

WITHOUT_AVX512 = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL",
    "ATEN_CPU_CAPABILITY": "avx2",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}


def use_avx2() -> None:
    """Have hlojit's CPU back end compile for the processor at hand without AVX-512."""
    from hlojit.machine_code import loading

    found = loading.process_target()
    kept = ("avx512", "prefer-256-bit")
    features = [each for each in found.features.split(",") if not each[1:].startswith(kept)]
    wanted = replace(
        found,
        cpu="x86-64-v3",
        features=",".join([*features, "-avx512f"]),
        vector_bits=256,
        vector_registers=16,
        unroll=2,
    )
    loading.process_target = lambda: wanted


def least(function: Callable[[], Any], runs: int) -> float:
    """Seconds of the fastest of some runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Compile, compare and time one case."""
    import hlojit
    import jax

    text = jax.jit(case.ours).lower(*case.arrays).as_text()
    start = time.perf_counter()
    program = hlojit.compile(text)
    seconds = time.perf_counter() - start
    result = np.asarray(case.compared(program(*case.arrays)))
    for name, peer in case.peers.items():
        expected = np.asarray(peer(*case.arrays))
        wide = [each.astype("f8") if each.dtype.kind not in "iu" else each for each in (result, expected)]
        np.testing.assert_allclose(*wide, 0, case.tolerance, err_msg=f"{case.name} {name}")
    systems = {"hlojit": program, **case.peers}
    # What is slow is not run often.
    runs = {
        system: int(max(1, min(200, 0.004 / least(lambda function=function: function(*case.arrays), 1))))  # type: ignore[misc]
        for system, function in systems.items()
    }
    times: dict[str, list[float]] = {system: [] for system in systems}
    for _ in range(rounds):
        for system, function in systems.items():
            times[system].append(least(lambda function=function: function(*case.arrays), runs[system]))  # type: ignore[misc]
    row = {
        "group": case.group,
        "name": case.name,
        "type": case.dtype,
        "compile": seconds,
        "length": case.arrays[0].size,
    }
    row["seconds"] = {system: min(each) for system, each in times.items()}
    row["median"] = {system: statistics.median(each) for system, each in times.items()}
    row["ratio"] = {peer: row["seconds"][peer] / row["seconds"]["hlojit"] for peer in case.peers}
    return row


def measured(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """All cases, one after the other."""
    import jax

    if options.avx2:
        use_avx2()
    rows = []
    with jax.enable_x64(True), console.status("") as status:
        for case in cases(tuple(options.types), tuple(options.groups), options.quick):
            if options.only and not any(each in f"{case.group} {case.dtype} {case.name}" for each in options.only):
                continue
            status.update(f"{case.group} {case.dtype} {case.name}")
            rows.append(measure(case, 2 if options.quick else 5))
    return rows


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """The cases in which hlojit is slowest, and means by type."""
    table = Table("case", "hlojit us", "peers us", "ratio", "compile ms")
    for row in sorted(rows, key=lambda row: min(row["ratio"].values()))[:30]:
        peers = ", ".join(f"{name} {row['seconds'][name] * 1e6:.2f}" for name in row["ratio"])
        ratios = ", ".join(f"{each:.2f}" for each in row["ratio"].values())
        name = f"{row['group']} {row['type']} {row['name']}"
        table.add_row(name, f"{row['seconds']['hlojit'] * 1e6:.2f}", peers, ratios, f"{row['compile'] * 1e3:.0f}")
    console.print(table)
    for line in lines_of(rows):
        console.print(line)


def machine(options: argparse.Namespace) -> dict[str, Any]:
    """What ran where."""
    from benchmarks.__main__ import machine as described

    torch = sys.modules.get("torch")
    return {
        **described(),
        "torch": getattr(torch, "__version__", None),
        "vectors": "AVX2" if options.avx2 else "AVX-512, peers AVX2" if options.peers_avx2 else "AVX-512",
        "threads": int(os.environ["HLOJIT_NUM_THREADS"]),
    }


def main() -> int:
    """Run cases and print, or write, what was measured."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.sorting", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few types and lengths, few rounds")
    parser.add_argument("--avx2", action="store_true", help="without AVX-512")
    parser.add_argument("--peers-avx2", action="store_true", help="peers without AVX-512")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=[*TYPES])
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=[*GROUPS])
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="cases with one of these in their names")
    parser.add_argument("--threads", type=int, default=1, help="of hlojit")
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    parser.add_argument("--add", action="store_true", help="to those that the file holds")
    options = parser.parse_args()
    console = Console(width=130)
    wanted = {
        "HLOJIT_NUM_THREADS": str(options.threads),
        **(WITHOUT_AVX512 if options.avx2 or options.peers_avx2 else {}),
    }
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        # Libraries read these when they are loaded.
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.sorting", *sys.argv[1:]], {**os.environ, **wanted})
    if options.quick and options.types == [*TYPES]:
        options.types = ["f4", "f8", "u1", "i8"]
    rows = measured(options, console)
    show(rows, console)
    if options.output:
        write(options, rows)
    return 0


def write(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """The file of the figures."""
    kept = json.loads(options.output.read_text())["rows"] if options.add and options.output.exists() else []
    new = {(row["group"], row["type"], row["name"]) for row in rows}
    rows = [row for row in kept if (row["group"], row["type"], row["name"]) not in new] + rows
    rounded = json.loads(json.dumps(rows), parse_float=lambda text: float(f"{float(text):.4g}"))
    lines = ",\n ".join(json.dumps(row) for row in rounded)
    options.output.write_text(f'{{"machine": {json.dumps(machine(options))},\n"rows": [\n {lines}\n]}}\n')


if __name__ == "__main__":
    raise SystemExit(main())
