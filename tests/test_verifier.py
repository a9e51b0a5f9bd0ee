"""The verifier: structure of the graph, calls, and that all faults come out in one go."""

from __future__ import annotations

import hlojit
import pytest
from hlojit.ir.attributes import IntegerAttr
from hlojit.ir.builder import Builder, build_function
from hlojit.ir.errors import VerificationError
from hlojit.ir.graph import Block, Function, Instruction, Module
from hlojit.ir.location import FileLocation
from hlojit.ir.ops.definition import op, unregistered_op
from hlojit.ir.types import tensor
from hlojit.ir.verifier import collect_faults, verify

F32 = tensor((2,), "f32")
SCALAR = tensor((), "i32")


def correct() -> Module:
    module = Module()
    with build_function(module, "main", [F32]) as builder:
        builder.return_(builder.add(builder.arguments[0], builder.arguments[0]))
    return module


def complaints(module: Module) -> list[str]:
    return [str(fault).partition("\n")[0] for fault in collect_faults(module)]


def test_correct_module_has_no_faults() -> None:
    verify(correct())


def test_use_before_definition() -> None:
    module = correct()
    body = module.main.body
    add = body.first
    assert add is not None
    later = Instruction(op("add"), [add.result, add.result], [F32])
    body.insert_before(body.terminator, later)
    add.set_operand(1, later.result)
    assert complaints(module) == [f"add: operand 1 ({later.result!r}) is not defined before its use"]


def test_value_of_another_function() -> None:
    module = correct()
    other = correct().main.body.first
    assert other is not None
    module.main.body.terminator.set_operand(0, other.result)
    assert "is not defined before its use" in complaints(module)[0]


def test_value_from_inside_a_region_is_not_visible_behind_it() -> None:
    module = Module()
    inner = []

    def branch(builder: Builder) -> object:
        inner.append(builder.constant(1, SCALAR))
        return inner[-1]

    with build_function(module, "main", [tensor((), "i1")]) as builder:
        builder.if_(builder.arguments[0], branch, branch)
        builder.return_(inner[0])
    assert [text.partition(" (")[0] for text in complaints(module)] == ["func.return: operand 0"]


def test_region_reads_values_from_outside() -> None:
    module = Module()
    with build_function(module, "main", [tensor((), "i1"), F32]) as builder:
        _, outside = builder.arguments
        builder.return_(*builder.if_(builder.arguments[0], lambda b: outside, lambda b: b.negate(outside)))
    verify(module)


def test_missing_and_misplaced_terminators() -> None:
    module = correct()
    module.main.body.terminator.erase()
    assert complaints(module) == ["add: ends a block of function @main, which must end in func.return"]
    builder = Builder(module.main.body)
    builder.create("stablehlo.return", module.main.body.first.results)  # type: ignore[union-attr]
    assert complaints(module) == ["return: ends a block of function @main, which must end in func.return"]
    builder.create("func.return", module.main.body.first.results)  # type: ignore[union-attr]
    assert complaints(module) == ["return: a terminator must be the last instruction of its block"]


def test_empty_region() -> None:
    module = Module()
    with build_function(module, "main", [tensor((), "i1")]) as builder:
        broken = Instruction(op("if"), builder.arguments, [], {}, [Block(), Block()])
        builder.insert(broken)
        builder.return_()
    assert complaints(module)[0] == "if: a region of if is empty; it must end in stablehlo.return"


def test_results_of_the_function() -> None:
    module = correct()
    module.main.result_types = [SCALAR]
    assert complaints(module) == ["func.return: returns tensor<2xf32> but @main is declared to return tensor<i32>"]


def test_result_types_are_compared_with_the_inferred_ones() -> None:
    module = Module()
    with build_function(module, "main", [F32]) as builder:
        wrong = builder.create("add", [builder.arguments[0]] * 2, result_types=[tensor((3,), "f32")])
        builder.return_(wrong.result)
    (text,) = complaints(module)
    assert text.startswith("add (C")
    assert "tensor<3xf32>" in text


@pytest.mark.parametrize("shape", [(2,), (-1,)])
def test_unknown_sizes_are_compatible(shape: tuple[int, ...]) -> None:
    module = Module()
    with build_function(module, "main", [F32]) as builder:
        builder.return_(builder.create("add", [builder.arguments[0]] * 2, result_types=[tensor(shape, "f32")]).result)
    verify(module)


def test_operand_count_attributes_and_regions() -> None:
    module = Module()
    with build_function(module, "main", [F32]) as builder:
        x = builder.arguments[0]
        builder.insert(Instruction(op("add"), [x], [F32]))
        builder.insert(Instruction(op("transpose"), [x], [F32]))
        builder.insert(Instruction(op("negate"), [x], [F32], {"speed": 1}))
        builder.insert(Instruction(op("while"), [x], [F32]))
        builder.return_()
    assert complaints(module) == [
        "add: takes 2 operands (lhs, rhs), found 1",
        "transpose: attribute permutation is missing; it is array<i64: ...>",
        "negate: has no attribute speed; its attributes: none",
        "while: takes 2 regions, found 0",
    ]


def test_unregistered_op() -> None:
    module = Module()
    with build_function(module, "main", [F32]) as builder:
        builder.insert(Instruction(unregistered_op("vendor.op"), builder.arguments, [F32]))
        builder.return_()
    assert complaints(module) == ["vendor.op: the op is not registered"]
    verify(module, allow_unregistered=True)
    hlojit.verify(module, allow_unregistered=True)
    with pytest.raises(VerificationError, match="not registered"):
        hlojit.verify(module)


def add_function(module: Module, name: str, callee: str) -> None:
    function = module.add_function(Function(name, [F32], [F32], visibility="private"))
    builder = Builder(function.body)
    call = builder.create("func.call", function.body.arguments, attributes={"callee": callee}, result_types=[F32])
    builder.return_(*call.results)


def test_calls() -> None:
    module = correct()
    with build_function(module, "caller", [SCALAR]) as builder:
        builder.create("func.call", [], attributes={"callee": "nobody"}, result_types=[])
        builder.create("func.call", builder.arguments, attributes={"callee": "main"}, result_types=[SCALAR])
        builder.return_()
    assert complaints(module) == [
        "func.call (callee): there is no function @nobody in the module",
        "func.call (callee): @main has type (tensor<2xf32>) -> tensor<2xf32> but is called as (tensor<i32>) -> tensor<i32>",
    ]


def test_recursion_is_refused() -> None:
    module = correct()
    add_function(module, "a", "b")
    add_function(module, "b", "c")
    add_function(module, "c", "a")
    add_function(module, "d", "a")
    assert complaints(module) == ["func.call: recursion is not allowed: @a -> @b -> @c -> @a"]
    module = correct()
    add_function(module, "itself", "itself")
    assert complaints(module) == ["func.call: recursion is not allowed: @itself -> @itself"]


def test_all_faults_come_with_label_and_location() -> None:
    module = Module()
    with build_function(module, "main", [tensor((2, 3), "f32")]) as builder:
        builder.location = FileLocation("model.py", 7, 5)
        for permutation in ((0, 0), (1, 0, 2)):
            builder.create(
                "transpose",
                builder.arguments,
                attributes={"permutation": permutation},
                result_types=[tensor((3, 2), "f32")],
            )
        builder.return_()
    with pytest.raises(VerificationError) as caught:
        verify(module)
    text = str(caught.value)
    assert text.startswith(f"{len(caught.value.faults)} faults in the program:\n  transpose (C2): permutation (0, 0)")
    assert {fault.label for fault in caught.value.faults} >= {"C2"}
    assert text.count("at model.py:7:5") == len(caught.value.faults)


def test_deep_nesting_needs_no_recursion() -> None:
    module = Module()
    with build_function(module, "main", [tensor((), "i1")]) as builder:
        block = builder.block
        for _ in range(3000):
            inner = [Block(), Block()]
            block.append(Instruction(op("if"), builder.arguments, [], {}, inner))
            Builder(inner[1]).create("stablehlo.return")
            if block is not builder.block:
                Builder(block).create("stablehlo.return")
            block = inner[0]
        Builder(block).create("stablehlo.return")
        builder.return_()
    assert [fault.message for fault in collect_faults(module)] == ["its regions nest deeper than 128 levels"]


UNKNOWN_OPS = """func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "novel.op"(%a) ({
    ^bb0(%b: tensor<2xf32>):
      %1 = "stablehlo.abs"(%b) : (tensor<2xf32>) -> tensor<SIZExf32>
      "novel.yield"() : () -> ()
  }) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}"""


def test_allow_unregistered_passes_over_unknown_ops_and_checks_what_is_in_their_regions() -> None:
    text = UNKNOWN_OPS.replace("SIZE", "2")
    hlojit.verify(text, allow_unregistered=True)
    module = hlojit.parse(text, allow_unregistered=True)
    hlojit.verify(module, allow_unregistered=True)
    with pytest.raises(hlojit.VerificationError, match=r"novel\.op: the op is not registered"):
        hlojit.verify(module)
    with pytest.raises(hlojit.VerificationError, match=r"abs \(C1\)"):
        hlojit.verify(UNKNOWN_OPS.replace("SIZE", "3"), allow_unregistered=True)
    with pytest.raises(hlojit.ParseError, match="unknown op"):
        hlojit.verify(text)


def test_functions_and_modules() -> None:
    module = correct()
    module.attributes["mhlo.num_replicas"] = IntegerAttr(0, "i32")
    module.functions["main"].visibility = "novel"
    module.functions["main"].argument_attributes = [{}, {}, {}]
    module.functions["other"] = Function("another", [], [])
    found = [str(fault) for fault in collect_faults(module)]
    assert any("num_replicas=0" in text and "(grid)" in text for text in found), found
    assert any("visibility 'novel' is none of public, private, nested" in text for text in found), found
    assert any("stands under the name 'other'" in text for text in found), found
    module.functions["main"].visibility = "public"
    assert any("there are attributes of 3 arguments" in str(fault) for fault in collect_faults(module))


def test_attributes_that_are_lists_are_checked_like_others() -> None:
    module = Module()
    function = module.add_function(Function("main", [F32], []))
    for permutation in ([0], [1]):
        function.body.append(Instruction(op("transpose"), function.body.arguments, [F32], {"permutation": permutation}))
    Builder(function.body).return_()
    (fault,) = collect_faults(module)
    assert fault.label == "C2"
