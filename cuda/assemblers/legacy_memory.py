"""Loads and stores of the legacy dialect: the widest accesses that their alignment allows, as words where lanes are narrow.

LLVM 7 splits a load of sixteen bytes ``<16 x i8>`` into bytes; as ``<4 x i32>`` it is one access of 128 bits.
"""

from __future__ import annotations

from typing import Final

from hlojit.cuda.assemblers.legacy_values import Type
from hlojit.cuda.assemblers.legacy_writer import LegacyWriter

WIDEST: Final = 16
"""Bytes of one access."""


def load(w: LegacyWriter, kind: Type, address: str, align: int, *, volatile: bool = False) -> list[str]:
    """The lanes of a value that lies in memory."""
    size = kind.bits // 8
    chunk = min(WIDEST, align, size * kind.lanes)
    values: list[str] = []
    for start in range(0, size * kind.lanes, chunk):
        values += _load_chunk(w, kind, _moved(w, address, start), chunk, volatile)
    return values


def store(w: LegacyWriter, kind: Type, values: list[str], address: str, align: int, *, volatile: bool = False) -> None:
    """Write all lanes."""
    size = kind.bits // 8
    chunk = min(WIDEST, align, size * kind.lanes)
    count = chunk // size
    for number in range(0, kind.lanes, count):
        place = _moved(w, address, number * size)
        _store_chunk(w, kind, values[number : number + count], place, chunk, volatile)


def _moved(w: LegacyWriter, address: str, offset: int) -> str:
    return w.emit(f"getelementptr inbounds i8, i8* {address}, i64 {offset}") if offset else address


def _unit(kind: Type, chunk: int) -> tuple[str, int]:
    """The type and the bits of what an access of ``chunk`` bytes consists of."""
    if kind.bits // 8 == chunk or kind.bits >= 32:
        return kind.text, kind.bits
    bits = min(32, chunk * 8)
    return f"i{bits}", bits


def _load_chunk(w: LegacyWriter, kind: Type, address: str, chunk: int, volatile: bool) -> list[str]:
    unit, bits = _unit(kind, chunk)
    count = chunk * 8 // bits
    access = unit if count == 1 else f"<{count} x {unit}>"
    word = "volatile " if volatile else ""
    loaded = w.emit(f"load {word}{access}, {access}* {w.pointer_to(access, address)}, align {chunk}")
    units = [loaded] if count == 1 else [w.emit(f"extractelement {access} {loaded}, i32 {n}") for n in range(count)]
    if bits == kind.bits:
        return units
    lanes = []
    for value in units:
        for low in range(0, bits, kind.bits):
            part = w.binary("lshr", unit, value, low) if low else value
            integer = w.resized(part, bits, kind.bits)
            lanes.append(w.cast("bitcast", f"i{kind.bits}", integer, kind.text))
    return lanes


def _store_chunk(w: LegacyWriter, kind: Type, values: list[str], address: str, chunk: int, volatile: bool) -> None:
    unit, bits = _unit(kind, chunk)
    if bits != kind.bits:
        per = bits // kind.bits
        values = [_packed(w, kind, values[start : start + per], bits) for start in range(0, len(values), per)]
    count = len(values)
    access = unit if count == 1 else f"<{count} x {unit}>"
    whole = values[0]
    if count > 1:
        whole = "undef"
        for number, value in enumerate(values):
            whole = w.emit(f"insertelement {access} {whole}, {unit} {value}, i32 {number}")
    word = "volatile " if volatile else ""
    w.line(f"store {word}{access} {whole}, {access}* {w.pointer_to(access, address)}, align {chunk}")


def _packed(w: LegacyWriter, kind: Type, values: list[str], bits: int) -> str:
    total = ""
    for number, value in enumerate(values):
        part = w.resized(w.bits(kind, value), kind.bits, bits)
        if number:
            part = w.binary("shl", f"i{bits}", part, number * kind.bits)
            part = w.binary("or", f"i{bits}", total, part)
        total = part
    return total
