"""Where tables of formats (``codec_tables``) are kept between processes; ``hlojit.arrays`` says so when it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hlojit.ir.formats import FloatFormat
    from hlojit.ir.scalar.codec_tables import CodecTables


class TableStore(Protocol):
    """Tables by their formats' bits and compute type, and by the content of their functions."""

    def get(self, row: FloatFormat, identity: str) -> CodecTables | None: ...

    def put(self, row: FloatFormat, tables: CodecTables) -> None: ...


_opened: list[Callable[[], TableStore]] = []


def set_table_store(opened: Callable[[], TableStore]) -> None:
    """Say what opens the store."""
    _opened[:] = [opened]


def table_store() -> TableStore | None:
    """The store, or None if nobody keeps tables."""
    return _opened[0]() if _opened else None
