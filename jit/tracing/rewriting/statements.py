"""Hooks in statements: what ``jumps.py`` leaves, with every ``if`` and loop asking the runtime.

if x > 0:               d = H.if_(0, x > 0, H.locals())
    y = 1               if d.traced: (bind y to d.state)
               ->       if d.then:
                            y = 1
                        if d.otherwise(H.locals()):
                            if d.traced: (bind y)
                        if d.traced:
                            d.end(H.locals())
                            (bind y)

while x > 0:            d = H.while_(0)
    x -= 1              while d.head(x > 0, H.locals()):
               ->           if d.traced:
                                (bind x)
                                if d.again: continue
                            x = H.aug_assign(1, "Sub", x, 1)
                        else:
                            if d.traced: (bind x)
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from typing import Any, Final, final

from hlojit.tracing.rewriting.expressions import Expressions
from hlojit.tracing.rewriting.jumps import ITEM, TRIES, Jumps
from hlojit.tracing.rewriting.liveness import Liveness
from hlojit.tracing.rewriting.plan import HOOKS, Plan
from hlojit.tracing.rewriting.protocol import Kind
from hlojit.tracing.rewriting.templates import at, name, statements
from hlojit.tracing.rewriting.variables import (
    appended,
    assigned,
    assigned_inside,
    captured,
    declared,
    own_nodes,
    parameters,
    read,
)

_IF: Final = """
D = H.if_(N, TEST, VARIABLES)
if D.traced:
    BIND
if D.then:
    with D:
        THEN
if D.otherwise(VARIABLES):
    if D.traced:
        BIND
    with D:
        ELSE
if D.traced:
    D.end(VARIABLES)
    BIND
"""
_WHILE: Final = """
D = H.while_(N)
while D.head(None if D.raised else TEST, VARIABLES):
    if D.traced:
        BIND
        if D.again:
            continue
    with D:
        BODY
else:
    if D.traced:
        BIND
    ELSE
"""
_FOR: Final = """
D = H.for_(N, ITERABLE, VARIABLES)
for ITEM in D:
    if D.traced:
        BIND
    with D:
        BODY
    if D.leave(FLAG, VARIABLES):
        break
else:
    if D.traced:
        BIND
    ELSE
"""
_RAISE: Final = """
if H.raises(N):
    raise EXCEPTION{cause}
else:
    H.raise_(N, EXCEPTION_AGAIN{again})
"""


def rewrite_function(plan: Plan, node: ast.FunctionDef, function: str) -> ast.FunctionDef:
    """The function with hooks; its parameters and decorators stay."""
    body = list(node.body)
    first = body[0]
    documented = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    head = [body.pop(0)] if documented else []
    if body:
        inner = Statements(plan, node, function).body(body)
        number = ast.Constant(plan.function(function, node.lineno, frozenset().union(*declared(node.body))))
        head += statements(f"with {HOOKS}.enter(N):\n    BODY", inner[0], N=number, BODY=inner)
    found = copy.copy(node)
    found.body = head
    return found


def rewrite_lambda(plan: Plan, node: ast.Lambda) -> ast.expr:
    """The same for a lambda expression."""
    found: ast.expr = Expressions(plan, "<lambda>").visit(node)
    return found


def stays_python(node: ast.AST) -> bool:
    """Whether a function is a generator or a coroutine."""
    return isinstance(node, ast.AsyncFunctionDef) or any(
        isinstance(each, (ast.Yield, ast.YieldFrom, ast.Await)) for each in own_nodes(getattr(node, "body", ()))
    )


@final
class Statements:
    """Of one function."""

    def __init__(self, plan: Plan, node: ast.FunctionDef, function: str):
        self._plan = plan
        self._function = function
        self._expressions = Expressions(plan, function)
        self._jumps = Jumps()
        self._swallowed = ""
        """The ``with`` around, which may swallow exceptions."""
        whole = node.body
        self._globals, outer = declared(whole)
        bound = frozenset((*parameters(node), *assigned(whole))) | outer
        self._shared = assigned_inside(whole) & bound
        """Variables that a call may change."""
        self._liveness = Liveness(captured(whole) | self._globals | outer, read(whole))

    def body(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The body of the function, rewritten."""
        lowered = self._jumps.function(body)
        self._liveness.everything |= read(lowered)
        self._liveness.block(lowered, frozenset())
        return self._block(lowered)

    def _block(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        return [each for statement in body for each in self._statement(statement)]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.If):
            return self._if(node)
        if isinstance(node, ast.While):
            return self._while(node)
        if isinstance(node, ast.For):
            return self._for(node)
        if isinstance(node, ast.With):
            return [self._with(node)]
        if isinstance(node, ast.Match):
            return [self._match(node)]
        if isinstance(node, ast.Assert):
            return self._assert(node)
        if isinstance(node, ast.Raise) and node.exc is not None:
            cause = self._expressions.visit(node.cause) if node.cause is not None else None
            return self._raise(node, Kind.RAISE, self._expressions.visit(node.exc), cause)
        return self._python(node)

    # -------------------------------------------------------------- constructs

    def _if(self, node: ast.If) -> list[ast.stmt]:
        if node in self._jumps.dead:
            return [node]
        if isinstance(node.test, ast.Constant):
            return [ast.copy_location(ast.If(node.test, self._block(node.body), self._block(node.orelse)), node)]
        names = self._names(node)
        site = self._site(Kind.IF, node, names)
        variables, bind = self._state(node, names)
        test = self._expressions.visit(node.test)
        then, otherwise = self._block(node.body), self._block(node.orelse)
        driver = name(self._plan.variable())
        bound = self._bound(node, driver.id, names) if bind else []
        return statements(
            _IF,
            node.test,
            D=driver,
            H=name(HOOKS),
            N=site,
            TEST=test,
            VARIABLES=variables,
            BIND=bound,
            THEN=then,
            ELSE=otherwise,
        )

    def _while(self, node: ast.While) -> list[ast.stmt]:
        names = self._names(node)
        site = self._site(Kind.WHILE, node, names)
        variables, _ = self._state(node, names)
        test = self._expressions.visit(node.test)
        driver = name(self._plan.variable())
        bound = self._bound(node, driver.id, names)
        body, otherwise = self._block(node.body), self._block(node.orelse)
        return statements(
            _WHILE,
            node.test,
            D=driver,
            H=name(HOOKS),
            N=site,
            TEST=test,
            VARIABLES=variables,
            BIND=bound,
            BODY=body,
            ELSE=otherwise,
        )

    def _for(self, node: ast.For) -> list[ast.stmt]:
        names = self._names(node)
        site = self._site(Kind.FOR, node, names, appended=appended(node.body) - self._liveness.always)
        variables, _ = self._state(node, names)
        iterable = self._expressions.visit(node.iter)
        driver = name(self._plan.variable())
        bound = self._bound(node, driver.id, names)
        body, otherwise = self._block(node.body), self._block(node.orelse)
        flag = self._jumps.flags[node]
        pieces = {"ITERABLE": iterable, "ITEM": node.target, "FLAG": name(flag) if flag else ast.Constant(False)}
        return statements(
            _FOR,
            node.iter,
            D=driver,
            H=name(HOOKS),
            N=site,
            VARIABLES=variables,
            BIND=bound,
            BODY=body,
            ELSE=otherwise,
            **pieces,
        )

    def _with(self, node: ast.With) -> ast.stmt:
        items = [
            ast.withitem(
                self._expressions.visit(each.context_expr),
                self._expressions.visit(each.optional_vars) if each.optional_vars is not None else None,
            )
            for each in node.items
        ]
        outer, self._swallowed = self._swallowed, f"a with statement (line {node.lineno})"
        body = self._block(node.body)
        self._swallowed = outer
        return ast.copy_location(ast.With(items, body), node)

    def _match(self, node: ast.Match) -> ast.stmt:
        cases = [
            ast.match_case(
                case.pattern,
                self._expressions.condition(case.guard) if case.guard is not None else None,
                self._block(case.body),
            )
            for case in node.cases
        ]
        return ast.copy_location(ast.Match(self._expressions.visit(node.subject), cases), node)

    def _assert(self, node: ast.Assert) -> list[ast.stmt]:
        """``if not test: raise AssertionError(message)``, which ``python -O`` leaves out."""
        message = [self._expressions.visit(node.msg)] if node.msg is not None else []
        exception = at(node, ast.Call(ast.Attribute(name(HOOKS), "AssertionError", ast.Load()), [], []))
        exception.args = message
        failing = self._raise(node, Kind.ASSERT, exception, None)
        names = tuple(assigned(message))
        site = self._site(Kind.ASSERT, node, names)
        variables, _ = self._state(node, names)
        test = self._expressions.visit(ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test))
        driver = name(self._plan.variable())
        bound = self._bound(node, driver.id, names)
        checked = statements(
            _IF,
            node,
            D=driver,
            H=name(HOOKS),
            N=site,
            TEST=test,
            VARIABLES=variables,
            BIND=bound,
            THEN=failing,
            ELSE=[],
        )
        return statements("if __debug__:\n    CHECKED", node, CHECKED=checked)

    def _raise(self, node: ast.stmt, kind: Kind, exception: ast.expr, cause: ast.expr | None) -> list[ast.stmt]:
        inside = self._expressions.inside or self._swallowed
        site = self._plan.site(kind, node, self._function, inside)
        pieces = {"EXCEPTION": exception, "EXCEPTION_AGAIN": copy.deepcopy(exception)}
        text = _RAISE.format(cause="", again="")
        if cause is not None:
            pieces |= {"CAUSE": cause, "CAUSE_AGAIN": copy.deepcopy(cause)}
            text = _RAISE.format(cause=" from CAUSE", again=", CAUSE_AGAIN")
        return statements(text, node, H=name(HOOKS), N=site, **pieces)

    # ------------------------------------------------------------------- state

    def _names(self, node: ast.stmt) -> tuple[str, ...]:
        names = {each for each in assigned([node]) if not each.startswith(ITEM)}
        if any(isinstance(each, ast.Call) for each in own_nodes([node])):
            names |= self._shared
        return tuple(sorted(names))

    def _site(
        self, kind: Kind, node: ast.stmt, names: tuple[str, ...], appended: frozenset[str] = frozenset()
    ) -> ast.Constant:
        everything = frozenset(names)
        return self._plan.site(
            kind,
            node,
            self._function,
            self._expressions.inside,
            names=names,
            live_after=everything & self._liveness.after.get(node, everything),
            carried=everything & self._liveness.carried.get(node, frozenset()),
            by_calls=everything.difference(assigned([node])),
            by_updates=everything.difference(assigned([node], updates=False)),
            appended=appended,
            exit_flag=self._jumps.flags.get(node, ""),
        )

    def _state(self, node: ast.stmt, names: tuple[str, ...]) -> tuple[ast.expr, bool]:
        """The expression for the variables of this frame, and whether there are any."""
        text = f"{HOOKS}.locals()" if names else "{}"
        outer = sorted(self._globals.intersection(names))
        if outer:
            text = f"{{**{text}, **{HOOKS}.globals({', '.join(map(repr, outer))})}}"
        (found,) = statements(text, node)
        assert isinstance(found, ast.Expr)
        return found.value, bool(names)

    def _bound(self, node: ast.stmt, driver: str, names: tuple[str, ...]) -> list[ast.stmt]:
        """Bind the variables to the state that the runtime has given; unbind those that it has not."""
        if not names:
            return []
        lines = [f"({', '.join(names)},) = {driver}.state"]
        lines += [f"if {each} is {HOOKS}.undefined:\n    del {each}" for each in names]
        return statements("\n".join(lines), node)

    # ------------------------------------------------------------ stays Python

    def _python(self, node: ast.stmt) -> list[ast.stmt]:
        """A statement without control flow, or one in which nothing is taken over."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return [self._inner_function(node)]
        if isinstance(node, TRIES):
            outer = self._expressions.inside
            self._expressions.inside = outer or f"a try statement (line {node.lineno})"
            found = self._untaken(node)
            self._expressions.inside = outer
            return [self._guarded(found)]
        if isinstance(node, ast.AugAssign):
            return self._augmented(node)
        if isinstance(node, ast.AnnAssign):
            node.target = self._expressions.visit(node.target)
            node.value = self._expressions.visit(node.value) if node.value is not None else None
            return [node]
        if isinstance(node, ast.Delete):
            return [*self._read(node), self._expressions.generic_visit(node)]  # type: ignore[list-item]
        if isinstance(node, (ast.Return, ast.Raise, ast.Assign, ast.Expr)):
            return [self._expressions.generic_visit(node)]  # type: ignore[list-item]
        return [node]

    def _read(self, node: ast.Delete) -> list[ast.stmt]:
        """Variables have to be bound to be deleted, which may be known only when the function runs."""
        names = [each.id for each in node.targets if isinstance(each, ast.Name)]
        return [each for own in names for each in statements("H.deleted(X)", node, H=name(HOOKS), X=name(own))]

    def _inner_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
        node.decorator_list = [self._expressions.visit(each) for each in node.decorator_list]
        node.args = self._expressions.visit(node.args)
        if isinstance(node, ast.AsyncFunctionDef) or stays_python(node):
            return node
        return rewrite_function(self._plan, node, f"{self._function}.<locals>.{node.name}")

    def _augmented(self, node: ast.AugAssign) -> list[ast.stmt]:
        if not isinstance(node.target, ast.Name):
            return [self._expressions.generic_visit(node)]  # type: ignore[list-item]
        site = self._plan.site(Kind.AUGMENTED, node, self._function, self._expressions.inside)
        return statements(
            f"{node.target.id} = H.aug_assign(N, {type(node.op).__name__!r}, {node.target.id}, V)",
            node,
            H=name(HOOKS),
            N=site,
            V=self._expressions.visit(node.value),
        )

    def _untaken(self, node: ast.AST) -> ast.stmt:
        """A ``try``, and what is in it: conditions are Python's, jumps stay."""
        for part, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, part, [each for statement in value for each in self._untaken_statement(statement)])
            elif isinstance(value, list) and value and isinstance(value[0], (ast.ExceptHandler, ast.match_case)):
                for each in value:
                    self._untaken(each)
            elif part == "test" or (part == "guard" and value is not None):
                setattr(node, part, self._expressions.condition(value))
            elif part == "iter":
                setattr(node, part, self._expressions.iterable(value))
            elif isinstance(value, ast.expr):
                setattr(node, part, self._expressions.visit(value))
            elif isinstance(value, list) and value and isinstance(value[0], ast.withitem):
                setattr(node, part, [self._expressions.visit(each) for each in value])
        return node  # type: ignore[return-value]

    def _guarded(self, statement: ast.stmt) -> ast.stmt:
        """A ``try`` that tells the runtime which exceptions its handlers catch."""
        node: Any = statement
        if node.handlers:
            kinds: list[ast.expr] = [
                copy.deepcopy(each.type)
                if each.type is not None
                else ast.Attribute(name(HOOKS), "BaseException", ast.Load())
                for each in node.handlers
            ]
            site = self._plan.site(Kind.TRY, node, self._function, self._expressions.inside)
            handled = at(node, ast.Tuple(kinds, ast.Load()))
            text = "with H.trying(N, lambda: HANDLED):\n    BODY"
            node.body = statements(text, node, H=name(HOOKS), N=site, HANDLED=handled, BODY=node.body)
        return statement

    def _untaken_statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, TRIES):
            return [self._guarded(self._untaken(node))]
        if isinstance(node, (ast.If, ast.While, ast.For, ast.With, ast.Match, ast.Assert)):
            return [self._untaken(node)]
        return self._python(node)
