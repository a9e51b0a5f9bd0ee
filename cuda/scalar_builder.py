"""``ScalarBuilder`` for NVIDIA GPUs: llvmlite's IR objects in the dialect that libNVVM takes for sm_90 (LLVM 7).

That dialect has no fneg, freeze or poison, turns several intrinsics into calls of functions that nobody defines, and dies
on others.  So everything that is not plain arithmetic is an integer operation or one PTX instruction, inline.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

_TYPES: dict[str, Any] = {
    "i1": ir.IntType(1), "i8": ir.IntType(8), "i16": ir.IntType(16), "i32": ir.IntType(32), "i64": ir.IntType(64),
    "f32": ir.FloatType(), "f64": ir.DoubleType(),
}  # fmt: skip
_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f32": 32, "f64": 64}
_CONSTRAINT = {"i16": "h", "i32": "r", "i64": "l", "f32": "f", "f64": "d"}


@dataclass(frozen=True, slots=True)
class GpuScalar:
    """A value of one thread."""

    value: Any
    kind: str


class GpuScalarBuilder:
    """Emits one thread's arithmetic into an llvmlite ``IRBuilder``."""

    def __init__(self, builder: Any):
        self.ir = builder
        self._tables = 0

    # ------------------------------------------------------------- helpers

    def _make(self, value: Any, kind: str) -> GpuScalar:
        return GpuScalar(value, kind)

    def ptx(self, instruction: str, kind: str, *arguments: GpuScalar) -> GpuScalar:
        """One PTX instruction: ``$0`` is the result, ``$1`` ... the arguments."""
        constraints = ",".join([f"={_CONSTRAINT[kind]}", *(_CONSTRAINT[a.kind] for a in arguments)])
        signature = ir.FunctionType(_TYPES[kind], [_TYPES[a.kind] for a in arguments])
        value = self.ir.asm(signature, instruction, constraints, [a.value for a in arguments], False)
        return self._make(value, kind)

    def _float_ptx(self, stem: str, a: GpuScalar, *more: GpuScalar) -> GpuScalar:
        operands = ", ".join(f"${number}" for number in range(1, 2 + len(more)))
        return self.ptx(f"{stem.format(t=a.kind)} $0, {operands};", a.kind, a, *more)

    def constant(self, kind: str, value: int | float) -> GpuScalar:
        if kind in ("f32", "f64"):
            number = float(value)
            if kind == "f32" and math.isfinite(number):
                try:
                    number = struct.unpack("<f", struct.pack("<f", number))[0]
                except OverflowError:
                    number = math.copysign(math.inf, number)
            return self._make(ir.Constant(_TYPES[kind], number), kind)
        bits = int(value) & ((1 << _BITS[kind]) - 1)
        return self._make(ir.Constant(_TYPES[kind], bits), kind)

    # ------------------------------------------------------------ integers

    def add(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._make(self.ir.add(a.value, b.value), a.kind)

    def sub(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._make(self.ir.sub(a.value, b.value), a.kind)

    def mul(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._make(self.ir.mul(a.value, b.value), a.kind)

    def sdiv(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._make(self.ir.sdiv(a.value, b.value), a.kind)

    def udiv(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._make(self.ir.udiv(a.value, b.value), a.kind)

    def srem(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._make(self.ir.srem(a.value, b.value), a.kind)

    def urem(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._make(self.ir.urem(a.value, b.value), a.kind)

    def and_(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._make(self.ir.and_(a.value, b.value), a.kind)

    def or_(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._make(self.ir.or_(a.value, b.value), a.kind)

    def xor(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._make(self.ir.xor(a.value, b.value), a.kind)

    def shl(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._make(self.ir.shl(a.value, b.value), a.kind)

    def lshr(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._make(self.ir.lshr(a.value, b.value), a.kind)

    def ashr(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._make(self.ir.ashr(a.value, b.value), a.kind)

    def population_count(self, a: GpuScalar) -> GpuScalar:
        return self._counted("popc.b{n}", a, 0)

    def count_leading_zeros(self, a: GpuScalar) -> GpuScalar:
        return self._counted("clz.b{n}", a, 32 - min(_BITS[a.kind], 32))

    def _counted(self, stem: str, a: GpuScalar, excess: int) -> GpuScalar:
        """PTX counts bits of 32- and 64-bit words, into 32 bits."""
        if a.kind == "i64":
            return self.zext(self.ptx(f"{stem.format(n=64)} $0, $1;", "i32", a), "i64")
        counted = self.ptx(f"{stem.format(n=32)} $0, $1;", "i32", self.zext(a, "i32"))
        if excess:
            counted = self.sub(counted, self.constant("i32", excess))
        return self.trunc(counted, a.kind)

    def icmp(self, predicate: str, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        symbols = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
        if predicate in ("eq", "ne"):
            return self._make(self.ir.icmp_unsigned(symbols[predicate], a.value, b.value), "i1")
        compare = self.ir.icmp_signed if predicate[0] == "s" else self.ir.icmp_unsigned
        return self._make(compare(symbols[predicate[1:]], a.value, b.value), "i1")

    # -------------------------------------------------------------- floats

    def fadd(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._float_ptx("add.rn.{t}", a, b)

    def fsub(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._float_ptx("sub.rn.{t}", a, b)

    def fmul(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        # ``.rn`` keeps the assembler from contracting a product and a sum into a fused one.
        return self._float_ptx("mul.rn.{t}", a, b)

    def fdiv(self, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._float_ptx("div.rn.{t}", a, b)

    def fma(self, a: GpuScalar, b: GpuScalar, c: GpuScalar) -> GpuScalar:
        return self._float_ptx("fma.rn.{t}", a, b, c)

    def sqrt(self, a: GpuScalar) -> GpuScalar:
        return self._float_ptx("sqrt.rn.{t}", a)

    def floor(self, a: GpuScalar) -> GpuScalar:
        return self._float_ptx("cvt.rmi.{t}.{t}", a)

    def ceil(self, a: GpuScalar) -> GpuScalar:
        return self._float_ptx("cvt.rpi.{t}.{t}", a)

    def truncate(self, a: GpuScalar) -> GpuScalar:
        return self._float_ptx("cvt.rzi.{t}.{t}", a)

    def round_even(self, a: GpuScalar) -> GpuScalar:
        return self._float_ptx("cvt.rni.{t}.{t}", a)

    def _integer_of(self, kind: str) -> str:
        return "i32" if kind == "f32" else "i64"

    def _sign_bit(self, kind: str) -> GpuScalar:
        integer = self._integer_of(kind)
        return self.constant(integer, 1 << (_BITS[integer] - 1))

    def fneg(self, a: GpuScalar) -> GpuScalar:
        bits = self.bitcast(a, self._integer_of(a.kind))
        return self.bitcast(self.xor(bits, self._sign_bit(a.kind)), a.kind)

    def fabs(self, a: GpuScalar) -> GpuScalar:
        integer = self._integer_of(a.kind)
        mask = self.constant(integer, (1 << (_BITS[integer] - 1)) - 1)
        return self.bitcast(self.and_(self.bitcast(a, integer), mask), a.kind)

    def copysign(self, magnitude: GpuScalar, sign: GpuScalar) -> GpuScalar:
        integer = self._integer_of(sign.kind)
        bits = self.and_(self.bitcast(sign, integer), self._sign_bit(sign.kind))
        return self.bitcast(self.or_(self.bitcast(self.fabs(magnitude), integer), bits), magnitude.kind)

    def fcmp(self, predicate: str, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        if predicate == "ord":
            return self._make(self.ir.fcmp_ordered("ord", a.value, b.value), "i1")
        if predicate == "uno":
            return self._make(self.ir.fcmp_unordered("uno", a.value, b.value), "i1")
        symbols = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
        compare = self.ir.fcmp_ordered if predicate[0] == "o" else self.ir.fcmp_unordered
        return self._make(compare(symbols[predicate[1:]], a.value, b.value), "i1")

    # --------------------------------------------------------- conversions

    def _cast(self, method: Any, a: GpuScalar, kind: str) -> GpuScalar:
        return a if a.kind == kind else self._make(method(a.value, _TYPES[kind]), kind)

    def bitcast(self, a: GpuScalar, kind: str) -> GpuScalar:
        return self._cast(self.ir.bitcast, a, kind)

    def sext(self, a: GpuScalar, kind: str) -> GpuScalar:
        return self._cast(self.ir.sext, a, kind)

    def zext(self, a: GpuScalar, kind: str) -> GpuScalar:
        return self._cast(self.ir.zext, a, kind)

    def trunc(self, a: GpuScalar, kind: str) -> GpuScalar:
        return self._cast(self.ir.trunc, a, kind)

    def sitofp(self, a: GpuScalar, kind: str) -> GpuScalar:
        return self._cast(self.ir.sitofp, a, kind)

    def uitofp(self, a: GpuScalar, kind: str) -> GpuScalar:
        return self._cast(self.ir.uitofp, a, kind)

    def fpext(self, a: GpuScalar) -> GpuScalar:
        return self._cast(self.ir.fpext, a, "f64")

    def fptrunc(self, a: GpuScalar) -> GpuScalar:
        return self._cast(self.ir.fptrunc, a, "f32")

    def fptosi(self, a: GpuScalar, kind: str) -> GpuScalar:
        return self._saturated(a, kind, signed=True)

    def fptoui(self, a: GpuScalar, kind: str) -> GpuScalar:
        return self._saturated(a, kind, signed=False)

    def _saturated(self, a: GpuScalar, kind: str, *, signed: bool) -> GpuScalar:
        """PTX saturates at 32 and 64 bits; narrower types are clamped after that.  NaN becomes 0."""
        wide = "i64" if kind == "i64" else "i32"
        letter = "s" if signed else "u"
        value = self.ptx(f"cvt.rzi.{letter}{_BITS[wide]}.{a.kind} $0, $1;", wide, a)
        if kind != wide:
            bits = _BITS[kind]
            low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
            lower, upper = self.constant(wide, low), self.constant(wide, high)
            if signed:
                value = self.select(self.icmp("slt", value, lower), lower, value)
            value = self.select(self.icmp("sgt" if signed else "ugt", value, upper), upper, value)
        result = self.trunc(value, kind)
        return self.select(self.fcmp("uno", a, a), self.constant(kind, 0), result)

    def half_to_float(self, bits: GpuScalar) -> GpuScalar:
        return self.ptx("cvt.f32.f16 $0, $1;", "f32", bits)

    def float_to_half(self, a: GpuScalar) -> GpuScalar:
        if a.kind == "f64":
            return self.ptx("cvt.rn.f16.f64 $0, $1;", "i16", a)
        return self.ptx("cvt.rn.f16.f32 $0, $1;", "i16", a)

    # ---------------------------------------------------------------- other

    def select(self, condition: GpuScalar, a: GpuScalar, b: GpuScalar) -> GpuScalar:
        return self._make(self.ir.select(condition.value, a.value, b.value), a.kind)

    def lookup(self, kind: str, table: tuple[int | float, ...], index: GpuScalar) -> GpuScalar:
        element = _TYPES[kind]
        array = ir.ArrayType(element, len(table))
        module = self.ir.module
        name = module.get_unique_name("hlojit_table")
        variable = ir.GlobalVariable(module, array, name)
        variable.linkage, variable.global_constant = "internal", True
        variable.initializer = ir.Constant(array, [self.constant(kind, value).value for value in table])
        zero = ir.Constant(ir.IntType(32), 0)
        place = self.ir.gep(variable, [zero, self.zext(index, "i64").value], source_etype=array)
        return self._make(self.ir.load(place, typ=element), kind)

    def call(
        self,
        function: Callable[..., Any],
        kinds: tuple[str, ...],
        result_kind: str,
        arguments: tuple[GpuScalar, ...],
        user: str,
    ) -> GpuScalar:
        """Plugins' numba functions in GPU kernels come later."""
        from hlojit.ir.errors import UnsupportedError

        raise UnsupportedError(user, "cuda", "not yet: numba functions inside GPU kernels")
