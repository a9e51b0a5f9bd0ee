"""Classes whose objects are containers of arrays: ``hlojit.register_pytree`` and ``hlojit.register_dataclass``.

    hlojit.register_pytree(Point, lambda p: ((p.x, p.y), p.name), lambda name, xy: Point(*xy, name))

What ``flatten`` gives are the object's children, which are arrays, numbers or containers, and something hashable that is
static: a function is compiled for each of its values.  Dataclasses are containers as they are: their fields are children.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import MemberDescriptorType
from typing import Any, Final, Literal, final

import numpy as np
from hlojit.arrays import Array
from hlojit.ir.errors import ArgumentError
from hlojit.tracing.calls.static_arguments import keyed

_MISSING: Final = object()
_NEVER_DATA: Final = (str, bytes, type, np.dtype, enum.Enum, slice, range)
_KNOWN: Final = frozenset(
    {tuple, list, dict, OrderedDict, defaultdict, type(None), object, type, bool, int, float, complex, str, bytes}
)
"""What these are is settled."""


class ContainerError(ArgumentError):
    """An object that is registered, or ought to be, cannot be taken apart."""


@final
class Static:
    """Something hashable in the description of a container, as a static argument counts."""

    __slots__ = ("_key", "value")

    def __init__(self, value: Any, where: str):
        self.value = value
        try:
            self._key: Hashable = keyed(value)
        except TypeError as error:
            raise ContainerError(
                f"{where} is static and must be hashable, and is {shortened(value)} of type {type(value).__name__} ({error}): "
                "arrays and what is traced belong among the children (data), and tuples in the place of lists"
            ) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@final
class Registration:
    """How objects of one class are taken apart and made.  Compared by identity."""

    __slots__ = ("build", "kind", "open")

    def __init__(
        self,
        kind: type,
        open: Callable[[Any], tuple[Iterable[Any], Any]],
        build: Callable[[Any, Sequence[Any]], Any],
    ):
        self.kind = kind
        self.open = open
        self.build = build

    def opened(self, tree: Any) -> tuple[tuple[Any, ...], Static]:
        """The children of an object, and what of it is static."""
        found = self.open(tree)
        if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], Iterable):
            raise ContainerError(
                f"flatten of {self.kind.__name__} gave {shortened(found)}: a pair is expected, (children, static), for "
                "example ((p.x, p.y), None)"
            )
        children, static = found
        return tuple(children), Static(static, f"what flatten of {self.kind.__name__} gives beside the children")


@final
@dataclasses.dataclass(frozen=True)
class Fields:
    """Which attributes of objects are children and which are static; objects are made without ``__init__``."""

    kind: type
    data: tuple[str, ...]
    static: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    others: Literal["data", "static", "refused"] = "data"
    """What attributes are that are named nowhere."""

    def opened(self, tree: Any) -> tuple[tuple[str, ...], tuple[Any, ...], tuple[tuple[str, Static], ...]]:
        """The names of the children, the children, and the static attributes by name."""
        own = getattr(tree, "__dict__", {})
        data = {name: getattr(tree, name) for name in self.data if hasattr(tree, name)}
        static = {name: getattr(tree, name) for name in self.static if hasattr(tree, name)}
        known = {*self.data, *self.static, *self.dropped}
        for name, value in own.items():
            if name not in known:
                (data if self._is_data(name, value) else static)[name] = value
        described = tuple(
            (name, Static(value, f"attribute {name!r} of class {self.kind.__name__}")) for name, value in static.items()
        )
        return tuple(data), tuple(data.values()), described

    def _is_data(self, name: str, value: Any) -> bool:
        if self.others == "refused":
            raise ContainerError(
                f"an object of class {self.kind.__name__} has the attribute {name!r}, which register_dataclass does not name: "
                "add it to data_fields or meta_fields, or to drop_fields, which leave it out"
            )
        return self.others == "data" and not isinstance(value, _NEVER_DATA) and not callable(value)

    def built(self, names: Sequence[str], values: Sequence[Any], static: Sequence[tuple[str, Static]]) -> Any:
        """An object with these attributes."""
        made: Any = object.__new__(self.kind)
        # Also of frozen classes, and past methods that check what is set.
        for name, value in zip(names, values, strict=True):
            object.__setattr__(made, name, value)
        for name, described in static:
            object.__setattr__(made, name, described.value)
        return made


# --------------------------------------------------------------------------------------------------------- what is known

_lock = threading.Lock()
_registered: dict[type, Registration | Fields] = {}


def registered(kind: type) -> Registration | Fields | None:
    """How objects of a class are taken apart; None of classes that nobody registered, and that are no dataclasses."""
    found = _registered.get(kind)
    return found if found is not None or kind in _KNOWN else _of_dataclass(kind)


@functools.lru_cache(maxsize=1024)
def _of_dataclass(kind: type) -> Fields | None:
    if not dataclasses.is_dataclass(kind) or not _is_plain(kind) or registered_base(kind) is not None:
        return None
    fields = dataclasses.fields(kind)
    static = tuple(each.name for each in fields if each.metadata.get("static"))
    return Fields(kind, tuple(each.name for each in fields if each.name not in static), static)


def registered_base(kind: type) -> type | None:
    """The base of a class that somebody registered, of a class that nobody did."""
    return None if kind in _registered else next((each for each in kind.__mro__[1:] if each in _registered), None)


def _is_plain(kind: type) -> bool:
    """Whether objects are made of their attributes alone: those of subclasses of list, Exception, ndarray are not."""
    try:
        return type(object.__new__(kind)) is kind
    except TypeError:
        return False


def _register(kind: Any, made: Registration | Fields, name: str) -> None:
    with _lock:
        if kind in _registered:
            raise ArgumentError(
                f"{name}: class {kind.__name__} is registered already; functions are compiled by what was said first, so a "
                "class is registered once, where it is written"
            )
        _registered[kind] = made
        _of_dataclass.cache_clear()


def _checked_class(kind: Any, name: str) -> None:
    if not isinstance(kind, type):
        raise ArgumentError(f"{name} takes a class, not {shortened(kind)} of type {type(kind).__name__}")
    if kind in _KNOWN or issubclass(kind, (np.ndarray, np.generic, Array)):
        raise ArgumentError(
            f"{name}: what objects of class {kind.__name__} are is settled; register a class of your own"
        )


# ------------------------------------------------------------------------------------------------------------- registering


def register_pytree(
    cls: Any = None,
    flatten: Callable[[Any], tuple[Iterable[Any], Any]] | None = None,
    unflatten: Callable[[Any, Any], Any] | None = None,
) -> Any:
    """Have objects of a class be containers: arguments and results, ``self`` of methods, states of loops.

    ``flatten(object)`` gives ``(children, static)``: the arrays, numbers and containers in it, and something hashable, for each
    value of which a function is compiled.  ``unflatten(static, children)`` makes an object of others of the same number; these
    need not be arrays, so it checks and converts nothing.

    A decorator without them, of a class with JAX's methods ``tree_flatten(self)`` and ``tree_unflatten(cls, static, children)``;
    or with them: ``@hlojit.register_pytree(flatten=..., unflatten=...)``.  Subclasses are registered by themselves; a class is
    registered once.
    """
    name = "register_pytree"
    if cls is None:
        return functools.partial(register_pytree, flatten=flatten, unflatten=unflatten)
    _checked_class(cls, name)
    if flatten is None and unflatten is None:
        flatten, unflatten = getattr(cls, "tree_flatten", None), getattr(cls, "tree_unflatten", None)
    if not callable(flatten) or not callable(unflatten):
        raise ArgumentError(
            f"{name}: class {cls.__name__} needs two functions, flatten(object) -> (children, static) and "
            "unflatten(static, children) -> object, or methods tree_flatten(self) and a class method tree_unflatten(cls, static, "
            "children); hlojit.register_dataclass takes names of attributes instead"
        )
    _register(cls, Registration(cls, flatten, unflatten), name)
    return cls


def register_dataclass(
    cls: Any = None,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Any:
    """Have objects of a class be containers of some of their attributes; of a dataclass, or of any class.

    ``data_fields`` are children, ``meta_fields`` static (hashable; a function is compiled for each of their values) and
    ``drop_fields`` left out.  Of a dataclass, those whose ``field(metadata={"static": True})`` says so are static, if nothing is
    given; every dataclass is such a container without being registered.  With ``data_fields`` alone, all other attributes are
    static.  Objects are made by setting attributes: ``__init__`` and ``__post_init__`` do not run again.

    A decorator, too: ``@hlojit.register_dataclass(data_fields=("weights", "bias"))``.
    """
    name = "register_dataclass"
    if cls is None:
        return functools.partial(
            register_dataclass, data_fields=data_fields, meta_fields=meta_fields, drop_fields=drop_fields
        )
    _checked_class(cls, name)
    if not _is_plain(cls):
        raise ArgumentError(
            f"{name}: objects of class {cls.__name__} are more than their attributes (a subclass of "
            f"{_settled_base(cls).__name__}); register it by hlojit.register_pytree(cls, flatten, unflatten)"
        )
    _register(cls, _fields(cls, data_fields, meta_fields, tuple(drop_fields), name), name)
    return cls


def _fields(kind: Any, data: Any, static: Any, dropped: tuple[str, ...], name: str) -> Fields:
    for each, said in ((data, "data_fields"), (static, "meta_fields")):
        if isinstance(each, str):
            raise ArgumentError(f"{name}: {said}={each!r}: names are expected in a tuple: {said}=({each!r},)")
    if data is None and (static is not None or not dataclasses.is_dataclass(kind)):
        raise ArgumentError(
            f"{name}: name the attributes of class {kind.__name__} that are arrays: data_fields=('weights', 'bias')"
        )
    if data is None:
        names = [each for each in dataclasses.fields(kind) if each.name not in dropped]
        data = tuple(each.name for each in names if not each.metadata.get("static"))
        return Fields(kind, data, tuple(each.name for each in names if each.metadata.get("static")), dropped)
    names_said = [*data, *(static or ()), *dropped]
    twice = sorted({each for each in names_said if names_said.count(each) > 1})
    if twice:
        raise ArgumentError(f"{name}: class {kind.__name__}: {', '.join(twice)} is named twice")
    if dataclasses.is_dataclass(kind):
        _check_names(kind, names_said, static is not None, name)
        if static is None:
            static = [each.name for each in dataclasses.fields(kind) if each.name not in names_said]
    return Fields(kind, tuple(data), tuple(static or ()), dropped, "static" if static is None else "refused")


def _check_names(kind: Any, said: Sequence[str], is_complete: bool, name: str) -> None:
    own = [each.name for each in dataclasses.fields(kind)]
    unknown = [each for each in said if each not in own]
    missing = [each for each in own if each not in said] if is_complete else []
    if unknown or missing:
        raise ArgumentError(
            f"{name}: class {kind.__name__} has the fields {', '.join(own)}"
            + (f", not {', '.join(unknown)}" if unknown else "")
            + (f"; {', '.join(missing)} must be in data_fields, meta_fields or drop_fields" if missing else "")
        )


def _settled_base(kind: type) -> type:
    return next((each for each in kind.__mro__[1:] if each is not object and each.__module__ == "builtins"), object)


# ------------------------------------------------------------------------------------------------------ objects and changes


def cached_names(kind: type) -> frozenset[str]:
    """The attributes that objects of a class compute once, and keep."""
    return frozenset(
        name
        for each in kind.__mro__
        for name, value in vars(each).items()
        if isinstance(value, functools.cached_property)
    )


def advice(value: Any, name: str, *, is_result: bool = False) -> str:
    """What to write for an object of a class that is no container, by how the function calls it."""
    kind = type(value)
    base = registered_base(kind)
    if base is not None:
        return f"class {base.__name__} is registered and {kind.__name__}, which derives from it, is not: register it as well"
    if isinstance(value, (list, tuple, dict)):
        plain = next(each for each in (list, tuple, dict) if isinstance(value, each))
        instead = f"return a {plain.__name__}" if is_result else f"pass {plain.__name__}({name})"
        return f"a subclass of {plain.__name__}, which would be lost: {instead}, or register the class by hlojit.register_pytree"
    ways = []
    if hasattr(value, "__dict__") and not callable(value):
        ways.append(f"for its arrays to be {'results' if is_result else 'arguments'}, {as_container(value)}")
    if not is_result:
        own = re.split(r"[.\[]", name)[0]
        ways.append(f"for what it holds to be constants, say static_argnames={own!r}")
    return "no array and no container" + (
        f": {'; '.join(ways)}" if ways else "; return arrays, numbers, and containers of them"
    )


def as_container(value: Any) -> str:
    """What to write for objects of a class to be containers."""
    kind = type(value).__name__
    arrays = [each for each, held in vars(value).items() if hasattr(held, "shape") and hasattr(held, "dtype")]
    fields = ", ".join(map(repr, arrays or ["weights"])) + ("," if len(arrays) < 2 else "")
    return f"make {kind} a dataclass, or register it: hlojit.register_dataclass({kind}, data_fields=({fields}))"


def instead_of_static(name: str) -> str:
    """What to write for an argument that cannot be an array, by how the function calls it."""
    own, *parts = re.split(r"(?=[.\[])", name)
    if not parts:
        return "name the argument in static_argnames"
    if parts[-1].startswith("."):
        field = parts[-1].removeprefix(".")
        return (
            f"say that the field is static, {field}: ... = dataclasses.field(metadata={{'static': True}}), or name it in "
            "meta_fields of hlojit.register_dataclass"
        )
    return f"give it as an argument of its own, which is static, beside {own}"


def object_advice(value: Any) -> str:
    """What to add where an object of the user's stands in the way; nothing for other values."""
    is_users = hasattr(value, "__dict__") and not callable(value)
    return f" (for a {type(value).__name__} to be a container of arrays, {as_container(value)})" if is_users else ""


def shortened(value: Any) -> str:
    """How messages show a value."""
    try:
        text = repr(value)
    except Exception:
        text = f"an object of type {type(value).__name__}"
    return text if len(text) < 60 else f"{text[:56]}..."


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes that an object has of its own, in its dictionary and in slots."""
    own = getattr(value, "__dict__", None)
    found = dict(own) if type(own) is dict else {}
    for kind in type(value).__mro__:
        for name, slot in vars(kind).items():
            if isinstance(slot, MemberDescriptorType) and hasattr(value, name):
                found[name] = slot.__get__(value)
    return found
