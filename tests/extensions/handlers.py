"""Handlers of XLA's foreign function interface in Python, for tests: the call frame, read by its header's offsets."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from hlojit.extensions import ForeignCall, foreign_handler, hookimpl, using

HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
NUMBERS = {
    1: "?",
    2: "i1",
    3: "i2",
    4: "i4",
    5: "i8",
    6: "u1",
    7: "u2",
    8: "u4",
    9: "u8",
    11: "f4",
    12: "f8",
    15: "c8",
    18: "c16",
}


def words(address: int, count: int) -> list[int]:
    return list((ctypes.c_int64 * count).from_address(address)) if count else []


def halves(address: int, count: int) -> list[int]:
    return list((ctypes.c_int32 * count).from_address(address)) if count else []


def array_at(address: int, dtype: str, shape: tuple[int, ...]) -> Any:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return (
        np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)
        if size
        else np.zeros(shape, dtype)
    )


class Frame:
    """A call frame, read as the C header lays it out."""

    def __init__(self, address: int):
        self.size, self.extension, self.api, self.context, self.stage = words(address, 5)
        self.arguments = self._buffers(address + 40)
        self.results = self._buffers(address + 80)
        self.attributes, self.kinds = self._attributes(address + 120)

    def _buffers(self, address: int) -> list[Any]:
        size, extension, count, types, values = words(address, 5)
        assert (size, extension) == (40, 0)
        assert halves(types, count) == [1] * count
        return [self._buffer(each) for each in words(values, count)]

    def _buffer(self, address: int) -> Any:
        size, extension, kind, data, rank, shape = words(address, 6)
        assert (size, extension) == (48, 0)
        return array_at(data, NUMBERS[kind], tuple(words(shape, rank)))

    def _attributes(self, address: int) -> tuple[dict[str, Any], list[tuple[int, int]]]:
        size, extension, count, types, names, values = words(address, 6)
        assert (size, extension) == (48, 0)
        found, kinds = {}, []
        for kind, name, value in zip(halves(types, count), words(names, count), words(values, count), strict=True):
            found[self._text(name)], number = self._attribute(kind, value)
            kinds.append((kind, number))
        return found, kinds

    def _text(self, span: int) -> str:
        address, length = words(span, 2)
        return ctypes.string_at(address, length).decode()

    def _attribute(self, kind: int, address: int) -> tuple[Any, int]:
        number = halves(address, 1)[0]
        if kind == 1:
            _, count, data = words(address, 3)
            return array_at(data, NUMBERS[number], (count,)).copy(), number
        if kind == 2:
            return self._attributes(address)[0], 0
        if kind == 3:
            return array_at(words(address, 2)[1], NUMBERS[number], ()).copy()[()], number
        return self._text(address), 0

    def function(self, number: int, result: Any = ctypes.c_void_p) -> Callable[[Any], Any]:
        """A function of the table."""
        made: Callable[[Any], Any] = ctypes.CFUNCTYPE(result, ctypes.c_void_p)(words(self.api + 48 + 8 * number, 1)[0])
        return made

    def error(self, code: int, message: str) -> int:
        text = ctypes.create_string_buffer(message.encode())
        arguments = (ctypes.c_int64 * 4)(32, 0, ctypes.addressof(text), code)
        return int(self.function(0)(ctypes.addressof(arguments)))


def handler(body: Callable[[Frame], int | None]) -> Any:
    """A C function of a Python one; what Python raises becomes an INTERNAL error."""
    return foreign_handler(lambda address: body(Frame(address)))


@contextmanager
def registered(target: str, body: Callable[[Frame], int | None], **named: Any) -> Iterator[ForeignCall]:
    call = ForeignCall(target, handler=handler(body), asks_version=False, **named)

    class Calls:
        @hookimpl
        def hlojit_custom_calls(self) -> list[ForeignCall]:
            return [call]

    with using(Calls()):
        yield call


def scaled(frame: Frame) -> int | None:
    frame.results[0][...] = frame.arguments[0] * frame.attributes["factor"]
    return None


SCALE = """
func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.custom_call @acme.scale(%x) {mhlo.backend_config = {factor = 2.5 : f32}, api_version = 4 : i32}
    : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = stablehlo.add %0, %x : tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}"""
X = np.arange(6, dtype="f4").reshape(2, 3)
