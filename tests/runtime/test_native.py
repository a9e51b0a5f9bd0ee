"""The native texts: valid for every platform, in step with the layout."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hlojit.lowering import abi
from hlojit.lowering.target import AARCH64, X86_64_V2, Target
from hlojit.machine_code import object_code
from hlojit.runtime import layout, objects
from hlojit.runtime.native import CORE_SYMBOLS, GENERATED_CODE_SYMBOLS, core_source, python_source

OTHERS = [
    X86_64_V2,
    AARCH64,
    Target("x86_64-apple-darwin", "x86-64-v2", "", 128, 16),
    Target("aarch64-apple-darwin", "generic", "+neon", 128, 32),
]


@pytest.mark.parametrize("target", OTHERS, ids=lambda target: target.triple)
def test_the_runtime_compiles_for_every_platform(target: Target) -> None:
    text = object_code.compile_to_assembly(core_source(target.triple), target, pipeline="inline")
    for symbol in CORE_SYMBOLS:
        assert f"{symbol}:" in text
    python = object_code.compile_to_assembly(python_source(), target, pipeline="inline")
    for symbol in set(GENERATED_CODE_SYMBOLS) - set(CORE_SYMBOLS):
        assert f"{symbol}:" in python
    # Accessors and other helpers are gone: only exported functions and out-of-line parts remain.
    assert "context.cancel:" not in text
    if "linux" in target.triple:
        assert "pthread_create" in text


def test_records_fit_what_the_texts_assume() -> None:
    last = max(abi.CONTEXT.values())
    assert last.offset + 8 <= abi.CONTEXT_BYTES
    text = python_source()
    assert f"alloca [{abi.CONTEXT_BYTES} x i8]" in text
    assert f"ptr %record, i64 {layout.CALL_BYTES}   ; CALL_BYTES" in text
    # What every worker reads and what the owner writes during a call are on different cache lines.
    assert abi.CONTEXT["user"].offset < 64 <= abi.CONTEXT["error"].offset


def test_offsets_are_measured_on_this_interpreter() -> None:
    measured = objects.measure()
    assert measured == objects.expected()
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert measured is not None
    assert ctypes.c_void_p.from_address(id(array) + measured.array_data).value == array.ctypes.data


def test_wrong_offsets_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import fields, replace

    right = objects.expected()
    # Behind an array's last field lies whatever was there before: of one array, it may be the right word by chance.
    samples = [np.arange(35, dtype=np.int16).reshape(5, 7).copy() for _ in range(16)]
    for field in fields(right):
        if field.name in ("tuple_size", "tuple_item", "bytes_data", "array_shape", "array_strides"):
            continue  # wrong addresses would be followed
        moved = replace(right, **{field.name: getattr(right, field.name) + 8})
        assert not all(objects._agrees(moved, sample) for sample in samples), field.name


def test_importing_loads_no_compiler() -> None:
    script = "import sys, hlojit.runtime, hlojit.executable; print('llvmlite' in sys.modules, 'numba' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert finished.stdout.split() == ["False", "False"], finished.stderr


def test_the_runtime_is_created_once_by_many_threads() -> None:
    script = """
import threading
from hlojit.runtime.native import native
found = []
threads = [threading.Thread(target=lambda: found.append(native())) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(set(map(id, found))))
"""
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert finished.stdout.strip() == "1", finished.stderr


def test_thousands_of_arguments_on_a_small_stack() -> None:
    command = [sys.executable, str(Path(__file__).with_name("many_slots.py"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
