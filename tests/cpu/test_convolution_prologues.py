"""Convolutions that compute an operand where they read it give, bit for bit, what they give with that operand in memory."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import hlojit
import numpy as np
import pytest
from hlojit.compiler import lower, parse
from hlojit.cpu.backend import CpuBackend
from hlojit.cpu.processor import host_target
from hlojit.extensions.backends.backend import CompileOptions
from hlojit.ir.interpreter import evaluate
from hlojit.ir.ops.internal import is_fusion

from .guarded import run_instruction, without
from .test_prologues import PLAIN, Array, check, computes_operand, tensor, values

ORDERS = {
    "features last": ("[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", "b01f", "01io", "b01f"),
    "features first": ("[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]", "bf01", "oi01", "bf01"),
}


@dataclass(frozen=True)
class Case:
    """A convolution in two dimensions whose image or weights are stored in a type, converted, and stepped on."""

    order: str
    stored: str
    of_image: bool
    batch: int = 1
    size: tuple[int, int] = (7, 9)
    channels: int = 8
    features: int = 16
    window: int = 1
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    dilation: int = 1
    groups: int = 1
    number: str = "f32"
    steps: Sequence[str] = ("scale",)
    follows: bool = False

    def text(self) -> str:
        numbers, image, kernel, out = ORDERS[self.order]
        extents = {"b": self.batch, "f": self.channels, "0": self.size[0], "1": self.size[1]}
        x = tuple(extents[letter] for letter in image)
        extents = {"i": self.channels // self.groups, "o": self.features, "0": self.window, "1": self.window}
        w = tuple(extents[letter] for letter in kernel)
        low, high = self.padding
        length = [((n - 1) * self.dilation + 1 + low + high - self.window) // self.stride + 1 for n in self.size]
        extents = {"b": self.batch, "f": self.features, "0": length[0], "1": length[1]}
        y = tuple(extents[letter] for letter in out)
        shape, other = (x, w) if self.of_image else (w, x)
        along = (image if self.of_image else kernel).index("f" if self.of_image else "o")
        type, row = tensor(shape, self.number), tensor((shape[along],), self.number)
        lines = [f"%v = stablehlo.convert %a : ({tensor(shape, self.stored)}) -> {type}"]
        current = "%v"
        for number, step in enumerate(self.steps):
            name = f"%v{number}"
            if step == "scale":
                lines.append(f"%s{number} = stablehlo.broadcast_in_dim %s, dims = [{along}] : ({row}) -> {type}")
                lines.append(f"{name} = stablehlo.multiply {current}, %s{number} : {type}")
            elif step == "relu":
                lines.append(f"%s{number} = stablehlo.constant dense<{0 if self.number[0] == 'i' else 0.0}> : {type}")
                lines.append(f"{name} = stablehlo.maximum {current}, %s{number} : {type}")
            else:
                lines.append(f"{name} = stablehlo.{step} {current} : {type}")
            current = name
        operands = (current, "%x") if self.of_image else ("%x", current)
        result = tensor(y, self.number)
        lines.append(
            f"%d = stablehlo.convolution({', '.join(operands)}) dim_numbers = {numbers}, window = {{"
            f"stride = [{self.stride}, {self.stride}], pad = [[{low}, {high}], [{low}, {high}]], "
            f"lhs_dilate = [{self.dilation}, {self.dilation}]}} "
            f"{{batch_group_count = 1 : i64, feature_group_count = {self.groups} : i64}} : "
            f"({tensor(x, self.number)}, {tensor(w, self.number)}) -> {result}"
        )
        end = "%d"
        if self.follows:
            lines.append(f"%e = stablehlo.add %d, %d : {result}")
            end = "%e"
        arguments = f"%a: {tensor(shape, self.stored)}, %x: {tensor(other, self.number)}, %s: {row}"
        body = "\n  ".join(lines)
        return f"func.func @main({arguments}) -> {result} {{\n  {body}\n  return {end} : {result}\n}}"

    def arrays(self, rng: np.random.Generator) -> list[Array]:
        types = [value.tensor_type for value in parse(self.text()).main.body.arguments]
        return [values(each.shape, str(each.element_type), rng) for each in types]


FORMS = {
    "a product with computed weights": Case("features last", "i8", False, channels=40, features=70, follows=True),
    "a product with weights of bytes, one pixel": Case("features last", "f8E4M3FN", False, size=(1, 1), channels=96, features=40),
    "a product with a computed image": Case("features first", "f32", True, size=(14, 13), channels=24, features=33, steps=("scale", "relu")),
    "a product of batches": Case("features first", "i8", True, batch=3, size=(8, 8), channels=24, features=20, follows=True),
    "a padded image": Case("features last", "f32", True, channels=32, window=3, padding=(1, 1), steps=("scale", "relu"), follows=True),
    "a padded image of bytes": Case("features last", "ui8", True, channels=3, window=7, padding=(3, 2), stride=2, steps=("negate",)),
    "an image padded by places": Case("features first", "bf16", True, size=(9, 23), window=3, padding=(1, 2), follows=True),
    "zeros between places": Case("features last", "i8", True, channels=16, window=3, padding=(2, 2), dilation=2, steps=()),
    "groups": Case("features last", "f16", True, channels=32, features=16, window=3, padding=(1, 1), groups=2, follows=True),
    "integers": Case("features last", "i8", False, channels=40, features=70, number="i32", steps=("scale", "relu")),
}  # fmt: skip
IN_FRONT = {
    "scales that are no neighbours": Case("features last", "ui8", True, channels=3, window=7, padding=(3, 3), stride=2),
    "a channel a group": Case(
        "features last", "i8", True, channels=16, features=16, window=3, padding=(1, 1), groups=16
    ),
    "an image cut at its edges": Case("features last", "i8", True, size=(12, 12), window=3, padding=(-1, 2)),
}
APART = {
    "windows inside of the image": Case("features last", "i8", True, window=3),
    "weights of windows": Case("features last", "i8", False, window=3),
    "the operand that is read for every panel": Case("features last", "i8", True, channels=40, features=70),
}


@pytest.mark.parametrize("name", [*FORMS, *IN_FRONT])
def test_forms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = {**FORMS, **IN_FRONT}[name]
    assert computes_operand(case.text()) == (name in FORMS)
    check(case.text(), case.arrays(np.random.default_rng(0)), monkeypatch)


@pytest.mark.parametrize("name", APART)
def test_what_stays_a_kernel_of_its_own(name: str) -> None:
    backend = CpuBackend()
    module = lower(parse(APART[name].text()), backend, CompileOptions())
    assert (
        len([each for each in module.main.body if "constant" not in each.op.name]) == 3
    )  # a loop, the convolution, return


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("bits", [0, 256])
def test_guarded(name: str, bits: int) -> None:
    """Every task alone, with nothing behind the buffers; by AVX2 as well."""
    if bits and not (host_target().is_x86 and host_target().has_feature("avx2")):
        pytest.skip("for processors with AVX2")
    case = FORMS[name]
    module = lower(parse(case.text()), CpuBackend(), CompileOptions()).freeze()
    given = dict(zip(module.main.body.arguments, case.arrays(np.random.default_rng(1))))
    fusion = [each for each in module.main.body if is_fusion(each)][-1]
    target = without("avx512", bits=bits) if bits else host_target()
    (found,) = run_instruction(fusion, *(given[operand] for operand in fusion.operands), target=target)
    (expected,) = evaluate(module, *given.values())
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-3, atol=1e-1)


@pytest.mark.parametrize("seed", range(24))
def test_random_convolutions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(seed)
    window = choose.choice([1, 1, 1, 3, 3, 5])
    number = choose.choice(["f32", "f32", "f32", "f64", "i32"])
    groups = choose.choice([1, 1, 1, 2])
    case = Case(
        choose.choice(list(ORDERS)),
        choose.choice(
            ["i4", "i8", "ui8", "i16"] if number == "i32" else ["i4", "i8", "ui8", "f16", "bf16", "f8E4M3FN", "f32"]
        ),
        choose.random() < 0.5,
        choose.choice([1, 1, 2]),
        (choose.choice([1, 7, 16, 33]) + window, choose.choice([1, 8, 15, 32]) + window),
        groups * choose.choice([1, 3, 16, 40]),
        groups * choose.choice([1, 5, 16, 70]),
        window,
        choose.choice([1, 1, 2]),
        choose.choice([(0, 0), (window // 2, window // 2), (1, 2), (-1, 3)]) if window > 1 else (0, 0),
        choose.choice([1, 1, 1, 2]) if window > 1 else 1,
        groups,
        number,
        [choose.choice(["scale", "relu", "negate", "abs"]) for _ in range(choose.randint(0, 3))],
        choose.random() < 0.5,
    )
    check(case.text(), case.arrays(np.random.default_rng(seed)), monkeypatch)


def test_many_rows_of_a_dear_operand_are_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the product would compute functions once more for every block of rows, a loop computes them once."""
    shape, w, y = tensor((4096, 64), "f32"), tensor((64, 256), "f32"), tensor((4096, 256), "f32")
    text = (
        f"func.func @main(%x: {shape}, %w: {w}) -> {y} {{\n%f = stablehlo.exponential %w : {w}\n%v = stablehlo.tanh %f : {w}\n"
        f"%d = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : ({shape}, {w}) -> {y}\nreturn %d : {y}\n}}"
    )
    # How many rows a block has follows from the machine's caches.
    few, many = text.replace("4096", "64"), text.replace("4096", "1048576")
    assert computes_operand(few) and not computes_operand(many)
    rng = np.random.default_rng(0)
    check(text, [values((4096, 64), "f32", rng), values((64, 256), "f32", rng)], monkeypatch)
    assert PLAIN.prologues >= {"convolution"}
    assert hlojit.compile(few, backend="cpu") is not None
