"""Codes of element types: the bits that arrays of formats hold, and whether they mean the same under two rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from hlojit.ir.errors import HlojitError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.formats import ElementType, IntegerType
from hlojit.ir.scalar.table_store import TableStore, set_table_store

NDArray = np.ndarray[Any, Any]


def check_codes(storage: NDArray, element: ElementType, what: str) -> None:
    """Refuse codes that have more bits than the element type."""
    if not storage.size or element.bits >= storage.dtype.itemsize * 8 or storage.dtype.kind not in "iu":
        return
    low, high = 0, (1 << element.bits) - 1
    if isinstance(element, IntegerType):
        low, high = element.minimum, element.maximum
    wrong = storage[(storage < low) | (storage > high)]
    if wrong.size:
        raise HlojitError(
            f"{what}: the code {wrong.flat[0]} is outside its {element.bits} bits ({low} to {high}); "
            "numbers are encoded by hlojit.Array.from_values"
        )


def have_same_codes(a: ElementType, b: ElementType) -> bool:
    """Whether codes of the one mean the same numbers in the other.

    That is so for formats that differ in nothing but the function objects of their codecs, since a cell was run again.
    """
    if a == b:
        return True
    with fork_gate.inside:
        from hlojit.ir.fingerprint import NotKeyable, fingerprint

    try:
        return a.name == b.name and fingerprint(a) == fingerprint(b)
    except NotKeyable:
        return False


def _tables_on_disk() -> TableStore:
    with fork_gate.inside:
        from hlojit.kept_tables import DiskTables
    return DiskTables()


set_table_store(_tables_on_disk)
