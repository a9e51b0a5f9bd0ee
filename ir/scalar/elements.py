"""The protocol for *indexed* rules: the element of a result at an index, from operand elements at other indices.

    def transpose(emitter, instruction, index):
        permutation = instruction.attributes["permutation"]
        source = [None] * len(permutation)
        for position, dimension in enumerate(permutation):
            source[dimension] = index[position]
        return emitter.operand(0, source)

Index expressions are symbolic (constant + multiples of loop variables + divisions + run-time values) and know their
range; they take ``+ - *`` with each other and integers (``*`` with an integer), ``//`` and ``%`` with a positive integer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hlojit.ir.scalar.builder import Scalar, ScalarBuilder

IndexExpression = Any
"""See ``hlojit.lowering.index.Index``."""


class ElementEmitter(Protocol):
    """What an indexed rule may ask of the loop emitter."""

    @property
    def builder(self) -> ScalarBuilder:
        """Where pointwise code goes."""

    def operand(self, number: int, index: Sequence[IndexExpression | int]) -> Scalar:
        """The element of an operand (of the instruction being emitted) in compute form; the index must be in bounds."""

    def index_value(self, index: IndexExpression, kind: str) -> Scalar:
        """The expression as a scalar (a vector of lanes where it depends on the vectorized variable)."""

    def run_time_index(self, value: Scalar, element: Any, low: int, high: int) -> IndexExpression:
        """An integer scalar of an element type, clamped to low <= value <= high, as an index expression."""

    def in_range(self, index: IndexExpression, low: int, high: int) -> Scalar | bool:
        """The condition low <= index < high: True or False where the ranges decide it, otherwise an i1."""

    def guarded(self, condition: Scalar | bool, value: Callable[[], Scalar], otherwise: Callable[[], Scalar]) -> Scalar:
        """``value()`` where the condition holds, ``otherwise()`` elsewhere; memory of the branch not taken is not read."""

    def loop(
        self, extents: Sequence[int], initial: Sequence[Scalar], body: Callable[..., Sequence[Scalar]]
    ) -> tuple[Scalar, ...]:
        """A nest of loops, ``body(indices, carried) -> carried``, for rules that gather several elements (windows)."""

    def region(self, number: int, arguments: Sequence[Scalar]) -> tuple[Scalar, ...]:
        """The pointwise code of one of the instruction's regions (a combiner), inlined."""
