"""Iteration spaces: which loop variables walk over a result, and how its index follows from them.

A space starts with one variable a dimension.  Splitting a variable can remove the divisions that a reshape brought;
collapsing two neighbours is possible where every access steps through them as through one.

>>> space = Space.of_shape((8, 16))          # v0 in 0..7, v1 in 0..15
>>> collapsed = collapse(space, [space.root_index[0] * 16 + space.root_index[1]])
>>> collapsed.extents
(128,)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

from hlojit.lowering.index import Index, Quotient, Remainder, delinearized, variable


@final
@dataclass(frozen=True)
class Space:
    """Loop variables from the outermost to the innermost, and the root's index in terms of them.

    ``groups`` gives every variable a class; variables of different classes (kept and reduced) are never collapsed.
    """

    names: tuple[str, ...]
    extents: tuple[int, ...]
    root_index: tuple[Index, ...]
    groups: tuple[int, ...] = ()

    @staticmethod
    def of_shape(shape: Sequence[int], groups: Sequence[int] = (), stem: str = "v") -> Space:
        """One variable for each dimension that is larger than 1."""
        kept = [dimension for dimension, extent in enumerate(shape) if extent != 1]
        names = {dimension: f"{stem}{dimension}" for dimension in kept}
        index = tuple(
            variable(names[dimension], 0, extent - 1) if dimension in names else Index(0)
            for dimension, extent in enumerate(shape)
        )
        groups = groups or (0,) * len(shape)
        return Space(
            tuple(names.values()),
            tuple(shape[dimension] for dimension in kept),
            index,
            tuple(groups[dimension] for dimension in kept),
        )

    def variable(self, position: int) -> Index:
        """The loop variable at a position."""
        return variable(self.names[position], 0, self.extents[position] - 1)

    def replaced(self, position: int, count: int, extents: Sequence[int]) -> tuple[Space, dict[str, Index]]:
        """Replace ``count`` variables from ``position`` on by others that walk over the same elements."""
        old = self.names[position : position + count]
        names = tuple(f"{old[0]}{chr(97 + n)}" for n in range(len(extents)))
        fresh = [variable(name, 0, extent - 1) for name, extent in zip(names, extents)]
        flat = Index(0)
        for extent, one in zip(extents, fresh):
            flat = flat * extent + one
        parts = delinearized(flat, self.extents[position : position + count])
        mapping = dict(zip(old, parts))
        end = position + count
        space = Space(
            self.names[:position] + names + self.names[end:],
            self.extents[:position] + tuple(extents) + self.extents[end:],
            tuple(index.substitute(mapping) for index in self.root_index),
            self.groups[:position] + (self.groups[position],) * len(extents) + self.groups[end:],
        )
        return space, mapping


def _divisions(indices: Iterable[Index]) -> list[Quotient | Remainder]:
    return [atom for index in indices for atom in index.atoms() if isinstance(atom, (Quotient, Remainder))]


def split(space: Space, indices: Sequence[Index]) -> tuple[Space, list[Index]]:
    """Split variables where that removes divisions from the indices."""
    indices = list(indices)
    for _ in range(8):
        present = _divisions(indices)
        if not present:
            break
        better = None
        for position, step in _candidates(space, present):
            extent = space.extents[position]
            changed, mapping = space.replaced(position, 1, (extent // step, step))
            substituted = [index.substitute(mapping) for index in indices]
            if len(_divisions(substituted)) < len(present):
                better = changed, substituted
                break
        if better is None:
            break
        space, indices = better
    return space, indices


def _candidates(space: Space, divisions: Iterable[Quotient | Remainder]) -> list[tuple[int, int]]:
    found: dict[tuple[int, int], None] = {}
    for atom in divisions:
        for term, coefficient in atom.numerator.terms:
            if term.key not in space.names:
                continue
            position = space.names.index(term.key)
            step, rest = divmod(atom.divisor, abs(coefficient))
            if rest == 0 and 1 < step < space.extents[position] and space.extents[position] % step == 0:
                found[position, step] = None
    return list(found)[:16]


def collapse(space: Space, indices: Sequence[Index]) -> Space:
    """Join neighbouring variables of one class that all indices step through as through one."""
    position = len(space.names) - 2
    indices = list(indices)
    while position >= 0:
        if space.groups[position] == space.groups[position + 1] and _joinable(space, position, indices):
            extents = space.extents[position] * space.extents[position + 1]
            space, mapping = space.replaced(position, 2, (extents,))
            indices = [index.substitute(mapping) for index in indices]
        position -= 1
    return space


def _joinable(space: Space, position: int, indices: Sequence[Index]) -> bool:
    outer, inner = space.names[position : position + 2]
    extent = space.extents[position + 1]
    stack = [index for index in indices if outer in index.variables or inner in index.variables]
    while stack:
        index = stack.pop()
        coefficients = {outer: 0, inner: 0}
        for atom, coefficient in index.terms:
            if atom.key in coefficients:
                coefficients[atom.key] = coefficient
            elif outer in atom.variables or inner in atom.variables:
                if not isinstance(atom, (Quotient, Remainder)):
                    return False
                stack.append(atom.numerator)
        if coefficients[outer] != coefficients[inner] * extent:
            return False
    return True
