"""The source of a function, if it is certain: what is found must compile to the very code that the function has.

So a file that was changed since it was imported, or code that something else than its text made (pytest's assertions), is left
alone instead of being rewritten from another text.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, TypeAlias, final

from hlojit.tracing.rewriting.parsing import parsed

FunctionNode: TypeAlias = ast.FunctionDef | ast.Lambda

_FUTURE: Final = 0x1FE0000
"""The flags of code that ``from __future__ import`` sets, which ``compile`` takes."""


class NoSource(Exception):
    """Why the source of a function is not known."""


@final
@dataclass(frozen=True)
class Source:
    """The text of a function."""

    node: FunctionNode
    class_name: str
    """Of the innermost class around it, or empty."""
    lines: Sequence[str]
    flags: int


def source_of(code: CodeType, variables: dict[str, Any]) -> Source:
    """The source of code; ``variables`` are the globals of its function.  Raises ``NoSource``."""
    reason = ""
    for refresh in (False, True):
        if refresh:
            linecache.checkcache(code.co_filename)
        lines = linecache.getlines(code.co_filename, variables)
        if not lines:
            raise NoSource(f"the source {code.co_filename} is not there")
        try:
            return _found(code, lines)
        except NoSource as error:
            reason = str(error)
    raise NoSource(reason)


def _found(code: CodeType, lines: Sequence[str]) -> Source:
    flags = code.co_flags & _FUTURE
    text = "".join(lines)
    try:
        compiled = compile(text, code.co_filename, "exec", flags, dont_inherit=True)
        tree = parsed(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise NoSource(f"the source {code.co_filename} cannot be read ({error})") from None
    if not any(each == code and each.co_qualname == code.co_qualname for each in codes(compiled)):
        raise NoSource(_why_another(code))
    candidates = [
        (node, class_name) for node, class_name in _functions(tree, "") if _first_line(node) == code.co_firstlineno
    ]
    matching = sorted([each for each in candidates if _is(each[0], code)], key=lambda each: _size(each[0]))
    # Of lambdas inside each other the innermost that holds all of the code; beside each other, none.
    if not matching or any(matching[0][0] not in ast.walk(other) for other, _ in matching[1:]):
        raise NoSource(f"line {code.co_firstlineno} of {code.co_filename} has several functions that it may be")
    node, class_name = matching[0]
    return Source(node, class_name, lines, flags)


def _why_another(code: CodeType) -> str:
    if any(name.startswith("@py") for name in (*code.co_names, *code.co_varnames)):
        return "pytest has changed the assert statements of its module; put it in a module that is not a test"
    return f"the source in {code.co_filename} is not what it was compiled from (was the file changed since?)"


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code and that of all functions and classes inside of it."""
    stack = [code]
    while stack:
        each = stack.pop()
        yield each
        stack.extend(constant for constant in each.co_consts if isinstance(constant, CodeType))


def _functions(tree: ast.AST, class_name: str) -> Iterator[tuple[FunctionNode, str]]:
    """All functions, with the class that they are in."""
    stack = [(tree, class_name)]
    while stack:
        node, inside = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            yield node, inside
        inside = node.name if isinstance(node, ast.ClassDef) else inside
        stack.extend((child, inside) for child in ast.iter_child_nodes(node))


def _first_line(node: FunctionNode) -> int:
    """Where code says that it begins: at the first decorator."""
    decorators = getattr(node, "decorator_list", ())
    return min([node.lineno, *[each.lineno for each in decorators]])


def _is(node: FunctionNode, code: CodeType) -> bool:
    """Whether a function on the right line may be the one with this code."""
    if not isinstance(node, ast.Lambda):
        return node.name == code.co_name
    if code.co_name != "<lambda>":
        return False
    return all(_inside(span, node.body) for span in code.co_positions())


def _inside(span: tuple[int | None, ...], body: ast.expr) -> bool:
    """Whether an instruction is written in an expression, as far as that is known."""
    line, end_line, column, end_column = span
    if line is None or end_line is None or column is None or end_column is None or (column, end_column) == (0, 0):
        return True
    assert body.end_lineno is not None and body.end_col_offset is not None
    first, last = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    return first <= (line, column) and (end_line, end_column) <= last


def _size(node: FunctionNode) -> tuple[int, int]:
    """For two of which one is inside of the other: the inner one is smaller."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.end_lineno - node.lineno, node.end_col_offset - node.col_offset
