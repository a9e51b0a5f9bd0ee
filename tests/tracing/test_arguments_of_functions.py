"""Every argument of every NumPy function: unusual values of each do what they do with NumPy, or are refused by name.

The cases are made from NumPy's own signatures, so that a function of the table cannot have an argument that nobody tries.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.functions import FUNCTIONS
from hlojit.tracing.numpy_functions.signatures import signature_of

from .conftest import same

X = np.array([[3.0, -1.5, 2.0], [0.0, 5.5, -6.0]])
INTEGERS = np.array([[3, -1, 2], [0, 5, -6]])
BYTES = np.array([1, 2, 250], np.uint8)
BOOLEANS = np.array([True, False, True])

AXES: list[Any] = [0, 1, -1, 2, -3, (0, 1), (1, 0), (0, 0), (0, -2), (), None, True, 1.0, "x", np.int8(1)]
DTYPES: list[Any] = ["f4", "i4", "c8", "?", float, np.int16, None, "no such"]
ORDERS: list[Any] = ["C", "F", "A", "K", "Q", 1]

VALUES: dict[str, list[Any]] = {
    "axis": AXES, "axes": [None, (1, 0), (0, 0), (0, 5), 1, 0, ((0,), (0,)), ((1,), (1,)), ((0, 1), (0, 1)), ((0, 0), (0, 1)), ((-1,), (-1,))],
    "axis1": [0, 1, -1, 4], "axis2": [0, 1, -1, 4], "dtype": DTYPES, "order": ORDERS, "casting": ["no", "safe", "unsafe", "no such", 3],
    "keepdims": [True, False, 1, np.True_], "ddof": [1, 1.5, -1, 7], "correction": [0, 1, 2.5], "decimals": [0, 1, -1, -2, None, 1.5, True, 20],
    "mode": ["raise", "wrap", "clip", "no such"], "kind": [None, "quicksort", "heapsort", "mergesort", "stable", "no such", 3],
    "stable": [None, True, False], "k": [0, 1, -1, 9, -9], "offset": [0, 1, -1, 9], "subok": [True, False], "device": [None, "cpu", "gpu"],
    "copy": [True, False], "shape": [(3, 2), 6, -1, (2, -1), (4, 2), (), (6,), [2, 3]], "initial": [3, -2.5, None, np.inf, np.array([1.0, 2.0, 3.0])],
    "shift": [0, 1, -7, (1, 1), (1, 2), [2], 1.0], "repeats": [0, 2, [2], [1, 2, 0], [0, 1], -1, 1.5], "reps": [0, 2, (2, 1, 2), [1, 2], -1],
    "indices_or_sections": [1, 2, 3, 0, -1, [1], (0, 2), [1, 5], 1.0], "source": [0, -1, (0, 1), (0, 0), 5], "destination": [0, -1, (0, 1), (0, 0), 5],
    "start": [0, 1, 2, 3, -1], "indices": [[0, 1], [[0], [1]], [-1, 0], [True, False], 0, [7], [], [0.5]], "fill_value": [2, -1.5, True, [1, 2, 3], 300, np.nan],
    "deg": [True, False], "rtol": [0.0, 0.5, -1.0], "atol": [0.0, 2.0, np.inf], "equal_nan": [True, False], "a_min": [0, None, 1.5, 300, [0, 1, 2]],
    "a_max": [4, None, -1.5, -300, [0, 1, 2]], "min": [0, 1.5, None], "max": [4, -1.5, None], "optimize": [True, False, "greedy", "optimal"],
    "pad_width": [0, 1, (1, 2), ((1, 0), (0, 2)), -1, 1.5, {0: 1}, {-1: (1, 2)}, ((1,), (2,)), ((1, 2, 3),)],
    "mean": [0.0, 2.5], "where": [True, False, X > 0, (X > 0)[0], INTEGERS, 1], "x": [1], "y": [2], "condition": [True, [True, False, True]], "array": [], "newshape": [], "like": [],
    "v": [2.0, 3, [1.0, 9.0], X[0], BYTES, True], "side": ["left", "right", "no such", 3], "sorter": [None, [2, 0, 1], [0, 1], [0.0, 1.0, 2.0]],
    "kth": [0, 1, -1, 2, 5, -4, (0, 1), [[0, 1]], 1.0, "x", True], "choices": [[X[0], 7], [1, 2], (X[0], X[1]), [X[:1], X], [BYTES, X[0]], []],
    "src": [1, 1.5, X[0], X[:, :1], X.T, X[None], [1, 2, 3], 1j, True, "x"], "mask": [True, X > 0, INTEGERS, (X > 0)[0], [True], (X > 0).ravel()],
    "ind": [0, [1, 1, -1], [9], [0.5], X > 0], "vals": [1, [7, 8], [], 2.5], "keys": [(X[0],), (INTEGERS, X), [X[0], X[0]], ()], "to": ["i4", float, "no such"],
    "from_": ["f8", np.float32], "bitorder": ["big", "little", "no such"], "count": [None, 3, -3, 40, -99, 0], "q": [0, 1, 0.25, [0.1, 1.0], 30, -1, 101.0, np.float64(0.5)],
    "method": ["linear", "lower", "nearest", "weibull", "no such"], "weights": [None, X], "interpolation": [None, "lower"], "overwrite_input": [False],
    "a1": [2, [1, 2], X], "a2": [2, [1, 2], X], "p": [[1, 3, 2], [2], X, 3.0], "sparse": [True, False], "indexing": ["xy", "ij", "no such"],
    "dims": [(3, 4), (9, 9), (4,), 3], "multi_index": [(BYTES[:2], [0, 1]), ([9, 0], [0, 0]), [[0, 1], [2, 3]], (0, 1)], "bins": [3, 0, -1, 2.5, [0, 1, 2], [2, 1], "auto"],
    "range": [None, (-1, 2), (2, 1), (0, 0), (0, np.inf)], "density": [None, True, False],
    "values": [1, 1.5, [1, 2], [], 1j, X[0], INTEGERS, True],
}  # fmt: skip
"""Unusual values by the name of an argument."""

ARRAYS = frozenset(
    {
        "a",
        "b",
        "m",
        "x1",
        "x2",
        "ary",
        "arr",
        "arrays",
        "tup",
        "val",
        "z",
        "A",
        "array",
        "operands",
        "prototype",
        "args",
        "dst",
    }
)
"""Arguments that are the arrays themselves."""

BASES: dict[Callable[..., Any], tuple[Any, ...]] = {
    np.tensordot: (X, X.T, 1), np.dot: (X, X.T), np.outer: (X[0], X[1]), np.take: (X, [1, 0]), np.take_along_axis: (X, np.array([[0, 1, 0]]), 0),
    np.moveaxis: (X, 0, 1), np.rollaxis: (X, 1), np.swapaxes: (X, 0, 1), np.split: (X, 2), np.array_split: (X, 2), np.roll: (X, 1), np.repeat: (X, 2),
    np.tile: (X, 2), np.full_like: (X, 7), np.pad: (X, 1), np.clip: (X, -1, 2), np.broadcast_to: (X, (2, 2, 3)), np.expand_dims: (X, 0),
    np.reshape: (X, (3, 2)), np.astype: (X, "f4"), np.concatenate: ([X, X],), np.stack: ([X, X],), np.vstack: ([X, X],), np.hstack: ([X, X],),
    np.isclose: (X, X + 1e-9), np.allclose: (X, X), np.einsum: ("ij,ij->i", X, X), np.where: (X > 0, X, 1.0), np.vdot: (X, X), np.inner: (X, X),
    np.searchsorted: (np.array([-1.5, 2.0, 3.0]), X), np.partition: (X, 1), np.argpartition: (X, 1), np.choose: (np.array([0, 1, 1]), [X[0], X[1]]),
    np.copyto: (X, INTEGERS), np.putmask: (X, X > 0, INTEGERS), np.squeeze: (X[:1],), np.result_type: (X, "f4"), np.ravel: (X,), np.shape: (X,), np.ndim: (X,), np.size: (X,),
    np.put: (X, [0, 4], [7, 8]), np.place: (X, X > 0, [7, 8]), np.lexsort: ((X[0], X[1]),), np.can_cast: (X, "f4"), np.packbits: (X > 0,), np.unpackbits: (BYTES,),
    np.nanquantile: (X, 0.3), np.nanpercentile: (X, 30), np.polymul: (X[0], X[1, 1:]), np.roots: (X[0],), np.meshgrid: (X[0], X[1]),
    np.unravel_index: (BYTES[:2], (3, 4)), np.ravel_multi_index: ((BYTES[:2], BYTES[:2]), (3, 4)),
}  # fmt: skip
"""The arguments of a usual call, where it is not one array."""

KEYWORDS: dict[Callable[..., Any], tuple[str, ...]] = {
    np.clip: ("dtype", "casting", "order"),
    np.pad: ("constant_values", "stat_length", "no_such"),
}
"""What functions take as ``**kwargs``."""
KEYWORD_VALUES: dict[str, list[Any]] = {
    "constant_values": [1, (1, 2), ((1, 2), (3, 4)), 2.5],
    "stat_length": [1],
    "no_such": [1],
}


def outcome(function: Callable[..., Any], arguments: Any, options: Any) -> Any:
    """What a call gives: results, or the exception."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return function(*arguments, **options)
    except Exception as error:
        return error


def compare(function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], tried: str) -> bool:
    """The call does in a compiled function what it does with NumPy, or is refused; returns whether it was not refused."""
    arrays = [
        each
        for item in (*arguments, *options.values())
        for each in (item if isinstance(item, list) else [item])
        if isinstance(each, np.ndarray)
    ]

    def call(*given: np.ndarray) -> Any:
        replaced = {id(own): other for own, other in zip(arrays, given)}

        def of(item: Any) -> Any:
            if isinstance(item, list):
                return [replaced.get(id(each), each) for each in item]
            return replaced.get(id(item), item)

        return function(*map(of, arguments), **{name: of(value) for name, value in options.items()})

    theirs_given, ours_given = [each.copy("K") for each in arrays], [each.copy("K") for each in arrays]
    theirs = outcome(call, theirs_given, {})
    ours = outcome(hlojit.jit(call), ours_given, {})
    what = f"np.{function.__name__}, {tried}"
    if isinstance(ours, TracingError):
        assert any(word in str(ours) for word in ("cannot", "must", "depends", "is no dtype")), f"{what}: {ours}"
        return False
    if isinstance(theirs, Exception):
        alike = isinstance(ours, type(theirs)) or (isinstance(ours, IndexError) and isinstance(theirs, IndexError))
        alike = alike or (isinstance(theirs, AttributeError) and isinstance(ours, Exception))
        assert alike, (
            f"{what}: NumPy raises {theirs!r}, a compiled function {'gives ' if not isinstance(ours, Exception) else 'raises '}{ours!r}"
        )
        return True
    assert not isinstance(ours, Exception), f"{what}: NumPy gives {theirs!r}, a compiled function raises {ours!r}"
    if function is np.empty_like:
        ours, theirs = np.zeros_like(ours), np.zeros_like(theirs)
    if function in (np.partition, np.argpartition):
        # Of several orders NumPy gives one.
        ours, theirs = np.sort(ours, axis=None), np.sort(theirs, axis=None)
    pairs = zip(ours, theirs) if isinstance(theirs, (list, tuple)) else [(ours, theirs)]
    try:
        for result, other in pairs:
            if not isinstance(other, np.dtype):
                same(result, other)
        for result, other in zip(ours_given, theirs_given):
            same(result, other)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from None
    return True


def calls(function: Callable[..., Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], str]]:
    """Calls of a function, each with one unusual argument."""
    signature = signature_of(function)
    if signature is None:
        return
    base = BASES.get(function, (X,))
    bound = signature.bind(*base)
    variadic = [each.name for each in signature.parameters.values() if each.kind is each.VAR_POSITIONAL]
    for parameter in signature.parameters.values():
        name = parameter.name
        if name in ARRAYS or name in variadic:
            continue
        if name == "out":
            yield from _calls_with_out(function, base)
            continue
        keyword = parameter.kind is parameter.VAR_KEYWORD
        for each in KEYWORDS.get(function, ()) if keyword else (name,):
            for value in KEYWORD_VALUES[each] if each in KEYWORD_VALUES else VALUES[each]:
                options = dict(bound.arguments)
                options.pop("kwargs", None)
                options[each] = value
                positional = [
                    options.pop(other.name)
                    for other in signature.parameters.values()
                    if other.kind is other.POSITIONAL_ONLY and other.name in options
                ]
                for spread in variadic:
                    positional += options.pop(spread, ())
                yield tuple(positional), options, f"{each}={value!r}"


def _calls_with_out(
    function: Callable[..., Any], base: tuple[Any, ...]
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], str]]:
    result = outcome(function, base, {})
    shapes = [np.shape(result), (*np.shape(result), 1), (1, *np.shape(result))]
    for shape in shapes:
        for dtype in ("f8", "f4", "i8", "i4", "c16", "?") if shape == shapes[0] else ("f8",):
            yield base, {"out": np.zeros(shape, dtype)}, f"out= of {dtype}{list(shape)}"
    yield base, {"out": 3}, "out=3"


OWN = [function for function in FUNCTIONS if function.__module__ == "numpy"]


@pytest.mark.parametrize("function", OWN, ids=lambda function: function.__name__)
def test_unusual_arguments_do_what_they_do_with_numpy(function: Callable[..., Any]) -> None:
    for arguments, options, tried in calls(function):
        compare(function, arguments, options, tried)


def test_other_dtypes() -> None:
    for function in (
        np.sum,
        np.prod,
        np.max,
        np.min,
        np.mean,
        np.std,
        np.var,
        np.any,
        np.ptp,
        np.cumsum,
        np.cumprod,
        np.argmax,
        np.count_nonzero,
    ):
        for array in (
            INTEGERS,
            INTEGERS.astype("i1"),
            BYTES,
            BOOLEANS,
            X.astype("f4"),
            X.astype("f2"),
            X * 1j,
            np.array(2.5),
            np.array(3),
        ):
            if function is np.ptp and array.dtype == np.bool_:
                continue
            for options in ({}, {"axis": 0}, {"axis": -1}):
                compare(function, (array,), options, f"{array.dtype}{list(array.shape)} {options}")


def test_places_and_counts_that_where_decides() -> None:
    for options in ({"axis": 0}, {"axis": 1, "keepdims": True}, {}):
        for mask in (X > 0, (X > 0)[0], (X > 0)[:, :1], X > 99, INTEGERS):
            for function in (np.sum, np.prod, np.any, np.all, np.mean, np.var, np.std):
                compare(function, (X,), {**options, "where": mask}, f"where={mask!r} {options}")
            for function in (np.max, np.min):
                compare(function, (X,), {**options, "where": mask}, f"where={mask!r} {options}")
                compare(
                    function, (X,), {**options, "where": mask, "initial": 1.5}, f"where={mask!r}, initial= {options}"
                )


def test_an_argument_that_a_rule_does_not_know_is_an_error() -> None:
    """Whatever NumPy adds to a signature: no rule takes it by accident."""
    loose = {
        function.__name__
        for function, rule in FUNCTIONS.items()
        if function.__module__ == "numpy"
        and any(each.kind is each.VAR_KEYWORD for each in inspect.signature(rule).parameters.values())
    }
    assert loose <= {"pad"}  # which names what it does not know


def test_rules_read_what_they_declare() -> None:
    for function, rule in FUNCTIONS.items():
        code = inspect.unwrap(rule).__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        read = {
            each.argval
            for each in __import__("dis").get_instructions(code)
            if each.opname.startswith(("LOAD_", "STORE_FAST_LOAD"))
        }
        read = {name for each in read for name in (each if isinstance(each, tuple) else (each,))}
        unread = {name for name in names if name not in read} - {"ops"}
        assert not unread, f"{function.__module__}.{function.__name__} ignores {unread}"


def test_powers_and_logarithms_that_are_whole() -> None:
    powers = np.array([float(f"1e{number}") for number in range(-300, 300)])
    twos = np.ldexp(1.0, np.arange(-1000, 1000))
    whole = np.arange(-1000.0, 1000.0)
    log10, log2, exp2 = hlojit.jit(lambda x, y, z: (np.log10(x), np.log2(y), np.exp2(z)))(powers, twos, whole)
    assert (log10 == np.log10(powers)).all() and (log2 == np.log2(twos)).all() and (exp2 == twos).all()
    few = np.array([1000.0, 8.0, 0.1, 0.25, 0.0, -1.0, np.inf, np.nan], "f4")
    with np.errstate(all="ignore"):
        for ours, theirs in zip(hlojit.jit(lambda x: (np.log10(x), np.log2(x)))(few), (np.log10(few), np.log2(few))):
            same(ours, theirs, ulps=1)
