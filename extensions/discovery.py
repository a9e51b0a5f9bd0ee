"""Discovery: the plugins that installed packages announce as entry points of the group ``hlojit``.

hlojit's own come first and on their own (``load_built_in``), so that nothing can take their names; the rest is loaded when
something is first looked up or compiled.  Other threads wait until it is done.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import threading
import traceback
from typing import Any, Final

from hlojit.extensions.checks import PluginRecord, failed, read_plugin
from hlojit.ir.environment import Environment
from hlojit.ir.errors import PluginError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.switches import DISABLE_PLUGINS, check_names

ENTRY_POINT_GROUP = "hlojit"
OWN_PACKAGE = "hlojit"

_LATER: Final = object()
"""This thread is importing the module, and what the entry point names may not be there yet."""
_PRESENT: Final = object()
_DISABLED: Final = object()


class Discovery:
    """Loads entry points into an environment, once; one that fails is recorded with its reason, and the others go on.

    Plugins are imported without the lock, and registered under it: a thread that imports a plugin itself holds Python's lock
    of that module, and comes here if the module looks something up while it is executed.
    """

    def __init__(self, environment: Environment):
        self.environment = environment
        self.loaded = False
        """Whether all plugins are there; looked at without the lock."""
        self._built_in_loaded = False
        self._busy = threading.local()
        self._lock = threading.RLock()
        self._waiting: list[importlib.metadata.EntryPoint] | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def load(self) -> None:
        """Load everything that is installed, unless it has been done; a misspelt switch is reported here."""
        if self.loaded:
            return
        check_names()
        self.load_built_in()
        # Another thread may have come further meanwhile: never set to False.
        if self._built_in_loaded and self._load_all(built_in=False):
            self.loaded = True

    def load_built_in(self) -> None:
        """Load hlojit's own plugins, unless it has been done."""
        if not self._built_in_loaded and self._load_all(built_in=True):
            self._built_in_loaded = True

    def _after_fork(self) -> None:
        # Another thread may have been loading: the child goes on with what is not there already.
        self._lock = threading.RLock()

    def _load_all(self, *, built_in: bool) -> bool:
        """Whether all entry points of a kind are loaded; those that this thread is importing are loaded later."""
        # A plugin that looks something up while it is loaded, by the thread that loads it, sees what is there.
        if getattr(self._busy, "flag", False):
            return False
        self._busy.flag = True
        try:
            with fork_gate:
                entries = [entry for entry in self._entries() if (_package(entry) == OWN_PACKAGE) == built_in]
                found = [(entry, self._imported(entry)) for entry in entries]
                with self._lock:
                    for entry, imported in found:
                        if imported is not _LATER:
                            self._register(entry, imported)
        finally:
            self._busy.flag = False
        return all(imported is not _LATER for _, imported in found)

    def _entries(self) -> list[importlib.metadata.EntryPoint]:
        """The entry points that nobody has registered yet."""
        with self._lock:
            if self._waiting is None:
                found = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
                self._waiting = sorted(found, key=lambda entry: entry.name)
            return list(self._waiting)

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
        assert self._waiting is not None
        if entry not in self._waiting:
            return  # another thread was faster
        package = _package(entry)
        record = PluginRecord(
            entry.name, package, entry.dist.version if entry.dist else "", built_in=package == OWN_PACKAGE
        )
        try:
            if imported is _DISABLED:
                record.error = f"disabled by {DISABLE_PLUGINS.name}"
                self.environment.add(failed(record, ""))
            elif isinstance(imported, BaseException):
                self._note_failure(entry, record, imported)
            elif imported is not _PRESENT and not self._is_present(entry):
                self.environment.add(read_plugin(imported, record))
        except (Exception, SystemExit) as error:
            self._note_failure(entry, record, error)
        self._waiting.remove(entry)

    def _note_failure(self, entry: importlib.metadata.EntryPoint, record: PluginRecord, error: BaseException) -> None:
        name = entry.name
        if name in self.environment.snapshot().contributions:
            # It wanted the name of a plugin that is built in, which keeps it.
            name = f"{name} ({record.package})"
        broken = PluginRecord(name, record.package, record.version, built_in=record.built_in)
        broken.error = "".join(traceback.format_exception(error, limit=-4)).rstrip()
        reason = str(error) if isinstance(error, PluginError) else broken.error.splitlines()[-1]
        self.environment.add(failed(broken, reason))


def _is_disabled(entry: importlib.metadata.EntryPoint) -> bool:
    disabled = set(filter(None, DISABLE_PLUGINS.text().split(",")))
    return entry.name in disabled or ("all" in disabled and _package(entry) != OWN_PACKAGE)


def _is_being_imported(module: str) -> bool:
    """Whether a module is still executed: Python hands such a one out to the thread that executes it."""
    return bool(getattr(getattr(sys.modules.get(module), "__spec__", None), "_initializing", False))


def _package(entry: importlib.metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist else ""
