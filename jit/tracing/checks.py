"""What is checked while a traced function runs, because NumPy or Python would raise: one number says which check failed.

The compiled program returns it beside its results: 0, or the number of the first check that failed; the call raises then, and
nothing is written into arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from hlojit.ir.builder import Builder
from hlojit.ir.graph import Value
from hlojit.ir.location import Location
from hlojit.ir.types import tensor


@final
@dataclass(frozen=True)
class Check:
    """One check: what is raised, and where it stands."""

    error: type[Exception]
    message: str
    location: Location

    def exception(self) -> Exception:
        """What the call raises."""
        return self.error(f"{self.message}\n  at {self.location}")


@final
class Checks:
    """Those of one function, in its order."""

    def __init__(self) -> None:
        self.made: list[Check] = []
        self._bad: list[Value] = []

    def add(self, builder: Builder, bad: Value, error: type[Exception], message: str) -> None:
        """Fail where an element of ``bad`` is true."""
        if bad.tensor_type.rank:
            start = builder.constant(np.bool_(False))
            attributes: Any = {"dimensions": tuple(range(bad.tensor_type.rank))}
            regions = [builder.combiner("or", bad.tensor_type.element_type)]
            bad = builder.create("reduce", [bad, start], attributes=attributes, regions=regions).result
        self.made.append(Check(error, message, builder.location))
        self._bad.append(bad)

    def code(self, builder: Builder) -> Value:
        """The number of the first that failed, from 1; 0 if none did."""
        code = builder.constant(0, tensor((), "i32"))
        for number in range(len(self._bad), 0, -1):
            code = builder.select(self._bad[number - 1], builder.constant(number, tensor((), "i32")), code)
        return code
