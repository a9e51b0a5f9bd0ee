"""The cursor over the text: tokens by regular expression, positions, and errors with a caret.

There is no token list: a token is matched where the parser stands, so that a constant of many megabytes is one step and
costs no memory beyond its data.

>>> cursor = Cursor("%a = stablehlo.abs")
>>> cursor.take(SSA_NAME), cursor.accept("="), cursor.take(KEYWORD)
('%a', True, 'stablehlo.abs')
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from hlojit.ir.errors import ParseError

T = TypeVar("T")

BLANK: Final = re.compile(r"[ \t\r\n]*+(?://[^\n]*+[ \t\r\n]*+)*+")
SSA_NAME: Final = re.compile(r"%[\w$.-]+(?:#[0-9]+)?")
KEYWORD: Final = re.compile(r"[A-Za-z_][\w$.]*")
WORD: Final = re.compile(r"[A-Za-z_]\w*")
SYMBOL: Final = re.compile(r'@(?:[A-Za-z_][\w$.]*|"(?:[^"\\\n]|\\.)*+")')
INTEGER: Final = re.compile(r"-?(?:0x[0-9a-fA-F]+|[0-9]+)")
NUMBER: Final = re.compile(r"-?(?:0x[0-9a-fA-F]+|[0-9]+(?:\.[0-9]*(?:[eE][-+]?[0-9]+)?)?)")
STRING: Final = re.compile(r'"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+"')
BLOCK_NAME: Final = re.compile(r"\^[\w$.-]+")
_SOME_TOKEN: Final = re.compile(r'[%#!@^]?[\w$.#-]+|"[^"\n]{0,30}"?|->|\{-#|.')
_UNESCAPED: Final = re.compile(r"\\([0-9a-fA-F]{2}|.)")
_STRING_OR_BLANKS: Final = re.compile(r'("(?:[^"\\\n]|\\.)*+")|(?:\s|//[^\n]*+)++')
_OPAQUE: Final = re.compile(r'(?:[^<>()\[\]{}"\-/]++|"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+"|->|-|//[^\n]*+|/)++')
_CLOSING: Final = {"<": ">", "(": ")", "[": "]", "{": "}"}

NESTING_LIMIT: Final = 64
"""How deep regions, attributes, types and locations may nest in one another."""

_NAMES: Final = {
    SSA_NAME: "an SSA name such as %0",
    KEYWORD: "a keyword",
    WORD: "a word",
    SYMBOL: "a symbol such as @main",
    INTEGER: "an integer",
    NUMBER: "a number",
    STRING: "a string",
    BLOCK_NAME: "a block label such as ^bb0",
}


class Cursor:
    """A position in the text; every reader takes one and moves it forward.

    ``pos`` always stands on a token, never on blanks or comments.
    """

    def __init__(self, text: str, source_name: str = "<string>"):
        self.text = text
        self.source_name = source_name
        self.pos = 0
        self.depth = 0
        self._line_pos = 0
        self._line = 1
        self.skip_blank()

    def skip_blank(self) -> None:
        """Move over white space and comments."""
        match = BLANK.match(self.text, self.pos)
        assert match is not None
        self.pos = match.end()

    def line_of(self, pos: int) -> int:
        """Line of a position, from 1 (fast when positions grow)."""
        if pos >= self._line_pos:
            self._line += self.text.count("\n", self._line_pos, pos)
        else:
            self._line = self.text.count("\n", 0, pos) + 1
        self._line_pos = pos
        return self._line

    def column_of(self, pos: int) -> int:
        """Column of a position, from 1."""
        return pos - self.text.rfind("\n", 0, pos)

    def error(self, message: str, pos: int | None = None) -> ParseError:
        """The error that ``message`` describes at ``pos`` (the current position if left out)."""
        pos = self.pos if pos is None else pos
        column = self.column_of(pos)
        start = pos - column + 1
        end = self.text.find("\n", pos)
        end = len(self.text) if end < 0 else end
        # Lines can be megabytes long; the caret's column then refers to the cut-out that is shown.
        if end - start > 400:
            line = self.text[max(start, pos - 100) : min(end, pos + 100)]
            error = ParseError(message, source_name=self.source_name, line=self.line_of(pos), column=column)
            shown = pos - max(start, pos - 100)
            error.text = line
            error.args = (f"{error.render().splitlines()[0]}\n  {line}\n  {' ' * shown}^",)
            return error
        text = self.text[start:end].rstrip("\r").replace("\t", " ")
        return ParseError(message, source_name=self.source_name, line=self.line_of(pos), column=column, text=text)

    def fail(self, message: str, pos: int | None = None) -> NoReturn:
        """Raise the error that ``message`` describes."""
        raise self.error(message, pos)

    def found(self) -> str:
        """The token here, as a message quotes it."""
        if self.pos >= len(self.text):
            return "the end of the text"
        match = _SOME_TOKEN.match(self.text, self.pos)
        return repr(match[0][:40]) if match else repr(self.text[self.pos])

    def expected(self, what: str) -> NoReturn:
        """Raise "expected ..., found ..."."""
        self.fail(f"expected {what}, found {self.found()}")

    def at(self, literal: str) -> bool:
        """Whether punctuation stands here."""
        return self.text.startswith(literal, self.pos)

    def accept(self, literal: str) -> bool:
        """Move over punctuation if it stands here."""
        if not self.text.startswith(literal, self.pos):
            return False
        self.pos += len(literal)
        self.skip_blank()
        return True

    def expect(self, literal: str) -> None:
        """Move over punctuation that must stand here."""
        if not self.accept(literal):
            self.expected(repr(literal))

    def peek(self, token: re.Pattern[str]) -> str | None:
        """The token of this kind that stands here, or None."""
        match = token.match(self.text, self.pos)
        return match[0] if match else None

    def take(self, token: re.Pattern[str], what: str = "") -> str:
        """Move over a token of this kind, which must stand here, and return it."""
        match = token.match(self.text, self.pos)
        if match is None:
            self.expected(what or _NAMES.get(token, "a token"))
        self.pos = match.end()
        self.skip_blank()
        return match[0]

    def take_optional(self, token: re.Pattern[str]) -> str | None:
        """Move over a token of this kind if one stands here, and return it."""
        match = token.match(self.text, self.pos)
        if match is None:
            return None
        self.pos = match.end()
        self.skip_blank()
        return match[0]

    def at_word(self, word: str) -> bool:
        """Whether this very word stands here."""
        return self.peek(WORD) == word

    def accept_word(self, word: str) -> bool:
        """Move over a word if it stands here."""
        if not self.at_word(word):
            return False
        self.pos += len(word)
        self.skip_blank()
        return True

    def expect_word(self, word: str) -> None:
        """Move over a word that must stand here."""
        if not self.accept_word(word):
            self.expected(repr(word))

    def integer(self, what: str = "an integer", *, minimum: int = -(1 << 63), maximum: int = (1 << 63) - 1) -> int:
        """Read an integer within bounds."""
        start = self.pos
        text = self.take(INTEGER, what)
        if len(text) > 40:
            self.fail(f"integer out of range: it must lie between {minimum} and {maximum}", start)
        value = int(text, 16) if "x" in text else int(text)
        if not minimum <= value <= maximum:
            self.fail(f"integer {text} out of range: it must lie between {minimum} and {maximum}", start)
        return value

    def integers(self) -> tuple[int, ...]:
        """Read ``[1, 2, 3]``."""
        return tuple(self.items("[", "]", self.integer))

    def string(self) -> str:
        """Read a string and return what it stands for."""
        return unquote(self.take(STRING))

    def symbol(self) -> str:
        """Read ``@name`` or ``@"name"`` and return the name."""
        text = self.take(SYMBOL)[1:]
        return unquote(text) if text.startswith('"') else text

    def items(self, opening: str, closing: str, read: Callable[[], T]) -> list[T]:
        """Read a comma-separated list between brackets."""
        self.expect(opening)
        found: list[T] = []
        if self.accept(closing):
            return found
        found.append(read())
        while self.accept(","):
            found.append(read())
        if not self.accept(closing):
            self.expected(f"',' or {closing!r}")
        return found

    def enter(self) -> None:
        """One level of nesting more; too many are an error, which ends the parse."""
        if self.depth >= NESTING_LIMIT:
            self.fail(f"nesting is deeper than {NESTING_LIMIT} levels")
        self.depth += 1

    def leave(self) -> None:
        """One level of nesting less."""
        self.depth -= 1

    def balanced(self, opening: str = "<") -> str:
        """Move over a bracket and everything to its partner; return the text with both."""
        start = self.pos
        if not self.at(opening):
            self.expected(repr(opening))
        stack: list[str] = []
        pos, text = start, self.text
        while True:
            match = _OPAQUE.match(text, pos)
            pos = match.end() if match else pos
            char = text[pos : pos + 1]
            if char in _CLOSING:
                stack.append(_CLOSING[char])
            elif char and char == stack[-1]:
                stack.pop()
            elif char == '"' or not char:
                self.fail(f"expected {stack[-1]!r} to close this {opening!r}", start)
            else:
                self.fail(f"expected {stack[-1]!r}, found {char!r}", pos)
            pos += 1
            if not stack:
                break
            if len(stack) > 4 * NESTING_LIMIT:
                self.fail("brackets nest too deep", pos)
        self.pos = pos
        self.skip_blank()
        return compact(text[start:pos])


def compact(text: str) -> str:
    """One line without comments, whatever the line breaks of the source (strings are kept as they are)."""
    if "\n" not in text:
        return text
    return _STRING_OR_BLANKS.sub(lambda match: match[1] or " ", text)


def unquote(text: str) -> str:
    """What a string literal with its quotes stands for."""
    body = text[1:-1]
    if "\\" not in body:
        return body
    simple = {"n": b"\n", "t": b"\t", "\\": b"\\", '"': b'"'}
    out = bytearray()
    last = 0
    for match in _UNESCAPED.finditer(body):
        out += body[last : match.start()].encode("utf-8", "surrogatepass")
        escape = match[1]
        out += simple[escape] if escape in simple else bytes.fromhex(escape) if len(escape) == 2 else escape.encode()
        last = match.end()
    out += body[last:].encode("utf-8", "surrogatepass")
    return out.decode("utf-8", "surrogateescape")
