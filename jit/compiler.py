"""The driver: from text or a module to an executable.  This is the only place where the order of stages is written.

parse -> verify -> import, legalize, simplify, before-fusion -> capability check -> fuse, after-fusion, before-codegen
-> back end.  Plugins' passes run in their phases, and what they build is legalized at the end of the phase.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hlojit.compile_options import checked_options
from hlojit.compiled import CompiledProgram, read
from hlojit.extensions import Backend, CompileOptions, DeviceProgram, SizedCode, registry
from hlojit.extensions.backends.backend_checks import why_unavailable
from hlojit.extensions.binding import elementwise_binding, refined_call
from hlojit.extensions.calls.elementwise_calls import one_compilation
from hlojit.extensions.origins import BACKENDS, backend_text
from hlojit.ir.collection import collection_paused
from hlojit.ir.donation import mark_donated
from hlojit.ir.environment import Snapshot, current, scope_for, tables
from hlojit.ir.errors import (
    ArgumentError,
    HlojitError,
    PluginError,
    TypeInferenceError,
    UnsupportedError,
    VerificationError,
    short_repr,
)
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.graph import Module
from hlojit.ir.passes.call_inliner import CallInliner
from hlojit.ir.passes.dynamic_padder import Limit, RunTimeSizes, padded_program
from hlojit.ir.passes.op_expander import OpExpander
from hlojit.ir.passes.shape_legalizer import ShapeLegalizer
from hlojit.ir.passes.shape_refinement import ShapeRefinement
from hlojit.ir.passes.size_sources import has_unknown_size, is_dynamic, platform_argument, size_arguments
from hlojit.ir.plugin_names import plugins_named
from hlojit.ir.process_grid import ProcessGrid, checked_grid, grid_of_module, state_grid
from hlojit.ir.resolution import resolved
from hlojit.ir.types import Type
from hlojit.ir.vendor_calls import call_named
from hlojit.ir.vendor_places import told
from hlojit.outside import Outside
from hlojit.pipeline import brought_passes, default_pipeline, legalizer_of, lower
from hlojit.placement import DEFAULT_BACKEND, named

__all__ = [
    "DEFAULT_BACKEND",
    "CompileOptions",
    "compile",
    "default_pipeline",
    "generate",
    "load",
    "load_program",
    "lower",
    "parse",
    "verify",
]


def parse(text: str, *, allow_unregistered: bool = False, source_name: str = "<string>") -> Module:
    """Read StableHLO text.

    ``allow_unregistered`` keeps ops that nobody registered instead of refusing them.  ``source_name`` is what errors and
    locations call the text.  Raises ``ParseError`` with line, column and what was expected.
    """
    from hlojit.ir.text.parser import parse_module

    registry().load()
    with fork_gate.inside, collection_paused():
        return parse_module(text, source_name=source_name, allow_unregistered=allow_unregistered)


def verify(program: str | Module, *, allow_unregistered: bool = False) -> None:
    """Check every rule of the specification; raises ``VerificationError`` with all that are broken.

    ``allow_unregistered`` passes over ops that nobody registered (their regions are checked), and keeps them where
    ``program`` is text, which may be a ``ParseError``, too.
    """
    from hlojit.ir.verifier import verify as verify_module

    module = parse(program, allow_unregistered=allow_unregistered) if isinstance(program, str) else program
    with scope_for(module.environment).snapshot().activate() as scope:
        verify_module(resolved(module, scope), allow_unregistered=allow_unregistered)


def compile(
    program: str | Module,
    *,
    backend: str | Sequence[str] | None = None,
    options: CompileOptions | Mapping[str, Any] | None = None,
    num_replicas: int | None = None,
    num_partitions: int | None = None,
    donate: Sequence[int] = (),
    pass_options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Any:
    """Compile StableHLO text or a module to an ``Executable``.

    ``backend`` is the name of a registered back end (default: ``HLOJIT_BACKEND``, then the CPU), of one device (``"nova:1"``), or
    a list of such names, preferred ones first, among which the program is split (docs/placement.md; also ``"nova,cpu"``);
    ``options`` is a
    ``CompileOptions`` or a mapping of its fields.  ``donate`` holds numbers of arguments whose memory the program may take,
    beside those that the text names (docs/donation.md).  ``pass_options`` sets options of passes, plugins' ones too:
    ``{"acme-tile": {"size": 32}}`` (docs/add-a-pass.md).  The module given is not changed.

    ``num_replicas`` times ``num_partitions`` processes run the program together, each on a device of its own, and the executable
    takes a list of arguments for each (docs/devices.md).  By default as many as the module's attributes ``mhlo.num_replicas``
    and ``mhlo.num_partitions`` say, or one.

    Names of ops, element types, targets and back ends mean what they mean now, in the environment in which a module was made
    and in the current one (``hlojit.extensions.using``); what is registered later changes nothing for the executable.

    Raises ``ParseError``, ``VerificationError``, or ``UnsupportedError`` naming the op, the back end and the reason.
    """
    _check_program(program)
    # Not inside: plugins that are loaded may fork.
    registry().load()
    with fork_gate.inside:
        if donate:
            program = parse(program) if isinstance(program, str) else program.clone()
            mark_donated(program.main, donate)
        home = program.environment if isinstance(program, Module) else current()
        # One state of the tables from beginning to end, whatever is registered meanwhile.
        with one_compilation(), scope_for(home).snapshot().activate() as scope, plugins_named():
            try:
                settings = checked_options(options, num_replicas, num_partitions, pass_options)
                return _compile(program, _chosen(backend, settings, scope), settings, scope)
            except MemoryError as error:
                raise HlojitError(f"no memory to compile the program: {error}") from error


_FILE_NAME = re.compile(r"[\w ./\\:~-]+\.\w+")


def _check_program(program: Any) -> None:
    """Refuse what is neither the text of a program nor a module, with the way to one."""
    if isinstance(program, Module):
        return
    if not isinstance(program, str):
        way = "pass a str or an hlojit Module"
        if isinstance(program, (bytes, bytearray)):
            way = "pass the text as a str (program.decode())"
            if not program.isascii():
                way = "MLIR's bytecode and serialized exports are not read: pass text (of JAX's Exported, exported.mlir_module())"
        elif text_of := next((name for name in ("as_text", "mlir_module") if hasattr(program, name)), None):
            way = f"pass its text, .{text_of}()"
        elif type(program).__module__.partition(".")[0] in ("jaxlib", "mlir"):
            way = "pass its text, str(...)"
        elif isinstance(program, os.PathLike):
            way = "pass what the file holds: Path(...).read_text()"
        elif callable(program):
            way = "hlojit.jit compiles Python functions, and hlojit.jit(f).lower(*arguments) gives their module"
        raise ArgumentError(f"hlojit.compile takes a program, not an object of type {type(program).__name__}; {way}")
    if not program.strip():
        raise ArgumentError("hlojit.compile: the program is an empty text")
    if _FILE_NAME.fullmatch(program):
        raise ArgumentError(
            f"hlojit.compile takes the text of a program, and {program[:200]!r} is none; of a file pass what it holds: "
            "Path(...).read_text()"
        )


def _chosen(names: str | Sequence[str] | None, settings: CompileOptions, scope: Snapshot) -> Backend:
    """The back end of a name, or one that stands for those of a list; one device of a back end is a list."""
    names = named(names)
    if isinstance(names, str):
        chosen = registry().backend(names)
        if reason := why_unavailable(chosen):
            raise HlojitError(f"the back end {chosen.name!r} cannot be used here: {reason}")
        return chosen
    if not isinstance(names, Sequence):
        raise HlojitError(f"backend is the name of a back end, or a list of names, not {short_repr(names)}")
    from hlojit.partition.joint import joint_backend
    from hlojit.partition.partitioner import partitioned

    quiet = replace(settings, progress=False)

    def take_apart(module: Module, joint: Any, options: CompileOptions) -> Any:
        return partitioned(
            module, joint, options, lambda part, member: _compile(part, member, quiet, scope, is_segment=True)
        )

    return joint_backend(names, registry().backend, take_apart)


def _compile(
    program: str | Module, chosen: Backend, settings: CompileOptions, scope: Snapshot, *, is_segment: bool = False
) -> Any:
    """``is_segment``: the program is a part of one that was compiled for several back ends, and has been simplified."""
    from hlojit import program_cache
    from hlojit.progress import stage_progress

    with collection_paused(), stage_progress(settings.progress) as progress:
        # A segment goes through fewer passes of plugins' than a program, and is kept under the same key where there are none.
        leaves_out = is_segment and len(brought_passes(chosen, is_segment=True)) < len(registry().passes(chosen.name))
        key, origin, kept = ("", None, None) if leaves_out else program_cache.find(program, chosen, settings)
        if kept is not None:
            try:
                return load_program(kept, chosen)
            except (HlojitError, RuntimeError):
                # Whatever is wrong with what was kept: the program is here.
                program_cache.discard(key)
        progress("parse")
        module = _own_module(program, scope)
        grid = _stated(module, settings, chosen)
        settings = replace(settings, num_replicas=grid.replicas, num_partitions=grid.partitions)
        progress("verify")
        verify(module)
        outside = Outside.of(module)
        if ShapeLegalizer().run(module):
            verify(module)
        if is_dynamic(module):
            made = _dynamic(module, chosen, settings, scope, grid)
            if (compiled := getattr(made, "program", None)) is not None:
                program_cache.keep(key, outside.stated_in(program_cache.with_provenance(compiled, origin)))
            return outside.around(made)
        whole = None if platform_argument(module.main) is None else module.clone()
        try:
            lower(module, chosen, settings, callback=lambda event: progress(event.pass_.name), is_segment=is_segment)
        except UnsupportedError as error:
            if whole is None:
                raise
            # What another platform has for itself is not reached on this one.
            why = f"{error.op} cannot be compiled for every platform that the program is exported for: {error.reason}"
            return outside.around(_dynamic(whole, chosen, settings, scope, grid, why))
        progress("generate code")
        compiled = _compiled(chosen, module.freeze(), settings)
        if not isinstance(compiled, CompiledProgram):
            return outside.around(_of_grid(_executable(chosen, module, compiled), grid))
        compiled = outside.stated_in(program_cache.with_provenance(compiled, origin))
        program_cache.keep(key, compiled)
        return load_program(compiled, chosen)


def _own_module(program: str | Module, scope: Snapshot) -> Module:
    """A module of the compilation's own: passes change it."""
    module = parse(program) if isinstance(program, str) else resolved(program, scope)
    if module is program:
        module = module.clone()
    module.environment = scope
    return module


def _dynamic(
    module: Module, backend: Backend, settings: CompileOptions, scope: Snapshot, grid: ProcessGrid, why: str = ""
) -> Any:
    """The executable of a program that leaves sizes open; where its arguments do not, it is compiled at once.

    The number of the platform counts like a size: with it branches are chosen before anything is compiled.
    """
    from hlojit.dynamic_executable import DynamicExecutable, Made
    from hlojit.refined_program import as_any_tensor
    from hlojit.sized_executable import sized_executable

    CallInliner(keeps=lambda instruction: True).run(module)
    main = module.main
    arguments = [argument.type for argument in main.body.arguments]
    sources = size_arguments(main)
    if (platform := platform_argument(main)) is not None:
        sources = tuple(sorted({*sources, platform}))

    specialize = partial(_specialized, module, backend, settings, scope)
    if not sources and not any(map(has_unknown_size, arguments)):
        return specialize(arguments, {})
    if settings.dynamic_shapes == "symbolic":
        try:
            code = _symbolic(module, backend, sources, settings)
            module.freeze()
            return sized_executable(code.compiled, code, backend, specialize, settings.specializations)
        except UnsupportedError as error:
            why = f"{error.op} is not compiled for all sizes at once: {error.reason}"
    tensors = [as_any_tensor(type_, f"argument {number}") for number, type_ in enumerate(arguments)]
    results = [as_any_tensor(type_, f"result {number}") for number, type_ in enumerate(main.result_types)]
    module.freeze()
    return DynamicExecutable(
        main.name,
        tensors,
        results,
        lambda types, values: Made(specialize(types, values)),
        size_arguments=sources,
        limit=settings.specializations,
        grid=grid,
        why=why,
    )


def _specialized(
    module: Module,
    backend: Backend,
    settings: CompileOptions,
    scope: Snapshot,
    types: Sequence[Type],
    values: Mapping[int, Any],
) -> Any:
    """The executable for arguments of certain types, some with known elements."""
    from hlojit.bounded_executable import BoundedExecutable
    from hlojit.refined_program import as_tensor, check_ranks, refined_program

    with fork_gate.inside, one_compilation(), scope.activate(), plugins_named():
        refined = refined_program(module, types, values)
        check_ranks(refined)
        if not is_dynamic(refined):
            return _compile(refined, backend, settings, scope)
        if backend.takes_unknown_sizes:
            return _executable(backend, refined, _compiled(backend, refined.freeze(), settings))
        # Padding knows pointwise ops, and nothing of calls.
        OpExpander(rule_of=elementwise_binding, keeps=legalizer_of(backend, settings).keeps).run(refined)
        outputs = [as_tensor(type_, "a result") for type_ in refined.main.result_types]
        sizes = padded_program(refined)
        verify(refined)
        assert sizes is not None, "something was left open"
        return BoundedExecutable(_compile(refined, backend, settings, scope), outputs, sizes)


def _symbolic(module: Module, backend: Backend, sources: Sequence[int], settings: CompileOptions) -> SizedCode:
    """What makes executables of one compilation for all sizes; raises ``UnsupportedError``."""
    from hlojit.refined_program import check_ranks, stated_sizes

    copy = module.clone()
    ShapeRefinement(refine_call=refined_call).run(copy)
    CallInliner().run(copy)
    check_ranks(copy)
    stated = stated_sizes(_expanded(copy, backend, settings), sources)
    lower(copy, backend, settings, open_sizes=True)
    return backend.compile_symbolic(copy, sources).of(stated.facts(), str(module))


def _expanded(module: Module, backend: Backend, settings: CompileOptions) -> Module:
    """The program with all ops that say what they need of sizes: simplification leaves out what no result needs."""
    expanded = module.clone()
    inline, expand, _ = legalizer_of(backend, settings, open_sizes=True).passes()
    for pass_ in (inline, expand, ShapeRefinement(refine_call=refined_call)):
        pass_.run(expanded)
    return expanded


def _stated(module: Module, settings: CompileOptions, backend: Backend) -> ProcessGrid:
    """How many processes run the program: as the caller says, or else the module, which says it from now on."""
    stated = grid_of_module(module) or ProcessGrid()
    chosen = settings.num_replicas, settings.num_partitions
    grid = checked_grid(
        *(
            of_module if count is None else count
            for count, of_module in zip(chosen, (stated.replicas, stated.partitions))
        )
    )
    if grid.processes > 1:
        if backend.joint_members:
            why = f"a program that {grid.processes} processes run together ({grid}) is compiled for one back end"
            raise UnsupportedError(f"@{module.main.name}", backend.name, why)
        state_grid(module, grid)
    return grid


def _of_grid(executable: Any, grid: ProcessGrid) -> Any:
    from hlojit.parallel_executable import ParallelExecutable

    return executable if grid.processes == 1 else ParallelExecutable(executable, grid)


def _compiled(backend: Backend, module: Module, options: CompileOptions) -> Any:
    """What the back end makes of a module."""
    try:
        return call_named(
            lambda: f"{backend_text(backend.name)}: compile",
            backend.compile,
            module,
            options,
            where=f" for @{module.main.name}",
        )
    except UnsupportedError as error:
        if error.backend:
            raise
        # What is common to all targets knows of no back end; the user chose this one.
        raise error.about("the program", backend.name) from error
    except HlojitError as error:
        is_builders = isinstance(error, (TypeInferenceError, VerificationError))
        if not (type(error) is HlojitError or is_builders) or not tables().source_of(BACKENDS, backend.name):
            raise
        said = f" raised {told(error)}" if is_builders else f": {error}"
        raise PluginError(f"{backend_text(backend.name)}: compile{said}") from error


def generate(lowered: Module, backend: Backend, options: CompileOptions) -> Any:
    """The executable of a program of one process that ``lower`` has brought as far as its back end wants it; nothing is kept."""
    compiled = _compiled(backend, lowered.freeze(), options)
    if isinstance(compiled, CompiledProgram):
        return load_program(compiled, backend)
    return _executable(backend, lowered, compiled)


def load(path: str | os.PathLike[str]) -> Any:
    """The executable of a file that ``Executable.save`` wrote.

    A saved executable is native code, and is run as it is: load files of people you trust.  Raises ``HlojitError`` if the
    file is damaged, or was made for another processor (naming the features that are missing) or runtime, or if its back
    end cannot be used here.
    """
    # The file names element types, which a plugin may bring.
    registry().load()
    with fork_gate.inside:
        compiled = read(path)
        backend = registry().backend(compiled.backend)
        if reason := why_unavailable(backend):
            raise HlojitError(
                f"{os.fspath(path)}: {compiled.name} was compiled for the back end {backend.name!r}, which cannot be "
                f"used here: {reason}"
            )
        return load_program(compiled, backend)


def load_program(compiled: CompiledProgram, backend: Backend) -> Any:
    """The executable of a compiled program."""
    from hlojit.executable import Executable

    outside = Outside.stated(compiled)
    if compiled.sized is not None:
        return outside.around(_load_sized(compiled, backend))
    loaded = backend.load(compiled)
    if isinstance(loaded, DeviceProgram):
        made = Executable.from_program(loaded, backend, compiled)
    else:
        made = Executable(loaded, backend)
    if compiled.bounded:
        from hlojit.bounded_executable import BoundedExecutable

        types, pairs = zip(*compiled.bounded)
        sizes = RunTimeSizes(tuple(map(dict, pairs)), tuple(Limit(*each) for each in compiled.limits))
        return outside.around(BoundedExecutable(_of_grid(made, compiled.grid), types, sizes))
    return outside.around(_of_grid(made, compiled.grid))


def _load_sized(compiled: CompiledProgram, backend: Backend) -> Any:
    """The executable of a program that is compiled once for all sizes; its text is for calls that this is not right for."""
    from hlojit.sized_executable import sized_executable

    grid, sized = compiled.grid, compiled.sized
    assert sized is not None

    def alone(types: Sequence[Any], values: Mapping[int, Any]) -> Any:
        made = compile(sized.source, backend=backend.name, num_replicas=grid.replicas, num_partitions=grid.partitions)
        return made.alone(types, values)

    limit = compiled.provenance.options.get("specializations")
    return sized_executable(
        compiled, backend.load_symbolic(compiled), backend, alone, limit if isinstance(limit, int) and limit > 0 else 64
    )


def _executable(backend: Backend, module: Module, compiled: Any) -> Any:
    """The executable of anything else that a back end may return."""
    from hlojit.executable import Executable, ExecutableSpec

    main = module.main
    if backend.joint_members:
        return compiled
    if isinstance(compiled, ExecutableSpec):
        return Executable(compiled, backend)
    if isinstance(compiled, DeviceProgram):
        return Executable.from_program(compiled, backend)
    if not callable(compiled):
        raise PluginError(
            f"{backend_text(backend.name)}: compile returned {short_repr(compiled)} for @{main.name}; expected a function of "
            "arrays, a DeviceProgram, or a CompiledProgram or ExecutableSpec of native code"
        )
    inputs = [argument.tensor_type for argument in main.body.arguments]
    outputs = [value.tensor_type for value in main.body.returned]
    return Executable.from_function(main.name, compiled, inputs, outputs, backend)
