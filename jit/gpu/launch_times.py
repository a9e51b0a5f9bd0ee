"""How long a program and its launches take, as the device counts it.

    profiler = Profiler(hlojit.devices("cuda")[0])
    found = profiler.profile(executable, x, y)          # arrays on the device
    found.nanoseconds, found.by_kernel()

Whoever does not ask pays nothing: a profiler has streams and kernels of its own, over a driver that puts a mark before and
behind every launch.  So it launches kernel by kernel what otherwise is one graph; the time of the whole program is that of
the program as Python puts it on the stream, captured as a graph where it is one; that of the native way is not measured here.
The simulator's times are those of the simulator.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast, final

from hlojit.gpu.device import GpuDevice
from hlojit.gpu.driver import Driver, Function, Grid, Mark, Module, Properties, Stream
from hlojit.gpu.memory import Handle
from hlojit.gpu.program_runner import GpuProgram, Resident, Site
from hlojit.ir.errors import ArgumentError

if TYPE_CHECKING:
    from hlojit.arrays import Array
    from hlojit.executable import Executable
    from hlojit.extensions.devices.buffers import Buffer
    from hlojit.extensions.devices.device import Device

WARM_UP: Final = 3
"""Runs before those that count; a graph is made in the second."""
_HOST_NANOSECONDS: Final = 20_000
"""What the host needs to put a launch with its marks on a stream, generously."""
_COPY_RATE: Final = 2_500.0
"""Bytes a nanosecond at which no device copies within itself yet: how much is copied to give the host a lead."""


@final
@dataclass(frozen=True, slots=True)
class LaunchTime:
    """One launch: kernel and phase of it by their symbols, the instruction and the line that it is for."""

    kernel: str
    phase: str
    what: str
    nanoseconds: float


@final
@dataclass(frozen=True, slots=True)
class Profile:
    """A program's times."""

    nanoseconds: tuple[float, ...]
    """Of one run, by Python: each the mean of several runs, one after the other."""
    launches: tuple[LaunchTime, ...]
    """In their order, the median of several runs where these launch the same."""

    def by_kernel(self) -> dict[str, float]:
        """Nanoseconds of a kernel with all its phases, by its symbol: the mean over the program."""
        totals: dict[str, float] = {}
        for each in self.launches:
            totals[each.kernel] = totals.get(each.kernel, 0.0) + each.nanoseconds
        times = Counter((each.kernel, each.phase) for each in self.launches)
        most = {kernel: max(count for (owner, _), count in times.items() if owner == kernel) for kernel in totals}
        return {kernel: total / most[kernel] for kernel, total in totals.items()}


@final
class _Marking:
    """A driver that puts a mark before and behind every launch, and makes no graphs."""

    def __init__(self, driver: Driver):
        self._driver = driver
        self._names: dict[int, str] = {}
        self.launched: list[tuple[str, str, Mark, Mark]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    @property
    def properties(self) -> Properties:
        return replace(
            self._driver.properties, has_graphs=False, no_conditional_graphs="every launch is timed by itself"
        )

    def function(self, module: Module, symbol: str, shared_bytes: int) -> Function:
        found = self._driver.function(module, symbol, shared_bytes)
        self._names[id(found)] = symbol
        return found

    def library(self, call: str) -> Function | None:
        found = self._driver.library(call)
        if found is not None:
            self._names[id(found)] = call
        return found

    def launch(self, function: Function, grid: Grid, addresses: Sequence[int], stream: Stream, what: str) -> None:
        first = self._driver.record_time(stream)
        self._driver.launch(function, grid, addresses, stream, what)
        self.launched.append((self._names[id(function)], what, first, self._driver.record_time(stream)))

    def taken(self) -> list[tuple[str, str, float]]:
        """Phase, instruction and nanoseconds of what was launched since the last time."""
        launched, self.launched = self.launched, []
        return [(name, what, self._driver.elapsed(first, last)) for name, what, first, last in launched]


@final
class Profiler:
    """Takes the time on one device.

    ``lead_bytes`` are copied within the device, as often as it takes, before what is timed: meanwhile the host puts launches
    on the stream, and the device does not wait for it between them.  0 leaves that out, as is right for the simulator.
    """

    def __init__(self, device: Device, lead_bytes: int = 0):
        if not isinstance(device, GpuDevice):
            raise ArgumentError(f"{device} is no GPU whose launches can be timed")
        driver = device.driver
        driver.open()
        self._marking = _Marking(driver)
        self._plain = Site(f"{device} profile", driver, device.condition_images)
        self._marked = Site(f"{device} launches", cast(Driver, self._marking))
        self._lead = [self._plain.pool.allocate(lead_bytes, "a profiler's lead") for _ in range(2)]
        self._lead_bytes = lead_bytes

    def profile(self, executable: Executable, *arguments: Array, runs: int = 3, repeat: int = 10) -> Profile:
        """Time ``repeat`` runs in a row ``runs`` times, and each launch in ``runs`` runs.

        The arguments are arrays on the device.  They are not donated, but a program that writes to one does so.
        """
        code = executable.spec.record.code
        assert isinstance(code, GpuProgram)
        inputs = []
        for each in arguments:
            buffer: Buffer | None = getattr(each, "buffer", None)  # a NumPy array has none
            if buffer is None:
                raise ArgumentError("a program is timed over arrays on the device: hlojit.put them there")
            each.wait()
            inputs.append(buffer.memory().handle)
        return Profile(self._runs(code, inputs, runs, repeat), self._launches(code, inputs, runs))

    def _runs(self, code: GpuProgram, inputs: Sequence[Handle], runs: int, repeat: int) -> tuple[float, ...]:
        site, resident = self._plain, Resident(code, self._plain)
        outputs = _outputs(code, inputs, site)
        for _ in range(WARM_UP):
            _finish(resident, site, inputs, outputs)
        # A graph is one launch; a program that the host reads back from waits for the host anyway.
        per_run = 0 if resident.reads_back else 1
        found = []
        for _ in range(runs):
            self._give_lead(site, repeat * per_run * max(1, min(3, len(code.operations.launches))))
            first = site.driver.record_time(site.stream)
            pending = [resident.run(inputs, outputs, lambda: False) for _ in range(repeat)]
            found.append(site.driver.elapsed(first, site.driver.record_time(site.stream)) / repeat)
            for each in pending:
                each.check(site.uploads)
        return tuple(found)

    def _launches(self, code: GpuProgram, inputs: Sequence[Handle], runs: int) -> tuple[LaunchTime, ...]:
        site, resident = self._marked, Resident(code, self._marked)
        outputs = _outputs(code, inputs, site)
        _finish(resident, site, inputs, outputs)
        self._marking.taken()
        found: list[list[tuple[str, str, float]]] = []
        for _ in range(runs):
            if not resident.reads_back:
                self._give_lead(site, len(code.operations.launches))
            _finish(resident, site, inputs, outputs)
            found.append(self._marking.taken())
        names = {each.library or each.symbol: (each.kernel, each.symbol) for each in code.operations.launches}
        names |= {each.symbol: (each.kernel, each.symbol) for each in code.operations.launches}
        alike = [each for each in found if len(each) == len(found[0])]
        return tuple(
            LaunchTime(*names[name], what, statistics.median(each[number][2] for each in alike))
            for number, (name, what, _) in enumerate(found[0])
        )

    def _give_lead(self, site: Site, launches: int) -> None:
        if self._lead_bytes:
            source, target = self._lead
            for _ in range(1 + int(launches * _HOST_NANOSECONDS / (self._lead_bytes / _COPY_RATE))):
                site.driver.copy(target.address, source.address, self._lead_bytes, site.stream)


def _outputs(code: GpuProgram, inputs: Sequence[Handle], site: Site) -> list[Handle]:
    """Memory for the results: new, or that of an argument which the program writes."""
    givers = {output: number for number, output in code.compiled.donated if output >= 0}
    return [
        inputs[givers[number]] if number in givers else site.pool.allocate(type.nbytes, f"a result of type {type}")
        for number, type in enumerate(code.compiled.outputs)
    ]


def _finish(resident: Resident, site: Site, inputs: Sequence[Handle], outputs: Sequence[Handle]) -> None:
    run = resident.run(inputs, outputs, lambda: False)
    site.driver.synchronize(site.driver.record(site.stream))
    run.check(site.uploads)
