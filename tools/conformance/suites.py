"""The suites of a checkout of openxla/stablehlo, and what counts as a program of each.

``testdata``      every file of stablehlo/testdata: a program with its inputs and expected results
``quantized``     every module of stablehlo/testdata/quantized
``interpret``     every module of stablehlo/tests/interpret with a check, but those with several processes and the one whose
                  arguments are given on a command line
``collectives``   the modules there in which several processes run
``math``          every file of stablehlo/tests/math: stored tables, 3 ULP
``dynamic``       the programs of stablehlo/testdata/dynamic at shapes of their arguments (``dynamic_programs.py``)
``parse``         every module without an expected error: all of the above, stablehlo/tests/*.mlir and the conversions' tests
``errors``        every module of stablehlo/tests/*.mlir with an expected error: it must be refused

In ``ops_broadcasting.mlir`` the errors are those of a pass for tests; it counts in neither of the last two.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tools.conformance.mlir_text import split_modules, without_comments
from tools.conformance.programs import Program

SUITES = ("testdata", "quantized", "interpret", "collectives", "math", "dynamic", "parse", "errors")
_PARSED = (
    "testdata",
    "testdata/quantized",
    "testdata/dynamic",
    "tests/interpret",
    "tests/interpret/chlo",
    "tests/math",
    "tests",
    "conversions/linalg/tests",
    "conversions/tosa/tests",
)
_LEFT_OUT = "ops_broadcasting.mlir"
_ARGUMENTS_ELSEWHERE = "api_input_arguments.mlir"


def programs_of(suite: str, checkout: Path) -> Iterator[Program]:
    """The programs of one suite, in the order of their names."""
    root = checkout / "stablehlo"
    if not (root / "tests").is_dir():
        raise FileNotFoundError(f"{checkout} is no checkout of openxla/stablehlo: it has no stablehlo/tests")
    if suite in ("parse", "errors"):
        yield from _verified(suite, root)
    elif suite in ("interpret", "collectives"):
        for folder in ("tests/interpret", "tests/interpret/chlo"):
            for name, text in modules(root, folder):
                several = "interpreter.run_parallel" in text
                if (several or "check." in text) and not name.endswith(_ARGUMENTS_ELSEWHERE):
                    found = "collectives" if several else "interpret"
                    if found == suite:
                        yield Program(suite, name, "parallel" if several else "run", text)
    else:
        folder = {
            "testdata": "testdata",
            "quantized": "testdata/quantized",
            "math": "tests/math",
            "dynamic": "testdata/dynamic",
        }[suite]
        task = "dynamic" if suite == "dynamic" else "run"
        for name, text in modules(root, folder):
            yield Program(suite, name, task, text)


def _verified(suite: str, root: Path) -> Iterator[Program]:
    folders = _PARSED if suite == "parse" else ("tests",)
    for folder in folders:
        for name, text in modules(root, folder):
            if name.rpartition("/")[2].startswith(_LEFT_OUT):
                continue
            if ("expected-error" in text) == (suite == "errors"):
                yield Program(suite, name, "parse" if suite == "parse" else "refuse", text)


def modules(root: Path, folder: str) -> Iterator[tuple[str, str]]:
    """Name and text of the modules of a folder that are not empty; the name is file#number where a file has several."""
    for path in sorted((root / folder).glob("*.mlir")):
        parts = split_modules(path.read_text())
        for number, part in enumerate(parts):
            if without_comments(part).strip():
                where = f"{folder}/{path.name}"
                yield (f"{where}#{number}" if len(parts) > 1 else where), part
