"""Switches stand in one table; a variable HLOJIT_* that is not in it is an error that names the one that was meant."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hlojit.disk_cache import limit_setting
from hlojit.ir import switches
from hlojit.ir.errors import HlojitError
from hlojit.runtime.quota import default_threads

ROOT = Path(__file__).resolve().parents[1]
COMPILE = """
import hlojit
text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
for attempt in range(2):
    try:
        hlojit.compile(text)
        print("compiled")
    except hlojit.HlojitError as error:
        print(error)
"""


def test_the_page_shows_the_table() -> None:
    command = [sys.executable, ROOT / "tools" / "switch_table.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nobody_reads_a_switch_past_the_table() -> None:
    """Outside of the table no text is the name of a switch: it stands in messages and notes only."""
    paths = [path for folder in ("ir", "extensions", "jit", "cuda") for path in (ROOT / folder).rglob("*.py")]
    faults = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for path in paths
        if path != ROOT / "ir" / "switches.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and is_name(node.value)
    ]
    assert not faults


def is_name(text: str) -> bool:
    return text.startswith(switches.PREFIX) and text.isidentifier()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("HLOJIT_CAHCE", "did you mean HLOJIT_CACHE?"),
        ("HLOJIT_THREADS", "mean HLOJIT_NUM_THREADS?"),
        ("HLOJIT_TF32", "known are HLOJIT_BACKEND, "),
    ],
)
def test_an_unknown_name_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str, hint: str) -> None:
    switches.check_names()
    monkeypatch.setenv(name, "1")
    with pytest.raises(HlojitError, match=f"variable {name} is no switch") as raised:
        switches.check_names()
    assert hint in str(raised.value)


def test_every_compilation_reports_it() -> None:
    environment = dict(os.environ, HLOJIT_NUM_TREADS="2")
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=True)
    assert (
        done.stdout.splitlines()
        == ["the environment variable HLOJIT_NUM_TREADS is no switch of hlojit's; did you mean HLOJIT_NUM_THREADS?"] * 2
    )


def test_a_plugins_own_variable_is_its_own() -> None:
    environment = dict(os.environ, ACME_HLOJIT_SPEED="2", hlojit_notes="x", HLOJITTER="1")
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["compiled"] * 2


@pytest.mark.parametrize("text", ["\u00b2", "\u0663", "9" * 5000, "-1", "1_0", "k", "1e3", "1 0"])
def test_what_is_no_number_is_said(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("HLOJIT_CACHE_SIZE", text)
    monkeypatch.setenv("HLOJIT_NUM_THREADS", text)
    for read in (limit_setting, default_threads, lambda: switches.NUM_THREADS.count(1, most=10**40)):
        with pytest.raises(HlojitError, match=r"HLOJIT_\w+=.*is not a number") as raised:
            read()
        assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    ("text", "expected"), [("", 7), ("0", 0), (" 12 ", 12), ("3k", 3072), ("2G", 2 << 30), ("9" * 25, switches.LARGEST)]
)
def test_bytes(monkeypatch: pytest.MonkeyPatch, text: str, expected: int) -> None:
    monkeypatch.setenv("HLOJIT_MEMORY_LIMIT", text)
    assert switches.MEMORY_LIMIT.nbytes(7) == expected


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CPU_DEVICES", "8")
    assert switches.CPU_DEVICES.count(1, most=8) == 8
    with pytest.raises(HlojitError, match="HLOJIT_CPU_DEVICES='8' is not a number from 1 to 7"):
        switches.CPU_DEVICES.count(1, most=7)
    monkeypatch.setenv("HLOJIT_CPU_DEVICES", "0")
    assert switches.CPU_DEVICES.count(1, least=0, most=7) == 0
    with pytest.raises(HlojitError, match="from 1 to 7"):
        switches.CPU_DEVICES.count(1, most=7)
