"""Reading instructions and regions: pretty forms by the op's record, the generic form for every op."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, Final

from hlojit.ir.attributes import Attribute, Dense, DenseArrayAttr, ElidedElements
from hlojit.ir.environment import OPS, tables
from hlojit.ir.errors import HlojitError, TypeInferenceError
from hlojit.ir.formats import QuantizedType
from hlojit.ir.graph import Block, Instruction, Value
from hlojit.ir.location import UNKNOWN, FileLocation, Location
from hlojit.ir.ops.constants import ELIDED_CONSTANT
from hlojit.ir.ops.custom_calls import PARTITIONER
from hlojit.ir.ops.definition import InferenceRequest, OpDefinition, Trait, find_op, ops, unregistered_op
from hlojit.ir.ops.foreign_rules import infer_failure
from hlojit.ir.text.attributes import AttributeReader
from hlojit.ir.text.form_table import form_of
from hlojit.ir.text.lexer import BLOCK_NAME, KEYWORD, SSA_NAME, STRING, Cursor, unquote
from hlojit.ir.text.locations import LocationReader
from hlojit.ir.text.templates import Form, OpState
from hlojit.ir.text.types import TypeReader
from hlojit.ir.types import TensorType, Type

_HEAD: Final = re.compile(r"(?:(%[\w$.-]+)(?::([0-9]{1,6}))? = )?([a-z][\w.]*)")
_NUMERIC: Final = re.compile(r"%[0-9]+")
_SHORT_NAMES: Final = {
    "call": "func.call",
    "return": "func.return",
    "call_indirect": "func.call_indirect",
    "constant": "func.constant",
}
_SHARDY: Final = "sdy."
"""The dialect in which programs ask a partitioner for programs of single processes."""

BlockArgument = tuple[str, int, Type]
"""Name, its position, and type."""


class InstructionReader:
    """Reads instructions and keeps the names of values."""

    def __init__(self, cursor: Cursor, *, allow_unregistered: bool = False):
        self.cursor = cursor
        self.types = TypeReader(cursor)
        self.attributes = AttributeReader(cursor, self.types)
        self.locations = LocationReader(cursor)
        self.allow_unregistered = allow_unregistered
        self.values: dict[str, Value] = {}
        self.groups: dict[str, int] = {}
        self.splats: dict[str, Dense] = {}
        self._scopes: list[list[str]] = []
        self._written: dict[tuple[Any, str], Any] = {}
        self._known_ops: dict[str, tuple[OpDefinition, Form | None]] = {}

    # -- values ------------------------------------------------------------------------------------------------------

    def operand(self, *, allow_number: bool = True) -> tuple[str, int]:
        """Read one name; it is looked up when its type is known."""
        start = self.cursor.pos
        name = self.cursor.take(SSA_NAME)
        if not allow_number and "#" in name:
            self.cursor.fail(f"expected the name of an argument, found {name}", start)
        return name, start

    def operands(self) -> list[tuple[str, int]]:
        """Read names as long as a comma is followed by one."""
        cursor = self.cursor
        found: list[tuple[str, int]] = []
        if not cursor.at("%"):
            return found
        found.append(self.operand())
        while cursor.at(","):
            comma = cursor.pos
            cursor.accept(",")
            if not cursor.at("%"):
                cursor.pos = comma
                break
            found.append(self.operand())
        return found

    def value(self, name: str, pos: int) -> Value:
        """The value of a name."""
        found = self.values.get(name)
        if found is not None:
            return found
        base, _, number = name.partition("#")
        if base in self.values:
            count = self.groups.get(base, 1)
            if count == 1 and int(number[:9]) == 0:
                return self.values[base]
            self.cursor.fail(f"{base} has {count} result{'s' if count != 1 else ''}, there is no {name}", pos)
        near = get_close_matches(base, self.values, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        self.cursor.fail(f"use of undefined value {base}{hint}", pos)

    def known_values(self, names: str | None) -> list[Value] | None:
        """The values of names separated by commas; None if one is unknown."""
        if not names:
            return []
        try:
            return [self.values[name] for name in names.split(", ")]
        except KeyError:
            return None

    def define(self, name: str, pos: int, values: Sequence[Value]) -> None:
        """Give a name to the results of an instruction, or to an argument."""
        if name in self.values:
            self.cursor.fail(f"redefinition of {name}", pos)
        hint = "" if _NUMERIC.fullmatch(name) else name[1:]
        self.values[name] = values[0]
        added = self._scopes[-1]
        added.append(name)
        if hint:
            for value in values:
                value.name_hint = hint
        if len(values) > 1:
            self.groups[name] = len(values)
            for index, value in enumerate(values):
                self.values[f"{name}#{index}"] = value
                added.append(f"{name}#{index}")

    def written(self, match: re.Match[str], group: int, read: Callable[[InstructionReader], Any]) -> Any:
        """The types that a fast path's match caught in a group; None if they end elsewhere."""
        text = match[group]
        found = self._written.get((read, text))
        if found is None:
            cursor = self.cursor
            here, cursor.pos = cursor.pos, match.start(group)
            found = read(self)
            end, cursor.pos = cursor.pos, here
            behind = cursor.text[match.end(group) : end].lstrip()
            if end < match.end(group) or "//" in text or (behind and not behind.startswith("//")):
                return None
            self._written[read, text] = found
        return found

    # -- instructions ------------------------------------------------------------------------------------------------

    def instruction(self, block: Block) -> Instruction:
        """Read one instruction and append it to ``block``."""
        cursor = self.cursor
        head = _HEAD.match(cursor.text, cursor.pos)
        if head is not None:
            known = self._known_ops.get(head[3])
            if known is not None:
                op, form = known
                if form is not None:
                    fast = form.fast(self, head.end())
                    if fast is not None and head[1] not in self.values:
                        operands, types, attributes, regions, place, end = fast
                        if len(types) == (int(head[2] or 1) if head[1] else 0):
                            return self._fast_instruction(
                                block, op, head[1], operands, types, attributes, regions, place, end
                            )
        return self._slow_instruction(block)

    def _fast_instruction(
        self,
        block: Block,
        op: OpDefinition,
        name: str | None,
        operands: Sequence[Value],
        types: Sequence[Type],
        attributes: dict[str, Any],
        regions: Sequence[Block],
        place: str | None,
        end: int,
    ) -> Instruction:
        cursor = self.cursor
        start = cursor.pos
        location: Location = UNKNOWN
        if place is not None and place != "unknown":
            location = self.locations.known.get(place[1:]) or self.locations.alias(place[1:], end - len(place) - 2)
        if location is UNKNOWN:
            location = FileLocation(cursor.source_name, cursor.line_of(start), cursor.column_of(start))
        instruction = Instruction(op, operands, types, attributes, regions, None, location)
        for region in regions:
            for inner in region:
                inner.location = location
        if name is not None:
            self.define(name, start, instruction.results)
        cursor.pos = end
        cursor.skip_blank()
        return block.append(instruction)

    def _slow_instruction(self, block: Block) -> Instruction:
        cursor = self.cursor
        start = cursor.pos
        names = self._result_names()
        name_pos = cursor.pos
        generic = cursor.at('"')
        name = self.op_name()
        record, form = self._record(name, name_pos, generic)
        state = OpState(record, start, name_pos, sum(count for _, _, count in names))
        if generic or form is None:
            self.generic(state)
        else:
            form.read(self, state)
        instruction = self._finish(state, bool(names))
        results = instruction.results
        position = 0
        for result_name, pos, count in names:
            self.define(result_name, pos, results[position : position + count])
            position += count
        return block.append(instruction)

    def _result_names(self) -> list[tuple[str, int, int]]:
        cursor = self.cursor
        found: list[tuple[str, int, int]] = []
        if not cursor.at("%"):
            return found
        while True:
            name, pos = self.operand(allow_number=False)
            count = 1
            if cursor.accept(":"):
                count = cursor.integer("the number of results", minimum=1, maximum=1 << 20)
            found.append((name, pos, count))
            if not cursor.accept(","):
                break
        cursor.expect("=")
        return found

    def op_name(self) -> str:
        """Read an op's name, quoted or not."""
        cursor = self.cursor
        if cursor.at('"'):
            return unquote(cursor.take(STRING))
        name = cursor.take(KEYWORD, "an op")
        return _SHORT_NAMES.get(name, name)

    def _record(self, name: str, pos: int, generic: bool) -> tuple[OpDefinition, Form | None]:
        record = find_op(name)
        if record is not None:
            form = form_of(record)
            self._known_ops[name] = (record, form)
            if name.startswith("func."):
                self._known_ops[name[5:]] = (record, form)
            if form is None and not generic:
                self.cursor.fail(f'{name} has only the generic form; expected "{name}"(...)', pos)
            return record, form
        if self.allow_unregistered and generic:
            return unregistered_op(name), None
        known = [op.name for op in ops()]
        near = get_close_matches(name, known, 3) or [op for op in known if op.endswith(f".{name}")]
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        if name.startswith(_SHARDY):
            hint = f"; {PARTITIONER}"
        if self.allow_unregistered:
            hint += f'; an op without a record is read in its generic form only: "{name}"(...)'
        self.cursor.fail(f"unknown op {name!r}{hint}{tables().who_brings(OPS, name)}", pos)

    def generic(self, state: OpState) -> None:
        """Read ``(%a) <{...}> ({...}) {...} : (A) -> R``."""
        cursor = self.cursor
        cursor.expect("(")
        state.operands = self.operands()
        if not cursor.accept(")"):
            cursor.expected("an operand or ')'")
        if cursor.accept("<"):
            if not cursor.at("{"):
                cursor.expected("'{'")
            start = cursor.pos
            self.attribute_dictionary(state)
            self._check_properties(state, start)
            cursor.expect(">")
        if cursor.at("("):
            state.regions = cursor.items("(", ")", lambda: self.region(None))
        if cursor.at("{"):
            self.attribute_dictionary(state)
        self.function_type(state)

    def _check_properties(self, state: OpState, pos: int) -> None:
        """Properties are attributes that the op has; what else is said of it stands behind them."""
        unknown = next(iter(state.discardable), None)
        if unknown is None or not state.record.registered:
            return
        known = [spec.name for spec in state.record.attributes]
        near = get_close_matches(unknown, known, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(known) or 'none'}"
        self.cursor.fail(f"{state.record.name} has no property {unknown!r}{hint}", pos)

    def function_type(self, state: OpState) -> None:
        """Read ``: (A) -> R``."""
        self.cursor.expect(":")
        state.type_pos = self.cursor.pos
        if not self.cursor.at("("):
            self.cursor.expected("a function type such as (tensor<f32>) -> tensor<f32>")
        type = self.types.function()
        state.operand_types, state.result_types = type.inputs, type.results

    def attribute_dictionary(self, state: OpState) -> None:
        """Read ``{...}`` into the op's own and its discardable attributes."""
        start = self.cursor.pos
        for name, attribute in self.attributes.dictionary().items():
            self.set_attribute(state, name, attribute, start)

    def set_attribute(self, state: OpState, name: str, attribute: Attribute, pos: int) -> None:
        """Convert an attribute as the record says; what it does not know is discardable."""
        spec = state.record.attribute(name)
        if name in state.attributes or name in state.discardable:
            self.cursor.fail(f"attribute {name!r} is given twice", pos)
        if spec is None:
            state.discardable[name] = attribute
            return
        try:
            state.attributes[name] = spec.kind.from_generic(attribute)
        except HlojitError as error:
            self.cursor.fail(f"attribute {name} of {state.record.name}: {error}", pos)

    def segments(self, state: OpState, name: str, sizes: tuple[int, ...]) -> None:
        """Set an attribute that says how operands or results divide."""
        self.set_attribute(state, name, DenseArrayAttr("i32", sizes), state.name_pos)

    def location(self, state: OpState) -> Location:
        """Read the location behind an op; without one it is the op's place in this text."""
        found = self.locations.read_optional()
        return self.default_location(state.start) if found is None or found is UNKNOWN else found

    def default_location(self, pos: int) -> Location:
        """A place in this text."""
        cursor = self.cursor
        return FileLocation(cursor.source_name, cursor.line_of(pos), cursor.column_of(pos))

    def _finish(self, state: OpState, named: bool) -> Instruction:
        cursor = self.cursor
        operands = self._resolved_operands(state)
        location = state.location if state.location is not None else self.location(state)
        self._check_signature(state)
        result_types = state.result_types
        if result_types is None:
            result_types = self._inferred(state, operands)
        if named and len(result_types) != state.result_count:
            cursor.fail(
                f"{state.record.name} has {len(result_types)} results, {state.result_count} names are given",
                state.start,
            )
        if Trait.CONSTANT in state.record.traits:
            _take_stored(state, result_types[0])
            if isinstance(state.attributes.get("value"), ElidedElements):
                state.record = ELIDED_CONSTANT
        return Instruction(
            state.record, operands, result_types, state.attributes, state.regions, state.discardable, location
        )

    def _resolved_operands(self, state: OpState) -> list[Value]:
        values = [self.value(name, pos) for name, pos in state.operands]
        types = state.operand_types
        if types is None:
            return values
        if len(types) != len(values):
            self.cursor.fail(
                f"{state.record.name} has {len(values)} operand{'s' if len(values) != 1 else ''}, "
                f"{len(types)} operand types are given",
                state.type_pos,
            )
        for value, type, (name, pos) in zip(values, types, state.operands):
            if value.type is not type:
                self.cursor.fail(f"{name} has type {value.type}, but is used as {type}", pos)
        return values

    def _check_signature(self, state: OpState) -> None:
        from hlojit.ir.builder import signature_complaint

        complaint = signature_complaint(state.record, len(state.operands), state.attributes, len(state.regions))
        if complaint:
            self.cursor.fail(f"{state.record.name}: {complaint}", state.name_pos)

    def _inferred(self, state: OpState, operands: Sequence[Value]) -> Sequence[Type]:
        infer = state.record.infer
        if infer is None:
            self.cursor.fail(f"expected the types of {state.record.name}", state.name_pos)
        types = tuple(value.type for value in operands)
        try:
            return infer(InferenceRequest(types, state.attributes, state.regions))
        except TypeInferenceError as error:
            self.cursor.fail(f"{state.record.name}: {error}", state.name_pos)
        except (HlojitError, MemoryError):
            raise
        except Exception as error:
            if named := infer_failure(state.record, error):
                raise named from error
            raise

    # -- regions -----------------------------------------------------------------------------------------------------

    def block_argument(self) -> BlockArgument:
        """Read ``%a: T`` with an optional location, which is dropped."""
        name, pos = self.operand(allow_number=False)
        self.cursor.expect(":")
        type = self.types.read()
        self.locations.read_optional()
        return name, pos, type

    def region(self, arguments: Sequence[BlockArgument] | None) -> Block:
        """Read ``{...}``; without ``arguments`` the block may have a label with its own."""
        cursor = self.cursor
        start = cursor.pos
        cursor.enter()
        cursor.expect("{")
        if arguments is None:
            arguments = ()
            label = cursor.take_optional(BLOCK_NAME)
            if label is not None:
                if cursor.at("("):
                    arguments = cursor.items("(", ")", self.block_argument)
                cursor.expect(":")
        block = Block()
        self.block(block, arguments, start)
        cursor.expect("}")
        cursor.leave()
        return block

    def block(self, block: Block, arguments: Sequence[BlockArgument], start: int) -> None:
        """Read instructions up to the closing brace; names defined here are forgotten there."""
        cursor = self.cursor
        self._scopes.append([])
        for name, pos, type in arguments:
            self.define(name, pos, [block.add_argument(type)])
        text = cursor.text
        while not text.startswith("}", cursor.pos):
            if cursor.pos >= len(text):
                cursor.fail("expected '}' to close the region that begins here", start)
            if text.startswith("^", cursor.pos):
                cursor.fail("a region of StableHLO has exactly one block; expected an op or '}'")
            last = block.last
            if last is not None and last.op.is_terminator:
                cursor.fail(f"expected '}}' behind {last.name}, which ends its region")
            self.instruction(block)
        last = block.last
        if last is None or not (last.op.is_terminator or not last.op.registered):
            cursor.fail("expected stablehlo.return (or func.return in a function) at the end of this region")
        for name in self._scopes.pop():
            del self.values[name]
            self.groups.pop(name, None)


def _take_stored(state: OpState, type: Type) -> None:
    """Of a quantized constant the text has the stored integers; inside, its elements have the result's type."""
    value = state.attributes.get("value")
    element = type.element_type if isinstance(type, TensorType) else None
    if isinstance(value, Dense) and isinstance(type, TensorType) and isinstance(element, QuantizedType):
        stored = type.with_element_type(element.storage_element)
        state.attributes["value"] = Dense(type, value.array) if value.type is stored else value
