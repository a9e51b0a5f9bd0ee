"""The CPU back end: fused kernels and library kernels as LLVM code, one native host program per executable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hlojit.codegen.kernel_cache import MAXIMUM_BYTES, KernelCache
from hlojit.codegen.programs import ProgramKernels, check_loadable, compiled_program, kernels_of
from hlojit.codegen.support import Support
from hlojit.compiled import CompiledProgram
from hlojit.cpu.asynchronous import asynchronous_symbols
from hlojit.cpu.collectives import collective_symbols
from hlojit.cpu.compile_workers import Batch, Request, compilation
from hlojit.cpu.devices import cpu_devices
from hlojit.cpu.imports import imported_symbols
from hlojit.cpu.instruction_costs import InstructionCosts
from hlojit.cpu.kernels import BACKEND_NAME, has_kernel, kernel_emitter
from hlojit.extensions import Device
from hlojit.extensions.backends.backend import Backend, Capability, CompileOptions, SizedCode
from hlojit.extensions.functions.array_functions import ArrayFunction
from hlojit.extensions.kernels.forms import LlvmKernel, TaskFunction
from hlojit.ir.errors import HlojitError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.ops.definition import (
    DeviceFunction,
    Expand,
    Indexed,
    Kernel,
    OpDefinition,
    Pointwise,
    Reduction,
    Structural,
)
from hlojit.ir.ops.internal import chosen_kernel
from hlojit.ir.passes.fusion_limits import FusionLimits
from hlojit.ir.process_grid import ProcessGrid, grid_of
from hlojit.ir.versions import versions_text
from hlojit.llvm.loop_function import emit_program
from hlojit.llvm.math_library import with_own_math
from hlojit.lowering.abi import identity as runtime_identity
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.program import Program
from hlojit.lowering.schedule import ASYNCHRONOUS_ROLES, HOST_ROLES, build_program
from hlojit.lowering.target import Target
from hlojit.runtime.native import native
from hlojit.runtime.quota import default_threads

LONGEST_SELECTION = 1 << 31
"""Of a sorted line any part may be all that is wanted."""

ENTRY = "hlojit_main"
"""Symbol of the host program."""


_OF_FUSIONS = {"kernel": "plugin_kernel", "anchor": "anchored"}
"""Kernels of fusions that are not like others, by the fusion's kind."""


def kernel_cache(target: Target, maximum_bytes: int = MAXIMUM_BYTES) -> KernelCache:
    """A cache of the CPU's kernels."""
    return KernelCache(target, _emit, maximum_bytes)


def _emit(instruction: Instruction, target: Target, symbol: str) -> KernelCode:
    lowering = instruction.op.lowering
    name = lowering.name if isinstance(lowering, Kernel) else "fusion"
    if name == "fusion":
        name = _OF_FUSIONS.get(instruction.attributes.get("kind", ""), name)
    return kernel_emitter(name)(instruction, target, symbol)


def _add(batch: Batch, code: KernelCode) -> None:
    linked = tuple(with_own_math(text) for _, text in code.linked)
    batch.add(code.symbol, Request(code.ir, code.pipeline, linked))


def assemble(batch: Batch, codes: Sequence[KernelCode]) -> Mapping[str, bytes]:
    """Object code of kernels, with the help of workers if the batch has some."""
    for code in codes:
        if code.symbol not in batch:
            _add(batch, code)
    return batch.finish()


def kernel_source(cache: KernelCache, batch: Batch | None = None) -> ProgramKernels:
    """Where the scheduler gets the kernels of one program from; workers may begin with those of a batch."""

    def announce(code: KernelCode) -> None:
        for each in code.all_codes:
            if batch is not None and each.symbol not in batch and not cache.has_object(each):
                _add(batch, each)

    return ProgramKernels(cache, SUPPORT, announce)


class CpuBackend(Backend):
    """Compiles for the processor that the process runs on."""

    name = BACKEND_NAME
    fuses = True
    fusion_limits = FusionLimits(
        rows=True,
        longest_selection=LONGEST_SELECTION,
        selects_anywhere=True,
        places_nan=True,
        anchors=frozenset({"dot_general", "convolution"}),
        prologues=frozenset({"dot_general", "convolution"}),
    )
    kernel_forms = (ArrayFunction, TaskFunction, LlvmKernel)

    def __init__(self) -> None:
        self._caches: dict[str, KernelCache] = {}
        self._costs: dict[str, InstructionCosts] = {}

    @property
    def cache(self) -> KernelCache:
        """The kernel cache (LLVM is initialized when it is first needed)."""
        found = self._caches.get(self.name)
        if found is None:
            with fork_gate.inside:
                # LLVM is loaded with the first compilation, not when plugins are listed.
                from hlojit.cpu.processor import host_target

                # Of several threads, or a thread and its signal handler, one has made it.
                found = self._caches.setdefault(self.name, kernel_cache(host_target()))
        return found

    def kernel_target(self) -> Target:
        """The processor, with its machine model."""
        return self.cache.target

    def devices(self) -> Sequence[Device]:
        """Virtual devices over the same processor, each with a thread of its own."""
        return cpu_devices()

    def capability(self, instruction: Instruction) -> Capability:
        """By the op's lowering and its element types."""
        return SUPPORT.capability(instruction)

    def instruction_cost(self, instruction: Instruction) -> float | None:
        """By the machine model."""
        found = self._costs.get(self.name)
        if found is None:
            found = self._costs.setdefault(self.name, InstructionCosts(self.cache.target, default_threads()))
        return found.nanoseconds(instruction)

    def program(self, module: Module) -> Program:
        """Schedule the module's entry function."""
        return build_program(module.main, kernel_source(self.cache))

    def cache_identity(self) -> str:
        """What programs depend on besides module and options: the processor, and the versions of what compiles for it."""
        return f"{self.cache.target.identity} {versions_text()} {runtime_identity()}"

    def compile(self, module: Module, options: CompileOptions) -> CompiledProgram:
        """Compile to native code, as plain data."""
        SUPPORT.check_signature(module)
        target = self.cache.target
        with compilation(target) as batch:
            program = build_program(module.main, kernel_source(self.cache, batch))
            host, loops = emit_program(program, ENTRY, target.machine)
            batch.add(ENTRY, Request(host, "host"))
            for loop in loops:
                batch.add(loop.symbol, Request(loop.ir, loop.pipeline, loop.linked))
            kernels = self.cache.objects(kernels_of(program), partial(assemble, batch))
            images = batch.finish()
        return compiled_program(
            module,
            program,
            (*((name, images[name]) for name in (ENTRY, *(loop.symbol for loop in loops))), *kernels),
            backend=self.name,
            target=target,
            runtime=runtime_identity(),
            entry=ENTRY,
        )

    def symbolic_capability(self, instruction: Instruction) -> Capability:
        """By the rules of ``hlojit.ir.passes.symbolic_shapes`` and element types."""
        from hlojit.cpu.symbolic import symbolic_capability

        return symbolic_capability(instruction)

    def compile_symbolic(self, module: Module, size_arguments: Sequence[int]) -> SizedCode:
        """Compile once for all sizes; see ``hlojit.cpu.symbolic``."""
        from hlojit.cpu.symbolic import compile_symbolic

        return compile_symbolic(module, size_arguments, self.cache.target, self.name)

    def load_symbolic(self, compiled: CompiledProgram) -> SizedCode:
        """The code of a program that is compiled once for all sizes."""
        from hlojit.cpu.symbolic import load_symbolic

        self._check_loadable(compiled)
        return load_symbolic(compiled)

    def load(self, compiled: CompiledProgram) -> Any:
        """Load the code of a compiled program; returns an ``ExecutableSpec``."""
        from hlojit.executable import ExecutableSpec
        from hlojit.machine_code.loading import load_objects

        self._check_loadable(compiled)
        symbols = native().symbols()
        if compiled.grid.processes > 1:
            symbols |= {**collective_symbols(), **asynchronous_symbols()}
        imported, owners = imported_symbols(compiled.imports)
        symbols |= imported
        loaded = load_objects([image for _, image in compiled.objects], [compiled.entry], symbols)
        return ExecutableSpec(
            name=compiled.name,
            entry=loaded.address(compiled.entry),
            inputs=compiled.inputs,
            outputs=compiled.outputs,
            arena_bytes=compiled.arena_bytes,
            constants=tuple(constant.ctypes.data for constant in compiled.constants),
            keepalive=(loaded, compiled, owners),
            donated=compiled.donated,
            estimated_nanoseconds=compiled.estimated_nanoseconds,
            compiled=compiled,
        )

    def _check_loadable(self, compiled: CompiledProgram) -> None:
        made, target = compiled.provenance, self.cache.target
        if made.triple != target.triple:
            raise HlojitError(
                f"{compiled.name} was compiled for {made.triple}, this is {target.triple}; compile it here from its source"
            )
        missing = [name for name in made.features if not target.has_feature(name)]
        if missing:
            raise HlojitError(
                f"{compiled.name} was compiled for a processor ({made.cpu}) with features that this one does not have: "
                f"{', '.join(missing)}; compile it here from its source"
            )
        check_loadable(compiled, runtime_identity())


MOST_OPERANDS = 256
"""Of a kernel that can be several instead: elements look through all of them, and LLVM takes longer than in proportion."""


def lowering_reason(record: OpDefinition) -> str:
    """Why the CPU back end has no code for ops of a record, whatever their types, or an empty string."""
    lowering = record.lowering
    if isinstance(lowering, (Pointwise, Indexed, Reduction, Expand)):
        return ""
    if isinstance(lowering, Kernel):
        return "" if has_kernel(lowering.name) else lowering.without or f"no CPU kernel {lowering.name!r} yet"
    if isinstance(lowering, Structural) and lowering.role in (*HOST_ROLES, *ASYNCHRONOUS_ROLES):
        return ""
    if isinstance(lowering, DeviceFunction):
        return lowering.reason_against(BACKEND_NAME)
    return "the op has no lowering yet"


def _limit_reason(instruction: Instruction) -> str:
    if instruction.op.host_role in ASYNCHRONOUS_ROLES and (grid_of(instruction) or ProcessGrid()).processes == 1:
        return "all threads compute what stands first, and there is no other process to wait for"
    lowering = instruction.op.lowering
    if instruction.attributes.get("kind") == "kernel" and chosen_kernel(instruction) is None:
        return f"of the kernel {instruction.attributes['kernel']!r} there is the name alone, which a text holds"
    if isinstance(lowering, Indexed) and lowering.expansion and len(instruction.operands) > MOST_OPERANDS:
        return f"it has {len(instruction.operands)} operands, and several kernels do it sooner"
    return ""


SUPPORT = Support(BACKEND_NAME, "CPU", lowering_reason, _limit_reason)
"""What the CPU back end can compile."""
