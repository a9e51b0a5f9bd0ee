"""JAX's ``tridiagonal_solve(..., perturb_singular=True)``: ``custom_call @tridiagonal_solve_perturbed_ffi``, built of other ops.

Elimination with partial pivoting, and substitution that goes on where a pivot is so small that its quotient would overflow
(LAPACK's ``xLAGTS``): such a pivot is made larger by epsilon times the largest element of U, or by what the quotient needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from hlojit.extensions.calls.custom_calls import ExpansionCall, call_config
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Instruction, Value
from hlojit.ir.ops.lapack_calls import LETTERS
from hlojit.ir.types import TensorType, tensor

TARGET: Final = "tridiagonal_solve_perturbed_ffi"
_PLACE: Final = tensor((), "i64")


def tridiagonal_call() -> ExpansionCall:
    """The custom call, for every back end; as a form, so that a plugin may bind the target to a handler, JAX's for one."""
    return ExpansionCall(f"{TARGET}*", expand=_expand)


def _expand(builder: Any, instruction: Instruction) -> list[Value]:
    complaint = _complaint(instruction)
    if complaint:
        target = instruction.attributes["call_target_name"]
        raise UnsupportedError(f"custom_call @{target}", "", complaint, instruction.location)
    sides = instruction.operands[3]
    *batch, order, columns = sides.tensor_type.shape
    count = int(np.prod(batch, dtype=int))
    if not sides.tensor_type.size:
        return [sides]
    # Rows in front: a step takes one of each system.
    rows = [
        builder.transpose(builder.reshape(each, (count, order)), permutation=(1, 0))
        for each in instruction.operands[:3]
    ]
    right = builder.transpose(builder.reshape(sides, (count, order, columns)), permutation=(1, 0, 2))
    found = _Systems(order, count, columns).solved(builder, rows, right)
    return [builder.reshape(builder.transpose(found, permutation=(1, 0, 2)), sides.tensor_type)]


def _complaint(instruction: Instruction) -> str:
    if instruction.attributes["call_target_name"] != TARGET:
        return f"unknown custom call target; there is {TARGET}"
    kinds = [*instruction.operand_types, *instruction.result_types]
    types = [kind for kind in kinds if isinstance(kind, TensorType) and kind.is_static]
    if len(types) < len(kinds) or len(instruction.operands) != 4 or len(instruction.results) != 1:
        return "it takes three diagonals and right sides of known shapes, and gives the solutions"
    lower, diagonal, upper, sides, result = types
    if sides.element_type.name not in LETTERS.values() or sides.rank < 2:
        return f"the right sides are {sides}"
    wanted = sides.with_shape(sides.shape[:-1])
    if (lower, diagonal, upper, result) != (wanted, wanted, wanted, sides):
        return f"the diagonals of right sides {sides} are {lower}, {diagonal} and {upper}, the result is {result}"
    return f"it has no attributes, not {call_config(instruction)}" if call_config(instruction) else ""


class _Systems:
    """``count`` systems of ``order`` rows, with ``columns`` right sides each."""

    def __init__(self, order: int, count: int, columns: int):
        self.order, self.count, self.columns = order, count, columns

    def solved(self, builder: Any, diagonals: Sequence[Value], right: Value) -> Value:
        """The solutions; rows are the first dimension of everything."""
        lower, diagonal, upper = diagonals
        # What stands behind the last column is not looked at.
        last = builder.slice(upper, start_indices=(0, 0), limit_indices=(self.order - 1, self.count), strides=(1, 1))
        zeros = builder.constant(0, upper.tensor_type.with_shape((1, self.count)))
        upper = builder.concatenate([last, zeros], dimension=0)
        rows, made, size = self._eliminated(builder, (lower, diagonal, upper, right))
        return self._substituted(builder, rows, made, size)

    def _eliminated(self, builder: Any, given: Sequence[Value]) -> tuple[list[Value], Value, Value]:
        """The three diagonals of U, the right sides that go with it, and U's largest element."""
        first = builder.constant(0, _PLACE)
        _, diagonal, upper, right = given
        start = [self._row(builder, each, first) for each in (diagonal, upper, right)]
        nothing = [builder.constant(0, diagonal.tensor_type) for _ in range(3)]
        size = builder.constant(0, builder.abs(start[0]).tensor_type)
        values = builder.while_(
            [first, *start, size, *nothing, builder.constant(0, right.tensor_type), *given],
            lambda inner, place, *_: inner.compare(place, inner.constant(self.order - 1, _PLACE), "LT"),
            self._step,
        )
        pivot, size = values[1], values[4]
        end = builder.constant(self.order - 1, _PLACE)
        rows = [self._with_row(builder, values[5], pivot, end), values[6], values[7]]
        made = self._with_row(builder, values[8], values[3], end)
        return rows, made, builder.maximum(size, builder.abs(pivot))

    def _step(self, b: Any, place: Value, *state: Value) -> list[Value]:
        """The next row less what the current one gives, or the other way round: the larger pivot stays."""
        pivot, beside, right, size, *made = state[:8]
        given = state[8:]
        following = b.add(place, b.constant(1, _PLACE))
        below, diagonal, upper, side = (self._row(b, each, following) for each in given)
        stays = b.compare(b.abs(pivot), b.abs(below), "GE")
        stays_wide = self._wide(b, stays)
        zero = b.constant(0, pivot.tensor_type)
        chosen = [
            (b.select(stays, x, y), b.select(stays, y, x))
            for x, y in ((pivot, below), (beside, diagonal), (zero, upper))
        ]
        kept, other = b.select(stays_wide, right, side), b.select(stays_wide, side, right)
        ratio = b.divide(chosen[0][1], chosen[0][0])
        ratio = b.select(b.compare(chosen[0][0], zero, "EQ"), zero, ratio)
        rest = [b.subtract(y, b.multiply(ratio, x)) for x, y in chosen[1:]]
        other = b.subtract(other, b.multiply(self._wide(b, ratio), kept))
        for x, _ in chosen:
            size = b.maximum(size, b.abs(x))
        stored = [*(x for x, _ in chosen), kept]
        made = [self._with_row(b, array, value, place) for array, value in zip(made, stored, strict=True)]
        return [following, *rest, other, size, *made, *given]

    def _substituted(self, builder: Any, rows: Sequence[Value], right: Value, size: Value) -> Value:
        limits = np.finfo(np.float32 if "f32" in size.tensor_type.element_type.name else np.float64)
        eps = builder.multiply(size, builder.constant(float(limits.eps), size.tensor_type))
        least = builder.maximum(eps, builder.constant(float(limits.tiny), size.tensor_type))
        none = builder.constant(0, right.tensor_type.with_shape((self.count, self.columns)))

        def step(b: Any, place: Value, near: Value, far: Value, found: Value, *held: Value) -> list[Value]:
            pivot, beside, next_but_one, side = (self._row(b, each, place) for each in held[:4])
            total = b.subtract(side, b.multiply(self._wide(b, beside), near))
            total = b.subtract(total, b.multiply(self._wide(b, next_but_one), far))
            quotient = b.divide(total, self._divisor(b, self._wide(b, pivot), total, held[4], limits))
            found = self._with_row(b, found, quotient, place)
            return [b.subtract(place, b.constant(1, _PLACE)), quotient, near, found, *held]

        values = builder.while_(
            [builder.constant(self.order - 1, _PLACE), none, none, right, *rows, right, least],
            lambda inner, place, *_: inner.compare(place, inner.constant(0, _PLACE), "GE"),
            step,
        )
        found: Value = values[3]
        return found

    def _divisor(self, b: Any, pivot: Value, total: Value, least: Value, limits: Any) -> Value:
        """The pivot, or a larger one where the quotient would overflow."""
        size, wanted = b.abs(pivot), b.multiply(b.abs(total), self._constant_like(b, float(limits.tiny), b.abs(total)))
        is_small = b.or_(b.compare(size, wanted, "LT"), b.compare(size, self._constant_like(b, 0.0, size), "EQ"))
        larger = b.maximum(b.add(size, self._wide(b, least)), b.add(wanted, wanted))
        if pivot.type != size.type:
            return b.select(is_small, b.complex(larger, self._constant_like(b, 0.0, size)), pivot)  # type: ignore[no-any-return]
        zero = self._constant_like(b, 0.0, size)
        # By the quotient, which tells the two zeros apart.
        is_negative = b.compare(b.divide(self._constant_like(b, 1.0, size), pivot), zero, "LT")
        return b.select(is_small, b.select(is_negative, b.negate(larger), larger), pivot)  # type: ignore[no-any-return]

    # ---------------------------------------------------------------------------------------------------------- rows

    def _row(self, b: Any, array: Value, place: Value) -> Value:
        shape = array.tensor_type.shape
        starts = [place, *[b.constant(0, _PLACE)] * (len(shape) - 1)]
        found: Value = b.reshape(b.dynamic_slice([array, *starts], slice_sizes=(1, *shape[1:])), shape[1:])
        return found

    def _with_row(self, b: Any, array: Value, row: Value, place: Value) -> Value:
        shape = array.tensor_type.shape
        starts = [place, *[b.constant(0, _PLACE)] * (len(shape) - 1)]
        found: Value = b.dynamic_update_slice([array, b.reshape(row, (1, *shape[1:])), *starts])
        return found

    def _wide(self, b: Any, value: Value) -> Value:
        """For every right side."""
        found: Value = b.broadcast_in_dim(value, (self.count, self.columns), (0,))
        return found

    @staticmethod
    def _constant_like(b: Any, value: float, other: Value) -> Value:
        found: Value = b.constant(value, other.tensor_type)
        return found
