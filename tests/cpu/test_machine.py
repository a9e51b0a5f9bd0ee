"""The machine model: where it is read from, its text, and which rows its caches can hold."""

from __future__ import annotations

import platform
from collections import Counter
from pathlib import Path

import pytest
from hlojit.cpu import bandwidth
from hlojit.cpu import machine as detection
from hlojit.cpu.bandwidth import coarse, read_rate, with_measured_bandwidth
from hlojit.cpu.machine import caches_from_cpuid, caches_from_system, host_machine, with_speeds
from hlojit.cpu.processor import host_target
from hlojit.ir.errors import HlojitError
from hlojit.lowering.machine import GENERIC, Cache, Machine, parse_machine
from hlojit.lowering.target import X86_64_V4, Target
from hlojit.machine_code.loading import architecture_level


def system(folder: Path, *levels: tuple[int, str, str, int, str]) -> Path:
    """A tree like ``/sys/devices/system/cpu``."""
    for number, (level, kind, size, ways, shared) in enumerate(levels):
        index = folder / "cpu0" / "cache" / f"index{number}"
        index.mkdir(parents=True)
        words = {
            "level": level,
            "type": kind,
            "size": size,
            "ways_of_associativity": ways,
            "coherency_line_size": 64,
            "shared_cpu_list": shared,
        }
        for name, value in words.items():
            (index / name).write_text(f"{value}\n")
    return folder


def test_caches_from_linux(tmp_path: Path) -> None:
    root = system(
        tmp_path,
        (1, "Data", "48K", 12, "0,4"),
        (1, "Instruction", "32K", 8, "0,4"),
        (2, "Unified", "2048K", 16, "0,4"),
        (3, "Unified", "107520K", 15, "0-27,56-83"),
    )
    first, second, third = caches_from_system(root)
    assert (first.size, first.ways, first.shared, first.sets) == (48 << 10, 12, 2, 64)
    assert (second.size, second.ways, second.sets) == (2 << 20, 16, 2048)
    assert (third.size, third.ways, third.shared) == (105 << 20, 15, 56)


def test_caches_that_are_told_in_part(tmp_path: Path) -> None:
    assert caches_from_system(tmp_path) == ()
    no_size = system(tmp_path / "a", (1, "Data", "", 0, ""), (2, "Unified", "1024K", 0, "0"))
    assert caches_from_system(no_size) == ()  # a second level alone is no model
    no_ways = system(tmp_path / "b", (1, "Data", "64K", 0, ""), (2, "Unified", "1024K", 0, "0-3"))
    assert [(cache.ways, cache.shared) for cache in caches_from_system(no_ways)] == [(8, 1), (8, 4)]
    shrinking = system(tmp_path / "c", (1, "Data", "64K", 4, "0"), (2, "Unified", "32K", 8, "0"))
    assert caches_from_system(shrinking) == ()


def test_caches_from_cpuid() -> None:
    """The registers of a Zen 4 processor, as its manual lays them out."""
    leaves = {
        (0x80000000, 0): (0x80000028, 0, 0, 0),
        (0x8000001D, 0): (1 << 5 | 1, 7 << 22 | 63, 63, 0),
        (0x8000001D, 1): (1 << 5 | 2, 7 << 22 | 63, 63, 0),
        (0x8000001D, 2): (2 << 5 | 3, 7 << 22 | 63, 2047, 0),
        (0x8000001D, 3): (15 << 14 | 3 << 5 | 3, 15 << 22 | 63, 32767, 0),
        (0x8000001D, 4): (0, 0, 0, 0),
    }
    first, second, third = caches_from_cpuid(lambda leaf, part: leaves[leaf, part], 0x8000001D)
    assert [first.size, second.size, third.size] == [32 << 10, 1 << 20, 32 << 20]
    assert [first.ways, second.ways, third.ways] == [8, 8, 16]
    assert third.shared == 16
    assert caches_from_cpuid(lambda leaf, part: (0, 0, 0, 0), 4) == ()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPUID is an instruction of x86")
def test_cpuid_of_this_processor_agrees_with_the_system() -> None:
    from hlojit.cpu.cpuid import cpuid

    told = caches_from_system(detection.SYSTEM)
    if not told:
        pytest.skip("the system tells no caches")
    asked = caches_from_cpuid(cpuid(), 0x8000001D if host_target().has_feature("sse4a") else 4)
    assert [(c.size, c.ways, c.line) for c in asked] == [(c.size, c.ways, c.line) for c in told]


def test_machine_without_any_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "SYSTEM", tmp_path)
    monkeypatch.delenv("HLOJIT_MACHINE", raising=False)
    found = host_machine(["neon"], "aarch64")
    assert [cache.size for cache in found.caches] == [cache.size for cache in GENERIC.caches]
    assert found.cores >= 1


def test_cores_and_frequency_from_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = system(tmp_path, (1, "Data", "32K", 8, "0-1"), (2, "Unified", "512K", 8, "0-1"))
    (root / "cpu0" / "topology").mkdir()
    (root / "cpu0" / "topology" / "thread_siblings_list").write_text("0-1\n")
    (root / "cpu0" / "cpufreq").mkdir()
    (root / "cpu0" / "cpufreq" / "cpuinfo_max_freq").write_text("3500000\n")
    monkeypatch.setattr(detection, "SYSTEM", root)
    monkeypatch.setattr(detection.os, "cpu_count", lambda: 16)
    monkeypatch.delenv("HLOJIT_MACHINE", raising=False)
    found = host_machine(["avx2"], "x86_64")
    assert (found.cores, found.gigahertz, len(found.caches)) == (8, 3.5, 2)


def test_the_switch_replaces_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_MACHINE", "L1=48K/12 L2=2M/16,fma=2 cores=7")
    found = host_machine([])
    assert (found.first.size, found.first.ways, found.second.size, found.second.ways) == (48 << 10, 12, 2 << 20, 16)
    assert (found.multiply_adds, found.cores) == (2.0, 7)
    monkeypatch.delenv("HLOJIT_MACHINE")
    assert found.last == host_machine([]).last


@pytest.mark.parametrize(
    "text", ["L1", "L1=", "L9=1M", "L2=1M/0", "L2=-1", "size=3", "cores=0", "ghz=nan", "L1=1/2/3/4/5/6/7"]
)
def test_machines_that_are_not_understood(text: str) -> None:
    with pytest.raises(HlojitError, match="HLOJIT_MACHINE"):
        parse_machine(text)


def test_text_of_a_machine_is_read_back() -> None:
    for machine in (GENERIC, host_target().machine, Machine((Cache(1000, 4, line=32),), 1, 2.5, fork_nanoseconds=150)):
        assert parse_machine(str(machine), Machine(machine.caches[:1])) == machine


@pytest.mark.parametrize("cache", [Cache(32 << 10, 8), Cache(48 << 10, 12), Cache(1 << 20, 8), Cache(2 << 20, 16)])
@pytest.mark.parametrize("width", [64, 192, 256])
@pytest.mark.parametrize("rows", [1, 8, 64, 100, 700])
def test_ways_that_rows_need(cache: Cache, width: int, rows: int) -> None:
    """Counted line by line."""
    for stride in (256, 2048, 4096, 1 << 16, 320, 4160, 12288, 4100, 1028):
        counts: Counter[int] = Counter()
        for row in range(rows):
            lines = {address // 64 for address in range(row * stride, row * stride + width)}
            counts.update(line % cache.sets for line in lines)
        assert cache.ways_needed(rows, stride, width) == max(counts.values()), stride


def test_levels_that_hold_rows() -> None:
    machine = parse_machine("L1=48K/12 L2=2M/16 L3=64M/16")
    assert machine.level_for(64, 4160, 192) == 0
    assert machine.level_for(1024, 4160, 192) == 1
    assert machine.level_for(1024, 4096, 192) == 2
    assert machine.level_for(1 << 20, 4096, 192) == 3
    assert machine.latency(3) == machine.memory_latency


def test_speeds_go_by_features() -> None:
    zen4 = with_speeds(GENERIC, ["avx512f", "sse4a"], "x86_64")
    zen5 = with_speeds(GENERIC, ["avx512f", "avxvnni", "sse4a"], "x86_64")
    server = with_speeds(GENERIC, ["avx512f", "amx-tile"], "x86_64")
    assert (zen4.multiply_adds, zen5.multiply_adds, server.multiply_adds) == (1.0, 2.0, 2.0)
    assert server.last.latency > 3 * zen5.last.latency


@pytest.mark.parametrize("rate", [0.3, 1.0, 3.3, 11.9, 15.4, 27.4, 31.8, 450.0])
def test_measured_bandwidth_is_told_coarsely(rate: float) -> None:
    found = coarse(rate)
    assert 2**-0.26 < found / rate < 2**0.26
    assert coarse(found) == found and coarse(found * 1.1) == found == coarse(found / 1.1)
    assert parse_machine(str(parse_machine(f"bandwidth={found}"))).memory_bandwidth == found


def test_a_core_reads_at_some_rate() -> None:
    assert 1e-3 < read_rate(1 << 20, 0.0) < 1e4
    model = with_measured_bandwidth(parse_machine("L1=4K/4 L2=8K/4 L3=16K/4 bandwidth=1000000"))
    assert model.memory_bandwidth == coarse(model.memory_bandwidth) < 1e4


def test_no_compilation_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes on one machine have one model: nothing in it depends on the time of day."""
    monkeypatch.setattr(bandwidth, "read_rate", lambda *_: pytest.fail("measured"))
    assert host_machine(["avx512f"]) == host_machine(["avx512f"])


def test_architecture_level() -> None:
    features = set("cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3 avx2 bmi bmi2 f16c fma lzcnt movbe".split())
    assert architecture_level(features) == "x86-64-v3"
    assert architecture_level(features | {"avx512f"}) == "x86-64-v3"
    assert architecture_level(features | set("avx512f avx512bw avx512cd avx512dq avx512vl".split())) == "x86-64-v4"
    assert architecture_level(features - {"fma"}) == "x86-64-v2"
    assert architecture_level([]) == "x86-64"


def test_identity_tells_machine_and_features() -> None:
    other = Target(X86_64_V4.triple, X86_64_V4.cpu, X86_64_V4.features, 512, 32, machine=parse_machine("L2=2M/16"))
    assert other.identity != X86_64_V4.identity
    assert str(other.machine) in other.identity


def test_tile_unit_by_features() -> None:
    assert X86_64_V4.tile_unit is None
    unit = Target("x86_64-unknown-linux-gnu", "x86-64-v4", "+amx-tile,+amx-bf16,+amx-int8,-amx-fp16", 512, 32).tile_unit
    assert unit is not None
    assert (unit.registers, unit.rows, unit.row_bytes, unit.elements) == (8, 16, 64, ("bf16", "i8"))
