"""Choosing among the candidates of kernels by measuring them, where somebody asks for it (``CompileOptions.autotune``).

    tuner = Autotuner(platform, cache)
    code = tuner.adapted(instruction, code, options)        # the kernel that a program is to launch

The result is kept on disk (kind ``tuned``) under the content of the kernel, the names of the candidates, the GPU's model, and
the versions of driver and library.  With ``same-bits`` the candidates are those that combine in the order of the default, so
that a program gives the same bits whatever was measured; with ``any`` they are all.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final, final

from hlojit.codegen.kernel_cache import KernelCache
from hlojit.disk_cache import disk_cache
from hlojit.extensions.backends.backend import CompileOptions
from hlojit.gpu.driver import Driver, DriverError, Grid, Stream
from hlojit.gpu.libraries import is_for_library, with_libraries
from hlojit.gpu.measuring import LostDevice, Run, buffers, measured, settled
from hlojit.gpu.platforms import Platform
from hlojit.ir.binary import FormatError, Reader, Writer
from hlojit.ir.errors import HlojitError
from hlojit.ir.files import sealed, unsealed
from hlojit.ir.graph import Instruction
from hlojit.ir.types import TensorType
from hlojit.lowering.candidates import LIBRARY, Candidate, library_way
from hlojit.lowering.kernel import KernelCode, Phase
from hlojit.lowering.structure import isolated
from hlojit.simt.kernels import emit_kernel, kernel_candidates

SAME_BITS: Final = "same-bits"
ANY: Final = "any"
WORTH_IT: Final = 0.98
"""The share of the default's time that another candidate has to stay below."""
MOST_SECONDS: Final = 10.0
"""For the candidates of one kernel, assembling them included."""
_KIND: Final = "tuned"
_MAGIC: Final = b"hlojitt\n"
_VERSION: Final = 1
_LOGGER: Final = logging.getLogger("hlojit")


@final
@dataclass(frozen=True, slots=True)
class Tuning:
    """What came of the candidates of one kernel: the one that is taken, nanoseconds, and why others have none."""

    chosen: str
    times: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


@final
class NotMeasured(HlojitError):
    """The candidates of a kernel cannot be measured now."""


_RECORDS: Final = {"Tuning": Tuning}


@final
class Autotuner:
    """For one platform; see the module's docstring.  May be used by several threads, which measure one after the other."""

    def __init__(self, platform: Platform, cache: KernelCache):
        self._platform = platform
        self._cache = cache
        self._lock = threading.RLock()
        self._known: dict[str, Tuning] = {}
        self._streams: dict[int, Stream] = {}
        self._told: set[str] = set()

    def identity(self) -> str:
        """What times depend on besides the kernels and their target."""
        kind = self._driver.properties.kind if self._platform.drivers else ""
        return f"{kind}\0{self._platform.driver_version}\0{self._platform.library()[0]}"

    @property
    def _driver(self) -> Driver:
        return self._platform.drivers[0]

    def default(self, instruction: Instruction, code: KernelCode, libraries: str) -> KernelCode:
        """The kernel that is taken where nothing is measured: ``code``, or that of a group whose product a library computes.

        As of products alone, a library computes those of groups that take one launch.
        """
        (first, *others), target = code.phases, self._platform.target
        if others or first.library or not is_for_library(instruction, target, libraries):
            return code
        return self._made(instruction, code, LIBRARY) if self._platform.library()[0] else code

    def adapted(
        self,
        instruction: Instruction,
        code: KernelCode,
        default: KernelCode,
        options: CompileOptions,
        given_up: list[str],
    ) -> tuple[KernelCode, KernelCode]:
        """The kernel that a program with these options takes for an instruction, as it launches it.

        ``code`` is the instruction's, ``default`` what is taken where nothing is measured.  The first of both is the cache's,
        with whatever a library may do of it; the second is what this program is to have of it.  ``given_up`` gets the reason if
        the candidates cannot be measured now: the default stays, and nothing is kept.
        """
        plain = with_libraries(default, options.libraries)
        listed = self._choices(instruction, plain, options)
        if len(listed) < 2 or code.unkeyable or any(phase.has_status for phase in code.phases):
            return default, plain
        if not self._driver.properties.has_clock:
            self._tell(
                f"{self._driver.properties.kind} has no times that mean something: kernels stay the default ones"
            )
            return default, plain
        try:
            tuning = self._tuning(instruction, code, [each.name for each in listed])
        except NotMeasured as error:
            given_up.append(str(error))
            self._tell(str(error))
            return default, plain
        made = self._made(instruction, code, tuning.chosen)
        return made, _as_candidate(made, tuning.chosen)

    def _tell(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            _LOGGER.warning("%s", message)

    def _choices(self, instruction: Instruction, plain: KernelCode, options: CompileOptions) -> list[Candidate]:
        """What may be taken, the default first."""
        listed = kernel_candidates(instruction, self._platform.target)
        own = [each for each in listed if library_way(each.name) is None]
        called = [each for each in listed if library_way(each.name) is not None]
        if not called or options.libraries == "off" or not self._platform.library()[0]:
            called = []
        by_default = any(phase.library for phase in plain.phases)
        if called and options.libraries == "require":
            own = []
        ordered = called + own if by_default else own + called
        return [each for each in ordered if options.autotune == ANY or each.order == ordered[0].order]

    def _made(self, instruction: Instruction, code: KernelCode, name: str) -> KernelCode:
        """The kernel of a candidate, as the cache has it."""
        listed = kernel_candidates(instruction, self._platform.target)
        calls = any(phase.library for phase in code.phases)
        if name == listed[0].name or (name == LIBRARY and calls):
            return code
        target, dialect, alone = self._platform.target, self._platform.dialect, isolated(instruction)
        return self._cache.variant(
            code, name, lambda symbol: emit_kernel(alone, target, dialect, symbol, candidate=name)
        )

    # ------------------------------------------------------------------------------------------------------- results

    def _tuning(self, instruction: Instruction, code: KernelCode, names: Sequence[str]) -> Tuning:
        """What is known of these candidates, or is measured now; raises ``NotMeasured``."""
        text = "\0".join((code.symbol, self.identity(), *names))
        key = hashlib.sha256(text.encode()).hexdigest()
        with self._lock:
            found = self._known.get(key) or _read(key, names)
            if found is None or not found.chosen:
                found = self._measured(instruction, code, names, key, {} if found is None else found.notes)
            self._known[key] = found
        return found

    def _measured(
        self, instruction: Instruction, code: KernelCode, names: Sequence[str], key: str, before: Mapping[str, str]
    ) -> Tuning:
        """``before`` are the candidates that have stopped the GPU of a process: they are not tried again."""
        where = f"{instruction.op.name} at {instruction.location}"
        try:
            self._driver.open()
            times, notes = self._times(instruction, code, [name for name in names if name not in before], where)
        except LostDevice as lost:
            # Whoever comes next leaves it out.
            _write(key, Tuning("", {}, {**before, **lost.notes}))
            raise
        except HlojitError as error:
            raise NotMeasured(f"{where} is not tuned, its default stays: {error}") from error
        notes = {**before, **notes}
        if not times:
            raise NotMeasured(f"{where} is not tuned, its default stays: {'; '.join(notes.values())}")
        best = min(times, key=lambda name: times[name])
        default = times.get(names[0])
        chosen = best if default is None or times[best] < WORTH_IT * default else names[0]
        # Of two processes that measure at the same time the first one is believed by both.
        found = _read(key, names)
        tuning = found if found is not None and found.chosen else Tuning(chosen, times, notes)
        _write(key, tuning)
        _LOGGER.info("%s: %s", where, _told(tuning, names[0]))
        return tuning

    def _times(
        self, instruction: Instruction, code: KernelCode, names: Sequence[str], where: str
    ) -> tuple[dict[str, float], dict[str, str]]:
        driver, stream, deadline = self._driver, self._stream(), monotonic() + MOST_SECONDS
        codes = {name: self._made(instruction, code, name) for name in names}
        operands = [value.tensor_type for value in instruction.operands]
        others = [value.tensor_type.nbytes for value in instruction.results]
        others.append(max(each.workspace_bytes for each in codes.values()))
        runs: dict[str, Run] = {}
        notes: dict[str, str] = {}
        try:
            with buffers(driver, stream, operands, others) as addresses:
                for name, each in codes.items():
                    if monotonic() > deadline and runs:
                        notes[name] = "not measured: time was up"
                        continue
                    try:
                        runs[name] = self._run(name, each, stream, _addresses(each, operands, addresses), where)
                    except HlojitError as error:
                        notes[name] = str(error)
                times, failed = measured(driver, stream, runs, deadline)
        finally:
            runs.clear()
            settled(driver, stream)
        return times, notes | failed

    def _run(self, name: str, code: KernelCode, stream: Stream, addresses: Sequence[int], where: str) -> Run:
        """What puts a kernel on the stream; raises ``HlojitError`` if it cannot be assembled or loaded."""
        driver = self._driver
        phases = [phase for phase in _as_candidate(code, name).phases if phase.tasks]
        symbols = [phase.symbol for phase in phases if not phase.library]
        module = None
        if symbols:
            ((_, image),) = self._cache.objects([code], self._platform.assemble)
            module = driver.load(image, symbols)

        def function(phase: Phase) -> object:
            routine = driver.library(phase.library) if phase.library else None
            if phase.library and routine is None:
                raise DriverError("the library has no way to compute it")
            return routine or driver.function(module, phase.symbol, phase.shared_bytes)

        launches = [(function(phase), Grid(phase.tasks, phase.threads, phase.shared_bytes)) for phase in phases]

        def run() -> None:
            for launched, grid in launches:
                driver.launch(launched, grid, addresses, stream, f"{where} ({name})")

        return run

    def _stream(self) -> Stream:
        found = self._streams.get(os.getpid())
        if found is None:
            found = self._streams[os.getpid()] = self._driver.stream("tuning")
        return found


def _as_candidate(code: KernelCode, name: str) -> KernelCode:
    """The cache's kernel as programs launch it that have chosen this candidate."""
    return replace(code if library_way(name) is not None else with_libraries(code, "off"), candidate=name)


def _addresses(code: KernelCode, operands: Sequence[TensorType], addresses: Sequence[int]) -> list[int]:
    """Of the buffers that a kernel takes: the workspace is the last one, and results that must be operands are these."""
    taken = list(addresses if code.workspace_bytes else addresses[:-1])
    if code.updates:
        for operand, result in code.in_place:
            taken[len(operands) + result] = taken[operand]
    return taken


def _told(tuning: Tuning, default: str) -> str:
    times = ", ".join(f"{name!r} {time / 1e3:.1f} us" for name, time in tuning.times.items())
    notes = "".join(f"; {name!r} was left out: {note}" for name, note in tuning.notes.items())
    kept = "the default stays" if tuning.chosen == default else f"{tuning.chosen!r} is taken"
    return f"{kept} ({times}){notes}"


def _read(key: str, names: Sequence[str]) -> Tuning | None:
    """What is kept under a key; of something else than such a record nothing."""
    cache = disk_cache()
    data = cache.get(_KIND, key) if cache is not None else None
    if cache is None or data is None:
        return None
    try:
        found = Reader(unsealed(_MAGIC, _VERSION, data, key), _RECORDS).value()
    except FormatError:
        found = None
    if isinstance(found, Tuning) and _is_sound(found, names):
        return found
    cache.discard(_KIND, key)
    return None


def _is_sound(tuning: Tuning, names: Sequence[str]) -> bool:
    tables = (tuning.times, tuning.notes)
    return all(isinstance(each, Mapping) for each in tables) and (tuning.chosen in names or not tuning.chosen)


def _write(key: str, tuning: Tuning) -> None:
    cache = disk_cache()
    if cache is not None:
        writer = Writer(_RECORDS)
        writer.put(tuning)
        cache.put(_KIND, key, sealed(_MAGIC, _VERSION, writer.finish(), key))
