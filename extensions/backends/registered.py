"""What the tables hold of a plugin's passes and back ends: the vendor's object, untouched, and what its plugin says.

A back end or pass may be registered by several plugins, in several scopes, under different versions of the hooks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hlojit.extensions.backends.backend import Backend
from hlojit.extensions.origins import BACKENDS, PASSES
from hlojit.ir.environment import tables
from hlojit.ir.passes.pass_manager import Pass

__all__ = ["API_VERSION", "BACKENDS", "FIRST_VERSION", "PASSES", "RegisteredBackend", "RegisteredPass", "api_of"]

API_VERSION: Final = (1, 2)
"""Version of the hooks: the first number changes when old plugins stop working, the second when something is added.

(1, 1): back ends are asked before anything is expanded, and may have devices of their own.
(1, 2): kernels by hook, custom calls over arrays, block formats, options of passes, partition by cost.
docs/compatibility.md says what each version changed for plugins of earlier ones.
"""
FIRST_VERSION: Final = (1, 0)
"""What a plugin is written for that does not state ``hlojit_api``."""


@dataclass(frozen=True, slots=True)
class RegisteredBackend:
    """A back end, and the version of the hooks that its plugin states."""

    backend: Backend
    api: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RegisteredPass:
    """A pass, and who brought it (``PluginRecord.source``); empty for hlojit's own."""

    pass_: Pass
    source: str


def api_of(backend: Backend) -> tuple[int, int]:
    """The version of the hooks that a back end is registered with in the current environment."""
    found: RegisteredBackend | None = tables().table(BACKENDS).get(backend.name)
    return found.api if found is not None and found.backend is backend else FIRST_VERSION
