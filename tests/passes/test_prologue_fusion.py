"""Which loops join the product that reads what they compute."""

from __future__ import annotations

from dataclasses import dataclass, replace

import hlojit
import numpy as np
import pytest
from hlojit.compiler import parse, verify
from hlojit.extensions import AnchorPattern, Declined, Kernel, KernelGroup, hookimpl, using
from hlojit.ir.graph import Instruction, Module
from hlojit.ir.interpreter import evaluate
from hlojit.ir.passes.fusion_limits import FusionLimits
from hlojit.ir.passes.instruction_fusion import InstructionFusion

LIMITS = FusionLimits(rows=True, anchors=frozenset({"dot_general"}), prologues=frozenset({"dot_general"}))
W, X, Y = "tensor<32x16xf32>", "tensor<8x32xf32>", "tensor<8x16xf32>"
DECODE = (
    f"%c = stablehlo.convert %w : (tensor<32x16xi8>) -> {W}\n"
    f"%q = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<16xf32>) -> {W}\n"
    f"%v = stablehlo.multiply %c, %q : {W}\n"
)
DOT = f"%d = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : ({X}, {W}) -> {Y}\n"


def fused(body: str, result: str = Y, limits: FusionLimits = LIMITS) -> Module:
    module = parse(text(body, result))
    InstructionFusion(limits=limits).run(module)
    verify(module)
    return module


def text(body: str, result: str = Y) -> str:
    arguments = f"%x: {X}, %w: tensor<32x16xi8>, %s: tensor<16xf32>, %f: {W}, %g: {W}, %h: {W}"
    return f"func.func @main({arguments}) -> ({result}) {{\n{body}\n}}"


def kinds(module: Module) -> list[str]:
    return [str(each.attributes.get("kind", each.op.name.split(".")[1])) for each in module.main.body][:-1]


def test_what_computes_an_operand_joins() -> None:
    module = fused(f"{DECODE}{DOT}return %d : {Y}")
    assert kinds(module) == ["anchor"]
    assert str(parse(str(module))) == str(module)


def test_with_what_follows() -> None:
    module = fused(f"{DECODE}{DOT}%t = stablehlo.tanh %d : {Y}\nreturn %t : {Y}")
    assert kinds(module) == ["anchor"] and len(next(iter(module.main.body)).regions[0]) == 6


def test_integers_join() -> None:
    wide = "tensor<32x16xi32>"
    body = (
        f"%v = stablehlo.convert %w : (tensor<32x16xi8>) -> {wide}\n"
        "%z = stablehlo.convert %x : (tensor<8x32xf32>) -> tensor<8x32xi32>\n"
        f"%d = stablehlo.dot_general %z, %v, contracting_dims = [1] x [0] : (tensor<8x32xi32>, {wide}) -> tensor<8x16xi32>\n"
        "return %d : tensor<8x16xi32>"
    )
    assert kinds(fused(body, "tensor<8x16xi32>")) == ["loop", "anchor"]


def test_through_a_reshape() -> None:
    split = "tensor<4x8x16xf32>"
    body = (
        "%r = stablehlo.reshape %w : (tensor<32x16xi8>) -> tensor<4x8x16xi8>\n"
        f"%c = stablehlo.convert %r : (tensor<4x8x16xi8>) -> {split}\n%n = stablehlo.negate %c : {split}\n"
        f"%v = stablehlo.reshape %n : ({split}) -> {W}\n{DOT}return %d : {Y}"
    )
    assert "anchor" in kinds(fused(body)) and "loop" not in kinds(fused(body))


def test_a_matrix_times_a_vector_streams_its_left_operand() -> None:
    body = (
        f"{DECODE}%y = stablehlo.slice %x [0:1, 0:32] : ({X}) -> tensor<1x32xf32>\n"
        f"%d = stablehlo.dot_general %v, %y, contracting_dims = [0] x [1] : ({W}, tensor<1x32xf32>) -> tensor<16x1xf32>\n"
        "return %d : tensor<16x1xf32>"
    )
    assert kinds(fused(body, "tensor<16x1xf32>"))[-1] == "anchor"


def test_same_meaning() -> None:
    body = f"{DECODE}{DOT}return %d : {Y}"
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((8, 32)).astype("f4"), rng.integers(-9, 9, (32, 16)).astype("i1")]
    arrays += [rng.standard_normal(shape).astype("f4") for shape in ((16,), (32, 16), (32, 16), (32, 16))]
    plain, whole = (fused(body, limits=each) for each in (replace(LIMITS, prologues=frozenset()), LIMITS))
    assert kinds(plain) == ["loop", "dot_general"]
    np.testing.assert_array_equal(evaluate(plain, *arrays)[0], evaluate(whole, *arrays)[0])


APART = {
    "somebody else reads the operand": (f"{DECODE}{DOT}return %d, %v : {Y}, {W}", f"{Y}, {W}"),
    "the operand that is read for every panel": (
        f"%y = stablehlo.tanh %x : {X}\n{DOT.replace('%x', '%y').replace('%v', '%f')}return %d : {Y}",
        Y,
    ),
    "many arrays of the operand's size": (
        f"%a = stablehlo.add %f, %g : {W}\n%v = stablehlo.add %a, %h : {W}\n{DOT}return %d : {Y}",
        Y,
    ),
    "nothing of the operand's size": (
        f"%n = stablehlo.negate %s : tensor<16xf32>\n"
        f"%v = stablehlo.broadcast_in_dim %n, dims = [1] : (tensor<16xf32>) -> {W}\n{DOT}return %d : {Y}",
        Y,
    ),
    "booleans": (
        "%z = stablehlo.constant dense<0> : tensor<32x16xi8>\n"
        "%v = stablehlo.compare GT, %w, %z : (tensor<32x16xi8>, tensor<32x16xi8>) -> tensor<32x16xi1>\n"
        "%y = stablehlo.convert %x : (tensor<8x32xf32>) -> tensor<8x32xi1>\n"
        "%d = stablehlo.dot_general %y, %v, contracting_dims = [1] x [0] : "
        "(tensor<8x32xi1>, tensor<32x16xi1>) -> tensor<8x16xi1>\nreturn %d : tensor<8x16xi1>",
        "tensor<8x16xi1>",
    ),
}


@pytest.mark.parametrize("name", APART)
def test_stays_apart(name: str) -> None:
    assert "anchor" not in kinds(fused(*APART[name]))


@dataclass(frozen=True)
class Apart:
    """A policy that wants no producer in a product's kernel."""

    def fuses_into(self, producer: Instruction, group: object) -> bool | None:
        names = [each.op.name for each in group]  # type: ignore[attr-defined]
        return False if "stablehlo.dot_general" in names else None

    def element_cost(self, instruction: Instruction) -> None:
        return None


def test_policy_keeps_them_apart() -> None:
    module = parse(text(f"{DECODE}{DOT}return %d : {Y}"))
    InstructionFusion(limits=LIMITS, policy=Apart()).run(module)
    assert kinds(module) == ["loop", "dot_general"]


def test_kernels_are_offered_prologues() -> None:
    offered: list[list[str]] = []

    class Nova:
        @hookimpl
        def hlojit_kernels(self) -> list[Kernel]:
            def build(group: KernelGroup) -> Declined:
                offered.append([each.op.name.split(".")[1] for each in group.instructions])
                return Declined("only looking")

            return [Kernel("nova.look", backend="cpu", pattern=AnchorPattern("stablehlo.dot_general"), build=build)]

    with using(Nova()):
        hlojit.compile(text(f"{DECODE}{DOT}%t = stablehlo.tanh %d : {Y}\nreturn %t : {Y}"), backend="cpu")
    assert offered[0] == ["convert", "broadcast_in_dim", "multiply", "dot_general", "tanh"]
