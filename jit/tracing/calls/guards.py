"""What a traced function reads of outside of itself: what was compiled holds as long as that is the same.

Global variables, variables of enclosing functions, defaults of parameters, of Python functions of the user's that it refers to
theirs as well; attributes of the objects, classes and modules among them, as far as their names occur in the code; elements of
lists, dictionaries and sets, and of arrays that can be written.  What libraries' objects hold is not looked at.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CellType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Final, NamedTuple, final

import numpy as np
from hlojit.tracing.calls.contents import NOTHING, Content, Elements, Items, Members, Numbers, Parts, Slot, is_same

_LIBRARIES: Final = tuple(
    path
    for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    if path
)
_BUILTIN: Final = frozenset(vars(builtins))
_IMMUTABLE: Final = (type(None), bool, int, float, complex, str, bytes, np.generic, np.dtype, np.ufunc, range, slice)
_MAKING: Final = frozenset({"__new__", "__init__", "__post_init__"})
_NAMESPACES: Final = frozenset({("types", "SimpleNamespace"), ("argparse", "Namespace")})
"""Libraries' classes whose objects are nothing but their attributes."""


class Name(NamedTuple):
    """What a name means: in the global variables of a module, among the attributes of an object or a class."""

    mapping: Mapping[str, Any]
    name: str
    value: Any
    path: str
    """How messages call it."""


class Cell(NamedTuple):
    """A variable of an enclosing function."""

    cell: CellType
    value: Any
    path: str


class Held(NamedTuple):
    """What a thing held that can be changed in place."""

    content: Content
    path: str


@final
class Guards:
    """What one function reads, and what that was when it was looked at."""

    __slots__ = ("broken_by", "cells", "held", "names")

    def __init__(self, function: Callable[..., Any], static: Mapping[str, Any] | None = None):
        """``static``: static arguments, by name; then it is what these hold, as far as the function reads it."""
        walk = _walked(function, static)
        self.names: list[Name] = walk.names
        self.cells: list[Cell] = walk.cells
        self.broken_by: str | None = None
        """What changed while the function was traced, so that what is compiled is of no one state."""
        self.held: list[Held] = [Held(look(), path) for look, path in walk.things]

    @property
    def is_empty(self) -> bool:
        """Whether nothing can change."""
        return not (self.names or self.cells or self.held)

    def hold(self) -> bool:
        """Whether everything is as it was."""
        return self.changed() is None

    def changed(self) -> str | None:
        """Something that is not as it was, as messages call it."""
        if self.broken_by is not None:
            return self.broken_by
        for mapping, name, value, path in self.names:
            now = mapping.get(name, NOTHING)
            if now is not value and not is_same(now, value):
                return path
        for cell, value, path in self.cells:
            if not is_same(contents_of(cell), value):
                return path
        return next((path for content, path in self.held if not content.holds()), None)

    def settle(self) -> None:
        """What a function does to lists, dictionaries and sets while it is traced is done once, and no change of them.

        A list that it has changed is a log, which others may write, too: it is not looked at any more.
        """
        self.held = [
            Held(_content(held.content.of), held.path)
            if isinstance(held.content, (Items, Members)) and not held.content.holds()
            else held
            for held in self.held
            if not isinstance(held.content, Elements) or held.content.holds()
        ]
        self.broken_by = self.changed()


def meanings(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """What the names mean that a function reads of outside of itself, and how messages call them."""
    walk = _walked(function)
    yield from ((path, value) for _, _, value, path in walk.names)
    yield from ((path, value) for _, value, path in walk.cells)


def contents_of(cell: CellType) -> Any:
    """What a variable of an enclosing function is; ``NOTHING`` where it is not bound."""
    try:
        return cell.cell_contents
    except ValueError:
        return NOTHING


_CONTENTS: Final[Mapping[type, Callable[[Any], Content]]] = {
    dict: lambda thing: Items(thing, tuple(thing), tuple(thing.values())),
    list: lambda thing: Elements(thing, tuple(thing)),
    deque: lambda thing: Elements(thing, tuple(thing)),
    set: lambda thing: Members(thing, set(thing)),
}
"""Of containers, also of classes derived of them."""


def _content(thing: Any) -> Content:
    """What a container holds now."""
    return next(look(thing) for kind, look in _CONTENTS.items() if isinstance(thing, kind))


def _walked(function: Callable[..., Any], static: Mapping[str, Any] | None = None) -> _Walk:
    given = [(value, name) for name, value in (static or {}).items()]
    roots = [(function, getattr(function, "__name__", "")), *given]
    walk, mentioned = _Walk(roots, frozenset()), frozenset[str]()
    # Which attributes count is known when all of the code has been seen that may ask for them.
    while walk.mentioned != mentioned:
        mentioned = frozenset(walk.mentioned)
        walk = _Walk(roots, mentioned)
    return walk if static is None else _Walk(given, mentioned)


@final
class _Walk:
    """Once through everything that a function can reach, with the names that code is known to mention."""

    def __init__(self, roots: Sequence[tuple[Any, str]], known: frozenset[str]):
        self.names: list[Name] = []
        self.cells: list[Cell] = []
        self.things: list[tuple[Callable[[], Content], str]] = []
        """That can be changed in place."""
        self.mentioned: set[str] = set()
        self._known = known
        self._seen: set[int] = set()
        self._waiting = list(roots)
        while self._waiting:
            value, path = self._waiting.pop()
            if not isinstance(value, _IMMUTABLE) and id(value) not in self._seen:
                self._seen.add(id(value))
                self._look(value, path)

    def _look(self, value: Any, path: str) -> None:
        if isinstance(value, np.ndarray):
            # What other classes of arrays mean is refused where it is used.
            if type(value) in (np.ndarray, np.memmap) and Numbers.can_change(value):
                self.things.append((functools.partial(Numbers.seen, value), path))
        elif isinstance(value, (tuple, frozenset)):
            self._waiting += ((each, f"{path}[...]") for each in value)
        elif isinstance(value, FunctionType):
            self._function(value, path)
        elif isinstance(value, MethodType):
            self._waiting += ((value.__func__, path), (value.__self__, getattr(value.__self__, "__name__", "self")))
        elif isinstance(value, ModuleType):
            self._module(value, path)
        elif isinstance(value, type):
            self._class(value, path, is_called=True)
        elif isinstance(value, tuple(_CONTENTS)):
            self.things.append((functools.partial(_content, value), path))
            elements: Any = value.values() if isinstance(value, dict) else value
            self._waiting += ((each, f"{path}[...]") for each in elements)
        else:
            self._object(value, path)

    def _function(self, function: FunctionType, path: str) -> None:
        if not is_the_users(function.__module__) or function.__code__.co_filename.startswith(_LIBRARIES):
            # A library's decorator or transformation may hold a function of the user's.
            inner = [contents_of(cell) for cell in function.__closure__ or ()]
            self._waiting += (
                (each, path) for each in (*inner, getattr(function, "__wrapped__", None)) if callable(each)
            )
            return
        names, table = set(_names(function.__code__)), function.__globals__
        self.mentioned |= names
        for name in sorted(names & table.keys()):
            # Nobody gives another module the name `np`, and every function has some.
            if not isinstance(table[name], ModuleType):
                self.names.append(Name(table, name, table[name], name))
            self._waiting.append((table[name], name))
        self.names += (Name(table, name, NOTHING, name) for name in sorted(names & _BUILTIN - table.keys()))
        # Those that an import statement inside brings.
        self._waiting += ((sys.modules[name], name) for name in sorted(names & sys.modules.keys()))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            self.cells.append(Cell(cell, contents_of(cell), name))
            self._waiting.append((contents_of(cell), name))
        parts = (function.__code__, function.__defaults__, function.__kwdefaults__)
        self.things.append((functools.partial(Parts, function, *parts), function.__name__))
        self._waiting += ((each, f"a default of {function.__name__}") for each in _defaults(function))

    def _module(self, module: ModuleType, path: str) -> None:
        if is_the_users(module.__name__):
            self._attributes(vars(module), path)

    def _attributes(self, mapping: Mapping[str, Any], path: str) -> None:
        """Of an object or module, those that code mentions."""
        for name in sorted(self._known & mapping.keys()):
            if not isinstance(mapping[name], ModuleType):
                self.names.append(Name(mapping, name, mapping[name], f"{path}.{name}"))
            self._waiting.append((mapping[name], f"{path}.{name}"))

    def _class(self, kind: type, path: str, *, is_called: bool) -> None:
        """The members that code mentions, and special methods: of those that make objects only where objects may be made."""
        for each in kind.__mro__:
            if not is_the_users(each.__module__):
                continue
            for name, member in vars(each).items():
                if name in self._known:
                    self.names.append(Name(vars(each), name, member, f"{path}.{name}"))
                elif not (name.startswith("__") and isinstance(member, FunctionType)) or (
                    name in _MAKING and not is_called
                ):
                    continue
                self._waiting.append((_function_of(member), f"{path}.{name}"))

    def _object(self, value: Any, path: str) -> None:
        kind = type(value)
        attributes = getattr(value, "__dict__", None)
        if is_the_users(kind.__module__) or (kind.__module__, kind.__name__) in _NAMESPACES:
            if type(attributes) is dict:
                self._attributes(attributes, path)
                self._hidden_by_nothing(kind, attributes, path)
            self._slots(value, path)
            self._class(kind, path, is_called=False)
        if isinstance(value, functools.partial):
            self._waiting.append(((value.func, *value.args, *value.keywords.values()), path))
        elif callable(inner := inspect.getattr_static(value, "__wrapped__", None)):
            # Of a jitted or decorated function.
            self._waiting.append((inner, path))

    def _hidden_by_nothing(self, kind: type, attributes: dict[str, Any], path: str) -> None:
        """Attributes of a class, which one of the object's may come in front of."""
        for each in kind.__mro__[:-1]:
            self.names += (
                Name(attributes, name, NOTHING, f"{path}.{name}")
                for name in sorted(self._known & vars(each).keys() - attributes.keys())
            )

    def _slots(self, value: Any, path: str) -> None:
        for each in type(value).__mro__:
            for name, member in vars(each).items():
                if name in self._known and isinstance(member, MemberDescriptorType):
                    seen = getattr(value, name, NOTHING)
                    self.things.append((functools.partial(Slot, value, name, seen), f"{path}.{name}"))
                    self._waiting.append((seen, f"{path}.{name}"))


def _function_of(member: Any) -> Any:
    """The function of a property, a static or a class method; anything else as it is."""
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", None) or getattr(member, "func", None) or member


def _defaults(function: FunctionType) -> Iterator[Any]:
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def is_the_users(module: object) -> bool:
    """Whether what a module of this name holds is the user's own, and no library's."""
    name = str(module)
    if name.partition(".")[0] in ("hlojit", "builtins"):
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        # A notebook, or a module that somebody made.
        return name not in sys.builtin_module_names
    return not str(file).startswith(_LIBRARIES)


def _names(code: CodeType) -> Iterator[str]:
    """The names that code and the functions inside of it look up, also by ``getattr``."""
    yield from map(sys.intern, code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
        elif type(constant) is str and constant.isidentifier():
            yield sys.intern(constant)
