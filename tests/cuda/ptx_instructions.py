"""PTX's instructions on numbers, for all threads of a block that are at one place: moves, bits, arithmetic, conversions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .ptx_numbers import TYPES, UNSIGNED, compared, converted, fused, fused_pairs, narrowed, number_first, widened


@dataclass
class Instruction:
    """One statement."""

    words: list[str]
    operands: list[str]
    predicate: str = ""
    negated: bool = False
    text: str = ""


@dataclass
class Entry:
    """One kernel: its parameters' names, registers' widths, statements, labels."""

    parameters: list[str]
    widths: dict[str, int]
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


def split_operands(text: str) -> list[str]:
    return [part.strip() for part in re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,{\[])+", text) if part.strip()]


class Instructions:
    """Registers of a block's threads and what is computed with them; memory and the order of threads are a block's."""

    def __init__(self, entry: Entry, threads: int, special: dict[str, Any], symbols: dict[str, int]):
        """``special``: registers that are read only; ``symbols``: where constants and shared memory begin, by name."""
        self.entry, self.threads, self.special, self.symbols = entry, threads, special, symbols
        self.registers: dict[str, np.ndarray[Any, Any]] = {}

    def width(self, register: str) -> int:
        return self.entry.widths[re.match(r"%[a-zA-Z]+", register)[0]]  # type: ignore[index]

    def bits(self, operand: str, where: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A register's bits (predicates: bool)."""
        if operand in self.special:
            return self.special[operand][where]
        if operand not in self.registers:
            # Undefined, and allowed where nothing depends on it (the other half of a register, say).
            width = self.width(operand)
            assert width > 1, f"{operand} is not defined"
            self.registers[operand] = np.full(self.threads, 0xA5A5A5A5A5A5A5A5 & (1 << width) - 1, UNSIGNED[width])
        return self.registers[operand][where]

    def value(self, operand: str, kind: str, where: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """An operand as a number of a type."""
        dtype = TYPES[kind]
        if operand[0] == "%":
            return self.bits(operand, where).astype(UNSIGNED[dtype.itemsize * 8]).view(dtype)
        bits = self.literal(operand, kind) & ((1 << dtype.itemsize * 8) - 1)
        return np.full(len(where), bits, UNSIGNED[dtype.itemsize * 8]).view(dtype)

    def literal(self, text: str, kind: str) -> int:
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", text):
            return int(text[2:], 16)
        if text in self.symbols:
            return self.symbols[text]
        return int(text.removesuffix("U"), 0)

    def write(self, register: str, values: np.ndarray[Any, Any], where: np.ndarray[Any, Any]) -> None:
        """Set a register; signed numbers keep their sign in a wider one."""
        if register == "_":
            return
        width = self.width(register)
        dtype = np.dtype(bool) if width == 1 else np.dtype(UNSIGNED[width])
        if width > 1 and values.dtype.kind == "f":
            values = values.view(UNSIGNED[values.dtype.itemsize * 8])
        elif values.dtype.kind == "i":
            values = values.astype(f"i{dtype.itemsize}").view(dtype)
        self.registers.setdefault(register, np.zeros(self.threads, dtype))[where] = values.astype(dtype)

    def each(self, group: str) -> list[str]:
        return split_operands(group[1:-1]) if group[0] == "{" else [group]

    # -------------------------------------------------------------- moves, bits

    def op_mov(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        kind = instruction.words[-1]
        target, source = instruction.operands
        if kind == "pred":
            truth = {"0": False, "-1": True, "1": True}
            value = np.full(len(where), truth[source]) if source in truth else self.bits(source, where)
            self.write(target, value, where)
        elif target[0] == "{":
            targets = self.each(target)
            bits = TYPES[kind].itemsize * 8 // len(targets)
            whole = self.value(source, kind, where)
            for number, name in enumerate(targets):
                self.write(name, (whole >> np.asarray(number * bits, whole.dtype)).astype(UNSIGNED[bits]), where)
        elif source[0] == "{":
            parts = self.each(source)
            bits = TYPES[kind].itemsize * 8 // len(parts)
            total = np.zeros(len(where), TYPES[kind])
            for number, name in enumerate(parts):
                part = self.value(name, f"u{bits}", where).astype(total.dtype)
                total |= part << np.asarray(number * bits, total.dtype)
            self.write(target, total, where)
        else:
            self.write(target, self.value(source, kind, where), where)

    def op_selp(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        kind = instruction.words[-1]
        target, a, b, condition = instruction.operands
        if kind == "pred":
            values = [self.bits(each, where) for each in (a, b)]
        else:
            values = [self.value(each, kind.replace("f", "b"), where) for each in (a, b)]
        self.write(target, np.where(self.bits(condition, where), *values), where)

    def _bitwise(self, instruction: Instruction, where: np.ndarray[Any, Any], function: Any) -> None:
        kind = instruction.words[-1]
        target, *sources = instruction.operands
        values = [self._truth(each, where) if kind == "pred" else self.value(each, kind, where) for each in sources]
        self.write(target, function(*values), where)

    def _truth(self, operand: str, where: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.full(len(where), operand != "0") if operand[0] != "%" else self.bits(operand, where)

    def op_and(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        self._bitwise(instruction, where, np.bitwise_and)

    def op_or(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        self._bitwise(instruction, where, np.bitwise_or)

    def op_xor(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        self._bitwise(instruction, where, np.bitwise_xor)

    def op_not(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        self._bitwise(instruction, where, np.invert)

    def _shifted(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> tuple[Any, Any, int]:
        kind = instruction.words[-1]
        value = self.value(instruction.operands[1], kind, where)
        return value, self.value(instruction.operands[2], "u32", where), TYPES[kind].itemsize * 8

    def op_shl(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        value, amount, bits = self._shifted(instruction, where)
        shifted = value << np.minimum(amount, bits - 1).astype(value.dtype)
        self.write(instruction.operands[0], np.where(amount < bits, shifted, 0).astype(value.dtype), where)

    def op_shr(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        value, amount, bits = self._shifted(instruction, where)
        shifted = value >> np.minimum(amount, bits - 1).astype(value.dtype)
        if value.dtype.kind == "u":
            shifted = np.where(amount < bits, shifted, 0).astype(value.dtype)
        self.write(instruction.operands[0], shifted, where)

    def op_shf(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        target, low, high, amount = instruction.operands
        whole = self.value(low, "u32", where).astype(np.uint64)
        whole |= self.value(high, "u32", where).astype(np.uint64) << np.uint64(32)
        count = self.value(amount, "u32", where).astype(np.uint64)
        count = count & np.uint64(31) if "wrap" in instruction.words else np.minimum(count, np.uint64(32))
        result = whole << count >> np.uint64(32) if instruction.words[1] == "l" else whole >> count
        self.write(target, result.astype(np.uint32), where)

    def op_bfe(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        kind = instruction.words[-1]
        target, *sources = instruction.operands
        value = self.value(sources[0], kind, where)
        start, length = (self.value(each, "u32", where).astype(value.dtype) for each in sources[1:])
        assert kind == "u32" and (length < 32).all() and (start < 32).all()
        self.write(target, value >> start & ((np.uint32(1) << length) - np.uint32(1)), where)

    def op_bfi(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        kind = instruction.words[-1].replace("b", "u")
        target, *sources = instruction.operands
        inserted, base = (self.value(each, kind, where) for each in sources[:2])
        one = base.dtype.type(1)
        start, length = (self.value(each, "u32", where).astype(base.dtype) for each in sources[2:])
        mask = ((one << length) - one) << start
        self.write(target, base & ~mask | inserted << start & mask, where)

    def op_prmt(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        target, low, high, control = instruction.operands
        parts = [self.value(each, "u32", where)[:, None].view(np.uint8) for each in (low, high)]
        choices, selected = np.concatenate(parts, 1), self.value(control, "u32", where)
        result = np.zeros((len(where), 4), np.uint8)
        for number in range(4):
            code = selected >> np.uint32(4 * number)
            byte = np.take_along_axis(choices, (code & 7)[:, None].astype(np.int64), 1)[:, 0]
            result[:, number] = np.where(code & 8, np.where(byte & 0x80, 0xFF, 0), byte)
        self.write(target, result.view(np.uint32)[:, 0], where)

    def op_popc(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        value = self.value(instruction.operands[1], instruction.words[-1], where)
        self.write(instruction.operands[0], np.bitwise_count(value).astype(np.uint32), where)

    def op_clz(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        value = self.value(instruction.operands[1], instruction.words[-1], where)
        bits = value.dtype.itemsize * 8
        self.write(
            instruction.operands[0], np.array([bits - int(each).bit_length() for each in value], np.uint32), where
        )

    def op_brev(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        value = self.value(instruction.operands[1], instruction.words[-1], where)
        bits = value.dtype.itemsize * 8
        turned = [int(f"{int(each):0{bits}b}"[::-1], 2) for each in value]
        self.write(instruction.operands[0], np.array(turned, value.dtype), where)

    # -------------------------------------------------------------- arithmetic

    def _halves(self, instruction: Instruction, where: np.ndarray[Any, Any], function: Any) -> bool:
        """Two numbers of 16 bits in one register."""
        kind, pair, _ = instruction.words[-1].partition("x2")
        if not pair:
            return False
        target, *sources = instruction.operands
        values = [np.ascontiguousarray(self.value(each, "u32", where))[:, None].view(TYPES[kind]) for each in sources]
        result = np.ascontiguousarray(function(*values).astype(TYPES[kind]))
        self.write(target, result.view(np.uint32)[:, 0], where)
        return True

    def _arithmetic(self, instruction: Instruction, where: np.ndarray[Any, Any], function: Any) -> None:
        if self._halves(instruction, where, function):
            return
        kind = instruction.words[-1]
        target, *sources = instruction.operands
        values = [self.value(each, kind, where) for each in sources]
        self.write(target, function(*values).astype(TYPES[kind]), where)

    def op_add(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        self._arithmetic(instruction, where, np.add)

    def op_sub(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        self._arithmetic(instruction, where, np.subtract)

    def op_mul(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        if instruction.words[1] in ("wide", "hi"):
            target, *sources = instruction.operands
            self.write(target, self._product(instruction, sources, where), where)
        else:
            self._arithmetic(instruction, where, np.multiply)

    def _product(self, instruction: Instruction, sources: list[str], where: np.ndarray[Any, Any]) -> Any:
        kind = instruction.words[-1]
        bits, signed = int(kind[1:]), kind[0] == "s"
        a, b = (self.value(each, kind, where) for each in sources[:2])
        products = [int(x) * int(y) for x, y in zip(a, b)]
        if instruction.words[1] == "hi":
            return np.array([(each >> bits) & ((1 << bits) - 1) for each in products], UNSIGNED[bits])
        wide = np.array([each & ((1 << 2 * bits) - 1) for each in products], UNSIGNED[2 * bits])
        return wide.view(TYPES[f"s{2 * bits}"]) if signed else wide

    def op_mad(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        if instruction.words[1] == "wide":
            product = self._product(instruction, instruction.operands[1:], where)
            kind = f"{instruction.words[-1][0]}{product.dtype.itemsize * 8}"
            total = product + self.value(instruction.operands[3], kind, where)
            self.write(instruction.operands[0], total.astype(product.dtype), where)
        else:
            self._arithmetic(instruction, where, lambda a, b, c: a * b + c)

    def op_fma(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        if instruction.words[-1].endswith("x2"):
            assert instruction.words[1:-1] == ["rn"]
            target, *sources = instruction.operands
            words = [self.value(each, "u32", where) for each in sources]
            self.write(target, fused_pairs(instruction.words[-1].removesuffix("x2"), *words), where)
            return
        self._arithmetic(instruction, where, fused)

    def op_div(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        if instruction.words[-1][0] == "f":
            assert "rn" in instruction.words
            self._arithmetic(instruction, where, np.divide)
        else:
            self._arithmetic(instruction, where, lambda a, b: np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)))

    def op_rem(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        self._arithmetic(instruction, where, np.fmod)

    def op_rcp(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        assert "rn" in instruction.words
        self._arithmetic(instruction, where, lambda a: a.dtype.type(1) / a)

    def op_sqrt(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        assert "rn" in instruction.words
        self._arithmetic(instruction, where, np.sqrt)

    def op_neg(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        self._arithmetic(instruction, where, np.negative)

    def op_abs(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        self._arithmetic(instruction, where, np.abs)

    def op_min(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        self._arithmetic(instruction, where, number_first(np.minimum if "NaN" in instruction.words else np.fmin, True))

    def op_max(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        self._arithmetic(instruction, where, number_first(np.maximum if "NaN" in instruction.words else np.fmax, False))

    def op_copysign(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        self._arithmetic(instruction, where, lambda sign, magnitude: np.copysign(magnitude, sign))

    def op_setp(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        compare, *more = instruction.words[1:]
        target, first, second, *third = instruction.operands
        a, b = (self.value(each, more[-1], where) for each in (first, second))
        if compare in ("lo", "ls", "hi", "hs"):
            compare = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}[compare]
        result = compared(compare, a, b)
        if third:
            other = self._truth(third[0].removeprefix("!"), where) != third[0].startswith("!")
            combine = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[more[0]]
            result = combine(result, other)
        assert "|" not in target
        self.write(target, result, where)

    def op_cvt(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        *modes, target, source = instruction.words[1:]
        if target.endswith("x2"):
            self._pair_converted(instruction, where)
            return
        value = self.value(instruction.operands[1], source, where)
        self.write(instruction.operands[0], converted(value, TYPES[target], modes), where)

    def _pair_converted(self, instruction: Instruction, where: np.ndarray[Any, Any]) -> None:
        """Two values: the first operand's goes to the upper half."""
        kind, source = instruction.words[-2:]
        target, *operands = instruction.operands
        if source == "f32":
            high, low = (narrowed(self.value(each, "f32", where), kind[:-2], instruction.words) for each in operands)
        else:
            both = self.value(operands[0], "u16", where)
            low, high = (
                widened((both >> shift).astype(np.uint8), source[:-2]) for shift in (np.uint16(0), np.uint16(8))
            )
        bits = low.dtype.itemsize * 8
        wide = UNSIGNED[2 * bits]
        self.write(target, high.astype(wide) << wide(bits) | low.astype(wide), where)
