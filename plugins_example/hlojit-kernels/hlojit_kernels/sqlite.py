"""SQLite, the library that Python itself links, through ctypes: queries over arrays in the midst of a program.

    totals = hlojit.custom_call("kernels.sqlite", days, amounts, result=[days_type, totals_type], types="i4 f8",
                                query="select c0, sum(c1) from t group by c0 order by c0")

The operands are the columns ``c0``, ``c1``, ... of a table ``t``, the results those of the query.  Where there is no SQLite, the
calls are not there (``SQLITE_CALLS`` is empty).
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from hlojit.extensions import ArrayCall, CallTypes, CustomCall
from hlojit.ir import tensor

ROW, DONE, INTEGER = 100, 101, 1
"""Codes of sqlite3.h: a row is there, none is left; the type of a column's value."""
Array = np.ndarray[Any, Any]


@cache
def library() -> ctypes.CDLL | None:
    """SQLite as Python's own module has it, or the system's; None where there is none."""
    try:
        import _sqlite3

        names = [getattr(_sqlite3, "__file__", None), ctypes.util.find_library("sqlite3")]
    except ImportError:
        names = [ctypes.util.find_library("sqlite3")]
    for name in filter(None, names):
        try:
            found = ctypes.CDLL(name)
            _declare(found)
            return found
        except (OSError, AttributeError):
            continue
    return None


def _declare(sqlite: ctypes.CDLL) -> None:
    """Types of the functions that are called; ``AttributeError`` where one is missing."""
    pointer, number = ctypes.c_void_p, ctypes.c_int
    into = ctypes.POINTER(pointer)
    for name, result, arguments in (
        ("open_v2", number, [ctypes.c_char_p, into, number, ctypes.c_char_p]),
        ("close_v2", number, [pointer]),
        ("errmsg", ctypes.c_char_p, [pointer]),
        ("prepare_v2", number, [pointer, ctypes.c_char_p, number, into, pointer]),
        ("finalize", number, [pointer]),
        ("bind_int64", number, [pointer, number, ctypes.c_int64]),
        ("bind_double", number, [pointer, number, ctypes.c_double]),
        ("step", number, [pointer]),
        ("reset", number, [pointer]),
        ("column_count", number, [pointer]),
        ("column_type", number, [pointer, number]),
        ("column_int64", ctypes.c_int64, [pointer, number]),
        ("column_double", ctypes.c_double, [pointer, number]),
        ("libversion_number", number, []),
    ):
        function = getattr(sqlite, f"sqlite3_{name}")
        function.restype, function.argtypes = result, arguments


class Database:
    """A database in memory."""

    def __init__(self, sqlite: ctypes.CDLL):
        self.sqlite, self.handle = sqlite, ctypes.c_void_p()
        self.check(
            sqlite.sqlite3_open_v2(b":memory:", self.handle, 2 | 4 | 128, None)
        )  # read, write, create, in memory

    def check(self, code: int) -> int:
        """The code of a call, if it is none of an error."""
        if code not in (0, ROW, DONE):
            raise ValueError(f"SQLite: {self.sqlite.sqlite3_errmsg(self.handle).decode()}")
        return code

    @contextmanager
    def statement(self, text: str) -> Iterator[ctypes.c_void_p]:
        """A statement, prepared, for as long as the block."""
        made = ctypes.c_void_p()
        self.check(self.sqlite.sqlite3_prepare_v2(self.handle, text.encode(), -1, made, None))
        try:
            yield made
        finally:
            self.sqlite.sqlite3_finalize(made)

    def run(self, text: str) -> None:
        """A statement without rows."""
        with self.statement(text) as made:
            self.check(self.sqlite.sqlite3_step(made))

    def insert(self, columns: list[Array]) -> None:
        """The rows of columns, in one transaction."""
        binds = [
            self.sqlite.sqlite3_bind_double if each.dtype.kind == "f" else self.sqlite.sqlite3_bind_int64
            for each in columns
        ]
        self.run("begin")
        with self.statement(f"insert into t values ({', '.join('?' * len(columns))})") as made:
            for row in zip(*(each.ravel().tolist() for each in columns), strict=True):
                for place, (bind, value) in enumerate(zip(binds, row), 1):
                    bind(made, place, value)
                self.check(self.sqlite.sqlite3_step(made))
                self.sqlite.sqlite3_reset(made)
        self.run("commit")

    def rows(self, text: str) -> list[list[float]]:
        """What a query finds."""
        sqlite, found = self.sqlite, []
        with self.statement(text) as made:
            count = sqlite.sqlite3_column_count(made)
            while self.check(sqlite.sqlite3_step(made)) == ROW:
                found.append([
                    sqlite.sqlite3_column_int64(made, place)
                    if sqlite.sqlite3_column_type(made, place) == INTEGER
                    else sqlite.sqlite3_column_double(made, place)
                    for place in range(count)
                ])  # fmt: skip
        return found

    def close(self) -> None:
        """Give the memory back."""
        self.sqlite.sqlite3_close_v2(self.handle)


def select(*columns: Array, query: str) -> tuple[Array, ...]:
    """The columns of what a query finds; their lengths have to be those that the program says."""
    sqlite = library()
    assert sqlite is not None, "registered where it is"
    database = Database(sqlite)
    try:
        names = ", ".join(f"c{number}" for number in range(len(columns)))
        database.run(f"create table t ({names})")
        database.insert([np.asarray(each) for each in columns])
        return tuple(np.array(column) for column in zip(*database.rows(query), strict=True))
    finally:
        database.close()


def typed_select(*columns: Array, query: str, types: str) -> tuple[Array, ...]:
    """The same with elements of given types, one for each column: ``i4 f8``."""
    return tuple(found.astype(kind) for found, kind in zip(select(*columns, query=query), types.split(), strict=True))


def version_type(call: CallTypes) -> Any:
    """A C ``int``."""
    return tensor((), "i32")


def _calls() -> list[CustomCall]:
    sqlite = library()
    if sqlite is None:
        return []
    version = sqlite.sqlite3_libversion_number
    return [
        ArrayCall("kernels.sqlite", function=typed_select, trust="python"),
        ArrayCall(
            "kernels.sqlite_version",
            function=version,
            trust="native",
            signature="-> result0",
            substitute=lambda: np.int32(version()),
            result_types=version_type,
        ),
    ]


SQLITE_CALLS = _calls()
