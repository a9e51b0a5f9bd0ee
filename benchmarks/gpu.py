"""hlojit beside JAX on the same GPU, in one process, turn by turn.

    python -m benchmarks.gpu [--only TEXT ...] [--quick] [--dry] [--budget SECONDS] [--output FILE]

Results are compared first, then both systems are timed in turn: calls that are waited for, calls that are queued, and the
device's own time.  Of programs that are bound by memory the table says which share of the measured bandwidth of a copy within
the device they reach; of products, operations a second, with cuBLASLt (where nvmath-python is installed) and without.

The measuring happens in a worker process, which is replaced when a program takes it along (a fault ends a GPU's context, a hang
is ended after the program's time); that program's row says so and the others are measured.  ``--dry`` runs everything in tiny
sizes on the simulator and JAX's CPU back end, to try the script: it keeps no figures.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from hlojit.extensions import registry

from benchmarks.gpu_programs import cases
from benchmarks.gpu_tables import summary
from benchmarks.gpu_worker import ROUNDS

ROOT = Path(__file__).resolve().parent.parent
BUDGET_SECONDS = 500.0
START_SECONDS = 120.0
"""What a worker may take until it has its first program."""


@final
class Worker:
    """A process that measures, and what it says."""

    def __init__(self, names: Sequence[str], options: argparse.Namespace, until: float):
        asked = {"names": list(names), "dry": options.dry, "until": until, "rounds": options.rounds}
        environment = dict(
            os.environ, HLOJIT_CACHE="off", XLA_PYTHON_CLIENT_PREALLOCATE="false", TF_CPP_MIN_LOG_LEVEL="2"
        )
        if options.dry:
            environment |= {"HLOJIT_CUDA": "simulator", "JAX_PLATFORMS": "cpu"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu_worker", json.dumps(asked)],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._said: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self._said.put(json.loads(line))
            except ValueError:  # what a library prints
                sys.stderr.write(line)
        self._said.put(None)

    def next(self, seconds: float) -> dict[str, Any] | None:
        """What it says next; None when it has ended.  Raises ``TimeoutError``."""
        try:
            return self._said.get(timeout=max(0.1, seconds))
        except queue.Empty:
            raise TimeoutError from None

    def end(self) -> int:
        """Its exit status; it is ended if it does not end by itself."""
        try:
            return self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


@final
class Session:
    """All rows, over as many workers as it takes."""

    def __init__(self, names: Sequence[str], options: argparse.Namespace):
        self.left = list(names)
        self.options = options
        self.until = time.time() + options.budget
        self.machine: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []

    def run(self) -> None:
        """Measure everything, as far as the time allows."""
        failed_starts = 0
        while self.left and time.time() < self.until and failed_starts < 2:
            before = len(self.rows)
            self._work()
            failed_starts = 0 if len(self.rows) > before else failed_starts + 1
        self.rows += [{"name": name, "error": "not measured: out of time, or no worker started"} for name in self.left]

    def _work(self) -> None:
        worker = Worker(self.left, self.options, self.until)
        current, deadline, what = "", time.time() + START_SECONDS, "it did not start"
        while True:
            try:
                said = worker.next(min(deadline, self.until + 5) - time.time())
            except TimeoutError:
                what = "out of time" if time.time() > self.until else "it took too long and was ended"
                break
            if said is None:
                what = "its process ended"
                break
            if "machine" in said:
                self.machine = self.machine or said["machine"]
            elif "begin" in said:
                current, deadline = said["begin"], time.time() + said["seconds"]
            elif "row" in said:
                self._add(said["row"])
                current, deadline = "", time.time() + START_SECONDS
            elif "profiled" in said:
                self._add_profile(said)
                deadline = time.time() + START_SECONDS
            elif "end" in said:
                self.machine["nvidia_smi_at_end"] = said["end"]
        status = worker.end()
        if current:
            self._add({"name": current, "error": f"{what} (exit status {status})"})

    def _add_profile(self, said: dict[str, Any]) -> None:
        """What JAX's profiler says of a program that has a row."""
        row = next(each for each in self.rows if each["name"] == said["profiled"])
        if "error" in said:
            row["jax_profiler"] = said["error"]
        elif said["seconds"] is not None:
            row["device"]["jax"] = said["seconds"]
            print(summary(row, self.machine, dry=self.options.dry), flush=True)

    def _add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self.left.remove(row["name"])
        print(summary(row, self.machine, dry=self.options.dry), flush=True)


def chosen(options: argparse.Namespace) -> list[str]:
    """Names of the programs to run."""
    known = list(cases(dry=options.dry, quick=options.quick))
    return [name for name in known if not options.only or any(part in name for part in options.only)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 if no program failed."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.gpu", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="programs whose names contain one of these")
    parser.add_argument("--quick", action="store_true", help="one size each, fewer products")
    parser.add_argument(
        "--dry", action="store_true", help="tiny sizes without a GPU, to try the script; keeps no figures"
    )
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, help="seconds for everything (default: 500)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each system")
    parser.add_argument("--output", type=Path, help="where the figures go (default: benchmarks/results/gpu-DATE.json)")
    options = parser.parse_args(arguments)
    names = chosen(options)
    if not names:
        parser.error(f"nothing is called that; there are {', '.join(cases(dry=options.dry))}")
    reason = None if options.dry else registry().load().backend("cuda").unavailable()
    if reason is not None:
        print(f"there is no GPU to measure on: {reason}; --dry tries the script without one")
        return 2
    session = Session(names, options)
    session.run()
    if session.machine.get("jax_platform") == "cpu" and not options.dry:
        print("JAX has no GPU here (its plugin is not installed, or does not start): hlojit was measured alone")
    failed = [row["name"] for row in session.rows if "error" in row]
    print(
        f"{len(session.rows) - len(failed)} programs measured, {len(failed)} not"
        + (f": {', '.join(failed)}" if failed else "")
    )
    if options.dry:
        print(
            "tried on the simulator and JAX's CPU back end: nothing here says how fast anything is, and nothing is kept"
        )
    else:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        path = options.output or ROOT / "benchmarks" / "results" / f"gpu-{today}.json"
        path.write_text(
            json.dumps({"machine": session.machine, "rows": session.rows}, indent=1) + "\n", encoding="utf-8"
        )
        print(f"figures: {path}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
