"""A process that compiles kernels for another one: ``python -m hlojit.machine_code.compile_worker PARENT``.

It reads requests from its standard input and writes answers to its standard output, one at a time.  A message is the
number of its parts and their lengths, as 32-bit numbers, and then the parts:

    request:  triple, cpu, features, pipeline, IR, linked IR ...
    answer:   b"ok" and the object, or b"error" and what went wrong

The first message is ``greeting()``.  The process ends with its standard input, and, on Linux, when its parent dies in any way.
It imports llvmlite and nobody's ``__main__``.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

MAXIMUM_PARTS = 1 << 16


class Closed(Exception):
    """The other side is gone, or does not speak this protocol."""


def send(descriptor: int, parts: Sequence[bytes]) -> None:
    """Write a message."""
    head = struct.pack(f"<I{len(parts)}I", len(parts), *map(len, parts))
    for piece in (head, *parts):
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def receive(descriptor: int) -> list[bytes]:
    """Read a message; raises ``Closed`` where it ends early."""
    (count,) = struct.unpack("<I", _exactly(descriptor, 4))
    if count > MAXIMUM_PARTS:
        raise Closed
    lengths = struct.unpack(f"<{count}I", _exactly(descriptor, 4 * count))
    return [_exactly(descriptor, length) for length in lengths]


def _exactly(descriptor: int, length: int) -> bytes:
    data = bytearray(length)
    rest = memoryview(data)
    while rest:
        piece = os.read(descriptor, min(len(rest), 1 << 20))
        if not piece:
            raise Closed
        rest[: len(piece)] = piece
        rest = rest[len(piece) :]
    return bytes(data)


@dataclass(frozen=True, slots=True)
class _Processor:
    triple: str
    cpu: str
    features: str


def greeting() -> list[bytes]:
    """What says that both sides have the same protocol and the same LLVM."""
    import llvmlite

    return [b"hlojit compile worker 1", llvmlite.__version__.encode()]


def answer(request: Sequence[bytes]) -> list[bytes]:
    """Do what a request asks for."""
    from hlojit.machine_code.object_code import compile_to_object

    try:
        triple, cpu, features, pipeline, ir, *linked = (part.decode() for part in request)
        return [b"ok", compile_to_object(ir, _Processor(triple, cpu, features), pipeline=pipeline, linked=linked)]
    except Exception as error:
        return [b"error", repr(error).encode(errors="replace")]


def _die_with(parent: int) -> None:
    """Have the system end this process with the thread that started it; it may be gone already."""
    if sys.platform == "linux":
        import ctypes
        import signal

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _compile(requests: SimpleQueue[list[bytes]], output: int) -> None:
    from hlojit.machine_code.object_code import initialize

    initialize()
    send(output, greeting())
    while True:
        send(output, answer(requests.get()))


def _or_exit(function: Callable[..., None], *arguments: object) -> None:
    """Call a function that never returns otherwise."""
    try:
        function(*arguments)
    finally:
        os._exit(1)


def main(parent: int) -> None:
    """Serve until the input ends.  LLVM works in a thread of its own, so that the end is noticed in the midst of it."""
    _die_with(parent)
    # Whatever prints must not disturb the protocol.
    output = os.dup(1)
    os.dup2(2, 1)
    requests: SimpleQueue[list[bytes]] = SimpleQueue()
    threading.Thread(target=_or_exit, args=(_compile, requests, output), daemon=True).start()
    try:
        while True:
            requests.put(receive(0))
    except Closed:
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
