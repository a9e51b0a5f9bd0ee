"""What the elements of a traced array are: a NumPy dtype, or the element type of a format that NumPy has no dtype for.

Arithmetic on such a format is what NumPy's is on ml_dtypes' formats: computed in the format's compute type, each result
rounded into the format once.  Formats mix with Python numbers, which take the array's kind, and with nothing else.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Final

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
from hlojit.ir.scalar.codec_tables import rounds_twice
from hlojit.tracing.arrays.outside import dtype_of
from hlojit.tracing.errors import TracingError
from hlojit.tracing.tracer import Kind, Tracer, kind_of_element


def kind_of(operand: Any) -> Kind:
    """Kind of an operand of a ufunc or function: tracer, ``hlojit.Array``, array or number."""
    if isinstance(operand, Tracer):
        return operand.kind
    element = getattr(operand, "element_type", None)
    return kind_of_element(element) if isinstance(element, ElementType) else dtype_of(operand)


def as_kind(wanted: Any) -> Kind:
    """What ``astype`` takes: anything that NumPy takes for a dtype, an element type, or a registered name of one.

    One rule for names: what a plugin registered comes first ("f8", "half"), then NumPy's dtypes that there are elements of
    ("i4" has four bytes, "i8" eight), then the names of StableHLO ("f16", which is no half of NumPy's but a long double).
    """
    if isinstance(wanted, ElementType):
        return kind_of_element(wanted)
    if isinstance(wanted, type) and issubclass(wanted, np.dtype):
        made: Any = wanted  # the class of a dtype, which ufuncs take as well
        wanted = made()
    row = find_element_type(wanted) if isinstance(wanted, str) else None
    if row is not None and row.name not in BUILT_IN:
        return kind_of_element(row)
    try:
        dtype = np.dtype(wanted)
        return dtype if row is None or any(each.dtype == dtype for each in element_types()) else kind_of_element(row)
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


def as_dtype(wanted: Any) -> np.dtype[Any]:
    """What ``dtype=`` of a ufunc or a reduction takes: ``as_kind`` of something that NumPy has."""
    kind = as_kind(wanted)
    if isinstance(kind, ElementType):
        raise TracingError(f"dtype={wanted!r}: NumPy computes nothing in {kind}; convert with .astype({kind.name!r})")
    return kind


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


_ROUNDED_ONCE: Final = frozenset({"add", "subtract", "multiply", "divide", "sqrt", "square", "reciprocal"})


def rounds_itself(element: FloatFormat, ufunc: str) -> bool:
    """Whether an op is one of the format, not of its compute type, whose numbers would not hold the exact result."""
    return element.in_integers or (ufunc in _ROUNDED_ONCE and rounds_twice(element))


def refuse_in_integers(element: ElementType, what: str) -> None:
    """Raise for what is computed in several steps in a wider float, where none is wide enough."""
    if isinstance(element, FloatFormat) and element.in_integers:
        raise TracingError(
            f"{what} is computed in a wider float, and none holds the numbers of {element}; use .astype(np.float64) where its "
            "precision is enough, or StableHLO text"
        )


def compute_dtype(element: FloatFormat) -> np.dtype[Any]:
    """The dtype in which arithmetic on a format is done."""
    dtype = element_type(element.compute).dtype
    assert dtype is not None
    return dtype
