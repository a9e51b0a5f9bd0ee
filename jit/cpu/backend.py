"""The CPU back end: fused kernels and library kernels as LLVM code, one native host program per executable."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from hlojit.compiled import CompiledProgram, ProgramRecord, Provenance
from hlojit.cpu.compile_workers import Batch, Request, compilation
from hlojit.cpu.devices import cpu_devices
from hlojit.cpu.kernel_cache import KernelCache
from hlojit.cpu.kernels import has_kernel
from hlojit.extensions import Device
from hlojit.extensions.backend import DECOMPOSE, YES, Backend, Capability, CompileOptions, no
from hlojit.ir.errors import HlojitError, UnsupportedError
from hlojit.ir.fingerprint import NotKeyable
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.formats import BooleanType, FloatFormat, IntegerType
from hlojit.ir.graph import Instruction, Module, Value
from hlojit.ir.ops.custom_calls import is_custom_call
from hlojit.ir.ops.definition import Expand, Indexed, Kernel, OpDefinition, Pointwise, Reduction, Structural
from hlojit.ir.passes.graph_facts import is_constant
from hlojit.ir.types import TensorType
from hlojit.ir.versions import versions, versions_text
from hlojit.llvm.host import emit_host
from hlojit.lowering.abi import identity as runtime_identity
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.program import Program
from hlojit.lowering.schedule import build_program
from hlojit.lowering.structure import Identities, captured
from hlojit.runtime.native import native

BACKEND_NAME = "cpu"
MAXIMUM_BYTES = 1 << 46
"""A tensor that takes more is refused when it is compiled: no machine has that much."""


ENTRY = "hlojit_main"
"""Symbol of the host program."""


class CpuKernelSource:
    """Where the scheduler gets the kernels of one program from."""

    def __init__(self, cache: KernelCache, batch: Batch | None = None):
        self.cache = cache
        self._batch = batch
        self._identities = Identities()
        self._codes: dict[Instruction, KernelCode] = {}

    def kernel(self, instruction: Instruction) -> KernelCode:
        """Code for one instruction."""
        code = self._codes.get(instruction)
        if code is None:
            reason = _reason_against(instruction)
            if reason:
                raise UnsupportedError(instruction.op.name, BACKEND_NAME, reason, instruction.location)
            code = self._codes[instruction] = self.cache.code(instruction, self._identities)
            if self._batch is not None:
                self.cache.announce(code, self._batch)
        return code


class CpuBackend(Backend):
    """Compiles for the processor that the process runs on."""

    name = BACKEND_NAME
    fuses = True

    def __init__(self) -> None:
        self._cache: KernelCache | None = None
        self._lock = threading.Lock()

    @property
    def cache(self) -> KernelCache:
        """The kernel cache (LLVM is initialized when it is first needed)."""
        if self._cache is None:
            with fork_gate, self._lock:
                if self._cache is None:
                    # LLVM is loaded with the first compilation, not when plugins are listed.
                    from hlojit.cpu.processor import host_target

                    self._cache = KernelCache(host_target())
        return self._cache

    def devices(self) -> Sequence[Device]:
        """Virtual devices over the same processor, each with a thread of its own."""
        return cpu_devices()

    def capability(self, instruction: Instruction) -> Capability:
        """By the op's lowering and its element types."""
        if isinstance(instruction.op.lowering, Expand) or is_custom_call(instruction):
            return DECOMPOSE
        reason = _reason_against(instruction)
        return no(reason) if reason else YES

    def program(self, module: Module) -> Program:
        """Schedule the module's entry function."""
        return build_program(module.main, CpuKernelSource(self.cache))

    def cache_identity(self) -> str:
        """What programs depend on besides module and options: the processor, and the versions of what compiles for it."""
        return f"{self.cache.target.identity} {versions_text()} {runtime_identity()}"

    def compile(self, module: Module, options: CompileOptions) -> CompiledProgram:
        """Compile to native code, as plain data."""
        _check_signature(module)
        with compilation(self.cache.target) as batch:
            program = build_program(module.main, CpuKernelSource(self.cache, batch))
            codes = {launch.kernel.symbol: launch.kernel for launch in program.launches()}
            batch.add(ENTRY, Request(emit_host(program, ENTRY, self.cache.target.machine), "plain"))
            kernels = self.cache.objects(codes.values(), batch)
            host = batch.finish()[ENTRY]
        main = module.main
        inputs = tuple(argument.tensor_type for argument in main.body.arguments)
        outputs = tuple(value.tensor_type for value in main.body.returned)
        cost = sum(phase.tasks * phase.cost for launch in program.launches() for phase in launch.kernel.phases)
        provenance, unkeyable = self._provenance((*inputs, *outputs))
        return CompiledProgram(
            name=main.name,
            backend=self.name,
            inputs=inputs,
            outputs=outputs,
            objects=((ENTRY, host), *kernels),
            entry=ENTRY,
            arena_bytes=program.arena_bytes,
            constants=tuple(program.constants),
            record=ProgramRecord(program),
            donated=program.donated,
            estimated_nanoseconds=float(cost),
            provenance=provenance,
            unkeyable=(*unkeyable, *(code.unkeyable for code in codes.values() if code.unkeyable)),
        )

    def _provenance(self, signature: Sequence[TensorType]) -> tuple[Provenance, tuple[str, ...]]:
        """What running the program takes, and what of it cannot be written down."""
        identities, formats, unkeyable = Identities(), {}, []
        for kind in signature:
            try:
                identity = identities.of(kind.element_type)
            except NotKeyable as error:
                unkeyable.append(str(error))
                continue
            if identity:
                formats[kind.element_type.name] = identity
        target = self.cache.target
        features = tuple(name[1:] for name in target.features.split(",") if name.startswith("+"))
        provenance = Provenance(
            formats=formats,
            triple=target.triple,
            cpu=target.cpu,
            features=features,
            runtime=runtime_identity(),
            versions=dict(versions()),
        )
        return provenance, tuple(unkeyable)

    def load(self, compiled: CompiledProgram) -> Any:
        """Load the code of a compiled program; returns an ``ExecutableSpec``."""
        from hlojit.executable import ExecutableSpec
        from hlojit.machine_code.loading import load_objects

        self._check_loadable(compiled)
        loaded = load_objects([image for _, image in compiled.objects], [compiled.entry], native().symbols())
        return ExecutableSpec(
            name=compiled.name,
            entry=loaded.address(compiled.entry),
            inputs=compiled.inputs,
            outputs=compiled.outputs,
            arena_bytes=compiled.arena_bytes,
            constants=tuple(constant.ctypes.data for constant in compiled.constants),
            keepalive=(loaded, compiled),
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
        if made.runtime != runtime_identity():
            raise HlojitError(
                f"{compiled.name} was compiled by hlojit {made.versions.get('hlojit', 'of another version')}, whose runtime "
                "differs from this one's; compile it again from its source"
            )
        identities = Identities()
        for kind in (*compiled.inputs, *compiled.outputs):
            element = kind.element_type
            if made.formats.get(element.name, "") != identities.of(element):
                raise HlojitError(
                    f"{compiled.name} was compiled with another element type {element.name!r} than the one that is "
                    "registered here"
                )


_HOST_ROLES = ("constant", "loop", "branch", "call", "return", "alias", "tuple")


def _reason_against(instruction: Instruction) -> str:
    """Why the CPU back end cannot compile an instruction, or an empty string."""
    for value in (*instruction.operands, *instruction.results):
        reason = _type_reason(value)
        if reason:
            return reason
    if instruction.regions and not isinstance(instruction.op.lowering, Structural):
        for value in captured(instruction):
            if not is_constant(value.producer):
                return f"its region uses a value of type {value.type} from outside that is not a constant"
    return lowering_reason(instruction.op)


def lowering_reason(record: OpDefinition) -> str:
    """Why the CPU back end has no code for ops of a record, whatever their types, or an empty string."""
    lowering = record.lowering
    if isinstance(lowering, (Pointwise, Indexed, Reduction, Expand)):
        return ""
    if isinstance(lowering, Kernel):
        return "" if has_kernel(lowering.name) else f"no CPU kernel {lowering.name!r} yet"
    if isinstance(lowering, Structural) and lowering.role in _HOST_ROLES:
        return ""
    return "the op has no lowering yet"


def _check_signature(module: Module) -> None:
    """Arguments and results of the entry function must be tensors that can be laid out in memory."""
    main = module.main
    for kind, values in (("argument", main.body.arguments), ("result", main.body.returned)):
        for number, value in enumerate(values):
            reason = _type_reason(value)
            if not reason and not isinstance(value.type, TensorType):
                reason = "tuples are not passed in and out; give the tensors as arguments or results of their own"
            if reason:
                raise UnsupportedError(f"{kind} {number} of @{main.name}", BACKEND_NAME, reason, main.location)


def _type_reason(value: Value) -> str:
    kind = value.type
    if not isinstance(kind, TensorType):
        return "" if str(kind).startswith("tuple") else f"values of type {kind} have no CPU representation yet"
    if not kind.is_static:
        return f"{kind} has dimensions that are not known; give the shapes"
    if not isinstance(kind.element_type, (BooleanType, IntegerType, FloatFormat)):
        return f"element type {kind.element_type} has no CPU code yet"
    if kind.nbytes > MAXIMUM_BYTES:
        return f"{kind} takes {kind.nbytes} bytes, more than any machine has"
    return ""
