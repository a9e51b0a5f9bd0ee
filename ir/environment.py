"""Environments: the scopes in which the names of ops, element types, custom calls, passes and back ends are looked up.

    with environment.activate():          # for this thread (context), until the end of the block
        record = tables().ops["stablehlo.add"]

The process has one environment, in which plugins are registered; another one may be derived from it, with further
plugins, for a block of code.  Which one counts is a context variable, so that a scope is invisible to other threads; a
new thread begins with the process's environment.

What an environment holds is read through a ``Snapshot``: immutable tables, replaced as a whole when something is
registered.  Readers take no lock, and whoever holds a snapshot - a compilation does - sees one state from beginning to
end.  Tables are named by what they hold (``OPS``, ``ELEMENT_TYPES``); upper layers add tables of their own.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from hlojit.ir.current_process import in_children
from hlojit.ir.errors import PluginError

if TYPE_CHECKING:
    from hlojit.ir.formats import ElementType
    from hlojit.ir.ops.definition import OpDefinition
    from hlojit.ir.passes.fusion_cost import Role
    from hlojit.ir.text.templates import Form
    from hlojit.ir.types import Type

OPS: Final = "op"
ELEMENT_TYPES: Final = "element type"
CUSTOM_CALLS: Final = "custom call target"
KERNELS: Final = "kernel"

Tables = Mapping[str, Mapping[str, Any]]
"""Records by name, by the kind of table."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one plugin adds to the tables of an environment."""

    owner: str
    """The plugin's name; a contribution of the same owner replaces it."""
    origin: str
    """How messages call the plugin: name and package."""
    identity: str
    """Hash of the plugin's content; two contributions of one identity are the same."""
    tables: Tables
    built_in: bool = False
    failure: str = ""
    """Why the plugin could not be loaded, in one line, or empty."""
    disabled: str = ""
    """What keeps it from being loaded (``disabled by HLOJIT_DISABLE_PLUGINS``), or empty."""
    record: Any = None
    """What the layer that loads plugins knows of it."""
    source: str = ""
    """Who brought something, in messages: ``hlojit-acme 0.1.0``, or ``plugin 'Acme'``."""


_KNOWN_OPS: Final = 2048
_KNOWN_TYPES: Final = 4096

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


@final
class Bounded(dict[Key, Found]):
    """What is remembered to save time; begins anew when it is full."""

    __slots__ = ("limit",)

    def __init__(self, limit: int):
        super().__init__()
        self.limit = limit

    def keep(self, key: Key, found: Found) -> Found:
        """Remember and return it."""
        if len(self) >= self.limit:
            self.clear()
        self[key] = found
        return found


@final
class Snapshot:
    """The tables of an environment at one moment; nothing in it ever changes."""

    __slots__ = (
        "__weakref__",
        "_changes",
        "_tables",
        "base",
        "contributions",
        "element_types",
        "environment",
        "forms",
        "fusion_roles",
        "identity",
        "inferred_types",
        "kernels",
        "ops",
        "owners",
    )

    def __init__(self, environment: Environment, base: Snapshot | None, contributions: Iterable[Contribution]):
        self.environment = environment
        self.base = base
        self.contributions: Mapping[str, Contribution]
        """By the plugins' names."""
        self.owners: Mapping[tuple[str, str], str]
        """The plugin that brought a (kind, name); what is not in it is hlojit's own."""
        tables: dict[str, dict[str, Any]]
        tables = {kind: dict(records) for kind, records in (base._tables if base else environment._built_in).items()}
        owners = dict(base.owners) if base else {}
        kept = dict(base.contributions) if base else {}
        for each in contributions:
            _drop(kept.pop(each.owner, None), tables, owners)
            kept[each.owner] = each
            for kind, records in each.tables.items():
                tables.setdefault(kind, {}).update(records)
                owners.update(((kind, name), each.owner) for name in records)
        self._tables: Tables = {kind: MappingProxyType(records) for kind, records in tables.items()}
        self.contributions = MappingProxyType(kept)
        self.owners = MappingProxyType(owners)
        # Looked up for every instruction: without the proxy.
        self.ops: Mapping[str, OpDefinition] = tables.get(OPS, {})
        self.element_types: Mapping[str, ElementType] = tables.get(ELEMENT_TYPES, {})
        # What others have worked out of the records, for as long as these tables are used.
        self.forms: Bounded[str, tuple[OpDefinition, Form | None]] = Bounded(_KNOWN_OPS)
        """Pretty forms of plugins' ops, by name."""
        self.fusion_roles: Bounded[str, tuple[OpDefinition, Role]] = Bounded(_KNOWN_OPS)
        """What fusion makes of ops, by name."""
        self.inferred_types: Bounded[Hashable, Sequence[Type]] = Bounded(_KNOWN_TYPES)
        """Result types of elementwise ops, which programs apply to few combinations of types over and over."""
        self.kernels: Any = None
        """Kernels by back end and by what they are offered, when somebody has asked (``hlojit.extensions.kernels.table``)."""
        self._changes: int = base._changes if base else environment._changes
        self.identity = _identity(self._changes, kept)
        """Equal for snapshots with equal plugins; what was compiled under one serves under the other."""

    def snapshot(self) -> Snapshot:
        """Itself: a fixed scope."""
        return self

    def table(self, kind: str) -> Mapping[str, Any]:
        """The records of a kind by name; empty where there are none."""
        found = self._tables.get(kind)
        return found if found is not None else MappingProxyType({})

    def failures(self) -> str:
        """A clause for messages about something unknown: the plugins that could not be loaded, and why."""
        return "".join(
            f"; the plugin {each.origin} could not be loaded: {each.failure}"
            for _, each in sorted(self.contributions.items())
            if each.failure
        )

    def who_brings(self, kind: str, name: str) -> str:
        """A clause for messages about an unknown name: who brings it elsewhere, and what is installed and not loaded."""
        vendor, clauses = name.partition(".")[0].lower(), []
        for _, each in sorted(self.contributions.items()):
            if each.disabled:
                would = f", which may bring {name!r}," if vendor in re.findall(r"[^\W_]+", each.origin.lower()) else ""
                clauses.append(f"; the plugin {each.origin}{would} is {each.disabled}")
        known = _brought.get((kind, name))
        if known is not None and known.owner not in self.contributions:
            clauses.append(
                f"; the plugin {known.origin} brings it and is not registered here: its scope has ended, or is another thread's, "
                "or it was unregistered"
            )
        return self.failures() + "".join(clauses)

    def source_of(self, kind: str, name: str) -> str:
        """A clause for messages: `` (hlojit-acme 0.1.0)``, or nothing for what is hlojit's own."""
        owner = self.contributions.get(self.owners.get((kind, name), ""))
        return f" ({owner.source})" if owner is not None and owner.source and not owner.built_in else ""

    @contextmanager
    def activate(self) -> Iterator[Snapshot]:
        """Look names up in this very state inside a ``with`` block, whatever is registered meanwhile."""
        before = _scope.get()
        try:
            _scope.set(self)
            yield self
        finally:
            _scope.set(before)

    def __repr__(self) -> str:
        return f"<Snapshot {self.identity}: {', '.join(self.contributions)}>"


@final
class Environment:
    """A scope: a parent (None for the process's) and the contributions that it adds; see the module's docstring."""

    def __init__(self, parent: Environment | None = None, contributions: Iterable[Contribution] = ()):
        self.parent = parent
        self._layer = object()
        """What stays the same when the environment is put on another parent."""
        self._built_in: dict[str, dict[str, Any]] = {}
        self._changes = 0
        self._contributions: dict[str, Contribution] = {}
        self._snapshot: Snapshot | None = None
        for each in contributions:
            self.add(each)

    def snapshot(self) -> Snapshot:
        """The tables as they are now."""
        found = self._snapshot
        if self.parent is None:
            return found if found is not None else self._build(None)
        base = self.parent.snapshot()
        return found if found is not None and found.base is base else self._build(base)

    def _build(self, base: Snapshot | None) -> Snapshot:
        with _lock:
            found = self._snapshot
            if found is None or found.base is not base:
                found = self._snapshot = Snapshot(self, base, tuple(self._contributions.values()))
            return found

    # ------------------------------------------------------------------------------------------------- changes

    def define(self, kind: str, name: str, record: Any) -> None:
        """Add a record that is hlojit's own, no plugin's."""
        with _lock:
            # In place: a snapshot has copies.
            self._built_in.setdefault(kind, {})[name] = record
            self._changes += 1
            self._snapshot = None

    def undefine(self, kind: str, name: str) -> None:
        """Remove what ``define`` added; an unknown name is ignored."""
        with _lock:
            self._built_in.get(kind, {}).pop(name, None)
            self._changes += 1
            self._snapshot = None

    def add(
        self,
        contribution: Contribution,
        *,
        replaces: Callable[[Contribution, Contribution], bool] = lambda other, contribution: False,
    ) -> None:
        """Add a plugin's contribution in place of what the same owner had added, and of what it ``replaces``.

        Raises ``PluginError`` if it claims what is built in or what another plugin has; nothing is changed then.
        """
        with _lock:
            rest = [
                each
                for each in self._contributions.values()
                if each.owner != contribution.owner and not replaces(each, contribution)
            ]
            base = self.parent.snapshot() if self.parent is not None else None
            _check_owner(contribution, self.snapshot().contributions.get(contribution.owner))
            _check_claims(contribution, Snapshot(self, base, rest))
            self._contributions = {each.owner: each for each in (*rest, contribution)}
            self._snapshot = None
        if not contribution.built_in:
            told = replace(contribution, tables={}, record=None)
            for kind, records in contribution.tables.items():
                for name in records:
                    _brought.keep((kind, name), told)

    def remove(self, owner: str) -> None:
        """Drop a plugin's contribution; an unknown owner is ignored."""
        with _lock:
            self._contributions = {each.owner: each for each in self._contributions.values() if each.owner != owner}
            self._snapshot = None

    # --------------------------------------------------------------------------------------------------- scopes

    @property
    def chain(self) -> tuple[Environment, ...]:
        """The environment, its parent, and so on up to the process's."""
        chain = [self]
        while chain[-1].parent is not None:
            chain.append(chain[-1].parent)
        return tuple(chain)

    def rebased(self, parent: Environment) -> Environment:
        """The contributions of this environment alone on top of another parent."""
        moved = Environment(parent, self._contributions.values())
        moved._layer = self._layer
        return moved

    def without(self, owner: str) -> Environment:
        """An environment of its own with all that this one and its parents have now, but what one plugin has brought."""
        copy = Environment()
        with _lock:
            # What is hlojit's own stands in the process's environment.
            copy._built_in = {kind: dict(records) for kind, records in self.chain[-1]._built_in.items()}
            present = self.snapshot().contributions
            copy._contributions = {name: each for name, each in present.items() if name != owner}
        return copy

    @contextmanager
    def activate(self) -> Iterator[Environment]:
        """Make this the environment of the current context (thread, task) inside a ``with`` block."""
        before = _scope.get()
        # In this order: who reads the number and then finds no scope has seen all that were entered.
        if self is not _process:
            _entered.add(self)
            _entries[0] += 1
        try:
            _scope.set(self)
            yield self
        finally:
            _leave(self, before)

    def __repr__(self) -> str:
        return f"<Environment: {', '.join(self.snapshot().contributions)}>"


Scope = Environment | Snapshot
"""Where names are looked up: in an environment as it is at the time, or in a fixed state of one."""

_brought: Final[Bounded[tuple[str, str], Contribution]] = Bounded(4096)
"""Which plugin brought a (kind, name), wherever: without its records, which may be forgotten."""

_lock = threading.RLock()
"""Held while an environment changes or a snapshot is made; nothing of a plugin's runs under it."""

_process: Final = Environment()
_entered: Final[weakref.WeakSet[Environment]] = weakref.WeakSet()
"""Environments that contexts may have; a copy of a context keeps one beyond its block."""
_entries: Final = (ctypes.c_int64 * 1)()
"""How often one was entered, at least; native code reads it."""
_scope: ContextVar[Scope | None] = ContextVar("hlojit_environment", default=None)


def process_environment() -> Environment:
    """The environment in which ``register`` registers, and with which every thread begins."""
    return _process


def current() -> Environment:
    """The environment of the current context."""
    scope = _scope.get()
    if scope is None:
        return _process
    return scope.environment if isinstance(scope, Snapshot) else scope


def tables() -> Snapshot:
    """The tables of the current context: a fixed snapshot inside a compilation, else those of ``current()`` as of now."""
    scope = _scope.get()
    if scope is None:
        return _process._snapshot or _process.snapshot()
    return scope if type(scope) is Snapshot else scope.snapshot()


def conditions() -> tuple[ContextVar[Any], object, list[tuple[dict[str, Any], str, object]]]:
    """What ``tables()`` goes by: a context variable and its value, and names in dictionaries with what they mean.

    As long as all of this stays the same, so does what ``tables()`` returns.
    """
    scope = _scope.get()
    found: list[tuple[dict[str, Any], str, object]] = []
    if not isinstance(scope, Snapshot):
        (scope or _process).snapshot()
        each: Environment | None = scope or _process
        while each is not None:
            found += [(vars(each), name, getattr(each, name)) for name in ("_snapshot", "parent")]
            each = each.parent
    return _scope, scope, found


def entries_address() -> int:
    """The address of a word of 64 bits that changes whenever a context gets an environment of its own."""
    return ctypes.addressof(_entries)


def has_scopes() -> bool:
    """Whether there may be contexts with other environments than the process's."""
    return bool(_entered)


def scope_for(home: Scope) -> Scope:
    """The scope for something that was made in the scope ``home`` and is used in the current context.

    Both count: what was parsed under ``using`` keeps its plugins outside, and a ``using`` around a compilation takes
    effect.  Where both have a plugin of one name, the current context's replaces the other.  What belongs to a compilation
    has a fixed scope, its snapshot, and stays in it.
    """
    if isinstance(home, Snapshot):
        return home
    here = current()
    chain = here.chain
    if home in chain:
        return _scope.get() or _process
    ancestors = home.chain
    if here in ancestors:
        return home
    combined = home
    for each in reversed([each for each in chain if each not in ancestors]):
        combined = each.rebased(combined)
    return combined


# ------------------------------------------------------------------------------------------------------------- parts


@in_children
def _after_fork() -> None:
    """Another thread may have held the lock when the process was forked; changes are single assignments."""
    global _lock
    _lock = threading.RLock()


def _leave(left: Environment, before: Scope | None) -> None:
    """End a scope.  Scopes that were entered inside it and go on keep their own plugins, without those of ``left``."""
    scope = _scope.get()
    if scope is left:
        _scope.set(before)
        return
    chain = current().chain
    for position, each in enumerate(chain):
        if each._layer is left._layer:
            rest = each.parent or _process
            for inner in reversed(chain[:position]):
                rest = inner.rebased(rest)
            _scope.set(rest)
            return


def _drop(
    contribution: Contribution | None, tables: dict[str, dict[str, Any]], owners: dict[tuple[str, str], str]
) -> None:
    if contribution is None:
        return
    for kind, records in contribution.tables.items():
        for name in records:
            if owners.get((kind, name)) == contribution.owner:
                del owners[kind, name]
                del tables[kind][name]


def _check_owner(contribution: Contribution, present: Contribution | None) -> None:
    """Refuse a plugin under the name of one that is built in."""
    if present is not None and present.built_in and not contribution.built_in:
        raise PluginError(
            f"plugin {contribution.origin}: {contribution.owner!r} is the name of a plugin that is built in "
            f"({present.origin}); give it another name"
        )


def _check_claims(contribution: Contribution, others: Snapshot) -> None:
    """Refuse what claims a name that somebody else has; ``others`` are the tables without the plugin."""
    who = f"plugin {contribution.origin}"
    for kind, records in contribution.tables.items():
        for name, record in records.items():
            owner = others.contributions.get(others.owners.get((kind, name), ""))
            if owner is None and kind == ELEMENT_TYPES and others.element_types.get(name) == record:
                continue  # hlojit's own format, which a plugin may bring for versions that have it not
            if owner is None and name in others.table(kind):
                raise PluginError(f"{who} registers the {kind} {name!r}, which is built in; give it another name")
            if owner is None or owner.owner == contribution.owner:
                continue
            if owner.built_in:
                raise PluginError(
                    f"{who} registers the {kind} {name!r}, which is built in (plugin {owner.origin}); give it another name"
                )
            raise PluginError(
                f"{who} and plugin {owner.origin} both register the {kind} {name!r}; "
                "in one environment a name has one owner: give one of them another name, or leave one out "
                f"(of plugins= and using(), with unregister({owner.owner!r}), or an installed one by its name in "
                "HLOJIT_DISABLE_PLUGINS)"
            )


def _identity(changes: int, contributions: Mapping[str, Contribution]) -> str:
    """Hash of what is in a snapshot; ``changes`` stands for the records that no plugin brought."""
    parts = [str(changes), *(f"{name}={each.identity}" for name, each in sorted(contributions.items()))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
