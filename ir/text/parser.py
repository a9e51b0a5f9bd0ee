"""``parse_module``: StableHLO text, as JAX and MLIR print it, to a ``Module``.

    module = parse_module('''
      func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
        %0 = stablehlo.add %x, %x : tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    ''')

Pretty and generic forms are read, with or without ``module {...}`` around them; aliases and resources may be defined
before or behind their uses.  Everything that is wrong is a ``ParseError`` with its place.
"""

from __future__ import annotations

import gc
import re
from typing import Final

import hlojit.ir.ops  # noqa: F401
from hlojit.ir.attributes import ArrayAttr, Attribute, DictAttr, StringAttr, TypeAttr
from hlojit.ir.builder import Builder
from hlojit.ir.environment import tables
from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import VISIBILITIES, Function, Instruction, Module
from hlojit.ir.location import UNKNOWN
from hlojit.ir.ops.definition import Structural
from hlojit.ir.text.dense import Resource
from hlojit.ir.text.instructions import BlockArgument, InstructionReader
from hlojit.ir.text.lexer import BLOCK_NAME, KEYWORD, STRING, WORD, Cursor, compact
from hlojit.ir.types import FunctionType, Type

_DEFINITION: Final = re.compile(r"[ \t]*([#!])([\w$.-]+)[ \t]*=[ \t\r\n]*")
_RESOURCE_NAME: Final = re.compile(r'[A-Za-z_][\w$.-]*|"(?:[^"\\\n]|\\.)*+"')
_LOCATION_AT_END: Final = re.compile(r"\s*\bloc\((?:[^()\"]|\"[^\"]*\"|\((?:[^()\"]|\"[^\"]*\")*\))*\)\s*$")


def parse_module(text: str, *, source_name: str = "<string>", allow_unregistered: bool = False) -> Module:
    """Read a module.

    ``source_name`` stands in messages and in the locations of instructions that have none of their own.  Ops without a
    record are refused unless ``allow_unregistered``, which keeps those in generic form.  Raises ``ParseError``.
    """
    reader = ModuleReader(text, source_name, allow_unregistered=allow_unregistered)
    # Every object that is made here stays; looking for garbage among them would take two thirds of the time.
    collects = gc.isenabled()
    gc.disable()
    try:
        # One state of the tables for the whole text, whatever is registered meanwhile.
        with tables().activate():
            return reader.read()
    except RecursionError:
        # The nesting limit leaves room; a caller that stands deep in the stack may have left too little of it.
        raise reader.cursor.error("nesting is too deep for what is left of Python's stack") from None
    finally:
        if collects:
            gc.enable()


class ModuleReader:
    """Reads what stands outside of functions."""

    def __init__(self, text: str, source_name: str, *, allow_unregistered: bool):
        self.cursor = Cursor(text, source_name)
        self.reader = InstructionReader(self.cursor, allow_unregistered=allow_unregistered)
        self.resources: dict[str, Resource] = {}
        self.reader.attributes.resources = self.resources

    def read(self) -> Module:
        """Read the whole text."""
        cursor = self.cursor
        self._look_over()
        module = Module()
        seen_module = False
        while cursor.pos < len(cursor.text):
            if cursor.at("#") or cursor.at("!"):
                self._skip_definition()
            elif cursor.at("{-#"):
                cursor.pos = self._end_of_resources(cursor.pos)
                cursor.skip_blank()
            elif self._at_module():
                if seen_module or module.functions:
                    cursor.fail("expected one module in the text")
                seen_module = True
                self._module(module)
            else:
                if seen_module:
                    cursor.fail(f"expected the end of the text behind the module, found {cursor.found()}")
                self._top_level(module)
        for name, resource in self.resources.items():
            if not resource.taken:
                module.resources[name] = resource.data(cursor)[0]
        return module

    # -- definitions that may stand behind their uses ------------------------------------------------------------------

    def _look_over(self) -> None:
        """Find the definitions of aliases and resources, which may stand behind their uses."""
        cursor, text = self.cursor, self.cursor.text
        here = cursor.pos
        for mark in "#!":
            pos = 0 if text.startswith(mark) else text.find(f"\n{mark}") + 1
            while pos or text.startswith(mark, pos):
                self._note_definition(pos)
                following = text.find(f"\n{mark}", pos)
                if following < 0:
                    break
                pos = following + 1
        start = text.rfind("{-#")
        if start >= 0 and (start == 0 or text[start - 1].isspace()):
            cursor.pos = start
            self._resources()
        cursor.pos = here

    def _note_definition(self, pos: int) -> str:
        """Remember where an alias is defined, and move there; return its name, empty if none is defined here."""
        match = _DEFINITION.match(self.cursor.text, pos)
        if match is None:
            return ""
        cursor = self.cursor
        cursor.pos = match.end()
        cursor.skip_blank()
        if match[1] == "!":
            aliases = self.reader.types.aliases
        elif cursor.text.startswith("loc(", cursor.pos):
            aliases = self.reader.locations.aliases
        else:
            aliases = self.reader.attributes.aliases
        if aliases.setdefault(match[2], cursor.pos) != cursor.pos:
            cursor.fail(f"{match[1]}{match[2]} is defined twice", pos)
        return match[2]

    def _skip_definition(self) -> None:
        cursor = self.cursor
        start = cursor.pos
        mark = cursor.text[start]
        name = self._note_definition(start)
        if not name:
            cursor.fail(f"expected the definition of an alias: {mark}name = ...", start)
        if mark == "!":
            self.reader.types.read()
        elif cursor.text.startswith("loc(", cursor.pos):
            self.reader.locations.read()
        else:
            self.reader.attributes.definition(name)

    def _end_of_resources(self, start: int) -> int:
        end = self.cursor.text.find("#-}", start)
        if end < 0:
            self.cursor.fail("expected '#-}' to close the resources", start)
        return end + 3

    def _resources(self) -> None:
        cursor = self.cursor
        self._end_of_resources(cursor.pos)
        cursor.expect("{-#")
        while not cursor.at("#-}"):
            start = cursor.pos
            section = cursor.take(WORD, "dialect_resources, external_resources or '#-}'")
            if section not in ("dialect_resources", "external_resources"):
                cursor.fail(f"expected dialect_resources or external_resources, found {section!r}", start)
            cursor.expect(":")
            cursor.items("{", "}", self._resource_group if section == "dialect_resources" else self._external_group)
            if not cursor.accept(","):
                break
        if not cursor.at("#-}"):
            cursor.expected("'#-}'")

    def _external_group(self) -> None:
        self._resource_group(keep=False)

    def _resource_group(self, *, keep: bool = True) -> None:
        cursor = self.cursor
        cursor.take(_RESOURCE_NAME, "the name of a dialect")
        cursor.expect(":")

        def entry() -> None:
            name = cursor.take(_RESOURCE_NAME, "the name of a resource").strip('"')
            cursor.expect(":")
            start = cursor.pos
            match = STRING.match(cursor.text, start)
            if match is None:
                if keep:
                    cursor.expected('a blob, a string that begins with "0x"')
                cursor.take(re.compile(r"true|false"), "a string, true or false")
                return
            cursor.pos = match.end()
            cursor.skip_blank()
            if keep:
                self.resources[name] = Resource(cursor.text, start, match.end())

        cursor.items("{", "}", entry)

    # -- module --------------------------------------------------------------------------------------------------------

    def _at_module(self) -> bool:
        return self.cursor.at('"builtin.module"') or self.cursor.peek(KEYWORD) in ("module", "builtin.module")

    def _module(self, module: Module) -> None:
        cursor = self.cursor
        if cursor.at('"'):
            self._generic_module(module)
            return
        cursor.take(KEYWORD)
        if cursor.at("@"):
            module.name = cursor.symbol()
        if cursor.accept_word("attributes"):
            module.attributes = self.reader.attributes.dictionary()
        self._module_body(module)
        module.location = self.reader.locations.read_optional() or UNKNOWN

    def _module_body(self, module: Module) -> None:
        cursor = self.cursor
        start = cursor.pos
        cursor.expect("{")
        while not cursor.accept("}"):
            if cursor.pos >= len(cursor.text):
                cursor.fail("expected '}' to close the module that begins here", start)
            self._top_level(module)

    def _generic_module(self, module: Module) -> None:
        cursor = self.cursor
        cursor.take(STRING)
        cursor.expect("(")
        cursor.expect(")")
        attributes: dict[str, Attribute] = {}
        if cursor.accept("<"):
            attributes |= self.reader.attributes.dictionary()
            cursor.expect(">")
        cursor.expect("(")
        cursor.expect("{")
        if cursor.take_optional(BLOCK_NAME) is not None:
            cursor.expect(":")
        cursor.pos = cursor.text.rindex("{", 0, cursor.pos) if cursor.at("}") else cursor.pos
        self._generic_module_body(module)
        cursor.expect(")")
        if cursor.at("{"):
            attributes |= self.reader.attributes.dictionary()
        cursor.expect(":")
        self.reader.types.function()
        name = attributes.pop("sym_name", None)
        module.name = name.value if isinstance(name, StringAttr) else ""
        module.attributes = attributes
        module.location = self.reader.locations.read_optional() or UNKNOWN

    def _generic_module_body(self, module: Module) -> None:
        cursor = self.cursor
        if cursor.accept("{"):
            cursor.expect("}")
            return
        while not cursor.accept("}"):
            if cursor.pos >= len(cursor.text):
                cursor.expected("'}' to close the module")
            self._top_level(module)

    def _top_level(self, module: Module) -> None:
        cursor = self.cursor
        start = cursor.pos
        name = cursor.peek(KEYWORD)
        if name == "func.func":
            cursor.take(KEYWORD)
            function = self._function(start)
        elif cursor.at('"func.func"'):
            cursor.take(STRING)
            function = self._generic_function(start)
        elif cursor.at("#") or cursor.at("!"):
            self._skip_definition()
            return
        elif name in ("module", "builtin.module"):
            cursor.fail("modules inside modules are not supported; expected func.func")
        else:
            self._foreign(module, start, name)
            return
        try:
            module.add_function(function)
        except HlojitError:
            cursor.fail(f"function @{function.name} is defined twice", start)

    def _foreign(self, module: Module, start: int, name: str | None) -> None:
        """Keep the text of an op of another dialect, up to the end of the line on which its brackets are closed."""
        cursor = self.cursor
        quoted = cursor.peek(STRING)
        dialect = (name or (quoted or "")[1:-1]).partition(".")[0]
        if "." not in (name or quoted or "") or dialect in ("stablehlo", "chlo", "func", "builtin", "hlojit"):
            hint = "; HLO text is another language: have it written as StableHLO" if name == "HloModule" else ""
            cursor.fail(f"expected func.func, a module or a definition, found {cursor.found()}{hint}")
        end = start
        while end < len(cursor.text) and cursor.text[end] != "\n":
            char = cursor.text[end]
            if char in "<([{" and cursor.text[end - 1 : end + 1] != "->":
                cursor.pos = end
                cursor.balanced(char)
                # ``balanced`` moves on to the next token; the bracket itself ends before the blanks.
                end += len(cursor.text[end : cursor.pos].rstrip())
                comment = cursor.text.find("//", end - 1, cursor.pos)
                end = end if comment < 0 else cursor.text.rindex(_closing(char), start, comment + 1) + 1
            elif char == '"':
                match = STRING.match(cursor.text, end)
                if match is None:
                    cursor.fail("expected '\"' to close this string", end)
                end = match.end()
            elif char == "}" or cursor.text.startswith("//", end):
                break
            else:
                end += 1
        module.foreign.append(_LOCATION_AT_END.sub("", compact(cursor.text[start:end])).strip())
        cursor.pos = end
        cursor.skip_blank()

    # -- functions -----------------------------------------------------------------------------------------------------

    def _function(self, start: int) -> Function:
        cursor = self.cursor
        visibility = "public"
        for word in VISIBILITIES:
            if cursor.accept_word(word):
                visibility = word
                break
        name = cursor.symbol()
        arguments: list[tuple[BlockArgument | None, Type, dict[str, Attribute]]] = cursor.items(
            "(", ")", self._argument
        )
        results: list[tuple[Type, dict[str, Attribute]]] = []
        if cursor.accept("->"):
            results = cursor.items("(", ")", self._result) if cursor.at("(") else [(self.reader.types.read(), {})]
        attributes = self.reader.attributes.dictionary() if cursor.accept_word("attributes") else {}
        function = Function(name, [], [type for type, _ in results], visibility=visibility)
        function.attributes = attributes
        function.argument_attributes = [attributes for _, _, attributes in arguments]
        function.result_attributes = [attributes for _, attributes in results]
        if cursor.at("{"):
            named = [argument for argument, _, _ in arguments if argument is not None]
            if len(named) != len(arguments):
                cursor.fail("expected names for the arguments of a function with a body", start)
            self._body(function, named)
        else:
            for _, type, _ in arguments:
                function.body.add_argument(type)
        function.location = self.reader.locations.read_optional() or self.reader.default_location(start)
        return function

    def _argument(self) -> tuple[BlockArgument | None, Type, dict[str, Attribute]]:
        cursor = self.cursor
        name: tuple[str, int] | None = None
        if cursor.at("%"):
            name = self.reader.operand(allow_number=False)
            cursor.expect(":")
        type = self.reader.types.read()
        attributes = self.reader.attributes.dictionary() if cursor.at("{") else {}
        self.reader.locations.read_optional()
        return (None if name is None else (*name, type)), type, attributes

    def _result(self) -> tuple[Type, dict[str, Attribute]]:
        type = self.reader.types.read()
        return type, self.reader.attributes.dictionary() if self.cursor.at("{") else {}

    def _body(self, function: Function, arguments: list[BlockArgument]) -> None:
        cursor, reader = self.cursor, self.reader
        start = cursor.pos
        reader.values.clear()
        reader.groups.clear()
        cursor.enter()
        cursor.expect("{")
        label = cursor.take_optional(BLOCK_NAME)
        if label is not None:
            if not arguments and cursor.at("("):
                arguments = cursor.items("(", ")", reader.block_argument)
            cursor.expect(":")
        reader.block(function.body, arguments, start)
        last = _own_return(function)
        returned = [value.type for value in last.operands]
        if last.op.is_terminator and returned != function.result_types:
            types = ", ".join(map(str, returned))
            wanted = ", ".join(map(str, function.result_types))
            cursor.fail(f"@{function.name} returns ({types}), but its signature says ({wanted})")
        cursor.expect("}")
        cursor.leave()

    def _generic_function(self, start: int) -> Function:
        cursor = self.cursor
        attributes, here = self._attributes_of_generic_function()
        signature = attributes.pop("function_type", None)
        name = attributes.pop("sym_name", None)
        if not isinstance(signature, TypeAttr) or not isinstance(signature.type, FunctionType):
            cursor.fail("expected attribute function_type of func.func", here)
        if not isinstance(name, StringAttr):
            cursor.fail("expected attribute sym_name of func.func", here)
        function = Function(name.value, [], signature.type.results)
        visibility = attributes.pop("sym_visibility", None)
        if isinstance(visibility, StringAttr):
            if visibility.value not in VISIBILITIES:
                cursor.fail(f"expected sym_visibility of {', '.join(VISIBILITIES)}, found {visibility.value!r}", here)
            function.visibility = visibility.value
        inputs = signature.type.inputs
        function.argument_attributes = _dictionaries(attributes.pop("arg_attrs", None), len(inputs))
        function.result_attributes = _dictionaries(attributes.pop("res_attrs", None), len(function.result_types))
        function.attributes = attributes
        self._generic_body(function, inputs)
        cursor.expect(")")
        if cursor.at("{"):
            found = self.reader.attributes.dictionary()
            known = {"function_type", "sym_name", "sym_visibility", "arg_attrs", "res_attrs"}
            function.attributes |= {key: value for key, value in found.items() if key not in known}
        cursor.expect(":")
        self.reader.types.function()
        function.location = self.reader.locations.read_optional() or self.reader.default_location(start)
        return function

    def _attributes_of_generic_function(self) -> tuple[dict[str, Attribute], int]:
        """Attributes, and the place of the body, in which the cursor is left; they may stand behind it."""
        cursor = self.cursor
        cursor.expect("(")
        cursor.expect(")")
        attributes: dict[str, Attribute] = {}
        if cursor.accept("<"):
            attributes = self.reader.attributes.dictionary()
            cursor.expect(">")
        here = cursor.pos
        cursor.expect("(")
        body = cursor.pos
        if "function_type" not in attributes:
            cursor.balanced("{")
            cursor.expect(")")
            if cursor.at("{"):
                attributes |= self.reader.attributes.dictionary()
            cursor.pos = body
        return attributes, here

    def _generic_body(self, function: Function, inputs: tuple[Type, ...]) -> None:
        cursor = self.cursor
        here = cursor.pos
        cursor.expect("{")
        if cursor.accept("}"):
            for type in inputs:
                function.body.add_argument(type)
            return
        cursor.pos = here
        self._body(function, [])
        if tuple(argument.type for argument in function.body.arguments) != inputs:
            cursor.fail(f"the arguments of @{function.name} differ from its function_type", here)


def _dictionaries(attribute: Attribute | None, count: int) -> list[dict[str, Attribute]]:
    if isinstance(attribute, ArrayAttr) and len(attribute.elements) == count:
        return [element.as_dict() if isinstance(element, DictAttr) else {} for element in attribute.elements]
    return [{} for _ in range(count)]


def _closing(char: str) -> str:
    return {"<": ">", "(": ")", "[": "]", "{": "}"}[char]


def _own_return(function: Function) -> Instruction:
    """What ends the function; the ``stablehlo.return`` of a region, with which MLIR lets functions end too, becomes its own."""
    last = function.body.terminator
    if not (isinstance(last.op.lowering, Structural) and last.op.lowering.ends == "region"):
        return last
    returned, location = last.operands, last.location
    last.erase()
    return Builder(function.body, location=location).return_(*returned)


__all__ = ["ModuleReader", "parse_module"]
