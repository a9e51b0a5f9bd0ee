"""What the routines of ``hlojit.lapack`` compute, by SciPy's wrappers of them, one matrix at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from hlojit.ir.ops.definition import Array
from hlojit.ir.types import TensorType

Arrays = Sequence[Array]
NOT_FINITE: Final = -4
"""What JAX's handlers say of matrices whose iterations might not end."""
_ITERATED: Final = frozenset({"geev", "gees", "gesdd", "gesvd"})


def lapack_results(found: Any, types: Sequence[TensorType], arrays: Arrays) -> tuple[Array, ...]:
    """The results of a ``LapackCall``, every matrix by columns."""
    ranks = [_inner_rank(spec) for spec in found.routine.operands]
    parts = [array.reshape(found.batch, *array.shape[array.ndim - rank :]) for array, rank in zip(arrays, ranks)]
    results = [np.zeros(kind.shape, kind.element_type.storage) for kind in types]
    batch_rank = arrays[0].ndim - ranks[0]
    flat = [array.reshape(found.batch, *array.shape[batch_rank:]) for array in results]
    function = _function(found.function)
    for number in range(found.batch):
        # Matrices by columns are their transposes by rows.
        given = [part[number].T if part[number].ndim == 2 else part[number] for part in parts]
        if not given[0].size:
            continue  # SciPy's wrappers pass on a distance of columns that LAPACK complains about
        if found.name in _ITERATED and not np.isfinite(given[0]).all():
            flat[-1][number] = NOT_FINITE
            continue
        for place, value in zip(flat, _RUN[found.name](function, found, given), strict=True):
            place[number] = np.asarray(value).T if np.ndim(value) == 2 else value
    return tuple(results)


def _inner_rank(spec: str) -> int:
    return len(spec.split()) - 1


def _function(name: str) -> Callable[..., Any]:
    import scipy.linalg.blas
    import scipy.linalg.lapack

    found: Callable[..., Any] = getattr(scipy.linalg.lapack, name, None) or getattr(scipy.linalg.blas, name)
    return found


def _potrf(function: Any, call: Any, arrays: Arrays) -> Any:
    return function(arrays[0], lower=call.options["uplo"] == "L", clean=0)


def _getrf(function: Any, call: Any, arrays: Arrays) -> Any:
    factors, pivots, info = function(arrays[0])
    return factors, pivots + 1, info


def _orgqr(function: Any, call: Any, arrays: Arrays) -> Any:
    return (function(arrays[0], arrays[1])[0],)


def _ormqr(function: Any, call: Any, arrays: Arrays) -> Any:
    side = "L" if call.options["left"] else "R"
    transposed = "C" if call.is_complex else "T"
    letter = transposed if call.options["transpose"] else "N"
    return (function(side, letter, *arrays, 64 * max(1, *arrays[2].shape))[0],)


def _gesdd(function: Any, call: Any, arrays: Arrays) -> Any:
    mode = call.options["mode"]
    u, s, vt, info = function(arrays[0], compute_uv=mode != "N", full_matrices=mode == "A")
    if mode == "N":
        d = call.dimensions
        u, vt = np.zeros((d["m"], d["u"]), arrays[0].dtype), np.zeros((d["v"], d["n"]), arrays[0].dtype)
    return np.zeros_like(arrays[0]), s, u, vt, info


def _syevd(function: Any, call: Any, arrays: Arrays) -> Any:
    values, vectors, info = function(
        arrays[0], compute_v=call.options["mode"] == "V", lower=call.options["uplo"] == "L"
    )
    return vectors, values, info


def _geev(function: Any, call: Any, arrays: Arrays) -> Any:
    wanted = {f"compute_v{side[0]}": call.options[f"compute_{side}"] == "V" for side in ("left", "right")}
    *values, left, right, info = function(arrays[0], **wanted)
    if call.is_complex:
        vectors = [left, right]
    else:
        vectors = [_pairs_joined(values[1], packed) for packed in (left, right)]
    order = call.dimensions["n"]
    shaped = [each if each.shape == (order, order) else np.zeros((order, order), each.dtype) for each in vectors]
    return *values, *shaped, info


def _pairs_joined(imaginary: Array, packed: Array) -> Array:
    """Complex eigenvectors, of which conjugate pairs share two real columns."""
    vectors = packed.astype(np.result_type(packed.dtype, np.complex64))
    column = 0
    while column < packed.shape[1]:
        if imaginary[column] == 0 or column + 1 == packed.shape[1]:
            column += 1
            continue
        vectors[:, column] = packed[:, column] + 1j * packed[:, column + 1]
        vectors[:, column + 1] = vectors[:, column].conj()
        column += 2
    return vectors


def _gees(function: Any, call: Any, arrays: Arrays) -> Any:
    form, selected, *values, vectors, _, info = function(
        lambda *_: False, arrays[0], compute_v=call.options["mode"] == "V", sort_t=0
    )
    order = call.dimensions["n"]
    if vectors.shape != (order, order):
        vectors = np.zeros((order, order), arrays[0].dtype)
    return form, vectors, *values, selected, info


def _gehrd(function: Any, call: Any, arrays: Arrays) -> Any:
    return function(arrays[0], lo=call.options["low"] - 1, hi=call.options["high"] - 1)


def _sytrd(function: Any, call: Any, arrays: Arrays) -> Any:
    return function(arrays[0], lower=call.options["uplo"] == "L")


def _gesv(function: Any, call: Any, arrays: Arrays) -> Any:
    factors, pivots, solution, info = function(*arrays)
    return factors, pivots + 1, solution, info


def _gtsv(function: Any, call: Any, arrays: Arrays) -> Any:
    lower, diagonal, upper, sides = arrays
    below, middle, above, solution, info = function(lower[1:], diagonal, upper[:-1], sides)
    return np.append(lower[:1], below), middle, np.append(above, upper[-1:]), solution, info


def _trsm(function: Any, call: Any, arrays: Arrays) -> Any:
    options = call.options
    solution = function(
        1.0,
        *arrays,
        side=options["side"] == "R",
        lower=options["uplo"] == "L",
        trans_a="NTC".index(options["trans_x"]),
        diag=options["diag"] == "U",
    )
    return (solution,)


_RUN: Final[Mapping[str, Callable[[Any, Any, Arrays], Any]]] = {
    "potrf": _potrf,
    "getrf": _getrf,
    "geqrf": lambda function, call, arrays: function(arrays[0])[:2],
    "geqp3": lambda function, call, arrays: function(arrays[0])[:3],
    "orgqr": _orgqr,
    "ormqr": _ormqr,
    "gesdd": _gesdd,
    "gesvd": _gesdd,
    "syevd": _syevd,
    "geev": _geev,
    "gees": _gees,
    "gehrd": _gehrd,
    "sytrd": _sytrd,
    "gesv": _gesv,
    "gtsv": _gtsv,
    "trsm": _trsm,
}
