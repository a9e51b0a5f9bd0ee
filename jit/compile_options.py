"""Compile options as the caller gives them, checked and with what switches say where nothing is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from hlojit.extensions import CompileOptions
from hlojit.ir.errors import HlojitError, short_repr
from hlojit.ir.near_names import unknown
from hlojit.ir.switches import AUTOTUNE, LIBRARIES, Switch

LIBRARY_CHOICES = ("auto", "off", "require")
AUTOTUNE_CHOICES = ("off", "same-bits", "any")
DYNAMIC_SHAPES_CHOICES = ("specialize", "symbolic")


def checked_options(
    options: CompileOptions | Mapping[str, Any] | None,
    num_replicas: int | None,
    num_partitions: int | None,
    pass_options: Mapping[str, Mapping[str, Any]] | None = None,
) -> CompileOptions:
    """The options with numbers of processes and further options of passes.

    Raises ``HlojitError`` for one that is unknown or has no such value.
    """
    options = _options(options)
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
    limit = options.pass_time_limit
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit > 0):
        raise HlojitError(f"compile option pass_time_limit={limit!r} must be a number of seconds above 0, or None")
    return replace(
        options,
        pass_options=_pass_options(options.pass_options, pass_options or {}),
        num_replicas=options.num_replicas if num_replicas is None else num_replicas,
        num_partitions=options.num_partitions if num_partitions is None else num_partitions,
        libraries=libraries,
        autotune=autotune,
    )


def _options(options: CompileOptions | Mapping[str, Any] | None) -> CompileOptions:
    if options is None or isinstance(options, CompileOptions):
        return options or CompileOptions()
    if not isinstance(options, Mapping):
        raise HlojitError(f"options is a CompileOptions or a mapping of its fields, not {short_repr(options)}")
    names = [field.name for field in fields(CompileOptions)]
    for name in options:
        if name not in names:
            raise HlojitError(unknown("compile option", str(name), names))
    return CompileOptions(**options)


def _pass_options(*given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Options by pass, the later ones in the place of the earlier; the caller's mappings are not kept."""
    found: dict[str, dict[str, Any]] = {}
    for each in given:
        inner = each.items() if isinstance(each, Mapping) else [("", None)]
        for name, options in inner:
            if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in (name, *options)):
                raise HlojitError(
                    f"pass_options holds a mapping of options for each pass, such as {{'acme-tile': {{'size': 32}}}}, not "
                    f"{short_repr(each)}"
                )
            found.setdefault(name, {}).update(options)
    return found


def _word(name: str, chosen: str, switch: Switch, known: Sequence[str]) -> str:
    """A compile option that is one of some words, or what its switch says where it is empty."""
    found = chosen or switch.choice(known)
    if found not in known:
        raise HlojitError(f"compile option {name}={found!r} is none of {', '.join(known)}")
    return found
