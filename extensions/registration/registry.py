"""The registry: registers plugins in the process's environment or in a scope, and answers what is registered.

Plugins come from entry points (``hlojit.extensions.registration.discovery``), from ``register`` (a module or object, in a script
or a notebook cell; registering the same name again replaces), or from a ``with using(plugin):`` block, which makes an
environment of its own for the current context.  Questions are answered for the current environment (``hlojit.ir.environment``).
Hooks are called once per plugin and fill tables; nothing here is on the path of a call.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from hlojit.extensions.backends.backend import Backend
from hlojit.extensions.backends.registered import BACKENDS, PASSES, RegisteredBackend, RegisteredPass
from hlojit.extensions.calls.custom_calls import CustomCall
from hlojit.extensions.registration.checks import PluginRecord, name_of, read_plugin
from hlojit.extensions.registration.discovery import Discovery, same_name
from hlojit.ir.environment import CUSTOM_CALLS, Contribution, Environment, current, process_environment, tables
from hlojit.ir.errors import HlojitError, PluginError, PluginWarning, short_repr
from hlojit.ir.near_names import did_you_mean, unknown
from hlojit.ir.warn import warn

_PYTHON_CALLBACK: Final = re.compile(r"python_[cg]pu_callback$")
"""Targets of JAX's callbacks."""


class Registry:
    """Plugins and what they registered, as the current environment has it; see the module's docstring."""

    def __init__(self) -> None:
        self.environment = process_environment()
        self._discovery = Discovery(self.environment)

    def load(self) -> Registry:
        """Load all plugins that installed packages announce (once) and return the registry."""
        if not self._discovery.loaded:
            self._discovery.load()
        return self

    # -------------------------------------------------------- registration

    def register(self, plugin: Any, *, name: str = "", package: str = "", version: str = "") -> PluginRecord:
        """Register a module or object with hook functions for the whole process, and return its record.

        The same name again replaces what was registered under it, for programs that were parsed before too; what is
        compiled keeps running as it is.  Raises ``PluginError`` if a hook is misspelt, has a wrong signature, fails or
        returns something else than it should, or claims a name that is built in or that another plugin has; the registry
        is then as it was.
        """
        if not isinstance(name, str):
            raise PluginError(f"a plugin's name is a string, not {short_repr(name)}")
        self._discovery.load_built_in()
        record = PluginRecord(name or name_of(plugin), package, version)
        contribution = read_plugin(plugin, record)
        before = self.environment.snapshot().contributions
        _check_package(before.get(record.name), record)
        self.environment.add(contribution, replaces=_is_predecessor)
        for other in sorted(set(before) - set(self.environment.snapshot().contributions)):
            warn(
                f"plugin {record.origin} takes the place of {before[other].origin}: it brings all that this one brought, under "
                "another name; unregister the one that is not wanted if they are two",
                PluginWarning,
            )
        return record

    def unregister(self, name: str) -> None:
        """Drop a plugin with everything that it registered; built-in plugins stay.

        Unknown names are ignored, with a warning where one that is registered is spelt nearly so.
        """
        self._discovery.load_built_in()
        present = self.environment.snapshot().contributions.get(name)
        if present is not None and present.built_in:
            raise PluginError(f"the plugin {present.origin} is built in; HLOJIT_DISABLE_PLUGINS={name} leaves it out")
        if present is None and (near := did_you_mean(name, self.environment.snapshot().contributions)):
            warn(f"there is no plugin {name!r} to unregister{near}", PluginWarning)
        self.environment.remove(name)

    def scope(self, *plugins: Any) -> Environment:
        """An environment with further plugins on top of the current one; ``activate`` makes it the current one.

        A plugin whose name is registered already takes that one's place in the scope.
        """
        self._discovery.load_built_in()
        environment = Environment(current())
        for plugin in plugins:
            environment.add(read_plugin(plugin, PluginRecord(name_of(plugin))))
        return environment

    @contextmanager
    def using(self, *plugins: Any) -> Iterator[None]:
        """Have plugins registered inside a ``with`` block, for the current context (thread, task) alone."""
        if not plugins:
            yield
            return
        with self.scope(*plugins).activate():
            yield

    # -------------------------------------------------------------- queries

    @property
    def records(self) -> Mapping[str, PluginRecord]:
        """All plugins by name, those that could not be loaded among them."""
        return {name: each.record for name, each in tables().contributions.items()}

    @property
    def backends(self) -> Mapping[str, Backend]:
        """Back ends by name."""
        return {name: each.backend for name, each in tables().table(BACKENDS).items()}

    @property
    def custom_calls(self) -> Mapping[str, CustomCall]:
        """Custom calls by target."""
        return tables().table(CUSTOM_CALLS)

    def backend(self, name: str) -> Backend:
        """The back end called ``name``; raises with the known and near names."""
        if not isinstance(name, str):
            raise HlojitError(f"backend is the name of a back end, not {short_repr(name)}")
        self.load()
        found: RegisteredBackend | None = tables().table(BACKENDS).get(name)
        if found is not None:
            return found.backend
        record = self.records.get(name)
        if record is not None and record.error:
            raise PluginError(f"the back end {name!r} could not be loaded:\n{record.error}")
        raise HlojitError(unknown("back end", name, self.backends) + tables().who_brings(BACKENDS, name))

    def custom_call(self, target: str) -> CustomCall | None:
        """The binding of a custom call target, or None: by its own name, or the longest one with a ``*`` that it fits."""
        calls = self.load().custom_calls
        found = calls.get(target)
        if found is None:
            families = [call for call in calls.values() if call.is_family and _fits(call.target, target)]
            found = max(families, key=lambda call: (len(call.target), call.target), default=None)
        return found

    def is_built_in(self, call: CustomCall) -> bool:
        """Whether a registered custom call is hlojit's own."""
        known = tables()
        return known.contributions[known.owners[CUSTOM_CALLS, call.target]].built_in

    def unknown_target(self, target: str) -> str:
        """A message for a custom call target that nobody registered."""
        if _PYTHON_CALLBACK.search(target):
            return (
                f"{target!r} calls a Python function of the process that wrote this program (jax.debug.print, pure_callback, "
                "io_callback); the program does not contain it: leave it out before lowering"
            )
        return (
            unknown("custom call target", target, self.custom_calls)
            + "; register one with hlojit.extensions.register, through the hook hlojit_custom_calls"
            + tables().who_brings(CUSTOM_CALLS, target)
        )

    def not_loaded(self, name: str) -> str:
        """A clause for messages about an unknown target or op: who brings it elsewhere, what is installed and not loaded."""
        return tables().who_brings(CUSTOM_CALLS, name)

    def passes(self, backend: str) -> list[RegisteredPass]:
        """All plugins' passes that are meant for a back end, in order of the plugins' names."""
        return [each for each in self.all_passes() if not each.pass_.targets or backend in each.pass_.targets]

    def all_passes(self) -> list[RegisteredPass]:
        """All plugins' passes, for whatever back end, in order of the plugins' names."""
        self.load()
        return [
            found
            for _, each in sorted(tables().contributions.items())
            for found in each.tables.get(PASSES, {}).values()
        ]

    def pass_names(self) -> set[str]:
        """The names of all plugins' passes."""
        return {each.pass_.name for each in self.all_passes()}


def _fits(family: str, target: str) -> bool:
    form = ".*".join(map(re.escape, family.split("*")))
    return re.fullmatch(form, target, re.DOTALL) is not None


def _check_package(present: Contribution | None, record: PluginRecord) -> None:
    """A package does not take the place of another one's plugin."""
    known = present.record if present is not None else None
    if isinstance(known, PluginRecord) and known.package and record.package and known.package != record.package:
        raise PluginError(same_name(record, known))


def _is_predecessor(other: Contribution, contribution: Contribution) -> bool:
    """Whether ``other`` is the same plugin of a notebook under an earlier name: it claims nothing else.

    The cell was run again with another name for the class; there, nothing says that the old one has gone.
    """
    main, claims = sys.modules.get("__main__"), _claims(other)
    is_of_notebook = _is_of_notebook(contribution, main) and _is_of_notebook(other, main)
    return is_of_notebook and bool(claims) and claims <= _claims(contribution)


def _is_of_notebook(contribution: Contribution, main: Any) -> bool:
    record: PluginRecord | None = contribution.record
    # A script has a file; what is typed, run in cells or piped in has none.
    file = getattr(main, "__file__", None)
    return record is not None and record.module == "__main__" and not record.package and not os.path.isfile(file or "")


def _claims(contribution: Contribution) -> set[tuple[str, str]]:
    return {(kind, name) for kind, records in contribution.tables.items() for name in records}


_default = Registry()


def registry() -> Registry:
    """The process's registry."""
    return _default
