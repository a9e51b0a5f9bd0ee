"""The limit on what functions of plugins take: they are ended, and nothing of it stays behind."""

import contextlib
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from hlojit.ir.errors import PluginError
from hlojit.ir.time_limit import call_within


def _never() -> None:
    while True:
        pass


def _what() -> str:
    return "pass 'slow'"


def test_what_the_function_returns_or_raises_comes_through() -> None:
    assert call_within(10, _what, lambda x: x + 1, 41) == 42
    with pytest.raises(ZeroDivisionError):
        call_within(10, _what, lambda: 1 // 0)


def test_a_function_that_does_not_end_is_ended_and_named() -> None:
    with pytest.raises(
        PluginError, match=r"pass 'slow' had not ended after 0\.05 s, the limit that pass_time_limit sets"
    ):
        call_within(0.05, _what, _never)


def test_a_function_that_swallows_the_interruption_is_interrupted_again() -> None:
    def stubborn() -> None:
        try:
            _never()
        except BaseException:
            _never()

    with pytest.raises(PluginError, match="had not ended"):
        call_within(0.05, _what, stubborn)


def test_a_function_that_swallows_the_interruption_and_returns_has_not_kept_the_limit() -> None:
    def late() -> int:
        with contextlib.suppress(BaseException):
            _never()
        return 1

    with pytest.raises(PluginError, match="had not ended"):
        call_within(0.05, _what, late)


def test_a_limit_around_another_one_ends_it() -> None:
    with pytest.raises(PluginError, match="outer"):
        call_within(0.05, lambda: "outer", call_within, 60, lambda: "inner", _never)


def test_interruptions_that_come_as_the_function_ends_stay_within_the_call() -> None:
    """Limits about as long as the function: nothing is raised later, in code that has no limit."""
    outcomes = {"returned": 0, "ended": 0}
    for number in range(100):
        try:
            call_within(0.001 + number * 1e-5, _what, time.sleep, 0.0015)
            outcomes["returned"] += 1
        except PluginError:
            outcomes["ended"] += 1
        for _ in range(100):
            pass
    assert sum(outcomes.values()) == 100


def test_threads_have_limits_of_their_own() -> None:
    outcomes: list[Any] = [None] * 8

    def run(number: int) -> None:
        try:
            outcomes[number] = call_within(
                0.2, _what, _never if number % 2 else time.sleep, *([] if number % 2 else [0.01])
            )
        except PluginError as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [isinstance(each, PluginError) for each in outcomes] == [False, True] * 4


FOLLOWED = """
import sys
from hlojit.ir.errors import PluginError
from hlojit.ir.time_limit import call_within

def never():
    while True:
        pass

call_within(60, lambda: "quick", int)
try:
    call_within(0.05, lambda: "slow", never)
except PluginError:
    pass

def followed():
    return 1

sys.setprofile(lambda *_: None)
followed()
sys.setprofile(None)
sys.settrace(lambda *_: None)
followed()
sys.settrace(None)
print("ended")
"""


def test_profilers_and_debuggers_work_afterwards() -> None:
    """In CPython 3.11 a pending interruption that never comes lets no followed function begin."""
    done = subprocess.run([sys.executable, "-c", FOLLOWED], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "ended\n", done.stderr
