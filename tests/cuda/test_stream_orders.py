"""What streams leave to each other: everything is right on a GPU whose streams are as late as they may be."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.cuda.backend import CudaBackend
from hlojit.cuda.nvidia_driver import NvidiaDriver
from hlojit.cuda.staging import PIECE_BYTES
from hlojit.gpu.device import GpuDevice
from hlojit.runtime.dlpack_devices import foreign_array

from .queueing_cuda import QueueingCuda
from .test_short_ways import ADD, CHAIN

ONES = np.ones(600, "f4")
OTHERS = 77
"""Another library's stream."""


@pytest.fixture
def cuda() -> Iterator[QueueingCuda]:
    made = QueueingCuda()
    yield made
    assert not made.wrong


def test_programs_come_behind_transfers_and_before_their_memory_is_used_again(backend: CudaBackend) -> None:
    add = hlojit.compile(ADD, backend="cuda")
    for number in range(6):
        x, y = (hlojit.put(np.full(600, each, "f4"), "cuda") for each in (number, 1))
        np.testing.assert_array_equal(hlojit.get(add.execute(x, y)), np.full(600, number + 1))
        x, y = (hlojit.put(np.full(600, each, "f4"), "cuda") for each in (number, 1))
        z = add.execute(x, y)
        del x, y
        again = hlojit.put(np.full(600, 100, "f4"), "cuda")
        assert again.wait()
        w = add.execute(z, again)
        del z
        np.testing.assert_array_equal(hlojit.get(w), np.full(600, number + 101))


@pytest.mark.parametrize("text", [ADD, CHAIN])
@pytest.mark.parametrize("seed", range(3))
def test_calls_transfers_and_ends_of_arrays_in_any_order(backend: CudaBackend, text: str, seed: int) -> None:
    plain, giving = (hlojit.compile(text, backend="cuda", donate=donate) for donate in ([], [0]))
    shape = plain.input_types[0].shape
    rng = np.random.default_rng(seed)
    arrays: list[tuple[Any, Any]] = []

    def result(x: Any, y: Any) -> Any:
        # Small numbers: f32 has all of them.
        return x + y if text is ADD else x @ y @ y @ y @ y

    for _ in range(60):
        what = rng.integers(5)
        if what == 0 or len(arrays) < 2:
            values = np.sign(rng.integers(-8, 9, shape) * (rng.random(shape) < 2 / shape[-1])).astype("f4")
            arrays.append((hlojit.put(values, "cuda"), values))
        elif what == 1:
            del arrays[rng.integers(len(arrays))]
        elif what == 2:
            found, values = arrays[rng.integers(len(arrays))]
            np.testing.assert_array_equal(hlojit.get(found), values)
        else:
            (x, a), (y, b) = (arrays[each] for each in rng.choice(len(arrays), 2, replace=False))
            expected = result(a, b)
            if np.abs(expected).max() > 1 << 20:
                continue
            if what == 3:
                arrays = [each for each in arrays if each[0] is not x]
            arrays.append(((giving if what == 3 else plain).execute(x, y), expected))
        found = x = y = None
    for found, values in arrays:
        np.testing.assert_array_equal(hlojit.get(found), values)


@pytest.mark.parametrize("is_put", [True, False])
def test_lent_memory_is_read_before_it_is_used_again(cuda: QueueingCuda, backend: CudaBackend, is_put: bool) -> None:
    add = hlojit.compile(ADD, backend="cuda")
    one, three = hlojit.put(ONES, "cuda"), hlojit.put(3 * ONES, "cuda")
    x = hlojit.put(2 * ONES, "cuda") if is_put else add.execute(one, one)
    lent = foreign_array(x, OTHERS)
    read = np.empty(600, "f4")
    address = lent.address
    cuda.put(OTHERS, lambda: ctypes.memmove(read.ctypes.data, address, read.nbytes))
    del x, lent
    gc.collect()
    kept = [add.execute(one, three) for _ in range(10)]
    kept += [hlojit.put(3 * ONES, "cuda") for _ in range(10)]
    assert all(each.wait() for each in kept)
    cuda.do_cuCtxSynchronize()
    np.testing.assert_array_equal(read, 2 * ONES)


def interrupt(cuda: QueueingCuda, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """Ctrl-C while a piece is waited for, when two are on their way by this function."""
    synchronize = cuda.do_cuEventSynchronize
    cuda.calls.clear()

    def interrupted(event: Any) -> None:
        if cuda.calls.count(function) == 2:
            raise KeyboardInterrupt
        synchronize(event)

    monkeypatch.setattr(cuda, "do_cuEventSynchronize", interrupted)


def test_a_transfer_that_is_interrupted_writes_to_nobody_elses_memory(
    cuda: QueueingCuda, backend: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = PIECE_BYTES * 3 // 4
    text = ADD.replace("600", str(count))
    add = hlojit.compile(text, backend="cuda")
    one = hlojit.put(np.ones(count, "f4"), "cuda")
    assert one.wait() and add.execute(one, one).wait()
    device = backend.devices()[0]
    assert isinstance(device, GpuDevice)
    device._opened().site.pool.clear()
    with monkeypatch.context() as patch:
        interrupt(cuda, patch, "cuMemcpyHtoDAsync")
        with pytest.raises(KeyboardInterrupt):
            hlojit.put(np.full(count, 7, "f4"), "cuda")
    gc.collect()
    found = add.execute(one, one)
    assert found.wait()
    cuda.do_cuCtxSynchronize()
    np.testing.assert_array_equal(hlojit.get(found), np.full(count, 2))


def test_a_piece_is_used_again_when_the_transfer_before_is_done(
    cuda: QueueingCuda, driver: NvidiaDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = driver.stream("one"), driver.stream("two")
    arrays = [np.full(PIECE_BYTES * 2, each, "u1") for each in (1, 2)]
    places = [driver.allocate(each.nbytes, one) for each in arrays]
    for place, each in zip(places, arrays):
        driver.copy_in(place, each, one)
    cuda.do_cuCtxSynchronize()
    found = np.zeros_like(arrays[0])
    slow = driver.stream("slow")
    with monkeypatch.context() as patch:
        interrupt(cuda, patch, "cuMemcpyDtoHAsync")
        with pytest.raises(KeyboardInterrupt):
            driver.copy_out(found, places[0], slow)
    # The first transfer's pieces come while the second one's contents are taken out of them.
    synchronize = cuda.do_cuEventSynchronize

    def synchronized(event: Any) -> None:
        synchronize(event)
        cuda.do_cuStreamSynchronize(slow.handle)

    monkeypatch.setattr(cuda, "do_cuEventSynchronize", synchronized)
    driver.copy_out(found, places[1], two)
    np.testing.assert_array_equal(found, arrays[1])
