"""``cuda.bindings.driver`` without a GPU: functions that check what they are given and keep the driver's rules.

Memory is the host's, kernels are the simulator's, and everything happens at once.  Every call is made on the real function
as well: without a driver's library it gets as far as its arguments' types, and says so if they are wrong.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hlojit.simt.simulator.module import SimulatedModule

from .fake_conditionals import FakeConditionals

real = pytest.importorskip("cuda.bindings.driver")
SUCCESS = real.CUresult.CUDA_SUCCESS


def driver_is_missing() -> bool:
    try:
        real.cuInit(0)
    except Exception:
        return True
    return False


MISSING = driver_is_missing()
_checked: set[tuple[Any, ...]] = set()


def check_types(name: str, arguments: tuple[Any, ...]) -> None:
    """The real function takes these arguments, by their number and types."""
    kinds = (name, *map(type, arguments))
    # Once each: looking for the library takes long, and takes a lock, in which destructors may come here again.
    if MISSING and kinds not in _checked:
        _checked.add(kinds)
        with pytest.raises(Exception) as caught:
            getattr(real, name)(*arguments)
        assert type(caught.value).__name__ == "DynamicLibNotFoundError", (name, arguments, caught.value)


class FakeCuda:
    """One GPU with so much memory."""

    def __init__(self, total: int = 1 << 28):
        self.total = total
        self.calls: list[str] = []
        self.sticky: Any = None
        self.fail: dict[str, Any] = {}
        self._numbers = itertools.count(1000)
        self._contexts = threading.local()
        self.memory: dict[int, np.ndarray[Any, Any]] = {}
        self._free: dict[int, tuple[int, np.ndarray[Any, Any]]] = {}
        self.pinned: dict[int, Any] = {}
        self.live: set[Any] = set()
        self._modules: dict[int, bytes] = {}
        self._functions: dict[int, tuple[SimulatedModule, str]] = {}
        self.shared: dict[int, int] = {}
        self.has_peers = True
        self.opened: list[int] = []
        """GPUs that may read the pools of others."""
        self.timing: dict[int, int] = {}
        self.clock = 0
        self._capturing: dict[int, dict[int, Callable[[], None]]] = {}
        self._graphs: dict[int, dict[int, Callable[[], None]]] = {}
        self._templates: dict[int, int] = {}
        self._native: dict[str, Any] = {}
        self.conditionals = FakeConditionals()
        self.attributes = {
            "COMPUTE_CAPABILITY_MAJOR": 9,
            "COMPUTE_CAPABILITY_MINOR": 0,
            "MULTIPROCESSOR_COUNT": 132,
            "WARP_SIZE": 32,
            "MAX_THREADS_PER_BLOCK": 1024,
            "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
            "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 << 10,
            "CLOCK_RATE": 1_980_000,
            "MEMORY_CLOCK_RATE": 3_201_000,
            "GLOBAL_MEMORY_BUS_WIDTH": 6144,
        }

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or name == "cuuint64_t":
            return getattr(real, name)
        function = getattr(self, f"do_{name}")

        def call(*arguments: Any, is_native: bool = False) -> tuple[Any, ...]:
            self.calls.append(name)
            if not is_native:
                check_types(name, arguments)
            if name not in CONTEXT_FREE:
                assert self.contexts, f"{name} without a context"
            if name in self.fail:
                return (self.fail.pop(name), *[None] * 2)[:2]
            if self.sticky is not None and name not in CONTEXT_FREE:
                return (self.sticky, None)
            try:
                result = function(*arguments)
            except FakeError as error:
                return (error.args[0], None)
            return (
                (SUCCESS, *result)
                if isinstance(result, tuple)
                else (SUCCESS, result)
                if result is not None
                else (SUCCESS,)
            )

        return call

    def do_cuGetProcAddress(self, symbol: bytes, version: int, flags: int) -> Any:
        assert version == 12000 and flags == 1
        name = symbol.decode()
        if name not in self._native:
            self._native[name] = ctypes.CFUNCTYPE(ctypes.c_int, *NATIVE[name])(self._natively(name))
        return ctypes.cast(self._native[name], ctypes.c_void_p).value, real.CUdriverProcAddressQueryResult(0)

    def _natively(self, name: str) -> Callable[..., int]:
        """The function as native code calls it: handles are numbers, results are written to memory."""

        def call(*arguments: Any) -> int:
            given = [argument or 0 for argument in arguments]
            results = 1 if name in ("cuCtxPopCurrent", "cuGraphAddKernelNode", "cuGraphAddMemcpyNode") else 0
            status, *values = getattr(self, name)(*given[results:], is_native=True)
            for address, value in zip(given[:results], values if status == SUCCESS else ()):
                ctypes.c_uint64.from_address(address).value = int(value)
            return int(status)

        return call

    @property
    def contexts(self) -> list[Any]:
        if not hasattr(self._contexts, "stack"):
            self._contexts.stack = []
        stack: list[Any] = self._contexts.stack
        return stack

    def _new(self, kind: Any) -> Any:
        made = kind(next(self._numbers))
        self.live.add((kind.__name__, int(made)))
        return made

    def _gone(self, handle: Any) -> None:
        self.live.remove((type(handle).__name__, int(handle)))

    # ------------------------------------------------------------------------------------------- devices, contexts

    def do_cuInit(self, flags: int) -> None:
        assert flags == 0

    def do_cuDriverGetVersion(self) -> Any:
        return 13050

    def do_cuGetErrorName(self, status: Any) -> Any:
        return status.name.encode()

    def do_cuGetErrorString(self, status: Any) -> Any:
        return b"as the driver explains it"

    def do_cuDeviceGetCount(self) -> Any:
        return 1

    def do_cuDeviceGet(self, ordinal: int) -> Any:
        return real.CUdevice(ordinal)

    def do_cuDeviceGetName(self, length: int, device: Any) -> Any:
        return b"NVIDIA Fake 9000\0\0\0"[:length]

    def do_cuDeviceTotalMem(self, device: Any) -> Any:
        return self.total

    def do_cuDeviceGetAttribute(self, attribute: Any, device: Any) -> Any:
        return self.attributes[attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def do_cuDevicePrimaryCtxRetain(self, device: Any) -> Any:
        return real.CUcontext(77)

    def do_cuCtxPushCurrent(self, context: Any) -> None:
        self.contexts.append(context)

    def do_cuCtxPopCurrent(self) -> Any:
        return self.contexts.pop()

    def do_cuDeviceGetDefaultMemPool(self, device: Any) -> Any:
        return real.CUmemoryPool(5)

    def do_cuMemPoolSetAttribute(self, pool: Any, attribute: Any, value: Any) -> None:
        assert int(value) == 2**64 - 1

    def do_cuMemPoolGetAttribute(self, pool: Any, attribute: Any) -> Any:
        return real.cuuint64_t(0)

    def do_cuMemPoolTrimTo(self, pool: Any, kept: int) -> None:
        assert kept == 0

    # ------------------------------------------------------------------------------------------------------ memory

    @property
    def used(self) -> int:
        return sum(each.nbytes for each in self.memory.values())

    def do_cuMemGetInfo(self) -> Any:
        return self.total - self.used, self.total

    def do_cuMemAllocAsync(self, nbytes: int, stream: Any) -> Any:
        assert nbytes > 0
        assert int(stream) not in self._capturing, "memory would be a node of the graph"
        if self.used + nbytes > self.total:
            raise FakeError(real.CUresult.CUDA_ERROR_OUT_OF_MEMORY)
        address, whole = self._free.pop(nbytes, None) or self._fresh(nbytes)
        whole[...] = 0xFF
        self.memory[address] = whole
        return real.CUdeviceptr(address)

    def do_cuMemFreeAsync(self, address: int, stream: Any) -> None:
        whole = self.memory.pop(int(address))
        self._free[whole.nbytes - 256] = int(address), whole

    def _fresh(self, nbytes: int) -> tuple[int, np.ndarray[Any, Any]]:
        whole = np.empty(nbytes + 256, np.uint8)
        return -(-whole.ctypes.data // 256) * 256, whole

    def do_cuMemHostAlloc(self, nbytes: int, flags: int) -> Any:
        memory = ctypes.create_string_buffer(nbytes)
        self.pinned[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def _move(self, stream: Any, target: int, source: int, nbytes: int) -> None:
        self._put(stream, lambda: ctypes.memmove(int(target), int(source), nbytes))

    def do_cuDeviceCanAccessPeer(self, device: Any, peer: Any) -> Any:
        assert int(device) != int(peer)
        return int(self.has_peers)

    def do_cuMemPoolSetAccess(self, pool: Any, descriptors: list[Any], count: int) -> None:
        assert count == len(descriptors) == 1
        assert descriptors[0].location.type.name == "CU_MEM_LOCATION_TYPE_DEVICE"
        assert descriptors[0].flags.name == "CU_MEM_ACCESS_FLAGS_PROT_READWRITE"
        self.opened.append(descriptors[0].location.id)

    def do_cuMemcpyPeerAsync(self, target: int, to: Any, source: int, of: Any, nbytes: int, stream: Any) -> None:
        assert type(to) is type(of) is real.CUcontext
        self._move(stream, target, source, nbytes)

    def do_cuMemcpyHtoDAsync(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        assert source in self.pinned
        self._move(stream, target, source, nbytes)

    def do_cuMemcpyDtoHAsync(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        assert target in self.pinned
        self._move(stream, target, source, nbytes)

    def do_cuMemcpyDtoDAsync(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        self._move(stream, target, source, nbytes)

    # ----------------------------------------------------------------------------------------------------- streams

    def _put(self, stream: Any, work: Callable[[], Any]) -> None:
        if int(stream) in self._capturing:
            node = next(self._numbers)
            self.conditionals.captured(stream, node)
            self._capturing[int(stream)][node] = work
        else:
            work()

    def do_cuStreamCreate(self, flags: int) -> Any:
        assert flags == 1, "one that waits for the default stream"
        return self._new(real.CUstream)

    def do_cuStreamSynchronize(self, stream: Any) -> None:
        pass

    def do_cuCtxSynchronize(self) -> None:
        pass

    def do_cuEventCreate(self, flags: int) -> Any:
        made = self._new(real.CUevent)
        if flags == 0:
            self.timing[int(made)] = 0
        else:
            assert flags == 2, "one that measures no time"
        return made

    def do_cuEventRecord(self, event: Any, stream: Any) -> None:
        assert int(stream) not in self._capturing
        if int(event) in self.timing:
            self.timing[int(event)] = self.clock = self.clock + 1

    def do_cuEventElapsedTime(self, first: Any, last: Any) -> Any:
        """A launch takes a millisecond here, and so does recording an event that measures."""
        return float(self.timing[int(last)] - self.timing[int(first)])

    def do_cuEventQuery(self, event: Any) -> None:
        assert ("CUevent", int(event)) in self.live

    def do_cuEventSynchronize(self, event: Any) -> None:
        pass

    def do_cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        assert flags == 0

    # ----------------------------------------------------------------------------------------------------- kernels

    def do_cuModuleLoadData(self, image: bytes) -> Any:
        made = self._new(real.CUmodule)
        self._modules[int(made)] = image
        return made

    def do_cuModuleUnload(self, module: Any) -> None:
        self._gone(module)

    def do_cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        made = real.CUfunction(next(self._numbers))
        assert b"." not in name, "PTX has no dots in names"
        symbol = name.decode().replace("$", ".")
        self._functions[int(made)] = SimulatedModule([self._modules[int(module)]], [symbol]), symbol
        return made

    def do_cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> None:
        assert attribute.name == "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
        self.shared[int(function)] = value

    def do_cuLaunchKernel(self, function: Any, *arguments: Any) -> None:
        *shape, stream, parameters, extra = arguments
        self._put(stream, self._launch(function, *shape, parameters, extra))

    def _launch(self, function: Any, *arguments: Any) -> Callable[[], None]:
        """What a launch does; its parameters are read at once."""
        blocks, y, z, threads, v, w, shared, parameters, extra = arguments
        assert (y, z, v, w, extra) == (1, 1, 1, 1, 0)
        assert shared <= self.shared.get(int(function), 48 << 10)
        module, symbol = self._functions[int(function)]
        count = len(module.facts(symbol).buffers)
        pointers = (ctypes.c_void_p * count).from_address(parameters)
        addresses = [ctypes.c_uint64.from_address(pointer or 0).value for pointer in pointers]

        def run() -> None:
            for address, buffer in zip(addresses, module.facts(symbol).buffers):
                # What has no bytes may be a number.
                if buffer.nbytes and not any(
                    start <= address < start + each.nbytes for start, each in self.memory.items()
                ):
                    self.sticky = real.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
                    return
            self.clock += 1
            module.launch(symbol, addresses, blocks, threads, shared)

        return run

    def do_cuStreamBeginCapture(self, stream: Any, mode: Any) -> None:
        assert mode.name == "CU_STREAM_CAPTURE_MODE_RELAXED"
        self._capturing[int(stream)] = {}

    def do_cuStreamEndCapture(self, stream: Any) -> Any:
        if (known := self.conditionals.ended(stream)) is not None:
            self._capturing.pop(int(stream))
            return known
        made = self._new(real.CUgraph)
        self._graphs[int(made)] = self._capturing.pop(int(stream))
        return made

    def do_cuGraphCreate(self, flags: int) -> Any:
        assert flags == 0
        made = self._new(real.CUgraph)
        self._graphs[int(made)] = {}
        return made

    def _add(self, graph: int, before: int, count: int, work: Callable[[], None]) -> int:
        nodes = self._graphs[graph]
        named = [ctypes.c_uint64.from_address(before + 8 * number).value for number in range(count)]
        assert named == list(nodes)[-1:], "each node is behind the one before"
        nodes[made := next(self._numbers)] = work
        return made

    def _described(self, parameters: int) -> Callable[[], None]:
        """The launch of a node, read as ``cuda.bindings`` reads it."""
        found = real.CUDA_KERNEL_NODE_PARAMS(_ptr=parameters)
        blocks, threads = [[getattr(found, f"{kind}Dim{axis}") for axis in "XYZ"] for kind in ("grid", "block")]
        assert int(found.kern) == int(found.ctx) == 0
        shape = (*blocks, *threads, found.sharedMemBytes)
        return self._launch(found.func, *shape, int(found.kernelParams), int(found.extra))

    def _described_copy(self, parameters: int, context: int) -> Callable[[], None]:
        found = real.CUDA_MEMCPY3D(_ptr=parameters)
        assert context == 77 and (found.Height, found.Depth) == (1, 1)
        assert found.srcMemoryType == found.dstMemoryType == real.CUmemorytype.CU_MEMORYTYPE_DEVICE
        others = [f"{end}{what}" for end in ("src", "dst") for what in ("XInBytes", "Y", "Z", "LOD", "Pitch", "Height")]
        assert not any(getattr(found, name) for name in others)
        target, source, nbytes = int(found.dstDevice), int(found.srcDevice), found.WidthInBytes
        return lambda: ctypes.memmove(target, source, nbytes) and None

    def do_cuGraphAddKernelNode(self, graph: int, before: int, count: int, parameters: int) -> Any:
        return self._add(graph, before, count, self._described(parameters))

    def do_cuGraphAddMemcpyNode(self, graph: int, before: int, count: int, parameters: int, context: int) -> Any:
        return self._add(graph, before, count, self._described_copy(parameters, context))

    def _tell(self, instantiated: Any, node: Any, work: Callable[[], None]) -> None:
        template = self._graphs[self._templates[int(instantiated)]]
        if int(node) in template:
            self._graphs[int(instantiated)][int(node)] = work
        else:
            self.conditionals.body_of(int(node))[int(node)] = work

    def do_cuGraphExecKernelNodeSetParams(self, instantiated: Any, node: Any, parameters: Any) -> None:
        self._tell(instantiated, node, self._described(_address(parameters)))

    def do_cuGraphExecMemcpyNodeSetParams(self, instantiated: Any, node: Any, parameters: Any, context: Any) -> None:
        self._tell(instantiated, node, self._described_copy(_address(parameters), int(context)))

    def do_cuStreamBeginCaptureToGraph(
        self, stream: Any, graph: Any, nodes: None, edges: None, number: int, mode: Any
    ) -> None:
        assert (nodes, edges, number) == (None, None, 0) and mode.name == "CU_STREAM_CAPTURE_MODE_RELAXED"
        assert int(stream) not in self._capturing, "the stream is capturing"
        self._capturing[int(stream)] = self._graphs[int(graph)]
        self.conditionals.begun(stream, graph)

    def do_cuStreamGetCaptureInfo(self, stream: Any) -> Any:
        return self.conditionals.information(stream)

    def do_cuStreamUpdateCaptureDependencies(
        self, stream: Any, nodes: list[Any], edges: None, number: int, flags: Any
    ) -> None:
        assert edges is None and number == len(nodes) == 1 and flags.name == "CU_STREAM_SET_CAPTURE_DEPENDENCIES"
        self.conditionals.set_last(stream, nodes[0])

    def do_cuGraphConditionalHandleCreate(self, graph: Any, context: Any, value: int, flags: int) -> Any:
        assert (int(context), value, flags) == (77, 0, 0)
        return self.conditionals.new_handle(graph)

    def do_cuGraphAddNode(self, graph: Any, nodes: list[Any], edges: list[Any], number: int, parameters: Any) -> Any:
        assert len(nodes) == number == 1
        bodies = [real.CUgraph(next(self._numbers)) for _ in range(parameters.conditional.size)]
        works = [self._graphs.setdefault(int(body), {}) for body in bodies]
        self._graphs[int(graph)][next(self._numbers)] = self.conditionals.work(parameters.conditional, works)
        return self.conditionals.add(graph, nodes[0], parameters, bodies)

    def do_cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        self.conditionals.check(graph)
        made = self._new(real.CUgraphExec)
        self._graphs[int(made)] = dict(self._graphs[int(graph)])
        self._templates[int(made)] = int(graph)
        return made

    def do_cuGraphDestroy(self, graph: Any) -> None:
        self._gone(graph)
        del self._graphs[int(graph)]

    def do_cuGraphExecDestroy(self, graph: Any) -> None:
        self._gone(graph)

    def do_cuGraphLaunch(self, graph: Any, stream: Any) -> None:
        for work in list(self._graphs[int(graph)].values()):
            self._put(stream, work)


def _address(parameters: Any) -> int:
    """Of a struct, which C functions are given and Python functions have."""
    return parameters if isinstance(parameters, int) else int(parameters.getPtr())


class FakeError(Exception):
    """A status that is not success."""


_POINTER, _INT, _WORD = ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint64
NATIVE: dict[str, tuple[Any, ...]] = {
    "cuCtxPushCurrent": (_POINTER,),
    "cuCtxPopCurrent": (_POINTER,),
    "cuLaunchKernel": (_POINTER, *[_INT] * 7, *[_POINTER] * 3),
    "cuMemcpyDtoDAsync": (_WORD, _WORD, ctypes.c_size_t, _POINTER),
    "cuEventRecord": (_POINTER, _POINTER),
    "cuEventQuery": (_POINTER,),
    "cuGraphLaunch": (_POINTER, _POINTER),
    "cuGraphAddKernelNode": (_POINTER, _POINTER, _POINTER, ctypes.c_size_t, _POINTER),
    "cuGraphAddMemcpyNode": (_POINTER, _POINTER, _POINTER, ctypes.c_size_t, _POINTER, _POINTER),
    "cuGraphExecKernelNodeSetParams": (_POINTER, _POINTER, _POINTER),
    "cuGraphExecMemcpyNodeSetParams": (_POINTER, _POINTER, _POINTER, _POINTER),
}
"""Parameters of the C functions, by cuda.h: those that native code calls."""
CONTEXT_FREE = frozenset(
    "cuInit cuDriverGetVersion cuGetProcAddress cuGetErrorName cuGetErrorString cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceTotalMem "
    "cuDeviceGetAttribute cuDevicePrimaryCtxRetain cuCtxPushCurrent cuCtxPopCurrent".split()
)
