"""The machine at hand: caches and cores from the operating system, or from the processor itself; speeds by its features.

Linux tells caches in ``/sys``, macOS through ``sysctl``; where neither says anything (some containers hide them) an x86
processor is asked by CPUID.  What is still unknown keeps the values of ``GENERIC``.  Speeds are estimates by features, never by
the processor's name, which virtual machines make up.  ``HLOJIT_MACHINE`` replaces any of it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from hlojit.ir.switches import MACHINE
from hlojit.lowering.machine import GENERIC, Cache, Machine, parse_machine

SYSTEM = Path("/sys/devices/system/cpu")


def host_machine(features: Collection[str], architecture: str = platform.machine()) -> Machine:
    """The model of the machine that this process runs on; ``features`` in LLVM's spelling, only those that it has."""
    found = caches_from_system(SYSTEM) or _caches_from_macos()
    if not found and architecture in ("x86_64", "AMD64"):
        from hlojit.cpu.cpuid import cpuid

        found = caches_from_cpuid(cpuid(), 0x8000001D if "sse4a" in features else 4)
    machine = Machine(found or GENERIC.caches, max(1, (os.cpu_count() or 1) // _threads_a_core(SYSTEM)))
    machine = replace(machine, gigahertz=_gigahertz(SYSTEM) or machine.gigahertz, page_bytes=mmap.PAGESIZE)
    return parse_machine(MACHINE.text(), with_speeds(machine, features, architecture))


def with_speeds(machine: Machine, features: Collection[str], architecture: str) -> Machine:
    """Estimated latencies, bandwidths and multiply-adds a cycle.

    From published measurements of the families that have the features: ``sse4a`` is in AMD's processors only, whose
    third-level caches are small and near; ``avx512f`` without it in Intel's servers, whose third level is far away.
    """
    if architecture not in ("x86_64", "AMD64"):
        latencies, bandwidths, multiply_adds = (4.0, 12.0, 60.0), (48.0, 32.0, 16.0), 2.0
    elif "sse4a" in features:
        # The first generation with AVX-512 has units of 256 bits; AVX-VNNI came with those of 512.
        halves = "avx512f" in features and "avxvnni" not in features
        latencies, bandwidths, multiply_adds = (
            (4.0, 14.0, 50.0),
            (64.0 if halves else 128.0, 64.0, 32.0),
            1.0 if halves else 2.0,
        )
    elif "avx512f" in features:
        latencies, bandwidths, multiply_adds = (5.0, 15.0, 240.0), (128.0, 20.0, 8.0), 2.0
    else:
        latencies, bandwidths, multiply_adds = (5.0, 14.0, 60.0), (64.0, 32.0, 12.0), 2.0
    caches = tuple(
        replace(cache, latency=latencies[min(level, 2)], bandwidth=bandwidths[min(level, 2)])
        for level, cache in enumerate(machine.caches)
    )
    return replace(machine, caches=caches, multiply_adds=multiply_adds)


def caches_from_system(root: Path) -> tuple[Cache, ...]:
    """The data caches that Linux reports under ``/sys/devices/system/cpu``, or nothing."""
    found: dict[int, Cache] = {}
    for folder in sorted((root / "cpu0" / "cache").glob("index*")):
        try:
            words = {path.name: path.read_text().strip() for path in folder.iterdir() if path.is_file()}
            if words["type"] == "Instruction":
                continue
            size = int(words["size"].removesuffix("K")) << 10
            ways = int(words.get("ways_of_associativity") or 0) or 8
            line = int(words.get("coherency_line_size") or 0) or 64
            shared = _count(words.get("shared_cpu_list", ""))
            if size > 0:
                found[int(words["level"])] = Cache(size, ways, shared, line=line)
        except (OSError, ValueError, KeyError):
            continue  # a level that is not told in full
    return _in_order(found)


def caches_from_cpuid(cpuid: Callable[[int, int], tuple[int, int, int, int]], leaf: int) -> tuple[Cache, ...]:
    """The data caches by CPUID's deterministic cache parameters: leaf 4 (Intel) or 0x8000001D (AMD)."""
    found: dict[int, Cache] = {}
    if cpuid(leaf & 0x80000000, 0)[0] < leaf:
        return ()
    for part in range(16):
        a, b, c, _ = cpuid(leaf, part)
        if a & 31 == 0:
            break
        if a & 31 != 2:  # 2 is an instruction cache
            ways, line, parts, sets = (b >> 22) + 1, (b & 0xFFF) + 1, (b >> 12 & 0x3FF) + 1, c + 1
            found[a >> 5 & 7] = Cache(ways * line * parts * sets, ways, (a >> 14 & 0xFFF) + 1, line=line)
    return _in_order(found)


def _caches_from_macos() -> tuple[Cache, ...]:
    if platform.system() != "Darwin":
        return ()
    library = ctypes.CDLL(None)

    def number(*names: str) -> int:
        for name in names:
            value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
            if library.sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0) == 0:
                return value.value
        return 0

    line = number("hw.cachelinesize") or 64
    sizes = [number(f"hw.perflevel0.{name}", f"hw.{name}") for name in ("l1dcachesize", "l2cachesize", "l3cachesize")]
    sharing = (1, number("hw.perflevel0.cpusperl2") or 1, number("hw.logicalcpu") or 1)
    return tuple(Cache(size, 8, shared, line=line) for size, shared in zip(sizes, sharing) if size)


def _in_order(found: dict[int, Cache]) -> tuple[Cache, ...]:
    """Levels from the first on; nothing where the first is missing or one is no larger than the one before."""
    caches = [found[level] for level in sorted(found)]
    if not caches or 1 not in found or any(x.size >= y.size for x, y in zip(caches, caches[1:])):
        return ()
    return tuple(caches)


def _count(processors: str) -> int:
    """How many processors a list like ``0-3,8`` names."""
    count = 0
    for part in processors.split(","):
        low, _, high = part.partition("-")
        if low.strip().isdigit():
            count += int(high or low) - int(low) + 1
    return max(1, count)


def _threads_a_core(root: Path) -> int:
    try:
        return _count((root / "cpu0" / "topology" / "thread_siblings_list").read_text())
    except OSError:
        return 1


def _gigahertz(root: Path) -> float:
    """The highest frequency, where the system tells it (virtual machines do not)."""
    try:
        return int((root / "cpu0" / "cpufreq" / "cpuinfo_max_freq").read_text()) / 1e6
    except (OSError, ValueError):
        return 0.0
