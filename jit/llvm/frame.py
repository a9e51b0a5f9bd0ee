"""A kernel function under construction, whatever runs it: builder, access to memory, and the walk over the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from hlojit.ir.scalar import formats
from hlojit.ir.scalar.builder import Pair, Scalar
from hlojit.llvm.builder import LlvmBuilder, Val, scalars
from hlojit.llvm.vector_access import VectorAccess
from hlojit.lowering.body import Body
from hlojit.lowering.element_forms import is_narrow
from hlojit.lowering.elements import Elements
from hlojit.lowering.index import Index, RunTime
from hlojit.lowering.probe import Facts
from hlojit.lowering.target import Target


class Frame:
    """What emitters of nests share; subclasses open the function and make ``access`` and ``elements``."""

    def __init__(self, target: Target, body: Body, builder: LlvmBuilder):
        self.target = target
        self.body = body
        self.builder = builder
        self.access: VectorAccess
        self.elements: Elements

    def evaluate(self, facts: Facts, known: frozenset[str]) -> None:
        """Compute now what the body will ask for and what depends on the known variables only."""
        for value, index in facts.requested:
            if all(position.variables <= known and self._has_atoms(position) for position in index):
                self.elements.value(value, index)

    def _has_atoms(self, index: Index) -> bool:
        return all(
            not isinstance(atom, RunTime) or self.elements.find(("atom", atom.key)) is not None
            for atom in index.atoms()
        )

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A block whose values do not reach beyond it."""
        with self.elements.scope(), self.access.scope():
            yield

    def loop(self, name: str, start: Val, end: Val, step: int, run: Callable[[Val], None]) -> None:
        """A loop over a variable that carries nothing."""
        loop = self.builder.begin_loop(start, end, step)
        self.access.variables[name] = loop.index
        with self.scope():
            run(loop.index)
        self.builder.end_loop(loop)

    def store_root(self, number: int, index: tuple[Index, ...], scalar: Scalar, *, rounded: bool) -> None:
        """Encode and store an element of a root."""
        root = self.body.roots[number]
        element, self.elements.reader = root.tensor_type.element_type, root.producer
        unchanged = self.elements.unchanged(scalar, element)
        if unchanged is not None:
            scalar = unchanged
        elif is_narrow(element):
            encode = formats.pack if rounded else formats.encode
            scalar = encode(scalars(self.builder), scalar, element)
        buffer = len(self.body.operand_types) + number
        if isinstance(scalar, Pair):
            self.access.store_pair(
                cast(Val, scalar.real), cast(Val, scalar.imag), buffer, self.body.linear(buffer, index)
            )
            return
        self.access.store(cast(Val, scalar), buffer, self.body.linear(buffer, index))
