"""Plain data to bytes and back; whatever the bytes are, reading ends in a value or in ``FormatError``."""

from __future__ import annotations

import enum
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hlojit.ir import binary
from hlojit.ir.binary import FormatError, Reader, Writer
from hlojit.ir.fingerprint import NotKeyable
from hlojit.ir.location import UNKNOWN
from hlojit.ir.types import DYNAMIC, tensor
from hypothesis import given, settings
from hypothesis import strategies as st


class Color(enum.Enum):
    RED = 1


@dataclass(eq=False)
class Node:
    number: int
    name: str = ""
    parts: tuple[Any, ...] = ()
    color: Color | None = None


RECORDS = {"Node": Node, "Color": Color}


def written(value: Any) -> bytes:
    writer = Writer(RECORDS)
    writer.put(value)
    return writer.finish()


def there_and_back(value: Any) -> Any:
    return Reader(written(value), RECORDS).value()


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(0, 9), inner),
    max_leaves=20,
)


@given(plain)
def test_plain_values(value: Any) -> None:
    assert there_and_back(value) == value


def test_types_and_arrays() -> None:
    for kind in (tensor((2, 3), "f32"), tensor((), "i1"), tensor((DYNAMIC, 4), "f8E4M3FN", "#x<y>")):
        assert there_and_back(kind) is kind
    for array in (
        np.arange(6.0).reshape(2, 3), np.zeros((), "i8"), np.zeros((0, 3), "f2"), np.array([True, False]),
        np.array([1, 2], ml_dtypes.bfloat16), np.array([1, -2], ml_dtypes.int4), np.arange(6).T[::2],
        np.arange(4, dtype=">i4"), np.array([1 + 2j]),
    ):  # fmt: skip
        got = there_and_back(array)
        assert got.dtype == array.dtype.newbyteorder("=") and got.shape == array.shape
        np.testing.assert_array_equal(got.astype("c16"), array.astype("c16"))
    assert bytes(there_and_back((1, b"abc"))[1]) == b"abc"
    assert there_and_back(UNKNOWN) is UNKNOWN


def test_arrays_begin_at_multiples_of_the_alignment() -> None:
    data = np.empty(4096, np.uint8)
    start = -data.ctypes.data % binary.ALIGNMENT
    body = written((b"x", np.arange(3.0), b"yz", np.arange(5)))
    view = data.data[start : start + len(body)]
    view[:] = body
    _, first, _, second = Reader(view, RECORDS).value()
    assert first.ctypes.data % binary.ALIGNMENT == second.ctypes.data % binary.ALIGNMENT == 0
    np.testing.assert_array_equal(first, np.arange(3.0))


def test_a_record_that_appears_twice_is_one_object() -> None:
    leaf = Node(1, "leaf", color=Color.RED)
    first, second = there_and_back([leaf, Node(2, parts=(leaf, leaf))])
    assert first is second.parts[0] is second.parts[1]
    assert (first.number, first.name, first.color) == (1, "leaf", Color.RED)


class Other:
    pass


def deep(levels: int) -> Any:
    value: Any = ()
    for _ in range(levels):
        value = (value,)
    return value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Other(), "Other"), (lambda: 0, "function"), (2**63, "64 bits"), (np.array([object()]), "dtype object"),
        ({1, 2}, "set"), (deep(1000), "nested"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_named(value: Any, said: str) -> None:
    with pytest.raises(NotKeyable, match=said):
        written(value)


def test_fields_are_held_to_their_types() -> None:
    for wrong in (Node("x"), Node(1, name=2), Node(1, parts=[1]), Node(1, color=3)):  # type: ignore[arg-type]
        with pytest.raises(FormatError, match="cannot be"):
            there_and_back(wrong)


def test_other_versions_of_a_record_are_refused() -> None:
    data = written(Node(1))
    for records in ({}, {"Node": Other, "Color": Color}, {"Node": Color}):
        with pytest.raises(FormatError, match="Node"):
            Reader(data, records).value()


SAMPLE = written(
    [{"a": (1, 2.5, "text", None, True)}, Node(3, "n", (Color.RED, b"blob", np.arange(9))), tensor((4,), "f32")]
)


def read_or_refuse(data: bytes) -> None:
    with suppress(FormatError):
        Reader(data, RECORDS).value()


def test_cut_off_anywhere() -> None:
    for length in range(len(SAMPLE)):
        with pytest.raises(FormatError):
            Reader(SAMPLE[:length], RECORDS).value()


@given(st.data())
@settings(max_examples=400)
def test_altered_anywhere(data: st.DataObject) -> None:
    altered = bytearray(SAMPLE)
    for _ in range(data.draw(st.integers(1, 4))):
        altered[data.draw(st.integers(0, len(altered) - 1))] = data.draw(st.integers(0, 255))
    read_or_refuse(bytes(altered))


@given(st.binary(max_size=200))
def test_anything(data: bytes) -> None:
    read_or_refuse(data)


def test_huge_counts_take_no_memory() -> None:
    huge = b"\xff\xff\xff\xff\xff\xff\xff\x7f"
    for tag in (5, 7, 8, 9, 12):
        body = bytes([tag]) + huge
        with pytest.raises(FormatError):
            Reader(bytes([0, len(body)]) + body + b"\0", RECORDS).value()
    with pytest.raises(FormatError):
        Reader(huge, RECORDS)
    with pytest.raises(FormatError):
        Reader(bytes([0, 1, 0, 1]) + huge, RECORDS)


def test_nesting_without_end_is_refused() -> None:
    body = bytes([7, 1]) * 100_000 + bytes([0])
    head = bytearray([0])
    binary._number(head, len(body))
    with pytest.raises(FormatError, match="deep"):
        Reader(bytes(head) + body + b"\0", RECORDS).value()
