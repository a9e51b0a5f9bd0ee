"""Functions of one real number that neither StableHLO nor CHLO has: hlojit's own ops, made by traced functions.

%0 = "hlojit.gamma"(%x) : (tensor<3xf64>) -> tensor<3xf64>
"""

from __future__ import annotations

import dataclasses

from hlojit.ir.ops.chlo import special
from hlojit.ir.ops.definition import Cost, define
from hlojit.ir.ops.derivatives import pointwise as derivatives
from hlojit.ir.ops.pointwise import FLOAT, by_type, unary, widened
from hlojit.ir.ops.transcendental import by_name

GAMMA = define(
    dataclasses.replace(
        unary(
            "gamma",
            (FLOAT,),
            by_type(real=by_name("gamma")),
            widened(special("gamma")),
            cost=Cost.EXPENSIVE,
            derivative=derivatives.GAMMA,
            summary="The gamma function; NaN at the negative integers, infinite with the sign of zero.",
        ),
        name="hlojit.gamma",
        syntax="generic",
    )
)
