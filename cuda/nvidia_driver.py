"""A ``Driver`` of NVIDIA's GPUs, through ``cuda.bindings``: streams, the stream-ordered pool, modules, events, graphs.

Written by the documentation and tested against functions that check what they are given; **not run on a GPU yet**.

The context is the primary one, which numba, CuPy, PyTorch and JAX use as well.  It is made current around every use, and
what was current before is current again afterwards.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, final

from hlojit.cuda import cublaslt, nccl
from hlojit.cuda.assemblers.assembler import entry_name
from hlojit.cuda.conditional_nodes import ConditionalGraph, ConditionalGraphWriter
from hlojit.cuda.driver_api import DriverApi
from hlojit.cuda.native_functions import NvidiaNative
from hlojit.cuda.nvidia_handles import (
    NvidiaFunction,
    NvidiaGraph,
    NvidiaMark,
    NvidiaModule,
    NvidiaStream,
    parameters_of,
)
from hlojit.cuda.staging import Staging
from hlojit.gpu.driver import DeviceFault, DriverError, Grid, NDArray, OutOfDeviceMemory, Properties
from hlojit.gpu.graph_nodes import Conditions, GraphNode
from hlojit.ir.errors import ExecutionError
from hlojit.ir.time_limit import uninterrupted
from hlojit.lowering.library_product import LibraryProduct

PLAIN_SHARED_BYTES: Final = 48 << 10
"""What a block may have without asking for more."""
_LOGGER: Final = logging.getLogger("hlojit")
_ELF: Final = b"\x7fELF"
_KEEP_ALL: Final = (1 << 64) - 1
_NAMED: Final = 4
"""Launches that a message names."""


@final
class NvidiaDriver:
    """One GPU; ``ordinal`` is NVIDIA's number of it."""

    def __init__(self, api: DriverApi, ordinal: int, properties: Properties):
        self.properties: Final = properties
        self._api = api
        self._ordinal = ordinal
        self._process = 0
        self._here: _Current
        self._native: NvidiaNative
        self._uploads: Staging
        self._downloads: Staging
        self._capture_stream: NvidiaStream
        self._capture_streams: list[NvidiaStream] = []
        self._fault: DeviceFault | None = None
        self._under_way: Callable[[], Sequence[str]] = tuple
        self._pool: Any = None
        self._events: list[Any] = []
        self._no_timing = int(api.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        self._timing_events: list[Any] = []
        self._streams: list[NvidiaStream] = []
        self._cublaslt: cublaslt.CublasLt | None = None
        self._peers: dict[int, bool] = {}
        self._without_library = False
        self._opening = threading.Lock()
        self._capturing = threading.Lock()

    def open(self) -> None:
        """Take the primary context."""
        with uninterrupted(), self._opening:
            if self._process == os.getpid():
                return
            if self._process:
                raise ExecutionError(
                    "CUDA was in use when this process was forked, and cannot be used in the child; start the child with "
                    "multiprocessing's method 'spawn', or fork before the GPU is first used"
                )
            api = self._api
            device = api("cuDeviceGet", self._ordinal)
            self._here = _Current(api, api("cuDevicePrimaryCtxRetain", device), self.named)
            with self._here:
                self._pool = api("cuDeviceGetDefaultMemPool", device)
                threshold = api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
                api("cuMemPoolSetAttribute", self._pool, threshold, api.cuuint64_t(_KEEP_ALL))
                self._uploads, self._downloads = Staging(api), Staging(api)
                self._capture_stream = NvidiaStream(self._new_stream())
                self._native = NvidiaNative(api, self._here.context, self)
            self._process = os.getpid()

    def _new_stream(self) -> Any:
        return self._api("cuStreamCreate", int(self._api.CUstream_flags.CU_STREAM_NON_BLOCKING))

    # ------------------------------------------------------------------------------------------------------- memory

    @property
    def native(self) -> NvidiaNative:
        """The C functions."""
        return self._native

    @property
    def current(self) -> AbstractContextManager[None]:
        """A block in which the context is the current one."""
        return self._here

    def memory(self) -> tuple[int, int]:
        """Bytes: free ones, those that the pool keeps included, and in all."""
        attributes = self._api.CUmemPool_attribute
        with self._here:
            free, total = self._api("cuMemGetInfo")
            reserved, used = (
                int(self._api("cuMemPoolGetAttribute", self._pool, which))
                for which in (
                    attributes.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                    attributes.CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
                )
            )
        return int(free) + reserved - used, int(total)

    def allocate(self, nbytes: int, stream: NvidiaStream) -> int:
        """From the pool, in the stream's order."""
        with self._here:
            try:
                return int(self._api("cuMemAllocAsync", nbytes, stream.handle))
            except OutOfDeviceMemory as error:
                raise OutOfDeviceMemory(nbytes) from error

    def free(self, address: int, stream: NvidiaStream) -> None:
        """To the pool, in the stream's order; a context that is lost has no memory to give back."""
        try:
            with self._here:
                self._api("cuMemFreeAsync", address, stream.handle)
        except DriverError:
            return

    def trim(self) -> None:
        """Wait for all streams, then give back what the pool keeps."""
        with self._here:
            for stream in list(self._streams):
                self._api("cuStreamSynchronize", stream.handle)
            self._api("cuMemPoolTrimTo", self._pool, 0)

    def drain(self) -> None:
        """Those of all libraries that use the primary context."""
        with self._here:
            self._api("cuCtxSynchronize")

    def copy_in(self, target: int, source: NDArray, stream: NvidiaStream) -> None:
        """Through pinned memory."""
        with self._here:
            self._uploads.copy_in(target, source, stream.handle)

    def copy_out(self, target: NDArray, source: int, stream: NvidiaStream) -> None:
        """Through pinned memory."""
        with self._here, self._naming(stream.launched):
            self._downloads.copy_out(target, source, stream.handle)

    def copy(self, target: int, source: int, nbytes: int, stream: NvidiaStream) -> None:
        """On the device."""
        with self._here:
            self._api("cuMemcpyDtoDAsync", target, source, nbytes, stream.handle)

    def copy_from(self, peer: NvidiaDriver, target: int, source: int, nbytes: int, stream: NvidiaStream) -> None:
        """Over NVLink or PCIe where there is a way; where there is none, the driver takes its own way through the host."""
        with self._here:
            self._reach(peer)
            contexts = self._here.context, peer._here.context
            self._api("cuMemcpyPeerAsync", target, contexts[0], source, contexts[1], nbytes, stream.handle)

    def _reach(self, peer: NvidiaDriver) -> None:
        """Let this GPU read the peer's pool, once: pools are not opened to others by what opens other memory."""
        if peer._ordinal in self._peers:
            return
        api = self._api
        reaches = bool(
            api("cuDeviceCanAccessPeer", api("cuDeviceGet", self._ordinal), api("cuDeviceGet", peer._ordinal))
        )
        if reaches:
            access = api.CUmemAccessDesc()
            access.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            access.location.id = self._ordinal
            access.flags = api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            api("cuMemPoolSetAccess", peer._pool, [access], 1)
        self._peers[peer._ordinal] = reaches

    def communicator(self, group: Sequence[NvidiaDriver]) -> nccl.NcclCommunicator | None:
        """NCCL's, if the switch asks for it."""
        if not nccl.is_chosen():
            return None
        return nccl.nccl().communicator(tuple(each._ordinal for each in group), self._ordinal, self._here)

    # ------------------------------------------------------------------------------------------------------ streams

    def stream(self, name: str) -> NvidiaStream:
        """One that does not wait for the default stream."""
        with self._here:
            made = NvidiaStream(self._new_stream())
        self._streams.append(made)
        return made

    def foreign_stream(self, number: int) -> NvidiaStream:
        """By its handle; 1 and 2 are the default streams, as everywhere."""
        return NvidiaStream(self._api.CUstream(number))

    def number(self, stream: NvidiaStream) -> int:
        """The handle."""
        return int(stream.handle)

    def record(self, stream: NvidiaStream) -> NvidiaMark:
        """An event behind all that is on the stream."""
        event = self._recorded(stream, self._events, self._no_timing)
        launched, stream.launched = stream.launched, []
        return NvidiaMark(event, launched, self._events)

    def record_time(self, stream: NvidiaStream) -> NvidiaMark:
        """An event of those that note the time, which take longer; what was launched stays with the next plain mark."""
        event = self._recorded(stream, self._timing_events, int(self._api.CUevent_flags.CU_EVENT_DEFAULT))
        return NvidiaMark(event, list(stream.launched), self._timing_events)

    def elapsed(self, first: NvidiaMark, last: NvidiaMark) -> float:
        """The driver's milliseconds, which it counts in steps of half a microsecond."""
        self.synchronize(last)
        with self._here:
            return float(self._api("cuEventElapsedTime", first.event, last.event)) * 1e6

    def _recorded(self, stream: NvidiaStream, unused: list[Any], flags: int) -> Any:
        """An event put on a stream: one that was used before, or a new one."""
        with self._here:
            try:
                event = unused.pop()
            except IndexError:
                event = self._api("cuEventCreate", flags)
            self._api("cuEventRecord", event, stream.handle)
        return event

    def new_event(self) -> Any:
        """For native code: one that notes no time."""
        with self._here:
            return self._api("cuEventCreate", self._no_timing)

    def mark(self, event: int, launched: Sequence[str]) -> NvidiaMark:
        """The mark that native code has put on a stream; the event is not ours to use again."""
        return NvidiaMark(self._api.CUevent(event), list(launched), [])

    def wait_for(self, stream: NvidiaStream, mark: NvidiaMark) -> None:
        """On the device."""
        with self._here:
            self._api("cuStreamWaitEvent", stream.handle, mark.event, 0)

    def synchronize(self, mark: NvidiaMark, since: NvidiaMark | None = None) -> None:
        """Wait; a fault names what was launched before the mark."""
        with self._here, self._naming(mark.launched):
            self._api("cuEventSynchronize", mark.event)

    @contextmanager
    def _naming(self, launched: Sequence[str]) -> Iterator[None]:
        """A fault with the kernels that may have caused it: those of the first mark that fails, the context being lost."""
        try:
            yield
        except DeviceFault as fault:
            raise self.named(fault, launched) from fault

    def named(self, fault: DeviceFault, launched: Sequence[str] = ()) -> DeviceFault:
        """Whoever meets it first says what may have caused it, for all: a context that is lost tells no events apart."""
        if self._fault is None:
            self._fault = DeviceFault(f"{fault}{_among((*launched, *self._under_way()))}")
        return DeviceFault(str(self._fault))

    def name_faults(self, under_way: Callable[[], Sequence[str]]) -> None:
        """The driver says nothing of kernels."""
        self._under_way = under_way

    def recover(self, stream: NvidiaStream, fault: DeviceFault) -> bool:
        """A context does not survive a fault."""
        return False

    # ------------------------------------------------------------------------------------------------------ kernels

    def load(self, image: bytes | memoryview, symbols: Sequence[str]) -> NvidiaModule:
        """Machine code, or PTX, which must end in a zero byte."""
        with self._here:
            return NvidiaModule(
                self, self._api("cuModuleLoadData", bytes(image) if image[:4] == _ELF else bytes(image) + b"\0")
            )

    def unload(self, module: Any) -> None:
        """For ``NvidiaModule``."""
        self._dropped("cuModuleUnload", module)

    def function(self, module: NvidiaModule, symbol: str, shared_bytes: int) -> NvidiaFunction:
        """Asks for more shared memory than every kernel may have, if it takes more."""
        api = self._api
        with self._here:
            handle = api("cuModuleGetFunction", module.handle, entry_name(symbol).encode())
            if shared_bytes > PLAIN_SHARED_BYTES:
                attribute = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                api("cuFuncSetAttribute", handle, attribute, shared_bytes)
        return NvidiaFunction(handle, module, *parameters_of(0))

    def library(self, call: str) -> cublaslt.Routine | None:
        """Of cuBLASLt, where nvmath-python is installed; what fails is said once, and is our own kernels'."""
        with uninterrupted(), self._opening, self._here:
            library = self._opened_library()
            if library is None:
                return None
            product = LibraryProduct.of_text(call)
            try:
                return library.routine(product)
            except Exception as error:
                _LOGGER.warning("cuBLASLt does not compute %s: %s; our own kernel does", product, error)
                return None

    def _opened_library(self) -> cublaslt.CublasLt | None:
        if self._cublaslt is None and not self._without_library and not cublaslt.unavailable():
            # What is taken while launches are captured would be a part of what is captured.
            self._give_workspace(self._capture_stream)
            # Graphs use it on other streams, which wait for nothing of this one.
            self._api("cuStreamSynchronize", self._capture_stream.handle)
            try:
                self._cublaslt = cublaslt.CublasLt(cublaslt.load_bindings())
            except Exception as error:
                self._without_library = True
                _LOGGER.warning("%s; our own kernels compute products", cublaslt.explained(error))
        return self._cublaslt

    def _give_workspace(self, stream: NvidiaStream) -> None:
        if not stream.workspace:
            stream.workspace = self.allocate(cublaslt.WORKSPACE_BYTES, stream)

    def launch(
        self,
        function: NvidiaFunction | cublaslt.Routine,
        grid: Grid,
        addresses: Sequence[int],
        stream: NvidiaStream,
        what: str,
    ) -> None:
        """One row of blocks; the parameters are addresses."""
        if isinstance(function, cublaslt.Routine):
            with self._here:
                self._give_workspace(stream)
                try:
                    function(addresses, int(stream.handle), stream.workspace)
                except Exception as error:
                    raise DriverError(f"cuBLASLt refused {what}: {error}") from error
            stream.launched.append(what)
            return
        with self._here, function.lock:
            function.set_parameters(addresses)
            shape = (grid.blocks, 1, 1, grid.threads, 1, 1, grid.shared_bytes)
            # The values have been read when this returns.
            self._api(
                "cuLaunchKernel",
                function.handle,
                *shape,
                stream.handle,
                ctypes.addressof(function.pointers),
                0,
            )
        stream.launched.append(what)

    def capture(self, issue: Callable[[NvidiaStream], None]) -> NvidiaGraph:
        """On a stream of its own: all others are used meanwhile, by destructors on this very thread, too."""
        api, stream = self._api, self._capture_stream
        with uninterrupted(), self._capturing, self._here:
            api("cuStreamBeginCapture", stream.handle, api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
            try:
                issue(stream)
            finally:
                graph = api("cuStreamEndCapture", stream.handle)
                launched, stream.launched = stream.launched, []
            try:
                return NvidiaGraph(self, api("cuGraphInstantiate", graph, 0), launched)
            finally:
                api("cuGraphDestroy", graph)

    def conditional_graph(self, nodes: Sequence[GraphNode], conditions: Conditions) -> ConditionalGraph:
        """Launches and copies are captured, on a stream for every level; loops and branches are nodes between them."""
        with uninterrupted(), self._capturing, self._here:
            return ConditionalGraphWriter(self._api, self._here.context, self, conditions).graph(nodes)

    def readdress(self, graph: ConditionalGraph, nodes: Sequence[GraphNode], conditions: Conditions) -> bool:
        """By setting the parameters of what has other addresses."""
        with self._here:
            return graph.readdress(nodes, conditions)

    def capture_stream(self, level: int) -> NvidiaStream:
        """The stream that captures at a level of loops and branches: those outside of it are capturing, too."""
        while len(self._capture_streams) <= level:
            self._capture_streams.append(NvidiaStream(self._new_stream()))
        stream = self._capture_streams[level]
        # What is captured at all levels runs one after the other.
        stream.workspace = self._capture_stream.workspace
        return stream

    def new_graph(self) -> Any:
        """Without nodes."""
        with self._here:
            return self._api("cuGraphCreate", 0)

    def instantiated(self, graph: Any) -> Any:
        """What can be launched."""
        with self._here:
            return self._api("cuGraphInstantiate", graph, 0)

    def drop_graph(self, instantiated: Any) -> None:
        """What can be launched; in a child of fork, and after a fault, there is nothing to drop."""
        self._dropped("cuGraphExecDestroy", instantiated)

    def drop_template(self, graph: Any) -> None:
        """What it was made of."""
        self._dropped("cuGraphDestroy", graph)

    def _dropped(self, function: str, handle: Any) -> None:
        if self._process == os.getpid():
            try:
                with self._here:
                    self._api(function, handle)
            except DriverError:
                return

    def launch_graph(self, graph: NvidiaGraph | ConditionalGraph, stream: NvidiaStream) -> None:
        """All of it."""
        with self._here:
            self._api("cuGraphLaunch", graph.handle, stream.handle)
        stream.launched += graph.launched


def _among(launched: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(launched))
    more = f" and {len(distinct) - _NAMED} more" if len(distinct) > _NAMED else ""
    one = "one of " if len(distinct) > 1 else ""
    return f" in {one}{'; '.join(distinct[:_NAMED])}{more}" if distinct else ""


@final
class _Current(AbstractContextManager[None]):
    """A ``with`` block in which a context is the current one; within another one of the same thread it does nothing."""

    __slots__ = ("_api", "_depths", "_named", "context")

    def __init__(self, api: DriverApi, context: Any, named: Callable[[DeviceFault], DeviceFault]):
        """``named`` gives the fault to raise for one that is met within."""
        self._api = api
        self._named = named
        self.context = context
        self._depths = threading.local()

    def __enter__(self) -> None:
        depth = getattr(self._depths, "value", 0)
        if not depth:
            self._api("cuCtxPushCurrent", self.context)
        self._depths.value = depth + 1

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._depths.value -= 1
        if not self._depths.value:
            self._api("cuCtxPopCurrent")
            if isinstance(error, DeviceFault):
                raise self._named(error) from error
