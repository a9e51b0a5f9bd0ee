"""The command: which suites, which back end, how long, and where the tables go."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.conformance import jax_harnesses, report
from tools.conformance.dynamic_programs import with_oracles
from tools.conformance.programs import Outcome, Program
from tools.conformance.suites import SUITES, programs_of
from tools.conformance.tasks import perform
from tools.conformance.workers import outcomes


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.conformance", description=__doc__)
    parser.add_argument("--stablehlo", type=Path, help="a checkout of openxla/stablehlo")
    parser.add_argument(
        "--jax", action="store_true", help="the harnesses of the jax wheel (besides the suites that are named)"
    )
    parser.add_argument("--suite", action="append", choices=SUITES, help="one suite (again for more); default: all")
    parser.add_argument("--backend", default="cpu", help="cpu, reference, or cuda (with HLOJIT_CUDA=simulator)")
    parser.add_argument(
        "--filter", default="", help="a regular expression that a program's name, or an op in it, matches"
    )
    parser.add_argument("--every", type=int, default=1, help="take one program of so many")
    parser.add_argument("--first", type=int, default=0, help="leave out so many programs of every suite")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one program")
    parser.add_argument("--workers", type=int, default=min(len(os.sched_getaffinity(0)), 8))
    parser.add_argument("--output", type=Path, default=Path("build/conformance"))
    parser.add_argument("--verbose", action="store_true", help="print every failure")
    return parser.parse_args()


def chosen(programs: Sequence[Program], pattern: str) -> list[Program]:
    """The programs whose name or ops match."""
    matches = re.compile(pattern).search
    return [each for each in programs if not pattern or matches(each.name) or any(map(matches, each.ops()))]


def run_suite(suite: str, programs: Sequence[Program], options: argparse.Namespace) -> list[Outcome]:
    """Run a suite with a line of progress."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    found: list[Outcome] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
    )
    environment = {
        "HLOJIT_CACHE": "off",
        "HLOJIT_CPU_DEVICES": "8",
        "HLOJIT_COMPILE_WORKERS": "0",
        "HLOJIT_COLLECTIVE_TIMEOUT": "20",
    }
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(suite, total=len(programs), failed=0)
        for outcome in outcomes(
            programs, perform, options.backend, workers=options.workers, limit=options.limit, environment=environment
        ):
            found.append(outcome)
            failed = sum(not each.passed for each in found)
            progress.update(task, advance=1, failed=failed)
    return found


def main() -> int:
    options = arguments()
    suites = options.suite or ([*SUITES] if options.stablehlo else [])
    if options.jax:
        suites = [*suites, jax_harnesses.SUITE]
    if not suites or (options.stablehlo is None and suites != [jax_harnesses.SUITE]):
        print("say where a checkout of openxla/stablehlo is (--stablehlo <folder>), or --jax", file=sys.stderr)
        return 2
    found: dict[str, list[Outcome]] = {}
    for suite in suites:
        all_of_it = jax_harnesses.programs() if suite == jax_harnesses.SUITE else programs_of(suite, options.stablehlo)
        programs = chosen(list(all_of_it), options.filter)[options.first :: options.every]
        if suite == "dynamic":
            programs = with_oracles(programs, options.output / "oracles", options.workers, options.limit)
        if not programs:
            continue
        found[suite] = run_suite(suite, programs, options)
        print(report.summary(suite, found[suite]), flush=True)
        if options.verbose or options.filter:
            print("\n".join(report.failures(found[suite])))
    whole = not options.filter and options.every == 1 and not options.first
    folder = options.output / options.backend if whole else options.output / "partial"
    report.write(folder, options.backend, found)
    print(f"tables and failures: {folder}")
    return int(any(report.is_failure(outcome) for each in found.values() for outcome in each))


if __name__ == "__main__":
    sys.exit(main())
