"""Reading locations: ``loc("file.py":3:4)``, names, call sites, fused ones and their aliases."""

from __future__ import annotations

import re
from typing import Final

from hlojit.ir.location import UNKNOWN, CallSiteLocation, FileLocation, FusedLocation, Location, NameLocation
from hlojit.ir.text.lexer import NESTING_LIMIT, Cursor

_DEPTH_LIMIT: Final = 50
_SIZE_LIMIT: Final = 10_000
_ALIAS: Final = re.compile(r"#([\w$.-]+)")
_SIMPLE: Final = re.compile(r'loc\(("[^"\\\n]*")(?:\(#([\w$.-]+)\)|:([0-9]{1,9}):([0-9]{1,9}))?\)')


class LocationReader:
    """Reads locations.  ``aliases`` are the positions of definitions ``#name = loc(...)``, in the order of the text."""

    def __init__(self, cursor: Cursor):
        self.cursor = cursor
        self.aliases: dict[str, int] = {}
        self.known: dict[str, Location] = {}
        self._resolved = False
        self._level = 0
        self._open: set[str] = set()
        self._measures: dict[int, tuple[int, int, Location]] = {}

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
            if name in self._open:
                cursor.fail(f"alias #{name} refers to itself", self.aliases[name])
            self._open.add(name)
            here, cursor.pos = cursor.pos, self.aliases[name]
            simple = _SIMPLE.match(cursor.text, cursor.pos)
            if simple is not None and (simple[2] is None or simple[2] in self.known):
                found = self._simple(simple)
            else:
                found = self.read()
            self.known[name] = found
            self._open.discard(name)
            cursor.pos = here
        return found

    def _simple(self, match: re.Match[str]) -> Location:
        if match[3] is not None:
            return FileLocation(match[1][1:-1], int(match[3]), int(match[4]))
        return self._named_location(match[1][1:-1], self.known[match[2]] if match[2] is not None else UNKNOWN)

    def _body(self) -> Location:
        # Counted for itself: a location that is printed in full may stand inside many regions.
        self._level += 1
        if self._level > NESTING_LIMIT:
            self.cursor.fail(f"nesting is deeper than {NESTING_LIMIT} levels")
        found = self._read_body()
        self._level -= 1
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
            return self._measured(CallSiteLocation(callee, caller), (callee, caller)) or callee
        if cursor.accept_word("fused"):
            metadata = cursor.balanced("<")[1:-1] if cursor.at("<") else ""
            parts = tuple(cursor.items("[", "]", self._body))
            return self._measured(FusedLocation(parts, metadata), parts) or (parts[0] if parts else UNKNOWN)
        cursor.expected("a location: unknown, callsite, fused, a string or an alias")

    def _named(self) -> Location:
        cursor = self.cursor
        name = cursor.string()
        if cursor.accept(":"):
            return self._position(name)
        if cursor.accept("("):
            child = self._body()
            cursor.expect(")")
            return self._named_location(name, child)
        return NameLocation(name)

    def _named_location(self, name: str, child: Location) -> Location:
        return self._measured(NameLocation(name, child), (child,)) or NameLocation(name)

    def _measured(self, location: Location, parts: tuple[Location, ...]) -> Location | None:
        """The location, or None if it nests too deep or has too many parts: what is outermost then goes.

        Aliases let a few lines stand for chains of any length; all who walk or print locations rely on the bound.
        """
        measures = [self._measures.get(id(part), (1, 1, part)) for part in parts]
        depth = 1 + max((depth for depth, _, _ in measures), default=0)
        size = 1 + sum(size for _, size, _ in measures)
        if depth > _DEPTH_LIMIT or size > _SIZE_LIMIT:
            return None
        # The location itself is kept with its measures, so that its id stays its own.
        self._measures[id(location)] = (depth, size, location)
        return location

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
