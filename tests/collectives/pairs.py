"""Texts of asynchronous pairs, and how they are run."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
from hlojit.compiler import lower
from hlojit.cpu.backend import CpuBackend
from hlojit.extensions import registry
from hlojit.extensions.backends.backend import CompileOptions
from hlojit.ir.process_grid import ProcessGrid, state_grid
from hlojit.lowering.program import Program
from hlojit.lowering.program_check import check

SMALL = "tensor<4xf32>"
LARGE = "tensor<96x100xf32>"
WIDE = "tensor<192x100xf32>"


def pair(name: str, operand: str, body: str, type: str, result: str) -> str:
    """A pair's start, whose body computes ``%r`` of ``%a``."""
    return f"""
  %{name} = "stablehlo.async_start"({operand}) ({{
    ^bb0(%a: {type}):
      %r = {body}
      stablehlo.return %r : {result}
  }}) : ({type}) -> !stablehlo.future<{result}>"""


def done(name: str, future: str, result: str) -> str:
    return f'\n  %{name} = "stablehlo.async_done"(%{future}) : (!stablehlo.future<{result}>) -> {result}'


def all_reduce(type: str, groups: str = "[[0, 1]]") -> str:
    return f""""stablehlo.all_reduce"(%a) ({{
        ^bb0(%p: tensor<f32>, %q: tensor<f32>):
          %s = stablehlo.add %p, %q : tensor<f32>
          stablehlo.return %s : tensor<f32>
      }}) {{replica_groups = dense<{groups}> : tensor<1x2xi64>}} : ({type}) -> {type}"""


def infeed(name: str, token: str) -> str:
    return (
        f'\n  %{name}, %t{name} = "stablehlo.infeed"(%{token}) : (!stablehlo.token) -> (tensor<f32>, !stablehlo.token)'
    )


def scheduled(text: str, processes: int = 2) -> Program:
    """The program record of the CPU, checked."""
    module = hlojit.parse(text)
    state_grid(module, ProcessGrid(processes, 1))
    backend = registry().backend("cpu")
    assert isinstance(backend, CpuBackend)
    program = backend.program(lower(module, backend, CompileOptions()))
    check(program)
    return program


def main(body: str, type: str, results: str, types: str) -> str:
    return f"func.func @main(%x: {type}) -> ({types}) {{{body}\n  return {results} : {types}\n}}"


def together(rows: Any, text: str) -> Any:
    return hlojit.compile(text, num_replicas=len(rows))(rows)


def random_rows(seed: int = 0) -> list[Any]:
    return list(np.random.default_rng(seed).standard_normal((2, 96, 100)).astype("f4"))
