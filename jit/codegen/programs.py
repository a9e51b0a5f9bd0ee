"""From a scheduled program and the images of its kernels to a ``CompiledProgram``, and what is checked before it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from hlojit.codegen.kernel_cache import KernelCache
from hlojit.codegen.support import Support
from hlojit.compiled import CompiledProgram, ProgramRecord, Provenance
from hlojit.ir.errors import HlojitError, UnsupportedError
from hlojit.ir.fingerprint import NotKeyable
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.process_grid import ProcessGrid, grid_of_module
from hlojit.ir.types import TensorType
from hlojit.ir.versions import versions
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.program import Program
from hlojit.lowering.structure import Identities
from hlojit.lowering.target import Target
from hlojit.sized_program import SizedProgram


@final
class ProgramKernels:
    """Where the scheduler gets the kernels of one program from.

    ``announce`` hears of each one once.  ``adapt`` makes of each the kernel of the cache that this program takes, and what it
    launches of that; ``cached`` are the former, by symbol.
    """

    def __init__(
        self,
        cache: KernelCache,
        support: Support,
        announce: Callable[[KernelCode], None] | None = None,
        adapt: Callable[[Instruction, KernelCode], tuple[KernelCode, KernelCode]] | None = None,
    ):
        self._cache = cache
        self._support = support
        self._announce = announce
        self._adapt = adapt
        self.cached: dict[str, KernelCode] = {}
        self._identities = Identities()
        self._codes: dict[Instruction, KernelCode] = {}

    def kernel(self, instruction: Instruction) -> KernelCode:
        """Code for one instruction."""
        code = self._codes.get(instruction)
        if code is None:
            reason = self._support.reason_against(instruction)
            if reason:
                raise UnsupportedError(instruction.op.name, self._support.backend, reason, instruction.location)
            cached = code = self._cache.code(instruction, self._identities)
            if self._adapt is not None:
                cached, code = self._adapt(instruction, code)
            self.cached[cached.symbol] = cached
            self._codes[instruction] = code
            if self._announce is not None:
                self._announce(code)
        return code


def kernels_of(program: Program) -> list[KernelCode]:
    """The kernels that a program launches, each once."""
    return list({launch.kernel.symbol: launch.kernel for launch in program.launches()}.values())


def compiled_program(
    module: Module,
    program: Program,
    objects: Sequence[tuple[str, Any]],
    *,
    backend: str,
    target: Target,
    runtime: str,
    entry: str = "",
) -> CompiledProgram:
    """The program as plain data; ``runtime`` identifies what code and runtime must agree on."""
    main, grid = module.main, grid_of_module(module) or ProcessGrid()
    inputs = tuple(argument.tensor_type for argument in main.body.arguments)
    outputs = tuple(value.tensor_type for value in main.body.returned)
    cost = sum(phase.tasks * phase.cost for launch in program.launches() for phase in launch.kernel.phases)
    provenance, unkeyable = _provenance((*inputs, *outputs), target, runtime)
    return CompiledProgram(
        name=main.name,
        backend=backend,
        inputs=inputs,
        outputs=outputs,
        objects=tuple(objects),
        entry=entry,
        arena_bytes=program.arena_bytes,
        constants=tuple(program.constants),
        record=ProgramRecord(program),
        donated=program.donated,
        estimated_nanoseconds=float(cost),
        provenance=provenance,
        processes=(grid.replicas, grid.partitions),
        imports=tuple(sorted({pair for code in kernels_of(program) for pair in code.imports})),
        unkeyable=(*unkeyable, *(code.unkeyable for code in kernels_of(program) if code.unkeyable)),
    )


def sized_program(
    module: Module,
    objects: Sequence[tuple[str, Any]],
    constants: Sequence[Any],
    sized: SizedProgram,
    *,
    backend: str,
    target: Target,
    runtime: str,
    entry: str,
    imports: tuple[tuple[str, str], ...] = (),
) -> CompiledProgram:
    """A program that is compiled once for all sizes, as plain data."""
    main, grid = module.main, grid_of_module(module) or ProcessGrid()
    inputs = tuple(argument.tensor_type for argument in main.body.arguments)
    outputs = tuple(value.tensor_type for value in main.body.returned)
    provenance, unkeyable = _provenance((*inputs, *outputs), target, runtime)
    return CompiledProgram(
        name=main.name,
        backend=backend,
        inputs=inputs,
        outputs=outputs,
        objects=tuple(objects),
        entry=entry,
        arena_bytes=0,
        constants=tuple(constants),
        record=ProgramRecord(data=memoryview(b"")),
        donated=(),
        estimated_nanoseconds=0.0,
        provenance=provenance,
        processes=(grid.replicas, grid.partitions),
        sized=sized,
        imports=imports,
        unkeyable=tuple(unkeyable),
    )


def _provenance(signature: Sequence[TensorType], target: Target, runtime: str) -> tuple[Provenance, list[str]]:
    """What it takes to run a program, and what of its signature cannot be written down."""
    formats, unkeyable = _formats(signature)
    made = Provenance(
        formats=formats,
        triple=target.triple,
        cpu=target.cpu,
        features=tuple(name[1:] for name in target.features.split(",") if name.startswith("+")),
        runtime=runtime,
        versions=dict(versions()),
    )
    return made, unkeyable


def _formats(signature: Sequence[TensorType]) -> tuple[dict[str, str], list[str]]:
    """Element types of the signature that plugins bring, by content, and what of them cannot be written down."""
    identities, formats, unkeyable = Identities(), {}, []
    for kind in signature:
        try:
            identity = identities.of(kind.element_type)
        except NotKeyable as error:
            unkeyable.append(str(error))
            continue
        if identity:
            formats[kind.element_type.name] = identity
    return formats, unkeyable


def check_loadable(compiled: CompiledProgram, runtime: str) -> None:
    """Refuse what was compiled for another runtime, or with other element types than those that are registered."""
    made = compiled.provenance
    if made.runtime != runtime:
        raise HlojitError(
            f"{compiled.name} was compiled by hlojit {made.versions.get('hlojit', 'of another version')}, whose runtime "
            "differs from this one's; compile it again from its source"
        )
    identities = Identities()
    for kind in (*compiled.inputs, *compiled.outputs):
        element = kind.element_type
        if made.formats.get(element.name, "") != identities.of(element):
            raise HlojitError(
                f"{compiled.name} was compiled with another element type {element.name!r} than the one that is registered here"
            )
