"""Calls of plugins' functions: whatever one raises becomes an error that says whose it is.

    answer = call_vendor(lambda: "back end 'nova' (hlojit-nova 0.1.0): capability", backend.capability, instruction)

``PluginError: back end 'nova' (hlojit-nova 0.1.0): capability raised KeyError('f8') at nova/device.py:12``
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hlojit.ir.errors import HlojitError, PluginError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.vendor_places import raised_at, told

_Result = TypeVar("_Result")


def call_vendor(
    what: Callable[[], str], function: Callable[..., _Result], /, *arguments: Any, where: str = "", **named: Any
) -> _Result:
    """What the function returns.  ``what`` says in errors whose function it is, ``where`` for what it was called.

    hlojit's own errors of a special kind and a lack of memory pass as they are; Ctrl-C carries a note.
    """
    try:
        returned: _Result = call_named(what, fork_gate.outside, function, *arguments, where=where, **named)
        return returned
    except HlojitError as error:
        if type(error) is not HlojitError:
            raise
        # Of something that the function did: "the module is frozen".
        raise PluginError(f"{what()}{raised_at(error, function)}{where}: {error}") from error


def call_named(
    what: Callable[[], str], function: Callable[..., _Result], /, *arguments: Any, where: str = "", **named: Any
) -> _Result:
    """The same for a function that runs where this thread stands, inside of the gate or not."""
    try:
        return function(*arguments, **named)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"interrupted in {what()}{where}")
        raise
    except (HlojitError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        vendors = arguments[0] if function == fork_gate.outside else function
        raise PluginError(f"{what()} raised {told(error, vendors)}{where}") from error
