"""Which groups get an anchor: the plan, its text, and what the verifier says of fusions that are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hlojit.compiler import parse, verify
from hlojit.ir.errors import VerificationError
from hlojit.ir.graph import Module
from hlojit.ir.interpreter import evaluate
from hlojit.ir.passes.fusion_limits import FusionLimits
from hlojit.ir.passes.instruction_fusion import InstructionFusion

LIMITS = FusionLimits(rows=True, anchors=frozenset({"dot_general", "convolution"}))
DOT = (
    "%d = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : "
    "(tensor<16x32xf32>, tensor<32x16xf32>) -> tensor<16x16xf32>"
)
T = "tensor<16x16xf32>"


def fused(body: str, result: str = T, more: str = "", limits: FusionLimits = LIMITS) -> Module:
    module = parse(
        f"func.func @main(%x: tensor<16x32xf32>, %y: tensor<32x16xf32>, %r: {T}, %b: tensor<16xf32>{more}) -> ({result}) {{\n"
        f"{body}\n}}"
    )
    InstructionFusion(limits=limits).run(module)
    return module


def kinds(module: Module) -> list[str]:
    return [str(each.attributes.get("kind", each.op.name.split(".")[1])) for each in module.main.body][:-1]


BIAS = (
    f"{DOT}\n%w = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<16xf32>) -> {T}\n%s = stablehlo.add %d, %w : {T}"
)


def test_what_follows_joins() -> None:
    module = fused(f"{BIAS}\n%t = stablehlo.tanh %s : {T}\nreturn %t : {T}")
    assert kinds(module) == ["anchor"]
    verify(module)
    assert str(parse(str(module))) == str(module)


def test_back_ends_without_anchors_see_none() -> None:
    module = fused(f"{BIAS}\nreturn %s : {T}", limits=replace(LIMITS, anchors=frozenset()))
    assert kinds(module) == ["dot_general", "loop"]


def test_result_that_others_read_is_one_more_root() -> None:
    module = fused(f"{BIAS}\nreturn %s, %d : {T}, {T}", f"{T}, {T}")
    assert kinds(module) == ["anchor"]
    assert len(next(iter(module.main.body)).results) == 2


def test_same_meaning() -> None:
    body = f"{BIAS}\n%t = stablehlo.tanh %s : {T}\n%u = stablehlo.multiply %t, %d : {T}\nreturn %u, %d : {T}, {T}"
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("f4") for shape in ((16, 32), (32, 16), (16, 16), (16,))]
    plain, whole = (fused(body, f"{T}, {T}", limits=each) for each in (replace(LIMITS, anchors=frozenset()), LIMITS))
    for one, other in zip(evaluate(plain, *arrays), evaluate(whole, *arrays), strict=True):
        np.testing.assert_array_equal(one, other)


DECLINED = {
    "rows of a row kernel": (
        f"{BIAS}\n%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
        f"%m = stablehlo.reduce(%s init: %z) applies stablehlo.maximum across dimensions = [1] : ({T}, tensor<f32>) -> tensor<16xf32>\n"
        f"%n = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<16xf32>) -> {T}\n%t = stablehlo.subtract %s, %n : {T}\n"
        f"return %t : {T}"
    ),
    "movement": f"{DOT}\n%q = stablehlo.transpose %d, dims = [1, 0] : ({T}) -> {T}\n%t = stablehlo.tanh %q : {T}\nreturn %t : {T}",
    "movement of another operand": (
        f"{DOT}\n%q = stablehlo.transpose %r, dims = [1, 0] : ({T}) -> {T}\n%t = stablehlo.add %d, %q : {T}\nreturn %t : {T}"
    ),
    "nothing that follows": f"{DOT}\nreturn %d : {T}",
    "operands that are a constant": (
        "%y2 = stablehlo.constant dense<2.0> : tensor<32x16xf32>\n"
        f"{DOT.replace('%y', '%y2')}\n%t = stablehlo.tanh %d : {T}\nreturn %t : {T}"
    ),
}


@pytest.mark.parametrize("name", DECLINED)
def test_declined(name: str) -> None:
    assert "anchor" not in kinds(fused(DECLINED[name]))


@pytest.mark.parametrize("element", ["complex<f32>"])
def test_complex_products_stay_alone(element: str) -> None:
    t = f"tensor<16x16x{element}>"
    module = parse(
        f"func.func @main(%x: {t}, %y: {t}) -> {t} {{\n"
        f"%d = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({t}, {t}) -> {t}\n"
        f"%s = stablehlo.add %d, %x : {t}\nreturn %s : {t}\n}}"
    )
    InstructionFusion(limits=LIMITS).run(module)
    assert "anchor" not in kinds(module)


def test_many_large_operands_stay_a_loop() -> None:
    more = "".join(f", %r{n}: {T}" for n in range(3))
    adds = "".join(f"%s{n + 1} = stablehlo.add %s{n}, %r{n} : {T}\n" for n in range(3)).replace("%s0", "%d")
    assert kinds(fused(f"{DOT}\n{adds}return %s3 : {T}", more=more)) == ["dot_general", "loop"]


@pytest.mark.parametrize("body", ["", DOT + "\n" + DOT.replace("%d", "%e")])
def test_anchored_fusions_have_one_anchor(body: str) -> None:
    given = "%x" if not body else "%d"
    kind = "tensor<16x32xf32>" if not body else T
    text = (
        f"func.func @main(%x0: tensor<16x32xf32>, %y0: tensor<32x16xf32>) -> {kind} {{\n"
        f'%0 = "hlojit.fusion"(%x0, %y0) <{{kind = "anchor"}}> ({{\n^bb0(%x: tensor<16x32xf32>, %y: tensor<32x16xf32>):\n'
        f"{body}\nstablehlo.return {given} : {kind}\n}}) : (tensor<16x32xf32>, tensor<32x16xf32>) -> {kind}\n"
        f"return %0 : {kind}\n}}"
    )
    with pytest.raises(VerificationError, match="C4.*one"):
        verify(text)
