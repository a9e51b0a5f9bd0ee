"""Compile options as the caller gives them, checked and with what switches say where nothing is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from hlojit.extensions import CompileOptions
from hlojit.ir.errors import HlojitError
from hlojit.ir.switches import AUTOTUNE, LIBRARIES, Switch

LIBRARY_CHOICES = ("auto", "off", "require")
AUTOTUNE_CHOICES = ("off", "same-bits", "any")
DYNAMIC_SHAPES_CHOICES = ("specialize", "symbolic")


def checked_options(
    options: CompileOptions | Mapping[str, Any] | None, num_replicas: int | None, num_partitions: int | None
) -> CompileOptions:
    """The options with numbers of processes; raises ``HlojitError`` for one that is unknown or has no such value."""
    if isinstance(options, Mapping):
        names = [field.name for field in fields(CompileOptions)]
        unknown = sorted(set(options) - set(names))
        if unknown:
            raise HlojitError(f"unknown compile option {unknown[0]!r}; known: {', '.join(names)}")
        options = CompileOptions(**options)
    options = options or CompileOptions()
    libraries = _word("libraries", options.libraries, LIBRARIES, LIBRARY_CHOICES)
    measured = options.autotune
    if isinstance(measured, bool):
        measured = AUTOTUNE_CHOICES[measured]
    autotune = _word("autotune", measured, AUTOTUNE, AUTOTUNE_CHOICES)
    if options.dynamic_shapes not in DYNAMIC_SHAPES_CHOICES:
        known = ", ".join(DYNAMIC_SHAPES_CHOICES)
        raise HlojitError(f"compile option dynamic_shapes={options.dynamic_shapes!r} is none of {known}")
    if not isinstance(options.specializations, int) or options.specializations < 1:
        raise HlojitError(f"compile option specializations={options.specializations!r} must be at least 1")
    return replace(
        options,
        num_replicas=options.num_replicas if num_replicas is None else num_replicas,
        num_partitions=options.num_partitions if num_partitions is None else num_partitions,
        libraries=libraries,
        autotune=autotune,
    )


def _word(name: str, chosen: str, switch: Switch, known: Sequence[str]) -> str:
    """A compile option that is one of some words, or what its switch says where it is empty."""
    found = chosen or switch.choice(known)
    if found not in known:
        raise HlojitError(f"compile option {name}={found!r} is none of {', '.join(known)}")
    return found
