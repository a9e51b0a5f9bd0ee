"""What a graph with loops and branches of its own is made of: nodes over addresses, done one after the other.

    LaunchNode     a kernel
    CopyNode       bytes from one place of the device to another
    LoopNode       nodes, again and again as long as a byte is not 0 and the run was not stopped
    BranchNode     one of several lists of nodes, as an i32 or a byte says

Nothing here belongs to one driver.  The host looks at nothing: conditions are evaluated on the device, by the kernels of
``hlojit.simt.conditions``, which the driver launches with whatever handles it has for its nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from hlojit.gpu.driver import Grid

ONE_THREAD: Final = Grid(1, 1)
"""How the kernels that set conditions are launched."""


@dataclass(frozen=True, slots=True)
class LaunchNode:
    """Run a kernel function over addresses."""

    function: Any
    grid: Grid
    addresses: tuple[int, ...]
    what: str


@dataclass(frozen=True, slots=True)
class CopyNode:
    """Copy."""

    target: int
    source: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class LoopNode:
    """While the byte at ``predicate`` is not 0, and the i32 at ``stop`` is: do ``body``."""

    predicate: int
    stop: int
    body: Sequence[GraphNode]


@dataclass(frozen=True, slots=True)
class BranchNode:
    """Do the case that the i32 at ``index`` names, the last one if it names none; a predicate's byte: case 0 if it is not 0."""

    index: int
    is_predicate: bool
    cases: Sequence[Sequence[GraphNode]]


GraphNode: TypeAlias = LaunchNode | CopyNode | LoopNode | BranchNode


@dataclass(frozen=True, slots=True)
class Conditions:
    """The kernels of ``hlojit.simt.conditions`` on one device."""

    loop: Any
    case: Any
    predicate: Any

    def of_loop(self, node: LoopNode, handle: int) -> LaunchNode:
        """The launch that says whether a loop goes on."""
        return LaunchNode(self.loop, ONE_THREAD, (node.predicate, node.stop, handle), "the condition of a loop")

    def of_branch(self, node: BranchNode, handle: int) -> LaunchNode:
        """The launch that says which case it is to be."""
        what = "the index of a branch"
        if node.is_predicate:
            return LaunchNode(self.predicate, ONE_THREAD, (node.index, handle), what)
        return LaunchNode(self.case, ONE_THREAD, (node.index, len(node.cases), handle), what)


def leaves(
    nodes: Sequence[GraphNode], conditions: Conditions, handles: Iterator[int]
) -> Iterator[LaunchNode | CopyNode]:
    """What is launched and copied, what sets conditions included, as it stands in a graph.

    ``handles`` are those of the loops and branches, outer ones before inner ones.  A loop's condition is set in front of it
    and at the end of its body.
    """
    for node in nodes:
        match node:
            case LoopNode():
                condition = conditions.of_loop(node, next(handles))
                yield condition
                yield from leaves(node.body, conditions, handles)
                yield condition
            case BranchNode():
                yield conditions.of_branch(node, next(handles))
                for case in node.cases:
                    yield from leaves(case, conditions, handles)
            case _:
                yield node
