"""Products that compute an operand where they read it give, bit for bit, what they give with that operand in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import hlojit
import ml_dtypes
import numpy as np
import pytest
from hlojit.compiler import lower, parse
from hlojit.cpu.backend import CpuBackend
from hlojit.cpu.processor import host_target
from hlojit.extensions.backends.backend import CompileOptions
from hlojit.ir.interpreter import evaluate
from hlojit.ir.ops.internal import is_fusion

from .guarded import run_instruction, without

Array = np.ndarray[Any, Any]
TYPES: dict[str, Any] = {
    "f32": "f4",
    "f64": "f8",
    "f16": "f2",
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
    "i4": ml_dtypes.int4,
    "i8": "i1",
    "ui8": "u1",
    "i16": "i2",
    "i32": "i4",
    "i64": "i8",
}
PLAIN = CpuBackend.fusion_limits


def tensor(shape: Sequence[int], element: str) -> str:
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + element + ">"


def values(shape: Sequence[int], element: str, rng: np.random.Generator) -> Array:
    if element[0] in "iu":
        low, high = {"i4": (-8, 8), "ui8": (0, 256)}.get(element, (-100, 100))
        return rng.integers(low, high, shape).astype(TYPES[element])
    if element == "f8E8M0FNU":
        return rng.integers(120, 134, shape).astype("u1").view(TYPES[element])
    found = rng.standard_normal(shape)
    if rng.random() < 0.3:
        found.flat[rng.integers(found.size)] = np.inf
    return found.astype(TYPES[element])


@dataclass
class Writer:
    """Text of a product whose right operand, [n, k] or [k, n], is computed step by step."""

    m: int
    k: int
    n: int
    transposed: bool
    stored: str
    number: str = "f32"
    block: int = 0
    """Elements of k that share a scale, if it is not 0."""
    batch: tuple[int, ...] = ()
    left: bool = False
    """Whether the computed operand is the left one: of a product of a matrix and a vector."""
    arguments: list[tuple[str, Sequence[int], str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    current: str = "%w"

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.batch, *((self.n, self.k) if self.transposed else (self.k, self.n)))

    def emit(self, op: str, operands: str, type: str, signature: str = "") -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = stablehlo.{op} {operands} : {signature or type}")
        return name

    def argument(self, shape: Sequence[int], element: str) -> str:
        name = f"%a{len(self.arguments)}"
        self.arguments.append((name, shape, element))
        return name

    def spread(self, dimension: int) -> str:
        """Scales of rows or columns."""
        source = self.argument([self.shape[dimension]], self.number)
        types = f"({tensor([self.shape[dimension]], self.number)}) -> {tensor(self.shape, self.number)}"
        return self.emit("broadcast_in_dim", f"{source}, dims = [{dimension}]", "", types)

    def blocks(self) -> str:
        """Scales of blocks of k, as powers of two in a byte each."""
        axis = len(self.shape) - (1 if self.transposed else 2)
        count = -(-self.k // self.block)
        shape = (*self.shape[:axis], count, *self.shape[axis + 1 :])
        split = (*self.shape[:axis], count, self.block, *self.shape[axis + 1 :])
        joined = (*self.shape[:axis], count * self.block, *self.shape[axis + 1 :])
        source = self.argument(shape, "f8E8M0FNU")
        types = [tensor(each, self.number) for each in (shape, split, joined, self.shape)]
        found = self.emit("convert", source, "", f"({tensor(shape, 'f8E8M0FNU')}) -> {types[0]}")
        dims = [d for d in range(len(split)) if d != axis + 1]
        found = self.emit("broadcast_in_dim", f"{found}, dims = {dims}", "", f"({types[0]}) -> {types[1]}")
        found = self.emit("reshape", found, "", f"({types[1]}) -> {types[2]}")
        if joined != self.shape:
            cut = ", ".join(f"0:{extent}" for extent in self.shape)
            found = self.emit("slice", f"{found} [{cut}]", "", f"({types[2]}) -> {types[3]}")
        return found

    def step(self, op: str) -> None:
        type = tensor(self.shape, self.number)
        if op == "splat":
            other = self.emit("constant", "dense<1.7>", type)
            self.current = self.emit("multiply", f"{self.current}, {other}", type)
        elif op == "blocks":
            self.current = self.emit("multiply", f"{self.current}, {self.blocks()}", type)
        elif op in ("first", "last"):
            other = self.spread(len(self.shape) - (1 if op == "last" else 2))
            self.current = self.emit("multiply", f"{self.current}, {other}", type)
        elif op == "second":
            other = self.argument(self.shape, self.number)
            self.current = self.emit("add", f"{self.current}, {other}", type)
        elif op == "iota":
            other = self.emit("iota", f"dim = {len(self.shape) - 1}", type)
            self.current = self.emit("subtract", f"{self.current}, {other}", type)
        elif op in TYPES:
            before, self.number = type, op
            self.current = self.emit("convert", self.current, "", f"({before}) -> {tensor(self.shape, op)}")
        else:
            self.current = self.emit(op, self.current, type)

    def text(self, steps: Sequence[str], *, follows: bool) -> str:
        self.arguments.append(("%w", self.shape, self.stored))
        number, self.number = self.number, self.stored
        self.step(number)
        for op in steps:
            self.step(op)
        depth = len(self.batch)
        x = (*self.batch, self.m, self.k)
        self.arguments.append(("%x", x, self.number))
        result = self.number if self.number in ("f64", "i32", "i64") else "f32"
        out = tensor((*self.batch, self.m, self.n), result)
        batching = f"batching_dims = {list(range(depth))} x {list(range(depth))}, " if depth else ""
        sides = [("%x", x, depth + 1), (self.current, self.shape, depth + (1 if self.transposed else 0))]
        if self.left:
            sides, out = sides[::-1], tensor((*self.batch, self.n, self.m), result)
        names, types = (", ".join(each) for each in zip(*((s[0], tensor(s[1], self.number)) for s in sides)))
        numbers = f"{batching}contracting_dims = [{sides[0][2]}] x [{sides[1][2]}]"
        found = self.emit("dot_general", f"{names}, {numbers}", "", f"({types}) -> {out}")
        if follows:
            found = self.emit("negate" if result[0] == "i" else "tanh", self.emit("add", f"{found}, {found}", out), out)
        signature = ", ".join(f"{name}: {tensor(shape, element)}" for name, shape, element in self.arguments)
        body = "\n  ".join(self.lines)
        return f"func.func @main({signature}) -> {out} {{\n  {body}\n  return {found} : {out}\n}}"

    def arrays(self, rng: np.random.Generator) -> list[Array]:
        return [values(shape, element, rng) for _, shape, element in self.arguments]


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch


def computes_operand(text: str) -> bool:
    """Whether the last launch computes the operand where the product reads it, with no loop in front of the product."""
    backend = CpuBackend()
    launches = list(backend.program(lower(parse(text), backend, CompileOptions()).freeze()).launches())
    parts = [part.symbol for part in launches[-1].kernel.parts]
    return bool(parts) and not any(".operand" in symbol for symbol in parts)


def check(text: str, arrays: Sequence[Array], patch: pytest.MonkeyPatch) -> None:
    """Computed and from memory: the same bits, but for those of a NaN."""
    found = []
    for prologues in (PLAIN.prologues, frozenset[str]()):
        patch.setattr(CpuBackend, "fusion_limits", replace(PLAIN, prologues=prologues))
        found.append(np.asarray(hlojit.compile(text, backend="cpu")(*arrays)))
    one, other = found
    nan = (one != one) & (other != other)
    bits = f"u{one.itemsize}"
    np.testing.assert_array_equal(one.view(bits)[~nan], other.view(bits)[~nan], err_msg=text)


STEPS = ("splat", "first", "last", "second", "iota", "blocks", "negate", "bf16", "f32", "abs")


INTEGER_STEPS = ("first", "last", "second", "iota", "negate")


@pytest.mark.parametrize("seed", range(32))
def test_random_programs(seed: int, limits: pytest.MonkeyPatch) -> None:
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    writer = Writer(
        choose.choice([1, 1, 2, 3, 4, 5, 8, 9, 16, 33, 70]),
        choose.choice([8, 17, 33, 64, 96, 130, 300, 520]),
        choose.choice([1, 2, 7, 16, 33, 48, 100, 130, 200]),
        choose.random() < 0.5,
        choose.choice(["i4", "i8", "ui8", "i16", "f16", "bf16", "f8E4M3FN", "f8E5M2"]),
        choose.choice(["f32", "f32", "f32", "f32", "f64", "i32", "i64"]),
        choose.choice([8, 16, 32, 24]),
        choose.choice([(), (), (), (3,)]),
        choose.random() < 0.2,
    )
    known = STEPS if writer.number == "f32" else STEPS[:5] if writer.number == "f64" else INTEGER_STEPS
    steps = [choose.choice(known) for _ in range(choose.randint(0, 3))]
    text = writer.text(steps, follows=choose.random() < 0.5)
    check(text, writer.arrays(rng), limits)


FORMS = {
    "few rows, columns beside each other": Writer(3, 300, 130, False, "i8"),
    "few rows, k beside each other": Writer(1, 300, 130, True, "f8E4M3FN"),
    "tiles of rows, k beside each other": Writer(13, 300, 40, True, "f8E4M3FN"),
    "a packed panel": Writer(70, 130, 100, False, "i8"),
    "packed panels in blocks of k": Writer(70, 700, 300, False, "f16"),
    "packed from columns apart": Writer(70, 300, 130, True, "i8"),
    "a matrix times a vector": Writer(1, 300, 130, True, "i8", left=True),
    "batches": Writer(5, 40, 48, False, "i8", batch=(3,)),
    "columns that fill no vector": Writer(3, 40, 5, True, "i8"),
    "doubles": Writer(9, 300, 130, False, "i16", "f64"),
    "integers, few rows": Writer(3, 300, 130, False, "i8", "i32"),
    "integers, a packed panel": Writer(70, 130, 100, True, "ui8", "i32"),
    "integers, k beside each other": Writer(1, 300, 130, True, "i4", "i32"),
    "long integers": Writer(9, 300, 130, False, "i32", "i64"),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("steps", [(), ("last", "first"), ("blocks",)], ids=["decoded", "scaled", "in blocks"])
def test_forms(name: str, steps: Sequence[str], limits: pytest.MonkeyPatch) -> None:
    """Every form of the kernels computes its operand itself."""
    given = FORMS[name]
    if given.number != "f32" and steps == ("blocks",):
        pytest.skip("scales of blocks are written in f32")
    writer = replace(given, block=32, arguments=[], lines=[])
    text = writer.text(steps, follows=len(steps) != 1)
    assert computes_operand(text), text
    check(text, writer.arrays(np.random.default_rng(0)), limits)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("bits", [0, 256])
def test_guarded(name: str, bits: int) -> None:
    """Every task alone, with nothing behind the buffers; by AVX2 as well."""
    if bits and not (host_target().is_x86 and host_target().has_feature("avx2")):
        pytest.skip("for processors with AVX2")
    writer = replace(FORMS[name], arguments=[], lines=[])
    module = lower(parse(writer.text(("last", "first"), follows=False)), CpuBackend(), CompileOptions()).freeze()
    given = dict(zip(module.main.body.arguments, writer.arrays(np.random.default_rng(1))))
    (fusion,) = (each for each in module.main.body if is_fusion(each))
    target = without("avx512", bits=bits) if bits else host_target()
    arrays = [given[operand] for operand in fusion.operands]
    (found,) = run_instruction(fusion, *arrays, target=target)
    (expected,) = evaluate(module, *given.values())
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-3, atol=1e-1)


APART = {
    "a sum in parts": (Writer(1, 70000, 3, True, "i8"), ()),
    "scales that change within a vector": (Writer(3, 96, 40, True, "i8", block=6), ("blocks",)),
    "a panel that is too long": (Writer(40, 9000, 64, False, "i8"), ()),
    "other neighbours": (Writer(3, 64, 64, False, "i8"), ("reverse",)),
}


@pytest.mark.parametrize("name", APART)
def test_what_is_computed_before(name: str, limits: pytest.MonkeyPatch) -> None:
    """Where the product cannot, a loop in front of it computes the operand, in the same launch."""
    given, steps = APART[name]
    writer = replace(given, arguments=[], lines=[])
    text = writer.text([], follows=True) if "reverse" in steps else writer.text(steps, follows=True)
    if "reverse" in steps:
        type = tensor(writer.shape, "f32")
        text = text.replace("%v0,", "%back,").replace(
            "\n  %v1 =", f"\n  %back = stablehlo.reverse %v0, dims = [1] : {type}\n  %v1 ="
        )
        text = text.replace("%x, %v0", "%x, %back")
    assert not computes_operand(text), text
    check(text, writer.arrays(np.random.default_rng(0)), limits)
