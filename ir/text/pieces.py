"""The pieces of pretty forms that need code of their own (``types:...`` and ``<...>`` in the templates)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.attributes import DotDimensionNumbers, OpaqueAttr
from hlojit.ir.formats import ComplexType
from hlojit.ir.ops.attribute_kinds import EnumKind
from hlojit.ir.ops.definition import OpDefinition
from hlojit.ir.text.lexer import WORD
from hlojit.ir.text.spelling import (
    conv_dimensions,
    conv_is_regular,
    dot_algorithm_fields,
    print_symbol,
    quote,
)
from hlojit.ir.text.templates import OpState, Piece, Types, spell_function
from hlojit.ir.text.unspellable import Unspellable
from hlojit.ir.types import TensorType, TupleType, Type, function_type

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction
    from hlojit.ir.text.instructions import InstructionReader
    from hlojit.ir.text.printer import Printer

_INTEGERS: Final = r"\[(?:[0-9]{1,18}(?:, [0-9]{1,18})*)?\]"
_FORMAT: Final = re.compile(r"e([0-9]{1,9})m([0-9]{1,9})\b")


# types


def _spell_listing(types: Sequence[Type]) -> str:
    return ", ".join(map(str, types))


def _read_one(reader: InstructionReader) -> Type:
    return reader.types.read()


def _types_same(op: OpDefinition) -> Piece:
    def spell(instruction: Instruction) -> str:
        first = instruction.result_types[0] if len(instruction.results) == 1 else None
        if first is None or any(type is not first for type in instruction.operand_types):
            return spell_function(instruction)
        return str(first)

    def rule(written: Any, operands: Sequence[Type]) -> Sequence[Type]:
        return [written] * (len(operands) + 1)

    return Types(_read_one, rule, spell, several_results=True)


def _types_function(op: OpDefinition) -> Piece:
    def read(reader: InstructionReader) -> Any:
        if not reader.cursor.at("("):
            reader.cursor.expected("a function type such as (tensor<f32>) -> tensor<f32>")
        return reader.types.function()

    return Types(read, lambda written, operands: None, spell_function, several_results=True)


def _types_results(op: OpDefinition) -> Piece:
    def spell(instruction: Instruction) -> str:
        return _spell_listing(instruction.result_types)

    return Types(_read_one, lambda written, operands: None if operands else [written], spell)


class ArrowTypes(Types):
    """``A, B -> R``."""

    def __init__(self) -> None:
        super().__init__(self._read_arrow, lambda written, operands: None, self._spell_arrow)
        self.pattern = None

    @staticmethod
    def _read_arrow(reader: InstructionReader) -> Any:
        inputs = reader.types.listing()
        reader.cursor.expect("->")
        return function_type(inputs, reader.types.results())

    @staticmethod
    def _spell_arrow(instruction: Instruction) -> str:
        return f"{_spell_listing(instruction.operand_types)} -> {_spell_listing(instruction.result_types)}"


def _complex_types(op: OpDefinition) -> Piece:
    def real(type: Type) -> Type | None:
        if isinstance(type, TensorType) and isinstance(type.element_type, ComplexType):
            return type.with_element_type(type.element_type.component)
        return None

    def rule(written: Any, operands: Sequence[Type]) -> Sequence[Type] | None:
        part = real(written)
        return None if part is None else [*([part] * len(operands)), written]

    def spell(instruction: Instruction) -> str:
        part = real(instruction.result_types[0])
        same = all(type is part for type in instruction.operand_types)
        return str(instruction.result_types[0]) if same else spell_function(instruction)

    return Types(_read_one, rule, spell)


def _select_types(op: OpDefinition) -> Piece:
    def read(reader: InstructionReader) -> Any:
        first = reader.types.read()
        return (first, reader.types.read()) if reader.cursor.accept(",") else first

    def rule(written: Any, operands: Sequence[Type]) -> Sequence[Type] | None:
        return [written[0], written[1], written[1], written[1]] if isinstance(written, tuple) else None

    def spell(instruction: Instruction) -> str:
        predicate, on_true, on_false = instruction.operand_types
        result = instruction.result_types[0]
        return f"{predicate}, {result}" if on_true is on_false is result else spell_function(instruction)

    return Types(read, rule, spell)


def _tuple_type(op: OpDefinition) -> Piece:
    def rule(written: Any, operands: Sequence[Type]) -> Sequence[Type] | None:
        return [*written.elements, written] if isinstance(written, TupleType) else None

    def spell(instruction: Instruction) -> str:
        if tuple(rule(instruction.result_types[0], ()) or ()) != (
            *instruction.operand_types,
            *instruction.result_types,
        ):
            return spell_function(instruction)
        return str(instruction.result_types[0])

    return Types(_read_one, rule, spell)


class BarrierTypes(Piece):
    """``%a, %b : A, B`` or ``()``; results have the operands' types."""

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read operands and types."""
        cursor = reader.cursor
        state.operand_types = state.result_types = ()
        if cursor.accept("("):
            cursor.expect(")")
            return
        state.operands += reader.operands()
        if state.operands:
            cursor.expect(":")
            state.type_pos = cursor.pos
            state.operand_types = state.result_types = reader.types.listing()

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """Operands and types."""
        if instruction.operand_types != instruction.result_types:
            raise Unspellable
        if not instruction.operands:
            return "()"
        return f"{printer.names(instruction.operands)} : {_spell_listing(instruction.operand_types)}"


# attributes


class SliceRanges(Piece):
    """``[0:4, 1:9:2]``."""

    names = ("start_indices", "limit_indices", "strides")
    pattern = r"(\[[0-9:, ]*\])"

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the ranges."""
        cursor = reader.cursor

        def one() -> tuple[int, int, int]:
            start = cursor.integer("the start of a range")
            cursor.expect(":")
            limit = cursor.integer("the limit of a range")
            return start, limit, cursor.integer("a stride") if cursor.accept(":") else 1

        self._set(state.attributes, cursor.items("[", "]", one))

    def _set(self, attributes: dict[str, Any], ranges: Sequence[tuple[int, int, int]]) -> None:
        for name, values in zip(self.names, zip(*ranges) if ranges else ((), (), ())):
            attributes[name] = tuple(values)

    def convert(self, text: str | None) -> Mapping[str, Any]:
        """The three attributes."""
        assert text is not None
        found: dict[str, Any] = {}
        ranges = []
        for word in text[1:-1].split(",") if len(text) > 2 else ():
            numbers = tuple(map(int, word.split(":")))
            start, limit, stride = numbers if len(numbers) == 3 else (*numbers, 1)
            ranges.append((start, limit, stride))
        self._set(found, ranges)
        return found

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The ranges."""
        values = [instruction.attributes[name] for name in self.names]
        if len(set(map(len, values))) != 1:
            raise Unspellable
        ranges = (f"{a}:{b}" if s == 1 else f"{a}:{b}:{s}" for a, b, s in zip(*values))
        return f"[{', '.join(ranges)}]"


class Precision(Piece):
    """``, precision = [DEFAULT, HIGHEST]`` and ``, algorithm = <...>``, or nothing."""

    pattern = r"(?:, precision = \[(\w+(?:, \w+)*)\])?"
    glued = True

    def __init__(self, op: OpDefinition):
        self.names = tuple(name for name in ("precision_config", "algorithm") if op.attribute(name))
        spec = op.attribute("precision_config")
        element = getattr(spec.kind, "element", None) if spec else None
        self.keywords = element.keywords if isinstance(element, EnumKind) else ("DEFAULT", "HIGH", "HIGHEST")

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read what is there of both."""
        cursor = reader.cursor

        def precision() -> str:
            start = cursor.pos
            word = cursor.take(WORD, f"one of {', '.join(self.keywords)}")
            if word not in self.keywords:
                cursor.fail(f"expected one of {', '.join(self.keywords)}, found {word!r}", start)
            return word

        while cursor.accept(","):
            for word, name in (("precision", "precision_config"), ("algorithm", "algorithm")):
                if name in self.names and name not in state.attributes and cursor.accept_word(word):
                    cursor.expect("=")
                    found: Any = reader.attributes.records.dot_algorithm if name == "algorithm" else None
                    state.attributes[name] = found() if found else tuple(cursor.items("[", "]", precision))
                    break
            else:
                cursor.expected(" or ".join(repr(name.partition("_")[0]) for name in self.names))

    def convert(self, text: str | None) -> Mapping[str, Any]:
        """The configuration, if it is there."""
        if text is None:
            return {}
        words = tuple(text.split(", "))
        if not set(words) <= set(self.keywords):
            raise ValueError(text)
        return {"precision_config": words}

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """What is there of both."""
        text = ""
        if "precision_config" in instruction.attributes:
            text += f", precision = [{', '.join(instruction.attributes['precision_config'])}]"
        if "algorithm" in instruction.attributes:
            text += f", algorithm = {dot_algorithm_fields(instruction.attributes['algorithm'])}"
        return text


class DotDimensions(Piece):
    """``batching_dims = [0] x [0], contracting_dims = [2] x [1]``."""

    names = ("dot_dimension_numbers",)
    pattern = rf"((?:batching_dims = {_INTEGERS} x {_INTEGERS}, )?contracting_dims = {_INTEGERS} x {_INTEGERS})"

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read both pairs."""
        cursor = reader.cursor
        batching: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        if cursor.accept_word("batching_dims"):
            batching = self._pair(reader)
            cursor.expect(",")
        cursor.expect_word("contracting_dims")
        state.attributes[self.names[0]] = DotDimensionNumbers(*batching, *self._pair(reader))

    def _pair(self, reader: InstructionReader) -> tuple[tuple[int, ...], tuple[int, ...]]:
        reader.cursor.expect("=")
        lhs = reader.cursor.integers()
        reader.cursor.expect_word("x")
        return lhs, reader.cursor.integers()

    def convert(self, text: str | None) -> Mapping[str, Any]:
        """The record."""
        assert text is not None
        lists = [tuple(map(int, body.split(","))) if body else () for body in re.findall(r"\[([^\]]*)\]", text)]
        if len(lists) == 2:
            lists = [(), (), *lists]
        return {self.names[0]: DotDimensionNumbers(*lists)}

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """Both pairs; the first only if there are such dimensions."""
        dot = instruction.attributes[self.names[0]]
        text = f"contracting_dims = {list(dot.lhs_contracting)} x {list(dot.rhs_contracting)}"
        if dot.lhs_batching or dot.rhs_batching:
            text = f"batching_dims = {list(dot.lhs_batching)} x {list(dot.rhs_batching)}, {text}"
        return text


class ConvDimensions(Piece):
    """``[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]``."""

    names = ("dimension_numbers",)

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the record."""
        state.attributes[self.names[0]] = reader.attributes.records.conv_dimensions()

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The record; irregular ones have no short form."""
        conv = instruction.attributes[self.names[0]]
        if not conv_is_regular(conv):
            raise Unspellable
        return conv_dimensions(conv)


class Window(Piece):
    """``stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = ..., rhs_dilate = ..., reverse = [false, false]``."""

    keys: Final = {
        "stride": "window_strides",
        "pad": "padding",
        "lhs_dilate": "lhs_dilation",
        "rhs_dilate": "rhs_dilation",
        "reverse": "window_reversal",
    }
    names = tuple(keys.values())

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read what is there."""
        cursor = reader.cursor
        if cursor.at("}"):
            return
        while True:
            start = cursor.pos
            word = cursor.take(WORD, f"one of {', '.join(self.keys)}")
            name = self.keys.get(word)
            if name is None:
                cursor.fail(f"expected one of {', '.join(self.keys)}, found {word!r}", start)
            if name in state.attributes:
                cursor.fail(f"{word} is given twice", start)
            cursor.expect("=")
            state.attributes[name] = self._value(reader, word)
            if not cursor.accept(","):
                return

    def _value(self, reader: InstructionReader, word: str) -> Any:
        cursor = reader.cursor
        if word == "pad":
            return tuple(cursor.items("[", "]", lambda: self._pair(reader)))
        if word == "reverse":
            flags = re.compile(r"true|false|[01]\b")
            return tuple(cursor.items("[", "]", lambda: cursor.take(flags, "true or false") in ("true", "1")))
        return cursor.integers()

    def _pair(self, reader: InstructionReader) -> tuple[int, ...]:
        start = reader.cursor.pos
        pair = reader.cursor.integers()
        if len(pair) != 2:
            reader.cursor.fail(f"expected [low, high], found {len(pair)} numbers", start)
        return pair

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """What is there; an empty window is nothing."""
        words = []
        for key, name in self.keys.items():
            value = instruction.attributes.get(name)
            if value is None:
                continue
            if key == "pad":
                if any(len(pair) != 2 for pair in value):
                    raise Unspellable
                words.append(f"pad = [{', '.join(str(list(pair)) for pair in value)}]")
            elif key == "reverse":
                words.append(f"reverse = [{', '.join('true' if flag else 'false' for flag in value)}]")
            else:
                words.append(f"{key} = {list(value)}")
        return ", ".join(words)


class ExponentMantissa(Piece):
    """``e8m7``."""

    names = ("exponent_bits", "mantissa_bits")
    pattern = r"(e[0-9]{1,9}m[0-9]{1,9})"

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the format."""
        state.attributes.update(self.convert(reader.cursor.take(_FORMAT, "a format such as e8m7")))

    def convert(self, text: str | None) -> Mapping[str, Any]:
        """The two attributes."""
        match = _FORMAT.fullmatch(text or "")
        assert match is not None
        return {"exponent_bits": int(match[1]), "mantissa_bits": int(match[2])}

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The format."""
        text = f"e{instruction.attributes['exponent_bits']}m{instruction.attributes['mantissa_bits']}"
        if _FORMAT.fullmatch(text) is None:
            raise Unspellable
        return text


class CallTarget(Piece):
    """``@name`` as a string attribute."""

    names = ("call_target_name",)

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the symbol."""
        state.attributes[self.names[0]] = reader.cursor.symbol()

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The symbol."""
        name = instruction.attributes[self.names[0]]
        return print_symbol(name) if "::@" not in name else f"@{quote(name)}"


class Sharding(Piece):
    """``<@mesh, [{"x"}, {}]>``, kept as the text of an ``#sdy.sharding`` attribute."""

    names = ("sharding",)

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the brackets."""
        state.attributes[self.names[0]] = OpaqueAttr(f"#sdy.sharding{reader.cursor.balanced('<')}")

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The brackets."""
        sharding = instruction.attributes.get(self.names[0])
        if not isinstance(sharding, OpaqueAttr) or not sharding.text.startswith("#sdy.sharding<"):
            raise Unspellable
        return sharding.text[len("#sdy.sharding") :]


PIECES: Final[dict[str, Callable[[OpDefinition], Piece]]] = {
    "types:same": _types_same,
    "types:function": _types_function,
    "types:arrow": lambda op: ArrowTypes(),
    "types:results": _types_results,
    "<complex_types>": _complex_types,
    "<select_types>": _select_types,
    "<tuple_type>": _tuple_type,
    "<barrier>": lambda op: BarrierTypes(),
    "<slice_ranges>": lambda op: SliceRanges(),
    "<precision>": Precision,
    "<dot_dimensions>": lambda op: DotDimensions(),
    "<conv_dimensions>": lambda op: ConvDimensions(),
    "<window>": lambda op: Window(),
    "<exponent_mantissa>": lambda op: ExponentMantissa(),
    "<call_target>": lambda op: CallTarget(),
    "<sharding>": lambda op: Sharding(),
}
"""Makes each piece that a template can name, for one op."""
