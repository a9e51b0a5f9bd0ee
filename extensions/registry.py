"""The registry: finds plugins, loads them, keeps what they registered, and contains the broken ones.

Plugins come from entry points (group ``hlojit``), from ``register`` (a module or object, in a script or a notebook cell;
registering the same name again replaces), or from a ``with using(plugin):`` block.  Hooks are called once per plugin and
fill tables; nothing here is on the path of a call.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.metadata
import inspect
import itertools
import os
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pluggy
from hlojit.extensions import hooks
from hlojit.extensions.backend import Backend
from hlojit.extensions.custom_calls import CustomCall
from hlojit.ir.errors import HlojitError, PluginError
from hlojit.ir.formats import ElementType, find_element_type, register_element_type, unregister_element_type
from hlojit.ir.ops.definition import OpDefinition, define, find_op, undefine
from hlojit.ir.passes.pass_manager import Pass

ENTRY_POINT_GROUP = "hlojit"
HOOKS = ("hlojit_formats", "hlojit_ops", "hlojit_passes", "hlojit_custom_calls", "hlojit_backends")


@dataclass(slots=True)
class PluginRecord:
    """What is known of one plugin, loaded or not."""

    name: str
    package: str = ""
    version: str = ""
    identity: str = ""
    """Hash of package, version and source: part of every cache key that the plugin takes part in."""
    api: tuple[int, int] = hooks.FIRST_VERSION
    error: str = ""
    """Why the plugin was skipped (with its traceback), or empty."""
    formats: list[ElementType] = field(default_factory=list)
    ops: list[OpDefinition] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    custom_calls: list[CustomCall] = field(default_factory=list)
    backends: list[Backend] = field(default_factory=list)

    @property
    def origin(self) -> str:
        """Name and package, for messages."""
        return f"{self.name!r} (package {self.package} {self.version})" if self.package else f"{self.name!r}"


class Registry:
    """Plugins and the tables that they fill; see the module's docstring."""

    def __init__(self) -> None:
        self.records: dict[str, PluginRecord] = {}
        self.backends: dict[str, Backend] = {}
        self.custom_calls: dict[str, CustomCall] = {}
        self._generations = itertools.count(1)
        self.generation = 0
        """Counts changes: what was compiled under another generation may be out of date."""
        self._objects: dict[str, Any] = {}
        self._owner: dict[tuple[str, str], str] = {}
        self._lock = threading.RLock()
        self._discovered = False

    # ----------------------------------------------------------- discovery

    def load(self) -> Registry:
        """Load all plugins that installed packages announce (once) and return the registry."""
        if not self._discovered:
            with self._lock:
                if not self._discovered:
                    self._discovered = True
                    self._discover()
        return self

    def _discover(self) -> None:
        disabled = set(filter(None, os.environ.get("HLOJIT_DISABLE_PLUGINS", "").split(",")))
        found = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
        for entry in sorted(found, key=lambda each: each.name):
            if entry.name in self.records:
                continue
            package = entry.dist.name if entry.dist else ""
            version = entry.dist.version if entry.dist else ""
            if entry.name in disabled or ("all" in disabled and package != "hlojit"):
                self.records[entry.name] = PluginRecord(
                    entry.name, package, version, error="disabled by HLOJIT_DISABLE_PLUGINS"
                )
                continue
            try:
                plugin = entry.load()
                self.register(plugin, name=entry.name, package=package, version=version)
            except (Exception, SystemExit):
                # One broken package must not take the others, or the program, with it.
                self.records[entry.name] = PluginRecord(
                    entry.name, package, version, error=traceback.format_exc(limit=-4).rstrip()
                )

    # -------------------------------------------------------- registration

    def register(self, plugin: Any, *, name: str = "", package: str = "", version: str = "") -> PluginRecord:
        """Register a module or object with hook functions and return its record.

        The same name again replaces what was registered under it.  Raises ``PluginError`` if a hook is misspelt, has a
        wrong signature, fails or returns something else than it should, or claims a name that another plugin has; the
        registry is then as it was.
        """
        name = name or _name_of(plugin)
        record = PluginRecord(name, package, version, api=getattr(plugin, "hlojit_api", hooks.FIRST_VERSION))
        with self._lock:
            previous = self._objects.get(name)
            previous_record = self.records.get(name)
            self.unregister(name)
            try:
                self._check_api(record)
                self._call_hooks(plugin, record)
                record.identity = _identity(plugin, record)
                self._claim_all(record)
            except Exception:
                if previous is not None and previous_record is not None:
                    self._restore(name, previous, previous_record)
                raise
            self._objects[name] = plugin
            self.records[name] = record
        return record

    def unregister(self, name: str) -> None:
        """Drop a plugin with everything that it registered; unknown names are ignored."""
        with self._lock:
            record = self.records.pop(name, None)
            self._objects.pop(name, None)
            if record is not None:
                self._release_all(record)

    @contextmanager
    def using(self, *plugins: Any) -> Iterator[None]:
        """Have plugins registered inside a ``with`` block; afterwards everything is as it was before."""
        if not plugins:
            yield
            return
        with self._lock:
            generation, before = self.generation, dict(self.records)
            replaced = {
                name: (self._objects[name], self.records[name])
                for name in map(_name_of, plugins)
                if name in self._objects
            }
        records = []
        try:
            for plugin in plugins:
                records.append(self.register(plugin))
            yield
        finally:
            with self._lock:
                for record in records:
                    if self.records.get(record.name) is record:
                        self.unregister(record.name)
                        if record.name in replaced:
                            self._restore(record.name, *replaced[record.name])
                if len(before) == len(self.records) and all(self.records.get(n) is r for n, r in before.items()):
                    # The very plugins of before: what was compiled with them is up to date.
                    self.generation = generation

    def _restore(self, name: str, plugin: Any, record: PluginRecord) -> None:
        self._claim_all(record)
        self._objects[name] = plugin
        self.records[name] = record

    def _check_api(self, record: PluginRecord) -> None:
        api: Any = record.api
        if not (isinstance(api, tuple) and len(api) == 2 and all(isinstance(number, int) for number in api)):
            record.api = hooks.FIRST_VERSION
            raise PluginError(f"plugin {record.origin}: hlojit_api is {api!r}, not a pair of numbers such as (1, 0)")
        major, minor = record.api
        if major != hooks.API_VERSION[0] or minor > hooks.API_VERSION[1]:
            ours = ".".join(map(str, hooks.API_VERSION))
            raise PluginError(
                f"plugin {record.origin} is written for version {major}.{minor} of the hooks, this hlojit has {ours}; "
                f"install a matching version of {record.package or 'the plugin'} or of hlojit"
            )

    def _call_hooks(self, plugin: Any, record: PluginRecord) -> None:
        manager = pluggy.PluginManager(hooks.PROJECT)
        manager.add_hookspecs(hooks)
        try:
            manager.register(plugin, name=record.name)
            manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise PluginError(f"plugin {record.origin}: {_explain(plugin, error)}") from error
        for hook in HOOKS:
            for implementation in getattr(manager.hook, hook).get_hookimpls():
                try:
                    items = list(implementation.function())
                except Exception as error:
                    raise PluginError(f"plugin {record.origin}: hook {hook} failed: {error!r}") from error
                expected = _EXPECTED[hook]
                for item in items:
                    if not isinstance(item, expected):
                        raise PluginError(
                            f"plugin {record.origin}: hook {hook} returned {item!r}, expected {expected.__name__} objects"
                        )
                getattr(record, hook.removeprefix("hlojit_")).extend(items)
        for backend in record.backends:
            backend.api = record.api
        for pass_ in record.passes:
            # Passes that are not hlojit's own are verified after they run, and named when they fail.
            if record.package != "hlojit":
                object.__setattr__(pass_, "package", record.package or record.name)

    # --------------------------------------------------------------- tables

    def _claims(self, record: PluginRecord) -> Iterator[tuple[str, str]]:
        yield from (("element type", row.name) for row in record.formats)
        yield from (("op", op.name) for op in record.ops)
        yield from (("pass", each.name) for each in record.passes)
        yield from (("custom call target", call.target) for call in record.custom_calls)
        yield from (("back end", backend.name) for backend in record.backends)

    def _claim_all(self, record: PluginRecord) -> None:
        claims = list(self._claims(record))
        for kind, claimed in claims:
            if claims.count((kind, claimed)) > 1:
                raise PluginError(f"plugin {record.origin} registers the {kind} {claimed!r} twice")
            owner = self._owner.get((kind, claimed))
            if owner is not None and owner != record.name:
                raise PluginError(
                    f"plugin {record.origin} and plugin {self.records[owner].origin} both register the {kind} {claimed!r}; "
                    "uninstall one of them or name one in HLOJIT_DISABLE_PLUGINS"
                )
            taken = (kind == "element type" and find_element_type(claimed) is not None) or (
                kind == "op" and find_op(claimed) is not None
            )
            if taken and owner is None:
                raise PluginError(f"plugin {record.origin} registers the {kind} {claimed!r}, which is built in")
        self.generation = next(self._generations)
        for claim in claims:
            self._owner[claim] = record.name
        for row in record.formats:
            register_element_type(row)
        for op in _all_ops(record):
            define(op)
        self.custom_calls.update((call.target, call) for call in record.custom_calls)
        self.backends.update((backend.name, backend) for backend in record.backends)

    def _release_all(self, record: PluginRecord) -> None:
        self.generation = next(self._generations)
        for claim in self._claims(record):
            self._owner.pop(claim, None)
        for row in record.formats:
            unregister_element_type(row.name)
        for op in _all_ops(record):
            undefine(op.name)
        for call in record.custom_calls:
            self.custom_calls.pop(call.target, None)
        for backend in record.backends:
            self.backends.pop(backend.name, None)

    # -------------------------------------------------------------- queries

    def backend(self, name: str) -> Backend:
        """The back end called ``name``; raises with the known and near names."""
        self.load()
        if name in self.backends:
            return self.backends[name]
        failed = [r for r in self.records.values() if r.error and (r.name == name)]
        if failed:
            raise PluginError(f"the back end {name!r} could not be loaded:\n{failed[0].error}")
        raise HlojitError(_unknown("back end", name, self.backends))

    def custom_call(self, target: str) -> CustomCall | None:
        """The binding of a custom call target, or None."""
        return self.load().custom_calls.get(target)

    def unknown_target(self, target: str) -> str:
        """A message for a custom call target that nobody registered."""
        return (
            _unknown("custom call target", target, self.custom_calls)
            + "; register one with hlojit.extensions.register, through the hook hlojit_custom_calls"
        )

    def passes(self, backend: str) -> list[Pass]:
        """All plugins' passes that are meant for a back end, in order of the plugins' names."""
        self.load()
        return [
            pass_
            for _, record in sorted(self.records.items())
            for pass_ in record.passes
            if not pass_.targets or backend in pass_.targets
        ]

    def identity(self) -> str:
        """Identity of all plugins that are loaded: part of every cache key."""
        self.load()
        return ";".join(f"{r.name}={r.identity}" for _, r in sorted(self.records.items()) if not r.error)


_EXPECTED: dict[str, type] = {
    "hlojit_formats": ElementType,
    "hlojit_ops": OpDefinition,
    "hlojit_passes": Pass,
    "hlojit_custom_calls": CustomCall,
    "hlojit_backends": Backend,
}


def _all_ops(record: PluginRecord) -> Iterator[OpDefinition]:
    """A plugin's ops and those that its custom calls become."""
    yield from record.ops
    for call in record.custom_calls:
        yield from call.records()


def _name_of(plugin: Any) -> str:
    name: str = getattr(plugin, "__name__", type(plugin).__name__)
    return name


def _unknown(kind: str, name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=3)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"unknown {kind} {name!r}; known: {', '.join(sorted(known)) or 'none'}{hint}"


def _explain(plugin: Any, error: pluggy.PluginValidationError) -> str:
    """pluggy's complaint, with a hint where a hook's name is misspelt."""
    text = str(error).splitlines()[-1] if str(error) else repr(error)
    for attribute in dir(plugin):
        if attribute.startswith("hlojit_") and attribute not in HOOKS and attribute != "hlojit_api":
            near = difflib.get_close_matches(attribute, HOOKS, n=1)
            if near:
                return f"there is no hook {attribute!r}; did you mean {near[0]!r}?"
    return text


def _identity(plugin: Any, record: PluginRecord) -> str:
    try:
        source = inspect.getsource(plugin if inspect.ismodule(plugin) else type(plugin))
    except (OSError, TypeError):
        source = repr(sorted(vars(plugin)) if hasattr(plugin, "__dict__") else plugin)
    text = f"{record.name}\0{record.package}\0{record.version}\0{source}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_default = Registry()


def registry() -> Registry:
    """The process's registry."""
    return _default
