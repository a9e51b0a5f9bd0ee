"""The files of a vendor's first package; ``NAME`` and ``TITLE`` are put in by ``hlojit.new_plugin.writer``."""

from __future__ import annotations

from typing import Final

PYPROJECT: Final = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "hlojit-NAME"
version = "0.1.0"
description = "TITLE for hlojit: a number format, an op, a pass, a custom call and a kernel"
requires-python = ">=3.11"
dependencies = ["hlojit>=0.1"]

[project.optional-dependencies]
test = ["pytest"]

[project.entry-points.hlojit]
NAME = "hlojit_NAME.plugin"

[tool.setuptools]
packages = ["hlojit_NAME"]

[tool.setuptools.package-data]
hlojit_NAME = ["py.typed"]
"""

README: Final = """\
# hlojit-NAME

What TITLE adds to hlojit, in `hlojit_NAME/plugin.py`:

| | |
|---|---|
| format | `NAME8`: 4 exponent bits, 3 mantissa bits, no infinities |
| op | `NAME.softsign`: x / (1 + abs(x)) |
| custom call | `NAME.swish`: x * sigmoid(x), one function of scalars, inlined into fused loops |
| pass | `NAME-double-negation`: removes pairs of negations; option `limit` |
| kernel | `NAME.row_norm`: the composite of that name, by a numba function over rows |

```
pip install -e '.[test]'
pytest
hlojit plugins
```
"""

WORKFLOW: Final = """\
name: test
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    strategy:
      matrix:
        python: ["3.11", "3.13"]
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: ${{ matrix.python }}
      - run: pip install -e '.[test]'
      - run: pytest -q
"""

INIT: Final = '''\
"""TITLE for hlojit; ``hlojit_NAME.plugin`` is what hlojit loads."""
'''

PLUGIN: Final = '''\
"""Everything that TITLE brings to hlojit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from hlojit.extensions import (
    CompositePattern,
    CustomCall,
    Declined,
    ElementwiseCall,
    FloatFormat,
    Kernel,
    KernelGroup,
    Module,
    NanEncoding,
    OpDefinition,
    Operand,
    Overflow,
    Pass,
    Pointwise,
    TaskFunction,
    hookimpl,
    like_operands,
)

hlojit_api = API_VERSION
"""The version of hlojit's hooks that this package is written for."""


# ---------------------------------------------------------------------------------------------------------- a number format

FORMAT = FloatFormat(
    "NAME8",
    exponent_bits=4,
    mantissa_bits=3,
    bias=7,
    has_infinity=False,
    nan=NanEncoding.ALL_ONES,
    overflow=Overflow.SATURATE,
)


# -------------------------------------------------------------------------------------------------------------------- an op


def softsign(b: Any, call: Any, x: Any) -> Any:
    """One element of the result: written once, for every back end, against a builder of scalars."""
    return b.fdiv(x, b.fadd(b.constant(x.kind, 1.0), b.fabs(x)))


SOFTSIGN = OpDefinition(
    "NAME.softsign",
    operands=(Operand("operand"),),
    infer=like_operands,
    reference=lambda call, x: x / (1 + np.abs(x)),
    syntax="pretty-same-type",
    lowering=Pointwise(softsign),
    summary="x / (1 + abs(x)).",
)


# ------------------------------------------------------------------------------------------------------------ a custom call


def swish(x: float) -> float:
    """Compiled by numba, and inlined into the loop around it."""
    return x / (1.0 + math.exp(-x))


# ------------------------------------------------------------------------------------------------------------------- a pass


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


# ----------------------------------------------------------------------------------------------------------------- a kernel


def row_norm(x: Any, result: Any, begin: int, end: int) -> None:
    """Rows ``begin`` to ``end`` of x / sqrt(sum(x * x)); compiled by numba, called by hlojit's threads."""
    for row in range(begin, end):
        total = np.float32(0.0)
        for column in range(x.shape[1]):
            total += x[row, column] * x[row, column]
        scale = np.float32(1.0) / np.float32(math.sqrt(total))
        for column in range(x.shape[1]):
            result[row, column] = x[row, column] * scale


def build_row_norm(group: KernelGroup) -> TaskFunction | Declined:
    """The kernel for one composite, or why there is none."""
    (x,) = group.operand_types
    if x.rank != 2 or x.element_type.name != "f32":
        return Declined(f"rows of f32 are wanted, not {x}")
    rows, columns = x.shape
    return TaskFunction(row_norm, tasks=rows, cost=1.0 * columns)


# -------------------------------------------------------------------------------------------------------------------- hooks


@hookimpl
def hlojit_formats() -> Sequence[FloatFormat]:
    """Number formats."""
    return [FORMAT]


@hookimpl
def hlojit_ops() -> Sequence[OpDefinition]:
    """Ops of the dialect NAME."""
    return [SOFTSIGN]


@hookimpl
def hlojit_custom_calls() -> Sequence[CustomCall]:
    """Bindings of custom call targets."""
    return [ElementwiseCall("NAME.swish", function=swish)]


@hookimpl
def hlojit_passes() -> Sequence[Pass]:
    """Passes."""
    return [DoubleNegation()]


@hookimpl
def hlojit_kernels() -> Sequence[Kernel]:
    """Kernels of the CPU."""
    return [Kernel("NAME.row_norm", backend="cpu", pattern=CompositePattern("NAME.row_norm"), build=build_row_norm)]
'''

TESTS: Final = '''\
"""The package's own tests: what it computes, and hlojit's kit on each thing that it brings."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.extensions import registry
from hlojit.testing import check_custom_call, check_format, check_kernel, check_op, check_pass
from hlojit_NAME import plugin

NORM = """
func.func @main(%x: tensor<8x100xf32>) -> tensor<8x100xf32> {
  %0 = stablehlo.composite "NAME.row_norm" %x {decomposition = @norm} : (tensor<8x100xf32>) -> tensor<8x100xf32>
  return %0 : tensor<8x100xf32>
}
func.func private @norm(%x: tensor<8x100xf32>) -> tensor<8x100xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.multiply %x, %x : tensor<8x100xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<8x100xf32>, tensor<f32>) -> tensor<8xf32>
  %2 = stablehlo.sqrt %1 : tensor<8xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<8xf32>) -> tensor<8x100xf32>
  %4 = stablehlo.divide %x, %3 : tensor<8x100xf32>
  return %4 : tensor<8x100xf32>
}
"""
EVERYTHING = """
func.func @main(%x: tensor<1000xf32>) -> (tensor<1000xNAME8>, tensor<1000xf32>) {
  %0 = NAME.softsign %x : tensor<1000xf32>
  %1 = stablehlo.custom_call @NAME.swish(%0) : (tensor<1000xf32>) -> tensor<1000xf32>
  %2 = stablehlo.negate %1 : tensor<1000xf32>
  %3 = stablehlo.negate %2 : tensor<1000xf32>
  %4 = stablehlo.convert %3 : (tensor<1000xf32>) -> tensor<1000xNAME8>
  return %4, %3 : tensor<1000xNAME8>, tensor<1000xf32>
}
"""


def test_the_plugin_is_found() -> None:
    record = registry().load().records["NAME"]
    assert record.package == "hlojit-NAME" and not record.error


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_everything_in_one_program(backend: str) -> None:
    x = np.linspace(-4, 4, 1000, dtype="f4")
    codes, values = hlojit.compile(EVERYTHING, backend=backend)(x)
    softsign = x / (1 + np.abs(x))
    np.testing.assert_allclose(values, softsign / (1 + np.exp(-softsign)), rtol=1e-5)
    np.testing.assert_allclose(codes.to_values(), values, rtol=2**-4, atol=2**-10)


def test_the_kernel_is_taken_and_right() -> None:
    x = np.random.default_rng(0).standard_normal((8, 100), "f4")
    np.testing.assert_allclose(hlojit.compile(NORM)(x), x / np.sqrt((x * x).sum(axis=1, keepdims=True)), rtol=1e-5)
    assert [taken.kernel for taken in hlojit.kernel_report(NORM).taken] == ["NAME.row_norm"]


def test_the_pass_and_its_option() -> None:
    passes: dict[str, bool] = {}
    hlojit.lower(EVERYTHING, callback=lambda event: passes.setdefault(event.pass_.name, event.changed))
    assert passes["NAME-double-negation"]
    passes.clear()
    options = {"NAME-double-negation": {"limit": 0}}
    hlojit.lower(
        EVERYTHING, pass_options=options, callback=lambda event: passes.setdefault(event.pass_.name, event.changed)
    )
    assert not passes["NAME-double-negation"]


# ------------------------------------------------------------------------------------------------------------ hlojit's kit

BUDGET = "smoke"
"""``quick`` for a minute or two, ``full`` before a release."""


def test_format_kit() -> None:
    check_format(plugin.FORMAT, budget=BUDGET).raise_if_failed()


def test_op_kit() -> None:
    check_op(plugin.SOFTSIGN, operands=["f32"], budget=BUDGET).raise_if_failed()


def test_custom_call_kit() -> None:
    check_custom_call("NAME.swish", operands=["f32"], budget=BUDGET).raise_if_failed()


NEGATIONS = """
func.func @main(%x: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %0 = stablehlo.negate %x : tensor<5x7xf32>
  %1 = stablehlo.negate %0 : tensor<5x7xf32>
  %2 = stablehlo.add %1, %x : tensor<5x7xf32>
  return %2 : tensor<5x7xf32>
}
"""


def test_pass_kit() -> None:
    check_pass(plugin.DoubleNegation(), [NEGATIONS], budget=BUDGET).raise_if_failed()


def test_kernel_kit() -> None:
    (kernel,) = plugin.hlojit_kernels()
    check_kernel(kernel, [NORM], budget=BUDGET).raise_if_failed()
'''
