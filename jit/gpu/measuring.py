"""Times of kernels on a GPU, side by side: buffers with contents, rounds that alternate, the least of many.

    with buffers(driver, stream, operands, results) as addresses:
        times, notes = measured(driver, stream, {"a": run_a, "b": run_b}, deadline)

What fails - a fault, no memory, a refusal - is left out, with a note.  A fault that the machine does not survive is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final, TypeAlias

import numpy as np
from hlojit.gpu.driver import DeviceFault, Driver, DriverError, Stream
from hlojit.ir.formats import ComplexType, ElementType, FloatFormat
from hlojit.ir.scalar.arrays import encode_array
from hlojit.ir.types import TensorType

Run: TypeAlias = Callable[[], None]
"""Puts the launches of one candidate on the stream."""

ROUNDS: Final = 5
LEAST_NANOSECONDS: Final = 200_000.0
"""What lies between two marks, about: they are exact to half a microsecond."""
MOST_REPEATS: Final = 100
HOPELESS: Final = 3.0
"""How many times the least time of the others a candidate takes that is not measured again."""
_PATTERN: Final = 1 << 18
"""Elements that differ; longer operands repeat them."""


@contextmanager
def buffers(
    driver: Driver, stream: Stream, operands: Sequence[TensorType], others: Sequence[int]
) -> Iterator[list[int]]:
    """Addresses of operands with contents, then of memory of so many bytes each; raises ``OutOfDeviceMemory``."""
    taken: list[int] = []
    try:
        for nbytes in (*(each.nbytes for each in operands), *others):
            taken.append(driver.allocate(max(nbytes, 1), stream))
        for address, type in zip(taken, operands):
            _fill(driver, stream, address, type)
        yield taken
    finally:
        for address in taken:
            driver.free(address, stream)


def _fill(driver: Driver, stream: Stream, address: int, type: TensorType) -> None:
    if not type.nbytes:
        return
    pattern = contents(type.element_type, min(type.size, _PATTERN))
    driver.copy_in(address, pattern, stream)
    done = pattern.nbytes
    while done < type.nbytes:
        nbytes = min(done, type.nbytes - done)
        driver.copy(address + done, address, nbytes, stream)
        done += nbytes


def contents(element: ElementType, count: int) -> np.ndarray[Any, Any]:
    """Elements as programs have them, not zeros, which take less power: floats around 0, small integers."""
    generator = np.random.default_rng(0)
    if isinstance(element, ComplexType):
        return (generator.standard_normal(count) + 1j * generator.standard_normal(count)).astype(element.storage)
    if isinstance(element, FloatFormat):
        values = generator.standard_normal(count)
        if element.dtype is not None:
            return values.astype(element.dtype)
        encoded = encode_array(values.astype("f8" if element.compute == "f64" else "f4"), element)
        return np.ascontiguousarray(encoded).view(element.storage)
    return generator.integers(0, 2 if element.bits < 4 else 8, count).astype(element.storage)


def measured(
    driver: Driver, stream: Stream, runs: Mapping[str, Run], deadline: float
) -> tuple[dict[str, float], dict[str, str]]:
    """Nanoseconds of each candidate, and why others have none; what is not done by ``deadline`` (``monotonic``) is left."""
    times: dict[str, float] = {}
    notes: dict[str, str] = {}
    for name, run in runs.items():
        if monotonic() > deadline and times:
            notes[name] = "not measured: time was up"
            continue
        try:
            # The first run loads what is loaded when it is needed.
            _time(driver, stream, run, 1)
            times[name] = _time(driver, stream, run, 1)
        except DeviceFault as fault:
            notes[name] = str(fault)
            if not driver.recover(stream, fault):
                raise LostDevice(name, notes) from fault
        except DriverError as error:
            notes[name] = str(error)
    kept = [name for name in times if times[name] <= HOPELESS * min(times.values())]
    repeats = {name: max(1, min(MOST_REPEATS, round(LEAST_NANOSECONDS / max(times[name], 1.0)))) for name in kept}
    for number in range(ROUNDS):
        # There and back: what comes behind another one is not always behind the same.
        for name in kept if number % 2 else reversed(kept):
            if monotonic() > deadline:
                return times, notes
            times[name] = min(times[name], _time(driver, stream, runs[name], repeats[name]))
    return times, notes


class LostDevice(DriverError):
    """A candidate made a fault that the machine does not survive; ``notes`` are those of all that failed so far."""

    def __init__(self, name: str, notes: Mapping[str, str]):
        self.notes = dict(notes)
        super().__init__(f"a measurement stopped the GPU: {name!r}: {notes[name]}")


def _time(driver: Driver, stream: Stream, run: Run, repeats: int) -> float:
    first = driver.record_time(stream)
    for _ in range(repeats):
        run()
    return driver.elapsed(first, driver.record_time(stream)) / repeats


def settled(driver: Driver, stream: Stream) -> None:
    """Wait for all that is on the stream; what went wrong there is nobody else's."""
    try:
        driver.synchronize(driver.record(stream))
    except DeviceFault as fault:
        driver.recover(stream, fault)
    except DriverError:
        return
