"""The conformance kit over what is here: hlojit's back ends and formats, and the packages of plugins_example/.

    python tools/run_kit.py [--budget smoke|quick|full] [--seed N] [--only WORD]

Writes a report of each as a page and as data to build/kit/, and prints a line each; the exit status says whether all conform.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from hlojit import testing
from hlojit.extensions import using
from hlojit.ir.formats import FloatFormat, element_types

ROOT = Path(__file__).resolve().parents[1]
BACKENDS = ("cpu", "reference")
EXAMPLES = tuple(sorted(folder.name for folder in (ROOT / "plugins_example").glob("hlojit-*")))


def checks(budget: str, seed: int) -> Iterator[tuple[str, Callable[[], testing.Report]]]:
    """Names and checks."""
    for name in BACKENDS:
        yield f"back end {name}", lambda name=name: testing.check_backend(name, budget=budget, seed=seed)
    for row in [row for row in element_types() if isinstance(row, FloatFormat)]:
        yield f"format {row}", lambda row=row: testing.check_format(row, budget=budget, seed=seed)
    for package in EXAMPLES:
        yield package, lambda package=package: example(package, budget, seed)


def example(package: str, budget: str, seed: int) -> testing.Report:
    """The kit over a package that need not be installed."""
    sys.path.insert(0, str(ROOT / "plugins_example" / package))
    name = package.replace("-", "_") + ".plugin"
    plugin = importlib.import_module(name)
    with using(plugin):
        return testing.check_plugin(name, budget=budget, seed=seed)


def main() -> int:
    """Run all; 1 if something does not conform."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="checks whose names hold this word")
    options = parser.parse_args()
    folder = ROOT / "build" / "kit"
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, check in checks(options.budget, options.seed):
        if options.only in name:
            report = check()
            for ending in (".html", ".json"):
                testing.write_report(report, folder / (name.replace(" ", "-") + ending))
            print(f"{name} {report.summary}, {report.seconds:.1f} s" if report.ok else report.text(), flush=True)
            failed += not report.ok
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
