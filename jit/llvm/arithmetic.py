"""The scalar instructions of ``ScalarBuilder`` as LLVM IR: arithmetic, comparisons, conversions, lane by lane."""

from __future__ import annotations

from hlojit.llvm.text import TYPE_SUFFIX, LlvmText, Val, float_literal
from hlojit.lowering.target import KIND_BITS


class LlvmArithmetic(LlvmText):
    """One instruction for each method of ``ScalarBuilder`` that is one.  Base of ``LlvmBuilder``."""

    def constant(self, kind: str, value: int | float) -> Val:
        if kind in ("f32", "f64"):
            return Val(float_literal(kind, float(value)), kind)
        if kind == "i1":
            return Val("true" if value else "false", kind)
        bits = KIND_BITS[kind]
        wrapped = int(value) & ((1 << bits) - 1)
        return Val(str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped), kind)

    def _together(self, *values: Val) -> tuple[int, list[Val]]:
        lanes = max(value.lanes for value in values)
        return lanes, [value if value.lanes == lanes else self.splat(value, lanes) for value in values]

    def _binary(self, instruction: str, a: Val, b: Val) -> Val:
        assert a.kind == b.kind, (instruction, a, b)
        if a.lanes != b.lanes:
            _, (a, b) = self._together(a, b)
        return self.emit(a.kind, a.lanes, f"{instruction} {self.type_of(a)} {a.text}, {b.text}")

    def add(self, a: Val, b: Val) -> Val:
        return self._binary("add", a, b)

    def sub(self, a: Val, b: Val) -> Val:
        return self._binary("sub", a, b)

    def mul(self, a: Val, b: Val) -> Val:
        return self._binary("mul", a, b)

    def sdiv(self, a: Val, b: Val) -> Val:
        return self._binary("sdiv", a, b)

    def udiv(self, a: Val, b: Val) -> Val:
        return self._binary("udiv", a, b)

    def srem(self, a: Val, b: Val) -> Val:
        return self._binary("srem", a, b)

    def urem(self, a: Val, b: Val) -> Val:
        return self._binary("urem", a, b)

    def and_(self, a: Val, b: Val) -> Val:
        return self._binary("and", a, b)

    def or_(self, a: Val, b: Val) -> Val:
        return self._binary("or", a, b)

    def xor(self, a: Val, b: Val) -> Val:
        return self._binary("xor", a, b)

    def shl(self, a: Val, b: Val) -> Val:
        return self._binary("shl", a, b)

    def lshr(self, a: Val, b: Val) -> Val:
        return self._binary("lshr", a, b)

    def ashr(self, a: Val, b: Val) -> Val:
        return self._binary("ashr", a, b)

    def fadd(self, a: Val, b: Val) -> Val:
        return self._binary("fadd", a, b)

    def fsub(self, a: Val, b: Val) -> Val:
        return self._binary("fsub", a, b)

    def fmul(self, a: Val, b: Val) -> Val:
        return self._binary("fmul", a, b)

    def fdiv(self, a: Val, b: Val) -> Val:
        return self._binary("fdiv", a, b)

    def fneg(self, a: Val) -> Val:
        return self.emit(a.kind, a.lanes, f"fneg {self.type_of(a)} {a.text}")

    def intrinsic(self, stem: str, *arguments: Val, extra: str = "", extra_type: str = "") -> Val:
        """Call ``llvm.<stem>.<type>``; ``extra`` is a trailing literal argument (``i1 false``)."""
        lanes, values = self._together(*arguments)
        kind = values[0].kind
        vector = self.type(kind, lanes)
        suffix = TYPE_SUFFIX[kind] if lanes == 1 else f"v{lanes}{TYPE_SUFFIX[kind]}"
        symbol = f"llvm.{stem}.{suffix}"
        types = ", ".join([vector] * len(values) + ([extra_type] if extra_type else []))
        self.declare(symbol, f"declare {vector} @{symbol}({types})")
        text = ", ".join([f"{vector} {value.text}" for value in values] + ([extra] if extra else []))
        return self.emit(kind, lanes, f"call {vector} @{symbol}({text})")

    def fma(self, a: Val, b: Val, c: Val) -> Val:
        return self.intrinsic("fma", a, b, c)

    def fabs(self, a: Val) -> Val:
        return self.intrinsic("fabs", a)

    def sqrt(self, a: Val) -> Val:
        return self.intrinsic("sqrt", a)

    def floor(self, a: Val) -> Val:
        return self.intrinsic("floor", a)

    def ceil(self, a: Val) -> Val:
        return self.intrinsic("ceil", a)

    def truncate(self, a: Val) -> Val:
        return self.intrinsic("trunc", a)

    def round_even(self, a: Val) -> Val:
        return self.intrinsic("roundeven", a)

    def copysign(self, magnitude: Val, sign: Val) -> Val:
        return self.intrinsic("copysign", magnitude, sign)

    def population_count(self, a: Val) -> Val:
        return self.intrinsic("ctpop", a)

    def count_leading_zeros(self, a: Val) -> Val:
        return self.intrinsic("ctlz", a, extra="i1 false", extra_type="i1")

    def _compare(self, instruction: str, predicate: str, a: Val, b: Val) -> Val:
        assert a.kind == b.kind, (predicate, a, b)
        lanes, (a, b) = self._together(a, b)
        return self.emit("i1", lanes, f"{instruction} {predicate} {self.type_of(a)} {a.text}, {b.text}")

    def icmp(self, predicate: str, a: Val, b: Val) -> Val:
        return self._compare("icmp", predicate, a, b)

    def fcmp(self, predicate: str, a: Val, b: Val) -> Val:
        return self._compare("fcmp", predicate, a, b)

    def _cast(self, instruction: str, a: Val, kind: str) -> Val:
        if a.kind == kind:
            return a
        return self.emit(kind, a.lanes, f"{instruction} {self.type_of(a)} {a.text} to {self.type(kind, a.lanes)}")

    def bitcast(self, a: Val, kind: str) -> Val:
        return self._cast("bitcast", a, kind)

    def sext(self, a: Val, kind: str) -> Val:
        return self._cast("sext", a, kind)

    def zext(self, a: Val, kind: str) -> Val:
        return self._cast("zext", a, kind)

    def trunc(self, a: Val, kind: str) -> Val:
        return self._cast("trunc", a, kind)

    def sitofp(self, a: Val, kind: str) -> Val:
        return self._cast("sitofp", a, kind)

    def uitofp(self, a: Val, kind: str) -> Val:
        return self._cast("uitofp", a, kind)

    def fpext(self, a: Val) -> Val:
        return self._cast("fpext", a, "f64")

    def fptrunc(self, a: Val) -> Val:
        return self._cast("fptrunc", a, "f32")

    def _saturating(self, stem: str, a: Val, kind: str) -> Val:
        source, result = self.type_of(a), self.type(kind, a.lanes)
        vector = f"v{a.lanes}" if a.lanes > 1 else ""
        symbol = f"llvm.{stem}.sat.{vector}{kind}.{vector}{TYPE_SUFFIX[a.kind]}"
        self.declare(symbol, f"declare {result} @{symbol}({source})")
        return self.emit(kind, a.lanes, f"call {result} @{symbol}({source} {a.text})")

    def fptosi(self, a: Val, kind: str) -> Val:
        return self._saturating("fptosi", a, kind) if a.lanes == 1 else self._vector_to_integers("fptosi", a, kind)

    def fptoui(self, a: Val, kind: str) -> Val:
        return self._saturating("fptoui", a, kind) if a.lanes == 1 else self._vector_to_integers("fptoui", a, kind)

    def _vector_to_integers(self, instruction: str, a: Val, kind: str) -> Val:
        """A saturating conversion by the plain one, of lanes within the range: LLVM takes vectors of ``fptosi.sat`` apart."""
        bits = KIND_BITS[kind]
        lowest, beyond = (-(1 << (bits - 1)), 1 << (bits - 1)) if instruction == "fptosi" else (0, 1 << bits)
        number = self.select(self.fcmp("ord", a, a), a, self.constant(a.kind, 0.0))
        low = self.constant(a.kind, float(lowest))
        if bits < 32:
            # Both ends are floats, and 32 bits, to which processors convert, hold them with their sign.
            high = self.constant(a.kind, float(beyond - 1))
            number = self.select(self.fcmp("ogt", number, low), number, low)
            number = self.select(self.fcmp("olt", number, high), number, high)
            return self.trunc(self._cast("fptosi", number, "i32"), kind)
        below, above = self.fcmp("olt", number, low), self.fcmp("oge", number, self.constant(a.kind, float(beyond)))
        number = self.select(self.or_(below, above), self.constant(a.kind, 0.0), number)
        whole = self._cast(instruction, number, kind)
        whole = self.select(above, self.constant(kind, beyond - 1), whole)
        return self.select(below, self.constant(kind, lowest), whole)

    def half_to_float(self, bits: Val) -> Val:
        half = "half" if bits.lanes == 1 else f"<{bits.lanes} x half>"
        as_half = self.emit("i16", bits.lanes, f"bitcast {self.type_of(bits)} {bits.text} to {half}")
        return self.emit("f32", bits.lanes, f"fpext {half} {as_half.text} to {self.type('f32', bits.lanes)}")

    def float_to_half(self, a: Val) -> Val:
        half = "half" if a.lanes == 1 else f"<{a.lanes} x half>"
        as_half = self.emit("i16", a.lanes, f"fptrunc {self.type_of(a)} {a.text} to {half}")
        return self.emit("i16", a.lanes, f"bitcast {half} {as_half.text} to {self.type('i16', a.lanes)}")

    def select(self, condition: Val, a: Val, b: Val) -> Val:
        assert a.kind == b.kind, (a, b)
        if condition.lanes == 1 and a.lanes == b.lanes == 1:
            return self.emit(
                a.kind, 1, f"select i1 {condition.text}, {self.type_of(a)} {a.text}, {self.type_of(b)} {b.text}"
            )
        lanes, (condition, a, b) = self._together(condition, a, b)
        return self.emit(
            a.kind,
            lanes,
            f"select {self.type_of(condition)} {condition.text}, {self.type_of(a)} {a.text}, {self.type_of(b)} {b.text}",
        )
