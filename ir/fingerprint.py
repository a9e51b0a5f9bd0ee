"""Content hashes of plain data and of Python functions: the same in every process that runs the same source.

    fingerprint(3.0), fingerprint(array), fingerprint(lambda x: x * SCALE)

A function is hashed by what it does: bytecode, constants, defaults, captured values, and everything that it reads of
modules, helper functions included, recursively.  What the standard library, hlojit and the numeric packages below it
bring counts by its name and version.  Nothing depends on addresses, on the order of sets or on the hash seed.

A function that reads what its source does not say - a file, the environment, the clock - is refused too
(``hlojit.ir.outside_reads``), unless it states an identity of its own in its attribute ``hlojit_identity``.

What cannot be hashed by content - C pointers, locks, open files - raises ``NotKeyable``, which names it and says how it is
reached: it must not be kept between processes, and what depends on it is not cached.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import hashlib
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from types import (
    BuiltinFunctionType,
    BuiltinMethodType,
    CodeType,
    DynamicClassAttribute,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Final

import numpy as np
from hlojit.ir.code_reads import MISSING, cells, reads
from hlojit.ir.errors import HlojitError
from hlojit.ir.known_modules import known_class, known_version
from hlojit.ir.outside_reads import outside_read

STATED: Final = "hlojit_identity"
"""Attribute of a function or class: a string, or a function without parameters that returns one, which stands for what it
reads from outside of its source."""

RUNTIME: Final = "hlojit_runtime"
"""Attribute of a class: the names of attributes of its objects that hold what runs have made, devices and caches, which decide
nothing about what is compiled and are not looked at; or True, for a class whose objects are altogether such."""

_VALUES_OF_CLASSES_TO_SKIP = frozenset(
    "__dict__ __weakref__ __doc__ __module__ __annotations__ __annotate__ __annotate_func__ __annotations_cache__ "
    "__firstlineno__ __static_attributes__ __abstractmethods__ _abc_impl __dataclass_params__ __dataclass_fields__ "
    "__match_args__ __parameters__ __orig_bases__".split()
)
_WRITTEN_BY_DATACLASSES = frozenset(
    "__init__ __repr__ __eq__ __lt__ __le__ __gt__ __ge__ __hash__ __setattr__ __delattr__ __replace__".split()
)
_CODE = (FunctionType, property, staticmethod, classmethod, functools.cached_property)
_NAMED = (GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType)


class NotKeyable(HlojitError):
    """A value that has no content hash; ``path`` says how it is reached."""

    def __init__(self, what: str, path: tuple[str, ...] = ()):
        self.what = what
        self.path = path
        place = f" (in {', '.join(path)})" if path else ""
        super().__init__(f"{what} cannot be identified by its content{place}")


def fingerprint(value: object) -> str:
    """Content hash of a value, as 64 hexadecimal digits; raises ``NotKeyable``."""
    walk = ContentWalk()
    try:
        walk.put(value)
    except RecursionError:
        raise NotKeyable(f"{_describe(value)}, which is nested too deeply,") from None
    return walk.digest.hexdigest()


class _Within:
    """A step of the path to a value, inside a ``with`` block; one is made for every item of every container."""

    __slots__ = ("name", "path")

    def __init__(self, path: list[str], name: str):
        self.path = path
        self.name = name

    def __enter__(self) -> None:
        self.path.append(self.name)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        # Whoever goes on after an error cuts the path himself.
        if error is None:
            self.path.pop()


class ContentWalk:
    """One walk over a value and everything that it consists of."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.path: list[str] = []
        self.numbers: dict[int, int] = {}
        self.alive: list[object] = []
        """What was numbered: an address names an object only as long as the object lives."""
        self.stated = 0
        """How many of the functions and classes that enclose what is written state an identity of their own."""

    # -------------------------------------------------------------------------------------------------- writing

    def tag(self, kind: str, payload: str | bytes = b"") -> None:
        """Write a tag with its payload, so that no two sequences of tags look alike."""
        data = payload.encode("utf-8", "surrogatepass") if isinstance(payload, str) else payload
        self.digest.update(f"{kind} {len(data)}:".encode())
        self.digest.update(data)

    def within(self, name: str) -> _Within:
        """Note how the values that follow are reached."""
        return _Within(self.path, name)

    def refuse(self, what: str) -> NotKeyable:
        """The error for a value that has no content."""
        return NotKeyable(what, tuple(self.path))

    @contextmanager
    def _stating(self, attributes: Mapping[str, Any]) -> Iterator[None]:
        """Write the identity that a function or class states, if it does; what is inside may then read what it likes."""
        if STATED not in attributes:
            yield
            return
        identity = attributes[STATED]
        if isinstance(identity, staticmethod):
            identity = identity.__func__
        try:
            text = identity() if callable(identity) else identity
        except Exception as error:
            raise self.refuse(f"{STATED}, which raised {error!r},") from None
        if not isinstance(text, str):
            raise self.refuse(f"{STATED}, which is {text!r} rather than a string,")
        self.tag("stated", text)
        self.stated += 1
        try:
            yield
        finally:
            self.stated -= 1

    def put(self, value: Any) -> None:
        """Write any value."""
        writer = _WRITERS.get(type(value))
        if writer is not None:
            writer(self, value)
            return
        if isinstance(value, type):
            self._once(value, self._class)
        elif isinstance(value, enum.Enum):
            self.tag("enum", value.name or "")
            self.put(value.value)
            self.put(type(value))
        elif isinstance(value, np.dtype):
            self._dtype(value)
        elif isinstance(value, (np.ndarray, np.generic)):
            self._array(np.asarray(value))
        else:
            self._once(value, self._object)

    def _once(self, value: Any, write: Callable[[Any], None]) -> None:
        """Write a value that may be reached again, or from itself; the second time its number stands for it."""
        number = self.numbers.get(id(value))
        if number is not None:
            self.tag("again", str(number))
            return
        self.numbers[id(value)] = len(self.numbers)
        self.alive.append(value)
        write(value)

    # ------------------------------------------------------------------------------------------------ containers

    def _sequence(self, value: Any) -> None:
        self.tag(type(value).__name__, str(len(value)))
        for number, item in enumerate(value):
            with self.within(f"item {number}"):
                self.put(item)

    def _list(self, value: list[Any]) -> None:
        self._once(value, self._sequence)

    def _separately(self, value: Any) -> str:
        """Hash of a value that has no place of its own in an order; it may refer to what encloses it."""
        inner = type(self)()
        inner.path, inner.numbers, inner.alive = self.path, dict(self.numbers), self.alive
        inner.stated = self.stated
        inner.put(value)
        return inner.digest.hexdigest()

    def _set(self, value: Any) -> None:
        self.tag("set", str(len(value)))
        for text in sorted(map(self._separately, value)):
            self.tag("item", text)

    def _mapping(self, value: Any) -> None:
        self._once(value, self._items)

    def _items(self, value: Any) -> None:
        self.tag("mapping", str(len(value)))
        for key, item in sorted(
            ((self._separately(key), item) for key, item in value.items()), key=lambda pair: pair[0]
        ):
            self.tag("key", key)
            self.put(item)

    # ------------------------------------------------------------------------------------------------ arrays

    def _dtype(self, value: np.dtype[Any]) -> None:
        self.tag("dtype", f"{value.name} {value.str} {value.descr if value.names else ''}")

    def _array(self, value: np.ndarray[Any, Any]) -> None:
        self.tag("array", str(value.shape))
        self._dtype(value.dtype)
        if value.dtype.hasobject:
            self._sequence(value.ravel().tolist())
        else:
            self.tag("bytes", np.ascontiguousarray(value).tobytes())

    # ------------------------------------------------------------------------------------------------ functions

    def _function(self, value: FunctionType) -> None:
        self._once(value, self._new_function)

    def _new_function(self, value: FunctionType) -> None:
        known = known_version(value.__globals__.get("__name__"), value.__globals__)
        with self.within(f"function {value.__qualname__}"), self._stating(vars(value)):
            outside = "" if known is not None or self.stated else outside_read(value)
            if outside:
                raise self.refuse(f"{outside}, which may be something else in another process,")
            self.tag("function", f"{value.__qualname__} {known or ''}")
            self._code(value.__code__)
            self.put((value.__defaults__, value.__kwdefaults__, _without_identity(value.__dict__)))
            # What a known package's function reads of its own modules changes with the package's version only.
            found = cells(value) if known else reads(value, _is_known)
            for name, read in found.items():
                self.tag("reads", name)
                with self.within(name):
                    self.put(read)

    def _code(self, value: CodeType) -> None:
        self.tag("code", value.co_code)
        self.tag("handlers", value.co_exceptiontable)
        numbers = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags)
        names = (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
        self.tag("signature", repr((numbers, names)))
        self._sequence(value.co_consts)

    def _method(self, value: MethodType) -> None:
        self.tag("method")
        owner = value.__self__
        with self._stating(_attributes(owner if isinstance(owner, type) else type(owner))):
            self.put(value.__func__)
        self.put(owner)

    def _builtin(self, value: Any) -> None:
        owner = value.__self__
        self.tag("builtin", f"{value.__module__}.{value.__qualname__}")
        if owner is not None and not isinstance(owner, ModuleType):
            self.put(owner)
        elif known_version(value.__module__ or "builtins") is None:
            raise self.refuse(f"{value.__module__}.{value.__qualname__}, a function in C,")

    def _module(self, value: ModuleType) -> None:
        known = known_version(value.__name__, vars(value))
        if known is None:
            raise self.refuse(f"the module {value.__name__} as a value (read its attributes by name instead)")
        self.tag("module", f"{value.__name__} {known}")

    # ------------------------------------------------------------------------------------------------ classes

    def _class(self, value: type) -> None:
        known = known_class(value)
        self.tag("class", f"{value.__module__}.{value.__qualname__} {known or ''}")
        if known is not None:
            return
        with self.within(f"class {value.__qualname__}"), self._stating(_attributes(value)):
            self.put(value.__bases__)
            if type(value) is not type:
                self.put(type(value))
            if is_dataclass(value):
                self.put([(each.name, each.default, each.default_factory) for each in fields(value)])
            items = _items_of_enum(value) if issubclass(value, enum.Enum) else vars(value)
            for name, item in sorted(items.items()):
                if name not in _VALUES_OF_CLASSES_TO_SKIP and name != STATED and not _is_generated(value, item):
                    self.tag("attribute", name)
                    with self.within(name):
                        self.put(item)

    def _sentinel(self, value: object) -> None:
        self.tag("missing" if value is MISSING else "sentinel")

    def _property(self, value: Any) -> None:
        self.tag("property")
        self.put((value.fget, value.fset, value.fdel))

    def _wrapper(self, value: Any) -> None:
        self.tag(type(value).__name__)
        self.put(value.__func__)

    def _cached_property(self, value: functools.cached_property[Any]) -> None:
        self.tag("cached_property")
        self.put(value.func)

    def _cached_function(self, value: Any) -> None:
        self.tag("cached function")
        self.put(value.__wrapped__)
        wrapper = (*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", STATED)
        self.put({name: item for name, item in vars(value).items() if name not in wrapper})

    # ------------------------------------------------------------------------------------------------ objects

    def _object(self, value: Any) -> None:
        kind = type(value)
        if is_of_runs(value):
            raise self.refuse(f"{_describe(value)}, which belongs to what runs,")
        if kind.__module__.partition(".")[0] == "numba" and hasattr(value, "py_func"):
            self.tag("numba function")
            self.put(value.py_func)
            self.put(getattr(value, "targetoptions", None))
        elif kind.__module__.startswith("numba.core.types"):
            self.tag("numba type", str(value))
        elif isinstance(value, np.ufunc):
            self._ufunc(value)
        elif kind.__name__ == "_ArrayFunctionDispatcher":
            self.tag("numpy function", f"{value.__module__}.{value.__qualname__}")
        elif is_c_object(value):
            raise self.refuse(f"{_describe(value)}, a C object,")
        elif isinstance(value, _NAMED):
            self.tag("descriptor", f"{value.__objclass__.__qualname__}.{value.__name__}")
        elif is_dataclass(value):
            self._dataclass(value)
        else:
            self._reduced(value)

    def _ufunc(self, value: np.ufunc) -> None:
        # One that somebody made of a Python function does not show it.
        for package in ("numpy", "scipy.special"):
            if getattr(sys.modules.get(package), value.__name__, None) is value:
                self.tag("ufunc", f"{package}.{value.__name__}")
                return
        raise self.refuse(f"the ufunc {value.__name__}")

    def _dataclass(self, value: Any) -> None:
        self.tag("dataclass")
        self.put(type(value))
        left_out = of_runs(type(value))
        for each in fields(value):
            if each.name not in left_out:
                self.tag("field", each.name)
                with self.within(each.name):
                    self.put(getattr(value, each.name, MISSING))
        own = {each.name for each in fields(value)}
        if known_class(type(value)) is None:
            self.put({name: item for name, item in contents(value).items() if name not in own})

    def _reduced(self, value: Any) -> None:
        """Any other object: its class and the parts that it gives for copying; some refuse, locks and files among them."""
        try:
            reducer = copyreg.dispatch_table.get(type(value))
            parts: Any = reducer(value) if reducer else value.__reduce_ex__(4)
        except Exception as error:
            raise self.refuse(f"{_describe(value)} ({error})") from None
        self.tag("object")
        self.put(type(value))
        if isinstance(parts, str):
            self.tag("name", parts)
            self._kept_back(value)
            return
        left_out = _worked_out(value) | of_runs(type(value))
        with self.within(type(value).__qualname__):
            for number, part in enumerate(parts):
                if number == 2 and isinstance(part, dict):
                    self.put({name: item for name, item in part.items() if name not in left_out})
                else:  # the last ones may be iterators over items
                    self.put(tuple(part) if number >= 3 and part is not None else part)
            self._kept_back(value)

    def _kept_back(self, value: Any) -> None:
        """What an object does not give for copying, though its methods may read it."""
        if known_class(type(value)) is None and not _gives_all(type(value)):
            self.put(contents(value))


def _is_known(module: ModuleType) -> bool:
    return known_version(module.__name__, vars(module)) is not None


def _attributes(kind: type) -> dict[str, Any]:
    """The attribute of a class, or of one that it inherits from, that states an identity."""
    for each in kind.__mro__:
        if STATED in vars(each):
            return {STATED: vars(each)[STATED]}
    return {}


def _without_identity(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in attributes.items() if name != STATED}


def _is_generated(owner: type, item: object) -> bool:
    """Whether a method was written by the dataclass decorator: the fields say what it does."""
    return (
        is_dataclass(owner)
        and isinstance(item, FunctionType)
        and item.__name__ in _WRITTEN_BY_DATACLASSES
        and item.__code__.co_filename == "<string>"
        and item.__code__.co_qualname == f"__create_fn__.<locals>.{item.__name__}"
    )


def _items_of_enum(kind: type[enum.Enum]) -> dict[str, Any]:
    """What the author of an enumeration wrote: members by their values, methods, and other attributes.

    The rest (``_member_map_``, ``_value2member_map_``) is how the class finds its members.
    """
    members = {name: member.value for name, member in kind.__members__.items()}
    written = {name: item for name, item in vars(kind).items() if not name.startswith("_") or isinstance(item, _CODE)}
    return {**written, **members, "__members__": tuple(members)}


def _gives_all(kind: type) -> bool:
    """Whether copying takes everything that an object of a class has; a class may say otherwise."""
    names = ("__reduce_ex__", "__reduce__", "__getstate__")
    return kind not in copyreg.dispatch_table and all(
        getattr(kind, name, None) is getattr(object, name, None) for name in names
    )


def _worked_out(value: Any) -> set[str]:
    """Names of cached properties that hold what their functions give; one that was given another value counts."""
    held = getattr(value, "__dict__", {})
    lazy = {
        name: item
        for kind in reversed(type(value).__mro__)
        for name, item in vars(kind).items()
        if isinstance(item, functools.cached_property) and name in held
    }
    return {name for name, item in lazy.items() if _gives(item, value, held[name])}


def _gives(item: functools.cached_property[Any], owner: Any, held: object) -> bool:
    """Whether a cached property's function gives what an object holds under its name."""
    if known_class(type(owner)) is not None:
        return True
    try:
        return fingerprint(item.func(owner)) == fingerprint(held)
    except Exception:
        return False


def contents(value: Any) -> dict[str, Any]:
    """What an object holds in its dictionary and slots, without what it works out when asked."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        for name, item in vars(kind).items():
            if isinstance(item, MemberDescriptorType) and known_class(kind) is None:
                found[name] = getattr(value, name, MISSING)
    for name in _worked_out(value) | of_runs(type(value)):
        found.pop(name, None)
    return found


def of_runs(kind: type) -> frozenset[str]:
    """The names that a class and those that it inherits from give in ``hlojit_runtime``."""
    given = (vars(each).get(RUNTIME, ()) for each in kind.__mro__)
    return frozenset(name for names in given if names is not True for name in names)


def is_of_runs(value: object) -> bool:
    """Whether an object is of a class that has ``hlojit_runtime = True``, or inherits it."""
    return any(vars(each).get(RUNTIME) is True for each in type(value).__mro__)


def is_c_object(value: object) -> bool:
    """Whether a value is a pointer, function or number of C, or something that is made of them."""
    return any(base.__module__ in ("_ctypes", "ctypes", "_cffi_backend") for base in type(value).__mro__)


def _describe(value: object) -> str:
    name = getattr(value, "__qualname__", None)
    return name if isinstance(name, str) else f"an object of type {type(value).__module__}.{type(value).__qualname__}"


def _plain(kind: str) -> Callable[[ContentWalk, Any], None]:
    return lambda walk, value: walk.tag(kind, repr(value))


_WRITERS: Final[dict[type, Callable[[ContentWalk, Any], None]]] = {
    type(None): _plain("None"),
    type(Ellipsis): _plain("Ellipsis"),
    type(NotImplemented): _plain("NotImplemented"),
    object: lambda walk, value: walk._once(value, walk._sentinel),
    bool: _plain("bool"),
    int: lambda walk, value: walk.tag("int", hex(value)),
    float: lambda walk, value: walk.tag("float", struct.pack("<d", value)),
    complex: lambda walk, value: walk.tag("complex", struct.pack("<dd", value.real, value.imag)),
    str: lambda walk, value: walk.tag("str", value),
    bytes: lambda walk, value: walk.tag("bytes", value),
    bytearray: lambda walk, value: walk.tag("bytes", bytes(value)),
    range: _plain("range"),
    slice: lambda walk, value: walk.put((value.start, value.stop, value.step)),
    tuple: ContentWalk._sequence,
    list: ContentWalk._list,
    set: ContentWalk._set,
    frozenset: ContentWalk._set,
    dict: ContentWalk._mapping,
    MappingProxyType: ContentWalk._mapping,
    FunctionType: ContentWalk._function,
    CodeType: ContentWalk._code,
    MethodType: ContentWalk._method,
    BuiltinFunctionType: ContentWalk._builtin,
    BuiltinMethodType: ContentWalk._builtin,
    ModuleType: ContentWalk._module,
    property: ContentWalk._property,
    DynamicClassAttribute: ContentWalk._property,
    enum.property: ContentWalk._property,
    staticmethod: ContentWalk._wrapper,
    classmethod: ContentWalk._wrapper,
    functools.cached_property: ContentWalk._cached_property,
    type(functools.lru_cache(lambda: None)): ContentWalk._cached_function,
}
