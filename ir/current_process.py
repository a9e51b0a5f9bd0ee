"""Which process this is, without asking the operating system: what is made in a parent is not used in a child of fork.

made_in = process.id
if made_in != process.id: ...
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, final


@final
class _Process:
    """The process that runs."""

    __slots__ = ("id",)

    def __init__(self) -> None:
        self.id = os.getpid()


process: Final = _Process()


def in_children(function: Callable[[], object]) -> Callable[[], object]:
    """Decorator: the function runs in every child of ``fork``, before the child goes on.

    For locks and tables of a module: another thread, which the child does not have, may have held or filled them.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
    return function


in_children(process.__init__)
