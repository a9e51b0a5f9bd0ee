"""What a call on a GPU costs the processor: microseconds from the call to its return, over a driver that does nothing.

    python tools/launch_cost.py            # one kernel over three arrays, fifty kernels; calls, started and waited for

No GPU is needed and none is used: the functions of NVIDIA's driver are stubs (in Python where Python calls them, native where
native code does).  What is printed is our part of a call; a real driver adds its own, some 2 us for each launch.  The least of
many batches is taken; ``--calls`` prints how often each function of the driver is called in one call.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import hlojit
import numpy as np
from hlojit.cuda.driver_api import DriverApi
from hlojit.cuda.nvidia_driver import NvidiaDriver
from hlojit.cuda.nvptx import H200
from hlojit.extensions import Backend, hookimpl, registry
from hlojit.gpu.backend import GpuBackend
from hlojit.gpu.driver import Properties
from hlojit.gpu.platforms import Platform
from hlojit.gpu.simulated_platform import simulated_platform
from hlojit.machine_code import loading
from hlojit.machine_code.object_code import compile_to_object

BATCH: Final = 200
NATIVE: Final = (
    "cuCtxPushCurrent",
    "cuCtxPopCurrent",
    "cuLaunchKernel",
    "cuMemcpyDtoDAsync",
    "cuEventRecord",
    "cuEventQuery",
    "cuGraphLaunch",
    "cuGraphAddKernelNode",
    "cuGraphAddMemcpyNode",
    "cuGraphExecKernelNodeSetParams",
    "cuGraphExecMemcpyNodeSetParams",
)
"""What native code calls."""
ADD: Final = """
func.func @add(%x: tensor<256x256xf32>, %y: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %0 = stablehlo.add %x, %y : tensor<256x256xf32>
  return %0 : tensor<256x256xf32>
}
"""


def chain(kernels: int) -> str:
    """A program of so many kernels: products do not become one."""
    lines = ["func.func @chain(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> tensor<64x64xf32> {"]
    value = "%x"
    for number in range(kernels):
        lines.append(f"  %{number} = stablehlo.dot_general {value}, %w, contracting_dims = [1] x [0]")
        lines.append("    : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>")
        value = f"%{number}"
    return "\n".join([*lines, f"  return {value} : tensor<64x64xf32>", "}"])


class Stubs:
    """Native functions that count their calls and return 0; what they are given does not matter to the C calling convention."""

    def __init__(self) -> None:
        target = loading.process_target()
        text = "\n".join(
            f"""
            @count.{name} = global i64 0
            define i32 @{name}() {{
              %before = load i64, ptr @count.{name}, align 8
              %after = add i64 %before, 1
              store i64 %after, ptr @count.{name}, align 8
              ret i32 0
            }}"""
            for name in NATIVE
        )
        names = [*NATIVE, *(f"count.{name}" for name in NATIVE)]
        self._code = loading.load_objects([compile_to_object(text, target)], names)
        self._counts = {name: ctypes.c_uint64.from_address(self._code.address(f"count.{name}")) for name in NATIVE}

    def address(self, name: str) -> int:
        """Of a function."""
        return self._code.address(name)

    def counted(self) -> Counter[str]:
        """Calls since the last time."""
        found = Counter({name: count.value for name, count in self._counts.items()})
        for count in self._counts.values():
            count.value = 0
        return found


class IdleCuda:
    """The functions of ``cuda.bindings.driver``: nothing happens."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.stubs = Stubs()
        self._real = driver
        self._numbers = itertools.count(1 << 20, 1 << 20)
        self._pinned: list[Any] = []
        self._made: dict[str, Callable[..., Any]] = {}
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or name == "cuuint64_t":
            return getattr(self._real, name)
        answers: dict[str, Callable[[], tuple[Any, ...]]] = {
            "cuMemAllocAsync": lambda: (next(self._numbers),),
            "cuMemHostAlloc": self._host_memory,
            "cuMemGetInfo": lambda: (1 << 40, 1 << 40),
        }
        success = self._real.CUresult.CUDA_SUCCESS
        if name == "cuGetProcAddress":
            return lambda symbol, *_: (success, self.stubs.address(symbol.decode()), None)
        answer = answers.get(name, lambda: (HANDLES[name](next(self._numbers)),) if name in HANDLES else ())

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls[name] += 1
            return success, *answer()

        # Found at once the next time: looking functions up is no part of what is measured.
        self.__dict__[name] = call
        return call

    def _host_memory(self) -> tuple[Any, ...]:
        self._pinned.append(ctypes.create_string_buffer(4 << 20))
        return (ctypes.addressof(self._pinned[-1]),)


def _handles() -> dict[str, Callable[[int], Any]]:
    from cuda.bindings import driver as real

    return {
        "cuDeviceGet": lambda _: real.CUdevice(0),
        "cuDevicePrimaryCtxRetain": real.CUcontext,
        "cuDeviceGetDefaultMemPool": real.CUmemoryPool,
        "cuStreamCreate": real.CUstream,
        "cuEventCreate": real.CUevent,
        "cuModuleLoadData": real.CUmodule,
        "cuModuleGetFunction": real.CUfunction,
        "cuStreamEndCapture": real.CUgraph,
        "cuGraphCreate": real.CUgraph,
        "cuGraphInstantiate": real.CUgraphExec,
        "cuMemPoolGetAttribute": real.cuuint64_t,
    }


HANDLES: Final = _handles()


class IdleBackend(GpuBackend):
    """NVIDIA's driver over functions that do nothing."""

    name, machine = "idle", "GPU"

    def __init__(self, api: IdleCuda) -> None:
        super().__init__()
        driver = NvidiaDriver(DriverApi(api), 0, Properties("idle GPU", 1 << 40))
        platform = simulated_platform(H200, "idle GPU")
        self._platform = Platform(platform.target, platform.dialect, platform.assemble, (driver,), "idle")

    def unavailable(self) -> str | None:
        """Never."""
        return None

    def platform(self) -> Platform:
        """The same one every time."""
        return self._platform


class IdlePlugin:
    """Brings the back end."""

    hlojit_api = (1, 1)

    def __init__(self, backend: Backend):
        self._backend = backend

    @hookimpl
    def hlojit_backends(self) -> Sequence[Backend]:
        """The one."""
        return [self._backend]


def least(call: Callable[[], Any], batches: int) -> float:
    """Microseconds of one call, at least."""
    best = float("inf")
    for _ in range(batches):
        start = time.perf_counter_ns()
        for _ in range(BATCH):
            call()
        best = min(best, time.perf_counter_ns() - start)
    return best / BATCH / 1e3


def functions() -> dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]]:
    """By what they are: started, called, arguments."""
    x = hlojit.put(np.zeros((256, 256), "f4"), "idle")
    y = hlojit.put(np.ones((256, 256), "f4"), "idle")
    small = hlojit.put(np.ones((64, 64), "f4"), "idle")
    add, many = hlojit.compile(ADD, backend="idle"), hlojit.compile(chain(50), backend="idle")
    jitted = hlojit.jit(lambda x, y: x + y, backend="idle")
    return {
        "1 kernel, 3 arrays": (add.execute, add, (x, y)),
        "1 kernel, 3 arrays, @jit": (jitted.execute, jitted, (x, y)),
        "50 kernels": (many.execute, many, (small, small)),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--calls", action="store_true", help="count the driver's functions, too")
    options = parser.parse_args()
    api = IdleCuda()
    with registry().load().using(IdlePlugin(IdleBackend(api))):
        print(f"{'microseconds of the processor, at least':42}{'execute':>10}{'+ wait':>10}{'call':>10}{'kept':>10}")
        for name, (execute, call, arguments) in functions().items():
            measured = times(execute, call, arguments, options.batches)
            print(f"{name:42}" + "".join(f"{each:10.2f}" for each in measured))
            if options.calls:
                _print_calls(api, execute, arguments)


def times(
    execute: Callable[..., Any], call: Callable[..., Any], arguments: tuple[Any, ...], batches: int
) -> list[float]:
    """Started; started and waited for; called; started while the results are kept, so that each call gets others."""
    kept: list[Any] = []
    return [
        least(lambda: execute(*arguments), batches),
        least(lambda: execute(*arguments).wait(), batches),
        least(lambda: call(*arguments), batches),
        least(lambda: kept.append(execute(*arguments)), 5),
    ]


def _print_calls(api: IdleCuda, execute: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    api.calls.clear()
    api.stubs.counted()
    for _ in range(BATCH):
        execute(*arguments).wait()
    calls = api.stubs.counted() + api.calls
    counted = ", ".join(f"{count / BATCH:g} {name}" for name, count in calls.most_common())
    print(f"    calls of the driver: {counted}")


if __name__ == "__main__":
    main()
