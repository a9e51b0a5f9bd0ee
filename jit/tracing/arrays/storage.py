"""Storages and views: what arrays in a traced function are made of.

An array is a view of a storage.  Writing through any view changes the storage, and every view of it sees that: ``v = y[1:4]``,
``v[:] = 0`` writes ``y``, as in NumPy.  In the graph nothing is written: a write makes the storage's next value.

>>> y = View.of(Storage(whole))
>>> row = y.then(step, type, strides)     # y[1]
>>> row.write(operations, elements)       # y's value is another one now
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from hlojit.ir.graph import Value
from hlojit.ir.types import TensorType
from hlojit.tracing.arrays.layouts import Strides, contiguous, overlaps_itself
from hlojit.tracing.errors import TracingError

if TYPE_CHECKING:
    from hlojit.tracing.frames import Frame
    from hlojit.tracing.operations import Operations


class Step(Protocol):
    """From an array to a view of it."""

    def read(self, operations: Operations, base: Value) -> Value:
        """The elements of the view, of those of the array."""

    def write(self, operations: Operations, base: Value, elements: Value) -> Value:
        """The array after its view was given other elements."""


@final
class Storage:
    """The memory of arrays that share it: the value that it has now, in the order of its first array."""

    __slots__ = ("allies", "argument", "bound", "copies", "frame", "live", "locked", "value", "version")

    def __init__(self, value: Value, argument: int | None = None, locked: str | None = None):
        self.value = value
        self.version = 0
        """How many writes there have been."""
        self.argument = argument
        """The number of the caller's array whose memory it is."""
        self.locked = locked
        """Why nothing may be written, if so: it would be unknown, or unseen, what else changes."""
        self.frame: Frame | None = None
        """The region that it was made in: it means nothing outside of it."""
        self.bound: tuple[Value, str] | None = None
        """Whether the variable that it belongs to is bound, if that is known only at run time, and how it is called."""
        self.live = 0
        """How many arrays there are that show it."""
        self.allies: list[tuple[Storage, str]] = []
        """Storages that may be the same memory, depending on the path that is taken, and what that means in messages."""
        self.copies: list[tuple[Storage, str]] = []
        """Storages that would share memory with it in NumPy, and here do not: while both are seen neither may be written."""

    def may_be(self, other: Storage, why: str) -> None:
        """Note that the two are one memory on some path: a write to one would be seen by the other, or not."""
        if other is not self:
            # Of those that the other one may be this one may be, too: it may be the only one that is still seen.
            for third in (other, *(each for each, _ in other.allies)):
                self._meet(third, why)
            for one, another in ((self, other), (other, self)):
                for third, reason in list(another.copies):
                    one.is_copied(third, reason)

    def _meet(self, other: Storage, why: str) -> None:
        if other is not self and all(each is not other for each, _ in self.allies):
            self.allies.append((other, why))
            other.allies.append((self, why))

    def is_copied(self, other: Storage, why: str) -> None:
        """Note that the other one is a copy where NumPy has a view, or the other way round."""
        if other is not self and all(each is not other for each, _ in self.copies):
            self.copies.append((other, why))
            other.copies.append((self, why))

    def require_alone(self) -> None:
        """Raise ``TracingError`` where it is not known which other arrays a write changes."""
        for other, why in (*self.allies, *self.copies):
            if other.live or other.argument is not None:
                raise TracingError(why)


@final
class View:
    """One array's way to its elements: a chain of steps from a storage."""

    __slots__ = ("_at", "_frame", "_seen", "is_writable", "parent", "step", "storage", "strides", "type")

    def __init__(
        self,
        storage: Storage,
        parent: View | None,
        step: Step | None,
        type: TensorType,
        strides: Strides | None,
        is_writable: bool,
    ):
        self.storage = storage
        self.parent = parent
        self.step = step
        self.type = type
        self.strides = strides
        """In elements; None where NumPy's layout is not known."""
        self.is_writable = is_writable
        self._seen: Value | None = None
        self._at = -1
        self._frame: Frame | None = None

    @classmethod
    def of(cls, storage: Storage, strides: Strides | None = None) -> View:
        """The whole of a storage, a new array unless ``strides`` say how it lies."""
        type = storage.value.tensor_type
        if strides is None and type.rank < 2:
            strides = contiguous(type.shape)
        return cls(storage, None, None, type, strides, True)

    def then(self, step: Step, type: TensorType, strides: Strides | None, *, is_writable: bool = True) -> View:
        """A view of this one."""
        return View(self.storage, self, step, type, strides, self.is_writable and is_writable)

    def read(self, operations: Operations) -> Value:
        """The elements as they are now."""
        behind: list[View] = []
        view = self
        operations.require_inside(self.storage)
        if self.storage.bound is not None:
            operations.require_bound(self.storage)
        while view.parent is not None and not view._is_fresh(operations):
            behind.append(view)
            view = view.parent
        value = self.storage.value if view.parent is None else view._seen
        assert value is not None
        for each in reversed(behind):
            assert each.step is not None
            value = each._see(operations, each.step.read(operations, value))
        return value

    def _is_fresh(self, operations: Operations) -> bool:
        """Whether the elements that were read last are those of now, and were read where they can be used."""
        return (
            self._seen is not None
            and self._at == self.storage.version
            and (self._frame is None or self._frame in operations.frames)
        )

    def write(self, operations: Operations, elements: Value) -> None:
        """Have these elements from now on: of the view's type."""
        self.require_writable()
        value, view = elements, self
        while view.parent is not None:
            assert view.step is not None
            value = view.step.write(operations, view.parent.read(operations), value)
            view = view.parent
        operations.store(self.storage, value)
        if self.parent is not None:
            self._see(operations, elements)

    def require_writable(self) -> None:
        """Raise NumPy's error, or what stands against it in a traced function."""
        if not self.is_writable:
            raise ValueError("assignment destination is read-only")
        if self.storage.locked is not None:
            raise TracingError(self.storage.locked)
        self.storage.require_alone()
        if self.strides is not None and overlaps_itself(self.type.shape, self.strides):
            raise TracingError(
                "elements of this array lie in one place of memory (a broadcast or strided array): what a write does depends "
                "on NumPy's order; write into a copy"
            )

    def _see(self, operations: Operations, value: Value) -> Value:
        self._seen, self._at = value, self.storage.version
        self._frame = operations.frames[-1] if operations.frames else None
        return value
