"""Whole programs in the cache on disk, by a key that is known before anything is parsed.

The key is the hash of the text (of a module: of its structure), the options, the versions of hlojit and what it stands on,
the back end (what it says of its device, its class, what it wants of the passes), and the content of what plugins have that
can take part (``plugin_shares``).  Where one of these has no content hash, the program is compiled anew every time; its
kernels are still found.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from typing import Any

from hlojit.compiled import CompiledProgram, Provenance, decode, encode
from hlojit.disk_cache import disk_cache
from hlojit.extensions import Backend, CompileOptions, registry
from hlojit.extensions.backends.registered import api_of
from hlojit.extensions.origins import backend_text
from hlojit.ir.binary import FormatError
from hlojit.ir.errors import HlojitError, PluginError, short_repr
from hlojit.ir.fingerprint import NotKeyable, fingerprint
from hlojit.ir.graph import Module
from hlojit.ir.vendor_calls import call_named
from hlojit.ir.versions import versions_text
from hlojit.lowering.structure import module_text
from hlojit.plugin_shares import plugin_shares

_KIND = "programs"
_NOT_IN_KEYS = ("progress", "pass_time_limit")
"""Options that change nothing of what comes out."""


def provenance_of(program: str | Module, options: CompileOptions, backend: str) -> Provenance:
    """What the driver knows of a program before it is compiled for a back end; raises ``NotKeyable``."""
    text = program if isinstance(program, str) else module_text(program)
    chosen = {each.name: getattr(options, each.name) for each in fields(options) if each.name not in _NOT_IN_KEYS}
    return Provenance(
        source=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        options=chosen,
        plugins=plugin_shares(text, backend),
    )


def _known_passes(options: CompileOptions) -> list[str]:
    """The names that options of passes are checked against, where there are such options: unknown ones are an error."""
    return sorted(registry().pass_names()) if options.disable_passes or options.pass_options else []


def _identity_of(backend: Backend, stated: str) -> tuple[object, ...]:
    """What a program owes to its back end, and to the passes before it: a back end speaks for its device only."""
    wants = (api_of(backend), backend.fuses, backend.fusion_limits)
    return backend.name, stated, versions_text(), type(backend), wants


def find(program: str | Module, backend: Backend, options: CompileOptions) -> tuple[str, Any, CompiledProgram | None]:
    """Key, provenance and, if it was compiled before, the program; the key is empty where there can be none."""
    who = backend_text(backend.name)
    identity: object = call_named(lambda: f"{who}: cache_identity", backend.cache_identity)
    if identity is None:
        return "", None, None
    if not isinstance(identity, str):
        raise PluginError(
            f"{who}: cache_identity returned {short_repr(identity)}; return a string, or None for no cache"
        )
    try:
        provenance = provenance_of(program, options, backend.name)
        of_options = call_named(lambda: f"{who}: options_identity", backend.options_identity, options)
        stated = f"{identity}\0{of_options}"
        origin = provenance.source, provenance.options, provenance.plugins
        text = fingerprint((_identity_of(backend, stated), *origin, _known_passes(options)))
    except NotKeyable:
        return "", None, None
    cache = disk_cache()
    data = cache.get(_KIND, text) if cache is not None else None
    if cache is None or data is None:
        return text, provenance, None
    try:
        return text, provenance, decode(data, text)
    except HlojitError:
        cache.discard(_KIND, text)
        return text, provenance, None


def keep(key: str, compiled: CompiledProgram) -> None:
    """Put a program into the cache, if it can be written down."""
    cache = disk_cache()
    if cache is None or not key or compiled.unkeyable or compiled.provisional:
        return
    try:
        data = encode(compiled, key)
    except (NotKeyable, FormatError):
        return
    cache.put(_KIND, key, data)


def discard(key: str) -> None:
    """Remove a program that cannot be loaded."""
    cache = disk_cache()
    if cache is not None:
        cache.discard(_KIND, key)


def with_provenance(compiled: CompiledProgram, known: Provenance | None) -> CompiledProgram:
    """The program with what the driver knows of its origin, beside what the back end does."""
    if known is None:
        return compiled
    made = replace(compiled.provenance, source=known.source, options=known.options, plugins=known.plugins)
    return replace(compiled, provenance=made)
