"""What a branch or a loop changes in lists, dictionaries and objects that were there before: contents as variables.

    counts["n"] += 1        # in a branch: counts['n'] is carried out of it, as a variable is
    self.mean += d / n      # in the body of a loop: self.mean is part of its state

A region notes a thing's contents before it is changed for the first time, and puts them back when it ends; what they were at its
end is what the branches are joined of, and what a loop goes on with.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, final

from hlojit.tracing.arrays.storage import View
from hlojit.tracing.calls.guards import is_the_users
from hlojit.tracing.flow.mutations import named_in_frames
from hlojit.tracing.rewriting import Site
from hlojit.tracing.tracer import Tracer

Thing: TypeAlias = list[Any] | dict[Any, Any]
"""A list, a dictionary, or the attributes of an object (``vars(x)``)."""

Contents: TypeAlias = dict[Any, Any]
"""By index, by key, or by name, in their order."""

_ASSIGNING: Final = ("__setattr__", "__delattr__")
_OWN_DESCRIPTORS: Final = frozenset({"__dict__", "__weakref__"})


def thing_of(value: Any) -> Thing | None:
    """What of a value can be noted; None if that is not known, since assignments to it may run code or go elsewhere."""
    if type(value) is list or type(value) is dict:
        return value
    kind, attributes = type(value), getattr(value, "__dict__", None)
    if type(attributes) is not dict or any(getattr(kind, name) is not getattr(object, name) for name in _ASSIGNING):
        return None
    for each in kind.__mro__[:-1]:
        if not is_the_users(each.__module__) or any(_takes_assignments(*member) for member in vars(each).items()):
            return None
    return attributes


def _takes_assignments(name: str, member: Any) -> bool:
    """Whether an attribute of a class is set by a function of its own, or lies in a slot."""
    if isinstance(member, property):
        return member.fset is not None or member.fdel is not None
    return name not in _OWN_DESCRIPTORS and hasattr(type(member), "__set__")


def contents_of(thing: Thing) -> Contents:
    """What is in it now."""
    return dict(enumerate(thing)) if isinstance(thing, list) else dict(thing)


def put(thing: Thing, contents: Mapping[Any, Any]) -> None:
    """Have it hold this."""
    if isinstance(thing, list):
        thing[:] = contents.values()
    else:
        thing.clear()
        thing.update(contents)


@final
class _Kept:
    """An array that a thing held, without keeping it alive: who else sees one decides what may be written."""

    def __init__(self, array: Tracer):
        self._array = weakref.ref(array)
        self._window: View = array.window
        self._context = array.context

    def shows(self, value: Any) -> bool:
        """Whether it is this array."""
        return value is self._array()

    def __call__(self) -> Tracer:
        array = self._array()
        return Tracer(self._window, self._context) if array is None else array


@final
class Entry:
    """One thing that a region changes."""

    def __init__(self, site: Site, thing: Thing, label: str):
        self.site = site
        """Where it is changed first."""
        self.thing = thing
        self.after: Contents = {}
        """What it holds when the region ends."""
        self._label = label
        self._before = {
            key: _Kept(held) if type(held) is Tracer and not held.is_scalar else held
            for key, held in contents_of(thing).items()
        }

    def see(self) -> None:
        """At the end of the region."""
        self.after = contents_of(self.thing)

    def restore(self) -> None:
        """Put back what was there before the region."""
        put(self.thing, {key: held() if type(held) is _Kept else held for key, held in self._before.items()})

    @property
    def name(self) -> str:
        """How messages call it."""
        return self._label.removesuffix(".")

    def slot(self, key: Any) -> str:
        """How messages call one of its contents, and how it is told from all others."""
        return f"{self._label}{key}" if self._label.endswith(".") else f"{self._label}[{key!r}]"

    @property
    def changed(self) -> list[Any]:
        """What of it is another one at the end."""
        return [key for key, held in self.after.items() if not self._is_as_before(key, held)]

    def _is_as_before(self, key: Any, held: Any) -> bool:
        before = self._before.get(key, self)
        return before.shows(held) if type(before) is _Kept else is_same(held, before)


@final
class Journal:
    """The things of outside that a region changes, each as it was before."""

    def __init__(self, labels: dict[int, str]):
        self.entries: dict[int, Entry] = {}
        self._labels = labels

    def note(self, site: Site, value: Any, thing: Thing) -> None:
        """Before it is changed."""
        if id(thing) in self.entries:
            return
        if id(thing) not in self._labels:
            name = named_in_frames(value) or f"a {type(value).__name__}"
            end, taken = "" if value is thing else ".", self._labels.values()
            numbered = (f"{name}{end}" if number == 1 else f"{name} ({number}){end}" for number in itertools.count(1))
            self._labels[id(thing)] = next(each for each in numbered if each not in taken)
        self.entries[id(thing)] = Entry(site, thing, self._labels[id(thing)])

    def restore(self) -> None:
        """When the region has ended."""
        for entry in self.entries.values():
            entry.restore()


def is_same(a: Any, b: Any) -> bool:
    """Whether two values are one object, or constants that nothing tells apart."""
    if a is b:
        return True
    if type(a) is not type(b) or type(a) not in (bool, int, float, complex, str, bytes):
        return False
    return bool(a == b) and repr(a) == repr(b)
