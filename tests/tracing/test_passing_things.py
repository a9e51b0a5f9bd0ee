"""What gives another value each time it is asked is refused where it is outside of the function, and taken where it is inside."""

from __future__ import annotations

import datetime
import itertools
import os
import queue
import random
import secrets
import subprocess
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import hlojit
import numpy as np
import pytest

X = np.arange(3.0)
numbers, counted, pairs = iter(range(100)), itertools.count(), zip(range(9), range(9))
waiting: queue.Queue[int] = queue.Queue()
waiting.put(1)
setting = ContextVar("setting", default=1)
python_random = random.Random(3)
folder = Path(__file__).parent


def endless() -> Any:
    number = 0
    while True:
        number += 1
        yield number


going = endless()


class Reader:
    def __init__(self) -> None:
        self.source = iter(range(9))

    def read(self, x: Any) -> Any:
        return x * next(self.source)


reader = Reader()


def of_a_cell() -> Callable[..., Any]:
    own = iter(range(9))
    return lambda x: x * next(own)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * next(numbers), lambda x: x * next(counted, 0), lambda x: x * next(going), lambda x: x * going.send(None),
        lambda x: x * numbers.__next__(), lambda x: x * sum(numbers), lambda x: [x * each for each in numbers],
        lambda x: [x * a for a, _ in pairs], lambda x: x * len(list(pairs)), lambda x: x * waiting.get(),
        lambda x: x * setting.get(), lambda x: x * dict(pairs)[0], reader.read, of_a_cell(),
    ],
)  # fmt: skip
def test_what_is_there_before_the_call(function: Callable[..., Any]) -> None:
    with pytest.raises(hlojit.HlojitError, match="is there before the call"):
        hlojit.jit(function)(X)


def test_a_loop_over_an_iterator_of_outside() -> None:
    @hlojit.jit
    def total(x: Any) -> Any:
        for each in numbers:
            x = x + each
        return x

    with pytest.raises(hlojit.HlojitError, match=r"numbers \(range_iterator\) is there before the call"):
        total(X)


def test_what_is_made_inside() -> None:
    def function(x: Any) -> Any:
        own, several, rest = iter(range(9)), endless(), itertools.count(2)
        line: queue.Queue[int] = queue.Queue()
        line.put(4)
        rows = [x * a + b for a, b in zip([1.0, 2.0], [3.0, 4.0])]
        return x * next(own) + next(several) + next(several) + next(rest) * sum(own) + line.get(), rows

    found, expected = hlojit.jit(function)(X), function(X)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x * python_random.random(), "numbers were drawn from python_random"),
        (lambda x: x * secrets.randbits(3), "draws numbers"),
        (lambda x: x * secrets.choice([1, 2]), "draws numbers"),
        (lambda x: x * len(secrets.token_hex(4)), "draws numbers"),
        (lambda x: x * len(time.ctime()), "called once"),
        (lambda x: x * time.thread_time(), "called once"),
        (lambda x: x * int(np.datetime64("now").astype(int)), "called once"),
        (lambda x: x * datetime.date.today().day, "called once"),
        (lambda x: x * len(os.listdir(folder)), "called once"),
        (lambda x: x * os.path.exists(folder), "called once"),
        (lambda x: x * int(os.environ.get("NOTHING_OF_THIS_NAME", "1")), "called once"),
        (lambda x: x * int(os.getenv("NOTHING_OF_THIS_NAME", "1")), "called once"),
        (lambda x: x * os.getpid(), "called once"),
        (lambda x: x * threading.get_ident(), "called once"),
        (lambda x: x * folder.exists(), "called once"),
        (lambda x: x * len(Path.cwd().parts), "called once"),
        (lambda x: x * len(subprocess.check_output(["true"])), "called once"),
    ],
)
def test_what_the_world_is_asked(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=words):
        hlojit.jit(function)(X)


def test_days_that_are_written() -> None:
    function = lambda x: x * int((np.datetime64("2026-01-03") - np.datetime64("2026-01-01")).astype(int))  # noqa: E731
    np.testing.assert_array_equal(hlojit.jit(function)(X), function(X))
