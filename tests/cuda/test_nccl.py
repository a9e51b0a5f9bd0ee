"""NCCL, as far as that goes without GPUs: what is called, and programs whose elements a library moves."""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.cuda import nccl
from hlojit.extensions.devices.rendezvous import Meeting
from hlojit.gpu.driver import DeviceFault, DriverError, Message
from hlojit.gpu.exchanges import Exchanger, _GiveUp
from hlojit.gpu.operations import Exchange, Place
from hlojit.gpu.simulated_driver import SimulatedDriver, SimulatedStream
from hlojit.lowering.program import CollectiveKind

HERE = nullcontext()


class FakeLibrary:
    """The functions of libnccl.so.2, which note how they are called with what ctypes would make of it.

    Communicators that were aborted are gone, as they are in the library: nobody may name them again, or be in a call with them.
    """

    def __init__(self) -> None:
        self.alive: set[int] = set()
        self.inside: set[int] = set()
        self.held: Callable[[], None] = lambda: None
        self.calls: list[tuple[Any, ...]] = []
        self.status: dict[str, int] = {}
        self.ordinals: list[int] = []
        for name in (*nccl._SIGNATURES, "ncclGetErrorString"):
            setattr(self, name, self._function(name))

    def _function(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            types = call.argtypes  # type: ignore[attr-defined]
            assert len(arguments) == len(types), name
            for argument, type in zip(arguments, types):
                if type in (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int):
                    assert isinstance(argument, int), (name, argument)
            if name == "ncclGetErrorString":
                return b"unhandled system error"
            if name == "ncclCommInitAll":
                made, count, ordinals = arguments
                self.ordinals = list(ordinals)
                for number in range(count):
                    made[number] = 1000 + 10 * len(self.calls) + number
                    self.alive.add(made[number])
                arguments = (count,)
            self.calls.append((name, *arguments))
            place = _COMMUNICATORS.get(name)
            if place is not None:
                self._use(arguments[place], ends=name == "ncclCommAbort")
            return self.status.get(name, 0)

        return call

    def _use(self, communicator: int, *, ends: bool) -> None:
        assert communicator in self.alive, f"{communicator} was aborted"
        assert communicator not in self.inside, f"another thread is in a call with {communicator}"
        if ends:
            self.alive.remove(communicator)
        else:
            self.inside.add(communicator)
            self.held()
            self.inside.remove(communicator)


_COMMUNICATORS = {"ncclCommAbort": 0, "ncclAllGather": 4, "ncclSend": 4, "ncclRecv": 4}
"""Which argument names the communicator."""


def test_one_communicator_a_group_with_a_part_for_each_gpu() -> None:
    library = FakeLibrary()
    found = nccl.Nccl(library)
    first = found.communicator((0, 3), 0, HERE)
    assert library.ordinals == [0, 3]
    found.communicator((0, 3), 3, HERE).all_gather(256, 512, 64, 7)
    first.all_gather(1024, 2048, 64, 8)
    assert library.calls == [
        ("ncclCommInitAll", 2),
        ("ncclAllGather", 256, 512, 64, 1, 1001, 7),
        ("ncclAllGather", 1024, 2048, 64, 1, 1000, 8),
    ]


def test_messages_are_one_group_of_calls() -> None:
    library = FakeLibrary()
    part = nccl.Nccl(library).communicator((0, 1, 2), 1, HERE)
    part.move([Message(0, 256, 8), Message(2, 264, 8)], [Message(2, 512, 16)], 9)
    assert library.calls[1:] == [
        ("ncclGroupStart",),
        ("ncclSend", 256, 8, 1, 0, 1001, 9),
        ("ncclSend", 264, 8, 1, 2, 1001, 9),
        ("ncclRecv", 512, 16, 1, 2, 1001, 9),
        ("ncclGroupEnd",),
    ]


def test_a_group_that_is_aborted_gets_new_communicators() -> None:
    library = FakeLibrary()
    found = nccl.Nccl(library)
    parts = [found.communicator((0, 1), own, HERE) for own in (0, 1)]
    for part in parts:
        part.abort()
    assert library.calls[1:] == [("ncclCommAbort", 1000), ("ncclCommAbort", 1001)], "once, of all members"
    found.communicator((0, 1), 0, HERE)
    assert library.calls[-1] == ("ncclCommInitAll", 2)
    parts[0].abort()
    assert library.calls[-1] == ("ncclCommInitAll", 2), "the new ones stay"


def test_nothing_is_called_on_a_communicator_that_was_aborted() -> None:
    library = FakeLibrary()
    parts = _parts(nccl.Nccl(library))
    parts[1].abort()
    noted = len(library.calls)
    with pytest.raises(DriverError, match="were aborted: another member of their group has failed"):
        parts[0].all_gather(256, 512, 64, 7)
    with pytest.raises(DriverError, match="were aborted"):
        parts[0].move([Message(1, 256, 8)], [], 7)
    assert len(library.calls) == noted and not library.alive


def test_an_abort_leaves_what_another_thread_is_in_to_that_thread() -> None:
    library = FakeLibrary()
    parts = _parts(nccl.Nccl(library))
    library.held = parts[1].abort
    parts[0].all_gather(256, 512, 64, 7)
    assert library.calls[1:] == [
        ("ncclAllGather", 256, 512, 64, 1, 1000, 7),
        ("ncclCommAbort", 1001),
        ("ncclCommAbort", 1000),
    ]
    assert not library.alive
    # A group of calls is one use: the communicator stays to its end.
    parts = _parts(nccl.Nccl(library))
    library.held, noted = parts[1].abort, len(library.calls)
    parts[0].move([Message(1, 256, 8)], [Message(1, 512, 8)], 7)
    assert [each[0] for each in library.calls[noted:]] == [
        "ncclGroupStart",
        "ncclSend",
        "ncclCommAbort",
        "ncclRecv",
        "ncclGroupEnd",
        "ncclCommAbort",
    ]


def test_members_are_aborted_though_one_cannot_be() -> None:
    library = FakeLibrary()
    parts = _parts(nccl.Nccl(library))
    library.status["ncclCommAbort"] = 1
    with pytest.raises(DriverError, match="ncclCommAbort"):
        parts[0].abort()
    assert not library.alive


def test_a_run_that_has_failed_already_uses_no_communicator_that_it_aborted() -> None:
    """The fault of a GPU comes between the meeting of two others and their calls."""
    library = FakeLibrary()
    meeting = Meeting("main", ["process 0", "process 1"], 30)
    drivers = [NcclDriver(f"gpu {number}", nccl.Nccl(library), meeting) for number in range(2)]
    drivers[1]._nccl = drivers[0]._nccl
    operation = Exchange(CollectiveKind.ALL_GATHER, ((0, 1),), Place(0), 64, Place(1), 128, "here")
    errors = queue.SimpleQueue[str]()

    def run(number: int) -> None:
        driver, stream = drivers[number], drivers[number].stream("programs")
        try:
            Exchanger(operation, 256, 512, 0, driver, stream, meeting.participant(number)).run()  # type: ignore[arg-type]
        except hlojit.ExecutionError as error:
            errors.put(str(error))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert errors.qsize() == 2
    assert "ncclAllGather" not in [each[0] for each in library.calls]
    assert not library.alive and not meeting._listeners


class NcclDriver:
    """A simulated GPU with communicators of the fake library, in a run that fails when it asks for one."""

    def __init__(self, kind: str, library: nccl.Nccl, meeting: Meeting):
        self._driver = SimulatedDriver(kind)
        self._nccl = library
        self._meeting = meeting
        self._own = int(kind[-1])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def communicator(self, group: Sequence[Any]) -> Any:
        found = self._nccl.communicator((0, 1), self._own, HERE)
        self._meeting.fail(DeviceFault("lost"))
        return found


def test_a_loop_over_collectives_is_told_of_a_failure_once() -> None:
    library = FakeLibrary()
    parts = _parts(nccl.Nccl(library))
    meeting = Meeting("main", ["process 0", "process 1"], 30)
    for _ in range(3):
        for number, part in enumerate(parts):
            meeting.participant(number).when_failed(_GiveUp(part))
    assert len(meeting._listeners) == 2
    meeting.fail(DeviceFault("lost"))
    assert not library.alive


def _parts(library: nccl.Nccl) -> list[nccl.NcclCommunicator]:
    """Those of both members of a group; they are the same however often they are asked for."""
    found = [library.communicator((0, 1), own, HERE) for own in (0, 1)]
    assert found == [library.communicator((0, 1), own, HERE) for own in (0, 1)]
    return found


def test_errors_are_in_its_words() -> None:
    library = FakeLibrary()
    found = nccl.Nccl(library)
    library.status["ncclCommInitAll"] = 2
    with pytest.raises(DriverError, match="ncclCommInitAll: unhandled system error"):
        found.communicator((0, 1), 0, HERE)
    library.status = {}
    part = found.communicator((0, 1), 0, HERE)
    library.status["ncclSend"] = 5
    with pytest.raises(DriverError, match="ncclSend"):
        part.move([Message(1, 256, 8)], [], 3)
    assert library.calls[-1] == ("ncclGroupEnd",), "the group is closed"


def test_without_the_library_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder")

    def missing(name: str) -> Any:
        raise pathfinder.DynamicLibNotFoundError(name)

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", missing)
    with pytest.raises(DriverError, match=r"no libnccl.so.2 \(pip install nvidia-nccl-cu13\)"):
        nccl._load()


def test_the_switch_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not nccl.is_chosen()
    monkeypatch.setenv("HLOJIT_GPU_COLLECTIVES", "nccl")
    assert nccl.is_chosen()
    monkeypatch.setenv("HLOJIT_GPU_COLLECTIVES", "mpi")
    with pytest.raises(hlojit.HlojitError, match="'mpi' is none of copies, nccl"):
        nccl.is_chosen()


# ---------------------------------------------------------------------------- programs, over a library of the simulator


class Mailboxes:
    """A library that moves among simulated GPUs: what a stream sends waits until another one takes it."""

    def __init__(self) -> None:
        self.boxes: dict[tuple[Any, ...], queue.SimpleQueue[bytes]] = {}
        self.calls: list[str] = []
        self.aborted = 0

    def box(self, *key: Any) -> queue.SimpleQueue[bytes]:
        return self.boxes.setdefault(key, queue.SimpleQueue())


class FakeCommunicator:
    def __init__(self, shared: Mailboxes, group: Sequence[SimulatedDriver], own: SimulatedDriver):
        self._shared = shared
        self._group = tuple(map(id, group))
        self._own = list(group).index(own)
        self._driver = own

    def all_gather(self, source: int, target: int, nbytes: int, stream: int) -> None:
        self._shared.calls.append("all_gather")
        everybody = range(len(self._group))
        self._put(
            [Message(each, source, nbytes) for each in everybody],
            [Message(each, target + each * nbytes, nbytes) for each in everybody],
            stream,
        )

    def move(self, sends: Sequence[Message], receives: Sequence[Message], stream: int) -> None:
        self._shared.calls.append("move")
        assert all(each.partner != self._own for each in (*sends, *receives))
        self._put(sends, receives, stream)

    def _put(self, sends: Sequence[Message], receives: Sequence[Message], number: int) -> None:
        stream: SimulatedStream = self._driver._streams[number - 1]

        def work() -> None:
            for each in sends:
                box = self._shared.box(self._group, self._own, each.partner)
                box.put(ctypes.string_at(each.address, each.nbytes))
            for each in receives:
                found = self._shared.box(self._group, each.partner, self._own).get(timeout=30)
                assert len(found) == each.nbytes
                ctypes.memmove(each.address, found, each.nbytes)

        stream.put(work)

    def abort(self) -> None:
        self._shared.aborted += 1


@pytest.fixture
def mailboxes(monkeypatch: pytest.MonkeyPatch) -> Mailboxes:
    shared = Mailboxes()
    monkeypatch.setenv("HLOJIT_CUDA", "simulator devices=4")
    monkeypatch.setattr(SimulatedDriver, "communicator", lambda own, group: FakeCommunicator(shared, group, own))
    return shared


PROGRAM = """
func.func @main(%x: tensor<2x4xf32>, %i: tensor<i32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
  %0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}
    : (tensor<2x4xf32>) -> tensor<8x4xf32>
  %1 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[2, 1, 3, 0]]> : tensor<1x4xi64>}
    : (tensor<2x4xf32>) -> tensor<8x4xf32>
  %2 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1], [1, 2], [3, 3]]> : tensor<3x2xi64>}
    : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %3 = "stablehlo.all_to_all"(%x) {split_dimension = 1 : i64, concat_dimension = 1 : i64, split_count = 2 : i64,
    replica_groups = dense<[[0, 3], [2, 1]]> : tensor<2x2xi64>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %4 = "stablehlo.collective_broadcast"(%x) {replica_groups = dense<[[2, 0]]> : tensor<1x2xi64>}
    : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0, %1, %2, %3, %4 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}
"""


def test_a_library_moves_what_copies_would(mailboxes: Mailboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    xs = [np.arange(8, dtype="f4").reshape(2, 4) + 10 * number for number in range(4)]
    executable = hlojit.compile(PROGRAM, backend="cuda", num_replicas=4)
    rows = [[x, np.int32(0)] for x in xs]
    found = [executable(rows) for _ in range(3)]
    assert mailboxes.calls.count("all_gather") == 4 * 3 and mailboxes.calls.count("move") == (4 + 3 + 4 + 2) * 3
    monkeypatch.setattr(SimulatedDriver, "communicator", lambda own, group: None)
    expected = executable(rows)
    for each in found:
        for one, other in zip(each, expected):
            for array, reference in zip(one, other):
                np.testing.assert_array_equal(array, reference)
    assert all(box.empty() for box in mailboxes.boxes.values()) and not mailboxes.aborted


def test_what_cannot_be_put_on_one_stream_is_aborted_on_all(
    mailboxes: Mailboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the others' streams have not begun to wait: the library's calls are refused on all of them."""

    def refused(*_: Any) -> None:
        raise DriverError("ncclAllGather: invalid usage")

    monkeypatch.setattr(FakeCommunicator, "all_gather", refused)
    executable = hlojit.compile(PROGRAM, backend="cuda", num_replicas=4)
    with pytest.raises(hlojit.ExecutionError, match="ncclAllGather: invalid usage"):
        executable([[np.zeros((2, 4), "f4"), np.int32(0)]] * 4)
    assert mailboxes.aborted >= 1
