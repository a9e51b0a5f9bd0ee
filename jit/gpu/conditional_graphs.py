"""Programs with loops and branches on one device, each launched as one graph that decides for itself what it does next.

Where that cannot be - the driver has no such graphs, the program nests too deeply, ``HLOJIT_GPU_LOOPS=host`` - ``reason`` says
why, and the host reads conditions back (``program_runner.py``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, final

from hlojit.gpu.device_graph import NoDeviceGraph, graph_nodes
from hlojit.gpu.driver import DeviceFault, Driver, DriverError, DriverRefusal, Graph, Properties, Stream
from hlojit.gpu.graph_nodes import Conditions, GraphNode
from hlojit.gpu.operations import Operations
from hlojit.ir.errors import HlojitError
from hlojit.ir.switches import GPU_LOOPS
from hlojit.simt import conditions

ConditionImages: TypeAlias = Mapping[str, tuple[str, bytes | memoryview]]
"""Symbol and image by what the kernel is: none, or all of ``hlojit.simt.conditions.KINDS``."""
KEPT_GRAPHS: Final = 4
"""Of one program: addresses alternate when results of one call are arguments of the next."""
_DEVICE: Final = "device"
_HOST: Final = "host"
_APART: Final = 1 << 48
"""Between addresses that stand for those of a run."""


def reason_for_host(properties: Properties) -> str:
    """Why the host decides about the loops and branches of all programs on a device, or an empty string."""
    chosen = GPU_LOOPS.text() or _DEVICE
    if chosen not in (_DEVICE, _HOST):
        raise HlojitError(f"{GPU_LOOPS.name}={chosen!r} is neither {_DEVICE!r} nor {_HOST!r}")
    return f"{GPU_LOOPS.name}={_HOST}" if chosen == _HOST else properties.no_conditional_graphs


def load_conditions(driver: Driver, images: ConditionImages) -> Conditions:
    """The kernels that set conditions, on a device."""

    def function(kind: str) -> Any:
        symbol, image = images[kind]
        return driver.function(driver.load(image, (symbol,)), symbol, 0)

    return Conditions(*map(function, (conditions.LOOP, conditions.CASE, conditions.PREDICATE)))


@final
class ConditionalGraphs:
    """The graphs of one program, by the addresses that they are over."""

    def __init__(
        self,
        driver: Driver,
        conditions: Callable[[], Conditions | None],
        operations: Operations,
        functions: Mapping[str, Any],
    ):
        self._driver = driver
        self._conditions = conditions
        self._operations = operations
        self._functions = functions
        self._graphs: OrderedDict[tuple[int, ...], Graph] = OrderedDict()
        self.reason = reason_for_host(driver.properties) or self._reason()
        """Why the host decides, or an empty string."""

    def _reason(self) -> str:
        """What the program itself, or the machine's code, stands against: found with addresses that are none."""
        if self._conditions() is None:
            return "its machine has no kernels that set conditions"
        try:
            graph_nodes(self._operations, [_APART * slot for slot in range(self._operations.length)], self._functions)
        except NoDeviceGraph as error:
            return str(error)
        return ""

    def launch(self, frame: Sequence[int], stream: Stream) -> bool:
        """Launch the program over these addresses; False: the host decides, for ever if there is a ``reason`` now.

        New addresses make a graph, or, when there are enough, are told to the one that was not launched for longest.
        """
        if self.reason:
            return False
        key = tuple(frame)
        graph = self._graphs.get(key) or self._readdressed(key) or self._made(key)
        if graph is None:
            return False
        self._graphs.move_to_end(key)
        self._driver.launch_graph(graph, stream)
        return True

    def _described(self, frame: tuple[int, ...]) -> tuple[Sequence[GraphNode], Conditions]:
        conditions = self._conditions()
        assert conditions is not None
        return graph_nodes(self._operations, frame, self._functions), conditions

    def _readdressed(self, frame: tuple[int, ...]) -> Graph | None:
        if len(self._graphs) < KEPT_GRAPHS:
            return None
        _, graph = self._graphs.popitem(last=False)
        if not self._driver.readdress(graph, *self._described(frame)):
            return None
        self._graphs[frame] = graph
        return graph

    def _made(self, frame: tuple[int, ...]) -> Graph | None:
        try:
            graph = self._driver.conditional_graph(*self._described(frame))
        except DeviceFault:
            raise
        except DriverRefusal as error:
            # What the driver's documentation allows and it refuses nevertheless, the host can do.
            self.reason = str(error)
            return None
        except DriverError:
            # For want of memory, say: the next call may find more.
            return None
        self._graphs[frame] = graph
        return graph
