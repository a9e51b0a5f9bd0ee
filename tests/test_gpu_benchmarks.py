"""The GPU's benchmark: its programs, its script from beginning to end in tiny sizes, its tables, the roofline's file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))
from hlojit.extensions import registry

from benchmarks import gpu
from benchmarks.gpu_programs import cases, filled, shapes_only
from benchmarks.gpu_roofline import FIELDS, PATH, kernels_of, markdown, with_times
from benchmarks.gpu_systems import difference, kernel_nanoseconds
from benchmarks.gpu_tables import markdown as tables
from benchmarks.gpu_tables import ratio, share, summary

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=400, check=False,
        env=dict(os.environ, **environment),
    )  # fmt: skip


@pytest.mark.slow
def test_everything_runs_in_tiny_sizes_and_keeps_no_figures() -> None:
    before = sorted(PATH.parent.iterdir())
    done = run("--dry", "--budget", "390")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    assert "DIFFER" not in done.stdout and "0 not" in done.stdout and "nothing is kept" in done.stdout
    assert [name for name in cases(dry=True) if name not in done.stdout] == []
    assert sorted(PATH.parent.iterdir()) == before


@pytest.mark.slow
def test_a_program_that_takes_its_process_along_is_reported_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'benchmarks.gpu_worker' in ' '.join(sys.orig_argv):\n"
        "    from benchmarks import gpu_programs\n"
        "    make = gpu_programs._program\n"
        "    def broken(name, *rest):\n"
        "        if name == 'copy_64m': os._exit(9)\n"
        "        if name == 'add_64m': raise ValueError('no sums today')\n"
        "        return make(name, *rest)\n"
        "    gpu_programs._program = broken\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = run("--dry", "--only", "copy", "add_64m", "sum_rows", PYTHONPATH=path)
    assert done.returncode == 1
    lines = dict(
        line.split(maxsplit=1) for line in done.stdout.splitlines() if "_64m" in line and "measured" not in line
    )
    assert lines["copy_64m"] == "FAILED: its process ended (exit status 9)"
    assert lines["add_64m"] == "FAILED: ValueError: no sums today"
    assert lines["sum_rows_64m"] == "results agree"


def test_without_a_gpu_it_says_why_and_how_to_try_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HLOJIT_CUDA")
    if registry().load().backend("cuda").unavailable() is None:
        pytest.skip("there is a GPU")
    assert gpu.main(["--only", "copy"]) == 2
    printed = capsys.readouterr().out
    assert "no GPU to measure on: " in printed and "--dry tries the script without one" in printed


def test_out_of_time_says_so() -> None:
    options = SimpleNamespace(budget=-1.0, dry=True, rounds=1)
    session = gpu.Session(["copy_64m"], options)  # type: ignore[arg-type]
    session.run()
    assert session.rows == [{"name": "copy_64m", "error": "not measured: out of time, or no worker started"}]


def test_programs_have_what_shares_and_rates_need() -> None:
    for case in cases().values():
        assert case.group in ("memory", "products", "models", "launches")
        assert (case.nbytes > 0) == (case.group in ("memory", "products"))
        assert (case.operations > 0) == (case.group == "products")
    assert set(cases(quick=True)) <= set(cases())
    assert cases()["softmax_1g"].nbytes == 2 << 30
    with shapes_only():
        assert filled(1 << 20, 1 << 20).strides == (0, 0)


def test_differences_are_relative_and_see_what_is_no_number() -> None:
    assert difference(np.array([1.0, 4.0]), np.array([1.0, 4.4])) == pytest.approx(0.4 / 4.4)
    assert difference(np.array([1.0, np.nan]), np.array([1.0, 2.0])) == float("inf")
    long = np.zeros(40_000_000, np.float32)
    other = long.copy()
    other[-1] = 1
    assert difference(long, other) == 1.0, "the ends are compared"


def test_jax_s_kernels_are_counted_once() -> None:
    """Planes as the profiler names them: one line a stream, and lines that group the same kernels."""
    event = SimpleNamespace(duration_ns=100.0)
    lines = [SimpleNamespace(name=name, events=[event, event]) for name in ("Stream #7(Compute)", "XLA Ops", "Steps")]
    planes = [SimpleNamespace(name="/device:GPU:0", lines=lines), SimpleNamespace(name="/host:CPU", lines=lines)]
    assert kernel_nanoseconds(SimpleNamespace(planes=planes)) == 200.0


MACHINE = {
    "gpu": "NVIDIA H200", "copy_bytes_per_second": 4e12, "cpu": "a CPU", "cores": 16, "python": "3.12.3",
    "packages": {"jax": "0.11.2"}, "nvidia_smi": {"driver_version": "580"},
}  # fmt: skip


def row(name: str, group: str, ours: float, theirs: float, **more: Any) -> dict[str, Any]:
    times = {each: {"call": {"median": s + 1e-5, "least": s}, "started": {"median": 6e-6, "least": 5e-6}, "queued": {"median": s, "least": s}}
             for each, s in (("hlojit", ours), ("jax", theirs))}  # fmt: skip
    return {
        "name": name, "group": group, "nbytes": 4e9, "operations": 0.0, "times": times, "device": {"hlojit": ours},
        "difference": {"hlojit": 1e-6}, "tolerance": 1e-5, "compile": {"hlojit": 0.5, "jax": 1.0}, **more,
    }  # fmt: skip


def test_tables_show_ratios_shares_and_what_failed() -> None:
    memory = row("softmax_1g", "memory", 1.25e-3, 2.5e-3)
    assert share(memory, MACHINE, "hlojit") == pytest.approx(0.8) and ratio(memory) == pytest.approx(2.0)
    product = row("bf16_4096", "products", 1e-3, 1e-3, operations=5e11, difference={"hlojit": 1.0})
    model = row("gpt2_forward_bf16", "models", 1e-2, 2e-2)
    text = tables({"machine": MACHINE, "rows": [memory, product, model, {"name": "x", "error": "bad\nworse"}]})
    assert "| softmax_1g | 1,250.0 | 2,500.0 | 2.00 | 80% | 40% | 1e-06 |" in text
    assert "| bf16_4096 | 1,000.0 | - | 1,000.0 | 1.00 | 500 | - | 500 | **1e+00** |" in text
    assert (
        "| gpt2_forward_bf16 | 10,010.0 | 20,010.0 | 6.0 | 6.0 | 10,000.0 | 20,000.0 | 10,000.0 | - | 1e-06 |" in text
    )
    assert "* x: bad" in text and "worse" not in text
    assert "RESULTS DIFFER" in summary(product, MACHINE) and "80% of copy" in summary(memory, MACHINE)


def test_the_roofline_s_file_has_all_programs_and_is_as_the_tool_writes_it() -> None:
    stored = json.loads(PATH.read_text(encoding="utf-8"))
    assert list(stored["programs"]) == list(cases()), "python -m benchmarks.gpu_roofline"
    for kernels in stored["programs"].values():
        assert kernels
        for each in kernels:
            assert set(each) - {"measured"} == {"symbol", "launches", *FIELDS}
    assert PATH.with_suffix(".md").read_text(encoding="utf-8") == markdown(stored)


@pytest.mark.parametrize("name", ["softmax_64m", "bf16_4096"])
def test_the_roofline_s_file_is_current(name: str) -> None:
    """Of two programs; plans that change what a kernel moves or computes change the file."""
    stored = json.loads(PATH.read_text(encoding="utf-8"))["programs"][name]
    found = kernels_of(cases()[name], with_registers=False)
    fields = ("name", "nbytes", "operations", "bound", "matrix", "launches")
    assert [[each[field] for field in fields] for each in found] == [
        [each[field] for field in fields] for each in stored
    ]


def test_measurements_stand_beside_the_estimates_of_the_same_kernels() -> None:
    kernels = [{"symbol": symbol, "launches": 1} for symbol in ("simulated_a", "simulated_b")]
    measured = [{"symbol": symbol, "measured": time} for symbol, time in (("a", 5.0), ("b", 7.0), ("a", 5.0))]
    with_times({"x": kernels}, [{"name": "x", "kernels": {"hlojit": measured}}, {"name": "y", "error": "failed"}])
    assert [each["measured"] for each in kernels] == [5.0, 7.0]
