"""``np.bincount`` of numbers without a known bound: ``minlength`` is one, and is checked when the function runs."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.ir.errors import ExecutionError

NUMBERS = np.array([1, 5, 2, 5, 0, 5])


@pytest.mark.parametrize("dtype", ["i8", "i4", "u2"])
@pytest.mark.parametrize("weights", [None, "f8", "i4", "f4"])
def test_as_numpy(dtype: str, weights: str | None) -> None:
    x = NUMBERS.astype(dtype)
    w = None if weights is None else (np.arange(6) / 2).astype(weights)
    for part in (slice(None), slice(0), slice(None, None, -2)):
        wanted = np.bincount(x[part], None if w is None else w[part], minlength=7)
        found = hlojit.jit(lambda x, w: np.bincount(x, w, minlength=7))(x[part], None if w is None else w[part])
        assert found.dtype == wanted.dtype and found.tolist() == wanted.tolist()


def test_numbers_beyond_the_bound_raise() -> None:
    counted = hlojit.jit(lambda x: np.bincount(x, minlength=5))
    assert counted(NUMBERS - NUMBERS).tolist() == [6, 0, 0, 0, 0]
    with pytest.raises(ExecutionError, match=r"np\.bincount\(x, minlength=5\).* not below minlength=5"):
        counted(NUMBERS)
    with pytest.raises(ValueError, match="no negative elements"):
        counted(-NUMBERS)


def test_without_a_bound_it_is_refused() -> None:
    with pytest.raises(hlojit.HlojitError, match=r"say so, np\.bincount\(x, minlength=most\)"):
        hlojit.jit(lambda x: np.bincount(x))(NUMBERS)


def test_of_a_mask() -> None:
    found = hlojit.jit(lambda x: np.bincount(x[x > 1], minlength=8))(NUMBERS)
    assert found.tolist() == np.bincount(NUMBERS[NUMBERS > 1], minlength=8).tolist()
