"""The benchmark of examples takes whom it can, and says of the others why not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks import functions


@pytest.fixture
def jax_as_it_was() -> Iterator[None]:
    """The benchmark has JAX compute in 64 bits, in the whole process."""
    import jax

    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.usefixtures("jax_as_it_was")
def test_a_function_is_timed_under_each_system_that_takes_it() -> None:
    row = functions.measure("discount", seconds=0)
    assert set(row["seconds"]) | set(row["refused"]) == set(functions.SYSTEMS)
    assert {"hlojit", "numpy"} <= set(row["seconds"])
    assert all(0 < each < 10 for each in row["seconds"].values())


@pytest.mark.parametrize(
    "found, expected, same",
    [
        ({"a": np.ones(3, "f4")}, {"a": np.ones(3)}, True),
        ((1.0, np.zeros(2)), (1.0, np.zeros(3)), False),
        ([1.0], (2.0,), False),
        (("text", 1), ("text", 1), True),
        ((1,), (1, 2), False),
    ],
)
def test_results_are_compared_leaf_by_leaf(found: object, expected: object, same: bool) -> None:
    assert functions.agrees(found, expected) == same


def test_the_better_setting_counts_and_ratios_are_of_those_who_take_it() -> None:
    one = {"name": "f", "seconds": {"hlojit": 1e-3, "numpy": 4e-3}, "first": {}, "refused": {"jax": "TypeError: no"}}
    other = {**one, "seconds": {"hlojit": 2e-3, "numpy": 3e-3}}
    (row,) = functions.merged([[one], [other]])
    assert row["seconds"] == {"hlojit": 1e-3, "numpy": 3e-3}
    page = functions.page({"machine": {"cpu": "a processor"}, "rows": [row]})
    assert "| `f` | 1 | 3.00 | - | - |" in page and "numpy 3.00 of 1" in page
