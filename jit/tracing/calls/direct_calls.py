"""Calls of a jitted function from native code, without Python in between and without its lock.

    calls = DirectCalls(function, parameters, results)     # for arguments and results of these types
    ...                                                    # native code finds nothing at calls.place: Python answers
    calls.follow(arguments)                                # Python has: native code finds the program from now on

Native code looks for the sizes of its arguments in a table (``runtime/direct.ll``).  What the function reads of outside of
itself native code knows by single words - the version of a dictionary, the contents of a variable of an enclosing function -
which Python sets after it has looked at everything.  Where anything else can change, Python answers every call.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from hlojit.executable import Executable
from hlojit.ir.environment import conditions, entries_address, has_scopes, tables
from hlojit.ir.switches import BACKEND, DISPATCH
from hlojit.runtime import layout, objects
from hlojit.runtime.dispatcher import is_possible, native_of
from hlojit.tracing.calls.containers import Structure
from hlojit.tracing.calls.contents import NOTHING, Parts
from hlojit.tracing.calls.forms import CompiledForm
from hlojit.tracing.calls.guards import Guards, contents_of

if TYPE_CHECKING:
    from hlojit.tracing.jitted_functions import JittedFunction

_MOST_RECORDS: Final = 16
"""Sets of sizes that native code looks at, one after the other."""
_MOST_TABLES: Final = 256
"""That are made for one kind of call: native code may be reading an old one, so that none is ever freed."""
_ALWAYS_FOLLOWED, _FOLLOWED_EVERY = 8, 32
"""Of calls in Python between which native code answered none so many are followed; then one of so many."""
_MOST_WORDS: Final = 1024
"""What a call may take of a thread's stack."""
_WITHOUT_PYTHON: Final = frozenset({"lapack", "numba"})
"""Kinds of functions that programs call and that neither call Python nor belong to a plugin."""

Result = tuple[np.dtype[Any], int]
"""Element type and number of dimensions."""


@final
@dataclass(frozen=True, slots=True)
class Parameter:
    """What an argument is, in the order of the leaves."""

    dtype: np.dtype[Any]
    rank: int
    is_read_only: bool


class _Unsuitable(Exception):
    """Python has to answer these calls."""


@final
class DirectCalls:
    """What native code knows of one jitted function, for arguments and results of certain types."""

    def __init__(self, function: JittedFunction, parameters: Sequence[Parameter], results: Nesting):
        self.place = (ctypes.c_int64 * 2)()
        """Where native code finds the table's address, or 0; behind it, it says whether it has found something."""
        self._function, self._parameters, self._results = function, tuple(parameters), results
        self._state: _State | None = None
        self._kept: list[object] = []
        self._left = _MOST_TABLES
        self._in_vain = 0
        self._lock = threading.Lock()
        # Threads without the GIL may be in native code while the interpreter takes its objects apart.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def follow(self, arguments: Sequence[Any]) -> None:
        """Have native code answer calls like one that Python has just answered, where it can."""
        self._in_vain = 0 if self.place[1] else self._in_vain + 1
        self.place[1] = 0
        if not self._left or (self._in_vain > _ALWAYS_FOLLOWED and self._in_vain % _FOLLOWED_EVERY):
            return
        # A thread that comes while another one is at it has its call answered, and that is all that it needs.
        if self._lock.acquire(blocking=False):
            try:
                self._follow(arguments)
            except _Unsuitable:
                pass
            finally:
                self._lock.release()

    def _follow(self, arguments: Sequence[Any]) -> None:
        state, leaves = self._state, list(_leaves(arguments))
        _require_plain(leaves, self._parameters)
        sizes = tuple(size for each in leaves for size in np.shape(each))
        is_known = state is not None and self._function.is_under(state.guards) and state.records.get(sizes) is not None
        if is_known and state is not None and state.renew():
            return
        environment = tables().identity, self._function.backend or BACKEND.text()
        guards, form = self._function.compiled_for(arguments)
        if guards is None or form is None:
            return
        if state is None or state.guards is not guards or state.environment != environment:
            self.place[0] = 0
            state = self._state = _State(guards, environment, is_backend_given=self._function.backend is not None)
        if not state.is_suitable:
            return
        if sizes not in state.records:
            _require_apart(form, leaves)
            state.records[sizes] = self._record(form, leaves)
            while len(state.records) > _MOST_RECORDS:
                state.records.popitem(last=False)
            if state.records[sizes] is not None:
                self._publish(state)
        state.renew()

    def _publish(self, state: _State) -> None:
        """Put another table in the place of the last one."""
        records = [each for each in state.records.values() if each is not None]
        fields = {
            "watched": len(state.watched),
            "words": ctypes.addressof(state.words),
            "records": len(records),
            "ranks": sum(each.rank for each in self._parameters),
        }
        words = [*(fields[name] for name in layout.DIRECT_TABLE), *(each.address for each in records)]
        table = _words(words)
        self._kept += (table, state, *records)
        self._left -= 1
        self.place[0] = ctypes.addressof(table)

    def _record(self, form: CompiledForm, leaves: Sequence[Any]) -> _Record | None:
        try:
            return _Record(form, leaves, self._parameters, self._results)
        except _Unsuitable:
            return None


# ----------------------------------------------------------------------------------------------------- what is outside


@final
class _State:
    """What a function reads of outside of itself while it is as ``guards`` have seen it, in words of memory."""

    def __init__(self, guards: Guards, environment: tuple[str, str | tuple[str, ...]], *, is_backend_given: bool):
        self.guards, self.environment = guards, environment
        self.records: OrderedDict[tuple[int, ...], _Record | None] = OrderedDict()
        self.watched: list[_Watched] = []
        self._is_backend_given = is_backend_given
        self.is_suitable = is_possible() and DISPATCH.choice(("native", "python")) == "native"
        offsets = objects.words()
        if offsets is None or not self.is_suitable:
            self.is_suitable = False
            return
        try:
            self.watched = list(_watched(guards, offsets, is_backend_given))
        except _Unsuitable:
            self.is_suitable = False
        self.words = _words([word for each in self.watched for word in (each.address, 0)])
        self._seen: list[object] = []

    def renew(self) -> bool:
        """Set the words, if everything is as it was; they are read before it is looked at."""
        now = [each.now() for each in self.watched]
        if not self._holds():
            return False
        seen, self._seen = self._seen, [thing for _, thing in now]
        for number, (word, _) in enumerate(now):
            self.words[2 * number + 1] = word
        # An address may be another thing's as soon as nobody holds the old one.
        del seen
        return True

    def _holds(self) -> bool:
        identity, backend = self.environment
        return (
            not has_scopes()
            and tables().identity == identity
            and (self._is_backend_given or BACKEND.text() == backend)
            and self.guards.hold()
        )


@final
@dataclass(frozen=True, slots=True)
class _Watched:
    """A word of memory, and what it has to be; the thing that the word is the address of, if it is one."""

    address: int
    now: Callable[[], tuple[int, object]]


def _watched(guards: Guards, offsets: objects.WordsOfObjects, is_backend_given: bool) -> Iterator[_Watched]:
    if guards.broken_by:
        raise _Unsuitable
    yield _number_at(entries_address(), None)
    _, scope, names = conditions()
    if scope is not None:
        raise _Unsuitable
    mappings: list[Any] = [mapping for mapping, _, _ in names]
    backend = BACKEND.conditions()
    if backend is None:
        raise _Unsuitable
    mappings += [] if is_backend_given else [mapping for mapping, _, _ in backend]
    mappings += [each.mapping for each in guards.names]
    for mapping in {id(each): each for each in mappings}.values():
        if type(mapping) is not dict:
            raise _Unsuitable
        yield _number_at(id(mapping) + offsets.dict_version, mapping)
    for cell, _, _ in guards.cells:
        yield _thing_at(id(cell) + offsets.cell_contents, functools.partial(contents_of, cell))
    for content, _ in guards.held:
        if not isinstance(content, Parts):
            raise _Unsuitable
        function = content.of
        yield _thing_at(id(function) + offsets.function_code, functools.partial(getattr, function, "__code__"))
        yield _thing_at(id(function) + offsets.function_defaults, functools.partial(getattr, function, "__defaults__"))
        yield _thing_at(
            id(function) + offsets.function_keyword_defaults, functools.partial(getattr, function, "__kwdefaults__")
        )


def _number_at(address: int, owner: object) -> _Watched:
    word = ctypes.c_int64.from_address(address)
    return _Watched(address, lambda: (word.value, owner))


def _thing_at(address: int, find: Callable[[], object]) -> _Watched:
    def now() -> tuple[int, object]:
        found = find()
        return (0 if found is None or found is NOTHING else id(found)), found

    return _Watched(address, now)


# ------------------------------------------------------------------------------------------------------ what is called


@final
@dataclass(frozen=True, slots=True)
class Nesting:
    """How a function's results are nested: a tuple of further ones, a result, or None."""

    inner: tuple[Nesting, ...] | Result | None
    is_tuple: bool = False

    def leaves(self) -> Iterator[Result]:
        """The results."""
        if self.is_tuple:
            inner: Any = self.inner
            for each in inner:
                yield from each.leaves()
        elif self.inner is not None:
            found: Any = self.inner
            yield found

    def is_of(self, structure: Structure) -> bool:
        """Whether containers that were traced are nested so."""
        if isinstance(structure, str):
            return not self.is_tuple and self.inner is not None
        kind, _, children = structure[:3]
        if kind is type(None):
            return not self.is_tuple and self.inner is None
        inner: Any = self.inner
        return (
            kind is tuple
            and self.is_tuple
            and len(children) == len(inner)
            and all(own.is_of(child) for own, child in zip(inner, children))
        )


@final
class _Record:
    """A program for arguments of certain sizes, as ``layout.DIRECT`` says it; raises ``_Unsuitable`` of any other."""

    def __init__(self, form: CompiledForm, leaves: Sequence[Any], parameters: Sequence[Parameter], results: Nesting):
        call = _require_suitable(form, leaves, results)
        outcome = form.outcome
        writes = outcome.writes if outcome is not None else ()
        types, own = form.executable.output_types, list(results.leaves())
        has_checks = outcome is not None and bool(outcome.checks)
        if len(types) != len(own) + len(writes) + has_checks:
            raise _Unsuitable
        if any((each.element_type.dtype, each.rank) != wanted for each, wanted in zip(types, own)):
            raise _Unsuitable
        apart = []
        for write in writes:
            target = leaves[write.leaf]
            if write.is_donated or parameters[write.leaf].is_read_only or not target.nbytes:
                raise _Unsuitable
            others = [n for n, each in enumerate(leaves) if n != write.leaf and np.asarray(each).nbytes]
            apart += [(write.leaf, target.nbytes, n, leaves[n].nbytes) for n in others if parameters[n].rank]
        constants = len(form.executable.spec.constants)
        words = len(leaves) + len(types) + constants + 2
        if words > _MOST_WORDS:
            raise _Unsuitable
        self._kept = [
            form,
            written := _words([word for each in writes for word in (each.leaf, leaves[each.leaf].nbytes)]),
            pairs := _words([word for each in apart for word in each]),
            sizes := _words([size for each in leaves for size in np.shape(each)]),
            shapes := _words([size for each in types[: len(own)] for size in each.shape]),
        ]
        fields = {
            "call": call,
            "leaves": len(leaves),
            "results": len(own),
            "writes": len(writes),
            "written": ctypes.addressof(written),
            "apart": len(apart),
            "pairs": ctypes.addressof(pairs),
            "words": words,
            "sizes": ctypes.addressof(sizes),
            "shapes": ctypes.addressof(shapes),
        }
        self._words = _words([fields[name] for name in layout.DIRECT])
        self.address = ctypes.addressof(self._words)


def _require_plain(leaves: Sequence[Any], parameters: Sequence[Parameter]) -> None:
    """Arguments of these types, arrays by rows."""
    if len(leaves) != len(parameters):
        raise _Unsuitable
    for leaf, parameter in zip(leaves, parameters):
        found = np.asarray(leaf)
        if (found.dtype, found.ndim) != (parameter.dtype, parameter.rank):
            raise _Unsuitable
        if not (found.flags.c_contiguous and found.flags.aligned):
            raise _Unsuitable


def _require_apart(form: CompiledForm, leaves: Sequence[Any]) -> None:
    """No array that is written lies on another one: another program is compiled for such calls."""
    for write in form.outcome.writes if form.outcome is not None else ():
        if any(np.may_share_memory(leaves[write.leaf], each) for n, each in enumerate(leaves) if n != write.leaf):
            raise _Unsuitable


def _require_suitable(form: CompiledForm, leaves: Sequence[Any], results: Nesting) -> int:
    """The address of the executable's record."""
    executable = form.executable
    function, _ = native_of(form.call)
    if not function or type(executable) is not Executable or form.guards is not None:
        raise _Unsuitable
    spec = executable.spec
    if spec.donated or spec.compiled is None or len(spec.inputs) != len(leaves):
        raise _Unsuitable
    if not {name.partition(":")[0] for _, name in spec.compiled.imports} <= _WITHOUT_PYTHON:
        raise _Unsuitable
    for leaf, type_ in zip(leaves, spec.inputs):
        if (type_.element_type.dtype, type_.shape) != (np.asarray(leaf).dtype, np.shape(leaf)):
            raise _Unsuitable
    if not results.is_of(form.structure):
        raise _Unsuitable
    outcome = form.outcome
    if outcome is not None and any(each.is_constant or each.order is not None for each in outcome.forms):
        raise _Unsuitable
    record: bytes = form.call.__self__[0]  # type: ignore[attr-defined]
    offsets = objects.measure()
    assert offsets is not None
    return id(record) + offsets.bytes_data


def _leaves(tree: Any) -> Iterator[Any]:
    """The arrays and numbers in tuples."""
    if isinstance(tree, tuple):
        for each in tree:
            yield from _leaves(each)
    else:
        yield tree


def _words(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(1, len(numbers)))(*numbers)
