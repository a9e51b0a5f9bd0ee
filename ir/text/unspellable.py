"""The signal that an instruction has no pretty form."""

from __future__ import annotations


class Unspellable(Exception):
    """Raised by a piece of a form that cannot say this instruction."""
