"""The C functions behind ``cuda.bindings``, for native code that launches (``hlojit.gpu.native_launch``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

from hlojit.cuda.driver_api import DriverApi
from hlojit.gpu.driver import DeviceFault, DriverError
from hlojit.gpu.native_launch import NativeFunctions

if TYPE_CHECKING:
    from hlojit.cuda.nvidia_driver import NvidiaDriver
    from hlojit.cuda.nvidia_handles import NvidiaMark, NvidiaStream

_VERSION: Final = 12000
"""Of CUDA, whose forms of the functions are asked for: every driver that we take has them."""
_NAMES: Final = {
    "enter": "cuCtxPushCurrent",
    "leave": "cuCtxPopCurrent",
    "launch": "cuLaunchKernel",
    "copy": "cuMemcpyDtoDAsync",
    "record": "cuEventRecord",
    "query": "cuEventQuery",
    "launch_graph": "cuGraphLaunch",
    "add_kernel": "cuGraphAddKernelNode",
    "add_copy": "cuGraphAddMemcpyNode",
    "set_kernel": "cuGraphExecKernelNodeSetParams",
    "set_copy": "cuGraphExecMemcpyNodeSetParams",
}


@final
class NvidiaNodes:
    """A graph whose nodes are told new addresses: they are named by those of the graph that it was instantiated from."""

    def __init__(self, driver: NvidiaDriver):
        self._driver = driver
        self._instantiated: Any = None
        self._graph: Any = None
        self._graph = driver.new_graph()
        self.number: Final = int(self._graph)

    def instantiate(self) -> int:
        """To be launched."""
        self._instantiated = self._driver.instantiated(self._graph)
        return int(self._instantiated)

    def __del__(self) -> None:
        if self._instantiated is not None:
            self._driver.drop_graph(self._instantiated)
        if self._graph is not None:
            self._driver.drop_template(self._graph)


@final
class NvidiaNative:
    """A ``NativeDriver`` over one context."""

    def __init__(self, api: DriverApi, context: Any, driver: NvidiaDriver):
        """Raises ``DriverError`` if the driver does not tell where its functions are."""
        self._api = api
        self._driver = driver
        self.events: Final[list[int]] = []
        addresses = {role: _address(api, name) for role, name in _NAMES.items()}
        pending = int(api.CUresult.CUDA_ERROR_NOT_READY)
        self.functions: Final = NativeFunctions(context=int(context), pending=pending, **addresses)

    def stream(self, stream: NvidiaStream) -> int:
        """Its handle."""
        return int(stream.handle)

    def function(self, function: Any) -> int | None:
        """Its handle; a library's routines have none."""
        handle = getattr(function, "handle", None)
        return None if handle is None else int(handle)

    def event(self) -> int:
        """One that notes no time."""
        return int(self._driver.new_event())

    def number(self, mark: NvidiaMark) -> int:
        """As the driver counts."""
        return int(mark.event)

    def mark(self, event: int, launched: Sequence[str]) -> NvidiaMark:
        """One that keeps nothing: the event stays its owner's."""
        return self._driver.mark(event, launched)

    def graph(self) -> NvidiaNodes:
        """For programs without library calls; those are captured."""
        return NvidiaNodes(self._driver)

    def error(self, status: int, what: str) -> Exception:
        """The driver's words."""
        error = self._api.error(what, self._api.CUresult(status))
        return self._driver.named(error) if isinstance(error, DeviceFault) else error


def _address(api: DriverApi, name: str) -> int:
    flags = int(api.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_LEGACY_STREAM)
    found, answer = api("cuGetProcAddress", name.encode(), _VERSION, flags)
    if answer != api.CUdriverProcAddressQueryResult.CU_GET_PROC_ADDRESS_SUCCESS or not int(found or 0):
        raise DriverError(f"the NVIDIA driver does not have {name} of CUDA {_VERSION // 1000} ({answer.name})")
    return int(found)
