"""Pinned host memory through which transfers go: the GPU reads and writes it by itself, beside everything else."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Final, final

from hlojit.cuda.driver_api import DriverApi
from hlojit.gpu.driver import NDArray, OutOfDeviceMemory
from hlojit.ir.time_limit import uninterrupted

PIECE_BYTES: Final = 4 << 20
PIECES: Final = 2
"""One is filled while the other one is on its way."""


@final
class _Piece:
    """Pinned memory, and the event that the copy from or to it is done."""

    def __init__(self, api: DriverApi):
        try:
            self.address = int(api("cuMemHostAlloc", PIECE_BYTES, 0))
        except OutOfDeviceMemory as error:
            raise OutOfDeviceMemory(PIECE_BYTES, f"{PIECE_BYTES:,} bytes of pinned host memory: {error}") from error
        self.done = api("cuEventCreate", int(api.CUevent_flags.CU_EVENT_DISABLE_TIMING))


@final
class Staging:
    """Transfers of one direction and one device; the context is current whenever it is used."""

    def __init__(self, api: DriverApi):
        self._api = api
        self._lock = threading.Lock()
        self._pieces: list[_Piece] = []

    def copy_in(self, target: int, source: NDArray, stream: Any) -> None:
        """Host to device; the array has been read when this returns."""
        with uninterrupted(), self._lock:
            for number, (offset, nbytes) in enumerate(_cut(source.nbytes)):
                piece = self._piece(number)
                self._api("cuEventSynchronize", piece.done)
                ctypes.memmove(piece.address, source.ctypes.data + offset, nbytes)
                self._api("cuMemcpyHtoDAsync", target + offset, piece.address, nbytes, stream)
                self._api("cuEventRecord", piece.done, stream)

    def copy_out(self, target: NDArray, source: int, stream: Any) -> None:
        """Device to host; the array has been written when this returns."""
        with uninterrupted(), self._lock:
            waiting: list[tuple[_Piece, int, int]] = []
            for number, (offset, nbytes) in enumerate(_cut(target.nbytes)):
                if len(waiting) == PIECES:
                    self._arrived(target, *waiting.pop(0))
                piece = self._piece(number)
                if number < PIECES:
                    # A transfer that was interrupted may be on its way to it, on another stream.
                    self._api("cuEventSynchronize", piece.done)
                self._api("cuMemcpyDtoHAsync", piece.address, source + offset, nbytes, stream)
                self._api("cuEventRecord", piece.done, stream)
                waiting.append((piece, offset, nbytes))
            for each in waiting:
                self._arrived(target, *each)

    def _arrived(self, target: NDArray, piece: _Piece, offset: int, nbytes: int) -> None:
        self._api("cuEventSynchronize", piece.done)
        ctypes.memmove(target.ctypes.data + offset, piece.address, nbytes)

    def _piece(self, number: int) -> _Piece:
        if len(self._pieces) <= number % PIECES:
            self._pieces.append(_Piece(self._api))
        return self._pieces[number % PIECES]


def _cut(nbytes: int) -> list[tuple[int, int]]:
    return [(offset, min(PIECE_BYTES, nbytes - offset)) for offset in range(0, nbytes, PIECE_BYTES)]
