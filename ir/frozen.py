"""What frozen modules are made of: containers and classes that refuse every change.

A frozen object keeps its identity and changes its class: ``Instruction`` becomes ``FrozenInstruction``, whose
attributes cannot be set.  So an object that is not frozen pays nothing for the possibility.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, TypeVar

import numpy as np
from hlojit.ir.errors import HlojitError

MESSAGE: Final = "the module is frozen; work on module.clone()"

K = TypeVar("K")
V = TypeVar("V")


def refuse(*arguments: Any, **named: Any) -> NoReturn:
    """What every method that would change something frozen does."""
    raise HlojitError(MESSAGE)


class FrozenDict(dict[K, V]):
    """A dictionary that nobody changes; ``dict(frozen)`` is a copy that one may."""

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = refuse
    update = pop = popitem = clear = setdefault = refuse

    def __reduce__(self) -> Any:
        return FrozenDict, (dict(self),)


class FrozenList(list[V]):
    """A list that nobody changes; ``list(frozen)`` is a copy that one may."""

    __slots__ = ()

    __setitem__ = __delitem__ = __iadd__ = __imul__ = refuse
    append = extend = insert = pop = remove = clear = sort = reverse = refuse

    def __reduce__(self) -> Any:
        return FrozenList, (list(self),)


_NOTHING: Final[FrozenDict[Any, Any]] = FrozenDict()
_EMPTY: Final[FrozenList[Any]] = FrozenList()


def frozen_dict(entries: Mapping[K, V]) -> FrozenDict[K, V]:
    """The entries in a dictionary that nobody changes."""
    return FrozenDict(entries) if entries else _NOTHING


def frozen_list(items: Iterable[V]) -> FrozenList[V]:
    """The items in a list that nobody changes."""
    return FrozenList(items) or _EMPTY


def immutable_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, or a copy of it, over memory that nobody can write: ``setflags(write=True)`` fails.

    An array of strides 0 stays one.  Arrays over ``bytes`` are not copied.
    """
    if _is_over_bytes(array):
        return array
    strides = array.strides
    if array.size and all(step == 0 or extent == 1 for step, extent in zip(strides, array.shape)):
        element = array[(slice(0, 1),) * array.ndim].reshape(())
        return np.broadcast_to(np.ndarray((), array.dtype, element.tobytes()), array.shape)
    return np.ndarray(array.shape, array.dtype, array.tobytes())


def _is_over_bytes(array: np.ndarray[Any, Any]) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, bytes) or (isinstance(base, memoryview) and base.readonly and isinstance(base.obj, bytes))
