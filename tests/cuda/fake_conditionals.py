"""Conditional nodes of the fake driver: captures into graphs, and bodies that a word chooses."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import pytest

real = pytest.importorskip("cuda.bindings.driver")


class FakeConditionals:
    """What is known of captures into graphs, and of conditional nodes in these."""

    def __init__(self) -> None:
        self._into: dict[int, Any] = {}
        self._last: dict[int, int] = {}
        self._numbers = itertools.count(5_000_000)
        self._words: dict[int, ctypes.c_uint32] = {}
        self._handles: dict[int, int] = {}
        self._arrays: list[Any] = []
        self._is_behind: dict[int, bool] = {}
        self._bodies: list[dict[int, Callable[[], None]]] = []

    def begun(self, stream: Any, graph: Any) -> None:
        self._into[int(stream)] = graph
        self._is_behind[int(stream)] = True

    def captured(self, stream: Any, node: int) -> None:
        assert self._is_behind.get(int(stream), True), "captured beside a node, not behind it"
        self._last[int(stream)] = node

    def ended(self, stream: Any) -> Any:
        assert self._is_behind.pop(int(stream), True)
        return self._into.pop(int(stream), None)

    def information(self, stream: Any) -> Any:
        node = real.CUgraphNode(self._last[int(stream)])
        active = real.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
        return active, real.cuuint64_t(1), self._into[int(stream)], [node], [real.CUgraphEdgeData()], 1

    def set_last(self, stream: Any, node: Any) -> None:
        self._last[int(stream)] = int(node)
        self._is_behind[int(stream)] = True

    def new_handle(self, graph: Any) -> Any:
        word = ctypes.c_uint32(0xFFFFFFFF)
        handle = ctypes.addressof(word)
        self._words[handle] = word
        self._handles[handle] = int(graph)
        return real.CUgraphConditionalHandle(handle)

    def add(self, graph: Any, behind: Any, parameters: Any, bodies: list[Any]) -> Any:
        conditional = parameters.conditional
        (stream,) = [stream for stream, each in self._into.items() if int(each) == int(graph)]
        assert int(behind) == self._last[stream] and self._is_behind[stream]
        assert parameters.type.name == "CU_GRAPH_NODE_TYPE_CONDITIONAL" and int(conditional.ctx) == 77
        assert self._handles.pop(int(conditional.handle)) == int(graph), "another graph's handle, or one in use"
        # The struct is real: handle, kind and size, then the address of an array of graphs.
        array = (ctypes.c_void_p * len(bodies))(*map(int, bodies))
        self._arrays.append(array)
        ctypes.c_void_p.from_address(conditional.getPtr() + 16).value = ctypes.addressof(array)
        self._is_behind[stream] = False
        return real.CUgraphNode(next(self._numbers))

    def work(self, conditional: Any, bodies: list[dict[int, Callable[[], None]]]) -> Callable[[], None]:
        word, kind = self._words[int(conditional.handle)], conditional.type.name
        self._bodies += bodies
        assert kind == "CU_GRAPH_COND_TYPE_SWITCH" or len(bodies) == 1

        def run() -> None:
            while kind == "CU_GRAPH_COND_TYPE_WHILE" and word.value:
                for work in bodies[0].values():
                    work()
            if kind == "CU_GRAPH_COND_TYPE_SWITCH" and word.value < len(bodies):
                for work in bodies[word.value].values():
                    work()

        return run

    def body_of(self, node: int) -> dict[int, Callable[[], None]]:
        (found,) = [body for body in self._bodies if node in body]
        return found

    def check(self, graph: Any) -> None:
        assert not self._handles, "handles without a node"
        assert not self._into, "a stream still captures"
