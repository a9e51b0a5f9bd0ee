"""Discovery: the plugins that installed packages announce as entry points of the group ``hlojit``.

hlojit's own come first and on their own (``load_built_in``), so that nothing can take their names; the rest is loaded when
something is first looked up or compiled.  Other threads wait until it is done.
"""

from __future__ import annotations

import importlib.metadata
import sys
import threading
import traceback
from typing import Any, Final

from hlojit.extensions.registration.checks import PluginRecord, failed, read_plugin
from hlojit.ir.environment import Environment
from hlojit.ir.errors import PluginError, PluginWarning
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.in_flight import InFlight, Role
from hlojit.ir.switches import DISABLE_PLUGINS, check_names
from hlojit.ir.warn import warn

ENTRY_POINT_GROUP = "hlojit"
OWN_PACKAGE = "hlojit"

_LATER: Final = object()
"""This thread is importing the module, and what the entry point names may not be there yet."""
_PRESENT: Final = object()
_DISABLED: Final = object()


_Key = tuple[str, str]
"""Name and package of an entry point."""


class Discovery:
    """Loads entry points into an environment, once; one that fails is recorded with its reason, and the others go on.

    Plugins' code - their modules, their hooks - runs under no lock: it may start threads that use hlojit, and wait for them.
    A plugin is registered by one thread while others wait for it (``hlojit.ir.in_flight``).  Who must not wait goes on with
    what is there: the thread that loads a plugin, and threads for which that one waits.
    """

    def __init__(self, environment: Environment):
        self.environment = environment
        self.loaded = False
        """Whether all plugins are there; looked at first."""
        self._built_in_loaded = False
        self._busy = threading.local()
        self._works = InFlight()
        self._warned: set[str] = set()
        self._waiting: dict[_Key, importlib.metadata.EntryPoint] | None = None
        """What nobody has registered yet."""

    def load(self) -> None:
        """Load everything that is installed, unless it has been done; a misspelt switch is reported here."""
        if self.loaded:
            return
        check_names()
        self.load_built_in()
        # Another thread may have come further meanwhile: never set to False.
        if self._built_in_loaded and self._load_all(built_in=False):
            self.loaded = True
            self._warn_of_failures()

    def _warn_of_failures(self) -> None:
        """Say what could not be loaded, once: somebody may miss it."""
        for _, each in sorted(self.environment.snapshot().contributions.items()):
            if each.failure and each.owner not in self._warned:
                self._warned.add(each.owner)
                warn(
                    f"the plugin {each.origin} could not be loaded: {each.failure}; hlojit plugins shows more, and "
                    f"{DISABLE_PLUGINS.name} leaves it out",
                    PluginWarning,
                )

    def load_built_in(self) -> None:
        """Load hlojit's own plugins, unless it has been done."""
        if not self._built_in_loaded and self._load_all(built_in=True):
            self._built_in_loaded = True

    def _load_all(self, *, built_in: bool) -> bool:
        """Whether all entry points of a kind are loaded; those that are being loaded and cannot be waited for are not."""
        # A plugin that looks something up while it is loaded, by the thread that loads it, sees what is there.
        if getattr(self._busy, "flag", False):
            return False
        self._busy.flag = True
        try:
            waiting = self._entry_points()
            keys = [key for key in list(waiting) if (key[1] == OWN_PACKAGE) == built_in]
            for key in keys:
                self._load_one(key, waiting)
        finally:
            self._busy.flag = False
        return not any(key in waiting for key in keys)

    def _entry_points(self) -> dict[_Key, importlib.metadata.EntryPoint]:
        while self._waiting is None:
            with self._works.turn("entry points") as role:
                if role is not Role.AFTER and self._waiting is None:
                    # Reading what a distribution is called imports modules.
                    with fork_gate.inside_for_another:
                        found = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
                        self._waiting = {(entry.name, _package(entry)): entry for entry in sorted(found, key=_name)}
        return self._waiting

    def _load_one(self, key: _Key, waiting: dict[_Key, importlib.metadata.EntryPoint]) -> None:
        """Import and register a plugin, or wait for the thread that does."""
        while (entry := waiting.get(key)) is not None:
            # Imported by every thread that comes here: Python makes them wait for each other, where it is not a deadlock.
            with fork_gate.inside:
                imported = self._imported(entry)
            if imported is _LATER:
                return
            with self._works.turn(key, take_over=False) as role:
                if role is Role.FIRST and key in waiting:
                    with fork_gate.inside_for_another:
                        self._register(entry, imported)
                    del waiting[key]
                elif role is not Role.AFTER and role is not Role.FIRST:
                    return

    def _imported(self, entry: importlib.metadata.EntryPoint) -> Any:
        """What an entry point names: a plugin, the error that it failed with, or one of the marks below."""
        if self._is_present(entry):
            return _PRESENT
        if _is_disabled(entry):
            return _DISABLED
        try:
            plugin = entry.load()
        except (Exception, SystemExit) as error:
            # One broken package must not take the others, or the program, with it.
            packages = entry.module.split(".")
            names = (".".join(packages[: end + 1]) for end in range(len(packages)))
            return _LATER if any(map(_is_being_imported, names)) else error
        return _LATER if _is_being_imported(entry.module) else plugin

    def _is_present(self, entry: importlib.metadata.EntryPoint) -> bool:
        """Whether it was registered by hand before, or is announced twice."""
        present = self.environment.snapshot().contributions.get(entry.name)
        return present is not None and (_package(entry) == OWN_PACKAGE or not present.built_in)

    def _register(self, entry: importlib.metadata.EntryPoint, imported: Any) -> None:
        package = _package(entry)
        record = PluginRecord(
            entry.name, package, entry.dist.version if entry.dist else "", built_in=package == OWN_PACKAGE
        )
        try:
            if imported is _DISABLED:
                record.error = f"disabled by {DISABLE_PLUGINS.name}"
                self.environment.add(failed(record, "", record.error))
            elif isinstance(imported, BaseException):
                self._note_failure(entry, record, imported)
            elif imported is not _PRESENT and not self._is_present(entry):
                self.environment.add(read_plugin(imported, record))
            else:
                self._check_package(record)
        except (Exception, SystemExit) as error:
            self._note_failure(entry, record, error)

    def _check_package(self, record: PluginRecord) -> None:
        """Refuse a plugin of a name that another package's has; what was registered by hand stays instead of it."""
        present = self.environment.snapshot().contributions.get(record.name)
        known = present.record if present is not None else None
        if isinstance(known, PluginRecord) and known.package not in ("", record.package):
            raise PluginError(same_name(record, known))

    def _note_failure(self, entry: importlib.metadata.EntryPoint, record: PluginRecord, error: BaseException) -> None:
        name = entry.name
        if name in self.environment.snapshot().contributions:
            # It wanted the name of a plugin that is built in, which keeps it.
            name = f"{name} ({record.package})"
        broken = PluginRecord(name, record.package, record.version, built_in=record.built_in)
        broken.error = "".join(traceback.format_exception(error, limit=-4)).rstrip()
        reason = str(error) if isinstance(error, PluginError) else broken.error.splitlines()[-1]
        self.environment.add(failed(broken, reason))


def same_name(record: PluginRecord, known: PluginRecord) -> str:
    """A message for a plugin of a package whose name a plugin of another package has."""
    return (
        f"the packages {known.source} and {record.source} both bring a plugin called {record.name!r}; rename the entry point of "
        "one of them, or uninstall one"
    )


def _is_disabled(entry: importlib.metadata.EntryPoint) -> bool:
    disabled = set(filter(None, DISABLE_PLUGINS.text().split(",")))
    return entry.name in disabled or ("all" in disabled and _package(entry) != OWN_PACKAGE)


def _is_being_imported(module: str) -> bool:
    """Whether a module is still executed: Python hands such a one out to the thread that executes it."""
    return bool(getattr(getattr(sys.modules.get(module), "__spec__", None), "_initializing", False))


def _name(entry: importlib.metadata.EntryPoint) -> str:
    return entry.name


def _package(entry: importlib.metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist else ""
