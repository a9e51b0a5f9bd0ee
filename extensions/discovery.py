"""Discovery: the plugins that installed packages announce as entry points of the group ``hlojit``.

hlojit's own come first and on their own (``load_built_in``), so that nothing can take their names; the rest is loaded when
something is first looked up or compiled.  Other threads wait until it is done.
"""

from __future__ import annotations

import importlib.metadata
import os
import threading
import traceback
from collections.abc import Iterable

from hlojit.extensions.checks import PluginRecord, failed, read_plugin
from hlojit.ir.environment import Environment
from hlojit.ir.errors import PluginError
from hlojit.ir.fork_gate import fork_gate

ENTRY_POINT_GROUP = "hlojit"
OWN_PACKAGE = "hlojit"


class Discovery:
    """Loads entry points into an environment, once; one that fails is recorded with its reason, and the others go on."""

    def __init__(self, environment: Environment):
        self.environment = environment
        self.loaded = False
        """Whether all plugins are there; looked at without the lock."""
        self._built_in_loaded = False
        self._busy = False
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def load(self) -> None:
        """Load everything that is installed, unless it has been done."""
        if self.loaded:
            return
        with fork_gate, self._lock:
            # A plugin that looks something up while it is imported, by the thread that loads it, sees what is there.
            if self.loaded or self._busy:
                return
            self.load_built_in()
            self._busy = True
            try:
                self._load_all(entry for entry in _entries() if _package(entry) != OWN_PACKAGE)
            finally:
                self._busy = False
            self.loaded = True

    def load_built_in(self) -> None:
        """Load hlojit's own plugins, unless it has been done."""
        if self._built_in_loaded:
            return
        with fork_gate, self._lock:
            if self._built_in_loaded or self._busy:
                return
            self._busy = True
            try:
                self._load_all(entry for entry in _entries() if _package(entry) == OWN_PACKAGE)
            finally:
                self._busy = False
            self._built_in_loaded = True

    def _after_fork(self) -> None:
        # Another thread may have been loading: the child does it again, without what is there already.
        self._lock = threading.RLock()
        self._busy = False

    def _load_all(self, entries: Iterable[importlib.metadata.EntryPoint]) -> None:
        disabled = set(filter(None, os.environ.get("HLOJIT_DISABLE_PLUGINS", "").split(",")))
        for entry in entries:
            package, version = _package(entry), entry.dist.version if entry.dist else ""
            present = self.environment.snapshot().contributions.get(entry.name)
            record = PluginRecord(entry.name, package, version, built_in=package == OWN_PACKAGE)
            if present is not None and (record.built_in or not present.built_in):
                continue  # registered by hand before, or announced twice
            if entry.name in disabled or ("all" in disabled and not record.built_in):
                record.error = "disabled by HLOJIT_DISABLE_PLUGINS"
                self.environment.add(failed(record, ""))
                continue
            try:
                self.environment.add(read_plugin(entry.load(), record))
            except (Exception, SystemExit) as error:
                # One broken package must not take the others, or the program, with it.
                self._note_failure(entry, record, error)

    def _note_failure(self, entry: importlib.metadata.EntryPoint, record: PluginRecord, error: BaseException) -> None:
        name = entry.name
        if name in self.environment.snapshot().contributions:
            # It wanted the name of a plugin that is built in, which keeps it.
            name = f"{name} ({record.package})"
        broken = PluginRecord(name, record.package, record.version, built_in=record.built_in)
        broken.error = traceback.format_exc(limit=-4).rstrip()
        reason = str(error) if isinstance(error, PluginError) else broken.error.splitlines()[-1]
        self.environment.add(failed(broken, reason))


def _entries() -> list[importlib.metadata.EntryPoint]:
    return sorted(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)


def _package(entry: importlib.metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist else ""
