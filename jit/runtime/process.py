"""Settings and counters of the process."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, fields

from hlojit.ir.errors import HlojitError
from hlojit.runtime import quota
from hlojit.runtime.native import native


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counters since the start of the process; subtract two of them to measure what lies between."""

    calls: int
    """Executions of compiled programs."""
    kernels: int
    """Kernels launched, as far as the host programs count them."""
    bytes_moved: int
    """Bytes that kernels read and wrote, as far as the host programs count them."""
    parallel_launches: int
    """Launches that were shared among threads."""
    allocations: int
    """Blocks taken from the memory pool."""
    reuses: int
    """Those of them that had been used before."""
    bytes_in_use: int
    peak_bytes: int
    bytes_mapped: int
    bytes_cached: int
    failed_allocations: int
    mappings: int
    """Mappings asked from the system."""
    page_faults: int
    """Minor and major page faults of the whole process."""

    def __sub__(self, earlier: Statistics) -> Statistics:
        return Statistics(
            **{field.name: getattr(self, field.name) - getattr(earlier, field.name) for field in fields(self)}
        )


def _page_faults() -> int:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return 0
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt


def statistics() -> Statistics:
    """The counters of this process."""
    runtime = native()
    calls = (ctypes.c_int64 * 4).from_address(runtime.hlojit_call_counters())
    memory = (ctypes.c_int64 * 8).from_address(runtime.hlojit_memory_counters())
    counters: list[int] = [*calls, *memory, _page_faults()]
    return Statistics(*counters)


def set_threads(count: int) -> None:
    """Let compiled programs use ``count`` threads, the calling one included.  Results do not depend on it."""
    if not isinstance(count, int) or not 1 <= count <= quota.MAXIMUM_THREADS:
        raise HlojitError(
            f"set_threads({count!r}): the number of threads is an integer from 1 to {quota.MAXIMUM_THREADS}"
        )
    native().hlojit_pool_set_threads(count)


def get_threads() -> int:
    """The number of threads that compiled programs use, the calling one included."""
    return int(native().hlojit_pool_threads())


def native_symbols() -> dict[str, int]:
    """Addresses of the runtime's functions that generated code may call, by symbol."""
    return native().symbols()


def trim() -> None:
    """Give the memory of freed large arrays back to the system."""
    native().hlojit_memory_trim()
