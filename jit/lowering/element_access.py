"""What a walk over elements needs of the machine that the code is for: loads, indices, control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hlojit.ir.scalar.builder import Pair, Scalar, ScalarBuilder
from hlojit.lowering.index import Index


class Access(Protocol):
    """Where a walk's loads, index arithmetic and control flow go."""

    @property
    def builder(self) -> ScalarBuilder:
        """Receives the arithmetic."""

    def load(self, buffer: int, kind: str, linear: Index, condition: Scalar | None) -> Scalar:
        """Element ``linear`` of an operand's buffer; where the condition is false nothing is read and any value given.

        ``kind`` is the kind in memory: ``i1`` for a boolean's byte, ``i8``/``i16`` for the bits of a small float.
        """

    def load_pair(self, buffer: int, kind: str, linear: Index, condition: Scalar | None) -> Pair:
        """Like ``load``, of a buffer of complex numbers: ``linear`` counts pairs, ``kind`` is that of a part."""

    def index_value(self, index: Index, kind: str) -> Scalar:
        """An index as a scalar of an integer kind."""

    def bind(self, key: str, value: Scalar) -> None:
        """Remember the ``i64`` scalar of a run-time atom."""

    def is_uniform(self, condition: Scalar) -> bool:
        """Whether the condition is the same for all lanes, so that a branch may depend on it."""

    def branch(self, condition: Scalar, then: Callable[[], Scalar], otherwise: Callable[[], Scalar]) -> Scalar:
        """``then()`` or ``otherwise()`` by a uniform condition, with real control flow."""

    def loop(
        self, extents: Sequence[int], initial: Sequence[Scalar], body: Callable[..., Sequence[Scalar]]
    ) -> tuple[Scalar, ...]:
        """A nest of loops that carries scalars; ``body(indices, carried)``."""
