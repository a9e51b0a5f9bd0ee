"""Multiplication and addition of a product in one compute kind on one processor, and prefetches."""

from __future__ import annotations

from dataclasses import dataclass

from hlojit.cpu.kernels.integer_quads import Quads
from hlojit.llvm.builder import LlvmBuilder, Val
from hlojit.lowering.dot_tiles import FEW_TERMS
from hlojit.lowering.target import Target


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Multiplication and addition in one compute kind on one processor."""

    kind: str
    fused: bool
    pairs: bool = False
    """Elements are pairs of 16-bit integers in an ``i32``, see ``integer_pairs``."""
    quads: Quads | None = None
    """Elements are four bytes in an ``i32``, see ``integer_quads``."""

    @classmethod
    def of(cls, kind: str, target: Target, terms: int | None = None) -> Arithmetic:
        """The arithmetic of sums of ``terms`` products (None: of many): one fused instruction where the processor has it."""
        few = terms is not None and terms <= FEW_TERMS
        return cls(kind, not few and (not target.is_x86 or target.has_feature("fma")))

    @property
    def zero(self) -> Val:
        """The neutral element of the sum."""
        return Val("0x0000000000000000" if self.kind in ("f32", "f64") else "0", self.kind)

    def multiply_add(self, b: LlvmBuilder, x: Val, y: Val, total: Val) -> Val:
        """``x * y + total``, x of the left operand; floats are rounded once where the processor has a fused instruction."""
        if self.kind in ("f32", "f64"):
            return b.fma(x, y, total) if self.fused else b.fadd(b.fmul(x, y), total)
        if self.quads is not None:
            return self.quads.multiply_add(b, x, y, total)
        return b.add(_multiply_pairs(b, x, y) if self.pairs else b.mul(x, y), total)

    def add(self, b: LlvmBuilder, x: Val, y: Val) -> Val:
        """``x + y``."""
        if self.kind in ("f32", "f64"):
            return b.fadd(x, y)
        return b.add(x, y)


_PAIR_INSTRUCTIONS = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


def _multiply_pairs(b: LlvmBuilder, x: Val, y: Val) -> Val:
    """The sum of the products of both halves (x86 with AVX2 at least)."""
    lanes = x.lanes
    instruction = _PAIR_INSTRUCTIONS.get(lanes)
    if instruction is None:
        half = b.constant("i32", 16)
        low = b.mul(b.ashr(b.shl(x, half), half), b.ashr(b.shl(y, half), half))
        return b.add(low, b.mul(b.ashr(x, half), b.ashr(y, half)))
    halves, whole = b.type("i16", 2 * lanes), b.type("i32", lanes)
    symbol = f"llvm.x86.{instruction}"
    b.declare(symbol, f"declare {whole} @{symbol}({halves}, {halves})")
    parts = [b.emit("i16", 2 * lanes, f"bitcast {whole} {value.text} to {halves}").text for value in (x, y)]
    return b.emit("i32", lanes, f"call {whole} @{symbol}({halves} {parts[0]}, {halves} {parts[1]})")
