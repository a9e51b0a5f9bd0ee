"""Arrays on a GPU that libraries share without a copy: DLPack and the CUDA array interface, both ways."""

from __future__ import annotations

import ctypes
import gc
from typing import TYPE_CHECKING, Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.cuda.backend import CudaBackend
from hlojit.gpu.memory import MOST_ASIDE
from hlojit.runtime import dlpack_devices
from hlojit.runtime.dlpack_devices import capsule_of, foreign_array

if TYPE_CHECKING:
    from .fake_cuda import FakeCuda

DOUBLE = """
func.func @double(%x: tensor<6xf32>) -> tensor<6xf32> {
  %0 = stablehlo.add %x, %x : tensor<6xf32>
  return %0 : tensor<6xf32>
}
"""


class Tensor:
    """Another library's array: memory of the device that it has from the driver itself."""

    def __init__(self, cuda: FakeCuda, array: np.ndarray[Any, Any], offset: int = 0):
        self.shape, self.dtype = array.shape, array.dtype
        self.base = int(cuda.do_cuMemAllocAsync(array.nbytes + offset, 0))
        self.address = self.base + offset
        self.cuda = cuda
        ctypes.memmove(self.address, array.ctypes.data, array.nbytes)

    def __del__(self) -> None:
        self.cuda.do_cuMemFreeAsync(self.base, 0)

    def read(self) -> np.ndarray[Any, Any]:
        found = np.empty(self.shape, self.dtype)
        ctypes.memmove(found.ctypes.data, self.address, found.nbytes)
        return found


class WithInterface(Tensor):
    strides: Any = None
    stream: Any = None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.address, False)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": data,
            "strides": self.strides,
            "stream": self.stream,
            "version": 3,
        }


class WithDlpack(Tensor):
    streams: list[Any]

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, stream: Any = None) -> Any:
        self.streams = [stream]
        return capsule_of(self.address, self.shape, self.dtype, (2, 0), self)


@pytest.mark.parametrize("kind", [WithInterface, WithDlpack])
def test_arguments_of_other_libraries_are_not_copied(cuda: FakeCuda, backend: CudaBackend, kind: type[Tensor]) -> None:
    double = hlojit.compile(DOUBLE, backend="cuda")
    x = kind(cuda, np.arange(6, dtype="f4"))
    y = double(x)
    assert isinstance(y, hlojit.Array) and str(y.device) == "cuda:0"
    assert hlojit.get(y).tolist() == [0, 2, 4, 6, 8, 10]
    put = hlojit.put(x, "cuda")
    assert put.buffer.memory().handle.address == x.address
    assert "cuMemcpyHtoDAsync" not in cuda.calls and "cuMemcpyDtoDAsync" not in cuda.calls
    assert hlojit.get(double.execute(put)).tolist() == [0, 2, 4, 6, 8, 10]


def test_the_owner_lives_as_long_as_the_array(cuda: FakeCuda, backend: CudaBackend) -> None:
    x = hlojit.put(WithDlpack(cuda, np.arange(6, dtype="f4")), "cuda")
    gc.collect()
    assert hlojit.get(x).tolist() == [0, 1, 2, 3, 4, 5]
    used = len(cuda.memory)
    x.delete()
    del x
    gc.collect()
    assert len(cuda.memory) == used - 1


def test_our_stream_waits_for_theirs(cuda: FakeCuda, backend: CudaBackend) -> None:
    ours = backend.devices()[0].foreign_queue()
    x = WithDlpack(cuda, np.zeros(6, "f4"))
    hlojit.put(x, "cuda")
    assert x.streams == [ours]
    y = WithInterface(cuda, np.zeros(6, "f4"))
    y.stream = 2
    before = cuda.calls.count("cuStreamWaitEvent")
    hlojit.put(y, "cuda")
    assert cuda.calls.count("cuStreamWaitEvent") == before + 1


def test_memory_that_begins_elsewhere_is_copied_on_the_device(cuda: FakeCuda, backend: CudaBackend) -> None:
    x = WithInterface(cuda, np.arange(6, dtype="f4"), offset=4)
    assert hlojit.get(hlojit.compile(DOUBLE, backend="cuda")(x)).tolist() == [0, 2, 4, 6, 8, 10]
    assert "cuMemcpyDtoDAsync" in cuda.calls and "cuMemcpyHtoDAsync" not in cuda.calls


def test_a_program_that_is_given_borrowed_memory_gets_a_copy(cuda: FakeCuda, backend: CudaBackend) -> None:
    double = hlojit.compile(DOUBLE, backend="cuda", donate=[0])
    x = WithInterface(cuda, np.arange(6, dtype="f4"))
    assert hlojit.get(double(x)).tolist() == [0, 2, 4, 6, 8, 10]
    assert x.read().tolist() == [0, 1, 2, 3, 4, 5]


def test_what_was_lent_does_not_change_when_it_is_donated(cuda: FakeCuda, backend: CudaBackend) -> None:
    double = hlojit.compile(DOUBLE, backend="cuda", donate=[0])
    x = hlojit.put(np.arange(6, dtype="f4"), "cuda")
    lent = foreign_array(x, 1)
    double(x)
    seen = (ctypes.c_float * 6).from_address(lent.address)
    assert list(seen) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint32, np.bool_])
def test_results_are_lent_by_dlpack(backend: CudaBackend, dtype: Any) -> None:
    x = hlojit.put(np.arange(6).astype(dtype).reshape(2, 3), "cuda")
    assert x.__dlpack_device__() == (2, 0)
    lent = foreign_array(x, 1)
    assert (lent.shape, lent.dtype, lent.device) == ((2, 3), np.dtype(dtype), (2, 0))
    assert lent.address == x.buffer.memory().handle.address and lent.is_dense
    held = len(dlpack_devices._exported)
    del lent
    gc.collect()
    assert len(dlpack_devices._exported) == held - 1


@pytest.mark.parametrize("is_dlpack", [True, False])
def test_what_was_lent_is_used_again_behind_its_users_work(
    cuda: FakeCuda, backend: CudaBackend, is_dlpack: bool
) -> None:
    """A library drops what it has while its kernels still read it, on streams that it does not tell of."""
    double = hlojit.compile(DOUBLE, backend="cuda")
    x = hlojit.put(np.arange(6, dtype="f4"), "cuda")
    y = double.execute(x)
    lent = foreign_array(y, 1) if is_dlpack else y.__cuda_array_interface__
    address = y.buffer.memory().handle.address
    del y, lent
    kept = [double.execute(x) for _ in range(20)]
    assert address not in {each.buffer.memory().handle.address for each in kept}
    freed = x.buffer.memory().handle.address
    foreign_array(x, 1)
    del x
    gc.collect()
    assert {address, freed} <= set(cuda.memory) and "cuCtxSynchronize" not in cuda.calls
    # Everybody's streams are waited for when it is needed.
    cuda.total = cuda.used
    del kept[1:]
    hlojit.put(np.zeros(6, "f4"), "cuda")
    assert "cuCtxSynchronize" in cuda.calls and address not in cuda.memory


def test_lent_memory_comes_back_in_a_loop(cuda: FakeCuda, backend: CudaBackend) -> None:
    double = hlojit.compile(DOUBLE, backend="cuda")
    x = hlojit.put(np.arange(6, dtype="f4"), "cuda")
    seen = set()
    for _ in range(5 * MOST_ASIDE):
        y = double.execute(x)
        seen.add(foreign_array(y, 1).address)
    assert len(seen) <= 2 * MOST_ASIDE and cuda.calls.count("cuCtxSynchronize") <= 5


def test_consumers_that_know_versions_get_one(backend: CudaBackend) -> None:
    x = hlojit.put(np.zeros(3, "f4"), "cuda")
    capsule = x.__dlpack__(max_version=(1, 1), dl_device=(2, 0))
    assert '"dltensor_versioned"' in repr(capsule)
    assert '"dltensor"' in repr(x.__dlpack__())


def test_results_are_lent_by_the_cuda_array_interface(backend: CudaBackend) -> None:
    x = hlojit.put(np.zeros((2, 3), "i4"), "cuda")
    found = x.__cuda_array_interface__
    assert (found["shape"], found["typestr"], found["version"], found["strides"]) == ((2, 3), "<i4", 3, None)
    assert found["data"] == (x.buffer.memory().handle.address, False)
    assert not hasattr(hlojit.put(np.zeros(2, ml_dtypes.bfloat16), "cuda"), "__cuda_array_interface__")
    assert not hasattr(hlojit.put(np.zeros(2, "f4"), "cpu"), "__cuda_array_interface__")


def test_strided_and_masked_arrays_are_refused(cuda: FakeCuda, backend: CudaBackend) -> None:
    x = WithInterface(cuda, np.zeros((2, 3), "f4"))
    x.strides = (4, 8)
    with pytest.raises(hlojit.ArgumentError, match=r"put on cuda:0: the WithInterface has the strides \(1, 2\)"):
        hlojit.put(x, "cuda")


def test_types_and_shapes_are_checked(cuda: FakeCuda, backend: CudaBackend) -> None:
    double = hlojit.compile(DOUBLE, backend="cuda")
    with pytest.raises(hlojit.ArgumentError, match="expected tensor<6xf32>, got tensor<6xf64>"):
        double(WithDlpack(cuda, np.zeros(6)))
    with pytest.raises(hlojit.ArgumentError, match="double, argument 0"):
        hlojit.compile(DOUBLE, backend="cpu")(WithDlpack(cuda, np.zeros(6, "f4")))


def test_an_array_on_the_simulator_is_not_lent(simulator: str) -> None:
    x = hlojit.put(np.zeros(3, "f4"), simulator)
    with pytest.raises(BufferError, match="hlojit.get copies it to the host"):
        x.__dlpack__()
    assert not hasattr(x, "__cuda_array_interface__")
