"""Random words of keys and counters, element by element: hlojit's own ops, made by ``hlojit.random``.

%0 = "hlojit.threefry32"(%key0, %key1, %high, %low) : (tensor<8xui32>, ..., tensor<8xui32>) -> tensor<8xui32>

``threefry64`` joins both words of Threefry-2x32, the first one above; ``threefry32`` is their exclusive or.  They are ops of
their own so that the twenty rounds fuse with what makes numbers of them: as ops of the graph they are more than a fusion may
hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from hlojit.ir.ops.definition import (
    Array,
    Constraint,
    Cost,
    InferenceRequest,
    OpDefinition,
    Operand,
    Pointwise,
    PointwiseCall,
    ReferenceCall,
    define,
)
from hlojit.ir.ops.pointwise import same_operand_types
from hlojit.ir.ops.random_bits import threefry
from hlojit.ir.ops.random_expansion import THREEFRY_PARITY, THREEFRY_ROTATIONS
from hlojit.ir.ops.rules import OpCall, checked, inferred, operand_tensor
from hlojit.ir.types import TensorType, Type

if TYPE_CHECKING:
    from hlojit.ir.scalar.builder import Scalar, ScalarBuilder

_OPERANDS = ("key0", "key1", "high", "low")


def _takes_words(call: OpCall) -> str | None:
    found = call.operand_types[0]
    if isinstance(found, TensorType) and found.element_type.name == "ui32":
        return None
    return f"key0 must be a tensor of ui32, found {found}"


_RULES = (Constraint("I1", _takes_words), same_operand_types("C1", _OPERANDS))


def _rounds(b: ScalarBuilder, words: Sequence[Scalar]) -> tuple[Scalar, Scalar]:
    """Both words, as ``hlojit.ir.ops.random_expansion.threefry`` makes them of arrays."""

    def number(value: int) -> Scalar:
        return b.constant("i32", value)

    first, second, high, low = words
    keys = (first, second, b.xor(b.xor(first, second), number(THREEFRY_PARITY)))
    x, y = b.add(high, first), b.add(low, second)
    for group in range(5):
        for rotation in THREEFRY_ROTATIONS[group % 2]:
            x = b.add(x, y)
            y = b.xor(b.or_(b.shl(y, number(rotation)), b.lshr(y, number(32 - rotation))), x)
        x = b.add(x, keys[(group + 1) % 3])
        y = b.add(y, b.add(keys[(group + 2) % 3], number(group + 1)))
    return x, y


def _mixed(b: ScalarBuilder, call: PointwiseCall, *words: Scalar) -> Scalar:
    return b.xor(*_rounds(b, words))


def _joined(b: ScalarBuilder, call: PointwiseCall, *words: Scalar) -> Scalar:
    x, y = (b.zext(each, "i64") for each in _rounds(b, words))
    return b.or_(b.shl(x, b.constant("i64", 32)), y)


def _drawn(words: Sequence[Array]) -> tuple[Array, Array]:
    arrays = [np.atleast_1d(each) for each in words]
    found = threefry((arrays[0], arrays[1]), (arrays[2], arrays[3]))
    return found[0].reshape(words[0].shape), found[1].reshape(words[0].shape)


def _mixed_reference(call: ReferenceCall, *words: Array) -> Array:
    x, y = _drawn(words)
    return x ^ y


def _joined_reference(call: ReferenceCall, *words: Array) -> Array:
    x, y = _drawn(words)
    return x.astype(np.uint64) << np.uint64(32) | y.astype(np.uint64)


def _record(
    name: str, element: str, rule: Callable[..., Any], reference: Callable[..., Any], what: str
) -> OpDefinition:
    def infer(request: InferenceRequest) -> Sequence[Type]:
        return [operand_tensor(request, 0).with_element_type(element)]

    return define(
        OpDefinition(
            f"hlojit.{name}",
            operands=tuple(map(Operand, _OPERANDS)),
            infer=checked(_RULES, infer),
            constraints=(*_RULES, inferred("C1")),
            reference=reference,
            syntax="generic",
            lowering=Pointwise(rule),
            cost=Cost.EXPENSIVE,
            summary=what,
        )
    )


THREEFRY32 = _record(
    "threefry32", "ui32", _mixed, _mixed_reference, "The exclusive or of both words of Threefry-2x32, 20 rounds."
)
THREEFRY64 = _record("threefry64", "ui64", _joined, _joined_reference, "Both words of Threefry-2x32, 20 rounds.")
