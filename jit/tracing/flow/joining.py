"""The state behind several paths of which one is taken: variable by variable, kept or carried out of the regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from hlojit.ir.graph import Value
from hlojit.tracing.arrays.storage import Storage, View
from hlojit.tracing.calls.containers import is_parted, unflatten
from hlojit.tracing.calls.pytrees import object_advice
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow.entangled import Container
from hlojit.tracing.flow.journal import is_same
from hlojit.tracing.flow.regions import Region
from hlojit.tracing.frames import Frame
from hlojit.tracing.operations import Operations
from hlojit.tracing.rewriting import RETURN_VALUE, UNDEFINED, Site, State
from hlojit.tracing.state import Form, Leaves, form_of, joined, value_in
from hlojit.tracing.tracer import Tracer

if TYPE_CHECKING:
    from hlojit.tracing.flow.runtime import TracedRuntime

FILLER: Final = object()
"""A leaf of which it does not matter what it is: zeros."""


@final
@dataclass
class Ending:
    """A region that was recorded, and what it left: values of variables, flat."""

    region: Region
    values: dict[str, Any]
    leaves: dict[str, Leaves] = field(default_factory=dict)
    forms: dict[str, list[Form]] = field(default_factory=dict)
    containers: dict[str, list[Container]] = field(default_factory=dict)
    """Those in a variable that can be changed."""

    def bound(self, ops: Operations, name: str) -> Value:
        """Whether a variable is bound on this path, in the region's own block."""
        leaves = self.leaves.get(name)
        if leaves is None:
            return ops.full(self.region.ended, np.dtype(bool))
        found = bound_of(leaves)
        return ops.full(True, np.dtype(bool)) if found is None else found

    def is_always_bound(self, name: str) -> bool:
        """Whether it is known that it is."""
        return self.region.ended or (name in self.leaves and bound_of(self.leaves[name]) is None)

    def look(self, runtime: TracedRuntime) -> None:
        """Flatten the values while the region is recorded: its lists may be changed later."""
        for name, value in list(self.values.items()):
            self.take(runtime, name, value)
        for entry in self.region.journal.entries.values():
            entry.see()
            for key in entry.changed:
                self.take(runtime, entry.slot(key), entry.after[key])

    def take(self, runtime: TracedRuntime, name: str, value: Any) -> None:
        """What a variable, or one of a thing's contents, is at the end."""
        self.values[name] = value
        if value is not UNDEFINED:
            self.leaves[name] = Leaves(value)
            self.forms[name] = [form_of(runtime.ops, leaf) for leaf in self.leaves[name].traced]
            self.containers[name] = runtime.entangled.containers(value)
            if name == RETURN_VALUE:
                # What is returned is read; other variables may pass on one that is not bound.
                for each in storages_of(self.leaves[name], numbers=True):
                    if each is not None:
                        runtime.ops.require_bound(each)


@final
class Carried:
    """One variable that regions give back: the structure of its value, and the forms of its leaves."""

    def __init__(self, name: str, site: Site, several: Sequence[Leaves], forms: Sequence[Sequence[Form]]):
        self.name = name
        self.may_be_unbound = False
        first = several[0]
        label = f"{site} {site.label(name)}"
        for other in several[1:]:
            if other.structure != first.structure or other.places != first.places:
                raise TracingError(f"{label} {_differs(first, other)}")
            for place, (one, two) in enumerate(zip(first.all, other.all)):
                if place not in first.places and not is_same(one, two):
                    raise TracingError(
                        f"{label} is {_shown(one)} on one path and {_shown(two)} on another; a value known at run time chooses "
                        "among numbers and arrays only: give a number, and look up what it stands for outside"
                        f"{object_advice(one)}"
                    )
        self.first = first
        self.forms = [
            joined(each, lambda path=first.names[place]: f"{label}{path}")  # type: ignore[misc]
            for place, each in zip(first.places, zip(*forms))
        ]

    def values(self, ops: Operations, leaves: Leaves | None) -> list[Value]:
        """The values of one path; without leaves zeros."""
        if leaves is None:
            return [_zeros(ops, form) for form in self.forms]
        return [
            _zeros(ops, form) if leaf is FILLER else value_in(ops, leaf, form)
            for leaf, form in zip(leaves.traced, self.forms, strict=True)
        ]

    def made(self, tracers: Sequence[Tracer]) -> Any:
        """The value around other leaves."""
        return unflatten(self.first.structure, self.first.with_traced(tracers))


def _zeros(ops: Operations, form: Form) -> Value:
    element = form.tensor_type.element_type
    return ops.full(0, element.dtype or element, form.tensor_type.shape)


def _differs(first: Leaves, other: Leaves) -> str:
    shown = [
        "an array whose length depends on values"
        if is_parted(each.structure)
        else _shown(unflatten(each.structure, each.all))
        for each in (first, other)
    ]
    return f"is {shown[0]} on one path and {shown[1]} on another; it must be of one structure"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:56]}..."


@final
class Start:
    """What a loop begins with of one variable.

    It keeps no array alive: whether somebody else does decides what may be written.
    """

    def __init__(self, runtime: TracedRuntime, value: Any):
        ops = runtime.ops
        self.leaves = Leaves(value)
        self.bound = bound_of(self.leaves)
        self.forms = [form_of(ops, leaf) for leaf in self.leaves.traced]
        self.storages = storages_of(self.leaves)
        self.outer = outer_of(self.leaves)
        self.containers = runtime.entangled.containers(value)
        carries, ops.carries = ops.carries, True
        own = [
            leaf if storage is None else ops.wrap(leaf.value, form.strides)
            for leaf, storage, form in zip(self.leaves.traced, self.storages, self.forms)
        ]
        ops.carries = carries
        self.leaves.all = self.leaves.with_traced(own)


@final
@dataclass(frozen=True)
class _Shown:
    """What an array shows."""

    window: View
    context: Any


@final
class Shelf:
    """A state that may be needed again, while a loop is recorded from it.

    It keeps no array alive: who else sees one decides whether the loop may write it.
    """

    def __init__(self, state: State):
        shown: dict[int, _Shown] = {}
        for value in state:
            if type(value) is Tracer and not value.is_scalar:
                shown[id(value)] = _Shown(value.window, value.context)
        self._values = tuple(shown.get(id(value), value) for value in state)

    def state(self) -> State:
        """What was put here; variables of one array have one again."""
        made = {id(value): Tracer(value.window, value.context) for value in self._values if isinstance(value, _Shown)}
        return tuple(made.get(id(value), value) for value in self._values)


def tracers_of(value: Any) -> list[Tracer]:
    """What is traced of a variable's value."""
    return [leaf for leaf in Leaves(value).traced if type(leaf) is Tracer]


def bound_of(leaves: Leaves) -> Value | None:
    """Whether the variable that holds these leaves is bound; None if it is in any case."""
    for leaf in leaves.traced:
        if type(leaf) is Tracer and leaf.window.storage.bound is not None:
            return leaf.window.storage.bound[0]
    return None


def guard(name: str, tracers: Sequence[Tracer], bound: Value) -> None:
    """Have reads of a variable that may not be bound raise."""
    for tracer in tracers:
        tracer.window.storage.bound = (bound, name)


def outer_of(leaves: Leaves) -> list[bool]:
    """For each traced leaf whether it is an array of NumPy's, which was made outside of the program."""
    return [not isinstance(leaf, Tracer) and isinstance(leaf, np.ndarray) for leaf in leaves.traced]


def storages_of(leaves: Leaves, *, numbers: bool = False) -> list[Storage | None]:
    """For each traced leaf the storage that it shows; None of ``numbers``, which have no memory, unless they are asked for."""
    return [
        leaf.window.storage if type(leaf) is Tracer and (numbers or not leaf.is_scalar) else None
        for leaf in leaves.traced
    ]


def note_aliases(
    site: Site,
    name: str,
    made: Sequence[Tracer],
    arrays: Sequence[Storage | None],
    outer: Sequence[bool],
    own: Frame | None,
) -> None:
    """Note what carried arrays may be: arrays of outside, whose elements a write through them would change, or would not.

    Of one path; ``arrays`` are the storages, ``outer`` says which are NumPy's own arrays, and ``own`` is the path's region.
    """
    label = f"{site} {site.label(name)}"
    for tracer, storage, is_outer in zip(made, arrays, outer):
        if tracer.is_scalar:
            continue
        if is_outer:
            tracer.window.storage.locked = (
                f"{label} may be an array that was made outside of the traced function, so it is not known what a write "
                "changes; copy it first (.copy())"
            )
        elif storage is not None:
            # One that was made on the path is not seen any more, but it may be one that was there before.
            is_own = own is not None and storage.frame is own
            for each in [ally for ally, _ in storage.allies] if is_own else [storage]:
                tracer.window.storage.may_be(
                    each,
                    f"{label} is on one path an array that was there before, and on another one not, so it is not known what a "
                    "write to one of them changes; make it a copy on that path (.copy())",
                )


def note_shared(site: Site, named: Sequence[tuple[str, Tracer, Storage | None]]) -> None:
    """Note that two carried arrays are one memory on a path: ``named`` are all that one path gave."""
    by_storage: dict[Storage, tuple[str, Tracer]] = {}
    for name, tracer, storage in named:
        if storage is None or tracer.is_scalar:
            continue
        for each in (storage, *(ally for ally, _ in storage.allies)):
            if each in by_storage:
                other, first = by_storage[each]
                tracer.window.storage.may_be(
                    first.window.storage,
                    f"{site} {site.label(name)} and {site.label(other)} may be one memory on a path, so it is not known what a "
                    "write changes; copy one of them (.copy())",
                )
        by_storage.setdefault(storage, (name, tracer))
