"""A function in the legacy dialect under construction: lines of scalars, what stands for a value of the other text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from hlojit.cuda.assemblers.legacy_values import INTEGER_OF, Type, UnknownText, lanes_of, read_type

_CONSTRAINT: Final = {"i16": "h", "half": "h", "i32": "r", "i64": "l", "float": "f", "double": "d"}


@final
class LegacyWriter:
    """Lines of one function.  Every value of the other text is the names of its lanes here."""

    def __init__(self, globals_: dict[str, str]):
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self.label = "entry"
        self.label_read = "entry"
        self._globals = globals_
        self._values: dict[str, list[str]] = {}
        self._ends: dict[str, str] = {}
        self._phis: list[tuple[int, str, Type, list[tuple[str, str]]]] = []
        self._next = 0

    # ------------------------------------------------------------------ lines

    def line(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def emit(self, text: str, name: str = "") -> str:
        """Append an instruction; its name."""
        if not name:
            self._next += 1
            name = f"%x{self._next}.l"
        self.lines.append(f"  {name} = {text}")
        return name

    def begin_block(self, label: str, *, read: bool = False) -> None:
        """Start a basic block; ``read`` if the other text has it too."""
        if read:
            self.label_read = label
        self.label = label
        self._ends[self.label_read] = label
        self.lines.append(f"{label}:")

    def fresh_label(self) -> str:
        """A label that the other text does not have."""
        self._next += 1
        return f"l{self._next}.l"

    def declare(self, symbol: str, declaration: str) -> None:
        """Remember a declaration, once per symbol."""
        self.declarations[symbol] = declaration

    # ----------------------------------------------------------------- values

    def bind(self, name: str, lanes: Sequence[str]) -> None:
        """What stands for a value from here on."""
        self._values[name] = list(lanes)

    def lanes(self, kind: Type, text: str) -> list[str]:
        """What stands for an operand."""
        values = self._values.get(text) or self._address(text) or lanes_of(kind, text)
        if values is None or len(values) != kind.lanes:
            raise UnknownText(f"{kind} {text}", "nothing of that type is known")
        return values

    def typed(self, text: str) -> tuple[Type, list[str]]:
        """An operand with its type in front."""
        kind, rest = read_type(text)
        return kind, self.lanes(kind, rest)

    def scalar(self, text: str) -> str:
        """A scalar operand with its type in front."""
        _, (value,) = self.typed(text)
        return value

    def _address(self, text: str) -> list[str] | None:
        inner = text.removeprefix("addrspacecast (ptr addrspace(3) ").removesuffix(" to ptr)")
        return [self._globals[inner]] if inner in self._globals else None

    def lane_names(self, name: str, lanes: int) -> list[str]:
        """Names for the lanes of a value."""
        return [name] if lanes == 1 else [f"{name}.{lane}" for lane in range(lanes)]

    # ------------------------------------------------------------------- phis

    def phi(self, name: str, kind: Type, incoming: list[tuple[str, str]]) -> None:
        """Values that may be known later only: written by ``finish``."""
        names = self.lane_names(name, kind.lanes)
        self.bind(name, names)
        self._phis.append((len(self.lines), name, kind, incoming))
        self.lines += [""] * kind.lanes

    def finish(self) -> list[str]:
        """All lines."""
        for line, name, kind, incoming in self._phis:
            pairs = [(self.lanes(kind, value), self._ends.get(label, label)) for value, label in incoming]
            for lane, lane_name in enumerate(self.lane_names(name, kind.lanes)):
                text = ", ".join(f"[ {values[lane]}, %{label} ]" for values, label in pairs)
                self.lines[line + lane] = f"  {lane_name} = phi {kind.text} {text}"
        return self.lines

    # ------------------------------------------------------------ instructions

    def cast(self, instruction: str, source: str, value: str, target: str) -> str:
        """A conversion of a scalar."""
        return value if source == target else self.emit(f"{instruction} {source} {value} to {target}")

    def bits(self, kind: Type, value: str) -> str:
        """A scalar as an integer."""
        return self.cast("bitcast", kind.name, value, INTEGER_OF.get(kind.name, kind.name))

    def resized(self, value: str, source: int, target: int) -> str:
        """An integer with more or fewer bits; more are 0."""
        return self.cast("zext" if target > source else "trunc", f"i{source}", value, f"i{target}")

    def binary(self, instruction: str, kind: str, a: str, b: str | int) -> str:
        """An operation on two scalars."""
        return self.emit(f"{instruction} {kind} {a}, {b}")

    def select(self, condition: str, kind: str, a: str, b: str | int) -> str:
        """One of two scalars."""
        return self.emit(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    def call(self, symbol: str, result: str, kinds: Sequence[str], values: Sequence[str]) -> str:
        """A call of what LLVM 7 knows."""
        self.declare(symbol, f"declare {result} @{symbol}({', '.join(kinds)})")
        passed = ", ".join(f"{kind} {value}" for kind, value in zip(kinds, values))
        if result == "void":
            self.line(f"call void @{symbol}({passed})")
            return ""
        return self.emit(f"call {result} @{symbol}({passed})")

    def ptx(self, instruction: str, result: str, kinds: Sequence[str], values: Sequence[str]) -> str:
        """One PTX instruction without side effects: ``$0`` is the result, ``$1`` ... the operands."""
        constraints = ",".join([f"={_CONSTRAINT[result]}", *(_CONSTRAINT[kind] for kind in kinds)])
        passed = ", ".join(f"{kind} {value}" for kind, value in zip(kinds, values))
        return self.emit(f'call {result} asm "{instruction}", "{constraints}"({passed})')

    def pointer_to(self, kind: str, address: str) -> str:
        """The address as a typed pointer."""
        return self.cast("bitcast", "i8*", address, f"{kind}*")
