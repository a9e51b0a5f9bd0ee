"""Run in a fresh process by test_fork_while_compiling.py: code of users that waits for a thread which forks.

python waiting_for_forks.py WHERE
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, ClassVar

import hlojit
import hlojit.extensions as ext
import numpy as np

WHERE = sys.argv[1]
TEXT = """func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @t.f(%a) : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.custom_call @t.g(%0) : (tensor<3xf32>) -> tensor<3xf32>
  return %1 : tensor<3xf32>
}"""
ended: list[bool] = []


def fork() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


def at(place: str) -> None:
    if place == WHERE:
        thread = threading.Thread(target=fork, daemon=True)
        thread.start()
        thread.join(20)
        ended.append(not thread.is_alive())


class Waits(ext.Pass):
    name: ClassVar[str] = "waits"
    phase: ClassVar[str] = "simplify"

    def run(self, module: hlojit.Module) -> bool:
        at("pass")
        return False


def factory(site: ext.CallSite) -> Any:
    at("factory")
    return lambda x: x + 1


def expand(builder: Any, call: Any) -> Any:
    at("expansion")
    return [builder.add(call.operands[0], call.operands[0])]


class Plugin:
    @ext.hookimpl
    def hlojit_custom_calls(self) -> list[ext.CustomCall]:
        at("hook")
        return [ext.ElementwiseCall("t.f", factory=factory), ext.ExpansionCall("t.g", expand=expand)]

    @ext.hookimpl
    def hlojit_passes(self) -> list[ext.Pass]:
        return [Waits()]


@hlojit.jit
def traced(x: Any) -> Any:
    at("traced function")
    return (x + 1) * 2


x = np.ones(3, "f4")
with ext.using(Plugin()):
    assert (hlojit.compile(TEXT)(x) == 4).all()
    assert (traced(x) == 4).all()
assert ended, "it was not asked"
assert all(ended), "the thread that forks waited for ever"
