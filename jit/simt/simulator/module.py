"""From texts of simulated kernels to objects, and from objects to launches."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Any, Final, final

from hlojit.ir.errors import ExecutionError, HlojitError
from hlojit.ir.once import Once
from hlojit.lowering.abi import CONTEXT, CONTEXT_BYTES, Field, Status
from hlojit.lowering.grid_machine import GridMachine
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.program import LaunchName
from hlojit.lowering.target import Target
from hlojit.runtime import layout
from hlojit.runtime.native import native
from hlojit.simt.access import BUFFER_ALIGNMENT
from hlojit.simt.simulator.facts import KernelFacts, facts_symbol
from hlojit.simt.simulator.faults import fault_of
from hlojit.simt.simulator.records import BLOCK, LANE_BYTES, LAUNCH, RECORDS, SEVERAL_BLOCKS, nbytes

_SYMBOLS: Final = (
    "hlojit_simulator_open",
    "hlojit_simulator_begin",
    "hlojit_simulator_close",
    "hlojit_simulator_run",
    "hlojit_simulator_frame",
    "hlojit_simulator_ballot",
    "hlojit_simulator_outside",
    "hlojit_simulator_misaligned",
    "hlojit_simulator_shared",
    "hlojit_simulator_buffer",
    "hlojit_simulator_copy",
    "hlojit_simulator_commit",
    "hlojit_simulator_wait",
)
"""What simulated kernels call."""
_LAUNCH_SYMBOL: Final = "hlojit_simulator_launch"
_RANGES_PER_THREAD: Final = 8
_MOST_BLOCKS: Final = (1 << 31) - 1
_CELL_BYTES: Final = 16
_MOST_CELL_BYTES: Final = 1 << 29
"""What noting who accesses the elements of buffers may take, unless it is asked for."""


def simulated_target(machine: GridMachine) -> Target:
    """What kernels for the simulator are emitted for: plans see a machine with threads, nothing of the processor."""
    return Target("simulator", "any", "", 128, 255, unroll=1, grid=machine)


def assemble(code: KernelCode) -> bytes:
    """The object of a kernel that was emitted with a ``SimulatorDialect``."""
    from hlojit.machine_code.loading import process_target
    from hlojit.machine_code.object_code import compile_to_object

    pipeline = "coroutines" if "presplitcoroutine" in code.ir else "inline"
    return compile_to_object(code.ir, process_target(), pipeline=pipeline, linked=[text for _, text in code.linked])


def scheduler_source() -> str:
    """The LLVM IR of what simulated kernels call."""
    folder = resources.files(__package__)
    texts = [(folder / name).read_text(encoding="utf-8") for name in ("scheduler.ll", "races.ll")]
    return "\n".join([layout.accessors({**layout.RECORDS, **RECORDS}), *texts]).replace("LANE_BYTES", str(LANE_BYTES))


@final
class _Scheduler:
    """The loaded scheduler; there is one a process."""

    def __init__(self) -> None:
        from hlojit.machine_code import loading

        assert nbytes(BLOCK) <= 256 and nbytes(LAUNCH) <= CONTEXT_BYTES
        image = loading.kept_object(scheduler_source(), loading.process_target(), pipeline="inline")
        runtime = native()
        code = loading.load_objects([image], (*_SYMBOLS, _LAUNCH_SYMBOL), runtime.symbols())
        code.keep_for_ever()
        self.symbols = runtime.symbols() | {name: code.address(name) for name in _SYMBOLS}
        parameters = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        # Called with the GIL: native code releases it, and takes it again when a poll has signals handled.
        self.launch = ctypes.PYFUNCTYPE(ctypes.c_int32, *parameters)(code.address(_LAUNCH_SYMBOL))
        self.allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(runtime.addresses["hlojit_allocate"])
        self.release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(runtime.addresses["hlojit_release"])


_scheduler: Final = Once(_Scheduler)


@final
class _Record:
    """Memory of a record, by the names of its fields."""

    def __init__(self, fields: Mapping[str, Field], **values: int):
        self._fields = fields
        self._memory = ctypes.create_string_buffer(CONTEXT_BYTES)
        for name, value in values.items():
            self._place(name).value = value

    def _place(self, name: str) -> Any:
        field = self._fields[name]
        kind = ctypes.c_int32 if field.type == "i32" else ctypes.c_int64
        return kind.from_buffer(self._memory, field.offset)

    def __getitem__(self, name: str) -> int:
        return int(self._place(name).value)

    @property
    def address(self) -> int:
        return ctypes.addressof(self._memory)

    def values(self) -> dict[str, int]:
        return {name: self[name] for name in self._fields}


@final
class SimulatedModule:
    """Objects of simulated kernels, loaded; callable from several threads at once."""

    def __init__(self, objects: Iterable[bytes | memoryview], symbols: Iterable[str]):
        from hlojit.machine_code.loading import load_objects

        symbols = tuple(symbols)
        exports = [each for symbol in symbols for each in (symbol, facts_symbol(symbol))]
        self._native = _scheduler()
        self._code = load_objects(objects, exports, self._native.symbols)
        self._facts = {
            symbol: KernelFacts.of_text(ctypes.string_at(self._code.address(facts_symbol(symbol))).decode())
            for symbol in symbols
        }

    def facts(self, symbol: str) -> KernelFacts:
        """What is known of a kernel."""
        return self._facts[symbol]

    def address(self, symbol: str) -> int:
        """Address of a kernel: ``void symbol(ptr context, ptr buffers, i64 first, i64 last)`` over blocks."""
        return self._code.address(symbol)

    def launch(
        self,
        symbol: str,
        addresses: Sequence[int],
        blocks: int,
        threads: int,
        shared_bytes: int = 0,
        *,
        what: str = "",
        check_races: bool | None = None,
    ) -> None:
        """Run a kernel over its blocks, on as many of the process' threads as programs may use, and wait for it.

        ``addresses`` are those of its buffers, multiples of 256 bytes.  ``what`` is for messages: the instruction that the
        kernel is, and where it stands.  ``check_races`` notes who accesses the elements of buffers that the kernel writes,
        which takes 16 bytes an element; by default where that is not too much.  Shared memory is always checked.

        Raises ``KernelFaultError`` for what a kernel may not do.
        """
        facts = self._facts[symbol]
        _check_addresses(symbol, facts, addresses)
        if not 0 <= blocks <= _MOST_BLOCKS:
            raise HlojitError(f"kernel {symbol}: {blocks:,} blocks; a launch has at most {_MOST_BLOCKS:,}")
        allowed = int(native().hlojit_pool_threads())
        grain = max(1, blocks // (_RANGES_PER_THREAD * allowed))
        alone = int(allowed == 1 or blocks <= grain)
        table = _table(addresses)
        with self._cells(facts, addresses, check_races if blocks < SEVERAL_BLOCKS else False) as cells:
            places = _table(cells)
            cells_at = ctypes.addressof(places)
            launch = _Record(LAUNCH, threads=threads, shared_bytes=shared_bytes, alone=alone, cells=cells_at)
            context = _Record(CONTEXT, threads=allowed, user=launch.address, thread=threading.get_ident())
            status = self._native.launch(context.address, self.address(symbol), ctypes.addressof(table), blocks, grain)
        if status:
            members = what.members if isinstance(what, LaunchName) else ()
            raise _explained(status, context, launch, facts.named(members), symbol, what)

    @contextmanager
    def _cells(self, facts: KernelFacts, addresses: Sequence[int], wanted: bool | None) -> Iterator[list[int]]:
        """For every buffer where it is noted who accesses its elements (nobody yet), or 0.

        An operand in the place of a result has the result's.  The memory is the pool's, whose pages are used again.
        """
        places = [(address, buffer.itemsize) for address, buffer in zip(addresses, facts.buffers)]
        written = {place for place, buffer in zip(places, facts.buffers) if buffer.is_written}
        needed = dict.fromkeys(sorted(written), 0)
        for place, buffer in zip(places, facts.buffers):
            if place in written:
                needed[place] = max(needed[place], _CELL_BYTES * (buffer.nbytes // buffer.itemsize))
        total = sum(needed.values())
        if not total or wanted is False or (wanted is None and total > _MOST_CELL_BYTES):
            yield [0] * len(places)
            return
        memory = self._native.allocate(total)
        if not memory:
            raise ExecutionError(f"no memory for {total:,} bytes to note races in; launch with check_races=False")
        try:
            ctypes.memset(memory, 0, total)
            begins = dict(zip(needed, itertools.accumulate(needed.values(), initial=memory)))
            yield [begins.get(place, 0) for place in places]
        finally:
            self._native.release(memory)


def _table(addresses: Sequence[int]) -> Any:
    return (ctypes.c_void_p * max(1, len(addresses)))(*addresses)


def _check_addresses(symbol: str, facts: KernelFacts, addresses: Sequence[int]) -> None:
    if len(addresses) != len(facts.buffers):
        raise HlojitError(f"kernel {symbol} has {len(facts.buffers)} buffers, {len(addresses)} addresses were given")
    for buffer, address in zip(facts.buffers, addresses):
        # Nothing lies in a buffer without bytes; numbers that kernels take are handed over like addresses of such.
        if buffer.nbytes and (address % BUFFER_ALIGNMENT or not address):
            raise HlojitError(
                f"kernel {symbol}: {buffer.what} lies at {address:#x}, which is no multiple of {BUFFER_ALIGNMENT} bytes"
            )


def _explained(
    status: int, context: _Record, launch: _Record, facts: KernelFacts, symbol: str, what: str
) -> ExecutionError:
    if launch["claimed"]:
        return fault_of(launch.values(), facts, symbol, what)
    head = f"kernel {symbol}{f' ({what})' if what else ''}"
    if status == Status.OUT_OF_MEMORY:
        return ExecutionError(f"{head}: the simulator has no memory for {context['detail0']:,} bytes")
    return ExecutionError(f"{head} failed with status {status}")
