"""Entries of the native dispatcher: a call that Python has answered, written down so that native code answers the next such one.

    entry = entry_of(Seen(call, compiled, ...))      # None of calls that operations do not describe: Python answers these

An entry holds on to everything that a compiled form was found by: types, shapes and layouts of the arrays, containers around
them, values of static arguments, names that the function reads, plugins and the back end.  What it does not know it leaves
to Python, where a call's meaning is defined (``hlojit.tracing.decorator``).
"""

from __future__ import annotations

import enum
import inspect
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, EllipsisType, FunctionType, GetSetDescriptorType, MappingProxyType
from types import MemberDescriptorType as _Slot
from typing import Any, Final, final

import numpy as np
from hlojit.ir.environment import conditions
from hlojit.ir.switches import BACKEND
from hlojit.runtime.dispatcher import Entry, Words, entry
from hlojit.runtime.layout import GIVE, MATCH
from hlojit.tracing.calls.containers import LEAF, Structure, is_parted
from hlojit.tracing.calls.contents import NOTHING, Content, Elements, Items, Members, Numbers, Parts, Slot
from hlojit.tracing.calls.guards import Guards
from hlojit.tracing.calls.outcomes import PLAIN, Form, Outcome
from hlojit.tracing.calls.pytrees import Fields, registered
from hlojit.tracing.calls.static_arguments import has_state

_NUMBERS: Final = (bool, int, float, complex)
"""In the order of the numbers by which operations call them."""
_GIVEN_NUMBERS: Final = tuple(map(np.dtype, (np.bool_, np.int64, np.float64)))
_SCALARS: Final = frozenset(
    {np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64}
    | {np.float16, np.float32, np.float64, np.complex64, np.complex128}
)
_EQUAL: Final = (int, str, bytes)
"""Static values of these types count by equality."""
_SAME: Final = (type, FunctionType, BuiltinFunctionType, np.ufunc, np.dtype, EllipsisType, enum.Enum)
"""Static values of these types count by identity here, which is stricter than what Python does."""


class _Unknown(Exception):
    """A call that no operations describe."""


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """A call that Python has answered."""

    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    leaves: list[Any]
    structure: Structure
    """Of (positional, named) traced arguments."""
    signature: inspect.Signature
    static: frozenset[str]
    guards: tuple[Guards | None, ...]
    is_backend_given: bool
    call: Callable[..., Any]
    executable: Any
    outcome: Outcome | None
    result_structure: Structure
    finish: Callable[..., Any]


@final
@dataclass(frozen=True, slots=True)
class _Given:
    """An argument, by its number in the call."""

    number: int


@final
@dataclass(frozen=True, slots=True)
class _Default:
    """A parameter's default."""

    value: Any


def entry_of(seen: Seen) -> Entry | None:
    """The entry for calls like this one; None if operations cannot describe it."""
    try:
        matching = _Matching(seen)
        matching.write()
        giving = _Giving(seen)
        giving.write()
    except _Unknown:
        return None
    numbers = {
        "positional": len(seen.arguments),
        "named": len(seen.named),
        "values": matching.count + 1,
        "leaves": len(seen.leaves) + 1,
        "stack": giving.room + 1,
        "results": giving.results,
    }
    return entry(matching.words, giving.words, seen.call, seen.finish, numbers)


@final
class _Matching:
    """Writes the operations that recognize a call."""

    def __init__(self, seen: Seen):
        self.words = Words(MATCH)
        self._seen = seen
        self._values = [*seen.arguments, *seen.named.values()]
        self.count = len(self._values)
        """Of values: the arguments, and what operations take out of them or make of them."""
        self._leaves: list[Any] = []

    def write(self) -> None:
        """All of them."""
        seen, first_named = self._seen, len(self._seen.arguments)
        for number, name in enumerate(seen.named):
            if type(name) is not str:
                raise _Unknown
            self.words.add("keyword", number, self.words.object(name))
        positional = tuple(map(_Given, range(first_named)))
        named = {name: _Given(number) for number, name in enumerate(seen.named, first_named)}
        if seen.static:
            self._bound(positional, named)
        else:
            self._tree((positional, named), seen.structure)
        self._require_what_was_compiled()
        self._names()
        self._writes()

    def _bound(self, positional: tuple[_Given, ...], named: dict[str, _Given]) -> None:
        """Arguments as the signature binds them; static ones are not traced."""
        signature = self._seen.signature
        bound = signature.bind(*positional, **named)
        given = set(bound.arguments)
        bound.apply_defaults()
        kinds = {name: each.kind for name, each in signature.parameters.items()}
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        trees = {
            name: value if name in given or kinds[name] in several else _Default(value)
            for name, value in bound.arguments.items()
        }
        for name in sorted(self._seen.static):
            self._static_tree(trees.pop(name))
        self._tree(((), trees), self._seen.structure)

    def _own(self) -> int:
        """The number of the next value."""
        self.count += 1
        return self.count - 1

    # ------------------------------------------------------------------------------------------------ traced arguments

    def _tree(self, tree: Any, structure: Structure) -> None:
        if isinstance(tree, _Given):
            self._argument(self._values[tree.number], structure, tree.number)
        elif isinstance(tree, _Default):
            self.words.add("constant", self.words.object(tree.value))
            self._argument(tree.value, structure, self._own())
        else:
            children = list(tree.values()) if isinstance(tree, dict) else list(tree)
            if structure == LEAF or len(structure) != 3 or len(structure[2]) != len(children):
                raise _Unknown
            for child, inner in zip(children, structure[2]):
                self._tree(child, inner)

    def _argument(self, value: Any, structure: Structure, source: int) -> None:
        if isinstance(structure, str):
            self._leaf(value, source)
            return
        kind, keys, children = structure[:3]
        if kind is type(None):
            self._same(source, None)
            return
        if type(value) is not kind or is_parted(structure):
            raise _Unknown
        self.words.add("type", source, self.words.object(kind))
        fields = registered(kind)
        if isinstance(fields, Fields):
            inner = self._attributes(value, fields, keys, source)
        elif len(structure) == 3:
            inner = self._taken(value, kind, keys, source)
        else:
            raise _Unknown
        if len(inner) != len(children):
            raise _Unknown
        for (each, number), child in zip(inner, children):
            self._argument(each, child, number)

    def _taken(self, value: Any, kind: type, keys: Any, source: int) -> list[tuple[Any, int]]:
        """The elements of a container, which an operation takes out of it, and their numbers."""
        if kind is dict:
            if list(value) != list(keys) or any(type(key) is not str for key in keys):
                raise _Unknown
            self.words.add("dict", source, len(keys), *map(self.words.object, value))
            elements = list(value.values())
        elif kind is list:
            self.words.add("list", source, len(value))
            elements = list(value)
        elif kind is tuple or (issubclass(kind, tuple) and keys == getattr(kind, "_fields", None)):
            if kind.__iter__ is not tuple.__iter__:
                raise _Unknown
            self.words.add("tuple", source, len(value))
            elements = list(tuple.__iter__(value))
        else:
            raise _Unknown
        return [(each, self._own()) for each in elements]

    def _attributes(self, value: Any, fields: Fields, keys: Sequence[str], source: int) -> list[tuple[Any, int]]:
        """The attributes of an object that are traced; that static ones are what they were, and that there are no others."""
        kind: Any = fields.kind
        if kind.__getattribute__ is not object.__getattribute__ or hasattr(kind, "__getattr__"):
            raise _Unknown
        found: dict[str, tuple[Any, int]] = {}
        if hasattr(value, "__dict__"):
            self.words.add("attribute", source, self.words.object("__dict__"))
            held = vars(value)
            found = dict(zip(held, self._taken(held, dict, tuple(held), self._own())))
        for name in (*fields.data, *fields.static):
            is_slot = isinstance(inspect.getattr_static(kind, name, None), _Slot)
            if name not in found and is_slot == hasattr(value, name):
                if not is_slot:
                    continue
                self.words.add("attribute", source, self.words.object(name))
                found[name] = getattr(value, name), self._own()
            elif name not in found:
                raise _Unknown
        for name in found:
            if name not in keys and name not in fields.dropped:
                self._static(*found[name])
        return [found[name] for name in keys]

    def _leaf(self, value: Any, source: int) -> None:
        kind = type(value)
        if kind is np.ndarray:
            in_a_row = value.flags.c_contiguous
            steps = () if in_a_row else value.strides
            dtype = self.words.object(value.dtype)
            self.words.add("array", source, dtype, int(in_a_row), value.ndim, *value.shape, *steps)
        elif kind in _NUMBERS:
            if kind is int and not -(1 << 63) <= value < 1 << 63:
                raise _Unknown
            of, dtype = self.words.object(kind), self.words.object(np.dtype(kind))
            self.words.add("number", source, of, dtype, _NUMBERS.index(kind))
            self._own()
        elif kind in _SCALARS:
            self.words.add("scalar", source, self.words.object(kind))
            self._own()
        else:
            raise _Unknown
        self._leaves.append(value)

    def _require_what_was_compiled(self) -> None:
        """That these leaves are those by which the program was found; another thread may have changed an array since."""
        leaves = self._seen.leaves
        types = getattr(self._seen.executable, "input_types", ())
        if len(types) != len(leaves) or len(leaves) != len(self._leaves):
            raise _Unknown
        for own, leaf, type_ in zip(self._leaves, leaves, types):
            if own is not leaf or np.shape(leaf) != getattr(type_, "shape", None):
                raise _Unknown

    # ------------------------------------------------------------------------------------------------ static arguments

    def _static_tree(self, tree: Any) -> None:
        if isinstance(tree, _Given):
            self._static(self._values[tree.number], tree.number)
        elif isinstance(tree, _Default):
            self.words.add("constant", self.words.object(tree.value))
            self._static(tree.value, self._own())
        else:
            for each in tree.values() if isinstance(tree, dict) else tree:
                self._static_tree(each)

    def _static(self, value: Any, source: int) -> None:
        """As ``hlojit.tracing.calls.static_arguments`` tells values apart, or more strictly."""
        kind = type(value)
        if kind in _EQUAL:
            self.words.add("equal", source, self.words.object(kind), self.words.object(value))
        elif kind is float:
            self.words.add("float", source, *struct.unpack("=q", struct.pack("=d", value)))
        elif kind is tuple:
            self.words.add("type", source, self.words.object(kind))
            self.words.add("tuple", source, len(value))
            sources = [self._own() for _ in value]
            for each, number in zip(value, sources):
                self._static(each, number)
        elif value is None or kind in (bool, complex, range) or isinstance(value, _SAME):
            self._same(source, value)
        elif inspect.getattr_static(kind, "__eq__") is object.__eq__:
            self._same(source, value)
            if has_state(value):
                self._state(value, source)
        else:
            raise _Unknown

    def _state(self, value: Any, source: int) -> None:
        """The attributes of an object, which count by identity."""
        kinds = [vars(each)["__dict__"] for each in type(value).__mro__ if "__dict__" in vars(each)]
        if not kinds:
            return
        if not all(isinstance(each, GetSetDescriptorType) for each in kinds) or type(vars(value)) is not dict:
            raise _Unknown
        pairs = [word for pair in vars(value).items() for word in map(self.words.object, pair)]
        self.words.add("state", source, len(pairs) // 2, *pairs)
        self._own()

    def _same(self, source: int, value: object) -> None:
        self.words.add("same", source, self.words.object(value))

    # ----------------------------------------------------------------------------------------------------- what is outside

    def _names(self) -> None:
        """The names that the function reads, the plugins of the context, and the back end where the call names none."""
        variable, scope, tables = conditions()
        self.words.add("context", self.words.object(variable), self.words.object(scope))
        if not self._seen.is_backend_given:
            self._backend()
        for mapping, name, value in tables:
            self._name(mapping, name, value)
        for guards in filter(None, self._seen.guards):
            for each in guards.names:
                self._name(each.mapping, each.name, each.value)
            for cell, value, _ in guards.cells:
                self.words.add("cell", self.words.object(cell), self._address(value))
            for content, _ in guards.held:
                self._held(content)

    def _name(self, mapping: Any, name: Any, value: Any) -> None:
        kinds: dict[type, str] = {dict: "name", MappingProxyType: "member"}
        operation = kinds.get(type(mapping))
        if operation is None:
            raise _Unknown
        self.words.add(operation, self.words.object(mapping), self.words.object(name), self._address(value))

    def _held(self, content: Content) -> None:
        """That a thing outside of the function holds what it did."""
        thing = content.of
        if isinstance(content, Numbers):
            if not thing.flags.forc:
                raise _Unknown
            order = 1 if thing.flags.c_contiguous else 2
            array, dtype, data = map(self.words.object, (thing, thing.dtype, content.data))
            self.words.add("numbers", array, dtype, data, len(content.data), order, thing.ndim, *thing.shape)
            return
        if isinstance(content, Parts):
            defaults = (content.positional, content.named)
            addresses = (0 if each is None else self.words.object(each) for each in defaults)
            self.words.add("function", self.words.object(thing), self.words.object(content.code), *addresses)
            return
        self.words.add("constant", self.words.object(thing))
        source = self._own()
        if isinstance(content, Elements) and type(thing) is list:
            self.words.add("list", source, len(content.seen))
            self._each(content.seen)
        elif isinstance(content, Items):
            if not all(type(key) in _EQUAL for key in content.keys):
                raise _Unknown
            self.words.add("dict", source, len(content.keys), *map(self.words.object, content.keys))
            self._each(content.values)
        elif isinstance(content, Members):
            self.words.add("equal", source, self.words.object(type(thing)), self.words.object(content.seen))
        elif isinstance(content, Slot) and content.seen is not NOTHING:
            self.words.add("attribute", source, self.words.object(content.name))
            self._each((content.seen,))
        else:
            raise _Unknown

    def _each(self, values: Sequence[Any]) -> None:
        """That the values that the last operations took are these, as ``contents.is_same`` tells them apart, or more strictly."""
        for value, source in zip(values, [self._own() for _ in values]):
            kind = type(value)
            if kind is float:
                self.words.add("float", source, *struct.unpack("=q", struct.pack("=d", value)))
            elif kind in _EQUAL:
                self.words.add("equal", source, self.words.object(kind), self.words.object(value))
            else:
                self._same(source, value)

    def _address(self, value: Any) -> int:
        return 0 if value is NOTHING else self.words.object(value)

    def _backend(self) -> None:
        """The variable that names the back end."""
        backend = BACKEND.conditions()
        if backend is None:
            raise _Unknown
        for mapping, name, value in backend:
            address = 0 if value is None else self.words.object(value)
            self.words.add("name", self.words.object(mapping), self.words.object(name), address)

    def _writes(self) -> None:
        """That arrays which are written may be, and are no part of another argument."""
        outcome = self._seen.outcome
        writes = outcome.writes if outcome is not None else ()
        arrays = [(number, leaf) for number, leaf in enumerate(self._leaves) if type(leaf) is np.ndarray]
        for write in writes:
            written = self._leaves[write.leaf]
            self.words.add("writable", write.leaf)
            for number, other in arrays:
                if not other.flags.c_contiguous:
                    raise _Unknown
                if number == write.leaf:
                    continue
                if np.may_share_memory(written, other):
                    raise _Unknown
                if written.nbytes and other.nbytes:
                    self.words.add("apart", write.leaf, written.nbytes, number, other.nbytes)


@final
class _Giving:
    """Writes the operations that make a call's result."""

    def __init__(self, seen: Seen):
        self.words: Words | None = None
        """None where the result is what the program returns."""
        self.room = 0
        self.results = 1
        self._seen = seen
        self._types = tuple(getattr(seen.executable, "output_types", ()))

    def write(self) -> None:
        """All of them, or one that leaves it to Python."""
        if self._seen.outcome is None and self._seen.result_structure == LEAF:
            return
        self.words = Words(GIVE)
        try:
            self._operations(self.words)
        except _Unknown:
            self.words = Words(GIVE)
            self.words.add("python")

    def _operations(self, words: Words) -> None:
        outcome, structure = self._seen.outcome, self._seen.result_structure
        forms = outcome.forms if outcome is not None else (PLAIN,) * _leaf_count(structure)
        writes = outcome.writes if outcome is not None else ()
        own = sum(not form.is_constant for form in forms)
        has_checks = outcome is not None and bool(outcome.checks)
        self.results = own + len(writes) + has_checks
        if self.results != len(self._types):
            raise _Unknown
        if has_checks:
            words.add("check", self.results - 1, words.object(np.dtype(np.int32)))
        for number, write in enumerate(writes, own):
            leaf = self._seen.leaves[write.leaf]
            if (self._dtype(number), self._types[number].shape) != (leaf.dtype, leaf.shape):
                raise _Unknown
            if not write.is_donated:
                words.add("write", number, write.leaf)
        remaining = iter(forms)
        items = iter(range(own))
        self._value(words, structure, lambda: self._form(words, next(remaining), items))

    def _value(self, words: Words, structure: Structure, leaf: Callable[[], None]) -> None:
        self.room += 1
        if isinstance(structure, str):
            leaf()
            return
        kind, keys, children = structure[:3]
        if kind is type(None):
            words.add("constant", words.object(None))
            return
        if kind not in (tuple, list, dict):
            raise _Unknown
        for child in children:
            self._value(words, child, leaf)
        if kind is dict:
            words.add("dict", len(keys), *map(words.object, keys))
        else:
            words.add("tuple" if kind is tuple else "list", len(children))

    def _form(self, words: Words, form: Form, items: Any) -> None:
        if form.is_constant:
            words.add("constant", words.object(form.constant))
            return
        item = next(items)
        if form.order is not None:
            words.add("transposed", item, len(form.order), *form.order)
        elif form.is_python_number:
            dtype = self._dtype(item)
            if dtype not in _GIVEN_NUMBERS:
                raise _Unknown
            words.add("number", item, words.object(dtype), _GIVEN_NUMBERS.index(dtype))
        elif form.is_scalar:
            words.add("scalar", item, words.object(self._dtype(item)))
        else:
            words.add("item", item)

    def _dtype(self, item: int) -> np.dtype[Any]:
        element = getattr(self._types[item], "element_type", None)
        dtype = getattr(element, "dtype", None)
        if dtype is None or dtype.hasobject or not dtype.isbuiltin:
            raise _Unknown
        return np.dtype(dtype)


def _leaf_count(structure: Structure) -> int:
    if isinstance(structure, str):
        return 1
    return sum(map(_leaf_count, structure[2]))
