"""What numba found for the functions, operators and attributes in a typed function, and who wrote it.

``@overload`` and its relatives register implementations with numba, by the name of what they implement: a function's own
content does not tell them.  Those of the standard library and the known packages count by their versions; of others we
say the name, and what was compiled with them is kept for nobody else.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from types import FunctionType
from typing import Any, final

from hlojit.extensions.functions.lowered_implementations import foreign_lowerings
from hlojit.ir.known_modules import known_version

_OPERATORS = {"getitem": operator.getitem, "static_getitem": operator.getitem}


def foreign_implementations(overload: Any, typing_context: Any) -> Iterator[str]:
    """Names of implementations from outside the known packages that a compiled function may use, for error messages."""
    walk = _Walk(typing_context)
    yield from walk.function(overload)
    yield from foreign_lowerings(overload.target_context, walk.called, walk.attributes)


@final
class _Walk:
    """One walk over a function and those that numba compiled for it."""

    def __init__(self, typing_context: Any):
        self.context = typing_context
        self.seen: set[int] = set()
        self.called: list[Any] = []
        """Functions and operators, as numba's tables call them."""
        self.attributes: set[str] = set()

    def function(self, overload: Any) -> Iterator[str]:
        """What one compiled function uses."""
        if id(overload) in self.seen:
            return
        self.seen.add(id(overload))
        annotation = overload.type_annotation
        for kind in dict.fromkeys(annotation.typemap.values()):
            yield from self._type(kind)
        for expression, signature in annotation.calltypes.items():
            if hasattr(expression, "op") and signature is not None:
                function = _OPERATORS.get(expression.op, expression._kws.get("fn"))
                self.called.append(function)
                # Others may overload operators for types of their own: of overloads only those count that took these types.
                yield from self._templates(_registered(self.context, function), signature.args)
        for block in annotation.blocks.values():
            for expression in block.find_exprs("getattr"):
                self.attributes.add(expression.attr)
                owner = annotation.typemap.get(expression.value.name)
                found = () if owner is None else self.context._get_attribute_templates(owner)
                yield from self._templates(
                    type(each) for each in found if getattr(each, "_attr", expression.attr) == expression.attr
                )

    def _type(self, kind: Any) -> Iterator[str]:
        from numba.core import types as kinds

        if known_version(type(kind).__module__) is None:
            yield f"the type {kind}"
        elif isinstance(kind, kinds.Function):
            self.called.append(kind.typing_key)
            yield from self._templates(kind.templates)
        elif isinstance(kind, kinds.BoundFunction):
            yield from self._templates((kind.template,))
        elif isinstance(kind, kinds.Dispatcher):
            for other in kind.dispatcher.overloads.values():
                yield from self.function(other)

    def _templates(self, templates: Any, arguments: tuple[Any, ...] | None = None) -> Iterator[str]:
        for found in templates:
            template = found if isinstance(found, type) else type(found)
            taken = getattr(template, "_compiled_overloads", None)
            if arguments is not None and taken is not None and arguments not in taken:
                continue
            yield from _foreign(template)
            key = getattr(template, "key", None)
            if key is not None:
                self.called.append(key)
            for made in list(getattr(template, "_impl_cache", {}).values()):
                dispatcher = made[0] if isinstance(made, tuple) and made else None
                for other in list(getattr(dispatcher, "overloads", {}).values()):
                    yield from self.function(other)


def _registered(typing_context: Any, function: Any) -> Iterator[Any]:
    """The templates that are registered for an operator."""
    if callable(function):
        found = typing_context._functions.get(function, ())
        for each in found if isinstance(found, list) else (found,):
            yield from getattr(each, "templates", (each,))


def _foreign(template: Any) -> Iterator[str]:
    for each in _implementers(template):
        if known_version(each.__module__) is None:
            yield f"{each.__module__}.{each.__qualname__}"
            return


def _implementers(template: Any) -> Iterator[Any]:
    """The class and the functions that a template consists of, also those that a decorator of numba's wrapped."""
    yield template
    key = getattr(template, "key", None)
    for kind in template.__mro__:
        for name, value in vars(kind).items():
            function = getattr(value, "__func__", value)
            if name == "key" or not isinstance(function, FunctionType) or _is_written_by_numba(function):
                continue
            yield function
            # What implements itself (register_jitable) is read by name, so that its content counts.
            captured = (cell.cell_contents for cell in function.__closure__ or ())
            # numba itself captures functions that it has written for the purpose, which are in no module.
            yield from (
                each for each in captured if isinstance(each, FunctionType) and each.__module__ and each is not key
            )


def _is_written_by_numba(function: FunctionType) -> bool:
    """Whether a function in no module is one that numba has made of text, which only reads what numba gave it."""
    read = [value for name, value in function.__globals__.items() if name != "__builtins__"]
    modules = [getattr(each, "__module__", None) for each in read if each is not function]
    return function.__module__ is None and any((each or "").startswith("numba.") for each in modules)
