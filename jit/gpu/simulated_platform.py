"""The simulator as a platform: what a back end compiles for and runs on where there is no GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlojit.gpu.device_functions import IMAGE, substitute_code
from hlojit.gpu.platforms import Platform
from hlojit.gpu.simulated_driver import DEFAULT_MEMORY, SimulatedDriver
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.kernel import KernelCode
from hlojit.machine_code.loading import process_target
from hlojit.simt.simulator.dialect import SimulatorDialect
from hlojit.simt.simulator.module import assemble, simulated_target
from hlojit.simt.simulator.records import identity


def simulated_platform(machine: GridMachine, kind: str, *, devices: int = 1, memory: int = DEFAULT_MEMORY) -> Platform:
    """``devices`` simulated GPUs with the plans and the warps of ``machine``; ``kind`` is what they call themselves."""
    processor = process_target()
    host = f"{processor.triple} {processor.cpu} {processor.features} {identity()}"
    drivers = tuple(SimulatedDriver(kind, memory) for _ in range(devices))
    return Platform(
        simulated_target(machine),
        SimulatorDialect(machine.warp),
        _assembled,
        drivers,
        software=host,
        needs=host,
        device_function=substitute_code,
        calls_host=True,
        library=lambda: ("", "the simulator has no library"),
    )


def _assembled(codes: Sequence[KernelCode]) -> Mapping[str, bytes]:
    return {code.symbol: code.ir.encode() if code.pipeline == IMAGE else assemble(code) for code in codes}
