"""Products of every pair of operands' and result's element types that verifies: compiled, and the interpreter, against NumPy."""

from __future__ import annotations

from typing import Any

import hlojit
import numpy as np
import pytest
from hlojit.ir.formats import element_type
from hlojit.ir.interpreter import evaluate
from hlojit.ir.ops.mixed_products import declined_mixture
from hlojit.ir.passes.op_expander import OpExpander

TYPES = "i1 i4 i8 i32 i64 ui8 ui32 f8E4M3FN f16 bf16 f32 f64 complex<f32> complex<f64>".split()
CONV = (
    "dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} "
    "{batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
)
DYNAMIC = (
    "{dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, batch_group_count = 1 : i64, "
    "feature_group_count = 1 : i64}"
)
RAGGED = (
    "{ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], "
    "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], "
    "rhs_group_dimensions = [0]>}"
)


def program(op: str, source: str, target: str, other: str = "", depth: int = 3) -> str:
    x, y, r = f"2x{depth}x{source}", f"{depth}x2x{other or source}", f"2x2x{target}"
    z = "1x"
    if op == "dot_general":
        z, text = "", "stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]"
    elif op == "dot":
        z, text = "", "stablehlo.dot %x, %y"
    elif op == "convolution":
        text = f"stablehlo.convolution(%x, %y) {CONV}"
    elif op == "dynamic_conv":
        text = f'"stablehlo.dynamic_conv"(%x, %y, %p) {DYNAMIC}'
    else:
        z, text = "", f'"chlo.ragged_dot"(%x, %y, %g) {RAGGED}'
    y = f"1x{y}" if op in ("convolution", "dynamic_conv", "ragged_dot") else y
    more = {"dynamic_conv": ", tensor<1x2xi32>", "ragged_dot": ", tensor<1xi32>"}.get(op, "")
    return f"""func.func @main(%x: tensor<{z}{x}>, %y: tensor<{y}>) -> tensor<{z}{r}> {{
      %p = stablehlo.constant dense<0> : tensor<1x2xi32>
      %g = stablehlo.constant dense<2> : tensor<1xi32>
      %0 = {text} : (tensor<{z}{x}>, tensor<{y}>{more}) -> tensor<{z}{r}>
      return %0 : tensor<{z}{r}>
    }}"""


OPS = ["dot_general", "dot", "convolution", "dynamic_conv", "ragged_dot"]


def operands(op: str, source: str, other: str = "", depth: int = 3) -> tuple[Any, Any]:
    random = np.random.default_rng(3)

    def values(shape: tuple[int, ...], name: str) -> Any:
        drawn = random.integers(0, 2, shape)
        return (drawn * (1 + 1j) if name.startswith("complex") else drawn).astype(element_type(name).dtype)

    x, y = values((2, depth), source), values((depth, 2), other or source)
    if op in ("convolution", "dynamic_conv"):
        x = x[None]
    return x, y[None] if op in ("convolution", "dynamic_conv", "ragged_dot") else y


def expected(x: Any, y: Any, target: str, shape: tuple[int, ...]) -> Any:
    wide = np.complex128
    found = (x.astype(wide).reshape(2, -1) @ y.astype(wide).reshape(-1, 2)).reshape(shape)
    if not target.startswith("complex"):
        found = found.real
    return found != 0 if target == "i1" else found.astype(element_type(target).dtype)


def agree(op: str, source: str, target: str, backend: str = "cpu", other: str = "", depth: int = 3) -> None:
    text, given = program(op, source, target, other, depth), operands(op, source, other, depth)
    found = hlojit.compile(text, backend=backend)(*given)
    wanted = expected(*given, target, found.shape)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted, err_msg=f"{source} -> {target}")
    np.testing.assert_array_equal(evaluate(hlojit.parse(text), *given)[0], wanted)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("source", TYPES)
def test_cpu(op: str, source: str) -> None:
    for target in TYPES:
        if target == "i4" and source not in ("i1", "i4"):
            continue  # wraps: has a test of its own below
        agree(op, source, target)


@pytest.mark.parametrize("op", ["dot_general", "convolution"])
@pytest.mark.parametrize(
    ("source", "target"),
    [("f32", "complex<f32>"), ("complex<f32>", "f64"), ("complex<f32>", "complex<f64>"), ("f16", "i32"), ("f64", "i1")],
)
def test_machines_with_threads(op: str, source: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOJIT_CUDA", "simulator")
    agree(op, source, target, "cuda")


@pytest.mark.parametrize("op", ["dot_general", "convolution"])
@pytest.mark.parametrize(
    ("source", "target"),
    [("f32", "complex<f32>"), ("complex<f64>", "complex<f32>"), ("complex<f32>", "f32"), ("f32", "i8"), ("i8", "i1")],
)
def test_many_terms(op: str, source: str, target: str) -> None:
    agree(op, source, target, depth=70)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("target", ["i32", "i1", "f16", "complex<f64>"])
def test_floats_of_two_formats(op: str, target: str) -> None:
    agree(op, "bf16", target, other="f64")


@pytest.mark.parametrize("op", OPS)
def test_sides_of_two_kinds_are_refused(op: str) -> None:
    label = {"dot_general": "C13", "convolution": "C27", "dynamic_conv": "C27"}.get(op, "elements")
    with pytest.raises(hlojit.VerificationError, match=rf"\({label}\): lhs and rhs have different element types"):
        hlojit.compile(program(op, "f32", "f32", "complex<f32>"))


def test_a_sum_of_nothing_is_false() -> None:
    """Whether a sum is zero is seen behind the sum."""
    found = hlojit.compile(program("dot_general", "f32", "i1", depth=2))(
        np.array([[1, 1], [1, 2]], "f4"), np.array([[1, 0.25], [-1, 0.25]], "f4")
    )
    np.testing.assert_array_equal(found, [[False, True], [True, True]])


def test_floats_become_integers_as_convert_makes_them() -> None:
    x, y = np.array([[1e10, 2.75], [-1e10, -2.75]], "f4"), np.eye(2, dtype="f4")
    for op in ("dot_general", "convolution"):
        given = (x, y) if op == "dot_general" else (x[None], y[None])
        text = program(op, "f32", "i32", depth=2)
        for backend in ("cpu", "reference"):
            found = hlojit.compile(text, backend=backend)(*given).reshape(2, 2)
            np.testing.assert_array_equal(found, [[2**31 - 1, 2], [-(2**31), -2]])


@pytest.mark.parametrize("op", ["dot_general", "convolution"])
@pytest.mark.parametrize(("source", "target"), [("f32", "complex<f32>"), ("f32", "i32"), ("f32", "i1")])
def test_open_sizes(op: str, source: str, target: str) -> None:
    given = operands(op, source)
    text = program(op, source, target).replace("2x3x", "?x3x").replace("2x2x", "?x2x")
    for form in ("specialize", "symbolic"):
        found = hlojit.compile(text, options={"dynamic_shapes": form})(*given)
        np.testing.assert_array_equal(found, expected(*given, target, found.shape))


@pytest.mark.parametrize("op", OPS)
def test_the_program_converts(op: str) -> None:
    for source, target in (("f32", "i8"), ("f32", "complex<f64>"), ("complex<f32>", "f16"), ("bf16", "i1")):
        module = hlojit.parse(program(op, source, target))
        assert OpExpander().run(module)
        hlojit.verify(module)
        products = [each for each in module.walk() if each.op.mnemonic in ("dot_general", "convolution")]
        assert products and not any(map(declined_mixture, products))
