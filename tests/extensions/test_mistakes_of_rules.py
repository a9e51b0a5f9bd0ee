"""Mistakes in rules of pointwise ops: refused where they are written, by op, package, file and line, with what to write."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import hlojit
import hlojit.extensions as ext
import numpy as np
import pytest
from hlojit.ir.scalar.builder import ScalarBuilder
from hlojit.ir.scalar.numpy_builder import NumpyBuilder
from hlojit.ir.scalar.rule_builder import Misuse, RuleBuilder

from .mistakes import X, clean, nova, one_line

left_as_found = pytest.fixture(autouse=True)(clean)

OP = """
func.func @main(%x: tensor<50xf32>) -> tensor<50xf32> {
  %0 = "nova.op"(%x) : (tensor<50xf32>) -> tensor<50xf32>
  return %0 : tensor<50xf32>
}
"""


def registered(rule: Any) -> None:
    record = ext.OpDefinition(
        "nova.op",
        operands=(ext.Operand("x"),),
        infer=lambda request: [request.operand_types[0]],
        reference=lambda call, x: -x,
        lowering=ext.Pointwise(rule),
    )
    ext.register(nova(ops=[record]), package="hlojit-nova", version="0.1.0")


def whole(b: Any, x: Any) -> Any:
    return b.fptosi(x, "i32")


def awaited() -> Any:
    async def rule(b: Any, call: Any, x: Any) -> Any:
        return x

    return rule


kept: list[Any] = []

RULES: dict[str, tuple[Callable[..., Any], str]] = {
    "integer method of floats": (lambda b, c, x: b.add(x, x), r"b\.add takes integers of one kind, and was given f32, f32; write b\.fadd"),
    "float method of integers": (lambda b, c, x: b.fmul(whole(b, x), whole(b, x)), r"b\.fmul takes floats of one kind, and was given i32, i32; write b\.mul"),
    "float function of an integer": (lambda b, c, x: b.sqrt(whole(b, x)), r"b\.sqrt takes a float, and was given i32; write b\.sitofp\(x, 'f32'\) first"),
    "bits of a float": (lambda b, c, x: b.xor(x, x), r"b\.xor takes integers of one kind, and was given f32, f32"),
    "two widths": (lambda b, c, x: b.fadd(x, b.fpext(x)), r"b\.fadd takes floats of one kind, and was given f32, f64; write b\.fpext\(x\)"),
    "integer and float": (lambda b, c, x: b.fadd(x, whole(b, x)), r"b\.fadd takes .* given f32, i32; write b\.sitofp\(x, 'f32'\)"),
    "predicate without o or u": (lambda b, c, x: b.fcmp("gt", x, x), r"b\.fcmp has no predicate 'gt'; it has oeq .*; write 'ogt'"),
    "operator as predicate": (lambda b, c, x: b.fcmp("!=", x, x), r"b\.fcmp has no predicate '!='; .*; write 'une'"),
    "predicate without a sign": (lambda b, c, x: b.icmp("lt", whole(b, x), whole(b, x)), r"b\.icmp has no predicate 'lt'; .*; write 'slt'"),
    "predicate that is none": (lambda b, c, x: b.fcmp(None, x, x), r"b\.fcmp has no predicate None"),
    "integers compared as floats": (lambda b, c, x: b.fcmp("olt", whole(b, x), whole(b, x)), r"b\.fcmp takes floats .*; write b\.icmp"),
    "a number": (lambda b, c, x: b.fadd(x, 1.0), r"b\.fadd was given 1\.0, which is no scalar; write b\.constant\('f32', 1\.0\)"),
    "None": (lambda b, c, x: b.fadd(x, None), r"b\.fadd was given None, which is no scalar; did a function forget to return it"),
    "an array": (lambda b, c, x: b.fadd(x, np.ones(3)), r"b\.fadd was given array.*, which is no scalar"),
    "times": (lambda b, c, x: x * x, r"scalars of a rule have no \*; write b\.fmul\(x, y\)"),
    "times a number": (lambda b, c, x: 2 * x, r"scalars of a rule have no \*; write b\.fmul"),
    "times of integers": (lambda b, c, x: whole(b, x) * 2, r"scalars of a rule have no \*; write b\.mul"),
    "minus": (lambda b, c, x: -x, r"scalars of a rule have no -; write b\.fneg\(x\)"),
    "comparison": (lambda b, c, x: x if x > 0 else b.fneg(x), r"scalars of a rule have no >; write b\.fcmp\('ogt', x, y\), and choose by b\.select"),
    "equality": (lambda b, c, x: x if x == 0 else b.fneg(x), r"scalars of a rule have no ==; write b\.fcmp\('oeq', x, y\)"),
    "condition": (lambda b, c, x: x if b.fcmp("ogt", x, x) else b.fneg(x), r"a scalar is neither true nor false; write b\.select\(condition, x, y\) \(a rule runs when the program is compiled"),
    "NumPy's function": (lambda b, c, x: np.tanh(x), r"NumPy cannot compute with a scalar; write methods of the builder"),
    "Python's function": (lambda b, c, x: math.exp(x), r"a scalar is no Python number"),
    "an element of it": (lambda b, c, x: x[0], r"a scalar is one element, no array"),
    "method of the scalar": (lambda b, c, x: x.sqrt(), r"a scalar of a rule has its kind only, no 'sqrt'"),
    "misspelt method": (lambda b, c, x: b.mull(x, x), r"the scalar builder has no method 'mull'; did you mean 'mul' or 'fmul'\?"),
    "too few arguments": (lambda b, c, x: b.fadd(x), r"raised TypeError\(\"fadd\(\) missing 1 required positional argument: 'b'\"\)"),
    "constant of a format": (lambda b, c, x: b.constant("bf16", 1.0), r"b\.constant was given the kind 'bf16'; its kinds are i1 i8 .* f64"),
    "constant of a type": (lambda b, c, x: b.constant(c.result_type, 1.0), r"b\.constant was given the kind .*; its kinds are i1 i8"),
    "constant without a number": (lambda b, c, x: b.constant("f32", "1"), r"b\.constant was given '1' for its value, which is no number"),
    "constant of a scalar": (lambda b, c, x: b.constant("f32", x), r"b\.constant was given a scalar for its value"),
    "half an integer": (lambda b, c, x: b.constant("i32", 0.5), r"b\.constant\('i32', 0\.5\): an integer kind has no such constant"),
    "bits of another width": (lambda b, c, x: b.bitcast(x, "i64"), r"b\.bitcast keeps the width, and was given f32 for i64; b\.fptosi\(x, 'i64'\) converts"),
    "narrower by sext": (lambda b, c, x: b.sext(whole(b, x), "i8"), r"b\.sext makes integers wider, and was given i32 for i8; write b\.trunc\(x, 'i8'\)"),
    "float by trunc": (lambda b, c, x: b.trunc(x, "i32"), r"b\.trunc takes an integer, and was given f32; write b\.fptrunc or b\.fptosi"),
    "float to float by sitofp": (lambda b, c, x: b.sitofp(x, "f64"), r"b\.sitofp takes an integer, and was given f32; write b\.fpext"),
    "misspelt kind": (lambda b, c, x: b.fptosi(x, "int32"), r"b\.fptosi was given the kind 'int32'; its kinds are i1 i8 i16 i32 i64; did you mean 'i32'"),
    "choice by a float": (lambda b, c, x: b.select(x, x, x), r"b\.select takes a condition of kind i1 first, and was given f32; compare it: b\.fcmp\('une', x, y\)"),
    "table that is a list": (lambda b, c, x: b.lookup("f32", [1.0], whole(b, x)), r"b\.lookup was given \[1\.0\] for its table, which is a tuple of numbers"),
    "index that is a float": (lambda b, c, x: b.lookup("f32", (1.0,), x), r"b\.lookup takes a scalar of kind i32, and was given f32; write b\.fptosi\(x, 'i32'\)"),
    "scalar of another call": (lambda b, c, x: kept.append(x) or b.fadd(kept[0], x), r"b\.fadd was given a scalar of another builder"),
    "result of another call": (lambda b, c, x: kept.append(x) or kept[0], r"it returned a scalar of another builder"),
    "two results": (lambda b, c, x: (x, x), r"returned \(<scalar of kind f32>, <scalar of kind f32>\); it returns a scalar"),
    "generator": (lambda b, c, x: (yield x), r"returned <generator .*; it returns a scalar that the builder made"),
    "coroutine": (awaited(), r"returned <coroutine .*; it returns a scalar that the builder made"),
    "the builder": (lambda b, c, x: b, r"returned <.*; it returns a scalar that the builder made"),
    "its own fault": (lambda b, c, x: {}["slope"], r"raised KeyError\('slope'\)"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", RULES)
@pytest.mark.filterwarnings("ignore:coroutine")
def test_rules(mistake: str) -> None:
    rule, message = RULES[mistake]
    kept[:] = [RuleBuilder(NumpyBuilder()).wrap(NumpyBuilder().constant("f32", 1.0))]
    registered(rule)
    with pytest.raises(hlojit.PluginError, match=message) as caught:
        hlojit.compile(OP)
    said = one_line(caught.value)
    assert said.startswith("op 'nova.op' (hlojit-nova 0.1.0): the rule of Pointwise")
    assert f" at {__file__}:" in said or f"(at {__file__}:" in said


def gelu(b: Any, call: Any, x: Any) -> Any:
    """Everything that rules may do, constants of NumPy's included."""
    half, one = b.constant(x.kind, np.float32(0.5)), b.constant(x.kind, 1)
    slope = b.select(b.fcmp("ogt", x, half), one, b.lookup("f32", (0.25, 0.5), b.zext(b.fcmp("olt", x, half), "i32")))
    bits = b.bitcast(b.fabs(x), "i32")
    shifted = b.sitofp(b.ashr(b.add(bits, b.constant("i32", 1 << 20)), b.constant("i32", 23)), "f32")
    return b.fma(slope, x, b.fptrunc(b.fpext(shifted)))


def test_a_sound_rule_computes_the_same_on_all_builders() -> None:
    registered(gelu)
    compiled = hlojit.compile(OP)(X)
    numpy_builder = NumpyBuilder()
    plain = gelu(numpy_builder, None, numpy_builder.value("f32", X))
    np.testing.assert_array_equal(compiled, numpy_builder.array(plain))


def test_the_checked_builder_has_every_method_of_the_protocol() -> None:
    assert isinstance(RuleBuilder(NumpyBuilder()), ScalarBuilder)


@pytest.mark.parametrize("name", sorted(name for name in vars(ScalarBuilder) if not name.startswith("_")))
def test_every_method_refuses_what_is_no_scalar(name: str) -> None:
    b = RuleBuilder(NumpyBuilder())
    method = getattr(b, name)
    arguments: dict[str, tuple[Any, ...]] = {
        "constant": ("f32", None),
        "lookup": ("f32", (1.0,), 0),
        "call": (abs, ("f32",), "f32", (1.0,), "a test"),
        "icmp": ("eq", 1, 1),
        "fcmp": ("oeq", 1.0, 1.0),
        "fma": (1.0, 1.0, 1.0),
        "select": (True, 1.0, 1.0),
    }
    casts = {"bitcast", "sext", "zext", "trunc", "sitofp", "uitofp", "fptosi", "fptoui"}
    unary = {
        "population_count",
        "count_leading_zeros",
        "fneg",
        "fabs",
        "sqrt",
        "floor",
        "ceil",
        "truncate",
        "round_even",
    }
    unary |= {"fpext", "fptrunc", "half_to_float", "float_to_half"}
    given = arguments.get(name, (1, "i32") if name in casts else (1,) if name in unary else (1, 1))
    with pytest.raises(Misuse, match=rf"b\.{name} was given .*, which is no (scalar|number)"):
        method(*given)
