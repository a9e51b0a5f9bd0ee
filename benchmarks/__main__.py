"""hlojit and JAX's CPU back end, turn by turn: ``python -m benchmarks [NAME ...] [--full] [--output FILE] [--against TREE]``.

Each system has one worker process (spinning thread pools of two systems in one process disturb each other) that gets the
same StableHLO text and the same arguments.  The two are timed in turn, several rounds; results are compared first.
A ratio is JAX's time divided by hlojit's: above 1, hlojit is faster.

``--against TREE`` takes turns with the hlojit of another checkout instead of JAX (one whose ``tools/link_tree.py`` has run):
its time divided by ours.  Compilation is timed without the disk cache.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.kernels import KERNELS
from benchmarks.programs import REAL_PROGRAMS, Program

ROOT = Path(__file__).resolve().parent.parent


class Worker:
    """A system's process: ``hlojit``, ``jax``, or the hlojit of another source tree."""

    def __init__(self, system: str, tree: Path | None = None):
        environment = dict(os.environ, HLOJIT_CACHE="off")
        if tree is not None:
            environment["PYTHONPATH"] = str(tree / "build" / "dev")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", system], cwd=ROOT, text=True, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker {self.process.args!r} died on {command}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def save_arrays(path: Path, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
    """Arguments in one file; dtypes that NumPy's format does not know travel as bits."""
    plain = [array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array for array in arrays]
    names = json.dumps([array.dtype.name for array in arrays]).encode()
    stored = {f"a{number}": array for number, array in enumerate(plain)}
    np.savez(path, dtypes=np.frombuffer(names, np.uint8), **stored)


def measure(program: Program, rounds: int, folder: Path, against: Path | None = None) -> dict[str, Any]:
    """Compile, compare and time one program on hlojit and on JAX, or on the hlojit of the tree ``against``."""
    text, arguments = folder / "program.mlir", folder / "arguments.npz"
    text.write_text(program.text())
    save_arrays(arguments, program.flat_arguments())
    peer = "jax" if against is None else "before"
    workers = {"hlojit": Worker("hlojit"), peer: Worker("jax") if against is None else Worker("hlojit", against)}
    try:
        row: dict[str, Any] = {"name": program.name}
        for system, worker in workers.items():
            answer = worker.ask(do="load", text=str(text), arguments=str(arguments), x64=program.x64)
            row[f"{system}_compile"] = answer["compile"]
            worker.ask(do="result", file=str(folder / f"{system}.npz"))
        row["difference"] = difference(folder / "hlojit.npz", folder / f"{peer}.npz")
        once = {system: worker.ask(do="time", runs=2)["least"] for system, worker in workers.items()}
        runs = {system: max(2, min(2000, int(0.1 / max(seconds, 1e-6)))) for system, seconds in once.items()}
        times: dict[str, list[float]] = {system: [] for system in workers}
        for _ in range(rounds):
            for system, worker in workers.items():
                times[system].append(worker.ask(do="time", runs=runs[system])["median"])
        for system in workers:
            row[system] = min(times[system])
        row["ratio"] = row[peer] / row["hlojit"]
        row["ratios"] = sorted(b / a for a, b in zip(times["hlojit"], times[peer]))
    finally:
        for worker in workers.values():
            worker.close()
    return row


def difference(ours: Path, theirs: Path) -> float:
    """Largest difference of any result, relative to the result's largest element."""
    worst = 0.0
    with np.load(ours) as a, np.load(theirs) as b:
        assert a.files == b.files
        for name in a.files:
            assert a[name].shape == b[name].shape, name
            if a[name].size:
                scale = max(float(np.abs(b[name]).max()), 1e-30)
                worst = max(worst, float(np.abs(a[name] - b[name]).max()) / scale)
    return worst


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios."""
    return math.exp(sum(map(math.log, values)) / len(values))


def machine() -> dict[str, Any]:
    """Where and with what this was measured."""
    import importlib.metadata

    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.processor())  # fmt: skip
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "llvmlite", "numba", "numpy")}
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), **versions}


def main() -> int:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(
        prog="benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="programs to run (default: all)")
    parser.add_argument("--full", action="store_true", help="more rounds")
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout of hlojit instead of JAX")
    options = parser.parse_args()
    known: dict[str, Callable[[], Program]] = {**KERNELS, **REAL_PROGRAMS}
    unknown = set(options.names) - set(known)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    console = Console()
    peer, title = ("jax", "JAX") if options.against is None else ("before", "before")
    table = Table(
        "program", "hlojit ms", f"{title} ms", "ratio", "ratios from-to", f"compile s ({title})", "difference"
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or known:
            with console.status(name):
                row = measure(known[name](), 7 if options.full else 3, Path(folder), options.against)
            rows.append(row)
            spread = f"{row['ratios'][0]:.2f}-{row['ratios'][-1]:.2f}"
            compile_seconds = f"{row['hlojit_compile']:.2f} ({row[f'{peer}_compile']:.2f})"
            table.add_row(name, f"{row['hlojit'] * 1e3:.3f}", f"{row[peer] * 1e3:.3f}", f"{row['ratio']:.2f}", spread,
                          compile_seconds, f"{row['difference']:.0e}")  # fmt: skip
    console.print(table)
    console.print(f"geometric mean of the ratios {title}/hlojit: {geometric_mean([row['ratio'] for row in rows]):.2f}")
    slowest = min(rows, key=lambda row: row["ratio"])
    console.print(f"lowest: {slowest['name']} {slowest['ratio']:.2f}")
    console.print(str(machine()))
    if options.output:
        options.output.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
