"""The driver: from text or a module to an executable.  This is the only place where the order of stages is written.

parse -> verify -> import, legalize, simplify (with the plugins' passes) -> capability check -> fuse -> back end
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from hlojit.collection import collection_paused
from hlojit.extensions import Backend, CompileOptions, Support, registry
from hlojit.ir.errors import HlojitError, UnsupportedError
from hlojit.ir.graph import Module
from hlojit.ir.ops.definition import Structural
from hlojit.ir.passes.pass_manager import PassCallback, PassPipeline, order_passes

DEFAULT_BACKEND = "cpu"
_FUSION_PHASES = ("fusion", "after-fusion", "before-codegen")


def parse(text: str, *, allow_unregistered: bool = False, source_name: str = "<string>") -> Module:
    """Read StableHLO text.

    ``allow_unregistered`` keeps ops that nobody registered instead of refusing them.  ``source_name`` is what errors and
    locations call the text.  Raises ``ParseError`` with line, column and what was expected.
    """
    from hlojit.ir.text.parser import parse_module

    registry().load()
    with collection_paused():
        return parse_module(text, source_name=source_name, allow_unregistered=allow_unregistered)


def verify(module: Module) -> None:
    """Check every rule of the specification; raises ``VerificationError`` with all that are broken."""
    from hlojit.ir.verifier import verify as verify_module

    verify_module(module)


def compile(
    program: str | Module,
    *,
    backend: str | None = None,
    options: CompileOptions | Mapping[str, Any] | None = None,
    num_replicas: int = 1,
    num_partitions: int = 1,
) -> Any:
    """Compile StableHLO text or a module to an ``Executable``.

    ``backend`` is the name of a registered back end (default: ``HLOJIT_BACKEND``, then the CPU); ``options`` is a
    ``CompileOptions`` or a mapping of its fields.  The module given is not changed.

    Raises ``ParseError``, ``VerificationError``, or ``UnsupportedError`` naming the op, the back end and the reason.
    """
    chosen = registry().backend(backend or os.environ.get("HLOJIT_BACKEND") or DEFAULT_BACKEND)
    settings = _settings(options, num_replicas, num_partitions)
    if num_replicas != 1 or num_partitions != 1:
        raise HlojitError(
            f"num_replicas={num_replicas}, num_partitions={num_partitions}: programs for several devices cannot be run yet; "
            "compile for one replica and one partition"
        )
    reason = chosen.unavailable()
    if reason:
        raise HlojitError(f"the back end {chosen.name!r} cannot be used here: {reason}")
    from hlojit.progress import stage_progress

    with collection_paused(), stage_progress(settings.progress) as progress:
        progress("parse")
        module = parse(program) if isinstance(program, str) else program.clone()
        progress("verify")
        verify(module)
        lowered = lower(module, chosen, settings, callback=lambda event: progress(event.pass_.name))
        progress("generate code")
        return _executable(chosen, lowered.freeze(), settings)


def lower(module: Module, backend: Backend, options: CompileOptions, *, callback: PassCallback | None = None) -> Module:
    """Run the default pipeline for ``backend`` on ``module`` in place and return it."""
    pipeline = default_pipeline(backend, options)
    before = PassPipeline(tuple(pass_ for pass_ in pipeline.passes if pass_.phase not in _FUSION_PHASES))
    after = PassPipeline(tuple(pass_ for pass_ in pipeline.passes if pass_.phase in _FUSION_PHASES))
    mode: Any = options.verify
    before.run(module, verify=mode, callback=callback)
    check_capability(module, backend)
    if backend.fuses:
        after.run(module, verify=mode, callback=callback)
    return module


def default_pipeline(backend: Backend, options: CompileOptions) -> PassPipeline:
    """hlojit's passes and those of the plugins, in their order for a back end."""
    from hlojit.extensions.binding import CustomCallBinding
    from hlojit.ir.passes.registry import default_passes

    passes = [
        *default_passes(fold_limit=options.fold_limit, rows=True),
        CustomCallBinding(),
        *registry().passes(backend.name),
    ]
    known = {pass_.name for pass_ in passes}
    for name in options.disable_passes:
        if name not in known:
            raise HlojitError(f"unknown pass {name!r} in disable_passes; known: {', '.join(sorted(known))}")
    return order_passes(pass_ for pass_ in passes if pass_.name not in options.disable_passes)


def check_capability(module: Module, backend: Backend) -> None:
    """Raise ``UnsupportedError`` for the first instruction of the entry function that the back end cannot do."""
    stack = [module.main.body]
    while stack:
        for instruction in stack.pop():
            answer = backend.capability(instruction)
            if answer.support is Support.NO:
                raise UnsupportedError(instruction.op.name, backend.name, answer.reason, instruction.location)
            lowering = instruction.op.lowering
            if isinstance(lowering, Structural) and lowering.role in ("loop", "branch"):
                stack.extend(instruction.regions)


def _settings(
    options: CompileOptions | Mapping[str, Any] | None, num_replicas: int, num_partitions: int
) -> CompileOptions:
    if isinstance(options, Mapping):
        names = [field.name for field in fields(CompileOptions)]
        unknown = sorted(set(options) - set(names))
        if unknown:
            raise HlojitError(f"unknown compile option {unknown[0]!r}; known: {', '.join(names)}")
        options = CompileOptions(**options)
    return replace(options or CompileOptions(), num_replicas=num_replicas, num_partitions=num_partitions)


def _executable(backend: Backend, module: Module, options: CompileOptions) -> Any:
    from hlojit.executable import Executable, ExecutableSpec

    compiled: Callable[..., Any] | ExecutableSpec = backend.compile(module, options)
    if isinstance(compiled, ExecutableSpec):
        return Executable(compiled)
    main = module.main
    return Executable.from_function(
        main.name,
        compiled,
        [argument.tensor_type for argument in main.body.arguments],
        [value.tensor_type for value in main.body.returned],
    )
