"""Shares of BLAS's threads, with a library that notes what it is told."""

from __future__ import annotations

import os
import sys
import threading
import types
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import Kernel, OpPattern, TaskFunction, hookimpl, using
from hlojit.extensions.machines.blas_threads import BlasShare

from .test_kernel_report import Kernelled, Plain

Register = Callable[..., None]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    said: list[Any] = []

    class Limit:
        def restore_original_limits(self) -> None:
            said.append("restored")

    class Controller:
        def limit(self, *, limits: int, user_api: str) -> Limit:
            said.append((limits, user_api))
            return Limit()

    module = types.ModuleType("threadpoolctl")
    module.ThreadpoolController = Controller  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "threadpoolctl", module)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    return said


def test_one_has_all_and_several_share(told: list[Any]) -> None:
    share = BlasShare()
    with share.taken():
        assert told == []
        with share.taken():
            assert told == [(3, "blas")]
            with share.taken():
                assert told[1:] == [(2, "blas")]
            assert told[2:] == [(3, "blas")]
        assert told[3:] == ["restored"]
    assert told[4:] == []


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nobody knows the library, and no variable says how many threads it takes."""
    for name in [name for name in os.environ if name.endswith("_NUM_THREADS")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    return monkeypatch


def test_without_the_library_one_warning_says_what_helps(untold: pytest.MonkeyPatch) -> None:
    share = BlasShare()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            with share.taken():
                assert not said or len(said) == 1
                with share.taken():
                    pass
    assert [str(each.message).count("pip install hlojit[blas]") for each in said] == [1]
    assert issubclass(said[0].category, hlojit.HlojitWarning)


def test_who_has_said_how_many_threads_is_not_warned(untold: pytest.MonkeyPatch) -> None:
    untold.setenv("OPENBLAS_NUM_THREADS", "1")
    share = BlasShare()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with share.taken(), share.taken():
            pass


def test_a_warning_that_is_an_error_leaves_the_shares_as_they_were(untold: pytest.MonkeyPatch) -> None:
    share = BlasShare()
    with warnings.catch_warnings(), share.taken():
        warnings.simplefilter("error")
        with pytest.raises(hlojit.HlojitWarning), share.taken():
            pass
    assert share._active == 0


@pytest.mark.parametrize(("tasks", "warnings_said"), [(1, 0), (4, 1)])
def test_tasks_that_call_blas(untold: pytest.MonkeyPatch, tasks: int, warnings_said: int) -> None:
    """hlojit shares tasks out; it knows nothing of the threads of a library that each of them calls."""

    def rows(x: Any, y: Any, out: Any, begin: int, end: int) -> None:
        for task in range(begin, end):
            out[task * 4 // tasks : (task + 1) * 4 // tasks] = np.dot(x[task * 4 // tasks : (task + 1) * 4 // tasks], y)

    class Nova:
        @hookimpl
        def hlojit_kernels(self) -> list[Kernel]:
            return [
                Kernel(
                    "nova.rows",
                    backend="cpu",
                    pattern=OpPattern("stablehlo.dot_general"),
                    build=lambda group: TaskFunction(rows, tasks=tasks),
                )
            ]

    t = "tensor<4x4xf32>"
    text = f"func.func @main(%x: {t}, %y: {t}) -> {t} {{ %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({t}, {t}) -> {t} return %0 : {t} }}"
    x = np.arange(16, dtype="f4").reshape(4, 4)
    with warnings.catch_warnings(record=True) as said, using(Nova()):
        warnings.simplefilter("always")
        np.testing.assert_array_equal(np.asarray(hlojit.compile(text, backend="cpu")(x, x)), x @ x)
    assert [str(each.message).count("nova.rows") for each in said] == [1] * warnings_said


def test_programs_of_two_machines_share(told: list[Any], registered: Register, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one of them fails."""
    meeting = threading.Barrier(2)
    monkeypatch.setattr("hlojit.extensions.machines.interpreted.BLAS", BlasShare())

    class Meeting(Plain):
        def evaluate(self, instruction: Any, operands: Any, layouts: Any) -> Any:
            meeting.wait(20)
            meeting.wait(20)
            if operands[0].type.rank == 0:
                raise OSError("parity error")
            return super().evaluate(instruction, operands, layouts)

    class Two(Kernelled):
        def machines(self) -> list[Any]:
            return [Meeting(), Meeting()]

    registered(Two())
    negate, negate_one = (
        hlojit.compile(
            f"func.func @main(%x: {t}) -> {t} {{ %0 = stablehlo.negate %x : {t} return %0 : {t} }}", backend="nova"
        )
        for t in ("tensor<3xf32>", "tensor<f32>")
    )
    x, y = hlojit.put(np.ones(3, "f4"), "nova:0"), hlojit.put(np.float32(1), "nova:1")
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.submit(negate, x), threads.submit(negate_one, y)
        np.testing.assert_array_equal(first.result(), -np.ones(3))
        with pytest.raises(hlojit.ExecutionError, match="parity error"):
            second.result()
    assert told == [(3, "blas"), "restored"]
