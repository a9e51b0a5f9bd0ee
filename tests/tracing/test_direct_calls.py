"""Calls from numba's code that run the program without Python: that they do, and that nobody can tell but by the clock."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading
from typing import Any, ClassVar

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.extensions import Pass
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Module
from hlojit.runtime import objects

from tests.elsewhere import processors_only

numba: Any = pytest.importorskip("numba")
pytestmark = processors_only

_WITHOUT_PYTHON = """
import sys
import numba, numpy as np, hlojit

SHIFT = 1.5

def make():
    factor = 3.0
    def scaled(x):
        return x * factor + SHIFT
    return hlojit.jit(scaled)

scaled = make()
numbers = hlojit.jit(lambda x, n, flag, z: (x.sum() * n, n + 1, ~(x > 0), flag, z * 2))
nested = hlojit.jit(lambda pair, y: ((pair[0] + y, pair[1][0].max()), y.T @ y))
checked = hlojit.jit(lambda x, i: x[i])
solved = hlojit.jit(lambda a, b: np.linalg.solve(a, b))
nothing = hlojit.jit(lambda x: None)

@hlojit.jit
def moved(x, v, dt):
    x += v * dt
    v *= 0.5
    return x.sum()

CALLS = {
    "scaled": (scaled, (np.arange(6.0),)),
    "numbers": (numbers, (np.arange(4.0), 3, True, 1 + 2j)),
    "f4": (numbers, (np.arange(4, dtype="f4"), np.int32(3), False, np.complex64(1 + 2j))),
    "nested": (nested, ((np.ones((2, 3)), (np.arange(3.0),)), np.ones((2, 3)))),
    "checked": (checked, (np.arange(5), -2)),
    "empty": (scaled, (np.zeros((0, 4)),)),
    "scalar": (scaled, (2.5,)),
    "large": (scaled, (np.ones(300_000),)),
    "moved": (moved, (np.arange(3.0), np.ones(3), 0.1)),
    "solve": (solved, (np.eye(3) * 2, np.arange(3.0))),
    "nothing": (nothing, (np.ones(2),)),
}

def entered(function, arguments):
    names = ", ".join(f"x{n}" for n in range(len(arguments)))
    scope = {"function": function}
    exec(f"def caller(n, {names}):\\n    for _ in range(n): found = function({names})\\n    return found", scope)
    caller = numba.njit(scope["caller"])
    caller(1, *arguments)
    calls = []
    def seen(frame, event, _):
        if event == "call" and frame.f_code.co_filename.endswith("numba_callers.py"):
            calls.append(frame.f_code.co_name)
    sys.setprofile(seen)
    caller(100, *arguments)
    sys.setprofile(None)
    return len(calls)

for name, (function, arguments) in CALLS.items():
    print(name, entered(function, arguments))
"""


@pytest.mark.skipif(objects.words() is None, reason="this Python's dictionaries have no versions")
def test_no_python_in_between() -> None:
    run = subprocess.run([sys.executable, "-c", _WITHOUT_PYTHON], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    entered = dict(line.split() for line in run.stdout.splitlines())
    assert len(entered) == 11
    assert {name for name, count in entered.items() if count != "0"} == set()


SCALE = 2.0


def _twice(x: Any) -> Any:
    return x * 2


helper = _twice


def _caller(function: Any) -> Any:
    @numba.njit
    def caller(x: Any) -> Any:
        function(x)
        return function(x)

    return caller


def test_what_is_bound_again_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = _caller(hlojit.jit(lambda x: helper(x) * SCALE))
    x = np.ones(2)
    assert caller(x)[0] == 4
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert caller(x)[0] == 10
    monkeypatch.setitem(globals(), "helper", lambda x: x + 1)
    assert caller(x)[0] == 10
    monkeypatch.undo()
    assert caller(x)[0] == 4


def test_variables_of_enclosing_functions_and_parts_of_functions_are_seen() -> None:
    offset = 1.0

    def added(x: Any, by: float = 2.0) -> Any:
        return x + by

    function = hlojit.jit(lambda x: added(x) * offset)
    caller = _caller(function)
    x = np.ones(2)
    assert caller(x)[0] == 3
    offset = 2.0
    assert caller(x)[0] == 6
    added.__defaults__ = (9.0,)
    assert caller(x)[0] == 20
    added.__code__ = (lambda x, by: x - by).__code__
    assert caller(x)[0] == -16


class _Doubling(Pass):
    """A wrong pass: what it did is seen by the result."""

    name: ClassVar[str] = "doubling"
    phase: ClassVar[str] = "before-fusion"

    def run(self, module: Module) -> bool:
        found = [each for each in module.walk() if each.name == "stablehlo.negate"]
        for negate in found:
            builder = Builder.in_front_of(negate)
            (operand,) = negate.operands
            negate.replace_with([builder.add(operand, operand)])
        return bool(found)


class _Plugin:
    __name__ = "doubling"

    @ext.hookimpl
    def hlojit_passes(self) -> list[Pass]:
        return [_Doubling()]


def test_plugins_of_the_context_take_part() -> None:
    """Also of a copy of a context, which outlives the block."""
    caller = _caller(hlojit.jit(lambda x: -x))
    assert caller(np.ones(2))[0] == -1
    with ext.using(_Plugin()):
        assert caller(np.ones(2))[0] == 2
        other = contextvars.copy_context()
    assert caller(np.ones(2))[0] == -1
    assert other.run(caller, np.ones(2))[0] == 2
    assert caller(np.ones(2))[0] == -1


def test_switches_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = _caller(hlojit.jit(lambda x: x + 1))
    assert caller(np.ones(2))[0] == 2
    monkeypatch.setenv("HLOJIT_BACKEND", "nowhere")
    with pytest.raises(hlojit.HlojitError, match="nowhere"):
        caller(np.ones(2))
    monkeypatch.delenv("HLOJIT_BACKEND")
    assert caller(np.ones(2))[0] == 2


@pytest.mark.filterwarnings("ignore::hlojit.RetracingWarning")
def test_more_sizes_than_are_kept() -> None:
    function = hlojit.jit(lambda x: (x * 2, x.sum()))

    @numba.njit
    def caller(x: Any) -> Any:
        return function(x)

    for _ in range(3):
        for size in range(40):
            doubled, total = caller(np.arange(float(size)))
            np.testing.assert_array_equal(doubled, np.arange(float(size)) * 2)
            assert total == np.arange(float(size)).sum()


def test_failed_checks_leave_arguments_as_they_were() -> None:
    @hlojit.jit
    def put(x: Any, i: Any, value: Any) -> Any:
        x[0] = value
        x[i] = value
        return x.sum()

    @numba.njit
    def caller(x: Any, i: Any, value: Any) -> Any:
        return put(x, i, value)

    x = np.zeros(3)
    assert caller(x, 1, 2.0) == 4
    for _ in range(3):
        with pytest.raises(IndexError):
            caller(x, 3, 7.0)
        np.testing.assert_array_equal(x, [2, 2, 0])
    assert caller(x, 2, 1.0) == 4
    np.testing.assert_array_equal(x, [1, 2, 1])


def test_arrays_that_lie_on_each_other() -> None:
    @hlojit.jit
    def step(x: Any, y: Any) -> Any:
        x += y
        return y * 1

    @numba.njit
    def caller(x: Any, y: Any) -> Any:
        return step(x, y)

    def plain(x: Any, y: Any) -> Any:
        x += y
        return y * 1

    for _ in range(3):
        x, y = np.arange(4.0), np.ones(4)
        np.testing.assert_array_equal(caller(x, y), np.ones(4))
        np.testing.assert_array_equal(x, [1, 2, 3, 4])
        z = np.arange(4.0)
        w = z.copy()
        np.testing.assert_array_equal(caller(z, z), plain(w, w))
        np.testing.assert_array_equal(z, w)
        with pytest.raises(hlojit.HlojitError, match="share a part"):
            caller(z[:3], z[1:])
        fixed = np.zeros(4)
        fixed.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            caller(fixed, y)


def test_layouts() -> None:
    function = hlojit.jit(lambda x: x[0] + x.sum(axis=0))

    @numba.njit
    def caller(x: Any) -> Any:
        return function(x)

    x = np.random.default_rng(0).normal(size=(4, 6))
    for each in (x, x.T, x[::2], x[:, ::-1], x[:, 1:2], x[1:2, :], np.asfortranarray(x), x):
        for _ in range(3):
            np.testing.assert_allclose(caller(each), each[0] + each.sum(axis=0), rtol=1e-14)


def test_memory_is_given_back() -> None:
    from numba.core.runtime import _nrt_python, rtsys

    function = hlojit.jit(lambda x, i: (x * 2, x[i]))

    @numba.njit
    def caller(x: Any, i: Any, count: Any) -> Any:
        total = 0.0
        for _ in range(count):
            doubled, one = function(x, i)
            total += doubled[0] + one
        return total

    x = np.ones(100)
    caller(x, 0, 2)
    _nrt_python.memsys_enable_stats()
    before = rtsys.get_allocation_stats()
    assert caller(x, 1, 10_000) == 30_000
    with pytest.raises(IndexError):
        caller(x, 100, 5)
    after = rtsys.get_allocation_stats()
    made, freed = after.alloc - before.alloc, after.free - before.free
    # What raises leaves what it had to numba, which loses it.
    assert made >= 10_000
    assert made - freed <= 2


def test_threads_without_the_lock_and_names_bound_again() -> None:
    scope: dict[str, Any] = {"hlojit": hlojit, "factor": 1.0}
    exec("function = hlojit.jit(lambda x: x * factor + factor)", scope)
    function = scope["function"]

    @numba.njit(nogil=True)
    def caller(x: Any, count: Any) -> Any:
        found = np.empty(count)
        for number in range(count):
            y = function(x)
            found[number] = y[0]
            if y[0] != y[1]:
                found[number] = -1.0
        return found

    caller(np.ones(4), 1)
    wrong: list[Any] = []
    values = (1.0, 2.0, 3.0)

    def work() -> None:
        for _ in range(20):
            found = caller(np.ones(4), 500)
            if not np.isin(found, [2 * each for each in values]).all():
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    turn = 0
    while any(thread.is_alive() for thread in threads):
        turn += 1
        scope["factor"] = values[turn % 3]
        threads[0].join(0.002)
    assert not wrong
    scope["factor"] = 7.0
    assert caller(np.ones(4), 2).tolist() == [14.0, 14.0]


_ENDING = """
import threading, time
import numba, numpy as np, hlojit
function = hlojit.jit(lambda x: x * 2 + 1)
@numba.njit(nogil=True)
def forever(x):
    total = 0.0
    while total >= 0.0:
        total = function(x)[0]
    return total
@numba.njit
def once(x):
    return function(x)[0] + function(x)[0]
x = np.ones(4)
once(x)
forever.compile((numba.typeof(x),))
for _ in range(3):
    threading.Thread(target=forever, args=(x,), daemon=True).start()
time.sleep(0.3)
"""


def test_the_interpreter_ends_while_threads_call() -> None:
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", _ENDING], capture_output=True, text=True, check=False, timeout=120)
        assert (run.returncode, run.stderr) == (0, "")


def test_parallel_loops() -> None:
    function = hlojit.jit(lambda x: np.sqrt(x).sum())

    @numba.njit(parallel=True)
    def caller(x: Any) -> Any:
        out = np.empty(x.shape[0])
        for row in numba.prange(x.shape[0]):
            out[row] = function(x[row])
        return out

    x = np.random.default_rng(3).random((500, 40))
    for _ in range(3):
        np.testing.assert_allclose(caller(x), np.sqrt(x).sum(axis=1), rtol=1e-13)


def test_code_that_is_found_once_is_not_kept_from_new_code() -> None:
    """Tables are replaced as a whole; the cache of a function may be cleared at any time."""
    function = hlojit.jit(lambda x: x + 1)
    caller = _caller(function)
    for size in range(1, 30):
        function.clear_cache()
        np.testing.assert_array_equal(caller(np.zeros(size)), np.ones(size))
