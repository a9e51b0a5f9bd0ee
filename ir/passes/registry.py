"""hlojit's own passes by name, and those that the compiler runs by default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hlojit.ir.passes.algebraic_simplifier import AlgebraicSimplifier
from hlojit.ir.passes.block_dot_strength_reduction import BlockDotStrengthReduction
from hlojit.ir.passes.block_operands import BlockOperands
from hlojit.ir.passes.block_signature import BlockSignature
from hlojit.ir.passes.call_inliner import CallInliner
from hlojit.ir.passes.chlo_legalizer import ChloLegalizer
from hlojit.ir.passes.common_subexpression_elimination import CommonSubexpressionElimination
from hlojit.ir.passes.constant_folding import ConstantFolding
from hlojit.ir.passes.dead_code_elimination import DeadCodeElimination
from hlojit.ir.passes.dynamic_padder import DynamicPadder
from hlojit.ir.passes.exact_arithmetic import ExactArithmetic
from hlojit.ir.passes.fusion_limits import FusionLimits, FusionPolicy
from hlojit.ir.passes.instruction_fusion import InstructionFusion
from hlojit.ir.passes.latency_hiding_scheduler import LatencyHidingScheduler
from hlojit.ir.passes.op_expander import OpExpander
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.passes.shape_legalizer import ShapeLegalizer
from hlojit.ir.passes.shape_refinement import ShapeRefinement
from hlojit.ir.passes.stochastic_rounding import StochasticRounding
from hlojit.ir.passes.token_removal import TokenRemoval
from hlojit.ir.passes.tuple_legalizer import TupleLegalizer
from hlojit.ir.passes.type_legalizer import TypeLegalizer
from hlojit.ir.passes.while_loop_simplifier import WhileLoopSimplifier

BUILTIN_PASSES: tuple[type[Pass], ...] = (
    TupleLegalizer,
    BlockOperands,
    BlockSignature,
    BlockDotStrengthReduction,
    TokenRemoval,
    CallInliner,
    ShapeLegalizer,
    ChloLegalizer,
    ShapeRefinement,
    DynamicPadder,
    OpExpander,
    TypeLegalizer,
    StochasticRounding,
    ExactArithmetic,
    AlgebraicSimplifier,
    ConstantFolding,
    WhileLoopSimplifier,
    CommonSubexpressionElimination,
    DeadCodeElimination,
    InstructionFusion,
    LatencyHidingScheduler,
)

ALIASES = {
    "inline": "call-inliner",
    "chlo-legalize-to-stablehlo": "chlo-legalizer",
    "refine-shapes": "shape-refinement",
    "expand": "op-expander",
    "parts": "type-legalizer",
    "canonicalize": "algebraic-simplifier",
    "fold": "constant-folding",
    "cse": "common-subexpression-elimination",
    "dce": "dead-code-elimination",
    "fuse": "instruction-fusion",
}
"""Short names for the command line."""


def known_passes(extra: Iterable[type[Pass]] = ()) -> dict[str, type[Pass]]:
    """Built-in passes and ``extra`` ones, by name and alias."""
    known = {kind.name: kind for kind in (*BUILTIN_PASSES, *extra)}
    return known | {alias: known[name] for alias, name in ALIASES.items()}


def simplification_passes(fold_limit: int = 4096) -> list[Pass]:
    """The passes that make a program smaller, in their order; the last one removes what is dead."""
    return [
        AlgebraicSimplifier(fold_limit=fold_limit),
        CommonSubexpressionElimination(),
        DeadCodeElimination(),
    ]


def default_passes(
    fold_limit: int = 4096,
    *,
    legalization: Sequence[Pass] | None = None,
    limits: FusionLimits | None = None,
    policy: FusionPolicy | None = None,
) -> list[Pass]:
    """The passes of a compilation; ``order_passes`` puts them and vendors' passes in order.

    ``fold_limit`` bounds the elements that constant folding makes; ``legalization`` are the passes that ask a back end
    what to expand (by default everything is), ``limits`` and ``policy`` those of the back end's fusions.

    The simplifications run a second time before fusion, on what loops and vendors' passes have left.
    """
    decoded_rows = limits.decoded_rows if limits is not None else 0
    return [
        TupleLegalizer(),
        BlockOperands(),
        BlockSignature(),
        TokenRemoval(),
        *((BlockDotStrengthReduction(decoded_rows),) if decoded_rows else ()),
        *((CallInliner(), OpExpander(), TypeLegalizer()) if legalization is None else legalization),
        StochasticRounding(),
        ExactArithmetic(),
        *simplification_passes(fold_limit),
        WhileLoopSimplifier(),
        *(pass_.in_phase("before-fusion") for pass_ in simplification_passes(fold_limit)),
        # Once more after vendors' passes, so that what they leave unused is not compiled.
        DeadCodeElimination().in_phase("fusion"),
        # What vendors' passes and expansions have made since.
        ExactArithmetic().in_phase("fusion"),
        InstructionFusion(limits=limits, policy=policy),
        LatencyHidingScheduler(),
    ]
