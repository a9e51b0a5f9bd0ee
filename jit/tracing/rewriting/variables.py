"""Which variables a piece of source assigns, reads and shares with functions inside of it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_NAMING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchStar, ast.MatchAs)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def own_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes that are evaluated by the function itself: not the bodies of functions and classes inside of it."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, SCOPES):
            stack.extend(evaluated_at_once(node))
        else:
            stack.extend(ast.iter_child_nodes(node))


def evaluated_at_once(node: ast.AST) -> list[ast.expr]:
    """What a function or class evaluates when it is made: decorators, defaults, bases."""
    found: list[ast.expr] = list(getattr(node, "decorator_list", ()))
    if isinstance(node, ast.ClassDef):
        found += [*node.bases, *[keyword.value for keyword in node.keywords]]
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        found += [*node.args.defaults, *[default for default in node.args.kw_defaults if default is not None]]
    return found


def assigned(nodes: Iterable[ast.AST], *, updates: bool = True) -> list[str]:
    """Variables of the function that the nodes bind or delete, in the order of their names; also by ``x += 1``, or not."""
    found: set[str] = set()
    nodes = list(nodes)
    hidden = set() if updates else {id(each.target) for each in own_nodes(nodes) if isinstance(each, ast.AugAssign)}
    hidden |= {
        id(name)
        for node in own_nodes(nodes)
        if isinstance(node, _COMPREHENSIONS)
        for generator in node.generators
        for name in ast.walk(generator.target)
    }
    for node in own_nodes(nodes):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in hidden:
            found.add(node.id)
        elif isinstance(node, _NAMING) and node.name is not None:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
        elif isinstance(node, ast.alias) and node.name != "*":
            found.add(node.asname or node.name.partition(".")[0])
    return sorted(found)


def read(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Variables that the nodes may read, update or delete, those of functions inside of them too."""
    found: set[str] = set()
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name):
                found.add(each.target.id)
            elif isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Store):
                found.add(each.id)
    return frozenset(found)


def appended(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Variables that occur in the nodes only as ``x.append(v)``."""
    every = [each for node in nodes for each in ast.walk(node)]
    receivers = {
        each.func.value
        for each in every
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and isinstance(each.func.value, ast.Name)
        and each.func.attr == "append"
        and len(each.args) == 1
        and not each.keywords
    }
    return frozenset(each.id for each in receivers) - {
        each.id for each in every if isinstance(each, ast.Name) and each not in receivers
    }


def declared(nodes: Iterable[ast.AST]) -> tuple[frozenset[str], frozenset[str]]:
    """What the function declares ``global``, and what ``nonlocal``."""
    found = [node for node in own_nodes(nodes) if isinstance(node, (ast.Global, ast.Nonlocal))]
    return (
        frozenset(name for node in found if isinstance(node, ast.Global) for name in node.names),
        frozenset(name for node in found if isinstance(node, ast.Nonlocal) for name in node.names),
    )


def captured(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Variables that are read later, by functions, classes and generators inside."""
    return frozenset().union(
        *[read([node]) for node in own_nodes(nodes) if isinstance(node, (*SCOPES, ast.GeneratorExp))],
        assigned_inside(nodes),
    )


def assigned_inside(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Variables that functions inside declare ``nonlocal``: they may change at every call."""
    inner = [node for node in own_nodes(nodes) if isinstance(node, SCOPES)]
    return frozenset(
        name for node in inner for each in ast.walk(node) if isinstance(each, ast.Nonlocal) for name in each.names
    )


def parameters(node: ast.FunctionDef | ast.Lambda) -> list[str]:
    """The names of the parameters."""
    arguments = node.args
    rest = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest)]


def mangled(name: str, class_name: str) -> str:
    """How Python calls a name inside of a class: ``_C__x`` for ``__x``."""
    stripped = class_name.lstrip("_")
    if not stripped or not name.startswith("__") or name.endswith("__"):
        return name
    return f"_{stripped}{name}"
