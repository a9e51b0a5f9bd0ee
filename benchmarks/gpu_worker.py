"""One process of ``benchmarks.gpu``: hlojit and JAX on the same GPU, one program after the other.

    python -m benchmarks.gpu_worker '{"names": ["softmax_64m"], "until": 1e12}'

Every line of standard output is a JSON object: ``machine`` first, then ``begin`` and ``row`` of each program.  A program that
fails has a row that says why; when the GPU is lost with it, the process ends, and whoever started it starts another one.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = ("jax", "jaxlib", "jax-cuda13-plugin", "numpy", "numba", "numba-cuda", "llvmlite", "cuda-bindings",
            "nvidia-nvjitlink", "nvmath-python", "nvidia-cublas", "nvidia-cudnn-cu13")  # fmt: skip
LOST = 3
"""Exit status of a process whose GPU is lost."""
COPIED = 1 << 30
ROUNDS = 5
PROFILED_SECONDS = 200e-6
"""JAX's profiler is asked about programs below: for longer ones the host is not what queued calls wait for."""


def say(**record: Any) -> None:
    """One line to the parent process."""
    print(json.dumps(record), flush=True)


def installed() -> dict[str, str]:
    """Versions of what takes part."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def nvidia_smi() -> dict[str, str]:
    """What NVIDIA's tool says of the first GPU: driver, clocks, power, temperature."""
    asked = ("name", "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.draw",
             "power.limit", "temperature.gpu", "ecc.mode.current")  # fmt: skip
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(asked)}", "--format=csv,noheader"]
    try:
        line = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(asked, (word.strip() for word in line.splitlines()[0].split(","))))


class Bench:
    """What is there once for a process: the device, its profiler, JAX's platform."""

    def __init__(self, *, dry: bool, rounds: int):
        import hlojit
        import jax
        from hlojit.gpu.device import GpuDevice
        from hlojit.gpu.launch_times import Profiler

        from benchmarks.gpu_programs import cases

        self.dry, self.rounds = dry, rounds
        device = hlojit.devices("cuda")[0]
        assert isinstance(device, GpuDevice)
        self.device = device
        self.is_simulated = device.driver.properties.recovers
        self.profiler = Profiler(device, 0 if self.is_simulated else 256 << 20)
        self.has_peer = dry or jax.default_backend() == "gpu"
        self.platform = jax.default_backend()
        self.cases = cases(dry=dry)
        self.short: dict[str, Any] = {}
        """JAX's side of programs that JAX's profiler is to be asked about."""
        self.copy_rate = self._copy_rate(1 << 16 if dry else COPIED)

    def _copy_rate(self, nbytes: int) -> float:
        """Bytes a second that a copy within the device reads and writes: the best of a few rounds of ten."""
        driver = self.device.driver
        stream = driver.stream("copies")
        source, target = driver.allocate(nbytes, stream), driver.allocate(nbytes, stream)
        best = float("inf")
        for _ in range(4):
            driver.copy(target, source, nbytes, stream)
            first = driver.record_time(stream)
            for _ in range(10):
                driver.copy(target, source, nbytes, stream)
            best = min(best, driver.elapsed(first, driver.record_time(stream)) / 10)
        for address in (source, target):
            driver.free(address, stream)
        return 2 * nbytes / (best * 1e-9)

    def machine(self) -> dict[str, Any]:
        """Where and with what this is measured."""
        processor = ""
        if os.path.exists("/proc/cpuinfo"):
            with open("/proc/cpuinfo", encoding="utf-8") as file:
                processor = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
        return {
            "gpu": self.device.kind, "memory": self.device.driver.memory()[1], "copy_bytes_per_second": self.copy_rate,
            "jax_platform": self.platform, "cpu": processor, "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(), "packages": installed(), "nvidia_smi": nvidia_smi(),
        }  # fmt: skip

    def row(self, name: str) -> dict[str, Any]:
        """Compile, compare and time one program."""
        from benchmarks.gpu_systems import Hlojit, Jax, System, difference, take_turns, text_for

        case = self.cases[name]
        program = case.program()
        arrays = program.flat_arguments()
        text = text_for(program)
        placed = Hlojit.put(arrays)
        ours = Hlojit(text, placed)
        systems: list[System] = [ours]
        if ours.uses_library():
            systems.append(Hlojit(text, placed, libraries="off"))
        found: dict[str, Any] = {
            "name": name,
            "group": case.group,
            "nbytes": case.nbytes,
            "operations": case.operations,
        }
        if self.has_peer and not (case.not_on_cpu and self.platform == "cpu"):
            systems.append(Jax(program, Jax.put(arrays)))
        del arrays
        found["compile"] = {system.name: system.compile_seconds for system in systems}
        expected = [systems[-1].fetch(each) for each in systems[-1].results()]
        found["difference"] = {}
        for system in systems[: -1 or None]:
            worst = [
                difference(system.fetch(each), wanted) for each, wanted in zip(system.results(), expected, strict=True)
            ]
            found["difference"][system.name] = max(worst, default=0.0)
        found["tolerance"] = case.tolerance
        del expected
        found["times"] = take_turns(systems, 1 if self.dry else self.rounds)
        found["device"], found["kernels"] = {}, {}
        for system in systems:
            if isinstance(system, Hlojit):
                profile = self.profiler.profile(system.executable, *placed, runs=1 if self.dry else 3)
                found["device"][system.name] = min(profile.nanoseconds) * 1e-9
                found["kernels"][system.name] = self.kernels(text, system, profile)
            elif isinstance(system, Jax) and found["times"][system.name]["queued"]["median"] < PROFILED_SECONDS:
                self.short[name] = system
        return found

    def ask_jax_profiler(self, until: float) -> None:
        """What JAX's kernels take, of short programs: in the end, since a profiler slows down what comes after it."""
        for name, system in self.short.items():
            if time.time() > until:
                return
            try:
                say(profiled=name, seconds=system.device_seconds())
            except Exception as error:  # it is another program's, and may not be allowed here
                say(profiled=name, error=repr(error))

    def kernels(self, text: str, system: Any, profile: Any) -> list[dict[str, Any]]:
        """Every launch of the program with its estimate and its time."""
        from dataclasses import asdict

        import hlojit
        from hlojit.compiler import lower
        from hlojit.extensions import CompileOptions, registry
        from hlojit.gpu.roofline import estimates

        backend: Any = registry().backend("cuda")
        options = CompileOptions(libraries="off" if "own" in system.name else "auto")
        module = lower(hlojit.parse(text), backend, options)
        found = estimates(backend, module, profile.by_kernel(), with_registers=False)
        return [asdict(each) for each in found]


def main() -> int:
    """Measure what the parent asks for."""
    asked = json.loads(sys.argv[1])
    bench = Bench(dry=asked["dry"], rounds=asked.get("rounds", ROUNDS))
    say(machine=bench.machine())
    for name in asked["names"]:
        if time.time() > asked["until"]:
            break
        say(begin=name, seconds=bench.cases[name].seconds)
        begin = time.perf_counter()
        try:
            row = bench.row(name)
        except Exception as error:
            row = {"name": name, "error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc(limit=-6)}
        row["seconds"] = time.perf_counter() - begin
        say(row=row)
        gc.collect()
        if bench.device.lost:
            return LOST
    say(end=nvidia_smi())
    bench.ask_jax_profiler(asked["until"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
