"""Graphs with loops and branches on the simulator: what they do next is decided where they run, by what kernels wrote.

A node's handle is the address of a word.  The kernel that sets its condition writes that word, and nothing else does: the
host is asked for nothing while the graph runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Final, final

from hlojit.gpu.graph_nodes import BranchNode, Conditions, CopyNode, GraphNode, LaunchNode, LoopNode

_NOT_SET: Final = 0xFFFFFFFF


@final
class SimulatedConditionals:
    """Runs nodes on the thread of a stream."""

    def __init__(self, conditions: Conditions, launch: Callable[[LaunchNode], None], copy: Callable[[CopyNode], None]):
        self._conditions = conditions
        self._launch = launch
        self._copy = copy

    def run(self, nodes: Sequence[GraphNode]) -> None:
        """Do what the nodes say, one after the other."""
        for node in nodes:
            match node:
                case LaunchNode():
                    self._launch(node)
                case CopyNode():
                    self._copy(node)
                case LoopNode():
                    while self._condition(node):
                        self.run(node.body)
                case BranchNode():
                    self._case(node)

    def _case(self, node: BranchNode) -> None:
        """As on a GPU, no case is done if the condition is the number of none: the kernel has to see to it."""
        number = self._condition(node)
        if number < len(node.cases):
            self.run(node.cases[number])

    def _condition(self, node: LoopNode | BranchNode) -> int:
        """What the node's kernel sets, launched here."""
        word = ctypes.c_uint32(_NOT_SET)
        handle = ctypes.addressof(word)
        conditions = self._conditions
        self._launch(
            conditions.of_loop(node, handle) if isinstance(node, LoopNode) else conditions.of_branch(node, handle)
        )
        return word.value
