"""The kernels that are registered for a back end, by what they are offered: read once for each state of the tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from hlojit.extensions.backends.registered import BACKENDS
from hlojit.extensions.kernels.kernel import (
    AnchorPattern,
    CompositePattern,
    Kernel,
    LoweringPattern,
    OpPattern,
    SubgraphPattern,
)
from hlojit.ir.environment import KERNELS, Snapshot, tables
from hlojit.ir.near_names import did_you_mean


@dataclass(frozen=True, slots=True)
class RegisteredKernel:
    """A kernel, and how messages call its plugin."""

    kernel: Kernel
    origin: str

    @property
    def user(self) -> str:
        """How messages name the kernel."""
        return f"kernel {self.kernel.name!r} ({self.origin})"


@dataclass(slots=True)
class BackendKernels:
    """The kernels for one back end; ``routines`` are hlojit's own, by the name in ``Kernel(name)`` lowerings."""

    ops: dict[str, list[RegisteredKernel]] = field(default_factory=dict)
    lowerings: dict[str, list[RegisteredKernel]] = field(default_factory=dict)
    composites: dict[str, list[RegisteredKernel]] = field(default_factory=dict)
    anchors: dict[str, list[RegisteredKernel]] = field(default_factory=dict)
    subgraphs: list[RegisteredKernel] = field(default_factory=list)
    routines: dict[str, Kernel] = field(default_factory=dict)

    @property
    def plugins(self) -> list[RegisteredKernel]:
        """All that plugins have registered."""
        tables = (self.ops, self.lowerings, self.composites, self.anchors)
        return [*(each for table in tables for found in table.values() for each in found), *self.subgraphs]

    def add(self, found: RegisteredKernel, built_in: bool) -> None:
        """Put a kernel where it is looked for."""
        match found.kernel.pattern:
            case LoweringPattern(routine) if built_in:
                self.routines[routine] = found.kernel
            case LoweringPattern(routine):
                self.lowerings.setdefault(routine, []).append(found)
            case OpPattern(op):
                self.ops.setdefault(op, []).append(found)
            case CompositePattern(name):
                self.composites.setdefault(name, []).append(found)
            case AnchorPattern(anchor):
                self.anchors.setdefault(anchor, []).append(found)
            case SubgraphPattern():
                self.subgraphs.append(found)


_NONE: Final = BackendKernels()


def kernels_for(backend: str) -> BackendKernels:
    """The kernels that the current environment has for a back end."""
    return kernels_of(tables()).get(backend, _NONE)


def kernels_of(snapshot: Snapshot) -> dict[str, BackendKernels]:
    """The kernels of an environment, by back end."""
    known: dict[str, BackendKernels] | None = snapshot.kernels
    if known is None:
        known = snapshot.kernels = _read(snapshot)
    return known


def complaints_of_kernels(scope: Snapshot) -> Iterator[str]:
    """What plugins' kernels name and nobody registers: back ends and ops."""
    backends = scope.table(BACKENDS)
    for backend, found in kernels_of(scope).items():
        for each in found.plugins:
            if backend not in backends:
                yield f"{each.user}: backend is {backend!r}, which nobody registers{did_you_mean(backend, backends)}"
            pattern = each.kernel.pattern
            for name in (getattr(pattern, attribute, "") for attribute in ("op", "anchor", "root")):
                if name and name not in scope.ops:
                    kind = type(pattern).__name__
                    yield f"{each.user}: {kind} names the op {name!r}, which nobody registers{did_you_mean(name, scope.ops)}"


def _read(snapshot: Snapshot) -> dict[str, BackendKernels]:
    found: dict[str, BackendKernels] = {}
    for name, kernel in snapshot.table(KERNELS).items():
        owner = snapshot.contributions.get(snapshot.owners.get((KERNELS, name), ""))
        registered = RegisteredKernel(kernel, owner.source if owner is not None else "hlojit")
        found.setdefault(kernel.backend, BackendKernels()).add(registered, owner is None or owner.built_in)
    return found
