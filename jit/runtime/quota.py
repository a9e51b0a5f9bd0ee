"""How many threads this process may use, and how much memory: what machine, scheduler and container allow."""

from __future__ import annotations

import os
from pathlib import Path

from hlojit.ir.switches import NUM_THREADS

MAXIMUM_THREADS = 257

_CGROUP = Path("/sys/fs/cgroup")


def _cgroup_folders(controller: str) -> list[Path]:
    """The folders of this process' control groups for one controller, innermost first (both cgroup versions)."""
    folders: list[Path] = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return folders
    for line in lines:
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        root = _CGROUP if not names else _CGROUP / controller
        inner = root / path.lstrip("/")
        while True:
            folders.append(inner)
            if inner == root:
                break
            inner = inner.parent
    return folders


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def cpu_quota() -> float | None:
    """Processors that the container's CPU quota amounts to, or None without a quota."""
    quotas = []
    for folder in _cgroup_folders("cpu"):
        words = _read_words(folder / "cpu.max")
        if not words:
            words = _read_words(folder / "cpu.cfs_quota_us") + _read_words(folder / "cpu.cfs_period_us")
        if len(words) == 2 and words[0].isdigit() and int(words[1]) > 0:
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def available_processors() -> int:
    """Processors that this process may run on, by affinity and quota (rounded up)."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    if quota is not None:
        count = min(count, max(1, -int(-quota // 1)))
    return max(1, min(count, MAXIMUM_THREADS))


def default_threads() -> int:
    """``HLOJIT_NUM_THREADS`` if set, else the processors that are available."""
    return NUM_THREADS.count(available_processors(), most=MAXIMUM_THREADS)


def memory_limit() -> int:
    """Bytes that the machine and the container allow this process."""
    limits = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for folder in _cgroup_folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            words = _read_words(folder / name)
            if words and words[0].isdigit():
                limits.append(int(words[0]))
    return min(limits, default=1 << 46)
