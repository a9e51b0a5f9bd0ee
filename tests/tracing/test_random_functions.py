"""Random functions over numbers, arrays and containers: compiled, they do what Python does, or are refused."""

from __future__ import annotations

import copy
import itertools
import linecache
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import hlojit
import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent / "rewriting"))
from random_numpy_source import NumpyWriter

ARGUMENTS: list[tuple[Any, ...]] = [
    (2, 0.5, np.float64(1.25), np.array([0.25, -1.0, 2.0, 3.5, 0.0]), np.array([1, 4, 2])),
    (7, -1.5, np.float64(-0.5), np.array([1.0, 1.5, -2.0, 0.5, 4.0]), np.array([0, 3, 5])),
    (0, 2.0, np.float64(0.0), np.zeros(5), np.array([2, 2, 0])),
]
SEEDS = [0, 1, 3, 5, 8, 13, 21, 30, 31, 34, 55, 89, 90, 144, 150, 233, 231, 264, 377, 400, 553]
_numbers = itertools.count()


def loaded(source: str) -> Callable[..., Any]:
    name = f"<function {next(_numbers)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    variables: dict[str, Any] = {"__name__": "programs"}
    exec(compile(source, name, "exec"), variables)
    return variables["program"]


def leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, (tuple, list)):
        yield type(tree), len(tree)
        for each in tree:
            yield from leaves(each)
    elif isinstance(tree, dict):
        yield tuple(tree)
        for each in tree.values():
            yield from leaves(each)
    else:
        yield tree


def difference(ours: Any, theirs: Any) -> str:
    pairs = list(leaves(ours)), list(leaves(theirs))
    if len(pairs[0]) != len(pairs[1]):
        return "another structure"
    for a, b in zip(*pairs):
        # A Python number on one path and one of NumPy's on another are one of NumPy's (docs/jit.md).
        is_number = isinstance(a, (int, float, np.number))
        if type(a) is not type(b) and not (is_number and isinstance(b, (int, float, np.number))):
            return f"{a!r} instead of {b!r}"
        if not np.array_equal(a, b, equal_nan=not isinstance(a, (tuple, str, type, type(None)))):
            return f"{a!r} instead of {b!r}"
    return ""


def compare(seed: int, things: float = 0.0) -> str:
    """How a program's results or arguments differ from Python's; errors that only one of them raises are told too.

    ``things``: the share of statements that change lists, dictionaries and objects.
    """
    source = NumpyWriter(Random(seed), things).program()
    plain, compiled = loaded(source), hlojit.jit(loaded(source))
    for arguments in ARGUMENTS:
        own, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = plain(*theirs)
            except Exception as error:
                expected = error
            try:
                found = compiled(*own)
            except hlojit.HlojitError:
                return ""
            except Exception as error:
                found = error
        if isinstance(expected, Exception) or isinstance(found, Exception):
            if not isinstance(found, type(expected)):
                return f"seed {seed}, {arguments}: {found!r} instead of {expected!r}\n{source}"
            continue
        what = difference([found, list(own)], [expected, list(theirs)])
        if what:
            return f"seed {seed}, {arguments}: {what}\n{source}"
    return ""


@pytest.mark.parametrize("seed", SEEDS)
def test_as_python_or_refused(seed: int) -> None:
    assert not compare(seed)


@pytest.mark.parametrize("seed", range(24))
def test_things_as_python_or_refused(seed: int) -> None:
    assert not compare(seed, 0.5)


if __name__ == "__main__":
    for seed in range(*map(int, sys.argv[1:3])):
        if told := compare(seed, float((*sys.argv[3:], 0)[0])):
            print(told)
