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
description = "TITLE for hlojit: number formats, an op, a pass, custom calls, kernels and a device"
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

What TITLE adds to hlojit, in `hlojit_NAME/plugin.py` if no other module is named.
What is not wanted can be deleted: a module, what `plugin.py` imports of it, and its test.

| | |
|---|---|
| format | `NAME8`: 4 exponent bits, 3 mantissa bits, no infinities |
| op | `NAME.softsign`: x / (1 + abs(x)) |
| custom call | `NAME.swish`: x * sigmoid(x), one function of scalars, inlined into fused loops |
| pass | `NAME-double-negation`: removes pairs of negations; option `limit` |
| kernel | `NAME.row_norm`: the composite of that name, by a numba function over rows |
| kernel | `NAME.row_norm_ops`: the same function, where a program spells it out in ops |
| block format | `NAMEblock`: 5 bits a number, blocks of 8 with a scale in f16 (`blocks.py`) |
| array calls | `NAME.running_sum` by numba, `NAME.ranks` in Python (`arrays.py`) |
| device | `NAME`: products and sums of f32; `backend=["NAME", "cpu"]` (`device.py`) |
| cases | how the kit tries calls (`cases.py`): `pytest --pyargs hlojit.testing --plugin=NAME` |

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
    Backend,
    BlockFormat,
    CompositePattern,
    CustomCall,
    Declined,
    ElementwiseCall,
    FloatFormat,
    Instruction,
    Kernel,
    KernelGroup,
    Module,
    NanEncoding,
    OpDefinition,
    Operand,
    Overflow,
    Pass,
    Pointwise,
    SubgraphPattern,
    TaskFunction,
    hookimpl,
    like_operands,
)

from .arrays import RANKS, RUNNING_SUM
from .blocks import BLOCK_FORMAT, ELEMENT
from .device import Device

hlojit_api = API_VERSION
"""The version of hlojit's hooks that this package is written for."""
hlojit_cases = "hlojit_NAME.cases"
"""The module that tells hlojit's kit how to try what types alone do not tell."""


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
    """Compiled by numba, and inlined into the loop around it; ``math.exp`` of large numbers would overflow in Python."""
    if x < 0.0:
        small = math.exp(x)
        return x * small / (1.0 + small)
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


def match_row_norm(root: Instruction) -> Sequence[Instruction] | None:
    """The same in ops, from the last one backwards: x / broadcast(sqrt(reduce(x * x)))."""
    members, (x, value) = [root], root.operands
    for name in ("broadcast_in_dim", "sqrt", "reduce", "multiply"):
        each = value.producer
        if each is None or each.name != f"stablehlo.{name}":
            return None
        members.append(each)
        value = each.operands[0]
    return members if list(members[-1].operands) == [x, x] else None


def build_matched(group: KernelGroup) -> TaskFunction | Declined:
    """A pattern sees ops and no attributes (a sum over the other dimension, a maximum): trying it out tells."""
    if len(group.operand_types) != 1 or len(group.result_types) != 1:
        return Declined("more is read or returned than the rows")
    answer = build_row_norm(group)
    if isinstance(answer, Declined):
        return answer
    x = np.random.default_rng(0).standard_normal(group.operand_types[0].shape, "f4")
    expected = x / np.sqrt((x * x).sum(axis=1, keepdims=True))
    same = np.allclose(group.evaluate(x)[0], expected, rtol=1e-4)
    return answer if same else Declined("it is another function of its operand")


# -------------------------------------------------------------------------------------------------------------------- hooks


@hookimpl
def hlojit_formats() -> Sequence[FloatFormat | BlockFormat]:
    """Number formats."""
    return [FORMAT, ELEMENT, BLOCK_FORMAT]


@hookimpl
def hlojit_ops() -> Sequence[OpDefinition]:
    """Ops of the dialect NAME."""
    return [SOFTSIGN]


@hookimpl
def hlojit_custom_calls() -> Sequence[CustomCall]:
    """Bindings of custom call targets."""
    return [ElementwiseCall("NAME.swish", function=swish), RUNNING_SUM, RANKS]


@hookimpl
def hlojit_passes() -> Sequence[Pass]:
    """Passes."""
    return [DoubleNegation()]


@hookimpl
def hlojit_kernels() -> Sequence[Kernel]:
    """Kernels of the CPU."""
    matched = SubgraphPattern(match_row_norm, root="stablehlo.divide")
    return [
        Kernel("NAME.row_norm", backend="cpu", pattern=CompositePattern("NAME.row_norm"), build=build_row_norm),
        Kernel("NAME.row_norm_ops", backend="cpu", pattern=matched, build=build_matched),
    ]


@hookimpl
def hlojit_backends() -> Sequence[Backend]:
    """Devices."""
    return [Device()]
'''

TESTS: Final = '''\
"""The package's own tests: what it computes, and hlojit's kit on each thing that it brings."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.extensions import registry
from hlojit.testing import check_block_format, check_custom_call, check_format, check_kernel, check_op, check_pass
from hlojit_NAME import plugin
from hlojit_NAME.cases import CASES, NEGATIONS, NORM, NORM_IN_OPS

LAYER = """
func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x16xf32>) -> tensor<8x16xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %1 = stablehlo.tanh %0 : tensor<8x16xf32>
  return %1 : tensor<8x16xf32>
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


@pytest.mark.parametrize(("text", "kernel"), [(NORM, "NAME.row_norm"), (NORM_IN_OPS, "NAME.row_norm_ops")])
def test_the_kernel_is_taken_and_right(text: str, kernel: str) -> None:
    x = np.random.default_rng(0).standard_normal((8, 100), "f4")
    np.testing.assert_allclose(hlojit.compile(text)(x), x / np.sqrt((x * x).sum(axis=1, keepdims=True)), rtol=1e-5)
    assert [taken.kernel for taken in hlojit.kernel_report(text).taken] == [kernel]


def test_the_array_calls() -> None:
    x = np.random.default_rng(0).standard_normal((8, 100), "f4")
    np.testing.assert_allclose(hlojit.custom_call("NAME.running_sum", x), np.cumsum(x, axis=0), rtol=1e-5, atol=1e-5)
    ranks = hlojit.custom_call("NAME.ranks", x, result=(x.shape, "i4"))
    assert (np.take_along_axis(np.sort(x, axis=1), ranks, axis=1) == x).all()


def test_the_device_takes_its_part_and_the_cpu_the_rest() -> None:
    x, w = np.random.default_rng(0).standard_normal((2, 16, 16), "f4")
    split = hlojit.compile(LAYER, backend=["NAME", "cpu"])
    np.testing.assert_allclose(split(x[:8], w), np.tanh(x[:8] @ w), rtol=1e-5, atol=1e-6)
    assert {"NAME", "cpu"} <= set(str(split.placement()).replace(":", " ").split())
    with pytest.raises(hlojit.UnsupportedError, match="it has a matrix unit and adders"):
        hlojit.compile(LAYER, backend="NAME")


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


def test_block_format_kit() -> None:
    check_block_format("NAMEblock", budget=BUDGET).raise_if_failed()


def test_op_kit() -> None:
    check_op(plugin.SOFTSIGN, operands=["f32"], budget=BUDGET).raise_if_failed()


def test_custom_call_kit() -> None:
    check_custom_call("NAME.swish", operands=["f32"], budget=BUDGET).raise_if_failed()
    calls = {call.target for call in plugin.hlojit_custom_calls()}
    for case in CASES:
        if case.name in calls:
            check_custom_call(case.name, budget=BUDGET, **case.arguments).raise_if_failed()


def test_pass_kit() -> None:
    check_pass(plugin.DoubleNegation(), [NEGATIONS], budget=BUDGET).raise_if_failed()


def test_kernel_kit() -> None:
    for kernel, text in zip(plugin.hlojit_kernels(), (NORM, NORM_IN_OPS), strict=True):
        check_kernel(kernel, [text], budget=BUDGET).raise_if_failed()
'''
