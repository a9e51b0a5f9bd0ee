"""A table by identity whose keys may die.  Codes that are equal (one text in two files) are different keys."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar, final

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@final
class WeakTable(Generic[_Key, _Value]):
    """``table[key] = value`` until the key is collected."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], _Value]] = {}

    def get(self, key: _Key) -> _Value | None:
        """The value of this very object, or None."""
        entry = self._entries.get(id(key))
        return entry[1] if entry is not None and entry[0]() is key else None

    def __setitem__(self, key: _Key, value: _Value) -> None:
        address, entries = id(key), self._entries

        def forget(dead: weakref.ref[Any]) -> None:
            if (entry := entries.get(address)) is not None and entry[0] is dead:
                del entries[address]

        entries[address] = weakref.ref(key, forget), value

    def __len__(self) -> int:
        return len(self._entries)
