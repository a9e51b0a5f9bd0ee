"""Pretty forms written by hand: constants, returns, calls, and the ops with regions that have a form of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.attributes import Dense, ElidedElements
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.graph import Block, Instruction
from hlojit.ir.location import UNKNOWN
from hlojit.ir.ops.definition import OpDefinition, Trait, find_op
from hlojit.ir.quantized import is_quantized
from hlojit.ir.text.lexer import WORD
from hlojit.ir.text.spelling import print_attribute, print_symbol
from hlojit.ir.text.templates import END, VALUE, VALUES, Fast, Form, OpState, spell_function
from hlojit.ir.text.unspellable import Unspellable
from hlojit.ir.types import FunctionType, TensorType, Type, tensor

if TYPE_CHECKING:
    from hlojit.ir.text.instructions import InstructionReader
    from hlojit.ir.text.printer import Printer

_FUNCTION: Final = r"(\([^()\n]*\) -> (?:\([^()\n]*\)|[^()\n]*?))"


class ConstantForm(Form):
    """``stablehlo.constant dense<1.0> : tensor<f32>``, or behind the name a generic form without quotes."""

    pattern = re.compile(r' (dense<[^<>"\[\]\n]*> : tensor<[^<>\n]*(?:<[^<>\n]*>)?>)' + END)

    def __init__(self, op: OpDefinition):
        self.op = op

    def fast(self, reader: InstructionReader, pos: int) -> Fast | None:
        """Splats, each of which is read once."""
        match = self.pattern.match(reader.cursor.text, pos)
        if match is None:
            return None
        value = reader.splats.get(match[1])
        if value is None:
            return None
        return [], (value.type,), {"value": value}, (), match[2], match.end()

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read attributes and elements."""
        cursor = reader.cursor
        if cursor.at("("):
            reader.generic(state)
            return
        if cursor.at("{"):
            reader.attribute_dictionary(state)
        start = cursor.pos
        if not (cursor.at("dense") or cursor.at("#")):
            cursor.expected("dense<...> : tensor<...>")
        value = reader.attributes.constant()
        if not isinstance(value, (Dense, ElidedElements)):
            cursor.fail("expected dense<...> : tensor<...>", start)
        if isinstance(value, Dense) and value.is_splat:
            reader.splats[cursor.text[start : cursor.pos].rstrip()] = value
        state.attributes["value"] = value
        state.operand_types = ()
        state.result_types = (value.type,)

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """Attributes and elements."""
        value = instruction.attributes["value"]
        if value.type is not instruction.result_types[0] or is_quantized(value.type):
            # MLIR has no elements of quantized types: the generic form has their integers.
            raise Unspellable
        dictionary = printer.attribute_dictionary(instruction, frozenset({"value"}))
        return f"{' ' if dictionary else ''}{dictionary} {print_attribute(value)}"


def _read_listing(reader: InstructionReader) -> tuple[Type, ...]:
    return tuple(reader.types.listing())


def _read_function(reader: InstructionReader) -> FunctionType:
    return reader.types.function()


class ReturnForm(Form):
    """``return %a, %b : A, B``."""

    pattern = re.compile(rf" ({VALUES}) : ([^()\n]*?)" + END)

    def fast(self, reader: InstructionReader, pos: int) -> Fast | None:
        """One line."""
        match = self.pattern.match(reader.cursor.text, pos)
        if match is None:
            return None
        types = reader.written(match, 2, _read_listing)
        operands = reader.known_values(match[1])
        if operands is None or types is None or tuple(value.type for value in operands) != types:
            return None
        return operands, (), {}, (), match[3], match.end()

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read operands and types."""
        cursor = reader.cursor
        state.operands = reader.operands()
        if cursor.at("{"):
            reader.attribute_dictionary(state)
        state.operand_types = state.result_types = ()
        if state.operands:
            cursor.expect(":")
            state.type_pos = cursor.pos
            state.operand_types = reader.types.listing()

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """Operands and types."""
        dictionary = printer.attribute_dictionary(instruction, frozenset())
        if dictionary:
            dictionary = f" {dictionary}"
        if not instruction.operands:
            return dictionary
        types = ", ".join(map(str, instruction.operand_types))
        return f" {printer.names(instruction.operands)}{dictionary} : {types}"


class CallForm(Form):
    """``call @f(%a) : (A) -> R``."""

    pattern = re.compile(rf" @([A-Za-z_][\w$.]*)\(({VALUES})?\) : {_FUNCTION}" + END)

    def fast(self, reader: InstructionReader, pos: int) -> Fast | None:
        """One line."""
        match = self.pattern.match(reader.cursor.text, pos)
        if match is None:
            return None
        types = reader.written(match, 3, _read_function)
        operands = reader.known_values(match[2])
        if operands is None or types is None or tuple(value.type for value in operands) != types.inputs:
            return None
        return operands, types.results, {"callee": match[1]}, (), match[4], match.end()

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read callee, operands and types."""
        cursor = reader.cursor
        state.attributes["callee"] = cursor.symbol()
        cursor.expect("(")
        state.operands = reader.operands()
        if not cursor.accept(")"):
            cursor.expected("an operand or ')'")
        if cursor.at("{"):
            reader.attribute_dictionary(state)
        reader.function_type(state)

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """Callee, operands and types."""
        dictionary = printer.attribute_dictionary(instruction, frozenset({"callee"}))
        if dictionary:
            dictionary = f" {dictionary}"
        callee = print_symbol(instruction.attributes["callee"])
        return f" {callee}({printer.names(instruction.operands)}){dictionary} : {spell_function(instruction)}"


class ReduceForm(Form):
    """``(%x init: %i) applies stablehlo.add across dimensions = [1] : ...``, or with ``reducer(...) {...}``."""

    pattern = re.compile(
        rf"\(({VALUE}) init: ({VALUE})\) applies ([\w.]+) across dimensions = \[((?:[0-9]{{1,18}}(?:, [0-9]{{1,18}})*)?)\]"
        rf" : {_FUNCTION}" + END
    )

    def fast(self, reader: InstructionReader, pos: int) -> Fast | None:
        """One line, one operand, one combiner."""
        match = self.pattern.match(reader.cursor.text, pos)
        if match is None:
            return None
        operands = reader.known_values(f"{match[1]}, {match[2]}")
        types = reader.written(match, 5, _read_function)
        op = find_op(match[3])
        if operands is None or types is None or op is None or not self._combines(op):
            return None
        first = operands[0].type
        if tuple(value.type for value in operands) != types.inputs or not isinstance(first, TensorType):
            return None
        dimensions = tuple(map(int, match[4].split(","))) if match[4] else ()
        block = combiner_block(op, _scalar(first), UNKNOWN)
        return operands, types.results, {"dimensions": dimensions}, [block], match[6], match.end()

    @staticmethod
    def _combines(op: OpDefinition) -> bool:
        return Trait.COMMUTATIVE in op.traits and not op.regions and len(op.operands) == 2

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read pairs of operands, dimensions, types and the combiner."""
        cursor = reader.cursor
        inputs: list[tuple[str, int]] = []
        inits: list[tuple[str, int]] = []
        while True:
            cursor.expect("(")
            inputs.append(reader.operand())
            cursor.expect_word("init")
            cursor.expect(":")
            inits.append(reader.operand())
            cursor.expect(")")
            if not cursor.accept(","):
                break
        state.operands = inputs + inits
        combiner = None
        if cursor.accept_word("applies"):
            combiner = self._combiner(reader)
        elif not cursor.at_word("across"):
            cursor.expected("'applies' or 'across'")
        cursor.expect_word("across")
        cursor.expect_word("dimensions")
        cursor.expect("=")
        state.attributes["dimensions"] = cursor.integers()
        if cursor.at("{"):
            reader.attribute_dictionary(state)
        reader.function_type(state)
        if combiner is None:
            self._reducer(reader, state)
            return
        first = reader.value(*inputs[0]).type
        if not isinstance(first, TensorType):
            cursor.fail(f"expected a tensor to reduce, found {first}", inputs[0][1])
        state.location = reader.location(state)
        state.regions = [combiner_block(combiner, _scalar(first), state.location)]

    def _combiner(self, reader: InstructionReader) -> OpDefinition:
        cursor = reader.cursor
        start = cursor.pos
        name = reader.op_name()
        op = find_op(name)
        if op is None or not self._combines(op):
            cursor.fail(f"expected a commutative op of two operands to apply, found {name!r}", start)
        return op

    def _reducer(self, reader: InstructionReader, state: OpState) -> None:
        cursor = reader.cursor
        cursor.expect_word("reducer")
        pairs = []
        while cursor.accept("("):
            first = reader.block_argument()
            cursor.expect(",")
            pairs.append((first, reader.block_argument()))
            cursor.expect(")")
        arguments = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
        state.regions = [reader.region(arguments)]

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """Short if the combiner is one commutative op on the block's arguments."""
        count = len(instruction.operands) // 2
        if len(instruction.operands) % 2 or not count:
            raise Unspellable
        names = [printer.name(value) for value in instruction.operands]
        text = ", ".join(f"({a} init: {b})" for a, b in zip(names[:count], names[count:]))
        combiner = simple_combiner(instruction)
        if combiner:
            text += f" applies {combiner}"
        dictionary = printer.attribute_dictionary(instruction, frozenset({"dimensions"}))
        text += f" across dimensions = {list(instruction.attributes['dimensions'])}"
        text += f"{' ' if dictionary else ''}{dictionary} : {spell_function(instruction)}"
        if combiner:
            return text
        block = instruction.regions[0]
        if len(block.arguments) != 2 * count:
            raise Unspellable
        body = printer.region(block, with_arguments=False)
        arguments = [printer.argument(value) for value in block.arguments]
        pairs = " ".join(f"({a}, {b})" for a, b in zip(arguments[:count], arguments[count:]))
        return f"{text}\n{printer.indentation} reducer{pairs}  {body}"


def _scalar(type: TensorType) -> TensorType:
    """What a short combiner combines: elements; numbers in blocks in f32."""
    return tensor((), "f32" if isinstance(type.element_type, BlockFormat) else type.element_type)


def combiner_block(op: OpDefinition, type: TensorType, location: Any) -> Block:
    """The block that applies ``op`` to its two arguments and returns the result."""
    block = Block([type, type])
    result = block.append(Instruction(op, block.arguments, [type], location=location))
    returning = find_op("stablehlo.return")
    assert returning is not None
    block.append(Instruction(returning, result.results, [], location=location))
    return block


def simple_combiner(instruction: Instruction) -> str:
    """The name of the one commutative op that a reduction applies, or nothing if it does more."""
    block = instruction.regions[0]
    first = block.first
    if len(block) != 2 or first is None or first.discardable or first.attributes or first.regions:
        return ""
    if Trait.COMMUTATIVE not in first.op.traits or not first.name.startswith("stablehlo."):
        return ""
    input_type = instruction.operand_types[0]
    scalar = _scalar(input_type) if isinstance(input_type, TensorType) else None
    types = (*first.operand_types, *first.result_types)
    if list(first.operands) != block.arguments or any(type is not scalar for type in types) or len(types) != 3:
        return ""
    last = block.terminator
    returns = last.name == "stablehlo.return" and last.operands == first.results and not last.discardable
    return first.name if returns else ""


class WhileForm(Form):
    """``(%i = %a, %j = %b) : A, B cond {...} do {...}``."""

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the state, its types and both regions."""
        cursor = reader.cursor
        names: list[tuple[str, int]] = []

        def one() -> None:
            names.append(reader.operand(allow_number=False))
            cursor.expect("=")
            state.operands.append(reader.operand())

        cursor.items("(", ")", one)
        types: list[Any] = []
        if names:
            cursor.expect(":")
            state.type_pos = cursor.pos
            types = reader.types.listing()
        state.operand_types = state.result_types = types
        if len(types) != len(names):
            cursor.fail(f"expected {len(names)} types, one for each loop variable, found {len(types)}", state.type_pos)
        if cursor.accept_word("attributes"):
            reader.attribute_dictionary(state)
        arguments = [(name, pos, type) for (name, pos), type in zip(names, types)]
        cursor.expect_word("cond")
        condition = reader.region(arguments)
        cursor.expect_word("do")
        state.regions = [condition, reader.region(arguments)]

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The state, its types and both regions; the regions' arguments share their names."""
        condition, body = instruction.regions
        types = list(instruction.operand_types)
        for block in (condition, body):
            if [value.type for value in block.arguments] != types:
                raise Unspellable
        if list(instruction.result_types) != types:
            raise Unspellable
        printer.share_names(condition.arguments, body.arguments)
        pairs = (
            f"{printer.name(argument)} = {printer.name(value)}"
            for argument, value in zip(body.arguments, instruction.operands)
        )
        text = f"({', '.join(pairs)})"
        if types:
            text += f" : {', '.join(map(str, types))}"
        dictionary = printer.attribute_dictionary(instruction, frozenset())
        if dictionary:
            text += f" attributes {dictionary}"
        first = printer.region(condition, with_arguments=False)
        second = printer.region(body, with_arguments=False)
        return f"{text}\n{printer.indentation}cond {first} do {second}"


class ScanForm(Form):
    """``(%x) inits (%i) dimension=0 attributes {...} {...} : (A, B) -> (C, D)``."""

    segments = frozenset({"dimension", "operandSegmentSizes", "resultSegmentSizes"})

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read inputs, inits, dimension, body and types."""
        cursor = reader.cursor
        cursor.expect("(")
        state.operands = reader.operands()
        inputs = len(state.operands)
        cursor.expect(")")
        cursor.expect_word("inits")
        cursor.expect("(")
        state.operands += reader.operands()
        cursor.expect(")")
        cursor.expect_word("dimension")
        cursor.expect("=")
        state.attributes["dimension"] = cursor.integer()
        if cursor.accept_word("attributes"):
            reader.attribute_dictionary(state)
        state.regions = [reader.region(None)]
        reader.function_type(state)
        carries = len(state.operands) - inputs
        assert state.result_types is not None
        if len(state.result_types) < carries:
            cursor.fail(f"expected at least {carries} results, one for each init", state.type_pos)
        reader.segments(state, "operandSegmentSizes", (inputs, carries))
        reader.segments(state, "resultSegmentSizes", (len(state.result_types) - carries, carries))

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """Inputs, inits, dimension, body and types."""
        inputs = printer.segments(instruction, "operandSegmentSizes")
        outputs = printer.segments(instruction, "resultSegmentSizes")
        if inputs is None or outputs is None or len(inputs) != 2 or min(inputs) < 0:
            raise Unspellable
        carries = inputs[1]
        is_regular = sum(inputs) == len(instruction.operands) and carries <= len(instruction.results)
        if not is_regular or outputs != (len(instruction.results) - carries, carries):
            raise Unspellable
        dictionary = printer.attribute_dictionary(instruction, self.segments)
        if dictionary:
            dictionary = f"attributes {dictionary} "
        values = instruction.operands
        return (
            f"({printer.names(values[: inputs[0]])}) inits ({printer.names(values[inputs[0] :])}) "
            f"dimension={instruction.attributes['dimension']} {dictionary}"
            f"{printer.region(instruction.regions[0])} : {spell_function(instruction)}"
        )


class TopKForm(Form):
    """``(%x, k = 2) : A -> (B, C)``."""

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read operand, k and types."""
        cursor = reader.cursor
        cursor.expect("(")
        state.operands = [reader.operand()]
        while cursor.accept(","):
            start = cursor.pos
            name = cursor.take(WORD, "'k' or 'is_stable'")
            cursor.expect("=")
            if name == "k":
                state.attributes["k"] = cursor.integer()
            elif name == "is_stable":
                reader.set_attribute(state, name, reader.attributes.read(), start)
            else:
                cursor.fail(f"expected 'k' or 'is_stable', found {name!r}", start)
        cursor.expect(")")
        if cursor.at("{"):
            reader.attribute_dictionary(state)
        cursor.expect(":")
        state.type_pos = cursor.pos
        state.operand_types = [reader.types.read()]
        cursor.expect("->")
        state.result_types = reader.types.results()

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """Operand, k and types."""
        dictionary = printer.attribute_dictionary(instruction, frozenset({"k", "is_stable"}))
        stable = instruction.attributes.get("is_stable")
        if stable is None and "is_stable" in instruction.discardable:
            raise Unspellable
        options = "" if stable is None else f", is_stable = {'true' if stable else 'false'}"
        results = ", ".join(map(str, instruction.result_types))
        return (
            f"({printer.names(instruction.operands)}, k = {instruction.attributes['k']}{options})"
            f"{' ' if dictionary else ''}{dictionary} : {instruction.operand_types[0]} -> ({results})"
        )


WHOLE_FORMS: Final[dict[str, Callable[[OpDefinition], Form]]] = {
    "<constant>": ConstantForm,
    "<return>": lambda op: ReturnForm(),
    "<call>": lambda op: CallForm(),
    "<reduce>": lambda op: ReduceForm(),
    "<while>": lambda op: WhileForm(),
    "<scan>": lambda op: ScanForm(),
    "<top_k>": lambda op: TopKForm(),
}
"""Makes each form that is written by hand, for one op."""
