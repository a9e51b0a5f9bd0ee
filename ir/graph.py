"""The graph: modules and functions, over the blocks, instructions and values of ``hlojit.ir.blocks``.

A module is mutable while it is built and rewritten.  ``freeze`` makes it read-only before it is cached, shared or handed
to a plugin; passes work on a private ``clone``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hlojit.ir.attributes import Attribute
from hlojit.ir.blocks import DEEPEST_REGION, Block, Instruction, Value, clone_instruction
from hlojit.ir.environment import Scope, current, scope_for
from hlojit.ir.errors import HlojitError
from hlojit.ir.frozen import MESSAGE, frozen_dict, frozen_list, refuse
from hlojit.ir.location import UNKNOWN, Location
from hlojit.ir.presentation import text_of
from hlojit.ir.types import FunctionType, Type, function_type

__all__ = ["DEEPEST_REGION", "VISIBILITIES", "Block", "Function", "Instruction", "Module", "Value", "clone_instruction"]


VISIBILITIES: Final = ("public", "private", "nested")
"""Of functions: who may call them."""


class Function:
    """A named function: a block, its visibility, and the attributes of function, arguments and results."""

    def __init__(
        self,
        name: str,
        argument_types: Sequence[Type],
        result_types: Sequence[Type],
        *,
        visibility: str = "public",
        location: Location = UNKNOWN,
    ):
        self.name = name
        self.body = Block(argument_types, self)
        self.result_types = list(result_types)
        self.visibility = visibility
        self.location = location
        self.attributes: dict[str, Attribute] = {}
        self.argument_attributes: list[dict[str, Attribute]] = [{} for _ in argument_types]
        self.result_attributes: list[dict[str, Attribute]] = [{} for _ in result_types]
        self.module: Module | None = None

    @property
    def type(self) -> FunctionType:
        """The function's signature."""
        return function_type([argument.type for argument in self.body.arguments], self.result_types)

    @property
    def is_declaration(self) -> bool:
        """Whether the function has no body."""
        return self.body.first is None

    def clone(self) -> Function:
        """Deep copy."""
        copy = Function(
            self.name,
            [argument.type for argument in self.body.arguments],
            self.result_types,
            visibility=self.visibility,
            location=self.location,
        )
        copy.attributes = dict(self.attributes)
        copy.argument_attributes = [dict(attributes) for attributes in self.argument_attributes]
        copy.result_attributes = [dict(attributes) for attributes in self.result_attributes]
        copy.body = self.body.clone()
        copy.body.parent = copy
        return copy

    def __repr__(self) -> str:
        return f"<Function @{self.name}: {self.type}>"


class Module:
    """A program: functions by name, one of which (``main``) is the entry.

    ``foreign`` holds text of top-level operations of dialects that hlojit does not know (``sdy.mesh``), kept as read.
    ``environment`` is the scope in which the module was made, and in which its names are looked up wherever it is used.
    """

    environment: Scope

    def __init__(self, name: str = "", *, location: Location = UNKNOWN):
        self.name = name
        self.location = location
        self.functions: dict[str, Function] = {}
        self.attributes: dict[str, Attribute] = {}
        self.resources: dict[str, bytes] = {}
        self.foreign: list[str] = []
        self.environment = current()
        self.frozen = False

    @property
    def main(self) -> Function:
        """The entry function: ``main``, or the only public one."""
        found = self.functions.get("main")
        if found is None:
            public = [function for function in self.functions.values() if function.visibility == "public"]
            if len(public) != 1:
                raise HlojitError(
                    f"the module has no function @main and {len(public)} public functions; "
                    "name the entry function main, or make exactly one function public"
                )
            found = public[0]
        if found.is_declaration:
            raise HlojitError(
                f"the entry function @{found.name} has no body, only a declaration\n  at {found.location}"
            )
        return found

    def add_function(self, function: Function) -> Function:
        """Add a function under its name."""
        if self.frozen:
            raise HlojitError(MESSAGE)
        if function.name in self.functions:
            raise HlojitError(f"function @{function.name} is defined twice")
        self.functions[function.name] = function
        function.module = self
        return function

    def walk(self) -> Iterator[Instruction]:
        """Yield every instruction of every function."""
        for function in self.functions.values():
            yield from function.body.walk()

    def clone(self) -> Module:
        """Deep copy, not frozen."""
        copy = Module(self.name, location=self.location)
        copy.attributes = dict(self.attributes)
        copy.resources = dict(self.resources)
        copy.foreign = list(self.foreign)
        copy.environment = self.environment
        for function in self.functions.values():
            copy.add_function(function.clone())
        return copy

    def freeze(self) -> Module:
        """Make the module read-only and return it."""
        if self.frozen:
            return self
        for function in self.functions.values():
            stack = [function.body]
            while stack:
                block = stack.pop()
                for instruction in block:
                    stack.extend(instruction.regions)
                    _freeze_instruction(instruction)
                _freeze_block(block)
            _freeze_function(function)
        self.functions = frozen_dict(self.functions)
        self.attributes = frozen_dict(self.attributes)
        self.resources = frozen_dict(self.resources)
        self.foreign = frozen_list(self.foreign)
        self.frozen = True
        self.__class__ = FrozenModule
        return self

    def __str__(self) -> str:
        with scope_for(self.environment).activate():
            return text_of(self)

    def __repr__(self) -> str:
        return f"<Module @{self.name}: {', '.join(self.functions)}>"


# frozen objects: the same ones, of classes that refuse every assignment


class FrozenValue(Value):
    """A value of a frozen module."""

    __slots__ = ()
    __setattr__ = __delattr__ = refuse


class FrozenInstruction(Instruction):
    """An instruction of a frozen module."""

    __slots__ = ()
    __setattr__ = __delattr__ = refuse


class FrozenBlock(Block):
    """A block of a frozen module."""

    __slots__ = ()
    __setattr__ = __delattr__ = refuse


class FrozenFunction(Function):
    """A function of a frozen module."""

    __slots__ = ()
    __setattr__ = __delattr__ = refuse


class FrozenModule(Module):
    """A frozen module."""

    __slots__ = ()
    __setattr__ = __delattr__ = refuse


def _freeze_values(values: Iterable[Value]) -> None:
    for value in values:
        value.users = frozen_dict(value.users)
        value.__class__ = FrozenValue


def _freeze_instruction(instruction: Instruction) -> None:
    _freeze_values(instruction.results)
    instruction.attributes = frozen_dict(instruction.attributes)
    instruction.discardable = frozen_dict(instruction.discardable)
    instruction.regions = frozen_list(instruction.regions)
    instruction.__class__ = FrozenInstruction


def _freeze_block(block: Block) -> None:
    _freeze_values(block.arguments)
    block.arguments = frozen_list(block.arguments)
    block.frozen = True
    block.__class__ = FrozenBlock


def _freeze_function(function: Function) -> None:
    function.attributes = frozen_dict(function.attributes)
    function.argument_attributes = frozen_list(map(frozen_dict, function.argument_attributes))
    function.result_attributes = frozen_list(map(frozen_dict, function.result_attributes))
    function.result_types = frozen_list(function.result_types)
    function.__class__ = FrozenFunction
