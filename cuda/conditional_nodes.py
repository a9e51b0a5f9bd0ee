"""Loops and branches as conditional nodes of CUDA graphs: written by the documentation, **not run on a GPU yet**.

A conditional node owns the graphs of its bodies.  What is launched and copied is captured into a graph; where a loop or a
branch stands, its node is added behind what was captured so far, and what is captured next comes behind the node::

    handle = cuGraphConditionalHandleCreate(graph, ...)
    launch of the kernel that sets it                                 captured
    node = cuGraphAddNode(graph, what was captured last, ...)         WHILE, or SWITCH with as many bodies as there are cases
    cuStreamUpdateCaptureDependencies(stream, [node], ...)
    the bodies                                                        captured on the next level's stream

The body of a loop ends with the kernel that sets the loop's condition anew.  A condition has no default: the kernel in
front of the node always runs first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

from hlojit.cuda.cublaslt import Routine
from hlojit.cuda.driver_api import DriverApi
from hlojit.gpu.driver import DriverError
from hlojit.gpu.graph_nodes import BranchNode, Conditions, CopyNode, GraphNode, LaunchNode, LoopNode, leaves

if TYPE_CHECKING:
    from hlojit.cuda.nvidia_driver import NvidiaDriver
    from hlojit.cuda.nvidia_handles import NvidiaStream

SINCE: Final = 12080
"""The driver's version with all that is used here: SWITCH nodes, and bodies that may be empty."""


def reason_against(api: DriverApi) -> str:
    """Why the installed driver makes no such graphs, or an empty string."""
    version = int(api("cuDriverGetVersion"))
    if version >= SINCE:
        return ""
    return f"the NVIDIA driver is for CUDA {_named(version)}, graphs with loops and branches came with CUDA {_named(SINCE)}"


def _named(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


@final
class ConditionalGraph:
    """A graph that can be launched, and what tells it other addresses: the graph that it was made of, and its nodes."""

    def __init__(self, driver: NvidiaDriver, handle: Any, writer: ConditionalGraphWriter, template: Any):
        self.handle = handle
        self.launched = writer.launched
        self._driver = driver
        self._writer = writer
        self._template = template

    def __del__(self) -> None:
        self._driver.drop_graph(self.handle)
        self._driver.drop_template(self._template)

    def readdress(self, nodes: Sequence[GraphNode], conditions: Conditions) -> bool:
        """``Driver.readdress``."""
        written = self._writer.written
        leaves_now = leaves(nodes, conditions, iter(self._writer.handles))
        for number, ((leaf, node), new) in enumerate(zip(written, leaves_now, strict=True)):
            if leaf != new:
                if not self._writer.readdress(self.handle, node, new):
                    return False
                written[number] = new, node
        return True


@final
class ConditionalGraphWriter:
    """Writes nodes into graphs, those of the bodies included."""

    def __init__(self, api: DriverApi, context: Any, driver: NvidiaDriver, conditions: Conditions):
        self._api = api
        self._context = context
        self._driver = driver
        self._conditions = conditions
        self.launched: list[str] = []
        """What is launched, for messages."""
        self.handles: list[int] = []
        """Of loops and branches, outer ones before inner ones."""
        self.written: list[tuple[LaunchNode | CopyNode, Any]] = []
        """What was captured, each with its node."""

    def graph(self, nodes: Sequence[GraphNode]) -> ConditionalGraph:
        """A graph of these nodes."""
        api = self._api
        template = api("cuGraphCreate", 0)
        try:
            self._fill(template, nodes, 0)
            return ConditionalGraph(self._driver, api("cuGraphInstantiate", template, 0), self, template)
        except BaseException:
            api("cuGraphDestroy", template)
            raise

    def _fill(self, graph: Any, nodes: Sequence[GraphNode], level: int, last: LaunchNode | None = None) -> None:
        api, stream = self._api, self._driver.capture_stream(level)
        mode = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        api("cuStreamBeginCaptureToGraph", stream.handle, graph, None, None, 0, mode)
        try:
            for node in (*nodes, *([last] if last is not None else [])):
                self._add(graph, node, stream, level)
        finally:
            api("cuStreamEndCapture", stream.handle)
            self.launched += stream.launched
            stream.launched.clear()

    def _add(self, graph: Any, node: GraphNode, stream: NvidiaStream, level: int) -> None:
        match node:
            case LaunchNode():
                self._driver.launch(node.function, node.grid, node.addresses, stream, node.what)
                self.written.append((node, self._last(stream)))
            case CopyNode():
                self._driver.copy(node.target, node.source, node.nbytes, stream)
                self.written.append((node, self._last(stream)))
            case LoopNode():
                handle = self._handle(graph)
                condition = self._conditions.of_loop(node, int(handle))
                self._add(graph, condition, stream, level)
                (body,) = self._conditional(graph, handle, self._kinds.CU_GRAPH_COND_TYPE_WHILE, 1, stream)
                self._fill(body, node.body, level + 1, condition)
            case BranchNode():
                handle = self._handle(graph)
                self._add(graph, self._conditions.of_branch(node, int(handle)), stream, level)
                count = len(node.cases)
                bodies = self._conditional(graph, handle, self._kinds.CU_GRAPH_COND_TYPE_SWITCH, count, stream)
                for body, case in zip(bodies, node.cases, strict=True):
                    self._fill(body, case, level + 1)

    @property
    def _kinds(self) -> Any:
        return self._api.CUgraphConditionalNodeType

    def _last(self, stream: NvidiaStream) -> Any:
        """The node that was captured last."""
        (node,) = self._api("cuStreamGetCaptureInfo", stream.handle)[3]
        return node

    def _handle(self, graph: Any) -> Any:
        handle = self._api("cuGraphConditionalHandleCreate", graph, self._context, 0, 0)
        self.handles.append(int(handle))
        return handle

    def _conditional(self, graph: Any, handle: Any, kind: Any, count: int, stream: NvidiaStream) -> Sequence[Any]:
        """Add a node behind what the stream has captured; returns the graphs of its bodies."""
        api = self._api
        parameters = api.CUgraphNodeParams()
        parameters.type = api.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        conditional = parameters.conditional
        conditional.handle, conditional.type, conditional.size = handle, kind, count
        conditional.ctx = self._context
        _, _, _, nodes, edges, number = api("cuStreamGetCaptureInfo", stream.handle)
        node = api("cuGraphAddNode", graph, nodes, edges, number, parameters)
        replace = api.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES
        api("cuStreamUpdateCaptureDependencies", stream.handle, [node], None, 1, replace)
        return [conditional.phGraph_out[number] for number in range(count)]

    # ---------------------------------------------------------------------------------------------- other addresses

    def readdress(self, instantiated: Any, node: Any, leaf: LaunchNode | CopyNode) -> bool:
        """Tell a graph what a node of it launches or copies from now on; False where nobody here knows the parameters."""
        try:
            if isinstance(leaf, CopyNode):
                self._copy(instantiated, node, leaf)
                return True
            if not isinstance(leaf.function, Routine):
                self._launch(instantiated, node, leaf)
                return True
        except DriverError:
            return False
        return False

    def _launch(self, instantiated: Any, node: Any, leaf: LaunchNode) -> None:
        api, function, grid = self._api, leaf.function, leaf.grid
        parameters = api.CUDA_KERNEL_NODE_PARAMS()
        parameters.func = function.handle
        parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ = grid.blocks, 1, 1
        parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ = grid.threads, 1, 1
        parameters.sharedMemBytes = grid.shared_bytes
        with function.lock:
            function.set_parameters(leaf.addresses)
            parameters.kernelParams = ctypes.addressof(function.pointers)
            api("cuGraphExecKernelNodeSetParams", instantiated, node, parameters)

    def _copy(self, instantiated: Any, node: Any, leaf: CopyNode) -> None:
        api = self._api
        parameters = api.CUDA_MEMCPY3D()
        parameters.srcMemoryType = parameters.dstMemoryType = api.CUmemorytype.CU_MEMORYTYPE_DEVICE
        parameters.srcDevice, parameters.dstDevice = api.CUdeviceptr(leaf.source), api.CUdeviceptr(leaf.target)
        parameters.WidthInBytes, parameters.Height, parameters.Depth = leaf.nbytes, 1, 1
        api("cuGraphExecMemcpyNodeSetParams", instantiated, node, parameters, self._context)
