"""Pieces of source, written as text, at places of the user's source.

statements("TARGET = D.first(ITEM)", node, TARGET=target, D=name("_hlojit_1"), ITEM=node.iter)
"""

from __future__ import annotations

import ast
from typing import Any

from hlojit.tracing.rewriting.parsing import parsed

Piece = ast.expr | list[ast.stmt]


def name(identifier: str) -> ast.Name:
    """A variable that is read; its place is that of what it is put into."""
    return ast.Name(identifier, ast.Load())


def at(place: ast.AST, node: Any) -> Any:
    """The node and what it consists of, placed where ``place`` is."""
    for each in ast.walk(node):
        if "lineno" in each._attributes:
            ast.copy_location(each, place)
    return node


def statements(text: str, place: ast.AST, **pieces: Piece) -> list[ast.stmt]:
    """Statements with names replaced by pieces: a name alone on its line by statements, any other by an expression."""
    filling = _Filling(pieces, place)
    found = [filling.visit(at(place, each)) for each in parsed(text).body]
    flat: list[ast.stmt] = []
    for each in found:
        flat += each if isinstance(each, list) else [each]
    return flat


def expression(text: str, place: ast.AST, **pieces: ast.expr) -> ast.expr:
    """The same for one expression."""
    found = _Filling(pieces, place).visit(at(place, parsed(text, mode="eval").body))
    assert isinstance(found, ast.expr)
    return found


class _Filling(ast.NodeTransformer):
    def __init__(self, pieces: dict[str, Any], place: ast.AST):
        self._pieces = pieces
        self._place = place

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Name) and isinstance(piece := self._pieces.get(node.value.id), list):
            return piece or [at(self._place, ast.Pass())]
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        piece = self._pieces.get(node.id)
        if piece is None:
            return node
        if isinstance(piece, ast.Name) and not hasattr(piece, "lineno"):
            return ast.copy_location(ast.Name(piece.id, node.ctx), self._place)
        return piece
