"""The instructions that our builders write, in the legacy dialect: lane by lane, pointers with types."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from hlojit.cuda.assemblers import legacy_memory
from hlojit.cuda.assemblers.legacy_calls import translate_call
from hlojit.cuda.assemblers.legacy_values import Type, UnknownText, arguments, read_type
from hlojit.cuda.assemblers.legacy_writer import LegacyWriter

_LINE: Final = re.compile(r"^  (?:(?P<result>%[\w.]+) = )?(?P<name>\w+)(?: (?P<rest>.*?))?(?:, !\w[\w.]* !\d+)*$")
_INCOMING: Final = re.compile(r"\[ (?P<value>.+?), %(?P<label>[\w.]+) \]")


@final
@dataclass(frozen=True, slots=True)
class Line:
    """An instruction as it was read."""

    text: str
    result: str
    name: str
    rest: str

    @property
    def parts(self) -> list[str]:
        """Operands."""
        return arguments(self.rest)

    def word(self, name: str) -> bool:
        """Whether it begins with a flag."""
        return self.rest.startswith(f"{name} ")


def translate_line(w: LegacyWriter, text: str) -> None:
    """Append what an instruction is in the legacy dialect."""
    found = _LINE.match(text)
    rule = _RULES.get(found["name"]) if found is not None else None
    if found is None or rule is None:
        raise UnknownText(text)
    try:
        rule(w, Line(text, found["result"] or "", found["name"], found["rest"] or ""))
    except (ValueError, KeyError, IndexError) as error:
        raise UnknownText(text, f"it is not of the form that builders write ({error})") from error


# ----------------------------------------------------------------- lane by lane

_FLAGS: Final = re.compile(r"^(?:(?:nsw|nuw|exact|inbounds|disjoint|nneg|tail|volatile) )+")


def _binary(w: LegacyWriter, line: Line) -> None:
    first, second = arguments(_FLAGS.sub("", line.rest))
    kind, a = w.typed(first)
    b = w.lanes(kind, second)
    names = w.lane_names(line.result, kind.lanes)
    for name, x, y in zip(names, a, b):
        if line.name == "fmul":
            # A product that is never contracted with a sum; libNVVM would make one rounding of two.
            symbol = {"float": "llvm.nvvm.mul.rn.f", "double": "llvm.nvvm.mul.rn.d"}[kind.name]
            w.declare(symbol, f"declare {kind.text} @{symbol}({kind.text}, {kind.text})")
            w.emit(f"call {kind.text} @{symbol}({kind.text} {x}, {kind.text} {y})", name)
        else:
            w.emit(f"{line.name} {kind.text} {x}, {y}", name)
    w.bind(line.result, names)


def _fneg(w: LegacyWriter, line: Line) -> None:
    kind, values = w.typed(line.rest)
    sign = str(-(1 << (kind.bits - 1)))
    integer = f"i{kind.bits}"
    flipped = [w.binary("xor", integer, w.bits(kind, value), sign) for value in values]
    w.bind(line.result, [w.cast("bitcast", integer, value, kind.text) for value in flipped])


def _compare(w: LegacyWriter, line: Line) -> None:
    predicate, rest = line.rest.split(" ", 1)
    first, second = arguments(rest)
    kind, a = w.typed(first)
    b = w.lanes(kind, second)
    w.bind(line.result, [w.emit(f"{line.name} {predicate} {kind.text} {x}, {y}") for x, y in zip(a, b)])


def _cast(w: LegacyWriter, line: Line) -> None:
    source, target = _FLAGS.sub("", line.rest).rsplit(" to ", 1)
    kind, values = w.typed(source)
    result, _ = read_type(target)
    if line.name == "bitcast" and kind.lanes != result.lanes:
        w.bind(line.result, _reshaped(w, kind, result, values))
        return
    w.bind(line.result, [w.emit(f"{line.name} {kind.text} {value} to {result.text}") for value in values])


def _reshaped(w: LegacyWriter, kind: Type, result: Type, values: list[str]) -> list[str]:
    """The same bits in more or fewer lanes."""
    if kind.bits * kind.lanes != result.bits * result.lanes:
        raise ValueError("the sizes differ")
    whole = f"i{max(kind.bits, result.bits)}"
    ratio = max(kind.bits, result.bits) // min(kind.bits, result.bits)
    lanes: list[str] = []
    if result.bits < kind.bits:
        for value in values:
            bits = w.bits(kind, value)
            for number in range(ratio):
                part = w.binary("lshr", whole, bits, number * result.bits) if number else bits
                lanes.append(w.resized(part, kind.bits, result.bits))
    else:
        for start in range(0, kind.lanes, ratio):
            lanes.append(_joined(w, kind, values[start : start + ratio], result.bits))
    return [w.cast("bitcast", f"i{result.bits}", value, result.text) for value in lanes]


def _joined(w: LegacyWriter, kind: Type, values: list[str], bits: int) -> str:
    total = w.resized(w.bits(kind, values[0]), kind.bits, bits)
    for number, value in enumerate(values[1:], 1):
        part = w.resized(w.bits(kind, value), kind.bits, bits)
        total = w.binary("or", f"i{bits}", total, w.binary("shl", f"i{bits}", part, number * kind.bits))
    return total


def _select(w: LegacyWriter, line: Line) -> None:
    (condition, conditions), (kind, a), (_, b) = (w.typed(part) for part in line.parts)
    if condition.lanes == 1:
        conditions = conditions * kind.lanes
    w.bind(line.result, [w.select(c, kind.text, x, y) for c, x, y in zip(conditions, a, b)])


# ---------------------------------------------------------------------- vectors


def _extract(w: LegacyWriter, line: Line) -> None:
    (_, values), lane = w.typed(line.parts[0]), line.parts[1].split(" ")[1]
    w.bind(line.result, [values[int(lane)]])


def _insert(w: LegacyWriter, line: Line) -> None:
    (_, values), value, lane = w.typed(line.parts[0]), w.scalar(line.parts[1]), int(line.parts[2].split(" ")[1])
    w.bind(line.result, [*values[:lane], value, *values[lane + 1 :]])


def _shuffle(w: LegacyWriter, line: Line) -> None:
    (_, a), (_, b), (_, order) = (w.typed(part) for part in line.parts)
    values = [*a, *b]
    w.bind(line.result, ["undef" if place == "undef" else values[int(place)] for place in order])


# ----------------------------------------------------------------------- memory


def _pointer(w: LegacyWriter, line: Line) -> None:
    inbounds = "inbounds " if line.word("inbounds") else ""
    element, base, index = arguments(_FLAGS.sub("", line.rest))
    bases, bases_values = w.typed(base)
    kind, indices = w.typed(index)
    if kind.lanes > bases.lanes:
        bases_values = bases_values * kind.lanes
    lanes = []
    for address, place in zip(bases_values, indices if kind.lanes > 1 else indices * bases.lanes):
        typed = w.pointer_to(element, address)
        moved = w.emit(f"getelementptr {inbounds}{element}, {element}* {typed}, {kind.text} {place}")
        lanes.append(w.cast("bitcast", f"{element}*", moved, "i8*"))
    w.bind(line.result, lanes)


def _alignment(parts: list[str], kind: Type) -> int:
    for part in parts:
        if part.startswith("align "):
            return int(part.removeprefix("align "))
    return max(1, kind.bits // 8)


def _load(w: LegacyWriter, line: Line) -> None:
    kind_text, address, *more = arguments(_FLAGS.sub("", line.rest))
    kind, _ = read_type(kind_text)
    align = _alignment(more, kind)
    values = legacy_memory.load(w, kind, w.scalar(address), align, volatile=line.word("volatile"))
    w.bind(line.result, values)


def _store(w: LegacyWriter, line: Line) -> None:
    value, address, *more = arguments(_FLAGS.sub("", line.rest))
    kind, values = w.typed(value)
    align = _alignment(more, kind)
    legacy_memory.store(w, kind, values, w.scalar(address), align, volatile=line.word("volatile"))


def _alloca(w: LegacyWriter, line: Line) -> None:
    kind, *more = line.parts
    aligned = f", {more[0]}" if more else ""
    w.bind(line.result, [w.cast("bitcast", f"{kind}*", w.emit(f"alloca {kind}{aligned}"), "i8*")])


_SCOPE: Final = ' syncscope("device")'
"""Of atomic instructions: written in LLVM 7 as it is today."""
_ATOMIC: Final = frozenset("add sub and or xor xchg max min umax umin".split())


def _atomic(w: LegacyWriter, line: Line) -> None:
    operation, rest = line.rest.split(" ", 1)
    address, value_and_order = arguments(rest)[:2]
    value, order = value_and_order.rsplit(" ", 1)
    scope = _SCOPE if value.endswith(_SCOPE) else ""
    value = value.removesuffix(_SCOPE)
    kind, (operand,) = w.typed(value)
    if operation in _ATOMIC and not kind.is_float:
        place = w.pointer_to(kind.text, w.scalar(address))
        old = w.emit(f"atomicrmw {operation} {kind.text}* {place}, {kind.text} {operand}{scope} {order}")
    elif operation == "fadd" and order == "monotonic":
        old = _atomic_sum(w, kind, w.scalar(address), operand)
    else:
        raise ValueError(f"an atomic {operation} of {kind.text}")
    w.bind(line.result, [old])


def _atomic_sum(w: LegacyWriter, kind: Type, address: str, value: str) -> str:
    """LLVM 7 has no ``atomicrmw fadd``, PTX has."""
    suffix, letter = {"float": ("f32", "f"), "double": ("f64", "d")}[kind.text]
    instruction = f'asm sideeffect "atom.add.{suffix} $0, [$1], $2;", "={letter},l,{letter},~{{memory}}"'
    return w.emit(f"call {kind.text} {instruction}(i8* {address}, {kind.text} {value})")


def _compare_exchange(w: LegacyWriter, line: Line) -> None:
    address, expected, last = line.parts
    value, success, failure = last.rsplit(" ", 2)
    scope = _SCOPE if value.endswith(_SCOPE) else ""
    value = value.removesuffix(_SCOPE)
    kind, (old,) = w.typed(expected)
    place = w.pointer_to(kind.text, w.scalar(address))
    text = f"{kind.text} {old}, {kind.text} {w.scalar(value)}{scope} {success} {failure}"
    w.bind(line.result, [w.emit(f"cmpxchg {kind.text}* {place}, {text}", line.result)])


def _extract_value(w: LegacyWriter, line: Line) -> None:
    pair, number = line.parts
    kind, name = re.split(r" (?=%)", pair)
    w.bind(line.result, [w.emit(f"extractvalue {kind} {name}, {number}")])


# ----------------------------------------------------------------- control flow


def _phi(w: LegacyWriter, line: Line) -> None:
    kind, rest = read_type(line.rest)
    w.phi(line.result, kind, [(found["value"], found["label"]) for found in _INCOMING.finditer(rest)])


def _branch(w: LegacyWriter, line: Line) -> None:
    first, *targets = line.parts
    w.line(f"br i1 {w.scalar(first)}, {', '.join(targets)}" if targets else f"br {first}")


def _return(w: LegacyWriter, line: Line) -> None:
    if line.rest == "void":
        w.line("ret void")
    else:
        kind, (value,) = w.typed(line.rest)
        w.line(f"ret {kind.text} {value}")


_MACHINE: Final = re.compile(
    r'^(?P<types>\{.*?\}) asm sideeffect (?P<text>"[^"]*", "[^"]*")\((?P<arguments>.*)\) convergent$'
)
"""An instruction of PTX with several results."""


def _machine_instruction(w: LegacyWriter, line: Line, found: re.Match[str]) -> None:
    kinds, passed = arguments(found["types"][1:-1]), []
    for part in arguments(found["arguments"]):
        kind, (value,) = w.typed(part)
        passed.append(f"{kind.text} {value}")
    types = f"{{ {', '.join(kinds)} }}"
    w.emit(f"call {types} asm sideeffect {found['text']}({', '.join(passed)}) convergent", line.result)


def _call(w: LegacyWriter, line: Line) -> None:
    found = _MACHINE.match(line.rest)
    if found is not None:
        _machine_instruction(w, line, found)
        return
    lanes = translate_call(w, line.text, line.rest)
    if line.result:
        w.bind(line.result, lanes)


_RULES: Final[dict[str, Callable[[LegacyWriter, Line], None]]] = {
    **dict.fromkeys("add sub mul sdiv udiv srem urem and or xor shl lshr ashr fadd fsub fmul fdiv".split(), _binary),
    **dict.fromkeys(
        "bitcast sext zext trunc sitofp uitofp fpext fptrunc inttoptr ptrtoint addrspacecast".split(), _cast
    ),
    **{"icmp": _compare, "fcmp": _compare, "fneg": _fneg, "select": _select},
    **{"extractelement": _extract, "insertelement": _insert, "shufflevector": _shuffle},
    **{"getelementptr": _pointer, "load": _load, "store": _store, "alloca": _alloca},
    **{"atomicrmw": _atomic, "cmpxchg": _compare_exchange, "extractvalue": _extract_value},
    **{"phi": _phi, "br": _branch, "ret": _return, "call": _call, "tail": _call},
    "unreachable": lambda w, line: w.line("unreachable"),
    "fence": lambda w, line: w.line(f"fence {line.rest}"),
}
