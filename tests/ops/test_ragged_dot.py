"""``chlo.ragged_dot`` in its three modes against JAX's ``ragged_dot_general``."""

from __future__ import annotations

from collections.abc import Iterator

import hlojit
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.lax import RaggedDotDimensionNumbers, ragged_dot_general


@pytest.fixture(autouse=True, scope="module")
def simulator(request: pytest.FixtureRequest) -> Iterator[None]:
    """The back end ``cuda`` runs on the simulator, unless there is a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("--gpu", default=False):
            patch.setenv("HLOJIT_CUDA", "simulator")
        yield


Numbers = dict[str, list[int]]
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], np.ndarray, Numbers]] = {
    "free": (
        (11, 5),
        (3, 5, 7),
        np.array([4, 4, 3]),
        {"lhs_contracting": [1], "rhs_contracting": [1], "lhs_ragged": [0], "rhs_group": [0]},
    ),
    "free with rows behind the groups": (
        (11, 5),
        (3, 5, 7),
        np.array([4, 0, 3]),
        {"lhs_contracting": [1], "rhs_contracting": [1], "lhs_ragged": [0], "rhs_group": [0]},
    ),
    "free and batched, sizes for each": (
        (2, 9, 5),
        (3, 2, 5, 4),
        np.array([[4, 4, 1], [1, 2, 6]]),
        {
            "lhs_batching": [0],
            "rhs_batching": [1],
            "lhs_contracting": [2],
            "rhs_contracting": [2],
            "lhs_ragged": [1],
            "rhs_group": [0],
        },
    ),
    "free behind another free dimension": (
        (3, 8, 5),
        (5, 2, 4),
        np.array([[3, 5], [8, 0], [2, 2]]),
        {"lhs_contracting": [2], "rhs_contracting": [0], "lhs_ragged": [1], "rhs_group": [1]},
    ),
    "contracted": (
        (6, 11),
        (11, 7),
        np.array([4, 4, 3]),
        {"lhs_contracting": [1], "rhs_contracting": [0], "lhs_ragged": [1]},
    ),
    "contracted and batched, sizes for each": (
        (2, 6, 11),
        (11, 2, 3),
        np.array([[4, 4, 3], [0, 1, 9]]),
        {
            "lhs_batching": [0],
            "rhs_batching": [1],
            "lhs_contracting": [2],
            "rhs_contracting": [0],
            "lhs_ragged": [2],
        },
    ),
    "contracted behind another": (
        (4, 2, 6),
        (2, 6, 3),
        np.array([[4, 2], [1, 5]]),
        {"lhs_contracting": [1, 2], "rhs_contracting": [0, 1], "lhs_ragged": [2]},
    ),
    "batched": (
        (5, 4, 6),
        (5, 6, 3),
        np.array([2, 3]),
        {
            "lhs_batching": [0],
            "rhs_batching": [0],
            "lhs_contracting": [2],
            "rhs_contracting": [1],
            "lhs_ragged": [0],
        },
    ),
}


def text(lhs: np.ndarray, rhs: np.ndarray, sizes: np.ndarray, result: tuple[int, ...], numbers: Numbers) -> str:
    names = {np.dtype(np.float32): "f32", np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}
    types = ["x".join([*map(str, array.shape), names[array.dtype]]) for array in (lhs, rhs, sizes)]
    a, b, c = (f"tensor<{type}>" for type in types)
    r = f"tensor<{'x'.join([*map(str, result), names[lhs.dtype]])}>"
    listed = ", ".join(f"{name}_dimensions = {value}" for name, value in numbers.items())
    return f"""
    func.func @main(%a: {a}, %b: {b}, %c: {c}) -> {r} {{
      %r = "chlo.ragged_dot"(%a, %b, %c) {{ragged_dot_dimension_numbers = #chlo.ragged_dot<{listed}>}}
        : ({a}, {b}, {c}) -> {r}
      return %r : {r}
    }}"""


def expected(lhs: np.ndarray, rhs: np.ndarray, sizes: np.ndarray, numbers: Numbers) -> np.ndarray:
    def of(name: str) -> list[int]:
        return numbers.get(name, [])

    dims = RaggedDotDimensionNumbers(
        (
            (of("lhs_contracting"), of("rhs_contracting")),
            (of("lhs_batching"), of("rhs_batching")),
        ),
        of("lhs_ragged"),
        of("rhs_group"),
    )
    arrays = (jnp.asarray(lhs), jnp.asarray(rhs), jnp.asarray(sizes, jnp.int32))
    return np.asarray(ragged_dot_general(*arrays, dims, precision=jax.lax.Precision.HIGHEST))


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("backend", ["cpu", "cuda", "reference"])
@pytest.mark.parametrize("case", CASES)
def test_ragged_dot_is_jax_s(case: str, backend: str, dtype: type) -> None:
    left, right, sizes, numbers = CASES[case]
    rng = np.random.default_rng(0)
    lhs, rhs = ((rng.normal(size=shape) * 8).astype(dtype) for shape in (left, right))
    wanted = expected(lhs, rhs, sizes, numbers)
    program = text(lhs, rhs, sizes, wanted.shape, numbers)
    found = np.asarray(hlojit.compile(program, backend=backend)(lhs, rhs, sizes))
    # Both sum up to 11 products of about 64 in an order of their own; integers wrap, in any order.
    np.testing.assert_allclose(
        found, wanted, rtol=1e-5 if dtype is np.float32 else 0, atol=1e-4 if dtype is np.float32 else 0
    )


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_an_infinity_of_one_group_stays_in_its_rows(backend: str) -> None:
    left, right, sizes, numbers = CASES["free"]
    lhs, rhs = np.ones(left, np.float32), np.ones(right, np.float32)
    rhs[1] = np.inf
    found = np.asarray(hlojit.compile(text(lhs, rhs, sizes, (11, 7), numbers), backend=backend)(lhs, rhs, sizes))
    assert np.all(np.isinf(found[4:8])) and np.all(found[:4] == 5) and np.all(found[8:] == 5)
