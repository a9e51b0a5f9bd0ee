"""What a worker does with one program.  Every task returns what is wrong, or nothing; whatever it raises is a failure too."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import hlojit
from hlojit.extensions import CompileOptions, using

from tools.conformance.checks import checked, find_checks
from tools.conformance.comparison import mismatch
from tools.conformance.dialects import Dialects
from tools.conformance.dynamic_programs import run_dynamic
from tools.conformance.jax_harnesses import run_harness
from tools.conformance.mlir_text import without_comments
from tools.conformance.parallel import run_parallel
from tools.conformance.programs import Program

Failure = tuple[str, str]
"""Kind and reason."""
PASSED: Failure = ("", "")
_UNFOLDED = CompileOptions(fold_limit=0)
"""Results come from the back end, not from the evaluation of constants in the compiler."""
_PRINTED_TYPE = r"(tensor<(?:[^<>]|<[^<>]*>)*>)"
_PROBE = re.compile(r"interpreter\.probe\s+(%[\w$.\-#]+),\s*probe_id\s*=\s*(\"[^\"]*\")\s*:\s*" + _PRINTED_TYPE)
_PRINT = re.compile(r"interpreter\.print\s+(%[\w$.\-#]+)\s*:\s*" + _PRINTED_TYPE)


def run(program: Program, backend: str) -> Failure:
    """Compile the program and compare what it checks."""
    for text, checks in checked(program.text):
        executable = hlojit.compile(text, backend=backend, options=_UNFOLDED)
        if found := mismatch(checks, results_of(executable())):
            return "wrong", found
    return PASSED


def results_of(returned: Any) -> list[Any]:
    """The results of a call as a list."""
    if returned is None:
        return []
    return list(returned) if isinstance(returned, tuple | list) else [returned]


def parse(program: Program, backend: str) -> Failure:
    """The program must be read and break no rule; ops of dialects that are not ours need not be known."""
    try:
        _verified(program.text)
    except hlojit.HlojitError as error:
        return "refused", first_line(error)
    return PASSED


def refuse(program: Program, backend: str) -> Failure:
    """The program must be refused, for another reason than an op of another dialect."""
    try:
        _verified(program.text)
    except hlojit.HlojitError:
        return PASSED
    expected = re.search(r"expected-error[^{]*\{\{(.*?)\}\}\s*$", program.text, re.MULTILINE)
    return "accepted", f"accepted; expected: {expected[1] if expected else 'an error'}"


def _verified(text: str) -> None:
    with using(Dialects()):
        hlojit.verify(hlojit.parse(generic_checks(text), allow_unregistered=True), allow_unregistered=True)


def generic_checks(text: str) -> str:
    """Checks, probes and prints in the generic form, in which ops of any dialect are read."""
    text = without_comments(text)
    parts, position = [], 0
    for found in find_checks(text):
        if found.call or text[found.start] == '"':
            continue
        constant = not found.expected.startswith("%")
        attributes = f" {{value = {found.expected} : {found.type}}}" if constant else ""
        operands, types = (
            (found.actual, found.type)
            if constant
            else (f"{found.actual}, {found.expected}", f"{found.type}, {found.type}")
        )
        parts += [text[position : found.start], f'"check.{found.rule}"({operands}){attributes} : ({types}) -> ()']
        position = found.end
    text = "".join([*parts, text[position:]])
    text = _PROBE.sub(r'"interpreter.probe"(\1) {probe_id = \2} : (\3) -> \3', text)
    return _PRINT.sub(r'"interpreter.print"(\1) : (\2) -> ()', text)


def first_line(error: BaseException) -> str:
    """The beginning of an error's text, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    text = f"{lines[0]} {lines[1]}" if len(lines) > 1 and lines[0].endswith(":") else lines[0]
    return text[:300]


def perform(program: Program, backend: str) -> Failure:
    """Do the program's task; exceptions are failures."""
    try:
        return _TASKS[program.task](program, backend)
    except hlojit.UnsupportedError as error:
        return "unsupported", first_line(error)
    except hlojit.HlojitError as error:
        return "refused", f"{type(error).__name__}: {first_line(error)}"
    except (Exception, SystemExit) as error:  # whatever a program brings about is reported beside its name
        return "error", f"{type(error).__name__}: {first_line(error)}"


_TASKS: dict[str, Callable[[Program, str], Failure]] = {
    "run": run,
    "parallel": run_parallel,
    "parse": parse,
    "refuse": refuse,
    "harness": run_harness,
    "dynamic": run_dynamic,
}
