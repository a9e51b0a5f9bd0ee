"""The processor that this process runs on, with its machine model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from hlojit.lowering.target import Target


@cache
def host_target() -> Target:
    """Features as LLVM sees them, caches, cores and speeds as they are found."""
    from hlojit.cpu.machine import host_machine
    from hlojit.machine_code.loading import process_target

    target = process_target()
    features = [feature[1:] for feature in target.features.split(",") if feature.startswith("+")]
    return replace(target, machine=host_machine(features))
