"""Running a program record on a GPU: its operations, put on a stream over the addresses of one call.

A ``GpuProgram`` is what a compiled program is in this process; what of it is on one device - kernels, constants, graphs of
what was launched before - is a ``Resident``, made when it first runs there.  A fixed program that is called with the same
addresses again becomes one graph: launching it costs the same for one kernel and for fifty.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, Final, final

import numpy as np
from hlojit.compiled import CompiledProgram
from hlojit.extensions.devices.rendezvous import Participant
from hlojit.gpu.conditional_graphs import KEPT_GRAPHS, ConditionalGraphs, ConditionImages, load_conditions
from hlojit.gpu.driver import DeviceFault, Driver, DriverError, Function, Graph, Stream
from hlojit.gpu.exchanges import Exchanger, moves_for
from hlojit.gpu.fixed import straightened
from hlojit.gpu.graph_nodes import Conditions
from hlojit.gpu.host_transfers import talk
from hlojit.gpu.memory import DeviceMemory, Handle, MemoryPool
from hlojit.gpu.native_launch import NativeDriver, NativeProgram
from hlojit.gpu.operations import (
    Choose,
    CopyBytes,
    Exchange,
    Jump,
    LaunchKernel,
    Operations,
    Place,
    SetCell,
    SwapCells,
    Talk,
    Unless,
)
from hlojit.gpu.statuses import Run, Statuses
from hlojit.ir.errors import ExecutionError

GRAPH_LAUNCHES: Final = 3
"""Fixed programs with fewer kernels are launched kernel by kernel."""


@final
class LoadedKernel:
    """One kernel on one device: its module and the functions of its phases."""

    __slots__ = ("__weakref__", "_module", "functions")

    def __init__(self, driver: Driver, image: Any, launches: Sequence[LaunchKernel]):
        shared = {each.symbol: each.grid.shared_bytes for each in launches}
        self._module = driver.load(image, tuple(shared))
        self.functions: dict[str, Function] = {
            name: driver.function(self._module, name, nbytes) for name, nbytes in shared.items()
        }
        for each in launches:
            routine = driver.library(each.library) if each.library else None
            if routine is not None:
                self.functions[each.symbol] = routine


@final
class Site:
    """Where programs run: one GPU with the stream for them, memory, and the kernels that are loaded."""

    def __init__(self, name: str, driver: Driver, condition_images: Callable[[], ConditionImages] = dict):
        """``condition_images`` gives those of ``hlojit.simt.conditions``, or none."""
        self.driver = driver
        self._condition_images = condition_images
        self.stream = driver.stream("programs")
        self.uploads = driver.stream("uploads")
        self.pool = MemoryPool(name, driver, self.stream)
        self._kernels: weakref.WeakValueDictionary[tuple[str, ...], LoadedKernel] = weakref.WeakValueDictionary()

    @cached_property
    def native(self) -> NativeDriver | None:
        """What the short ways need: C functions, and streams that do nothing more after a fault; None without both.

        Memory is then kept beside the driver's pool, too: programs find it at the same places, as their graphs do.
        """
        return None if self.driver.properties.recovers else self.driver.native

    def follow(self, stream: Stream, driver: Driver | None = None) -> None:
        """For a transfer that is given up, by Ctrl-C, say: its memory is given back in the order of the programs' stream.

        What is on its way there, or from there, must come before.  ``driver`` is the stream's, if not the site's own.
        """
        with suppress(DriverError):
            self.driver.wait_for(self.stream, (driver or self.driver).record(stream))

    def temporaries(self, nbytes: int, program: str) -> DeviceMemory:
        """Memory for one run; to be referred to until the program is on the stream."""
        if self.native is not None and nbytes:
            return self.pool.scratch(nbytes)
        return self.pool.allocate(nbytes, f"temporaries of {program}")

    def result(self, nbytes: int, holder: str) -> DeviceMemory:
        """Memory for a result."""
        return self.pool.allocate(nbytes, holder) if self.native is None else self.pool.shelf(nbytes, holder).take()

    @cached_property
    def conditions(self) -> Conditions | None:
        """The kernels that set conditions in graphs, where the machine's code can."""
        images = self._condition_images()
        return load_conditions(self.driver, images) if images else None

    def kernel(self, symbol: str, image: Any, launches: Sequence[LaunchKernel]) -> LoadedKernel:
        """A kernel by content: several programs share it, if they have the same done by a library."""
        key = (symbol, *(each.library for each in launches))
        found = self._kernels.get(key)
        if found is None:
            what = f"the code of {launches[0].what} ({len(image):,} bytes)"
            found = self._kernels[key] = self.pool.supplied(what, partial(LoadedKernel, self.driver, image, launches))
        return found


@final
class GpuProgram:
    """A compiled program, ready to be put on devices: the ``code`` of its ``DeviceProgram``."""

    def __init__(self, compiled: CompiledProgram, places: Mapping[str, str]):
        """``places`` says where functions of plugins are written, by what uses them."""
        self.compiled = compiled
        self.places = places
        self._residents: dict[Site, Resident] = {}
        self.starters: Final[dict[Any, Any]] = {}
        """Short ways to devices (``hlojit.gpu.starts``), by their lanes; None where there is none."""

    @cached_property
    def operations(self) -> Operations:
        """The record as operations, read when the program first runs."""
        return Operations(self.compiled.program)

    def on(self, site: Site) -> Resident:
        """The program on a device; the caller holds the device's lock."""
        found = self._residents.get(site)
        if found is None:
            found = self._residents[site] = Resident(self, site)
        return found


@final
class Resident:
    """A program on one device."""

    def __init__(self, program: GpuProgram, site: Site):
        compiled, operations = program.compiled, program.operations
        self._site = site
        self._operations = operations
        self._name = compiled.name
        images = dict(compiled.objects)
        by_kernel: dict[str, list[LaunchKernel]] = {}
        for each in operations.launches:
            by_kernel.setdefault(each.kernel, []).append(each)
        self._kernels = [site.kernel(symbol, images[symbol], each) for symbol, each in by_kernel.items()]
        self._functions = {name: function for each in self._kernels for name, function in each.functions.items()}
        self._constants = [self._uploaded(array) for array in compiled.constants]
        self.arena_bytes: Final = compiled.arena_bytes
        self._statuses: Statuses | None = None
        if operations.has_status:
            self._statuses = Statuses(operations.statuses, site.driver, site.pool, site.uploads, self._name)
        self._numbers, self._zeros = self._for_exchanges(compiled.grid.processes)
        if self._constants or not operations.is_alone:
            self._arrived()
        self._places = program.places
        self._graphs: OrderedDict[tuple[int, ...], Graph | None] = OrderedDict()
        self._makes_graphs = site.driver.properties.has_graphs
        self._steps: list[LaunchKernel | CopyBytes] = []
        self.names: Final = [each.what for each in operations.launches]
        """What is launched, for messages."""
        self._conditionals: ConditionalGraphs | None = None
        if not operations.is_fixed:
            self._conditionals = ConditionalGraphs(site.driver, lambda: site.conditions, operations, self._functions)

    def _for_exchanges(self, processes: int) -> tuple[DeviceMemory, DeviceMemory]:
        """The numbers of all processes, and zeros for what nobody gives."""
        if self._operations.is_alone:
            processes = 0
        zeros = 0
        for each in self._operations.exchanges:
            for process in range(processes):
                zeros = max(zeros, *(nbytes for _, nbytes in moves_for(each, process).zeros), 0)
        return self._uploaded(np.arange(processes, dtype=np.uint32)), self._uploaded(np.zeros(zeros, np.uint8))

    def _uploaded(self, array: np.ndarray[Any, Any]) -> DeviceMemory:
        site = self._site
        memory = site.pool.allocate(array.nbytes, f"constants of {self._name}", site.uploads)
        if array.nbytes:
            upload = partial(site.driver.copy_in, memory.address, array, site.uploads)
            try:
                site.pool.supplied(f"a transfer of constants of {self._name}", upload)
            except BaseException:
                site.follow(site.uploads)
                raise
        return memory

    def _arrived(self) -> None:
        """Wait for the constants: they are put there once, and must not be skipped because of what others did."""
        site = self._site
        try:
            site.driver.synchronize(site.driver.record(site.uploads))
        except DeviceFault as fault:
            site.driver.recover(site.uploads, fault)
            raise

    @property
    def reads_back(self) -> str:
        """Why the host looks at what it computes whenever it runs, or an empty string."""
        return self._conditionals.reason if self._conditionals is not None else ""

    def new_run(self) -> Run:
        """To be handed to ``put``."""
        return Run(self._name, self._statuses, self._places, self.names)

    # ------------------------------------------------------------------------------------------------- by native code

    @property
    def is_short(self) -> bool:
        """Whether what it launches is known, by one process, and nothing is left to do when it has run."""
        return self._operations.is_fixed and self._operations.is_alone and self._statuses is None

    def is_native(self, native: NativeDriver) -> bool:
        """Whether native code can put it on the stream: it is short, and no library does a part of it."""
        return self.is_short and all(native.function(each) is not None for each in self._functions.values())

    def native_program(self, native: NativeDriver) -> NativeProgram:
        """The program as native code: its arguments are the addresses of inputs and results, and that of the arena."""
        operations = self._operations
        arguments = [*range(operations.first_constant), operations.arena]
        constants = {operations.first_constant + number: each.address for number, each in enumerate(self._constants)}
        functions = {name: native.function(each) or 0 for name, each in self._functions.items()}
        self._steps = straightened(operations.code)
        return NativeProgram(native, self._site.stream, self._steps, functions, arguments, constants)

    def failed(self, native: NativeDriver, status: int) -> Exception:
        """What ``NativeProgram.run`` returned, as an exception."""
        number, code = status >> 32, status & 0xFFFF_FFFF
        step = self._steps[number] if number >= 0 else None
        return native.error(code, step.what if isinstance(step, LaunchKernel) else f"start of {self._name}")

    # ------------------------------------------------------------------------------------------------------ by Python

    def run(self, inputs: Sequence[Handle], outputs: Sequence[Handle], stop: Callable[[], bool]) -> Run:
        """``put`` a new run."""
        run = self.new_run()
        self.put(run, inputs, outputs, stop)
        return run

    def put(
        self,
        run: Run,
        inputs: Sequence[Handle],
        outputs: Sequence[Handle],
        stop: Callable[[], bool],
        participant: Participant | None = None,
        *,
        may_wait: bool = True,
    ) -> bool:
        """Put the program on the stream; waits only if it reads back what loops and branches depend on, and for others.

        ``stop`` is then asked at every iteration whether to give up.  Where it may not wait and would have to, it puts
        nothing there and returns False.
        """
        if participant is None and not self._operations.is_alone:
            raise ExecutionError(f"{self._name} is a program for several devices, and was started as one process")
        arena = self._site.temporaries(self.arena_bytes, self._name)
        addresses = [each.address for each in (*inputs, *outputs)]
        status = 0 if run.status is None else run.status.address
        return self.put_at(addresses, arena.address, status, stop, participant, may_wait=may_wait)

    def put_at(
        self,
        addresses: Sequence[int],
        arena: int,
        status: int,
        stop: Callable[[], bool],
        participant: Participant | None = None,
        *,
        may_wait: bool = True,
    ) -> bool:
        """The same over addresses: of inputs and results, temporaries, and what kernels report to."""
        frame = [*addresses, *(each.address for each in self._constants), arena]
        frame += [0] * (self._operations.length - len(frame))
        frame[self._operations.status] = status
        if participant is not None and self._numbers.nbytes:
            frame[self._operations.own_number] = self._numbers.address + 4 * participant.process
            frame[self._operations.zeros] = self._zeros.address
        if self._launched_as_graph(frame):
            return True
        if not may_wait and not self._operations.is_fixed:
            return False
        self._issue(frame, self._site.stream, stop, participant)
        return True

    def _launched_as_graph(self, frame: list[int]) -> bool:
        """Launch the graph for these addresses; of a program without loops it is made when they come for the second time."""
        if self._conditionals is not None:
            launch = partial(self._conditionals.launch, frame, self._site.stream)
            return self._site.pool.supplied(f"the graph of {self._name}", launch)
        if not (self._makes_graphs and len(self._operations.launches) >= GRAPH_LAUNCHES):
            return False
        key = tuple(frame)
        if key not in self._graphs:
            self._graphs[key] = None
            if len(self._graphs) > KEPT_GRAPHS:
                self._graphs.popitem(last=False)
            return False
        try:
            self._site.pool.supplied(f"the graph of {self._name}", partial(self._launch_graph, key, frame))
        except DeviceFault:
            raise
        except DriverError:
            # Nothing is on the stream, and everything can be put there kernel by kernel.
            self._makes_graphs = False
            self._graphs.clear()
            return False
        return True

    def _launch_graph(self, key: tuple[int, ...], frame: list[int]) -> None:
        driver, graph = self._site.driver, self._graphs[key]
        if graph is None:
            graph = self._graphs[key] = driver.capture(partial(self._captured, frame))
        self._graphs.move_to_end(key)
        driver.launch_graph(graph, self._site.stream)

    def _captured(self, frame: list[int], stream: Stream) -> None:
        self._issue(frame, stream, lambda: False, None)

    def _issue(
        self, frame: list[int], stream: Stream, stop: Callable[[], bool], participant: Participant | None
    ) -> None:
        driver, code, functions = self._site.driver, self._operations.code, self._functions
        at = 0
        while at < len(code):
            operation = code[at]
            at += 1
            match operation:
                case LaunchKernel():
                    addresses = [_address(frame, place) for place in operation.places]
                    driver.launch(functions[operation.symbol], operation.grid, addresses, stream, operation.what)
                case CopyBytes():
                    source, target = _address(frame, operation.source), _address(frame, operation.target)
                    driver.copy(target, source, operation.nbytes, stream)
                case Exchange():
                    assert participant is not None
                    source, target = _address(frame, operation.source), _address(frame, operation.target)
                    zeros = frame[self._operations.zeros]
                    Exchanger(operation, source, target, zeros, driver, stream, participant).run()
                case Talk():
                    operands, results = (
                        [_address(frame, place) for place in places]
                        for places in (operation.operands, operation.results)
                    )
                    talk(operation, operands, results, driver, stream, stop, participant)
                case SetCell():
                    frame[operation.slot] = _address(frame, operation.target)
                case SwapCells():
                    first, second = operation.first, operation.second
                    frame[first], frame[second] = frame[second], frame[first]
                case Jump():
                    at = operation.target
                    if stop():
                        raise ExecutionError(f"{self._name}: was stopped")
                case Unless():
                    if not self._read(_address(frame, operation.predicate), "u1"):
                        at = operation.target
                case Choose():
                    at = operation.targets[self._choice(frame, operation)]

    def _choice(self, frame: Sequence[int], operation: Choose) -> int:
        address, last = _address(frame, operation.index), len(operation.targets) - 1
        if operation.is_predicate:
            return 0 if self._read(address, "u1") else 1
        index = self._read(address, "i4")
        return index if 0 <= index <= last else last

    def _read(self, address: int, dtype: str) -> int:
        value = np.zeros(1, dtype)
        self._site.driver.copy_out(value, address, self._site.stream)
        return int(value[0])


def _address(frame: Sequence[int], place: Place) -> int:
    return frame[place.slot] + place.offset
