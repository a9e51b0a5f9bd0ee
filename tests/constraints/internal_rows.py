"""Programs that break constraints of ops that hlojit's own passes make."""

from __future__ import annotations

from .programs import Broken, call

_START = '%b = "hlojit.async_start"() ({ "stablehlo.return"(%f2) : ($f2) -> () }) : () -> $f2'
_DONE = '\n%r = "hlojit.async_done"(%b) : ($f2) -> $f2'

ROWS = [
    Broken("hlojit.fusion", "C1", call("hlojit.fusion", "f2", "f2", 'kind = "novel"', '{ ^bb0(%x0: $f2): "stablehlo.return"(%x0) : ($f2) -> () }'), "is none of"),
    Broken("hlojit.fusion", "C2", call("hlojit.fusion", "f2", "f3", 'kind = "loop"', '{ ^bb0(%x0: $f3): "stablehlo.return"(%x0) : ($f3) -> () }'), "the body takes"),
    Broken("hlojit.fusion", "C3", call("hlojit.fusion", "f2", "f3", 'kind = "loop"', '{ ^bb0(%x0: $f2): "stablehlo.return"(%x0) : ($f2) -> () }'), "the body returns"),
    Broken("hlojit.fusion", "C4", call("hlojit.fusion", "f2", "f2", 'kind = "anchor"', '{ ^bb0(%x0: $f2): "stablehlo.return"(%x0) : ($f2) -> () }'), "an anchored fusion has one"),
    Broken("hlojit.split_blocks", "C1", call("hlojit.split_blocks", "f2", "f2"), "operand must be in blocks"),
    Broken("hlojit.join_blocks", "C1", call("hlojit.join_blocks", "f2", "f2"), "result must be in blocks"),
    Broken("hlojit.elided_constant", "C1", call("hlojit.elided_constant", "", "f2", "value = dense_resource<__elided__> : tensor<3xf32>"), "result types are tensor<2xf32>, expected tensor<3xf32>"),
    Broken("hlojit.collective", "C1", call("hlojit.collective", "f2", "f2", 'kind = "novel", groups = dense<0> : tensor<1x1xi64>'), "is none of"),
    Broken("hlojit.async_start", "C1", _START.replace("({", "({ ^bb0(%x0: $f2):") + _DONE, "the body takes"),
    Broken("hlojit.async_start", "C2", _START, "have 0 users"),
    Broken("hlojit.async_done", "C1", call("hlojit.async_done", "f2", "f2"), "not all results of one hlojit.async_start"),
    *(
        Broken("hlojit.complex_function", label, call("hlojit.complex_function", operands, result, f'function = "{function}"'), expected)
        for label, operands, result, function, expected in (
            ("I1", "i2 i2", "i2", "exp", "must be a tensor of"),
            ("C1", "f2 f2 f2", "f2", "exp", "the parts of one or two numbers"),
            ("C2", "f2 f2", "f3", "exp", "result types are tensor<3xf32>"),
            ("C3", "f2 f2", "f2", "novel", "is none of"),
        )
    ),
    Broken("hlojit.lapack", "C1", call("hlojit.lapack", "f2", "f2", 'routine = "novel", options = {}'), "novel"),
    Broken("hlojit.butterflies", "C1", call("hlojit.butterflies", "c2 f222", "c2", "inverse = false, scale = 1.0 : f64"), "expected complex numbers of rank 4"),
    Broken("hlojit.butterflies", "C2", call("hlojit.butterflies", "c2222 f222", "c2", "inverse = false, scale = 1.0 : f64"), "result types are"),
]  # fmt: skip
