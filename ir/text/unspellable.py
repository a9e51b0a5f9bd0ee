"""The signal that an instruction has no pretty form."""

from __future__ import annotations


class Unspellable(Exception):  # noqa: N818 - not an error: the printer then takes the generic form
    """Raised by a piece of a form that cannot say this instruction."""
