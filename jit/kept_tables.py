"""Tables of formats of 9 to 16 bits on disk: a process that meets a format for the first time does not compile its functions.

The key is the content of the functions and what they are compiled by (``codec_tables``); what is read is looked at before
it is used, as codes become places in tables.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from hlojit.disk_cache import disk_cache
from hlojit.ir.binary import FormatError, Reader, Writer
from hlojit.ir.files import sealed, unsealed
from hlojit.ir.formats import FloatFormat
from hlojit.ir.scalar.codec_tables import CodecTables, Steps
from hlojit.ir.versions import versions_text

_KIND: Final = "tables"
_MAGIC: Final = b"hlojitTB"
_VERSION: Final = 1


@dataclass(frozen=True)
class _Kept:
    """A format's tables as data."""

    values: np.ndarray[Any, Any]
    bounds: np.ndarray[Any, Any]
    codes: np.ndarray[Any, Any]
    nan: int
    moved: tuple[int, int] | None


_RECORDS: Final = {"Tables": _Kept}


@final
class DiskTables:
    """What ``hlojit.ir.scalar.table_store`` opens."""

    def get(self, row: FloatFormat, identity: str) -> CodecTables | None:
        """The tables of a format whose functions have this content."""
        cache, key = disk_cache(), _key(row, identity)
        data = cache.get(_KIND, key) if cache is not None else None
        if cache is None or data is None:
            return None
        try:
            found = Reader(unsealed(_MAGIC, _VERSION, data, key), _RECORDS).value()
        except FormatError:
            found = None
        if isinstance(found, _Kept) and _is_sound(found, row):
            found.values.flags.writeable = False
            steps = Steps(np.dtype(np.float64), found.bounds, found.codes, found.nan)
            return CodecTables(identity, found.values, steps, found.moved)
        cache.discard(_KIND, key)
        return None

    def put(self, row: FloatFormat, tables: CodecTables) -> None:
        """Keep tables."""
        cache = disk_cache()
        if cache is None:
            return
        key = _key(row, tables.identity)
        writer = Writer(_RECORDS)
        writer.put(_Kept(tables.values, tables.steps.bounds, tables.steps.codes, tables.steps.nan, tables.moved))
        cache.put(_KIND, key, sealed(_MAGIC, _VERSION, writer.finish(), key))


def _key(row: FloatFormat, identity: str) -> str:
    return hashlib.sha256(f"{identity} {row.bits} {row.compute} {versions_text()}".encode()).hexdigest()


def _is_sound(kept: _Kept, row: FloatFormat) -> bool:
    arrays = kept.values, kept.bounds, kept.codes
    if not all(isinstance(each, np.ndarray) and each.ndim == 1 for each in arrays) or type(kept.nan) is not int:
        return False
    kinds = np.dtype(f"f{4 if row.compute == 'f32' else 8}"), np.dtype(np.int64), row.storage_bits
    codes = 1 << row.bits
    if kept.moved is not None and not _are_codes(kept.moved, codes):
        return False
    return (
        all(each.dtype == kind for each, kind in zip(arrays, kinds))
        and kept.values.size == codes
        and kept.codes.size == kept.bounds.size + 1
        and int(kept.codes.max()) < codes
        and 0 <= kept.nan < codes
        and bool((kept.bounds[1:] > kept.bounds[:-1]).all())
    )


def _are_codes(found: object, codes: int) -> bool:
    return (
        isinstance(found, tuple) and len(found) == 2 and all(type(each) is int and 0 <= each < codes for each in found)
    )
