"""MLIR text as far as suites need it: files into modules, comments away, the body of a function, what stands in brackets.

Nothing here knows an op; what is inside of strings is never taken for anything else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SEPARATOR = re.compile(r"^\s*// -----.*$", re.MULTILINE)
_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*')
_FUNCTION = re.compile(r"func\.func\s+(?:(?:public|private|nested)\s+)?@([\w$.\-]+|\"[^\"]*\")\s*\(")
_ARROW = re.compile(r"\s*->\s*")
_ATTRIBUTES = re.compile(r"\s*attributes\s*")
_BRACE = re.compile(r"\s*\{")
_TYPE_NAME = re.compile(r"!?[\w.]+")
_OPEN, _CLOSE = "([{<", ")]}>"


def split_modules(text: str) -> list[str]:
    """The modules of a file, as ``-split-input-file`` divides it."""
    return _SEPARATOR.split(text)


def without_comments(text: str) -> str:
    return _STRING_OR_COMMENT.sub(lambda match: match[0] if match[0].startswith('"') else "", text)


def closing(text: str, start: int) -> int:
    """The place behind the bracket that closes the one at ``start``; ``->`` is no bracket."""
    depth = 0
    position = start
    while position < len(text):
        character = text[position]
        if character == '"':
            position = after_string(text, position)
            continue
        if character == "-" and text.startswith("->", position):
            position += 2
            continue
        depth += (character in _OPEN) - (character in _CLOSE)
        position += 1
        if depth == 0:
            return position
    raise ValueError(f"a bracket is not closed: {text[start : start + 40]!r}")


def split_list(text: str) -> list[str]:
    """What stands between commas that are in no brackets, without blanks around it."""
    parts, start, position = [], 0, 0
    while position < len(text):
        if text[position] == '"':
            position = after_string(text, position)
        elif text[position] in _OPEN:
            position = closing(text, position)
        elif text.startswith("->", position):
            position += 2
        else:
            if text[position] == ",":
                parts.append(text[start:position].strip())
                start = position + 1
            position += 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def after_string(text: str, start: int) -> int:
    """The place behind the string that begins at ``start``."""
    string = _STRING_OR_COMMENT.match(text, start)
    return string.end() if string else start + 1


@dataclass(frozen=True)
class FunctionText:
    """Where a function stands in a text: ``header`` from ``func.func`` to the brace, ``body`` between the braces."""

    name: str
    start: int
    arguments: str
    results: str
    body: str
    end: int

    def argument_types(self) -> list[str]:
        return [_type_of(argument.partition(":")[2]) for argument in split_list(self.arguments)]

    def argument_names(self) -> list[str]:
        return [argument.partition(":")[0].strip() for argument in split_list(self.arguments)]

    def result_types(self) -> list[str]:
        text = self.results.strip()
        if not text:
            return []
        inner = text[1 : closing(text, 0) - 1] if text.startswith("(") else text
        return [_type_of(part) for part in split_list(inner)]


def _type_of(text: str) -> str:
    """A type without the attributes behind it."""
    text = text.strip()
    opened = text.find("<")
    return text[: closing(text, opened)] if opened >= 0 else text.partition("{")[0].strip()


def functions(text: str) -> list[FunctionText]:
    """The functions of a module with bodies, in order (``text`` without comments)."""
    found = []
    for match in _FUNCTION.finditer(text):
        arguments_end = closing(text, match.end() - 1)
        brace, results = _body_start(text, arguments_end)
        if brace < 0:
            continue
        end = closing(text, brace)
        name = match[1].strip('"')
        found.append(
            FunctionText(
                name, match.start(), text[match.end() : arguments_end - 1], results, text[brace + 1 : end - 1], end
            )
        )
    return found


def _body_start(text: str, position: int) -> tuple[int, str]:
    """The brace that opens a function's body, and the text of its result types; -1 for a declaration."""
    results = ""
    if arrow := _ARROW.match(text, position):
        start = arrow.end()
        position = after_type(text, start)
        results = text[start:position]
    if attributes := _ATTRIBUTES.match(text, position):
        position = closing(text, attributes.end())
    brace = _BRACE.match(text, position)
    return (brace.end() - 1 if brace else -1), results


def after_type(text: str, start: int) -> int:
    """The place behind the type, or the types in brackets, at ``start``."""
    name = _TYPE_NAME.match(text, start)
    position = name.end() if name else start
    return closing(text, position) if position < len(text) and text[position] in "(<" else position


def entry(text: str) -> FunctionText:
    """The function with which a module begins: ``main``, or its first."""
    found = functions(text)
    if not found:
        raise ValueError("the module has no function")
    return next((function for function in found if function.name == "main"), found[0])
