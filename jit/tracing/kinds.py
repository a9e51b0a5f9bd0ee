"""What the elements of a traced array are: a NumPy dtype, or the element type of a format that NumPy has no dtype for.

Arithmetic on such a format is what NumPy's is on ml_dtypes' formats: computed in the format's compute type, each result
rounded into the format once.  Formats mix with Python numbers, which take the array's kind, and with nothing else.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import numpy as np
from hlojit.ir.formats import (
    BUILT_IN,
    ElementType,
    FloatFormat,
    element_type,
    element_type_of,
    element_types,
    find_element_type,
)
from hlojit.tracing.tracer import Kind, Tracer, TracingError, kind_of_element


def kind_of(operand: Any) -> Kind:
    """Kind of an operand of a ufunc or function: tracer, ``hlojit.Array``, array or number."""
    if isinstance(operand, Tracer):
        return operand.kind
    element = getattr(operand, "element_type", None)
    return kind_of_element(element) if isinstance(element, ElementType) else np.asarray(operand).dtype


def as_kind(wanted: Any) -> Kind:
    """What ``astype`` takes: anything that NumPy takes for a dtype, an element type, or a registered name of one.

    A name that a plugin registered means its format, NumPy's dtypes of that name notwithstanding ("f8", "half"); hlojit's
    own spellings mean NumPy's dtype where there is one ("i4" has four bytes).
    """
    if isinstance(wanted, ElementType):
        return kind_of_element(wanted)
    row = find_element_type(wanted) if isinstance(wanted, str) else None
    if row is not None and row.name not in BUILT_IN:
        return kind_of_element(row)
    try:
        return np.dtype(wanted)
    except TypeError as error:
        if row is not None:
            return kind_of_element(row)
        if not isinstance(wanted, str):
            raise
        names = [each.name for each in element_types()]
        near = difflib.get_close_matches(wanted, [*names, *np.sctypeDict], n=3) if wanted else []
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise TracingError(
            f"{wanted!r} is no dtype of NumPy's, and no plugin registered a format of that name{hint}"
        ) from error


def element_of(kind: Kind) -> ElementType:
    """The element type of a kind."""
    return kind if isinstance(kind, ElementType) else element_type_of(kind)


def common_kind(kinds: Iterable[Kind], what: str, weak: Iterable[Any] = ()) -> Kind:
    """The kind in which operands meet: NumPy's promotion; a format without a dtype meets itself and Python numbers."""
    kinds = list(dict.fromkeys(kinds))
    if not any(isinstance(kind, ElementType) for kind in kinds):
        return np.result_type(*kinds, *weak)  # type: ignore[arg-type]
    if len(kinds) > 1:
        names = " and ".join(map(str, kinds))
        raise TracingError(f"{what}: {names} have no common type; convert one of them with .astype(...)")
    return kinds[0]


def stand_in(kind: Kind) -> np.dtype[Any]:
    """A dtype with which NumPy says what a ufunc makes of operands of a kind."""
    if not isinstance(kind, ElementType):
        return kind
    return compute_dtype(kind) if isinstance(kind, FloatFormat) else kind.storage


def compute_dtype(element: FloatFormat) -> np.dtype[Any]:
    """The dtype in which arithmetic on a format is done."""
    dtype = element_type(element.compute).dtype
    assert dtype is not None
    return dtype
