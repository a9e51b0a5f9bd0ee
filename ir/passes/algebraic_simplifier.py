"""Apply the rewrite rules until none fires.

    %0 = stablehlo.subtract %x, dense<0.0>     =>   %1 = stablehlo.negate %x
    %1 = stablehlo.negate %0

The rules are named functions in ``hlojit.ir.passes.rules``; each states what it does to numbers.  ``effect`` is the
strongest that this pass may use: ``exact`` (same bits), ``permitted`` (freedoms of the specification; the default) or
``approximates``.  ``disable`` names rules to leave out, separated by ``:``.  With a ``fold_limit`` constants are
folded on the way (see ``constant_folding``), which rules and folding both profit from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from hlojit.ir.errors import HlojitError
from hlojit.ir.graph import Module
from hlojit.ir.passes.constant_folding import Folder
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.passes.rewriting import Effect, Rewriter, RuleTable, rule_table
from hlojit.ir.passes.rules import ALL_RULES


@dataclass(frozen=True)
class AlgebraicSimplifier(Pass):
    """Rewrite instructions by named rules."""

    name: ClassVar[str] = "algebraic-simplifier"
    phase: ClassVar[str] = "simplify"
    open_sizes: ClassVar[bool] = True
    before: ClassVar[tuple[str, ...]] = ("common-subexpression-elimination", "dead-code-elimination")
    numeric_effect: ClassVar[str] = "permitted"
    effect: str = "permitted"
    disable: str = ""
    fold_limit: int = 0

    def run(self, module: Module) -> bool:
        """Simplify; return whether a rule fired."""
        folder = Folder(module, self.fold_limit) if self.fold_limit else None
        return Rewriter(module, _table(self.effect, self.disable), folder).run()


@lru_cache(maxsize=16)
def _table(effect: str, disable: str) -> RuleTable:
    order = [each.name.lower() for each in Effect]
    if effect not in order:
        raise HlojitError(f"option 'effect' of algebraic-simplifier: {effect!r} is none of {', '.join(order)}")
    disabled = set(disable.split(":")) - {""}
    unknown = sorted(disabled - {rule.name for rule in ALL_RULES})
    if unknown:
        raise HlojitError(f"algebraic-simplifier has no rule {unknown[0]!r}")
    allowed = frozenset(list(Effect)[: order.index(effect) + 1])
    return rule_table((rule for rule in ALL_RULES if rule.name not in disabled), allowed)
