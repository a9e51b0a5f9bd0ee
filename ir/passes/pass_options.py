"""Options of passes: the fields of their dataclasses, set by name, checked by what the fields are declared as.

    with_options(Tile(), {"size": 32})                 Tile(size=32), in the phase of the pass that is given
    with_options(Tile(), {"sise": 32})                 HlojitError: ... no option 'sise'; it has size; did you mean 'size'?
    options_from_text(Tile(), "size=32 order=16x4")    {"size": 32, "order": (16, 4)}

Declared types are ``bool``, ``int``, ``float``, ``str``, ``None``, ``Literal``, enumerations, tuples and unions of these.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Union

from hlojit.ir.errors import HlojitError, repr_of
from hlojit.ir.near_names import did_you_mean
from hlojit.ir.passes.pass_manager import Pass, option_fields


def with_options(pass_: Pass, options: Mapping[str, Any], origin: str = "") -> Pass:
    """The pass with other options, in its phase; raises ``HlojitError`` for one that it has not, or of another type.

    ``origin`` says in messages who brought the pass.
    """
    what = f"pass {pass_.name!r}{origin}"
    declared = _declared(type(pass_))
    chosen = {}
    for name, value in options.items():
        if name not in declared:
            raise HlojitError(_no_option(what, name, declared))
        try:
            chosen[name] = _converted(declared[name], value)
        except (TypeError, ValueError):
            raise HlojitError(f"{what}: option {name!r} is {_text_of_type(declared[name])}, not {value!r}") from None
    try:
        made = dataclasses.replace(pass_, **chosen)
    except HlojitError:
        raise
    except Exception as error:
        raise HlojitError(f"{what} refuses the options {dict(options)!r}: {repr_of(error)}") from error
    return made if made.phase == pass_.phase else made.in_phase(pass_.phase)


def options_from_text(pass_: type[Pass] | Pass, text: str) -> dict[str, Any]:
    """Options as the command line writes them, ``name=value`` apart by spaces or commas; a name alone is true.

    Elements of tuples are apart by ``x``: ``16x4``.
    """
    declared = _declared(pass_ if isinstance(pass_, type) else type(pass_))
    options: dict[str, Any] = {}
    for word in text.replace(",", " ").split():
        name, equals, value = word.partition("=")
        if name not in declared:
            raise HlojitError(_no_option(f"pass {pass_.name!r}", name, declared))
        try:
            options[name] = _read(declared[name], value if equals else "true")
        except ValueError:
            kind = _text_of_type(declared[name])
            raise HlojitError(f"option {name!r} of pass {pass_.name!r}: {value!r} is not {kind}") from None
    return options


# ------------------------------------------------------------------------------------------------------------- parts


def _declared(kind: type[Pass]) -> dict[str, Any]:
    """The options by name, with what each is declared as."""
    try:
        hints = typing.get_type_hints(kind)
    except Exception:
        # Names that a vendor imports for type checkers only.
        hints = {}
    return {field.name: hints.get(field.name, _type_of_default(field)) for field in option_fields(kind)}


def _type_of_default(field: dataclasses.Field[Any]) -> Any:
    return Any if field.default is dataclasses.MISSING else type(field.default)


def _no_option(what: str, name: str, declared: Mapping[str, Any]) -> str:
    return f"{what} has no option {name!r}; it has {', '.join(declared) or 'none'}{did_you_mean(name, declared)}"


_NAMES: Final = {bool: "a bool", int: "an int", float: "a float", str: "a string", types.NoneType: "None"}


def _text_of_type(kind: Any) -> str:
    if kind in _NAMES:
        return _NAMES[kind]
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if _is_union(kind):
        return " or ".join(map(_text_of_type, arguments))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return f"one of {', '.join(member.name for member in kind)}"
    return f"of type {getattr(kind, '__name__', kind) if not arguments else kind}"


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (Union, types.UnionType)


def _members(kind: Any, count: int) -> Sequence[Any] | None:
    """What the elements of a sequence are declared as, or None for what is no sequence."""
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind) or kind
    if not (isinstance(origin, type) and issubclass(origin, Sequence)) or origin in (str, bytes):
        return None
    if origin is not tuple or not arguments or arguments[-1] is Ellipsis:
        return [arguments[0] if arguments else Any] * count
    if len(arguments) != count:
        raise ValueError
    return arguments


def _converted(kind: Any, value: Any) -> Any:
    """A value as it is declared; raises ``TypeError`` or ``ValueError`` for another one."""
    if kind is Any:
        return value
    if _is_union(kind) or typing.get_origin(kind) is Literal:
        return _chosen(kind, value, _converted)
    if kind is bool or kind is str:
        return _checked(value, kind)
    if kind is int or kind is float:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value) if kind is int else float(_checked(value, (int, float)))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return value if isinstance(value, kind) else _member(kind, value)
    if isinstance(value, (list, tuple)):
        members = _members(kind, len(value))
        if members is not None:
            return tuple(_converted(each, element) for each, element in zip(members, value))
    return _checked(value, typing.get_origin(kind) or kind)


def _read(kind: Any, text: str) -> Any:
    """What a text says; raises ``ValueError``."""
    if kind is bool:
        if text in ("true", "false"):
            return text == "true"
        raise ValueError
    if kind is int or kind is float:
        return kind(text)
    if kind is types.NoneType:
        return _checked(None if text == "none" else text, kind)
    if _is_union(kind) or typing.get_origin(kind) is Literal:
        return _chosen(kind, text, _read)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _member(kind, text)
    words = text.split("x")
    members = _members(kind, len(words))
    return text if members is None else tuple(map(_read, members, words))


def _chosen(kind: Any, value: Any, convert: Any) -> Any:
    """The first of several that a value fits."""
    for each in typing.get_args(kind):
        if typing.get_origin(kind) is Literal:
            if type(value) is type(each) and value == each:
                return value
            if isinstance(value, str) and convert is _read and value == str(each):
                return each
            continue
        try:
            return convert(each, value)
        except (TypeError, ValueError):
            continue
    raise ValueError


def _member(kind: type[enum.Enum], value: Any) -> enum.Enum:
    for member in kind:
        if value in (member.name, member.value) or (isinstance(value, str) and value.upper() == member.name):
            return member
    raise ValueError


def _checked(value: Any, kind: Any) -> Any:
    if isinstance(kind, (type, tuple)) and not isinstance(value, kind):
        raise TypeError
    if value is None and kind is types.NoneType:
        return None
    return value
