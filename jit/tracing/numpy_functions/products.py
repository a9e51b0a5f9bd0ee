"""Matrix products and einsum on tracers: all become ``dot_general``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hlojit.ir.attributes import DotDimensionNumbers
from hlojit.ir.graph import Value
from hlojit.tracing.arrays.kinds import common_kind, kind_of
from hlojit.tracing.errors import TracingError
from hlojit.tracing.numpy_functions.rules import extents_of
from hlojit.tracing.operations import Operations
from hlojit.tracing.tracer import Tracer


def common_values(ops: Operations, operands: Sequence[Any]) -> list[Value]:
    """The operands in their common kind."""
    kind = common_kind(map(kind_of, operands), "arrays")
    return [ops.value(operand, kind) for operand in operands]


def dot_general(
    ops: Operations,
    lhs: Value,
    rhs: Value,
    *,
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
    contract: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Value:
    """Result dimensions: batch, those left of lhs, those left of rhs."""
    numbers = DotDimensionNumbers(tuple(batch[0]), tuple(batch[1]), tuple(contract[0]), tuple(contract[1]))
    left = [d for d in range(lhs.tensor_type.rank) if d not in (*batch[0], *contract[0])]
    right = [d for d in range(rhs.tensor_type.rank) if d not in (*batch[1], *contract[1])]
    shape = [lhs.tensor_type.shape[d] for d in (*batch[0], *left)] + [rhs.tensor_type.shape[d] for d in right]
    return ops.builder.create(
        "dot_general",
        [lhs, rhs],
        attributes={"dot_dimension_numbers": numbers},
        result_types=[lhs.tensor_type.with_shape(shape)],
    ).result


def matmul(ops: Operations, a: Any, b: Any) -> Tracer:
    """``numpy.matmul``: stacks of matrices broadcast against each other."""
    lhs, rhs = common_values(ops, [a, b])
    if not lhs.tensor_type.rank or not rhs.tensor_type.rank:
        raise ValueError("matmul: Input operand does not have enough dimensions (has 0); use * to multiply by a number")
    left_vector, right_vector = lhs.tensor_type.rank == 1, rhs.tensor_type.rank == 1
    if lhs.tensor_type.shape[-1] != rhs.tensor_type.shape[0 if right_vector else -2]:
        raise ValueError(f"matmul: shapes {lhs.tensor_type.shape} and {rhs.tensor_type.shape} do not fit together")
    if left_vector or right_vector or rhs.tensor_type.rank == 2:
        contracted = 0 if right_vector else rhs.tensor_type.rank - 2
        if left_vector and rhs.tensor_type.rank > 2:
            return ops.wrap(dot_general(ops, rhs, lhs, contract=((contracted,), (0,))))
        return ops.wrap(dot_general(ops, lhs, rhs, contract=((lhs.tensor_type.rank - 1,), (contracted,))))
    stack = np.broadcast_shapes(lhs.tensor_type.shape[:-2], rhs.tensor_type.shape[:-2])
    lhs = ops.broadcast(lhs, (*stack, *lhs.tensor_type.shape[-2:]))
    rhs = ops.broadcast(rhs, (*stack, *rhs.tensor_type.shape[-2:]))
    rank = len(stack)
    batch = tuple(range(rank))
    return ops.wrap(dot_general(ops, lhs, rhs, batch=(batch, batch), contract=((rank + 1,), (rank,))))


def _require_equal(lhs: Value, rhs: Value, left: int, right: int) -> None:
    """Raise NumPy's error where the dimensions that are summed over differ."""
    shapes = lhs.tensor_type.shape, rhs.tensor_type.shape
    if shapes[0][left] != shapes[1][right]:
        raise ValueError(
            "shapes {} and {} not aligned: {} (dim {}) != {} (dim {})".format(
                *shapes, shapes[0][left], left % len(shapes[0]), shapes[1][right], right % len(shapes[1])
            )
        )


def dot(ops: Operations, a: Any, b: Any) -> Tracer:
    """``numpy.dot``."""
    lhs, rhs = common_values(ops, [a, b])
    if not lhs.tensor_type.rank or not rhs.tensor_type.rank:
        return ops.tracer(np.multiply(ops.wrap(lhs), ops.wrap(rhs)))
    contracted = max(0, rhs.tensor_type.rank - 2)
    _require_equal(lhs, rhs, -1, contracted)
    return ops.wrap(dot_general(ops, lhs, rhs, contract=((lhs.tensor_type.rank - 1,), (contracted,))))


def tensordot(ops: Operations, a: Any, b: Any, axes: Any = 2) -> Tracer:
    """``numpy.tensordot``."""
    lhs, rhs = common_values(ops, [a, b])
    if isinstance(axes, (int, np.integer)):
        rank = lhs.tensor_type.rank
        axes = (tuple(range(rank - axes, rank)), tuple(range(axes)))
    left, right = map(extents_of, axes)
    ranks = lhs.tensor_type.rank, rhs.tensor_type.rank
    if len(left) != len(right):
        raise ValueError("shape-mismatch for sum")
    for axes_of, rank in zip((left, right), ranks):
        if any(not -rank <= axis < rank for axis in axes_of):
            raise IndexError("tuple index out of range")
    left = tuple(axis % ranks[0] for axis in left)
    right = tuple(axis % ranks[1] for axis in right)
    if any(lhs.tensor_type.shape[a] != rhs.tensor_type.shape[b] for a, b in zip(left, right)):
        raise ValueError("shape-mismatch for sum")
    if len(set(left)) < len(left) or len(set(right)) < len(right):
        raise ValueError("repeated axis in tensordot")
    return ops.wrap(dot_general(ops, lhs, rhs, contract=(left, right)))


def outer(ops: Operations, a: Any, b: Any) -> Tracer:
    """``numpy.outer``."""
    lhs, rhs = (ops.tracer(value).reshape(-1) for value in (a, b))
    return ops.tracer(lhs[:, None] * rhs[None, :])


def inner(ops: Operations, a: Any, b: Any) -> Tracer:
    """``numpy.inner``."""
    lhs, rhs = common_values(ops, [a, b])
    if not lhs.tensor_type.rank or not rhs.tensor_type.rank:
        return dot(ops, a, b)
    _require_equal(lhs, rhs, -1, -1)
    return ops.wrap(dot_general(ops, lhs, rhs, contract=((lhs.tensor_type.rank - 1,), (rhs.tensor_type.rank - 1,))))


def vdot(ops: Operations, a: Any, b: Any) -> Tracer:
    """``numpy.vdot``."""
    lhs, rhs = ops.tracer(a).reshape(-1), ops.tracer(b).reshape(-1)
    if lhs.size != rhs.size:
        raise ValueError(f"cannot reshape array of size {rhs.size} into shape ({lhs.size},)")
    return dot(ops, lhs if lhs.dtype.kind != "c" else np.conjugate(lhs), rhs)


def einsum(ops: Operations, subscripts: str, *operands: Any, optimize: Any = True) -> Tracer:
    """``numpy.einsum`` with a subscripts string; operands are combined in the order of NumPy's own path."""
    inputs, output = _parse_subscripts(subscripts, operands)
    view = _einsum_view(ops, ops.tracer(operands[0]), inputs[0], output) if len(operands) == 1 else None
    if view is not None:
        return view
    values = common_values(ops, operands)
    terms = [_take_diagonals(ops, value, term) for value, term in zip(values, inputs)]
    path = np.einsum_path(
        ",".join("".join(term) for _, term in terms) + "->" + output,
        *(np.broadcast_to(np.int8(0), value.tensor_type.shape) for value, _ in terms),
        optimize="optimal" if optimize else False,
    )[0][1:]
    for step in path:
        chosen = [terms.pop(position) for position in sorted(step, reverse=True)]
        needed = set(output).union(*(term for _, term in terms)) if terms else set(output)
        accumulated = chosen.pop()
        while chosen:
            later = set().union(*(term for _, term in chosen[:-1])) | needed
            accumulated = _contract(ops, accumulated, chosen.pop(), later)
        terms.append(_sum_out(ops, accumulated, needed))
    value, term = _sum_out(ops, terms[0], set(output))
    order = [term.index(letter) for letter in output]
    return ops.wrap(ops.value(np.transpose(ops.wrap(value), order)))


def _einsum_view(ops: Operations, source: Tracer, term: str, output: str) -> Tracer | None:
    """What NumPy gives where nothing is summed: a view, of the diagonal if a letter stands twice."""
    if set(term) != set(output):
        return None
    if len(term) == len(output):
        return ops.tracer(np.transpose(source, [term.index(letter) for letter in output]))
    source.window.storage.locked = "np.einsum of one operand gave a view of its diagonal: write into copies only"
    return None


_Term = tuple[Value, str]


def _parse_subscripts(subscripts: str, operands: Sequence[Any]) -> tuple[list[str], str]:
    if not isinstance(subscripts, str):
        raise TracingError("einsum: give the subscripts as a string")
    text = subscripts.replace(" ", "")
    left, arrow, output = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(operands):
        raise TracingError(f"einsum: {subscripts!r} has {len(inputs)} terms for {len(operands)} operands")
    spare = [chr(c) for c in range(ord("A"), ord("Z") + 1) if chr(c) not in text]
    ranks = [len(np.shape(operand)) - len(term.replace("...", "")) for term, operand in zip(inputs, operands)]
    widest = max((rank for term, rank in zip(inputs, ranks) if "..." in term), default=0)
    letters = "".join(spare[:widest])
    inputs = [term.replace("...", letters[widest - rank :] if rank else "") for term, rank in zip(inputs, ranks)]
    if arrow:
        output = output.replace("...", letters)
    else:
        joined = "".join(inputs)
        output = letters + "".join(sorted(c for c in set(joined) if joined.count(c) == 1 and c not in letters))
    return inputs, output


def _take_diagonals(ops: Operations, value: Value, term: str) -> _Term:
    """A letter that stands twice in one term means the diagonal."""
    while len(set(term)) < len(term):
        letter = next(c for c in term if term.count(c) > 1)
        first = term.index(letter)
        second = term.index(letter, first + 1)
        array = ops.tracer(np.diagonal(ops.wrap(value), 0, first, second))
        value, term = array.value, term.replace(letter, "") + letter
    return value, term


def _sum_out(ops: Operations, term: _Term, needed: set[str]) -> _Term:
    value, letters = term
    axes = tuple(position for position, letter in enumerate(letters) if letter not in needed)
    if not axes:
        return term
    return ops.tracer(np.sum(ops.wrap(value), axis=axes, dtype=ops.wrap(value).dtype)).value, "".join(
        letter for letter in letters if letter in needed
    )


def _positions(a: _Term, b: _Term, letters: Sequence[str]) -> tuple[list[int], list[int]]:
    """Where letters stand in both terms."""
    return [a[1].index(letter) for letter in letters], [b[1].index(letter) for letter in letters]


def _contract(ops: Operations, a: _Term, b: _Term, needed: set[str]) -> _Term:
    a = _sum_out(ops, a, needed | set(b[1]))
    b = _sum_out(ops, b, needed | set(a[1]))
    shared = [letter for letter in a[1] if letter in b[1]]
    batch = [letter for letter in shared if letter in needed]
    contracted = [letter for letter in shared if letter not in needed]
    value = dot_general(
        ops,
        a[0],
        b[0],
        batch=_positions(a, b, batch),
        contract=_positions(a, b, contracted),
    )
    rest = [letter for term in (a, b) for letter in term[1] if letter not in shared]
    return value, "".join([*batch, *rest])
