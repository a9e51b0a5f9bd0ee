"""What machines return, checked: every complaint names the machine's method and line, and the instruction that it was for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from hlojit.extensions.devices.events import Event
from hlojit.extensions.machines.started import Started
from hlojit.ir.errors import PluginError, short_repr
from hlojit.ir.vendor_places import place_of

if TYPE_CHECKING:
    from hlojit.ir.types import TensorType

_TAKES: Final = {
    "put": ("array", "type", "layout"),
    "get": ("memory", "type", "layout"),
    "evaluate": ("instruction", "operands", "layouts"),
    "empty": ("type",),
    "free": ("memory",),
    "convert": ("held", "layout"),
    "relabelled": ("held", "type", "layout"),
    "nanoseconds": (),
}
"""The parameters of a machine's methods, behind ``self``."""


def checked_machines(returned: object, who: str, kind: type[Any], at: str) -> tuple[Any, ...]:
    """What ``machines`` of a back end returned, as a tuple of different objects whose methods can be called.

    ``who`` and ``at`` say in messages whose they are and where they are made.
    """
    if isinstance(returned, kind):
        name = type(returned).__name__
        raise PluginError(f"{who}: machines returned one {name}; return a list of them: [{name}(...)]{at}")
    found = tuple(returned) if isinstance(returned, Iterable) and not isinstance(returned, str) else ()
    wrong = next((each for each in found if not isinstance(each, kind)), None)
    if isinstance(wrong, type) and issubclass(wrong, kind):
        raise PluginError(
            f"{who}: machines returned the class {wrong.__name__}; give an instance: {wrong.__name__}(){at}"
        )
    if not found or wrong is not None:
        raise PluginError(
            f"{who}: machines returned {short_repr(returned)}; it returns a list with at least one {kind.__name__}{at}"
        )
    if len({id(each) for each in found}) < len(found):
        raise PluginError(
            f"{who}: machines returned one object twice; each of them is a device with a thread of its own{at}"
        )
    for machine in found:
        for name, parameters in _TAKES.items():
            method = getattr(machine, name)
            if not _takes(method, parameters):
                written = f"def {name}({', '.join(('self', *parameters))})"
                raise PluginError(
                    f"{who}: {type(machine).__name__}.{name} takes other arguments; write {written}{place_of(method)}"
                )
    return found


def _takes(method: Callable[..., Any], parameters: Sequence[str]) -> bool:
    try:
        signature(method).bind(*parameters)
    except TypeError:
        return False
    except ValueError:  # of a function in C, nobody knows
        return True
    return True


def memories_of(machine: Any, made: Any, types: Sequence[TensorType], method: str) -> Sequence[Any]:
    """The memories that a method returned for tensors of these types, in a list or in ``Started``; ``method`` is for messages."""
    who = f"{type(machine).__name__}.{method}" if method else type(machine).__name__
    at = place_of(getattr(machine, method, None))
    memories = made.memories if isinstance(made, Started) else made
    if isinstance(made, Started) and not isinstance(made.done, Event):
        raise PluginError(f"{who} returned Started with {short_repr(made.done)} for done; it is an Event{at}")
    if not isinstance(memories, (list, tuple)) or len(memories) != len(types):
        found = (
            f"a {type(made).__name__} of {len(memories)}"
            if isinstance(memories, (list, tuple))
            else short_repr(memories)
        )
        one = "" if len(types) != 1 else ": [memory]"
        raise PluginError(
            f"{who} returned {found}, not a list of {len(types)} memor{'y' if len(types) == 1 else 'ies'}{one}{at}"
        )
    for number, (memory, type_) in enumerate(zip(memories, types)):
        if memory is None and type_.size:
            what = str(type_) if method in ("put", "empty", "convert") else f"the memory of result {number}, {type_}"
            raise PluginError(f"{who} returned None for {what}; did it forget to return it?{at}")
    return memories


def checked_array(machine: Any, array: object, type_: TensorType, origin: str) -> np.ndarray[Any, Any]:
    """What ``get`` returned for a tensor; ``origin`` says who made its memory."""
    storage = type_.element_type.storage
    if isinstance(array, np.ndarray) and array.shape == type_.shape and array.dtype == storage:
        return array
    found = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else short_repr(array)
    raise PluginError(
        f"{type(machine).__name__}.get returned {found} for {type_}{origin}; expected an array {storage}{list(type_.shape)}"
        f"{place_of(machine.get)}"
    )


def clock(machine: Any) -> float:
    """The machine's clock, in nanoseconds."""
    now: object = machine.nanoseconds()
    if not isinstance(now, (int, float, np.number)) or isinstance(now, bool):
        raise PluginError(
            f"{type(machine).__name__}.nanoseconds returned {short_repr(now)}; it returns the machine's clock, a number of "
            f"nanoseconds{place_of(machine.nanoseconds)}"
        )
    return float(now)
