"""hlojit's own passes by name, and the pipeline that the compiler runs by default."""

from __future__ import annotations

from collections.abc import Iterable

from hlojit.ir.passes.call_inliner import CallInliner
from hlojit.ir.passes.common_subexpression_elimination import CommonSubexpressionElimination
from hlojit.ir.passes.dead_code_elimination import DeadCodeElimination
from hlojit.ir.passes.instruction_fusion import InstructionFusion
from hlojit.ir.passes.pass_manager import Pass

BUILTIN_PASSES: tuple[type[Pass], ...] = (
    CallInliner,
    CommonSubexpressionElimination,
    DeadCodeElimination,
    InstructionFusion,
)

ALIASES = {
    "inline": "call-inliner",
    "cse": "common-subexpression-elimination",
    "dce": "dead-code-elimination",
    "fuse": "instruction-fusion",
}
"""Short names for the command line."""


def known_passes(extra: Iterable[type[Pass]] = ()) -> dict[str, type[Pass]]:
    """Built-in passes and ``extra`` ones, by name and alias."""
    known = {kind.name: kind for kind in (*BUILTIN_PASSES, *extra)}
    return known | {alias: known[name] for alias, name in ALIASES.items()}


def default_passes() -> list[Pass]:
    """The built-in passes with their default options; ``order_passes`` puts them and vendors' passes in order."""
    return [kind() for kind in BUILTIN_PASSES]
