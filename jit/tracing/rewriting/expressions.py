"""Hooks in expressions.

    a and b         (t.end(b) if (t := H.and_(0, a)).on else t.first)
    a if c else b   (t := H.ternary(0, c)).end(t.first(a) if t.then else None, b if t.otherwise else None)
    a < b < c       a < (m := b) and m < c, as above
    not a           H.not_(0, a)
    a in b          H.contains(0, a, b)
    f(x)            H.callee(0, f)(x)
    f"a {x!r:>9}"   H.text(0, "a ", (x, "r", ">9"))
    "%d" % x        H.modulo(0, "%d", x)
    y[i], y.a       H.target(0, y)[i] where it is assigned or deleted
    np.r_[x]        H.callee(0, np.r_)[x], as of what NumPy calls by brackets

Everything is evaluated in the user's own frame, in Python's order, and at most once.
"""

from __future__ import annotations

import ast
from typing import Any, Final, final

from hlojit.tracing.rewriting.plan import HOOKS, Plan
from hlojit.tracing.rewriting.protocol import Kind
from hlojit.tracing.rewriting.templates import expression, name
from hlojit.tracing.rewriting.variables import own_nodes

_HOOKS: Final = name(HOOKS)
_AT_ONCE: Final = frozenset({"any", "all", "min", "max", "sum", "sorted", "list", "tuple", "set", "dict"})
"""Functions that take a generator's elements before they return, as a comprehension does."""
_CALLED_BY_BRACKETS: Final = frozenset({"r_", "c_", "mgrid", "ogrid"})
"""Objects of NumPy's whose brackets compute."""


@final
class Expressions(ast.NodeTransformer):
    """Rewrites the expressions of one function; statements are those of ``Statements``."""

    def __init__(self, plan: Plan, function: str):
        self._plan = plan
        self._function = function
        self.inside = ""
        """What a traced value cannot be followed in."""
        self._variables = True
        """Whether Python allows new variables here."""

    def condition(self, node: ast.expr) -> ast.expr:
        """A condition that Python decides, rewritten."""
        return self._hook("H.python(N, X)", Kind.TRUTH, node, X=self.visit(node))

    def iterable(self, node: ast.expr) -> ast.expr:
        """What Python iterates over, rewritten."""
        return self._hook("H.iterable(N, X)", Kind.ITERABLE, node, X=self.visit(node))

    def _hook(self, text: str, kind: Kind, node: ast.expr, **pieces: ast.expr) -> ast.expr:
        number = self._plan.site(kind, node, self._function, self.inside)
        return expression(text, node, H=_HOOKS, N=number, **pieces)

    # ------------------------------------------------------- lazily evaluated

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        conjunction = isinstance(node.op, ast.And)
        if not self._may_be_taken(node.values[1:]):
            values = [*map(self.condition, node.values[:-1]), self.visit(node.values[-1])]
            return ast.copy_location(ast.BoolOp(node.op, values), node)
        found: ast.expr = self.visit(node.values[-1])
        for value in reversed(node.values[:-1]):
            found = self._joined(conjunction, value, self.visit(value), found)
        return found

    def _joined(self, conjunction: bool, place: ast.expr, first: ast.expr, rest: ast.expr) -> ast.expr:
        hook, kind = ("and_", Kind.AND) if conjunction else ("or_", Kind.OR)
        text = f"(T.end(REST) if (T := H.{hook}(N, FIRST)).on else T.first)"
        return self._hook(text, kind, place, T=name(self._plan.variable()), FIRST=first, REST=rest)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        if not self._may_be_taken([node.body, node.orelse]):
            return ast.copy_location(
                ast.IfExp(self.condition(node.test), self.visit(node.body), self.visit(node.orelse)), node
            )
        text = "(T := H.ternary(N, TEST)).end(T.first(THEN) if T.then else None, ELSE if T.otherwise else None)"
        pieces = {"TEST": self.visit(node.test), "THEN": self.visit(node.body), "ELSE": self.visit(node.orelse)}
        return self._hook(text, Kind.TERNARY, node, T=name(self._plan.variable()), **pieces)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        operands: list[ast.expr] = [self.visit(node.left), *map(self.visit, node.comparators)]
        if len(node.ops) == 1:
            return self._compared(node, operands[0], node.ops[0], operands[1])
        if not self._may_be_taken(node.comparators[1:]):
            return ast.copy_location(ast.Compare(operands[0], node.ops, operands[1:]), node)
        left, parts = operands[0], []
        for position, (operator, right) in enumerate(zip(node.ops, operands[1:])):
            between = name(self._plan.variable())
            last = position == len(node.ops) - 1
            kept = right if last else expression("(M := X)", right, M=between, X=right)
            parts.append(self._compared(node, left, operator, kept))
            left = ast.copy_location(name(between.id), right)
        found = parts[-1]
        for part in reversed(parts[:-1]):
            text = "(T.end(REST) if (T := H.and_(N, FIRST)).on else T.first)"
            found = self._hook(text, Kind.COMPARE, node, T=name(self._plan.variable()), FIRST=part, REST=found)
        return found

    def _compared(self, place: ast.expr, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> ast.expr:
        if not isinstance(operator, (ast.In, ast.NotIn)):
            return ast.copy_location(ast.Compare(left, [operator], [right]), place)
        found = self._hook("H.contains(N, LEFT, RIGHT)", Kind.IN, place, LEFT=left, RIGHT=right)
        return found if isinstance(operator, ast.In) else self._hook("H.not_(N, X)", Kind.NOT, place, X=found)

    def _may_be_taken(self, operands: list[ast.expr]) -> bool:
        """Not where Python allows no new variables, nor where the operands bind some: they could not be put back."""
        return self._variables and not any(isinstance(node, ast.NamedExpr) for node in own_nodes(operands))

    # -------------------------------------------------------------- evaluated

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return self._hook("H.not_(N, X)", Kind.NOT, node, X=operand)
        return ast.copy_location(ast.UnaryOp(node.op, operand), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = node.func
        # Without arguments Python finds the class by the name in the source.
        if not (isinstance(function, ast.Name) and function.id == "super"):
            hook = self._hook("H.callee(N, F)", Kind.CALL, node, F=self.visit(function))
            # Its own place, so that the marks below a line of a traceback stand where they stood.
            function = ast.copy_location(hook, function)
        at_once = isinstance(node.func, ast.Name) and node.func.id in _AT_ONCE and len(node.args) == 1
        arguments = [
            self._comprehension(each) if at_once and isinstance(each, ast.GeneratorExp) else self.visit(each)
            for each in node.args
        ]
        keywords = [self.visit(each) for each in node.keywords]
        return ast.copy_location(ast.Call(function, arguments, keywords), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        if not any(isinstance(each, ast.FormattedValue) for each in node.values):
            return node
        found = self._hook("H.text(N)", Kind.TEXT, node)
        assert isinstance(found, ast.Call)
        found.args += map(self._part, node.values)
        return found

    def _part(self, node: ast.expr) -> ast.expr:
        if not isinstance(node, ast.FormattedValue):
            return node
        conversion = ast.Constant(chr(node.conversion) if node.conversion > 0 else "")
        specification = self.visit(node.format_spec) if node.format_spec is not None else ast.Constant("")
        place, value = node.value, self.visit(node.value)
        return expression("(VALUE, CONVERSION, SPEC)", place, VALUE=value, CONVERSION=conversion, SPEC=specification)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        is_text = isinstance(node.left, ast.JoinedStr) or (
            isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
        )
        left, right = self.visit(node.left), self.visit(node.right)
        if is_text and isinstance(node.op, ast.Mod):
            return self._hook("H.modulo(N, LEFT, RIGHT)", Kind.TEXT, node, LEFT=left, RIGHT=right)
        return ast.copy_location(ast.BinOp(left, node.op, right), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        target = self._target(node)
        named = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        if named in _CALLED_BY_BRACKETS and isinstance(node.ctx, ast.Load):
            target = self._hook("H.callee(N, F)", Kind.CALL, node, F=target)
        return ast.copy_location(ast.Subscript(target, self.visit(node.slice), node.ctx), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.copy_location(ast.Attribute(self._target(node), node.attr, node.ctx), node)

    def _target(self, node: ast.Subscript | ast.Attribute) -> ast.expr:
        value: ast.expr = self.visit(node.value)
        if isinstance(node.ctx, ast.Load):
            return value
        return self._hook("H.target(N, X)", Kind.TARGET, node, X=value)

    # ------------------------------------------------------------ with scopes

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        lazy = any(
            isinstance(each, (ast.BoolOp, ast.IfExp)) or (isinstance(each, ast.Compare) and len(each.ops) > 1)
            for each in own_nodes([node.body])
        )
        arguments = self.visit(node.args)
        if any(isinstance(each, (ast.Yield, ast.YieldFrom, ast.Await)) for each in own_nodes([node.body])):
            return ast.copy_location(ast.Lambda(arguments, node.body), node)
        inside, self.inside = self.inside, ""
        body = self.visit(node.body)
        self.inside = inside
        if lazy:
            number = ast.Constant(self._plan.function("<lambda>", node.lineno))
            body = expression("H.scope(N, lambda: BODY)", node.body, H=_HOOKS, N=number, BODY=body)
        return ast.copy_location(ast.Lambda(arguments, body), node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        return self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        return self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        return self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        inside, variables = self.inside, self._variables
        self.inside, self._variables = f"a generator expression (line {node.lineno})", False
        found = self._comprehension(node)
        self.inside, self._variables = inside, variables
        return found

    def _comprehension(self, node: Any) -> ast.expr:
        for generator in node.generators:
            variables, self._variables = self._variables, False
            generator.iter = self.iterable(generator.iter)
            self._variables = variables
            inside, self.inside = self.inside, self.inside or f"the condition of a comprehension (line {node.lineno})"
            generator.ifs = [self.condition(each) for each in generator.ifs]
            self.inside = inside
        for part in ("key", "value", "elt"):
            if hasattr(node, part):
                setattr(node, part, self.visit(getattr(node, part)))
        found: ast.expr = node
        return found
