"""Arrays are views of storages: what is written through one of them is seen by all, in the function and by the caller."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing.errors import TracingError

from .conftest import agree

A = np.arange(12.0).reshape(3, 4)
F = np.asfortranarray(A)
C = A + 1j * A[::-1]


def rows_normalized(a: Any) -> Any:
    for row in a:
        row /= row.sum()  # noqa: PLW2901
    return a


def through_a_chain(a: Any) -> Any:
    view = a[1:].T[::2, ::-1]
    view[0] = 7
    view += 1
    other = view[1:]
    other *= 2
    return a + 1, view, other


def by_number(a: Any) -> Any:
    first = a[0]
    number = a[0, 1]
    a[0] = 100
    number += 5
    return first, number, a


def swapped(a: Any) -> Any:
    a[0], a[1] = a[1].copy(), a[0].copy()
    a[:, 1:] = a[:, :-1]
    a[1:] += a[:-1]
    return a


def reshaped(a: Any) -> Any:
    view = a.reshape(2, 6)
    view[0] = 0
    flat = a.ravel()
    flat[-1] = 50
    copied = a.flatten()
    copied[:] = 9
    turned = a.T.ravel()
    turned[:] = 8
    return a, view, flat, copied, turned


def with_out(a: Any) -> Any:
    total = np.zeros_like(a[0])
    np.add(a[0], a[1], out=total)
    np.multiply(total, 2, out=a[2])
    np.exp(a[:, 0], out=a[:, 1], where=a[:, 0] > 0)
    np.subtract(a[0], 1, out=a[0, :])
    return total, a


def parts(a: Any) -> Any:
    a.real[0] = 5
    imaginary = a.imag
    imaginary *= -1
    a.T.imag[1] = 0
    return a, imaginary


def kept(a: Any) -> Any:
    b = a
    b += 1
    c = a * 1
    c += 1
    d = a[()]
    d[0, 0] = -3
    return a, b, c


def squeezed(a: Any) -> Any:
    wide = a[None, :, None]
    narrow = np.squeeze(wide)
    narrow[1] = 4
    np.expand_dims(a, 1)[0] = 3
    np.moveaxis(wide, 0, -1)[2] = 1
    np.swapaxes(a, 0, 1)[3, 0] = 77
    np.rollaxis(a, 1)[0] += 1
    np.flip(a, 0)[0, 0] = 11
    top, bottom = np.split(a, [1])
    top[:] += 100
    bottom.fill(2)
    return a, wide


def bits(a: Any) -> Any:
    seen = a.view(np.int64)
    seen[0, 0] = 0
    seen += 1
    return a, seen


WRITES: list[Callable[..., Any]] = [
    rows_normalized, through_a_chain, by_number, swapped, reshaped, with_out, kept, squeezed, bits,
]  # fmt: skip


@pytest.mark.parametrize("function", WRITES, ids=lambda function: function.__name__)
@pytest.mark.parametrize(
    "array", [A, F, A[:, ::-1], np.arange(24.0).reshape(3, 8)[:, ::2]], ids=["C", "F", "reversed", "gaps"]
)
def test_writes_through_views(function: Callable[..., Any], array: Any) -> None:
    agree(function, array)


def test_parts_of_complex_numbers_are_views() -> None:
    agree(parts, C)


def test_arguments_that_are_written_reach_the_caller() -> None:
    @hlojit.jit
    def step(weights: Any, gradient: Any, rate: float) -> None:
        weights["w"] -= rate * gradient
        weights["b"][0] = 5

    weights = {"w": np.ones(3), "b": np.zeros(2, "f4")}
    kept = dict(weights)
    for _ in range(2):
        step(weights, np.ones(3), 0.25)
    assert weights["w"] is kept["w"] and weights["w"].tolist() == [0.5] * 3 and weights["b"].tolist() == [5, 0]


def test_an_array_given_twice_is_one_array() -> None:
    def both(a: Any, b: Any) -> Any:
        a[0] = 5
        b[1] = a[0] + b[0]
        return a, b

    x, y = np.arange(4.0), np.arange(4.0)
    ours, theirs = hlojit.jit(both)(x, x), both(y, y)
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_array_equal(ours[1], theirs[1])
    np.testing.assert_array_equal(x, y)
    function = hlojit.jit(both)
    function(x, y)
    function(x, x)
    with pytest.raises(hlojit.ArgumentError, match=r"arguments a and b share a part of their memory"):
        function(x, x[::-1])
    with pytest.raises(hlojit.ArgumentError, match=r"arguments a and b share"):
        function(x[1:], x[:-1])
    function(x[::2], x[1::2])


def test_what_cannot_be_written_is_refused_before_anything_runs() -> None:
    @hlojit.jit
    def write(a: Any, b: Any) -> None:
        a[0] = 1
        b[0] = 1

    a, b = np.zeros(2), np.zeros(2)
    b.flags.writeable = False
    with pytest.raises(ValueError, match="assignment destination is read-only: argument b"):
        write(a, b)
    assert not a.any()
    jax_numpy = pytest.importorskip("jax.numpy")
    with pytest.raises(TracingError, match=r"argument a is of type ArrayImpl.*copy: a = a\.copy\(\)"):
        write(jax_numpy.zeros(2), a)
    with pytest.raises(TypeError, match="does not support item assignment"):
        hlojit.jit(write)(3.0, a)


def test_views_that_only_show() -> None:
    def diagonal(a: Any) -> Any:
        seen = np.diagonal(a)
        wide = np.broadcast_to(a[0], (2, 4))
        a[:] = 1
        return seen, wide, np.trace(a)

    agree(diagonal, A)
    for function in (
        lambda a: np.diagonal(a).__setitem__(0, 1),
        lambda a: np.broadcast_to(a, (2, 3, 4)).__setitem__(0, 1),
        lambda a: a.imag.__setitem__(0, 1),
    ):
        with pytest.raises(ValueError, match="read-only"):
            hlojit.jit(function)(A)


def test_casts_of_in_place_operators_are_numpys() -> None:
    i = np.arange(3)
    for function in (lambda a: a.__iadd__(1.5), lambda a: a.__itruediv__(2), lambda a: np.add(a, 1.5, out=a)):
        for each in (function, hlojit.jit(function)):
            with pytest.raises(TypeError, match="Cannot cast ufunc"):
                each(i.copy())

    def wraps(a: Any) -> Any:
        a += 250
        a[0] = 3.9
        return a

    agree(wraps, np.array([1, 200], "u1"))
    agree(lambda a: np.add(a, 1.5, out=a, casting="unsafe"), i)


def test_shapes_of_targets_are_numpys() -> None:
    def assigned(a: Any, b: Any) -> Any:
        a[0] = b[None, None]
        a[[1, 2]] = b[None]
        a[1:, 1] = [1, 2]
        a[2] = [b[0], 1, b[1] * 2, 3]
        return a

    agree(assigned, A, np.arange(4.0))
    for function in (
        lambda a: a.__setitem__(0, a),
        lambda a: np.add(a, a, out=a[0]),
        lambda a: a[0].__iadd__(a),
    ):
        for each in (function, hlojit.jit(function)):
            with pytest.raises((ValueError, TracingError), match="broadcast"):
                each(A.copy())


def test_containers_of_the_caller_are_not_changed_unseen() -> None:
    def grows(xs: list[Any]) -> None:
        xs.append(xs[0])

    def replaces(d: dict[str, Any]) -> None:
        d["w"] = d["w"] - 1

    for function, argument in ((grows, [A]), (replaces, {"w": A})):
        with pytest.raises(TracingError, match="changes a list, dictionary or object that is an argument"):
            hlojit.jit(function)(argument)  # type: ignore[arg-type]

    @hlojit.jit
    def copies(d: dict[str, Any]) -> Any:
        d = dict(d)
        d["w"] = d["w"] - 1
        return d

    np.testing.assert_array_equal(copies({"w": A})["w"], A - 1)


def test_layouts_of_results_are_numpys() -> None:
    for array in (A, F, A[:, ::-1], A[None].T, np.asfortranarray(np.ones((2, 3, 4)))):
        agree(
            lambda a: (a + 1, a.T, a.T + a.T, np.exp(a)[None], a.copy(), a * a[0], np.zeros_like(a), a.astype("f4")),
            array,
        )


# ------------------------------------------------------------------------------------------------- random programs

_VIEWS: list[Callable[[Any, random.Random], Any]] = [
    lambda v, r: v[1:], lambda v, r: v[::-1], lambda v, r: v[..., ::2], lambda v, r: v.T, lambda v, r: v[None],
    lambda v, r: v.reshape(-1), lambda v, r: v.ravel(), lambda v, r: v.reshape(v.shape[::-1]), lambda v, r: np.squeeze(v),
    lambda v, r: v.swapaxes(0, -1), lambda v, r: np.moveaxis(v, 0, -1), lambda v, r: v[r.randrange(v.shape[0])],
    lambda v, r: v.copy(), lambda v, r: v * 2, lambda v, r: v[[0, -1]], lambda v, r: v[..., [0]], lambda v, r: v[:, None],
    lambda v, r: v.flatten(), lambda v, r: np.flip(v), lambda v, r: v + v.T if v.shape == v.T.shape else v + 1,
    lambda v, r: np.concatenate([v, v]), lambda v, r: v.reshape(-1, order="F"), lambda v, r: v.astype(v.dtype, copy=False),
    lambda v, r: np.where(v > 3, v, 0), lambda v, r: np.split(v, [1])[0], lambda v, r: np.sort(v, axis=0),
    lambda v, r: v.cumsum(0), lambda v, r: v.sum(0), lambda v, r: np.clip(v, 0, 50), lambda v, r: np.round(v),
]  # fmt: skip


def _write(v: Any, r: random.Random) -> None:
    match r.randrange(7):
        case 0:
            v[...] = r.randrange(50)
        case 1:
            v += 1
        case 2:
            v[0] = r.randrange(50)
        case 3:
            v[..., -1] -= 2
        case 4:
            v[[0]] = r.randrange(9)
        case 5:
            v[v > 20] = 3
        case 6:
            np.add(v, 1, out=v)


def _program(seed: int) -> Callable[..., Any]:
    def program(*arrays: Any) -> Any:
        r = random.Random(seed)
        known = list(arrays)
        for _ in range(10):
            v = known[r.randrange(len(known))]
            choice = r.randrange(len(_VIEWS) + 14)
            if v.ndim and 0 not in v.shape:
                if choice < len(_VIEWS):
                    made = _VIEWS[choice](v, r)
                    if made.size < 400 and made.ndim < 5:
                        known.append(made)
                else:
                    _write(v, r)
        return tuple(known)

    return program


def _outcome(function: Callable[..., Any], arrays: list[Any]) -> Any:
    try:
        return function(*arrays)
    except (ValueError, IndexError) as error:
        return type(error)


@pytest.mark.parametrize("seed", range(200))
def test_random_programs_of_views_and_writes(seed: int) -> None:
    make = [A, F, A[:, ::-1], np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)]
    arrays = [make[seed % 4].copy("K"), np.arange(6.0)]
    ours, theirs = [each.copy("K") for each in arrays], [each.copy("K") for each in arrays]
    program = _program(seed)
    expected = _outcome(program, theirs)
    try:
        actual = _outcome(hlojit.jit(backend="reference")(program), ours)
    except TracingError as error:
        assert "layout" in str(error) or "lie in one place" in str(error), error
        return
    if isinstance(expected, type):
        assert actual is expected
        return
    assert not isinstance(actual, type), actual
    for mine, other in zip((*actual, *ours), (*expected, *theirs), strict=True):
        assert isinstance(mine, np.generic) == isinstance(other, np.generic)
        np.testing.assert_array_equal(mine, other)
        assert mine.shape == other.shape
