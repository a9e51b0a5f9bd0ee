"""What a plugin's hooks return, called once and checked: every complaint names the plugin and the hook."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from hlojit.extensions.backends.backend import Backend
from hlojit.extensions.backends.registered import (
    API_VERSION,
    BACKENDS,
    FIRST_VERSION,
    PASSES,
    RegisteredBackend,
    RegisteredPass,
)
from hlojit.extensions.calls.custom_calls import CustomCall
from hlojit.extensions.kernels.kernel import Kernel
from hlojit.extensions.registration.hook_calls import called_hooks
from hlojit.extensions.registration.record_checks import (
    backend_complaint,
    format_complaint,
    op_complaint,
    pass_complaint,
)
from hlojit.ir.environment import CUSTOM_CALLS, ELEMENT_TYPES, KERNELS, OPS, Contribution
from hlojit.ir.errors import PluginError, short_repr
from hlojit.ir.fingerprint import fingerprint
from hlojit.ir.formats import ElementType
from hlojit.ir.ops.definition import OpDefinition
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.process_identity import process_identity

_UNKEYED: Final = "unkeyed-"
"""What identities begin with that mean nothing in other processes."""


@dataclass(slots=True)
class PluginRecord:
    """What is known of one plugin, loaded or not."""

    name: str
    package: str = ""
    version: str = ""
    identity: str = ""
    """Hash of package, version and everything that the plugin brings, functions with all that they read included."""
    api: tuple[int, int] = FIRST_VERSION
    error: str = ""
    """Why the plugin was skipped (with its traceback), or empty."""
    built_in: bool = False
    module: str = ""
    """Where the plugin's class is defined."""
    formats: list[ElementType] = field(default_factory=list)
    ops: list[OpDefinition] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    custom_calls: list[CustomCall] = field(default_factory=list)
    backends: list[Backend] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    cases: str = ""
    """The module that says how ``hlojit.testing`` tries what the plugin brings (``hlojit_cases``), imported by nobody else."""

    @property
    def origin(self) -> str:
        """Name and package, for messages."""
        return f"{self.name!r} (package {self.package} {self.version})" if self.package else f"{self.name!r}"

    @property
    def source(self) -> str:
        """Who brought something, for messages: ``hlojit-acme 0.1.0``, or ``plugin 'Acme'``."""
        return f"{self.package} {self.version}".rstrip() if self.package else f"plugin {self.name!r}"


@dataclass(frozen=True, slots=True)
class _Hook:
    """One hook: the type and the table of what it returns, and how those call their names."""

    kind: str
    expected: type
    name: str
    check: Callable[[Any], str | None] = lambda item: None

    def name_of(self, item: Any) -> str:
        name = getattr(item, self.name, None)
        return name if isinstance(name, str) else ""


HOOKS: Final = {
    "hlojit_formats": _Hook(ELEMENT_TYPES, ElementType, "name", format_complaint),
    "hlojit_custom_calls": _Hook(CUSTOM_CALLS, CustomCall, "target", lambda call: call.complaint()),
    "hlojit_ops": _Hook(OPS, OpDefinition, "name", op_complaint),
    "hlojit_passes": _Hook(PASSES, Pass, "name", pass_complaint),
    "hlojit_kernels": _Hook(KERNELS, Kernel, "name"),
    "hlojit_backends": _Hook(BACKENDS, Backend, "name", backend_complaint),
}


def read_plugin(plugin: Any, record: PluginRecord) -> Contribution:
    """Call a plugin's hooks, fill ``record`` and return what the plugin adds to an environment."""
    record.api = getattr(plugin, "hlojit_api", FIRST_VERSION)
    record.module = type(plugin).__module__
    record.cases = getattr(plugin, "hlojit_cases", "")
    _check_api(record)
    if not isinstance(record.cases, str):
        raise PluginError(
            f"plugin {record.origin}: hlojit_cases is {short_repr(record.cases)}, expected the name of a module: "
            "hlojit_cases = 'nova.cases'"
        )
    _call_hooks(plugin, record)
    tables: dict[str, dict[str, Any]] = {}
    for hook, spec in HOOKS.items():
        table = tables[spec.kind] = {}
        for item in _items(record, hook):
            name = spec.name_of(item)
            if name in table:
                raise PluginError(f"plugin {record.origin} registers the {spec.kind} {name!r} twice")
            table[name] = _registered(item, record)
    for call in record.custom_calls:
        tables[OPS].update((op.name, op) for op in call.records())
    _check_passes(record, tables[PASSES])
    record.identity = _identity(plugin, record)
    return Contribution(
        record.name, record.origin, record.identity, tables, record.built_in, record=record, source=record.source
    )


def failed(record: PluginRecord, reason: str, disabled: str = "") -> Contribution:
    """The contribution of a plugin that could not be loaded: its record, and the reason in one line, or what disables it."""
    return Contribution(record.name, record.origin, "", {}, record.built_in, reason, disabled, record)


def holds_elsewhere(record: PluginRecord) -> bool:
    """Whether a plugin's identity means something in other processes: everything that it brings has a content."""
    return not record.identity.startswith(_UNKEYED)


def name_of(plugin: Any) -> str:
    """The name under which a plugin is registered unless another is given."""
    name = getattr(plugin, "__name__", type(plugin).__name__)
    return name if isinstance(name, str) else type(plugin).__name__


# ------------------------------------------------------------------------------------------------------------- parts


def _items(record: PluginRecord, hook: str) -> list[Any]:
    items: list[Any] = getattr(record, hook.removeprefix("hlojit_"))
    return items


def _check_api(record: PluginRecord) -> None:
    api: Any = record.api
    if not (isinstance(api, tuple) and len(api) == 2 and all(isinstance(number, int) for number in api)):
        record.api = FIRST_VERSION
        raise PluginError(f"plugin {record.origin}: hlojit_api is {api!r}, not a pair of numbers such as {API_VERSION}")
    major, minor = record.api
    if major != API_VERSION[0] or minor > API_VERSION[1]:
        ours = ".".join(map(str, API_VERSION))
        raise PluginError(
            f"plugin {record.origin} is written for version {major}.{minor} of the hooks, this hlojit has {ours}; "
            f"install a matching version of {record.package or 'the plugin'} or of hlojit"
        )


def _call_hooks(plugin: Any, record: PluginRecord) -> None:
    expected = {hook: spec.expected for hook, spec in HOOKS.items()}
    for hook, items in called_hooks(plugin, record.origin, expected, is_own=record.built_in):
        for item in items:
            _check_item(hook, item, record)
        _items(record, hook).extend(items)


def _check_item(hook: str, item: Any, record: PluginRecord) -> None:
    spec = HOOKS[hook]
    name = spec.name_of(item)
    if not name:
        found = getattr(item, spec.name, None)
        lack = "without a name" if found is None else f"whose {spec.name} is {found!r}"
        raise PluginError(
            f"plugin {record.origin}: hook {hook} returned a {type(item).__name__} {lack}; set {spec.name} to a string"
        )
    complaint = spec.check(item)
    if complaint:
        raise PluginError(f"plugin {record.origin}: the {spec.kind} {name!r} {complaint}")


def _registered(item: Any, record: PluginRecord) -> Any:
    """What stands in a table for an item: the vendor's object is not touched, it may be in other tables too."""
    if isinstance(item, Backend):
        return RegisteredBackend(item, record.api)
    if isinstance(item, Pass):
        return RegisteredPass(item, "" if record.built_in else record.source)
    return item


def _check_passes(record: PluginRecord, table: dict[str, Any]) -> None:
    """Names of hlojit's own passes are taken."""
    from hlojit.ir.passes.registry import ALIASES, BUILTIN_PASSES

    taken = {kind.name for kind in BUILTIN_PASSES} | set(ALIASES) | OWN_PASSES
    for name in table:
        if name in taken:
            raise PluginError(f"plugin {record.origin} registers the pass {name!r}, which is built in")


OWN_PASSES: Final = frozenset({"legalization", "kernel-selection"})
"""Names of hlojit's passes that do not stand in ``hlojit.ir.passes.registry``."""


def _identity(plugin: Any, record: PluginRecord) -> str:
    head = (record.name, record.package, record.version)
    if record.built_in:
        # Its source is that of this version of hlojit.
        return fingerprint(head)[:32]
    content = (head, [_items(record, hook) for hook in HOOKS])
    try:
        return fingerprint(content)[:32]
    except Exception:
        # Not keyable, or an object of the vendor's whose attributes raise whatever they like.
        pass
    # Locks, C pointers, open devices: the plugin is itself, in this process only.
    try:
        return f"{_UNKEYED}{process_identity(_owner(plugin), content)[:32]}"
    except Exception:
        # What it holds cannot be walked over, or changes meanwhile: it is something else every time.
        return f"{_UNKEYED}{uuid.uuid4().hex}"


def _owner(plugin: Any) -> Any:
    """The plugin, or what lives as long as it does: namespaces have no weak references, functions in them have."""
    hooks_inside = [item for name, item in sorted(getattr(plugin, "__dict__", {}).items()) if name in HOOKS]
    return hooks_inside[0] if type(plugin) is SimpleNamespace and hooks_inside else plugin
