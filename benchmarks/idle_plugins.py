"""What plugins cost programs that have nothing to do with them.

    python -m benchmarks.idle_plugins [--tree FOLDER] [--rounds 5]

``hlojit.lower`` and ``hlojit.compile`` of one addition, the second without the cache on disk and with it, in fresh processes turn
by turn, the least of many: milliseconds.  ``--tree`` names the ``build/dev`` of another checkout whose hlojit is measured.

    none          no plugin
    passes        twenty passes for another back end
    records       twenty custom calls, ops and formats that the program does not name, and kernels for another back end
    active        twenty passes for the CPU that change nothing
    examples      the packages of plugins_example/, of which one has a pass and another one kernels for the CPU
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COUNT, CALLS = 20, 30
TEXT = """func.func @main(%a: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.add %a, %b : tensor<8xf32>
  return %0 : tensor<8xf32>
}"""


def register_none() -> None:
    """Nothing."""


def register_passes(*targets: str) -> None:
    """Twenty passes, each of a class of its own."""
    from dataclasses import dataclass

    from hlojit.extensions import Module, Pass, hookimpl, register

    class Base(Pass):
        def run(self, module: Module) -> bool:
            return False

    def made(number: int) -> Pass:
        body = {"name": f"idle-{number}", "phase": "simplify", "targets": targets, "__module__": __name__}
        found: Pass = dataclass(frozen=True)(type(f"Idle{number}", (Base,), body))()
        return found

    passes = [made(number) for number in range(COUNT)]
    register(type("Passes", (), {"hlojit_passes": hookimpl(lambda self: passes)})())


def register_records() -> None:
    """Twenty of each kind of record."""
    from hlojit.extensions import (
        Declined,
        ExpansionCall,
        FloatFormat,
        Kernel,
        OpDefinition,
        Operand,
        OpPattern,
        Pointwise,
        hookimpl,
        like_operands,
        register,
    )

    def expand(builder: Any, instruction: Any) -> list[Any]:
        return [builder.add(instruction.operands[0], instruction.operands[0])]

    def op(number: int) -> OpDefinition:
        lowering = Pointwise(lambda b, call, x: b.fadd(x, x))
        return OpDefinition(f"idle.op{number}", operands=(Operand("x"),), lowering=lowering, infer=like_operands)

    class Records:
        @hookimpl
        def hlojit_custom_calls(self) -> list[Any]:
            return [ExpansionCall(f"idle.call{number}", expand=expand) for number in range(COUNT)]

        @hookimpl
        def hlojit_formats(self) -> list[Any]:
            return [FloatFormat(f"idle{number}e", exponent_bits=3, mantissa_bits=2, bias=3) for number in range(COUNT)]

        @hookimpl
        def hlojit_ops(self) -> list[Any]:
            return [op(number) for number in range(COUNT)]

        @hookimpl
        def hlojit_kernels(self) -> list[Any]:
            pattern = OpPattern("stablehlo.add")
            return [
                Kernel(f"idle.kernel{number}", backend="cuda", pattern=pattern, build=lambda group: Declined("no"))
                for number in range(COUNT)
            ]

    register(Records())


def register_examples() -> None:
    """The packages of ``plugins_example/``, from their sources."""
    from hlojit.extensions import register

    for folder in sorted((ROOT / "plugins_example").iterdir()):
        sys.path.insert(0, str(folder))
        points = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["entry-points"]["hlojit"]
        for name, place in points.items():
            module, _, attribute = place.partition(":")
            found = (
                getattr(importlib.import_module(module), attribute) if attribute else importlib.import_module(module)
            )
            register(found() if isinstance(found, type) else found, name=name)


ARMS: dict[str, Callable[[], None]] = {
    "none": register_none,
    "passes": lambda: register_passes("cuda"),
    "records": register_records,
    "active": lambda: register_passes("cpu"),
    "examples": register_examples,
}
MEASURED = ("lower", "compile, cache off", "compile, cache on")


def least(function: Callable[[], Any]) -> float:
    """Milliseconds of the fastest call, the first ones not counted."""
    found = []
    for _ in range(CALLS):
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return min(found[3:]) * 1e3


def measured(arm: str) -> list[float]:
    """The figures of one process."""
    import hlojit

    os.environ["HLOJIT_CACHE"] = "off"
    ARMS[arm]()
    found = [least(lambda: hlojit.lower(TEXT)), least(lambda: hlojit.compile(TEXT))]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HLOJIT_CACHE"] = folder
        return [*found, least(lambda: hlojit.compile(TEXT))]


def main() -> None:
    """Measure all arms in turn and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tree", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--arm", choices=ARMS)
    given = parser.parse_args()
    if given.arm:
        print(json.dumps(measured(given.arm)))
        return
    environment = dict(os.environ) if given.tree is None else {**os.environ, "PYTHONPATH": str(given.tree)}
    rounds: dict[str, list[list[float]]] = {arm: [] for arm in ARMS}
    for _ in range(given.rounds):
        for arm, found in rounds.items():
            command = [sys.executable, "-m", "benchmarks.idle_plugins", "--arm", arm]
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
    print(f"{'':10}" + "".join(f"{what:>20}" for what in MEASURED))
    for arm, found in rounds.items():
        print(f"{arm:10}" + "".join(f"{min(column):20.2f}" for column in zip(*found)))


if __name__ == "__main__":
    main()
