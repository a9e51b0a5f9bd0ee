"""Channels of programs on GPUs: between two kernels the host takes what comes through a channel, or sends what was computed.

The device's thread that puts programs on the stream does it: it waits for what is on the stream before (for operands), or
only for the host's side (for results), and for nobody with a lock of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from hlojit.extensions.devices.channels import matching, transferred
from hlojit.extensions.devices.rendezvous import Participant
from hlojit.gpu.driver import Driver, Stream
from hlojit.gpu.operations import Talk
from hlojit.ir.errors import ExecutionError, text_of
from hlojit.ir.formats import element_type


def talk(
    operation: Talk,
    operands: Sequence[int],
    results: Sequence[int],
    driver: Driver,
    stream: Stream,
    stop: Callable[[], bool],
    participant: Participant | None,
) -> None:
    """Do one operation over addresses of its operands and results; ``stop`` says whether to give up waiting."""
    work = operation.work
    arrays, targets = (tuple(_array(*each) for each in described) for described in (work.operands, work.results))
    for array, address in zip(arrays, operands):
        if array.nbytes:
            driver.copy_out(_bytes(array), address, stream)
    try:
        with participant.here() if participant is not None else nullcontext():
            given = transferred(*arrays, channel=work.channel, direction=work.direction, stop=stop)
        if given or targets:
            matching(given, targets, f"channel {work.channel!r}: the program")
    except Exception as error:
        raise ExecutionError(f"{operation.what} failed: {text_of(error)}") from error
    for array, address in zip(targets, results):
        if array.nbytes:
            driver.copy_in(address, _bytes(array), stream)


def _array(element: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    kind = element_type(element)
    return np.empty(shape, kind.dtype or kind.storage)


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.reshape(-1).view(np.uint8)
