"""Programs that several devices run: how they are called, where they run, and what happens when one of them fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir.interpreter import evaluate

from .conftest import make_devices

SUM = """
func.func @main(%x: tensor<6xf32>, %y: tensor<f32>) -> tensor<6xf32> {
  %0 = stablehlo.broadcast_in_dim %y, dims = [] : (tensor<f32>) -> tensor<6xf32>
  %1 = stablehlo.multiply %x, %0 : tensor<6xf32>
  %2 = "stablehlo.all_reduce"(%1) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<6xf32>) -> tensor<6xf32>
  return %2 : tensor<6xf32>
}
"""
X = np.arange(6, dtype="f4")


def rows() -> list[list[Any]]:
    return [[X, np.float32(1)], [X, np.float32(10)]]


def check(results: list[list[Any]]) -> None:
    assert [np.asarray(each[0]).tolist() for each in results] == [(11 * X).tolist()] * 2


def test_lists_in_lists_out(several: str) -> None:
    executable = hlojit.compile(SUM, backend=several, num_replicas=2)
    check(executable(rows()))
    check(executable([tuple(row) for row in rows()]))
    assert all(type(each[0]) is np.ndarray for each in executable(rows()))
    assert executable.input_types[0].shape == (6,) and "num_replicas=2, num_partitions=1" in repr(executable)


def test_arguments_decide_where_a_process_runs(several: str) -> None:
    executable = hlojit.compile(SUM, backend=several, num_replicas=2)
    devices = hlojit.devices(several)
    placed = [[hlojit.put(X, devices[5]), np.float32(1)], [X, np.float32(10)]]
    found = executable(placed)
    assert found[0][0].device is devices[5] and type(found[1][0]) is np.ndarray
    check(found)
    started = executable.execute(rows(), devices=[devices[3], str(devices[0])])
    assert [each[0].device for each in started] == [devices[3], devices[0]]
    check(started)
    again = executable.execute([[started[0][0], np.float32(1)], [started[1][0], np.float32(2)]])
    assert [each[0].device for each in again] == [devices[3], devices[0]]
    assert hlojit.get(again[1][0]).tolist() == (33 * X).tolist()


def test_many_runs_in_flight_keep_their_order(several: str) -> None:
    executable = hlojit.compile(SUM, backend=several, num_replicas=2)
    found: Any = executable.execute([[X, np.float32(1)], [X, np.float32(0)]])
    for _ in range(60):
        found = executable.execute([[found[0][0], np.float32(0.5)], [found[1][0], np.float32(0.5)]])
    assert hlojit.get(found[1][0]).tolist() == X.tolist()


def test_threads_with_overlapping_devices(several: str) -> None:
    executable = hlojit.compile(SUM, backend=several, num_replicas=2)
    devices = hlojit.devices(several)
    pairs = [(0, 1), (1, 0), (1, 2), (2, 0)]
    failures: list[BaseException] = []

    def work(first: int, second: int) -> None:
        try:
            for _ in range(10):
                check(executable.execute(rows(), devices=[devices[first], devices[second]]))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert not failures and not any(each.is_alive() for each in threads)


def test_wrong_calls_say_what_is_wanted(several: str) -> None:
    executable = hlojit.compile(SUM, backend=several, num_replicas=2)
    device = hlojit.devices(several)[0]
    for arguments, message in (
        (
            [rows()[0]],
            "main is run by 2 processes .*: pass a list of 2 lists of arguments, one for each process, not a list of 1",
        ),
        (X, "not an object of type ndarray"),
        ([X, X], "not a list of 2"),
        ([rows()[0], [X]], "main takes 2 arguments, not 1"),
        ([rows()[0], [X[:5], np.float32(1)]], "argument 0"),
    ):
        with pytest.raises(hlojit.ArgumentError, match=message):
            executable(arguments)
    on_one = [[hlojit.put(X, device), np.float32(1)], [hlojit.put(X, device), np.float32(1)]]
    with pytest.raises(hlojit.ArgumentError, match="every process runs on a device of its own"):
        executable(on_one)
    with pytest.raises(hlojit.ArgumentError, match="devices= names 1"):
        executable.execute(rows(), devices=[device])
    with pytest.raises(hlojit.ArgumentError, match="devices= is 5"):
        executable.execute(rows(), devices=5)  # type: ignore[arg-type]
    with pytest.raises(hlojit.ArgumentError, match="pass a list of 2 lists of arguments, .*, not 4 arguments"):
        executable(X, X, X, X)
    check(executable(rows()))


def test_too_few_devices_are_named(several: str) -> None:
    text = (
        "func.func @main() -> tensor<ui32> {\n %0 = stablehlo.replica_id : tensor<ui32>\n return %0 : tensor<ui32>\n}"
    )
    executable = hlojit.compile(text, backend=several, num_replicas=9)
    with pytest.raises(hlojit.HlojitError, match=r"9 processes .* has 8 devices: .*:0, .*HLOJIT_CPU_DEVICES=9"):
        executable([[]] * 9)


def test_numbers_of_processes_are_checked() -> None:
    for bad in (0, -1, True, "two", 1 << 20):
        with pytest.raises(hlojit.HlojitError, match="num_replicas=.* is not a number of processes"):
            hlojit.compile(SUM, num_replicas=bad)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- groups


def program(op: str, result: str = "tensor<4x4xi32>", more: str = "") -> str:
    return f"func.func @main(%x: tensor<4x4xi32>) -> {result} {{\n {more} %0 = {op} : (tensor<4x4xi32>) -> {result}\n return %0 : {result}\n}}"


ADD = "({ ^bb0(%a: tensor<i32>, %b: tensor<i32>): %s = stablehlo.add %a, %b : tensor<i32> stablehlo.return %s : tensor<i32> })"
GATHER = '"stablehlo.all_gather"(%x) {{all_gather_dim = 0 : i64, replica_groups = dense<{groups}> : {type}{more}}}'
CHANNEL = ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"


@pytest.mark.parametrize(
    ("text", "grid", "message"),
    [
        (
            program(GATHER.format(groups="[[0, 1]]", type="tensor<1x2xi64>", more=""), "tensor<8x4xi32>"),
            {},
            r"replica_groups \(\(0, 1\),\) name replicas beyond the 1 of num_replicas=1, num_partitions=1",
        ),
        (
            program(GATHER.format(groups="[[0, 1]]", type="tensor<1x2xi64>", more=""), "tensor<8x4xi32>"),
            {"num_replicas": 3},
            r"\(C3\): replica_groups .* name 2 replicas, not all 3 of num_replicas=3",
        ),
        (
            program(GATHER.format(groups="[[0, 1]]", type="tensor<1x2xi64>", more=CHANNEL), "tensor<8x4xi32>"),
            {"num_replicas": 2, "num_partitions": 2},
            r"\(C6\): dimension 0 of the result is 8, expected 16",
        ),
        (
            program(
                GATHER.format(groups="[[0, 5]]", type="tensor<1x2xi64>", more=CHANNEL + ", use_global_device_ids"),
                "tensor<8x4xi32>",
            ),
            {"num_partitions": 2},
            "name processes beyond the 2 of num_replicas=1, num_partitions=2",
        ),
        (
            program(GATHER.format(groups="[[0, 1], [2, -1]]", type="tensor<2x2xi64>", more=""), "tensor<8x4xi32>"),
            {"num_replicas": 3},
            r"\(C4\): replica_groups .* must all have one size",
        ),
        (
            program('"stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 2]]> : tensor<1x2xi64>}'),
            {"num_replicas": 2},
            r"\(C4\): source_target_pairs \(\(0, 2\),\) name replicas beyond the 2",
        ),
        (
            program('"stablehlo.collective_broadcast"(%x) {replica_groups = dense<[[0, 3]]> : tensor<1x2xi64>}'),
            {"num_replicas": 2},
            r"\(C2\): replica_groups \(\(0, 3\),\) name replicas beyond the 2",
        ),
    ],
    ids=["one_process", "not_all", "extent", "global", "uneven", "pairs", "broadcast"],
)
def test_groups_that_the_grid_does_not_have(text: str, grid: dict[str, int], message: str) -> None:
    with pytest.raises(hlojit.HlojitError, match=message):
        hlojit.compile(text, **grid)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------------- failures


TABLE = np.arange(4, dtype="f4")


def looked_up(code: int) -> float:
    """Fails beyond the table."""
    return TABLE[code]


FAILING = """
func.func @main(%x: tensor<6xi32>) -> tensor<6xf32> {
  %0 = stablehlo.custom_call @test.looked_up(%x) : (tensor<6xi32>) -> tensor<6xf32>
  %1 = "stablehlo.collective_permute"(%0) {source_target_pairs = dense<[[0, 1], [1, 2], [2, 0]]> : tensor<3x2xi64>}
    : (tensor<6xf32>) -> tensor<6xf32>
  return %1 : tensor<6xf32>
}
"""


def test_a_process_that_fails_frees_the_others_with_its_error(several: str) -> None:
    call = ext.ElementwiseCall("test.looked_up", function=looked_up)
    with ext.using(SimpleNamespace(__name__="test", hlojit_custom_calls=ext.hookimpl(lambda: [call]))):
        executable = hlojit.compile(FAILING, backend=several, num_replicas=3)
    good, bad = np.arange(6, dtype="i4") % 4, np.full(6, 77, "i4")
    for _ in range(2):
        with pytest.raises(hlojit.ExecutionError, match="main on .*:1: .*an index is out of range"):
            executable([[good], [bad], [good]])
        pending = executable.execute([[good], [bad], [good]])
        for each in pending:
            with pytest.raises(hlojit.ExecutionError, match="an index is out of range"):
                hlojit.get(each[0])
        assert [each[0].tolist() for each in executable([[good]] * 3)] == [TABLE[good].tolist()] * 3


def test_a_fault_of_one_gpu_is_everybodys_and_all_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    make_devices("cuda", monkeypatch, 2)
    executable = hlojit.compile(SUM, backend="cuda", num_replicas=2)
    check(executable(rows()))
    second: Any = hlojit.devices("cuda")[1]
    launch, broken = type(second.driver).launch, [True]

    def launch_wrongly(self: Any, function: Any, grid: Any, addresses: Any, stream: Any, what: str) -> None:
        if self is second.driver and broken:
            addresses = [broken.pop() * 256, *addresses[1:]]
        launch(self, function, grid, addresses, stream, what)

    monkeypatch.setattr(type(second.driver), "launch", launch_wrongly)
    failed = executable.execute(rows())
    for each in failed:
        with pytest.raises(hlojit.ExecutionError, match="no memory of the device"):
            hlojit.get(each[0])
    # Streams have recovered when the work behind the fault has ended.
    for device in hlojit.devices("cuda")[:2]:
        hlojit.put(X, device).wait()
    check(executable(rows()))


BRANCHES = """
func.func @main(%x: tensor<6xf32>, %i: tensor<i32>) -> tensor<6xf32> {
  %0 = "stablehlo.case"(%i) ({
    %a = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}
      : (tensor<6xf32>) -> tensor<6xf32>
    stablehlo.return %a : tensor<6xf32>
  }, {
    %b = "stablehlo.collective_broadcast"(%x) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
      : (tensor<6xf32>) -> tensor<6xf32>
    stablehlo.return %b : tensor<6xf32>
  }, {
    stablehlo.return %x : tensor<6xf32>
  }) : (tensor<i32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}
"""


def test_ids_beyond_the_grid_are_one_fault() -> None:
    text = program(GATHER.format(groups="[[0, 1], [2, 3]]", type="tensor<2x2xi64>", more=""), "tensor<8x4xi32>")
    with pytest.raises(hlojit.HlojitError, match=r"1 fault in the program:\n  all_gather \(C4\): replica_groups"):
        hlojit.compile(
            text.replace("func.func", "module attributes {mhlo.num_replicas = 2 : i32} {\nfunc.func", 1) + "}"
        )


def test_what_is_for_a_partitioner_is_refused_with_the_way_to_do_it() -> None:
    way = r"is for a partitioner, which hlojit has not; .* StableHLO of one process, with its collectives written out"
    with pytest.raises(hlojit.HlojitError, match=r"unknown op 'sdy.manual_computation'; it " + way):
        hlojit.compile(program('"sdy.manual_computation"(%x)'))
    with pytest.raises(hlojit.UnsupportedError, match=r"@SPMDFullToShardShape: it " + way):
        hlojit.compile(program("stablehlo.custom_call @SPMDFullToShardShape(%x)"))


def test_processes_that_go_different_ways_are_told(several: str) -> None:
    executable = hlojit.compile(BRANCHES, backend=several, num_replicas=2)

    def run(first: int, second: int) -> Any:
        return executable([[X, np.int32(first)], [X, np.int32(second)]])

    with pytest.raises(
        hlojit.ExecutionError,
        match="different collectives: process 0 on .* collective_permute at .*; process 1 on .* collective_broadcast",
    ):
        run(0, 1)
    with pytest.raises(
        hlojit.ExecutionError,
        match="process 0 on .*:0 waits at collective_broadcast at .* for process 1 on .*:1, which has ended",
    ):
        run(1, 2)
    assert [each[0].tolist() for each in run(1, 1)] == [X.tolist()] * 2
    assert [each[0].tolist() for each in run(2, 2)] == [X.tolist()] * 2


# ----------------------------------------------------------------------------------------------------- kept and donated


def test_programs_are_saved_with_their_processes(several: str, tmp_path: Path) -> None:
    hlojit.compile(SUM, backend=several, num_replicas=2).save(tmp_path / "sum.hlo")
    loaded = hlojit.load(tmp_path / "sum.hlo")
    assert (loaded.num_replicas, loaded.num_partitions) == (2, 1)
    check(loaded(rows()))


def test_the_cache_knows_grids_apart(virtual: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", str(tmp_path))
    text = (
        "func.func @main() -> tensor<ui32> {\n %0 = stablehlo.partition_id : tensor<ui32>\n return %0 : tensor<ui32>\n}"
    )
    for _ in range(2):
        for replicas, partitions in ((1, 2), (2, 1), (2, 2)):
            executable = hlojit.compile(text, num_replicas=replicas, num_partitions=partitions)
            found = [int(each[0]) for each in executable([[]] * (replicas * partitions))]
            assert found == list(range(partitions)) * replicas
        assert int(hlojit.compile(text)()) == 0


def test_donated_arguments_are_taken_on_every_device(several: str) -> None:
    executable = hlojit.compile(SUM, backend=several, num_replicas=2, donate=[0])
    devices = hlojit.devices(several)
    given = [hlojit.put(X, devices[number]) for number in range(2)]
    check(executable.execute([[given[0], np.float32(1)], [given[1], np.float32(10)]]))
    for each in given:
        with pytest.raises(hlojit.ExecutionError, match="was donated to main"):
            hlojit.get(each)


# ----------------------------------------------------------------------------------------------------------- devices


class PlainDevice(ext.Device):
    """Does not know of other processes."""

    def transfer_in(self, array: Any, type: Any, space: Any) -> Any:
        return array.copy(), ext.READY

    def transfer_out(self, handle: Any, type: Any) -> Any:
        return handle

    def execute(self, program: Any, arguments: Any, after: Any) -> Any:
        raise AssertionError


class PlainBackend(ext.Backend):
    name = "plain"

    def __init__(self) -> None:
        self.own = [PlainDevice("plain", number) for number in range(2)]

    def devices(self) -> Any:
        return self.own

    def capability(self, instruction: Any) -> Any:
        return ext.YES

    def compile(self, module: Any, options: Any) -> Any:
        assert (options.num_replicas, options.num_partitions) == (2, 1)
        return ext.DeviceProgram.of(module, code=None)


def test_devices_that_run_alone_say_so() -> None:
    plugin = SimpleNamespace(__name__="plain", hlojit_backends=ext.hookimpl(lambda: [PlainBackend()]))
    with ext.using(plugin):
        executable = hlojit.compile(SUM, backend="plain", num_replicas=2)
        with pytest.raises(hlojit.UnsupportedError, match="plain:0 runs no programs for several devices"):
            executable(rows())


class MeetingDevice(PlainDevice):
    """A vendor's device whose programs meet: its collectives are those of the interpreter."""

    def __init__(self, number: int):
        super().__init__("plain", number)
        self.queue = ext.Queue(f"plain:{number}")

    def execute_among(self, program: Any, arguments: Any, after: Any, participant: Any) -> Any:
        results = [np.empty(type.shape, type.element_type.storage) for type in program.outputs]

        def run() -> None:
            for result, array in zip(results, evaluate(program.code, *arguments, process=participant)):
                result[...] = array

        return results, self.queue.submit(run, after)


class MeetingBackend(PlainBackend):
    def __init__(self) -> None:
        self.own = [MeetingDevice(number) for number in range(2)]

    def compile(self, module: Any, options: Any) -> Any:
        return ext.DeviceProgram.of(module, code=module)


def test_a_vendors_devices_meet_in_the_same_way() -> None:
    plugin = SimpleNamespace(__name__="plain", hlojit_backends=ext.hookimpl(lambda: [MeetingBackend()]))
    with ext.using(plugin):
        check(hlojit.compile(SUM, backend="plain", num_replicas=2)(rows()))
        going_apart = hlojit.compile(BRANCHES, backend="plain", num_replicas=2)
        with pytest.raises(hlojit.ExecutionError, match="which has ended"):
            going_apart([[X, np.int32(0)], [X, np.int32(2)]])


# ------------------------------------------------------------------------------------------------------------- Ctrl-C


INTERRUPTED = """
import os, sys, time
os.environ["HLOJIT_CPU_DEVICES"] = "2"
import hlojit, numpy as np
text = '''
func.func @main(%x: tensor<i32>) -> tensor<i32> {
  %0 = stablehlo.while(%i = %x) : tensor<i32>
   cond { %z = stablehlo.constant dense<0> : tensor<i32>
          %p = stablehlo.compare NE, %i, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1> }
   do { %j = stablehlo.negate %i : tensor<i32>
        stablehlo.return %j : tensor<i32> }
  %1 = "stablehlo.collective_permute"(%0) {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}
    : (tensor<i32>) -> tensor<i32>
  return %1 : tensor<i32>
}
'''
executable = hlojit.compile(text, num_replicas=2)
executable([[np.int32(0)], [np.int32(0)]])
print("ready", flush=True)
try:
    executable([[np.int32(0)], [np.int32(1)]])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_the_wait_for_a_process_that_never_comes(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(INTERRUPTED)
    command = [sys.executable, "-X", "faulthandler", str(script)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    try:
        printed, _ = child.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        # Its threads write where they are.
        child.send_signal(signal.SIGABRT)
        pytest.fail(child.communicate()[1])
    assert printed == "interrupted\n"
    assert child.returncode == 0
