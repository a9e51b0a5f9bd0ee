"""Derivatives of LAPACK's routines, and of what NumPy makes of several of them.

Formulas are in the terms of matrices by rows; those that LAPACK has by columns are turned on the way in and out.  Sources:
M. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation" (2008); S. Walter and
L. Lehmann, "Algorithmic differentiation of linear algebra functions" (2010); the conventions for symmetric operands are JAX's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from hlojit.ir.attributes import GatherDimensionNumbers
from hlojit.ir.ops.derivatives.kinds import Chosen, Derivative, Pushed, Rewritten, Tangents, number, zeros
from hlojit.ir.ops.derivatives.linear_algebra import adjoint, is_complex, masked, solve, times
from hlojit.ir.ops.derivatives.movement import add_up, padded, sliced
from hlojit.ir.ops.lapack_calls import LapackCall, is_matrix, operand_specs, result_specs, routine_call
from hlojit.ir.ops.layouts import column_major, from_physical, to_physical
from hlojit.ir.ops.row_swaps import row_order
from hlojit.ir.types import tensor

if TYPE_CHECKING:
    from hlojit.ir.blocks import Instruction, Value

Values = Sequence["Value"]


# parts of formulas


def _name(like: Value, real: str, complex_: str = "") -> str:
    """A routine for the elements of a value."""
    element = like.tensor_type.element_type.name
    return {"f32": "s", "f64": "d", "complex<f32>": "c", "complex<f64>": "z"}[element] + (
        complex_ if complex_ and is_complex(like) else real
    )


def _eye(b: Any, like: Value) -> Any:
    """Identity matrices in the shape of others."""
    type = like.tensor_type
    one = b.constant(np.eye(type.shape[-1]), tensor(type.shape[-2:], type.element_type))
    return b.broadcast_in_dim(one, type.shape, (type.rank - 2, type.rank - 1)) if type.rank > 2 else one


def _diagonal(b: Any, value: Value) -> Any:
    return add_up(b, b.multiply(value, _eye(b, value)), [value.tensor_type.rank - 1])


def _columns(b: Any, vector: Value, shape: Sequence[int]) -> Any:
    """A number for each column of matrices."""
    rank = len(shape)
    return b.broadcast_in_dim(vector, tuple(shape), (*range(rank - 2), rank - 1))


def _rows(b: Any, vector: Value, shape: Sequence[int]) -> Any:
    """A number for each row of matrices."""
    return b.broadcast_in_dim(vector, tuple(shape), tuple(range(len(shape) - 1)))


def _as(b: Any, value: Value, like: Value) -> Any:
    """Real numbers as elements of another type."""
    return b.convert(value, like.tensor_type.element_type)


def _real(b: Any, value: Value) -> Any:
    return b.real(value) if is_complex(value) else value


def _without_diagonal(b: Any, differences: Value) -> Any:
    """One over differences; zero on the diagonal, where these are zero."""
    eye = _eye(b, differences)
    return b.subtract(b.divide(number(b, 1.0, eye), b.add(differences, eye)), eye)


def _half_sum(b: Any, value: Value) -> Any:
    """What counts of the tangent of a matrix that is symmetric, of which one triangle is read."""
    return b.multiply(number(b, 0.5, value), b.add(value, adjoint(b, value)))


def _taken(b: Any, value: Value, order: Value) -> Any:
    """Rows of matrices in an order of each."""
    *stack, rows, columns = value.tensor_type.shape
    batch = math.prod(stack)
    numbers = GatherDimensionNumbers((2,), (1,), (0,), (0,), (1,), 2)
    made = b.create(
        "gather",
        [b.reshape(value, (batch, rows, columns)), b.reshape(order, (batch, rows, 1))],
        attributes={"dimension_numbers": numbers, "slice_sizes": (1, 1, columns)},
    ).result
    return b.reshape(made, value.tensor_type.shape)


def _lower_solve(b: Any, a: Value, right: Value, *, unit: bool) -> Any:
    return solve(b, a, right, left_side=True, lower=True, unit=unit, transpose="NO_TRANSPOSE")


# routines: ``rule(b, call, operands, results, tangents)``, matrices by rows

Rule = Callable[[Any, LapackCall, Values, Values, Tangents], Tangents]


def _part(b: Any, value: Value, mask: Any) -> Any:
    """Matrices with zeros where ``mask`` has them."""
    type = value.tensor_type
    kept = b.constant(np.broadcast_to(mask, type.shape[-2:]).astype(bool))
    kept = b.broadcast_in_dim(kept, tensor(type.shape, "i1"), (type.rank - 2, type.rank - 1)) if type.rank > 2 else kept
    return b.select(kept, value, zeros(b, type))


def _strictly_lower(like: Value) -> Any:
    """Ones below the diagonal, in the shape of one of the matrices."""
    rows, columns = like.tensor_type.shape[-2:]
    return np.tri(rows, columns, -1)


def _triangles(b: Any, factors: Value) -> tuple[Any, Any]:
    """Square matrices L and U of LU factors in one matrix, which are those of the identity beyond them."""
    *stack, m, n = factors.tensor_type.shape
    least, none = min(m, n), [0] * (len(stack) + 2)
    parts = []
    for size, shape, mask in ((m, (m, least), np.tri(m, least, -1)), (n, (least, n), 1 - np.tri(least, n, -1))):
        part = _part(b, sliced(b, factors, none, [*stack, *shape]), mask)
        missing = [0] * len(stack) + [size - extent for extent in shape]
        part = padded(b, part, none, missing, none)
        filled = np.arange(size) >= (0 if size is m and mask[0, 0] == 0 else least)
        parts.append(b.add(part, _part(b, _eye(b, part), np.diag(filled))))
    return parts[0], parts[1]


def _lu(b: Any, factors: Value, moved: Value) -> Any:
    """The tangent of LU factors in one matrix, of that of the matrix whose rows are in their order."""
    left, right = _triangles(b, factors)
    inner = _lower_solve(b, left, moved, unit=True)
    inner = solve(b, right, inner, left_side=False, lower=False, unit=False, transpose="NO_TRANSPOSE")
    lower = _strictly_lower(inner)
    return b.add(times(b, left, _part(b, inner, lower)), times(b, _part(b, inner, 1 - lower), right))


def _push_lu(b: Any, call: LapackCall, operands: Values, results: Values, tangents: Tangents) -> Tangents:
    (t,) = tangents
    assert t is not None
    moved = _taken(b, t, row_order(b, results[1], call.dimensions["m"]))
    return [_lu(b, results[0], moved), None, None]


def _push_system(b: Any, call: LapackCall, operands: Values, results: Values, tangents: Tangents) -> Tangents:
    """A dX = dB - dA X, by the factors that are there."""
    factors, pivots, solution, _ = results
    of_matrix, of_sides = tangents
    order = row_order(b, pivots, call.dimensions["n"])
    of_factors = None
    if of_matrix is not None:
        product = times(b, of_matrix, solution)
        of_sides = b.negate(product) if of_sides is None else b.subtract(of_sides, product)
        of_factors = _lu(b, factors, _taken(b, of_matrix, order))
    assert of_sides is not None
    return [of_factors, None, _solved(b, factors, order, of_sides), None]


def _solved(b: Any, factors: Value, order: Value, right: Value) -> Any:
    inner = _lower_solve(b, factors, _taken(b, right, order), unit=True)
    return solve(b, factors, inner, left_side=True, lower=False, unit=False, transpose="NO_TRANSPOSE")


def _push_cholesky(b: Any, call: LapackCall, operands: Values, results: Values, tangents: Tangents) -> Tangents:
    """See ``linear_algebra``; the other triangle is that of the operand."""
    (t,), lower = tangents, call.options["uplo"] == "L"
    assert t is not None
    factor = results[0] if lower else adjoint(b, results[0])
    turned_back = "ADJOINT" if is_complex(t) else "TRANSPOSE"
    inner = solve(b, factor, _half_sum(b, t), left_side=False, lower=True, unit=False, transpose=turned_back)
    inner = masked(b, _lower_solve(b, factor, inner, unit=False), True, 0.5)
    found = times(b, masked(b, factor, True, 1.0), inner)
    mask = np.tri(call.dimensions["n"])
    if lower:
        return [b.add(_part(b, found, mask), _part(b, t, 1 - mask)), None]
    return [b.add(_part(b, adjoint(b, found), mask.T), _part(b, t, 1 - mask.T)), None]


def _push_symmetric(b: Any, call: LapackCall, operands: Values, results: Values, tangents: Tangents) -> Tangents:
    """dw = diag(V^H dA V), dV = V (F * V^H dA V) with one over differences of eigenvalues in F."""
    (t,) = tangents
    vectors, values = results[:2]
    assert t is not None
    if call.options["mode"] == "N":
        options = {**call.options, "mode": "V"}
        name = _name(t, "syevd", "heevd")
        vectors = routine_call(b, name, operands, call.dimensions, options)[0]
    inner = times(b, times(b, adjoint(b, vectors), _half_sum(b, t)), vectors)
    of_values = _real(b, _diagonal(b, inner))
    if call.options["mode"] == "N":
        return [None, of_values, None]
    own = _as(b, values, vectors)
    shape = vectors.tensor_type.shape
    weights = _without_diagonal(b, b.subtract(_columns(b, own, shape), _rows(b, own, shape)))
    return [times(b, vectors, b.multiply(weights, inner)), of_values, None]


def _push_singular(b: Any, call: LapackCall, operands: Values, results: Values, tangents: Tangents) -> Tangents:
    """ds = diag(U^H dA V); of the vectors what is orthogonal to them, by differences of squares of s."""
    (t,), d = tangents, call.dimensions
    assert t is not None
    only_values = call.options["mode"] == "N"
    values, u, vh = results[1:4]
    if only_values:
        sizes = {**d, "u": d["k"], "v": d["k"]}
        _, values, u, vh, _ = routine_call(b, _name(t, "gesdd"), operands, sizes, {"mode": "S"})
    uh, v = adjoint(b, u), adjoint(b, vh)
    inner = times(b, times(b, uh, t), v)
    of_values = _real(b, _diagonal(b, inner))
    if only_values:
        return [None, of_values, None, None, None]
    shape, s = inner.tensor_type.shape, _as(b, values, t)
    across, down = _columns(b, s, shape), _rows(b, s, shape)
    weights = _without_diagonal(b, b.multiply(b.add(across, down), b.subtract(across, down)))
    by_columns, by_rows = b.multiply(inner, across), b.multiply(down, inner)
    turn = b.multiply(weights, b.add(by_columns, adjoint(b, by_columns)))
    if is_complex(t):
        # The phases of pairs of vectors: half of what is imaginary on the diagonal.
        skew = b.multiply(number(b, 0.5, inner), b.subtract(inner, adjoint(b, inner)))
        turn = b.add(turn, b.divide(b.multiply(skew, _eye(b, skew)), across))
    of_u = times(b, u, turn)
    of_v = times(b, v, b.multiply(weights, b.add(by_rows, adjoint(b, by_rows))))
    if d["m"] > d["n"]:
        moved = times(b, t, v)
        rest = b.subtract(moved, times(b, u, times(b, uh, moved)))
        of_u = b.add(of_u, b.divide(rest, _columns(b, s, rest.tensor_type.shape)))
    if d["n"] > d["m"]:
        moved = times(b, adjoint(b, t), u)
        rest = b.subtract(moved, times(b, v, times(b, vh, moved)))
        of_v = b.add(of_v, b.divide(rest, _columns(b, s, rest.tensor_type.shape)))
    return [None, of_values, of_u, adjoint(b, of_v), None]


def _push_eigenvalues(b: Any, call: LapackCall, operands: Values, results: Values, tangents: Tangents) -> Tangents:
    """dw = diag(V^-1 dA V), dV = V (F * V^-1 dA V) and what keeps vectors as long as they are, their largest part real."""
    (t,), n = tangents, call.dimensions["n"]
    assert t is not None
    wants_vectors = call.options["compute_right"] == "V"
    *parts, _, vectors, _ = results
    if not wants_vectors:
        options = {"compute_left": "N", "compute_right": "V"}
        vectors = routine_call(b, _name(t, "geev"), operands, call.dimensions, options)[-2]
    change = t if is_complex(t) else b.complex(t, zeros(b, t.type))
    sizes = {"n": n, "m": n}
    inner = routine_call(b, _name(vectors, "gesv"), [vectors, times(b, change, vectors)], sizes, {})[2]
    of_values = _diagonal(b, inner)
    found: list[Value | None] = [of_values] if is_complex(t) else [b.real(of_values), b.imag(of_values)]
    if not wants_vectors:
        return [*found, None, None, None]
    values = parts[0] if is_complex(t) else b.complex(*parts)
    shape = vectors.tensor_type.shape
    weights = _without_diagonal(b, b.subtract(_columns(b, values, shape), _rows(b, values, shape)))
    turned_vectors = times(b, vectors, b.multiply(weights, inner))
    return [*found, None, _normalized(b, vectors, turned_vectors), None]


def _normalized(b: Any, vectors: Value, change: Value) -> Any:
    """The tangent of vectors whose squares sum up to 1, and whose largest part is real."""
    rank, shape = vectors.tensor_type.rank, vectors.tensor_type.shape
    along = add_up(b, _real(b, b.multiply(b.conj(vectors), change)), [rank - 2])
    change = b.subtract(change, b.multiply(vectors, _columns(b, _as(b, along, vectors), shape)))
    sizes = b.abs(vectors)
    type = sizes.tensor_type
    least = b.constant(0.0, tensor((), type.element_type))
    largest = b.reduce([sizes], [least], b.combiner("maximum", type.element_type), dimensions=(rank - 2,))
    is_real = b.compare(b.imag(vectors), zeros(b, type), "EQ")
    is_largest = b.and_(b.compare(sizes, _columns(b, largest, shape), "EQ"), is_real)
    picked = b.select(is_largest, b.divide(b.imag(change), b.real(vectors)), zeros(b, type))
    count = add_up(b, b.select(is_largest, number(b, 1.0, sizes), zeros(b, type)), [rank - 2])
    phase = b.divide(add_up(b, picked, [rank - 2]), b.maximum(count, number(b, 1.0, count)))
    turn = b.complex(zeros(b, type), _columns(b, phase, shape))
    return b.subtract(change, b.multiply(vectors, turn))


def _triangular(b: Any, i: Instruction) -> Sequence[Value]:
    """``trsm`` as the op that it is."""
    call = LapackCall.of(i)
    a, right = (from_physical(b, value, column_major(value.tensor_type.rank)) for value in i.operands)
    names = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
    options = call.options
    found = solve(
        b,
        a,
        right,
        left_side=options["side"] == "L",
        lower=options["uplo"] == "L",
        unit=options["diag"] == "U",
        transpose=names[str(options["trans_x"])],
    )
    return [to_physical(b, found, column_major(found.tensor_type.rank))]


_RULES: Final[Mapping[str, Rule]] = {
    "getrf": _push_lu,
    "gesv": _push_system,
    "potrf": _push_cholesky,
    "syevd": _push_symmetric,
    "gesdd": _push_singular,
    "gesvd": _push_singular,
    "geev": _push_eigenvalues,
}
_REFLECTORS: Final = (
    "{} gives or takes reflectors, which have no rule of their own; np.linalg.qr in the modes 'reduced', 'complete' of square or "
    "wide matrices, and 'r' has one"
)
_REASONS: Final[Mapping[str, str]] = {
    **{name: _REFLECTORS.format(name) for name in ("geqrf", "geqp3", "orgqr", "ormqr", "gehrd", "sytrd")},
    "gees": "the Schur form is not unique, and has no rule; use np.linalg.eig or eigh",
    "gtsv": "tridiagonal systems have no rule; use np.linalg.solve on the whole matrix",
}


def _pushed(rule: Rule, call: LapackCall) -> Pushed:
    def push(b: Any, i: Instruction, tangents: Tangents) -> Tangents:
        operands = operand_specs(i)
        results = result_specs(i)

        def rows(value: Value, spec: str) -> Value:
            order = column_major(value.tensor_type.rank)
            return from_physical(b, value, order) if is_matrix(spec) else value

        given = [None if t is None else rows(t, spec) for t, spec in zip(tangents, operands)]
        found = rule(b, call, [*map(rows, i.operands, operands)], [*map(rows, i.results, results)], given)
        return [
            to_physical(b, t, column_major(t.tensor_type.rank)) if t is not None and is_matrix(spec) else t
            for t, spec in zip(found, results)
        ]

    return Pushed(push)


def _routine(instruction: Instruction) -> Derivative | str:
    call = LapackCall.of(instruction)
    if call.name == "trsm":
        return Rewritten(_triangular)
    rule = _RULES.get(call.name)
    if rule is None:
        return _REASONS[call.name]
    d = call.dimensions
    if call.options.get("mode") == "A" and d["m"] != d["n"]:
        return "of matrices that are not square only as many singular vectors as values are unique: pass full_matrices=False"
    if call.options.get("compute_left") == "V":
        return "left eigenvectors have no rule; take the right ones of the transposed matrix"
    return _pushed(rule, call)


LAPACK = Chosen(_routine)

# what NumPy makes of several routines: parts of functions with one rule (``hlojit.derivative_of``)


def _r_of_qr(b: Any, q: Value, r: Value, t: Value) -> tuple[Any, Any]:
    """Q^H dQ is skew: its lower triangle is that of Q^H dA R^-1, for A = QR of no more columns than rows."""
    moved = solve(b, r, t, left_side=False, lower=False, unit=False, transpose="NO_TRANSPOSE")
    inner = times(b, adjoint(b, q), moved)
    lower = _part(b, inner, _strictly_lower(inner))
    skew = b.subtract(lower, adjoint(b, lower))
    if is_complex(inner):
        imaginary = b.subtract(inner, b.complex(b.real(inner), zeros(b, b.real(inner).type)))
        skew = b.add(skew, b.multiply(_eye(b, inner), imaginary))
    of_q = b.add(times(b, q, b.subtract(skew, inner)), moved)
    return of_q, times(b, b.subtract(inner, skew), r)


def _push_qr(b: Any, i: Instruction, tangents: Tangents) -> Tangents:
    (t,), q, r = tangents, *i.results[:2]
    assert t is not None
    *stack, rows, columns = t.tensor_type.shape
    none = [0] * (len(stack) + 2)
    if rows >= columns:
        return [*_r_of_qr(b, q, r, t), *[None] * (len(i.results) - 2)]
    # The first columns decide Q; the others of R are Q^H A.
    first = [*stack, rows, rows]
    of_q, of_first = _r_of_qr(b, q, sliced(b, r, none, first), sliced(b, t, none, first))
    starts, limits = [*none[:-1], rows], [*stack, rows, columns]
    rest, of_rest = (sliced(b, value, starts, limits) for value in (i.operands[0], t))
    behind = b.add(times(b, adjoint(b, of_q), rest), times(b, adjoint(b, q), of_rest))
    axis = len(stack) + 1
    of_r = b.create("concatenate", [of_first, behind], attributes={"dimension": axis}).result
    return [of_q, of_r, *[None] * (len(i.results) - 2)]


QR = Pushed(_push_qr)
"""Of ``(a) -> (q, r)``, q with as many columns as r has rows, at most as many as a has."""


def _push_pseudo_inverse(b: Any, i: Instruction, tangents: Tangents) -> Tangents:
    """dP = -P dA P + P P^H dA^H (1 - A P) + (1 - P A) dA^H P^H P (Golub and Pereyra, 1973)."""
    (a,), (t,), p = i.operands, tangents, i.results[0]
    assert t is not None
    back, ph = adjoint(b, t), adjoint(b, p)
    found = b.negate(times(b, times(b, p, t), p))
    beyond = times(b, times(b, p, ph), back)
    found = b.add(found, b.subtract(beyond, times(b, times(b, beyond, a), p)))
    beyond = times(b, back, times(b, ph, p))
    found = b.add(found, b.subtract(beyond, times(b, p, times(b, a, beyond))))
    return [found, *[None] * (len(i.results) - 1)]


PSEUDO_INVERSE = Pushed(_push_pseudo_inverse)
"""Of ``(a) -> (pinv(a))``."""

__all__ = ["LAPACK", "PSEUDO_INVERSE", "QR"]
