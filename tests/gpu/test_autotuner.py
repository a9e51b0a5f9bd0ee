"""Choosing kernels by measuring them: on the simulator, with a clock that says what a test wants to hear."""

from __future__ import annotations

import contextvars
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.cuda.nvptx import H200
from hlojit.disk_cache import disk_cache
from hlojit.gpu.driver import DeviceFault, DriverError, OutOfDeviceMemory
from hlojit.gpu.measuring import contents
from hlojit.gpu.platforms import Platform
from hlojit.gpu.simulated_driver import SimulatedDriver
from hlojit.gpu.simulated_platform import simulated_platform
from hlojit.ir.formats import FloatFormat, element_type
from hlojit.lowering.candidates import LIBRARY, library_way
from hlojit.lowering.kernel import KernelCode
from hlojit.lowering.library_product import LibraryProduct
from hlojit.simt.kernels import kernel_candidates
from hlojit.simt.simulator.module import simulated_target

M, K, N = 70, 40, 50
TEXT = f"""
func.func @NAME(%x: tensor<{M}x{K}xf32>, %y: tensor<{K}x{N}xf32>) -> tensor<{M}x{N}xf32> {{
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<{M}x{K}xf32>, tensor<{K}x{N}xf32>) -> tensor<{M}x{N}xf32>
  return %0 : tensor<{M}x{N}xf32>
}}"""
Array = np.ndarray[Any, Any]
TARGET = simulated_target(H200)


def names_of(text: str) -> list[str]:
    """Of the candidates of a program's one product."""
    instruction = next(iter(hlojit.parse(text.replace("NAME", "main")).main.body))
    return [each.name for each in kernel_candidates(instruction, TARGET)]


FIRST, SECOND, THIRD = names_of(TEXT)[:3]


class Clock:
    """A driver whose times are made up: ``cost(candidate)`` nanoseconds a launch; everything else is the simulator's."""

    def __init__(self, driver: SimulatedDriver):
        self._driver = driver
        self.properties = replace(driver.properties, has_clock=True)
        self.now = 0.0
        self.cost: Callable[[str], float] = lambda candidate: 1e6
        self.launched: list[str] = []
        self.ran: set[str] = set()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def library(self, call: str) -> Any:
        self.calls.append(call)
        return ("library", call)

    def launch(self, function: Any, grid: Any, addresses: Sequence[int], stream: Any, what: str) -> None:
        self.launched.append(what)
        self.now += self.cost(what.rpartition("(")[2].rstrip(")"))
        # Once each where times are taken: the simulator is slow.
        if not isinstance(function, tuple) and not (stream.name.endswith("tuning") and what in self.ran):
            self.ran.add(what)
            self._driver.launch(function, grid, addresses, stream, what)

    def record_time(self, stream: Any) -> Any:
        return self.record(stream), self.now

    def elapsed(self, first: Any, last: Any) -> float:
        self.synchronize(last[0], first[0])
        return float(last[1] - first[1])


class Tuned:
    """A platform whose one GPU has this clock; nothing of it is NVIDIA's but the name of the back end."""

    def __init__(self, driver_version: str = "1", library: tuple[str, str] = ("", "none")):
        plain = simulated_platform(H200, "clocked")
        (driver,) = plain.drivers
        assert isinstance(driver, SimulatedDriver)
        self.clock = Clock(driver)
        self.made: Platform = replace(
            plain, drivers=(self.clock,), driver_version=driver_version, library=lambda: library
        )


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what was measured, nor programs that hold it; three candidates are enough."""
    remove("tuned", "programs")
    for plans in ("grid_dot_plan", "grid_matrix_plan"):
        monkeypatch.setattr(f"hlojit.lowering.{plans}.MOST_CANDIDATES", 3)


def remove(*kinds: str) -> None:
    """What is kept on disk of some kinds."""
    cache = disk_cache()
    assert cache is not None
    for each in cache.entries():
        if each.kind in kinds:
            each.path.unlink()


@pytest.fixture
def tuned() -> Iterator[Tuned]:
    yield from registered(Tuned())


def registered(made: Tuned) -> Iterator[Tuned]:
    """The back end is over this platform: in the place of ``using``, which looks at all that a back end refers to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hlojit.cuda.backend._platform", lambda *_: made.made)
        patch.setenv("HLOJIT_CUDA", "simulator")
        yield made


def compiled(name: str = "main", text: str = TEXT, **options: Any) -> Any:
    return hlojit.compile(text.replace("NAME", name), backend="cuda", options={"autotune": True, **options})


def candidate_of(executable: Any) -> str:
    (launch,) = executable.spec.program.launches()
    return str(launch.kernel.candidate)


def operands() -> tuple[Array, Array]:
    generator = np.random.default_rng(1)
    return generator.standard_normal((M, K)).astype("f4"), generator.standard_normal((K, N)).astype("f4")


def entries() -> list[Any]:
    cache = disk_cache()
    assert cache is not None
    return [each for each in cache.entries() if each.kind == "tuned"]


def favour(tuned: Tuned, name: str) -> None:
    tuned.clock.cost = lambda candidate: 1e5 if candidate == name else 1e6


def test_the_fastest_is_taken_kept_and_saved(tuned: Tuned, tmp_path: Path) -> None:
    favour(tuned, SECOND)
    x, y = operands()
    plain = hlojit.compile(TEXT.replace("NAME", "plain"), backend="cuda")
    chosen = compiled()
    assert not candidate_of(plain) and candidate_of(chosen) == SECOND
    np.testing.assert_array_equal(chosen(x, y), plain(x, y))
    assert len(entries()) == 1
    # Another program with the same product, and another process's backend: nothing is measured.
    launched = len(tuned.clock.launched)
    assert candidate_of(compiled("again")) == candidate_of(chosen) and len(tuned.clock.launched) == launched
    chosen.save(tmp_path / "saved.hlojit")
    loaded = hlojit.load(tmp_path / "saved.hlojit")
    np.testing.assert_array_equal(loaded(x, y), plain(x, y))
    for other in registered(Tuned()):
        favour(other, "nothing")
        assert candidate_of(compiled("third")) == candidate_of(chosen) and not other.clock.launched


def test_nothing_is_measured_where_nobody_asks(tuned: Tuned, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(autotune=False)
    assert not tuned.clock.launched and not entries()
    monkeypatch.setenv("HLOJIT_AUTOTUNE", "same-bits")
    assert hlojit.compile(TEXT.replace("NAME", "other"), backend="cuda").spec and tuned.clock.launched
    for word in ("yes", "on"):
        with pytest.raises(hlojit.HlojitError, match=f"autotune='{word}' is none of off, same-bits, any"):
            compiled(autotune=word)


def test_what_is_a_little_faster_is_not_taken(tuned: Tuned) -> None:
    tuned.clock.cost = lambda candidate: 0.99e6 if candidate == SECOND else 1e6
    first = candidate_of(compiled())
    assert first == FIRST


def test_rounds_alternate_and_the_least_time_counts(tuned: Tuned) -> None:
    counts: dict[str, int] = {}

    def cost(candidate: str) -> float:
        counts[candidate] = counts.get(candidate, 0) + 1
        # One is hindered at first, and the fastest then.
        return (5e6 if counts[candidate] < 4 else 1e5) if candidate == SECOND else 2e6

    tuned.clock.cost = cost
    assert candidate_of(compiled()) == SECOND
    order = [each.rpartition("(")[2] for each in tuned.clock.launched]
    assert order[-1] != order[-len(counts) - 1], "there and back"


def test_another_driver_or_library_measures_again(tuned: Tuned) -> None:
    favour(tuned, SECOND)
    first = candidate_of(compiled())
    for other in (Tuned(driver_version="2"), Tuned(library=("a library 1.0", ""))):
        for each in registered(other):
            favour(each, THIRD)
            assert candidate_of(compiled()) != first and each.clock.launched
    assert len(entries()) == 3


CUT = """
func.func @NAME(%x: tensor<20x3000xbf16>, %y: tensor<3000x24xbf16>) -> tensor<20x24xf32> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<20x3000xbf16>, tensor<3000x24xbf16>) -> tensor<20x24xf32>
  return %0 : tensor<20x24xf32>
}"""


def test_other_bits_are_taken_only_if_they_may_be(tuned: Tuned) -> None:
    first, *_, cut = [name for name in names_of(CUT) if library_way(name) is None]
    assert cut.endswith(" parts") and cut.rpartition(",")[2] != first.rpartition(",")[2]
    favour(tuned, cut)
    assert candidate_of(compiled(text=CUT)).rpartition(",")[2] == first.rpartition(",")[2]
    assert candidate_of(compiled(text=CUT, autotune="any")) == cut


def count_assembled(tuned: Tuned) -> list[str]:
    """The candidates of kernels that are assembled from now on."""
    assembled: list[str] = []
    assemble = tuned.made.assemble

    def noted(codes: Sequence[KernelCode]) -> Any:
        assembled.extend(each.candidate for each in codes)
        return assemble(codes)

    tuned.made = replace(tuned.made, assemble=noted)
    return assembled


def test_a_library_is_a_candidate_where_bits_may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlojit.lowering.library_product.FEWEST_MACS", 1 << 10)
    text = TEXT.replace("f32", "bf16")
    second = names_of(text)[1]
    for tuned in registered(Tuned(library=("a library 1.0", ""))):
        # The library is what large products are by default: nothing else gives its bits.
        assert candidate_of(compiled(text=text)) == "" and not tuned.clock.launched
        favour(tuned, second)
        own = compiled("own", text, autotune="any")
        assert candidate_of(own) == second and tuned.clock.calls
        (launch,) = own.spec.program.launches()
        assert not launch.kernel.phases[0].library
        tuned.clock.launched.clear()
        required = candidate_of(compiled("required", text, autotune="any", libraries="require"))
        assert required == LIBRARY and {each.rpartition("(")[2][:7] for each in tuned.clock.launched} == {LIBRARY}
        tuned.clock.launched.clear()
        assert candidate_of(compiled("required", text, libraries="require")) == "" and not tuned.clock.launched
        favour(tuned, LIBRARY)
        without = candidate_of(compiled("without", text, autotune="any", libraries="off"))
        assert without != LIBRARY and LIBRARY not in "".join(tuned.clock.launched)
    for tuned in registered(Tuned(driver_version="2", library=("a library 1.0", ""))):
        favour(tuned, "library 3")
        remove("kernels")
        assembled = count_assembled(tuned)
        found = compiled("called", text, autotune="any")
        assert [name for name in assembled if name.startswith(LIBRARY)] == ["library 3"], "what stands in for it"
        (launch,) = found.spec.program.launches()
        assert launch.kernel.candidate == "library 3"
        assert LibraryProduct.of_text(launch.kernel.phases[0].library).way == 2


GROUP = TEXT.replace("f32", "bf16").replace(
    "  return %0",
    f"""  %1 = stablehlo.tanh %0 : tensor<{M}x{N}xbf16>
  return %1""",
)


def test_a_group_is_measured_as_one_kernel_and_beside_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlojit.lowering.library_product.FEWEST_MACS", 1 << 40)
    second = names_of(GROUP)[1]
    x, y = (each.astype(ml_dtypes.bfloat16) for each in operands())
    plain = hlojit.compile(GROUP.replace("NAME", "plain"), backend="cpu")(x, y)
    for tuned in registered(Tuned(library=("a library 1.0", ""))):
        favour(tuned, second)
        own = compiled("own", GROUP)
        assert candidate_of(own) == second
        np.testing.assert_allclose(own(x, y).astype("f4"), plain.astype("f4"), rtol=0.02, atol=0.01)
        favour(tuned, "library 2")
        called = compiled("called", GROUP, autotune="any")
        (launch,) = called.spec.program.launches()
        assert launch.kernel.candidate == "library 2" and len(launch.kernel.phases) == 2
        assert LibraryProduct.of_text(launch.kernel.phases[0].library).way == 1
        # It is what is taken by default where it is worth a call: nothing else gives its bits.
        monkeypatch.setattr("hlojit.lowering.library_product.FEWEST_MACS", 1 << 10)
        (launch,) = compiled("large", GROUP).spec.program.launches()
        assert len(launch.kernel.phases) == 2 and not launch.kernel.candidate.endswith("2")


@pytest.mark.parametrize("how", ["fault", "no memory", "refused", "does not assemble"])
def test_a_candidate_that_fails_is_left_out_with_a_note(
    tuned: Tuned, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    caplog.set_level(logging.INFO, "hlojit")
    favour(tuned, SECOND)
    launch, assemble = Clock.launch, tuned.made.assemble

    def fail(self: Clock, function: Any, grid: Any, addresses: Any, stream: Any, what: str) -> None:
        if SECOND not in what:
            launch(self, function, grid, addresses, stream, what)
        elif how == "fault":
            launch(self, function, grid, [0] * len(addresses), stream, what)
        else:
            raise OutOfDeviceMemory(77) if how == "no memory" else DriverError("too many resources")

    def fail_to_assemble(codes: Any) -> Any:
        if any(code.candidate == SECOND for code in codes):
            raise hlojit.HlojitError("too many registers")
        return assemble(codes)

    if how == "does not assemble":
        remove("kernels")
        tuned.made = replace(tuned.made, assemble=fail_to_assemble)
    else:
        monkeypatch.setattr(Clock, "launch", fail)
    chosen = compiled()
    assert candidate_of(chosen) and candidate_of(chosen) != SECOND
    x, y = operands()
    np.testing.assert_allclose(chosen(x, y), x @ y, rtol=1e-4, atol=1e-4)
    told = " ".join(each.getMessage() for each in caplog.records)
    words = {"fault": "is no memory of the device", "no memory": "77 bytes", "refused": "too many resources"}
    assert f"{SECOND!r} was left out: " in told and words.get(how, "too many registers") in told


def test_a_gpu_that_a_candidate_stops_is_told_and_the_next_process_leaves_it_out(
    tuned: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = Clock.launch

    def fail(self: Clock, function: Any, grid: Any, addresses: Any, stream: Any, what: str) -> None:
        launch(self, function, grid, [0] * len(addresses) if SECOND in what else addresses, stream, what)

    monkeypatch.setattr(Clock, "launch", fail)
    monkeypatch.setattr(Clock, "recover", lambda self, stream, fault: False, raising=False)
    with pytest.raises(hlojit.HlojitError, match=f"a measurement stopped the GPU: '{SECOND}'"):
        compiled()
    for other in registered(Tuned()):
        favour(other, SECOND)
        assert candidate_of(compiled()) != SECOND and not any(SECOND in each for each in other.clock.launched)


def test_what_cannot_be_measured_now_is_measured_later(
    tuned: Tuned, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Clock, nbytes: int, stream: Any) -> int:
        raise OutOfDeviceMemory(nbytes)

    with monkeypatch.context() as patch:
        patch.setattr(Clock, "allocate", full, raising=False)
        assert candidate_of(compiled()) == "" and not entries()
        assert "is not tuned, its default stays: no 11,200 bytes" in caplog.text
    favour(tuned, SECOND)
    assert candidate_of(compiled()) == SECOND


def test_interrupting_leaves_nothing_behind(tuned: Tuned, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(candidate: str) -> float:
        raise KeyboardInterrupt

    tuned.clock.cost = interrupt
    with pytest.raises(KeyboardInterrupt):
        compiled()
    tuned.clock.trim()
    assert tuned.clock.memory()[0] == tuned.clock.properties.total_memory and not entries()
    favour(tuned, SECOND)
    assert candidate_of(compiled()) == SECOND


@pytest.mark.parametrize("damage", ["cut", "other", "empty", "unknown"])
def test_damaged_entries_are_measured_again(tuned: Tuned, damage: str) -> None:
    favour(tuned, SECOND)
    first = compiled()
    (entry,) = entries()
    data = bytearray(entry.path.read_bytes())
    if damage == "unknown":
        place = data.index(SECOND.encode())
        data[place : place + 7] = b"nothing"
    contents_of = {"cut": data[:-3], "other": b"hlojitp\n" + data[8:], "empty": b"", "unknown": data}
    entry.path.write_bytes(contents_of[damage])
    for other in registered(Tuned()):
        favour(other, THIRD)
        assert candidate_of(compiled("again")) != candidate_of(first) and other.clock.launched


def test_a_folder_that_cannot_be_written_costs_measuring_again(tuned: Tuned, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr("hlojit.disk_cache.write_file", refuse)
    favour(tuned, SECOND)
    assert candidate_of(compiled()) == SECOND and tuned.clock.launched and not entries()
    for other in registered(Tuned()):
        favour(other, THIRD)
        assert candidate_of(compiled()) == THIRD and other.clock.launched and not entries()


def test_no_cache_at_all_measures_in_every_process(tuned: Tuned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CACHE", "off")
    favour(tuned, SECOND)
    assert candidate_of(compiled()) == SECOND
    launched = len(tuned.clock.launched)
    compiled("again")
    assert len(tuned.clock.launched) == launched


def test_threads_measure_one_after_the_other_and_once(tuned: Tuned) -> None:
    favour(tuned, SECOND)
    found: list[str] = []

    def run(number: int) -> None:
        found.append(candidate_of(compiled(f"f{number}")))

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(run, n)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1 and found[0] == SECOND and len(entries()) == 1


def test_what_another_process_found_meanwhile_is_believed(tuned: Tuned) -> None:
    favour(tuned, SECOND)
    inner: list[str] = []

    def cost(candidate: str) -> float:
        if not inner:
            inner.append("")
            for other in registered(Tuned()):
                favour(other, THIRD)
                inner[0] = candidate_of(compiled("other"))
        return 1e5 if candidate == SECOND else 1e6

    tuned.clock.cost = cost
    assert candidate_of(compiled()) == inner[0] and inner[0] == THIRD


def test_a_gpu_without_a_clock_keeps_the_default(caplog: pytest.LogCaptureFixture) -> None:
    script = (
        "import hlojit, logging; logging.basicConfig()\n"
        f"e = hlojit.compile('''{TEXT.replace('NAME', 'main')}''', backend='cuda', options={{'autotune': True}})\n"
        "print(repr([each.kernel.candidate for each in e.spec.program.launches()]))"
    )
    environment = {**os.environ, "HLOJIT_CUDA": "simulator"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "['']" and done.stderr.count("has no times that mean something") == 1


@pytest.mark.parametrize("name", ["f32", "bf16", "f64", "f8E4M3FN", "i4", "i8", "ui32", "i1", "complex<f32>"])
def test_contents_are_like_those_of_programs(name: str) -> None:
    element = element_type(name)
    found = contents(element, 1000)
    assert found.dtype == element.storage and found.shape == (1000,) and len(np.unique(found.view("u1"))) > 1


def test_contents_of_a_vendors_format_are_numbers_of_it() -> None:
    row = FloatFormat("f6acme", bits=6, exponent_bits=3, mantissa_bits=2, bias=3)
    found = contents(row, 1000)
    assert found.dtype == row.storage and found.max() < 64 and len(np.unique(found)) > 10


def test_a_device_fault_is_no_reason_to_lose_the_stream(tuned: Tuned) -> None:
    """What a candidate that failed wrote beside its buffers is found when they are given back, and troubles nobody later."""
    clock = tuned.clock
    stream = clock.stream("x")
    stream.put(lambda: 1 // 0)
    from hlojit.gpu.measuring import settled

    settled(clock, stream)  # type: ignore[arg-type]
    clock.synchronize(clock.record(stream))
    with pytest.raises(DeviceFault):
        stream.put(lambda: 1 // 0)
        clock.synchronize(clock.record(stream))
