"""Shares of BLAS's threads, with a library that notes what it is told."""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hlojit
import numpy as np
import pytest
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


def test_without_the_library_nothing_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    share = BlasShare()
    with share.taken(), share.taken():
        pass


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
