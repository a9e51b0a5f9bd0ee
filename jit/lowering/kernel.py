"""What an emitter returns: the code of one kernel and how it is to be launched.

Every kernel function has one signature::

    void symbol(ptr context, ptr buffers, i64 begin, i64 end)

``buffers`` points to an array of addresses: the instruction's operands, then its results, then (if asked for) the
workspace.  The function does the tasks ``begin <= task < end``; different tasks never write the same memory, so a launch
may hand ranges of tasks to different threads.  The context (``hlojit.runtime``) holds the pool, the error slot and the
cancel flag.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Phase:
    """One launch of a kernel: phases run one after the other with the same buffers.

    ``cost`` estimates the nanoseconds of one task on one core; a launch whose total is small runs on one thread.  On a
    machine with threads a task is a block of ``threads``, which share ``shared_bytes`` of memory; with ``has_status`` the
    kernel takes the address of a status (``hlojit.simt.status``) behind those of its buffers, in which ``reports`` are what
    functions in it can fail with.  ``library`` names a call (``library_product``) that a vendor's library may do instead.
    """

    symbol: str
    tasks: int
    cost: float
    threads: int = 1
    shared_bytes: int = 0
    has_status: bool = False
    reports: tuple[str, ...] = ()
    library: str = ""


@dataclass(frozen=True, slots=True)
class HostWork:
    """What the host of a machine with threads does in place of a kernel: it takes what comes through a channel, or sends.

    Arrays are given by element type and shape.
    """

    channel: str
    direction: str
    operands: tuple[tuple[str, tuple[int, ...]], ...]
    results: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class KernelCode:
    """LLVM IR text (functions and declarations) and the launches it needs.

    ``pipeline`` is ``plain`` for code that is as it should be, ``lean`` for code with explicit vectors, ``inline`` for
    such code that calls foreign functions, and ``vectorize`` for scalar loops that LLVM's loop vectorizer is to widen.
    ``linked`` maps symbols to foreign LLVM modules to link in.
    ``workspace_bytes`` is shared scratch memory for the launch.  ``in_place`` pairs (operand, result): the result may
    share the operand's buffer.  With ``updates`` it must: the kernel only changes a part of what lies there.
    ``candidate`` is the name of the way in which it was made (``candidates``), empty for the default.
    ``parts`` hold functions that this code calls by their symbols: codes of their own, without launches, which many kernels
    share.  ``imports`` pairs symbols that the code calls with the names by which whoever loads it finds the functions.
    ``unkeyable`` says why the kernel has no identity outside of this process (its code holds an address, say), or is
    empty.  With ``host`` there is no code.  ``owner`` is what must live as long as somebody may
    load the code, of this process alone.  ``name`` is what the kernel is called where that is not its first phase.
    """

    ir: str
    phases: tuple[Phase, ...]
    workspace_bytes: int = 0
    pipeline: str = "lean"
    linked: tuple[tuple[str, str], ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    updates: bool = False
    unkeyable: str = ""
    candidate: str = ""
    parts: tuple[KernelCode, ...] = ()
    imports: tuple[tuple[str, str], ...] = ()
    host: HostWork | None = None
    owner: Any = field(default=None, compare=False, repr=False)
    name: str = ""

    @property
    def symbol(self) -> str:
        """The kernel's name; without one, that of its first phase."""
        return self.name or self.phases[0].symbol

    @property
    def all_codes(self) -> tuple[KernelCode, ...]:
        """What has to be assembled: this code and its parts."""
        return (self, *self.parts)

    @property
    def nbytes(self) -> int:
        """Bytes of the texts, about."""
        return len(self.ir) + sum(len(text) for _, text in self.linked)
