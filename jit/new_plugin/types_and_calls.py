"""Modules of a vendor's first package, each with its test: number formats, an op, custom calls, a pass."""

from __future__ import annotations

from typing import Final

FLOAT8: Final = '''\
"""A number format of eight bits: an element type for text, ``astype``, arrays, and all ops."""

from __future__ import annotations

from hlojit.extensions import FloatFormat, NanEncoding, Overflow

FORMAT = FloatFormat(
    "NAME8",
    exponent_bits=4,
    mantissa_bits=3,
    bias=7,
    has_infinity=False,
    nan=NanEncoding.ALL_ONES,
    overflow=Overflow.SATURATE,
)
'''

TEST_FLOAT8: Final = """\
from __future__ import annotations

import hlojit
import numpy as np
from hlojit.testing import check_format

from hlojit_NAME.float8 import FORMAT


def test_numbers_are_rounded() -> None:
    rounded = hlojit.jit(lambda x: x.astype("NAME8").astype("f4"))
    assert rounded(np.array([0.3, 1.06, -3.3, 1000], "f4")).tolist() == [0.3125, 1.0, -3.25, 448.0]


def test_kit() -> None:
    check_format(FORMAT, budget="smoke").raise_if_failed()
"""

BLOCKS: Final = '''\
"""A block format: narrow numbers in blocks of eight that share a scale, as an element type."""

from __future__ import annotations

from hlojit.extensions import BlockFormat, FloatFormat

ELEMENT = FloatFormat("NAME5", exponent_bits=2, mantissa_bits=2, bias=1)
FORMAT = BlockFormat("NAMEblock", element=ELEMENT, scale="f16", block=8, scaling="maximum")
'''

TEST_BLOCKS: Final = """\
from __future__ import annotations

import hlojit
import numpy as np
from hlojit.testing import check_block_format

from hlojit_NAME.blocks import FORMAT


def test_blocks_keep_the_largest_number_and_round_the_others() -> None:
    there_and_back = hlojit.jit(lambda x: x.astype("NAMEblock").astype("f4"))
    x = np.random.default_rng(0).standard_normal((4, 8), "f4")
    largest = abs(x).max(axis=1, keepdims=True)
    assert (abs(there_and_back(x) - x) <= largest / 8).all()


def test_kit() -> None:
    check_block_format(FORMAT, budget="smoke").raise_if_failed()
"""

SOFTSIGN: Final = '''\
"""An op of the dialect NAME; in Python ``hlojit.op("NAME.softsign")(x)``."""

from __future__ import annotations

from typing import Any

import numpy as np
from hlojit.extensions import OpDefinition, Operand, Pointwise, like_operands
from hlojit.testing import Case


def rule(b: Any, call: Any, x: Any) -> Any:
    """One element of the result: written once, for every back end, against a builder of scalars."""
    return b.fdiv(x, b.fadd(b.constant(x.kind, 1.0), b.fabs(x)))


SOFTSIGN = OpDefinition(
    "NAME.softsign",
    operands=(Operand("operand"),),
    infer=like_operands,
    reference=lambda call, x: x / (1 + np.abs(x)),
    syntax="pretty-same-type",
    lowering=Pointwise(rule),
    summary="x / (1 + abs(x)).",
)
CASES = [Case("NAME.softsign", operands=["f32"])]
'''

TEST_SOFTSIGN: Final = '''\
from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.testing import check_op

from hlojit_NAME.softsign import CASES, SOFTSIGN

PROGRAM = """
func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {
  %0 = NAME.softsign %x : tensor<1000xf32>
  return %0 : tensor<1000xf32>
}
"""


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_what_it_computes(backend: str) -> None:
    x = np.linspace(-4, 4, 1000, dtype="f4")
    np.testing.assert_allclose(hlojit.compile(PROGRAM, backend=backend)(x), x / (1 + abs(x)), rtol=1e-6)


def test_kit() -> None:
    for case in CASES:
        check_op(SOFTSIGN, budget="smoke", **case.arguments).raise_if_failed()
'''

SWISH: Final = '''\
"""A custom call: a function of one number, in Python ``hlojit.custom_call("NAME.swish", x)``."""

from __future__ import annotations

import math

from hlojit.extensions import ElementwiseCall
from hlojit.testing import Case


def swish(x: float) -> float:
    """Compiled by numba, and inlined into the loop around it; ``math.exp`` of large numbers would overflow in Python."""
    if x < 0.0:
        small = math.exp(x)
        return x * small / (1.0 + small)
    return x / (1.0 + math.exp(-x))


SWISH = ElementwiseCall("NAME.swish", function=swish)
CASES = [Case("NAME.swish", operands=["f32"])]
'''

TEST_SWISH: Final = """\
from __future__ import annotations

import hlojit
import numpy as np
from hlojit.testing import check_custom_call

from hlojit_NAME.swish import CASES, SWISH


def test_what_it_computes() -> None:
    x = np.linspace(-4, 4, 1000, dtype="f4")
    twice = hlojit.jit(lambda x: 2 * hlojit.custom_call("NAME.swish", x))
    np.testing.assert_allclose(twice(x), 2 * x / (1 + np.exp(-x)), rtol=1e-5)


def test_kit() -> None:
    for case in CASES:
        check_custom_call(SWISH, budget="smoke", **case.arguments).raise_if_failed()
"""

ARRAYS: Final = '''\
"""Custom calls over whole arrays: one compiled by numba, one in Python that may use any library."""

from __future__ import annotations

from typing import Any

import numpy as np
from hlojit.extensions import ArrayCall
from hlojit.testing import Case


def running_sum(x: Any, result: Any) -> None:
    """Writes every element of its result; indices are checked, and it runs without the GIL."""
    total = np.zeros(x.shape[1], x.dtype)
    for row in range(x.shape[0]):
        total += x[row]
        result[row] = total


def ranks(x: Any) -> Any:
    """Returns what the program says: here the place of each number of a row in order, as i32."""
    return np.argsort(np.argsort(x, axis=-1, kind="stable"), axis=-1, kind="stable").astype(np.int32)


RUNNING_SUM = ArrayCall(
    "NAME.running_sum", function=running_sum, trust="numba", result_types=lambda call: call.operands[0]
)
RANKS = ArrayCall("NAME.ranks", function=ranks, trust="python")


def running_sum_by_numpy(x: Any) -> Any:
    """What is right, for the kit."""
    return np.cumsum(x, axis=0, dtype=x.dtype)


CASES = [
    Case("NAME.running_sum", operands=["f32"], shapes=[(4, 8), (1, 3)], oracle=running_sum_by_numpy),
    Case("NAME.ranks", operands=["f32"], shapes=[(4, 8), (3,)], results=["i32"], oracle=ranks),
]
'''

TEST_ARRAYS: Final = """\
from __future__ import annotations

import hlojit
import numpy as np
from hlojit.testing import check_custom_call

from hlojit_NAME.arrays import CASES


def test_what_they_compute() -> None:
    x = np.random.default_rng(0).standard_normal((8, 100), "f4")
    np.testing.assert_allclose(hlojit.custom_call("NAME.running_sum", x), np.cumsum(x, axis=0), rtol=1e-5, atol=1e-5)
    ranks = hlojit.custom_call("NAME.ranks", x, result=(x.shape, "i4"))
    assert (np.take_along_axis(np.sort(x, axis=1), ranks, axis=1) == x).all()


def test_kit() -> None:
    for case in CASES:
        check_custom_call(case.name, budget="smoke", **case.arguments).raise_if_failed()
"""

DOUBLE_NEGATION: Final = '''\
"""A pass: a frozen dataclass, whose fields are its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlojit.extensions import Module, Pass
from hlojit.testing import Case


@dataclass(frozen=True)
class DoubleNegation(Pass):
    """-(-x) becomes x.  Exact: every bit but the sign stays, and the sign comes back."""

    name: ClassVar[str] = "NAME-double-negation"
    phase: ClassVar[str] = "simplify"
    before: ClassVar[tuple[str, ...]] = ("algebraic-simplifier",)
    numeric_effect: ClassVar[str] = "exact"
    limit: int = 1_000_000
    """How many pairs to remove at most."""

    def run(self, module: Module) -> bool:
        """Rewrite, and return whether anything changed."""
        removed = 0
        for outer in list(module.walk()):
            inner = outer.operands[0].producer if outer.name == "stablehlo.negate" else None
            if inner is not None and inner.name == "stablehlo.negate" and removed < self.limit:
                outer.replace_with([inner.operands[0]])
                removed += 1
        return removed > 0


PROGRAM = """
func.func @main(%x: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %0 = stablehlo.negate %x : tensor<5x7xf32>
  %1 = stablehlo.negate %0 : tensor<5x7xf32>
  %2 = stablehlo.add %1, %x : tensor<5x7xf32>
  return %2 : tensor<5x7xf32>
}
"""
CASES = [Case("NAME-double-negation", programs=[PROGRAM])]
'''

TEST_DOUBLE_NEGATION: Final = """\
from __future__ import annotations

from typing import Any

import hlojit
import pytest
from hlojit.testing import check_pass

from hlojit_NAME.double_negation import CASES, PROGRAM, DoubleNegation


@pytest.mark.parametrize(("options", "changed"), [({}, True), ({"limit": 0}, False)])
def test_it_runs_and_has_an_option(options: dict[str, Any], changed: bool) -> None:
    events: list[Any] = []
    hlojit.lower(PROGRAM, pass_options={"NAME-double-negation": options}, callback=events.append)
    own = [event.changed for event in events if event.pass_.name == "NAME-double-negation"]
    assert own and any(own) is changed


def test_kit() -> None:
    for case in CASES:
        check_pass(DoubleNegation(), case.arguments["programs"], budget="smoke").raise_if_failed()
"""
