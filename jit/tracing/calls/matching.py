"""How native code recognizes a call: by its arguments, traced and static, and by what the function reads of outside of itself."""

from __future__ import annotations

import enum
import inspect
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, EllipsisType, FunctionType, GetSetDescriptorType, MappingProxyType
from types import MemberDescriptorType as _Slot
from typing import Any, Final, final

import numpy as np
from hlojit.ir.environment import conditions
from hlojit.ir.switches import BACKEND
from hlojit.runtime.dispatcher import Words
from hlojit.runtime.layout import MATCH
from hlojit.tracing.calls.containers import LEAF, Structure, is_parted
from hlojit.tracing.calls.contents import NOTHING, Content, Elements, Items, Members, Numbers, Parts, Slot
from hlojit.tracing.calls.pytrees import Fields, Registration, registered
from hlojit.tracing.calls.seen import Seen, Unknown
from hlojit.tracing.calls.static_arguments import has_state

_NUMBERS: Final = (bool, int, float, complex)
"""In the order of the numbers by which operations call them."""
_SCALARS: Final = frozenset(
    {np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64}
    | {np.float16, np.float32, np.float64, np.complex64, np.complex128}
)
_EQUAL: Final = (int, str, bytes)
"""Static values of these types count by equality."""
_SAME: Final = (type, FunctionType, BuiltinFunctionType, np.ufunc, np.dtype, EllipsisType, enum.Enum)
"""Static values of these types count by identity here, which is stricter than what Python does."""


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


@final
class Matching:
    """Writes the operations that recognize a call."""

    def __init__(self, seen: Seen):
        self.words = Words(MATCH)
        self._seen = seen
        self._values = [*seen.arguments, *seen.named.values()]
        self.count = len(self._values)
        """Of values: the arguments, and what operations take out of them or make of them."""
        self._leaves: list[Any] = []
        self._described: list[Any] = []
        """The same; views of arrays, by which they are described."""

    def write(self) -> None:
        """All of them."""
        seen, first_named = self._seen, len(self._seen.arguments)
        for number, name in enumerate(seen.named):
            if type(name) is not str:
                raise Unknown
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
                raise Unknown
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
            raise Unknown
        self.words.add("type", source, self.words.object(kind))
        fields = registered(kind)
        if isinstance(fields, Registration):
            inner = self._opened(value, fields, source)
        elif isinstance(fields, Fields):
            inner = self._attributes(value, fields, keys, source)
        elif len(structure) == 3:
            inner = self._taken(value, kind, keys, source)
        else:
            raise Unknown
        if len(inner) != len(children):
            raise Unknown
        for (each, number), child in zip(inner, children):
            self._argument(each, child, number)

    def _opened(self, value: Any, registration: Registration, source: int) -> list[tuple[Any, int]]:
        """The children that the class's own function gives; that what is static is what it was."""
        children, static = registration.opened(value)
        self.words.add("opened", source, self.words.object(registration.open), len(children))
        # The pair, and its first part as a tuple.
        self.count += 2
        found = [(each, self._own()) for each in children]
        self._static(static.value, self._own())
        return found

    def _taken(self, value: Any, kind: type, keys: Any, source: int) -> list[tuple[Any, int]]:
        """The elements of a container, which an operation takes out of it, and their numbers."""
        if kind is dict:
            if list(value) != list(keys) or any(type(key) is not str for key in keys):
                raise Unknown
            self.words.add("dict", source, len(keys), *map(self.words.object, value))
            elements = list(value.values())
        elif kind is list:
            self.words.add("list", source, len(value))
            elements = list(value)
        elif kind is tuple or (issubclass(kind, tuple) and keys == getattr(kind, "_fields", None)):
            if kind.__iter__ is not tuple.__iter__:
                raise Unknown
            self.words.add("tuple", source, len(value))
            elements = list(tuple.__iter__(value))
        else:
            raise Unknown
        return [(each, self._own()) for each in elements]

    def _attributes(self, value: Any, fields: Fields, keys: Sequence[str], source: int) -> list[tuple[Any, int]]:
        """The attributes of an object that are traced; that static ones are what they were, and that there are no others."""
        kind: Any = fields.kind
        if kind.__getattribute__ is not object.__getattribute__ or hasattr(kind, "__getattr__"):
            raise Unknown
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
                raise Unknown
        for name in found:
            if name not in keys and name not in fields.dropped:
                self._static(*found[name])
        return [found[name] for name in keys]

    def _leaf(self, value: Any, source: int) -> None:
        kind = type(value)
        self._leaves.append(value)
        if kind is np.ndarray:
            # Another thread may give it another shape and dtype.
            value = value.view()
            in_a_row = value.flags.c_contiguous
            steps = () if in_a_row else value.strides
            dtype = self.words.object(value.dtype)
            self.words.add("array", source, dtype, int(in_a_row), value.ndim, *value.shape, *steps)
        elif kind in _NUMBERS:
            if kind is int and not -(1 << 63) <= value < 1 << 63:
                raise Unknown
            of, dtype = self.words.object(kind), self.words.object(np.dtype(kind))
            self.words.add("number", source, of, dtype, _NUMBERS.index(kind))
            self._own()
        elif kind in _SCALARS:
            self.words.add("scalar", source, self.words.object(kind))
            self._own()
        else:
            raise Unknown
        self._described.append(value)

    def _require_what_was_compiled(self) -> None:
        """That these leaves are those by which the program was found; another thread may have changed an array since."""
        leaves = self._seen.leaves
        types = getattr(self._seen.executable, "input_types", ())
        if len(types) != len(leaves) or len(leaves) != len(self._leaves):
            raise Unknown
        for own, seen, leaf, type_ in zip(self._leaves, self._described, leaves, types):
            if own is not leaf or np.shape(seen) != getattr(type_, "shape", None):
                raise Unknown
            if isinstance(seen, np.ndarray) and seen.dtype.newbyteorder("=") != type_.element_type.dtype:
                raise Unknown

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
            raise Unknown

    def _state(self, value: Any, source: int) -> None:
        """The attributes of an object, which count by identity."""
        kinds = [vars(each)["__dict__"] for each in type(value).__mro__ if "__dict__" in vars(each)]
        if not kinds:
            return
        if not all(isinstance(each, GetSetDescriptorType) for each in kinds) or type(vars(value)) is not dict:
            raise Unknown
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
            raise Unknown
        self.words.add(operation, self.words.object(mapping), self.words.object(name), self._address(value))

    def _held(self, content: Content) -> None:
        """That a thing outside of the function holds what it did."""
        thing = content.of
        if isinstance(content, Numbers):
            if not thing.flags.forc:
                raise Unknown
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
                raise Unknown
            self.words.add("dict", source, len(content.keys), *map(self.words.object, content.keys))
            self._each(content.values)
        elif isinstance(content, Members):
            self.words.add("equal", source, self.words.object(type(thing)), self.words.object(content.seen))
        elif isinstance(content, Slot) and content.seen is not NOTHING:
            self.words.add("attribute", source, self.words.object(content.name))
            self._each((content.seen,))
        else:
            raise Unknown

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
            raise Unknown
        for mapping, name, value in backend:
            address = 0 if value is None else self.words.object(value)
            self.words.add("name", self.words.object(mapping), self.words.object(name), address)

    def _writes(self) -> None:
        """That arrays which are written may be, and are no part of another argument."""
        outcome = self._seen.outcome
        writes = outcome.writes if outcome is not None else ()
        arrays = [(number, leaf) for number, leaf in enumerate(self._described) if type(leaf) is np.ndarray]
        for write in writes:
            written = self._described[write.leaf]
            self.words.add("writable", write.leaf)
            for number, other in arrays:
                if not other.flags.c_contiguous:
                    raise Unknown
                if number == write.leaf:
                    continue
                if np.may_share_memory(written, other):
                    raise Unknown
                if written.nbytes and other.nbytes:
                    self.words.add("apart", write.leaf, written.nbytes, number, other.nbytes)
