"""``GpuBackend``: a back end for machines with threads, of any vendor.

class AcmeBackend(GpuBackend):
    name, machine = "acme", "Acme GPU"

    def unavailable(self):
        return None if self.has_driver() else "no Acme driver (libacme.so) is installed"

    def platform(self):
        return self._platform             # target, dialect, assembler, drivers: the same object every time

Emitters, plans and runtime are loaded with the first program for such a machine: every process has this back end.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final, final

from hlojit.codegen.kernel_cache import KernelCache
from hlojit.codegen.programs import ProgramKernels, check_loadable, compiled_program, kernels_of
from hlojit.codegen.support import Support
from hlojit.compiled import CompiledProgram
from hlojit.extensions.backends.backend import Backend, Capability, CompileOptions, no
from hlojit.extensions.devices.device import Device, DeviceProgram
from hlojit.gpu.driver import ALIGNMENT
from hlojit.ir.errors import HlojitError, UnsupportedError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.ops.definition import DeviceFunction, Expand, HostFunction, OpDefinition, Structural
from hlojit.ir.ops.internal import device_function, is_fusion
from hlojit.ir.passes.fusion_limits import FusionLimits
from hlojit.ir.switches import LIBRARIES
from hlojit.ir.versions import versions_text
from hlojit.lowering.grid_machine import LONGEST_SELECTION, LONGEST_SUMMED_ROW
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.program import Program
from hlojit.lowering.schedule import build_program
from hlojit.lowering.target import Target

if TYPE_CHECKING:
    from hlojit.gpu.autotuner import Autotuner
    from hlojit.gpu.conditional_graphs import ConditionImages
    from hlojit.gpu.platforms import Platform

RUNTIME: Final = "gpu-1"
"""Identity of what kernels and the runtime agree on: parameters are addresses, buffers begin at multiples of 256 bytes."""
MOST_BUFFERS: Final = 500
"""Of one kernel: NVIDIA's take 4 KiB of parameters in every version, and a workspace and a status come on top."""
MOST_BLOCKS: Final = (1 << 31) - 1
"""Of one launch, in one dimension, on all machines."""
_DEFAULTS: Final = CompileOptions()
_MEASURING: Final = ("same-bits", "any")
"""Choices of ``autotune`` with which kernels are measured."""
_NO_FUNCTIONS: Final = "the back end runs no kernels that plugins have written"


@final
@dataclass(frozen=True)
class _Opened:
    """A platform with what was made for it."""

    platform: Platform
    cache: KernelCache
    tuner: Autotuner
    devices: tuple[Device, ...]


class GpuBackend(Backend):
    """Compiles by the common plans and the emitters of machines with threads; see the module's docstring."""

    machine: str
    """What messages call its machines."""
    fuses = True
    alignment: Final = ALIGNMENT
    hlojit_runtime = ("_opened",)
    # A row kernel keeps so many elements in a multiprocessor's registers or shared memory; one launch beats several even
    # where few multiprocessors have rows.
    fusion_limits = FusionLimits(
        rows=True,
        longest_row=1 << 16,
        fewest_rows=1,
        longest_selection=LONGEST_SELECTION,
        longest_summed_row=LONGEST_SUMMED_ROW,
        decoded_rows=4,
        anchors=frozenset({"convolution", "dot_general"}),
        # A warp reads and writes whole lines of each; with Adam's update behind a gradient there are six.
        anchored_streams=8,
    )

    def __init__(self) -> None:
        self._opened: dict[int, _Opened] = {}

    @abstractmethod
    def platform(self) -> Platform:
        """What to compile for and run on; the same object every time as long as nothing else is asked for."""

    @property
    def _support(self) -> Support:
        return Support(self.name, self.machine, self._lowering_reason, self._limit_reason)

    def kernel_target(self) -> Target:
        """The GPU."""
        return self.platform().target

    def _limit_reason(self, instruction: Instruction) -> str:
        if instruction.attributes.get("kind") != "kernel" or not is_fusion(instruction):
            from hlojit.simt.kernels import limit_reason

            return limit_reason(instruction)
        function = device_function(instruction)
        if function is None:
            return "its kernel is no function for a machine with threads"
        return "" if self.platform().device_function is not None else _NO_FUNCTIONS

    def _lowering_reason(self, record: OpDefinition) -> str:
        lowering = record.lowering
        if isinstance(lowering, HostFunction) and self.platform().calls_host:
            return ""
        if not isinstance(lowering, DeviceFunction):
            from hlojit.simt.kernels import lowering_reason

            return lowering_reason(record)
        if self.platform().device_function is None:
            return _NO_FUNCTIONS
        return lowering.reason_against(self.name)

    def _found(self) -> _Opened:
        platform = self.platform()
        found = self._opened.get(id(platform))
        if found is None:
            from hlojit.gpu.autotuner import Autotuner
            from hlojit.gpu.device import GpuDevice

            with fork_gate.inside:
                kernels = _kernel_cache(platform)
                images = cache(partial(_condition_images, kernels, platform))
                devices = tuple(
                    GpuDevice(self.name, number, each, images) for number, each in enumerate(platform.drivers)
                )
                opened = _Opened(platform, kernels, Autotuner(platform, kernels), devices)
                # Of several threads, or a thread and its signal handler, one has opened it.
                found = self._opened.setdefault(id(platform), opened)
        return found

    def devices(self) -> Sequence[Device]:
        """The GPUs."""
        return self._found().devices

    def capability(self, instruction: Instruction) -> Capability:
        """By the op's lowering, its element types, and the number of arrays."""
        buffers = len({*instruction.operands, *instruction.results})
        if buffers > MOST_BUFFERS and not isinstance(instruction.op.lowering, (Expand, Structural)):
            return no(f"it has {buffers} operands and results; a kernel takes {MOST_BUFFERS} arrays")
        return self._support.capability(instruction)

    def notes(self) -> Sequence[str]:
        """Whose library computes products, or why none does."""
        if self.unavailable():
            return ()
        name, reason = self.platform().library()
        return (f"{self.name}: {_library_note(name, reason)}",)

    def program(self, module: Module) -> Program:
        """Schedule the module's entry function."""
        return build_program(module.main, self.kernel_source(), alignment=ALIGNMENT, members=True)

    def kernel_source(self, options: CompileOptions = _DEFAULTS, given_up: list[str] | None = None) -> ProgramKernels:
        """Where the kernels of one program come from; ``given_up`` takes what could not be measured though it was to be."""
        adapt = partial(self._adapted, options, [] if given_up is None else given_up)
        return ProgramKernels(self._found().cache, self._support, adapt=adapt)

    def _adapted(
        self, options: CompileOptions, given_up: list[str], instruction: Instruction, code: KernelCode
    ) -> tuple[KernelCode, KernelCode]:
        """The kernel that a program with these options takes, and as it launches it."""
        blocks = max(phase.tasks for phase in code.phases)
        if blocks > MOST_BLOCKS:
            reason = f"it would take a launch of {blocks:,} blocks, and {MOST_BLOCKS:,} are the most"
            raise UnsupportedError(instruction.op.name, self.name, reason, instruction.location)
        from hlojit.gpu.libraries import with_libraries

        found = self._found()
        default = found.tuner.default(instruction, code, options.libraries)
        if options.autotune in _MEASURING:
            return found.tuner.adapted(instruction, code, default, options, given_up)
        return default, with_libraries(default, options.libraries)

    def registers(self, instruction: Instruction) -> Mapping[str, int]:
        """Registers of a thread of the kernels of an instruction, by symbol, where an assembler tells: for estimates."""
        return {}

    def cache_identity(self) -> str:
        """What programs depend on besides module and options: GPU, dialect, assembler."""
        platform = self.platform()
        software = f"{platform.dialect.name} {platform.software} {versions_text()} {RUNTIME}"
        return f"{platform.target.identity} {software}"

    def options_identity(self, options: CompileOptions) -> str:
        """Where kernels are measured, what their times depend on."""
        return self._found().tuner.identity() if options.autotune in _MEASURING else ""

    def compile(self, module: Module, options: CompileOptions) -> CompiledProgram:
        """Compile to images of kernels and the record that says how they are launched, as plain data."""
        self._support.check_signature(module)
        found = self._found()
        _check_library(found.platform, options.libraries)
        given_up: list[str] = []
        kernels = self.kernel_source(options, given_up)
        program = build_program(module.main, kernels, alignment=ALIGNMENT, members=True)
        launched = [kernels.cached[code.symbol] for code in kernels_of(program) if code.host is None]
        objects = found.cache.objects(launched, found.platform.assemble)
        runtime = self._runtime(found.platform)
        compiled = compiled_program(
            module, program, objects, backend=self.name, target=found.platform.target, runtime=runtime
        )
        return replace(compiled, provisional=given_up[0]) if given_up else compiled

    def load(self, compiled: CompiledProgram) -> DeviceProgram:
        """The program for the back end's devices; nothing is put on one before it runs there."""
        from hlojit.extensions.calls.function_places import function_places
        from hlojit.gpu.program_runner import GpuProgram

        platform = self._found().platform
        made, target = compiled.provenance, platform.target
        if (made.triple, made.cpu) != (target.triple, target.cpu):
            raise HlojitError(
                f"{compiled.name} was compiled for {made.cpu} ({made.triple}), this is {target.cpu} ({target.triple}); "
                "compile it here from its source"
            )
        check_loadable(compiled, self._runtime(platform))
        _check_library(platform, str(made.options.get("libraries")))
        donated = tuple(number for number, _ in compiled.donated)
        return DeviceProgram(
            compiled.name, compiled.inputs, compiled.outputs, GpuProgram(compiled, function_places()), donated
        )

    def _runtime(self, platform: Platform) -> str:
        return f"{RUNTIME} {platform.dialect.name} {platform.needs}"


def _check_library(platform: Platform, libraries: str) -> None:
    if libraries == "require" and (reason := platform.library()[1]):
        raise HlojitError(f"a library for products is required (libraries='require'): {reason}")


def _library_note(name: str, reason: str) -> str:
    choice = LIBRARIES.text() or "auto"
    if reason:
        return f"products are computed by kernels of hlojit's: {reason}"
    if choice == "off":
        return f"products are computed by kernels of hlojit's; {name} is there ({LIBRARIES.name}=off)"
    which = "all products that it can take" if choice == "require" else "large products"
    return f"{name} computes {which} ({LIBRARIES.name}={choice})"


def _condition_images(kernels: KernelCache, platform: Platform) -> ConditionImages:
    """The kernels that set conditions in graphs, or none where the platform's dialect has no such."""
    from hlojit.simt.conditions import KINDS, condition_kernel, condition_kernels

    dialect = platform.dialect
    if not condition_kernels(dialect):
        return {}

    def made(kind: str, symbol: str) -> KernelCode:
        code = condition_kernel(kind, dialect, symbol)
        assert code is not None
        return code

    codes = {kind: kernels.named(kind, partial(made, kind)) for kind in KINDS}
    images = dict(kernels.objects(codes.values(), platform.assemble))
    return {kind: (code.symbol, images[code.symbol]) for kind, code in codes.items()}


def _kernel_cache(platform: Platform) -> KernelCache:
    from hlojit.gpu.device_functions import host_function
    from hlojit.simt.kernels import emit_kernel

    dialect = platform.dialect

    def emit(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
        function = device_function(instruction) or host_function(instruction)
        if function is not None:
            assert platform.device_function is not None
            return platform.device_function(instruction, function, target, symbol)
        return emit_kernel(instruction, target, dialect, symbol)

    return KernelCache(platform.target, emit, software=f"{dialect.name} {platform.software}")
