"""Programs of one custom call of a function of arrays, and plugins that bring such calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from hlojit.extensions import CustomCall, hookimpl, using


class Calls:
    """A plugin of some custom calls."""

    def __init__(self, *calls: CustomCall):
        self.calls = calls

    @hookimpl
    def hlojit_custom_calls(self) -> list[CustomCall]:
        return list(self.calls)


@contextmanager
def registered(*calls: CustomCall) -> Iterator[None]:
    with using(Calls(*calls)):
        yield


def program(operands: str, results: str, config: str = "", target: str = "t.f", attributes: str = "") -> str:
    """One call: its types, its configuration."""
    kinds, given = operands.split(), results.split()
    arguments = ", ".join(f"%a{n}: tensor<{kind}>" for n, kind in enumerate(kinds))
    names = ", ".join(f"%a{n}" for n in range(len(kinds)))
    config = f"mhlo.backend_config = {{{config}}}" if config else ""
    listed = ", ".join(filter(None, (config, attributes)))
    types = ", ".join(f"tensor<{kind}>" for kind in kinds)
    returned = ", ".join(f"tensor<{kind}>" for kind in given)
    count = f":{len(given)}" if len(given) > 1 else ""
    values = ", ".join(f"%r#{n}" for n in range(len(given))) if len(given) > 1 else "%r"
    return f"""func.func @main({arguments}) -> ({returned}) {{
  %r{count} = stablehlo.custom_call @{target}({names}) {{{listed}}} : ({types}) -> ({returned})
  return {values} : {returned}
}}"""


def cumulative(x: Any, result: Any) -> None:
    total = np.zeros(x.shape[1], np.float32)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total[j] += x[i, j]
            result[i, j] = total[j]
