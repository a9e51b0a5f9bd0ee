"""Programs that break constraints of ops of MLIR's own dialects."""

from __future__ import annotations

from .programs import Broken, call

INTEGER_OPS = "addi subi muli divsi remsi divui remui andi ori xori maxsi minsi maxui minui".split()
FLOAT_OPS = "addf subf mulf divf maximumf minimumf".split()
INTEGER_CONVERSIONS = "index_cast index_castui extsi extui trunci".split()

BINARY = [
    row
    for name in INTEGER_OPS + FLOAT_OPS
    for right, wrong in [("i2", "f2") if name in INTEGER_OPS else ("f2", "i2")]
    for row in (
        Broken(f"arith.{name}", "operands", call(f"arith.{name}", f"{wrong} {wrong}", wrong), "operands must be"),
        Broken(f"arith.{name}", "types", call(f"arith.{name}", f"{right} {right[0]}3", right), "different types"),
        Broken(
            f"arith.{name}", "result", call(f"arith.{name}", f"{right} {right}", f"{right[0]}3"), "result types are"
        ),
    )
]

CONVERSIONS = [
    row
    for name in [*INTEGER_CONVERSIONS, "sitofp", "fptosi"]
    for source, target in [("f2", "i2") if name == "fptosi" else ("i2", "f2") if name == "sitofp" else ("i2", "l2")]
    for row in (
        Broken(f"arith.{name}", "operands", call(f"arith.{name}", "c2", target), "operands must be"),
        Broken(f"arith.{name}", "result", call(f"arith.{name}", source, f"{target[0]}3"), "expected tensor<2x"),
        Broken(f"arith.{name}", "result", call(f"arith.{name}", source, "c2"), "which this does not give"),
    )
]

PREDICATE = "predicate = 0 : i64"
CALLEE = "func.func private @callee(%a: tensor<2xf32>) -> tensor<2xf32> { func.return %a : tensor<2xf32> }"

ROWS = [
    *BINARY,
    *CONVERSIONS,
    Broken("arith.constant", "result", call("arith.constant", "", "f3", "value = dense<1.0> : tensor<2xf32>"), "expected tensor<2xf32>"),
    Broken("arith.cmpi", "operands", call("arith.cmpi", "f2 f2", "b2", PREDICATE), "operands must be"),
    Broken("arith.cmpi", "types", call("arith.cmpi", "i2 i3", "b2", PREDICATE), "different types"),
    Broken("arith.cmpi", "result", call("arith.cmpi", "i2 i2", "i2", PREDICATE), "expected tensor<2xi1>"),
    Broken("arith.select", "operands", call("arith.select", "i f f", "f"), "condition must be an i1"),
    Broken("arith.select", "operands", call("arith.select", "b f f2", "f"), "different types"),
    Broken("arith.select", "result", call("arith.select", "b f f", "i"), "expected tensor<f32>"),
    Broken("tensor.cast", "operand", call("tensor.cast", "token", "f"), "operand must be a tensor"),
    Broken("tensor.cast", "result", call("tensor.cast", "f2", "f3"), "cannot be cast"),
    Broken("tensor.dim", "operand", call("tensor.dim", "token n", "n"), "operand must be a tensor"),
    Broken("tensor.dim", "index", call("tensor.dim", "f2 i", "n"), "must be of type index"),
    Broken("tensor.dim", "result", call("tensor.dim", "f2 n", "i"), "expected index"),
    Broken("tensor.from_elements", "result", call("tensor.from_elements", "n n", "fq"), "known sizes"),
    Broken("tensor.from_elements", "result", call("tensor.from_elements", "n n", "f2"), "must be of type f32"),
    Broken("tensor.from_elements", "result", call("tensor.from_elements", "n n", "m3"), "expected 3"),
    Broken("tensor.extract", "indices", call("tensor.extract", "f23 n", "e"), "expected 2"),
    Broken("tensor.extract", "index", call("tensor.extract", "f2 i", "e"), "must be of type index"),
    Broken("tensor.extract", "result", call("tensor.extract", "f2 n", "n"), "expected f32"),
    Broken("shape.shape_of", "operand", call("shape.shape_of", "token", "m1"), "operand must be a tensor"),
    Broken("shape.shape_of", "result", call("shape.shape_of", "f23", "m3"), "expected 2 elements"),
    Broken("shape.shape_of", "result", call("shape.shape_of", "f23", "f2"), "result must be a shape"),
    Broken("shape.num_elements", "operands", call("shape.num_elements", "f2", "n"), "must be shapes"),
    Broken("shape.num_elements", "result", call("shape.num_elements", "m2", "f"), "result must be a size"),
    Broken("shape.broadcast", "operands", call("shape.broadcast", "f2 m2", "m2"), "must be shapes"),
    Broken("shape.broadcast", "result", call("shape.broadcast", "m2 m3", "m2"), "expected 3 elements"),
    Broken("shape.const_shape", "result", call("shape.const_shape", "", "m3", "shape = dense<[1, 2]> : tensor<2xindex>"), "a shape of 2 sizes"),
    Broken("shape.const_shape", "result", call("shape.const_shape", "", "m3", "shape = dense<1.0> : tensor<3xf32>"), "must be a list of sizes"),
    Broken("shape.cstr_broadcastable", "operands", call("shape.cstr_broadcastable", "f2 m2", "witness"), "must be shapes"),
    Broken("shape.cstr_broadcastable", "result", call("shape.cstr_broadcastable", "m2 m2", "n"), "expected !shape.witness"),
    Broken("func.constant", "value", call("func.constant", "", "function", "value = @nobody"), "there is no function @nobody"),
    Broken("func.constant", "value", call("func.constant", "", "f", "value = @callee"), "but @callee has type", CALLEE),
    Broken("func.call_indirect", "callee", call("func.call_indirect", "f2", "f2"), "callee must be a function"),
    Broken("func.call_indirect", "callee", call("func.call_indirect", "function f3", "f2"), "but the function takes"),
    Broken("func.call_indirect", "results", call("func.call_indirect", "function f2", "f3"), "expected tensor<2xf32>"),
    Broken("builtin.unrealized_conversion_cast", "results", call("builtin.unrealized_conversion_cast", "f2"), "at least one result"),
]  # fmt: skip
