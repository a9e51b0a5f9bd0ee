"""Intrinsics in the legacy dialect: the few that libNVVM has, PTX instructions, or integer operations.

Everything that LLVM 7 does not know becomes, without a word, a call of a function that nobody defines, and what it knows but
cannot lower ends the process.  So what is not in the table here is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from hlojit.cuda.assemblers import legacy_memory
from hlojit.cuda.assemblers.legacy_values import Type, UnknownText, arguments, read_type
from hlojit.cuda.assemblers.legacy_writer import LegacyWriter

_CALL: Final = re.compile(r"^(?:call )?(?P<result>.+?) @(?P<symbol>[\w.$]+)\((?P<arguments>.*)\)$")
_ASM: Final = re.compile(r'^(?:call )?(?P<head>\w+ asm (?:sideeffect )?"[^"]*", "[^"]*")\((?P<arguments>.*)\)$')
"""One PTX instruction, which both assemblers take as it is."""
_LETTER: Final = {"float": "f", "double": "d"}
_PTX_TYPE: Final = {"float": "f32", "double": "f64"}

Lanes = list[str]


def translate_call(w: LegacyWriter, text: str, rest: str) -> Lanes:
    """Append a call; the lanes of its result."""
    if asm := _ASM.match(rest):
        kinds = [w.typed(part) for part in arguments(asm["arguments"])]
        passed = ", ".join(f"{kind.text} {value}" for kind, (value,) in kinds)
        call = f"call {asm['head']}({passed})"
        if asm["head"].startswith("void "):
            w.line(call)
            return []
        return [w.emit(call)]
    found = _CALL.match(rest)
    if found is None:
        raise UnknownText(text)
    result = Type("i1") if found["result"] == "void" else read_type(found["result"])[0]
    parts = arguments(found["arguments"])
    symbol = found["symbol"]
    if symbol in _PLAIN:
        return _PLAIN[symbol](w, [w.scalar(part) for part in parts])
    for stem, memory in _MEMORY.items():
        if symbol.startswith(f"llvm.{stem}."):
            return memory(w, result, parts)
    for stem, rule in _LANE_BY_LANE.items():
        if symbol.startswith(f"llvm.{stem}."):
            operands = [w.typed(part) for part in parts]
            return [
                rule(w, result.lane, [kind.lane for kind, _ in operands], [_lane(kind, v, n) for kind, v in operands])
                for n in range(result.lanes)
            ]
    raise UnknownText(text, f"{symbol} is no intrinsic that it may hold")


def _lane(kind: Type, values: Lanes, number: int) -> str:
    return values[number] if kind.lanes > 1 else values[0]


# ------------------------------------------------------------------ lane by lane

Rule = Callable[[LegacyWriter, Type, Sequence[Type], Sequence[str]], str]


def _same(stem: str) -> Rule:
    """An intrinsic that LLVM 7 has."""

    def rule(w: LegacyWriter, result: Type, kinds: Sequence[Type], values: Sequence[str]) -> str:
        suffix = _PTX_TYPE.get(kinds[0].name, kinds[0].name)
        return w.call(f"llvm.{stem}.{suffix}", result.text, [kind.text for kind in kinds], values)

    return rule


def _nvvm(stem: str) -> Rule:
    """An intrinsic of NVIDIA's."""

    def rule(w: LegacyWriter, result: Type, kinds: Sequence[Type], values: Sequence[str]) -> str:
        return w.call(f"llvm.nvvm.{stem}.{_LETTER[kinds[0].name]}", result.text, [k.text for k in kinds], values)

    return rule


def _round_even(w: LegacyWriter, result: Type, kinds: Sequence[Type], values: Sequence[str]) -> str:
    suffix = _PTX_TYPE[result.name]
    return w.ptx(f"cvt.rni.{suffix}.{suffix} $0, $1;", result.text, [result.text], values)


def _fabs(w: LegacyWriter, result: Type, kinds: Sequence[Type], values: Sequence[str]) -> str:
    integer = f"i{result.bits}"
    bits = w.binary("and", integer, w.bits(result, values[0]), (1 << (result.bits - 1)) - 1)
    return w.cast("bitcast", integer, bits, result.text)


def _copysign(w: LegacyWriter, result: Type, kinds: Sequence[Type], values: Sequence[str]) -> str:
    integer, sign = f"i{result.bits}", 1 << (result.bits - 1)
    magnitude = w.binary("and", integer, w.bits(result, values[0]), sign - 1)
    bit = w.binary("and", integer, w.bits(result, values[1]), -sign)
    return w.cast("bitcast", integer, w.binary("or", integer, magnitude, bit), result.text)


def _to_integer(signed: bool) -> Rule:
    """PTX saturates at 32 and 64 bits; narrower types are clamped after that.  NaN becomes 0."""

    def rule(w: LegacyWriter, result: Type, kinds: Sequence[Type], values: Sequence[str]) -> str:
        source, wide = kinds[0], max(32, result.bits)
        instruction = f"cvt.rzi.{'s' if signed else 'u'}{wide}.{_PTX_TYPE[source.name]} $0, $1;"
        value = w.ptx(instruction, f"i{wide}", [source.text], values)
        if wide != result.bits:
            bits = result.bits
            low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
            letter = "s" if signed else "u"
            if signed:
                value = _clamped(w, f"{letter}lt", wide, value, low)
            value = w.resized(_clamped(w, f"{letter}gt", wide, value, high), wide, bits)
        unordered = w.emit(f"fcmp uno {source.text} {values[0]}, {values[0]}")
        return w.select(unordered, result.text, "0", value)

    return rule


def _clamped(w: LegacyWriter, predicate: str, bits: int, value: str, bound: int) -> str:
    beyond = w.emit(f"icmp {predicate} i{bits} {value}, {bound}")
    return w.emit(f"select i1 {beyond}, i{bits} {bound}, i{bits} {value}")


def _extremum(predicate: str) -> Rule:
    def rule(w: LegacyWriter, result: Type, kinds: Sequence[Type], values: Sequence[str]) -> str:
        first = w.emit(f"icmp {predicate} {result.text} {values[0]}, {values[1]}")
        return w.select(first, result.text, values[0], values[1])

    return rule


def _float_extremum(instruction: str) -> Rule:
    """An instruction from sm_80 on."""

    def rule(w: LegacyWriter, result: Type, kinds: Sequence[Type], values: Sequence[str]) -> str:
        return w.ptx(f"{instruction}.NaN.f32 $0, $1, $2;", result.text, [kind.text for kind in kinds], values)

    return rule


_LANE_BY_LANE: Final[dict[str, Rule]] = {
    "fma": _same("fma"),
    "sqrt": _same("sqrt"),
    "ctpop": _same("ctpop"),
    "ctlz": _same("ctlz"),
    "cttz": _same("cttz"),
    "floor": _nvvm("floor"),
    "ceil": _nvvm("ceil"),
    "trunc": _nvvm("trunc"),
    "roundeven": _round_even,
    "fabs": _fabs,
    "copysign": _copysign,
    "fptosi.sat": _to_integer(signed=True),
    "fptoui.sat": _to_integer(signed=False),
    "maximum": _float_extremum("max"),
    "minimum": _float_extremum("min"),
    "smax": _extremum("sgt"),
    "smin": _extremum("slt"),
    "umax": _extremum("ugt"),
    "umin": _extremum("ult"),
}


# -------------------------------------------------------- threads and the machine


def _register(name: str) -> Callable[[LegacyWriter, Sequence[str]], Lanes]:
    return lambda w, values: [w.call(f"llvm.nvvm.read.ptx.sreg.{name}", "i32", [], [])]


def _barrier(w: LegacyWriter, values: Sequence[str]) -> Lanes:
    if values[0] != "0":
        raise ValueError("barriers other than 0")
    w.call("llvm.nvvm.barrier0", "void", [], [])
    return []


def _ballot(w: LegacyWriter, values: Sequence[str]) -> Lanes:
    pair = w.call("llvm.nvvm.vote.sync", "{i32, i1}", ["i32", "i32", "i1"], [values[0], "3", values[1]])
    return [w.emit(f"extractvalue {{i32, i1}} {pair}, 0")]


def _sync_warp(w: LegacyWriter, values: Sequence[str]) -> Lanes:
    w.call("llvm.nvvm.bar.warp.sync", "void", ["i32"], values)
    return []


def _shuffle(mode: int) -> Callable[[LegacyWriter, Sequence[str]], Lanes]:
    def rule(w: LegacyWriter, values: Sequence[str]) -> Lanes:
        mask, value, lane, clamp = values
        passed = [mask, str(mode), value, lane, clamp]
        pair = w.call("llvm.nvvm.shfl.sync.i32", "{i32, i1}", ["i32"] * 5, passed)
        return [w.emit(f"extractvalue {{i32, i1}} {pair}, 0")]

    return rule


_PLAIN: Final[dict[str, Callable[[LegacyWriter, Sequence[str]], Lanes]]] = {
    **{
        f"llvm.nvvm.read.ptx.sreg.{name}": _register(name)
        for name in ("tid.x", "ctaid.x", "ntid.x", "nctaid.x", "laneid", "warpsize")
    },
    "llvm.nvvm.barrier.cta.sync.aligned.all": _barrier,
    "llvm.nvvm.bar.warp.sync": _sync_warp,
    "llvm.nvvm.vote.ballot.sync": _ballot,
    "llvm.nvvm.shfl.sync.idx.i32": _shuffle(0),
    "llvm.nvvm.shfl.sync.up.i32": _shuffle(1),
    "llvm.nvvm.shfl.sync.down.i32": _shuffle(2),
    "llvm.nvvm.shfl.sync.bfly.i32": _shuffle(3),
}


# --------------------------------------------------------------- guarded accesses


def _guarded_load(w: LegacyWriter, kind: Type, address: str, align: int, condition: str, otherwise: str) -> str:
    """A scalar where the condition holds; a literal condition needs no branch."""
    if condition == "true":
        return legacy_memory.load(w, kind, address, align)[0]
    before, inside, after = w.label, w.fresh_label(), w.fresh_label()
    w.line(f"br i1 {condition}, label %{inside}, label %{after}")
    w.begin_block(inside)
    value = legacy_memory.load(w, kind, address, align)[0]
    w.line(f"br label %{after}")
    w.begin_block(after)
    return w.emit(f"phi {kind.text} [ {value}, %{inside} ], [ {otherwise}, %{before} ]")


def _guarded_store(w: LegacyWriter, kind: Type, value: str, address: str, align: int, condition: str) -> None:
    if condition == "true":
        legacy_memory.store(w, kind, [value], address, align)
        return
    inside, after = w.fresh_label(), w.fresh_label()
    w.line(f"br i1 {condition}, label %{inside}, label %{after}")
    w.begin_block(inside)
    legacy_memory.store(w, kind, [value], address, align)
    w.line(f"br label %{after}")
    w.begin_block(after)


def _align(part: str) -> int:
    return int(re.findall(r" align (\d+) ", part)[0])


def _consecutive(w: LegacyWriter, kind: Type, address: str) -> Lanes:
    offsets = range(0, kind.bits // 8 * kind.lanes, kind.bits // 8)
    return [w.emit(f"getelementptr i8, i8* {address}, i64 {offset}") if offset else address for offset in offsets]


def _load_lanes(w: LegacyWriter, kind: Type, addresses: Lanes, align: int, mask: str, other: str) -> Lanes:
    (_, conditions), (_, others) = w.typed(mask), w.typed(other)
    return [
        _guarded_load(w, kind.lane, address, align, condition, otherwise)
        for address, condition, otherwise in zip(addresses, conditions, others)
    ]


def _store_lanes(w: LegacyWriter, kind: Type, values: Lanes, addresses: Lanes, align: int, mask: str) -> Lanes:
    _, conditions = w.typed(mask)
    for value, address, condition in zip(values, addresses, conditions):
        _guarded_store(w, kind.lane, value, address, align, condition)
    return []


def _gather(w: LegacyWriter, result: Type, parts: list[str]) -> Lanes:
    _, addresses = w.typed(parts[0])
    return _load_lanes(w, result, addresses, _align(parts[0]), parts[1], parts[2])


def _scatter(w: LegacyWriter, result: Type, parts: list[str]) -> Lanes:
    (kind, values), (_, addresses) = w.typed(parts[0]), w.typed(parts[1])
    return _store_lanes(w, kind, values, addresses, _align(parts[1]), parts[2])


def _masked_load(w: LegacyWriter, result: Type, parts: list[str]) -> Lanes:
    addresses = _consecutive(w, result, w.scalar(parts[0]))
    return _load_lanes(w, result, addresses, _align(parts[0]), parts[1], parts[2])


def _masked_store(w: LegacyWriter, result: Type, parts: list[str]) -> Lanes:
    kind, values = w.typed(parts[0])
    addresses = _consecutive(w, kind, w.scalar(parts[1]))
    return _store_lanes(w, kind, values, addresses, _align(parts[1]), parts[2])


_MEMORY: Final[dict[str, Callable[[LegacyWriter, Type, list[str]], Lanes]]] = {
    "masked.gather": _gather,
    "masked.scatter": _scatter,
    "masked.load": _masked_load,
    "masked.store": _masked_store,
}
