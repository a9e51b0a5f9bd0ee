"""Which of NumPy's functions, methods and attributes work under ``@hlojit.jit``: one call of each, beside NumPy.

python tools/numpy_coverage.py            # run all calls, write docs/numpy-functions.md
python tools/numpy_coverage.py np.cov     # run these, and show what went wrong
"""

from __future__ import annotations

import ast
import linecache
import sys
import textwrap
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import hlojit
import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parent))
import numpy_calls as calls

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "numpy-functions.md"
RELATIVE: Final = 1e-12
"""Of the largest element of a result: what sums in another order, factorizations and transcendental functions differ by."""
_VARIABLES: Final = frozenset(calls.ARRAYS)


@dataclass(frozen=True)
class Call:
    """A call of one name."""

    name: str
    text: str

    @property
    def function(self) -> Callable[..., Any]:
        """It as a function of the arrays that it takes."""
        file, source = (
            f"<{self.name}: {self.text}>",
            f"def call({', '.join(self.parameters)}):\n    return {self.text}\n",
        )
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        namespace: dict[str, Any] = {"np": np}
        exec(compile(source, file, "exec"), namespace)
        made: Callable[..., Any] = namespace["call"]
        return made

    @property
    def parameters(self) -> list[str]:
        """The arrays that it takes."""
        used = {node.id for node in ast.walk(ast.parse(self.text)) if isinstance(node, ast.Name)}
        return sorted(used & _VARIABLES)


@dataclass(frozen=True)
class Outcome:
    """What came of a call: "same", "close", "refused" or "different", and a reason."""

    call: Call
    kind: str
    reason: str = ""


class _Prefixed(ast.NodeTransformer):
    """Names of functions that are called, or used, get the namespace in front."""

    def __init__(self, space: str):
        self.space = space
        self.first: str | None = None

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in _VARIABLES or node.id in ("np", "x", "y", "r", "None"):
            return node
        self.first = self.first or f"{self.space}.{node.id}"
        return ast.parse(f"{self.space}.{node.id}", mode="eval").body


def _expressions(text: str) -> list[ast.expr]:
    (statement,) = ast.parse(f"({', '.join(text.strip().splitlines())})").body
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Tuple)
    return statement.value.elts


def _functions(text: str, space: str) -> Iterator[Call]:
    for expression in _expressions(text):
        used = [ast.unparse(node) for node in ast.walk(expression) if isinstance(node, ast.Attribute)]
        prefix = _Prefixed(space)
        written = ast.unparse(prefix.visit(expression))
        found = prefix.first or next(each for each in reversed(used) if each.startswith(("np.linalg.", "np.")))
        named = next(
            (each for each in used if each.startswith(f"{space}.") and each.count(".") == space.count(".") + 1), found
        )
        yield Call(prefix.first or named, written)


def _methods(text: str) -> Iterator[Call]:
    known = set(dir(np.ndarray))
    for expression in _expressions(text):
        for node in ast.walk(expression):
            if isinstance(node, ast.Attribute) and node.attr in known and ast.unparse(node.value) != "np":
                yield Call(f"ndarray.{node.attr}", ast.unparse(expression))
                break


def all_calls() -> dict[str, list[Call]]:
    """The calls, by namespace."""
    others = [Call(name, text) for name, text in calls.WRITTEN_OUT.items()]
    return {
        "numpy": [*_functions(calls.NUMPY, "np"), *(each for each in others if each.name.count(".") == 1)],
        "numpy.linalg": list(_functions(calls.LINALG, "np.linalg")),
        "numpy.fft": list(_functions(calls.FFT, "np.fft")),
        "ndarray": list(_methods(calls.METHODS)),
        "methods of ufuncs, and others": [each for each in others if each.name.count(".") > 1],
    }


def public_names() -> dict[str, set[str]]:
    """Functions of NumPy's namespaces, and methods and attributes of its arrays, that a call must exist for."""
    left_out = {name for names in calls.WITHOUT_ARRAYS.values() for name in names.split()}

    def functions(module: types.ModuleType) -> set[str]:
        found = set()
        for name in getattr(module, "__all__", dir(module)):
            value = getattr(module, name)
            if callable(value) and not isinstance(value, (type, types.ModuleType)) and not name.startswith("_"):
                found.add(name)
        return found

    methods = {name for name in dir(np.ndarray) if not name.startswith("_")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "numpy": {f"np.{name}" for name in functions(np) - left_out},
            "numpy.linalg": {f"np.linalg.{name}" for name in functions(np.linalg)},
            "numpy.fft": {f"np.fft.{name}" for name in functions(np.fft)},
            "ndarray": {f"ndarray.{name}" for name in methods - set(calls.METHODS_WITHOUT_ARRAYS.split())},
        }


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, (tuple, list)):
        for each in tree:
            yield from _leaves(each)
    else:
        yield tree


def _difference(ours: Any, theirs: Any) -> tuple[str, str]:
    """How two leaves compare: the kind of an outcome, and why."""
    if not isinstance(theirs, (np.ndarray, np.generic)):
        is_same = type(ours) is type(theirs) and (ours == theirs or ours != ours)
        return ("same", "") if is_same else ("different", f"{ours!r} instead of {theirs!r}")
    if type(ours) is not type(theirs):
        return "different", f"a {type(ours).__name__} instead of a {type(theirs).__name__}"
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return "different", f"{ours.dtype}{ours.shape} instead of {theirs.dtype}{theirs.shape}"
    if np.array_equal(ours, theirs, equal_nan=theirs.dtype.kind in "fc"):
        return "same", ""
    if theirs.dtype.kind in "fc":
        size = np.max(np.abs(theirs[np.isfinite(theirs)]), initial=0) if theirs.size else 0
        if np.allclose(ours, theirs, rtol=0, atol=RELATIVE * float(size), equal_nan=True):
            return "close", ""
    return "different", "other elements"


def outcome_of(call: Call) -> Outcome:
    """Run a call with NumPy and under ``@hlojit.jit``; results and the arrays afterwards are compared."""
    theirs_given = {name: calls.arrays()[name] for name in call.parameters}
    ours_given = {name: calls.arrays()[name] for name in call.parameters}
    theirs = call.function(**theirs_given)
    try:
        ours = hlojit.jit(call.function)(**ours_given)
    except Exception as error:
        return Outcome(call, "refused", f"{type(error).__name__}: {error}")
    pairs = [
        list(_leaves([tree, list(given.values())])) for tree, given in ((ours, ours_given), (theirs, theirs_given))
    ]
    if len(pairs[0]) != len(pairs[1]):
        return Outcome(call, "different", f"{len(pairs[0])} results instead of {len(pairs[1])}")
    found = [_difference(a, b) for a, b in zip(*pairs)]
    for kind in ("different", "close", "same"):
        for each, reason in found:
            if each == kind:
                return Outcome(call, kind, reason)
    return Outcome(call, "same")


def run(chosen: list[Call]) -> list[Outcome]:
    """The outcomes of calls, with progress."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [outcome_of(call) for call in track(chosen, "NumPy's functions")]


def written(outcomes: dict[str, list[Outcome]]) -> str:
    """The page."""
    found = [each for outcomes_ in outcomes.values() for each in outcomes_]
    good = sum(each.kind in ("same", "close") for each in found)
    lines = [
        "# NumPy's functions under `@jit`",
        "",
        *textwrap.wrap(
            f"One ordinary call of each of the {len(found)} functions, methods and attributes of NumPy {np.__version__} that "
            "concern arrays, under `@hlojit.jit` and with NumPy itself (`tools/numpy_coverage.py`; the calls are in "
            "`tools/numpy_calls.py`): types, dtypes, shapes, elements, and the arrays afterwards are the same for "
            f"**{good} of {len(found)}**. Names in *italics* differ by rounding: by at most {RELATIVE:g} of the largest element, "
            "where sums go in another order, or functions and factorizations are computed otherwise. Arguments that cannot be "
            "compiled are refused with an error that names them.",
            150,
            break_on_hyphens=False,
        ),
        "",
    ]
    for space, own in outcomes.items():
        good = sum(each.kind in ("same", "close") for each in own)
        names = [
            f"*{_short(each)}*" if each.kind == "close" else f"`{_short(each)}`"
            for each in sorted(own, key=lambda each: each.call.name)
            if each.kind in ("same", "close")
        ]
        lines += [
            f"## {space}: {good} of {len(own)}",
            "",
            *textwrap.wrap(", ".join(names), 150, break_on_hyphens=False),
            "",
        ]
        bad = [each for each in own if each.kind not in ("same", "close")]
        if bad:
            lines += ["| Refused | Why |", "|---|---|"]
            lines += [f"| `{each.call.text}` | {_reason(each)} |" for each in bad]
            lines.append("")
    lines += ["## Not counted", "", "| About | Names |", "|---|---|"]
    lines += [f"| {about} | `{names}` |" for about, names in calls.WITHOUT_ARRAYS.items()]
    lines += [f"| memory and files, of arrays | `{calls.METHODS_WITHOUT_ARRAYS}` |", ""]
    return "\n".join(lines)


def _short(outcome: Outcome) -> str:
    space, _, name = outcome.call.name.rpartition(".")
    return name if space in ("np", "np.linalg", "np.fft", "ndarray") else outcome.call.name


def _reason(outcome: Outcome) -> str:
    return outcome.reason.rpartition(" : ")[2].replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """Run all calls, or those of the names given."""
    spaces = all_calls()
    missing = {space: sorted(names - {call.name for call in spaces[space]}) for space, names in public_names().items()}
    for space, names in missing.items():
        if names:
            print(f"{space}: no call of {' '.join(names)}")
    chosen = [call for found in spaces.values() for call in found if not arguments or call.name in arguments]
    outcomes = run(chosen)
    for outcome in outcomes:
        if outcome.kind in ("refused", "different"):
            print(f"{outcome.call.name}: {outcome.kind}: {outcome.call.text}\n    {outcome.reason[:400]}")
    good = sum(outcome.kind in ("same", "close") for outcome in outcomes)
    print(f"{good} of {len(outcomes)}")
    if not arguments:
        by_call = {outcome.call: outcome for outcome in outcomes}
        page = written({space: [by_call[call] for call in found] for space, found in spaces.items()})
        PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
