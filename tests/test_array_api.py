"""``hlojit.numpy``: the array API standard beside NumPy, eagerly and traced.  ``make array-api`` runs the standard's own suite."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from typing import Any

import hlojit
import hlojit.numpy as hnp
import numpy as np
import pytest

X = np.array([[4.0, 1.0, -0.5], [1.0, 3.0, 0.25], [-0.5, 0.25, 2.0]])
I = np.array([2, 0, 1])
CALLS: dict[str, tuple[Any, ...]] = {
    "astype": (X, np.dtype("f4")), "broadcast_to": (X, (2, 3, 3)), "clip": (X, 0.5, 2.0), "concat": ((X, X),),
    "cross": (X, X[::-1].copy()), "cumulative_prod": (X[0],), "cumulative_sum": (X[0],), "expand_dims": (X, 0),
    "matrix_power": (X, 3), "moveaxis": (X, 0, 1), "outer": (X[0], X[1]), "permute_dims": (X, (1, 0)), "reshape": (X, (9,)),
    "roll": (X, 1), "searchsorted": (np.sort(X[0]), X), "squeeze": (X[None], 0), "stack": ([X, X],), "take": (X[0], I),
    "take_along_axis": (X, np.argsort(X)), "tile": (X, (2, 1)), "where": (X > 1, X, -X),
}  # fmt: skip
NAMESPACES = ((hnp, np), (hnp.linalg, np.linalg), (hnp.fft, np.fft))


def cases() -> list[Any]:
    return [
        pytest.param(getattr(module, name), getattr(numpys, name), id=f"{module.__name__}.{name}")
        for module, numpys in NAMESPACES
        for name in module._FUNCTIONS.names
    ]


def arguments(name: str, function: Any) -> tuple[Any, ...]:
    if name in CALLS:
        return CALLS[name]
    array = I if name.startswith("bitwise") else X
    return (array, array[::-1].copy()) if "x2" in inspect.signature(function).parameters else (array,)


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_same(one, other)
        return
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("function", "numpys"), cases())
def test_function_eager_is_numpys(function: Any, numpys: Any) -> None:
    given = arguments(function.__name__, function)
    found, expected = function(*given), numpys(*given)
    if function.__name__ == "unique_values":
        expected = np.sort(expected)  # NumPy's need not be
    if function.__name__ in ("eigh", "svd"):
        # Vectors are known but for their signs.
        found, expected = map(np.abs, found), map(np.abs, expected)
        found, expected = tuple(found), tuple(expected)
    assert_same(found, expected)


def test_traced_is_part_of_the_program() -> None:
    @hlojit.jit
    def f(x: Any) -> Any:
        y = hnp.sum(hnp.sin(x), axis=0) + hnp.zeros(3) + hnp.fft.fftshift(x, axes=[0])[0]
        y[0] = hnp.max(x)
        return x.__array_namespace__().exp(y)

    expected = np.sin(X).sum(0) + np.fft.fftshift(X, axes=0)[0]
    expected[0] = X.max()
    np.testing.assert_allclose(f(X), np.exp(expected), rtol=1e-12)
    assert "stablehlo.sine" in str(f.lower(X)) and "call" not in str(f.lower(X))


def test_lengths_that_depend_on_values() -> None:
    assert hnp.unique_counts(np.array([3, 1, 3])).counts.tolist() == [1, 2]
    assert hnp.nonzero(I)[0].tolist() == [0, 2]
    assert len(hnp.unique_values(np.array([np.nan, 1, np.nan]))) == 3
    with pytest.raises(hlojit.HlojitError, match="keep the length|must be known|shape"):
        hlojit.jit(lambda x: np.histogram(hnp.unique_values(x)))(X)


@pytest.mark.parametrize("kind", ["f8", "i8", "u1"])
def test_descending_keeps_the_order_of_equals(kind: str) -> None:
    x = np.array([2, 1, 2, 3, 1], kind)
    assert hnp.sort(x, descending=True).tolist() == [3, 2, 2, 1, 1]
    assert hnp.argsort(x, descending=True).tolist() == [3, 0, 2, 1, 4]
    assert hnp.argsort(np.array([[1, 2], [2, 2]]), axis=0, descending=True).tolist() == [[1, 0], [0, 1]]


def test_differences_from_numpy() -> None:
    assert (
        type(hnp.finfo(np.float32).eps) is float
        and hnp.finfo(X).bits == 64
        and hnp.finfo(np.complex64).dtype == np.float32
    )
    assert hnp.iinfo(np.array(1, np.int8)).max == 127
    assert type(hnp.meshgrid(I, I)) is list and type(hnp.broadcast_arrays(I, X)) is list
    assert hnp.fft.fftfreq(4, dtype=np.float32).dtype == np.float32
    assert hnp.diff(I, append=np.array([5])).tolist() == [-2, 1, 4]
    assert hnp.searchsorted(np.array([3, 1, 2]), np.array([2]), sorter=np.array([1, 2, 0])).tolist() == [1]


def test_signatures_hold() -> None:
    with pytest.raises(TypeError):
        hnp.sin(x=X)
    with pytest.raises(TypeError):
        hnp.sum(X, 0)
    with pytest.raises(
        AttributeError, match="not in the array API standard; hlojit.jit takes functions that call numpy.einsum"
    ):
        _ = hnp.einsum
    with pytest.raises(AttributeError, match="did you mean"):
        _ = hnp.linalg.choleski


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_nextafter_under_jit(kind: str) -> None:
    edges = np.array(
        [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, np.finfo(kind).max, np.finfo(kind).smallest_subnormal], kind
    )
    x, y = (each.ravel() for each in np.meshgrid(edges, edges))
    found, expected = hlojit.jit(lambda x, y: np.nextafter(x, y))(x, y), np.nextafter(x, y)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


def test_one_function_for_all_threads() -> None:
    names = hlojit.numpy.compiled.Names("hlojit.numpy", "sin(x, /)\n", np)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(names.function("sin"))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 8 and len(set(map(id, found))) == 1


def test_import_loads_no_tracing() -> None:
    code = "import sys, hlojit.numpy as hnp; hnp.float32, hnp.zeros(3); assert 'hlojit.tracing' not in sys.modules; hnp.sin"
    subprocess.run([sys.executable, "-c", code], check=True)
