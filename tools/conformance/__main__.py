"""The command: which suites, which back end, how long, and where the tables go."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import hlojit
from hlojit.extensions import registry

from tools.conformance import jax_harnesses, page, report
from tools.conformance.dynamic_programs import with_oracles
from tools.conformance.programs import Outcome, Program
from tools.conformance.reasons import explained
from tools.conformance.suites import SUITES, programs_of
from tools.conformance.tasks import perform
from tools.conformance.workers import outcomes

SUITE_ORDER: Final = (*SUITES, jax_harnesses.SUITE)
"""In which tables have them."""


class UsageError(Exception):
    """What was asked for cannot be run."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.conformance", description=__doc__)
    parser.add_argument("--stablehlo", type=Path, help="a checkout of openxla/stablehlo")
    parser.add_argument(
        "--jax", action="store_true", help="the harnesses of the jax wheel (besides the suites that are named)"
    )
    parser.add_argument("--suite", action="append", choices=SUITES, help="one suite (again for more); default: all")
    parser.add_argument("--backend", default="cpu", help="cpu, reference, or cuda (with HLOJIT_CUDA=simulator)")
    parser.add_argument(
        "--filter",
        type=_pattern,
        default=_pattern(""),
        help="a regular expression that a program's name, or an op in it, matches",
    )
    parser.add_argument("--every", type=_count, default=1, help="take one program of so many")
    parser.add_argument("--first", type=_from_zero, default=0, help="leave out so many programs of every suite")
    parser.add_argument("--limit", type=_seconds, default=60.0, help="seconds for one program")
    parser.add_argument("--workers", type=_count, default=min(len(os.sched_getaffinity(0)), 8))
    parser.add_argument("--output", type=Path, default=Path("build/conformance"))
    parser.add_argument("--page", type=Path, help="a page to write with what was run on all back ends (in --output)")
    parser.add_argument("--verbose", action="store_true", help="print every failure")
    return parser.parse_args()


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None


def _from_zero(text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"expected a number from {least} on, found {text!r}")
    return int(text)


def _count(text: str) -> int:
    return _from_zero(text, 1)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds, more than 0, found {text!r}")
    return seconds


def chosen(programs: Sequence[Program], pattern: re.Pattern[str]) -> list[Program]:
    """The programs whose name or ops match."""
    return [each for each in programs if pattern.search(each.name) or any(map(pattern.search, each.ops()))]


def selected(options: argparse.Namespace) -> dict[str, list[Program]]:
    """The programs of every suite that is asked for; ``UsageError`` if there are none, or not what should be there."""
    suites = options.suite or ([*SUITES] if options.stablehlo else [])
    if options.stablehlo is None and (suites or not options.jax):
        raise UsageError("say where a checkout of openxla/stablehlo is (--stablehlo <folder>), or --jax")
    found: dict[str, list[Program]] = {}
    for suite in [*suites, *([jax_harnesses.SUITE] if options.jax else [])]:
        all_of_it = list(
            jax_harnesses.programs() if suite == jax_harnesses.SUITE else programs_of(suite, options.stablehlo)
        )
        if not all_of_it:
            raise UsageError(f"{options.stablehlo} has no programs of the suite {suite}: is it a whole checkout?")
        found[suite] = chosen(all_of_it, options.filter)[options.first :: options.every]
    if not any(found.values()):
        raise UsageError(
            f"no program of {', '.join(found)} is left by --filter {options.filter.pattern!r} --first {options.first}"
        )
    return found


def check_backend(name: str) -> None:
    """Raise ``UsageError`` if no program could run on the back end here."""
    try:
        reason = registry().backend(name).unavailable()
    except hlojit.HlojitError as error:
        raise UsageError(str(error)) from None
    if reason:
        raise UsageError(f"the back end {name!r} cannot be used here: {reason}")


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
            found.append(explained(outcome, options.backend))
            failed = sum(each.is_failure for each in found)
            progress.update(task, advance=1, failed=failed)
    return found


def main() -> int:
    options = arguments()
    try:
        programs = selected(options)
        check_backend(options.backend)
        return run(programs, options)
    except (UsageError, FileNotFoundError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2


def run(suites: dict[str, list[Program]], options: argparse.Namespace) -> int:
    """Run the suites and write the tables; 1 if a program failed that should not."""
    is_whole = not options.filter.pattern and options.every == 1 and not options.first
    folder = options.output / options.backend if is_whole else options.output / "partial" / options.backend
    found: dict[str, list[Outcome]] = {}
    for suite, all_of_it in suites.items():
        programs = with_known_results(all_of_it, options) if suite == "dynamic" else all_of_it
        if not programs:
            continue
        found[suite] = run_suite(suite, programs, options)
        print(report.summary(suite, found[suite]), flush=True)
        if options.verbose or options.filter.pattern:
            print("".join(f"{line}\n" for line in report.failures(found[suite])), end="")
        report.keep(folder, suite, found[suite], options.every)
    report.write(folder, options.backend, report.kept(folder, options.backend, SUITE_ORDER) if is_whole else found)
    print(f"tables and failures: {folder}")
    if options.page:
        options.page.write_text(page.page(options.output, SUITE_ORDER))
    return int(any(outcome.is_failure for each in found.values() for outcome in each))


def with_known_results(programs: Sequence[Program], options: argparse.Namespace) -> list[Program]:
    """The programs for which the specification's interpreter has results; it says which are left out."""
    if not programs:
        return []
    found = with_oracles(programs, options.output / "oracles", options.workers, options.limit)
    if not found:
        raise UsageError("dynamic: StableHLO's interpreter gave no results to compare with (is jaxlib installed?)")
    names = {program.name for program in found}
    for program in programs:
        if program.name not in names:
            print(f"{program.name}: left out, StableHLO's interpreter has no result for it")
    return found


if __name__ == "__main__":
    sys.exit(main())
