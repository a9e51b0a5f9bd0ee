"""What callers see of a program: arguments and results that are tuples, or in blocks, are plain tensors underneath."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hlojit.compiled import CompiledProgram
from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Module, Value
from hlojit.ir.passes.block_operands import BlockOperands
from hlojit.ir.passes.block_signature import BlockSignature, has_blocks_in_signature
from hlojit.ir.passes.tuple_legalizer import TupleLegalizer, has_tuples
from hlojit.ir.types import TensorType, TokenType
from hlojit.nesting import Nesting

if TYPE_CHECKING:
    from hlojit.block_executable import Signature


@dataclass(frozen=True, slots=True)
class Outside:
    """How arguments and results are nested, and the types of those in blocks; None of a program without."""

    nesting: Nesting | None
    blocks: Signature | None

    @classmethod
    def of(cls, module: Module) -> Outside:
        """That of a module, whose entry function takes and returns plain tensors from now on."""
        return cls(_without_tuples(module), _without_blocks(module))

    @classmethod
    def stated(cls, compiled: CompiledProgram) -> Outside:
        """What a compiled program says of itself."""
        nesting = Nesting(*compiled.nesting) if compiled.nesting else None
        return cls(nesting, (compiled.blocks[0], compiled.blocks[1]) if compiled.blocks else None)

    def stated_in(self, compiled: CompiledProgram) -> CompiledProgram:
        """The program saying it."""
        if self.blocks is not None:
            compiled = replace(compiled, blocks=self.blocks)
        if self.nesting is not None:
            compiled = replace(compiled, nesting=(self.nesting.arguments, self.nesting.results))
        return compiled

    def around(self, executable: Any) -> Any:
        """The executable as callers see it."""
        if self.blocks is not None:
            from hlojit.block_executable import BlockExecutable

            executable = BlockExecutable(executable, self.blocks)
        if self.nesting is not None:
            from hlojit.nested_executable import NestedExecutable

            executable = NestedExecutable(executable, self.nesting)
        return executable


def _without_tuples(module: Module) -> Nesting | None:
    """Let the entry function take and return tensors instead of tuples; how they were nested, if there were any."""
    nesting = Nesting.of(module.main)
    if nesting is not None:
        TupleLegalizer().run(module)
        if has_tuples(module.main):
            raise UnsupportedError(
                f"@{module.main.name}", "", "a function with tuples that other functions call is no entry"
            )
    return nesting


def _without_blocks(module: Module) -> Signature | None:
    """Let the entry function take and return the parts of tensors in blocks; what it took and returned, if there were any."""
    main = module.main
    if not has_blocks_in_signature(main):
        return None
    signature = _tensors(main.body.arguments), _tensors(main.body.returned)
    BlockOperands().run(module)
    if not BlockSignature().run(module):
        raise UnsupportedError(f"@{main.name}", "", "a function in blocks that other functions call is no entry")
    return signature


def _tensors(values: Sequence[Value]) -> tuple[TensorType, ...]:
    """The types of arguments or results: tokens are no values, and what else is no tensor is not passed."""
    types = [value.type for value in values if not isinstance(value.type, TokenType)]
    for type in types:
        if not isinstance(type, TensorType):
            raise UnsupportedError("the program", "", f"values of type {type} are not passed in and out of code")
    return tuple(type for type in types if isinstance(type, TensorType))
