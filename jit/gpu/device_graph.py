"""A program with loops and branches as the nodes of one graph, so that no condition is read back.

    nodes = graph_nodes(operations, frame, functions)     # raises NoDeviceGraph: then the host decides

The operations are jumps over a frame of addresses; nodes are nested, and have the addresses themselves.  What lies between
is where cells point to.  A loop that exchanges two buffers after every iteration becomes one whose body are two iterations, the
second one with exchanged addresses::

    loop p:  body(A, B);  branch p:  case 0: body(B, A)            # as it was at the beginning
                                     case 1: copy B to A           # the loop ends after an odd number of iterations

so that behind it, as before it, everything lies where the program was told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar, final

from hlojit.gpu.graph_nodes import BranchNode, CopyNode, GraphNode, LaunchNode, LoopNode
from hlojit.gpu.operations import (
    Choose,
    CopyBytes,
    Exchange,
    Jump,
    LaunchKernel,
    Operation,
    Operations,
    Place,
    SetCell,
    SwapCells,
    Talk,
    Unless,
)
from hlojit.ir.errors import HlojitError

MOST_NESTED: Final = 16
"""Loops and branches in each other.  No documentation names a bound; every level takes a driver's stream while it is made."""
MOST_NODES: Final = 20_000
"""Of one graph; nested loops that exchange buffers have the innermost body 2, 4, 8 ... times."""
_Kind = TypeVar("_Kind")
_NOWHERE: Final = -1
"""Where a cell points to that points to nothing, or to one of several places."""


class NoDeviceGraph(HlojitError):
    """Why a program cannot be one graph: the host decides what it does next."""


def graph_nodes(operations: Operations, frame: Sequence[int], functions: Mapping[str, Any]) -> Sequence[GraphNode]:
    """The nodes of a program over the addresses of ``frame``; raises ``NoDeviceGraph``."""
    return _Writer(operations, frame, functions).program()


@final
@dataclass(frozen=True, slots=True)
class _Loop:
    """Where a loop stands: its condition from ``start`` on, its body from ``body`` on, and what jumps back before ``end``."""

    start: int
    predicate: Place
    body: int
    end: int


@final
class _Writer:
    """Follows the operations, and where cells point to, into loops and branches."""

    def __init__(self, operations: Operations, frame: Sequence[int], functions: Mapping[str, Any]):
        self._code: Final = operations.code
        self._functions: Final = functions
        self._frame: list[int] = list(frame)
        self._stop: Final = self._address(operations.stop)
        self._loops: Final = _loops(self._code)
        self._nbytes: Final = {each.slot: each.nbytes for each in self._code if isinstance(each, SetCell)}
        self._depth = 0
        self._nodes = 0
        self._forget(range(operations.first_cell, operations.status))

    def program(self) -> list[GraphNode]:
        return self._block(0, len(self._code))

    def _block(self, start: int, end: int) -> list[GraphNode]:
        nodes: list[GraphNode] = []
        at = start
        while at < end:
            loop, operation = self._loop_at(at, end), self._code[at]
            if loop is not None:
                nodes += self._loop(loop)
                at = loop.end
            elif isinstance(operation, Choose):
                nodes += self._branch(operation)
                at = operation.end
            else:
                nodes += self._straight(operation)
                at += 1
        return nodes

    def _straight(self, operation: Operation) -> list[GraphNode]:
        match operation:
            case LaunchKernel(symbol=symbol, grid=grid, what=what):
                addresses = tuple(map(self._address, operation.places))
                return [self._counted(LaunchNode(self._functions[symbol], grid, addresses, what))]
            case CopyBytes(target=target, source=source, nbytes=nbytes):
                return [self._counted(CopyNode(self._address(target), self._address(source), nbytes))]
            case Exchange():
                raise NoDeviceGraph("it meets the processes on other devices")
            case Talk(work=work):
                raise NoDeviceGraph(f"its host uses channel {work.channel!r}")
            case SetCell(slot=slot, target=target):
                self._frame[slot] = self._address(target)
            case SwapCells(first=first, second=second):
                self._frame[first], self._frame[second] = self._frame[second], self._frame[first]
            case _:
                raise AssertionError(f"{operation} outside of loops and branches")
        return []

    # --------------------------------------------------------------------------------------------- loops and branches

    def _branch(self, choice: Choose) -> list[GraphNode]:
        index, before = self._address(choice.index), list(self._frame)
        cases, frames = [], []
        # Every case ends with a jump, which is where the next one begins or the branch ends.
        for start, end in zip(choice.targets, [*choice.targets[1:], choice.end]):
            self._frame = list(before)
            with self._nested():
                cases.append(self._block(start, end - 1))
            frames.append(self._frame)
        self._frame = [places[0] if len(set(places)) == 1 else _NOWHERE for places in zip(*frames)]
        return [self._counted(BranchNode(index, choice.is_predicate, cases))] if any(cases) else []

    def _loop(self, loop: _Loop) -> list[GraphNode]:
        self._forget(self._local_cells(loop))
        condition = self._block(loop.start, loop.body - 1)
        before, predicate = list(self._frame), self._address(loop.predicate)
        with self._nested():
            body = self._iteration(loop)
            if self._moved(loop, before):
                body += self._second_iteration(loop, before)
        self._frame = before
        self._forget(self._local_cells(loop))
        return [*condition, self._counted(LoopNode(predicate, self._stop, body))]

    def _iteration(self, loop: _Loop) -> list[GraphNode]:
        """The body, and the condition for what comes then."""
        return [*self._block(loop.body, loop.end - 1), *self._block(loop.start, loop.body - 1)]

    def _second_iteration(self, loop: _Loop, before: list[int]) -> list[GraphNode]:
        """Another iteration if there is one, after which cells point to where they did; otherwise what brings that about."""
        predicate, put_back = self._address(loop.predicate), self._put_back(loop, before)
        with self._nested():
            again = self._iteration(loop)
        if self._moved(loop, before):
            raise NoDeviceGraph("a loop's buffers are not back in their places after two iterations")
        return [self._counted(BranchNode(predicate, True, [again, put_back]))]

    def _put_back(self, loop: _Loop, before: list[int]) -> list[GraphNode]:
        """After an odd number of iterations: what is looked at, to where it lies after an even number."""
        copies: list[GraphNode] = []
        moved = set(self._moved(loop, before))
        for swap in self._operations(loop, SwapCells):
            first, second = swap.first, swap.second
            if first not in moved:
                continue
            is_exchanged = (self._frame[first], self._frame[second]) == (before[second], before[first])
            if not is_exchanged or self._is_used_outside(loop, second):
                raise NoDeviceGraph("a loop exchanges buffers in a way that two iterations do not undo")
            copies.append(self._counted(CopyNode(before[first], self._frame[first], self._nbytes[first])))
            moved -= {first, second}
        if moved:
            raise NoDeviceGraph("a loop leaves its buffers in other places")
        return copies

    @contextmanager
    def _nested(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise NoDeviceGraph(f"loops and branches in each other, more than {MOST_NESTED} of them")
        yield
        self._depth -= 1

    # --------------------------------------------------------------------------------------------------------- places

    def _counted(self, node: GraphNode) -> GraphNode:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise NoDeviceGraph(f"more than {MOST_NODES:,} nodes")
        return node

    def _address(self, place: Place) -> int:
        base = self._frame[place.slot]
        if base == _NOWHERE:
            raise NoDeviceGraph("where a buffer lies depends on what was computed")
        return base + place.offset

    def _forget(self, cells: Iterable[int]) -> None:
        for cell in cells:
            self._frame[cell] = _NOWHERE

    def _moved(self, loop: _Loop, before: list[int]) -> list[int]:
        """Cells that point elsewhere after an iteration than before it, and matter to the next one."""
        local = self._local_cells(loop)
        return [cell for cell, place in enumerate(before) if place != self._frame[cell] and cell not in local]

    def _operations(self, loop: _Loop, kind: type[_Kind]) -> list[_Kind]:
        return [each for each in self._code[loop.start : loop.end] if isinstance(each, kind)]

    def _local_cells(self, loop: _Loop) -> set[int]:
        """Cells of loops inside: pointed somewhere before they are used, in every iteration."""
        seen: dict[int, bool] = {}
        for operation in self._code[loop.start : loop.end]:
            if isinstance(operation, SetCell):
                seen.setdefault(operation.slot, True)
            for slot in _used(operation):
                seen.setdefault(slot, False)
        return {cell for cell, is_local in seen.items() if is_local}

    def _is_used_outside(self, loop: _Loop, cell: int) -> bool:
        return any(cell in _used(each) for each in (*self._code[: loop.start], *self._code[loop.end :]))

    def _loop_at(self, at: int, end: int) -> _Loop | None:
        """The outermost loop that begins here and ends in time: a loop's own condition begins where the loop does."""
        return next((each for each in self._loops.get(at, ()) if each.end <= end), None)


def _loops(code: Sequence[Operation]) -> dict[int, list[_Loop]]:
    """All loops by where they begin, outer ones first."""
    found: dict[int, list[_Loop]] = {}
    for number, operation in enumerate(code):
        if isinstance(operation, Unless):
            back = code[operation.target - 1]
            assert isinstance(back, Jump)
            loop = _Loop(back.target, operation.predicate, number + 1, operation.target)
            found.setdefault(loop.start, []).insert(0, loop)
    return found


def _used(operation: Operation) -> tuple[int, ...]:
    """Entries of the frame whose addresses an operation takes."""
    match operation:
        case LaunchKernel(places=places):
            return tuple(place.slot for place in places)
        case CopyBytes(target=target, source=source) | Exchange(target=target, source=source):
            return target.slot, source.slot
        case Talk(operands=operands, results=results):
            return tuple(place.slot for place in (*operands, *results))
        case SetCell(target=target):
            return (target.slot,)
        case SwapCells(first=first, second=second):
            return first, second
        case Unless(predicate=place) | Choose(index=place):
            return (place.slot,)
        case Jump():
            return ()
