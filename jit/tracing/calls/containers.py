"""Nested containers of arrays: flattening to leaves and building again.

Tuples, lists, dictionaries (keys in insertion order; also ``OrderedDict`` and ``defaultdict``), named tuples, dataclasses,
objects of registered classes (``hlojit.tracing.calls.pytrees``) and None are containers; anything else is a leaf.

>>> leaves, structure = flatten({"a": 1, "b": (2, 3)})
>>> leaves
[1, 2, 3]
>>> unflatten(structure, [10, 20, 30])
{'a': 10, 'b': (20, 30)}
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from hlojit.arrays import Array
from hlojit.tracing.calls.pytrees import ContainerError, Fields, Registration, attributes_of, cached_names, registered
from hlojit.tracing.calls.static_arguments import keyed

Structure = Any
"""Hashable description of a container: ``LEAF``, or (kind, keys, children) and perhaps what else makes a difference; equal for
containers that nothing tells apart."""

LEAF = "leaf"

Contents = dict[str, Any]

DEEPEST: Final = 100
"""Levels of containers."""
_LEAVES: Final = frozenset({np.ndarray, Array, bool, int, float, complex, str})
"""The commonest, so that nothing else is asked about them."""


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


def is_made_by_users(structure: Structure) -> bool:
    """Whether there are objects in it that are made by functions of whoever registered their classes."""
    if isinstance(structure, str):
        return False
    rest: Any = structure[3] if len(structure) > 3 else ()
    return (bool(rest) and isinstance(rest[0], Registration)) or any(map(is_made_by_users, structure[2]))


class _Opened(NamedTuple):
    """A container, one level of it."""

    kind: type
    keys: Any
    children: Sequence[Any]
    rest: tuple[Any, ...] = ()
    """What else tells it from others."""


class NestingError(ContainerError):
    """Containers that nest too deep, without an end perhaps."""


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Return the leaves in order and the structure around them; raises ``ContainerError``."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, 0)


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """Build the container again around other leaves."""
    return _unflatten(structure, iter(leaves))


def static_values(structure: Structure) -> dict[str, Any]:
    """What of objects in containers is static: by the name of class and attribute."""
    if isinstance(structure, str):
        return {}
    found: dict[str, Any] = {}
    for child in structure[2]:
        found |= static_values(child)
    rest = structure[3] if len(structure) > 3 else ()
    for each in rest[1:] if rest and isinstance(rest[0], (Fields, Registration)) else ():
        named = each if isinstance(each, tuple) else (("static", each),)
        found |= {f"{structure[0].__name__}.{name}": static.value for name, static in named}
    return found


def described(structure: Structure) -> str:
    """A structure in the words of a message."""
    if structure == LEAF:
        return "one value"
    kind, _, children = structure[:3]
    return "None" if kind is type(None) else f"a {kind.__name__} of {len(children)}"


def paths(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path as Python would spell it, leaf) in the order of ``flatten``."""
    opened = _opened(tree)
    if opened is None:
        yield prefix, tree
        return
    for step, child in zip(_steps(opened, tree), opened.children, strict=True):
        yield from paths(child, f"{prefix}{step}")


def level(tree: Any) -> tuple[Any, Sequence[Any]] | None:
    """What kind of container it is, and its children, some of which may be leaves; None of a leaf."""
    opened = _opened(tree)
    return None if opened is None else ((opened.kind, opened.keys, *opened.rest), opened.children)


def contents(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any, Contents]]:
    """Everything in containers that can be changed: its path, itself, and what is in it now."""
    opened = _opened(tree)
    if opened is None:
        return
    held = contents_of(tree)
    if held:
        yield prefix, tree, held
    for step, child in zip(_steps(opened, tree), opened.children, strict=True):
        yield from contents(child, f"{prefix}{step}")


def contents_of(thing: Any) -> Contents:
    """What a container holds that can be changed, by how Python spells it: elements and attributes."""
    found: Contents = {}
    if isinstance(thing, dict):
        found |= {f"[{key!r}]": value for key, value in thing.items()}
    elif isinstance(thing, list):
        found |= {f"[{index}]": value for index, value in enumerate(thing)}
    if type(thing) in (list, dict, tuple):
        return found
    return found | {f".{name}": value for name, value in attributes_of(thing).items()}


def changed(thing: Any, before: Contents) -> str | None:
    """Which of its contents is another one than it was; what is only computed once and kept is taken away again."""
    for name in cached_names(type(thing)):
        if f".{name}" not in before:
            vars(thing).pop(name, None)
    now, absent = contents_of(thing), object()
    found = next((each for each in {**before, **now} if now.get(each, absent) is not before.get(each, absent)), None)
    return found if found is not None or list(before) == list(now) else ""


def _steps(opened: _Opened, tree: Any) -> Iterator[str]:
    """How Python would spell the way to each child."""
    if issubclass(opened.kind, Parted):
        yield from ("" for _ in opened.children)
    elif issubclass(opened.kind, dict) and not _is_registered(opened):
        yield from (f"[{key!r}]" for key in opened.keys)
    elif opened.kind in (tuple, list):
        yield from (f"[{index}]" for index in range(len(opened.children)))
    elif _is_registered(opened):
        named = {id(value): name for name, value in reversed(getattr(tree, "__dict__", {}).items())}
        for index, child in enumerate(opened.children):
            yield f".{named[id(child)]}" if id(child) in named else f"<child {index}>"
    else:
        yield from (f".{name}" for name in opened.keys)


def _is_registered(opened: _Opened) -> bool:
    return bool(opened.rest) and isinstance(opened.rest[0], Registration)


def _opened(tree: Any) -> _Opened | None:
    kind = type(tree)
    if kind in _LEAVES:
        return None
    if kind is tuple or kind is list:
        return _Opened(kind, len(tree), tree)
    if tree is None:
        return _Opened(kind, (), ())
    if kind is dict or kind is OrderedDict:
        return _Opened(kind, tuple(tree), list(tree.values()), _rest_of_keys(tree))
    if kind is defaultdict:
        return _Opened(kind, tuple(tree), list(tree.values()), (tuple(map(keyed, tree)), tree.default_factory))
    found = registered(kind)
    if isinstance(found, Registration):
        children, static = found.opened(tree)
        return _Opened(kind, len(children), children, (found, static))
    if found is not None:
        names, values, static_values = found.opened(tree)
        return _Opened(kind, names, values, (found, static_values) if static_values else ())
    if isinstance(tree, Parted):
        keys, parts = tree.parts()
        return _Opened(kind, keys, parts)
    if isinstance(tree, tuple) and hasattr(kind, "_fields") and not getattr(tree, "__dict__", None):
        return _Opened(kind, kind._fields, tuple(tuple.__iter__(tree)))
    return None


def _rest_of_keys(tree: dict[Any, Any]) -> tuple[Any, ...]:
    # 1 and True are equal, and are different keys of a result.
    return () if all(type(key) is str for key in tree) else (tuple(map(keyed, tree)),)


def _flatten(tree: Any, leaves: list[Any], depth: int) -> Structure:
    opened = _opened(tree)
    if opened is None:
        leaves.append(tree)
        return LEAF
    depth += 1
    if depth > DEEPEST and opened.children:
        raise NestingError(f"containers nest deeper than {DEEPEST} levels, or one holds itself")
    children = tuple([_flatten(child, leaves, depth) for child in opened.children])
    structure = (opened.kind, opened.keys, children)
    return (*structure, opened.rest) if opened.rest else structure


def _unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure == LEAF:
        return next(leaves)
    kind, keys, children = structure[:3]
    if kind is type(None):
        return None
    values = [_unflatten(child, leaves) for child in children]
    if kind is tuple or kind is list:
        return kind(values)
    if kind is dict or kind is OrderedDict:
        return kind(zip(keys, values))
    rest: Any = structure[3] if len(structure) > 3 else ()
    if kind is defaultdict:
        return defaultdict(rest[1], zip(keys, values))
    return _object(kind, keys, values, rest)


def _object(kind: Any, keys: Any, values: list[Any], rest: tuple[Any, ...]) -> Any:
    if rest and isinstance(rest[0], Registration):
        return rest[0].build(rest[1].value, tuple(values))
    if issubclass(kind, Parted):
        return kind.of(keys, values)
    if issubclass(kind, tuple):
        # Its own way of being made may take other arguments, and check them.
        return tuple.__new__(kind, values)
    fields = rest[0] if rest else registered(kind)
    assert isinstance(fields, Fields), kind
    return fields.built(keys, values, rest[1] if rest else ())
