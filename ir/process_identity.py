"""Identities that hold in this process: content hashes in which objects without content count by themselves.

    process_identity(plugin, [backend, lock, library.function])

Such an identity never leaves the process: for what is kept on disk there is ``hlojit.ir.fingerprint``, which refuses.
"""

from __future__ import annotations

import io
import mmap
import threading
import uuid
import weakref
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final

from hlojit.ir.fingerprint import ContentWalk, NotKeyable, contents, is_c_object, is_of_runs

_LOCKS: Final = (type(threading.Lock()), type(threading.RLock()))
"""What decides nothing: one is like the other."""

_UNSEEN: Final = (io.IOBase, mmap.mmap, GeneratorType, CoroutineType, AsyncGeneratorType)
"""What holds something that changes and that cannot be looked at without changing it."""

_tokens: Final[dict[int, tuple[weakref.ref[Any], str]]] = {}
"""By address, for as long as the object lives."""


def token_of(value: object) -> str:
    """A name for an object, which nothing else ever gets; raises ``TypeError`` for what has no weak references."""
    address = id(value)
    found = _tokens.get(address)
    if found is None or found[0]() is not value:

        def forget(dead: weakref.ref[Any]) -> None:
            # Another object may have come to the address meanwhile.
            if _tokens.get(address, (None,))[0] is dead:
                del _tokens[address]

        _tokens[address] = found = weakref.ref(value, forget), uuid.uuid4().hex
    return found[1]


def process_identity(owner: object, value: object) -> str:
    """The identity of a value that belongs to ``owner``: equal for the same owner as long as nothing that is seen changes.

    C objects and modules count as the objects that they are, numbers and arrays of C with what they hold; an object that refuses
    to be copied by its class and what it holds; a function that reads the environment or the clock by what it does, as that of a
    registered plugin.  Devices, buffers and events count as the objects that they are, too.  Open files, memory maps, generators
    and what has no weak references are something else every time.
    """
    walk = _ProcessWalk()
    walk.mark(owner)
    walk.put(value)
    return walk.digest.hexdigest()


class _ProcessWalk(ContentWalk):
    def __init__(self) -> None:
        super().__init__()
        # As if everything stated an identity: reading from outside is no reason to refuse.
        self.stated = 1

    def put(self, value: Any) -> None:
        """Write any value; what has no content, too."""
        depth = len(self.path)
        try:
            super().put(value)
        except NotKeyable:
            # What has been written until then depends on the value alone.
            del self.path[depth:]
            held = {} if is_of_runs(value) else contents(value)
            if isinstance(value, _LOCKS):
                self.tag("lock", type(value).__qualname__)
            elif isinstance(value, _UNSEEN):
                self.unlike()
            elif is_of_runs(value):
                self.mark(value)
            elif isinstance(value, memoryview) or is_c_object(value):
                self.mark(value)
                self._memory(value)
            elif held:
                self.tag("holds")
                self.put(type(value))
                self.put(held)
            else:
                self.mark(value)

    def mark(self, value: object) -> None:
        """Write which object it is."""
        try:
            self.tag("object itself", token_of(value))
        except TypeError:
            self.unlike()

    def unlike(self) -> None:
        """Write what nothing else is like, not even the same object at another time."""
        self.tag("unlike anything else", uuid.uuid4().hex)

    def _memory(self, value: Any) -> None:
        """Write the memory of a number, array or structure of C; what a pointer points to is not looked at."""
        try:
            view = memoryview(value)
        except TypeError:
            return  # a function or a library
        self.tag("memory", view.tobytes())
