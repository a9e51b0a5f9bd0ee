"""Lists that grow in a loop of known count: ``rows.append(x)`` in each round is a row of an array, and the list has views of it.

That the body does nothing else with the list is known from its source (``Site.appended``), and that nobody else sees it is asked:
in the body it has the elements that it had before the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from hlojit.arrays import Array
from hlojit.ir.graph import Value
from hlojit.ir.types import tensor
from hlojit.tracing.arrays.layouts import contiguous
from hlojit.tracing.arrays.steps import Row
from hlojit.tracing.arrays.storage import Storage
from hlojit.tracing.calls.containers import unflatten
from hlojit.tracing.errors import TracingError
from hlojit.tracing.flow.joining import Start, storages_of, tracers_of
from hlojit.tracing.flow.journal import Entry
from hlojit.tracing.state import Form, Leaves, form_of, value_in
from hlojit.tracing.tracer import Tracer

if TYPE_CHECKING:
    from hlojit.tracing.flow.bodies import Body
    from hlojit.tracing.flow.runtime import TracedRuntime

MOST: Final = 100_000
"""Elements that a list gets."""
_SEPARATE: Final = 16
"""Values of different types that a round appends."""


@final
class _Part:
    """What a round appends of one type: ``count`` values one behind the other, of one structure."""

    def __init__(self, label: str, number: int, several: Sequence[Leaves], forms: Sequence[Form]):
        self.first = several[0]
        # Kept without arrays, which nobody could write as long as they are seen.
        self.first.all = self.first.with_traced([None] * len(forms))
        self.count = len(several)
        self.forms = list(forms)
        self.names = [f"{label}[...] {number}.{place}" for place in range(len(forms))]
        """Of the arrays of all rounds, among the variables of the loop."""

    @property
    def key(self) -> Any:
        """What is the same in every round."""
        return self.first.structure, self.first.places, self.first.all, self.forms

    def fits(self, other: Leaves) -> bool:
        """Whether a value is of its structure."""
        return (other.structure, other.places) == (self.first.structure, self.first.places)

    def begin(self, runtime: TracedRuntime, rounds: int) -> Iterator[tuple[str, Tracer]]:
        """The arrays of all rounds, before the loop."""
        ops = runtime.ops
        for name, form in zip(self.names, self.forms):
            element, shape = form.tensor_type.element_type, (rounds * self.count, *form.tensor_type.shape)
            yield name, ops.wrap(ops.full(0, element.dtype or element, shape), contiguous(shape))

    def filled(
        self, runtime: TracedRuntime, several: Sequence[Leaves], arrays: Mapping[str, Tracer], number: Value
    ) -> Iterator[tuple[str, Tracer]]:
        """The arrays behind a round."""
        ops, b = runtime.ops, runtime.ops.builder
        start = b.multiply(number, ops.full(self.count, np.dtype(np.int64))) if self.count > 1 else number
        for place, (name, form) in enumerate(zip(self.names, self.forms)):
            values = [value_in(ops, each.traced[place], form) for each in several]
            rows = [b.reshape(each, (1, *form.tensor_type.shape)) for each in values]
            joined = rows[0] if len(rows) == 1 else b.create("concatenate", rows, attributes={"dimension": 0}).result
            starts = [start, *(ops.full(0, np.dtype(np.int64)) for _ in form.tensor_type.shape)]
            made = b.create("dynamic_update_slice", [arrays[name].value, joined, *starts]).result
            yield name, ops.wrap(made, contiguous(made.tensor_type.shape))

    def element(self, runtime: TracedRuntime, arrays: Mapping[str, Tracer], number: int) -> Any:
        """What the list has of one round."""
        leaves = []
        for name, form in zip(self.names, self.forms):
            shape = form.tensor_type.shape
            window = arrays[name].window.then(
                Row(number), tensor(shape, form.tensor_type.element_type), contiguous(shape)
            )
            leaves.append(Tracer(window, runtime.ops, is_scalar=form.is_scalar, weak=form.weak))
        return unflatten(self.first.structure, self.first.with_traced(leaves))


@final
class Growing:
    """One list that a loop appends to."""

    def __init__(self, runtime: TracedRuntime, entry: Entry, rounds: int, first: int):
        assert isinstance(entry.thing, list)
        self.thing = entry.thing
        self.length = len(self.thing)
        """Its elements before the loop."""
        self._runtime = runtime
        self._site = entry.site
        self._name = entry.name
        self._rounds = rounds
        self._first = first
        self._parts: list[_Part] = []
        self._shared: set[Storage] = set()
        """Memory of outside that the elements would share in NumPy."""
        self._linked: set[str] = set()
        """Variables of the loop whose memory they would share."""

    @property
    def names(self) -> list[str]:
        """The arrays of all rounds, among the variables of the loop."""
        return [name for part in self._parts for name in part.names]

    def takes(self, appended: Sequence[Any]) -> bool:
        """Take up what a round has appended; whether that is of other types than before."""
        own = [Leaves(each) for each in appended]
        forms = [[form_of(self._runtime.ops, leaf) for leaf in each.traced] for each in own]
        parts = [_Part(self._name, number, own[number : number + 1], forms[number]) for number in range(len(own))]
        if all(each.key == parts[0].key for each in parts):
            parts = [_Part(self._name, 0, own, forms[0])]
        if len(parts) > _SEPARATE or len(own) * self._rounds > MOST:
            raise TracingError(
                f"{self._site} {self._name} gets {len(own) * self._rounds} elements of {len(parts)} types in a loop; make an "
                "array of the whole length before the loop, and write its elements"
            )
        changed = [(each.key, each.count) for each in parts] != [(each.key, each.count) for each in self._parts]
        self._parts = parts
        return changed

    def begin(self) -> Iterator[tuple[str, Tracer]]:
        """The arrays of all rounds, before the loop."""
        for part in self._parts:
            yield from part.begin(self._runtime, self._rounds)

    def filled(self, arrays: Mapping[str, Tracer], number: Value) -> Iterator[tuple[str, Tracer]]:
        """The arrays behind a round; not all of them where it has appended something else, and is recorded again."""
        appended = [Leaves(each) for each in list(self.thing)[self.length :]]
        if self._first:
            b = self._runtime.ops.builder
            number = b.subtract(number, self._runtime.ops.full(self._first, np.dtype(np.int64)))
        for part in self._parts:
            several, appended = appended[: part.count], appended[part.count :]
            if len(several) == part.count and all(part.fits(each) for each in several):
                yield from part.filled(self._runtime, several, arrays, number)

    def require_apart(self, body: Body, entry: Entry, appended: Sequence[Any], seen: set[Any]) -> None:
        """Raise where an element is memory that a later round writes, or that another element is.

        ``seen``: what else is appended in this round, to any list.
        """
        self._shared, self._linked = set(), set()
        own = {entry.slot(part) for part in entry.after}
        others = [each for name, each in body.ending.containers.items() if name not in own]
        for container in self._runtime.entangled.containers(list(appended))[1:]:
            held = any(container in each for each in others)
            if held or container in seen or container.number <= body.number or len(container.origins) > 1:
                raise self._refusal("a container")
            seen.add(container)
        for leaf in (leaf for each in appended for leaf in Leaves(each).traced):
            if type(leaf) is Tracer and not leaf.is_scalar:
                self._require_own(body, leaf.window.storage, seen)
            elif isinstance(leaf, (np.ndarray, Array)):
                raise self._refusal("an array of outside")

    def _require_own(self, body: Body, storage: Storage, seen: set[Any]) -> None:
        kin = {storage, *(ally for ally, _ in storage.allies)}
        if kin & seen:
            raise self._refusal("an array")
        seen |= kin
        for name, storages in body.arrays.items():
            if kin & {*storages, *storages_of(body.ending.leaves[name])}:
                self._linked.add(name)
                if any(each.version for each in storages):
                    raise self._refusal("an array")
        outer = {each for each in kin if each.frame is not body.frame}
        if outer & body.frame.written.keys():
            raise self._refusal("an array")
        self._shared |= outer

    def _refusal(self, what: str) -> TracingError:
        return TracingError(
            f"{self._site} {self._name} gets {what} that is seen elsewhere, too, and may be changed there; append a copy "
            "(.copy())"
        )

    def extend(self, found: Mapping[str, Any], start: Mapping[str, Start]) -> None:
        """Behind the loop, of which these are the variables, the list has the rows of the arrays."""
        arrays = {name: found[name] for name in self.names}
        self.thing += [
            part.element(self._runtime, arrays, number * part.count + place)
            for number in range(self._rounds)
            for part in self._parts
            for place in range(part.count)
        ]
        shared = set(self._shared)
        for name in self._linked:
            shared |= {each.window.storage for each in tracers_of(found[name])}
            shared |= {each for each in start[name].storages if each is not None} if name in start else set()
        for array in arrays.values():
            for storage in shared:
                array.window.storage.is_copied(
                    storage,
                    f"{self._site} {self._name} holds in NumPy what is written here, and is a copy in a compiled loop; append a "
                    "copy (.copy()), so that it is one there as well",
                )
