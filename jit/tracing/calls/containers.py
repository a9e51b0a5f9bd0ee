"""Nested containers of arrays: flattening to leaves and building again.

Tuples, lists, dictionaries (keys in insertion order), named tuples, dataclasses and None are containers; anything else
is a leaf.

>>> leaves, structure = flatten({"a": 1, "b": (2, 3)})
>>> leaves
[1, 2, 3]
>>> unflatten(structure, [10, 20, 30])
{'a': 10, 'b': (20, 30)}
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

from hlojit.ir.errors import ArgumentError
from hlojit.tracing.calls.static_arguments import keyed

Structure = Any
"""Hashable description of a container: ``LEAF``, or (kind, keys, children); equal for containers that nothing tells apart."""

LEAF = "leaf"

DEEPEST: Final = 100
"""Levels of containers."""


class Parted:
    """A thing that is made of arrays, for which it stands where results and variables are taken apart."""

    __slots__ = ()

    @abstractmethod
    def parts(self) -> tuple[Any, tuple[Any, ...]]:
        """What is known of it, hashable, and the arrays."""

    @staticmethod
    @abstractmethod
    def of(keys: Any, parts: Sequence[Any]) -> Any:
        """What is made of other arrays."""


def is_parted(structure: Structure) -> bool:
    """Whether it is that of a ``Parted``."""
    return structure != LEAF and issubclass(structure[0], Parted)


class NestingError(ArgumentError):
    """Containers that nest too deep, without an end perhaps."""


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Return the leaves in order and the structure around them; raises ``NestingError``."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, 0)


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """Build the container again around other leaves."""
    return _unflatten(structure, iter(leaves))


def described(structure: Structure) -> str:
    """A structure in the words of a message."""
    if structure == LEAF:
        return "one value"
    kind, _, children = structure[:3]
    return "None" if kind is type(None) else f"a {kind.__name__} of {len(children)}"


def paths(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path as Python would spell it, leaf) in the order of ``flatten``."""
    if tree is None:
        return
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from paths(value, f"{prefix}[{key!r}]")
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        for name, value in zip(tree._fields, tree):
            yield from paths(value, f"{prefix}.{name}")
    elif isinstance(tree, Parted):
        yield from ((prefix, part) for part in tree.parts()[1])
    elif isinstance(tree, (list, tuple)):
        for index, value in enumerate(tree):
            yield from paths(value, f"{prefix}[{index}]")
    elif _is_dataclass(tree):
        for field in dataclasses.fields(tree):
            yield from paths(getattr(tree, field.name), f"{prefix}.{field.name}")
    else:
        yield prefix, tree


def _is_dataclass(tree: Any) -> bool:
    return dataclasses.is_dataclass(tree) and not isinstance(tree, type)


def _flatten(tree: Any, leaves: list[Any], depth: int) -> Structure:
    kind = type(tree)
    if tree is None:
        return (kind, (), ())
    depth += 1
    if depth > DEEPEST:
        raise NestingError(f"containers nest deeper than {DEEPEST} levels, or one holds itself")
    if kind is tuple or kind is list:
        return (kind, len(tree), tuple(_flatten(child, leaves, depth) for child in tree))
    if isinstance(tree, Parted):
        keys, parts = tree.parts()
        return (kind, keys, tuple(_flatten(part, leaves, depth) for part in parts))
    if isinstance(tree, dict):
        children = tuple(_flatten(child, leaves, depth) for child in tree.values())
        if all(type(key) is str for key in tree):
            return (dict, tuple(tree), children)
        # 1 and True are equal, and are different keys of a result.
        return (dict, tuple(tree), children, tuple(map(keyed, tree)))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return (kind, tree._fields, tuple(_flatten(child, leaves, depth) for child in tree))
    if _is_dataclass(tree):
        names = tuple(field.name for field in dataclasses.fields(tree))
        return (kind, names, tuple(_flatten(getattr(tree, name), leaves, depth) for name in names))
    leaves.append(tree)
    return LEAF


def _unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure == LEAF:
        return next(leaves)
    kind, keys, children = structure[:3]
    if kind is type(None):
        return None
    values = [_unflatten(child, leaves) for child in children]
    if kind is tuple or kind is list:
        return kind(values)
    if kind is dict:
        return dict(zip(keys, values))
    if issubclass(kind, Parted):
        return kind.of(keys, values)
    return kind(**dict(zip(keys, values)))
