"""``break``, ``continue`` and early ``return`` become variables, so that every ``if`` and loop has one way out.

    for x in xs:                    broken = False
        if x > 3:                   for x in xs:
            break           ->          if x > 3:
        y += x                              broken = True
                                        else:
                                            y += x

What follows a branch that always jumps moves into the other one; elsewhere it runs ``if not flag``.  ``statements.py`` has the
loop end where its flag is true.  What stands in a ``try`` keeps its jumps: the runtime follows nothing in there.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Final, final

from hlojit.tracing.rewriting.plan import HOOKS
from hlojit.tracing.rewriting.protocol import RETURN_VALUE, RETURNED
from hlojit.tracing.rewriting.templates import statements
from hlojit.tracing.rewriting.variables import SCOPES

LOOPS: Final = (ast.While, ast.For)
TRIES: Final = tuple(getattr(ast, each) for each in ("Try", "TryStar") if hasattr(ast, each))

ITEM: Final = "_hlojit_item_"
"""Begins the names of variables that hold what a ``for`` is at, before its target is bound."""

_RETURN: Final = "return"


@final
@dataclass
class Jumps:
    """Of one function; ``flags`` maps its rewritten loops to the variable that says whether they have been left."""

    flags: dict[ast.stmt, str] = field(default_factory=dict)
    dead: set[ast.stmt] = field(default_factory=set)
    """What is never reached, as the source has it."""
    _loops: list[int] = field(default_factory=list)
    _number: int = 0

    def function(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The body of a function without jumps."""
        early = [each for each in _returns(body) if each is not body[-1]]
        if not early:
            last = body[-1]
            if isinstance(last, ast.Return):
                return [*self._block(body[:-1])[0], last]
            return self._block(body)[0]
        if not _always_jumps(body):
            body = [*body, *statements("return None", body[-1])]
        lowered, _ = self._block(body)
        return [
            *statements(f"{RETURNED} = False", body[0]),
            *lowered,
            *statements(f"return {HOOKS}.returned({HOOKS}.locals())", body[-1]),
        ]

    # ------------------------------------------------------------------ blocks

    def _block(self, body: list[ast.stmt]) -> tuple[list[ast.stmt], frozenset[str]]:
        """The statements without jumps, and which jumps they may have made: ``return``, ``break 3``, ``continue 3``."""
        done: list[ast.stmt] = []
        for position, each in enumerate(body):
            statement, rest = each, body[position + 1 :]
            if rest and isinstance(statement, ast.If):
                ends = _always_jumps(statement.body), _always_jumps(statement.orelse)
                if ends == (True, False):
                    statement, rest = _branches(statement, statement.body, [*statement.orelse, *rest]), []
                elif ends == (False, True):
                    statement, rest = _branches(statement, [*statement.body, *rest], statement.orelse), []
            lowered, jumps = self._statement(statement)
            done += lowered
            if not rest:
                return done, jumps
            if _always_jumps([statement]):
                # Never run, but it may make a name a local variable.
                dead = statements("if False:\n    REST", rest[0], REST=rest)
                self.dead.update(dead)
                return [*done, *dead], jumps
            if jumps:
                after, more = self._block(rest)
                test = " or ".join(self._asked(jumps))
                return [*done, *statements(f"if not ({test}):\n    REST", rest[0], REST=after)], jumps | more
        return done, frozenset()

    def _asked(self, jumps: frozenset[str]) -> list[str]:
        """The flags that are true if one of these jumps was made, where the present loop is the innermost."""
        if not self._loops:
            return [RETURNED]
        loop = self._loops[-1]
        flags = {f"_hlojit_{each.replace(' ', '_')}" for each in jumps if each.endswith(f" {loop}")}
        if _RETURN in jumps:
            flags.add(f"_hlojit_break_{loop}")
        return sorted(flags)

    # -------------------------------------------------------------- statements

    def _statement(self, node: ast.stmt) -> tuple[list[ast.stmt], frozenset[str]]:
        if isinstance(node, ast.Return):
            flags = "".join(f"\n_hlojit_break_{loop} = True" for loop in self._loops)
            value = node.value if node.value is not None else ast.copy_location(ast.Constant(None), node)
            lowered = statements(f"{RETURN_VALUE} = VALUE\n{RETURNED} = True{flags}", node, VALUE=value)
            return lowered, frozenset((_RETURN,))
        if isinstance(node, (ast.Break, ast.Continue)):
            jump = f"{'break' if isinstance(node, ast.Break) else 'continue'} {self._loops[-1]}"
            return statements(f"_hlojit_{jump.replace(' ', '_')} = True", node), frozenset((jump,))
        if isinstance(node, ast.If):
            then, first = self._block(node.body)
            otherwise, second = self._block(node.orelse)
            return [_branches(node, then, otherwise)], first | second
        if isinstance(node, (ast.While, ast.For)):
            return self._loop(node)
        if isinstance(node, ast.With):
            body, jumps = self._block(node.body)
            return [ast.copy_location(ast.With(node.items, body, node.type_comment), node)], jumps
        if isinstance(node, ast.Match):
            return self._match(node)
        return [node], frozenset()

    def _match(self, node: ast.Match) -> tuple[list[ast.stmt], frozenset[str]]:
        cases, found = [], frozenset[str]()
        for case in node.cases:
            body, jumps = self._block(case.body)
            cases.append(ast.match_case(case.pattern, case.guard, body))
            found |= jumps
        return [ast.copy_location(ast.Match(node.subject, cases), node)], found

    def _loop(self, node: ast.While | ast.For) -> tuple[list[ast.stmt], frozenset[str]]:
        self._number += 1
        number = self._number
        self._loops.append(number)
        body, jumps = self._block(node.body)
        self._loops.pop()
        flag, skipped = f"_hlojit_break_{number}", f"_hlojit_continue_{number}"
        left = _RETURN in jumps or f"break {number}" in jumps
        if f"continue {number}" in jumps:
            body = [*statements(f"{skipped} = False", node), *body]
        otherwise, more = self._block(node.orelse)
        if left and otherwise:
            otherwise = statements(f"if not {flag}:\n    REST", node.orelse[0], REST=otherwise)
        before = statements(f"{flag} = False", node) if left else []
        loop: ast.stmt
        if isinstance(node, ast.While):
            test = node.test
            if left:
                stay = statements(f"not {flag} and TEST", node.test, TEST=test)[0]
                assert isinstance(stay, ast.Expr)
                test = stay.value
            loop = ast.While(test, body, otherwise)
        else:
            item = f"{ITEM}{number}"
            body = [*statements(f"TARGET = {item}", node.target, TARGET=node.target), *body]
            if left:
                # Where the flag is a Python value the loop has ended; elsewhere the iteration does nothing.
                body = statements(f"if not {flag}:\n    BODY", node, BODY=body)
            loop = ast.For(ast.copy_location(ast.Name(item, ast.Store()), node.target), node.iter, body, otherwise)
        self.flags[loop] = flag if left else ""
        own = {f"break {number}", f"continue {number}"}
        return [*before, ast.copy_location(loop, node)], (jumps - own) | more


def _branches(node: ast.If, then: list[ast.stmt], otherwise: list[ast.stmt]) -> ast.If:
    return ast.copy_location(ast.If(node.test, then or statements("pass", node), otherwise), node)


def _returns(body: list[ast.stmt]) -> list[ast.Return]:
    """The ``return`` statements that become variables."""
    found: list[ast.Return] = []
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Return):
            found.append(node)
        elif not isinstance(node, (*SCOPES, *TRIES, ast.expr)):
            stack.extend(ast.iter_child_nodes(node))
    return found


def _always_jumps(body: list[ast.stmt]) -> bool:
    """Whether what follows the statements is never reached."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, (ast.Return, ast.Break, ast.Continue, ast.Raise)):
        return True
    if isinstance(last, ast.While):
        endless = isinstance(last.test, ast.Constant) and bool(last.test.value)
        return (endless or _always_jumps(last.orelse)) and not _breaks(last.body)
    if isinstance(last, ast.For):
        return _always_jumps(last.orelse) and not _breaks(last.body)
    return isinstance(last, ast.If) and _always_jumps(last.body) and _always_jumps(last.orelse)


def _breaks(body: list[ast.stmt]) -> bool:
    """Whether one of the statements leaves the loop around them by ``break``."""
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Break):
            return True
        if isinstance(node, LOOPS):
            stack.extend(node.orelse)
        elif not isinstance(node, (*SCOPES, ast.expr)):
            stack.extend(ast.iter_child_nodes(node))
    return False
