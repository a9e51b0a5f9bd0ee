"""What passes make of a program for a back end, without compiling it: ``hlojit.lower``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hlojit.compile_options import checked_options
from hlojit.compiler import lower as run_passes
from hlojit.compiler import parse, verify
from hlojit.extensions import CompileOptions
from hlojit.ir.environment import current, scope_for
from hlojit.ir.graph import Module
from hlojit.ir.passes.pass_manager import PassEvent
from hlojit.ir.passes.shape_legalizer import ShapeLegalizer
from hlojit.ir.plugin_names import plugins_named
from hlojit.ir.resolution import resolved
from hlojit.placement import default_backend, named_backend


def lower(
    program: str | Module,
    *,
    backend: str | None = None,
    options: CompileOptions | Mapping[str, Any] | None = None,
    pass_options: Mapping[str, Mapping[str, Any]] | None = None,
    callback: Callable[[PassEvent], None] | None = None,
) -> Module:
    """The module that a back end would be given for a program of static shapes, after all passes.

    ``callback`` is told after each pass what ran and whether it changed anything (``event.pass_``, ``event.changed``,
    ``event.seconds``, ``event.module``).  The other arguments are those of ``hlojit.compile``; the module given is not changed.
    """
    chosen = named_backend(backend or default_backend())
    settings = checked_options(options, None, None, pass_options)
    home = program.environment if isinstance(program, Module) else current()
    with scope_for(home).snapshot().activate() as scope, plugins_named():
        module = parse(program) if isinstance(program, str) else resolved(program, scope)
        module = module.clone() if module is program else module
        module.environment = scope
        verify(module)
        if ShapeLegalizer().run(module):
            verify(module)
        return run_passes(module, chosen, settings, callback=callback)
