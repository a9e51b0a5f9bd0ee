"""Functions of arrays that read or write what is not theirs, leave results unwritten, or fail within one another."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.extensions import ArrayCall
from hlojit.ir.errors import ExecutionError, PluginError

from .array_programs import program, registered


def _adds_to(x: Any, result: Any) -> None:
    np.add(x, np.ones(3, np.float32), result)


def _counts(x: Any, result: Any) -> None:
    result[0] = np.bincount(np.array([-(10**8)]))[0]


def _leaves_out(x: Any, result: Any) -> None:
    result[0] = np.delete(x, np.array([10**8]))[0]


def _takes(x: Any, result: Any) -> None:
    result[0] = np.take_along_axis(x, np.array([10**8]), 0)[0]


@pytest.mark.parametrize(("function", "named"), [
    (_adds_to, "gives np.add an array to write to"),
    (_counts, "uses np.bincount, whose indices numba does not check"),
    (_leaves_out, "uses np.delete"),
    (_takes, "uses np.take_along_axis"),
])  # fmt: skip
def test_functions_of_numpy_that_numba_does_not_check_are_refused(function: Any, named: str) -> None:
    """They read and wrote outside of their arrays."""
    with registered(ArrayCall("t.f", function=function)), pytest.raises(PluginError, match=named):
        hlojit.compile(program("8xf32", "8xf32"))


def test_linear_algebra_is_numbas() -> None:
    def inverse(x: Any, result: Any) -> None:
        result[:] = np.linalg.inv(x)

    with registered(ArrayCall("t.f", function=inverse)):
        run = hlojit.compile(program("4x4xf64", "4x4xf64"))
    x = np.random.default_rng(0).random((4, 4))
    np.testing.assert_allclose(run(x), np.linalg.inv(x))
    with pytest.raises(ExecutionError, match="Matrix is singular"):
        run(np.ones((4, 4)))


def test_calls_within_calls_tell_what_ended_them_in_a_line_that_can_be_read() -> None:
    """Each level told what the next one told: twice the backslashes, and so the length, a level."""
    depth = [0]

    def nested(x: Any) -> Any:
        depth[0] += 1
        if depth[0] > 30:
            raise ValueError("innermost")
        return hlojit.custom_call("t.f", x)

    call = ArrayCall("t.f", function=nested, trust="python", result_types=lambda types: types.operands[0])
    with registered(call), pytest.raises(ExecutionError) as raised:
        hlojit.custom_call("t.f", np.ones(2, "f4"))
    assert len(str(raised.value)) < 3000
    error: BaseException | None = raised.value
    while error is not None and not isinstance(error, ValueError):
        error = error.__cause__
    assert str(error) == "innermost"


def _rebinds(x: Any, r: Any) -> None:
    r = x * 2  # noqa: F841


def _in_place(x: Any, r: Any) -> None:
    r[...] = x
    r += x


def _half(x: Any, r: Any) -> None:
    r[0] = x[0]


def test_a_function_that_gives_its_results_name_to_another_array_is_refused() -> None:
    """What lay in memory came out."""
    with (
        registered(ArrayCall("t.f", function=_rebinds)),
        pytest.raises(PluginError, match=r"assigns to r, .* say r\[...\] = "),
    ):
        hlojit.compile(program("4xf32", "4xf32"))
    with registered(ArrayCall("t.f", function=_in_place)):
        np.testing.assert_array_equal(hlojit.compile(program("4xf32", "4xf32"))(np.ones(4, "f4")), [2, 2, 2, 2])


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_what_a_function_does_not_write_is_zero(backend: str) -> None:
    with registered(ArrayCall("t.f", function=_half)):
        run = hlojit.compile(program("1000xf32", "1000xf32"), backend=backend)
    for _ in range(3):
        np.full(1000, 7, "f4")
        np.testing.assert_array_equal(run(np.ones(1000, "f4")), [1, *[0] * 999])
