"""Instructions of PTX for which LLVM 7 has no intrinsics, as inline text that both assemblers take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hlojit.llvm.text import Val
from hlojit.simt.builder import SimtBuilder


def shared_address(b: SimtBuilder, pointer: Val) -> Val:
    """Where an address lies in shared memory (i32)."""
    name = b.name()
    b.line(f"{name} = addrspacecast ptr {pointer.text} to ptr addrspace(3)")
    return b.emit("i32", 1, f"ptrtoint ptr addrspace(3) {name} to i32")


def global_address(b: SimtBuilder, pointer: Val) -> Val:
    """An address in a buffer (i64)."""
    name = b.name()
    b.line(f"{name} = addrspacecast ptr {pointer.text} to ptr addrspace(1)")
    return b.emit("i64", 1, f"ptrtoint ptr addrspace(1) {name} to i64")


_LETTERS: Final = {"i32": "r", "i64": "l", "f32": "f"}
"""Registers in the constraints of a machine instruction."""


def machine_statement(b: SimtBuilder, text: str, operands: Sequence[Val]) -> None:
    """An instruction of PTX that changes memory and has no results."""
    constraints = ",".join([*(_LETTERS[operand.kind] for operand in operands), "~{memory}"])
    passed = ", ".join(f"{b.type_of(operand)} {operand.text}" for operand in operands)
    b.line(f'call void asm sideeffect "{text}", "{constraints}"({passed})')


def machine_instruction(
    b: SimtBuilder, text: str, kinds: Sequence[str], operands: Sequence[Val], *, memory: bool
) -> list[Val]:
    """An instruction of PTX that all lanes of a warp do together, with several results."""
    constraints = [f"={_LETTERS[kind]}" for kind in kinds] + [_LETTERS[operand.kind] for operand in operands]
    if memory:
        constraints.append("~{memory}")
    types = f"{{ {', '.join(b.type(kind) for kind in kinds)} }}"
    passed = ", ".join(f"{b.type_of(operand)} {operand.text}" for operand in operands)
    found = b.name()
    b.line(f'{found} = call {types} asm sideeffect "{text}", "{",".join(constraints)}"({passed}) convergent')
    return [b.emit(kind, 1, f"extractvalue {types} {found}, {number}") for number, kind in enumerate(kinds)]
