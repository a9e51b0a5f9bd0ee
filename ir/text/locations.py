"""Reading locations: ``loc("file.py":3:4)``, names, call sites, fused ones and their aliases."""

from __future__ import annotations

import re
from typing import Final

from hlojit.ir.location import UNKNOWN, CallSiteLocation, FileLocation, FusedLocation, Location, NameLocation
from hlojit.ir.text.lexer import Cursor

_ALIAS: Final = re.compile(r"#([\w$.-]+)")
_SIMPLE: Final = re.compile(r'loc\(("[^"\\\n]*")(?:\(#([\w$.-]+)\)|:(\d{1,9}):(\d{1,9}))?\)')


class LocationReader:
    """Reads locations.  ``aliases`` are the positions of definitions ``#name = loc(...)``, in the order of the text."""

    def __init__(self, cursor: Cursor):
        self.cursor = cursor
        self.aliases: dict[str, int] = {}
        self.known: dict[str, Location] = {}
        self._resolved = False

    def read_optional(self) -> Location | None:
        """Read ``loc(...)`` if one stands here."""
        return self.read() if self.cursor.text.startswith("loc(", self.cursor.pos) else None

    def read(self) -> Location:
        """Read ``loc(...)``."""
        cursor = self.cursor
        cursor.expect_word("loc")
        cursor.expect("(")
        found = self._body()
        cursor.expect(")")
        return found

    def alias(self, name: str, pos: int) -> Location:
        """The location that ``#name`` stands for."""
        found = self.known.get(name)
        if found is not None:
            return found
        if name not in self.aliases:
            self.cursor.fail(f"undefined location alias #{name}", pos)
        if not self._resolved:
            # In the order of the text, so that long chains of call sites, which are printed inner first, nest little.
            self._resolved = True
            for other in self.aliases:
                self._resolve(other)
        return self._resolve(name)

    def _resolve(self, name: str) -> Location:
        found = self.known.get(name)
        if found is None:
            cursor = self.cursor
            here, cursor.pos = cursor.pos, self.aliases[name]
            simple = _SIMPLE.match(cursor.text, cursor.pos)
            if simple is not None and (simple[2] is None or simple[2] in self.known):
                found = self._simple(simple)
            else:
                cursor.enter()
                found = self.read()
                cursor.leave()
            self.known[name] = found
            cursor.pos = here
        return found

    def _simple(self, match: re.Match[str]) -> Location:
        if match[3] is not None:
            return FileLocation(match[1][1:-1], int(match[3]), int(match[4]))
        return NameLocation(match[1][1:-1], self.known[match[2]] if match[2] is not None else UNKNOWN)

    def _body(self) -> Location:
        cursor = self.cursor
        cursor.enter()
        found = self._read_body()
        cursor.leave()
        return found

    def _read_body(self) -> Location:
        cursor = self.cursor
        start = cursor.pos
        alias = cursor.take_optional(_ALIAS)
        if alias is not None:
            return self.alias(alias[1:], start)
        if cursor.accept_word("unknown"):
            return UNKNOWN
        if cursor.at('"'):
            return self._named()
        if cursor.accept_word("callsite"):
            cursor.expect("(")
            callee = self._body()
            cursor.expect_word("at")
            caller = self._body()
            cursor.expect(")")
            return CallSiteLocation(callee, caller)
        if cursor.accept_word("fused"):
            metadata = cursor.balanced("<")[1:-1] if cursor.at("<") else ""
            return FusedLocation(tuple(cursor.items("[", "]", self._body)), metadata)
        cursor.expected("a location: unknown, callsite, fused, a string or an alias")

    def _named(self) -> Location:
        cursor = self.cursor
        name = cursor.string()
        if cursor.accept(":"):
            return self._position(name)
        if cursor.accept("("):
            child = self._body()
            cursor.expect(")")
            return NameLocation(name, child)
        return NameLocation(name)

    def _position(self, file: str) -> Location:
        cursor = self.cursor
        line = self._number("a line")
        cursor.expect(":")
        column = self._number("a column")
        if not cursor.accept_word("to"):
            return FileLocation(file, line, column)
        end_line = line if cursor.at(":") else self._number("a line")
        cursor.expect(":")
        return FileLocation(file, line, column, end_line, self._number("a column"))

    def _number(self, what: str) -> int:
        return self.cursor.integer(what, minimum=0)
