"""Random programs: rewritten, under Python's runtime and traced as a whole, they do what they did."""

from __future__ import annotations

import itertools
import linecache
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from hlojit.tracing.rewriting import PythonRuntime, Site, rewritten, running, substitute, without_hooks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parent))
from random_source import Writer
from symbolic_runtime import Symbol, SymbolicRuntime

_numbers = itertools.count()
ARGUMENTS = [(0, 0, 0), (1, 2, 3), (5, -3, 2), (-1, 7, 4), (2, 2, 11)]


class RecursiveRuntime(PythonRuntime):
    def callee(self, site: Site, function: Any) -> Any:
        return substitute(function)


def loaded(source: str) -> Callable[..., Any]:
    name = f"<program {next(_numbers)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    variables: dict[str, Any] = {"__name__": "programs", "suppress": suppress}
    exec(compile(source, name, "exec"), variables)
    return variables["program"]


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or what it raises and on which lines."""
    try:
        return "returned", function(*arguments)
    except Exception as error:
        traceback = without_hooks(error.__traceback__)
        lines = []
        while traceback is not None:
            code = traceback.tb_frame.f_code
            if code.co_filename.startswith("<program"):
                lines.append((code.co_name, traceback.tb_lineno))
            traceback = traceback.tb_next
        return "raised", type(error), str(error), lines


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_under_pythons_runtime(seed: int) -> None:
    source = Writer(Random(seed), python=True).program()
    program = loaded(source)
    done = rewritten(program)
    assert not done.reason, done.reason
    with running(RecursiveRuntime()):
        for arguments in ARGUMENTS:
            assert outcome(done.function, *arguments) == outcome(program, *arguments), source


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32), st.booleans())
def test_traced(seed: int, tests_apart: bool) -> None:
    source = Writer(Random(seed), python=False).program()
    program = loaded(source)
    for arguments in ARGUMENTS:
        assert traced(program, arguments, tests_apart) == short(outcome(program, *arguments)), source


def traced(program: Callable[..., Any], arguments: tuple[int, ...], tests_apart: bool) -> Any:
    """All arguments are symbols; the graph is evaluated afterwards."""
    runtime = SymbolicRuntime(tests_apart)
    with running(runtime):
        symbols = [Symbol(lambda evaluate, value=value: value) for value in arguments]
        try:
            value = substitute(program)(*symbols)
        except (ValueError, AssertionError) as error:
            return short(outcome(_raising(error)))
        try:
            return "returned", runtime.result(value)
        except (ValueError, AssertionError) as error:
            return "raised", type(error), str(error), error.line


def _raising(error: Exception) -> Callable[[], Any]:
    def again() -> Any:
        raise error

    return again


def short(found: Any) -> Any:
    """Of the lines of an exception the innermost."""
    return found if found[0] == "returned" else (*found[:3], found[3][-1][1])
