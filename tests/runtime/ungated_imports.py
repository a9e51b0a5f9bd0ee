"""Run in a fresh process by test_fork_while_compiling.py: what is imported by calls, outside of the fork gate.

Prints the modules.  A child that is forked meanwhile would find the module's lock taken by a thread that it has not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

import hlojit
import numpy as np
from hlojit.ir.fork_gate import fork_gate

TEXT = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.tanh %x : tensor<3xf32>
  return %0 : tensor<3xf32>
}"""


class Spy:
    """A finder that finds nothing, and notes what was looked for."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if not fork_gate.is_inside():
            self.found.append(name)


class Exporter:
    """Offers DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def main() -> None:
    hlojit.devices, hlojit.put, hlojit.get, hlojit.compile, hlojit.jit, hlojit.Array  # noqa: B018 - the package's own door
    spy = Spy()
    sys.meta_path.insert(0, spy)
    x = np.ones(3, "f4")
    hlojit.get(hlojit.put(x))
    executable = hlojit.compile(TEXT)
    executable(x)
    executable(x[::-1])
    executable(Exporter(x))
    np.asarray(executable.execute(x))
    executable(hlojit.put(x)).wait(1.0)
    np.from_dlpack(hlojit.put(x))
    repr(hlojit.put(x))
    values = hlojit.Array.from_values(x, "f8E3M4")
    values.to_values()
    hlojit.jit(lambda y: y + 1)(x)
    hlojit.jit(lambda y: np.sin(y).sum()).execute(x).wait()
    print("\n".join(spy.found))


if __name__ == "__main__":
    main()
