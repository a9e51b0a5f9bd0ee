"""The rewrite rules, by what they look at.

>>> [rule.name for rule in ALL_RULES][:2]
['constant_to_the_right', 'compare_constant_to_the_right']
"""

from __future__ import annotations

from hlojit.ir.passes.rewriting import Rule
from hlojit.ir.passes.rules import arithmetic, logic, movement, products, slicing, structure, updates

ALL_RULES: tuple[Rule, ...] = (
    *arithmetic.RULES,
    *logic.RULES,
    *movement.RULES,
    *slicing.RULES,
    *updates.RULES,
    *products.RULES,
    *structure.RULES,
)
