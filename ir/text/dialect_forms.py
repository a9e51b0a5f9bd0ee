"""The pretty forms of ops of MLIR's own dialects: ``arith``, ``tensor``, ``shape``, ``func`` and ``builtin``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from hlojit.ir.attributes import Dense
from hlojit.ir.errors import HlojitError, TypeInferenceError
from hlojit.ir.formats import INDEX, BooleanType
from hlojit.ir.ops.arith import PREDICATES, constant_type, with_element
from hlojit.ir.ops.definition import OpDefinition
from hlojit.ir.ops.shape_computations import WITNESS
from hlojit.ir.text.lexer import WORD
from hlojit.ir.text.spelling import print_attribute, print_symbol
from hlojit.ir.text.templates import Form, OpState, Piece, TypeRule, Types
from hlojit.ir.text.unspellable import Unspellable
from hlojit.ir.types import FunctionType, ScalarType, TensorType, Type, scalar, tensor

if TYPE_CHECKING:
    from hlojit.ir.graph import Instruction
    from hlojit.ir.text.instructions import InstructionReader
    from hlojit.ir.text.printer import Printer


def _listing(types: Sequence[Type]) -> str:
    return ", ".join(map(str, types))


def _read_to(reader: InstructionReader) -> tuple[list[Type], list[Type]]:
    sources = reader.types.listing() if not reader.cursor.at_word("to") else []
    reader.cursor.expect_word("to")
    return sources, reader.types.listing()


def _to_types(op: OpDefinition) -> Piece:
    """``A to B``."""

    def rule(written: Any, operands: Sequence[Type]) -> Sequence[Type] | None:
        sources, results = written
        return [*sources, *results] if results and len(sources) == len(operands) else None

    def text(written: Any) -> str:
        return f"{_listing(written[0])} to {_listing(written[1])}"

    return _Slow(_read_to, rule, lambda i: (i.operand_types, i.result_types), text, several_results=True)


class _Slow(Types):
    """Types that the fast path leaves alone: ``write`` says what is written, ``text`` spells it."""

    pattern = None

    def __init__(
        self,
        read: Callable[[InstructionReader], Any],
        rule: TypeRule,
        write: Callable[[Instruction], Any],
        text: Callable[[Any], str] = str,
        *,
        several_results: bool = False,
    ):
        def spell(instruction: Instruction) -> str:
            written = write(instruction)
            found = rule(written, instruction.operand_types)
            if found is None or tuple(found) != (*instruction.operand_types, *instruction.result_types):
                raise Unspellable
            return text(written)

        super().__init__(read, rule, spell, several_results=several_results)


def _source_type(op: OpDefinition) -> Piece:
    """The type of the first operand; the others and the result are of type index."""
    index = scalar(INDEX)

    def rule(written: Any, operands: Sequence[Type]) -> Sequence[Type] | None:
        return [written, *[index] * (len(operands) - 1), index]

    return _Slow(lambda reader: reader.types.read(), rule, lambda i: i.operand_types[0])


def _elements_type(op: OpDefinition) -> Piece:
    """The type of the result, whose elements the operands are."""

    def rule(written: Any, operands: Sequence[Type]) -> Sequence[Type] | None:
        return [*operands, written]

    return _Slow(lambda reader: reader.types.read(), rule, lambda i: i.result_types[0])


def _constrained_types(op: OpDefinition) -> Piece:
    """The operands' types; the result is a witness."""

    def rule(written: Any, operands: Sequence[Type]) -> Sequence[Type] | None:
        return [*written, WITNESS] if len(written) == len(operands) else None

    return _Slow(lambda reader: reader.types.listing(), rule, lambda i: i.operand_types, _listing)


def _selected_types(op: OpDefinition) -> Piece:
    """``T``, or ``C, T`` where the condition is not a single i1."""

    def rule(written: Any, operands: Sequence[Type]) -> Sequence[Type] | None:
        condition = written[0] if len(written) == 2 else scalar(BooleanType())
        return [condition, written[-1], written[-1], written[-1]] if len(operands) == 3 and len(written) < 3 else None

    def write(instruction: Instruction) -> Sequence[Type]:
        condition, value = instruction.operand_types[:2]
        return [value] if isinstance(condition, ScalarType) else [condition, value]

    return _Slow(lambda reader: reader.types.listing(), rule, write, _listing)


class TypedConstantForm(Form):
    """``arith.constant dense<1> : tensor<2xi32>``, ``arith.constant 4 : index``."""

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read attributes and the value with its type."""
        if reader.cursor.at("{"):
            reader.attribute_dictionary(state)
        start = reader.cursor.pos
        value = reader.attributes.read()
        reader.set_attribute(state, "value", value, start)
        state.operand_types = ()
        try:
            state.result_types = (constant_type(value),)
        except TypeInferenceError as error:
            reader.cursor.fail(error.message, start)

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """Attributes and the value."""
        value = instruction.attributes["value"]
        try:
            if constant_type(value) is not instruction.result_types[0]:
                raise Unspellable
        except HlojitError:
            raise Unspellable from None
        dictionary = printer.attribute_dictionary(instruction, frozenset({"value"}))
        return f"{' ' if dictionary else ''}{dictionary} {print_attribute(value)}"


class PredicateForm(Form):
    """``arith.cmpi slt, %a, %b : i32``."""

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the predicate, operands and their type."""
        cursor = reader.cursor
        start = cursor.pos
        word = cursor.take(WORD, f"one of {', '.join(PREDICATES)}")
        if word not in PREDICATES:
            cursor.fail(f"expected one of {', '.join(PREDICATES)}, found {word!r}", start)
        state.attributes["predicate"] = word
        cursor.expect(",")
        state.operands = reader.operands()
        if cursor.at("{"):
            reader.attribute_dictionary(state)
        cursor.expect(":")
        state.type_pos = cursor.pos
        type = reader.types.read()
        state.operand_types = (type,) * len(state.operands)
        state.result_types = (with_element(type, BooleanType()),)

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """Predicate, operands and their type."""
        first, *rest = instruction.operand_types
        if (
            any(type is not first for type in rest)
            or with_element(first, BooleanType()) is not instruction.result_types[0]
        ):
            raise Unspellable
        dictionary = printer.attribute_dictionary(instruction, frozenset({"predicate"}))
        names = printer.names(instruction.operands)
        return f" {instruction.attributes['predicate']}, {names}{' ' if dictionary else ''}{dictionary} : {first}"


class ElementForm(Form):
    """``tensor.extract %t[%i, %j] : tensor<2x3xindex>``."""

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the tensor, its indices and its type."""
        cursor = reader.cursor
        state.operands = [reader.operand()]
        cursor.expect("[")
        state.operands += reader.operands()
        cursor.expect("]")
        if cursor.at("{"):
            reader.attribute_dictionary(state)
        cursor.expect(":")
        state.type_pos = cursor.pos
        type = reader.types.tensor()
        state.operand_types = (type, *[scalar(INDEX)] * (len(state.operands) - 1))
        state.result_types = (scalar(type.element_type),)

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The tensor, its indices and its type."""
        source, *places = instruction.operand_types
        if not isinstance(source, TensorType) or instruction.result_types[0] is not scalar(source.element_type):
            raise Unspellable
        if any(place is not scalar(INDEX) for place in places):
            raise Unspellable  # the text has no types of indices
        dictionary = printer.attribute_dictionary(instruction, frozenset())
        first, *rest = instruction.operands
        return f" {printer.name(first)}[{printer.names(rest)}]{' ' if dictionary else ''}{dictionary} : {source}"


class WrittenShapeForm(Form):
    """``shape.const_shape [4, 32] : tensor<2xindex>``."""

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the sizes and the type."""
        import numpy as np

        cursor = reader.cursor
        if cursor.at("{"):
            reader.attribute_dictionary(state)
        sizes = cursor.integers()
        state.attributes["shape"] = Dense(tensor((len(sizes),), INDEX), np.array(sizes, np.int64))
        cursor.expect(":")
        state.operand_types, state.result_types = (), (reader.types.read(),)

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The sizes and the type."""
        value = instruction.attributes["shape"]
        if value.type is not tensor((value.array.size,), INDEX):
            raise Unspellable
        dictionary = printer.attribute_dictionary(instruction, frozenset({"shape"}))
        sizes = ", ".join(map(str, value.array.tolist()))
        return f"{' ' if dictionary else ''}{dictionary} [{sizes}] : {instruction.result_types[0]}"


class FunctionValueForm(Form):
    """``func.constant @f : (tensor<f32>) -> tensor<f32>``."""

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the name and the type."""
        cursor = reader.cursor
        if cursor.at("{"):
            reader.attribute_dictionary(state)
        state.attributes["value"] = cursor.symbol()
        cursor.expect(":")
        state.operand_types, state.result_types = (), (reader.types.read(),)

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The name and the type."""
        dictionary = printer.attribute_dictionary(instruction, frozenset({"value"}))
        name = print_symbol(instruction.attributes["value"])
        return f"{' ' if dictionary else ''}{dictionary} {name} : {instruction.result_types[0]}"


class IndirectCallForm(Form):
    """``func.call_indirect %f(%a) : (tensor<f32>) -> tensor<f32>``."""

    def read(self, reader: InstructionReader, state: OpState) -> None:
        """Read the function, its arguments and its type."""
        cursor = reader.cursor
        state.operands = [reader.operand()]
        cursor.expect("(")
        state.operands += reader.operands()
        cursor.expect(")")
        if cursor.at("{"):
            reader.attribute_dictionary(state)
        cursor.expect(":")
        state.type_pos = cursor.pos
        type = reader.types.read()
        if not isinstance(type, FunctionType):
            cursor.fail(f"expected the type of a function, found {type}", state.type_pos)
        state.operand_types, state.result_types = (type, *type.inputs), type.results

    def spell(self, printer: Printer, instruction: Instruction) -> str:
        """The function, its arguments and its type."""
        type = instruction.operand_types[0]
        if not isinstance(type, FunctionType) or instruction.result_types != tuple(type.results):
            raise Unspellable
        if instruction.operand_types[1:] != tuple(type.inputs):
            raise Unspellable
        dictionary = printer.attribute_dictionary(instruction, frozenset())
        first, *rest = instruction.operands
        return f" {printer.name(first)}({printer.names(rest)}){' ' if dictionary else ''}{dictionary} : {type}"


DIALECT_PIECES: Final[dict[str, Callable[[OpDefinition], Piece]]] = {
    "<to_types>": _to_types,
    "<source_type>": _source_type,
    "<elements_type>": _elements_type,
    "<constrained_types>": _constrained_types,
    "<selected_types>": _selected_types,
}

DIALECT_FORMS: Final[dict[str, Callable[[OpDefinition], Form]]] = {
    "<typed_constant>": lambda op: TypedConstantForm(),
    "<predicate>": lambda op: PredicateForm(),
    "<element>": lambda op: ElementForm(),
    "<written_shape>": lambda op: WrittenShapeForm(),
    "<function_value>": lambda op: FunctionValueForm(),
    "<indirect_call>": lambda op: IndirectCallForm(),
}
"""Forms that are written by hand, for one op each."""
