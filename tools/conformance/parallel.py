"""Programs of several processes: ``interpreter.run_parallel`` taken apart.

A module of the collectives' tests has a ``main`` that makes arguments, has functions run by a grid of processes, and checks
their results.  It becomes several programs: one that returns the arguments, those that the processes run, and one that is
given their results and checks them.  Tokens exist inside of each process only.  Processes that run one function are one
program for several devices; different functions are programs of their own, which meet on the host (``host_side.py``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import hlojit
from hlojit.extensions import CompileOptions

from tools.conformance.checks import checked, replaced
from tools.conformance.comparison import mismatch
from tools.conformance.host_side import HostSide
from tools.conformance.mlir_text import (
    FunctionText,
    after_type,
    closing,
    entry,
    functions,
    split_list,
    without_comments,
)
from tools.conformance.programs import Program

_RUN = re.compile(r"(?:(?P<result>%[\w$.\-]+)(?::\d+)?\s*=\s*)?\"interpreter\.run_parallel\"\s*(?=\()")
_PROGRAMS = re.compile(r"programs\s*=\s*(?=\[)")
_INFEED = re.compile(r"infeed\s*=\s*(?=\[)")
_NAME = re.compile(r"@([\w$.\-]+)")
_PRINT = re.compile(r"interpreter\.print\b[^\n]*")
"""Prints the value on the interpreter's output, which is no part of the results."""
_TOKEN = "!stablehlo.token"
_OF_THE_GRID = re.compile(
    r"stablehlo\.(all_gather|all_reduce|all_to_all|collective_\w+|reduce_scatter|partition_id|replica_id)\b"
)


@dataclass(frozen=True)
class ParallelRun:
    """``run_parallel`` as it stands in a body: ``grid`` holds functions' names, a row for every replica.

    The functions named by ``infeed`` return what the processes are fed, one after the other.
    """

    start: int
    end: int
    result: str
    operands: list[str]
    operand_types: list[str]
    result_types: list[str]
    grid: list[list[str]]
    infeed: list[str]

    def names(self) -> list[str]:
        """The function of every process, in the order of processes."""
        return [name for row in self.grid for name in row]


def find_run(body: str) -> ParallelRun:
    match = _RUN.search(body)
    assert match is not None
    operands_end = closing(body, match.end())
    brace = body.index("{", operands_end)
    attributes_end = closing(body, brace)
    attributes = body[brace:attributes_end]
    types = re.compile(r"\s*:\s*").match(body, attributes_end)
    assert types is not None
    types_end = closing(body, types.end())
    arrow = re.compile(r"\s*->\s*").match(body, types_end)
    assert arrow is not None
    end = after_type(body, arrow.end())
    results = body[arrow.end() : end]
    return ParallelRun(
        match.start(),
        end,
        match["result"] or "",
        split_list(body[match.end() + 1 : operands_end - 1]),
        split_list(body[types.end() + 1 : types_end - 1]),
        split_list(results[1:-1]) if results.startswith("(") else [results],
        [_NAME.findall(row) for row in split_list(_list(attributes, _PROGRAMS))],
        _NAME.findall(_list(attributes, _INFEED)),
    )


def _list(attributes: str, name: re.Pattern[str]) -> str:
    """What stands between the brackets of an attribute, nothing if it is not there."""
    found = name.search(attributes)
    return attributes[found.end() + 1 : closing(attributes, found.end()) - 1] if found else ""


def run_parallel(program: Program, backend: str) -> tuple[str, str]:
    """Run the programs; the failure of the last one's checks, or nothing."""
    text = _PRINT.sub("", without_comments(program.text))
    main = entry(text)
    run = find_run(main.body)
    alone = text
    for function in reversed(functions(text)):
        if function.name in run.names():
            alone = alone[: function.start] + alone[function.end :]
    values = _arguments(alone, entry(alone), run, backend)
    results = _processes(text, main, run, values, backend)
    return _checks(alone, entry(alone), run, results, backend)


def _arguments(text: str, main: FunctionText, run: ParallelRun, backend: str) -> list[Any]:
    """The operands of the run; None for a token."""
    wanted = [(name, type_) for name, type_ in zip(run.operands, run.operand_types, strict=True) if type_ != _TOKEN]
    if not wanted:
        return [None] * len(run.operands)
    body = f"{main.body[: run.start]}\nreturn"
    found = iter(
        _run(replaced(text, main, body, [name for name, _ in wanted], [type_ for _, type_ in wanted]), [], backend)
    )
    return [None if type_ == _TOKEN else next(found) for type_ in run.operand_types]


def _processes(text: str, main: FunctionText, run: ParallelRun, values: Sequence[Any], backend: str) -> list[Any]:
    """The results of all processes, one after the other; None for a token."""
    by_name = {function.name: function for function in functions(text)}
    called = [by_name[name] for name in run.names()]
    counts = [len(function.argument_types()) for function in called]
    rows = [values[sum(counts[:number]) : sum(counts[: number + 1])] for number in range(len(called))]
    given = [[value for value in row if value is not None] for row in rows]
    fed = [tuple(_run(_calling(text, main, by_name[name]), [], backend)) for name in run.infeed]
    with HostSide(text, len(called), fed) as host:
        if len(set(run.names())) > 1:
            returned = _different(text, main, called, given, host, backend)
        else:
            returned = _alike(_calling(text, main, called[0]), run, given, backend)
    found: list[Any] = []
    for function, results in zip(called, returned, strict=True):
        own = iter(results)
        found += [None if type_ == _TOKEN else next(own) for type_ in function.result_types()]
    return found


def _alike(text: str, run: ParallelRun, given: Sequence[list[Any]], backend: str) -> list[list[Any]]:
    """The results of processes that run one program: several devices do, if there are several."""
    options = CompileOptions(fold_limit=0, num_replicas=len(run.grid), num_partitions=len(run.grid[0]))
    executable = hlojit.compile(text, backend=backend, options=options)
    return list(executable(given)) if len(given) > 1 else [_listed(executable(*given[0]))]


def _different(
    text: str,
    main: FunctionText,
    called: Sequence[FunctionText],
    given: Sequence[list[Any]],
    host: HostSide,
    backend: str,
) -> list[list[Any]]:
    """The results of processes that run different programs, each compiled for itself: they do not know of the grid."""
    if found := _OF_THE_GRID.search(text):
        raise NotImplementedError(f"{found[0]} in processes that run different programs")
    options = CompileOptions(fold_limit=0)
    executables = [
        hlojit.compile(_calling(text, main, function), backend=backend, options=options) for function in called
    ]
    calls = [partial(executable, *row) for executable, row in zip(executables, given, strict=True)]
    return [_listed(returned) for returned in host.run(calls)]


def _calling(text: str, main: FunctionText, function: FunctionText) -> str:
    """The program whose ``main`` calls ``function`` with its arguments, but makes the tokens itself."""
    types = function.argument_types()
    arguments = [f"%a{number}: {type_}" for number, type_ in enumerate(types) if type_ != _TOKEN]
    tokens = [f"  %a{number} = stablehlo.after_all : {_TOKEN}" for number, type_ in enumerate(types) if type_ == _TOKEN]
    results = function.result_types()
    bound = f"%r:{len(results)} = " if results else ""
    names = ", ".join(f"%a{number}" for number in range(len(types)))
    call = f"  {bound}func.call @{function.name}({names}) : ({', '.join(types)}) -> ({', '.join(results)})"
    kept = [(f"%r#{number}", type_) for number, type_ in enumerate(results) if type_ != _TOKEN]
    body = "\n".join(["", *tokens, call, "  return"])
    return replaced(text, main, body, [name for name, _ in kept], [type_ for _, type_ in kept], ", ".join(arguments))


def _checks(text: str, main: FunctionText, run: ParallelRun, results: Sequence[Any], backend: str) -> tuple[str, str]:
    """Compare the results as the rest of ``main`` says."""
    body = main.body[run.end :]
    several = len(run.result_types) > 1
    names = [f"{run.result}.result{number}" if several else run.result for number in range(len(run.result_types))]
    if several:
        body = re.sub(re.escape(run.result) + r"#(\d+)", lambda match: names[int(match[1])], body)
    kept = [
        (name, type_, value)
        for name, type_, value in zip(names, run.result_types, results, strict=True)
        if value is not None
    ]
    arguments = ", ".join(f"{name}: {type_}" for name, type_, _ in kept)
    for checking, checks in checked(replaced(text, main, body, [], [], arguments)):
        if found := mismatch(checks, _run(checking, [value for _, _, value in kept], backend)):
            return "wrong", found
    return "", ""


def _run(text: str, arguments: Sequence[Any], backend: str) -> list[Any]:
    return _listed(hlojit.compile(text, backend=backend)(*arguments))


def _listed(returned: Any) -> list[Any]:
    if returned is None:
        return []
    return list(returned) if isinstance(returned, tuple | list) else [returned]
