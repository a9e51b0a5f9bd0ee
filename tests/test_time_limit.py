"""The limit on what functions of plugins take: they are ended, and nothing of it stays behind."""

import contextlib
import importlib
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from hlojit.extensions import Event
from hlojit.ir import time_limit
from hlojit.ir.errors import PluginError
from hlojit.ir.fork_gate import fork_gate
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
            # The others have time enough on a machine that does much else.
            outcomes[number] = (
                call_within(0.2, _what, _never) if number % 2 else call_within(60, _what, time.sleep, 0.01)
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


def _spin(seconds: float) -> None:
    """Take time in Python, where an interruption comes in at once."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_what_is_inside_of_the_gate_is_brought_to_its_end() -> None:
    """Where hlojit takes locks, calls LLVM and imports, a pass that builds or compiles something is not interrupted."""
    steps = []

    def compiles() -> None:
        with fork_gate.inside:
            steps.append("begun")
            _spin(0.2)
            steps.append("ended")
        _never()

    with pytest.raises(PluginError, match="had not ended"):
        call_within(0.05, _what, compiles)
    assert steps == ["begun", "ended"]
    assert not fork_gate.is_inside()


def test_one_critical_section_after_the_other_does_not_keep_the_limit_off() -> None:
    ended = []

    def compiles_for_ever() -> None:
        while True:
            with fork_gate.inside:
                _spin(0.01)
                ended.append(True)

    start = time.monotonic()
    with pytest.raises(PluginError, match="had not ended"):
        call_within(0.05, _what, compiles_for_ever)
    assert time.monotonic() - start < time_limit.PATIENCE / 2
    assert ended


def test_a_critical_section_that_does_not_end_is_ended_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "PATIENCE", 0.1)

    def stuck() -> None:
        with fork_gate.inside:
            _never()

    with pytest.raises(PluginError, match="had not ended"):
        call_within(0.05, _what, stuck)
    assert not fork_gate.is_inside()


def test_a_function_that_is_called_inside_of_the_gate_runs_outside() -> None:
    """It is a plugin's: it may fork, and a limit that waited for the caller's section would never come."""
    seen = []
    with fork_gate.inside:
        with pytest.raises(PluginError, match="had not ended"):
            call_within(0.05, _what, lambda: (seen.append(fork_gate.is_inside()), _never()))
        assert fork_gate.is_inside()
    assert seen == [False]


def test_numba_is_not_interrupted() -> None:
    """It takes its lock in Python, with room for an interruption between the lock and the block that gives it back."""
    numbas: dict[str, Any] = {"__name__": "numba.core.compiler_lock", "spin": _spin, "compiled": []}
    exec("def compile():\n    spin(0.2)\n    compiled.append(True)", numbas)

    def compiles() -> None:
        numbas["compile"]()
        _never()

    with pytest.raises(PluginError, match="had not ended"):
        call_within(0.05, _what, compiles)
    assert numbas["compiled"] == [True]


def test_a_module_is_imported_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hlojit_slow_module.py").write_text(
        "import time\nend = time.monotonic() + 0.2\nwhile time.monotonic() < end:\n    pass\ncomplete = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def imports() -> None:
        importlib.import_module("hlojit_slow_module")
        _never()

    with pytest.raises(PluginError, match="had not ended"):
        call_within(0.05, _what, imports)
    assert sys.modules.pop("hlojit_slow_module").complete


def test_a_program_that_is_itself_an_import_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hlojit_limited_module.py").write_text(
        "from hlojit.ir.time_limit import call_within\n"
        "def never():\n    while True:\n        pass\n"
        "call_within(0.05, lambda: 'slow', never)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    start = time.monotonic()
    with pytest.raises(PluginError, match="had not ended"):
        importlib.import_module("hlojit_limited_module")
    assert time.monotonic() - start < time_limit.PATIENCE / 2


def test_all_who_wait_for_an_event_hear_of_it() -> None:
    event, heard = Event(), list[int]()

    def slow(number: int) -> None:
        _spin(0.05)
        heard.append(number)

    for number in range(4):
        event.then(lambda _, number=number: slow(number))

    def completes() -> None:
        event.complete()
        _never()

    with pytest.raises(PluginError, match="had not ended"):
        call_within(0.07, _what, completes)
    assert heard == [0, 1, 2, 3]


def test_context_variables_are_what_they_were_before_a_function_that_was_ended() -> None:
    """A scope that is torn in its first or last step would stay with the thread."""
    variable: ContextVar[str] = ContextVar("variable", default="default")

    def sets() -> None:
        variable.set("of the function")

    def sets_and_goes_on() -> None:
        sets()
        _never()

    with pytest.raises(PluginError, match="had not ended"):
        call_within(0.05, _what, sets_and_goes_on)
    assert variable.get() == "default"
    call_within(60, _what, sets)
    assert variable.get() == "of the function"
