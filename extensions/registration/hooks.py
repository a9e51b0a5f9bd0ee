"""The hooks that a plugin may implement: each is called once, when the plugin is loaded, and fills a table.

    import hlojit.extensions as ext

    @ext.hookimpl
    def hlojit_formats():
        return [ext.FloatFormat("acme8", exponent_bits=5, mantissa_bits=2, bias=15)]

A plugin is any module or object with such functions: named by an entry point of the group ``hlojit``, or given to
``hlojit.extensions.register``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pluggy
from hlojit.extensions.backends.backend import Backend
from hlojit.extensions.calls.custom_calls import CustomCall
from hlojit.extensions.kernels.kernel import Kernel
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.formats import FloatFormat
from hlojit.ir.ops.definition import OpDefinition
from hlojit.ir.passes.pass_manager import Pass

PROJECT = "hlojit"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def hlojit_formats() -> Sequence[FloatFormat | BlockFormat]:
    """Number formats and block formats: each becomes an element type of the text, of casts, arithmetic and products."""
    return ()


@hookspec
def hlojit_ops() -> Sequence[OpDefinition]:
    """Ops of the vendor's own dialect."""
    return ()


@hookspec
def hlojit_passes() -> Sequence[Pass]:
    """Passes, each with its phase, its order and the targets that it is for (class variables of ``Pass``)."""
    return ()


@hookspec
def hlojit_custom_calls() -> Sequence[CustomCall]:
    """Bindings of custom call targets."""
    return ()


@hookspec
def hlojit_kernels() -> Sequence[Kernel]:
    """Kernels for a back end: of an op, a composite, or a group of instructions."""
    return ()


@hookspec
def hlojit_backends() -> Sequence[Backend]:
    """Back ends."""
    return ()
