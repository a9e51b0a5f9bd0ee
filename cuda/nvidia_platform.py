"""NVIDIA's GPUs as a platform: whether there are any, what code is made for them, and by whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

from hlojit.cuda import conditional_nodes, cublaslt
from hlojit.cuda.assemblers import cubin
from hlojit.cuda.assemblers.assembler import Assembler
from hlojit.cuda.assemblers.choice import chosen_assembler
from hlojit.cuda.assemblers.libraries import software
from hlojit.cuda.device_functions import numba_function_code
from hlojit.cuda.driver_api import DriverApi, driver_api
from hlojit.cuda.nvidia_driver import NvidiaDriver
from hlojit.cuda.nvptx import OLDEST, NvptxDialect, matrix_inputs_of, nvidia_target
from hlojit.gpu.device_functions import IMAGE
from hlojit.gpu.driver import DriverError, Properties
from hlojit.gpu.platforms import Platform
from hlojit.ir.errors import HlojitError
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.target import Target

_DLPACK_CUDA: Final = 2
NOTE: Final = "programs have not been tried on a GPU by those who wrote them"


def reason_against() -> str:
    """Why no NVIDIA GPU can be used here, or an empty string."""
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return "cuda-bindings is not installed (pip install 'hlojit[cuda]')"
    api = driver_api()
    try:
        status = api.cuInit(0)[0]
    except Exception as error:  # of many types, by version: what they have in common is that there is no library
        return f"no NVIDIA driver is installed ({type(error).__name__}: {error})"
    if status != api.CUresult.CUDA_SUCCESS:
        return f"the NVIDIA driver finds no GPU that it can use ({api.explained(status)})"
    try:
        found = [_capability(api, ordinal) for ordinal in range(api("cuDeviceGetCount"))]
    except DriverError as error:
        return f"the NVIDIA driver does not list its GPUs: {error}"
    if not found:
        return "there is no NVIDIA GPU"
    if max(found) < OLDEST:
        newest = ".".join(map(str, max(found)))
        return f"the GPU is too old: its compute capability is {newest}, kernels take {'.'.join(map(str, OLDEST))}"
    return _driver_reason(api)


def _driver_reason(api: DriverApi) -> str:
    """Why the driver does not take the machine code that is made here, or an empty string."""
    driver, made_for = api("cuDriverGetVersion") // 1000, cubin.cuda_version()
    if driver >= made_for:
        return ""
    return (
        f"the NVIDIA driver is too old: it is for CUDA {driver}, the installed nvJitLink makes code for CUDA {made_for}; "
        "update the driver, or uninstall nvidia-nvjitlink to have the driver assemble PTX"
    )


def nvidia_platform() -> Platform:
    """The GPUs of this machine that are like the first one which is new enough; raises ``HlojitError``."""
    if reason := reason_against():
        raise HlojitError(reason)
    api = driver_api()
    capabilities = [_capability(api, ordinal) for ordinal in range(api("cuDeviceGetCount"))]
    chosen = next(each for each in capabilities if each >= OLDEST)
    ordinals = [ordinal for ordinal, each in enumerate(capabilities) if each == chosen]
    drivers = tuple(NvidiaDriver(api, ordinal, _properties(api, ordinal)) for ordinal in ordinals)
    assembler = chosen_assembler()
    target = nvidia_target(chosen, _machine(api, ordinals[0]))

    def assemble(codes: Sequence[KernelCode]) -> Mapping[str, bytes]:
        return {code.symbol: _image(assembler, code, target) for code in codes}

    dialect, emit = NvptxDialect(chosen), numba_function_code
    # What programs are made of depends on whether there is a library; which one it is, on who runs them.
    made_with = software(assembler.name) + ("" if cublaslt.unavailable() else " cublaslt")
    return Platform(
        target, dialect, assemble, drivers, made_with,
        device_function=emit, library=product_library, driver_version=str(api("cuDriverGetVersion")),
    )  # fmt: skip


def product_library() -> tuple[str, str]:
    """cuBLASLt with its version, or why it cannot be used."""
    if reason := cublaslt.unavailable():
        return "", reason
    try:
        return cublaslt.version(), ""
    except Exception as error:  # of many types: what is missing, too old, or not for this driver
        return "", cublaslt.explained(error)


def _image(assembler: Assembler, code: KernelCode, target: Target) -> bytes:
    """Machine code where it can be made here; the driver takes PTX as well, and is slower to load it."""
    ptx = code.ir if code.pipeline == IMAGE else assembler.ptx(code, target)
    return ptx.encode() if cubin.unavailable() else cubin.cubin_of(ptx, target).image


def _attribute(api: DriverApi, ordinal: int, name: str) -> int:
    device = api("cuDeviceGet", ordinal)
    return int(api("cuDeviceGetAttribute", getattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device))


def _capability(api: DriverApi, ordinal: int) -> tuple[int, int]:
    return (
        _attribute(api, ordinal, "COMPUTE_CAPABILITY_MAJOR"),
        _attribute(api, ordinal, "COMPUTE_CAPABILITY_MINOR"),
    )


def _properties(api: DriverApi, ordinal: int) -> Properties:
    device: Any = api("cuDeviceGet", ordinal)
    name = api("cuDeviceGetName", 256, device).split(b"\0")[0].decode(errors="replace").strip()
    return Properties(
        name,
        int(api("cuDeviceTotalMem", device)),
        NOTE,
        dlpack_device=(_DLPACK_CUDA, ordinal),
        no_conditional_graphs=conditional_nodes.reason_against(api),
    )


def _machine(api: DriverApi, ordinal: int) -> GridMachine:
    """What plans need to know, as the driver tells it."""

    def read(name: str) -> int:
        return _attribute(api, ordinal, name)

    # Bits a clock, at two transfers a clock; kilohertz to bytes a nanosecond.
    bandwidth = read("GLOBAL_MEMORY_BUS_WIDTH") / 8 * 2 * read("MEMORY_CLOCK_RATE") * 1e-6
    return GridMachine(
        read("MULTIPROCESSOR_COUNT"),
        warp=read("WARP_SIZE"),
        threads_per_block=read("MAX_THREADS_PER_BLOCK"),
        threads_per_multiprocessor=read("MAX_THREADS_PER_MULTIPROCESSOR"),
        registers=read("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        shared_bytes=read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        gigahertz=read("CLOCK_RATE") * 1e-6 or GridMachine(1).gigahertz,
        asynchronous_copies=True,
        memory_bandwidth=bandwidth or GridMachine(1).memory_bandwidth,
        matrix_inputs=matrix_inputs_of(_capability(api, ordinal)),
    )
