"""A function of rewritten source in the place of a function.

    done = rewritten(f)
    done.function(x)        # f with hooks, or f itself
    done.reason             # why it is f itself, or empty

The code is rewritten once per code object.  Each function of it has the cells, globals and defaults of the one it stands for,
so what either of them changes the other sees.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Final, final

from hlojit.ir.in_flight import InFlight, Role
from hlojit.tracing.rewriting.hooks import Hooks
from hlojit.tracing.rewriting.plan import HOOKS, Plan
from hlojit.tracing.rewriting.protocol import FunctionInfo, Site
from hlojit.tracing.rewriting.sources import NoSource, Source, codes, source_of
from hlojit.tracing.rewriting.statements import rewrite_function, rewrite_lambda
from hlojit.tracing.rewriting.templates import statements
from hlojit.tracing.rewriting.weak_table import WeakTable

_GENERATORS: Final = 0x20 | 0x80 | 0x100 | 0x200
"""The flags of code that is a generator, a coroutine, an iterable coroutine, or an asynchronous generator."""
_ABOUT_THE_FRAME: Final = ("locals", "vars", "dir")
"""Called without arguments they show the variables of the frame, and ours would be among them."""


@final
@dataclass(frozen=True)
class Rewritten:
    """What to call in the place of a function; ``reason`` says why it is the function itself."""

    function: FunctionType
    reason: str = ""


@final
@dataclass(frozen=True)
class _Template:
    """Rewritten code, without what belongs to one function object; or the reason why there is none."""

    code: CodeType | None = None
    sites: tuple[Site, ...] = ()
    names: tuple[tuple[str, ...], ...] = ()
    functions: tuple[FunctionInfo, ...] = ()
    reason: str = ""


_templates: Final[WeakTable[CodeType, _Template]] = WeakTable()
_made: Final[WeakTable[CodeType, bool]] = WeakTable()
"""Code that is rewritten already, functions inside of functions too."""
_left_alone: Final[WeakTable[CodeType, bool]] = WeakTable()
_works: Final = InFlight()


def leave_alone(code: CodeType) -> None:
    """Never rewrite the functions of this code."""
    _left_alone[code] = True


def rewritten(function: FunctionType) -> Rewritten:
    """The function of rewritten source, made once."""
    code = function.__code__
    if _left_alone.get(code):
        return Rewritten(function, f"{function.__qualname__} is marked by hlojit.as_is")
    if _made.get(code):
        return Rewritten(function)
    template = _template(function)
    if template.code is None:
        return Rewritten(function, template.reason)
    return Rewritten(_instance(function, template, template.code))


def _template(function: FunctionType) -> _Template:
    code = function.__code__
    while (found := _templates.get(code)) is None:
        with _works.turn(id(code)) as role:
            if role is not Role.AFTER and _templates.get(code) is None:
                _templates[code] = _made_of(function)
    return found


def _made_of(function: FunctionType) -> _Template:
    code = function.__code__
    if code.co_flags & _GENERATORS:
        return _Template(reason=f"{function.__qualname__} is a generator or coroutine")
    try:
        source = source_of(code, function.__globals__)
        return _compiled(function, source)
    except NoSource as error:
        return _Template(reason=f"{function.__qualname__}: {error}")
    except RecursionError:
        return _Template(reason=f"{function.__qualname__}: its statements are nested too deep")


def _compiled(function: FunctionType, source: Source) -> _Template:
    code, node = function.__code__, source.node
    _check(node)
    plan = Plan(code.co_filename, source.lines, source.class_name)
    inner: list[ast.stmt]
    if isinstance(node, ast.Lambda):
        inner = statements("LAMBDA", node, LAMBDA=rewrite_lambda(plan, node))
    else:
        inner = [rewrite_function(plan, node, function.__qualname__)]
    tree = _around(inner, code, source)
    try:
        whole = compile(tree, code.co_filename, "exec", source.flags, dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise NoSource(f"it cannot be compiled with hooks ({error})") from error
    made = _named_as(code, _inside(whole, code))
    if extra := set(made.co_freevars) - {*code.co_freevars, HOOKS}:
        raise NoSource(f"its variables {', '.join(sorted(extra))} are not those of the function")
    for each in codes(made):
        _made[each] = True
    return _Template(made, tuple(plan.sites), tuple(plan.names), tuple(plan.functions))


def _check(node: ast.AST) -> None:
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id.startswith(HOOKS):
            raise NoSource(f"names that begin with {HOOKS} are ours")
        if isinstance(each, ast.Call) and _is_about_the_frame(each):
            raise NoSource(f"line {each.lineno} asks for all variables of the frame, and ours would be among them")


def _is_about_the_frame(call: ast.Call) -> bool:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return name in _ABOUT_THE_FRAME and not (call.args or call.keywords)


def _around(inner: list[ast.stmt], code: CodeType, source: Source) -> ast.Module:
    """The function in one that has its free variables, and in a class of the name by which Python mangles ``__x``."""
    node, free = source.node, code.co_freevars
    # What is bound around it and is no free variable of the function is a global one there.
    own = {source.class_name} if source.class_name else {getattr(node, "name", "")}
    globals_ = sorted(own - {*free, ""})
    head = f"    global {', '.join(globals_)}\n" if globals_ else ""
    body = f"    class {source.class_name}:\n        INNER" if source.class_name else "    INNER"
    text = f"def {HOOKS}_around({', '.join((*free, HOOKS))}):\n{head}{body}"
    module = ast.Module(statements(text, node, INNER=inner), [])
    return ast.fix_missing_locations(module)


def _inside(whole: CodeType, code: CodeType) -> CodeType:
    """The outermost code of the name and line of the function's."""
    level = [whole]
    while level:
        for each in level:
            if each.co_name == code.co_name and each.co_firstlineno == code.co_firstlineno:
                return each
        level = [inner for each in level for inner in each.co_consts if isinstance(inner, CodeType)]
    raise NoSource("it is not found again in what was compiled")


def _named_as(code: CodeType, made: CodeType) -> CodeType:
    """With the qualified names that the source gives, for functions inside too."""
    prefix = made.co_qualname

    def renamed(each: CodeType) -> CodeType:
        constants = tuple(renamed(item) if isinstance(item, CodeType) else item for item in each.co_consts)
        name = code.co_qualname + each.co_qualname.removeprefix(prefix)
        return each.replace(co_consts=constants, co_qualname=name)

    return renamed(made)


def _instance(function: FunctionType, template: _Template, code: CodeType) -> FunctionType:
    hooks = Hooks(template.sites, template.names, template.functions, function.__globals__)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ())) | {HOOKS: CellType(hooks)}
    closure = tuple(cells[name] for name in code.co_freevars)
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    for attribute in ("__kwdefaults__", "__annotations__", "__doc__", "__module__", "__qualname__", "__type_params__"):
        if hasattr(function, attribute):
            setattr(made, attribute, getattr(function, attribute))
    made.__dict__.update(function.__dict__)
    return made
