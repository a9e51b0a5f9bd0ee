"""NVIDIA's driver API as exceptions: ``cuda.bindings`` returns a status with every result.

    api = driver_api()
    stream = api("cuStreamCreate", api.CUstream_flags.CU_STREAM_NON_BLOCKING)

``cuda.bindings`` is imported when the first of it is needed, and finds the driver's library when the first function is called.
"""

from __future__ import annotations

from functools import cache
from typing import Any, final

from hlojit.gpu.driver import DeviceFault, DriverError, DriverRefusal, OutOfDeviceMemory

_FAULTS = (
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_ASSERT",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_TENSOR_MEMORY_LEAK",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    "CUDA_ERROR_CONTAINED",
)
"""After these a context does nothing more."""
_REFUSALS = ("CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_INVALID_VALUE")
"""What is asked again is answered the same."""


@final
class DriverApi:
    """The functions and enumerations of ``cuda.bindings.driver``."""

    def __init__(self, bindings: Any):
        self._bindings = bindings
        self._success = bindings.CUresult.CUDA_SUCCESS
        self._out_of_memory = bindings.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        self._kinds = {
            status: kind
            for names, kind in ((_FAULTS, DeviceFault), (_REFUSALS, DriverRefusal))
            for name in names
            if (status := getattr(bindings.CUresult, name, None)) is not None
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bindings, name)

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Call a function; returns its result, or a tuple of several, and raises ``DriverError`` with what it says."""
        status, *results = getattr(self._bindings, name)(*arguments)
        if status != self._success:
            raise self.error(name, status)
        return results[0] if len(results) == 1 else tuple(results)

    def error(self, name: str, status: Any) -> DriverError:
        """The exception for a status."""
        message = f"{self.explained(status)} ({name})"
        if status == self._out_of_memory:
            return OutOfDeviceMemory(0, message)
        return self._kinds.get(status, DriverError)(message)

    def explained(self, status: Any) -> str:
        """A status in the driver's words."""
        texts = []
        for function in (self._bindings.cuGetErrorName, self._bindings.cuGetErrorString):
            answer, text = function(status)
            texts.append(text.decode(errors="replace") if answer == self._success and text else str(status))
        return f"{texts[0]}: {texts[1]}"


@cache
def driver_api() -> DriverApi:
    """The API of the installed ``cuda.bindings``; raises ``ImportError`` without it."""
    from cuda.bindings import driver

    return DriverApi(driver)
