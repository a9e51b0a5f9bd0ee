"""What native code makes of a program's results: writes of arguments, checks, numbers, containers."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, Final, final

import numpy as np
from hlojit.runtime.dispatcher import Words
from hlojit.runtime.layout import GIVE
from hlojit.tracing.calls.containers import LEAF, Structure, is_parted
from hlojit.tracing.calls.outcomes import PLAIN, Form
from hlojit.tracing.calls.pytrees import Registration
from hlojit.tracing.calls.seen import Seen, Unknown

_NUMBERS: Final = tuple(map(np.dtype, (np.bool_, np.int64, np.float64)))


@final
class Giving:
    """Writes the operations that make a call's result."""

    def __init__(self, seen: Seen):
        self.words: Words | None = None
        """None where the result is what the program returns."""
        self.room = 0
        self.results = 1
        self._seen = seen
        self._types = tuple(getattr(seen.executable, "output_types", ()))

    def write(self) -> None:
        """All of them, or one that leaves it to Python."""
        if self._seen.outcome is None and self._seen.result_structure == LEAF:
            return
        self.words = Words(GIVE)
        try:
            self._operations(self.words)
        except Unknown:
            self.words = Words(GIVE)
            self.words.add("python")

    def _operations(self, words: Words) -> None:
        outcome, structure = self._seen.outcome, self._seen.result_structure
        forms = outcome.forms if outcome is not None else (PLAIN,) * _leaf_count(structure)
        writes = outcome.writes if outcome is not None else ()
        own = sum(not form.is_constant for form in forms)
        has_checks = outcome is not None and bool(outcome.checks)
        self.results = own + len(writes) + has_checks
        if self.results != len(self._types):
            raise Unknown
        if has_checks:
            words.add("check", self.results - 1, words.object(np.dtype(np.int32)))
        for number, write in enumerate(writes, own):
            leaf = self._seen.leaves[write.leaf]
            if (self._dtype(number), self._types[number].shape) != (leaf.dtype, leaf.shape):
                raise Unknown
            if not write.is_donated:
                words.add("write", number, write.leaf)
        remaining = iter(forms)
        items = iter(range(own))
        self._value(words, structure, lambda: self._form(words, next(remaining), items))

    def _value(self, words: Words, structure: Structure, leaf: Callable[[], None]) -> None:
        self.room += 1
        if isinstance(structure, str):
            leaf()
            return
        kind, keys, children = structure[:3]
        rest: Any = structure[3] if len(structure) > 3 else ()
        if kind is type(None):
            words.add("constant", words.object(None))
            return
        for child in children:
            self._value(words, child, leaf)
        if kind is tuple or kind is list:
            words.add("tuple" if kind is tuple else "list", len(children))
        elif kind is dict:
            words.add("dict", len(keys), *map(words.object, keys))
        elif kind is OrderedDict or kind is defaultdict:
            argument = words.object(rest[1]) if kind is defaultdict else 0
            words.add("mapping", words.object(kind), argument, len(keys), *map(words.object, keys))
        else:
            self._object(words, structure, rest)

    def _object(self, words: Words, structure: Structure, rest: tuple[Any, ...]) -> None:
        """As ``containers.unflatten`` makes named tuples and objects of registered classes."""
        kind, keys, children = structure[:3]
        if rest and isinstance(rest[0], Registration):
            words.add("tuple", len(children))
            words.add("made", words.object(rest[0].build), words.object(rest[1].value))
        elif is_parted(structure):
            raise Unknown
        elif issubclass(kind, tuple):
            words.add("tuple", len(children))
            words.add("made", words.object(tuple.__new__), words.object(kind))
        else:
            static = rest[1] if rest else ()
            for _, described in static:
                words.add("constant", words.object(described.value))
            self.room += len(static)
            names = (*keys, *(name for name, _ in static))
            words.add(
                "instance", words.object(object.__new__), words.object(kind), len(names), *map(words.object, names)
            )

    def _form(self, words: Words, form: Form, items: Any) -> None:
        if form.is_constant:
            words.add("constant", words.object(form.constant))
            return
        item = next(items)
        if form.order is not None:
            words.add("transposed", item, len(form.order), *form.order)
        elif form.is_python_number:
            dtype = self._dtype(item)
            if dtype not in _NUMBERS:
                raise Unknown
            words.add("number", item, words.object(dtype), _NUMBERS.index(dtype))
        elif form.is_scalar:
            words.add("scalar", item, words.object(self._dtype(item)))
        else:
            words.add("item", item)

    def _dtype(self, item: int) -> np.dtype[Any]:
        element = getattr(self._types[item], "element_type", None)
        dtype = getattr(element, "dtype", None)
        if dtype is None or dtype.hasobject or not dtype.isbuiltin:
            raise Unknown
        return np.dtype(dtype)


def _leaf_count(structure: Structure) -> int:
    if isinstance(structure, str):
        return 1
    return sum(map(_leaf_count, structure[2]))
