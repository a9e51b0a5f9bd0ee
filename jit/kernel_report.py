"""Which kernels of plugins compute what of a program, and why others do not.

print(hlojit.kernel_report(text))
nova.softmax ('nova') for 9 instructions around stablehlo.divide at model.mlir:7:8: taken, 1,200 ns
nova.matmul ('nova') for stablehlo.dot_general at model.mlir:9:8: not taken: rows are not a multiple of 16
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from hlojit.compiler import DEFAULT_BACKEND, lower, parse, verify
from hlojit.extensions import CompileOptions, registry
from hlojit.extensions.elementwise_calls import one_compilation
from hlojit.extensions.kernel_selection import KernelDecision, KernelSelection, unmatched
from hlojit.extensions.kernel_table import kernels_for
from hlojit.ir.environment import scope_for
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Module
from hlojit.ir.passes.pass_manager import PassEvent
from hlojit.ir.resolution import resolved
from hlojit.ir.switches import BACKEND


@final
@dataclass(frozen=True, slots=True)
class KernelReport:
    """What plugins' kernels were offered in a program; its text is for people."""

    backend: str
    decisions: tuple[KernelDecision, ...]
    """Offers in the order in which they were decided."""
    unmatched: tuple[tuple[str, str, str], ...] = ()
    """Kernels to which nothing was offered: name, plugin, and what they are for."""
    note: str = ""
    """Why nobody was asked, or why the program cannot be compiled."""

    @property
    def taken(self) -> tuple[KernelDecision, ...]:
        """The offers that became part of the program."""
        return tuple(each for each in self.decisions if each.taken)

    def __str__(self) -> str:
        lines = list(map(str, self.decisions))
        lines += [f"{name} ({plugin}): the program has no {what}" for name, plugin, what in self.unmatched]
        lines += [self.note] * bool(self.note)
        return "\n".join(lines) or f"no plugin has kernels for the back end {self.backend!r}"


def kernel_report(
    program: str | Module, *, backend: str | None = None, options: CompileOptions | None = None
) -> KernelReport:
    """Lower a program for a back end as ``hlojit.compile`` does, and say what became of plugins' kernels.

    The program is not changed.  Raises what ``hlojit.compile`` raises of a program that is not valid.
    """
    chosen = registry().backend(backend or BACKEND.text() or DEFAULT_BACKEND)
    module = parse(program) if isinstance(program, str) else program.clone()
    found: list[KernelDecision] = []

    def note(event: PassEvent) -> None:
        if isinstance(event.pass_, KernelSelection):
            found[:] = event.pass_.decisions

    reason = ""
    with one_compilation(), scope_for(module.environment).snapshot().activate() as scope:
        module = resolved(module, scope)
        module.environment = scope
        verify(module)
        try:
            lower(module, chosen, options or CompileOptions(), callback=note)
        except UnsupportedError as error:
            reason = str(error)
        registered = kernels_for(chosen.name).plugins
        if registered and not chosen.kernel_forms:
            reason = f"the back end {chosen.name!r} takes no kernels of plugins"
        rest = () if reason else tuple((r.kernel.name, r.origin, str(p)) for r, p in unmatched(chosen, found))
    return KernelReport(chosen.name, tuple(found), rest, reason)
