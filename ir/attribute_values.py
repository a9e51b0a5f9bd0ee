"""Python values as attributes, where no record says of what kind: configurations of custom calls, attributes of any kind.

    attribute_of({"alpha": 0.5, "axes": (0, 1)})        {alpha = 0.5 : f64, axes = array<i64: 0, 1>}

Python's numbers are i64, f64 and booleans, NumPy's of their own types; lists of numbers of one kind are arrays, NumPy's arrays
are dense elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hlojit.ir.attributes import (
    ArrayAttr,
    Attribute,
    BoolAttr,
    Dense,
    DenseArrayAttr,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
)
from hlojit.ir.errors import HlojitError, repr_of
from hlojit.ir.formats import element_type_of
from hlojit.ir.types import tensor

_LARGEST = (1 << 63) - 1


def attribute_of(value: Any) -> Attribute:
    """The attribute that says a Python value; raises ``HlojitError`` for one that none says."""
    if isinstance(value, Attribute):
        return value
    if isinstance(value, (bool, np.bool_)):
        return BoolAttr(bool(value))
    if isinstance(value, str):
        return StringAttr(value)
    if isinstance(value, (int, float, np.number)):
        return _number(value)
    if isinstance(value, Mapping):
        return _dictionary(value)
    if isinstance(value, np.ndarray):
        return _dense(value)
    if isinstance(value, (list, tuple)):
        return _list(value)
    raise HlojitError(f"{repr_of(value)} of type {type(value).__name__} cannot be an attribute")


def _number(value: Any) -> Attribute:
    if type(value) is int:
        if not -_LARGEST - 1 <= value <= _LARGEST:
            raise HlojitError(f"{value} does not fit 64 bits; attributes are numbers of at most that many")
        return IntegerAttr(value)
    if isinstance(value, float) and not isinstance(value, np.floating):
        return FloatAttr(value)
    kind = str(element_type_of(np.asarray(value).dtype))
    if isinstance(value, np.integer):
        return IntegerAttr(int(value), kind)
    if isinstance(value, np.floating):
        return FloatAttr(float(value), kind)
    raise HlojitError(f"{value!r} of type {type(value).__name__} cannot be an attribute")


def _dictionary(value: Mapping[Any, Any]) -> DictAttr:
    for name in value:
        if not isinstance(name, str) or not name:
            raise HlojitError(f"the names in a dictionary of attributes are texts, not {name!r}")
    return DictAttr(tuple((name, attribute_of(each)) for name, each in value.items()))


def _dense(value: np.ndarray[Any, Any]) -> Dense:
    kind = tensor(value.shape, element_type_of(value.dtype))
    copy = np.array(value, kind.element_type.storage)
    copy.flags.writeable = False
    return Dense(kind, copy)


def _list(value: Sequence[Any]) -> Attribute:
    for kind, name in ((bool, "i1"), (int, "i64"), (float, "f64")):
        if value and all(type(each) is kind for each in value):
            return DenseArrayAttr(name, tuple(value))
    return ArrayAttr(tuple(map(attribute_of, value)))
