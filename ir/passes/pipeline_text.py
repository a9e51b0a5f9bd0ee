"""Pipelines as text, as the command line takes them.

>>> parse_pipeline("canonicalize,cse,dce").run(module)
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hlojit.ir.errors import HlojitError
from hlojit.ir.near_names import unknown
from hlojit.ir.passes.pass_manager import Pass, PassPipeline
from hlojit.ir.passes.pass_options import options_from_text, with_options
from hlojit.ir.passes.registry import known_passes


def parse_pipeline(text: str, known: Mapping[str, type[Pass] | Pass] | None = None) -> PassPipeline:
    """Read ``name,name{field=value field=value},...``; ``known`` defaults to the built-in passes and their aliases.

    Of a pass that is given as an object, options that the text leaves out stay as they are.
    """
    if known is None:
        known = {**known_passes()}
    passes: list[Pass] = []
    position = 0
    while position < len(text):
        match = _ITEM.match(text, position)
        if match is None:
            raise HlojitError(f"cannot read the pass pipeline at {text[position:]!r}; expected name{{field=value ...}}")
        name = match["name"]
        if name not in known:
            raise HlojitError(unknown("pass", name, known))
        passes.append(_make_pass(known[name], match["options"] or ""))
        position = match.end()
    return PassPipeline(tuple(passes))


_ITEM = re.compile(r"\s*(?P<name>[A-Za-z_][\w.-]*)\s*(?:\{(?P<options>[^}]*)\})?\s*(?:,|$)")


def _make_pass(known: type[Pass] | Pass, text: str) -> Pass:
    pass_ = known() if isinstance(known, type) else known
    return with_options(pass_, options_from_text(pass_, text)) if text.strip() else pass_
