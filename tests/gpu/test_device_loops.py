"""Loops and branches decided on the device: the CPU's bits, by graphs with conditions and by the host, and nothing read back."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.cuda.backend import CudaBackend
from hlojit.cuda.nvptx import H200
from hlojit.extensions import registry
from hlojit.gpu.conditional_graphs import KEPT_GRAPHS
from hlojit.gpu.device import GpuDevice
from hlojit.gpu.device_graph import MOST_NESTED, NoDeviceGraph, graph_nodes
from hlojit.gpu.driver import Driver, DriverError, DriverRefusal, OutOfDeviceMemory
from hlojit.gpu.graph_nodes import BranchNode, LoopNode
from hlojit.gpu.operations import LaunchKernel, Operations, SwapCells
from hlojit.gpu.platforms import Platform
from hlojit.gpu.program_runner import GpuProgram
from hlojit.gpu.simulated_driver import SimulatedDriver
from hlojit.gpu.simulated_platform import simulated_platform
from hlojit.lowering.kernel import KernelCode
from hlojit.simt.conditions import KINDS

from ..loop_programs import PROGRAMS, array
from ..random_programs import RandomProgram, random_arguments


@pytest.fixture
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who decides."""
    if not request.config.getoption("--gpu"):
        monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    monkeypatch.setenv("HLOJIT_GPU_LOOPS", request.param)
    return str(request.param)


BOTH = pytest.mark.parametrize("path", ["device", "host"], indirect=True)
DEVICE = pytest.mark.parametrize("path", ["device"], indirect=True)


def first_device() -> GpuDevice:
    found = registry().load().backend("cuda").devices()[0]
    assert isinstance(found, GpuDevice)
    return found


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[object]:
    """A list that grows by one with every call of a function of the driver."""
    calls: list[object] = []
    kind = type(first_device().driver)
    function = getattr(kind, name)

    def wrapped(self: Any, *arguments: Any, **more: Any) -> Any:
        calls.append(arguments)
        return function(self, *arguments, **more)

    monkeypatch.setattr(kind, name, wrapped)
    return calls


def operations(text: str) -> Operations:
    code = hlojit.compile(text, backend="cuda").spec.record.code
    assert isinstance(code, GpuProgram)
    return code.operations


@BOTH
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_the_cpus_bits(path: str, name: str) -> None:
    size, text = PROGRAMS[name]
    ours, theirs = hlojit.compile(text, backend="cuda"), hlojit.compile(text, backend="cpu")
    x = array(size)
    for n, m in [(0, 0), (1, 0), (0, 1), (1, 1), (2, 3), (3, 2), (4, -1), (5, 7)]:
        np.testing.assert_array_equal(
            ours(x, np.int32(n), np.int32(m)), theirs(x, np.int32(n), np.int32(m)), f"{n} {m}"
        )


@DEVICE
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_read_back(path: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size, text = PROGRAMS[name]
    f = hlojit.compile(text, backend="cuda")
    arguments = [hlojit.put(each, "cuda") for each in (array(size), np.int32(3), np.int32(2))]
    for each in arguments:
        each.wait()
    read, put = counted(monkeypatch, "copy_out"), counted(monkeypatch, "launch_graph")
    y = f.execute(*arguments)
    y.wait()
    assert not read, "the host looked at something"
    assert len(put) == 1, "one launch"
    np.testing.assert_array_equal(
        hlojit.get(y), hlojit.compile(text, backend="cpu")(array(size), np.int32(3), np.int32(2))
    )


@pytest.mark.parametrize("path", ["host"], indirect=True)
def test_the_host_reads_back_what_the_device_may_not_decide(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = counted(monkeypatch, "copy_out")
    size, text = PROGRAMS["case in a loop"]
    hlojit.compile(text, backend="cuda").execute(hlojit.put(array(size), "cuda"), np.int32(3), np.int32(0)).wait()
    assert len(read) == 4 + 3, "before every iteration, and behind the last; in every iteration the case"


@DEVICE
def test_exchanged_buffers_become_two_iterations(path: str) -> None:
    """The second one over exchanged addresses, and a copy where the loop ends after the first one."""
    found = operations(PROGRAMS["exchanging loop"][1])
    assert any(isinstance(each, SwapCells) for each in found.code)
    functions = {each.symbol: each.symbol for each in found.code if isinstance(each, LaunchKernel)}
    nodes = graph_nodes(found, [1 << 20 << slot for slot in range(found.length)], functions)
    (repeated,) = [each for each in nodes if isinstance(each, LoopNode)]
    *_, last = repeated.body
    assert isinstance(last, BranchNode) and last.is_predicate and len(last.cases) == 2
    assert len(last.cases[0]) == len(repeated.body) - 1, "the same iteration again"
    assert last.cases[0] != list(repeated.body[:-1]), "over other addresses"
    assert len(last.cases[1]) == 1, "one copy"


def test_kernels_that_set_conditions_are_assembled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In all processes: they are kept on disk like those of programs."""
    monkeypatch.setenv("HLOJIT_CACHE", str(tmp_path))
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    assembled: list[str] = []
    for _ in range(2):
        backend, platform = CudaBackend(), simulated_platform(H200, "simulated")

        def assemble(codes: Sequence[KernelCode], plain: Platform = platform) -> Mapping[str, bytes]:
            assembled.extend(code.symbol for code in codes)
            return plain.assemble(codes)

        noted = replace(platform, assemble=assemble)
        monkeypatch.setattr(backend, "platform", partial(lambda each: each, noted))
        found = backend.devices()[0]
        assert isinstance(found, GpuDevice) and set(found.condition_images()) == set(KINDS)
    assert len(assembled) == len(set(assembled)) == len(KINDS)


@DEVICE
def test_graphs_are_kept_by_addresses(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch, "conditional_graph")
    size, text = PROGRAMS["loop"]
    f = hlojit.compile(text, backend="cuda", donate=[0])
    x, n = hlojit.put(array(size), "cuda"), hlojit.put(np.int32(1), "cuda")
    for _ in range(8):
        x = f(x, n, n)
        x.wait()
    assert 1 <= len(made) <= KEPT_GRAPHS


@DEVICE
@pytest.mark.parametrize("name", ["exchanging loop", "loop in a case", "case in a loop"])
def test_graphs_are_told_new_addresses_while_they_are_waited_for(
    path: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, told = counted(monkeypatch, "conditional_graph"), counted(monkeypatch, "readdress")
    size, text = PROGRAMS[name]
    f, expected = hlojit.compile(text, backend="cuda"), hlojit.compile(text, backend="cpu")
    arguments = [array(size) + np.float32(number) for number in range(12)]
    on_device = [hlojit.put(each, "cuda") for each in arguments]
    n, m = hlojit.put(np.int32(3), "cuda"), hlojit.put(np.int32(0), "cuda")
    results = [f.execute(each, n, m) for each in on_device]
    for each, result in zip(arguments, results):
        np.testing.assert_array_equal(hlojit.get(result), expected(each, np.int32(3), np.int32(0)))
    assert len(made) == KEPT_GRAPHS and len(told) >= len(arguments) - KEPT_GRAPHS


@BOTH
def test_a_donated_state_is_written_where_it_lies(path: str) -> None:
    size, text = PROGRAMS["exchanging loop"]
    f = hlojit.compile(text, backend="cuda", donate=[0])
    expected = hlojit.compile(text, backend="cpu")
    for n in (0, 1, 2, 3):
        x = hlojit.put(array(size), "cuda")
        handle = x.buffer.memory().handle
        y = f(x, np.int32(n), np.int32(0))
        assert y.buffer.memory().handle is handle
        np.testing.assert_array_equal(hlojit.get(y), expected(array(size), np.int32(n), np.int32(0)))


@pytest.mark.simulator_only("two devices, which the machine may not have")
@BOTH
def test_two_devices_and_threads(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator devices=2")
    size, text = PROGRAMS["case in a loop"]
    f, expected = hlojit.compile(text, backend="cuda"), hlojit.compile(text, backend="cpu")
    wrong: list[object] = []

    def work(number: int) -> None:
        x = array(size) + np.float32(number)
        for n in range(6):
            y = f(hlojit.put(x, f"cuda:{number % 2}"), np.int32(n), np.int32(0))
            if str(y.device) != f"cuda:{number % 2}" or not np.array_equal(
                hlojit.get(y), expected(x, np.int32(n), np.int32(0))
            ):
                wrong.append((number, n))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@BOTH
def test_a_saved_program(path: str, tmp_path: Any) -> None:
    size, text = PROGRAMS["exchanging loop in an exchanging loop"]
    hlojit.compile(text, backend="cuda").save(tmp_path / "program")
    loaded = hlojit.load(tmp_path / "program")
    expected = hlojit.compile(text, backend="cpu")(array(size), np.int32(3), np.int32(1))
    np.testing.assert_array_equal(loaded(array(size), np.int32(3), np.int32(1)), expected)


@BOTH
@pytest.mark.parametrize("seed", range(2300, 2308))
def test_random_programs_give_the_cpus_bits(path: str, seed: int) -> None:
    text, kinds = RandomProgram(random.Random(seed), statements=10).build()
    arguments = random_arguments(kinds, seed)
    results = [hlojit.compile(text, backend=backend)(*arguments) for backend in ("cuda", "cpu")]
    ours, theirs = (each if isinstance(each, tuple) else (each,) for each in results)
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(left, right)


# ------------------------------------------------------------------------------------------------- where it cannot be


def nested(count: int) -> str:
    """So many branches in each other; for 0 the innermost one decides, which gives ``%x``."""
    kind = "tensor<2xf32>"
    text, inside = "%x", ""
    for depth in range(count):
        inside = f"""%r{depth} = "stablehlo.case"(%n) ({{
            {inside}
            stablehlo.return {text} : {kind}
          }}, {{
            %q{depth} = stablehlo.negate %x : {kind}
            stablehlo.return %q{depth} : {kind}
          }}) : (tensor<i32>) -> {kind}"""
        text = f"%r{depth}"
    return f"func.func @main(%x: {kind}, %n: tensor<i32>) -> {kind} {{ {inside} return {text} : {kind} }}"


@DEVICE
def test_what_nests_too_deeply_is_decided_by_the_host(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = counted(monkeypatch, "launch_graph")
    x = np.arange(2, dtype="f4")
    for count in (MOST_NESTED, MOST_NESTED + 1):
        f = hlojit.compile(nested(count), backend="cuda")
        assert [f(x, np.int32(n)).tolist() for n in (0, 1)] == [[0, 1], [0, -1]]
    assert len(launched) == 2, "those of the first one"
    found = operations(nested(MOST_NESTED + 1))
    with pytest.raises(NoDeviceGraph, match=f"more than {MOST_NESTED}"):
        graph_nodes(found, [0] * found.length, {})


@DEVICE
def test_what_the_driver_refuses_is_decided_by_the_host(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def refused(self: Any, nodes: Any, conditions: Any) -> Any:
        asked.append(nodes)
        raise DriverRefusal("no")

    monkeypatch.setattr(type(first_device().driver), "conditional_graph", refused)
    size, text = PROGRAMS["case in a loop"]
    f, expected = hlojit.compile(text, backend="cuda"), hlojit.compile(text, backend="cpu")
    for n in range(3):
        np.testing.assert_array_equal(
            f(array(size), np.int32(n), np.int32(0)), expected(array(size), np.int32(n), np.int32(0))
        )
    assert len(asked) == 1


@DEVICE
def test_a_refusal_is_met_on_the_devices_thread_without_its_lock(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call finds it out, and waits no more than the others: loops may take long, and other threads want the lock."""

    def refused(self: Any, nodes: Any, conditions: Any) -> Any:
        raise DriverRefusal("no")

    device, readers, locked = first_device(), [], []
    monkeypatch.setattr(type(device.driver), "conditional_graph", refused)
    copy_out = type(device.driver).copy_out

    def noted(self: Any, target: Any, source: int, stream: Any) -> None:
        if target.nbytes <= 4:
            readers.append(threading.current_thread())
            locked.append(device._opened().lock._is_owned())  # type: ignore[attr-defined]
        copy_out(self, target, source, stream)

    monkeypatch.setattr(type(device.driver), "copy_out", noted)
    size, text = PROGRAMS["case in a loop"]
    f = hlojit.compile(text, backend="cuda")
    arguments = [hlojit.put(each, "cuda") for each in (array(size), np.int32(3), np.int32(2))]
    for _ in range(2):
        f.execute(*arguments).wait()
    assert readers
    assert threading.current_thread() not in readers
    assert not any(locked)


@DEVICE
@pytest.mark.parametrize("error", [DriverError, OutOfDeviceMemory], ids=lambda kind: kind.__name__)
def test_what_fails_once_is_tried_again(path: str, error: type[DriverError], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a driver says that it cannot do is not asked for again."""
    kind = type(first_device().driver)
    made, failures = kind.conditional_graph, [error, error]

    def sometimes(self: Any, nodes: Any, conditions: Any) -> Any:
        if failures:
            raise failures.pop()(0)  # type: ignore[arg-type]
        return made(self, nodes, conditions)

    monkeypatch.setattr(kind, "conditional_graph", sometimes)
    launched = counted(monkeypatch, "launch_graph")
    size, text = PROGRAMS["case in a loop"]
    f, expected = hlojit.compile(text, backend="cuda"), hlojit.compile(text, backend="cpu")
    for n in range(3):
        given = array(size), np.int32(n), np.int32(0)
        np.testing.assert_array_equal(f(*given), expected(*given))
    assert len(launched) == 2


def test_devices_say_who_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    driver: Driver = SimulatedDriver("some GPU")
    assert GpuDevice("cuda", 0, driver).description.endswith("; loops and branches: on the device")
    monkeypatch.setenv("HLOJIT_GPU_LOOPS", "host")
    described = GpuDevice("cuda", 0, driver).description
    assert described.endswith("; loops and branches: by the host (HLOJIT_GPU_LOOPS=host)")
    monkeypatch.setenv("HLOJIT_GPU_LOOPS", "nobody")
    with pytest.raises(hlojit.HlojitError, match="HLOJIT_GPU_LOOPS='nobody' is neither 'device' nor 'host'"):
        GpuDevice("cuda", 0, driver)


# --------------------------------------------------------------------------------------------------------- endless ones


@BOTH
def test_a_loop_that_does_not_end_is_stopped_and_the_device_goes_on(path: str) -> None:
    kind = "tensor<6xf32>"
    text = f"""func.func @main(%x: {kind}) -> {kind} {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %r = stablehlo.while(%v = %x) : {kind}
       cond {{
        %s = stablehlo.reduce(%v init: %zero) applies stablehlo.maximum across dimensions = [0] : ({kind}, tensor<f32>) -> tensor<f32>
        %p = stablehlo.compare GT, %s, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %w = stablehlo.reverse %v, dims = [0] : {kind}
        stablehlo.return %w : {kind}
      }}
      return %r : {kind}
    }}"""
    f = hlojit.compile(text, backend="cuda")
    x, zeros = hlojit.put(np.ones(6, "f4"), "cuda"), hlojit.put(np.zeros(6, "f4"), "cuda")
    assert hlojit.get(f(zeros)).tolist() == [0] * 6
    running, waiting = (f.execute(x).buffer.ready for _ in range(2))
    assert not running.wait(0.2)
    for event in (waiting, running):
        event.stop()
    for event in (running, waiting):
        with pytest.raises(hlojit.ExecutionError, match="^main on cuda:0: .*was stopped"):
            assert event.wait(20), "it runs for ever"
    assert hlojit.get(f(zeros)).tolist() == [0] * 6
