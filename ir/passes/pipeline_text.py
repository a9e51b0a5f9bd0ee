"""Pipelines as text, as the command line takes them.

>>> parse_pipeline("canonicalize,cse,dce").run(module)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hlojit.ir.errors import HlojitError
from hlojit.ir.passes.pass_manager import Pass, PassPipeline, option_fields
from hlojit.ir.passes.registry import known_passes


def parse_pipeline(text: str, known: Mapping[str, type[Pass]] | None = None) -> PassPipeline:
    """Read ``name,name{field=value field=value},...``; ``known`` defaults to the built-in passes and their aliases."""
    if known is None:
        known = known_passes()
    passes: list[Pass] = []
    position = 0
    while position < len(text):
        match = _ITEM.match(text, position)
        if match is None:
            raise HlojitError(f"cannot read the pass pipeline at {text[position:]!r}; expected name{{field=value ...}}")
        name = match["name"]
        if name not in known:
            raise HlojitError(f"unknown pass {name!r}; known: {', '.join(sorted(known))}")
        passes.append(_make_pass(known[name], match["options"] or ""))
        position = match.end()
    return PassPipeline(tuple(passes))


_ITEM = re.compile(r"\s*(?P<name>[A-Za-z_][\w.-]*)\s*(?:\{(?P<options>[^}]*)\})?\s*(?:,|$)")


def _make_pass(kind: type[Pass], text: str) -> Pass:
    fields = {field.name: field for field in option_fields(kind)}
    options: dict[str, Any] = {}
    for word in text.replace(",", " ").split():
        key, equals, value = word.partition("=")
        if key not in fields:
            raise HlojitError(f"pass {kind.name!r} has no option {key!r}; it has {', '.join(fields) or 'none'}")
        options[key] = _option_value(kind, fields[key].default, key, value if equals else "true")
    return kind(**options)


def _option_value(kind: type[Pass], default: Any, key: str, text: str) -> Any:
    if isinstance(default, bool):
        if text in ("true", "false"):
            return text == "true"
    elif isinstance(default, (int, float)):
        try:
            return type(default)(text)
        except ValueError:
            pass
    else:
        return text
    raise HlojitError(f"option {key!r} of pass {kind.name!r}: {text!r} is not a {type(default).__name__}")
