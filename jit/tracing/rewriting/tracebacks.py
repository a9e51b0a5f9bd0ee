"""Tracebacks as the user's source would give them: without the frames that hooks add."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final

_HERE: Final = str(Path(__file__).parent)


def without_hooks(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without frames of this package; of a lambda that is entered in two steps, the inner frame."""
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    kept: list[TracebackType] = []
    for before, each in zip([None, *frames], frames):
        if _ours(each):
            continue
        if before is not None and _ours(before) and kept and _enters(kept[-1], each):
            kept.pop()
        kept.append(each)
    found: TracebackType | None = None
    for each in reversed(kept):
        found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return found


def _ours(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_code.co_filename.startswith(_HERE)


def _enters(outer: TracebackType, inner: TracebackType) -> bool:
    """Whether the inner code is that which the outer one, a lambda, hands to ``Hooks.scope``."""
    code = inner.tb_frame.f_code
    return code.co_name == "<lambda>" and code in outer.tb_frame.f_code.co_consts
