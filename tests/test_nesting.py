"""Regions that nest deeper than any step could follow are an error that says so, and what does not recurse still works."""

from __future__ import annotations

import hlojit
import numpy as np
import pytest
from hlojit.ir import evaluate
from hlojit.ir.graph import DEEPEST_REGION, Block, Function, Instruction, Module, Value
from hlojit.ir.ops.definition import op
from hlojit.ir.types import tensor

F32 = tensor((), "f32")


def nested(depth: int) -> Module:
    """``x + x`` inside of ``depth`` ifs."""
    module = Module()
    function = module.add_function(Function("main", [tensor((), "i1"), F32], [F32]))
    predicate, x = function.body.arguments
    made = Instruction(op("add"), [x, x], [F32])
    for _ in range(depth):
        made = Instruction(op("if"), [predicate], [F32], regions=[returning(made, made.result), returning(None, x)])
    function.body.append(made)
    function.body.append(Instruction(op("func.return"), [made.result], []))
    return module


def returning(instruction: Instruction | None, value: Value) -> Block:
    block = Block()
    if instruction is not None:
        block.append(instruction)
    block.append(Instruction(op("stablehlo.return"), [value], []))
    return block


def test_the_deepest_nesting_is_verified_printed_compiled_and_interpreted() -> None:
    module = nested(DEEPEST_REGION)
    hlojit.verify(module)
    assert str(module).count("stablehlo.if") == DEEPEST_REGION
    assert hlojit.compile(module)(np.bool_(True), np.float32(2)) == 4
    assert hlojit.compile(module, backend="reference")(np.bool_(True), np.float32(2)) == 4


@pytest.mark.parametrize("depth", [DEEPEST_REGION + 1, 1000])
def test_deeper_nesting_is_refused(depth: int) -> None:
    module = nested(depth)
    for act in (hlojit.verify, hlojit.compile):
        with pytest.raises(hlojit.VerificationError, match=f"if: its regions nest deeper than {DEEPEST_REGION} levels"):
            act(module)
    with pytest.raises(hlojit.HlojitError, match=f"deeper than {DEEPEST_REGION} levels: the program cannot be printed"):
        str(module)


def test_cloning_freezing_and_dropping_do_not_recurse() -> None:
    module = nested(5000)
    clone = module.clone().freeze()
    assert sum(1 for _ in clone.walk()) == sum(1 for _ in module.walk())
    module.main.body.drop_all_references()
    with pytest.raises(hlojit.ExecutionError, match="nest too deep"):
        evaluate(clone, np.bool_(True), np.float32(2))


def test_inlining_that_nests_too_deep_is_refused() -> None:
    """Each function calls the next from inside of an if; none of them nests deep by itself."""
    module = Module()
    count = DEEPEST_REGION + 1
    for number in range(count):
        function = module.add_function(
            Function("main" if number == 0 else f"f{number}", [tensor((), "i1"), F32], [F32])
        )
        predicate, x = function.body.arguments
        inner = Instruction(op("add"), [x, x], [F32])
        if number + 1 < count:
            inner = Instruction(op("func.call"), [predicate, x], [F32], {"callee": f"f{number + 1}"})
        branch = Instruction(op("if"), [predicate], [F32], regions=[returning(inner, inner.result), returning(None, x)])
        function.body.append(branch)
        function.body.append(Instruction(op("func.return"), [branch.result], []))
        if number:
            function.visibility = "private"
    hlojit.verify(module)
    with pytest.raises(hlojit.HlojitError, match=r"inlining the calls in @main makes regions that nest deeper than"):
        hlojit.compile(module)


def test_a_program_whose_entry_has_no_body_is_refused() -> None:
    module = hlojit.parse("func.func private @main(tensor<4xf32>) -> tensor<4xf32>")
    hlojit.verify(module)
    for backend in ("cpu", "reference"):
        with pytest.raises(hlojit.HlojitError, match=r"(?s)the entry function @main has no body.*<string>:1:1"):
            hlojit.compile(module, backend=backend)
    with pytest.raises(hlojit.HlojitError, match="has no body"):
        evaluate(module, np.ones(4, "f4"))
