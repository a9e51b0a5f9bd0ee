"""Which variables may be read behind a statement, and which an iteration hands to the next.

Backwards over the statements that ``jumps.py`` leaves, where every construct has one way out; a ``try``, which may be left
anywhere, is taken to read everything.  Too many variables are no fault here; one that is missing is unbound, so its use is an
error.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import final

from hlojit.tracing.rewriting.jumps import TRIES
from hlojit.tracing.rewriting.protocol import RETURN_VALUE
from hlojit.tracing.rewriting.variables import assigned, read

Names = frozenset[str]


@final
@dataclass
class Liveness:
    """Of one function.  ``always``: variables that others see, which never die."""

    always: Names
    everything: Names
    """All that the function reads anywhere."""
    after: dict[ast.stmt, Names] = field(default_factory=dict)
    """Behind each ``if`` and loop, before the ``else`` of a loop."""
    carried: dict[ast.stmt, Names] = field(default_factory=dict)
    """Where an iteration of a loop begins."""

    def block(self, body: list[ast.stmt], out: Names) -> Names:
        """What is alive before the statements if this is alive behind them."""
        for statement in reversed(body):
            out = self._statement(statement, out)
        return out

    def _statement(self, node: ast.stmt, out: Names) -> Names:
        if isinstance(node, ast.If):
            self.after[node] = out | self.always
            return read([node.test]) | self.block(node.body, out) | self.block(node.orelse, out)
        if isinstance(node, (ast.While, ast.For)):
            return self._loop(node, out)
        if isinstance(node, ast.With):
            # A context manager may swallow an exception, so the body may end anywhere.
            always, self.always = self.always, self.always | out
            inner = self.block(node.body, out)
            self.always = always
            return read(node.items) | inner | out
        if isinstance(node, ast.Match):
            cases = [self.block(case.body, out) for case in node.cases]
            tests = [test for case in node.cases for test in (case.pattern, case.guard) if test is not None]
            return read([node.subject, *tests]).union(out, *cases)
        if isinstance(node, TRIES):
            return self.everything | out
        if isinstance(node, ast.Return):
            return read([node]) | {RETURN_VALUE}
        if isinstance(node, ast.Delete):
            return out | read([node])
        # Behind a ``raise`` that the runtime has noted the function goes on, to no effect.
        return (out - _bound(node)) | read([node])

    def _loop(self, node: ast.While | ast.For, out: Names) -> Names:
        after = self.block(node.orelse, out) | out
        self.after[node] = after | self.always
        head = after
        while True:
            if isinstance(node, ast.While):
                found = head | read([node.test]) | self.block(node.body, head)
            else:
                inside = self.block(node.body, head)
                found = head | read([node.target]) | (inside - _plain(node.target))
            if found == head:
                break
            head = found
        self.carried[node] = head | self.always
        return head if isinstance(node, ast.While) else head | read([node.iter])


def _bound(node: ast.stmt) -> Names:
    """Variables that a simple statement always binds."""
    if isinstance(node, ast.Assign):
        return frozenset().union(*map(_plain, node.targets))
    if isinstance(node, ast.AnnAssign):
        return _plain(node.target) if node.value is not None else frozenset()
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return frozenset(assigned([node]))
    return frozenset()


def _plain(target: ast.expr) -> Names:
    """The variables among what an assignment binds."""
    if isinstance(target, ast.Name):
        return frozenset((target.id,))
    if isinstance(target, ast.Starred):
        return _plain(target.value)
    if isinstance(target, (ast.Tuple, ast.List)):
        return frozenset().union(*map(_plain, target.elts))
    return frozenset()
