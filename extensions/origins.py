"""How messages call what plugins brought: kind, name, and the package and version (or the plugin) that it is of."""

from __future__ import annotations

from typing import Final

from hlojit.ir.environment import tables

PASSES: Final = "pass"
BACKENDS: Final = "back end"
"""Kinds of tables that plugins fill, beside those of ``hlojit.ir.environment``."""


def device_text(backend: str, device: object) -> str:
    """``nova:0 (hlojit-nova 0.1.0)``; without the parentheses where no package brought the back end."""
    source = tables().source_of(BACKENDS, backend)
    return f"{device}{'' if source.startswith(' (plugin ') else source}"


def backend_text(name: str) -> str:
    """``the back end 'nova' (hlojit-nova 0.1.0)``; of hlojit's own without the parentheses."""
    return f"the back end {name!r}{tables().source_of(BACKENDS, name)}"
